"""The system's clock, chance and threads, replaced for the length of a block.

- Whatever asks the system for the time gets the virtual one, as the node that asks sees it: each
  node's wall clock may be wrong by its own error. The clock that never goes back is always right.
- Whatever asks the system for randomness gets it from the seed, from a stream of the node's own.
- Nothing of walstore is replaced: what runs is what ships.
"""

from __future__ import annotations

import os
import random
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from anyio._backends import _asyncio as anyio_asyncio

from walstore.testing.simulator.disk import Disk, connect_to

_fsync = os.fsync

# When virtual time begins: an afternoon in 2025, in seconds since 1970.
EPOCH_S = 1_750_000_000


class Node:
    """A machine of the fleet, as the system sees it."""

    def __init__(self, name: str, seed: object) -> None:
        self.name = name
        # How wrong its wall clock is.
        self.clock_error_ms = 0
        # Until when it has no network.
        self.cut_until_s = 0.0
        # Whether its process is gone; what is left of it reaches nobody.
        self.is_dead = False
        self.disk: Disk | None = None
        self.random = random.Random(f"{seed}:{name}")


NODE: ContextVar[Node] = ContextVar("NODE")


class System:
    """What nodes get in place of the system's."""

    def __init__(self, now_s: Callable[[], float], seed: object) -> None:
        self._now_s = now_s
        self._nobody = Node("nobody", seed)

    def monotonic(self) -> float:
        """The clock that never goes back."""
        return self._now_s() + 1000.0

    def monotonic_ns(self) -> int:
        """The same in nanoseconds."""
        return round(self.monotonic() * 1e9)

    def time(self) -> float:
        """The wall clock of the node that asks."""
        return self.time_ns() / 1e9

    def time_ns(self) -> int:
        """The same in nanoseconds."""
        wrong_ns = NODE.get(self._nobody).clock_error_ms * 1_000_000
        return EPOCH_S * 10**9 + round(self._now_s() * 1e9) + wrong_ns

    def now_ms(self) -> int:
        """The same in milliseconds."""
        return self.time_ns() // 1_000_000

    def urandom(self, count: int) -> bytes:
        """Bytes of the node's own stream."""
        return NODE.get(self._nobody).random.randbytes(count)

    def fsync(self, handle: int) -> None:
        """Make what is written so far survive a power cut of the node."""
        disk = NODE.get(self._nobody).disk
        if disk is None:
            _fsync(handle)
        else:
            disk.sync(handle)

    def connect(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        """A database on the node's disk."""
        return connect_to(NODE.get(self._nobody).disk, *args, **kwargs)

    def token_bytes(self, count: int | None = None) -> bytes:
        """The same, for `secrets`."""
        return self.urandom(32 if count is None else count)

    def token_hex(self, count: int | None = None) -> str:
        """The same as hex digits."""
        return self.token_bytes(count).hex()


async def _run_here(func: Callable[..., Any], args: tuple[Any, ...], *_: Any, **__: Any) -> Any:
    await anyio_asyncio.AsyncIOBackend.checkpoint()
    return func(*args)


@contextmanager
def interposed(system: System, seed: object) -> Iterator[None]:
    """Let everybody in this process live in a system of ours."""
    former = random.getstate()
    replaced: list[tuple[Any, str, Any]] = [
        (time, "monotonic", system.monotonic),
        (time, "monotonic_ns", system.monotonic_ns),
        (time, "time", system.time),
        (time, "time_ns", system.time_ns),
        (os, "urandom", system.urandom),
        (os, "fsync", system.fsync),
        (sqlite3, "connect", system.connect),
        (secrets, "token_bytes", system.token_bytes),
        (secrets, "token_hex", system.token_hex),
        (anyio_asyncio.AsyncIOBackend, "run_sync_in_worker_thread", _run_here),
    ]
    with ExitStack() as stack:
        for owner, name, substitute in replaced:
            stack.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, substitute)
        random.seed(f"{seed}:shared")
        stack.callback(random.setstate, former)
        yield
