"""The processes of a fleet: what runs on a node until it is stopped, or killed.

- Who is killed does nothing more that anybody could notice: its connections are broken and its
  disk is gone before its tasks are ended.
- A relay's log is what it has synced: it is there again when the relay is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import Any

import anyio

from walstore.archive.feed_source import FeedSource
from walstore.document.ports import Body, RawElement
from walstore.errors import WalStoreError
from walstore.net.websocket import WebSocketTransport
from walstore.relay.log import Accepted, NewElement
from walstore.relay.memory import MemoryLog
from walstore.relay.server import Relay
from walstore.signed import Identity
from walstore.testing.simulator.archivist import Archivist
from walstore.testing.simulator.interposing import NODE, Node
from walstore.testing.simulator.loop import VirtualLoop
from walstore.testing.simulator.pipes import HOST, Network
from walstore.testing.simulator.verdicts import BrokenPromiseError

PORT = 7000
URL = f"ws://{HOST}:{PORT}"

# How often tasks are told to end before something is wrong with them.
_CANCELS_MAX = 200


def running_loop() -> VirtualLoop:
    """The loop of the run."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def begin(node: Node, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """Do something on a node."""
    context = copy_context()
    context.run(NODE.set, node)

    async def run() -> None:
        await work()

    return context.run(running_loop().create_task, run())


async def kill(network: Network, node: Node) -> None:
    """End everything that runs on a node."""
    node.is_dead = True
    network.break_all(node)
    for _ in range(_CANCELS_MAX):
        # A task that was never begun would leave a coroutine that nobody has awaited.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        left = [task for task, whose in running_loop().tasks.items() if whose is node]
        if not left:
            return
        for task in left:
            task.cancel()
    raise BrokenPromiseError(f"{left[0]} does not end, however often it is cancelled")


class RecordingLog(MemoryLog):
    """A relay's log that remembers what it lets go of."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: dict[str, list[RawElement]] = {}
        # Their names, by `ts`.
        self.ids: dict[str, dict[int, str]] = {}

    async def append(self, elements: Sequence[NewElement], now_ms: int) -> list[Accepted]:
        """Keep elements; known ones keep their place."""
        places = await super().append(elements, now_ms)
        for element, place in zip(elements, places, strict=True):
            if place.is_new:
                raw = RawElement(place.ts, element.data, element.author, element.signature)
                self.accepted.setdefault(element.document, []).append(raw)
                self.ids.setdefault(element.document, {})[place.ts] = element.id
        return places


class WholeHistory:
    """Everything that a log has ever taken, as a transport: for whoever checks."""

    def __init__(self, log: RecordingLog) -> None:
        self._log = log

    async def append(self, document_key: str, body: Body) -> int:
        """Nobody writes here."""
        raise NotImplementedError

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        """All elements above a checkpoint."""
        accepted = self._log.accepted.get(document_key, [])
        return [element for element in accepted if element.ts > checkpoint]


class RelayProcess:
    """The relay."""

    def __init__(self, seed: str, network: Network) -> None:
        self._seed, self._network = seed, network
        self._starts = 0
        self.log = RecordingLog()
        self.node = Node("relay", seed)

    def start(self) -> None:
        """Serve."""
        self._starts += 1
        clock_error_ms = self.node.clock_error_ms
        self.node = Node(f"relay#{self._starts}", self._seed)
        self.node.clock_error_ms = clock_error_ms
        begin(self.node, self._serve)

    async def _serve(self) -> None:
        async with Relay.serve(self.log, host=HOST, port=PORT, compression=False):
            await asyncio.get_running_loop().create_future()

    async def crash(self) -> None:
        """Be killed."""
        await kill(self._network, self.node)


class ArchiveProcess:
    """The archive writer, reading the relay's feed."""

    def __init__(self, seed: str, network: Network, archivist: Archivist, who: Identity) -> None:
        self._seed, self._network = seed, network
        self._archivist, self._identity = archivist, who
        self.failure: WalStoreError | None = None
        self._starts = 0
        self.node = Node("archive", seed)

    def start(self) -> None:
        """Archive."""
        self._starts += 1
        self.node = Node(f"archive#{self._starts}", self._seed)
        begin(self.node, self._run)

    async def _run(self) -> None:
        try:
            await self._archived()
        except WalStoreError as error:
            self.failure = error

    async def _archived(self) -> None:
        async with WebSocketTransport(URL, identity=self._identity, compression=False) as relay:
            source = FeedSource(relay, "fleet/")
            await self._archivist.engine(source).run(anyio.Event())

    async def crash(self) -> None:
        """Be killed."""
        await kill(self._network, self.node)
