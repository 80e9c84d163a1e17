"""The websocket transport on loopback: against a relay, and against servers that lie and break."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from hashlib import sha256
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.relay_clients import eventually, snapshot_text
from walstore.canon import canonical_bytes, parse
from walstore.document import (
    Body,
    LogBehindError,
    ReadOnlyError,
    RejectedElementsError,
    Rollback,
    RollbackDetectedError,
    SnapshotRefusedError,
    WalDocument,
)
from walstore.document.ports import CheckpointTooOldError, OtherLogError
from walstore.errors import TransportError
from walstore.net import MemorySnapshots, MemoryTransport, WebSocketTransport, dialling
from walstore.net import following as following_module
from walstore.net import websocket as websocket_module
from walstore.net.backoff import Backoff
from walstore.net.dialling import Connection, RelayUrlError, _is_here
from walstore.net.faults import (
    DocumentKeyRefusedError,
    NoAnswerError,
    NotAdmittedError,
    OfflineError,
    RelayRefusalError,
    TransportClosedError,
)
from walstore.net.keeper import Timing
from walstore.net.status import State, TransportStatus
from walstore.relay.log import RelayLog, Removal
from walstore.relay.log import StoredSnapshot as StoredText
from walstore.relay.memory import MemoryLog
from walstore.relay.server import Relay
from walstore.relay.sqlite import SqliteLog
from walstore.signed import Identity, sign_append
from walstore.testing.transport import Place, TransportContract
from walstore.wire.frames import (
    Append,
    Auth,
    ClientFrame,
    Closed,
    Delivered,
    Elements,
    EndOfStored,
    GetSnapshot,
    Hello,
    Ok,
    Pull,
    PullTail,
    RelayFrame,
    SnapshotPiece,
    read_client_frame,
    relay_frame,
)
from walstore.wire.limits import SNAPSHOT_PIECE_SIZE, SNAPSHOT_VALUES_MAX

ALICE, BOB = (Identity.from_seed(bytes([n]) * 32) for n in (1, 2))
MEMBERS = frozenset({ALICE.public_key, BOB.public_key})
DOC = "notes/a"
LOG = "a" * 32

# No test waits for a pause that a person would notice.
HASTE = Backoff(quick_ms_min=0, quick_ms_max=2, pause_ms_min=1, pause_ms_max=20, lasting_ms=0)


@pytest.fixture(autouse=True)
async def _deadline() -> AsyncIterator[None]:
    """A test that hangs fails."""
    loop = asyncio.get_running_loop()
    given_up = loop.call_later(60, lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
    yield
    given_up.cancel()


def transport(url: str, who: Identity = ALICE, **options: Any) -> WebSocketTransport:
    return WebSocketTransport(url, identity=who, **{"backoff": HASTE, **options})


def body(n: int, who: Identity = ALICE, document: str = DOC) -> Body:
    data = {"n": n, "by": who.user_id}
    return Body(canonical_bytes(data), *sign_append(document, data, who))


async def reach(peer: WebSocketTransport, wanted: Callable[[TransportStatus], bool]) -> None:
    """Wait for a status."""
    reached = asyncio.Event()

    def look(status: TransportStatus) -> None:
        if wanted(status):
            reached.set()

    subscription = peer.on_status(look)
    look(peer.status)
    await reached.wait()
    subscription.close()


async def reach_state(peer: WebSocketTransport, *states: State) -> None:
    await reach(peer, lambda status: status.state in states)


async def pull_all(peer: WebSocketTransport, checkpoint: int = 0, key: str = DOC) -> list[int]:
    stamps: list[int] = []
    while page := await peer.pull(key, stamps[-1] if stamps else checkpoint):
        stamps += [element.ts for element in page]
    return stamps


class TestWebSocketTransport(TransportContract):
    @pytest.fixture
    async def place(self) -> AsyncIterator[Place]:
        async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
            yield Place(peer, peer, ALICE)


class TestWebSocketTransportFollowing(TransportContract):
    """The same promises hold where pulls are answered from what the relay has sent."""

    @pytest.fixture
    async def place(self) -> AsyncIterator[Place]:
        async with (
            Relay.serve(MemoryLog()) as relay,
            transport(relay.url, compression=False) as peer,
            peer.follow(DOC, 0),
        ):
            yield Place(peer, peer, ALICE)


# ── live ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(5))
async def test_there_is_no_hole_where_what_is_stored_ends_and_live_begins(seed: int) -> None:
    chance = random.Random(seed)
    async with (
        Relay.serve(MemoryLog()) as relay,
        transport(relay.url) as writer,
        transport(relay.url, BOB) as reader,
    ):
        total = 300

        async def write() -> None:
            for n in range(total):
                await writer.append(DOC, body(n))

        async def read() -> list[int]:
            seen: list[int] = []
            while len(seen) < total:
                # Readers come and go at any moment of the writing.
                async with reader.follow(DOC, seen[-1] if seen else 0) as follow:
                    for _ in range(chance.randrange(1, 8)):
                        seen += await pull_all(reader, seen[-1] if seen else 0)
                        if len(seen) == total:
                            break
                        await follow.wait()
            return seen

        _, seen = await asyncio.gather(write(), read())
        assert seen == await pull_all(writer)


async def test_two_peers_see_what_the_other_writes_without_asking() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        transport(relay.url) as alice,
        transport(relay.url, BOB) as bob,
        alice.follow(DOC, 0) as from_bob,
        bob.follow(DOC, 0) as from_alice,
    ):
        first = await alice.append(DOC, body(1))
        await from_alice.wait()
        assert [element.ts for element in await bob.pull(DOC, 0)] == [first]
        second = await bob.append(DOC, body(2, BOB))
        await from_bob.wait()
        while (await pull_all(alice))[-1:] != [second]:
            await from_bob.wait()
        assert await pull_all(alice) == [first, second]


async def test_who_follows_later_is_told_of_what_came_before() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        transport(relay.url) as peer,
        peer.follow(DOC, 0) as first,
    ):
        ts = await peer.append(DOC, body(1))
        await first.wait()
        async with peer.follow(DOC, 0) as second:
            await second.wait()
            assert await pull_all(peer) == [ts]
        assert peer.status.documents == {DOC}


async def test_a_long_tail_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_module, "PULL_ELEMENTS_MAX", 3)
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        stamps = [await peer.append(DOC, body(n)) for n in range(10)]
        for count in (2, 3, 7, 10, 11):
            tail = await peer.tail(DOC, stamps[-1], count)
            assert [element.ts for element in tail] == stamps[-count:]


async def test_many_documents_share_one_connection() -> None:
    keys = ["notes/a", "notes/b", "other/c"]
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        async with peer.follow(keys[0], 0) as a, peer.follow(keys[1], 0), peer.follow(keys[2], 0):
            stamps = {key: await peer.append(key, body(1, document=key)) for key in keys}
            await a.wait()
            for key in keys:
                assert await pull_all(peer, key=key) == [stamps[key]]
            assert len(relay.peers) == 1
            assert peer.status.documents == set(keys)
        assert peer.status.documents == frozenset()


async def test_a_reader_that_falls_behind_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following_module, "FOLLOW_ELEMENTS_MAX", 7)
    async with (
        Relay.serve(MemoryLog()) as relay,
        transport(relay.url) as writer,
        transport(relay.url, BOB) as reader,
        reader.follow(DOC, 0) as follow,
    ):
        written, seen = list[int](), list[int]()
        for burst in (1, 30, 3, 100, 2, 8, 1):
            written += [await writer.append(DOC, body(len(written) + n)) for n in range(burst)]
            while seen != written:
                seen += await pull_all(reader, seen[-1] if seen else 0)
                if seen != written:
                    await follow.wait()
        assert seen == written


async def test_presence_reaches_the_others_and_comes_back_after_a_restart() -> None:
    async with (
        restartable() as server,
        transport(server.url) as alice,
        transport(server.url, BOB) as bob,
        alice.follow(DOC, 0) as follow,
    ):
        bob.set_presence(DOC, {"name": "Bob"})
        await follow.wait_peers()
        assert list(follow.peers.values()) == [(BOB.public_key, {"name": "Bob"})]
        await server.stop()
        await follow.wait_peers()
        assert follow.peers == {}
        await server.start()
        await follow.wait_peers()
        assert list(follow.peers.values()) == [(BOB.public_key, {"name": "Bob"})]
        bob.set_presence(DOC, None)
        await follow.wait_peers()
        assert follow.peers == {}


async def test_presences_that_have_to_wait_are_sent_without_anything_else_happening() -> None:
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        await reach_state(peer, State.LIVE)
        documents = {f"notes/{n}" for n in range(35)}
        for document_key in documents:
            peer.set_presence(document_key, {"name": "Alice"})
        (seen,) = relay.peers
        await eventually(lambda: seen.present_in == documents)


# ── relays that come and go ────────────────────────────────────────────────────────────


class Restartable:
    """A relay that can be stopped and started again where it was, on the same log or another."""

    def __init__(self) -> None:
        self.log: RelayLog = MemoryLog()
        self.url = ""
        self._port = 0
        self._stop: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Relay:
        started: asyncio.Future[Relay] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run(started, self._stop))
        self._task.add_done_callback(lambda task: started.done() or started.cancel())
        relay = await started
        self._port, self.url = relay.port, relay.url
        return relay

    async def _run(self, started: asyncio.Future[Relay], stop: asyncio.Event) -> None:
        async with Relay.serve(self.log, port=self._port) as relay:
            started.set_result(relay)
            await stop.wait()

    async def stop(self) -> None:
        assert self._stop is not None
        assert self._task is not None
        self._stop.set()
        await self._task


@asynccontextmanager
async def restartable() -> AsyncIterator[Restartable]:
    server = Restartable()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_after_a_restart_everything_goes_on_where_it_was() -> None:
    async with (
        restartable() as server,
        transport(server.url) as writer,
        transport(server.url, BOB) as reader,
        reader.follow(DOC, 0) as follow,
    ):
        stamps = [await writer.append(DOC, body(1))]
        await follow.wait()
        assert await pull_all(reader) == stamps
        for n in range(2, 5):
            await server.stop()
            await server.start()
            await reach_state(writer, State.LIVE)
            stamps.append(await writer.append(DOC, body(n)))
            seen: list[int] = []
            while not seen:
                await follow.wait()
                seen = await pull_all(reader, stamps[-2])
            assert seen == stamps[-1:]
        assert await pull_all(reader) == stamps


async def test_a_relay_that_is_down_at_first_is_found_when_it_comes() -> None:
    server = Restartable()
    await server.start()
    await server.stop()
    async with transport(server.url) as peer:
        with pytest.raises(OfflineError) as caught:
            await peer.append(DOC, body(1))
        assert caught.value.retryable
        assert peer.status.state is State.OFFLINE
        with pytest.raises(OfflineError):
            await peer.pull(DOC, 0)
        async with peer.follow(DOC, 0) as follow:
            await server.start()
            await reach_state(peer, State.LIVE)
            ts = await peer.append(DOC, body(1))
            await follow.wait()
            assert await pull_all(peer) == [ts]
    await server.stop()


async def test_another_database_under_the_same_name_is_never_written_to_nor_read() -> None:
    async with restartable() as server, transport(server.url) as peer:
        ts = await peer.append(DOC, body(1))
        assert await pull_all(peer) == [ts]
        expected = peer.log_of(DOC)
        assert expected is not None
        async with peer.follow(DOC, ts) as follow:
            await server.stop()
            server.log = MemoryLog()
            await server.start()
            await reach_state(peer, State.LIVE)
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: peer.append(DOC, body(2)),
                lambda: peer.pull(DOC, 0),
                lambda: peer.pull(DOC, ts),
                lambda: peer.tail(DOC, ts, 1),
                lambda: peer.read(f"{DOC}__snapshot"),
                lambda: peer.write(f"{DOC}__snapshot", {"any": 1}, None),
            ]
            for call in calls:
                with pytest.raises(OtherLogError) as caught:
                    await call()
                assert not caught.value.retryable
                assert (caught.value.document_key, caught.value.expected) == (DOC, expected)
                assert caught.value.found not in (None, expected)
            # Who waits for news is woken, to find out.
            await follow.wait()
        assert await server.log.documents("", count_max=10) == []
        # Other documents are not concerned.
        await peer.append("notes/b", body(1, document="notes/b"))


async def test_a_log_that_is_known_from_an_earlier_session_is_told_from_another_one() -> None:
    async with Relay.serve(MemoryLog()) as relay:
        async with transport(relay.url) as peer:
            await peer.append(DOC, body(1))
            await peer.pull(DOC, 0)
            logs = peer.logs
        async with transport(relay.url, logs=logs) as peer:
            assert peer.log_of(DOC) == logs[DOC]
            assert len(await peer.pull(DOC, 0)) == 1
        async with transport(relay.url, logs={DOC: "0" * 32}) as peer:
            with pytest.raises(OtherLogError):
                await peer.append(DOC, body(2))


async def test_a_log_that_was_pruned_says_so() -> None:
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        stamps = [await peer.append(DOC, body(n)) for n in range(5)]
        await relay.log.compact([Removal(DOC, (), stamps[2])])
        with pytest.raises(CheckpointTooOldError) as caught:
            await peer.pull(DOC, stamps[0])
        assert caught.value.floor == stamps[2]
        async with peer.follow(DOC, stamps[0]) as follow:
            await follow.wait()
            with pytest.raises(CheckpointTooOldError):
                await peer.pull(DOC, stamps[0])
            # From where the log still is, all goes well again, live too.
            assert await pull_all(peer, stamps[2]) == stamps[3:]
            while (await peer.append(DOC, body(9))) and await peer.pull(DOC, stamps[-1]) == []:
                await follow.wait()


# ── documents ──────────────────────────────────────────────────────────────────────────


def document(peer: Any, who: Identity, **options: Any) -> WalDocument:
    return WalDocument(
        document_key=DOC,
        transport=peer,
        identity=who,
        writers=MEMBERS,
        snapshot_role=MEMBERS,
        **{"snapshot_store": peer, **options},
    )


async def test_two_people_edit_one_document_and_a_third_starts_from_its_snapshot() -> None:
    async with (
        restartable() as server,
        transport(server.url) as alice,
        transport(server.url, BOB) as bob,
    ):
        left, right = await document(alice, ALICE).open(), await document(bob, BOB).open()
        async with (
            alice.follow(DOC, left.current_checkpoint),
            bob.follow(DOC, right.current_checkpoint) as news,
        ):
            left.insert_text("body", 0, "Hello")
            await left.commit()
            await news.wait()
            await right.pull()
            right.insert_text("body", 5, ", world 🦉")
            right.set_field("title", "Zoë")
            left.put("tags", "draft", True)
            await asyncio.gather(left.commit(), right.commit())
            await asyncio.gather(left.pull(), right.pull())
            assert left.unconfirmed == right.unconfirmed == 0
            await left.snapshot()
            await server.stop()
            await server.start()
            await reach_state(bob, State.LIVE)
            right.insert_text("body", 0, "> ")
            await right.commit()
            await reach_state(alice, State.LIVE)
            await asyncio.gather(left.pull(), right.pull())
        async with transport(server.url, BOB) as late:
            third = await document(late, BOB).open()
            assert third.snapshot_verdict.name == "TRUSTED"
            for each in (left, right, third):
                assert each.text("body") == "> Hello, world 🦉"
                assert each.field("title") == "Zoë"


# ── relays that are rolled back ────────────────────────────────────────────────────────


class Vault:
    """A relay on a SQLite file that can be put back to what it was."""

    def __init__(self, server: Restartable, path: Path) -> None:
        self._server = server
        self._path = path
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        self._server.log = await self._stack.enter_async_context(SqliteLog.open(self._path))
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()
        await self._stack.aclose()

    async def save(self, name: str, *peers: WebSocketTransport) -> None:
        """Keep a copy of the database as it is now."""
        await self.stop()
        shutil.copy(self._path, self._path.with_name(name))
        await self.start()
        for peer in peers:
            await reach_state(peer, State.LIVE)

    async def put_back(self, name: str, *peers: WebSocketTransport) -> None:
        """Have the relay go on from an older copy."""
        await self.stop()
        for each in self._path.parent.glob(f"{self._path.name}*"):
            each.unlink()
        shutil.copy(self._path.with_name(name), self._path)
        await self.start()
        for peer in peers:
            await reach_state(peer, State.LIVE)

    @property
    def url(self) -> str:
        return self._server.url


@pytest.fixture
async def vault(tmp_path: Path) -> AsyncIterator[Vault]:
    vault = Vault(Restartable(), tmp_path / "relay.db")
    await vault.start()
    await vault.save("empty")
    try:
        yield vault
    finally:
        await vault.stop()


@pytest.mark.parametrize("is_followed", [False, True])
@pytest.mark.parametrize("copy", ["empty", "older"])
async def test_a_relay_that_was_put_back_says_how_far_it_reaches(
    vault: Vault, copy: str, is_followed: bool
) -> None:
    async with transport(vault.url) as peer, AsyncExitStack() as stack:
        first = await peer.append(DOC, body(1))
        await vault.save("older", peer)
        newest = await peer.append(DOC, body(2))
        assert await pull_all(peer) == [first, newest]
        log = peer.log_of(DOC)
        if is_followed:
            follow = await stack.enter_async_context(peer.follow(DOC, newest))
            await peer.pull(DOC, newest)
        await vault.put_back(copy, peer)
        if is_followed:
            # A reader who waits for news is told to look.
            await follow.wait()
        head = {"empty": 0, "older": first}[copy]
        for _ in range(2):
            with pytest.raises(LogBehindError) as caught:
                await peer.pull(DOC, newest)
            assert (caught.value.head, caught.value.checkpoint) == (head, newest)
            assert not caught.value.retryable
        # It is the same log, which is why nothing else gives it away.
        assert await pull_all(peer, head) == []
        assert peer.log_of(DOC) == log
        # From there on everything goes on.
        again = await peer.append(DOC, body(3))
        assert await pull_all(peer, head) == [again]


@pytest.mark.parametrize("copy", ["empty", "older"])
async def test_a_document_notices_that_its_relay_was_put_back(vault: Vault, copy: str) -> None:
    events: list[object] = []
    async with transport(vault.url) as alice, transport(vault.url, BOB) as bob:
        left = await document(alice, ALICE, on_event=events.append).open()
        left.set_text("body", "one")
        await left.commit()
        await left.pull()
        await vault.save("older", alice, bob)
        left.set_text("body", "one two")
        await left.commit()
        await left.pull()
        await vault.put_back(copy, alice, bob)
        for _ in range(2):
            with pytest.raises(RollbackDetectedError, match="it ends at"):
                await left.pull()
        assert [type(event) for event in events] == [Rollback]
        with pytest.raises(ReadOnlyError):
            left.set_text("body", "more")
        with pytest.raises(ReadOnlyError):
            await left.commit()
        left.accept_rollback()
        # What is gone there stays here, and is neither sent again nor hidden in a snapshot.
        assert left.text("body") == "one two"
        assert await left.pull() == 0
        # What was accepted is not held against the next session.
        right = await document(bob, BOB, marks=left.marks).open()
        assert right.text("body") == {"empty": "", "older": "one"}[copy]
        right.set_field("title", "after")
        await right.commit()
        assert await left.pull() == 1
        assert left.field("title") == "after"
        left.set_field("by", "Alice")
        await left.commit()
        await left.pull()
        await right.pull()
        assert right.field("by") == "Alice"
        assert "two" not in right.text("body")
        with pytest.raises(SnapshotRefusedError, match="gone from the log"):
            await left.snapshot()
        later = await document(alice, ALICE, marks=left.marks).open()
        assert later.field("by") == "Alice"


async def test_a_document_that_opens_from_a_snapshot_beyond_its_log_is_read_only() -> None:
    snapshots, logs = MemorySnapshots(), MemoryTransport()

    def doc() -> WalDocument:
        return document(logs, ALICE, snapshot_store=snapshots)

    first = await doc().open()
    first.set_field("title", "kept")
    await first.commit()
    await first.snapshot()
    logs = MemoryTransport()
    second = doc()
    with pytest.raises(RollbackDetectedError):
        await second.open()
    assert second.field("title") == "kept"
    with pytest.raises(ReadOnlyError):
        second.set_field("title", "other")
    second.accept_rollback()
    assert second.current_checkpoint == 0
    second.set_field("title", "other")
    await second.commit()
    await second.pull()
    assert second.unconfirmed == 0
    assert second.field("title") == "other"


# ── servers that lie and break ─────────────────────────────────────────────────────────


class Peer:
    """The server's end of one connection, in the hands of a test."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket

    async def say(self, *frames: RelayFrame) -> None:
        for frame in frames:
            await self.socket.send(relay_frame(frame), text=True)

    async def hear(self) -> ClientFrame:
        text = await self.socket.recv()
        assert isinstance(text, str)
        return read_client_frame(text)

    async def admit(self) -> None:
        await self.say(Hello((1,), "e" * 32, "c" * 64, {}, "scripted"))
        auth = await self.hear()
        assert isinstance(auth, Auth)
        await self.say(Ok(auth.ref, {}))

    def cut(self) -> None:
        """Let the connection vanish without a word."""
        self.socket.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def scripted(*scripts: Script, **options: Any) -> AsyncIterator[str]:
    """A server that plays one script per connection, and the last one from then on."""
    count = 0

    async def play(socket: ServerConnection) -> None:
        nonlocal count
        script = scripts[min(count, len(scripts) - 1)]
        count += 1
        try:
            await script(Peer(socket))
        except ConnectionClosed:
            return

    async with serve(play, "127.0.0.1", 0, **options) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


class Shelf:
    """The log of a scripted server, and how it answers while it is honest."""

    def __init__(self) -> None:
        self.stored: list[Append] = []
        self.received: list[Append] = []

    async def honest(self, peer: Peer) -> None:
        await peer.admit()
        while True:
            await self.answer(peer, await peer.hear())

    def place(self, frame: Append) -> int:
        for ts, known in enumerate(self.stored, 1):
            if known.data == frame.data:
                return ts
        self.stored.append(frame)
        return len(self.stored)

    async def answer(self, peer: Peer, frame: ClientFrame) -> None:
        match frame:
            case Append():
                self.received.append(frame)
                ts = self.place(frame)
                await peer.say(Ok(frame.ref, {"ts": ts, "seq": ts, "log": LOG}))
            case Pull():
                rows = [
                    Delivered(ts, ts, each.author, each.signature, each.data)
                    for ts, each in enumerate(self.stored, 1)
                    if ts > frame.after
                ]
                if rows:
                    await peer.say(Elements(frame.ref, rows))
                last = rows[-1].ts if rows else frame.after
                end = {"ts": last, "log": LOG, "head": len(self.stored), "more": False}
                await peer.say(EndOfStored(frame.ref, end))
            case PullTail():
                end = {"ts": frame.upto, "log": LOG, "head": len(self.stored), "more": False}
                await peer.say(EndOfStored(frame.ref, end))
            case GetSnapshot():
                await peer.say(SnapshotPiece(frame.ref, None, None, True, LOG))
            case _:
                raise AssertionError(frame)


@pytest.mark.parametrize("how", ["cut", "half-close", "close"])
async def test_an_append_whose_connection_dies_is_sent_again_and_stored_once(how: str) -> None:
    shelf = Shelf()

    async def stores_and_dies(peer: Peer) -> None:
        await peer.admit()
        frame = await peer.hear()
        assert isinstance(frame, Append)
        shelf.received.append(frame)
        shelf.place(frame)
        match how:
            case "cut":
                peer.cut()
            case "half-close":
                peer.socket.transport.write_eof()
            case _:
                await peer.socket.close(1011, "out of order")

    async with scripted(stores_and_dies, shelf.honest) as url, transport(url) as peer:
        assert await peer.append(DOC, body(1)) == 1
        assert len(shelf.received) == 2
        assert shelf.received[0] == shelf.received[1]
        assert len(shelf.stored) == 1


async def test_a_relay_that_keeps_breaking_off_is_not_waited_for() -> None:
    async def dies(peer: Peer) -> None:
        await peer.admit()
        await peer.hear()
        peer.cut()

    # The connection did not last, so the next attempt is far away: nobody is kept waiting for it.
    far = Backoff(quick_ms_min=0, quick_ms_max=1, pause_ms_min=10**8, pause_ms_max=10**8)
    async with scripted(dies) as url, transport(url, backoff=far) as peer:
        with pytest.raises(OfflineError) as caught:
            await peer.append(DOC, body(1))
        assert caught.value.retryable
        assert peer.status.state is State.OFFLINE


async def test_two_thousand_appends_one_after_the_other_are_all_answered() -> None:
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        stamps = [await peer.append(DOC, body(n)) for n in range(2_000)]
        assert stamps == await pull_all(peer)


async def test_appends_of_several_tasks_at_once_are_all_answered() -> None:
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:

        async def write(task: int) -> list[int]:
            return [await peer.append(DOC, body(1_000 * task + n)) for n in range(250)]

        stamps = await asyncio.gather(*map(write, range(8)))
        assert all(each == sorted(each) for each in stamps)
        assert sorted(ts for each in stamps for ts in each) == await pull_all(peer)


@pytest.mark.parametrize("seed", range(2))
async def test_whenever_the_connection_breaks_every_append_is_stored_once(seed: int) -> None:
    chance = random.Random(seed)
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        is_over = False

        async def write(task: int) -> list[int]:
            stamps: list[int] = []
            while not is_over:
                element = body(1_000_000 * task + len(stamps))
                # No answer at all would be a wake-up that was lost; it is not waited out.
                stamps.append(await peer.append(DOC, element))
            return stamps

        writing = [asyncio.create_task(write(task)) for task in range(8)]
        for _ in range(200):
            await reach_state(peer, State.LIVE)
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            for each in relay.peers:
                each._socket.transport.abort()
            await reach(peer, lambda status: status.state is not State.LIVE)
        is_over = True
        stamps = [ts for each in await asyncio.gather(*writing) for ts in each]
        assert sorted(stamps) == await pull_all(peer)


async def test_an_append_whose_relay_does_not_come_back_may_be_tried_again() -> None:
    gone = asyncio.Event()

    async def dies(peer: Peer) -> None:
        await peer.admit()
        await peer.hear()
        gone.set()
        peer.cut()

    async with scripted(dies) as url, transport(url, request_timeout_ms=200) as peer:
        waiting = asyncio.create_task(peer.append(DOC, body(1)))
        await gone.wait()
        # Every further attempt is let in, and then dies in the same way.
        with pytest.raises(NoAnswerError) as caught:
            await waiting
        assert caught.value.retryable


async def test_what_was_acknowledged_and_forgotten_is_sent_again_by_the_document() -> None:
    shelf = Shelf()

    async def forgets(peer: Peer) -> None:
        await peer.admit()
        while True:
            frame = await peer.hear()
            if isinstance(frame, Append):
                shelf.received.append(frame)
                await peer.say(Ok(frame.ref, {"ts": 1, "seq": 1, "log": LOG}))
                await peer.socket.close()
            else:
                await shelf.answer(peer, frame)

    async with scripted(forgets, shelf.honest) as url, transport(url) as peer:
        doc = await document(peer, ALICE).open()
        doc.set_field("title", "kept")
        await doc.commit()
        assert shelf.stored == []
        await doc.pull()
        assert doc.unsent == 1
        await doc.commit()
        await doc.pull()
        assert doc.unconfirmed == 0
        assert [each.data for each in shelf.received] == [shelf.stored[0].data] * 2


LIES: dict[str, Callable[[Peer, ClientFrame], Awaitable[None]]] = {
    "garbage": lambda peer, frame: peer.socket.send("{]"),
    "binary": lambda peer, frame: peer.socket.send(b"\x00\x01"),
    "a second hello": lambda peer, frame: peer.say(Hello((1,), "e" * 32, "c" * 64, {}, "")),
    "an answer to nothing": lambda peer, frame: peer.say(Ok("999", {"ts": 1, "seq": 1})),
    "an answer of another kind": lambda peer, frame: peer.say(
        SnapshotPiece(frame.ref, None, None, True, LOG)  # type: ignore[union-attr]
    ),
    "invalid text": lambda peer, frame: peer.socket.send(b"\xff", text=True),
    "far too much": lambda peer, frame: peer.socket.send("x" * (4 * 2**20)),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_relay_that_breaks_the_protocol_is_left_and_given_another_chance(lie: str) -> None:
    shelf = Shelf()
    ended: asyncio.Future[tuple[int | None, str | None]] = (
        asyncio.get_running_loop().create_future()
    )

    async def lies(peer: Peer) -> None:
        await peer.admit()
        await LIES[lie](peer, await peer.hear())
        try:
            while True:
                await peer.hear()
        except ConnectionClosed:
            ended.set_result((peer.socket.close_code, peer.socket.close_reason))

    async with scripted(lies, shelf.honest) as url, transport(url) as peer:
        assert await peer.append(DOC, body(1)) == 1
        code, reason = await ended
        assert code in (1002, 1007, 1009)
        assert reason
        assert peer.status.state is State.LIVE


async def test_a_relay_that_never_says_hello_is_no_connection() -> None:
    async def silent(peer: Peer) -> None:
        await peer.socket.wait_closed()

    async with scripted(silent) as url, transport(url, request_timeout_ms=50) as peer:
        with pytest.raises(TransportError) as caught:
            await peer.append(DOC, body(1))
        assert caught.value.retryable
        await reach_state(peer, State.OFFLINE)


async def test_a_relay_that_never_answers_does_not_hold_a_call_for_ever() -> None:
    async def deaf(peer: Peer) -> None:
        await peer.admit()
        while True:
            await peer.hear()

    async with scripted(deaf) as url, transport(url, request_timeout_ms=50) as peer:
        for call in (peer.append(DOC, body(1)), peer.pull(DOC, 0), peer.read(f"{DOC}__snapshot")):
            with pytest.raises(NoAnswerError) as caught:
                await call
            assert caught.value.retryable
        assert peer.status.state is State.LIVE
        async with peer.follow(DOC, 0):
            with pytest.raises(NoAnswerError):
                await peer.pull(DOC, 0)
        assert peer.status.pending == 0


async def test_answers_may_be_late_and_in_any_order() -> None:
    async def backwards(peer: Peer) -> None:
        await peer.admit()
        frames = [await peer.hear() for _ in range(20)]
        for frame in reversed(frames):
            assert isinstance(frame, Append)
            ts = int(parse(frame.data)["n"]) + 1  # type: ignore[call-overload,index]
            await peer.say(Ok(frame.ref, {"ts": ts, "seq": ts, "log": LOG}))
        await peer.socket.wait_closed()

    async with scripted(backwards) as url, transport(url) as peer:
        stamps = await asyncio.gather(*(peer.append(DOC, body(n)) for n in range(20)))
        assert stamps == list(range(1, 21))


async def test_a_subscription_that_a_relay_keeps_ending_still_brings_everything() -> None:
    shelf = Shelf()

    async def ends(peer: Peer) -> None:
        await peer.admit()
        while True:
            frame = await peer.hear()
            if isinstance(frame, Pull) and frame.is_live:
                await peer.say(Closed(frame.ref, "too slow"))
            else:
                await shelf.answer(peer, frame)

    async with scripted(ends) as url, transport(url) as peer, peer.follow(DOC, 0) as follow:
        await peer.append(DOC, body(1))
        await follow.wait()
        assert await pull_all(peer) == [1]


async def test_a_snapshot_that_is_no_snapshot_does_not_keep_a_document_from_opening() -> None:
    shelf, text = Shelf(), "{ not JSON"

    async def fills_in(peer: Peer) -> None:
        await peer.admit()
        while True:
            frame = await peer.hear()
            if isinstance(frame, GetSnapshot):
                revision = sha256(text.encode()).hexdigest()
                await peer.say(SnapshotPiece(frame.ref, revision, text, True, LOG))
            else:
                await shelf.answer(peer, frame)

    async with scripted(fills_in) as url, transport(url) as peer:
        stored = await peer.read(f"{DOC}__snapshot")
        assert stored is not None
        assert stored.document is None
        doc = document(peer, ALICE)
        with pytest.raises(RejectedElementsError, match="malformed snapshot"):
            await doc.open()
        assert doc.snapshot_verdict.name == "FORGED"
        doc.set_field("title", "written all the same")
        assert await doc.commit() == 1


@pytest.mark.parametrize(
    ("state", "signed", "is_read"),
    [
        (["x"] * SNAPSHOT_PIECE_SIZE, DOC, True),
        # It was signed for another document, and to parse it would take its time all the same.
        (["x"] * SNAPSHOT_PIECE_SIZE, "other", False),
        ([0] * SNAPSHOT_VALUES_MAX, DOC, False),
    ],
    ids=["honest", "forged", "beyond"],
)
async def test_of_large_snapshots_those_are_parsed_that_are_signed_and_could_be_stored(
    state: list[object], signed: str, is_read: bool
) -> None:
    text = snapshot_text(ALICE, signed, upto_ts=0, state=state)

    class Hostile(MemoryLog):
        async def snapshot(self, document: str) -> StoredText | None:
            return StoredText(sha256(text).hexdigest(), text)

        async def snapshot_part(
            self, document: str, revision: str, *, start: int, size: int
        ) -> bytes | None:
            return text[start : start + size]

    async with Relay.serve(Hostile()) as relay, transport(relay.url) as peer:
        stored = await peer.read(f"{DOC}__snapshot")
    assert stored is not None
    assert stored.document == (parse(text) if is_read else None)


async def test_a_connection_that_goes_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 * dialling._PING_S < 30
    monkeypatch.setattr(dialling, "_PING_S", 0.05)
    async with (
        frozen_line() as line,
        Relay.serve(MemoryLog(), public_url=line.url) as relay,
        transport(line.url) as peer,
    ):
        line.port = relay.port
        await reach_state(peer, State.LIVE)
        await peer.append(DOC, body(1))
        line.freeze()
        await reach(peer, lambda status: status.state is not State.LIVE)
        line.thaw()
        await reach_state(peer, State.LIVE)
        await peer.append(DOC, body(2))
        assert len(await pull_all(peer)) == 2


class Line:
    """A line to a relay that can go dead without being closed."""

    def __init__(self) -> None:
        self.url = ""
        self.port = 0
        self._flows = asyncio.Event()
        self._flows.set()

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    async def carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(2**16):
                await self._flows.wait()
                target.write(chunk)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.close()


@asynccontextmanager
async def frozen_line() -> AsyncIterator[Line]:
    line = Line()
    tasks: set[asyncio.Task[None]] = set()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not line.port:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", line.port)
        tasks.add(asyncio.create_task(line.carry(reader, far_writer)))
        tasks.add(asyncio.create_task(line.carry(far_reader, writer)))

    server = await asyncio.start_server(join, "127.0.0.1", 0)
    line.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        line.thaw()
        server.close()
        await asyncio.gather(*tasks)


# ── who is let in ──────────────────────────────────────────────────────────────────────


async def test_a_relay_that_clients_know_under_another_name_refuses_their_proof() -> None:
    async with (
        Relay.serve(MemoryLog(), public_url="wss://elsewhere.example") as relay,
        transport(relay.url) as peer,
    ):
        with pytest.raises(NotAdmittedError) as caught:
            await peer.append(DOC, body(1))
        assert not caught.value.retryable
        await reach_state(peer, State.REFUSED)
        with pytest.raises(NotAdmittedError):
            await peer.pull(DOC, 0)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (HTTPStatus.NOT_FOUND, State.REFUSED),
        (HTTPStatus.FORBIDDEN, State.REFUSED),
        (HTTPStatus.TOO_MANY_REQUESTS, State.OFFLINE),
        (HTTPStatus.SERVICE_UNAVAILABLE, State.OFFLINE),
    ],
)
async def test_a_server_that_is_no_relay_is_told_from_one_that_is_busy(
    status: HTTPStatus, state: State
) -> None:
    def turn_away(socket: ServerConnection, request: Request) -> Response:
        return socket.respond(status, "no")

    async def never(peer: Peer) -> None:
        raise AssertionError

    async with scripted(never, process_request=turn_away) as url, transport(url) as peer:
        await reach_state(peer, state)
        assert str(status.value) in peer.status.reason
        with pytest.raises(TransportError) as caught:
            await peer.append(DOC, body(1))
        assert caught.value.retryable is (state is State.OFFLINE)


@pytest.mark.parametrize("to", ["ws://x:99999/", "//[", "http://login.example/", ""])
async def test_a_server_that_leads_elsewhere_is_not_followed_and_asked_again(to: str) -> None:
    answers, is_asked_again = count(1), asyncio.Event()

    def lead(socket: ServerConnection, request: Request) -> Response:
        if next(answers) == 3:
            is_asked_again.set()
        response = socket.respond(HTTPStatus.FOUND, "elsewhere")
        response.headers["Location"] = to
        return response

    async def never(peer: Peer) -> None:
        raise AssertionError

    async with scripted(never, process_request=lead) as url, transport(url) as peer:
        await reach_state(peer, State.OFFLINE)
        assert "302, which leads elsewhere and is not followed" in peer.status.reason
        async with asyncio.timeout(20):
            await is_asked_again.wait()
        assert peer.status.state is not State.CLOSED


@pytest.mark.parametrize("error", [ValueError("odd"), UnicodeError("label too long"), ImportError])
async def test_whatever_keeps_a_connection_from_being_made_is_a_failed_attempt(
    error: Exception,
) -> None:
    async with Relay.serve(MemoryLog()) as relay:
        attempts = 0

        def connect(url: str) -> AbstractAsyncContextManager[Connection]:
            nonlocal attempts
            attempts += 1
            if attempts < 3:
                raise error
            return dialling.websocket_connect()(url)

        async with transport(relay.url, connect=connect) as peer:
            await reach_state(peer, State.LIVE)
            assert attempts == 3


async def test_somebody_elses_element_is_refused() -> None:
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        with pytest.raises(RelayRefusalError) as caught:
            await peer.append(DOC, body(1, BOB))
        assert not caught.value.retryable
        assert await pull_all(peer) == []


async def test_a_forged_element_is_refused_and_the_connection_lives_on() -> None:
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        with pytest.raises(RelayRefusalError):
            await peer.append(DOC, body(1)._replace(signature="A" * 86 + "=="))
        await peer.append(DOC, body(2))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ws://127.0.0.1:3400", "127.0.0.1:3400"),
        ("wss://Relay.Example", "relay.example:443"),
        ("ws://relay.example/ws", "relay.example:80"),
        ("ws://[::1]:3400/", "[::1]:3400"),
    ],
)
def test_a_relay_has_one_name_however_its_url_is_spelled(url: str, address: str) -> None:
    assert dialling.address_of(url) == address


@pytest.mark.parametrize("url", ["", "http://a", "ws://", "relay", "ws://a:99999", "ws://a#b"])
def test_a_url_that_is_not_a_relays_is_refused(url: str) -> None:
    with pytest.raises(RelayUrlError):
        WebSocketTransport(url, identity=ALICE)


@pytest.mark.parametrize("key", ["", "x" * 513, "a\nb", "a\ud800", "notes/a__snapshot"])
async def test_a_key_that_no_relay_takes_is_refused(key: str) -> None:
    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        with pytest.raises(DocumentKeyRefusedError):
            await peer.pull(key, 0)
        with pytest.raises(DocumentKeyRefusedError):
            await peer.append(key, body(1))
        with pytest.raises(DocumentKeyRefusedError):
            await peer.read("notes/a")


# ── status and lifetime ────────────────────────────────────────────────────────────────


async def test_the_status_tells_what_happens() -> None:
    async with restartable() as server, transport(server.url) as peer:
        states: list[State] = []
        subscription = peer.on_status(lambda status: states.append(status.state))
        assert peer.status.state is State.CONNECTING
        assert (peer.status.last_ack_ms, peer.status.lag_ms) == (None, None)
        append = asyncio.create_task(peer.append(DOC, body(1)))
        await reach(peer, lambda status: status.pending == 1)
        ts = await append
        status = peer.status
        assert (status.state, status.pending) == (State.LIVE, 0)
        # A `ts` is the relay's clock, on the same machine.
        assert status.last_ack_ms is not None
        assert abs(status.last_ack_ms - ts) < 60_000
        assert status.lag_ms is not None
        assert 0 <= status.lag_ms < 60_000
        await server.stop()
        await reach_state(peer, State.OFFLINE)
        await server.start()
        await reach_state(peer, State.LIVE)
        told = [state for n, state in enumerate(states) if n == 0 or states[n - 1] is not state]
        assert told[0] in (State.CONNECTING, State.LIVE)
        assert told[-3:] == [State.CONNECTING, State.OFFLINE, State.LIVE]
        subscription.close()
        count = len(states)
        await peer.append(DOC, body(2))
        assert len(states) == count


async def test_a_callback_that_fails_harms_nobody() -> None:
    seen: list[BaseException | None] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context.get("exception")))

    def fail(status: TransportStatus) -> None:
        raise ZeroDivisionError

    async with Relay.serve(MemoryLog()) as relay, transport(relay.url) as peer:
        peer.on_status(fail)
        await peer.append(DOC, body(1))
        await peer.append(DOC, body(2))
    assert seen
    assert all(isinstance(error, ZeroDivisionError) for error in seen)


async def test_closing_ends_whoever_waits() -> None:
    async def deaf(peer: Peer) -> None:
        await peer.admit()
        await peer.socket.wait_closed()

    async with scripted(deaf) as url:
        async with transport(url) as peer:
            follow = peer.follow(DOC, 0)
            followed = await follow.__aenter__()
            waiting = [
                asyncio.create_task(peer.append(DOC, body(1))),
                asyncio.create_task(peer.pull(DOC, 0)),
                asyncio.create_task(peer.read(f"{DOC}__snapshot")),
                asyncio.create_task(followed.wait()),
                asyncio.create_task(followed.wait_peers()),
            ]
            await reach(peer, lambda status: status.pending == 1)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [TransportClosedError] * 5
        await follow.__aexit__(None, None, None)
        assert peer.status.state is State.CLOSED
        with pytest.raises(TransportClosedError):
            await peer.append(DOC, body(2))
        with pytest.raises(TransportClosedError):
            await peer.__aenter__()


async def test_a_transport_that_was_not_opened_says_so() -> None:
    peer = transport("ws://127.0.0.1:9")
    with pytest.raises(TransportClosedError):
        await peer.append(DOC, body(1))


async def test_a_call_that_is_cancelled_is_forgotten() -> None:
    shelf, may_answer = Shelf(), asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.admit()
        while True:
            frame = await peer.hear()
            await may_answer.wait()
            await shelf.answer(peer, frame)

    async with scripted(slow) as url, transport(url) as peer:
        append = asyncio.create_task(peer.append(DOC, body(1)))
        await reach(peer, lambda status: status.pending == 1)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        assert peer.status.pending == 0
        may_answer.set()
        # Its late answer does no harm.
        assert await peer.append(DOC, body(2)) >= 1


async def test_what_breaks_inside_is_not_waited_for() -> None:
    async def broken(_: float) -> None:
        raise ZeroDivisionError

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    timing = Timing(sleep=broken)
    async with transport("ws://127.0.0.1:9", timing=timing) as peer:
        await reach_state(peer, State.CLOSED)
        assert "ZeroDivisionError" in peer.status.reason
        with pytest.raises(TransportClosedError):
            await peer.append(DOC, body(1))


async def test_attempts_are_paced_by_the_back_off() -> None:
    pauses: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            enough.set()
            await asyncio.Event().wait()

    def refuse(url: str) -> Any:
        raise ConnectionRefusedError("nobody is there")

    timing = Timing(sleep=sleep, chance=lambda: 1.0)
    peer = WebSocketTransport("ws://a:1", identity=ALICE, connect=refuse, timing=timing)
    async with peer:
        await enough.wait()
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


async def test_no_two_clients_pause_alike() -> None:
    clients, attempts = 20, 3
    pauses: list[list[float]] = []

    def refuse(url: str) -> Any:
        raise ConnectionRefusedError("nobody is there")

    for _ in range(clients):
        own: list[float] = []
        enough = asyncio.Event()

        async def sleep(seconds: float, own: list[float] = own, full: Any = enough) -> None:
            own.append(seconds)
            if len(own) == attempts:
                full.set()
                await asyncio.Event().wait()

        # All but the waiting is as in a client that was told nothing.
        usual = WebSocketTransport("ws://a:1", identity=ALICE)._keeper._timing
        timing = usual._replace(sleep=sleep)
        async with WebSocketTransport("ws://a:1", identity=ALICE, connect=refuse, timing=timing):
            await enough.wait()
        pauses.append(own)
    assert len({tuple(own) for own in pauses}) == clients
    for full_s, drawn in zip((1, 2, 4), zip(*pauses, strict=True), strict=True):
        # Half of a pause is chance, and all of that half is used.
        assert all(full_s / 2 <= each <= full_s for each in drawn)
        assert max(drawn) - min(drawn) > full_s / 8


async def test_compression_is_offered_unless_it_is_turned_off_or_the_relay_is_here() -> None:
    offered: list[str | None] = []

    def note(socket: ServerConnection, request: Request) -> None:
        offered.append(request.headers.get("Sec-WebSocket-Extensions"))

    async with scripted(Shelf().honest, process_request=note) as url:
        for compression in (True, False, None):
            async with transport(url, compression=compression) as peer:
                await peer.append(DOC, body(1))
    assert offered[0] is not None
    assert "permessage-deflate" in offered[0]
    assert offered[1:] == [None, None]


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("ws://127.0.0.1:1", True),
        ("ws://127.9.9.9:1/path", True),
        ("ws://[::1]:1", True),
        ("wss://localhost", True),
        ("ws://10.0.0.1:1", False),
        ("ws://[2001:db8::1]:1", False),
        ("wss://relay.example", False),
        ("ws://localhost.example:1", False),
    ],
)
def test_what_goes_to_this_machine_crosses_no_network(url: str, is_here: bool) -> None:
    assert _is_here(url) is is_here


def test_importing_the_package_does_not_import_websockets() -> None:
    code = """
import sys
import walstore.net
assert "websockets" not in sys.modules
sys.modules["websockets"] = None
try:
    from walstore.net import WebSocketTransport
except walstore.net.WebsocketsMissingError as error:
    assert "pip install 'walstore[net]'" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
