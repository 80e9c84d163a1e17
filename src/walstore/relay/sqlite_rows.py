"""Rows as they are written to SQLite and read back: believed only if their checksums fit.

- A row's checksum is over its other columns; a payload's is over that of its row, too, so that no
  payload passes for another row's.
- They find accidents, not forgeries: elements are signed.
- A damaged row is an error that names it. It is never passed over, and never handed out.
- Elements of a document form a chain by `previous_ts`, so that one that is missing is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import orjson

from walstore.errors import UsageError
from walstore.relay.log import (
    DocumentStatus,
    Event,
    Kind,
    LogCorruptError,
    NewElement,
    NewSnapshot,
    Row,
)

ELEMENT: Final = 0
SNAPSHOT: Final = 1
KINDS: Final[tuple[Kind, Kind]] = ("element", "snapshot")

Columns = tuple[Any, ...]


class State(NamedTuple):
    """The one row of the relay itself.

    Attributes:
        relay_id: Names this database.
        head_seq: The newest seq.
        min_seq: The lowest seq that is replayed.
        documents: How many documents there are, and the number of the newest.
        generation: Counts the changes of the database.
    """

    relay_id: str
    head_seq: int
    min_seq: int
    documents: int
    generation: int

    @property
    def lowest_seq(self) -> int:
        """The lowest seq that is replayed; 0 if nothing was ever accepted."""
        return self.min_seq if self.head_seq else 0


class Document(NamedTuple):
    """A row of `documents` without its checksum; `accepted` counts its events, there or gone."""

    number: int
    key: str
    head: int = 0
    floor: int = 0
    elements: int = 0
    snapshots: int = 0
    payload_bytes: int = 0
    snapshot_upto: int = 0
    accepted: int = 0
    last_accepted_ms: int = 0

    def status(self) -> DocumentStatus:
        """The same, as a relay is told."""
        return DocumentStatus(
            document=self.key,
            elements=self.elements,
            payload_bytes=self.payload_bytes,
            head=self.head,
            floor=self.floor,
            snapshots=self.snapshots,
            snapshot_upto=self.snapshot_upto,
            last_accepted_ms=self.last_accepted_ms,
        )


# A row of `events`, with the document's key in place of its number, as checksums are taken.
EVENT_COLUMNS: Final = (
    "e.seq, d.key, e.kind, e.id, e.author, e.ts, e.previous_ts, e.accepted_ms, e.signature,"
    " e.size, e.vc, e.is_deletion, e.is_removed, e.checksum"
)
EVENT_WIDTH: Final = 14

STATE_COLUMNS: Final = "relay_id, head_seq, min_seq, documents, generation, checksum"


def sealed(columns: Columns) -> Columns:
    """The columns of a row with their checksum, which comes last.

    Raises:
        UsageError: A text is no Unicode, or a number too large.
    """
    try:
        return (*columns, _checksum(columns))
    except orjson.JSONEncodeError as error:
        raise UsageError(f"it cannot be stored: {error}") from error


def _checksum(columns: Columns) -> int:
    return crc32(orjson.dumps(columns))


def checked(columns: Columns, what: str) -> Columns:
    """The columns of a row without its checksum, which comes last.

    Raises:
        LogCorruptError: It does not fit.
    """
    if not _fits(columns):
        raise LogCorruptError(f"{what} is damaged: its checksum does not fit")
    return columns[:-1]


def element_columns(element: NewElement, *, seq: int, ts: int, previous: int, ms: int) -> Columns:
    """A row of `events` for an element."""
    columns = (
        seq,
        element.document,
        ELEMENT,
        element.id,
        element.author,
        ts,
        previous,
        ms,
        element.signature,
        len(element.data),
        "",
        0,
        0,
    )
    return sealed(columns)


def snapshot_columns(snapshot: NewSnapshot, *, seq: int, ms: int) -> Columns:
    """A row of `events` for a snapshot."""
    columns = (
        seq,
        snapshot.document,
        SNAPSHOT,
        snapshot.id,
        snapshot.author,
        snapshot.upto_ts,
        0,
        ms,
        "",
        len(snapshot.text),
        orjson.dumps(dict(snapshot.vc), option=orjson.OPT_SORT_KEYS).decode(),
        int(snapshot.is_deletion),
        0,
    )
    return sealed(columns)


def removed_columns(columns: Columns) -> Columns:
    """A row of `events` for a snapshot whose payload goes."""
    return sealed((*columns[:12], 1))


def payload_columns(event: Columns, payload: bytes) -> Columns:
    """A row of `payloads` for a new row of `events`."""
    return (event[0], crc32(payload, event[-1]), payload)


def read_rows(document: str, after: int | None, found: Sequence[Columns]) -> list[Row]:
    """Elements of a document, ascending: event columns, then the payload's checksum and itself.

    Args:
        document: Whose they are to be.
        after: They are all that follow this `ts`; None if they need not start there.
        found: What was read.

    Raises:
        LogCorruptError: One of them is damaged, or one is missing among them.
    """
    rows: list[Row] = []
    last = after
    for columns in found:
        seq, key, _, _, author, ts, previous, _, signature = columns[:9]
        expected, payload = columns[EVENT_WIDTH:]
        if not _fits(columns[:EVENT_WIDTH]) or key != document:
            raise damaged(document, ts)
        if not _carries(columns[EVENT_WIDTH - 1], expected, payload):
            raise damaged(document, ts)
        # The first one follows a checkpoint, which may lie between two elements.
        if last is not None and (previous > last if not rows else previous != last):
            raise missing(document, last)
        rows.append(Row(ts, seq, author, signature, payload))
        last = ts
    return rows


def read_event(columns: Columns, *, is_there: bool) -> Event:
    """The event of a row of `events`; its payload is empty bytes if it should be there.

    Raises:
        LogCorruptError: It is damaged.
    """
    if not _fits(columns):
        raise damaged(columns[1], columns[5])
    seq, key, kind, name, author, ts, _, ms, signature, _, vc, is_deletion, _, _ = columns
    return Event(
        seq=seq,
        id=name,
        kind=KINDS[kind],
        document=key,
        author=author,
        ts=ts,
        accepted_ms=ms,
        signature=signature,
        vc=_read_vc(vc),
        is_deletion=bool(is_deletion),
        payload=b"" if is_there else None,
    )


def with_payload(event: Event, row_checksum: int, expected: object, payload: Any) -> Event:
    """An event with its payload, where it should have one.

    Raises:
        LogCorruptError: The payload is damaged or missing.
    """
    if event.payload is None:
        return event
    if not _carries(row_checksum, expected, payload):
        raise damaged(event.document, event.ts)
    return event._replace(payload=payload)


def damaged(document: object, ts: object) -> LogCorruptError:
    """A row that does not fit its checksum."""
    return LogCorruptError(f"document {document!r} is damaged at ts {ts}; others are not affected")


def missing(document: str, ts: int) -> LogCorruptError:
    """A row that should be there."""
    return LogCorruptError(
        f"document {document!r} is damaged after ts {ts}: an element is missing;"
        " others are not affected"
    )


def _fits(columns: Columns) -> bool:
    try:
        return bool(_checksum(columns[:-1]) == columns[-1])
    except orjson.JSONEncodeError:
        # Damage can turn a column into bytes, which no checksum was ever taken of.
        return False


def _carries(row_checksum: int, expected: object, payload: object) -> bool:
    return type(payload) is bytes and crc32(payload, row_checksum) == expected


def _read_vc(text: str) -> Mapping[str, int]:
    vc: dict[str, int] = orjson.loads(text) if text else {}
    return vc
