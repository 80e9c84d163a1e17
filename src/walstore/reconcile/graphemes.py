"""Gaps that keep what a reader sees as one character in one piece.

- The rules are those of extended grapheme clusters (UAX #29), by the Unicode tables of the
  running Python. Where a rule looks far back ours keeps a little more together, never less.
- Only the two characters at a border are looked at, and what is before them if that decides.
- A gap that only inserts or only removes slides left to a place between clusters, if the same
  edit can be said there. Otherwise a border inside a cluster moves to the end of the cluster.
- A cluster, or a row of flags, longer than `CLUSTER_LEN_MAX` may be split; no language has one.
- Past `MOVES_MAX` the gaps that are left become one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache
from unicodedata import category

from walstore.reconcile.gaps import Gap

CLUSTER_LEN_MAX = 64

# A move takes a microsecond or two, some more within a row of flags.
MOVES_MAX = 2**14

# Below the first combining mark, CR LF is all that belongs together.
_FIRST_MARK = "\u0300"


class _Kind(Enum):
    """What a character does to its neighbours; the names are those of UAX #29."""

    OTHER = auto()
    CONTROL = auto()
    EXTEND = auto()
    LINKER = auto()
    ZWJ = auto()
    PREPEND = auto()
    FLAG_HALF = auto()
    LETTER = auto()
    HANGUL_L = auto()
    HANGUL_V = auto()
    HANGUL_T = auto()
    HANGUL_SYLLABLE = auto()
    HIGH_SURROGATE = auto()
    LOW_SURROGATE = auto()


# What the category of a character does not tell, by first and last code point.
_RANGES = (
    (0x0600, 0x0605, _Kind.PREPEND),  # signs written around the digits that follow
    (0x06DD, 0x06DD, _Kind.PREPEND),
    (0x070F, 0x070F, _Kind.PREPEND),
    (0x0890, 0x0891, _Kind.PREPEND),
    (0x08E2, 0x08E2, _Kind.PREPEND),
    (0x094D, 0x094D, _Kind.LINKER),  # viramas that join two consonants into one cluster
    (0x09CD, 0x09CD, _Kind.LINKER),
    (0x0ACD, 0x0ACD, _Kind.LINKER),
    (0x0B4D, 0x0B4D, _Kind.LINKER),
    (0x0C4D, 0x0C4D, _Kind.LINKER),
    (0x0D4D, 0x0D4D, _Kind.LINKER),
    (0x0D4E, 0x0D4E, _Kind.PREPEND),
    (0x0E33, 0x0E33, _Kind.EXTEND),  # Thai and Lao AM, letters by category
    (0x0EB3, 0x0EB3, _Kind.EXTEND),
    (0x1039, 0x1039, _Kind.LINKER),
    (0x1100, 0x115F, _Kind.HANGUL_L),
    (0x1160, 0x11A7, _Kind.HANGUL_V),
    (0x11A8, 0x11FF, _Kind.HANGUL_T),
    (0x17D2, 0x17D2, _Kind.LINKER),
    (0x1A60, 0x1A60, _Kind.LINKER),
    (0x200C, 0x200C, _Kind.EXTEND),
    (0x200D, 0x200D, _Kind.ZWJ),
    (0xA960, 0xA97C, _Kind.HANGUL_L),
    (0xAC00, 0xD7A3, _Kind.HANGUL_SYLLABLE),
    (0xD7B0, 0xD7C6, _Kind.HANGUL_V),
    (0xD7CB, 0xD7FB, _Kind.HANGUL_T),
    (0xD800, 0xDBFF, _Kind.HIGH_SURROGATE),
    (0xDC00, 0xDFFF, _Kind.LOW_SURROGATE),
    (0xFF9E, 0xFF9F, _Kind.EXTEND),  # half-width sound marks of kana
    (0x110BD, 0x110BD, _Kind.PREPEND),
    (0x110CD, 0x110CD, _Kind.PREPEND),
    (0x111C2, 0x111C3, _Kind.PREPEND),
    (0x113D1, 0x113D1, _Kind.PREPEND),
    (0x1193F, 0x1193F, _Kind.PREPEND),
    (0x11941, 0x11941, _Kind.PREPEND),
    (0x11A3A, 0x11A3A, _Kind.PREPEND),
    (0x11A84, 0x11A89, _Kind.PREPEND),
    (0x11D46, 0x11D46, _Kind.PREPEND),
    (0x11F02, 0x11F02, _Kind.PREPEND),
    (0x16D63, 0x16D63, _Kind.HANGUL_V),  # vowels of Kirat Rai, which join as those of Hangul do
    (0x16D67, 0x16D6A, _Kind.HANGUL_V),
    (0x1F1E6, 0x1F1FF, _Kind.FLAG_HALF),
    (0x1F3FB, 0x1F3FF, _Kind.EXTEND),  # skin tones
    (0xE0020, 0xE007F, _Kind.EXTEND),  # tags, which spell the flags of regions
)

_FLAG_HALVES = re.compile("[\U0001f1e6-\U0001f1ff]+")

_BY_CATEGORY = {
    **dict.fromkeys(("Mn", "Me", "Mc"), _Kind.EXTEND),
    **dict.fromkeys(("Cc", "Cf", "Zl", "Zp"), _Kind.CONTROL),
    "Lo": _Kind.LETTER,
}

_MARKS = frozenset({_Kind.EXTEND, _Kind.LINKER, _Kind.ZWJ})

# Which kinds the Hangul rules join to the kind before them. A syllable with a final consonant
# and one without are not told apart: one more case of keeping more together.
_HANGUL_JOINS = {
    _Kind.HANGUL_L: frozenset({_Kind.HANGUL_L, _Kind.HANGUL_V, _Kind.HANGUL_SYLLABLE}),
    _Kind.HANGUL_V: frozenset({_Kind.HANGUL_V, _Kind.HANGUL_T}),
    _Kind.HANGUL_T: frozenset({_Kind.HANGUL_T}),
    _Kind.HANGUL_SYLLABLE: frozenset({_Kind.HANGUL_V, _Kind.HANGUL_T}),
}


class Clusters:
    """The grapheme clusters of a text, found where they are asked for."""

    __slots__ = ("_flags_end", "_flags_start", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        # The last row of flags that was looked at, so that a long one is counted once.
        self._flags_start = self._flags_end = 0

    def is_inside(self, position: int) -> bool:
        """Whether a cut at `position` would split a cluster."""
        if not 0 < position < len(self.text):
            return False
        before, after = self.text[position - 1], self.text[position]
        if before < _FIRST_MARK and after < _FIRST_MARK:
            return before == "\r" and after == "\n"
        return self._is_joined(position, _kind(before), _kind(after))

    def _is_joined(self, position: int, before: _Kind, after: _Kind) -> bool:
        if before is _Kind.CONTROL or after is _Kind.CONTROL:
            return False
        if after in _MARKS or before is _Kind.PREPEND:
            return True
        if before is _Kind.FLAG_HALF and after is _Kind.FLAG_HALF:
            return self._flag_halves_before(position) % 2 == 1
        if before in _MARKS:
            return self._joins_on(position, after)
        if before is _Kind.HIGH_SURROGATE:
            return after is _Kind.LOW_SURROGATE
        return before in _HANGUL_JOINS and after in _HANGUL_JOINS[before]

    def _joins_on(self, position: int, after: _Kind) -> bool:
        """Whether the marks before `position` tie what follows to what they are on."""
        if self.text[position - 1] == "\u200d":
            # Emoji are joined by it. Letters are too: it asks for them to be written as one.
            return self.text[position] >= "\u00a9"
        if after is not _Kind.LETTER:
            return False
        for character in self.text[max(position - CLUSTER_LEN_MAX, 0) : position][::-1]:
            kind = _kind(character)
            if kind is _Kind.LINKER or kind not in _MARKS:
                return kind is _Kind.LINKER
        return False

    def _flag_halves_before(self, position: int) -> int:
        if not self._flags_start < position <= self._flags_end:
            start = position
            while start and _kind(self.text[start - 1]) is _Kind.FLAG_HALF:
                start -= 1
            row = _FLAG_HALVES.match(self.text, start)
            self._flags_start, self._flags_end = start, row.end() if row else start
        return position - self._flags_start


def keep_clusters_whole(old: str, new: str, gaps: Sequence[Gap]) -> list[Gap]:
    """The same edit with no border inside a cluster of either text.

    Args:
        old: The old text.
        new: The new text.
        gaps: What differs between them, in order; two gaps never touch.
    """
    if old.isascii() and new.isascii() and "\r" not in old and "\r" not in new:
        return list(gaps)
    return _Borders(old, new).settle(gaps)


class _Borders:
    """Moves the borders of the gaps between two texts, and counts the moves."""

    def __init__(self, old: str, new: str) -> None:
        self._old = Clusters(old)
        self._new = Clusters(new)
        self._moves_left = MOVES_MAX

    def settle(self, gaps: Sequence[Gap]) -> list[Gap]:
        settled: list[Gap] = []
        waiting = list(reversed(gaps))
        while waiting:
            gap = waiting.pop()
            if self._moves_left <= 0:
                gap = _span(gap, waiting[0] if waiting else gap)
                waiting.clear()
            gap = self._slid(gap, settled[-1].old_end + 1 if settled else 0)
            gap = self._widened_left(gap, settled)
            self._append_widened_right(gap, settled, waiting)
        return settled

    def _widened_left(self, gap: Gap, settled: list[Gap]) -> Gap:
        floor = settled[-1].old_end if settled else 0
        steps = self._steps(gap.old_start, gap.new_start, -1, gap.old_start - floor)
        gap = gap._replace(old_start=gap.old_start - steps, new_start=gap.new_start - steps)
        return _span(settled.pop(), gap) if settled and gap.old_start == floor else gap

    def _append_widened_right(self, gap: Gap, settled: list[Gap], waiting: list[Gap]) -> None:
        while True:
            ceiling = waiting[-1].old_start if waiting else len(self._old.text)
            steps = self._steps(gap.old_end, gap.new_end, 1, ceiling - gap.old_end)
            gap = gap._replace(old_end=gap.old_end + steps, new_end=gap.new_end + steps)
            if not waiting or gap.old_end < ceiling:
                break
            gap = _span(gap, waiting.pop())
        settled.append(gap)

    def _steps(self, old_at: int, new_at: int, direction: int, limit: int) -> int:
        """How many characters a border has to move to be outside of every cluster."""
        for steps in range(min(limit, CLUSTER_LEN_MAX) + 1):
            if not self._is_inside(old_at + direction * steps, new_at + direction * steps):
                self._moves_left -= steps
                return steps
        self._moves_left -= steps
        # At the limit is the next gap, which then is part of this one.
        return limit if limit <= CLUSTER_LEN_MAX else 0

    def _slid(self, gap: Gap, floor: int) -> Gap:
        """The same edit further left, where it splits nothing; the gap itself if there is none."""
        slid = gap
        for _ in range(CLUSTER_LEN_MAX):
            if not self._splits(slid):
                return slid
            if slid.old_start == floor or not self._can_slide(slid):
                return gap
            slid = Gap(*(position - 1 for position in slid))
            self._moves_left -= 1
        return gap

    def _can_slide(self, gap: Gap) -> bool:
        # What the gap leaves behind on its right must be what it takes in on its left. That holds
        # by itself for a side that is empty.
        old, new = self._old.text, self._new.text
        return (
            old[gap.old_start - 1] == old[gap.old_end - 1]
            and new[gap.new_start - 1] == new[gap.new_end - 1]
        )

    def _splits(self, gap: Gap) -> bool:
        return self._is_inside(gap.old_start, gap.new_start) or self._is_inside(
            gap.old_end, gap.new_end
        )

    def _is_inside(self, old_at: int, new_at: int) -> bool:
        return self._old.is_inside(old_at) or self._new.is_inside(new_at)


def _span(first: Gap, last: Gap) -> Gap:
    """Both gaps and all between them."""
    return Gap(first.old_start, last.old_end, first.new_start, last.new_end)


@lru_cache(maxsize=4096)
def _kind(character: str) -> _Kind:
    code = ord(character)
    for first, last, kind in _RANGES:
        if first <= code <= last:
            return kind
    return _BY_CATEGORY.get(category(character), _Kind.OTHER)
