"""A stream whose driver is killed again and again: the archive ends as the fold of the log.

- A relay serves documents, and somebody goes on writing to them. `walstore spark archive --stream`
  is killed at a random moment of its life: the driver alone, whose Java and tasks notice later, or
  everything at once, as a power cut does.
- A kill counts if something was committed since the one before.
- A folded and a sealed archive are written at the same time, each by drivers of its own; for a
  single kill, one of the two.

A life takes as long as a Java takes to start. `WALSTORE_SPARK_KILLS` says how many end by a kill,
for both archives together; the seed is printed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.relay_process import forking
from tests.spark_java import quick_java
from walstore.archive.checking import check_archive
from walstore.archive.local import LocalDestination
from walstore.archive.reader import Archive, ArchiveNotFoundError
from walstore.document import ALLOW_ANY, WalDocument
from walstore.net.websocket import WebSocketTransport
from walstore.relay.reading import opened_source
from walstore.signed import Identity

pytest.importorskip("pyspark", reason="the extra spark is not installed")

KILLS = int(os.environ.get("WALSTORE_SPARK_KILLS", "1"))
SEED = int(os.environ.get("WALSTORE_SPARK_KILLS_SEED", "0")) or time.time_ns() % 10**6
MODES = ("folded", "sealed")
DOCUMENTS = 40
# How often a life commits, and how long it goes on after that: what there is at its start is the
# first commit, and the stream makes the others.
COMMITS = (1, 3)
LIFE_S = (0.0, 0.5)
# How long it may take to that, on a busy machine.
PATIENCE_S = 240.0
# Somebody who types, not somebody who floods.
EDIT_S = 0.05

WRITER = Identity.from_seed(bytes([1]) * 32)

CONFIG = """
[source]
database = "../relay.db"
prefix = "notes/"
identity = "../archive.key"

[archive]
table = "notes"
mode = "{mode}"
parts = 3

[snapshot]
max_churn_records = 300

[retention]
keep_epochs = 3

[[destinations]]
url = "first"

[[destinations]]
url = "second"
"""


class Fleet:
    """Documents that somebody writes to."""

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
            await self._edit(document)

    async def write_on(self) -> None:
        while True:
            await self._edit(self._rng.choice(self.documents))
            await asyncio.sleep(EDIT_S)

    async def _edit(self, document: WalDocument) -> None:
        text = document.text("body")
        document.insert_text("body", self._rng.randint(0, len(text)), self._rng.choice("abc é"))
        document.set_field("edited", self._rng.randrange(1000))
        await document.commit()


async def test_drivers_that_are_killed_again_and_again_lose_and_double_nothing(
    tmp_path: Path,
) -> None:
    environ = _environment()
    print(f"WALSTORE_SPARK_KILLS_SEED={SEED}")
    rng = random.Random(SEED)
    Identity.from_seed(bytes([9]) * 32).save(tmp_path / "archive.key")
    with forking(tmp_path) as forker:
        relay = await forker.start("--database", "relay.db")
        async with WebSocketTransport(relay.url, identity=WRITER) as transport:
            fleet = Fleet(transport, rng)
            await fleet.begin()
            modes = rng.sample(MODES, min(KILLS, len(MODES)))
            lines = [Line(tmp_path / mode, mode, environ, rng.getrandbits(32)) for mode in modes]
            async with _going_on(fleet), asyncio.TaskGroup() as group:
                for number, line in enumerate(lines):
                    group.create_task(line.die((KILLS + number) // len(lines)))
            # The last ones are asked to end, and all is there.
            async with asyncio.TaskGroup() as group:
                for line in lines:
                    group.create_task(line.end())
            kills = sum(line.kills for line in lines)
            assert kills == KILLS
            print(f"{kills} kills of a busy driver")
            for line in lines:
                await _check(line.directory, line.mode, fleet)


def _environment() -> dict[str, str]:
    from walstore.spark.java import JavaMissingError

    clean = {name: text for name, text in os.environ.items() if "WALSTORE" not in name}
    try:
        return clean | quick_java()
    except JavaMissingError as error:
        pytest.skip(str(error))


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


class Line:
    """Drivers that write one archive, each after the death of the one before."""

    def __init__(self, directory: Path, mode: str, environ: dict[str, str], seed: int) -> None:
        directory.mkdir()
        (directory / "archive.toml").write_text(CONFIG.format(mode=mode))
        self.directory, self.mode, self.kills = directory, mode, 0
        self._environ, self._rng = environ, random.Random(seed)
        self._archive = Archive(LocalDestination(directory / "first"), "notes/")

    async def die(self, times: int) -> None:
        """Live and be killed, so many times."""
        for _ in range(times):
            await self._live_and_die()
            self.kills += 1

    async def _live_and_die(self) -> None:
        rng, driver = self._rng, self._start()
        try:
            for _ in range(rng.randint(*COMMITS)):
                await self._moved(driver)
            await asyncio.sleep(rng.uniform(*LIFE_S))
            assert driver.poll() is None, self._said()
        finally:
            if rng.random() < 0.5:
                # Its Java finds out by itself, and its tasks may still be writing.
                driver.kill()
            else:
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()

    async def end(self) -> None:
        """Live until all is archived, and end when asked to."""
        driver = self._start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await _has_all(self._archive, self.directory.parent / "relay.db"):
                    assert driver.poll() is None, self._said()
                    await asyncio.sleep(0.05)
            driver.terminate()
            code = await asyncio.wait_for(asyncio.to_thread(driver.wait), PATIENCE_S)
            assert code == 0, self._said()
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = (
            "import sys; from walstore.cli.main import main; sys.exit(main(sys.argv[1:]))",
            *("spark", "archive", "--config", "archive.toml", "--master", "local[2]", "--quick"),
            *("--stream", "--trigger", "100ms", "--checkpoint", "checkpoint"),
        )
        with (self.directory / "driver.txt").open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-c", *command],
                cwd=self.directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    async def _moved(self, driver: subprocess.Popen[bytes]) -> None:
        before = await _head(self._archive)
        async with asyncio.timeout(PATIENCE_S):
            while await _head(self._archive) == before:
                assert driver.poll() is None, self._said()
                await asyncio.sleep(0.01)

    def _said(self) -> str:
        return (self.directory / "driver.txt").read_text(errors="replace")[-4000:]


async def _has_all(archive: Archive, database: Path) -> bool:
    return (await _head(archive))[1] >= await _head_of(database)


async def _head_of(database: Path) -> int:
    async with opened_source(database) as source:
        return (await source.status()).head_seq


async def _head(archive: Archive) -> tuple[int, int]:
    try:
        manifest = await archive.manifest()
    except ArchiveNotFoundError:
        return 0, 0
    return manifest.epoch, manifest.head_position


async def _check(directory: Path, mode: str, fleet: Fleet) -> None:
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
            assert seqs == list(range(1, await _head_of(directory.parent / "relay.db") + 1))
