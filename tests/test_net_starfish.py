"""Logs and snapshots on a Starfish server: what was recorded, hostile answers, a live server."""

from __future__ import annotations

import gzip
import subprocess
import sys
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.documents import NodeDocument
from tests.node.peer import NodePeer, node_peer_or_skip
from tests.node.starfish_server import Collection, capability_of, collection, log_collection
from tests.recorded import load, named
from walstore.canon import canonical_bytes, parse
from walstore.document import (
    Body,
    SnapshotConflictError,
    SnapshotRefusedError,
    SnapshotVerdict,
    WalDocument,
)
from walstore.document.log import ts_of
from walstore.document.ports import CheckpointTooOldError, ElementRefusedError
from walstore.errors import TransportError
from walstore.net.starfish import (
    SnapshotUnroutableError,
    StarfishAnswerError,
    StarfishClient,
    StarfishHttpTransport,
    StarfishRefusedError,
    StarfishSnapshots,
    StarfishStatusError,
    StarfishTooLargeError,
    snapshots_apart,
)
from walstore.net.starfish_address import StarfishAddressError
from walstore.net.starfish_answers import StarfishForbiddenError, StarfishMalformedError
from walstore.net.starfish_http import (
    CapabilityMismatchError,
    HttpxMissingError,
    NotConnectedError,
)
from walstore.signed import Identity, sign_append, sign_document
from walstore.signed.capability import Scope, read_capability

CASES = load("http.json")
KEYS = {case["pub"]: Identity.from_seed(case["priv"]) for case in load("caps.json")}
CAPABILITIES = {case["pub"]: read_capability(case["cap"]) for case in load("caps.json")}
ANN = Identity.from_seed(bytes([1]) * 32)
KEY = "spaces/s1/doc"


def body_of(data: dict[str, Any], author: Identity = ANN, key: str = KEY) -> Body:
    proof = sign_append(key, data, author)
    return Body(canonical_bytes(data), proof.author_pubkey, proof.author_signature)


def client(
    answer: Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]],
    url: str = "https://relay.example",
    **options: Any,
) -> StarfishClient:
    """A client of a server that is a function."""
    options = {"identity": ANN, "capability": None, **options}

    async def handle(request: httpx.Request) -> httpx.Response:
        response = answer(request)
        return response if isinstance(response, httpx.Response) else await response

    return StarfishClient(url, http_transport=httpx.MockTransport(handle), **options)


def answering(status: int, content: bytes | str, **headers: str) -> StarfishClient:
    """A client of a server that has one answer."""
    return client(lambda _: httpx.Response(status, content=content, headers=headers))


# ── what the packages recorded ─────────────────────────────────────────────────────────────


class Recorded:
    """A server that answers one recorded request, and holds what is sent against it."""

    def __init__(self, case: dict[str, Any]) -> None:
        self._request = case["request"]
        self._answer = case["response"]
        headers = self._request["headers"]
        signer = case.get("signer_pub")
        self.client = client(
            self._handle,
            url=f"https://{self._request['host']}",
            identity=KEYS.get(signer, ANN),
            capability=CAPABILITIES.get(signer),
            now_ms=lambda: int(headers["X-Starfish-Ts"]),
            nonce=lambda: b64decode(headers["X-Starfish-Nonce"]),
        )

    def _handle(self, request: httpx.Request) -> httpx.Response:
        assert request.method == self._request["method"]
        assert request.url.raw_path.decode() == self._request["path_and_query"]
        assert request.headers["Host"] == self._request["host"]
        sent = {name: request.headers.get(name) for name in self._request["headers"]}
        if request.content == (self._request["body"] or "").encode():
            assert sent == self._request["headers"]
        else:
            # The packages write a snapshot in the order in which it was made.
            assert parse(request.content) == parse(self._request["body"])
        return httpx.Response(self._answer["status"], content=self._answer["body"].encode())


async def perform(case: dict[str, Any], server: StarfishClient) -> object:
    """The call of a port that a recorded request stands for."""
    request = case["request"]
    path, _, query = request["path_and_query"].partition("?")
    _, action, key = path.split("/", 2)
    transport, snapshots = StarfishHttpTransport(server), StarfishSnapshots(server)
    if action == "pull" and "checkpoint" in query:
        return await transport.pull(key, int(query.removeprefix("checkpoint=")))
    if action == "pull" and "last" in query:
        return await transport.tail(key, 2**53 - 1, int(query.removeprefix("last=")))
    if action == "pull":
        return await snapshots.read(key)
    sent: Any = parse(request["body"])
    if "authorPubkey" not in sent:
        await snapshots.write(key, sent["data"], sent["baseHash"])
        return None
    text = request["body"].removeprefix('{"data":').partition(',"authorPubkey"')[0]
    return await transport.append(
        key, Body(text.encode(), sent["authorPubkey"], sent["authorSignature"])
    )


# Our calls give no `ts` and never ask for everything without a bound.
OURS = [
    case
    for case in CASES
    if '"ts":1' not in (case["request"]["body"] or "").partition("authorPubkey")[0]
    and "full=true" not in case["request"]["path_and_query"]
]


@named(OURS)
async def test_a_recorded_request_is_sent_byte_for_byte_and_its_answer_understood(
    case: dict[str, Any],
) -> None:
    answer = case["response"]
    said: Any = parse(answer["body"])
    async with Recorded(case).client as server:
        if answer["status"] != 200:
            with pytest.raises(StarfishStatusError) as raised:
                await perform(case, server)
            assert (raised.value.status, raised.value.reason) == (answer["status"], said["error"])
            assert not raised.value.retryable
            return
        result = await perform(case, server)
    if "authorPubkey" in (case["request"]["body"] or ""):
        assert result in (said["timestamp"], None)
    elif "items" in said.get("data", {}):
        assert result == said["data"]["items"]
    elif said.get("data"):
        assert result == (said["data"], said["hash"])
    else:
        assert result is None


def test_enough_was_recorded() -> None:
    assert len(OURS) >= 14


# ── addresses and headers ──────────────────────────────────────────────────────────────────


async def sent_by(server: StarfishClient, seen: list[httpx.Request], key: str = KEY) -> str:
    async with server:
        await StarfishHttpTransport(server).pull(key, 7)
    return str(seen[-1].url)


@pytest.mark.parametrize(
    ("url", "namespace", "key", "expected"),
    [
        ("http://h:8080", None, KEY, "http://h:8080/pull/spaces/s1/doc?checkpoint=7"),
        ("http://h/", "team-1", KEY, "http://h/v1/team-1/pull/spaces/s1/doc?checkpoint=7"),
        ("https://h/sync/", None, KEY, "https://h/sync/pull/spaces/s1/doc?checkpoint=7"),
        (
            "https://H:443",
            None,
            "a b/ü?#%41",
            "https://h/pull/a%20b/%C3%BC%3F%23%2541?checkpoint=7",
        ),
        ("http://[::1]:1", None, "u:1@x", "http://[::1]:1/pull/u:1@x?checkpoint=7"),
    ],
)
async def test_the_address_that_is_sent_is_the_one_that_is_signed(
    url: str, namespace: str | None, key: str, expected: str
) -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(404)

    signed: list[bytes] = []

    class Signer(Identity):
        __slots__ = ()

        def sign(self, signed_bytes: bytes) -> bytes:
            signed.append(signed_bytes)
            return super().sign(signed_bytes)

    signer = Signer(bytes([1]) * 32, bytes([2]) * 32)
    server = client(
        handle, url, namespace=namespace, identity=signer, capability=capability_of(signer)
    )
    signed.clear()
    assert await sent_by(server, seen, key) == expected
    members: Any = parse(signed[-1].removeprefix(b"starfish-req-v1\n"))
    path = expected.partition("://")[2].partition("/")[2]
    assert members["p"] == f"/{path}"
    assert members["h"] == seen[-1].headers["Host"]


async def test_whoever_uses_a_capability_for_an_audience_says_who_it_is() -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(404)

    scope = Scope(["read"], ["log"], ["**"])
    link = capability_of(Identity.generate(), kind="audience", scope=scope)
    await sent_by(client(handle, capability=link), seen)
    await sent_by(client(handle, capability=capability_of(ANN)), seen)
    await sent_by(client(handle), seen)
    assert [each.headers.get("X-Starfish-Pub") for each in seen] == [ANN.public_key, None, None]
    assert "Authorization" not in seen[-1].headers


async def test_each_request_has_a_nonce_of_its_own() -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(404, headers={"Set-Cookie": "a=b"})

    async with client(handle, capability=capability_of(ANN)) as server:
        for _ in range(3):
            await StarfishHttpTransport(server).pull(KEY, 0)
    assert len({each.headers["X-Starfish-Nonce"] for each in seen}) == 3
    assert all("Cookie" not in each.headers for each in seen)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relay",
        "ftp://h",
        "http://",
        "http://u:p@h",
        "http://h?a",
        "http://h:x",
        "http://\ud800",
    ],
)
def test_what_is_not_the_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(StarfishAddressError):
        StarfishClient(url, identity=ANN, capability=None)


@pytest.mark.parametrize("namespace", ["", "a/b", "..", "a b"])
def test_what_is_not_a_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(StarfishAddressError):
        StarfishClient("http://h", identity=ANN, capability=None, namespace=namespace)


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/../b", "./a", "a/", "\ud800"])
async def test_a_key_that_a_server_would_tidy_up_is_refused(key: str) -> None:
    async with answering(200, b"{}") as server:
        with pytest.raises(StarfishAddressError):
            await StarfishHttpTransport(server).pull(key, 0)


def test_the_capability_of_somebody_else_is_refused() -> None:
    with pytest.raises(CapabilityMismatchError):
        StarfishClient("http://h", identity=ANN, capability=capability_of(Identity.generate()))


async def test_a_client_is_used_inside_of_its_block() -> None:
    server = answering(404, b"")
    with pytest.raises(NotConnectedError):
        await StarfishHttpTransport(server).pull(KEY, 0)
    async with server:
        assert await StarfishHttpTransport(server).pull(KEY, 0) == []
    with pytest.raises(NotConnectedError):
        await StarfishHttpTransport(server).pull(KEY, 0)


def test_without_httpx_only_making_a_client_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    imports = "import sys; import walstore.net.starfish; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", imports]).returncode == 0
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(HttpxMissingError, match=r"pip install 'walstore\[starfish\]'"):
        StarfishClient("http://h", identity=ANN, capability=None)


# ── what answers mean ──────────────────────────────────────────────────────────────────────


async def each_call(server: StarfishClient) -> list[TransportError | object]:
    """What becomes of each of the four calls."""
    transport, snapshots = StarfishHttpTransport(server), StarfishSnapshots(server)
    document = {"state": {}, "uptoTs": 1}
    outcomes: list[TransportError | object] = []
    async with server:
        for call in (
            lambda: transport.append(KEY, body_of({"v": 1})),
            lambda: transport.pull(KEY, 0),
            lambda: snapshots.read(f"{KEY}__snapshot"),
            lambda: snapshots.write(f"{KEY}__snapshot", document, None),
        ):
            try:
                outcomes.append(await call())
            except TransportError as error:
                outcomes.append(error)
    return outcomes


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (301, StarfishStatusError, False),
        (400, StarfishMalformedError, False),
        (401, StarfishRefusedError, False),
        (403, StarfishForbiddenError, False),
        (408, StarfishStatusError, True),
        (409, StarfishStatusError, False),
        (413, StarfishTooLargeError, False),
        (415, StarfishStatusError, False),
        (429, StarfishStatusError, True),
        (500, StarfishStatusError, True),
        (503, StarfishStatusError, True),
    ],
)
async def test_every_refusal_has_its_error(
    status: int, kind: type[StarfishStatusError], retryable: bool
) -> None:
    headers = {"Location": "https://elsewhere.example/"}
    for error in await each_call(answering(status, b'{"error":"why\\u001b[2J"}', **headers)):
        assert type(error) is kind
        assert isinstance(error, StarfishStatusError)
        assert (error.status, error.reason) == (status, "why?[2J")
        assert error.retryable is retryable
        # The same element would be refused again; what else is refused may be taken later.
        assert isinstance(error, ElementRefusedError) is (status in (400, 403, 413))


async def test_only_absence_is_absence() -> None:
    _, pulled, read, _ = await each_call(answering(404, b"not found"))
    assert (pulled, read) == ([], None)
    append, _, _, write = await each_call(answering(404, b"not found"))
    assert isinstance(append, StarfishStatusError)
    assert isinstance(write, StarfishStatusError)


async def test_a_snapshot_that_was_replaced_is_a_conflict() -> None:
    outcomes = await each_call(answering(409, b'{"error":"hash_mismatch"}'))
    assert [type(each) for each in outcomes] == [StarfishStatusError] * 3 + [SnapshotConflictError]


async def test_a_checkpoint_that_is_too_old_is_told() -> None:
    async with answering(400, b'{"error":"checkpoint_too_old"}') as server:
        with pytest.raises(CheckpointTooOldError) as raised:
            await StarfishHttpTransport(server).pull(KEY, 7)
    assert raised.value.floor == 8


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ReadTimeout, httpx.ReadError])
async def test_a_failing_network_may_be_tried_again(error: type[httpx.TransportError]) -> None:
    def handle(_: httpx.Request) -> httpx.Response:
        raise error("cut")

    for outcome in await each_call(client(handle)):
        assert type(outcome) is TransportError
        assert outcome.retryable


async def test_a_call_ends_however_slowly_the_server_answers() -> None:
    async def handle(_: httpx.Request) -> httpx.Response:
        await anyio.sleep_forever()
        raise AssertionError

    async with client(handle, call_seconds_max=0.01) as server:
        with pytest.raises(TransportError, match=r"within 0\.01 s") as raised:
            await StarfishHttpTransport(server).pull(KEY, 0)
    assert raised.value.retryable


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        b"null",
        b"[]",
        b"{}",
        b'{"data":null,"hash":null,"timestamp":null}',
        b'{"data":{"items":{}},"hash":1,"timestamp":-1}',
        b'{"data":[],"hash":[],"timestamp":1.5}',
        b'{"data":[],"hash":"","timestamp":true}',
        b'{"data":{"a":1},"hash":"","timestamp":9007199254740993}',
        b'{"data":{"items":[1e999]},"hash":"0","timestamp":1e999}',
        b"[" * 100_000,
        b'{"data":{"items":' + b"[" * 200 + b"]" * 200 + b"}}",
        b'{"a":"\xff"}',
    ],
)
async def test_an_answer_without_sense_is_an_error_that_may_pass(content: bytes) -> None:
    for outcome in await each_call(answering(200, content)):
        assert type(outcome) is StarfishAnswerError
        assert outcome.retryable


@given(st.binary(max_size=64) | st.text().map(lambda text: canonical_bytes({"error": text})))
async def test_no_error_text_breaks_anything(content: bytes) -> None:
    for outcome in await each_call(answering(500, content)):
        assert type(outcome) is StarfishStatusError
        assert outcome.reason.isprintable()
        assert len(outcome.reason) <= 200


async def test_answers_are_read_up_to_a_limit() -> None:
    full = b'{"data":{"items":[]}}'
    for spare, expected in ((0, []), (-1, StarfishAnswerError)):
        limit = len(full) + spare
        async with client(
            lambda _: httpx.Response(200, content=full), answer_bytes_max=limit
        ) as server:
            if expected == []:
                assert await StarfishHttpTransport(server).pull(KEY, 0) == []
                continue
            with pytest.raises(StarfishAnswerError, match="answer_bytes_max") as raised:
                await StarfishHttpTransport(server).pull(KEY, 0)
            assert not raised.value.retryable


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    read: list[int] = []

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                read.append(1)
                assert len(read) < 100, "nobody stops reading"
                yield b" " * 10_000

    for status in (200, 500):
        read.clear()
        server = client(
            lambda _, status=status: httpx.Response(status, stream=Endless()),  # type: ignore[misc]
            answer_bytes_max=50_000,
        )
        async with server:
            with pytest.raises(TransportError):
                await StarfishHttpTransport(server).pull(KEY, 0)


async def test_nothing_is_unpacked() -> None:
    packed = gzip.compress(b'{"data":{"items":[]}}')
    headers = {"Content-Encoding": "gzip"}
    async with answering(200, packed, **headers) as server:
        with pytest.raises(StarfishAnswerError, match="compressed"):
            await StarfishHttpTransport(server).pull(KEY, 0)


async def test_a_snapshot_that_the_server_would_change_is_not_sent() -> None:
    async with answering(200, b"{}") as server:
        with pytest.raises(SnapshotRefusedError):
            await StarfishSnapshots(server).write("k", {"state": {"constructor": 1}}, None)


async def test_a_snapshot_that_the_server_did_change_is_told() -> None:
    async with answering(200, b'{"hash":"00","timestamp":1}') as server:
        with pytest.raises(StarfishAnswerError, match="another snapshot") as raised:
            await StarfishSnapshots(server).write("k", {"state": {}}, None)
    assert not raised.value.retryable


async def test_the_tail_goes_back_as_far_as_it_has_to() -> None:
    log = [{"ts": ts} for ts in range(1, 101)]
    asked: list[int] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(int(request.url.params["last"]))
        return httpx.Response(200, json={"data": {"items": log[-asked[-1] :]}})

    async with client(handle) as server:
        transport = StarfishHttpTransport(server)
        assert [*map(ts_of, await transport.tail(KEY, 90, 8))] == list(range(83, 91))
        assert asked == [8, 16, 32]
        assert [*map(ts_of, await transport.tail(KEY, 3, 8))] == [1, 2, 3]
        assert await transport.tail(KEY, 0, 8) == []


# ── a live server ──────────────────────────────────────────────────────────────────────────


LITERAL = [
    log_collection("spaces/{id}/doc"),
    collection("snap", "spaces/{id}/doc__snapshot"),
]


@pytest.fixture(scope="module")
def peer() -> Iterator[NodePeer]:
    with node_peer_or_skip() as running:
        yield running


Start = Callable[..., str]


@pytest.fixture
def start(peer: NodePeer) -> Iterator[Start]:
    """Start servers with collections, in namespaces or not, mounted anywhere."""
    urls: list[str] = []

    def run(
        collections: list[Collection],
        namespaces: dict[str, list[Collection]] | None = None,
        mount: str = "/",
    ) -> str:
        spaces = {name: {"collections": each} for name, each in (namespaces or {}).items()}
        config = {"version": 1, "collections": collections, "namespaces": spaces}
        urls.append(peer.call("startServer", config=config, mount=mount))
        return urls[-1]

    yield run
    for url in urls:
        peer.call("stopServer", url=url)
    peer.call("forgetDocuments")


class Table:
    """People around one document on a live server."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack
        self.seeds = [bytes([number]) * 32 for number in (1, 2, 3)]
        self.people = [Identity.from_seed(seed) for seed in self.seeds]
        self.keys = [person.public_key for person in self.people]

    async def ours(self, number: int, **options: Any) -> WalDocument:
        """A document of ours, open."""
        person = self.people[number]
        server = await self.connect(person)
        options = {"snapshot_store": StarfishSnapshots(server), "wire": "starfish", **options}
        document = WalDocument(
            options.pop("key", KEY),
            transport=StarfishHttpTransport(server),
            identity=person,
            writers=self.keys,
            snapshot_role=self.keys,
            **options,
        )
        return await self._stack.enter_async_context(document)

    async def connect(self, person: Identity, **options: Any) -> StarfishClient:
        options = {"capability": capability_of(person), **options}
        server = StarfishClient(self._url, identity=person, **options)
        return await self._stack.enter_async_context(server)

    def theirs(self, peer: NodePeer, number: int, handle: str, **options: Any) -> NodeDocument:
        """A document of the packages, with their own HTTP client, open."""
        return NodeDocument(peer, handle).open(
            key=KEY,
            publicKey=self.keys[number],
            privateKey=self.seeds[number].hex(),
            writers=self.keys,
            roles=self.keys,
            server={
                "url": self._url,
                "capability": parse(capability_of(self.people[number]).canonical),
            },
            **options,
        )


async def test_documents_of_both_sides_converge_through_a_stock_server(
    peer: NodePeer, start: Start
) -> None:
    async with AsyncExitStack() as stack:
        table = Table(start(LITERAL), stack)
        first, second = await table.ours(0), await table.ours(1)
        theirs = table.theirs(peer, 2, "live")
        for word in ("one ", "two "):
            first.insert_text("body", 0, f"ann {word}")
            await first.commit()
            theirs.edit(["insertText", "body", 0, f"cid {word}"], ["setField", "title", word])
            theirs.commit()
            second.push("todo", {"ü": [1.5, None, word]})
            await second.commit()
        for document in (first, second):
            await document.pull()
        theirs.pull()
        expected = first.materialize()
        assert set(expected) == {"body", "title", "todo"}
        assert second.materialize() == expected
        assert theirs.materialize() == expected

        # A snapshot of ours is read by everybody, and then one of theirs.
        await first.snapshot()
        verdicts = []
        for number, producer in enumerate(["ours", "theirs"]):
            for posture in ("trust", "trust-retain-tail", "re-derive"):
                late = await table.ours(1, posture=posture)
                assert late.materialize() == expected
                verdicts.append(late.snapshot_verdict)
                reader = table.theirs(peer, 1, f"{producer} {posture}", posture=posture)
                assert reader.materialize() == expected
                if posture == "re-derive":
                    assert reader.describe()["snapshotVerified"] is True
            if number == 0:
                theirs.edit(["setField", "title", "last"])
                theirs.commit()
                theirs.snapshot()
                expected = theirs.materialize()
        assert set(verdicts) == {SnapshotVerdict.TRUSTED, SnapshotVerdict.VERIFIED}


async def test_a_packed_log_is_kept_by_a_stock_server_too(start: Start) -> None:
    async with AsyncExitStack() as stack:
        table = Table(start(LITERAL), stack)
        first = await table.ours(0, wire="packed")
        first.insert_text("body", 0, "packed")
        await first.commit()
        await first.snapshot()
        late = await table.ours(1, wire="packed", posture="re-derive")
        assert late.text("body") == "packed"
        assert late.snapshot_verdict is SnapshotVerdict.VERIFIED


async def test_a_key_that_ends_with_a_parameter_keeps_its_snapshots_apart(start: Start) -> None:
    collections = [log_collection("docs/{id}"), collection("snap", "__snapshots/docs/{id}")]
    async with AsyncExitStack() as stack:
        table = Table(start(collections), stack)
        server = await table.connect(table.people[0])
        with pytest.raises(SnapshotUnroutableError, match="snapshot_path"):
            await StarfishSnapshots(server).read("docs/1__snapshot")
        snapshots = StarfishSnapshots(server, snapshot_path=snapshots_apart)
        for name in ("1", "2"):
            document = await table.ours(0, key=f"docs/{name}", snapshot_store=snapshots)
            document.set_field("title", name)
            await document.commit()
            await document.snapshot()
        for name in ("1", "2"):
            late = await table.ours(1, key=f"docs/{name}", snapshot_store=snapshots)
            assert late.materialize() == {"title": name}
            assert late.snapshot_verdict is SnapshotVerdict.TRUSTED


@pytest.mark.parametrize("namespace", [None, "team-1"])
async def test_only_the_address_depends_on_where_a_server_is_mounted(
    start: Start, namespace: str | None
) -> None:
    # Namespaces are found below the /v1 that operators mount the router at.
    if namespace is None:
        url = start(LITERAL, mount="/v1") + "/v1/"
    else:
        url = start([], {namespace: LITERAL}, mount="/v1")
    async with AsyncExitStack() as stack:
        table = Table(url, stack)
        server = await table.connect(ANN, namespace=namespace)
        transport, snapshots = StarfishHttpTransport(server), StarfishSnapshots(server)
        ts = await transport.append(KEY, body_of({"v": 1}))
        assert [ts_of(each) for each in await transport.pull(KEY, 0)] == [ts]
        await snapshots.write(f"{KEY}__snapshot", {"state": {}}, None)
        assert await snapshots.read(f"{KEY}__snapshot") is not None


async def test_a_live_server_refuses_as_expected(start: Start) -> None:
    async with AsyncExitStack() as stack:
        table = Table(start(LITERAL), stack)
        ann, bob, _ = table.people
        transport = StarfishHttpTransport(await table.connect(ann))
        ts = await transport.append(KEY, body_of({"v": 1}, ann))
        # The same element again is stored again.
        assert await transport.append(KEY, body_of({"v": 1}, ann)) > ts
        assert len(await transport.pull(KEY, 0)) == 2
        assert len(await transport.pull(KEY, ts)) == 1
        assert await transport.pull("spaces/none/doc", 0) == []
        assert await transport.pull("nowhere/at/all", 0) == []
        for body in (body_of({"v": 1}, bob), body_of({"v": 1}, ann, "spaces/s2/doc")):
            with pytest.raises(StarfishRefusedError):
                await transport.append(KEY, body)
        with pytest.raises(StarfishTooLargeError):
            await transport.append(KEY, body_of({"v": "x" * 70_000}, ann))
        nobody = StarfishHttpTransport(await table.connect(ann, capability=None))
        late = StarfishHttpTransport(await table.connect(ann, now_ms=lambda: 1_600_000_000_000))
        for refused in (nobody, late):
            with pytest.raises(StarfishRefusedError):
                await refused.pull(KEY, 0)


async def test_a_live_server_replaces_snapshots_by_compare_and_swap(start: Start) -> None:
    async with AsyncExitStack() as stack:
        table = Table(start(LITERAL), stack)
        snapshots = StarfishSnapshots(await table.connect(ANN))
        key = f"{KEY}__snapshot"
        assert await snapshots.read(key) is None
        documents: list[dict[str, Any]] = [
            {"state": {"n": number, "f": 0.1, "ü\ud800": 1e21}, "uptoTs": number}
            for number in (1, 2)
        ]
        for document in documents:
            document |= sign_document(key, dict(document), ANN)._asdict()
        await snapshots.write(key, documents[0], None)
        stored = await snapshots.read(key)
        assert stored is not None
        assert stored.document == documents[0]
        with pytest.raises(SnapshotConflictError):
            await snapshots.write(key, documents[1], None)
        await snapshots.write(key, documents[1], stored.revision)
        with pytest.raises(SnapshotConflictError):
            await snapshots.write(key, documents[0], stored.revision)


async def test_a_live_server_that_serves_only_young_checkpoints_says_so(start: Start) -> None:
    path = "spaces/{id}/doc"
    async with AsyncExitStack() as stack:
        table = Table(start([log_collection(path, maxCheckpointAgeMs=60_000)]), stack)
        transport = StarfishHttpTransport(await table.connect(ANN))
        ts = await transport.append(KEY, body_of({"v": 1}))
        assert await transport.pull(KEY, ts) == []
        with pytest.raises(CheckpointTooOldError):
            await transport.pull(KEY, 0)
        assert len(await transport.tail(KEY, ts, 4)) == 1
