"""Whoever waits is told so, and does not wait for ever: for a local file, for an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from walstore.cli.output import note
from walstore.errors import StorageError
from walstore.local import LocalFileInUseError

T = TypeVar("T")

# How long a command waits for another one: about what a slow exchange with a relay takes.
WAIT_S = 15.0
_LOOK_S = 0.02
_SAY_AFTER_S = 1.0


class BusyFileError(StorageError):
    """Another program has a document open, and does not close it."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            f"{file}: another program has had this document open for more than {WAIT_S:.0f} s;"
            " close it there and try again"
        )


async def in_turn(file: Path, opening: Callable[[], Awaitable[T]]) -> T:
    """Open something that one process at a time may have.

    Raises:
        BusyFileError: Another program has it, and keeps it.
    """
    began, is_said = time.monotonic(), False
    while True:
        try:
            return await opening()
        except LocalFileInUseError as error:
            waited_s = time.monotonic() - began
            if waited_s >= WAIT_S:
                raise BusyFileError(file) from error
        if waited_s >= _SAY_AFTER_S and not is_said:
            is_said = True
            note("waiting for another program that has this document open …")
        await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def told_if_slow(what: str) -> AsyncIterator[None]:
    """Say what is waited for, if a block takes longer than a moment."""

    async def say() -> None:
        await asyncio.sleep(_SAY_AFTER_S)
        note(f"waiting for {what} …")

    saying = asyncio.create_task(say())
    try:
        yield
    finally:
        saying.cancel()
        await asyncio.wait([saying])
