"""What is written to a SQLite log: functions of a connection that is inside a write transaction.

- Each takes the relay's state and returns its answer and the new state; whoever runs it writes the
  state down and commits, or takes everything back.
- An append costs the same however long the log is: what is looked up is looked up by index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from walstore.canon import canonical_text
from walstore.relay.log import (
    READERS_MAX,
    Accepted,
    Conflict,
    NewElement,
    NewSnapshot,
    ReaderMark,
    Removal,
    Removed,
    record_revision,
)
from walstore.relay.sqlite_reads import (
    current_snapshot,
    document_of,
    documents_of,
    marks,
    parts,
    record,
)
from walstore.relay.sqlite_rows import (
    EVENT_COLUMNS,
    Columns,
    Document,
    State,
    element_columns,
    payload_columns,
    read_event,
    removed_columns,
    sealed,
    snapshot_columns,
)

_INSERT_EVENT: Final = f"INSERT INTO events VALUES ({marks(range(14))})"
_INSERT_PAYLOAD: Final = "INSERT INTO payloads VALUES (?, ?, ?)"
_PUT_DOCUMENT: Final = f"""
INSERT INTO documents VALUES ({marks(range(11))})
ON CONFLICT (number) DO UPDATE SET
    head = excluded.head, floor = excluded.floor, elements = excluded.elements,
    snapshots = excluded.snapshots, payload_bytes = excluded.payload_bytes,
    snapshot_upto = excluded.snapshot_upto, accepted = excluded.accepted,
    last_accepted_ms = excluded.last_accepted_ms, checksum = excluded.checksum
"""
_GONE_ELEMENTS: Final = """
SELECT count(*), coalesce(sum(size), 0) FROM events
WHERE document = ? AND kind = 0 AND ts > ? AND ts <= ?
"""
_REMOVE_ELEMENTS: Final = """
DELETE FROM payloads WHERE seq IN (
    SELECT seq FROM events WHERE document = ? AND kind = 0 AND ts > ? AND ts <= ?
)
"""


def write_state(connection: sqlite3.Connection, state: State) -> None:
    """Write the relay's own row."""
    connection.execute(
        "UPDATE state SET relay_id = ?, head_seq = ?, min_seq = ?, documents = ?, generation = ?,"
        " checksum = ?",
        sealed(tuple(state)),
    )


class _Batch:
    """Elements that are given their places; nothing is written before all of them have one."""

    def __init__(
        self, connection: sqlite3.Connection, state: State, elements: Sequence[NewElement]
    ) -> None:
        keys = list({element.document for element in elements})
        self._documents = {each.key: each for each in documents_of(connection, keys)}
        self._known = _known(connection, [element.id for element in elements])
        self._changed: set[str] = set()
        self._events: list[Columns] = []
        self._payloads: list[Columns] = []
        self.state = state

    def place(self, element: NewElement, now_ms: int) -> Accepted:
        """Where an element stands, or is to stand."""
        name = (element.document, element.id)
        known = self._known.get(name)
        if known is not None:
            return known
        document = self._document(element.document)
        seq, ts = self.state.head_seq + len(self._events) + 1, max(now_ms, document.head + 1)
        columns = element_columns(element, seq=seq, ts=ts, previous=document.head, ms=now_ms)
        self._events.append((seq, document.number, *columns[2:]))
        self._payloads.append(payload_columns(columns, element.data))
        self._changed.add(element.document)
        self._documents[element.document] = _with_element(document, ts, len(element.data), now_ms)
        self._known[name] = Accepted(ts, seq, False, document.head)
        return Accepted(ts, seq, True, document.head)

    def _document(self, key: str) -> Document:
        document = self._documents.get(key)
        if document is None:
            document = Document(self.state.documents + 1, key)
            self.state = self.state._replace(documents=document.number)
        return document

    def write(self, connection: sqlite3.Connection) -> State:
        """Write what is new, and return the state after it."""
        if self._events:
            connection.executemany(_INSERT_EVENT, self._events)
            connection.executemany(_INSERT_PAYLOAD, self._payloads)
            _put_documents(connection, [self._documents[key] for key in self._changed])
        return self.state._replace(head_seq=self.state.head_seq + len(self._events))


def append(
    connection: sqlite3.Connection, state: State, elements: Sequence[NewElement], now_ms: int
) -> tuple[list[Accepted], State]:
    """Store elements; known ones keep their place."""
    batch = _Batch(connection, state, elements)
    answers = [batch.place(element, now_ms) for element in elements]
    return answers, batch.write(connection)


def _known(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[tuple[str, str], Accepted]:
    known: dict[tuple[str, str], Accepted] = {}
    for part in parts(ids):
        for row in connection.execute(
            f"""
            SELECT {EVENT_COLUMNS} FROM events e CROSS JOIN documents d ON d.number = e.document
            WHERE e.id IN ({marks(part)})
            """,
            part,
        ):
            event = read_event(row, is_there=True)
            known[event.document, event.id] = Accepted(event.ts, event.seq, False, row[6])
    return known


def _with_element(document: Document, ts: int, size: int, now_ms: int) -> Document:
    return Document(
        document.number,
        document.key,
        ts,
        document.floor,
        document.elements + 1,
        document.snapshots,
        document.payload_bytes + size,
        document.snapshot_upto,
        document.accepted + 1,
        now_ms,
    )


def _put_documents(connection: sqlite3.Connection, documents: Iterable[Document]) -> None:
    connection.executemany(_PUT_DOCUMENT, [sealed(tuple(document)) for document in documents])


def put_snapshot(
    connection: sqlite3.Connection, state: State, snapshot: NewSnapshot, now_ms: int
) -> tuple[Accepted | Conflict, State]:
    """Make a snapshot the current one, if it may replace the one that is."""
    before = _known(connection, [snapshot.id]).get((snapshot.document, snapshot.id))
    if before is not None:
        return before, state
    document = document_of(connection, snapshot.document)
    if document is None:
        document = Document(state.documents + 1, snapshot.document)
    if (conflict := _conflict(connection, document, snapshot)) is not None:
        return conflict, state
    columns = snapshot_columns(snapshot, seq=state.head_seq + 1, ms=now_ms)
    connection.execute(_INSERT_EVENT, (columns[0], document.number, *columns[2:]))
    connection.execute(_INSERT_PAYLOAD, payload_columns(columns, snapshot.text))
    changed = document._replace(
        snapshots=document.snapshots + 1,
        payload_bytes=document.payload_bytes + len(snapshot.text),
        snapshot_upto=snapshot.upto_ts,
        accepted=document.accepted + 1,
        last_accepted_ms=now_ms,
    )
    _put_documents(connection, [changed])
    after = state._replace(
        head_seq=state.head_seq + 1, documents=max(state.documents, document.number)
    )
    return Accepted(snapshot.upto_ts, after.head_seq, True, 0), after


def _conflict(
    connection: sqlite3.Connection, document: Document, snapshot: NewSnapshot
) -> Conflict | None:
    current = current_snapshot(connection, document)
    revision = current.id if current is not None else None
    if revision != snapshot.revision:
        return Conflict(revision, "another snapshot is current")
    if current is not None and current.ts > snapshot.upto_ts:
        return Conflict(revision, "the current snapshot covers more")
    if snapshot.upto_ts > document.head:
        return Conflict(revision, "it covers elements that the log does not have")
    return None


def compact(
    connection: sqlite3.Connection, state: State, removals: Sequence[Removal]
) -> tuple[Removed, State]:
    """Remove payloads, keep rows."""
    total = Removed(0, 0, 0)
    for removal in removals:
        document = document_of(connection, removal.document)
        if document is None:
            continue
        elements = _remove_elements(connection, document, removal.below_ts)
        snapshots = _remove_snapshots(connection, document, removal.snapshot_ids)
        total = _sum(total, elements, snapshots)
        _put_documents(connection, [_without(connection, document, removal, elements, snapshots)])
    return total, state


def _remove_elements(connection: sqlite3.Connection, document: Document, below_ts: int) -> Removed:
    span = (document.number, document.floor, below_ts)
    count, size = connection.execute(_GONE_ELEMENTS, span).fetchone()
    connection.execute(_REMOVE_ELEMENTS, span)
    return Removed(count, 0, int(size))


def _remove_snapshots(
    connection: sqlite3.Connection, document: Document, ids: Collection[str]
) -> Removed:
    count = size = 0
    for part in parts(sorted(set(ids))):
        rows = connection.execute(
            f"""
            SELECT {EVENT_COLUMNS} FROM events e JOIN documents d ON d.number = e.document
            WHERE e.id IN ({marks(part)}) AND e.document = ? AND e.kind = 1 AND e.is_removed = 0
            """,
            (*part, document.number),
        ).fetchall()
        for row in rows:
            read_event(row, is_there=True)
            seq = row[0]
            connection.execute(
                "UPDATE events SET is_removed = 1, checksum = ? WHERE seq = ?",
                (removed_columns(row)[-1], seq),
            )
            connection.execute("DELETE FROM payloads WHERE seq = ?", (seq,))
            count, size = count + 1, size + row[9]
    return Removed(0, count, size)


def _without(
    connection: sqlite3.Connection,
    document: Document,
    removal: Removal,
    elements: Removed,
    snapshots: Removed,
) -> Document:
    current = current_snapshot(connection, document)
    return document._replace(
        elements=document.elements - elements.elements,
        snapshots=document.snapshots - snapshots.snapshots,
        payload_bytes=document.payload_bytes - elements.payload_bytes - snapshots.payload_bytes,
        snapshot_upto=current.ts if current is not None else 0,
        # A floor above the head would swallow what is appended next, so it ends there.
        floor=max(document.floor, min(removal.below_ts, document.head)),
    )


def _sum(*parts_removed: Removed) -> Removed:
    return Removed(*(sum(column) for column in zip(*parts_removed, strict=True)))


def trim(connection: sqlite3.Connection, state: State, min_seq: int) -> tuple[None, State]:
    """Let go of the replay of everything below a seq."""
    # A reader that has seen everything is never too old.
    lowest = max(state.min_seq, min(min_seq, state.head_seq + 1))
    return None, state._replace(min_seq=lowest)


def note_readers(
    connection: sqlite3.Connection, state: State, readers: Sequence[ReaderMark]
) -> tuple[None, State]:
    """Remember how far the readers of documents that there are have come."""
    connection.executemany(
        "INSERT OR REPLACE INTO readers SELECT ?1, ?2, ?3, ?4, ?5"
        " WHERE EXISTS (SELECT 1 FROM documents WHERE key = ?1)",
        [sealed(tuple(mark)) for mark in readers],
    )
    connection.executemany(
        "DELETE FROM readers WHERE rowid IN (SELECT rowid FROM readers WHERE document = ?"
        " ORDER BY seen_ms DESC, key LIMIT -1 OFFSET ?)",
        [(document, READERS_MAX) for document in {mark.document for mark in readers}],
    )
    return None, state


def put_grant(
    connection: sqlite3.Connection, state: State, grant: Mapping[str, Any]
) -> tuple[None, State]:
    """Keep a grant in place of an older one of the same by, to and prefix."""
    row = (grant["by"], grant["to"], grant["prefix"], grant["at"], canonical_text(dict(grant)))
    connection.execute(
        """
        INSERT INTO grants VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET at = excluded.at, text = excluded.text,
            checksum = excluded.checksum
        WHERE excluded.at > at
        """,
        sealed(row),
    )
    return None, state


def put_record(
    connection: sqlite3.Connection,
    state: State,
    document: str,
    name: str,
    text: bytes,
    revision: str | None,
) -> tuple[str | Conflict, State]:
    """Replace a revision of a record."""
    stored, new = record(connection, document, name), record_revision(text)
    current = None if stored is None else stored.revision
    if current == new:
        return new, state
    if current != revision:
        return Conflict(current, "another record is current"), state
    row = (document, name, text.decode())
    connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", sealed(row))
    return new, state


def put_setting(
    connection: sqlite3.Connection, state: State, name: str, value: Any
) -> tuple[None, State]:
    """Keep a JSON value under a name."""
    row = (name, canonical_text(value))
    connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", sealed(row))
    return None, state
