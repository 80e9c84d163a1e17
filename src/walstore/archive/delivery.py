"""Telling sinks of commits, without ever waiting for them.

    commit ─► offer ─┬─► queue ─► sink      each sink on its own, in order
                     └─► queue ─► sink

- `offer` puts an event into every queue and returns. A full queue lets its oldest event go; that is
  counted and reported, and a reader finds it in the manifest all the same.
- An attempt has a time limit. One that fails is made again after a pause, some times over; then, or
  if the sink says that it would not help, the event is let go of.
- At the end what is queued is still told, as far as that goes in a given time.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from walstore.archive.sink import CommitEvent, EventSink, SinkError
from walstore.errors import UsageError
from walstore.net.backoff import Backoff

# How many events a sink may be behind: hours of them, at the usual pace of commits.
QUEUE_COUNT_MAX = 1_000

# How often one event is tried. With the pauses below this is about six minutes.
ATTEMPTS_MAX = 8

# How long an attempt may take, and how long what is queued may take at the end.
ATTEMPT_MS_MAX = 30_000
CLOSING_MS_MAX = 10_000

# How long a sink may ask to be left alone.
PAUSE_MS_MAX = 300_000

BACKOFF = Backoff(pause_ms_min=2_000, pause_ms_max=120_000)


class DeliveryWatcher(Protocol):
    """Somebody who counts; its methods must neither raise nor wait."""

    def delivered(self, sink: str) -> None:
        """An event has arrived."""
        ...

    def failed(self, sink: str, reason: str) -> None:
        """An attempt has failed."""
        ...

    def dropped(self, sink: str, reason: str) -> None:
        """An event was let go of."""
        ...


@dataclass
class SinkCounts:
    """What became of the events for one sink.

    Attributes:
        delivered: How many have arrived.
        failed: How many attempts have failed.
        dropped: How many were let go of.
        queued: How many are waiting, or on their way.
        reason: What the last attempt has failed for; None if it has not.
    """

    delivered: int = 0
    failed: int = 0
    dropped: int = 0
    queued: int = 0
    reason: str | None = None


class Delivery:
    """Tells sinks of commits; its lifetime is an `async with` block."""

    def __init__(
        self,
        sinks: Sequence[EventSink],
        *,
        watcher: DeliveryWatcher | None = None,
        queue_count_max: int = QUEUE_COUNT_MAX,
        attempts_max: int = ATTEMPTS_MAX,
        attempt_ms_max: int = ATTEMPT_MS_MAX,
        closing_ms_max: int = CLOSING_MS_MAX,
        backoff: Backoff = BACKOFF,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Describe whom to tell; nothing is told before the block begins.

        Args:
            sinks: Who is told; they are closed with the block.
            watcher: Who counts along.
            queue_count_max: How many events may wait for each sink.
            attempts_max: How often an event is tried.
            attempt_ms_max: How long an attempt may take.
            closing_ms_max: How long what is queued may take at the end.
            backoff: The pauses between attempts.
            sleep: Waits for so many seconds.
            chance: Random numbers from 0 to 1.

        Raises:
            UsageError: Two sinks have one name, or a limit is below 1.
        """
        if len({sink.name for sink in sinks}) < len(sinks):
            raise UsageError("two sinks have one name")
        if min(queue_count_max, attempts_max, attempt_ms_max, closing_ms_max) < 1:
            raise UsageError("the limits of a delivery are 1 or more")
        self._closing_ms_max = closing_ms_max
        attempts = _Attempts(attempts_max, attempt_ms_max, backoff, sleep, chance)
        self._lanes = [_Lane(sink, attempts, queue_count_max, watcher) for sink in sinks]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Delivery:
        """Begin to tell."""
        self._tasks = [asyncio.create_task(lane.run()) for lane in self._lanes]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Tell what is queued, as far as that goes, and close the sinks."""
        for lane in self._lanes:
            lane.finish()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._closing_ms_max / 1000)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(lane.close(self._closing_ms_max) for lane in self._lanes))

    def offer(self, event: CommitEvent) -> None:
        """Tell all sinks of a commit, soon."""
        for lane in self._lanes:
            lane.offer(event)

    @property
    def counts(self) -> dict[str, SinkCounts]:
        """What became of the events so far, by sink."""
        return {lane.name: lane.counts for lane in self._lanes}


@dataclass(frozen=True)
class _Attempts:
    """How often, and when, an event is tried."""

    count_max: int
    attempt_ms_max: int
    backoff: Backoff
    sleep: Callable[[float], Awaitable[None]]
    chance: Callable[[], float]

    def pause_ms(self, failures: int, wanted_ms: int | None) -> int:
        pause_ms = self.backoff.pause_ms(failures - 1, self.chance())
        return max(pause_ms, min(wanted_ms or 0, PAUSE_MS_MAX))


class _Lane:
    """The events for one sink, in order."""

    def __init__(
        self,
        sink: EventSink,
        attempts: _Attempts,
        queue_count_max: int,
        watcher: DeliveryWatcher | None,
    ) -> None:
        self._sink = sink
        self._attempts = attempts
        self._queue_count_max = queue_count_max
        self._watcher = watcher
        self._queue: deque[CommitEvent] = deque()
        self._stirred = asyncio.Event()
        self._is_finishing = False
        self.name = sink.name
        self.counts = SinkCounts()

    def offer(self, event: CommitEvent) -> None:
        self.counts.queued += 1
        if self._is_finishing:
            self._drop("the delivery has ended")
            return
        self._queue.append(event)
        if len(self._queue) > self._queue_count_max:
            self._queue.popleft()
            self._drop("the queue is full")
        self._stirred.set()

    def finish(self) -> None:
        """Let `run` end when nothing is queued any more."""
        self._is_finishing = True
        self._stirred.set()

    async def run(self) -> None:
        while self._queue or not self._is_finishing:
            if not self._queue:
                self._stirred.clear()
                await self._stirred.wait()
                continue
            await self._deliver(self._queue.popleft())

    async def close(self, close_ms_max: int) -> None:
        """Let go of what is left, and of the sink."""
        while self.counts.queued:
            self._drop("there was no time left")
        self._queue.clear()
        try:
            async with asyncio.timeout(close_ms_max / 1000):
                await self._sink.aclose()
        except Exception as error:  # noqa: BLE001 - anybody's code, and others are to be closed too
            self._fail(_reason(error))

    async def _deliver(self, event: CommitEvent) -> None:
        failures = 0
        while (failure := await self._attempt(event)) is not None:
            failures += 1
            if not failure.retryable or failures == self._attempts.count_max:
                self._drop(failure.reason)
                return
            pause_ms = self._attempts.pause_ms(failures, failure.pause_ms)
            await self._attempts.sleep(pause_ms / 1000)
        self.counts.delivered += 1
        self.counts.queued -= 1
        self.counts.reason = None
        if self._watcher is not None:
            self._watcher.delivered(self.name)

    async def _attempt(self, event: CommitEvent) -> SinkError | None:
        """Try once; what has failed, if it has."""
        try:
            async with asyncio.timeout(self._attempts.attempt_ms_max / 1000):
                await self._sink.publish(event)
        except SinkError as error:
            failure = error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            # Something that the sink waited for was cancelled, and not the delivery.
            failure = SinkError(self.name, "it was cancelled", retryable=True)
        except Exception as error:  # noqa: BLE001 - anybody's code; no sink may stop the others
            failure = SinkError(self.name, _reason(error), retryable=True)
        else:
            return None
        self._fail(failure.reason)
        return failure

    def _fail(self, reason: str) -> None:
        self.counts.failed += 1
        self.counts.reason = reason
        if self._watcher is not None:
            self._watcher.failed(self.name, reason)

    def _drop(self, reason: str) -> None:
        self.counts.dropped += 1
        self.counts.queued -= 1
        if self._watcher is not None:
            self._watcher.dropped(self.name, reason)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
