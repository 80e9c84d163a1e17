"""Events of commits, and the sinks that need no cloud: a file, a function, a web server."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.commits import CREATED_MS, commit
from tests.webhook_server import Server
from walstore.archive.manifest import Part, opened
from walstore.archive.one_thread import OneThread
from walstore.archive.sink import URIS_MAX, CommitEvent, SinkError, read_event
from walstore.archive.sink_callback import CallbackSink
from walstore.archive.sink_jsonl import JsonlSink
from walstore.archive.sink_webhook import WebhookSignatureError, WebhookSink, verified_event
from walstore.errors import MalformedError, UsageError

SECRET = b"a secret of both sides"
NOW_MS = 1_700_000_100_000


# ── the event ──────────────────────────────────────────────────────────────────────────────


def test_an_event_says_what_the_manifest_says() -> None:
    base = opened("notes", now_ms=1).with_base(
        to=40,
        count=2,
        formats={"jsonl": (Part("s3://b/notes/epoch=1/snapshot-40.jsonl", 10),)},
        now_ms=CREATED_MS,
    )
    diff = base.with_diff(
        to=2**60,
        count=1,
        formats={"jsonl": (Part("s3://b/x.jsonl", 3),), "parquet": (Part("s3://b/x.parquet", 3),)},
        now_ms=CREATED_MS + 1,
    )
    uri = "s3://b/notes/manifest.json"
    assert json.loads(CommitEvent.of(diff, diff.artifacts[0], uri).text) == {
        "table": "notes",
        "kind": "snapshot",
        "epoch": 1,
        "from_position": None,
        "to_position": "40",
        "head_position": str(2**60),
        "manifest_uri": uri,
        "formats": {"jsonl": "s3://b/notes/epoch=1/snapshot-40.jsonl"},
        "created_at": "2023-11-14T22:13:20.123Z",
    }
    told = json.loads(CommitEvent.of(diff, diff.artifacts[1], uri).text)
    assert (told["kind"], told["from_position"], told["to_position"]) == ("diff", "40", str(2**60))
    assert told["formats"] == {"jsonl": "s3://b/x.jsonl", "parquet": "s3://b/x.parquet"}


@pytest.mark.parametrize("count", [2, URIS_MAX, URIS_MAX + 1])
def test_an_artifact_in_parts_is_listed_unless_there_are_too_many(count: int) -> None:
    parts = tuple(Part(f"s3://b/{index}", 1, row_count=1) for index in range(count))
    manifest = opened("t", now_ms=1, parts=count).with_base(
        to=1, count=count, formats={"jsonl": parts}, now_ms=1
    )
    event = CommitEvent.of(manifest, manifest.artifacts[0], "s3://b/manifest.json")
    listed = [part.uri for part in parts] if count <= URIS_MAX else []
    assert json.loads(event.text)["formats"] == {"jsonl": listed}
    assert read_event(event.text) == event


def test_the_same_commit_has_the_same_words_and_the_same_id() -> None:
    assert commit(1).text == commit(1).text
    assert commit(1).id == commit(1).id != commit(2).id


def test_an_event_is_read_as_it_was_told() -> None:
    assert read_event(commit(7).text) == commit(7)
    further = json.loads(commit(7).text) | {"later": 1}
    assert read_event(json.dumps(further)) == commit(7)


@pytest.mark.parametrize(
    "members",
    [
        {"table": 1},
        {"kind": "base"},
        {"kind": None},
        {"epoch": "1"},
        {"epoch": 0},
        {"epoch": True},
        {"from_position": 1},
        {"to_position": None},
        {"to_position": "-1"},
        {"to_position": "1e3"},
        {"to_position": "٣"},
        {"to_position": "9" * 5_000},
        {"manifest_uri": None},
        {"formats": []},
        {"formats": {"jsonl": None}},
        {"formats": {"jsonl": [1]}},
        {"created_at": "yesterday"},
        {"created_at": 5},
    ],
)
def test_what_is_no_event_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        read_event(json.dumps(json.loads(commit().text) | members))


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"table":', b"\xff"])
def test_what_is_no_object_is_no_event(text: bytes) -> None:
    with pytest.raises(MalformedError):
        read_event(text)


# ── a file ─────────────────────────────────────────────────────────────────────────────────


async def test_a_file_gets_a_line_for_each_event_however_often_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonlSink(path)
    for number in (1, 2, 2, 3, 1):
        await sink.publish(commit(number))
    assert _events(path) == [commit(1), commit(2), commit(3)]
    # One whose end only was missing is told again, too.
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    await sink.publish(commit(3))
    assert _events(path) == [commit(1), commit(2), commit(3)]


def _events(path: Path) -> list[CommitEvent]:
    return [read_event(line) for line in path.read_bytes().splitlines(keepends=True)]


async def test_a_line_that_was_torn_is_mended_wherever_it_was(tmp_path: Path) -> None:
    whole, last = commit(1).text + b"\n", commit(2).text + b"\n"
    for end in range(len(last)):
        path = tmp_path / f"{end}.jsonl"
        path.write_bytes(whole + last[:end])
        await JsonlSink(path).publish(commit(3))
        told = [commit(2)] if end == len(last) - 1 else []
        assert _events(path) == [commit(1), *told, commit(3)]


async def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(b"Dear Ada,\nhow are")
    with pytest.raises(SinkError, match="does not end with a line of events") as caught:
        await JsonlSink(path).publish(commit())
    assert not caught.value.retryable
    assert path.read_bytes() == b"Dear Ada,\nhow are"


async def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonlSink(path)
    await sink.publish(commit(1))
    path.rename(tmp_path / "events.1.jsonl")
    await sink.publish(commit(2))
    assert _events(path) == [commit(2)]


async def test_lines_of_several_writers_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    async def tell(start: int) -> None:
        sink = JsonlSink(path)
        for number in range(start, start + 20):
            await sink.publish(commit(number))

    await asyncio.gather(*(tell(start) for start in (100, 200, 300)))
    assert sorted(event.to_position for event in _events(path)) == [
        *range(100, 120),
        *range(200, 220),
        *range(300, 320),
    ]


async def test_a_file_is_locked_while_a_line_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "events.jsonl"
    refused: list[bool] = []
    system = os.write

    def write(handle: int, line: bytes) -> int:
        with path.open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(True)
        return system(handle, line)

    monkeypatch.setattr(os, "write", write)
    await JsonlSink(path).publish(commit(1))
    assert refused == [True]
    assert _events(path) == [commit(1)]


async def test_a_line_is_synced_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    system = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)
        system(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    await JsonlSink(tmp_path / "events.jsonl").publish(commit())
    assert len(commit().text) + 1 in synced


async def test_a_disk_that_fails_leaves_no_half_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonlSink(path)
    await sink.publish(commit(1))
    system = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: system(handle, line[:10]))
    with pytest.raises(SinkError, match="only 10 of") as caught:
        await sink.publish(commit(2))
    assert caught.value.retryable
    assert _events(path) == [commit(1)]


async def test_a_directory_that_is_missing_is_a_failure_that_may_pass(tmp_path: Path) -> None:
    with pytest.raises(SinkError) as caught:
        await JsonlSink(tmp_path / "none" / "events.jsonl").publish(commit())
    assert caught.value.retryable


# ── a function ─────────────────────────────────────────────────────────────────────────────


async def test_a_function_is_called_in_a_thread_and_a_coroutine_function_is_awaited() -> None:
    told: list[tuple[CommitEvent, bool]] = []

    def plain(event: CommitEvent) -> None:
        told.append((event, threading.current_thread() is threading.main_thread()))

    async def awaited(event: CommitEvent) -> None:
        await asyncio.sleep(0)
        plain(event)

    await CallbackSink(plain).publish(commit(1))
    await CallbackSink(awaited).publish(commit(2))
    assert told == [(commit(1), False), (commit(2), True)]


async def test_a_function_that_hangs_takes_one_thread_and_no_more() -> None:
    begun, over = threading.Event(), threading.Event()
    calls: list[CommitEvent] = []

    def hangs(event: CommitEvent) -> None:
        calls.append(event)
        begun.set()
        over.wait(30)

    sink = CallbackSink(hangs)
    first = asyncio.create_task(sink.publish(commit(1)))
    await asyncio.to_thread(begun.wait, 30)
    first.cancel()
    await asyncio.wait([first])
    for _ in range(3):
        with pytest.raises(SinkError, match="has not ended yet"):
            await sink.publish(commit(2))
    assert calls == [commit(1)]
    over.set()


async def test_a_call_that_never_began_leaves_nobody_busy() -> None:
    thread = OneThread()
    first = asyncio.create_task(thread.run(lambda: 1))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert await thread.run(lambda: 2) == 2


# ── a web server ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def _webhook(server: Server, **options: Any) -> WebhookSink:
    return WebhookSink(server.url, secret=SECRET, now_ms=lambda: NOW_MS, **options)


async def test_a_server_gets_a_signed_call(server: Server) -> None:
    sink = _webhook(server)
    await sink.publish(commit(1))
    await sink.publish(commit(2))
    await sink.aclose()
    (path, headers, body), (_, _, second) = server.calls
    assert path == "/hooks/archive"
    assert headers["Content-Type"] == "application/json"
    assert headers["Walstore-Event"] == commit(1).id
    assert headers["Walstore-Timestamp"] == "1700000100"
    assert verified_event(body, headers, secret=SECRET, now_ms=NOW_MS) == commit(1)
    assert read_event(second) == commit(2)


# printf '1700000100.{"a":1}' | openssl dgst -sha256 -hmac 'a secret of both sides'
OPENSSL = "987936a58b507f94a2e9fd3efa4a811f793a5745be4b84ae6b4b9c47a1a30b26"


def test_the_signature_is_what_the_documentation_says() -> None:
    headers = {"walstore-timestamp": "1700000100", "walstore-signature": f"sha256={OPENSSL}"}
    with pytest.raises(MalformedError, match="commit event"):
        verified_event(b'{"a":1}', headers, secret=SECRET, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"Walstore-Timestamp": "1700000101"}, "not signed"),
        ({"Walstore-Timestamp": ""}, "no time"),
        ({"Walstore-Timestamp": "-1"}, "no time"),
        ({"Walstore-Timestamp": "9" * 5_000}, "no time"),
        ({"Walstore-Signature": ""}, "not signed"),
        ({"Walstore-Signature": "sha256=" + "0" * 64}, "not signed"),
        ({"Walstore-Signature": "é\ud800"}, "not signed"),
    ],
)
async def test_a_call_that_is_not_signed_is_refused(
    server: Server, changed: dict[str, str], reason: str
) -> None:
    await _webhook(server).publish(commit())
    ((_, headers, body),) = server.calls
    with pytest.raises(WebhookSignatureError, match=reason):
        verified_event(body, headers | changed, secret=SECRET, now_ms=NOW_MS)


async def test_a_call_with_another_body_or_secret_or_time_is_refused(server: Server) -> None:
    await _webhook(server).publish(commit())
    ((_, headers, body),) = server.calls
    with pytest.raises(WebhookSignatureError, match="not signed"):
        verified_event(body + b" ", headers, secret=SECRET, now_ms=NOW_MS)
    with pytest.raises(WebhookSignatureError, match="not signed"):
        verified_event(body, headers, secret=b"another secret here", now_ms=NOW_MS)
    for now_ms in (NOW_MS + 300_001, NOW_MS - 300_001):
        with pytest.raises(WebhookSignatureError, match="too old"):
            verified_event(body, headers, secret=SECRET, now_ms=now_ms)
    assert verified_event(body, headers, secret=SECRET, now_ms=NOW_MS + 300_000) == commit()


@pytest.mark.parametrize(
    ("status", "is_later"),
    [(400, False), (401, False), (404, False), (408, True), (429, True), (500, True), (503, True)],
)
async def test_an_answer_says_whether_to_try_again(
    server: Server, status: int, is_later: bool
) -> None:
    server.answers = [(status, {"Retry-After": "7"})]
    with pytest.raises(SinkError, match=f"the answer was {status}") as caught:
        await _webhook(server).publish(commit())
    assert caught.value.retryable is is_later
    assert caught.value.pause_ms == 7_000


@pytest.mark.parametrize("wanted", ["soon", "-1", "Wed, 21 Oct 2015 07:28:00 GMT", ""])
async def test_a_pause_that_is_none_is_passed_over(server: Server, wanted: str) -> None:
    server.answers = [(503, {"Retry-After": wanted})]
    with pytest.raises(SinkError) as caught:
        await _webhook(server).publish(commit())
    assert caught.value.pause_ms is None


async def test_nothing_is_told_to_where_an_answer_points(server: Server) -> None:
    other = Server()
    server.answers = [(307, {"Location": other.url}), (308, {"Location": server.url})]
    for _ in range(2):
        with pytest.raises(SinkError, match="the answer was 30") as caught:
            await _webhook(server).publish(commit())
        assert not caught.value.retryable
    other.close()
    assert other.calls == []
    assert len(server.calls) == 2


async def test_a_server_that_does_not_answer_is_not_waited_for(server: Server) -> None:
    server.silent.clear()
    with pytest.raises(SinkError, match="no answer within 50 ms") as caught:
        await _webhook(server, call_ms_max=50).publish(commit())
    assert caught.value.retryable


async def test_a_server_that_is_not_there_is_a_failure_that_may_pass(server: Server) -> None:
    sink = WebhookSink("http://127.0.0.1:1/x", secret=SECRET)
    with pytest.raises(SinkError, match="ConnectError") as caught:
        await sink.publish(commit())
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.org/x", "needs https"),
        ("http://10.0.0.1/x", "needs https"),
        ("http://localhost.example.org/x", "needs https"),
        ("ftp://example.org/x", "begins with https"),
        ("example.org", "begins with https"),
        ("https://", "begins with https"),
        ("https://user:word@example.org/x", "password"),
        ("http://[::1", "is none"),
    ],
)
def test_a_url_that_is_not_safe_is_refused(url: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        WebhookSink(url, secret=SECRET)


def test_http_may_be_allowed_and_is_fine_on_this_machine() -> None:
    WebhookSink("http://10.0.0.1/x", secret=SECRET, allow_http=True)
    for url in ("https://example.org/x", "http://localhost/x", "http://[::1]:80/x"):
        WebhookSink(url, secret=SECRET)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(UsageError, match="16 bytes"):
        WebhookSink("https://example.org/x", secret=b"short")


async def test_the_url_is_in_no_message(server: Server) -> None:
    class Failing(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise httpx.ReadError(f"cannot read {request.url}")

    sink = WebhookSink("https://h.example/token-1", secret=SECRET, http_transport=Failing())
    with pytest.raises(SinkError) as caught:
        await sink.publish(commit())
    assert "token-1" not in str(caught.value)
