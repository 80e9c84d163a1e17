"""Plain HTTP and websockets on one port.

- A connection is read up to the end of its first request's head; only then it is decided what it
  is. A GET with an `Upgrade` goes to the websockets library as it came, the rest to h11.
- One request, one response: a plain connection is closed after it.
- Everything that a stranger can make us hold or wait for has its limit: the head, the body, the
  time for both, the time for reading the response, and how many connections there are.

    undecided ──► websocket    handshake, then frames
             └──► plain        request, response, closed
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import Server, ServerConnection
from websockets.http11 import Request, Response

from walstore.net.frame_bounds import BoundedConnection
from walstore.relay.exchange import HttpContext, HttpRequest, HttpResponse, read_target, refuse
from walstore.relay.http import find_websocket_fault, finished, respond

# What the websockets library takes of a head is more; what browsers send is far less.
HEAD_BYTES_MAX = 16 * 2**10

# The largest body is a retention policy.
BODY_BYTES_MAX = 64 * 2**10

# A compaction of a large relay takes its time; a response to a slow reader may, too.
ANSWER_S_MAX = 600
READING_S_MAX = 30

# What is read from one connection at a time, before others have their turn. The smallest frames
# have six bytes, and each takes its time; asyncio would read 256 KiB of them.
READ_BYTES_MAX = 8 * 2**10

# Beyond the websockets that are allowed: for health checks, metrics and the status page.
PLAIN_CONNECTIONS_MAX = 256

_HEAD_END = re.compile(rb"\n\r?\n")
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)

ProcessRequest = Callable[[ServerConnection, Request], Awaitable[Response | None] | Response | None]
ProcessResponse = Callable[
    [ServerConnection, Request, Response], Awaitable[Response | None] | Response | None
]


class _Kind(Enum):
    UNDECIDED = auto()
    WEBSOCKET = auto()
    PLAIN = auto()


class RelayConnection(BoundedConnection, ServerConnection):
    """A connection that may turn out to be a websocket or a plain HTTP request.

    To be served with `open_timeout=None`: the times are kept here.
    """

    context: ClassVar[HttpContext]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kind = _Kind.UNDECIDED
        self._head = bytearray()
        self._plain: _PlainRequest | None = None
        self._has_sent_all = False
        self._decided: asyncio.Future[None] = self.loop.create_future()
        self._asked: asyncio.Future[HttpRequest | HttpResponse] = self.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, unless there are too many."""
        # Where a transport is not asyncio's own, this says nothing to it.
        transport.max_size = READ_BYTES_MAX  # type: ignore[attr-defined]
        limit = self.context.settings.limits.connections_max + PLAIN_CONNECTIONS_MAX
        if len(self.server.handlers) < limit:
            super().connection_made(transport)
        else:
            # Without a handler it is forgotten as soon as it is gone.
            Connection.connection_made(self, transport)
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass data on to whom it is for."""
        match self._kind:
            case _Kind.WEBSOCKET:
                super().data_received(data)
            case _Kind.PLAIN:
                self._read_plain(data)
            case _Kind.UNDECIDED:
                self._head += data
                self._decide()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client that has sent all may still wait for its answer."""
        if self._kind is not _Kind.PLAIN or self._has_sent_all:
            super().eof_received()
            return False
        self._has_sent_all = True
        return True

    async def handshake(
        self,
        process_request: ProcessRequest | None = None,
        process_response: ProcessResponse | None = None,
        server_header: str | None = None,
    ) -> None:
        """Find out what the connection is; answer it, or open the websocket."""
        try:
            async with asyncio.timeout(self.context.settings.handshake_ms_max / 1000):
                await self._first_of(self._decided)
                if self._kind is not _Kind.PLAIN:
                    await super().handshake(process_request, process_response, server_header)
                    return
                await self._first_of(self._asked)
        except TimeoutError:
            self.transport.abort()
            return
        if self._asked.done():
            await self._answer(self._asked.result())

    def let_go(self) -> None:
        """Close a connection that has not asked for anything yet."""
        if not self._decided.done():
            self.transport.abort()

    def _decide(self) -> None:
        if not _HEAD_END.search(self._head):
            if len(self._head) <= HEAD_BYTES_MAX and self._head[:1].isalpha():
                return
            self._kind = _Kind.PLAIN
            is_http = self._head[:1].isalpha()
            status = (
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if is_http else HTTPStatus.BAD_REQUEST
            )
            self._asked.set_result(refuse(status, "this is not a request that is served here"))
        elif self._head.startswith(b"GET ") and _UPGRADE.search(self._head):
            self._kind = _Kind.WEBSOCKET
            super().data_received(bytes(self._head))
        else:
            self._kind = _Kind.PLAIN
            self._plain = _PlainRequest()
            self._read_plain(bytes(self._head))
        self._head.clear()
        self._decided.set_result(None)

    def _read_plain(self, data: bytes) -> None:
        # What comes after the request is not looked at: the connection is closed after it.
        if self._plain is None or self._asked.done():
            return
        asked = self._plain.receive(data)
        if asked is not None:
            self._asked.set_result(asked)
        elif self._plain.is_waiting:
            self.transport.write(self._plain.go_on())

    async def _answer(self, asked: HttpRequest | HttpResponse) -> None:
        if isinstance(asked, HttpRequest):
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    response = await respond(asked, self.context)
            except TimeoutError:
                return
        else:
            response = finished("GET", asked)
        if self.transport.is_closing():
            return
        self.transport.write(written(response))
        if self.transport.can_write_eof() and not self._has_sent_all:
            # Closing at once could take back the answer if the client is still sending.
            self.transport.write_eof()
            self._has_sent_all = True
        else:
            self.transport.close()
        try:
            async with asyncio.timeout(READING_S_MAX):
                await asyncio.shield(self.connection_lost_waiter)
        except TimeoutError:
            self.transport.abort()

    async def _first_of(self, wanted: asyncio.Future[Any]) -> None:
        """Wait for something, or for the end of the connection."""
        await asyncio.wait(
            [wanted, self.connection_lost_waiter], return_when=asyncio.FIRST_COMPLETED
        )


class _PlainRequest:
    """A request as it comes in."""

    def __init__(self) -> None:
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._request: h11.Request | None = None
        self._body = bytearray()

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits to be told to send the body."""
        return self._parser.they_are_waiting_for_100_continue

    def go_on(self) -> bytes:
        """What tells it so."""
        return self._parser.send(h11.InformationalResponse(status_code=100, headers=[])) or b""

    def receive(self, data: bytes) -> HttpRequest | HttpResponse | None:
        """The request once it is whole, or what to answer if it never will be."""
        try:
            self._parser.receive_data(data)
            while True:
                event = self._parser.next_event()
                match event:
                    case h11.Request():
                        self._request = event
                    case h11.Data():
                        self._body += event.data
                        if len(self._body) > BODY_BYTES_MAX:
                            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                            return refuse(status, f"more than {BODY_BYTES_MAX} bytes")
                    case h11.EndOfMessage():
                        return self._whole()
                    case _:
                        return None
        except h11.RemoteProtocolError as error:
            return refuse(error.error_status_hint, "this is not an HTTP request")

    def _whole(self) -> HttpRequest:
        assert self._request is not None
        headers = {name.decode(): value.decode("latin-1") for name, value in self._request.headers}
        method = self._request.method.decode()
        return read_target(method, self._request.target.decode(), headers, bytes(self._body))


def connection_class(context: HttpContext) -> type[RelayConnection]:
    """What `websockets.asyncio.server.serve` takes as `create_connection`."""
    return type("RelayConnection", (RelayConnection,), {"context": context})


def request_processor(
    context: HttpContext,
) -> Callable[[ServerConnection, Request], Response | None]:
    """What `websockets.asyncio.server.serve` takes as `process_request`."""

    def process_request(connection: ServerConnection, request: Request) -> Response | None:
        headers: Mapping[str, str] = {
            name.lower(): value for name, value in request.headers.raw_items()
        }
        fault = find_websocket_fault(request.path, headers, context)
        return None if fault is None else connection.respond(*fault)

    return process_request


async def let_nobody_in(server: Server) -> None:
    """Accept no more connections, and wait until all that were accepted are known.

    A server that is closed while one of them is on its way would forget it, still open.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        with suppress(NotImplementedError):
            loop.remove_reader(listening)
    # From being accepted to being known asyncio takes two turns.
    for _ in range(2):
        await asyncio.sleep(0)


def let_undecided_go(server: Server) -> None:
    """Close the connections that have asked for nothing yet, so that a drain need not wait."""
    for connection in list(server.handlers):
        if isinstance(connection, RelayConnection):
            connection.let_go()


def written(response: HttpResponse) -> bytes:
    """A response as it is sent."""
    status = HTTPStatus(response.status)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + response.body
