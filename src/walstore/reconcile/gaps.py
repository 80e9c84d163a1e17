"""Stretches in which two strings differ, and the equal blocks between them.

- A `Gap` is a stretch of the old string that became a stretch of the new one.
- A `Block` is equal on both sides: position in old, position in new, length.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from rapidfuzz.distance import Postfix, Prefix

# Where two strings part is first looked for within so many characters.
NEAR_CHARS: Final = 64

# Once it is known to be within so many, they are counted.
COUNTED_CHARS: Final = 1024

Block: TypeAlias = tuple[int, int, int]


class Gap(NamedTuple):
    """`old[old_start:old_end]` became `new[new_start:new_end]`."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int

    @property
    def area(self) -> int:
        """What comparing the two sides costs; nothing when one of them is empty."""
        # Each row of a comparison is filled up to whole machine words.
        size = self.old_end - self.old_start
        return size and (size + 63) * (self.new_end - self.new_start)


def trim(old: str, new: str, gap: Gap) -> Gap:
    """The gap without what its two sides begin, and then end, alike with."""
    old_start, old_end, new_start, new_end = gap
    prefix = common_prefix(old, new, gap)
    rest = Gap(old_start + prefix, old_end, new_start + prefix, new_end)
    suffix = _common_suffix(old, new, rest)
    return Gap(old_start + prefix, old_end - suffix, new_start + prefix, new_end - suffix)


def between(blocks: Iterable[Block], gap: Gap) -> list[Gap]:
    """What of a gap lies before, between and behind equal blocks."""
    gaps: list[Gap] = []
    old_at, new_at = gap.old_start, gap.new_start
    full = [block for block in blocks if block[2]]
    for old_start, new_start, size in [*full, (gap.old_end, gap.new_end, 0)]:
        if old_start > old_at or new_start > new_at:
            gaps.append(Gap(old_at, old_start, new_at, new_start))
        old_at, new_at = old_start + size, new_start + size
    return gaps


def behind(blocks: list[Block], gap: Gap) -> Gap:
    """What of a gap lies behind equal blocks that begin where it does."""
    if not blocks:
        return gap
    old_start, new_start, size = blocks[-1]
    return Gap(old_start + size, gap.old_end, new_start + size, gap.new_end)


def common_prefix(old: str, new: str, gap: Gap) -> int:
    """How many characters the two sides of a gap begin alike with."""
    old_start, old_end, new_start, new_end = gap
    limit = min(old_end - old_start, new_end - new_start)
    high = min(limit, NEAR_CHARS)
    low = Prefix.similarity(old[old_start : old_start + high], new[new_start : new_start + high])
    if low < high or high == limit:
        return low
    # Slices are compared at the speed of memory, so halving beats any loop over characters.
    # Windows that grow keep the cost at the length of what is common, however long the rest.
    while low == high < limit:
        high = min(limit, 4 * high + NEAR_CHARS)
        if old.startswith(new[new_start + low : new_start + high], old_start + low):
            low = high
    while high - low > COUNTED_CHARS:
        middle = (low + high) // 2
        if old.startswith(new[new_start + low : new_start + middle], old_start + low):
            low = middle
        else:
            high = middle
    left, right = old[old_start + low : old_start + high], new[new_start + low : new_start + high]
    return low + Prefix.similarity(left, right)


def _common_suffix(old: str, new: str, gap: Gap) -> int:
    old_start, old_end, new_start, new_end = gap
    limit = min(old_end - old_start, new_end - new_start)
    high = min(limit, NEAR_CHARS)
    low = Postfix.similarity(old[old_end - high : old_end], new[new_end - high : new_end])
    if low < high or high == limit:
        return low
    while low == high < limit:
        high = min(limit, 4 * high + NEAR_CHARS)
        if old.endswith(new[new_end - high : new_end - low], 0, old_end - low):
            low = high
    while high - low > COUNTED_CHARS:
        middle = (low + high) // 2
        if old.endswith(new[new_end - middle : new_end - low], 0, old_end - low):
            low = middle
        else:
            high = middle
    left, right = old[old_end - high : old_end - low], new[new_end - high : new_end - low]
    return low + Postfix.similarity(left, right)
