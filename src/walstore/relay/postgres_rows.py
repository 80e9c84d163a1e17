"""Rows as they are written and read: each carries checksums, and is believed only if they fit.

- One checksum is over everything but the payload, and stays when the payload goes. The other one
  is over the first and the payload, so that no payload passes for another row's.
- Elements form a chain by `previous_ts`, so that one that is missing is noticed.
- A damaged row is an error that names it. It is never passed over, and never handed out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, LiteralString, NamedTuple

from walstore.canon import canonical_bytes, parse
from walstore.relay.log import Accepted, DocumentStatus, Event, LogCorruptError, Row

# Accidents are to be found, not forgeries; elements are signed.
_CHECKSUM_SIZE: Final = 8

# The columns of an event in the order in which rows are written.
EVENT_COLUMNS: Final[LiteralString] = (
    "seq, kind, document, id, author, ts, previous_ts, accepted_ms, signature, vc, is_deletion,"
    " checksum, payload, payload_checksum"
)

# The same for a reader that only asks whether there is a payload.
EVENT_COLUMNS_BARE: Final[LiteralString] = (
    "seq, kind, document, id, author, ts, previous_ts, accepted_ms, signature, vc, is_deletion,"
    " checksum, CASE WHEN payload IS NOT NULL THEN ''::bytea END, NULL::bytea"
)

DOCUMENT_COLUMNS: Final[LiteralString] = (
    "document, elements, payload_bytes, head, floor, snapshots, snapshot_upto,"
    " last_accepted_ms, checksum"
)

Columns = tuple[Any, ...]

# Where the columns of an event stand.
_DOCUMENT: Final = 2
_ID: Final = 3
_TS: Final = 5
_PREVIOUS_TS: Final = 6
_VC: Final = 9
_CHECKSUM: Final = 11
_PAYLOAD: Final = 12

# Payloads in one statement, about. A server holds a statement's arrays in memory, several times.
_PIECE_BYTES: Final = 16 * 2**20


class Head(NamedTuple):
    """The one row of the relay itself.

    Attributes:
        relay_id: Names the database.
        seq: The newest seq.
        min_seq: The lowest seq that is replayed.
    """

    relay_id: str
    seq: int
    min_seq: int

    @property
    def lowest_seq(self) -> int:
        """The lowest seq that is replayed; 0 if nothing was ever accepted."""
        return self.min_seq if self.seq else 0


class NewRow(NamedTuple):
    """An event that is to be written, and the `ts` of the element before it; 0 for a snapshot."""

    event: Event
    previous_ts: int


def _checksum(columns: Columns) -> bytes:
    return blake2b(repr(tuple(columns)).encode(), digest_size=_CHECKSUM_SIZE).digest()


def _payload_checksum(checksum: bytes, payload: bytes) -> bytes:
    return blake2b(payload, key=checksum, digest_size=_CHECKSUM_SIZE).digest()


def with_checksum(columns: Columns) -> Columns:
    """A row as it is written."""
    return (*columns, _checksum(columns))


def checked(columns: Columns, what: str) -> Columns:
    """A row without its checksum, which comes last.

    Raises:
        LogCorruptError: It does not fit.
    """
    if columns[-1] != _checksum(columns[:-1]):
        raise LogCorruptError(f"{what} is damaged: its checksum does not fit")
    return columns[:-1]


def write_event(new: NewRow) -> Columns:
    """The columns of a new event."""
    event = new.event
    assert event.payload is not None
    row = with_checksum(
        (
            event.seq,
            event.kind,
            event.document,
            event.id,
            event.author,
            event.ts,
            new.previous_ts,
            event.accepted_ms,
            event.signature,
            canonical_bytes(dict(event.vc)) if event.vc else b"",
            event.is_deletion,
        )
    )
    return (*row, event.payload, _payload_checksum(row[-1], event.payload))


def read_event(columns: Columns) -> Event:
    """An event; its payload is None if it was compacted.

    Raises:
        LogCorruptError: The row is damaged.
    """
    event = _read_row(columns)
    checksum, payload, payload_checksum = columns[_CHECKSUM:]
    if payload is None and payload_checksum is None:
        return event
    if payload is None or payload_checksum != _payload_checksum(checksum, payload):
        raise _damaged(event.document, event.ts)
    return event._replace(payload=payload)


def read_bare_event(columns: Columns) -> Event:
    """An event whose payload is empty bytes if there is one.

    Raises:
        LogCorruptError: The row is damaged.
    """
    return _read_row(columns)._replace(payload=columns[_PAYLOAD])


def size_of(columns: Columns) -> int:
    """How many bytes of an event are to be looked through, about: what it covers, its payload."""
    return len(columns[_VC]) + len(columns[_PAYLOAD] or b"")


def document_of(columns: Columns) -> str:
    """Which document an event is of."""
    return str(columns[_DOCUMENT])


def read_place(columns: Columns) -> Accepted:
    """Where a known event stands.

    Raises:
        LogCorruptError: The row is damaged.
    """
    _check_row(columns)
    return Accepted(columns[_TS], columns[0], False, columns[_PREVIOUS_TS])


def read_revision(columns: Columns) -> tuple[str, int]:
    """What a snapshot is called, and how far it reaches; what it covers is not read for that.

    Raises:
        LogCorruptError: The row is damaged.
    """
    _check_row(columns)
    return columns[_ID], columns[_TS]


def read_elements(
    document: str, found: Iterable[Columns], *, after: int | None = None, upto: int | None = None
) -> list[Row]:
    """Elements of one document, ascending, each of which must have its payload.

    Args:
        document: Whose they are.
        found: Their rows.
        after: They begin right above this `ts`; None if they need not.
        upto: They reach up to this one; None if they need not.

    Raises:
        LogCorruptError: One of them is damaged, or one is missing among them.
    """
    rows: list[Row] = []
    for columns in found:
        event, previous_ts = read_event(columns), columns[_PREVIOUS_TS]
        if event.payload is None:
            raise _damaged(event.document, event.ts)
        # The first one follows a checkpoint, which may lie between two elements.
        if previous_ts != rows[-1].ts if rows else after is not None and previous_ts > after:
            raise _missing(document, previous_ts)
        rows.append(Row(event.ts, event.seq, event.author, event.signature, event.payload))
    if upto is not None and (not rows or rows[-1].ts != upto):
        raise _missing(document, upto)
    return rows


def _check_row(columns: Columns) -> None:
    if columns[_CHECKSUM] != _checksum(columns[:_CHECKSUM]):
        raise _damaged(columns[_DOCUMENT], columns[_TS])


def _read_row(columns: Columns) -> Event:
    _check_row(columns)
    seq, kind, document, name, author, ts, _, ms, signature, vc, is_deletion = columns[:_CHECKSUM]
    return Event(
        seq=seq,
        id=name,
        kind=kind,
        document=document,
        author=author,
        ts=ts,
        accepted_ms=ms,
        signature=signature,
        vc=_read_vc(vc),
        is_deletion=is_deletion,
        payload=None,
    )


def _read_vc(text: bytes) -> dict[str, int]:
    vc = parse(text) if text else {}
    assert isinstance(vc, dict)
    return vc


def _damaged(document: str, ts: int) -> LogCorruptError:
    return LogCorruptError(f"document {document!r} is damaged at ts {ts}; others are not affected")


def _missing(document: str, ts: int) -> LogCorruptError:
    return LogCorruptError(
        f"document {document!r} is damaged at ts {ts}: that element is missing;"
        " others are not affected"
    )


def write_document(status: DocumentStatus) -> Columns:
    """The columns of a document."""
    return with_checksum(status)


def read_document(columns: Columns) -> DocumentStatus:
    """What there is of a document.

    Raises:
        LogCorruptError: The row is damaged.
    """
    return DocumentStatus(*checked(columns, f"document {columns[0]!r}, at ts {columns[3]},"))


def read_head(columns: Columns) -> Head:
    """The relay's own row.

    Raises:
        LogCorruptError: The row is damaged.
    """
    return Head(*checked(columns, "the head of the log"))


def transposed(rows: Sequence[Columns]) -> list[list[Any]]:
    """Rows as one array for each column, which go to the server in one statement."""
    return [list(column) for column in zip(*rows, strict=True)]


def in_pieces(rows: Iterable[Columns]) -> Iterator[list[Columns]]:
    """Rows of new events in pieces that the driver and the server hold at once."""
    piece: list[Columns] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += len(row[_PAYLOAD])
        if size >= _PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def write_json(value: object) -> bytes:
    """The text of a JSON value that is kept; members stay in their order.

    Raises:
        NotJsonError: It is none.
    """
    canonical_bytes(value)
    return json.dumps(value).encode()
