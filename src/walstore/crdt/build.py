"""A whole list from many ops at once: sorted and laid out, instead of placed one by one.

- Only ops that keep the causal shape, name each element once and remove nothing unknown can be
  laid out; for any others there is no sequence, and they have to be folded one by one.
- The result is the same as folding the ops one after the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from walstore.crdt.runs import Insert, Remove, Values
from walstore.crdt.sequence import RunSequence
from walstore.crdt.tree import SPAN_SIZE_MAX, Span

# The children of a span: the counter they hang on, their own clock, and each child.
Children = dict[Span, list[tuple[int, int, str, Span]]]


def build_sequence(inserts: list[Insert], removes: Iterable[Remove]) -> RunSequence | None:
    """Lay a list out.

    Returns:
        The list, or None if the ops have to be folded one by one.
    """
    removed = _removed_ranges(removes)
    by_replica: dict[str, list[Insert]] = {}
    for insert in inserts:
        by_replica.setdefault(insert.replica, []).append(insert)
    spans: dict[str, list[Span]] = {}
    for replica, own in by_replica.items():
        laid_out = _spans(replica, own, removed.pop(replica, []))
        if laid_out is None:
            return None
        spans[replica] = laid_out
    if removed:
        return None
    hung = _hang(spans)
    if hung is None:
        return None
    return RunSequence(_walk(*hung), _arrivals(inserts))


def _arrivals(inserts: list[Insert]) -> list[tuple[str, int, int]]:
    arrived: list[tuple[str, int, int]] = []
    replica, start, end = "", 0, 0
    for insert in inserts:
        if insert.counter != end or insert.replica != replica:
            if end:
                arrived.append((replica, start, end))
            replica, start = insert.replica, insert.counter
        end = insert.counter + len(insert.values)
    arrived.append((replica, start, end))
    return arrived


def _removed_ranges(removes: Iterable[Remove]) -> dict[str, list[tuple[int, int]]]:
    """Removed counters by replica, as disjoint `(first, end)` ranges, the lowest one last."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for remove in removes:
        first = remove.target_counter
        if remove.step < 0:
            first -= remove.size - 1
        ranges.setdefault(remove.target_replica, []).append((first, first + remove.size))
    return {replica: _merged(sorted(own))[::-1] for replica, own in ranges.items()}


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged = [ranges[0]]
    for first, end in ranges:
        if first > merged[-1][1]:
            merged.append((first, end))
        elif end > merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
    return merged


def _spans(
    replica: str, inserts: list[Insert], removed: list[tuple[int, int]]
) -> list[Span] | None:
    """One replica's elements, joined where they chain, cut where they are removed."""
    inserts.sort(key=attrgetter("counter"))
    spans: list[Span] = []
    end, start = 0, 0
    parts: list[Values] = []
    head = inserts[0]
    for insert in inserts:
        if insert.counter < end:
            return None
        if parts and (
            insert.counter != end
            or insert.after_counter != end - 1
            or insert.after_replica != replica
            or isinstance(insert.values, str) is not isinstance(parts[0], str)
        ):
            _cut(spans, head, parts, end - start, removed)
            parts = []
        if not parts:
            head, start = insert, insert.counter
        parts.append(insert.values)
        end = insert.counter + len(insert.values)
    _cut(spans, head, parts, end - start, removed)
    # Every range was used up, or something is removed that is not here.
    return None if removed else spans


def _cut(
    spans: list[Span], head: Insert, parts: list[Values], size: int, removed: list[tuple[int, int]]
) -> None:
    """Add a chain as spans; `removed` lies ahead, and loses from its end what the chain covers."""
    values = parts[0] if len(parts) == 1 else _joined(parts)
    replica, start = head.replica, head.counter
    after_replica, after_counter = head.after_replica, head.after_counter
    if size <= SPAN_SIZE_MAX and (not removed or removed[-1][0] >= start + size):
        spans.append(Span(replica, start, after_replica, after_counter, values, size))
        return
    counter, end = start, start + size
    while counter < end:
        stop, live = min(end, counter + SPAN_SIZE_MAX), True
        if removed and removed[-1][0] < stop:
            first, past = removed[-1]
            if first > counter:
                stop = first
            elif first == counter:
                live = False
                stop = min(stop, past)
                removed.pop()
                if stop < past:
                    removed.append((stop, past))
        part = values if stop - counter == size else values[counter - start : stop - start]
        spans.append(
            Span(
                replica, counter, after_replica, after_counter, part, stop - counter if live else 0
            )
        )
        counter = stop
        after_replica, after_counter = replica, counter - 1


def _joined(parts: list[Any]) -> Values:
    if isinstance(parts[0], str):
        return "".join(parts)
    return [value for part in parts for value in part]


def _hang(spans: dict[str, list[Span]]) -> tuple[list[Span], Children] | None:
    """Find the anchor of every span: those at the head, and the children of the others."""
    heads: list[Span] = []
    children: Children = {}
    starts = {replica: [span.counter for span in own] for replica, own in spans.items()}
    for replica, own in spans.items():
        before: Span | None = None
        for span in own:
            after = span.after_counter
            chained, before = before, span
            if after == 0:
                heads.append(span)
                continue
            if (
                chained is not None
                and after == span.counter - 1
                and span.after_replica == replica
                and after < chained.counter + len(chained.values)
            ):
                # Mostly it continues the span before it, which needs no search.
                children.setdefault(chained, []).append((after, span.counter, replica, span))
                continue
            anchors = spans.get(span.after_replica)
            if anchors is None or (span.counter, replica) <= (after, span.after_replica):
                return None
            place = bisect_right(starts[span.after_replica], after) - 1
            anchor = anchors[place]
            if place < 0 or after >= anchor.counter + len(anchor.values):
                return None
            children.setdefault(anchor, []).append((after, span.counter, replica, span))
    return heads, children


def _walk(heads: list[Span], children: Children) -> list[Span]:
    """The spans depth first, newest sibling first, cut where children come in between."""
    heads.sort(key=attrgetter("counter", "replica"))
    order: list[Span] = []
    stack = heads
    while stack:
        span = stack.pop()
        below = children.pop(span, None)
        order.append(span)
        if below is None:
            continue
        if len(below) == 1 and below[0][0] == span.counter + len(span.values) - 1:
            stack.append(below[0][3])
        else:
            # The anchors descend and, below each, the clocks; the next to use is the last.
            below.sort(reverse=True)
            stack.extend(_below(span, below, children))
    return order


def _below(
    span: Span, below: list[tuple[int, int, str, Span]], children: Children
) -> Iterable[Span]:
    """What follows the first part of a span, last one first; the span is cut after that part."""
    # `below` starts with the highest anchors: its tail is what hangs on the first one.
    after = below[-1][0]
    here: list[tuple[int, str, Span]] = []
    while below and below[-1][0] == after:
        here.append(below.pop()[1:])
    offset = after - span.counter + 1
    if offset == len(span.values):
        return [child for _, _, child in here]
    rest = Span(
        span.replica,
        after + 1,
        span.replica,
        after,
        span.values[offset:],
        span.live - offset if span.live else 0,
    )
    span.values = span.values[:offset]
    span.live = offset if span.live else 0
    if below:
        children[rest] = below
    # Siblings of the rest, oldest first because the stack hands out the last one first.
    clock = (after + 1, span.replica)
    older = [child for counter, replica, child in here if (counter, replica) < clock]
    newer = [child for counter, replica, child in here if (counter, replica) > clock]
    return [*older, rest, *newer]
