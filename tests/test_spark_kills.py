"""A stream whose driver is killed again and again: the archive ends as the fold of the log.

- A relay serves documents, and somebody goes on writing to them. `walstore spark archive --stream`
  is killed at a random moment of its life: the driver alone, whose Java and tasks notice later, or
  everything at once, as a power cut does.
- A kill counts if something was committed since the one before.

A life takes as long as a Java takes to start. `WALSTORE_SPARK_KILLS` says how many; the seed is
printed.
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
from walstore.archive.checking import check_archive
from walstore.archive.local import LocalDestination
from walstore.archive.reader import Archive, ArchiveNotFoundError
from walstore.document import ALLOW_ANY, WalDocument
from walstore.errors import UsageError
from walstore.net.websocket import WebSocketTransport
from walstore.relay.reading import opened_source
from walstore.signed import Identity

pytest.importorskip("pyspark", reason="the extra spark is not installed")

KILLS = int(os.environ.get("WALSTORE_SPARK_KILLS", "3"))
SEED = int(os.environ.get("WALSTORE_SPARK_KILLS_SEED", "0")) or time.time_ns() % 10**6
DOCUMENTS = 40
# How often a life commits, and how long it goes on after that: what there is at its start is the
# first commit, and the stream makes the others.
COMMITS = (1, 3)
LIFE_S = (0.0, 1.0)
# How long it may take to that, on a busy machine.
PATIENCE_S = 240.0
# Somebody who types quickly, not somebody who floods.
EDIT_S = 0.01

WRITER = Identity.from_seed(bytes([1]) * 32)

CONFIG = """
[source]
database = "relay.db"
prefix = "notes/"
identity = "archive.key"

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


def require_java() -> None:
    from walstore.spark.java import JavaMissingError, prepare_java

    try:
        prepare_java(dict(os.environ), cache=Path())
    except JavaMissingError as error:
        pytest.skip(str(error))
    except UsageError as error:
        pytest.fail(str(error))


@pytest.mark.parametrize("mode", ["folded", "sealed"])
async def test_a_driver_that_is_killed_again_and_again_loses_and_doubles_nothing(
    tmp_path: Path, mode: str
) -> None:
    require_java()
    print(f"WALSTORE_SPARK_KILLS_SEED={SEED}")
    rng = random.Random(SEED)
    Identity.from_seed(bytes([9]) * 32).save(tmp_path / "archive.key")
    (tmp_path / "archive.toml").write_text(CONFIG.format(mode=mode))
    with forking(tmp_path) as forker:
        relay = await forker.start("--database", "relay.db")
        async with WebSocketTransport(relay.url, identity=WRITER) as transport:
            fleet = Fleet(transport, rng)
            await fleet.begin()
            archive = Archive(LocalDestination(tmp_path / "first"), "notes/")
            async with _going_on(fleet):
                for _ in range(KILLS if mode == "folded" else max(KILLS // 3, 1)):
                    await _live_and_die(tmp_path, archive, rng)
            # The last one is asked to end, and all is there.
            await _live_and_end(tmp_path, archive)
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


def _start(directory: Path) -> subprocess.Popen[bytes]:
    command = (
        "import sys; from walstore.cli.main import main; sys.exit(main(sys.argv[1:]))",
        *("spark", "archive", "--config", "archive.toml", "--master", "local[2]", "--quick"),
        *("--stream", "--trigger", "100ms", "--checkpoint", "checkpoint"),
    )
    clean = {name: text for name, text in os.environ.items() if "WALSTORE" not in name}
    with (directory / "driver.txt").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-c", *command],
            cwd=directory,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


async def _live_and_die(directory: Path, archive: Archive, rng: random.Random) -> None:
    driver = _start(directory)
    try:
        for _ in range(rng.randint(*COMMITS)):
            await _moved(directory, driver, archive)
        await asyncio.sleep(rng.uniform(*LIFE_S))
        assert driver.poll() is None, _said(directory)
    finally:
        if rng.random() < 0.5:
            # Its Java finds out by itself, and its tasks may still be writing.
            driver.kill()
        else:
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


async def _live_and_end(directory: Path, archive: Archive) -> None:
    driver = _start(directory)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await _has_all(archive, directory / "relay.db"):
                assert driver.poll() is None, _said(directory)
                await asyncio.sleep(0.05)
        driver.terminate()
        code = await asyncio.wait_for(asyncio.to_thread(driver.wait), PATIENCE_S)
        assert code == 0, _said(directory)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()


async def _has_all(archive: Archive, database: Path) -> bool:
    async with opened_source(database) as source:
        head = (await source.status()).head_seq
    return (await _head(archive))[1] >= head


async def _moved(directory: Path, driver: subprocess.Popen[bytes], archive: Archive) -> None:
    before = await _head(archive)
    async with asyncio.timeout(PATIENCE_S):
        while await _head(archive) == before:
            assert driver.poll() is None, _said(directory)
            await asyncio.sleep(0.01)


def _said(directory: Path) -> str:
    return (directory / "driver.txt").read_text(errors="replace")[-4000:]


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
            assert seqs == list(range(1, len(seqs) + 1))
