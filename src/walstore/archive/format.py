"""What an archive needs of a format: rows and changes into bytes and back.

- The same rows give the same bytes, wherever and whenever they are written.
- What is read is checked: a body that was cut off inside of a row or is of something else is an
  error, never fewer rows. One that was cut off right after a row may be whole as far as it goes;
  the manifest's size, hash and count tell.
- Numbers are JSON's: a double that is whole is read as an integer.

The suite in `walstore.testing` checks all of it, for each implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from walstore.archive.rows import Column, Row, RowChange
from walstore.errors import MalformedError, UsageError


class FormatError(MalformedError):
    """A body is not what its format says."""

    def __init__(self, format_id: str, reason: str) -> None:
        super().__init__(f"{format_id} artifact", reason)
        self.format_id = format_id


class RowRefusedError(UsageError):
    """A row or a change cannot be written.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"a row cannot be archived: {reason}")
        self.reason = reason


class Format(Protocol):
    """A way to write artifacts. `columns` says what rows have; empty if nobody knows."""

    @property
    def id(self) -> str:
        """Names it in manifests and settings."""
        ...

    @property
    def extension(self) -> str:
        """Ends the keys of its artifacts, with the dot."""
        ...

    def write_base(self, rows: Iterable[Row], columns: Sequence[Column]) -> bytes:
        """The rows, in the order given.

        Raises:
            RowRefusedError: One has a member that is no column, or is not of its type; or holds
                an integer beyond ±(2^53 − 1).
            NotJsonError: One has no canonical text.
        """
        ...

    def read_base(self, body: bytes, columns: Sequence[Column]) -> Iterator[Row]:
        """The rows, in the order written.

        Raises:
            FormatError: It is none of this format, or not whole.
        """
        ...

    def write_diff(self, changes: Iterable[RowChange], columns: Sequence[Column]) -> bytes:
        """The changes, in the order given.

        Raises:
            RowRefusedError: One is of another shape, or a row of it is, or holds an integer
                beyond ±(2^53 − 1).
            NotJsonError: One has no canonical text.
        """
        ...

    def read_diff(self, body: bytes, columns: Sequence[Column]) -> Iterator[RowChange]:
        """The changes, in the order written.

        Raises:
            FormatError: It is none of this format, or not whole, or of an unknown action.
        """
        ...
