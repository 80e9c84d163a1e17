"""pycrdt-websocket with its own store on; runs in the peers' environment, and imports nothing else.

Run as `python pycrdt_server.py DATABASE`; prints its address. The front is the same websockets
library that walstore's relay uses, through a channel of a few lines.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any

_websockets = import_module("websockets.asyncio.server")
_exceptions = import_module("websockets.exceptions")
_pycrdt = import_module("pycrdt.websocket")
_store = import_module("pycrdt.store")


class Store(_store.SQLiteYStore):  # type: ignore[misc, name-defined]
    """The store as it comes; only where it is has to be said."""

    db_path = sys.argv[1]


class Server(_pycrdt.WebsocketServer):  # type: ignore[misc, name-defined]
    """A server whose rooms have a store."""

    async def get_room(self, name: str) -> Any:
        """The room of a document, started."""
        if name not in self.rooms:
            self.rooms[name] = _pycrdt.YRoom(ready=True, ystore=Store(name), log=self.log)
        room = self.rooms[name]
        await self.start_room(room)
        return room


class Channel:
    """What a room needs of a connection."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.path = socket.request.path

    def __aiter__(self) -> Channel:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except _exceptions.ConnectionClosed:
            raise StopAsyncIteration from None

    async def send(self, message: bytes) -> None:
        """Send; whoever has left does not end the room."""
        try:
            await self._socket.send(message)
        except _exceptions.ConnectionClosed:
            return

    async def recv(self) -> bytes:
        """The next message."""
        message: bytes = await self._socket.recv()
        return message


async def main() -> None:
    """Serve until killed."""
    async with Server(auto_clean_rooms=False) as server:

        async def handle(socket: Any) -> None:
            await server.serve(Channel(socket))

        async with _websockets.serve(handle, "127.0.0.1", 0) as listening:
            port = next(iter(listening.sockets)).getsockname()[1]
            print(f"ws://127.0.0.1:{port}", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
