"""Whatever a log forgets, and whoever is killed on the way, everything is there once in the end."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.put_back import Prunable, quiet, write
from tests.stores import ADA, BEN, CAM, KEY, check_log, until
from tests.vault import vault
from walstore.document import SnapshotVerdict
from walstore.document.faults import (
    ReadOnlyError,
    RollbackDetectedError,
    SnapshotRefusedError,
)
from walstore.document.ports import LogBehindError
from walstore.net.memory import MemorySnapshots
from walstore.signed import Identity
from walstore.store.store import WalStore

KILLS = int(os.environ.get("WALSTORE_ROLLBACK_KILLS", "16"))
SEED = int(os.environ.get("WALSTORE_ROLLBACK_KILLS_SEED", "0")) or time.time_ns() % 10**6
LIFE_S_MAX = {"pid": 0.1, "met": 0.02, "accepted": 0.01, "sent": 0.01}


async def test_a_client_that_is_killed_while_it_accepts_loses_nothing(tmp_path: Path) -> None:
    print(f"WALSTORE_ROLLBACK_KILLS_SEED={SEED}")
    chance, prepared = random.Random(SEED), tmp_path / "prepared.wal"
    async with vault(tmp_path / "relay") as relay:
        async with quiet(ADA, relay.url, prepared) as ada, quiet(BEN, relay.url) as ben:
            await write(ada, "0")
            await relay.save("older")
            await until([ada, ben], lambda: ada.status.state == ben.status.state == "live")
            for number in range(1, 40, 2):
                await ben.pull()
                await write(ben, str(number))
                await ada.pull()
                await write(ada, str(number + 1))
            words = ada["words"]
        assert len(words) == 41
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.rollback_accepter"),
            cwd=Path(__file__).parent.parent,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        reached: Counter[bool] = Counter()
        for kill in range(KILLS):
            path = tmp_path / f"{kill}.wal"
            shutil.copy(prepared, path)
            await relay.put_back("older")
            word = chance.choice(list(LIFE_S_MAX))
            await kill_after(process, f"{path} {relay.url}", word, chance)
            async with quiet(ADA, relay.url, path) as ada:
                assert ada["words"] == words
                with suppress(RollbackDetectedError):
                    await ada.pull()
                reached[ada.status.rollback is None] += 1
                await ada.accept_rollback()
                await ada.flush()
                await ada.pull()
                assert (ada["words"], ada.status.stranded) == (words, 20)
                assert ada.status.unsent == ada.document.unconfirmed == 0
            elements = await relay.elements()
            assert len(elements) == 21
            check_log(elements)
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        print(f"{reached[True]} of {KILLS} were killed after it was accepted")


async def kill_after(
    process: asyncio.subprocess.Process, arguments: str, word: str, chance: random.Random
) -> None:
    """Have a process accept, and kill it some time after it has said a word."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{arguments}\n".encode())
    async with asyncio.timeout(30):
        said = (await process.stdout.readline()).split()
        number = int(said[1])
        while said[0].decode() != word:
            said = (await process.stdout.readline()).split()
        # A moment that nothing announces is what is wanted here.
        await asyncio.sleep(chance.uniform(0, LIFE_S_MAX[word]))
        os.kill(number, signal.SIGKILL)
        while said != [b"ended"]:
            said = (await process.stdout.readline()).split()


# ── the law ────────────────────────────────────────────────────────────────────────────


class Story:
    """Three people, a log that is put back now and then, and everything in any order."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.log, self.snapshots = Prunable(), MemorySnapshots()
        self.log._logs[KEY] = []
        self.copies = [(self.log.saved(), dict(self.snapshots._documents))]
        self.stores: dict[Identity, tuple[WalStore, AsyncExitStack]] = {}
        self.written: Counter[str] = Counter()

    async def open(self, who: Identity) -> WalStore:
        stack = AsyncExitStack()
        path = self.directory / f"{who.public_key[:8]}.wal"
        store = await stack.enter_async_context(
            quiet(who, self.log, path, snapshots=self.snapshots)
        )
        self.stores[who] = store, stack
        return store

    async def close(self, who: Identity) -> None:
        _, stack = self.stores.pop(who)
        await stack.aclose()

    def edit(self, store: WalStore) -> None:
        if store.status.rollback is not None:
            return
        word = f"<{sum(self.written.values())}>"
        self.written[word] += 1
        text = store.text("note")
        at = self.chance.choice([0, *(place + 1 for place, c in enumerate(text) if c == ">")])
        store.edit_text("note", at, 0, word)

    async def act(self) -> None:
        who = self.chance.choice((ADA, BEN, CAM))
        if who not in self.stores:
            await self.open(who)
        store = self.stores[who][0]
        match self.chance.randrange(12):
            case 0:
                await self.close(who)
            case 1:
                self.copies.append((self.log.saved(), dict(self.snapshots._documents)))
            case 2 if self.chance.random() < 0.4:
                elements, documents = self.chance.choice(self.copies)
                self.log.put_back(elements, *(store for store, _ in self.stores.values()))
                self.snapshots._documents = dict(documents)
            case 3 | 4:
                await attempt(store.accept_rollback())
            case 5:
                await attempt(store.snapshot())
            case 6 | 7:
                await attempt(store.flush())
            case 8:
                await attempt(store.pull())
            case _:
                self.edit(store)

    async def end(self) -> list[WalStore]:
        """Let everybody accept, send and read until nothing happens any more."""
        stores = [
            self.stores[who][0] if who in self.stores else await self.open(who)
            for who in (ADA, BEN, CAM)
        ]
        for _ in range(4):
            for store in stores:
                await attempt(store.pull())
                await store.accept_rollback()
                await store.flush()
        for store in stores:
            await store.pull()
        return stores


async def attempt(work: Any) -> None:
    """Do what may be refused, because the log was put back or something is missing."""
    with suppress(RollbackDetectedError, LogBehindError, ReadOnlyError, SnapshotRefusedError):
        await work


@pytest.mark.parametrize("seed", range(int(os.environ.get("WALSTORE_ROLLBACK_STORIES", "16"))))
async def test_whatever_a_log_forgets_in_the_end_everything_is_there_once(
    tmp_path: Path, seed: int
) -> None:
    story = Story(tmp_path, seed)
    for _ in range(120):
        await story.act()
    stores = await story.end()
    found = Counter(re.findall("<[0-9]+>", stores[0].text("note")))
    assert found == story.written
    for store in stores:
        assert store.materialize() == stores[0].materialize()
        status = store.status
        assert (status.stranded, status.gaps, status.forks) == (0, (), ())
        assert (status.rollback, status.unsent) == (None, 0)
    check_log(story.log.saved())
    async with quiet(
        Identity.from_seed(bytes([24]) * 32),
        story.log,
        snapshots=story.snapshots,
        posture="re-derive",
    ) as late:
        assert late.materialize() == stores[0].materialize()
        # Nobody has signed what is not in the log.
        verdict = late.document.snapshot_verdict
        assert verdict in (SnapshotVerdict.VERIFIED, SnapshotVerdict.NONE)
    for who in list(story.stores):
        await story.close(who)
