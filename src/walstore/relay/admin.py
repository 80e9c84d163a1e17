"""The operator's endpoints; all of them need the admin token, which the router has checked.

GET    /admin/retention      the policy
PATCH  /admin/retention      change members of it, and compact at once
GET    /admin/connections    who is connected
POST   /admin/compact        compact now; `?dry_run=1` only says what would go
GET    /admin/archives       how far each archive has come
PUT    /admin/archives       an archive says how far it has come
DELETE /admin/archives       `?archive=` one is given up, and holds nothing back any more
"""

from __future__ import annotations

from http import HTTPStatus

from walstore.canon import parse
from walstore.errors import MalformedError, UsageError
from walstore.relay.exchange import (
    HttpContext,
    HttpRequest,
    HttpResponse,
    Routes,
    json_response,
    refuse,
)

_FLAGS = {"": True, "1": True, "true": True, "0": False, "false": False}


async def _retention(_: HttpRequest, context: HttpContext) -> HttpResponse:
    return json_response(HTTPStatus.OK, await context.retention())


async def _change_retention(request: HttpRequest, context: HttpContext) -> HttpResponse:
    try:
        changes = parse(request.body)
    except MalformedError as error:
        return _not_json(error)
    if type(changes) is not dict or not changes:
        return refuse(HTTPStatus.BAD_REQUEST, "the body is not an object with members to change")
    try:
        return json_response(HTTPStatus.OK, await context.change_retention(changes))
    except UsageError as error:
        return refuse(HTTPStatus.BAD_REQUEST, str(error))


async def _connections(_: HttpRequest, context: HttpContext) -> HttpResponse:
    connections = [each._asdict() for each in context.connections()]
    return json_response(HTTPStatus.OK, {"connections": connections})


async def _compact(request: HttpRequest, context: HttpContext) -> HttpResponse:
    if unknown := request.query.keys() - {"dry_run"}:
        return refuse(HTTPStatus.BAD_REQUEST, f"{min(unknown)[:40]!r} is not an option")
    is_dry_run = _FLAGS.get(request.query.get("dry_run", "0"))
    if is_dry_run is None:
        # Nobody who misspells this wants things to be removed.
        return refuse(HTTPStatus.BAD_REQUEST, "`dry_run` is neither 1 nor 0")
    if request.body:
        return refuse(HTTPStatus.BAD_REQUEST, "a compaction takes no body")
    return json_response(HTTPStatus.OK, await context.compact(is_dry_run=is_dry_run))


async def _archives(_: HttpRequest, context: HttpContext) -> HttpResponse:
    return json_response(HTTPStatus.OK, {"archives": await context.archives()})


async def _report_archive(request: HttpRequest, context: HttpContext) -> HttpResponse:
    try:
        return json_response(HTTPStatus.OK, await context.report_archive(parse(request.body)))
    except MalformedError as error:
        return _not_json(error)
    except UsageError as error:
        return refuse(HTTPStatus.BAD_REQUEST, str(error))


async def _forget_archive(request: HttpRequest, context: HttpContext) -> HttpResponse:
    if request.query.keys() != {"archive"}:
        return refuse(HTTPStatus.BAD_REQUEST, "say which one: `?archive=`")
    try:
        await context.forget_archive(request.query["archive"])
    except UsageError as error:
        return refuse(HTTPStatus.NOT_FOUND, str(error))
    return json_response(HTTPStatus.OK, {"archives": await context.archives()})


def _not_json(error: MalformedError) -> HttpResponse:
    return refuse(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error.reason}")


ADMIN_ROUTES: Routes = {
    "/admin/retention": {"GET": _retention, "PATCH": _change_retention},
    "/admin/connections": {"GET": _connections},
    "/admin/compact": {"POST": _compact},
    "/admin/archives": {"GET": _archives, "PUT": _report_archive, "DELETE": _forget_archive},
}
