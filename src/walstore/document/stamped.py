"""Ranges of counters, and who stamped them: entered anywhere in no more time than at the end.

- They are apart and ascending, in blocks: an author may stamp counters downwards, or in any order,
  and to make room among all that is known would take longer with each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

Owner = TypeVar("Owner")

# Ranges in one block; a block of twice as many is made two.
_BLOCK_SIZE = 512


class Stamped(Generic[Owner]):
    """The ranges of one replica.

    Attributes:
        last: The highest counter; 0 if there is none, as none is.
    """

    __slots__ = ("_blocks", "_firsts", "last")

    def __init__(self) -> None:
        # By block: the first counter of each range, its last, and who stamped it.
        self._blocks: list[tuple[list[int], list[int], list[Owner]]] = [([], [], [])]
        # By block: the first counter of the first range. The first block may hold less than it.
        self._firsts: list[int] = [0]
        self.last = 0

    def append(self, first: int, last: int, owner: Owner) -> None:
        """Add a range above all others."""
        starts, ends, owners = self._blocks[-1]
        if len(starts) >= _BLOCK_SIZE:
            starts, ends, owners = [], [], []
            self._blocks.append((starts, ends, owners))
            self._firsts.append(first)
        starts.append(first)
        ends.append(last)
        owners.append(owner)
        self.last = last

    def lengthen(self, last: int) -> None:
        """Let the highest range end with another counter."""
        self._blocks[-1][1][-1] = self.last = last

    def insert(self, first: int, last: int, owner: Owner) -> None:
        """Add a range that none of the others touches."""
        block = self._block_of(first)
        starts, ends, owners = self._blocks[block]
        place = bisect_right(starts, first)
        starts.insert(place, first)
        ends.insert(place, last)
        owners.insert(place, owner)
        self.last = max(self.last, last)
        if len(starts) >= 2 * _BLOCK_SIZE:
            half = (starts[_BLOCK_SIZE:], ends[_BLOCK_SIZE:], owners[_BLOCK_SIZE:])
            del starts[_BLOCK_SIZE:], ends[_BLOCK_SIZE:], owners[_BLOCK_SIZE:]
            self._blocks.insert(block + 1, half)
            self._firsts.insert(block + 1, half[0][0])

    def find(self, counter: int) -> tuple[int, Owner] | None:
        """The last counter of the range that a counter is in, and who stamped it."""
        starts, ends, owners = self._blocks[self._block_of(counter)]
        place = bisect_right(starts, counter) - 1
        if place < 0 or counter > ends[place]:
            return None
        return ends[place], owners[place]

    def following(self, counter: int) -> int | None:
        """The first counter of the next range that begins above a counter."""
        block = self._block_of(counter)
        starts, _, _ = self._blocks[block]
        place = bisect_right(starts, counter)
        if place < len(starts):
            return starts[place]
        return self._firsts[block + 1] if block + 1 < len(self._firsts) else None

    def between(self, first: int, last: int) -> Iterator[tuple[int, int, Owner]]:
        """What of each range is from one counter to another, and who stamped it."""
        for block in range(self._block_of(first), len(self._blocks)):
            starts, ends, owners = self._blocks[block]
            for place in range(bisect_left(ends, first), bisect_right(starts, last)):
                yield max(first, starts[place]), min(last, ends[place]), owners[place]
            if starts and starts[-1] > last:
                return

    def _block_of(self, counter: int) -> int:
        """The only block where a range that begins at or below a counter may hold it."""
        return max(0, bisect_right(self._firsts, counter) - 1)
