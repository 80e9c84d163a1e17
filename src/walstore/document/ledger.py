"""Who stamped which clocks, in which element: the memory behind blame and fork detection.

- An author stamps each clock once. The same ops again, in the same or in another element, are
  an honest retry; different ops under one clock are a fork.
- Elements that a snapshot covers are not here: of their clocks only the replica is known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from walstore.canon import canonical_text
from walstore.crdt import Run, to_ops
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


class Ledger:
    """The folded elements by the clocks that they stamped."""

    __slots__ = ("_by_replica", "entries")

    def __init__(self) -> None:
        # In the order in which they were folded.
        self.entries: list[Entry] = []
        # By replica, ascending: the first counter of an entry's stretch, its last, the entry.
        self._by_replica: dict[str, tuple[list[int], list[int], list[Entry]]] = {}

    def add(self, entry: Entry) -> tuple[int, str, Entry] | None:
        """Enter an element.

        Returns:
            Counter, replica and earlier entry of a clock that was used for something else.
        """
        self.entries.append(entry)
        conflict: tuple[int, str, Entry] | None = None
        for replica, first, last in _stretches(entry.runs):
            starts, ends, owners = self._by_replica.setdefault(replica, ([], [], []))
            if not starts or first > ends[-1]:
                starts.append(first)
                ends.append(last)
                owners.append(entry)
                continue
            for place in range(bisect_left(ends, first), bisect_right(starts, last)):
                counter = _differing_counter(owners[place], entry, replica)
                if counter is not None and conflict is None:
                    conflict = (counter, replica, owners[place])
            self._enter_new(replica, first, last, entry)
        return conflict

    def find_stretch(self, replica: str, counter: int, end: int) -> tuple[Entry | None, int]:
        """The element that stamped a clock, and the counter before `end` up to which it did.

        The element is None for clocks that are in no element here.
        """
        starts, ends, owners = self._by_replica.get(replica, ([], [], []))
        place = bisect_right(starts, counter) - 1
        if place >= 0 and counter <= ends[place]:
            return owners[place], min(end, ends[place] + 1)
        following = starts[place + 1] if place + 1 < len(starts) else end
        return None, min(end, following)

    def _enter_new(self, replica: str, first: int, last: int, entry: Entry) -> None:
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
            owners.insert(place + 1, entry)
            counter = stop + 1


def _stretches(runs: list[Run]) -> Iterator[tuple[str, int, int]]:
    """Replica, first and last counter of what follows on in one element."""
    open_replica, open_first, open_last = "", 0, -1
    for run in runs:
        replica = replica_of(run)
        first, last = counters_of(run)
        if replica == open_replica and first == open_last + 1:
            open_last = last
            continue
        if open_last >= 0:
            yield open_replica, open_first, open_last
        open_replica, open_first, open_last = replica, first, last
    if open_last >= 0:
        yield open_replica, open_first, open_last


def _differing_counter(left: Entry, right: Entry, replica: str) -> int | None:
    """The lowest counter that two elements use for different ops."""
    ours = {op["clock"]["c"]: op for op in to_ops(left.runs) if op["clock"]["r"] == replica}
    for op in to_ops(right.runs):
        if op["clock"]["r"] != replica:
            continue
        known = ours.get(op["clock"]["c"])
        if known is not None and canonical_text(known) != canonical_text(op):
            return op["clock"]["c"]
    return None
