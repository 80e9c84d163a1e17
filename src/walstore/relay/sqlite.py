"""A relay's log in one SQLite file: the database of a relay that is one process.

- One thread writes, another one reads; in WAL mode neither waits for the other. A third one reads
  what snapshots cover: that may be much, to read and to compare, and nobody else waits for it.
- A call that changes something is one transaction, synced when it returns. Calls do not share
  one: whoever wants many appends a second hands over many elements at once.
- An error takes everything back. Reading goes on, and so does writing once the cause is gone.
- Space that a compaction frees goes back to the file system, in steps between other changes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from walstore.errors import UsageError
from walstore.local.durable import sync_directory
from walstore.relay import sqlite_reads as reads
from walstore.relay import sqlite_writes as writes
from walstore.relay.log import (
    Accepted,
    Bootstrap,
    Conflict,
    DocumentStatus,
    Event,
    FeedPage,
    Filter,
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
)
from walstore.relay.sqlite_file import (
    Check,
    Mark,
    connect,
    explained,
    is_locked,
    prepare,
    read_state,
)
from walstore.relay.sqlite_rows import State

Answer = TypeVar("Answer")
Values = ParamSpec("Values")

Read = Callable[Concatenate[sqlite3.Connection, Values], Answer]
Write = Callable[Concatenate[sqlite3.Connection, State, Values], tuple[Answer, State]]

# How long a call waits for a lock that a stranger holds; our own threads never meet.
LOCKED_MS_MAX: Final = 2_000

# Pages in the -wal file before they are moved into the database: 16 MiB.
WAL_PAGES_MAX: Final = 4_096

# What is left of the -wal file after it was moved; it grows beyond while a long read goes on.
WAL_BYTES_KEPT: Final = 64 * 2**20

# The writer's page cache. Ids are random, so a batch touches as many index pages as it has ids.
CACHE_KIB: Final = 32 * 2**10

# Free pages that are given back in one step, while appends wait: 2 MiB.
VACUUM_PAGES: Final = 512

# What a text or number can fail with that the database has no way to write.
_UNSTORABLE = (UnicodeEncodeError, OverflowError)


class SqliteLog:
    """A `RelayLog` in a file."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        check: Check = "full",
        locked_ms_max: int = LOCKED_MS_MAX,
    ) -> AsyncIterator[SqliteLog]:
        """A log, as long as the block lasts. The file is made if there is none.

        Args:
            path: The file; its directory must be there.
            check: How an existing file is looked at first. "full" reads all of it and compares
                tables with indexes, about 10 s a GB. "quick" leaves the comparison out, about
                2 s a GB, and "none" is for files that are too large for either: damage to an
                index can then hide an event. Rows and payloads are checked whenever they are read.
            locked_ms_max: How long to wait for a lock that a stranger holds on the file.

        Raises:
            LogCorruptError: The file is damaged, or none of ours; nothing was written to it.
            LogError: Another relay runs on it, or it cannot be opened.
        """
        place = Path(path)
        log = await asyncio.to_thread(cls._opened, place, check, locked_ms_max)
        try:
            yield log
        finally:
            await log.aclose()

    @classmethod
    def _opened(cls, path: Path, check: Check, locked_ms_max: int) -> SqliteLog:
        mark = Mark(path)
        try:
            state = prepare(path, mark, check)
            log = cls(path, mark, state, locked_ms_max)
        except sqlite3.Error as error:
            mark.close()
            raise explained(error, path) from error
        except BaseException:
            mark.close()
            raise
        try:
            log._see_durable()
        except sqlite3.Error as error:
            log._close()
            raise explained(error, path) from error
        except OSError as error:
            log._close()
            raise LogError(f"{path}: {error.strerror}") from error
        return log

    def __init__(self, path: Path, mark: Mark, state: State, locked_ms_max: int) -> None:
        """Take over a database that was prepared; see `open`."""
        self._path = path
        self._mark = mark
        self._relay_id = state.relay_id
        self._writing = connect(path, locked_ms_max=locked_ms_max, is_reader=False)
        self._writing.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._writing.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX}")
        self._writing.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        self._reading = connect(path, locked_ms_max=locked_ms_max, is_reader=True)
        self._comparing = connect(path, locked_ms_max=locked_ms_max, is_reader=True)
        self._writer = ThreadPoolExecutor(1, "walstore-log-writer")
        self._reader = ThreadPoolExecutor(1, "walstore-log-reader")
        self._comparer = ThreadPoolExecutor(1, "walstore-log-comparer")
        self._is_closed = False

    def _see_durable(self) -> None:
        """See that what is written can be, and can survive a power cut; SQLite only tries that."""
        # What it cannot open for writing it opens for reading alone, whatever the reason was.
        if os.access(self._path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            try:
                # This changes nothing, and needs the right to.
                self._writing.execute("UPDATE state SET one = one WHERE one = 0")
            except sqlite3.OperationalError as error:
                if not is_locked(error):
                    raise
        # The -wal file is there now, and so has to be its name.
        sync_directory(self._path.parent)

    @property
    def relay_id(self) -> str:
        """Names this database, for ever."""
        return self._relay_id

    # ── appending ──────────────────────────────────────────────────────────────────────

    async def append(self, elements: Sequence[NewElement], now_ms: int) -> list[Accepted]:
        """Store elements in one durable step; known ones keep their place."""
        return await self._write(writes.append, elements, now_ms)

    async def put_snapshot(self, snapshot: NewSnapshot, now_ms: int) -> Accepted | Conflict:
        """Make a snapshot the current one, if the current revision is the one that it replaces."""
        return await self._write(writes.put_snapshot, snapshot, now_ms)

    # ── reading ────────────────────────────────────────────────────────────────────────

    async def page(self, document: str, after: int, *, count_max: int, bytes_max: int) -> Page:
        """Elements above a `ts`, at least one if there is any, until a limit is passed."""
        return await self._read(reads.page, document, after, count_max, bytes_max)

    async def tail(self, document: str, upto: int, count: int) -> list[Row]:
        """The newest elements up to a `ts` that still have their payload, ascending."""
        return await self._read(reads.tail, document, upto, count)

    async def snapshot(self, document: str) -> StoredSnapshot | None:
        """The current snapshot: the one with the highest `upto_ts`, of several the newest."""
        return await self._read(reads.snapshot, document)

    async def snapshot_part(
        self, document: str, revision: str, *, start: int, size: int
    ) -> bytes | None:
        """Some bytes of a snapshot's text; None if it is not there."""
        return await self._read(reads.snapshot_part, document, revision, start, size)

    async def snapshots(self, document: str) -> list[Event]:
        """The snapshots of a document that were not compacted, payloads as empty bytes."""
        return await self._compare(reads.snapshots, document)

    async def find(
        self, ids: Sequence[str], wanted: Filter, *, payload_bytes_max: int | None = None
    ) -> list[Event]:
        """The events with these ids that pass a filter, by seq."""
        return await self._read(reads.find, ids, wanted, payload_bytes_max)

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
        return await self._read(reads.feed, since, until, wanted, count_max, bytes_max, seqs_max)

    async def bootstrap(
        self,
        wanted: Filter,
        *,
        since: int = 0,
        until: int | None = None,
        count_max: int | None = None,
    ) -> Bootstrap:
        """The snapshots that no other one of their document dominates, in one consistent read."""
        return await self._compare(reads.bootstrap, wanted, since, until, count_max)

    async def documents(self, prefix: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is, newest first."""
        return await self._read(reads.documents, prefix, count_max)

    async def documents_after(self, document: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is of the documents above a key, by key."""
        return await self._read(reads.documents_after, document, count_max)

    async def documents_count(self) -> int:
        """How many documents there are."""
        return await self._read(reads.documents_count)

    # ── forgetting ─────────────────────────────────────────────────────────────────────

    async def compact(self, removals: Sequence[Removal]) -> Removed:
        """Remove payloads, keep rows. The floors of the documents rise, and never fall.

        It is one transaction: appends wait for it. Call it for a part of the removals at a time
        where that is too long.
        """
        removed = await self._write(writes.compact, removals)
        # The payloads are gone. Space that cannot be given back now is used again by appends.
        with suppress(LogError):
            while await self._run(self._writer, self._give_back):
                pass
        return removed

    def _give_back(self) -> bool:
        """Give some free pages back to the file system, and say whether there are more."""
        # As a script, because `execute` would stop after the first page.
        self._writing.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
        ((free,),) = self._writing.execute("PRAGMA freelist_count")
        return bool(free)

    async def trim(self, min_seq: int) -> None:
        """Let go of the replay of everything below a seq; the rows stay."""
        await self._write(writes.trim, min_seq)

    # ── readers, grants, records, settings ─────────────────────────────────────────────

    async def note_readers(self, marks: Sequence[ReaderMark]) -> None:
        """Remember how far readers are; a mark replaces that reader's former one."""
        await self._write(writes.note_readers, marks)

    async def readers(self, document: str) -> list[ReaderMark]:
        """The readers of a document that are known."""
        return await self._read(reads.readers, document)

    async def put_grant(self, grant: Mapping[str, Any], now_ms: int) -> None:
        """Keep a grant that was checked, in place of an older one of the same by, to and prefix."""
        await self._write(writes.put_grant, grant)

    async def grants(self) -> list[dict[str, Any]]:
        """Every grant that counts."""
        return await self._read(reads.grants)

    async def record(self, document: str, name: str) -> StoredRecord | None:
        """A record of a document."""
        return await self._read(reads.record, document, name)

    async def put_record(
        self, document: str, name: str, text: bytes, revision: str | None
    ) -> str | Conflict:
        """Replace a revision of a record; the same text again is answered as before."""
        return await self._write(writes.put_record, document, name, text, revision)

    async def put_setting(self, name: str, value: Any) -> None:
        """Keep a JSON value under a name."""
        await self._write(writes.put_setting, name, value)

    async def settings(self) -> dict[str, Any]:
        """Everything that was kept."""
        return await self._read(reads.settings)

    async def notices(self) -> AsyncIterator[Notice]:
        """Ends at once: the file belongs to this process."""
        others: tuple[Notice, ...] = ()
        for notice in others:
            yield notice

    # ── the threads ────────────────────────────────────────────────────────────────────

    async def _write(
        self, change: Write[Values, Answer], *values: Values.args, **named: Values.kwargs
    ) -> Answer:
        return await self._run(self._writer, partial(self._changed, change, *values, **named))

    def _changed(
        self, change: Write[Values, Answer], *values: Values.args, **named: Values.kwargs
    ) -> Answer:
        connection = self._writing
        try:
            connection.execute("BEGIN IMMEDIATE")
            before = read_state(connection)
            changes = connection.total_changes
            answer, state = change(connection, before, *values, **named)
            is_changed = state != before or connection.total_changes != changes
            if is_changed:
                state = state._replace(generation=state.generation + 1)
                writes.write_state(connection, state)
            connection.execute("COMMIT")
        finally:
            _take_back(connection)
        if is_changed:
            self._mark.write(state.generation)
        return answer

    async def _read(
        self, look: Read[Values, Answer], *values: Values.args, **named: Values.kwargs
    ) -> Answer:
        return await self._run(self._reader, partial(_seen, look, self._reading, *values, **named))

    async def _compare(
        self, look: Read[Values, Answer], *values: Values.args, **named: Values.kwargs
    ) -> Answer:
        work = partial(_seen, look, self._comparing, *values, **named)
        return await self._run(self._comparer, work)

    async def _run(self, thread: ThreadPoolExecutor, work: Callable[[], Answer]) -> Answer:
        if self._is_closed:
            raise LogError(f"{self._path}: the log is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        except sqlite3.Error as error:
            raise explained(error, self._path) from error
        except _UNSTORABLE as error:
            raise UsageError(f"it cannot be stored: {error}") from error

    async def aclose(self) -> None:
        """Close the database, after what was begun is done."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for thread in (self._reader, self._comparer, self._writer):
            thread.shutdown()
        self._reading.close()
        self._comparing.close()
        # The last connection moves the -wal file into the database, or leaves it if it cannot.
        self._writing.close()
        self._mark.close()


def _seen(
    look: Read[Values, Answer],
    connection: sqlite3.Connection,
    *values: Values.args,
    **named: Values.kwargs,
) -> Answer:
    try:
        connection.execute("BEGIN")
        return look(connection, *values, **named)
    finally:
        _take_back(connection)


def _take_back(connection: sqlite3.Connection) -> None:
    """End what was not committed; after a commit there is nothing to end."""
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
