"""Who stamped which clocks, in which element: the memory behind blame and fork detection.

- An author stamps each clock once. The same ops again, in the same or in another element, are
  an honest retry; different ops under one clock are a fork.
- Elements that a snapshot covers, or that were forgotten, are not here: of their clocks only the
  replica is known. Whatever comes with a clock of a forgotten one is not who stamped it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from walstore.canon import canonical_text
from walstore.crdt import Run, WalCrdt, to_ops
from walstore.crdt.runs import Insert, Remove
from walstore.document.entries import Entries, Entry, Part, Stretch
from walstore.document.stamped import Stamped
from walstore.wire.envelope import counters_of, replica_of
from walstore.wire.limits import TS_MAX

__all__ = ["Entry", "Highs", "Ledger", "highest_counter", "last_named"]

# An element, and the run of it that stamped a clock; or keystrokes, which have no other clocks.
Owner: TypeAlias = tuple[Entry, Run] | Stretch


class Ledger:
    """The folded elements by the clocks that they stamped.

    Attributes:
        entries: The elements, in the order in which they were folded.
        count: How many they are.
        text_bytes: The size of their texts.
    """

    __slots__ = ("_by_replica", "_forgotten", "count", "entries", "text_bytes")

    def __init__(self, forgotten: Mapping[str, int] | None = None) -> None:
        """Begin with nothing but the highest counters by replica of what was forgotten."""
        self._forgotten = {} if forgotten is None else forgotten
        self.entries = Entries()
        self.count = 0
        self.text_bytes = 0
        self._by_replica: defaultdict[str, Stamped[Owner]] = defaultdict(Stamped)

    def add(self, entry: Entry) -> tuple[int, str, Entry] | None:
        """Enter an element.

        Returns:
            Counter, replica and earlier entry of a clock that was used for something else.
        """
        self._append(entry)
        conflict: tuple[int, str, Entry] | None = None
        for run in entry.runs:
            replica, (first, last) = replica_of(run), counters_of(run)
            first = max(first, self._forgotten.get(replica, 0) + 1)
            if first > last:
                continue
            stamped = self._by_replica[replica]
            if first > stamped.last:
                stamped.append(first, last, (entry, run))
                continue
            if conflict is None:
                conflict = self._find_conflict(replica, first, last, run)
            self._enter_new(replica, first, last, (entry, run))
        return conflict

    def add_stretch(self, stretch: Stretch) -> None:
        """Enter keystrokes, whose clocks are nearly always above all that are known of them."""
        self._append(stretch)
        stamped = self._by_replica[stretch.replica]
        # They are above all that was forgotten of their replica, or would not be together here.
        first, last = stretch.counters[0], stretch.end - 1
        if first <= stamped.last:
            # They were above when they were read; an element before them in the log came later.
            self._enter_new(stretch.replica, first, last, stretch)
            return
        stamped.append(first, last, stretch)

    def lengthen(self, stretch: Stretch) -> None:
        """Enter what was added to the keystrokes that were entered last."""
        self._by_replica[stretch.replica].lengthen(stretch.end - 1)
        self.count += 1
        self.text_bytes += len(stretch.texts[-1])

    def has_replica(self, replica: str) -> bool:
        """Whether any element here was stamped by a replica."""
        return replica in self._by_replica

    def highest(self, replica: str) -> int:
        """The highest counter that is known of a replica, 0 if there is none."""
        known = self._by_replica.get(replica)
        return self._forgotten.get(replica, 0) if known is None else known.last

    def parts(self) -> list[Part]:
        """The elements in the order of the log, as they are kept."""
        return sorted(self.entries.parts, key=lambda part: part.ts)

    def fold_into(self, crdt: WalCrdt, *, upto_ts: int = TS_MAX) -> None:
        """Fold the elements up to a `ts`, in the order of the log."""
        for part in self.parts():
            if part.ts > upto_ts:
                return
            crdt.fold_runs(part.runs if isinstance(part, Entry) else part.runs_upto(upto_ts))

    def upto(self, ts: int) -> Ledger:
        """What this would be if the log ended with a `ts`, and had been read in its order."""
        # Clocks of keystrokes past the `ts` are entered too: no fold up to it has them.
        return _ledger_of((part for part in self.parts() if part.ts <= ts), self._forgotten)

    def oldest_beyond(self, count_max: int, bytes_max: int) -> list[Part]:
        """The elements, in the order of the log, that are older than the newest ones: at least so
        many of these, or so large.
        """
        parts = self.parts()
        count = size = 0
        for place in range(len(parts) - 1, -1, -1):
            if count >= count_max or size >= bytes_max:
                return parts[: place + 1]
            count += len(parts[place])
            size += parts[place].text_bytes
        return []

    def without(self, gone: Iterable[Part]) -> Ledger:
        """What this is once some elements are forgotten."""
        names, forgotten = set[int](), dict(self._forgotten)
        for part in gone:
            names.add(id(part))
            for run in part.runs:
                replica, (_, last) = replica_of(run), counters_of(run)
                forgotten[replica] = max(forgotten.get(replica, 0), last)
        kept = (part for part in self.entries.parts if id(part) not in names)
        return _ledger_of(kept, forgotten)

    def find_origin(
        self, replica: str, counter: int, end: int
    ) -> tuple[tuple[str, int] | None, int]:
        """Who stamped a clock, and the counter before `end` up to which it was in one element.

        Returns:
            Author and `ts` of the element, None for clocks that are in no element here; and the
            counter after the last one of which the same is true.
        """
        stamped = self._by_replica.get(replica)
        if stamped is None:
            return None, end
        held = stamped.find(counter)
        if held is None:
            following = stamped.following(counter)
            return None, end if following is None else min(end, following)
        last, owner = held
        if isinstance(owner, Stretch):
            stroke, last_of_stroke = owner.find(counter)
            return (owner.author, owner.times[stroke]), min(end, last_of_stroke + 1, last + 1)
        return (owner[0].author, owner[0].ts), min(end, last + 1)

    def _append(self, part: Part) -> None:
        self.entries.parts.append(part)
        self.count += len(part)
        self.text_bytes += part.text_bytes

    def _find_conflict(
        self, replica: str, first: int, last: int, run: Run
    ) -> tuple[int, str, Entry] | None:
        for low, high, owner in self._by_replica[replica].between(first, last):
            for entry, known in _owned(owner, low, high):
                from_, upto = counters_of(known)
                counter = _differing_counter(known, run, max(low, from_), min(high, upto))
                if counter is not None:
                    return counter, replica, entry
        return None

    def _enter_new(self, replica: str, first: int, last: int, owner: Owner) -> None:
        """Enter those counters that are in no earlier element; the first one keeps its own."""
        stamped = self._by_replica[replica]
        counter = first
        while counter <= last:
            if (held := stamped.find(counter)) is not None:
                counter = held[0] + 1
                continue
            following = stamped.following(counter)
            stop = last if following is None else min(last, following - 1)
            stamped.insert(counter, stop, owner)
            counter = stop + 1


class Highs:
    """The highest counters of a log, up to any place in it.

    Elements that come late may be entered, in the order of the log.
    """

    __slots__ = ("_entered", "_highs", "_parts", "_passed", "_passed_times", "_times")

    def __init__(self, parts: Sequence[Part], passed_over: Sequence[tuple[int, int]] = ()) -> None:
        """Take the elements in the order of the log; nothing is in the midst of keystrokes.

        Args:
            parts: The elements that count.
            passed_over: The `ts` and the highest counter of those that do not.
        """
        self._parts = parts
        self._times = [part.ts for part in parts]
        self._highs = [0, *accumulate(map(_highest, parts), max)]
        self._passed_times = [ts for ts, _ in passed_over]
        self._passed = [0, *accumulate((counter for _, counter in passed_over), max)]
        self._entered = 0

    def enter(self, counter: int) -> None:
        """Take in the highest counter of an element that comes after those entered before."""
        self._entered = max(self._entered, counter)

    def before(self, ts: int) -> int:
        """The highest counter before a `ts` that is not before what was entered; 0 if none is."""
        entered = max(self._entered, self._passed[bisect_left(self._passed_times, ts)])
        place = bisect_left(self._times, ts)
        if not place:
            return entered
        last = self._parts[place - 1]
        high = last.counter_before(ts) if isinstance(last, Stretch) else _highest(last)
        return max(entered, self._highs[place - 1], high)


def highest_counter(runs: Sequence[Run]) -> int:
    """The highest counter in runs, 0 if there are none."""
    return max((counters_of(run)[1] for run in runs), default=0)


def last_named(run: Run) -> tuple[str, int]:
    """The last list element that a run goes on from or removes: replica and counter."""
    match run:
        case Insert():
            return run.after_replica, run.after_counter
        case Remove():
            return run.target_replica, run.first_target + run.size - 1
        case _:
            return "", 0


def _highest(part: Part) -> int:
    return part.end - 1 if isinstance(part, Stretch) else highest_counter(part.runs)


def _ledger_of(parts: Iterable[Part], forgotten: Mapping[str, int]) -> Ledger:
    ledger = Ledger(forgotten)
    for part in parts:
        if isinstance(part, Entry):
            ledger.add(part)
        else:
            ledger.add_stretch(part)
    return ledger


def _owned(owner: Owner, low: int, high: int) -> Iterator[tuple[Entry, Run]]:
    """The entries that stamped counters from `low` to `high`, each with the run that did."""
    if not isinstance(owner, Stretch):
        yield owner
        return
    while low <= high:
        place, last = owner.find(low)
        entry = owner.entry(place)
        yield entry, entry.runs[0]
        low = last + 1


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
