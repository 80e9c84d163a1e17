"""A relay's database as a source of events, for whoever has it at hand: no relay need run.

- `opened_source` opens a SQLite file or a PostgreSQL database to be read, and nothing else.
- A `LogSource` is what `walstore.archive.source` asks for; it works on any `RelayLog`, too.
- Reading needs none of the packages that a relay does, but for the driver of PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import Final, NamedTuple, Protocol, cast

from walstore.document.ports import CheckpointTooOldError, LogBehindError, RawElement
from walstore.errors import UsageError
from walstore.net.faults import OtherRelayError, ReplayTooOldError
from walstore.relay.log import (
    Bootstrap,
    DocumentStatus,
    Event,
    FeedPage,
    Filter,
    Notice,
    Page,
    StoredRecord,
    StoredSnapshot,
)
from walstore.relay.sqlite_reading import SqliteReading

# Events of one page, and what their payloads may take, about.
PAGE_EVENTS_MAX: Final = 1000
PAGE_BYTES_MAX: Final = 8 * 2**20

# How long to wait before a log that tells nobody is looked at again, in seconds.
LOOK_S: Final = 0.25

_DOCUMENTS_MAX: Final = 1000


class PostgresMissingError(UsageError, ImportError):
    """The package `psycopg` is not installed."""

    def __init__(self) -> None:
        super().__init__("reading PostgreSQL needs psycopg: pip install 'walstore[postgres]'")


class Readable(Protocol):
    """What is read of a relay's log; see `walstore.relay.log.RelayLog`."""

    @property
    def relay_id(self) -> str:
        """Names the database."""
        ...

    async def page(self, document: str, after: int, *, count_max: int, bytes_max: int) -> Page:
        """Elements above a `ts`."""
        ...

    async def snapshot(self, document: str) -> StoredSnapshot | None:
        """The current snapshot."""
        ...

    async def find(self, ids: Sequence[str], wanted: Filter) -> list[Event]:
        """The events with these ids."""
        ...

    async def feed(
        self, since: int, until: int | None, wanted: Filter, *, count_max: int, bytes_max: int
    ) -> FeedPage:
        """Events above a seq."""
        ...

    async def bootstrap(self, wanted: Filter) -> Bootstrap:
        """The snapshots that are current."""
        ...

    async def documents_after(self, document: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is of the documents above a key, by key."""
        ...

    async def record(self, document: str, name: str) -> StoredRecord | None:
        """A record of a document."""
        ...

    def notices(self) -> AsyncIterator[Notice]:
        """The newest seq, whenever there is a newer one."""
        ...


class LogStatus(NamedTuple):
    """What a database holds."""

    relay_id: str
    min_seq: int
    head_seq: int


class LogSource:
    """The events of the documents with one prefix, out of a relay's database."""

    def __init__(
        self,
        log: Readable,
        prefix: str = "",
        *,
        relay_id: str | None = None,
        page_events_max: int = PAGE_EVENTS_MAX,
        page_bytes_max: int = PAGE_BYTES_MAX,
    ) -> None:
        """Read a log.

        Args:
            log: The log.
            prefix: What the document keys begin with.
            relay_id: The database that positions are of; None if any will do.
            page_events_max: How many events make a page.
            page_bytes_max: After how many bytes of payloads a page ends.

        Raises:
            OtherRelayError: It is another database.
        """
        if relay_id not in (None, log.relay_id):
            raise OtherRelayError(relay_id or "", log.relay_id)
        self.prefix = prefix
        self._log = log
        self._wanted = Filter(prefix)
        self._page_events_max = page_events_max
        self._page_bytes_max = page_bytes_max

    async def status(self) -> LogStatus:
        """What there is now.

        Raises:
            LogError: It cannot be read now.
        """
        nothing = Filter(documents=frozenset())
        page = await self._log.feed(0, None, nothing, count_max=1, bytes_max=1)
        return LogStatus(self._log.relay_id, page.min_seq, page.head_seq)

    async def page(self, since: int) -> FeedPage:
        """Events above a position.

        Raises:
            ReplayTooOldError: They can no longer be read from there.
            LogBehindError: The position was never reached: an older copy is in its place.
            LogError: They cannot be read now.
        """
        page = await self._log.feed(
            since,
            None,
            self._wanted,
            count_max=self._page_events_max,
            bytes_max=self._page_bytes_max,
        )
        if since > page.head_seq:
            raise LogBehindError(head=page.head_seq, checkpoint=since)
        if since + 1 < page.min_seq:
            raise ReplayTooOldError(page.min_seq)
        return page

    async def wait(self, since: int) -> None:
        """Return when there is an event above a position; raises as `page` does."""
        if await self._has_news(since):
            return
        notices = cast("AsyncGenerator[Notice, None]", self._log.notices())
        async with aclosing(notices):
            async for notice in notices:
                if notice.seq > since and await self._has_news(since):
                    return
        # A log within one process tells nobody of what it takes.
        while not await self._has_news(since):
            await asyncio.sleep(LOOK_S)

    async def _has_news(self, since: int) -> bool:
        page = await self._log.feed(since, None, self._wanted, count_max=1, bytes_max=1)
        return bool(page.events) or since > page.head_seq or since + 1 < page.min_seq

    async def bootstrap(self) -> tuple[int, AsyncIterator[Event]]:
        """The current snapshots, and the position that they are current at."""
        found = await self._log.bootstrap(self._wanted)
        return found.snapshot_seq, self._with_texts(found.events)

    async def _with_texts(self, events: Sequence[Event]) -> AsyncIterator[Event]:
        for event in sorted(events, key=lambda each: each.seq):
            wanted = Filter(documents=frozenset({event.document}))
            for found in await self._log.find([event.id], wanted):
                yield found

    async def documents(self) -> AsyncIterator[str]:
        """The keys of all documents, in order."""
        last = ""
        while found := await self._log.documents_after(last, count_max=_DOCUMENTS_MAX):
            for status in found:
                last = status.document
                if last.startswith(self.prefix):
                    yield last
                elif last > self.prefix:
                    return

    async def snapshots(self, documents: Collection[str], upto: int) -> AsyncIterator[Event]:
        """The snapshots of some documents that were stored up to a position, in order."""
        wanted = Filter(self.prefix, frozenset(documents), kinds=frozenset({"snapshot"}))
        since = max((await self.status()).min_seq - 1, 0)
        if since:
            found = await self._log.bootstrap(wanted)
            earlier = [event for event in found.events if event.seq <= min(since, upto)]
            async for event in self._with_texts(earlier):
                yield event
        while since < upto:
            page = await self._log.feed(
                since,
                upto,
                wanted,
                count_max=self._page_events_max,
                bytes_max=self._page_bytes_max,
            )
            for event in page.events:
                yield event
            if not page.is_more:
                return
            since = page.last_seq

    async def snapshot(self, document: str) -> bytes | None:
        """The text of a document's current snapshot; None if there is none."""
        stored = await self._log.snapshot(document)
        return None if stored is None else stored.text

    async def elements(self, document: str, after: int) -> AsyncIterator[RawElement]:
        """The elements of a document above a `ts`.

        Raises:
            CheckpointTooOldError: Some of them are gone.
            LogError: They cannot be read now.
        """
        while True:
            page = await self._log.page(
                document, after, count_max=self._page_events_max, bytes_max=self._page_bytes_max
            )
            if after < page.floor:
                raise CheckpointTooOldError(page.floor)
            for row in page.rows:
                yield RawElement(row.ts, row.data, row.author, row.signature)
            if not page.is_more:
                return
            after = page.rows[-1].ts

    async def record(self, document: str, name: str) -> str | None:
        """The text of a record of a document; None if there is none."""
        stored = await self._log.record(document, name)
        return None if stored is None else stored.text.decode()


@asynccontextmanager
async def opened_source(
    database: str | os.PathLike[str], prefix: str = "", *, relay_id: str | None = None
) -> AsyncIterator[LogSource]:
    """A relay's database as a source, as long as the block lasts; nothing is written to it.

    Args:
        database: The path of a SQLite file, or the address of a PostgreSQL database.
        prefix: What the document keys begin with.
        relay_id: The database that positions are of; None if any will do.

    Raises:
        OtherRelayError: It is another database.
        LogCorruptError: It is damaged, or none of a relay's.
        LogError: It cannot be read.
        PostgresMissingError: It needs a package that is not installed.
        UsageError: The address cannot be read.
    """
    if not os.fspath(database).startswith(("postgres://", "postgresql://")):
        yield LogSource(await SqliteReading.open(database), prefix, relay_id=relay_id)
        return
    log = await _postgres_reading(os.fspath(database))
    try:
        yield LogSource(log, prefix, relay_id=relay_id)
    finally:
        await log.aclose()


class _Closable(Readable, Protocol):
    async def aclose(self) -> None: ...


async def _postgres_reading(dsn: str) -> _Closable:
    try:
        module = import_module("walstore.relay.postgres_reading")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "psycopg":
            raise
        raise PostgresMissingError from error
    return cast("_Closable", await module.PostgresReading.open(dsn))
