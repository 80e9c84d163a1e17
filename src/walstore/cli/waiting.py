"""Whoever comes second to a local file waits for its turn, but not for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
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
