"""Says to a relay how far its archive has come: it may let go of what is archived.

- Only what is committed is said, and of each archive only the last of it.
- Nothing waits for the relay. As long as it does not hear, it keeps more, and that is all.
- What may pass is tried again. What will not, such as a wrong token, is with the next commit; it
  keeps nothing else from being said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import random
from types import TracebackType
from typing import NamedTuple

from walstore.canon import canonical_bytes
from walstore.errors import TransportError
from walstore.net.backoff import Backoff

_logger = logging.getLogger("walstore.archive")

# How long the last attempts may take at the end.
CLOSING_MS_MAX = 10_000


class Progress(NamedTuple):
    """How far an archive has come.

    Attributes:
        archive: What the relay knows it by.
        prefix: What the keys of its documents begin with.
        position: The newest event that is committed.
        relay_id: The database that the position is of.
    """

    archive: str
    prefix: str
    position: int
    relay_id: str

    @property
    def text(self) -> bytes:
        """It as a relay wants to hear it."""
        return canonical_bytes({**self._asdict(), "position": str(self.position)})


class Reporting:
    """Says how far archives have come; its lifetime is an `async with` block."""

    def __init__(
        self,
        send: Callable[[Progress], Awaitable[None]],
        *,
        backoff: Backoff | None = None,
        closing_ms_max: int = CLOSING_MS_MAX,
    ) -> None:
        """Say it by a call, which raises `TransportError` if it was not heard."""
        self._send = send
        self._backoff = Backoff() if backoff is None else backoff
        self._closing_ms_max = closing_ms_max
        # What was not heard yet, by archive.
        self._due: dict[str, Progress] = {}
        self._stirred = asyncio.Event()
        self._reason: str | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Reporting:
        """Begin."""
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Say what was not heard, once more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(self._closing_ms_max / 1000):
                await self._send_due()
        except TransportError as failure:
            self._failed(failure)
        except TimeoutError:
            _logger.warning("the relay was not told how far the archive has come")

    def say(self, progress: Progress) -> None:
        """Say how far an archive has come, soon."""
        self._due[progress.archive] = progress
        self._stirred.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            self._stirred.clear()
            try:
                await self._send_due()
                failures = 0
            except TransportError as error:
                self._failed(error)
                if error.retryable:
                    await asyncio.sleep(self._backoff.pause_ms(failures, random()) / 1000)
                    failures += 1
                    continue
            await self._stirred.wait()

    async def _send_due(self) -> None:
        refused: TransportError | None = None
        for progress in list(self._due.values()):
            try:
                await self._send(progress)
            except TransportError as error:
                if error.retryable:
                    raise
                refused = refused or error
                continue
            # It may have come further meanwhile.
            if self._due[progress.archive] == progress:
                del self._due[progress.archive]
        if refused is not None:
            raise refused
        self._reason = None

    def _failed(self, error: TransportError) -> None:
        # Once is enough: a relay that is down stays down for many attempts.
        if str(error) != self._reason:
            _logger.warning("the relay does not hear how far the archive has come: %s", error)
        self._reason = str(error)
