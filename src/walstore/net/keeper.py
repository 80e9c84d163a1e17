"""Keeps a client connected: makes the connection, speaks and listens, and makes it again.

- What is said and heard is the client's business; how long to wait in between is the back-off's.
- A relay that breaks the protocol is told why, and left.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from walstore.net.backoff import Backoff
from walstore.net.client import RelayClient
from walstore.net.dialling import (
    CONNECTION_ERRORS,
    Connect,
    Connection,
    close_reason,
    is_final,
    reason_of,
)
from walstore.net.faults import NotAdmittedError, RelayFaultError
from walstore.net.status import State

# What a relay is told when it is left.
_NORMAL = 1000
_PROTOCOL_ERROR = 1002


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Timing(NamedTuple):
    """Time and chance, to be replaced in tests.

    Attributes:
        now_ms: A clock that never goes back.
        sleep: Waits for so many seconds.
        chance: Random numbers from 0 to 1.
    """

    now_ms: Callable[[], int] = _monotonic_ms
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class Keeper:
    """The connection of one client."""

    def __init__(
        self,
        client: RelayClient,
        url: str,
        *,
        connect: Connect,
        backoff: Backoff,
        timing: Timing,
        handshake_timeout_ms: int,
        on_events: Callable[[], None],
    ) -> None:
        """Prepare; `run` and `tick` do it.

        Args:
            client: Says what to send, and takes what comes.
            url: Where the relay is.
            connect: Opens a connection.
            backoff: The pauses before attempts.
            timing: Time and chance.
            handshake_timeout_ms: How long a relay may take to let the client in.
            on_events: Called when the client may have something to tell.
        """
        self._client = client
        self._url = url
        self._connect = connect
        self._backoff = backoff
        self._timing = timing
        self._handshake_s = handshake_timeout_ms / 1000
        self._on_events = on_events
        self._to_send = asyncio.Event()
        # Until when `tick` sleeps, None for ever; and what wakes it up before.
        self._asleep_until_ms: int | None = None
        self._is_sooner = asyncio.Event()
        self._connection: Connection | None = None

    @property
    def latency_ms(self) -> int | None:
        """How long the last ping took; None if there was none on this connection."""
        connection = self._connection
        if connection is None or not connection.latency:
            return None
        return round(connection.latency * 1000)

    def wake(self) -> None:
        """Look whether there is something to send, or to wait for."""
        if self._client.has_outgoing:
            self._to_send.set()
        self._wake_for_time()

    def _wake_for_time(self) -> None:
        due_ms, until_ms = self._client.due_ms, self._asleep_until_ms
        if due_ms is not None and (until_ms is None or due_ms < until_ms):
            self._is_sooner.set()

    async def tick(self) -> None:
        """Let the client know what time it is, whenever it waits for that, and only then."""
        while True:
            self._is_sooner.clear()
            due_ms = self._asleep_until_ms = self._client.due_ms
            if due_ms is None:
                await self._is_sooner.wait()
            elif (wait_ms := due_ms - self._timing.now_ms()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._is_sooner.wait()
            else:
                self._client.tick(self._timing.now_ms())
                self._on_events()

    async def run(self) -> None:
        """Connect, again and again."""
        failures = 0
        while True:
            up_ms = await self._attempt()
            failures = 0 if up_ms >= self._backoff.lasting_ms else failures + 1
            pause_ms = self._backoff.pause_ms(failures, self._timing.chance())
            if self._client.state is State.REFUSED:
                # What a relay does not take now, it will not take a moment later either.
                pause_ms = self._backoff.pause_ms_max
            if pause_ms > self._backoff.quick_ms_max:
                self._will_be_long()
            await self._timing.sleep(pause_ms / 1000)

    def _will_be_long(self) -> None:
        """Let nobody wait for an attempt that will not be made before they would give up."""
        if self._client.state is State.CONNECTING:
            self._client.lost(self._client.reason, self._timing.now_ms())
            self._on_events()

    async def _attempt(self) -> int:
        """One connection from its beginning to its end; how long it was up."""
        up_since_ms: int | None = None
        try:
            async with self._connect(self._url) as connection:
                up_since_ms = self._timing.now_ms()
                self._connection = connection
                await self._converse(connection)
        except CONNECTION_ERRORS as error:
            self._ended(error)
        except Exception as error:
            if up_since_ms is not None:
                raise
            # Names, proxies and servers make an attempt fail in ways that nobody has listed.
            self._ended(error)
        finally:
            self._connection = None
        return 0 if up_since_ms is None else self._timing.now_ms() - up_since_ms

    def _ended(self, error: Exception) -> None:
        end = self._client.refused if is_final(error) else self._client.lost
        end(reason_of(error), self._timing.now_ms())
        self._on_events()

    async def _converse(self, connection: Connection) -> None:
        self._client.connected()
        self._to_send.clear()
        tasks = [
            asyncio.create_task(self._listen(connection)),
            asyncio.create_task(self._speak(connection)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except (RelayFaultError, NotAdmittedError) as error:
            # Those who wait are told now, not after the relay has answered the closing.
            self._ended(error)
            code = _PROTOCOL_ERROR if isinstance(error, RelayFaultError) else _NORMAL
            # What goes wrong with that is no further loss.
            with suppress(*CONNECTION_ERRORS):
                await connection.close(code, close_reason(reason_of(error)))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, connection: Connection) -> None:
        async with asyncio.timeout(self._handshake_s):
            while self._client.state is not State.LIVE:
                self._take(await connection.recv())
        while True:
            self._take(await connection.recv())

    def _take(self, message: str | bytes) -> None:
        self._client.receive(message, self._timing.now_ms())
        self._on_events()

    async def _speak(self, connection: Connection) -> None:
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            while (frame := self._client.take_outgoing(self._timing.now_ms())) is not None:
                await connection.send(frame, text=True)
            if self._client.has_events:
                # Something was too large to be sent.
                self._on_events()
            # What was held back is due at a moment that nobody has waited for yet.
            self._wake_for_time()
