"""Who stamped which clocks, in which element: the memory behind blame and fork detection.

- An author stamps each clock once. The same ops again, in the same or in another element, are
  an honest retry; different ops under one clock are a fork.
- Elements that a snapshot covers are not here: of their clocks only the replica is known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TypeAlias

from walstore.canon import canonical_text
from walstore.crdt import Run, to_ops
from walstore.crdt.runs import Insert, Remove
from walstore.wire.element import Element
from walstore.wire.envelope import Header, counters_of, replica_of


class Entry:
    """One folded element."""

    __slots__ = ("author", "author_seq", "element", "header", "link", "runs")

    def __init__(
        self,
        element: Element,
        link: str,
        header: Header | None,
        author_seq: int | None,
        runs: list[Run],
    ) -> None:
        self.element = element
        self.author = element.author
        self.link = link
        self.header = header
        self.author_seq = author_seq
        self.runs = runs


# An element, and the run of it that stamped a clock.
Owner: TypeAlias = tuple[Entry, Run]


class Ledger:
    """The folded elements by the clocks that they stamped."""

    __slots__ = ("_by_replica", "entries")

    def __init__(self) -> None:
        # In the order in which they were folded.
        self.entries: list[Entry] = []
        # By replica, ascending: the first counter of a stretch, its last, whose and which run.
        self._by_replica: dict[str, tuple[list[int], list[int], list[Owner]]] = {}

    def add(self, entry: Entry) -> tuple[int, str, Entry] | None:
        """Enter an element.

        Returns:
            Counter, replica and earlier entry of a clock that was used for something else.
        """
        self.entries.append(entry)
        conflict: tuple[int, str, Entry] | None = None
        for run in entry.runs:
            replica, (first, last) = replica_of(run), counters_of(run)
            starts, ends, owners = self._by_replica.setdefault(replica, ([], [], []))
            if not starts or first > ends[-1]:
                starts.append(first)
                ends.append(last)
                owners.append((entry, run))
                continue
            if conflict is None:
                conflict = self._find_conflict(replica, first, last, run)
            self._enter_new(replica, first, last, (entry, run))
        return conflict

    def has_replica(self, replica: str) -> bool:
        """Whether any element here was stamped by a replica."""
        return replica in self._by_replica

    def find_stretch(self, replica: str, counter: int, end: int) -> tuple[Entry | None, int]:
        """The element that stamped a clock, and the counter before `end` up to which it did.

        The element is None for clocks that are in no element here.
        """
        starts, ends, owners = self._by_replica.get(replica, ([], [], []))
        place = bisect_right(starts, counter) - 1
        if place >= 0 and counter <= ends[place]:
            return owners[place][0], min(end, ends[place] + 1)
        following = starts[place + 1] if place + 1 < len(starts) else end
        return None, min(end, following)

    def _find_conflict(
        self, replica: str, first: int, last: int, run: Run
    ) -> tuple[int, str, Entry] | None:
        starts, ends, owners = self._by_replica[replica]
        for place in range(bisect_left(ends, first), bisect_right(starts, last)):
            entry, known = owners[place]
            low, high = max(first, starts[place]), min(last, ends[place])
            counter = _differing_counter(known, run, low, high)
            if counter is not None:
                return counter, replica, entry
        return None

    def _enter_new(self, replica: str, first: int, last: int, owner: Owner) -> None:
        """Enter those counters that are in no earlier element; the first one keeps its own."""
        starts, ends, owners = self._by_replica[replica]
        counter = first
        while counter <= last:
            place = bisect_right(starts, counter) - 1
            if place >= 0 and counter <= ends[place]:
                counter = ends[place] + 1
                continue
            stop = starts[place + 1] - 1 if place + 1 < len(starts) else last
            stop = min(stop, last)
            starts.insert(place + 1, counter)
            ends.insert(place + 1, stop)
            owners.insert(place + 1, owner)
            counter = stop + 1


def _differing_counter(left: Run, right: Run, low: int, high: int) -> int | None:
    """The lowest counter from `low` to `high` that two runs use for different ops.

    Only what the runs share is looked at, so that nobody can make it costly with clocks that are
    used over and over again.
    """
    if isinstance(left, Insert) and isinstance(right, Insert):
        if left.list != right.list or _anchor(left, low) != _anchor(right, low):
            return low
        return _differing_value(left, right, low, high)
    if isinstance(left, Remove) and isinstance(right, Remove):
        if left.list != right.list or _target(left, low) != _target(right, low):
            return low
        return low + 1 if high > low and left.step != right.step else None
    if type(left) is not type(right):
        return low
    return low if canonical_text(to_ops([left])) != canonical_text(to_ops([right])) else None


def _anchor(run: Insert, counter: int) -> tuple[str, int]:
    if counter == run.counter:
        return run.after_replica, run.after_counter
    return run.replica, counter - 1


def _target(run: Remove, counter: int) -> tuple[str, int]:
    return run.target_replica, run.target_counter + (counter - run.counter) * run.step


def _differing_value(left: Insert, right: Insert, low: int, high: int) -> int | None:
    ours = left.values[low - left.counter : high + 1 - left.counter]
    theirs = right.values[low - right.counter : high + 1 - right.counter]
    if isinstance(ours, str) and ours == theirs:
        return None
    for counter, (our, their) in enumerate(zip(ours, theirs, strict=True), low):
        if canonical_text(our) != canonical_text(their):
            return counter
    return None
