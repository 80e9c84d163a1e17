"""Where two strings differ, in as few characters as the allowed work can find.

- A `Gap` is a stretch of the old string that became a stretch of the new one. Everything
  between two gaps is equal, and there is always something between them.
- What both ends share is cut off first; that never makes a result worse.
- Up to `EXACT_AREA_MAX` the gaps are minimal: they come from a longest common subsequence.
- Beyond it, the texts are followed from one small edit to the next, which is all there is to most
  edits. From where that leads no further, lines and then pieces are aligned first, and only what
  lies between them is looked at by character. That is close to minimal for text that people edit,
  and not promised.
- All comparing of one diff together is held to `WORK_AREA_MAX`. What is left once that is used
  up is followed from edit to edit as long as they are small, and then replaced as a whole:
  coarser, never wrong, never slow.
- Any sequence can be aligned as a string, once each element has been given a character.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, compress, count, islice
from operator import add, ne
from typing import Final

from walstore.reconcile.blocks import Work, compare, follow, match_unique
from walstore.reconcile.gaps import Block, Gap, behind, between, trim

# The product of two lengths: two texts of 4,000 characters, a millisecond.
EXACT_AREA_MAX: Final = 2**24

# A few hundred small edits are followed in about a millisecond; lines are quicker for more.
FOLLOWED_STEPS_MAX: Final = 2**10

# A line or piece takes about 130 bytes while it is looked at; a side has no more than these.
TOKENS_MAX: Final = 2**16

# How long the pieces of a text without lines are meant to be.
PIECE_CHARS: Final = 32

# The longer the text, the longer its pieces, so that comparing them stays affordable.
PIECES_MAX: Final = 2**13

# How many characters are looked at to choose where to cut.
SAMPLE_CHARS: Final = 1024

# Shorter agreements than this are chance, and would stand in the way of better ones.
ANCHOR_CHARS_MIN: Final = 16

# Elements that only one side has never match, so they need no character of their own.
_ONLY_OLD, _ONLY_NEW, _FIRST_SHARED = "\x00", "\x01", 2
_SHARED_MAX = 0x110000 - _FIRST_SHARED


def align_text(old: str, new: str, gap: Gap) -> list[Gap]:
    """The gaps inside a trimmed gap of two texts."""
    work = Work()
    if gap.area <= EXACT_AREA_MAX:
        return _align_characters(old, new, gap, work)
    blocks = follow(old, new, gap, Work(FOLLOWED_STEPS_MAX))
    rest = behind(blocks, gap)
    gaps = between(blocks, Gap(gap.old_start, rest.old_start, gap.new_start, rest.new_start))
    if rest.area > EXACT_AREA_MAX:
        return gaps + _refine(old, new, _align_cut(old, new, rest, "\n", work), work)
    return gaps + _align_characters(old, new, rest, work)


def align_tokens(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Gap]:
    """The gaps between two sequences."""
    prefix = _agreement(old, new)
    suffix = _agreement(old[prefix:][::-1], new[prefix:][::-1])
    gaps = _align_encoded(
        *_encode(old[prefix : len(old) - suffix], new[prefix : len(new) - suffix])
    )
    return [Gap(*(prefix + position for position in gap)) for gap in gaps]


def _align_encoded(old: str, new: str) -> list[Gap]:
    work = Work()
    gap = Gap(0, len(old), 0, len(new))
    if work.allows(gap):
        return _align_characters(old, new, gap, work)
    return _refine(old, new, between(_match(old, new, gap, work), gap), work)


def _agreement(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """How many elements two sequences begin alike with."""
    return next(compress(count(), map(ne, left, right)), min(len(left), len(right)))


def _encode(old: Sequence[Hashable], new: Sequence[Hashable]) -> tuple[str, str]:
    """Two strings that agree wherever the two sequences do."""
    # Past the last character of Unicode, elements count as different: coarser, not wrong.
    shared = islice(set(old).intersection(new), _SHARED_MAX)
    characters = {element: chr(code) for code, element in enumerate(shared, _FIRST_SHARED)}
    return (
        "".join([characters.get(element, _ONLY_OLD) for element in old]),
        "".join([characters.get(element, _ONLY_NEW) for element in new]),
    )


def _refine(old: str, new: str, gaps: Iterable[Gap], work: Work) -> list[Gap]:
    """The gaps inside gaps, by pieces and then by characters."""
    finer: list[Gap] = []
    for gap in gaps:
        for piece in _align_pieces(old, new, trim(old, new, gap), work):
            finer += _align_characters(old, new, trim(old, new, piece), work)
    return finer


def _align_pieces(old: str, new: str, gap: Gap, work: Work) -> list[Gap]:
    if gap.area <= EXACT_AREA_MAX:
        return [gap]
    return _align_cut(old, new, gap, _cutter(old, gap), work)


def _align_characters(old: str, new: str, gap: Gap, work: Work) -> list[Gap]:
    """The minimal gaps inside a gap, or what can be had when they cost too much."""
    if not gap.area:
        return between((), gap)
    if work.allows(gap):
        return between(compare(old, new, gap, work), gap)
    gaps = between(follow(old, new, gap, work), gap)
    if gaps == [gap]:
        return gaps
    return [finer for smaller in gaps for finer in _align_characters(old, new, smaller, work)]


def _align_cut(old: str, new: str, gap: Gap, cutter: str, work: Work) -> list[Gap]:
    """The gaps between equal tokens, which are what is between two cutters."""
    left, right = old[gap.old_start : gap.old_end], new[gap.new_start : gap.new_end]
    if max(left.count(cutter), right.count(cutter)) >= TOKENS_MAX:
        return [gap]
    lefts, rights = left.split(cutter), right.split(cutter)
    if set(lefts).isdisjoint(rights):
        return [gap]
    blocks = _anchors(_equal_tokens(lefts, rights, work), _starts(lefts), _starts(rights))
    return between([(gap.old_start + i, gap.new_start + j, size) for i, j, size in blocks], gap)


def _equal_tokens(lefts: list[str], rights: list[str], work: Work) -> list[Block]:
    left, right = _encode(lefts, rights)
    gap = trim(left, right, Gap(0, len(left), 0, len(right)))
    blocks = _match(left, right, gap, work)
    return [(0, 0, gap.old_start), *blocks, (gap.old_end, gap.new_end, len(left) - gap.old_end)]


def _match(old: str, new: str, gap: Gap, work: Work) -> list[Block]:
    """The equal blocks of a gap, or some of them when it is too large to compare."""
    if work.allows(gap):
        return compare(old, new, gap, work)
    blocks = follow(old, new, gap, work)
    return [*blocks, *match_unique(old, new, behind(blocks, gap))]


def _anchors(tokens: Iterable[Block], lefts: list[int], rights: list[int]) -> Iterator[Block]:
    """Runs of equal tokens as characters, without those that are too short to mean anything."""
    for i, j, run in tokens:
        # The last token of a side has no cutter behind it, so one side may be a character short.
        size = min(lefts[i + run] - lefts[i], rights[j + run] - rights[j])
        if size >= ANCHOR_CHARS_MIN:
            yield lefts[i], rights[j], size


def _starts(tokens: list[str]) -> list[int]:
    """Where each token starts, and at last where the text ends."""
    starts = list(map(add, accumulate(map(len, tokens), initial=0), count()))
    starts[-1] -= 1
    return starts


def _cutter(text: str, gap: Gap) -> str:
    """A character of the gap that comes about once in a piece."""
    length = gap.old_end - gap.old_start
    sample = Counter(text[gap.old_start : gap.old_end : 1 + length // SAMPLE_CHARS])
    wanted = sample.total() / max(PIECE_CHARS, length / PIECES_MAX)
    return min(sample, key=lambda character: abs(sample[character] - wanted))
