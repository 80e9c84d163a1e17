"""A list that is shown at once, and laid out when anything else is asked of it.

It comes out of a packed state, or out of many ops at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from walstore.crdt.collector import CollectorPaused
from walstore.crdt.ops import fresh
from walstore.crdt.runs import as_values
from walstore.crdt.sequence import RunSequence
from walstore.crdt.state import ListState
from walstore.crdt.tree import SPAN_SIZE_MAX, Rows, SpanRow
from walstore.errors import MalformedError


class PackedSequence:
    """One list, of which so far only the live values are known."""

    __slots__ = ("_arrived", "_counter", "state")

    def __init__(
        self,
        state: ListState,
        counter: int,
        arrived: Callable[[], Iterator[tuple[str, int, int]]] | None = None,
    ) -> None:
        """Take a regular list of a state; no clock in it may be above `counter`.

        Args:
            state: The list.
            counter: The highest counter that there is.
            arrived: Tells the elements in order of arrival; else they came by age.
        """
        self.state = state
        self._counter = counter
        self._arrived = arrived

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
        if isinstance(self.state.visible, str):
            return list(self.state.visible)
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
        rows = self.state.rows()
        # What arrived is told by the rows as they are: spans are cut and joined later on.
        arrived = _in_order(rows) if self._arrived is None else self._arrived()
        is_text = set(map(type, rows.values)) <= {str}
        if not is_text or max(map(len, rows.values), default=0) > SPAN_SIZE_MAX:
            rows = Rows.of([part for row in rows.all() for part in _parts(row)])
        visible = self.state.visible
        text = visible if is_text and isinstance(visible, str) else None
        sequence = RunSequence(rows, arrived, text)
        if sequence.high > self._counter:
            raise MalformedError("packed state", "a clock is above the document's counter")
        return sequence


def _parts(row: SpanRow) -> Iterator[SpanRow]:
    """Rows that can each be a span: of characters or of other values, none of them too long."""
    replica, counter, after_replica, after_counter, piece, live = row
    for values in [piece] if isinstance(piece, str) else as_values(piece):
        for start in range(0, len(values), SPAN_SIZE_MAX):
            part = values[start : start + SPAN_SIZE_MAX]
            size = len(part)
            yield replica, counter, after_replica, after_counter, part, size if live else 0
            counter += size
            after_replica, after_counter = replica, counter - 1


def _in_order(rows: Rows) -> Iterator[tuple[str, int, int]]:
    """The elements in the order of their clocks, as stretches of one replica."""
    replica, start, end = "", 0, 0
    count = len(rows.table)
    for stamp, size in sorted(zip(rows.stamps, map(len, rows.values), strict=True)):
        counter, own = stamp // count, rows.table[stamp % count]
        if counter != end or own != replica:
            if end:
                yield replica, start, end
            replica, start = own, counter
        end = counter + size
    if end:
        yield replica, start, end
