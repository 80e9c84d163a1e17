"""A relay on a SQLite file whose database can be put back to what it was, as from a backup."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.stores import KEY, free_port
from walstore.document.ports import RawElement
from walstore.net import WebSocketTransport
from walstore.relay import Relay, SqliteLog
from walstore.signed import Identity

_READER = Identity.from_seed(bytes(32))


class Vault:
    """One relay, always at the same address."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._port = free_port()
        self._stack = AsyncExitStack()
        self.url = f"ws://127.0.0.1:{self._port}"

    async def start(self) -> Relay:
        log = await self._stack.enter_async_context(SqliteLog.open(self._path))
        return await self._stack.enter_async_context(Relay.serve(log, port=self._port))

    async def stop(self) -> None:
        await self._stack.aclose()

    async def save(self, name: str) -> None:
        """Keep a copy of the database as it is now."""
        await self.stop()
        shutil.copy(self._path, self._path.with_name(name))
        await self.start()

    async def put_back(self, name: str) -> None:
        """Have the relay go on from an older copy."""
        await self.stop()
        for each in self._path.parent.glob(f"{self._path.name}*"):
            each.unlink()
        shutil.copy(self._path.with_name(name), self._path)
        await self.start()

    async def lose_all(self) -> None:
        """Have the relay begin with nothing, and with other names for its logs."""
        await self.stop()
        for each in self._path.parent.glob(f"{self._path.name}*"):
            each.unlink()
        await self.start()

    async def elements(self) -> list[RawElement]:
        """Everything that the relay holds of the document."""
        found: list[RawElement] = []
        async with WebSocketTransport(self.url, identity=_READER) as transport:
            while page := await transport.pull(KEY, found[-1].ts if found else 0):
                found += page
        return found


@asynccontextmanager
async def vault(directory: Path) -> AsyncIterator[Vault]:
    """A relay for the length of a block; its first copy is called `empty`."""
    directory.mkdir(exist_ok=True)
    made = Vault(directory / "relay.db")
    await made.start()
    try:
        await made.save("empty")
        yield made
    finally:
        await made.stop()
