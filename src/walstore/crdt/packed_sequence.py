"""A list out of a packed state: shown at once, and unpacked when anything else is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from walstore.crdt.collector import CollectorPaused
from walstore.crdt.ops import fresh
from walstore.crdt.runs import as_values
from walstore.crdt.sequence import RunSequence
from walstore.crdt.state import ListState, PieceRow
from walstore.crdt.tree import SPAN_SIZE_MAX, Span
from walstore.errors import MalformedError


class PackedSequence:
    """One list, of which so far only the live values are known."""

    __slots__ = ("_counter", "state")

    def __init__(self, state: ListState, counter: int) -> None:
        """Take a regular list of a state; no clock in it may be above `counter`."""
        self.state = state
        self._counter = counter

    def __len__(self) -> int:
        return 0 if self.state.visible is None else len(self.state.visible)

    def text(self) -> str:
        """The live values that are strings, joined."""
        visible = self.state.visible
        if isinstance(visible, str):
            return visible
        return "".join([value for value in visible or () if isinstance(value, str)])

    def values(self) -> list[Any]:
        """The live values in order, copied."""
        return fresh(list(self.state.visible or ()))  # type: ignore[no-any-return]

    def is_text(self) -> bool:
        """Whether every live value is a character."""
        return isinstance(self.state.visible, str)

    def opened(self) -> RunSequence:
        """The list with its structure.

        Raises:
            MalformedError: The structure is malformed.
        """
        with CollectorPaused():
            return self._laid_out()

    def _laid_out(self) -> RunSequence:
        spans: list[Span] = []
        rows = self.state.rows()
        for row in rows:
            replica, counter, after_replica, after_counter, values, is_removed = row
            size = len(values)
            if size <= SPAN_SIZE_MAX and isinstance(values, str):
                # Most pieces are one span as they are.
                live = 0 if is_removed else size
                spans.append(Span(replica, counter, after_replica, after_counter, values, live))
            else:
                spans.extend(_spans_of(row))
        # What arrived is told by the rows as they are: spans are cut and joined later on.
        sequence = RunSequence(spans, _in_order(rows))
        if sequence.high > self._counter:
            raise MalformedError("packed state", "a clock is above the document's counter")
        return sequence


def _spans_of(row: PieceRow) -> Iterator[Span]:
    """A piece as spans of characters or of other values, none of them too long."""
    replica, counter, after_replica, after_counter, piece, is_removed = row
    stretches = [piece] if isinstance(piece, str) else as_values(piece)
    for values in stretches:
        for start in range(0, len(values), SPAN_SIZE_MAX):
            part = values[start : start + SPAN_SIZE_MAX]
            live = 0 if is_removed else len(part)
            yield Span(replica, counter, after_replica, after_counter, part, live)
            counter += len(part)
            after_replica, after_counter = replica, counter - 1


def _in_order(rows: list[PieceRow]) -> Iterator[tuple[str, int, int]]:
    """The elements in the order of their clocks, as stretches of one replica."""
    replica, start, end = "", 0, 0
    for counter, own, past in sorted((row[1], row[0], row[1] + len(row[4])) for row in rows):
        if counter != end or own != replica:
            if end:
                yield replica, start, end
            replica, start = own, counter
        end = past
    if end:
        yield replica, start, end
