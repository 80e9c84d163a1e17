"""Artifacts as JSON lines: one object in canonical text on each line.

- A change is `{"action":…,"key":[…],"new":{…},"old":{…}}`; what there is none of is left out.
- Every line ends with a line feed, the last one too; so a line that was cut off is noticed. Lines
  that are missing altogether are not: the manifest's size, hash and count tell.
- No rows are an empty body. A line may be of any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from walstore.archive.format import FormatError
from walstore.archive.rows import Column, Row, RowChange
from walstore.archive.shape import (
    RawChange,
    changes_read,
    changes_to_write,
    exact_bytes,
    rows_read,
    rows_to_write,
)
from walstore.canon import Json, parse
from walstore.errors import MalformedError

_ID = "jsonl"
_CHANGE_NAMES = frozenset(RawChange._fields)


class JsonlFormat:
    """Artifacts as JSON lines."""

    id = _ID
    extension = ".jsonl"

    def write_base(self, rows: Iterable[Row], columns: Sequence[Column]) -> bytes:
        """The rows, in the order given; raises as `Format.write_base` does."""
        return b"".join(exact_bytes(row) + b"\n" for row in rows_to_write(rows, columns))

    def read_base(self, body: bytes, columns: Sequence[Column]) -> Iterator[Row]:
        """The rows, in the order written; raises as `Format.read_base` does."""
        return rows_read(_ID, _values(body), columns)

    def write_diff(self, changes: Iterable[RowChange], columns: Sequence[Column]) -> bytes:
        """The changes, in the order given; raises as `Format.write_diff` does."""
        return b"".join(change_text(each) + b"\n" for each in changes_to_write(changes, columns))

    def read_diff(self, body: bytes, columns: Sequence[Column]) -> Iterator[RowChange]:
        """The changes, in the order written; raises as `Format.read_diff` does."""
        return changes_read(_ID, (raw_change(_ID, value) for value in _values(body)), columns)


def change_text(change: RowChange) -> bytes:
    """A change as canonical text.

    Raises:
        RowRefusedError: It holds a number that would be rounded.
        NotJsonError: It has no canonical text.
    """
    members: dict[str, object] = {"action": change.action.value, "key": change.key}
    if change.old is not None:
        members["old"] = change.old
    if change.new is not None:
        members["new"] = change.new
    return exact_bytes(members)


def raw_change(format_id: str, value: Json) -> RawChange:
    """The members of a change's object, unchecked.

    Raises:
        FormatError: It is no such object.
    """
    if not isinstance(value, dict) or not value.keys() <= _CHANGE_NAMES:
        raise FormatError(format_id, "a change is no object of action, key, old and new")
    return RawChange(*map(value.get, RawChange._fields))


def _values(body: bytes) -> Iterator[Json]:
    start = 0
    while start < len(body):
        end = body.find(b"\n", start)
        if end < 0:
            raise FormatError(_ID, "its last line is cut off")
        try:
            value = parse(body[start:end])
        except MalformedError as error:
            raise FormatError(_ID, f"a line is not JSON: {error.reason}") from error
        yield value
        start = end + 1
