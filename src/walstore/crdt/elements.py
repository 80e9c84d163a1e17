"""Elements of a list by their ids, removed ones too, whatever the shape of the list.

- Ids in a row are a range `(replica, first counter, size)`. An id that is no clock's is a range as
  well: the id in place of the replica, the counter 0, the size 1.
- What is found comes in document order, in rows: no other element, live or removed, stands between
  two neighbours of a row. A row can be put back as one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from walstore.crdt.ids import element_id, parse_element_id
from walstore.crdt.nodes import Node, NodeSequence
from walstore.crdt.ops import fresh
from walstore.crdt.runs import Values
from walstore.crdt.sequence import RunSequence
from walstore.crdt.tree import Span

# Replica, first counter, size.
Ids: TypeAlias = tuple[str, int, int]


class Found(NamedTuple):
    """Neighbours in a list, of one replica, with counters in a row.

    Attributes:
        ids: Their ids.
        values: Their values, copied.
    """

    ids: Ids
    values: Values


def ids_of(id: str) -> Ids:
    """One id as a range."""
    clock = parse_element_id(id)
    return (id, 0, 1) if clock is None else (clock[1], clock[0], 1)


def first_id(ids: Ids) -> str:
    """The first id of a range."""
    replica, counter, _ = ids
    return element_id(counter, replica) if counter else replica


def last_id(ids: Ids) -> str:
    """The last id of a range."""
    replica, counter, size = ids
    return element_id(counter + size - 1, replica) if counter else replica


def united(ids: Iterable[Ids]) -> list[Ids]:
    """The same ids, each once, in as few ranges as can say them, ascending."""
    ranges: list[Ids] = []
    for replica, counter, size in sorted(ids):
        if ranges:
            last, start, length = ranges[-1]
            if last == replica and counter <= start + length:
                ranges[-1] = last, start, max(length, counter + size - start)
                continue
        ranges.append((replica, counter, size))
    return ranges


def minus(ids: Iterable[Ids], others: Iterable[Ids]) -> list[Ids]:
    """Ids without others."""
    gone: dict[str, list[tuple[int, int]]] = {}
    for replica, counter, size in united(others):
        gone.setdefault(replica, []).append((counter, counter + size))
    left: list[Ids] = []
    for replica, counter, size in united(ids):
        end = counter + size
        for first, past in gone.get(replica, ()):
            if past <= counter or first >= end:
                continue
            if first > counter:
                left.append((replica, counter, first - counter))
            counter = past
        if counter < end:
            left.append((replica, counter, end - counter))
    return left


def find_rows(
    sequence: RunSequence | NodeSequence, ids: Iterable[Ids], *, live: bool
) -> list[list[Found]]:
    """Those of the elements that are live, or those that are removed, in rows."""
    if isinstance(sequence, NodeSequence):
        return _rows_of_nodes(sequence, ids, live=live)
    parts = [
        part
        for replica, counter, size in united(ids)
        for part in sequence.known_pieces(replica, counter, counter + size)
        if bool(part[0].live) is live
    ]
    if len(parts) > 1:
        parts.sort(key=lambda part: (sequence.tree.path(part[0]), part[1]))
    rows: list[list[Found]] = []
    last: tuple[Span, int, int] | None = None
    for part in parts:
        if last is None or not _are_neighbours(sequence, last, part):
            rows.append([])
        rows[-1].append(_found(*part))
        last = part
    return rows


def find_copy(
    sequence: RunSequence | NodeSequence,
    gone: Iterable[Found],
    anchor: Ids,
    *,
    author: str,
    since: int,
) -> Ids | None:
    """What an author has inserted after the first of removed elements, to put them back.

    Args:
        sequence: The list.
        gone: The removed elements, in order.
        anchor: The first of them.
        author: Whose inserts to look for.
        since: The counter above which they are.

    Returns:
        The ids of the copies of the first elements, as many as there are.
    """
    for replica, counter in _inserted_after(sequence, anchor, since):
        if replica.partition(":")[0] != author:
            continue
        size = 0
        for value in chain.from_iterable(found.values for found in gone):
            if _chained_value(sequence, replica, counter + size, is_first=not size) != [value]:
                break
            size += 1
        if size:
            return replica, counter, size
    return None


def _found(span: Span, first: int, past: int) -> Found:
    values = span.values[first:past]
    copied = values if isinstance(values, str) else fresh(values)
    return Found((span.replica, span.counter + first, past - first), copied)


def _are_neighbours(
    sequence: RunSequence, left: tuple[Span, int, int], right: tuple[Span, int, int]
) -> bool:
    if left[0] is right[0]:
        return left[2] == right[1]
    is_at_edge = left[2] == len(left[0].values) and right[1] == 0
    return is_at_edge and sequence.tree.following(left[0]) is right[0]


def _rows_of_nodes(sequence: NodeSequence, ids: Iterable[Ids], *, live: bool) -> list[list[Found]]:
    wanted: dict[str, list[tuple[int, int]]] = {}
    for replica, counter, size in united(ids):
        wanted.setdefault(replica, []).append((counter, counter + size))
    rows: list[list[Found]] = []
    is_open = False
    for node in sequence.in_order():
        id = ids_of(node.id)
        is_wanted = any(start <= id[1] < end for start, end in wanted.get(id[0], ()))
        if not is_wanted or node.pending or node.deleted is live:
            is_open = False
            continue
        if not is_open:
            rows.append([])
        is_open = True
        rows[-1].append(Found(id, [fresh(node.value)]))
    return rows


def _inserted_after(
    sequence: RunSequence | NodeSequence, anchor: Ids, since: int
) -> Iterator[tuple[str, int]]:
    """Replica and counter of the elements above a counter that are anchored on an element."""
    if isinstance(sequence, NodeSequence):
        for node in sequence.nodes.values():
            if node.after == first_id(anchor) and node.counter > since and _is_regular(node):
                yield node.replica, node.counter
        return
    replica, counter, _ = anchor
    (part,) = sequence.known_pieces(replica, counter, counter + 1)
    # If anything was anchored on it, it would be the last one of its span.
    span: Span | None = part[0] if part[2] == len(part[0].values) else None
    # Of what is anchored on an element the newest comes first, each followed by its own.
    span = sequence.tree.following(span) if span is not None else None
    while span is not None and span.counter > since:
        if (span.after_replica, span.after_counter) == (replica, counter):
            yield span.replica, span.counter
        span = sequence.tree.following(span)


def _chained_value(
    sequence: RunSequence | NodeSequence, replica: str, counter: int, *, is_first: bool
) -> list[Any]:
    """The value of an element in a list; nothing if it is not anchored on the one before it."""
    if isinstance(sequence, NodeSequence):
        node = sequence.nodes.get(element_id(counter, replica))
        if node is None or node.pending:
            return []
        is_chained = is_first or node.after == element_id(counter - 1, replica)
        return [node.value] if is_chained else []
    for span, first, _ in sequence.known_pieces(replica, counter, counter + 1):
        anchor = (span.after_replica, span.after_counter)
        if is_first or first or anchor == (replica, counter - 1):
            return [span.values[first]]
    return []


def _is_regular(node: Node) -> bool:
    return not node.pending and node.id == element_id(node.counter, node.replica)
