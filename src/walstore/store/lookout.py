"""When roster and keyring are looked at: whenever there is reason to, and not too often.

- A relay that tells of a new record is heeded at once; so is a connection that was made anew, and
  nothing is read or sent over it before: it would be sealed with a key that is over, or taken for
  that of a stranger.
- What cannot be explained, an element of somebody unknown or one that cannot be opened, is a reason
  as well. Anybody can send such elements: if they turn out to be no news, the next look for the
  like of them waits longer.
- Now and then it is looked without a reason: not every relay tells.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from walstore.errors import PeerError, TransportError

# Between two looks: after one that was told of, or has found something; and at last.
_LOOK_S_MIN = 0.05
_LOOK_S_MAX = 60.0

# Without any reason.
_LOOK_S_IDLE = 300.0


class RecordsWaiter(Protocol):
    """Somebody who says when a record of a document was replaced."""

    async def wait_records(self) -> None:
        """Return when one was, since the last time."""
        ...


class SnapshotWaiter(Protocol):
    """Somebody who says when the snapshot of a document was replaced."""

    async def wait_snapshot(self) -> None:
        """Return when it was, since the last time."""
        ...


class Lookout:
    """Looks, when it is asked to and may."""

    def __init__(
        self,
        look: Callable[[], Awaitable[bool]],
        *,
        now: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare; `run` does it.

        Args:
            look: Looks, and says whether there was something new; it raises nothing.
            now: The time in seconds; the system's if left out.
            sleep: Waits.
        """
        self._look = look
        self._now = _monotonic_s if now is None else now
        self._sleep = sleep
        self._wanted = asyncio.Event()
        self._hurried = asyncio.Event()
        self._pause_s = 0.0
        # Counts reasons to look before anything else, and how many of them are settled: one that
        # arises meanwhile is not settled by an older answer.
        self._doubts = 1
        self._settled = 0
        self._looking = asyncio.Lock()

    def doubt(self) -> None:
        """Much may have happened since the last look: look before anything else."""
        self._doubts += 1

    @property
    def is_due(self) -> bool:
        """Whether it has to be looked before anything else."""
        return self._settled != self._doubts

    async def first(self, refresh: Callable[[], Awaitable[object]]) -> None:
        """Look, if that is to be done before anything else.

        Args:
            refresh: Reads roster and keyring.

        Raises:
            TransportError: They cannot be read now, but may be soon.
        """
        async with self._looking:
            if not self.is_due:
                return
            doubts = self._doubts
            try:
                await refresh()
            except PeerError:
                # What was known before counts. It is looked again, and told, when there is reason.
                pass
            except TransportError as error:
                if error.retryable:
                    raise
            self._settled = doubts

    def told(self) -> None:
        """There is something new, somebody says."""
        self._pause_s = min(self._pause_s, _LOOK_S_MIN)
        self._wanted.set()
        self._hurried.set()

    def suspect(self) -> None:
        """Something has come that something new may explain."""
        self._wanted.set()

    async def run(self) -> None:
        """Look whenever there is reason to, until cancelled."""
        looked_s: float | None = None
        while True:
            await self._until_wanted()
            while looked_s is not None and (left_s := looked_s + self._pause_s - self._now()) > 0:
                await self._wait(left_s)
            self._wanted.clear()
            self._hurried.clear()
            is_news = await self._look()
            looked_s = self._now()
            longer_s = min(max(self._pause_s * 2, _LOOK_S_MIN), _LOOK_S_MAX)
            self._pause_s = _LOOK_S_MIN if is_news else longer_s

    async def _until_wanted(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S_IDLE):
                await self._wanted.wait()

    async def _wait(self, seconds: float) -> None:
        """Wait, but not longer than until somebody tells of something new."""
        self._hurried.clear()
        sleeping = asyncio.ensure_future(self._sleep(seconds))
        hurried = asyncio.ensure_future(self._hurried.wait())
        try:
            await asyncio.wait({sleeping, hurried}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            hurried.cancel()


def _monotonic_s() -> float:
    return time.monotonic()
