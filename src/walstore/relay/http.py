"""What a relay answers over plain HTTP: a request and what is known in, a response out.

- No sockets here: `connection` reads requests and writes responses.
- Nothing about documents is told without the admin token, unless everybody may do everything and
  everybody is on this machine. Then the request has to name this machine too, because a web page
  can make a name of its own point here and have the browser ask.
- Every response says that it must not be sniffed, framed or kept.

    GET  /                   the info document, or the status page for a browser
    GET  /healthz  /readyz   alive; the log answers and the relay is not draining
    GET  /metrics            for Prometheus
    GET  /status             what the status page shows
         /admin/…            see `admin`
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from walstore.relay.admin import ADMIN_ROUTES
from walstore.relay.config import is_loopback
from walstore.relay.exchange import (
    JSON,
    HttpContext,
    HttpRequest,
    HttpResponse,
    Routes,
    find_token_fault,
    json_response,
    refuse,
)
from walstore.relay.info import info_document, software_version
from walstore.relay.log import LogError
from walstore.relay.metrics import CONTENT_TYPE
from walstore.relay.page import status_page

_logger = logging.getLogger("walstore.relay.http")

# What the status page lists; more would be neither read nor quick.
DOCUMENTS_SHOWN_MAX = 500
CONNECTIONS_SHOWN_MAX = 500

_NOSTR = "application/nostr+json"
_HTML = "text/html"

_ALWAYS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


async def respond(request: HttpRequest, context: HttpContext) -> HttpResponse:
    """Answer a request; whatever happens, there is an answer."""
    try:
        response = await _route(request, context)
    except LogError as error:
        _logger.error("%s %s: %s", request.method, request.path, error)
        response = json_response(
            HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the log is unavailable"}
        )
    except Exception:
        # A bug in one route must not leave the client without an answer.
        _logger.exception("%s %s failed", request.method, request.path)
        response = json_response(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "internal error"})
    return finished(request.method, response)


def find_websocket_fault(
    path: str, headers: Mapping[str, str], context: HttpContext
) -> tuple[HTTPStatus, str] | None:
    """Why a request for a websocket is not granted; None if it is."""
    if urlsplit(path).path not in ("/", "/ws"):
        return HTTPStatus.NOT_FOUND, "connect to / or /ws\n"
    if context.is_draining:
        return HTTPStatus.SERVICE_UNAVAILABLE, "the relay is restarting\n"
    origin = headers.get("origin", "")
    if context.settings.is_private_to_machine and origin and not _is_local_origin(origin):
        # Any web page can dial this machine. Where every key may do everything, only pages of
        # this machine are let in.
        return HTTPStatus.FORBIDDEN, "an open relay takes no connections from other sites\n"
    return None


def is_own_host(host: str, local_address: str) -> bool:
    """Whether a `Host` header names where the request has really arrived.

    Another relay that passes a client's proof on can put any name there, its own for one; only
    this machine's names and the address that was dialled are beyond its reach.
    """
    name = _hostname(f"//{host}")
    return name is not None and (is_loopback(name) or name == local_address.lower())


async def _route(request: HttpRequest, context: HttpContext) -> HttpResponse:
    methods = _ROUTES.get(request.path)
    if methods is None:
        return refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
    if request.path.startswith("/admin/") and (fault := find_token_fault(request, context)):
        return fault
    wanted = "GET" if request.method == "HEAD" else request.method
    route = methods.get(wanted)
    if route is not None:
        return await route(request, context)
    allowed = ", ".join(sorted({*methods, "OPTIONS", *({"HEAD"} if "GET" in methods else ())}))
    if request.method == "OPTIONS":
        cors = _cors() if request.path == "/" else {}
        return HttpResponse(HTTPStatus.NO_CONTENT, {"allow": allowed, **cors}, b"")
    return refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"{allowed} only", allow=allowed)


def finished(method: str, response: HttpResponse) -> HttpResponse:
    """A response with the headers that every one has."""
    headers = {**_ALWAYS, **response.headers}
    if response.status != HTTPStatus.NO_CONTENT:
        headers["content-length"] = str(len(response.body))
    return HttpResponse(response.status, headers, b"" if method == "HEAD" else response.body)


async def _root(request: HttpRequest, context: HttpContext) -> HttpResponse:
    kind = _preferred(request.headers.get("accept", ""))
    if kind == _HTML:
        return _page()
    document = info_document(context.settings, await context.retained())
    headers = {**_cors(), "vary": "accept"}
    return json_response(HTTPStatus.OK, document, content_type=kind, headers=headers)


def _page() -> HttpResponse:
    page = status_page()
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": page.policy,
        "vary": "accept",
    }
    return HttpResponse(HTTPStatus.OK, headers, page.body)


async def _alive(_: HttpRequest, __: HttpContext) -> HttpResponse:
    return json_response(HTTPStatus.OK, {"status": "alive"})


async def _ready(_: HttpRequest, context: HttpContext) -> HttpResponse:
    if context.is_draining:
        return refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the relay is shutting down")
    await context.check_log()
    return json_response(HTTPStatus.OK, {"status": "ready"})


async def _metrics(_: HttpRequest, context: HttpContext) -> HttpResponse:
    body = context.metrics.text(await context.gauges())
    return HttpResponse(HTTPStatus.OK, {"content-type": CONTENT_TYPE}, body)


async def _status(request: HttpRequest, context: HttpContext) -> HttpResponse:
    is_shown_to_all = context.settings.is_private_to_machine and is_own_host(
        request.headers.get("host", ""), context.settings.host
    )
    if not is_shown_to_all and (fault := find_token_fault(request, context)):
        return fault
    retained, gauges = await context.retained(), await context.gauges()
    documents = await context.documents(count_max=DOCUMENTS_SHOWN_MAX)
    connections = context.connections()
    status = {
        "name": context.settings.name,
        "version": software_version(),
        "started_ms": context.started_ms,
        "is_draining": context.is_draining,
        "head_seq": retained.head_seq,
        "min_seq": retained.min_seq,
        "pending_bytes": gauges.pending_bytes,
        "documents_total": gauges.documents,
        "documents": [each._asdict() for each in documents],
        "connections_total": len(connections),
        "connections": [each._asdict() for each in connections[:CONNECTIONS_SHOWN_MAX]],
        "retention": await context.retention(),
    }
    return json_response(HTTPStatus.OK, status)


def _preferred(accept: str) -> str:
    """Which of the three that `/` can be is wanted most; programs that do not say get JSON."""
    best, best_weight = JSON, 0.0
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        weight = _weight(parameters)
        if kind in (JSON, _NOSTR, _HTML) and weight > best_weight:
            best, best_weight = kind, weight
    return best


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, text = parameter.partition("=")
        if name == "q":
            try:
                return float(text)
            except ValueError:
                return 0.0
    return 1.0


def _cors() -> dict[str, str]:
    return {
        "access-control-allow-origin": "*",
        "access-control-allow-headers": "*",
        "access-control-allow-methods": "GET, HEAD, OPTIONS",
    }


def _is_local_origin(origin: str) -> bool:
    name = _hostname(origin)
    return name is not None and is_loopback(name)


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


_ROUTES: Routes = {
    "/": {"GET": _root},
    "/healthz": {"GET": _alive},
    "/readyz": {"GET": _ready},
    "/metrics": {"GET": _metrics},
    "/status": {"GET": _status},
    **ADMIN_ROUTES,
}
