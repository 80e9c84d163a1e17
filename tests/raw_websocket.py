"""A websocket that says any bytes: what is wrong with them is the point."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.relay_clients import PATIENCE_S

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIN, RSV1, RSV2, RSV3 = 0x80, 0x40, 0x20, 0x10


class Heard(NamedTuple):
    """A frame as it came."""

    opcode: int
    payload: bytes

    @property
    def close_code(self) -> int:
        """The code of a closing frame."""
        assert self.opcode == CLOSE, self
        return int.from_bytes(self.payload[:2]) if self.payload else 1005


def framed(
    opcode: int,
    payload: bytes = b"",
    *,
    flags: int = FIN,
    is_masked: bool = True,
    size: int | None = None,
    width: int | None = None,
) -> bytes:
    """One frame.

    Args:
        opcode: Any number up to 15.
        payload: What it holds.
        flags: The high bits of the first byte.
        is_masked: Whether it is masked, as a client's has to be.
        size: The size that it claims to have.
        width: In how many bytes the size is written; as few as possible if left out.
    """
    size = len(payload) if size is None else size
    width = width or (0 if size < 126 else 2 if size < 2**16 else 8)
    length = size if width == 0 else 126 if width == 2 else 127
    head = bytes([flags | opcode, length | (0x80 if is_masked else 0)])
    if width:
        head += size.to_bytes(width)
    if not is_masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + bytes(each ^ mask[at % 4] for at, each in enumerate(payload))


def closing(code: int, reason: bytes = b"") -> bytes:
    """A closing frame."""
    return framed(CLOSE, struct.pack("!H", code) + reason)


class RawSocket:
    """A connection after its handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def say(self, *parts: bytes) -> None:
        """Send bytes."""
        for part in parts:
            self.writer.write(part)
        await self.writer.drain()

    async def hear(self) -> Heard:
        """The next frame."""
        async with asyncio.timeout(PATIENCE_S):
            first, second = await self._reader.readexactly(2)
            size = second & 0x7F
            if size > 125:
                size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8))
            return Heard(first & 0xF, await self._reader.readexactly(size))

    async def close_code(self) -> int:
        """How the other side closes; what it says before is passed over."""
        while (heard := await self.hear()).opcode != CLOSE:
            pass
        return heard.close_code


@asynccontextmanager
async def raw_websocket(port: int, *, extensions: str | None = None) -> AsyncIterator[RawSocket]:
    """Shake hands with a relay and pass over its hello."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    offered = f"Sec-WebSocket-Extensions: {extensions}\r\n" if extensions else ""
    writer.write(
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n{offered}\r\n".encode()
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head
        assert (b"permessage-deflate" in head) == (extensions is not None)
        socket = RawSocket(reader, writer)
        hello = await socket.hear()
        assert extensions is not None or b"HELLO" in hello.payload
        yield socket
    finally:
        writer.close()
