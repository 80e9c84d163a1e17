"""Keeps a document in step with its log: sends edits a moment after they were made, pulls others'.

- Edits are committed when they have rested for `rest_ms`, at the latest `rest_ms_max` after the
  first of them: one element for a burst of typing, and nobody waits for long.
- A transport that can be followed is followed: there is no polling. Others are asked every so
  often, more often while something comes.
- News is read at once, unless there is news all the time: then it gathers for a moment, because to
  read one element takes nearly as long as to read some.
- A failure that may pass is tried again, later and later; one that may not is shown, and tried
  again only when something has changed. An element that was refused for good is not sent again
  before that; whether its author may write by now is asked once in a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from walstore.document.ports import ElementRefusedError, Transport
from walstore.errors import PeerError, StorageError, TransportError, WalStoreError

# A transport that cannot be followed is asked this often: while something comes, and at last.
_POLL_S_MIN = 1.0
_POLL_S_MAX = 30.0

# News that comes so soon after the last was read, so many times in a row, is a stream. People who
# type make none: what they type rests for longer before it is sent.
_STREAM_GAP_S = 0.02
_STREAM_MIN = 8

# How long the news of a stream gathers.
_STREAM_REST_S = 0.04

# After a failure that may pass.
_RETRY_S_MIN = 0.5
_RETRY_S_MAX = 30.0

# How often it is asked whether an author who may not write may do so by now.
_REFUSED_S = 60.0


class Followed(Protocol):
    """Somebody who says when there may be something new."""

    async def wait(self) -> None:
        """Return when there may be something new to pull since the last time."""
        ...


class Synced(Protocol):
    """What is kept in step."""

    @property
    def document_key(self) -> str:
        """The document."""
        ...

    @property
    def checkpoint(self) -> int:
        """How far the log was read."""
        ...

    async def send(self) -> None:
        """Commit what was edited, and send what is not acknowledged."""
        ...

    async def receive(self) -> int:
        """Pull; how many elements were folded."""
        ...


class Syncer:
    """The tasks of one store: one sends, one receives, one looks when there is no news."""

    def __init__(
        self,
        synced: Synced,
        transport: Transport,
        *,
        rest_ms: int,
        rest_ms_max: int,
        on_failure: Callable[[WalStoreError | None], None],
        on_followed: Callable[[Followed], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] | None = None,
    ) -> None:
        """Prepare; `run` does it.

        Args:
            synced: What is kept in step.
            transport: Where the log is.
            rest_ms: How long edits rest before they are committed.
            rest_ms_max: How long the first of them waits at most, if it may not rest for longer.
            on_failure: Told what is wrong, and with None that nothing is any more.
            on_followed: Given what follows the document, each time that following begins.
            sleep: Waits.
            now: The time in seconds; the system's if left out.
        """
        self._synced = synced
        self._transport = transport
        self._rest_s = rest_ms / 1000
        self._rest_s_max = max(rest_ms, rest_ms_max) / 1000
        self._on_failure = on_failure
        self._on_followed = on_followed
        # What is wrong now, by what was tried: that one thing succeeds says nothing of the other.
        self._failures: dict[object, WalStoreError] = {}
        self._sleep = sleep
        self._now = _monotonic_s if now is None else now
        self._edited = asyncio.Event()
        self._nudged = asyncio.Event()
        self._doubted = asyncio.Event()

    def edited(self) -> None:
        """Something was edited, and is to be sent before long."""
        self._edited.set()

    def nudge(self) -> None:
        """Something has changed: try now what failed before."""
        self._nudged.set()

    def look(self) -> None:
        """There may be another log than before: pull now, whether or not there is news."""
        self._doubted.set()

    async def run(self) -> None:
        """Send and receive, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_all())
            tasks.create_task(self._receive_all())
            tasks.create_task(self._look_all())

    async def _send_all(self) -> None:
        while True:
            await self._edited.wait()
            await self._rest()
            await self._insist(self._synced.send)

    async def _rest(self) -> None:
        """Wait until editing has paused, but not for ever."""
        end = self._now() + self._rest_s_max
        while True:
            self._edited.clear()
            await self._sleep(min(self._rest_s, max(end - self._now(), 0)))
            if not self._edited.is_set() or self._now() >= end:
                self._edited.clear()
                return

    async def _receive_all(self) -> None:
        follow = getattr(self._transport, "follow", None)
        if follow is None:
            await self._poll()
            return
        while True:
            synced = self._synced
            try:
                async with follow(synced.document_key, synced.checkpoint) as followed:
                    if self._on_followed is not None:
                        self._on_followed(followed)
                    await self._insist(synced.receive)
                    await self._receive_news(followed)
            except TransportError as error:
                _end_if_told(error)
                self._note(synced.receive, error)
                await self._pause(_RETRY_S_MAX)

    async def _receive_news(self, followed: Followed) -> None:
        streak, read_s = 0, 0.0
        while True:
            await followed.wait()
            is_stream = streak >= _STREAM_MIN
            gap_s = _STREAM_REST_S if is_stream else _STREAM_GAP_S
            is_soon = self._now() - read_s < gap_s
            if is_stream and is_soon:
                await self._sleep(_STREAM_REST_S)
            folded = await self._insist(self._synced.receive)
            read_s = self._now()
            # What has gathered meanwhile says whether it still is one.
            has_gathered = isinstance(folded, int) and folded > 1
            streak = streak + 1 if is_soon and (has_gathered or not is_stream) else 0

    async def _look_all(self) -> None:
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            await self._insist(self._synced.receive)

    async def _poll(self) -> None:
        wait_s = _POLL_S_MIN
        while True:
            folded = await self._insist(self._synced.receive)
            wait_s = _POLL_S_MIN if folded else min(wait_s * 2, _POLL_S_MAX)
            await self._pause(wait_s)

    async def _insist(self, work: Callable[[], Awaitable[object]]) -> object:
        """Do something, again and again until it is done."""
        wait_s = _RETRY_S_MIN
        while True:
            try:
                done = await work()
            except PeerError as error:
                # It is done all the same; what is wrong was told.
                _end_if_told(error)
                self._note(work, error)
                return None
            except WalStoreError as error:
                _end_if_told(error)
                self._note(work, error)
                await self._pause(_pause_s(error, wait_s))
                wait_s = min(wait_s * 2, _RETRY_S_MAX)
            else:
                self._note(work, None)
                return done

    def _note(self, work: object, failure: WalStoreError | None) -> None:
        if failure is not None:
            self._failures[work] = failure
        elif self._failures.pop(work, None) is None:
            return
        self._on_failure(next(iter(self._failures.values()), None))

    async def _pause(self, seconds: float | None) -> None:
        """Wait, but not longer than until something has changed; None: just for that."""
        self._nudged.clear()
        if seconds is None:
            await self._nudged.wait()
            return
        sleeping = asyncio.ensure_future(self._sleep(seconds))
        nudged = asyncio.ensure_future(self._nudged.wait())
        try:
            await asyncio.wait({sleeping, nudged}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            nudged.cancel()


def _end_if_told(error: WalStoreError) -> None:
    """End, if what failed is what was to be done before the end: a full disk must not hide that
    a task was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


def _pause_s(error: WalStoreError, wait_s: float) -> float | None:
    """How long to wait after a failure; None if nothing but a change can help."""
    if isinstance(error, ElementRefusedError):
        return _REFUSED_S if error.is_of_author else None
    return wait_s if may_pass(error) else _RETRY_S_MAX


def may_pass(error: WalStoreError) -> bool:
    """Whether what failed may succeed later, although nothing else has changed."""
    return error.retryable if isinstance(error, TransportError) else isinstance(error, StorageError)


def _monotonic_s() -> float:
    return time.monotonic()
