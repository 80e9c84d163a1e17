"""A relay's log with documents on it, and engines that archive them, all in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Any

from tests.archive_sources import LogTransport
from tests.archive_tables import Clock
from tests.rigged import ALICE, BOB, MEMBERS
from walstore.archive.authority import Authority
from walstore.archive.destination import Destination
from walstore.archive.engine import Engine
from walstore.archive.folder import Folder
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.memory import MemoryDestination
from walstore.archive.modes import EventTable, FoldedTable, SealedTable
from walstore.archive.policy import Policy
from walstore.archive.reader import Archive
from walstore.archive.rows import Row
from walstore.archive.writer import Committed, Table, Writer
from walstore.document import WalDocument
from walstore.net.backoff import Backoff
from walstore.relay.log import Accepted, NewElement, Notice
from walstore.relay.memory import MemoryLog
from walstore.relay.reading import LogSource
from walstore.signed import Identity

ARCHIVE = Identity.from_seed(bytes([9]) * 32)
AT_ONCE = Backoff(quick_ms_min=0, quick_ms_max=1, pause_ms_min=1, pause_ms_max=2)
MODES = ["sealed", "folded"]
BY_KEYS = Authority(writers={"": MEMBERS}, producers={"": MEMBERS})


class TellingLog(MemoryLog):
    """A log that tells of what it takes, as one that several processes share does."""

    def __init__(self) -> None:
        super().__init__()
        self._grown = asyncio.Event()

    async def append(self, elements: Sequence[NewElement], now_ms: int) -> list[Accepted]:
        accepted = await super().append(elements, now_ms)
        self._grown.set()
        self._grown = asyncio.Event()
        return accepted

    async def notices(self) -> AsyncIterator[Notice]:
        while True:
            grown = self._grown
            yield Notice((await LogSource(self).status()).head_seq)
            await grown.wait()


class World:
    """A relay's log, documents on it, and an archive of them."""

    def __init__(
        self, mode: str, seed: int = 1, *, max_churn_records: int = 30, keep_epochs: int = 0
    ) -> None:
        self.mode, self.random = mode, Random(seed)
        self.policy, self.keep_epochs = Policy(max_churn_records=max_churn_records), keep_epochs
        self.log: MemoryLog = TellingLog()
        self.transport = LogTransport(self.log)
        self.place: Destination = MemoryDestination("here")
        self.committed: list[Committed] = []
        # The last event of the table.
        self.last = 0
        self._documents: dict[tuple[str, str], WalDocument] = {}

    async def document(self, key: str, who: Identity = ALICE) -> WalDocument:
        if (key, who.public_key) not in self._documents:
            self._documents[key, who.public_key] = await WalDocument(
                key,
                transport=self.transport,
                snapshot_store=self.transport,
                identity=who,
                writers=MEMBERS,
                snapshot_role=MEMBERS,
            ).open()
        return self._documents[key, who.public_key]

    async def edit(self, key: str) -> None:
        """Let one event happen to a document."""
        document = await self.document(key)
        document.set_field("count", 1)
        await document.commit()
        if key.startswith("notes/"):
            self.last = (await LogSource(self.log).status()).head_seq

    async def happen(self, count: int) -> None:
        for number in range(count):
            key = self.random.choice(["notes/a", "notes/b", "notes/c", "other/d"])
            document = await self.document(key, self.random.choice([ALICE, BOB]))
            await document.pull()
            text = document.text("body")
            document.insert_text("body", self.random.randint(0, len(text)), f"{number} ")
            await document.commit()
            if key.startswith("notes/"):
                self.last = (await LogSource(self.log).status()).head_seq

    def engine(
        self,
        place: Destination | None = None,
        *others: Destination,
        clock: Clock | None = None,
        **options: Any,
    ) -> Engine:
        source = LogSource(self.log, "notes/", page_events_max=5)
        archive = Archive(self.place if place is None else place, "notes/")
        table: EventTable = SealedTable(source)
        if self.mode == "folded":
            table = FoldedTable(source, archive, Folder(source, BY_KEYS, ARCHIVE))
        writer = Writer(
            Table("notes", "notes/", *table.kind[1:], table.kind.mode, self.log.relay_id, parts=2),
            [archive.destination, *others],
            base_formats=[JsonlFormat()],
            diff_formats=[JsonlFormat()],
            policy=self.policy,
            now_ms=Clock() if clock is None else clock,
            keep_epochs=self.keep_epochs,
        )
        settings: dict[str, Any] = {"interval_ms": 5, "buffer_bytes_max": 2**20, **options}
        return Engine(
            source, table, writer, on_committed=self.committed.append, backoff=AT_ONCE, **settings
        )

    async def rows(self) -> list[Row]:
        return [row async for row in Archive(self.place, "notes/").rows()]

    async def check(self) -> None:
        """Check that the archive is what the log folds to, as a reader of each sees it."""
        rows = await self.rows()
        if self.mode == "sealed":
            assert sorted((row["document"], row["ts"]) for row in rows) == [
                (key, element.ts)
                for key in ("notes/a", "notes/b", "notes/c")
                for element in await self.transport.pull(key, 0)
            ]
            return
        documents = {key for key, _ in self._documents if key.startswith("notes/")}
        assert sorted(str(row["document"]) for row in rows) == sorted(documents)
        for row in rows:
            document = await self.document(str(row["document"]))
            await document.pull()
            assert row["value"] == document.materialize()
            assert row["elements"] == len(await self.transport.pull(document.document_key, 0))
            assert row["rejected"] == 0


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
