"""Appends on their way to the disk: checked in threads, stored many at a time.

    submit ──► waiting ──► check (threads) ──► checked ──► log.append (one sync) ──► answers

- While one batch is being synced the next one is checked and a third one gathers: the slower the
  disk, the larger the batches. That is what makes durable appends fast.
- Order is kept: what a sender submits first is stored first. Senders have their turns, so that one
  whose elements take long to check holds up no others for longer than one batch takes.
- Everything that was submitted is answered, once: stored, refused, or not stored.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from walstore.errors import MalformedError
from walstore.relay.checking import check_element
from walstore.relay.log import Accepted, LogError, NewElement, RelayLog
from walstore.relay.metrics import STORED, Metrics
from walstore.wire.frames import Append, Code

# Elements in one sync. More would make the first of them wait for the last.
_BATCH_MAX = 512

# Their bytes, about: how long an element takes to check grows with them.
_BATCH_BYTES_MAX = 2**20

# Turns of the event loop that what has come at the same time takes until it is here.
_TURNS = 2

# Fewer than this are not worth a second thread.
_SPLIT_MIN = 8

# So few and so small are checked sooner than a thread would have begun with them.
_AT_ONCE_MAX = 2
_AT_ONCE_BYTES_MAX = 4 * 2**10


class NotStored(NamedTuple):
    """Why an element was not stored."""

    code: Code
    reason: str


Answer = Callable[[Accepted | NotStored], None]


class Stored(NamedTuple):
    """An element that has just become durable."""

    element: NewElement
    accepted: Accepted


class _Waiting(NamedTuple):
    frame: Append
    answer: Answer
    since_s: float


class _Checked(NamedTuple):
    element: NewElement
    waiting: _Waiting


class Committer:
    """The way from the connections to the log."""

    def __init__(
        self,
        log: RelayLog,
        *,
        queue_max: int,
        queue_bytes_max: int,
        now_ms: Callable[[], int],
        on_stored: Callable[[Sequence[Stored]], None],
        metrics: Metrics,
    ) -> None:
        """Prepare; `run` does the work.

        Args:
            log: Where elements go.
            queue_max: How many may wait; `room` says when there is room again.
            queue_bytes_max: And how many bytes of them.
            now_ms: The time.
            on_stored: Told of new elements, in the order of the log, after they were answered.
            metrics: Where it is counted.
        """
        self._log = log
        self._queue_max = queue_max
        self._queue_bytes_max = queue_bytes_max
        self._now_ms = now_ms
        self._on_stored = on_stored
        self._metrics = metrics
        # By sender, and in the order of their turns.
        self._queues: dict[Hashable, deque[_Waiting]] = {}
        self._turns: deque[Hashable] = deque()
        self._checked: asyncio.Queue[list[_Checked]] = asyncio.Queue(maxsize=1)
        self._count = 0
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="walstore-check")

    def __len__(self) -> int:
        """How many have been submitted and not answered."""
        return self._count

    def submit(self, sender: Hashable, frame: Append, answer: Answer) -> None:
        """Take an append that its sender may make; it will be answered."""
        queue = self._queues.get(sender)
        if queue is None:
            queue = self._queues[sender] = deque()
            self._turns.append(sender)
        queue.append(_Waiting(frame, answer, time.monotonic()))
        self._count += 1
        self._bytes += len(frame.data)
        self._idle.clear()
        self._arrived.set()
        if self._count >= self._queue_max or self._bytes >= self._queue_bytes_max:
            self._room.clear()

    async def room(self) -> None:
        """Wait until the queue is not full."""
        await self._room.wait()

    async def drained(self) -> None:
        """Wait until everything that was submitted is answered."""
        while self._count:
            await self._idle.wait()

    async def run(self) -> None:
        """Check and store, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._check_all())
                tasks.create_task(self._store_all())
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _check_all(self) -> None:
        while True:
            await self._arrived.wait()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            batch = self._next_batch()
            if not self._turns:
                self._arrived.clear()
            checked: list[_Checked] = []
            verdicts = await self._check([waiting.frame for waiting in batch])
            for waiting, verdict in zip(batch, verdicts, strict=True):
                if isinstance(verdict, NotStored):
                    self._answer(waiting, verdict)
                else:
                    checked.append(_Checked(verdict, waiting))
            if checked:
                await self._checked.put(checked)

    def _next_batch(self) -> list[_Waiting]:
        """One of each sender, and again, until nothing is left or it is enough."""
        batch: list[_Waiting] = []
        size = 0
        while self._turns and len(batch) < _BATCH_MAX and size < _BATCH_BYTES_MAX:
            sender = self._turns.popleft()
            queue = self._queues[sender]
            waiting = queue.popleft()
            batch.append(waiting)
            size += len(waiting.frame.data)
            if queue:
                self._turns.append(sender)
            else:
                del self._queues[sender]
        return batch

    async def _check(self, frames: Sequence[Append]) -> list[NewElement | NotStored]:
        size = sum(len(frame.data) for frame in frames)
        if len(frames) <= _AT_ONCE_MAX and size <= _AT_ONCE_BYTES_MAX:
            return _check_frames(frames)
        loop = asyncio.get_running_loop()
        middle = len(frames) // 2 if len(frames) >= _SPLIT_MIN else 0
        halves = await asyncio.gather(
            *(
                loop.run_in_executor(self._pool, _check_frames, half)
                for half in (frames[:middle], frames[middle:])
                if half
            )
        )
        return [verdict for half in halves for verdict in half]

    async def _store_all(self) -> None:
        while True:
            batch = await self._checked.get()
            try:
                accepted = await self._log.append([each.element for each in batch], self._now_ms())
            except LogError as error:
                for each in batch:
                    self._answer(each.waiting, NotStored(Code.STORAGE, str(error)))
                continue
            self._metrics.synced(len(batch))
            for each, place in zip(batch, accepted, strict=True):
                self._answer(each.waiting, place)
            new = [
                Stored(each.element, place)
                for each, place in zip(batch, accepted, strict=True)
                if place.is_new
            ]
            if new:
                self._on_stored(new)

    def _answer(self, waiting: _Waiting, verdict: Accepted | NotStored) -> None:
        self._count -= 1
        self._bytes -= len(waiting.frame.data)
        if self._count < self._queue_max and self._bytes < self._queue_bytes_max:
            self._room.set()
        if not self._count:
            self._idle.set()
        if isinstance(verdict, NotStored):
            self._metrics.answered(verdict.code)
        else:
            self._metrics.answered(STORED, seconds=time.monotonic() - waiting.since_s)
        waiting.answer(verdict)


def _check_frames(frames: Sequence[Append]) -> list[NewElement | NotStored]:
    return [_check_frame(frame) for frame in frames]


def _check_frame(frame: Append) -> NewElement | NotStored:
    try:
        return check_element(frame)
    except MalformedError as error:
        return NotStored(Code.INVALID, error.reason)
