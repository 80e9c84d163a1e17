"""What one fold changed in a document, and whose edits were folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from walstore.crdt import Change


class Changed(NamedTuple):
    """The changes of one fold, in order.

    Attributes:
        origin: Whether this session made the edits, or read them in the log.
        author: The public key of who made them, in hex.
        ts: Where they stand in the log; None as long as that is not known.
        changes: What they changed.
    """

    origin: Literal["local", "remote"]
    author: str
    ts: int | None
    changes: Sequence[Change]


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
        """The changes element by element."""
        start = 0
        for end, author, ts in self._ends:
            yield Changed("remote", author, ts, self[start:end])
            start = end
