"""An archive whose writer is killed again and again under load: it ends as the fold of the log.

- A relay serves a thousand documents, and somebody goes on writing to them. `walstore archive run`
  is killed at a random moment of its life, some lives while it starts, and starts again.
- A kill counts if something was committed since the one before.
- In the end a folded archive is the fold of each document, and a sealed one holds every seq that
  the relay has.

`WALSTORE_ARCHIVE_KILLS` says how many kills count, and a quarter as many of a sealed archive; the
seed is printed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.relay_process import Forker, forking
from walstore.archive.checking import check_archive
from walstore.archive.local import LocalDestination
from walstore.archive.reader import Archive, ArchiveNotFoundError
from walstore.document import ALLOW_ANY, WalDocument
from walstore.net.websocket import WebSocketTransport
from walstore.relay.reading import opened_source
from walstore.signed import Identity

KILLS = int(os.environ.get("WALSTORE_ARCHIVE_KILLS", "20"))
SEED = int(os.environ.get("WALSTORE_ARCHIVE_KILLS_SEED", "0")) or time.time_ns() % 10**6
DOCUMENTS = 1000

# How many lives end while they start, and after how long.
EARLY = 0.2
EARLY_S = (0.0, 0.3)
# How long the others go on after they have committed something.
LIFE_S = (0.0, 0.4)
# How long that may take, on a busy machine.
PATIENCE_S = 60.0
# Somebody who types fast, not somebody who floods: a life is to have time to catch up.
EDIT_S = 0.005

WRITER = Identity.from_seed(bytes([1]) * 32)

CONFIG = """
[source]
relay = "{url}"
prefix = "notes/"
identity = "archive.key"

[archive]
table = "notes"
mode = "{mode}"
parts = 4

[diff]
interval = "50ms"

[snapshot]
max_churn_records = 1000

[retention]
keep_epochs = 3

[[destinations]]
url = "first"

[[destinations]]
url = "second"

[http]
port = 0
"""


class Fleet:
    """A thousand documents that somebody writes to."""

    def __init__(self, transport: WebSocketTransport, rng: random.Random) -> None:
        self._transport, self._rng = transport, rng
        self.documents: list[WalDocument] = []

    async def begin(self) -> None:
        for number in range(DOCUMENTS):
            document = WalDocument(
                f"notes/{number:04}",
                transport=self._transport,
                identity=WRITER,
                writers=ALLOW_ANY,
                snapshot_role=ALLOW_ANY,
            )
            self.documents.append(await document.open())
        places = asyncio.Semaphore(16)

        async def write_first(document: WalDocument) -> None:
            async with places:
                await self._edit(document)

        await asyncio.gather(*map(write_first, self.documents))

    async def write_on(self) -> None:
        while True:
            await self._edit(self._rng.choice(self.documents))
            await asyncio.sleep(EDIT_S)

    async def _edit(self, document: WalDocument) -> None:
        text = document.text("body")
        document.insert_text("body", self._rng.randint(0, len(text)), self._rng.choice("abc é"))
        document.set_field("edited", self._rng.randrange(1000))
        await document.commit()


@pytest.mark.parametrize("mode", ["folded", "sealed"])
async def test_twenty_kills_leave_an_archive_that_is_the_fold_of_the_log(
    tmp_path: Path, mode: str
) -> None:
    print(f"WALSTORE_ARCHIVE_KILLS_SEED={SEED}")
    rng = random.Random(SEED)
    Identity.from_seed(bytes([9]) * 32).save(tmp_path / "archive.key")
    with forking(tmp_path) as forker:
        relay = await forker.start("--database", "relay.db")
        (tmp_path / "archive.toml").write_text(CONFIG.format(url=relay.url, mode=mode))
        async with WebSocketTransport(relay.url, identity=WRITER) as transport:
            fleet = Fleet(transport, rng)
            await fleet.begin()
            archive = Archive(LocalDestination(tmp_path / "first"), "notes/")
            async with _going_on(fleet):
                wanted = KILLS if mode == "folded" else max(1, KILLS // 4)
                kills = lives = 0
                while kills < wanted:
                    kills += await _live_and_die(forker, archive, rng)
                    lives += 1
            print(f"{kills} kills of a busy archive, {mode}, {lives - kills} more of idle ones")
            assert await _run_once(forker) == 0, forker.errors()
            await _check(tmp_path, mode, fleet)


@asynccontextmanager
async def _going_on(fleet: Fleet) -> AsyncIterator[None]:
    writing = asyncio.ensure_future(fleet.write_on())
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        for document in fleet.documents:
            if document.has_unsent:
                await document.commit()


async def _live_and_die(forker: Forker, archive: Archive, rng: random.Random) -> bool:
    """Live and be killed; whether anything was committed meanwhile."""
    before = await _head(archive)
    number, output = forker.fork("archive", "run", "--config", "archive.toml")
    with output:
        if rng.random() < EARLY:
            await asyncio.sleep(rng.uniform(*EARLY_S))
        else:
            async with asyncio.timeout(PATIENCE_S):
                while await _head(archive) == before:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(rng.uniform(*LIFE_S))
        assert forker.kill(number) == -signal.SIGKILL, forker.errors()
    return await _head(archive) != before


async def _head(archive: Archive) -> tuple[int, int]:
    try:
        manifest = await archive.manifest()
    except ArchiveNotFoundError:
        return 0, 0
    return manifest.epoch, manifest.head_position


async def _run_once(forker: Forker) -> int:
    number, output = forker.fork("archive", "run", "--config", "archive.toml", "--once")
    with output:
        said = await asyncio.to_thread(output.read)
    forker.kill(number)
    return 0 if "manifest.json" in said or "nothing new" in said else 1


async def _check(directory: Path, mode: str, fleet: Fleet) -> None:
    async with opened_source(directory / "relay.db") as source:
        head = (await source.status()).head_seq
    for name in ("first", "second"):
        archive = Archive(LocalDestination(directory / name), "notes/")
        checked = await check_archive(archive)
        assert checked.is_sound, checked.flaws
        rows = [row async for row in archive.rows()]
        if mode == "folded":
            values = {row["document"]: row["value"] for row in rows}
            assert values == {
                document.document_key: document.materialize() for document in fleet.documents
            }
            assert {row["rejected"] for row in rows} == {0}
        else:
            seqs = sorted(row["seq"] for row in rows if isinstance(row["seq"], int))
            assert seqs == list(range(1, head + 1))
            assert {row["document"] for row in rows} == {
                document.document_key for document in fleet.documents
            }
