"""Elements of a list that were removed before they came: ranges of ids, not an entry for each.

- A few bytes can remove tens of thousands of ids that nobody has inserted. They show nothing, and
  have to be known only when they come, or when something hangs on them.
- An id is in one range at most. Its clock is that of the first remove that named it.
- `normal` says the same ids and clocks the same way, however they were cut into ranges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Awaited:
    """Ids of one replica in a row, removed by clocks of one replica that count up or down.

    Attributes:
        replica: Whose elements they are.
        first: The first counter of their ids.
        size: How many there are.
        remover: Whose removes named them.
        counter: The counter of the remove that named the first one.
        step: How much further the remove of each next one is: 1 or −1.
        number: The number of the first one in order of arrival, which is that of the removes.
    """

    __slots__ = ("counter", "first", "number", "remover", "replica", "size", "step")

    def __init__(
        self,
        replica: str,
        first: int,
        size: int,
        remover: str,
        counter: int,
        step: int,
        number: int,
    ) -> None:
        self.replica = replica
        self.first = first
        self.size = size
        self.remover = remover
        self.counter = counter
        self.step = step
        self.number = number

    @property
    def end(self) -> int:
        """The counter after the last one."""
        return self.first + self.size

    def part(self, first: int, end: int) -> Awaited:
        """Some of them."""
        skipped = (first - self.first) * self.step
        return Awaited(
            self.replica,
            first,
            end - first,
            self.remover,
            self.counter + skipped,
            self.step,
            self.number + skipped,
        )

    def fields(self) -> tuple[str, str, int, int, int, int]:
        """What they are, whenever they arrived."""
        return self.replica, self.remover, self.first, self.size, self.counter, self.step

    def clock_of(self, counter: int) -> tuple[int, str]:
        """The clock of the remove that named one of them."""
        return self.counter + (counter - self.first) * self.step, self.remover

    def highest(self) -> int:
        """The highest counter among their clocks."""
        return max(self.counter, self.counter + (self.size - 1) * self.step)


class Placeholders:
    """All ids of one list that are awaited."""

    __slots__ = ("_firsts", "_ranges")

    def __init__(self) -> None:
        # By replica, ascending and apart: the first counters, and the ranges.
        self._firsts: dict[str, list[int]] = {}
        self._ranges: dict[str, list[Awaited]] = {}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self) -> Iterator[Awaited]:
        for ranges in self._ranges.values():
            yield from ranges

    def find(self, replica: str, counter: int) -> Awaited | None:
        """The range that holds an id, or None."""
        firsts = self._firsts.get(replica)
        if firsts is None:
            return None
        place = bisect_right(firsts, counter) - 1
        if place < 0:
            return None
        found = self._ranges[replica][place]
        return found if counter < found.end else None

    def overlaps(self, awaited: Awaited) -> bool:
        """Whether any id of a range is here."""
        firsts = self._firsts.get(awaited.replica, [])
        place = bisect_left(firsts, awaited.first)
        is_before_next = place == len(firsts) or awaited.end <= firsts[place]
        return not is_before_next or self.find(awaited.replica, awaited.first) is not None

    def add(self, awaited: Awaited) -> None:
        """Enter ids, none of which is here."""
        firsts = self._firsts.setdefault(awaited.replica, [])
        ranges = self._ranges.setdefault(awaited.replica, [])
        place = bisect_left(firsts, awaited.first)
        end = place
        if place and _is_one(ranges[place - 1], awaited):
            place -= 1
            awaited = _joined(ranges[place], awaited)
        if end < len(ranges) and _is_one(awaited, ranges[end]):
            awaited = _joined(awaited, ranges[end])
            end += 1
        firsts[place:end] = [awaited.first]
        ranges[place:end] = [awaited]

    def take(self, replica: str, counter: int) -> Awaited | None:
        """One id, which is no longer awaited; None if it was not."""
        found = self.find(replica, counter)
        if found is None:
            return None
        self._cut_out(found, counter, counter + 1)
        return found.part(counter, counter + 1)

    def give_way(self, theirs: Awaited) -> list[Awaited]:
        """Let go of those ids of a range that have a newer clock here; what to add of the range."""
        parts: list[Awaited] = []
        start = theirs.first
        while start < theirs.end:
            mine = self._from(theirs.replica, start)
            stop = theirs.end if mine is None else min(mine.first, theirs.end)
            if mine is None or start < stop:
                parts.append(theirs.part(start, stop))
                start = stop
                continue
            end = min(mine.end, theirs.end)
            is_older = theirs.clock_of(start) < mine.clock_of(start)
            # Where both count evenly, one is the older all along, or up to where they cross.
            while (theirs.clock_of(end - 1) < mine.clock_of(end - 1)) is not is_older:
                end = start + (end - start) // 2
            if is_older:
                self._cut_out(mine, start, end)
                parts.append(theirs.part(start, end))
            start = end
        return parts

    def _from(self, replica: str, counter: int) -> Awaited | None:
        """The range that holds an id, or else the next one."""
        found = self.find(replica, counter)
        firsts = self._firsts.get(replica, [])
        place = bisect_left(firsts, counter)
        if found is not None or place == len(firsts):
            return found
        return self._ranges[replica][place]

    def _cut_out(self, found: Awaited, start: int, end: int) -> None:
        firsts, ranges = self._firsts[found.replica], self._ranges[found.replica]
        place = bisect_left(firsts, found.first)
        rest = [
            found.part(first, past)
            for first, past in ((found.first, start), (end, found.end))
            if first < past
        ]
        firsts[place : place + 1] = [each.first for each in rest]
        ranges[place : place + 1] = rest
        if not firsts:
            del self._firsts[found.replica], self._ranges[found.replica]

    def copy(self) -> Placeholders:
        """An independent copy."""
        copy = Placeholders()
        copy._firsts = {replica: [*firsts] for replica, firsts in self._firsts.items()}
        copy._ranges = {replica: [*ranges] for replica, ranges in self._ranges.items()}
        return copy


def normal(ranges: Iterable[Awaited]) -> list[Awaited]:
    """The same ids with the same clocks in ranges that depend on nothing else."""
    joined: list[Awaited] = []
    for each in sorted(ranges, key=_place):
        last = joined[-1] if joined else None
        if last is None or not _continues(last, each):
            joined.append(each.part(each.first, each.end))
            continue
        step = each.counter - last.counter if last.size == 1 else last.step
        size = each.size if each.size == 1 or each.step == step else 1
        last.step = step
        last.size += size
        if size < each.size:
            joined.append(each.part(each.first + size, each.end))
    for each in joined:
        if each.size == 1:
            each.step = 1
    return joined


def _is_one(left: Awaited, right: Awaited) -> bool:
    """Whether two ranges can be one, which also tells the order of arrival."""
    step = right.counter - left.clock_of(left.end - 1)[0]
    return (
        _continues(left, right)
        and (right.size == 1 or right.step == step)
        and right.number - left.number - (left.size - 1) * left.step == step
    )


def _joined(left: Awaited, right: Awaited) -> Awaited:
    step = right.counter - left.clock_of(left.end - 1)[0]
    size = left.size + right.size
    return Awaited(left.replica, left.first, size, left.remover, left.counter, step, left.number)


def _place(awaited: Awaited) -> tuple[str, str, int]:
    return awaited.replica, awaited.remover, awaited.first


def _continues(last: Awaited, following: Awaited) -> bool:
    """Whether the first id of one range goes on from another."""
    if (
        following.first != last.end
        or following.replica != last.replica
        or following.remover != last.remover
    ):
        return False
    if last.size == 1:
        return abs(following.counter - last.counter) == 1
    return following.counter == last.counter + last.size * last.step
