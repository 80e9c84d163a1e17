"""Logs of many documents, and archives of them that Spark and the plain engine write.

- Both write to one place, one after the other, so that even the manifests are the same bytes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.archive_sources import LogTransport
from tests.rigged import ALICE, BOB, CAROL, MALLORY, MEMBERS, spoiled, write_packed
from walstore.archive.config import Settings, read_settings
from walstore.archive.feed_source import FeedSource
from walstore.archive.keys import RESERVED
from walstore.archive.service import Service
from walstore.archive.source import Source
from walstore.archive.wiring import Wiring
from walstore.archive.writer import Committed
from walstore.crdt.runs import Set
from walstore.document import SnapshotRefusedError, WalDocument
from walstore.net.websocket import WebSocketTransport
from walstore.relay.reading import opened_source
from walstore.relay.sqlite import SqliteLog
from walstore.signed import Identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from walstore.spark.job import ArchiveJob
    from walstore.spark.work import Ran

ARCHIVE = Identity.from_seed(bytes([9]) * 32)
START_MS = 1_700_000_000_000
KEYS = ("notes/a", "notes/b c", "notes/é", "notes/𝒳", "other/x")

Files = dict[str, bytes]


class Bench:
    """A directory with a relay's database, and whoever archives it."""

    def __init__(self, directory: Path, spark: SparkSession | None = None, **sections: Any) -> None:
        self.directory = directory
        self.now_ms = START_MS
        self._spark = spark
        ARCHIVE.save(directory / "archive.key", overwrite=True)
        self.settings = self.configured(**sections)

    def configured(
        self,
        *,
        mode: str = "folded",
        parts: int = 4,
        destinations: Iterable[str] = ("out",),
        writers: Any = None,
        archive: Mapping[str, Any] | None = None,
        **sections: Any,
    ) -> Settings:
        """The settings of an archive of this database."""
        table = {
            "table": "notes",
            "mode": mode,
            "parts": parts,
            "writers": sorted(MEMBERS) if writers is None else writers,
            "snapshot_role": sorted(MEMBERS),
        }
        found = {
            "source": {"database": "relay.db", "prefix": "notes/", "identity": "archive.key"},
            "archive": {**table, **(archive or {})},
            "destinations": [{"url": each} for each in destinations],
            **sections,
        }
        return read_settings(found, directory=self.directory)

    # ── what is archived ───────────────────────────────────────────────────────────────

    def write(self, rng: random.Random, count: int, *, keys: Sequence[str] = KEYS) -> None:
        """Let things happen to a few documents, most of them honest."""
        asyncio.run(self._write(rng, count, keys))

    async def _write(self, rng: random.Random, count: int, keys: Sequence[str]) -> None:
        async with SqliteLog.open(str(self.directory / "relay.db")) as log:
            place = LogTransport(log)
            documents: dict[tuple[str, str], WalDocument] = {}
            for _ in range(count):
                key = rng.choice(keys)
                who = rng.choice([ALICE, BOB])
                if (key, who.public_key) not in documents:
                    documents[key, who.public_key] = await _opened(place, key, who)
                await _happen(place, documents, documents[key, who.public_key], rng)

    def trim(self, seq: int) -> None:
        """Let the relay go of its events below one."""

        async def trim() -> None:
            async with SqliteLog.open(str(self.directory / "relay.db")) as log:
                await log.trim(seq)

        asyncio.run(trim())

    # ── who archives ───────────────────────────────────────────────────────────────────

    def clock(self) -> int:
        """The time, which only the test moves."""
        return self.now_ms

    def job(self, settings: Settings | None = None) -> ArchiveJob:
        """What archives it on Spark."""
        from walstore.spark.job import ArchiveJob

        assert self._spark is not None
        chosen = self.settings if settings is None else settings
        return ArchiveJob(self._spark, chosen, chosen.tables[0], now_ms=self.clock)

    def run_spark(self) -> Ran:
        """Archive what there is, on Spark."""
        return self.job().run()

    def run_plain(self) -> Committed | None:
        """Archive what there is, without."""
        settings = self.settings

        async def run() -> Committed | None:
            service = Service(
                settings,
                identity=ARCHIVE,
                destinations=Wiring({}).destinations(settings.destinations),
                sinks=[],
                open_source=self._opened_source,
                now_ms=self.clock,
            )
            told: list[Committed | None] = []
            await service.run_once(lambda _, committed: told.append(committed))
            return told[0]

        return asyncio.run(run())

    @asynccontextmanager
    async def _opened_source(self, prefix: str) -> AsyncIterator[Source]:
        relay = self.settings.relay
        if relay is None:
            async with opened_source(self.settings.database or "", prefix) as source:
                yield source
        else:
            async with WebSocketTransport(relay, identity=ARCHIVE) as transport:
                yield FeedSource(transport, prefix)

    # ── what came of it ────────────────────────────────────────────────────────────────

    def files(self, *names: str) -> Files:
        """Everything in some destinations, manifests included."""
        found: Files = {}
        for name in names or ("out",):
            root = self.directory / name
            for path in root.rglob("*"):
                if path.is_file() and RESERVED not in path.parts:
                    found[f"{name}/{path.relative_to(root)}"] = path.read_bytes()
        return found

    @contextmanager
    def beside(self, *names: str) -> Iterator[None]:
        """Within the block there is another archive in the same place, from block to block."""
        self._swap(names)
        try:
            yield
        finally:
            self._swap(names)

    def _swap(self, names: Iterable[str]) -> None:
        for name in names or ("out",):
            here, beside, away = (self.directory / f"{name}{end}" for end in ("", ".b", ".away"))
            for source, target in ((here, away), (beside, here), (away, beside)):
                if source.exists():
                    source.rename(target)


async def _opened(place: LogTransport, key: str, who: Identity) -> WalDocument:
    return await WalDocument(
        key,
        transport=place,
        snapshot_store=place,
        identity=who,
        writers=MEMBERS,
        snapshot_role=MEMBERS,
        on_author_error="skip",
    ).open()


async def _happen(
    place: LogTransport,
    documents: dict[tuple[str, str], WalDocument],
    document: WalDocument,
    rng: random.Random,
) -> None:
    key, session = document.document_key, f"s{rng.getrandbits(48):x}"
    match rng.randint(0, 11):
        case 0:
            await place.put_in(key, write_packed(MALLORY, [], session=session))
        case 1:
            run = Set("x", f"{CAROL.public_key}:{session}", 1, rng.randrange(9))
            await place.put_in(key, spoiled(write_packed(CAROL, [run], session=session)))
        case 2:
            with suppress(SnapshotRefusedError):
                await document.snapshot()
        case 3:
            await document.pull()
            with suppress(SnapshotRefusedError):
                if rng.random() < 0.5:
                    await document.delete_document()
                else:
                    await document.snapshot(collect={})
            # Whoever goes on, goes on from there.
            for name in [each for each in documents if each[0] == key]:
                del documents[name]
        case 4:
            junk = rng.choice([b"\xff\xfe", b"{}", b"[1,", b'{"v":2}'])
            await place.add(key, junk, BOB.public_key, "A" * 86 + "==")
        case _:
            document.insert_text("text", 0, rng.choice(["one ", "zwei ", "\U0001f642"]))
            document.set_field("n", rng.randrange(100))
            await document.commit()
