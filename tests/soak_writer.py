"""A client that edits several documents for hours, made to be killed.

Run as `python -m tests.soak_writer NAME URL DIRECTORY PACE SNAPSHOT_EVERY DOCUMENT…`. The next one
of its name goes on from where it was killed.

- Some documents are **stores**, as an app has them: each in a file, followed live, with undo. An
  edit is on file when its call has returned, and must never be lost.
- Those whose names begin with `plain-` are **documents without a file**, as a service has them:
  they share a connection, and an edit must never be lost once its commit has returned. Who is
  killed knows nothing, and goes on from what the relay has.
- It counts such edits in `NAME.did`. The file is mapped, so that a count survives the process as
  the edit does.
- What it could not do in time it makes up for, as far as that was in the last second.
- Its event loop is uvloop's, as that of an app in a hurry would be.
- A line on its input is `open`, for what needs no relay; `go`, to edit; `rest`, to stop and have
  all acknowledged; `settle`, to read what others wrote; `collect`, to let go of what was removed,
  while all rest; or `state`, to tell what there is. Each is answered with a line.
- Edits replace what is there, so that hours of them fold to little; how many there were is in the
  document itself, by the writer's name.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from tests.relay_load import lines
from walstore.canon import canonical_text
from walstore.document.document import ALLOW_ANY, WalDocument
from walstore.document.events import Event, Fork
from walstore.document.faults import SnapshotRefusedError
from walstore.document.ports import SnapshotConflictError
from walstore.errors import TransportError
from walstore.net.websocket import WebSocketTransport
from walstore.signed import Identity
from walstore.store.store import HISTORY_MAX, WalStore

# How many keys a map has that all write to, and how often they and a text are edited. A map
# remembers the last write of each session to a key, and whoever is killed begins another session.
_KEYS = 10
_KEY_EVERY = 4
_TEXT_EVERY = 20

# How long to wait for a relay that is not there.
_PAUSE_S = 0.1

# How far behind its pace a writer may be and still make up for it. Without a relay it is as fast as
# its disk: what it makes up for then is a queue that all others wait for.
_LATE_S_MAX = 1.0

_COUNT_BYTES = 8


Edited = WalStore | WalDocument


def counts_in(path: Path, size: int) -> memoryview:
    """Numbers in a file, which keeps them whatever becomes of a process that writes them."""
    with path.open("a+b") as file:
        file.truncate(size * _COUNT_BYTES)
        return memoryview(mmap.mmap(file.fileno(), size * _COUNT_BYTES)).cast("q")


def counts_of(name: str, directory: Path) -> Path:
    """Where a writer counts its edits."""
    return directory / f"{name}.did"


def identity_of(name: str) -> Identity:
    """The same for each process of a name."""
    return Identity.from_seed(name.encode().ljust(32, b"."))


def store_of(
    name: str,
    url: str,
    document: str,
    directory: Path | None = None,
    *,
    on_event: Callable[[Event], None] | None = None,
) -> WalStore:
    """A document, in a file or only in memory."""
    path = None if directory is None else directory / f"{name}-{document.replace('/', '-')}.wal"
    return WalStore.open(
        document,
        identity=identity_of(name),
        relay=url,
        path=path,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
        autocommit_ms=None,
        snapshot_after=None,
        on_event=on_event,
    )


def is_plain(document: str) -> bool:
    """Whether it is edited without a file."""
    return "/plain-" in document


def document_of(edited: Edited) -> WalDocument:
    """What is edited, or what that stands for."""
    return edited.document if isinstance(edited, WalStore) else edited


class Writer:
    """One client and its documents."""

    def __init__(
        self,
        name: str,
        url: str,
        directory: Path,
        *,
        per_second: float,
        snapshot_every: int,
        documents: Sequence[str],
        lifetime: AsyncExitStack,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.name = name
        self._lifetime, self._tasks = lifetime, tasks
        self._url, self._directory = url, directory
        self._counts = counts_in(counts_of(name, directory), len(documents))
        self._pause_s = 1 / per_second
        self._snapshot_every = snapshot_every
        self._documents = documents
        self._edited: dict[str, Edited] = {}
        self._going = asyncio.Event()
        self._resting: dict[str, asyncio.Event] = {}
        self._forks: list[Event] = []

    async def open(self) -> dict[str, int]:
        """Open what is on file; how many edits of its own it has found there."""
        for document in self._documents:
            if not is_plain(document):
                store = store_of(
                    self.name, self._url, document, self._directory, on_event=self._notice
                )
                self._edited[document] = await self._lifetime.enter_async_context(store)
        return self._found()

    async def go(self) -> dict[str, int]:
        """Edit from now on; how many edits of its own it has found."""
        if not self._resting:
            await self._open_plain()
            for place, document in enumerate(self._documents):
                self._resting[document] = asyncio.Event()
                self._tasks.create_task(self._edit(document, place))
        self._going.set()
        return self._found()

    async def rest(self) -> dict[str, int]:
        """Edit no more, and have everything acknowledged; how many edits there were."""
        self._going.clear()
        for document, edited in self._edited.items():
            await self._resting[document].wait()
            await self._settle(edited)
        return self._found()

    async def settle(self) -> list[int]:
        """Read what others wrote; how far."""
        for edited in self._edited.values():
            await self._settle(edited)
        return [document_of(edited).current_checkpoint for edited in self._edited.values()]

    async def collect(self) -> list[int]:
        """Let go of what was removed from texts, or go on from where somebody else has."""
        for document in map(document_of, self._edited.values()):
            await document.snapshot(collect={self.name: document.current_checkpoint})
        return await self.settle()

    async def state(self) -> dict[str, str]:
        """What the documents hold."""
        await self.settle()
        for edited in self._edited.values():
            assert not document_of(edited).detected_gaps()
        assert not self._forks
        return {document: shown(edited) for document, edited in self._edited.items()}

    async def _open_plain(self) -> None:
        identity = identity_of(self.name)
        transport = await self._lifetime.enter_async_context(
            WebSocketTransport(self._url, identity=identity)
        )
        for document in filter(is_plain, self._documents):
            self._edited[document] = await WalDocument(
                document,
                transport=transport,
                snapshot_store=transport,
                identity=identity,
                writers=ALLOW_ANY,
                snapshot_role=ALLOW_ANY,
                history_max=HISTORY_MAX,
                on_event=self._notice,
            ).open()

    def _notice(self, event: Event) -> None:
        if isinstance(event, Fork):
            self._forks.append(event)

    def _found(self) -> dict[str, int]:
        return {document: self._count(edited) for document, edited in self._edited.items()}

    def _count(self, edited: Edited) -> int:
        return int(document_of(edited).entries("counts").get(self.name, 0))

    async def _edit(self, document: str, place: int) -> None:
        edited, resting = self._edited[document], self._resting[document]
        number = self._count(edited)
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
            self._make(edited, number)
            if isinstance(edited, WalStore):
                # It is on file; what is not is counted once it is committed.
                self._counts[place] = number
            await self._commit(edited)
            self._counts[place] = number
            if number % self._snapshot_every == 0:
                await self._snapshot(edited)
            await asyncio.sleep(max(0.0, due - loop.time()))

    def _make(self, edited: Edited, number: int) -> None:
        if number % _KEY_EVERY == 0:
            edited.put("keys", str(number // _KEY_EVERY % _KEYS), f"{self.name} {number}")
        if number % _TEXT_EVERY == 0:
            edited.set_text("note", f"{self.name} was here {number} times")
        # Whoever finds this one has all before it.
        edited.put("counts", self.name, number)

    async def _commit(self, edited: Edited) -> None:
        while True:
            try:
                await edited.commit()
            except TransportError:
                if isinstance(edited, WalDocument):
                    await asyncio.sleep(_PAUSE_S)
                    continue
                # It is on file, to be sent whenever there is a relay.
            return

    async def _snapshot(self, edited: Edited) -> None:
        try:
            await edited.pull()
            await edited.snapshot()
        except (SnapshotConflictError, SnapshotRefusedError, TransportError):
            # Another one was faster, or there is no relay.
            return

    async def _settle(self, edited: Edited) -> None:
        document = document_of(edited)
        while True:
            try:
                await edited.commit()
                await edited.pull()
                if not (document.unsent or document.has_unsealed or document.unconfirmed):
                    return
            except TransportError:
                pass
            await asyncio.sleep(_PAUSE_S)


def shown(edited: Edited) -> str:
    """All of a document, as text that can be compared."""
    return canonical_text(edited.materialize())


def tell(line: dict[str, Any]) -> None:
    """Write a line at once."""
    os.write(1, json.dumps(line).encode() + b"\n")


async def main(name: str, url: str, directory: str, pace: str, every: str, *keys: str) -> None:
    """Answer what is asked, until there is nobody to ask."""
    async with AsyncExitStack() as lifetime, lines() as asked, asyncio.TaskGroup() as tasks:
        writer = Writer(
            name,
            url,
            Path(directory),
            per_second=float(pace),
            snapshot_every=int(every),
            documents=keys,
            lifetime=lifetime,
            tasks=tasks,
        )
        while line := await asked.readline():
            tell({"result": await getattr(writer, line.decode().strip())()})
        os._exit(0)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
