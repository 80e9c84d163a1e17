"""How a websocket to a relay is opened, and what is needed of it.

- A relay is where its URL says: whoever answers in its place, such as the portal of a hotel, sends
  nobody elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from ipaddress import ip_address
from typing import Protocol

from websockets.asyncio import client as websockets_client
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.uri import parse_uri

from walstore.errors import UsageError
from walstore.net.faults import NotAdmittedError, RelayFaultError
from walstore.net.frame_bounds import BoundedConnection
from walstore.net.reasons import reason_of_system
from walstore.signed.auth import relay_address
from walstore.wire.limits import FRAME_OF_RELAY_BYTES_MAX

# A connection that says nothing is dead after at most twice this.
_PING_S = 10
_OPEN_S = 10
_CLOSE_S = 2

# Messages that have come and were not looked at yet; then the relay has to wait.
_MESSAGES_MAX = 8

# What a server answers a handshake with when it makes sense to try again.
_BUSY_STATUSES = frozenset({408, 425, 429})

# What ends a connection, or an attempt to make one.
CONNECTION_ERRORS = (
    OSError,
    TimeoutError,
    EOFError,
    WebSocketException,
    RelayFaultError,
    NotAdmittedError,
)


class RelayUrlError(UsageError):
    """A URL that is not that of a relay.

    Attributes:
        url: The URL.
    """

    def __init__(self, url: str) -> None:
        super().__init__(f"{url!r} is not the URL of a relay: ws://host:port or wss://host:port")
        self.url = url


class Connection(Protocol):
    """What is needed of a websocket."""

    @property
    def latency(self) -> float:
        """How long the last ping took, in seconds; 0 if there was none yet."""
        ...

    async def recv(self) -> str | bytes:
        """The next message."""
        ...

    async def send(self, message: bytes, text: bool) -> None:
        """Send a text message that is encoded already; waits while too much is unsent."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Say why, and close."""
        ...


class _BoundedConnection(BoundedConnection, websockets_client.ClientConnection):
    """What a hostile relay sends costs a client no more than it costs a relay."""


class _Dialled(websockets_client.connect):
    """A websocket that is opened where it was asked for."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


Connect = Callable[[str], AbstractAsyncContextManager[Connection]]


def websocket_connect(*, compression: bool | None = None) -> Connect:
    """Opens websockets whose every buffer is bounded, and that notice when nobody is there.

    Args:
        compression: Whether to offer compression; if left out, unless the relay is on this machine.
    """

    def connect(url: str) -> AbstractAsyncContextManager[Connection]:
        is_offered = not _is_here(url) if compression is None else compression
        return _Dialled(
            url,
            compression="deflate" if is_offered else None,
            max_size=FRAME_OF_RELAY_BYTES_MAX,
            max_queue=_MESSAGES_MAX,
            open_timeout=_OPEN_S,
            close_timeout=_CLOSE_S,
            ping_interval=_PING_S,
            ping_timeout=_PING_S,
            user_agent_header=None,
            create_connection=_BoundedConnection,
        )

    return connect


def address_of(url: str) -> str:
    """The host and port that a URL dials.

    Raises:
        RelayUrlError: It is not the URL of a relay.
    """
    try:
        parsed = parse_uri(url)
    except (InvalidURI, ValueError) as error:
        raise RelayUrlError(url) from error
    return relay_address(parsed.host, parsed.port)


def _is_here(url: str) -> bool:
    """Whether a URL is of this machine: nothing that is sent there crosses a network."""
    host = parse_uri(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_final(error: Exception) -> bool:
    """Whether the same attempt would end in the same way a moment later."""
    match error:
        case NotAdmittedError():
            return not error.retryable
        case InvalidStatus():
            status = error.response.status_code
            return 400 <= status < 500 and status not in _BUSY_STATUSES
        case _:
            return False


def reason_of(error: Exception) -> str:
    """Why a connection ended, for people."""
    match error:
        case ConnectionClosed() if error.rcvd is not None:
            return f"closed by the relay: {error.rcvd.code} {error.rcvd.reason}".rstrip()
        case ConnectionClosed():
            return "the connection was lost"
        case InvalidStatus():
            status = error.response.status_code
            elsewhere = ", which leads elsewhere and is not followed" if 300 <= status < 400 else ""
            return f"the server answers with HTTP {status}{elsewhere}"
        case NotAdmittedError():
            return error.reason
        case TimeoutError():
            return "the relay does not answer"
        case OSError():
            return reason_of_system(error)
        case _:
            return str(error) or type(error).__name__


def close_reason(reason: str) -> str:
    """What fits of it into a closing frame."""
    return reason.encode()[:120].decode(errors="ignore")
