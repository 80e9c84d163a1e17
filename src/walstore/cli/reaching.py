"""Whether a relay can be reached, how long that takes, and what time it is there."""

from __future__ import annotations

import asyncio
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from walstore import net
from walstore.errors import TransportError
from walstore.net.status import State, TransportStatus
from walstore.signed.identity import Identity

_REACH_S = 5.0

# The key is the example of the standard: nothing is said on this connection.
_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class NotReachedError(TransportError):
    """A relay does not let anybody in, or is not there."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or f"no answer within {_REACH_S:.0f} s", retryable=True)


class Reached(NamedTuple):
    """A relay that answers.

    Attributes:
        ms: How long it took to be let in.
        time_s: What time it is there, in seconds since 1970; None if it does not say.
    """

    ms: int
    time_s: float | None


async def reach(relay: str, identity: Identity) -> Reached:
    """Connect, prove a key, and look at the clock.

    Raises:
        NotReachedError: It cannot be done.
        UsageError: It is not the address of a relay.
    """
    settled = asyncio.Event()

    def look(status: TransportStatus) -> None:
        if status.state is not State.CONNECTING:
            settled.set()

    began = time.monotonic()
    async with net.WebSocketTransport(relay, identity=identity) as transport:
        transport.on_status(look)
        try:
            async with asyncio.timeout(_REACH_S):
                await settled.wait()
        except TimeoutError:
            raise NotReachedError("") from None
        if transport.status.state is not State.LIVE:
            raise NotReachedError(transport.status.reason)
    took_ms = round((time.monotonic() - began) * 1000)
    return Reached(took_ms, await asyncio.to_thread(_time_there, relay))


def _time_there(relay: str) -> float | None:
    """The time that the relay says when a websocket is asked for, if it does."""
    parts = urlsplit(relay)
    kind = HTTPSConnection if parts.scheme == "wss" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_REACH_S)
    try:
        connection.request("GET", parts.path or "/", headers=_UPGRADE)
        said = connection.getresponse().getheader("Date")
        return None if said is None else parsedate_to_datetime(said).timestamp()
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
