"""Stands between a log and its server, and cuts the connection at a chosen moment.

- It looks for the commit of a batch that was written. What it does then is the test's choice:
  swallow the commit, or let it through and swallow the answer.
- Other traffic passes as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path

_SOCKET = ".s.PGSQL.5432"
_CHUNK = 2**16

# The text ends here: `BEGIN … READ COMMITTED` is none.
_COMMIT = b"COMMIT\0"


class Cut(Enum):
    """When a connection is cut."""

    NEVER = "never"
    BEFORE_COMMIT = "the server does not see the commit"
    AFTER_COMMIT = "the server commits, and its answer is lost"


class Proxy:
    """Passes bytes on, until it is told to cut."""

    def __init__(self, server: Path, directory: Path) -> None:
        """Prepare to stand before a server, in a directory of its own.

        `cut` says what happens to the next commit, and `is_final` that nobody comes through after.
        """
        self._server = server / _SOCKET
        self.directory = directory
        self.cut = Cut.NEVER
        self.is_final = False
        self.is_open = True
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        """Listens for the time of a block."""
        server = await asyncio.start_unix_server(self._accept, self.directory / _SOCKET)
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            if self.is_open:
                await self._pass_on(reader, writer)
        finally:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._server)
        down = asyncio.create_task(_copy(up_reader, writer))
        try:
            while chunk := await reader.read(_CHUNK):
                if self.cut is not Cut.NEVER and _COMMIT in chunk:
                    down.cancel()
                    await asyncio.wait([down])
                    if self.cut is Cut.AFTER_COMMIT:
                        await _let_finish(chunk, up_reader, up_writer)
                    self.cut = Cut.NEVER
                    self.is_open = not self.is_final
                    return
                up_writer.write(chunk)
                await up_writer.drain()
        finally:
            down.cancel()
            up_writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(_CHUNK):
        target.write(chunk)
        await target.drain()
    target.close()


async def _let_finish(
    chunk: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Sends the last words, and returns when the server has done all that they say."""
    writer.write(chunk)
    writer.write_eof()
    while await reader.read(_CHUNK):
        pass
