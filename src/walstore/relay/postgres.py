"""A relay's log in PostgreSQL, for several relay processes on one log.

- Whoever stores events locks the one row of `walstore_head` first and holds it until the commit.
  So seq and `ts` are handed out, and become visible, in one order; two processes that are given
  the same element find it once.
- One batch is one transaction of two round trips: lock and look, then write, announce and commit.
- Reading never waits for that lock: each read is one moment of the tables.
- When the connection is lost during a commit, a new one finds out how it ended. Only if the
  server does not come back meanwhile is the outcome unknown; the same element may then be
  appended again, and keeps its place if it was stored.
- The other changes (compaction, readers, grants, records, settings) say what is to be; after a lost
  connection they are simply made again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from hashlib import sha256
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from walstore.relay import postgres_queries as queries
from walstore.relay.frontier import Frontier, bare, undominated
from walstore.relay.log import (
    READERS_MAX,
    Accepted,
    Bootstrap,
    Conflict,
    DocumentStatus,
    Event,
    FeedPage,
    Filter,
    KeptRecord,
    LogCorruptError,
    LogError,
    NewElement,
    NewSnapshot,
    Notice,
    Page,
    ReaderMark,
    Removal,
    Removed,
    Row,
    StoredRecord,
    StoredSnapshot,
    record_revision,
)
from walstore.relay.postgres_batch import (
    Batch,
    Current,
    Standing,
    new_document,
    place_elements,
    place_snapshot,
)
from walstore.relay.postgres_compaction import compact
from walstore.relay.postgres_connections import (
    COMPACTION_MS_MAX,
    COMPARING_MS_MAX,
    Connection,
    Connections,
    complete,
)
from walstore.relay.postgres_notices import Listener, channel, write_kept
from walstore.relay.postgres_queries import Query, filter_parameters, storable
from walstore.relay.postgres_rows import (
    Columns,
    checked,
    document_of,
    in_pieces,
    read_bare_event,
    read_document,
    read_elements,
    read_event,
    read_head,
    read_place,
    read_revision,
    size_of,
    transposed,
    with_checksum,
    write_document,
    write_event,
    write_json,
)
from walstore.relay.postgres_schema import prepare

# Reads at once. More of them would only wait for each other in the server.
_READERS = 4

# Reads at once of what snapshots cover, which is held and compared.
_COMPARING = 2

# Snapshots that are looked at together: what they cover may be some MiB each.
_PICKED = 16

# How long a commit whose answer was lost is asked after, and how often.
_SETTLE_S_MAX = 10.0
_SETTLE_PAUSE_S = 0.1

# Bytes of events that are looked through on the spot: sooner than a thread would have begun.
_AT_ONCE_BYTES_MAX = 64 * 2**10

Answer = TypeVar("Answer")


class PostgresLog:
    """A `RelayLog` in a PostgreSQL database that other processes may share."""

    def __init__(self, dsn: str) -> None:
        """Prepare; `open` opens it."""
        conninfo = complete(dsn)
        self._relay_id = ""
        # Names this process, which has told of its own records when it hears of them.
        self._origin = secrets.token_hex(8)
        self._writer = Connections(conninfo, count=1, isolation=IsolationLevel.READ_COMMITTED)
        self._keeper = Connections(
            conninfo,
            count=1,
            isolation=IsolationLevel.READ_COMMITTED,
            statement_ms_max=COMPACTION_MS_MAX,
        )
        self._readers = Connections(
            conninfo,
            count=_READERS,
            isolation=IsolationLevel.REPEATABLE_READ,
            is_read_only=True,
        )
        # Apart, because what snapshots cover may take as long as thousands of other reads.
        self._comparing = Connections(
            conninfo,
            count=_COMPARING,
            isolation=IsolationLevel.REPEATABLE_READ,
            idle_ms_max=COMPARING_MS_MAX,
            is_read_only=True,
        )
        self._listeners: set[Listener] = set()
        self._is_closed = False

    @classmethod
    async def open(cls, dsn: str) -> Self:
        """Open the log in a database, and make its tables if there are none.

        Args:
            dsn: A libpq connection string or URI. The tables stand in the first schema of its
                search path.

        Raises:
            LogCorruptError: The tables are newer than this code, damaged, or none of ours.
            LogError: The database cannot be reached, or cannot keep what a log promises.
            UsageError: The connection string cannot be read.
        """
        log = cls(dsn)
        try:
            async with log._writer.take() as connection:
                log._relay_id = await prepare(connection)
        except BaseException:
            await log.aclose()
            raise
        return log

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def relay_id(self) -> str:
        """Names this database, for ever: 32 hex digits."""
        return self._relay_id

    # ── events ─────────────────────────────────────────────────────────────────────────

    async def append(self, elements: Sequence[NewElement], now_ms: int) -> list[Accepted]:
        """Store elements in one durable step; known ones keep their place."""
        if not elements:
            return []
        async with self._writer.take() as connection:
            return await self._store(
                connection,
                names={(element.document, element.id) for element in elements},
                decide=lambda standing: place_elements(elements, standing, now_ms),
            )

    async def put_snapshot(self, snapshot: NewSnapshot, now_ms: int) -> Accepted | Conflict:
        """Make a snapshot the current one, if the current revision is the one that it replaces."""
        async with self._writer.take() as connection:
            return await self._store(
                connection,
                names={(snapshot.document, snapshot.id)},
                current_of=snapshot.document,
                decide=lambda standing: place_snapshot(snapshot, standing, now_ms),
            )

    async def _store(
        self,
        connection: Connection,
        *,
        names: Set[tuple[str, str]],
        current_of: str | None = None,
        decide: Callable[[Standing], Batch[Answer]],
    ) -> Answer:
        batch: Batch[Answer] | None = None
        try:
            async with connection.pipeline(), connection.transaction():
                standing = await _look(connection, names, current_of)
                if standing.head.relay_id != self._relay_id:
                    raise LogCorruptError("the database is another relay's by now")
                batch = decide(standing)
                if batch.rows:
                    await self._write(connection, batch)
        except psycopg.Error as error:
            if batch is None or not await self._was_stored(connection, batch, error):
                raise
        return batch.answer

    async def _write(self, connection: Connection, batch: Batch[Any]) -> None:
        documents = transposed([write_document(status) for status in batch.documents])
        for piece in in_pieces(write_event(row) for row in batch.rows):
            await connection.execute(queries.PUT_EVENTS, transposed(piece))
        await connection.execute(queries.PUT_DOCUMENTS, documents)
        await connection.execute(queries.SET_HEAD, with_checksum(batch.head))
        news = {"channel": self._channel, "seq": batch.head.seq}
        await connection.execute(queries.ANNOUNCE, news)

    async def _was_stored(
        self, connection: Connection, batch: Batch[Any], error: psycopg.Error
    ) -> bool:
        """Whether a transaction that failed was committed all the same."""
        if connection.info.transaction_status is TransactionStatus.INERROR:
            return False
        # The server ends what it still holds of the connection; only then is the answer final.
        await connection.close()
        try:
            async with asyncio.timeout(_SETTLE_S_MAX):
                return await self._ask_after([row.event for row in batch.rows])
        except TimeoutError:
            raise LogError(
                f"PostgreSQL was lost during a commit, and its outcome is unknown: {error}"
            ) from error

    async def _ask_after(self, events: Sequence[Event]) -> bool:
        while True:
            try:
                async with await self._writer.connect() as connection, connection.transaction():
                    await connection.execute(queries.LOCK_HEAD)
                    found = await connection.execute(
                        queries.COUNT_STORED,
                        {
                            "seqs": [event.seq for event in events],
                            "documents": [event.document for event in events],
                            "ids": [event.id for event in events],
                            "tss": [event.ts for event in events],
                        },
                    )
                    return await found.fetchone() == (len(events),)
            except psycopg.OperationalError:
                await asyncio.sleep(_SETTLE_PAUSE_S)

    @property
    def _channel(self) -> str:
        return channel(self._relay_id)

    # ── reading ────────────────────────────────────────────────────────────────────────

    async def page(self, document: str, after: int, *, count_max: int, bytes_max: int) -> Page:
        """Elements above a `ts`, at least one if there is any, until a limit is passed."""
        wanted = {
            "document": document,
            "after": after,
            "count_max": max(count_max, 1),
            "bytes_max": max(bytes_max, 1),
        }
        statuses, rows = await self._read(
            Query(queries.DOCUMENT, {"documents": [document]}), Query(queries.PAGE, wanted)
        )
        status = read_document(statuses[0]) if statuses else new_document(document)
        is_more = bool(rows) and not rows[-1][-1]
        is_end = status.floor <= after < status.head and not is_more
        elements = read_elements(
            document,
            [columns[:-1] for columns in rows],
            after=after,
            upto=status.head if is_end else None,
        )
        return Page(elements, is_more, status.floor, status.head)

    async def tail(self, document: str, upto: int, count: int) -> list[Row]:
        """The newest elements up to a `ts` that still have their payload, ascending."""
        wanted = {"document": document, "upto": upto, "count": max(count, 0)}
        (rows,) = await self._read(Query(queries.TAIL, wanted))
        return read_elements(document, reversed(rows))

    async def snapshot(self, document: str) -> StoredSnapshot | None:
        """The current snapshot: the one with the highest `upto_ts`, of several the newest."""
        (rows,) = await self._read(Query(queries.CURRENT, {"document": document}))
        if not rows:
            return None
        (event,) = await _read_rows(read_event, rows)
        assert event.payload is not None
        return StoredSnapshot(event.id, event.payload)

    async def snapshot_part(
        self, document: str, revision: str, *, start: int, size: int
    ) -> bytes | None:
        """Some bytes of a snapshot's text; None if it is not there."""
        wanted = {"document": document, "id": revision, "start": start, "size": size}
        (rows,) = await self._read(Query(queries.SNAPSHOT_PART, wanted))
        return bytes(rows[0][0]) if rows else None

    async def snapshots(self, document: str) -> list[Event]:
        """The snapshots of a document that were not compacted, payloads as empty bytes."""
        frontier = Frontier()
        async with (
            self._comparing.take() as connection,
            connection.transaction(),
            connection.cursor("there", binary=True) as found,
        ):
            await found.execute(queries.SNAPSHOTS, {"document": document})
            while rows := await found.fetchmany(_PICKED):
                await asyncio.to_thread(_tell_apart, frontier, rows)
        return frontier.all()

    async def find(
        self, ids: Sequence[str], wanted: Filter, *, payload_bytes_max: int | None = None
    ) -> list[Event]:
        """The events with these ids that pass a filter, by seq."""
        parameters = {
            "ids": storable(set(ids)),
            "payload_bytes_max": payload_bytes_max,
            **filter_parameters(wanted),
        }
        whole, bare = await self._read(
            Query(queries.FIND, parameters), Query(queries.FIND_BARE, parameters)
        )
        small = await _read_rows(read_event, whole)
        return sorted([*small, *await _read_rows(read_bare_event, bare)])

    async def feed(
        self,
        since: int,
        until: int | None,
        wanted: Filter,
        *,
        count_max: int,
        bytes_max: int,
        seqs_max: int | None = None,
    ) -> FeedPage:
        """Events above a seq and up to another one; compacted ones too, without their payload."""
        ends = [each for each in (until, seqs_max and since + seqs_max) if each is not None]
        parameters = {
            "since": since,
            "until": min(ends, default=None),
            "count_max": max(count_max, 1),
            "bytes_max": max(bytes_max, 1),
            **filter_parameters(wanted),
        }
        heads, rows = await self._read(Query(queries.HEAD, {}), Query(queries.FEED, parameters))
        head = read_head(heads[0])
        if since + 1 < head.lowest_seq:
            return FeedPage([], since, False, head.lowest_seq, head.seq)
        is_cut = bool(rows) and not rows[-1][-1]
        looked = rows[-1][0] if is_cut else min([*ends, head.seq])
        return FeedPage(
            events=await _read_rows(read_event, [columns[:-1] for columns in rows]),
            last_seq=max(since, looked),
            is_more=is_cut or looked < (head.seq if until is None else min(until, head.seq)),
            min_seq=head.lowest_seq,
            head_seq=head.seq,
        )

    async def bootstrap(
        self,
        wanted: Filter,
        *,
        since: int = 0,
        until: int | None = None,
        count_max: int | None = None,
    ) -> Bootstrap:
        """The snapshots that no other one of their document dominates, in one consistent read."""
        parameters = {"since": since, "until": until, **filter_parameters(wanted)}
        size = _PICKED if count_max is None else min(_PICKED, count_max + 1)
        looked: set[str] = set()
        current: dict[int, Event] = {}
        events: list[Event] = []
        async with self._comparing.take() as connection, connection.transaction():
            heads = await connection.execute(queries.HEAD, binary=True)
            (head,) = map(read_head, await heads.fetchall())
            async with connection.cursor("picked", binary=True) as picked:
                await picked.execute(queries.SNAPSHOTS_PICKED, parameters)
                while count_max is None or len(events) <= count_max:
                    some = await picked.fetchmany(size)
                    if not some:
                        break
                    documents = {document for _, document in some} - looked
                    looked |= documents
                    current.update(await _current(connection, sorted(documents)))
                    events += [current.pop(seq) for seq, _ in some if seq in current]
        is_more = count_max is not None and len(events) > count_max
        return Bootstrap(head.seq, head.lowest_seq, events[:count_max], is_more)

    async def documents(self, prefix: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is, newest first."""
        if "\0" in prefix:
            return []
        wanted = {"prefix": prefix, "count_max": max(count_max, 0)}
        (rows,) = await self._read(Query(queries.DOCUMENTS, wanted))
        return [read_document(columns) for columns in rows]

    async def documents_after(self, document: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is of the documents above a key, by key."""
        wanted = {"document": document.replace("\0", ""), "count_max": max(count_max, 0)}
        (rows,) = await self._read(Query(queries.DOCUMENTS_AFTER, wanted))
        return [read_document(columns) for columns in rows]

    async def documents_count(self) -> int:
        """How many documents there are."""
        (((count,),),) = await self._read(Query(queries.DOCUMENTS_COUNT, {}))
        return int(count)

    async def _read(self, *wanted: Query) -> list[list[Columns]]:
        """The answers to several queries, all of one moment, in one round trip."""
        async with self._readers.take() as connection:
            async with connection.pipeline(), connection.transaction():
                answers = [
                    await connection.execute(query.text, query.parameters, binary=True)
                    for query in wanted
                ]
            return [await answer.fetchall() for answer in answers]

    # ── retention ──────────────────────────────────────────────────────────────────────

    async def compact(self, removals: Sequence[Removal]) -> Removed:
        """Remove payloads, keep rows. The floors of the documents rise, and never fall."""
        if not removals:
            return Removed(0, 0, 0)
        async with self._keeper.take() as connection, connection.transaction():
            return await compact(connection, self._channel, removals)

    async def trim(self, min_seq: int) -> None:
        """Let go of the replay of everything below a seq; the rows stay."""
        async with self._keeper.take() as connection, connection.transaction():
            found = await connection.execute(queries.LOCK_HEAD, binary=True)
            (head,) = map(read_head, await found.fetchall())
            # A reader that has seen everything is never too old.
            raised = head._replace(min_seq=max(head.min_seq, min(min_seq, head.seq + 1)))
            await connection.execute(queries.SET_HEAD, with_checksum(raised))

    # ── readers, grants, records, settings ─────────────────────────────────────────────

    async def note_readers(self, marks: Sequence[ReaderMark]) -> None:
        """Remember how far readers are; a mark replaces that reader's former one."""
        newest = {(mark.document, mark.key): mark for mark in marks}
        if newest:
            rows = transposed([with_checksum(mark) for mark in newest.values()])
            await self._change(queries.PUT_READERS, rows)
            documents = sorted({mark.document for mark in marks})
            await self._change(queries.FORGET_READERS, (documents, READERS_MAX))

    async def readers(self, document: str) -> list[ReaderMark]:
        """The readers of a document that are known."""
        (rows,) = await self._read(Query(queries.READERS, {"document": document}))
        return [ReaderMark(*checked(columns, f"a reader of {document!r}")) for columns in rows]

    async def put_grant(self, grant: Mapping[str, Any], now_ms: int) -> None:
        """Keep a grant that was checked, in place of an older one of the same by, to and prefix."""
        place = sha256(write_json([grant["by"], grant["to"], grant["prefix"]])).digest()
        row = (place, grant["at"], now_ms, write_json(dict(grant)))
        await self._change(queries.PUT_GRANT, with_checksum(row))

    async def grants(self) -> list[dict[str, Any]]:
        """Every grant that counts."""
        (rows,) = await self._read(Query(queries.GRANTS, {}))
        return [json.loads(checked(columns, "a grant")[-1]) for columns in rows]

    async def record(self, document: str, name: str) -> StoredRecord | None:
        """A record of a document."""
        (rows,) = await self._read(Query(queries.RECORD, {"document": document, "name": name}))
        if not rows:
            return None
        return StoredRecord(*checked(rows[0], f"the record {name!r} of {document!r}")[2:])

    async def put_record(
        self, document: str, name: str, text: bytes, revision: str | None
    ) -> str | Conflict:
        """Replace a revision of a record; the same text again is answered as before."""
        kept = KeptRecord(document, name, record_revision(text))
        names = ("document", "name", "revision", "body", "checksum")
        values = {
            **dict(zip(names, with_checksum((*kept, text)), strict=True)),
            "replaced": revision,
            "channel": self._channel,
            "news": write_kept(kept, self._origin),
        }
        change = queries.ADD_RECORD if revision is None else queries.REPLACE_RECORD
        async with self._keeper.take() as connection:
            changed = await connection.execute(change, values)
        if changed.rowcount:
            return kept.revision
        stored = await self.record(document, name)
        if stored is not None and stored.text == text:
            return stored.revision
        current = None if stored is None else stored.revision
        return Conflict(current, "another record is current")

    async def put_setting(self, name: str, value: Any) -> None:
        """Keep a JSON value under a name."""
        await self._change(queries.PUT_SETTING, with_checksum((name, write_json(value))))

    async def settings(self) -> dict[str, Any]:
        """Everything that was kept."""
        (rows,) = await self._read(Query(queries.SETTINGS, {}))
        kept = [checked(columns, f"the setting {columns[0]!r}") for columns in rows]
        return {name: json.loads(value) for name, value in kept}

    async def _change(self, statement: LiteralString, columns: Sequence[Any]) -> None:
        async with self._keeper.take() as connection:
            await connection.execute(statement, columns)

    # ── the lifetime ───────────────────────────────────────────────────────────────────

    async def notices(self) -> AsyncGenerator[Notice, None]:
        """What is accepted in the same database, by this process or another one, and the records
        that another one replaces.

        The first notice comes as soon as it listens, and one after each loss of the connection:
        both say how far the log is by then. It ends when the log is closed.
        """
        if self._is_closed:
            return
        listener = Listener(self._writer.connect, self._relay_id, self._origin)
        self._listeners.add(listener)
        try:
            async for notice in listener.notices():
                yield notice
        finally:
            self._listeners.discard(listener)
            await listener.aclose()

    async def aclose(self) -> None:
        """Close the database, after what was begun is done."""
        self._is_closed = True
        for listener in list(self._listeners):
            await listener.aclose()
        for connections in (self._writer, self._keeper, self._readers, self._comparing):
            await connections.aclose()


async def _look(
    connection: Connection, names: Set[tuple[str, str]], current_of: str | None
) -> Standing:
    """Lock the head, then read what is known of some documents and ids."""
    keys, ids = transposed(list(names))
    # Sent together: the server takes them one by one, each after the lock is held.
    heads = await connection.execute(queries.LOCK_HEAD, binary=True)
    statuses = await connection.execute(
        queries.DOCUMENT, {"documents": list(set(keys))}, binary=True
    )
    known = await connection.execute(queries.KNOWN, {"documents": keys, "ids": ids}, binary=True)
    current = await connection.execute(queries.CURRENT_BARE, {"document": current_of}, binary=True)
    (head,) = await heads.fetchall()
    newest = [Current(*read_revision(columns)) for columns in await current.fetchall()]
    return Standing(
        read_head(head),
        {columns[0]: read_document(columns) for columns in await statuses.fetchall()},
        {(row[2], row[3]): read_place(row) for row in await known.fetchall()},
        newest[0] if newest else None,
    )


async def _read_rows(read: Callable[[Columns], Answer], rows: Sequence[Columns]) -> list[Answer]:
    """What rows of events say; much of it is looked through in a thread, and nobody waits."""
    if sum(map(size_of, rows)) <= _AT_ONCE_BYTES_MAX:
        return list(map(read, rows))
    return await asyncio.to_thread(lambda: list(map(read, rows)))


async def _current(connection: Connection, documents: Sequence[str]) -> dict[int, Event]:
    """The undominated snapshots of documents, by seq, whatever a filter says: it makes none so.

    To read what they cover takes long, so it is done in a thread, and a few come at a time.
    """
    current: dict[int, Event] = {}
    there: list[Event] = []
    async with connection.cursor("there", binary=True) as found:
        await found.execute(queries.SNAPSHOTS_OF, {"documents": documents})
        while rows := await found.fetchmany(_PICKED):
            done, there = await asyncio.to_thread(_compared, there, rows)
            current.update(done)
    return current | _bare(there)


def _tell_apart(frontier: Frontier, rows: Sequence[Columns]) -> None:
    for columns in rows:
        frontier.add(read_bare_event(columns))


def _compared(
    there: Sequence[Event], rows: Sequence[Columns]
) -> tuple[dict[int, Event], list[Event]]:
    """The undominated of some snapshots, and of those whose document may go on in later rows.

    What they cover is held of these alone.
    """
    found = undominated([*there, *map(read_bare_event, rows)])
    last = document_of(rows[-1])
    return (
        _bare([event for event in found if event.document != last]),
        [event for event in found if event.document == last],
    )


def _bare(events: Sequence[Event]) -> dict[int, Event]:
    return {event.seq: bare(event) for event in events}
