"""What a relay answers over HTTP: the routes by themselves, then through a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.served import TOKEN, Front, port_of, serving
from walstore.relay import MemoryLog, Relay, connection
from walstore.relay.config import Settings
from walstore.relay.connection import BODY_BYTES_MAX, HEAD_BYTES_MAX, let_undecided_go
from walstore.relay.exchange import ConnectionStatus, HttpRequest, HttpResponse, read_target
from walstore.relay.http import is_own_host, respond
from walstore.relay.info import Retained
from walstore.relay.log import DocumentStatus, Removed
from walstore.relay.metrics import STORED
from walstore.relay.page import status_page
from walstore.wire.frames import Code

BEARER = {"authorization": f"Bearer {TOKEN}"}
LOCAL = {"host": "127.0.0.1:3400"}
WITH_TOKEN = Settings(admin_token=TOKEN)
RESTRICTED = Settings(roles_table={"grant": []}, roles_source="roles.toml")
DOCUMENT = DocumentStatus("notes/a", 3, 200, 9, 0, 1, 5, 1_700_000_000_000)
PEER = ConnectionStatus("1", "127.0.0.1:5000", ["ab" * 32], 2, 10, 0, 7, 1_700_000_000_000)


def front(settings: Settings = WITH_TOKEN, **members: Any) -> Front:
    return Front(settings=settings, **members)


async def ask(
    relay: Front,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> HttpResponse:
    return await respond(read_target(method, target, headers or {}, body), relay)


# The info document and the page.


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/nostr+json", "application/nostr+json"),
        ("application/json", "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "text/html; charset=utf-8"),
        ("text/html;q=0.5, application/nostr+json", "application/nostr+json"),
        ("text/html;q=nonsense", "application/json"),
    ],
)
async def test_the_root_is_what_is_asked_for(accept: str, content_type: str) -> None:
    response = await ask(front(), "GET", "/", {"accept": accept})
    assert (response.status, response.headers["content-type"]) == (200, content_type)
    assert response.headers["vary"] == "accept"


async def test_the_info_document_has_the_shape_of_the_draft() -> None:
    relay = front(numbers=Retained(12, 40, "full_retention", 4, 1_700_000_000_999))
    response = await ask(relay, "GET", "/")
    document = json.loads(response.body)
    assert document["supported_nips"] == [11, "CF"]
    assert document["protocol"] == [1]
    assert document["software"] == "walstore"
    assert document["changes_feed"] == {"min_seq": 12}
    assert document["snapshot_sync"] == {
        "changes_feed": True,
        "author_scoped": False,
        "space_scoped": True,
        "retention": {
            "snapshot_retention": {
                "mode": "full_retention",
                "recent_count": 4,
                "min_created_at": 1_700_000_000,
            }
        },
    }
    assert document["limits"]["frame_bytes_max"] == relay.settings.limits.frame_bytes_max
    assert {"name", "description", "version"} <= document.keys()
    assert response.headers["access-control-allow-origin"] == "*"


async def test_an_empty_relay_says_zero_and_null() -> None:
    document = json.loads((await ask(front(), "GET", "/")).body)
    assert document["changes_feed"]["min_seq"] == 0
    retention = document["snapshot_sync"]["retention"]["snapshot_retention"]
    assert retention["min_created_at"] is None


async def test_the_page_runs_its_own_script_alone_and_holds_nothing_of_the_relay() -> None:
    hostile = DOCUMENT._replace(document="</script><script>alert(1)</script>")
    relay = front(kept=[hostile])
    response = await ask(relay, "GET", "/", {"accept": "text/html"})
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"alert(1)" not in response.body
    assert b"http://" not in response.body.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in response.body
    assert response.body == status_page().body


@pytest.mark.parametrize("target", ["/", "/healthz", "/nowhere", "/admin/retention", "/status"])
async def test_no_answer_may_be_kept_sniffed_or_framed(target: str) -> None:
    headers = (await ask(front(), "GET", target)).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


# Health and numbers.


async def test_alive_whatever_the_log_does() -> None:
    relay = front(is_log_lost=True, is_draining=True)
    assert (await ask(relay, "GET", "/healthz")).status == 200


async def test_ready_while_the_log_answers_and_nobody_is_sent_home() -> None:
    assert (await ask(front(), "GET", "/readyz")).status == 200
    assert (await ask(front(is_draining=True), "GET", "/readyz")).status == 503
    lost = await ask(front(is_log_lost=True), "GET", "/readyz")
    assert lost.status == 503
    assert b"secret" not in lost.body


async def test_the_metrics_are_those_of_this_relay() -> None:
    relay, other = front(peers=[PEER], numbers=Retained(1, 40, "full_retention", 4, None)), front()
    relay.metrics.answered(STORED, seconds=0.004)
    relay.metrics.answered(Code.RATE_LIMITED)
    relay.metrics.synced(3)
    relay.metrics.delivered(5)
    relay.metrics.dropped(1008)
    relay.metrics.dropped(4999)
    relay.metrics.compacted(Removed(2, 1, 300))
    text = (await ask(relay, "GET", "/metrics")).body.decode()
    for line in (
        'walstore_relay_appends_total{result="stored"} 1.0',
        'walstore_relay_appends_total{result="rate-limited"} 1.0',
        'walstore_relay_append_seconds_bucket{le="0.005"} 1.0',
        "walstore_relay_batch_elements_sum 3.0",
        "walstore_relay_deliveries_total 5.0",
        'walstore_relay_dropped_peers_total{reason="policy"} 1.0',
        'walstore_relay_dropped_peers_total{reason="other"} 1.0',
        'walstore_relay_compacted_total{kind="element"} 2.0',
        "walstore_relay_compacted_bytes_total 300.0",
        "walstore_relay_connections 1.0",
        "walstore_relay_head_seq 40.0",
        "walstore_relay_documents 0.0",
    ):
        assert line in text.splitlines()
    assert "deliveries_total 5.0" not in (await ask(other, "GET", "/metrics")).body.decode()


# The status.


async def test_the_status_of_an_open_relay_on_this_machine_is_shown_to_this_machine() -> None:
    relay = front(Settings(), kept=[DOCUMENT], peers=[PEER])
    for host in ("127.0.0.1:3400", "localhost:3400", "[::1]:3400", "LOCALHOST"):
        response = await ask(relay, "GET", "/status", {"host": host})
        assert response.status == 200
        assert "access-control-allow-origin" not in response.headers
    status = json.loads(response.body)
    assert status["documents"] == [DOCUMENT._asdict()]
    assert status["connections"] == [PEER._asdict()]
    assert status["retention"] == relay.policy
    assert (status["documents_total"], status["connections_total"]) == (1, 1)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[", "10.0.0.1"])
async def test_a_name_that_others_made_point_here_is_not_shown_the_status(host: str) -> None:
    assert (await ask(front(Settings()), "GET", "/status", {"host": host})).status == 503


@pytest.mark.parametrize(
    "settings",
    [
        RESTRICTED,
        Settings(host="0.0.0.0", is_open=True),
        Settings(public_url="wss://relay.example", is_open=True),
    ],
)
async def test_the_status_of_other_relays_needs_the_token(settings: Settings) -> None:
    assert (await ask(front(settings), "GET", "/status", LOCAL)).status == 503
    guarded = front(replace(settings, admin_token=TOKEN), kept=[DOCUMENT])
    refused = await ask(guarded, "GET", "/status", LOCAL)
    assert refused.status == 401
    assert b"notes/a" not in refused.body
    assert (await ask(guarded, "GET", "/status", {**LOCAL, **BEARER})).status == 200


# The operator's endpoints.

ADMIN = [
    ("GET", "/admin/retention"),
    ("PATCH", "/admin/retention"),
    ("GET", "/admin/connections"),
    ("POST", "/admin/compact"),
    ("DELETE", "/admin/retention"),
    ("GET", "/admin/archives"),
    ("PUT", "/admin/archives"),
    ("DELETE", "/admin/archives?archive=notes"),
]


@pytest.mark.parametrize(("method", "target"), ADMIN)
async def test_without_a_token_set_the_admin_endpoints_are_closed_to_all(
    method: str, target: str
) -> None:
    relay = front(Settings())
    for headers in ({}, BEARER, {"authorization": "Bearer "}, {"authorization": "Bearer None"}):
        response = await ask(relay, method, target, {**LOCAL, **headers}, b'{"recent_count": 1}')
        assert response.status == 503
    assert relay.policy["recent_count"] == 4
    assert relay.compactions == relay.reported == []


@pytest.mark.parametrize(("method", "target"), ADMIN)
@pytest.mark.parametrize(
    "authorization",
    ["", TOKEN, f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer é"],
)
async def test_without_the_right_token_nothing_is_done(
    method: str, target: str, authorization: str
) -> None:
    relay = front()
    headers = {**LOCAL, "authorization": authorization}
    response = await ask(relay, method, target, headers, b'{"recent_count": 1}')
    assert response.status == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert relay.policy["recent_count"] == 4
    assert relay.compactions == relay.reported == []


async def test_the_policy_can_be_read_and_changed() -> None:
    relay = front()
    assert json.loads((await ask(relay, "GET", "/admin/retention", BEARER)).body) == relay.policy
    response = await ask(relay, "PATCH", "/admin/retention", BEARER, b'{"recent_count": 9}')
    assert response.status == 200
    assert json.loads(response.body)["retention"]["recent_count"] == 9
    assert relay.policy["recent_count"] == 9


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b"7", b"\xff", b'{"no": 1}', b"[" * 100_000, b"9" * 50_000]
)
async def test_a_bad_body_is_refused_and_changes_nothing(body: bytes) -> None:
    relay = front()
    response = await ask(relay, "PATCH", "/admin/retention", BEARER, body)
    assert response.status == 400
    assert json.loads(response.body)["error"]
    assert relay.policy["recent_count"] == 4


@pytest.mark.parametrize(
    ("target", "is_dry_run"),
    [
        ("/admin/compact", False),
        ("/admin/compact?dry_run=1", True),
        ("/admin/compact?dry_run", True),
        ("/admin/compact?dry_run=0", False),
    ],
)
async def test_a_compaction_is_dry_if_that_is_said(target: str, is_dry_run: bool) -> None:
    relay = front()
    assert (await ask(relay, "POST", target, BEARER)).status == 200
    assert relay.compactions == [is_dry_run]


@pytest.mark.parametrize("query", ["dry-run=1", "dry_run=yes", "dryrun", "dry_run=1&x=2"])
async def test_a_misspelled_dry_run_removes_nothing(query: str) -> None:
    relay = front()
    assert (await ask(relay, "POST", f"/admin/compact?{query}", BEARER)).status == 400
    assert relay.compactions == []


async def test_the_connections_are_listed() -> None:
    response = await ask(front(peers=[PEER]), "GET", "/admin/connections", BEARER)
    assert json.loads(response.body) == {"connections": [PEER._asdict()]}


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("POST", "/", "GET, HEAD, OPTIONS"),
        ("PUT", "/healthz", "GET, HEAD, OPTIONS"),
        ("DELETE", "/admin/retention", "GET, HEAD, OPTIONS, PATCH"),
        ("GET", "/admin/compact", "OPTIONS, POST"),
        ("HEAD", "/admin/compact", "OPTIONS, POST"),
    ],
)
async def test_another_method_is_told_which_there_are(method: str, target: str, allow: str) -> None:
    response = await ask(front(), method, target, BEARER)
    assert (response.status, response.headers["allow"]) == (405, allow)


@pytest.mark.parametrize("target", ["/nowhere", "//", "/admin", "/admin/", "/admin/keys", "*", ""])
async def test_elsewhere_there_is_nothing(target: str) -> None:
    assert (await ask(front(), "GET", target, BEARER)).status == 404


async def test_head_is_get_without_a_body() -> None:
    relay = front()
    get, head = await ask(relay, "GET", "/healthz"), await ask(relay, "HEAD", "/healthz")
    assert head.headers == get.headers
    assert head.headers["content-length"] == str(len(get.body))
    assert head.body == b""


async def test_other_sites_may_read_the_info_document_and_nothing_else() -> None:
    response = await ask(front(), "OPTIONS", "/")
    assert (response.status, response.headers["access-control-allow-origin"]) == (204, "*")
    for target in ("/status", "/metrics", "/admin/retention"):
        for method in ("OPTIONS", "GET"):
            response = await ask(front(), method, target, BEARER)
            assert "access-control-allow-origin" not in response.headers


async def test_a_route_that_fails_is_answered_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Front):
        async def retained(self) -> Retained:
            raise RuntimeError("a secret")

    response = await ask(Broken(), "GET", "/")
    assert response.status == 500
    assert b"secret" not in response.body
    assert "a secret" in caplog.text


@pytest.mark.parametrize(
    ("host", "local", "is_own"),
    [
        ("localhost:3400", "10.0.0.5", True),
        ("127.0.0.1", "10.0.0.5", True),
        ("10.0.0.5:3400", "10.0.0.5", True),
        ("[fe80::1]:3400", "fe80::1", True),
        ("relay.example", "10.0.0.5", False),
        ("10.0.0.6:3400", "10.0.0.5", False),
        ("", "10.0.0.5", False),
        ("[::", "10.0.0.5", False),
    ],
)
def test_a_host_is_believed_if_it_is_where_the_request_arrived(
    host: str, local: str, is_own: bool
) -> None:
    assert is_own_host(host, local) is is_own


# Through a socket.


async def exchange(port: int, *pieces: bytes, is_half_closed: bool = False) -> bytes:
    """Send these bytes, and everything that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            # Let the other side see each piece by itself.
            await asyncio.sleep(0)
        if is_half_closed:
            writer.write_eof()
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def request(method: str, target: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_plain_requests_and_websockets_share_one_port() -> None:
    relay = front()
    async with serving(relay) as server:
        port = port_of(server)
        async with connect(f"ws://127.0.0.1:{port}/ws") as socket:
            await socket.send("a" * 100_000)
            assert await socket.recv() == "a" * 100_000
            answer = await exchange(port, request("GET", "/healthz"))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\nconnection: close\r\n")
        assert answer.endswith(b'\r\n\r\n{"status":"alive"}\n')
        bearer = f"Bearer {TOKEN}"
        patch = request("PATCH", "/admin/retention", b'{"recent_count":7}', Authorization=bearer)
        assert status_of(await exchange(port, patch)) == 200
        assert relay.policy["recent_count"] == 7
        post = request("POST", "/admin/compact?dry_run=1", Authorization=bearer)
        assert status_of(await exchange(port, post)) == 200
        head = await exchange(port, request("HEAD", "/healthz"))
        assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("size", [1, 7, 50])
async def test_it_does_not_matter_how_a_request_is_cut_into_pieces(size: int) -> None:
    relay = front()
    whole = request(
        "PATCH", "/admin/retention", b'{"recent_count":7}', Authorization=f"Bearer {TOKEN}"
    )
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    async with serving(relay) as server:
        assert status_of(await exchange(port_of(server), *pieces)) == 200
        handshake = [b"G", b"ET / HTTP/1.1\r\nHost: x\r\nUp", b"grade: nonsense\r\n\r", b"\n"]
        assert status_of(await exchange(port_of(server), *handshake)) == 426
    assert relay.policy["recent_count"] == 7


async def test_a_client_that_says_it_has_sent_all_is_still_answered() -> None:
    async with serving(front()) as server:
        answer = await exchange(port_of(server), request("GET", "/healthz"), is_half_closed=True)
    assert status_of(answer) == 200


async def test_old_clients_are_answered_too() -> None:
    async with serving(front()) as server:
        for head in (b"GET /healthz HTTP/1.0\r\n\r\n", b"GET /healthz HTTP/1.0\n\n"):
            assert status_of(await exchange(port_of(server), head)) == 200


async def test_a_client_that_waits_to_send_its_body_is_told_to() -> None:
    relay = front()
    body = b'{"recent_count":7}'
    whole = request(
        "PATCH", "/admin/retention", body, Authorization=f"Bearer {TOKEN}", Expect="100-continue"
    )
    async with serving(relay) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(whole[: -len(body)])
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
        writer.write(body)
        assert status_of(await reader.read()) == 200
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"\x16\x03\x01\x02\x00\x01\x00"], 400),
        ([b"\x00" * 100], 400),
        ([b"GET\r\n\r\n"], 400),
        ([b"GET / HTTP/1.1\r\n\r\n"], 400),
        ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], 404),
        ([b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n"], 400),
        ([b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"], 400),
        ([b"G" * (HEAD_BYTES_MAX + 1)], 431),
        ([b"GET / HTTP/1.1\r\n", b"a: b\r\n" * HEAD_BYTES_MAX], 431),
        ([request("PATCH", "/admin/retention", b"x" * (BODY_BYTES_MAX + 1))], 413),
        (
            [
                request("PATCH", "/admin/retention", Transfer_Encoding="chunked"),
                *[b"1000\r\n" + b"x" * 4096 + b"\r\n"] * 20,
            ],
            413,
        ),
    ],
)
async def test_what_is_no_request_or_too_much_is_refused_and_others_do_not_notice(
    pieces: list[bytes], status: int
) -> None:
    async with (
        serving(front()) as server,
        connect(f"ws://127.0.0.1:{port_of(server)}") as socket,
    ):
        assert status_of(await exchange(port_of(server), *pieces)) == status
        await socket.send("still there")
        assert await socket.recv() == "still there"


async def test_who_says_nothing_is_sent_away() -> None:
    async with serving(front(replace(WITH_TOKEN, handshake_ms_max=50))) as server:
        for begun in (
            b"",
            b"GET / HTTP/1.1\r\n",
            b"PATCH /admin/retention HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
            b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            writer.write(begun)
            async with asyncio.timeout(5):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_connections_beyond_the_limit_are_turned_away_and_room_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "PLAIN_CONNECTIONS_MAX", 1)
    settings = replace(WITH_TOKEN, limits=replace(WITH_TOKEN.limits, connections_max=1))
    async with (
        serving(front(settings)) as server,
        connect(f"ws://127.0.0.1:{port_of(server)}") as socket,
    ):
        idle_reader, idle = await asyncio.open_connection("127.0.0.1", port_of(server))
        while len(server.handlers) < 2:
            await asyncio.sleep(0)
        with suppress(ConnectionResetError):
            assert await exchange(port_of(server), request("GET", "/healthz")) == b""
        await socket.send("mine")
        assert await socket.recv() == "mine"
        idle.close()
        await idle.wait_closed()
        assert await idle_reader.read() == b""
        while len(server.handlers) > 1:
            await asyncio.sleep(0)
        assert status_of(await exchange(port_of(server), request("GET", "/healthz"))) == 200


async def test_connections_that_have_asked_for_nothing_do_not_hold_up_a_drain() -> None:
    async with serving(front()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        while not server.handlers:
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            server.close()
            let_undecided_go(server)
            await server.wait_closed()
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@pytest.mark.parametrize("turns", range(4))
async def test_who_connects_while_a_relay_stops_is_sent_away(turns: int) -> None:
    with socket.socket() as late:
        async with Relay.serve(MemoryLog()) as relay:
            late.connect(("127.0.0.1", relay.port))
            for _ in range(turns):
                await asyncio.sleep(0)
        late.setblocking(False)
        async with asyncio.timeout(5):
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(late, 1) == b""


async def test_a_relay_that_has_stopped_still_says_where_it_was() -> None:
    async with Relay.serve(MemoryLog()) as relay:
        where = relay.url, relay.port
    assert (relay.url, relay.port) == where


async def refusal_of(port: int, path: str = "/", **headers: str) -> int | None:
    try:
        async with connect(f"ws://127.0.0.1:{port}{path}", additional_headers=headers):
            return None
    except InvalidStatus as error:
        return int(error.response.status_code)


async def test_websockets_are_opened_at_the_root_and_at_ws_alone() -> None:
    async with serving(front()) as server:
        port = port_of(server)
        assert await refusal_of(port, "/?a=b") is None
        assert await refusal_of(port, "/ws") is None
        assert await refusal_of(port, "/healthz") == 404
        assert await refusal_of(port, "/wss") == 404


async def test_a_draining_relay_opens_no_websockets() -> None:
    async with serving(front(is_draining=True)) as server:
        assert await refusal_of(port_of(server)) == 503


async def test_pages_of_other_sites_cannot_use_an_open_relay_on_this_machine() -> None:
    async with serving(front()) as server:
        port = port_of(server)
        for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example", "http://["):
            assert await refusal_of(port, Origin=origin) == 403
        assert await refusal_of(port, Origin="http://localhost:5173") is None
    async with serving(front(replace(RESTRICTED, admin_token=TOKEN))) as server:
        # Where keys decide, where a page is from does not matter.
        assert await refusal_of(port_of(server), Origin="https://app.example") is None


def test_a_request_is_taken_apart() -> None:
    assert read_target("GET", "/a?b=1&c", {}, b"") == HttpRequest(
        "GET", "/a", {"b": "1", "c": ""}, {}, b""
    )
