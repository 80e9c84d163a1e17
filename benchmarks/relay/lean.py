"""A websocket client that does next to nothing, so that the server is what is measured.

- Blocking while a connection is made, non-blocking afterwards; one thread serves all of them.
- Frames are masked with zeros, so that they can be written once and sent often. A server undoes
  the mask all the same.
- Only whole messages are handed out; pings are answered. Nothing is ever sent compressed.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import zlib
from collections.abc import Iterator
from urllib.parse import urlsplit

_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA
_LAST, _COMPRESSED, _MASKED = 0x80, 0x40, 0x80
_READ_SIZE = 2**18
_WAIT_S_MAX = 60.0


class LostError(Exception):
    """The server has closed a connection; the message says with what words."""


def framed(payload: bytes, *, is_text: bool) -> bytes:
    """A message as a client sends it."""
    return _frame(_TEXT if is_text else 0x2, payload)


def _frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", _LAST | opcode, _MASKED | size)
    elif size < 2**16:
        head = struct.pack(">BBH", _LAST | opcode, _MASKED | 126, size)
    else:
        head = struct.pack(">BBQ", _LAST | opcode, _MASKED | 127, size)
    return head + bytes(4) + payload


class Connection:
    """One connection.

    Attributes:
        socket: What to wait for.
        received_bytes: All that has come, as it was on the wire.
    """

    def __init__(self, url: str, path: str = "/", *, is_compressed: bool = False) -> None:
        """Connect, and wait for the handshake."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.socket = socket.create_connection((parts.hostname, parts.port), _WAIT_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received_bytes = 0
        self._buffer = b""
        self._inflate = zlib.decompressobj(-15) if is_compressed else None
        self._shake_hands(parts.netloc, path)

    def _shake_hands(self, host: str, path: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        ]
        if self._inflate is not None:
            lines.append("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits")
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self._buffer:
            self._read()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise LostError(head.decode(errors="replace"))
        if self._inflate is not None and b"permessage-deflate" not in head:
            raise LostError("the server does not compress")

    def _read(self) -> None:
        data = self.socket.recv(_READ_SIZE)
        if not data:
            raise LostError("the server has closed the connection")
        self.received_bytes += len(data)
        self._buffer = self._buffer + data if self._buffer else data

    def send(self, frame: bytes) -> None:
        """Send a message that is framed already."""
        self.socket.sendall(frame)

    def receive(self) -> bytes:
        """Wait for one message."""
        while True:
            for message in self._messages(1):
                return message
            self._read()

    def messages(self) -> Iterator[bytes]:
        """The whole messages among what can be read now, and the rest of earlier reads."""
        try:
            self._read()
        except BlockingIOError:
            return
        yield from self._messages(None)

    def go_on_without_waiting(self) -> None:
        """Let nothing block any more; for those who know when there is something to read."""
        self.socket.setblocking(False)

    def forget_history(self) -> None:
        """Let go of what compressed messages need; only whole bytes are counted afterwards."""
        self._inflate = None

    def close(self) -> None:
        """Leave without a word."""
        self.socket.close()

    def _messages(self, count_max: int | None) -> Iterator[bytes]:
        buffer, at, found = self._buffer, 0, 0
        while (frame := _cut(buffer, at)) is not None and found != count_max:
            start, at = frame
            first, payload = buffer[start[0]], buffer[start[1] : at]
            opcode = first & 0x0F
            if opcode == _PING:
                self.socket.sendall(_frame(_PONG, payload))
            elif opcode == _CLOSE:
                raise LostError(payload[2:].decode(errors="replace"))
            elif opcode != _PONG:
                found += 1
                # Before somebody looks, as they may stop looking.
                self._buffer = buffer[at:]
                yield self._plain(payload) if first & _COMPRESSED else payload
        self._buffer = buffer[at:]

    def _plain(self, payload: bytes) -> bytes:
        if self._inflate is None:
            return payload
        return self._inflate.decompress(payload + b"\x00\x00\xff\xff")


def _cut(buffer: bytes, at: int) -> tuple[tuple[int, int], int] | None:
    """Where a frame begins, its payload begins, and it ends; None if it is not all there."""
    have = len(buffer) - at
    if have < 2:
        return None
    size, head = buffer[at + 1] & 0x7F, 2
    if size == 126:
        if have < 4:
            return None
        size, head = int.from_bytes(buffer[at + 2 : at + 4]), 4
    elif size == 127:
        if have < 10:
            return None
        size, head = int.from_bytes(buffer[at + 2 : at + 10]), 10
    end = at + head + size
    return ((at, at + head), end) if end <= len(buffer) else None
