"""Where two strings agree, found within bounded work.

- `compare` gives a longest common subsequence, at a cost that grows with the area.
- `follow` walks along both strings over small edits, at a cost that grows with their number.
- `match_unique` relates what each string has exactly once, at a cost that grows with the length.
- All that one diff does is counted in one `Work`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeAlias

from rapidfuzz.distance import Indel

from walstore.reconcile.gaps import Block, Gap, behind, common_prefix

# An area is the product of two lengths: comparing takes one bit of memory per unit, and about a
# millisecond per 2^24 units. 32 MiB at most, and some 20 ms, for one diff.
WORK_AREA_MAX: Final = 2**28

# Comparing also takes 24 bytes per element of either side.
COMPARED_LEN_MAX: Final = 2**19

# Strings are followed over no more edits than these at once …
EDITS_MAX: Final = 16

# … to where they agree for so long again.
AGREEMENT_CHARS_MIN: Final = 32

# The removed and inserted characters of the edits that are tried before any others.
_SINGLE_EDITS: Final = ((0, 1), (1, 0), (1, 1))

# How many steps that may take in one diff, a microsecond or two each.
STEPS_MAX: Final = 2**14

# How far one gets in old, and the equal blocks on the way.
_Path: TypeAlias = tuple[int, tuple[Block, ...]]
_NOWHERE: _Path = (-2, ())


class Work:
    """What one diff may still spend on comparing."""

    __slots__ = ("area_left", "steps_left")

    def __init__(self, steps_max: int = STEPS_MAX) -> None:
        self.area_left = WORK_AREA_MAX
        self.steps_left = steps_max

    def allows(self, gap: Gap) -> bool:
        """Whether the sides of the gap may still be compared."""
        length = gap.old_end - gap.old_start + gap.new_end - gap.new_start
        return gap.area <= self.area_left and length <= COMPARED_LEN_MAX

    def take_step(self) -> bool:
        """Whether one more step may be made to follow a text that is too large to compare."""
        self.steps_left -= 1
        return self.steps_left >= 0


def compare(old: str, new: str, gap: Gap, work: Work) -> list[Block]:
    """A longest common subsequence of the two sides of a gap, which `work` allows."""
    work.area_left -= gap.area
    old_start, old_end, new_start, new_end = gap
    ops = Indel.editops(old[old_start:old_end], new[new_start:new_end])
    return [
        (old_start + block.a, new_start + block.b, block.size) for block in ops.as_matching_blocks()
    ]


def follow(old: str, new: str, gap: Gap, work: Work) -> list[Block]:
    """Equal blocks from the start of a gap on, up to where the sides part for good."""
    blocks: list[Block] = []
    while True:
        rest = behind(blocks, gap)
        found = _over_one(old, new, rest, work) or _next_agreement(old, new, rest, work)
        if not found:
            return blocks
        blocks += found


def _over_one(old: str, new: str, gap: Gap, work: Work) -> list[Block]:
    """The long block behind one character that was typed, removed or replaced, if that is all."""
    old_start, old_end, new_start, new_end = gap
    limit = min(old_end - old_start, new_end - new_start) - 1
    if limit < AGREEMENT_CHARS_MIN or old[old_start] == new[new_start] or not work.take_step():
        return []
    for removed, inserted in _SINGLE_EDITS:
        old_at, new_at = old_start + removed, new_start + inserted
        if old.startswith(new[new_at : new_at + AGREEMENT_CHARS_MIN], old_at):
            size = common_prefix(old, new, Gap(old_at, old_end, new_at, new_end))
            return [(old_at, new_at, size)]
    return []


def _next_agreement(old: str, new: str, gap: Gap, work: Work) -> list[Block]:
    """The blocks up to a long one, with few edits between them; none if there is no such one.

    Each round allows one edit more, and notes for every diagonal (characters removed less those
    inserted) the furthest position in `old` that is reached, with the blocks on the way.
    """
    old_start, old_end, new_start, new_end = gap
    reached: dict[int, _Path] = {}
    for edits in range(EDITS_MAX + 1 if gap.area else 0):
        for diagonal in sorted(range(-edits, edits + 1, 2), key=abs):
            path = _further(reached, diagonal, old_end) if edits else (old_start, ())
            old_at, blocks = path
            new_at = new_start + old_at - old_start - diagonal
            if old_at < old_start or new_at > new_end or not work.take_step():
                continue
            size = common_prefix(old, new, Gap(old_at, old_end, new_at, new_end))
            reached[diagonal] = old_at + size, (*blocks, (old_at, new_at, size))
            if size >= AGREEMENT_CHARS_MIN:
                return list(reached[diagonal][1])
    return []


def _further(reached: dict[int, _Path], diagonal: int, old_end: int) -> _Path:
    """How far one more removal or one more insertion leads on a diagonal."""
    removal, blocks = reached.get(diagonal - 1, _NOWHERE)
    insertion = reached.get(diagonal + 1, _NOWHERE)
    return (removal + 1, blocks) if insertion[0] <= removal < old_end else insertion


def match_unique(old: str, new: str, gap: Gap) -> list[Block]:
    """The characters that each side of a gap has once, as many as are in the same order."""
    olds, news = _unique(old, gap.old_start, gap.old_end), _unique(new, gap.new_start, gap.new_end)
    pairs = [(start, news[character]) for character, start in olds.items() if character in news]
    return _joined([pairs[index] for index in _longest_rise([start for _, start in pairs])])


def _joined(pairs: Iterable[tuple[int, int]]) -> list[Block]:
    """Equal characters as blocks, those that follow each other on both sides as one."""
    blocks: list[Block] = []
    for old_at, new_at in pairs:
        old_start, new_start, size = blocks[-1] if blocks else (-1, -1, 0)
        if (old_start + size, new_start + size) == (old_at, new_at):
            blocks[-1] = (old_start, new_start, size + 1)
        else:
            blocks.append((old_at, new_at, 1))
    return blocks


def _unique(text: str, start: int, end: int) -> dict[str, int]:
    """Where the characters are that occur once, in their order."""
    part = text[start:end]
    counts = Counter(part)
    return {character: at for at, character in enumerate(part, start) if counts[character] == 1}


def _longest_rise(values: list[int]) -> list[int]:
    """The indices of a longest rising subsequence of distinct values."""
    lows: list[int] = []  # The lowest value that ends a rise of each length …
    ends: list[int] = []  # … and its index.
    before: list[int] = []
    for index, value in enumerate(values):
        length = bisect_left(lows, value)
        before.append(ends[length - 1] if length else -1)
        lows[length : length + 1] = [value]
        ends[length : length + 1] = [index]
    rise: list[int] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        rise.append(index)
        index = before[index]
    return rise[::-1]
