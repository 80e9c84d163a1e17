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

    def add(self, replica: str, counter: int) -> None:
        """Enter a counter, which may be here."""
        starts = self._starts.setdefault(replica, [])
        ends = self._ends.setdefault(replica, [])
        place = bisect_right(starts, counter)
        if place and counter < ends[place - 1]:
            return
        is_behind = place > 0 and ends[place - 1] == counter
        is_before = place < len(starts) and starts[place] == counter + 1
        if is_behind and is_before:
            del ends[place - 1], starts[place]
        elif is_behind:
            ends[place - 1] = counter + 1
        elif is_before:
            starts[place] = counter
        else:
            starts.insert(place, counter)
            ends.insert(place, counter + 1)

    def last_below(self, replica: str, counter: int) -> int:
        """The highest counter of a replica below another one, else 0."""
        place = bisect_left(self._starts.get(replica, []), counter)
        return min(self._ends[replica][place - 1], counter) - 1 if place else 0
