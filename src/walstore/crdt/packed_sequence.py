"""A list out of a packed state: shown at once, and unpacked when anything else is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from walstore.crdt.ops import fresh
from walstore.crdt.runs import as_values
from walstore.crdt.sequence import RunSequence
from walstore.crdt.state import ListState, Piece
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
        spans: list[Span] = []
        for piece in self.state.pieces:
            size = len(piece.values)
            if piece.values.__class__ is str and size <= SPAN_SIZE_MAX:
                # Most pieces are one span as they are.
                live = 0 if piece.deleted else size
                after = piece.after_replica, piece.after_counter
                spans.append(Span(piece.replica, piece.counter, *after, piece.values, live))
            else:
                spans.extend(_spans_of(piece))
        sequence = RunSequence(spans, _arrivals_of(spans))
        if sequence.high > self._counter:
            raise MalformedError("packed state", "a clock is above the document's counter")
        return sequence


def _spans_of(piece: Piece) -> Iterator[Span]:
    """A piece as spans of characters or of other values, none of them too long."""
    replica, counter = piece.replica, piece.counter
    after_replica, after_counter = piece.after_replica, piece.after_counter
    stretches = [piece.values] if isinstance(piece.values, str) else as_values(piece.values)
    for values in stretches:
        for start in range(0, len(values), SPAN_SIZE_MAX):
            part = values[start : start + SPAN_SIZE_MAX]
            live = 0 if piece.deleted else len(part)
            yield Span(replica, counter, after_replica, after_counter, part, live)
            counter += len(part)
            after_replica, after_counter = replica, counter - 1


def _arrivals_of(spans: list[Span]) -> list[tuple[str, int, int]]:
    """The elements in the order of their clocks, as stretches of one replica."""
    arrived: list[tuple[str, int, int]] = []
    for span in sorted(spans, key=attrgetter("counter", "replica")):
        end = span.counter + len(span.values)
        if arrived and arrived[-1][0] == span.replica and arrived[-1][2] == span.counter:
            arrived[-1] = (span.replica, arrived[-1][1], end)
        else:
            arrived.append((span.replica, span.counter, end))
    return arrived
