"""Which list elements there are: counters by replica, as ranges.

- A text that was typed in one go is one range, so that little is held beside the nodes.
- Only what is asked for is here: the nearest element of a replica below a counter.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Counters:
    """The counters of each replica."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        # By replica, ascending and apart: the first counter of each range, and the one past its
        # last.
        self._starts: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}

    def add(self, replica: str, counter: int, size: int = 1) -> None:
        """Enter counters in a row, of which any may be here."""
        starts = self._starts.setdefault(replica, [])
        ends = self._ends.setdefault(replica, [])
        end = counter + size
        # Those that they overlap, or touch, become one with them.
        low, high = bisect_left(ends, counter), bisect_right(starts, end)
        if low < high:
            counter, end = min(counter, starts[low]), max(end, ends[high - 1])
        starts[low:high] = [counter]
        ends[low:high] = [end]

    def last_below(self, replica: str, counter: int) -> int:
        """The highest counter of a replica below another one, else 0."""
        place = bisect_left(self._starts.get(replica, []), counter)
        return min(self._ends[replica][place - 1], counter) - 1 if place else 0
