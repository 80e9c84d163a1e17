"""A client that is killed in the middle of everything: no edit is lost, and none is made twice.

- A process edits one document, kept in a local file, and commits it to a relay; it is killed after
  a while, and the next one goes on from the file. The relay lives on, in this process.
- An edit whose call had returned must be found in the end; one whose call had begun may be; and
  none may be found twice, whatever was sent again.

`WALSTORE_STORE_KILLS` says how many kills; the seed of the delays is printed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.store_writer import DOCUMENT_KEY, WRITER
from tests.stores import check_log
from walstore.document.document import ALLOW_ANY
from walstore.document.ports import RawElement
from walstore.net import WebSocketTransport
from walstore.relay import Relay, SqliteLog
from walstore.signed import Identity
from walstore.store.store import WalStore

KILLS = int(os.environ.get("WALSTORE_STORE_KILLS", "200"))
SEED = int(os.environ.get("WALSTORE_STORE_KILLS_SEED", "0")) or time.time_ns() % 10**6

# How long a writer lives after it has said a word, and how often it is which: the number of its
# process when it is about to open, the first edit, and the first commit that was acknowledged.
LIFE_S_MAX = 0.05
WORDS = {"pid": 0.15, "will": 0.35, "sent": 0.5}
# Kills of writers that had made no edit show little.
BUSY_MIN = 0.5

# A writer that says nothing for so long hangs.
SILENCE_S_MAX = 30.0

ROOT = Path(__file__).parent.parent
OBSERVER = Identity.from_seed(bytes([8]) * 32)


class Told:
    """What the writers have said that they will do, and that they did."""

    def __init__(self) -> None:
        self.will: set[tuple[str, str]] = set()
        self.did: set[tuple[str, str]] = set()

    def hear(self, line: str) -> None:
        word, *rest = line.split()
        if word in ("will", "did"):
            kind, name = rest
            (self.will if word == "will" else self.did).add((kind, name))


class Writers:
    """Starts writers, one at a time, and kills them."""

    def __init__(self, process: asyncio.subprocess.Process, told: Told) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._told = told

    async def run(self, arguments: str, *, word: str, life_s: float) -> None:
        """Let a writer live for a while after it has said a word."""
        self._input.write(f"{arguments}\n".encode())
        line = await self._line()
        number = int(line.split()[1])
        try:
            while line.split()[0] != word:
                line = await self._line()
                self._told.hear(line)
            await asyncio.sleep(life_s)
        finally:
            # One that has failed is gone; it is told below.
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        while (line := await self._line()) != "ended":
            self._told.hear(line)

    async def _line(self) -> str:
        async with asyncio.timeout(SILENCE_S_MAX):
            line = await self._output.readline()
        assert line, "the writers ended by themselves"
        assert line != b"failed\n", "a writer has failed; why is on the standard error"
        return line.decode().strip()


@asynccontextmanager
async def starting(told: Told) -> AsyncIterator[Writers]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.store_writer",
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        yield Writers(process, told)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def store_of(identity: Identity, relay: str, path: Path | None = None) -> WalStore:
    return WalStore.open(
        DOCUMENT_KEY,
        identity=identity,
        relay=relay,
        path=path,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
    )


def found_in(store: WalStore) -> Counter[tuple[str, str]]:
    """Every edit that shows, and how often."""
    words = store.text("words").split(";")[:-1]
    return Counter(
        [("item", name) for name in store.list("items")]
        + [("word", name) for name in words]
        + [("key", name) for name in store.get("keys", {})]
    )


async def caught_up(store: WalStore) -> None:
    async with asyncio.timeout(60):
        await store.pull()
        while store.status.unsent or store.document.unconfirmed:
            await store.commit()
            await store.pull()


async def test_no_edit_of_a_killed_client_is_lost_or_made_twice(tmp_path: Path) -> None:
    print(f"WALSTORE_STORE_KILLS_SEED={SEED}")
    chance, told, path = random.Random(SEED), Told(), tmp_path / "notes.wal"
    busy = 0
    async with (
        SqliteLog.open(tmp_path / "relay.db") as log,
        Relay.serve(log) as relay,
        store_of(OBSERVER, relay.url) as observer,
    ):
        async with starting(told) as writers:
            for number in range(KILLS):
                before = len(told.did)
                (word,) = chance.choices(list(WORDS), list(WORDS.values()))
                life_s = chance.uniform(0, LIFE_S_MAX)
                await writers.run(f"{path} s{number} {relay.url}", word=word, life_s=life_s)
                busy += len(told.did) > before
        async with store_of(WRITER, relay.url, path) as last:
            await caught_up(last)
            await observer.pull()
            found = found_in(last)
            assert found_in(observer) == found
            assert observer.materialize() == last.materialize()
            assert (observer.status.gaps, observer.status.forks) == ((), ())
        elements = await elements_of(relay.url)
    assert told.did <= found.keys(), "an edit whose call had returned is lost"
    assert found.keys() <= told.will, "an edit that nobody made"
    assert {edit: times for edit, times in found.items() if times > 1} == {}
    check_log(elements)
    assert busy >= KILLS * BUSY_MIN
    print(f"{len(told.did)} edits, {len(elements)} elements, {KILLS} kills")


async def elements_of(relay: str) -> list[RawElement]:
    """Every element that the relay holds."""
    found: list[RawElement] = []
    async with WebSocketTransport(relay, identity=OBSERVER) as transport:
        while page := await transport.pull(DOCUMENT_KEY, found[-1].ts if found else 0):
            found += page
    return found
