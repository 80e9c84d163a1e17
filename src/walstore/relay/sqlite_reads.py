"""What is read from a SQLite log: functions of a connection that is inside a read transaction.

- Events are read in two steps: which ones, with their sizes; then those that fit the limits. So no
  payload is read that is not handed out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar

from walstore.canon import parse
from walstore.relay.frontier import Frontier, bare
from walstore.relay.log import (
    Bootstrap,
    DocumentStatus,
    Event,
    FeedPage,
    Filter,
    Page,
    ReaderMark,
    Row,
    StoredRecord,
    StoredSnapshot,
    record_revision,
)
from walstore.relay.sqlite_file import read_state
from walstore.relay.sqlite_rows import (
    EVENT_COLUMNS,
    EVENT_WIDTH,
    KINDS,
    Columns,
    Document,
    checked,
    damaged,
    missing,
    read_event,
    read_rows,
    with_payload,
)

Part = TypeVar("Part")

# Values in one list of a statement; SQLite takes many more.
LIST_SIZE: Final = 500

_IS_THERE: Final = "iif(e.kind = 0, e.ts > d.floor, e.is_removed = 0)"

_ROWS: Final = f"""
SELECT {EVENT_COLUMNS}, p.checksum, p.payload
FROM documents d CROSS JOIN events e ON e.document = d.number AND e.kind = 0
LEFT JOIN payloads p ON p.seq = e.seq
WHERE d.number = ?
"""
_PAGE: Final = f"{_ROWS} AND e.ts > ? ORDER BY e.ts LIMIT ?"
_TAIL: Final = f"{_ROWS} AND e.ts > ? AND e.ts <= ? ORDER BY e.ts DESC LIMIT ?"

# However many there were, those that are there have an index of their own.
_SNAPSHOTS_THERE: Final = f"""
SELECT {EVENT_COLUMNS}
FROM documents d CROSS JOIN events e INDEXED BY snapshots_there
ON e.document = d.number AND e.kind = 1 AND e.is_removed = 0
"""

# The index alone says which they are; no row is read for that.
_SNAPSHOTS_PICKED: Final = """
SELECT e.seq, e.document
FROM documents d CROSS JOIN events e INDEXED BY snapshots_there
ON e.document = d.number AND e.kind = 1 AND e.is_removed = 0
"""

# The same events, found by walking the feed, or by walking the documents that are wanted.
_BY_FEED: Final = "events e CROSS JOIN documents d ON d.number = e.document"
_BY_DOCUMENTS: Final = (
    "documents d CROSS JOIN events e INDEXED BY events_by_ts ON e.document = d.number"
)


def document_of(connection: sqlite3.Connection, key: str) -> Document | None:
    """The row of a document, if there is one."""
    return next(documents_of(connection, [key]), None)


def documents_of(connection: sqlite3.Connection, keys: Sequence[str]) -> Iterator[Document]:
    """The rows of documents, those that there are."""
    for part in parts(keys):
        for row in connection.execute(
            f"SELECT * FROM documents WHERE key IN ({marks(part)})", part
        ):
            yield _document(row)


def page(
    connection: sqlite3.Connection, key: str, after: int, count_max: int, bytes_max: int
) -> Page:
    """Elements above a `ts`."""
    document = document_of(connection, key)
    if document is None:
        return Page([], False, 0, 0)
    if after < document.floor:
        return Page([], False, document.floor, document.head)
    found = connection.execute(_PAGE, (document.number, after, max(count_max, 1)))
    rows = read_rows(key, after, _until(found, bytes_max, key, after))
    last = rows[-1].ts if rows else after
    if not rows and last < document.head:
        raise missing(key, last)
    return Page(rows, last < document.head, document.floor, document.head)


def _until(found: Iterator[Columns], bytes_max: int, key: str, after: int) -> list[Columns]:
    taken: list[Columns] = []
    size = 0
    try:
        for columns in found:
            taken.append(columns)
            payload = columns[-1]
            size += len(payload) if type(payload) is bytes else 0
            if size >= bytes_max:
                break
    except sqlite3.OperationalError as error:
        if hasattr(error, "sqlite_errorcode"):
            raise
        # A text that is no UTF-8 any more: the row cannot even be read, so its neighbour is named.
        raise damaged(key, f"after {taken[-1][5] if taken else after}") from error
    return taken


def tail(connection: sqlite3.Connection, key: str, upto: int, count: int) -> list[Row]:
    """The newest elements up to a `ts` that have their payload."""
    document = document_of(connection, key)
    if document is None:
        return []
    found = connection.execute(_TAIL, (document.number, document.floor, upto, max(count, 0)))
    return read_rows(key, None, found.fetchall()[::-1])


def current_snapshot(connection: sqlite3.Connection, document: Document) -> Event | None:
    """The current snapshot of a document, without its payload."""
    row = connection.execute(
        f"{_SNAPSHOTS_THERE} WHERE d.number = ? ORDER BY e.ts DESC, e.seq DESC LIMIT 1",
        (document.number,),
    ).fetchone()
    return None if row is None else read_event(row, is_there=True)


def snapshot(connection: sqlite3.Connection, key: str) -> StoredSnapshot | None:
    """The current snapshot of a document."""
    document = document_of(connection, key)
    current = None if document is None else current_snapshot(connection, document)
    if current is None:
        return None
    (event,) = events_at(connection, [current.seq])
    assert event.payload is not None
    return StoredSnapshot(event.id, event.payload)


def snapshot_part(
    connection: sqlite3.Connection, key: str, revision: str, start: int, size: int
) -> bytes | None:
    """Some bytes of a snapshot's text; None if it is not there."""
    row = connection.execute(
        """
        SELECT e.seq FROM events e CROSS JOIN documents d ON d.number = e.document
        WHERE e.id = ? AND d.key = ? AND e.kind = 1 AND e.is_removed = 0
        """,
        (revision, key),
    ).fetchone()
    if row is None:
        return None
    # Other than a query, this loads what is asked for, and not the whole text.
    with connection.blobopen("payloads", "payload", row[0], readonly=True) as text:
        text.seek(min(start, len(text)))
        return text.read(size)


def snapshots(connection: sqlite3.Connection, key: str) -> list[Event]:
    """The snapshots of a document that were not compacted, oldest first, payloads left out."""
    document = document_of(connection, key)
    if document is None:
        return []
    rows = connection.execute(
        f"{_SNAPSHOTS_THERE} WHERE d.number = ? ORDER BY e.ts DESC, e.seq DESC", (document.number,)
    )
    return _told_apart(read_event(row, is_there=True) for row in rows).all()


def events_at(connection: sqlite3.Connection, seqs: Sequence[int]) -> list[Event]:
    """The events with these seqs, by seq, with the payloads that are there."""
    events: list[Event] = []
    for part in parts(sorted(seqs)):
        rows = connection.execute(
            f"""
            SELECT {EVENT_COLUMNS}, {_IS_THERE}, p.checksum, p.payload
            FROM events e JOIN documents d ON d.number = e.document
            LEFT JOIN payloads p ON p.seq = e.seq
            WHERE e.seq IN ({marks(part)})
            """,
            part,
        )
        events += sorted(map(_event, rows))
    return events


def _bare_events_at(connection: sqlite3.Connection, seqs: Sequence[int]) -> Iterator[Event]:
    """The same, with empty bytes for the payloads that are there."""
    for part in parts(seqs):
        for *columns, is_there in connection.execute(
            f"""
            SELECT {EVENT_COLUMNS}, {_IS_THERE}
            FROM events e JOIN documents d ON d.number = e.document
            WHERE e.seq IN ({marks(part)})
            """,
            part,
        ):
            yield read_event(tuple(columns), is_there=bool(is_there))


def _event(row: Columns) -> Event:
    columns = row[:EVENT_WIDTH]
    is_there, expected, payload = row[EVENT_WIDTH:]
    event = read_event(columns, is_there=bool(is_there))
    return with_payload(event, columns[-1], expected, payload)


def find(
    connection: sqlite3.Connection,
    ids: Sequence[str],
    wanted: Filter,
    payload_bytes_max: int | None = None,
) -> list[Event]:
    """The events with these ids that pass a filter, by seq; large payloads as empty bytes."""
    where, values = _where(wanted)
    sizes: dict[int, int] = {}
    for part in parts(list(dict.fromkeys(ids))):
        rows = connection.execute(
            f"""
            SELECT e.seq, CAST(e.size AS INTEGER)
            FROM events e CROSS JOIN documents d ON d.number = e.document
            WHERE e.id IN ({marks(part)}) AND {where}
            """,
            (*part, *values),
        )
        sizes.update(rows)
    if payload_bytes_max is None:
        return events_at(connection, list(sizes))
    large = [seq for seq, size in sizes.items() if size > payload_bytes_max]
    small = events_at(connection, list(sizes.keys() - large))
    return sorted([*small, *_bare_events_at(connection, large)])


def feed(
    connection: sqlite3.Connection,
    since: int,
    until: int | None,
    wanted: Filter,
    count_max: int,
    bytes_max: int,
    seqs_max: int | None = None,
) -> FeedPage:
    """Events above a seq and up to another one."""
    state = read_state(connection)
    head = state.head_seq
    end = head if until is None else min(until, head)
    if since + 1 < state.lowest_seq:
        return FeedPage([], since, False, state.lowest_seq, head)
    looked = end if seqs_max is None else min(end, since + seqs_max)
    picked = _pick(connection, since, looked, wanted, count_max)
    taken = _fitting(picked[:count_max], bytes_max)
    events = events_at(connection, taken)
    if len(taken) < len(picked):
        return FeedPage(events, taken[-1], True, state.lowest_seq, head)
    return FeedPage(events, max(since, looked), looked < end, state.lowest_seq, head)


def _pick(
    connection: sqlite3.Connection, since: int, end: int, wanted: Filter, count_max: int
) -> list[tuple[int, int]]:
    """The seqs and sizes of the events that are wanted, and of one more than may be."""
    if end <= since:
        return []
    where, values = _where(wanted)
    source = _BY_FEED if _is_broad(connection, end - since, wanted) else _BY_DOCUMENTS
    return connection.execute(
        f"""
        SELECT e.seq, iif({_IS_THERE}, CAST(e.size AS INTEGER), 0) + length(e.vc) FROM {source}
        WHERE e.seq > ? AND e.seq <= ? AND {where} ORDER BY e.seq LIMIT ?
        """,
        (since, end, *values, count_max + 1),
    ).fetchall()


def _is_broad(connection: sqlite3.Connection, span: int, wanted: Filter) -> bool:
    """Whether walking the feed is less work than walking the documents that are wanted."""
    if not wanted.prefix and wanted.documents is None:
        return True
    where, values = _where_document(wanted)
    # Of each document something was accepted, so more of them need not be looked at.
    documents = f"SELECT d.accepted AS accepted FROM documents d WHERE {where} LIMIT ?"
    accepted = connection.execute(
        f"SELECT coalesce(sum(accepted), 0) FROM ({documents})", (*values, span)
    ).fetchone()[0]
    return bool(accepted >= span)


def _fitting(picked: Iterable[tuple[int, int]], bytes_max: int) -> list[int]:
    taken: list[int] = []
    total = 0
    for seq, size in picked:
        if taken and total >= bytes_max:
            break
        taken.append(seq)
        total += size
    return taken


def bootstrap(
    connection: sqlite3.Connection,
    wanted: Filter,
    since: int = 0,
    until: int | None = None,
    count_max: int | None = None,
) -> Bootstrap:
    """The snapshots above a seq that no other one of their document dominates."""
    state = read_state(connection)
    where, values = _where(wanted)
    picked = connection.execute(
        f"{_SNAPSHOTS_PICKED} WHERE e.seq > ? AND e.seq <= ? AND {where} ORDER BY e.seq",
        (since, state.head_seq if until is None else until, *values),
    )
    size = LIST_SIZE if count_max is None else min(LIST_SIZE, count_max + 1)
    looked: set[int] = set()
    current: dict[int, Event] = {}
    events: list[Event] = []
    while (count_max is None or len(events) <= count_max) and (some := picked.fetchmany(size)):
        documents = {document for _, document in some} - looked
        looked |= documents
        current.update(_current(connection, sorted(documents)))
        events += [current.pop(seq) for seq, _ in some if seq in current]
    is_more = count_max is not None and len(events) > count_max
    return Bootstrap(state.head_seq, state.lowest_seq, events[:count_max], is_more)


def _current(connection: sqlite3.Connection, numbers: Sequence[int]) -> Iterator[tuple[int, Event]]:
    """The undominated snapshots of documents, by seq, whatever a filter says: it makes none so."""
    rows = connection.execute(
        f"""
        {_SNAPSHOTS_THERE} WHERE d.number IN ({marks(numbers)})
        ORDER BY d.number, e.ts DESC, e.seq DESC
        """,
        numbers,
    )
    there = (read_event(row, is_there=True) for row in rows)
    # What they cover is held of one document at a time.
    for _, snapshots in groupby(there, key=lambda event: event.document):
        for event in _told_apart(snapshots).current:
            yield event.seq, bare(event)


def _told_apart(snapshots: Iterable[Event]) -> Frontier:
    frontier = Frontier()
    for each in snapshots:
        frontier.add(each)
    return frontier


def documents_after(
    connection: sqlite3.Connection, document: str, count_max: int
) -> list[DocumentStatus]:
    """What there is of the documents above a key, by key."""
    rows = connection.execute(
        "SELECT * FROM documents WHERE key > ? ORDER BY key LIMIT ?",
        (document, max(count_max, 0)),
    )
    return [_document(row).status() for row in rows]


def documents(connection: sqlite3.Connection, prefix: str, count_max: int) -> list[DocumentStatus]:
    """What there is, newest first."""
    where, values = _where_document(Filter(prefix))
    rows = connection.execute(
        f"SELECT * FROM documents d WHERE {where} ORDER BY last_accepted_ms DESC, key LIMIT ?",
        (*values, max(count_max, 0)),
    )
    return [_document(row).status() for row in rows]


def documents_count(connection: sqlite3.Connection) -> int:
    """How many documents there are: each has the next number, and keeps it."""
    return read_state(connection).documents


def readers(connection: sqlite3.Connection, key: str) -> list[ReaderMark]:
    """The readers of a document that are known."""
    rows = connection.execute("SELECT * FROM readers WHERE document = ?", (key,))
    return [ReaderMark(*checked(row, f"a reader of {key!r}")) for row in rows]


def grants(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Every grant that counts."""
    rows = connection.execute("SELECT * FROM grants")
    return [_parsed(checked(row, "a grant")[4]) for row in rows]


def record(connection: sqlite3.Connection, key: str, name: str) -> StoredRecord | None:
    """A record of a document."""
    row = connection.execute(
        "SELECT * FROM records WHERE document = ? AND name = ?", (key, name)
    ).fetchone()
    if row is None:
        return None
    text = checked(row, f"the record {name!r} of {key!r}")[2].encode()
    return StoredRecord(record_revision(text), text)


def settings(connection: sqlite3.Connection) -> dict[str, Any]:
    """Everything that was kept."""
    rows = connection.execute("SELECT * FROM settings")
    return {row[0]: _parsed(checked(row, f"setting {row[0]!r}")[1]) for row in rows}


def _parsed(text: str) -> Any:
    return parse(text)


def _document(row: Columns) -> Document:
    return Document(*checked(row, f"the row of document {row[1]!r}"))


def _where(wanted: Filter) -> tuple[str, list[object]]:
    where, values = _where_document(wanted)
    if wanted.authors is not None:
        authors = sorted(wanted.authors)
        where += f" AND e.author IN ({marks(authors)})"
        values += authors
    if wanted.kinds is not None:
        kinds = [number for number, kind in enumerate(KINDS) if kind in wanted.kinds]
        where += f" AND e.kind IN ({marks(kinds)})"
        values += kinds
    return where, values


def _where_document(wanted: Filter) -> tuple[str, list[object]]:
    where = "d.key >= ?"
    values: list[object] = [wanted.prefix]
    end = _after_prefix(wanted.prefix)
    if end is not None:
        where += " AND d.key < ?"
        values.append(end)
    if wanted.documents is not None:
        keys = sorted(wanted.documents)
        where += f" AND d.key IN ({marks(keys)})"
        values += keys
    return where, values


def _after_prefix(prefix: str) -> str | None:
    """The first text above all that begin with a prefix; None if there is none.

    SQLite compares the bytes of UTF-8, whose order is that of the code points.
    """
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    # No text has code points from D800 to DFFF.
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)


def marks(values: Sequence[object]) -> str:
    """The place-holders of a list; of an empty one, what nothing is equal to."""
    # SQLite finds no way to use a named index where it can tell that nothing will be found.
    return ",".join("?" * len(values)) or "NULL"


def parts(values: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Lists that fit into one statement each."""
    for start in range(0, len(values), LIST_SIZE):
        yield values[start : start + LIST_SIZE]
