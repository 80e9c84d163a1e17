"""One HTTP exchange: what comes in, what goes out, and what the routes ask of a relay.

- Admin endpoints stay closed while no token is set. Tokens are compared in constant time.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl

import orjson

from walstore.relay.config import TOKEN_VARIABLE, Settings
from walstore.relay.info import Retained
from walstore.relay.log import DocumentStatus
from walstore.relay.metrics import Gauges, Metrics

JSON = "application/json"


class HttpRequest(NamedTuple):
    """A request; the names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class HttpResponse(NamedTuple):
    """A response; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ConnectionStatus(NamedTuple):
    """One websocket as an operator sees it.

    Attributes:
        peer: What the relay calls it.
        address: Where it comes from.
        keys: The keys that it has proved.
        subscriptions: How many it has.
        pending_bytes: What was sent and it has not read.
        in_flight: Its appends that wait for the disk.
        delivered: Live frames that were sent to it.
        connected_ms: When it came.
    """

    peer: str
    address: str
    keys: list[str]
    subscriptions: int
    pending_bytes: int
    in_flight: int
    delivered: int
    connected_ms: int


class HttpContext(Protocol):
    """What the routes ask of a relay. Whatever reads the log may raise `LogError`."""

    @property
    def settings(self) -> Settings:
        """How it was set up."""
        ...

    @property
    def metrics(self) -> Metrics:
        """What it has counted."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether it is about to stop."""
        ...

    @property
    def started_ms(self) -> int:
        """When it was started."""
        ...

    async def check_log(self) -> None:
        """Ask the log for something cheap.

        Raises:
            LogError: It does not answer.
        """
        ...

    async def retained(self) -> Retained:
        """How far back somebody can go."""
        ...

    async def gauges(self) -> Gauges:
        """The numbers of this moment."""
        ...

    async def documents(self, *, count_max: int) -> list[DocumentStatus]:
        """The documents, those that changed last first."""
        ...

    def connections(self) -> list[ConnectionStatus]:
        """Who is connected."""
        ...

    async def retention(self) -> Mapping[str, Any]:
        """The retention policy, as JSON."""
        ...

    async def change_retention(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change members of the policy, keep it, and compact at once.

        Returns:
            The policy and what was removed.

        Raises:
            UsageError: A member is unknown or has a wrong value; nothing has changed.
        """
        ...

    async def compact(self, *, is_dry_run: bool) -> Mapping[str, Any]:
        """Remove what the policy lets go, or only say what that would be."""
        ...

    async def archives(self) -> list[Mapping[str, Any]]:
        """How far each archive has come, as JSON."""
        ...

    async def report_archive(self, found: object) -> Mapping[str, Any]:
        """Take note of how far an archive has come; what was noted.

        Raises:
            UsageError: That cannot be so; nothing has changed.
        """
        ...

    async def forget_archive(self, name: str) -> None:
        """Let an archive hold nothing back any more.

        Raises:
            UsageError: There is none of this name.
        """
        ...


Route = Callable[[HttpRequest, HttpContext], Awaitable[HttpResponse]]
Routes = Mapping[str, Mapping[str, Route]]


def read_target(method: str, target: str, headers: Mapping[str, str], body: bytes) -> HttpRequest:
    """A request from what stands in its first line, its headers and its body."""
    path, _, query = target.partition("?")
    members = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=None))
    return HttpRequest(method, path, members, headers, body)


def json_response(
    status: int,
    value: object,
    *,
    content_type: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    """A response that is a JSON value."""
    body = orjson.dumps(value, default=dict) + b"\n"
    return HttpResponse(status, {"content-type": content_type, **(headers or {})}, body)


def refuse(status: int, reason: str, **headers: str) -> HttpResponse:
    """A response that says why not."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return json_response(status, {"error": reason}, headers=named)


def find_token_fault(request: HttpRequest, context: HttpContext) -> HttpResponse | None:
    """What to answer somebody who has not shown the admin token; None if they have."""
    token = context.settings.admin_token
    if token is None:
        return refuse(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"closed: this relay was started without {TOKEN_VARIABLE}",
        )
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    # Hashes have one length, so that not even the token's is told by the time this takes.
    if scheme.lower() == "bearer" and hmac.compare_digest(_hash(shown.strip()), _hash(token)):
        return None
    return refuse(HTTPStatus.UNAUTHORIZED, "the admin token is needed", www_authenticate="Bearer")


def _hash(text: str) -> bytes:
    return sha256(text.encode(errors="surrogateescape")).digest()
