"""What one fold changed in a document, and whose edits were folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from walstore.crdt import Change, ListChanged, MapChanged, RegisterChanged


class Changed(NamedTuple):
    """The changes of one fold, in order.

    Attributes:
        origin: Whether this session made the edits, or read them in the log.
        author: The public key of who made them, in hex.
        ts: Where they stand in the log; None as long as that is not known.
        changes: What they changed.
        has_more: Whether more was folded with it: whoever reads the document, or edits it in
            answer, has to wait for that.
    """

    origin: Literal["local", "remote"]
    author: str
    ts: int | None
    changes: Sequence[Change]
    has_more: bool = False


class Changes(list[Change]):
    """The changes of many elements in order, which remembers whose they are."""

    def __init__(self) -> None:
        super().__init__()
        # Where an element's changes end, its author and its `ts`.
        self._ends: list[tuple[int, str, int]] = []

    def close(self, author: str, ts: int) -> None:
        """What came since the last time is of this element."""
        if len(self) > (self._ends[-1][0] if self._ends else 0):
            self._ends.append((len(self), author, ts))

    def by_element(self) -> Iterator[Changed]:
        """The changes element by element; all as one where they change what a name is."""
        if self._is_mixed():
            yield Changed("remote", *self._ends[-1][1:], self[:])
            return
        start = 0
        for end, author, ts in self._ends:
            yield Changed("remote", author, ts, self[start:end], has_more=end < self._ends[-1][0])
            start = end

    def _is_mixed(self) -> bool:
        """Whether a register was changed, and something of its name that it may have hidden."""
        registers = {change.register for change in self if isinstance(change, RegisterChanged)}
        return bool(registers) and any(_hidden(change) in registers for change in self)


def _hidden(change: Change) -> str | None:
    match change:
        case ListChanged():
            return change.list
        case MapChanged():
            return change.map
        case RegisterChanged():
            return None
