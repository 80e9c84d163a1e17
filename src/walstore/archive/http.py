"""What an archive answers over HTTP, for operators and what looks after programs.

    GET  /health/live    200 as long as the process runs
    GET  /health/ready   200 once all tables are in the archive; else 503, and why
    GET  /status         what each table is doing
    GET  /metrics        for Prometheus
    POST /snapshot       a base of each table now: 200, 207 if some failed, 500 if all did

- One request for each connection, of limited size and time. `h11` reads it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple

import h11

from walstore.archive.metrics import CONTENT_TYPE
from walstore.archive.service import Service
from walstore.canon import Json

_logger = logging.getLogger("walstore.archive.http")

REQUEST_BYTES_MAX = 16 * 1024
REQUEST_S_MAX = 10.0
CONNECTIONS_MAX = 64

_JSON = "application/json"


class Answer(NamedTuple):
    """A response."""

    status: HTTPStatus
    body: bytes
    content_type: str = _JSON
    allow: str | None = None


class Front:
    """Answers requests about a service."""

    def __init__(self, service: Service) -> None:
        """Answer about a service."""
        self._service = service
        self._routes: dict[tuple[str, str], Callable[[], Awaitable[Answer]]] = {
            ("GET", "/health/live"): self._live,
            ("GET", "/health/ready"): self._ready,
            ("GET", "/status"): self._status,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/snapshot"): self._snapshot,
        }

    async def answer(self, method: str, path: str) -> Answer:
        """Answer a request; whatever happens, there is an answer."""
        allowed = [each for each, known in self._routes if known == path]
        if not allowed:
            return _told(HTTPStatus.NOT_FOUND, {"error": f"there is nothing at {path[:200]}"})
        route = self._routes.get(("GET" if method == "HEAD" else method, path))
        if route is None:
            refused = _told(HTTPStatus.METHOD_NOT_ALLOWED, {"error": f"use {allowed[0]}"})
            return refused._replace(allow=allowed[0])
        try:
            return await route()
        except Exception:
            # A bug in one answer must not leave the caller without any.
            _logger.exception("%s %s failed", method, path)
            return _told(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "internal error"})

    async def _live(self) -> Answer:
        return _told(HTTPStatus.OK, {"live": True})

    async def _ready(self) -> Answer:
        service = self._service
        status = HTTPStatus.OK if service.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        waiting: dict[str, Json] = {
            each.settings.name: each.shown().get("reason") or "its base is not written yet"
            for each in service.tables
            if not each.is_ready
        }
        return _told(status, {"ready": service.is_ready, "waiting": waiting})

    async def _status(self) -> Answer:
        return _told(HTTPStatus.OK, self._service.shown())

    async def _metrics(self) -> Answer:
        return Answer(HTTPStatus.OK, self._service.metrics.text(), CONTENT_TYPE)

    async def _snapshot(self) -> Answer:
        outcomes = await self._service.snapshot()
        failed = [each for each in outcomes.values() if each is not None]
        status = HTTPStatus.OK
        if failed:
            is_all = len(failed) == len(outcomes)
            status = HTTPStatus.INTERNAL_SERVER_ERROR if is_all else HTTPStatus.MULTI_STATUS
        return _told(
            status,
            {
                name: {"written": reason is None, **({} if reason is None else {"error": reason})}
                for name, reason in outcomes.items()
            },
        )


@asynccontextmanager
async def serving(front: Front, *, host: str, port: int) -> AsyncIterator[int]:
    """Answer on a port, which is given, as long as the block lasts.

    Raises:
        OSError: It cannot listen there.
    """
    places = asyncio.Semaphore(CONNECTIONS_MAX)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with places:
                await _converse(front, reader, writer)
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            _logger.debug("a connection ended early: %s", error)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, host, port, limit=REQUEST_BYTES_MAX)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _converse(
    front: Front, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
    try:
        async with asyncio.timeout(REQUEST_S_MAX):
            request = await _request(connection, reader)
    except h11.RemoteProtocolError as error:
        answer = _told(HTTPStatus(error.error_status_hint), {"error": "not understood"})
        if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await _send(connection, writer, answer, is_head=False)
        return
    if request is None:
        return
    method, path = request.method.decode("ascii"), request.target.decode("latin-1")
    answer = await front.answer(method, path.partition("?")[0])
    async with asyncio.timeout(REQUEST_S_MAX):
        await _send(connection, writer, answer, is_head=method == "HEAD")


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The request, with its body read and thrown away; None if nothing came."""
    request: h11.Request | None = None
    size = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            received = await reader.read(REQUEST_BYTES_MAX)
            size += len(received)
            if size > 4 * REQUEST_BYTES_MAX:
                raise h11.RemoteProtocolError("too large", error_status_hint=413)
            connection.receive_data(received)
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None


async def _send(
    connection: h11.Connection, writer: asyncio.StreamWriter, answer: Answer, *, is_head: bool
) -> None:
    headers = [
        ("content-type", answer.content_type),
        ("content-length", str(len(answer.body))),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("connection", "close"),
    ]
    if answer.allow is not None:
        headers.append(("allow", answer.allow))
    response = h11.Response(status_code=answer.status, headers=headers)
    writer.write(connection.send(response) or b"")
    if not is_head:
        writer.write(connection.send(h11.Data(data=answer.body)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


def _told(status: HTTPStatus, content: Json) -> Answer:
    return Answer(status, json.dumps(content, indent=2).encode() + b"\n")
