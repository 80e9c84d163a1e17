"""Artifacts as protobuf messages, one after the other: those of `artifact.proto`.

- Each message stands behind its length, as a varint. A body that ends inside of one is an error;
  messages that are missing altogether are told by the manifest's size, hash and count.
- The members of a row are written in the order of their names, so the same rows give the same
  bytes.
- What a Struct cannot hold, or a reader would not follow, is written as JSON text instead.
- protobuf comes with an extra, and is imported when a format is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from walstore.archive.extras import needed
from walstore.archive.format import FormatError
from walstore.archive.jsonl import change_text, raw_change
from walstore.archive.rows import Column, Row, RowChange
from walstore.archive.shape import (
    RawChange,
    changes_read,
    changes_to_write,
    exact_bytes,
    rows_read,
    rows_to_write,
)
from walstore.canon import Json, canonical_text, parse
from walstore.errors import MalformedError

_ID = "protobuf"

# No message is larger: 2 GiB is what protobuf itself allows.
_MESSAGE_BYTES_MAX = 2**31 - 1

# How many bytes the varint of a length can have.
_LENGTH_BYTES_MAX = 5


class ProtobufFormat:
    """Artifacts as protobuf messages."""

    id = _ID
    extension = ".pb"

    def __init__(self) -> None:
        """Import protobuf.

        Raises:
            ExtraMissingError: It is not installed.
        """
        what, extra = "the format protobuf", "protobuf"
        self._errors = needed("google.protobuf.message", what=what, extra=extra)
        self._unknown = needed("google.protobuf.unknown_fields", what=what, extra=extra)
        self._messages = needed("walstore.archive.protobuf_messages", what=what, extra=extra)

    def write_base(self, rows: Iterable[Row], columns: Sequence[Column]) -> bytes:
        """The rows, in the order given; raises as `Format.write_base` does."""
        return b"".join(map(_delimited, map(self._row_message, rows_to_write(rows, columns))))

    def read_base(self, body: bytes, columns: Sequence[Column]) -> Iterator[Row]:
        """The rows, in the order written; raises as `Format.read_base` does."""
        found = self._parsed(self._messages.SnapshotRow, body)
        return rows_read(_ID, map(self._row, found), columns)

    def write_diff(self, changes: Iterable[RowChange], columns: Sequence[Column]) -> bytes:
        """The changes, in the order given; raises as `Format.write_diff` does."""
        found = changes_to_write(changes, columns)
        return b"".join(map(_delimited, map(self._change_message, found)))

    def read_diff(self, body: bytes, columns: Sequence[Column]) -> Iterator[RowChange]:
        """The changes, in the order written; raises as `Format.read_diff` does."""
        found = self._parsed(self._messages.DiffChange, body)
        return changes_read(_ID, map(self._change, found), columns)

    def _row_message(self, row: dict[str, Json]) -> Any:
        text = exact_bytes(row)
        message = self._messages.SnapshotRow()
        try:
            self._messages.fill(message.row, parse(text))
        except self._messages.UnfitError:
            return self._messages.SnapshotRow(json=text.decode())
        return message

    def _row(self, message: Any) -> Json:
        if message.json:
            return _parsed_text(message.json)
        if not message.HasField("row"):
            raise FormatError(_ID, "a message holds no row")
        return self._messages.row_of(message.row)  # type: ignore[no-any-return]

    def _change_message(self, change: RowChange) -> Any:
        text = change_text(change)
        members = raw_change(_ID, parse(text))
        message = self._messages.DiffChange(action=members.action, key=canonical_text(members.key))
        try:
            if members.old is not None:
                self._messages.fill(message.old, members.old)
            if members.new is not None:
                self._messages.fill(message.new, members.new)
        except self._messages.UnfitError:
            return self._messages.DiffChange(json=text.decode())
        return message

    def _change(self, message: Any) -> RawChange:
        if message.json:
            return raw_change(_ID, _parsed_text(message.json))
        row_of = self._messages.row_of
        return RawChange(
            message.action,
            _parsed_text(message.key),
            row_of(message.old) if message.HasField("old") else None,
            row_of(message.new) if message.HasField("new") else None,
        )

    def _parsed(self, kind: Any, body: bytes) -> Iterator[Any]:
        for text in _cut(body):
            try:
                message = kind.FromString(text)
            except self._errors.DecodeError as error:
                raise FormatError(_ID, f"a message cannot be read: {error}") from error
            # One that is not of this kind looks like an empty one with unknown members.
            if len(self._unknown.UnknownFieldSet(message)):
                raise FormatError(_ID, "a message has unknown members")
            yield message


def _delimited(message: Any) -> bytes:
    text: bytes = message.SerializeToString(deterministic=True)
    return _length(len(text)) + text


def _length(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _cut(body: bytes) -> Iterator[bytes]:
    """The messages of a body, still as bytes."""
    at = 0
    while at < len(body):
        size, start = _read_length(body, at)
        at = start + size
        if size > _MESSAGE_BYTES_MAX or at > len(body):
            raise FormatError(_ID, "a message is cut off")
        yield body[start:at]


def _read_length(body: bytes, at: int) -> tuple[int, int]:
    """The length that stands somewhere, and where it ends."""
    number = 0
    for index, byte in enumerate(body[at : at + _LENGTH_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, at + index + 1
    raise FormatError(_ID, "the length of a message is cut off, or none")


def _parsed_text(text: str) -> Json:
    try:
        return parse(text)
    except MalformedError as error:
        raise FormatError(_ID, f"a text is not JSON: {error.reason}") from error
