"""The way between one client and the hub: what is sent on it may be lost, late, or come twice.

- A message that is lost is an answer that does not come: the caller is told so after a while.
- What comes late comes after the caller has given up, and after what others have sent since.
- It keeps the promises of the ports, whatever it does: an error never stands for an absence.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from random import Random
from typing import Any, NoReturn, TypeVar

from walstore.document.ports import Body, LogBehindError, RawElement, StoredSnapshot
from walstore.errors import TransportError
from walstore.net.faults import NoAnswerError, OfflineError
from walstore.testing.simulator.hub import Hub
from walstore.testing.simulator.rates import Rates
from walstore.testing.simulator.trace import Trace

Answer = TypeVar("Answer")

# How long a caller waits for an answer.
TIMEOUT_MS = 1000

# How late a message may be.
LATE_MS_MAX = 5000

# The stream of chance of the step that is being taken.
CHANCE: ContextVar[Random] = ContextVar("CHANCE")


class Line:
    """One client's transport and snapshot store."""

    def __init__(self, name: str, hub: Hub, rates: Rates, trace: Trace) -> None:
        self.name = name
        self.hub = hub
        self.rates = rates
        # Until when there is no network.
        self.cut_until_s = 0.0
        self.is_healed = False
        # Whether its client was ever told that the log ends before what was read of it.
        self.has_fallen_behind = False
        # The `ts` of all elements that its client was handed since it last began to open, by what
        # had asked for them. What fails later may have begun anew, and gives up what it was handed.
        self._handed: defaultdict[asyncio.Task[Any] | None, set[int]] = defaultdict(set)
        self._trace = trace
        self._late: set[asyncio.Task[None]] = set()

    async def append(self, document_key: str, body: Body) -> int:
        """Append an element."""
        return await self._call("append", lambda: self.hub.append(body))

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        """A page of elements."""
        page = await self._call("pull", lambda: self.hub.pull(self.name, checkpoint))
        self._handed[asyncio.current_task()].update(element.ts for element in page)
        return page

    async def tail(self, document_key: str, upto: int, count: int) -> list[RawElement]:
        """The newest elements up to a `ts`."""
        return await self._call("tail", lambda: self.hub.tail(self.name, upto, count))

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The stored snapshot."""
        return await self._call("read", lambda: self.hub.read(self.name))

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace the stored snapshot."""
        await self._call("write", lambda: self.hub.write(document, revision))

    @property
    def shown(self) -> set[int]:
        """The `ts` of all elements that its client has read since it last began to open."""
        return set[int]().union(*self._handed.values())

    def begin(self) -> None:
        """Forget what was shown: its client begins to open."""
        self._handed.clear()

    async def settled(self) -> None:
        """Wait for what is still on its way."""
        while self._late:
            await asyncio.wait(self._late)

    async def _call(self, what: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            return await self._carry(what, work)
        except BaseException:
            self._handed.pop(asyncio.current_task(), None)
            raise

    async def _carry(self, what: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        if self.is_healed:
            await asyncio.sleep(0)
            return await self._answer(work)
        chance, rates = CHANCE.get(), self.rates
        loop = asyncio.get_running_loop()
        if loop.time() < self.cut_until_s:
            self._trace(self.name, "offline", what)
            await asyncio.sleep(0)
            raise OfflineError("there is no network")
        if chance.random() < rates.late:
            self._trace(self.name, "late", what)
            self._later(work, chance.uniform(TIMEOUT_MS, LATE_MS_MAX))
            await self._no_answer()
        if chance.random() < rates.loss:
            self._trace(self.name, "lost", what)
            await self._no_answer()
        if what in ("append", "write") and chance.random() < rates.replay:
            self._trace(self.name, "replayed", what)
            self._later(work, chance.uniform(0, LATE_MS_MAX))
        await asyncio.sleep(chance.uniform(0, rates.delay_ms) / 1000)
        answer = await self._answer(work)
        if chance.random() < rates.loss:
            self._trace(self.name, "unanswered", what)
            await self._no_answer()
        return answer

    async def _answer(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            return await work()
        except LogBehindError:
            self.has_fallen_behind = True
            raise

    async def _no_answer(self) -> NoReturn:
        await asyncio.sleep(TIMEOUT_MS / 1000)
        raise NoAnswerError

    def _later(self, work: Callable[[], Awaitable[object]], delay_ms: float) -> None:
        async def arrive() -> None:
            await asyncio.sleep(delay_ms / 1000)
            try:
                await work()
            except TransportError:
                # Nobody waits for the answer any more.
                return

        task = asyncio.get_running_loop().create_task(arrive())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
