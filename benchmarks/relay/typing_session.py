"""One who types and one who reads, through the public API, on connections that are counted."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.client import ClientProtocol

from walstore import Identity
from walstore.document import ALLOW_ANY, WalDocument
from walstore.net import WebSocketTransport
from walstore.net.dialling import Connection

_DOCUMENT = "typing"
_WAIT_S_MAX = 60.0


class Counted:
    """What went over one connection."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0

    def connect(self, url: str) -> AbstractAsyncContextManager[Connection]:
        """Open a websocket as the transport does, and count."""
        return connect(url, compression="deflate", create_connection=_counting(self))


def _counting(counted: Counted) -> type[ClientConnection]:
    class Counting(ClientConnection):
        def __init__(self, protocol: ClientProtocol, **options: Any) -> None:
            super().__init__(protocol, **options)
            take = protocol.data_to_send

            def data_to_send() -> list[bytes]:
                parts = take()
                counted.sent_bytes += sum(map(len, parts))
                return parts

            protocol.data_to_send = data_to_send  # type: ignore[method-assign]

        def data_received(self, data: bytes) -> None:
            counted.received_bytes += len(data)
            super().data_received(data)

    return Counting


async def bytes_per_keystroke(url: str, count: int) -> dict[str, float]:
    """Bytes that each character takes, to the relay and from there to a reader.

    Args:
        url: Where the relay is.
        count: Characters that are typed before it is measured, and again as many while it is.
    """
    up, down = Counted(), Counted()
    ann, bob = Identity.from_seed(bytes([7]) * 32), Identity.from_seed(bytes([8]) * 32)
    async with (
        asyncio.timeout(_WAIT_S_MAX),
        WebSocketTransport(url, identity=ann, connect=up.connect) as sending,
        WebSocketTransport(url, identity=bob, connect=down.connect) as reading,
        reading.follow(_DOCUMENT, 0) as follow,
    ):
        document = WalDocument(
            _DOCUMENT,
            transport=sending,
            identity=ann,
            writers=ALLOW_ANY,
            snapshot_role=ALLOW_ANY,
        )
        await document.open()
        seen = sent = received = checkpoint = 0
        for number in range(2 * count):
            if number == count:
                sent, received = up.sent_bytes, down.received_bytes
            document.insert_text("text", number, "abcdefghij klmnopqrst"[number % 21])
            await document.commit()
            while seen <= number:
                page = await reading.pull(_DOCUMENT, checkpoint)
                if not page:
                    await follow.wait()
                    continue
                seen += len(page)
                checkpoint = page[-1].ts
        return {
            "to the relay": (up.sent_bytes - sent) / count,
            "to a reader": (down.received_bytes - received) / count,
        }
