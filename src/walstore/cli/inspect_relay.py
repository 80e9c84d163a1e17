"""What `walstore inspect` sees of a relay: its database, and what it says of itself.

- A database is read as it lies there, or while a relay writes to it.
- A running relay is asked over HTTP, which is for its operator; see `docs/relay.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from walstore.canon import parse
from walstore.cli.admin_client import ask_relay
from walstore.document.ports import (
    CheckpointTooOldError,
    RawElement,
    StoredRecord,
    StoredSnapshot,
)
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.errors import MalformedError
from walstore.inspect.overview import DocumentRow, Look, Overview
from walstore.inspect.places import StillPlace
from walstore.relay.log import Filter
from walstore.relay.reading import PAGE_BYTES_MAX, PAGE_EVENTS_MAX, Readable
from walstore.relay.sqlite_reading import SqliteReading

# Documents that are listed.
DOCUMENTS_MAX: Final = 1000

# How often a log that tells nobody is looked at, in seconds.
LOOK_S: Final = 0.5


class DatabasePlace(StillPlace):
    """A document in a relay's database."""

    def __init__(self, log: Readable, name: str, document: str) -> None:
        """Read a log."""
        super().__init__(name)
        self._log = log
        self._document = document
        self._head = 0

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """A page of elements above a checkpoint.

        Raises:
            CheckpointTooOldError: Some of them are gone.
            LogError: They cannot be read now.
        """
        page = await self._log.page(
            document_key, checkpoint, count_max=PAGE_EVENTS_MAX, bytes_max=PAGE_BYTES_MAX
        )
        self.floor, self._head = page.floor, page.head
        if checkpoint < page.floor:
            raise CheckpointTooOldError(page.floor)
        return [RawElement(row.ts, row.data, row.author, row.signature) for row in page.rows]

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The current snapshot."""
        stored = await self._log.snapshot(snapshot_key.removesuffix(SNAPSHOT_SUFFIX))
        if stored is None:
            return None
        try:
            return StoredSnapshot(parse(stored.text), stored.revision)
        except MalformedError:
            # It is there, and is no snapshot: the document will say so.
            return StoredSnapshot(None, stored.revision)

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        """A record beside the log."""
        stored = await self._log.record(document_key, name)
        return (
            None
            if stored is None
            else StoredRecord(stored.text.decode("utf-8", "replace"), stored.revision)
        )

    async def wait(self) -> None:
        """Return when the database holds something newer."""
        while True:
            page = await self._log.page(self._document, self._head, count_max=1, bytes_max=1)
            if page.head != self._head:
                return
            await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def opened_database(address: str) -> AsyncIterator[Readable]:
    """A relay's database, to be read, for as long as the block lasts.

    Raises:
        LogCorruptError: It is damaged, or none of a relay's.
        LogError: It cannot be read.
    """
    if not address.startswith(("postgres://", "postgresql://")):
        yield await SqliteReading.open(address)
        return
    from walstore.relay.postgres_reading import PostgresReading

    log = await PostgresReading.open(address)
    try:
        yield cast(Readable, log)
    finally:
        await log.aclose()


def database_overview(log: Readable, name: str) -> Look:
    """Looks at the documents of a database."""

    async def look() -> Overview:
        found = await log.documents_after("", count_max=DOCUMENTS_MAX + 1)
        nothing = Filter(documents=frozenset())
        page = await log.feed(0, None, nothing, count_max=1, bytes_max=1)
        rows = [_row(each._asdict()) for each in found[:DOCUMENTS_MAX]]
        facts = [f"changes feed: from seq {page.min_seq:,} to {page.head_seq:,}"]
        return Overview(name, rows, len(found), facts)

    return look


def relay_overview(url: str, token: str) -> Look:
    """Looks at a running relay over HTTP."""

    async def look() -> Overview:
        status = await asyncio.to_thread(ask_relay, url, method="GET", path="/status", token=token)
        return overview_of(url, status)

    return look


def overview_of(url: str, status: dict[str, Any]) -> Overview:
    """What a relay says of itself; what it leaves out is not shown."""
    documents = status.get("documents")
    listed = documents if isinstance(documents, list) else []
    rows = [_row(each) for each in listed if isinstance(each, dict)]
    total = status.get("documents_total")
    facts = [
        f"changes feed: from seq {status.get('min_seq')} to {status.get('head_seq')}",
        f"connections: {status.get('connections_total')}",
    ]
    retention = status.get("retention")
    if isinstance(retention, dict):
        facts.append(
            "retention: " + ", ".join(f"{k} {v}" for k, v in retention.items() if v is not None)
        )
    return Overview(url, rows, total if isinstance(total, int) else len(rows), facts)


def _row(status: Mapping[str, Any]) -> DocumentRow:
    def number(name: str) -> int:
        value = status.get(name, 0)
        return value if type(value) is int else 0

    return DocumentRow(
        str(status.get("document", "")),
        number("elements"),
        number("payload_bytes"),
        number("head"),
        number("floor"),
        number("snapshots"),
    )
