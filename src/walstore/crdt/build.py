"""A whole list from many ops at once: sorted and laid out, instead of placed one by one.

- Only ops that keep the causal shape, name each element once and remove nothing unknown can be
  laid out; for any others there is no sequence, and they have to be folded one by one.
- The result is the same as folding the ops one after the other.
- Elements are joined to chains, and these cut into pieces wherever something hangs on the middle
  of one, or a removed stretch begins or ends. Then, oldest first, each piece belongs right behind
  the piece that it hangs on: what comes later is newer, and therefore nearer.
- Until then an id is one number: those of the first replica, by counter, then those of the next.
  So all that has to do with chains is about numbers that follow each other.
- What can be done by whole columns is; and a text is shown before its tree and index are made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from operator import add, le, lt
from typing import Any, Final

from walstore.crdt.clock import COUNTER_MAX
from walstore.crdt.packed_sequence import PackedSequence
from walstore.crdt.runs import InsertColumns, Remove, Values
from walstore.crdt.sequence import RunSequence
from walstore.crdt.state import ListState
from walstore.crdt.tree import SPAN_SIZE_MAX, Rows

_COUNTERS: Final = COUNTER_MAX + 1


class _Pieces:
    """Stretches of elements by number: the first of each, past the last, its anchor, its values."""

    __slots__ = ("anchors", "ends", "starts", "values")

    def __init__(
        self, starts: list[int], ends: list[int], anchors: list[int], values: list[Values]
    ) -> None:
        self.starts = starts
        self.ends = ends
        self.anchors = anchors
        self.values = values


def build_sequence(
    inserts: InsertColumns, removes: list[Remove], places: list[int]
) -> PackedSequence | RunSequence | None:
    """Lay a list out.

    Args:
        inserts: What is inserted.
        removes: What is removed of it.
        places: Before which insert each of these came, if one may have come before its element.

    Returns:
        The list, or None if the ops have to be folded one by one.
    """
    table = sorted(set(inserts.replicas))
    bases = {replica: rank * _COUNTERS for rank, replica in enumerate(table)}
    try:
        chains = _chains(inserts, bases)
        removed = _merged(_removed_ranges(removes, bases))
    except KeyError:
        # An anchor or a removed element is of a replica that has none.
        return None
    pieces = None if chains is None else _cut(chains, removed)
    lives = None if pieces is None else _lives(pieces, removed)
    if pieces is None or lives is None:
        return None
    early = list(zip(places, removes, strict=False))
    return _laid_out(_by_age(pieces, lives, table), inserts, early)


def build_text(inserts: InsertColumns) -> PackedSequence | RunSequence | None:
    """Lay a list of characters out that were each inserted by themselves.

    Returns:
        The list, or None if the ops have to be folded one by one.
    """
    table = sorted(set(inserts.replicas))
    count, ranks = len(table), {replica: rank for rank, replica in enumerate(table)}
    stamps = [
        counter * count + ranks[replica]
        for counter, replica in zip(inserts.counters, inserts.replicas, strict=True)
    ]
    anchors = [
        counter * count + ranks[replica] if counter else 0
        for counter, replica in zip(inserts.after_counters, inserts.after_replicas, strict=True)
    ]
    rows = Rows(table, stamps, anchors, inserts.values, [1] * len(stamps))
    if not all(map(lt, stamps, stamps[1:])):
        rows = rows.arranged(sorted(range(len(stamps)), key=stamps.__getitem__))
        if not all(map(lt, rows.stamps, rows.stamps[1:])):
            return None
    return _laid_out(rows, inserts, [])


def _arrivals(
    replicas: list[str], counters: list[int], sizes: list[int]
) -> Iterator[tuple[str, int, int]]:
    replica, start, end = "", 0, 0
    for own, counter, size in zip(replicas, counters, sizes, strict=True):
        if counter != end or own != replica:
            if end:
                yield replica, start, end
            replica, start = own, counter
        end = counter + size
    yield replica, start, end


def _arrivals_amid(
    inserts: InsertColumns, removes: list[tuple[int, Remove]]
) -> Iterator[tuple[str, int, int]]:
    """The same, where whatever was removed before it came arrived with its remove."""
    come: set[tuple[str, int]] = set()
    waiting = 0
    for place, (replica, first, values) in enumerate(
        zip(inserts.replicas, inserts.counters, inserts.values, strict=True)
    ):
        while waiting < len(removes) and removes[waiting][0] <= place:
            remove = removes[waiting][1]
            waiting += 1
            for offset in range(remove.size):
                target = remove.target_counter + offset * remove.step
                if (remove.target_replica, target) not in come:
                    come.add((remove.target_replica, target))
                    yield remove.target_replica, target, target + 1
        for counter in range(first, first + len(values)):
            if (replica, counter) not in come:
                come.add((replica, counter))
                yield replica, counter, counter + 1


def _chains(inserts: InsertColumns, bases: dict[str, int]) -> _Pieces | None:
    """Inserts in order of their numbers, joined where they chain; None if an id stands twice."""
    starts, values = inserts.counters, inserts.values
    anchors = [
        bases[replica] + counter if counter else 0
        for replica, counter in zip(inserts.after_replicas, inserts.after_counters, strict=True)
    ]
    if len(bases) > 1:
        starts = list(map(add, starts, map(bases.__getitem__, inserts.replicas)))
    if not all(map(lt, starts, starts[1:])):
        order = sorted(range(len(starts)), key=starts.__getitem__)
        starts = [starts[number] for number in order]
        anchors = [anchors[number] for number in order]
        values = [values[number] for number in order]
    ends = list(map(add, starts, map(len, values)))
    if not all(map(le, ends, starts[1:])):
        return None
    kinds = list(map(type, values))
    breaks = [
        number
        for number, (start, end, anchor, kind, last) in enumerate(
            zip(starts[1:], ends, anchors[1:], kinds[1:], kinds, strict=False), 1
        )
        if start != end or anchor != end - 1 or kind is not last
    ]
    if len(breaks) == len(starts) - 1:
        return _Pieces(starts, ends, anchors, values)
    firsts = [0, *breaks]
    bounds = list(zip(firsts, [*breaks, len(starts)], strict=True))
    return _Pieces(
        [starts[first] for first in firsts],
        [ends[past - 1] for _, past in bounds],
        [anchors[first] for first in firsts],
        [_joined(values[first:past]) for first, past in bounds],
    )


def _joined(parts: list[Any]) -> Values:
    if len(parts) == 1:
        return parts[0]  # type: ignore[no-any-return]
    if isinstance(parts[0], str):
        return "".join(parts)
    return [value for part in parts for value in part]


def _removed_ranges(removes: list[Remove], bases: dict[str, int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for remove in removes:
        first = bases[remove.target_replica] + remove.first_target
        ranges.append((first, first + remove.size))
    return ranges


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in order, as ranges `(first, past)` that do not touch."""
    merged: list[tuple[int, int]] = []
    start = stop = 0
    for first, past in sorted(ranges):
        if first > stop:
            if stop:
                merged.append((start, stop))
            start, stop = first, past
        elif past > stop:
            stop = past
    if stop:
        merged.append((start, stop))
    return merged


def _cut(chains: _Pieces, removed: list[tuple[int, int]]) -> _Pieces | None:
    """Chains as pieces, none of them too long; None if a cut would be where nothing is."""
    starts, ends = chains.starts, chains.ends
    cuts = {anchor + 1 for anchor in chains.anchors}
    cuts.discard(1)
    for first_and_past in removed:
        cuts.update(first_and_past)
    if max(map(len, chains.values)) > SPAN_SIZE_MAX:
        for start, end in zip(starts, ends, strict=True):
            cuts.update(range(start + SPAN_SIZE_MAX, end, SPAN_SIZE_MAX))
    cuts.difference_update(starts, ends)
    if not cuts:
        return chains
    begins = set(starts)
    firsts = sorted([*starts, *cuts])
    pieces = _Pieces(firsts, [], [], [])
    chain = -1
    origin = end = 0
    values: Values = ""
    for start, following in pairwise([*firsts, firsts[-1] + _COUNTERS]):
        if start in begins:
            chain += 1
            origin, end, values = start, ends[chain], chains.values[chain]
            pieces.anchors.append(chains.anchors[chain])
        elif start < end:
            pieces.anchors.append(start - 1)
        else:
            return None
        past = following if following < end else end
        pieces.ends.append(past)
        pieces.values.append(values[start - origin : past - origin])
    return pieces


def _lives(pieces: _Pieces, removed: list[tuple[int, int]]) -> list[int] | None:
    """How many elements of each piece are live; None if something is removed that is not here."""
    lives = list(map(len, pieces.values))
    gone = 0
    for first, past in removed:
        start, end = bisect_left(pieces.starts, first), bisect_left(pieces.starts, past)
        gone += sum(lives[start:end])
        lives[start:end] = [0] * (end - start)
    return lives if gone == sum([past - first for first, past in removed]) else None


def _by_age(pieces: _Pieces, lives: list[int], table: list[str]) -> Rows:
    """Pieces as rows, oldest first."""
    count = len(table)
    if count == 1:
        return Rows(table, pieces.starts, pieces.anchors, pieces.values, lives)
    stamps = [start % _COUNTERS * count + start // _COUNTERS for start in pieces.starts]
    anchors = [anchor % _COUNTERS * count + anchor // _COUNTERS for anchor in pieces.anchors]
    rows = Rows(table, stamps, anchors, pieces.values, lives)
    return rows.arranged(sorted(range(len(stamps)), key=stamps.__getitem__))


def _laid_out(
    rows: Rows, inserts: InsertColumns, removes: list[tuple[int, Remove]]
) -> PackedSequence | RunSequence | None:
    """Rows that are given oldest first as a list; None if an anchor is not there, or newer."""
    order = _order(rows)
    if order is None:
        return None
    sizes = list(map(len, inserts.values))
    arrived = partial(_arrivals, inserts.replicas, inserts.counters, sizes)
    if removes:
        arrived = partial(_arrivals_amid, inserts, removes)
    values, lives = rows.values, rows.lives
    if set(map(type, values)) != {str}:
        return RunSequence(rows.arranged(order), arrived())
    shown: Any = [values[number] for number in order if lives[number]]
    state = ListState.deferred("".join(shown), partial(_arranged, rows, order))
    return PackedSequence(state, COUNTER_MAX, arrived)


def _arranged(rows: Rows, order: list[int]) -> Rows:
    return rows.arranged(order).joined()


def _order(rows: Rows) -> list[int] | None:
    """The numbers of rows that are given oldest first in document order."""
    stamps, anchors = rows.stamps, rows.anchors
    if not all(map(lt, anchors, stamps)):
        return None
    count, width = len(stamps), len(rows.table)
    lasts = [
        stamp + (len(values) - 1) * width for stamp, values in zip(stamps, rows.values, strict=True)
    ]
    numbers = dict(zip(lasts, range(count), strict=True))
    # The head of the list has the number after those of the rows.
    numbers[0] = count
    following = [count] * (count + 1)
    try:
        for number, anchor in enumerate(anchors):
            before = numbers[anchor]
            following[number] = following[before]
            following[before] = number
    except KeyError:
        return None
    order: list[int] = []
    number = following[count]
    while number != count:
        order.append(number)
        number = following[number]
    return order
