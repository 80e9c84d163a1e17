"""What becomes of a list whose removed elements are let go, and of ops that still name them.

- The elements that stay keep their order. Each is anchored anew, on the nearest older element
  before it: of a regular list the order says everything (see `walstore.crdt.state`).
- A list of any other shape keeps its nodes, without the values of those that are removed.
- Whoever had not seen a remove may still insert after an element that was let go: that goes after
  the nearest earlier element of the same replica that is left or known to come, which is where it
  was typed in most cases, else to the head. The rest of such a run follows as usual.
- An element that was let go is removed: removing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from walstore.crdt.nodes import NodeSequence
from walstore.crdt.ops import fresh
from walstore.crdt.packed_sequence import PackedSequence
from walstore.crdt.runs import Insert, Remove
from walstore.crdt.sequence import RunSequence
from walstore.crdt.state import ListState, Piece
from walstore.crdt.tree import Span

Sequence = RunSequence | NodeSequence


def without_removed(sequence: Sequence) -> Sequence:
    """An independent copy of a list without its removed elements."""
    if isinstance(sequence, NodeSequence):
        copy = sequence.copy()
        for node in copy.nodes.values():
            if node.deleted:
                node.value = None
        return copy
    pieces = list(_anchored(span for span in sequence.spans() if span.live))
    return PackedSequence(ListState.of_pieces(pieces), sequence.high).opened()


def moved(run: Insert, sequence: Sequence | None, coming: int = 0) -> Insert | None:
    """An insert whose anchor is gone, with one that is left; None if its anchor is there.

    Args:
        run: The insert.
        sequence: The list, if there is one.
        coming: The nearest earlier element of the anchor's replica that is known to come, if any.
    """
    if sequence is not None and _has(sequence, run.after_replica, run.after_counter):
        return None
    counter = coming
    if sequence is not None:
        counter = max(counter, sequence.last_below(run.after_replica, run.after_counter))
    replica = run.after_replica if counter else ""
    return Insert(run.list, run.replica, run.counter, replica, counter, run.values)


def present(
    run: Remove, sequence: Sequence | None, never_comes: Callable[[str, str, int], bool]
) -> list[Remove]:
    """A remove without the elements that are not there and never come."""
    parts: list[Remove] = []
    for offset in range(run.size):
        target = run.target_counter + offset * run.step
        is_there = sequence is not None and _has(sequence, run.target_replica, target)
        if not is_there and never_comes(run.list, run.target_replica, target):
            continue
        last = parts[-1] if parts else None
        if last is not None and last.counter + last.size == run.counter + offset:
            last.size += 1
        else:
            clock = run.replica, run.counter + offset
            parts.append(Remove(run.list, *clock, run.target_replica, target, 1, run.step))
    return parts


def _anchored(spans: Iterable[Span]) -> Iterator[Piece]:
    """Spans in document order, each anchored on the nearest older element before it."""
    # Those in which a later span may be anchored. Of two of them, the later one starts later.
    opened: list[Span] = []
    for span in spans:
        while opened and _age(opened[-1]) > _age(span):
            opened.pop()
        replica, counter = "", 0
        if opened:
            anchor = opened[-1]
            replica = anchor.replica
            # Spans of replicas that write together overlap in time: only the older part counts.
            newest = span.counter if replica < span.replica else span.counter - 1
            counter = min(anchor.counter + len(anchor.values) - 1, newest)
        values = span.values if isinstance(span.values, str) else fresh(span.values)
        yield Piece(span.replica, span.counter, replica, counter, values, False)
        opened.append(span)


def _age(span: Span) -> tuple[int, str]:
    return span.counter, span.replica


def _has(sequence: Sequence, replica: str, counter: int) -> bool:
    if isinstance(sequence, NodeSequence):
        return sequence.has(replica, counter)
    return sequence.find(replica, counter) is not None
