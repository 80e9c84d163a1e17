"""A client that edits several documents for hours, made to be killed.

Run as `python -m tests.soak_writer NAME URL DIRECTORY PACE SNAPSHOT_EVERY DOCUMENT…`. Its documents
are in files of its own, so that the next one of its name goes on from there.

- It counts an edit in `NAME.did` after its call has returned: the edit is on file then, and must
  never be lost. The file is mapped, so that a count survives the process as the edit does.
- What it could not do in time, because it was killed or had no relay, it makes up for.
- Its event loop is uvloop's, as that of an app in a hurry would be.
- A line on its input is `go`, to edit; `rest`, to stop and have all acknowledged; `collect`, to let
  go of what was removed, while all rest; or `state`, to read what others wrote and tell what there
  is. Each is answered with a line.
- Edits replace what is there, so that hours of them fold to little; how many there were is in the
  document itself, by the writer's name.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from tests.relay_load import lines
from walstore.canon import canonical_text
from walstore.document.document import ALLOW_ANY
from walstore.document.faults import SnapshotRefusedError
from walstore.document.ports import SnapshotConflictError
from walstore.errors import TransportError
from walstore.signed import Identity
from walstore.store.store import WalStore

# How many keys a map has that all write to, and how often they and a text are edited. A map
# remembers the last write of each session to a key, and whoever is killed begins another session.
_KEYS = 10
_KEY_EVERY = 4
_TEXT_EVERY = 20

# How long to wait for a relay that is not there.
_PAUSE_S = 0.1

# How far behind its pace a writer may be and still make up for it.
_LATE_S_MAX = 30.0

_COUNT_BYTES = 8


def counts_in(path: Path, size: int) -> memoryview:
    """Numbers in a file, which keeps them whatever becomes of a process that writes them."""
    with path.open("a+b") as file:
        file.truncate(size * _COUNT_BYTES)
        return memoryview(mmap.mmap(file.fileno(), size * _COUNT_BYTES)).cast("q")


def counts_of(name: str, directory: Path) -> Path:
    """Where a writer counts its edits."""
    return directory / f"{name}.did"


def store_of(name: str, url: str, document: str, directory: Path | None = None) -> WalStore:
    """A document, in a file or only in memory."""
    path = None if directory is None else directory / f"{name}-{document.replace('/', '-')}.wal"
    return WalStore.open(
        document,
        identity=Identity.from_seed(name.encode().ljust(32, b".")),
        relay=url,
        path=path,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
        autocommit_ms=None,
        snapshot_after=None,
    )


class Writer:
    """One client and its documents."""

    def __init__(
        self, name: str, counts: memoryview, *, per_second: float, snapshot_every: int
    ) -> None:
        self.name = name
        self.stores: dict[str, WalStore] = {}
        self._counts = counts
        self._pause_s = 1 / per_second
        self._snapshot_every = snapshot_every
        self._going = asyncio.Event()
        self._resting: dict[str, asyncio.Event] = {}

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Edit all documents, whenever it is to go."""
        for place, (document, store) in enumerate(self.stores.items()):
            self._resting[document] = asyncio.Event()
            tasks.create_task(self._edit(document, store, place))

    async def go(self) -> dict[str, int]:
        """Edit from now on; how many edits of its own it has found."""
        self._going.set()
        return {document: self._count(store) for document, store in self.stores.items()}

    async def rest(self) -> dict[str, int]:
        """Edit no more, and have everything acknowledged; how many edits there were."""
        self._going.clear()
        for document, store in self.stores.items():
            await self._resting[document].wait()
            await self._settle(store)
        return {document: self._count(store) for document, store in self.stores.items()}

    async def settle(self) -> list[int]:
        """Read what others wrote; how far."""
        for store in self.stores.values():
            await self._settle(store)
        return [store.checkpoint for store in self.stores.values()]

    async def collect(self) -> list[int]:
        """Let go of what was removed from texts, or go on from where somebody else has."""
        for store in self.stores.values():
            await store.document.snapshot(collect={self.name: store.checkpoint})
        return await self.settle()

    async def state(self) -> dict[str, str]:
        """What the documents hold."""
        await self.settle()
        for store in self.stores.values():
            assert (store.status.gaps, store.status.forks) == ((), ()), store.status
        return {document: shown(store) for document, store in self.stores.items()}

    def _count(self, store: WalStore) -> int:
        return int(store.get("counts", {}).get(self.name, 0))

    async def _edit(self, document: str, store: WalStore, place: int) -> None:
        number, resting = self._count(store), self._resting[document]
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if not self._going.is_set():
                rested_at = loop.time()
                resting.set()
                await self._going.wait()
                resting.clear()
                due += loop.time() - rested_at
            due = max(due + self._pause_s, loop.time() - _LATE_S_MAX)
            number += 1
            self._make(store, number)
            self._counts[place] = number
            try:
                await store.commit()
                if number % self._snapshot_every == 0:
                    await self._snapshot(store)
            except TransportError:
                # It is on file, to be sent whenever there is a relay.
                pass
            await asyncio.sleep(max(0.0, due - loop.time()))

    def _make(self, store: WalStore, number: int) -> None:
        if number % _KEY_EVERY == 0:
            store.put("keys", str(number // _KEY_EVERY % _KEYS), f"{self.name} {number}")
        if number % _TEXT_EVERY == 0:
            store.set_text("note", f"{self.name} was here {number} times")
        # Whoever finds this one has all before it.
        store.put("counts", self.name, number)

    async def _snapshot(self, store: WalStore) -> None:
        try:
            await store.pull()
            await store.snapshot()
        except (SnapshotConflictError, SnapshotRefusedError):
            # Another one was faster.
            return

    async def _settle(self, store: WalStore) -> None:
        while True:
            try:
                await store.commit()
                await store.pull()
                if not (store.status.unsent or store.document.unconfirmed):
                    return
            except TransportError:
                pass
            await asyncio.sleep(_PAUSE_S)


def shown(store: WalStore) -> str:
    """All of a document, as text that can be compared."""
    return canonical_text(store.materialize())


def tell(line: dict[str, Any]) -> None:
    """Write a line at once."""
    os.write(1, json.dumps(line).encode() + b"\n")


async def main(name: str, url: str, directory: str, pace: str, every: str, *keys: str) -> None:
    """Answer what is asked, until there is nobody to ask."""
    counts = counts_in(counts_of(name, Path(directory)), len(keys))
    writer = Writer(name, counts, per_second=float(pace), snapshot_every=int(every))
    async with AsyncExitStack() as stack, lines() as asked:
        for key in keys:
            store = store_of(name, url, key, Path(directory))
            writer.stores[key] = await stack.enter_async_context(store)
        async with asyncio.TaskGroup() as tasks:
            writer.begin(tasks)
            while line := await asked.readline():
                tell({"result": await getattr(writer, line.decode().strip())()})
            os._exit(0)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
