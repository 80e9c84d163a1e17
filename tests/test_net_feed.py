"""The changes feed as a client reads it: against a relay on loopback, and against hostile ones."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from hashlib import sha256
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.relay_clients import eventually, snapshot_text
from walstore.canon import canonical_bytes, parse
from walstore.document import Body, LogBehindError
from walstore.errors import TransportError
from walstore.net import WebSocketTransport, changes, feed_reader, feeds
from walstore.net.backoff import Backoff
from walstore.net.changes import PendingChanges, PendingFind
from walstore.net.client import RelayClient
from walstore.net.events import FeedMoved
from walstore.net.faults import (
    FalseAnswerError,
    FeedRefusedError,
    NotAdmittedError,
    OfflineError,
    OtherRelayError,
    RelayFaultError,
    RelayRefusalError,
    ReplayTooOldError,
    TransportClosedError,
)
from walstore.net.feed import FeedEvent, Wanted
from walstore.net.feeds import FEED_BYTES_MAX, FEED_EVENTS_MAX, Feed
from walstore.net.pending import Pending
from walstore.net.status import State, TransportStatus
from walstore.relay.limits import Limits
from walstore.relay.log import RelayLog, Removal
from walstore.relay.memory import MemoryLog
from walstore.relay.roles import Roles
from walstore.relay.server import Relay
from walstore.signed import Identity, sign_append
from walstore.signed.author import Domain, SigningFrame
from walstore.signed.chain import link
from walstore.wire.frames import (
    Auth,
    ClientFrame,
    Close,
    Closed,
    Code,
    EndOfStored,
    Events,
    EventStatus,
    FeedStatus,
    FollowChanges,
    Hello,
    Ok,
    Refusal,
    RelayFrame,
    Request,
    Shown,
    read_client_frame,
    relay_frame,
)
from walstore.wire.limits import ELEMENT_VALUES_MAX, TS_MAX

ALICE, BOB = (Identity.from_seed(bytes([n]) * 32) for n in (1, 2))
DOC = "notes/a"
HASTE = Backoff(quick_ms_min=0, quick_ms_max=2, pause_ms_min=1, pause_ms_max=20, lasting_ms=0)

# Data whose text a careless hand would change.
ODD_DATA: tuple[dict[str, Any], ...] = (
    {},
    {"text": 'quotes " and \\ and / and \u2028 and \u0000'},
    {"ä": 1, "z": 2, "😀": 3, "\uffff": 4},
    {"numbers": [0, -1, 1.5, 1e21, 1e-7, 2**53 - 1]},
    {"half a pair": "\ud800"},
    {"like a frame": ["EVENTS", "1", [[1, {}, 2]]], "],": "],{"},
)


@pytest.fixture(autouse=True)
async def _deadline() -> AsyncIterator[None]:
    """A test that hangs fails."""
    loop = asyncio.get_running_loop()
    given_up = loop.call_later(60, lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
    yield
    given_up.cancel()


def transport(url: str, who: Identity = ALICE, **options: Any) -> WebSocketTransport:
    return WebSocketTransport(url, identity=who, **{"backoff": HASTE, **options})


def body(data: dict[str, Any], who: Identity = ALICE, document: str = DOC) -> Body:
    return Body(canonical_bytes(data), *sign_append(document, data, who))


async def write(peer: WebSocketTransport, n: int, who: Identity = ALICE, key: str = DOC) -> int:
    return await peer.append(key, body({"n": n}, who, key))


async def put(
    peer: WebSocketTransport,
    key: str,
    upto_ts: int,
    state: Any = None,
    writer_seq: dict[str, int] | None = None,
) -> str:
    """Make a snapshot the current one; its revision."""
    text = snapshot_text(ALICE, key, upto_ts=upto_ts, state=state, writer_seq=writer_seq)
    stored = await peer.read(f"{key}__snapshot")
    document: Any = parse(text)
    await peer.write(f"{key}__snapshot", document, None if stored is None else stored.revision)
    return sha256(text).hexdigest()


async def take(events: AsyncIterator[FeedEvent], wanted: int) -> list[FeedEvent]:
    """So many of the events."""
    found: list[FeedEvent] = []
    while len(found) < wanted:
        found.append(await anext(events))
    return found


def numbers(events: Sequence[FeedEvent]) -> list[int]:
    return [json.loads(event.payload or b"")["n"] for event in events]


async def reach(peer: WebSocketTransport, state: State) -> None:
    reached = asyncio.Event()

    def look(status: TransportStatus) -> None:
        if status.state is state:
            reached.set()

    subscription = peer.on_status(look)
    look(peer.status)
    await reached.wait()
    subscription.close()


@asynccontextmanager
async def one_peer(**options: Any) -> AsyncIterator[tuple[Relay, WebSocketTransport]]:
    async with Relay.serve(MemoryLog(), **options) as relay, transport(relay.url) as peer:
        yield relay, peer


# ── what is stored ─────────────────────────────────────────────────────────────────────


async def test_an_element_comes_as_it_was_signed_with_all_that_is_known_of_it() -> None:
    async with one_peer() as (_, peer):
        bodies = [body(data) for data in ODD_DATA]
        stamps = [await peer.append(DOC, each) for each in bodies]
        events = [event async for event in peer.changes()]
        assert [event.payload for event in events] == [each.canonical for each in bodies]
        assert [event.ts for event in events] == stamps
        assert [event.seq for event in events] == list(range(1, len(bodies) + 1))
        for event, each in zip(events, bodies, strict=True):
            signed = SigningFrame(Domain.APPEND, DOC).around(each.canonical)
            name = link(signed, author_pubkey=each.author, author_signature=each.signature)
            assert event.accepted_ms > 0
            assert event[1:5] == (name, "element", DOC, ALICE.public_key)
            assert (event.signature, event.vc) == (each.signature, {})
            assert not event.is_deletion
            assert not event.is_compacted


async def test_a_snapshot_comes_as_it_was_signed() -> None:
    async with one_peer() as (_, peer):
        ts = await write(peer, 1)
        revision = await put(peer, DOC, ts, {"text": "Zoë \ud800"})
        (event,) = [event async for event in peer.changes(kinds=["snapshot"])]
        text = snapshot_text(ALICE, DOC, upto_ts=ts, state={"text": "Zoë \ud800"})
        assert event.payload == text
        assert (event.seq, event.id, event.kind, event.ts) == (2, revision, "snapshot", ts)
        assert event.vc == {ALICE.public_key: 1}
        assert event.signature == ""
        assert not event.is_deletion


@pytest.mark.parametrize(
    ("wanted", "seqs"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"since": 2}, [3, 4, 5]),
        ({"since": 5}, []),
        ({"until_seq": 3}, [1, 2, 3]),
        ({"since": 1, "until_seq": 3}, [2, 3]),
        ({"limit": 2}, [1, 2]),
        ({"limit": 0}, []),
        ({"limit": 20_000}, [1, 2, 3, 4, 5]),
        ({"prefix": "notes/"}, [1, 2, 4, 5]),
        ({"prefix": "notes/a", "limit": 1}, [1]),
        ({"documents": ["other", "notes/b"]}, [2, 3]),
        ({"documents": []}, []),
        ({"authors": {BOB.public_key}}, [4]),
        ({"kinds": ["snapshot"]}, [5]),
        ({"kinds": ["element"], "since": 3}, [4]),
    ],
)
@pytest.mark.parametrize("page", [1, 2, 1000])
async def test_what_was_asked_for_comes_in_order_whatever_the_pages(
    wanted: dict[str, Any], seqs: list[int], page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_reader, "PAGE_EVENTS_MAX", page)
    async with one_peer() as (relay, alice), transport(relay.url, BOB) as bob:
        await write(alice, 1)
        await write(alice, 2, key="notes/b")
        await write(alice, 3, key="other")
        ts = await write(bob, 4, BOB)
        await put(alice, DOC, ts)
        assert [event.seq async for event in alice.changes(**wanted)] == seqs


async def test_pages_are_cut_where_they_grow_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "PAGE_BYTES_MAX", 600_000)
    async with one_peer() as (_, peer):
        for n in range(12):
            await peer.append(DOC, body({"n": n, "fill": "x" * 250_000}))
        asked: list[int] = []
        ask = peer._client.changes

        def note(wanted: Wanted, **options: Any) -> PendingChanges:
            asked.append(options["since"])
            return ask(wanted, **options)

        monkeypatch.setattr(peer._client, "changes", note)
        assert numbers([event async for event in peer.changes()]) == list(range(12))
        assert len(asked) >= 4
        assert asked == sorted(set(asked))


async def test_what_was_compacted_is_told_in_its_place() -> None:
    async with one_peer() as (relay, peer):
        stamps = [await write(peer, n) for n in range(4)]
        before = [event async for event in peer.changes()]
        await relay.log.compact([Removal(DOC, (), stamps[1])])
        after = [event async for event in peer.changes()]
        assert [event.is_compacted for event in after] == [True, True, False, False]
        gone = [event._replace(payload=None, signature="", is_compacted=True) for event in before]
        assert after == gone[:2] + before[2:]


async def test_below_the_replay_window_it_is_told_where_it_begins() -> None:
    async with one_peer() as (relay, peer):
        for n in range(5):
            await write(peer, n)
        await relay.log.trim(4)
        for live in (False, True):
            with pytest.raises(ReplayTooOldError) as caught:
                await anext(peer.changes(since=2, live=live))
            assert caught.value.min_seq == 4
            assert not caught.value.retryable
        assert numbers([event async for event in peer.changes(since=3)]) == [3, 4]


async def test_what_may_not_be_read_is_refused() -> None:
    table = {"grant": [{"prefix": "notes/", "read": "any", "write": "any"}]}
    roles = Roles.from_table(table, source="test")
    async with one_peer(roles=roles) as (_, peer):
        await write(peer, 1)
        for live in (False, True):
            with pytest.raises(RelayRefusalError) as caught:
                await anext(peer.changes("", live=live))
            assert caught.value.code is Code.RESTRICTED
        assert len([event async for event in peer.changes("notes/")]) == 1


@pytest.mark.parametrize(
    "wanted",
    [
        {"prefix": "x" * 513},
        {"prefix": "\n"},
        {"prefix": 7},
        {"since": -1},
        {"since": TS_MAX + 1},
        {"since": True},
        {"until_seq": -1},
        {"limit": -1},
        {"documents": ["x"] * 1 + [f"{n}" for n in range(2000)]},
        {"authors": ["\ud800"]},
        {"live": True, "until_seq": 5},
    ],
    ids=repr,
)
async def test_what_no_relay_could_be_asked_is_refused_at_the_call(wanted: dict[str, Any]) -> None:
    async with one_peer() as (_, peer):
        with pytest.raises(FeedRefusedError):
            peer.changes(**wanted)
        with pytest.raises(FeedRefusedError):
            peer.find(["x"])
        with pytest.raises(FeedRefusedError):
            await peer.snapshot_by_revision(DOC, "x")
        assert await write(peer, 1) > 0


# ── live ───────────────────────────────────────────────────────────────────────────────


async def test_what_is_new_comes_by_itself() -> None:
    async with one_peer() as (relay, peer), transport(relay.url, BOB) as bob:
        await write(peer, 0)
        async with aclosing(bob.changes("notes/", live=True)) as events:
            assert numbers(await take(events, 1)) == [0]
            for n in range(1, 6):
                await write(peer, n, key="other/x")
                await write(peer, n)
                assert numbers(await take(events, 1)) == [n]


async def test_a_live_feed_ends_where_its_limit_is() -> None:
    async with one_peer() as (_, peer):
        await write(peer, 0)
        found: list[FeedEvent] = []
        async for event in peer.changes(live=True, limit=4):
            found.append(event)
            for n in range(2):
                await write(peer, 2 * event.seq + n)
        assert [event.seq for event in found] == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(4))
async def test_there_is_no_hole_where_pages_end_and_live_begins(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, total = random.Random(seed), 300
    monkeypatch.setattr(feed_reader, "PAGE_EVENTS_MAX", chance.choice([1, 7, 50]))
    monkeypatch.setattr(feeds, "FEED_EVENTS_MAX", chance.choice([1, 5, 4096]))
    async with one_peer() as (relay, peer), transport(relay.url, BOB) as bob:

        async def write_all() -> None:
            for n in range(total):
                await write(peer, n)

        async def read() -> list[int]:
            seen: list[int] = []
            while len(seen) < total:
                # Readers come and go at any moment of the writing.
                async with aclosing(bob.changes(since=len(seen), live=True)) as events:
                    wanted = min(chance.randrange(1, 120), total - len(seen))
                    seen += numbers(await take(events, wanted))
            return seen

        _, seen = await asyncio.gather(write_all(), read())
        assert seen == list(range(total))


async def test_no_more_is_asked_for_than_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "FEED_EVENTS_MAX", 10)
    monkeypatch.setattr(feed_reader, "PAGE_EVENTS_MAX", 10)
    async with one_peer() as (relay, peer), transport(relay.url, BOB) as bob:
        await write(peer, 0)
        events = bob.changes(live=True)
        assert numbers(await take(events, 1)) == [0]
        heard = 0
        receive = bob._client.receive

        def note(raw: str | bytes, now_ms: int) -> None:
            nonlocal heard
            heard += str(raw).count('"kind"')
            receive(raw, now_ms)

        monkeypatch.setattr(bob._client, "receive", note)
        for start in range(1, 501, 100):
            await asyncio.gather(*(write(peer, n) for n in range(start, start + 100)))
        # It is told in order, so what was on its way to the reader has come by now.
        await bob.pull(DOC, 0)
        assert heard < 200
        assert sorted(numbers(await take(events, 500))) == list(range(1, 501))
        await events.aclose()


async def test_a_reader_that_leaves_is_no_longer_sent_anything() -> None:
    async with one_peer() as (relay, peer), transport(relay.url, BOB) as bob:
        await write(peer, 0)
        async with aclosing(bob.changes(live=True)) as events:
            await take(events, 1)
            await eventually(lambda: any(each.tasks for each in relay.peers))
        await eventually(lambda: not any(each.tasks for each in relay.peers))


async def test_many_feeds_and_documents_share_one_connection() -> None:
    async with one_peer() as (relay, peer), AsyncExitStack() as stack:
        several = [
            await stack.enter_async_context(aclosing(peer.changes(f"notes/{n}", live=True)))
            for n in range(8)
        ]
        waiting = [asyncio.create_task(take(each, 2)) for each in several]
        for n in range(8):
            await write(peer, n, key=f"notes/{n}")
            await write(peer, -n - 1, key=f"notes/{n}")
        for n, each in enumerate(await asyncio.gather(*waiting)):
            assert numbers(each) == [n, -n - 1]
        assert len(relay.peers) == 1


async def test_closing_the_transport_ends_whoever_waits() -> None:
    async with Relay.serve(MemoryLog()) as relay:
        async with transport(relay.url) as peer:
            events = peer.changes(live=True)
            waiting = asyncio.create_task(take(events, 1))
            await eventually(lambda: any(each.tasks for each in relay.peers))
        with pytest.raises(TransportClosedError):
            await waiting
        with pytest.raises(TransportClosedError):
            await anext(peer.changes())


# ── relays that come and go ────────────────────────────────────────────────────────────


class Restartable:
    """A relay that is stopped and started again where it was, on the same log or another."""

    def __init__(self, log: RelayLog) -> None:
        self.log = log
        self.url = ""
        self._port = 0
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        relay = await self._stack.enter_async_context(Relay.serve(self.log, port=self._port))
        self._port, self.url = relay.port, relay.url

    async def stop(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def restartable() -> AsyncIterator[Restartable]:
    server = Restartable(MemoryLog())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.mark.parametrize("room", [3, 4096])
async def test_a_live_feed_goes_on_after_every_restart(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "FEED_EVENTS_MAX", room)
    monkeypatch.setattr(feed_reader, "PAGE_EVENTS_MAX", 4)
    async with (
        restartable() as server,
        transport(server.url) as peer,
        transport(server.url, BOB) as bob,
        aclosing(bob.changes(live=True)) as events,
    ):
        numbered = count()
        for burst in (1, 6, 0, 3, 9):
            written = [next(numbered) for _ in range(burst)]
            for n in written:
                await write(peer, n)
            # Some of it is read before the relay goes, some of it after it is back.
            seen = numbers(await take(events, burst // 2))
            await server.stop()
            await server.start()
            await reach(peer, State.LIVE)
            last = next(numbered)
            await write(peer, last)
            seen += numbers(await take(events, burst - burst // 2 + 1))
            assert seen == [*written, last]


async def test_a_live_feed_waits_for_a_relay_that_is_not_there() -> None:
    async with restartable() as server:
        await server.stop()
        async with (
            transport(server.url) as peer,
            transport(server.url, BOB) as bob,
            aclosing(bob.changes(live=True)) as events,
        ):
            waiting = asyncio.create_task(take(events, 1))
            await reach(bob, State.OFFLINE)
            # Who does not wait is told, and may go on later.
            with pytest.raises(OfflineError):
                await anext(bob.changes())
            await server.start()
            await reach(peer, State.LIVE)
            await write(peer, 7)
            assert numbers(await waiting) == [7]


async def test_a_relay_that_was_rolled_back_is_noticed() -> None:
    async with restartable() as server, transport(server.url) as peer:
        for n in range(3):
            await write(peer, n)
        async with aclosing(peer.changes(live=True)) as events:
            await take(events, 3)
            relay_id = server.log.relay_id
            await server.stop()
            older = MemoryLog()
            older._relay_id = relay_id
            server.log = older
            await server.start()
            with pytest.raises(LogBehindError) as caught:
                await anext(events)
            assert (caught.value.head, caught.value.checkpoint) == (0, 3)


async def test_another_database_is_never_taken_for_the_one_before() -> None:
    async with restartable() as server, transport(server.url) as peer:
        await write(peer, 1)
        async with aclosing(peer.changes(live=True)) as events:
            await take(events, 1)
            before = peer.relay_id
            await server.stop()
            server.log = MemoryLog()
            await server.start()
            async with transport(server.url, BOB) as bob:
                for n in range(5):
                    await write(bob, n, BOB)
            with pytest.raises(OtherRelayError) as caught:
                await anext(events)
            assert caught.value.expected == before != caught.value.found == peer.relay_id
        with pytest.raises(OtherRelayError):
            await anext(peer.changes(relay_id=before))
        assert await anext(peer.changes(relay_id=peer.relay_id))


# ── what is current ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", [1, 2, 1000])
async def test_a_bootstrap_and_the_tail_that_follows_are_everything(
    page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_reader, "PAGE_EVENTS_MAX", page)
    async with one_peer() as (_, peer):
        revisions: dict[str, str] = {}
        for n in range(5):
            key = f"notes/{n}"
            revisions[key] = await put(peer, key, await write(peer, n, key=key))
        await put(peer, "other/x", await write(peer, 9, key="other/x"))
        seq, snapshots = await peer.bootstrap("notes/")
        assert seq == 12
        found = [await anext(snapshots)]
        # One of those that are still to come is replaced meanwhile, and one of those that came.
        for key in ("notes/0", "notes/3"):
            revisions[key] = await put(peer, key, await write(peer, 8, key=key), {"v": 2})
        found += [event async for event in snapshots]
        assert [event.seq for event in found] == sorted({event.seq for event in found})
        assert all(event.seq <= seq for event in found)
        current = {event.document: event.id for event in found}
        async for event in peer.changes("notes/", since=seq, kinds=["snapshot"]):
            current[event.document] = event.id
        assert current == revisions


async def test_a_bootstrap_of_nothing_is_empty() -> None:
    async with one_peer() as (_, peer):
        seq, snapshots = await peer.bootstrap()
        assert seq == 0
        assert [event async for event in snapshots] == []


# ── by id ──────────────────────────────────────────────────────────────────────────────


async def test_events_are_found_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walstore.net.websocket.FIND_IDS_MAX", 3)
    async with one_peer() as (relay, peer):
        stamps = [await write(peer, n) for n in range(8)]
        await relay.log.compact([Removal(DOC, (), stamps[1])])
        known = [event async for event in peer.changes()]
        ids = [event.id for event in known]
        found = [event async for event in peer.find([*ids, "ab" * 32, ids[0]])]
        assert found == known
        assert [each.is_compacted for each in found] == [True] * 2 + [False] * 6
        assert [each async for each in peer.find(ids, documents=["notes/b"])] == []
        assert [each async for each in peer.find(ids, kinds=["snapshot"])] == []
        assert [each async for each in peer.find(ids[5:], authors=[ALICE.public_key])] == known[5:]
        assert [each async for each in peer.find([])] == []


@pytest.mark.parametrize(
    "state",
    [{"text": 'é"\\😀' * 200_000}, {"lists": [[]] * (ELEMENT_VALUES_MAX // 2)}],
    ids=["of many bytes", "of many values"],
)
async def test_a_large_snapshot_is_fetched_by_its_revision(state: dict[str, Any]) -> None:
    async with one_peer() as (_, peer):
        ts = await write(peer, 1)
        large = snapshot_text(ALICE, DOC, upto_ts=ts, state=state)
        revision = await put(peer, DOC, ts, state)
        (event,) = [event async for event in peer.changes(kinds=["snapshot"])]
        assert (event.payload, event.is_compacted) == (None, False)
        assert event.id == revision
        assert [each async for each in peer.find([revision])] == [event]
        _, current = await peer.bootstrap()
        assert [(each.id, each.payload) async for each in current] == [(revision, None)]
        await put(peer, DOC, ts, {"v": 2})
        # It is no longer the current one.
        assert await peer.snapshot_by_revision(DOC, event.id) == large
        assert await peer.snapshot_by_revision(DOC, "ab" * 32) is None
        assert await peer.snapshot_by_revision("notes/b", event.id) is None


async def test_how_many_sessions_a_snapshot_counts_is_limited_by_nothing_but_their_size() -> None:
    sessions = [f"{ALICE.public_key}:{number:032x}" for number in range(45_000)]
    many, too_many = dict.fromkeys(sessions[:40_000], 1), dict.fromkeys(sessions, 1)
    async with one_peer() as (_, peer):
        ts = await write(peer, 1)
        revision = await put(peer, DOC, ts, writer_seq=many)
        _, snapshots = await peer.bootstrap()
        for events in (peer.changes(kinds=["snapshot"]), snapshots, peer.find([revision])):
            (event,) = [event async for event in events]
            assert event.vc == many
        with pytest.raises(RelayRefusalError, match="exceeds"):
            await put(peer, DOC, ts, writer_seq=too_many)


# ── hostile relays ─────────────────────────────────────────────────────────────────────

TIMEOUT_MS = 10_000
RELAY_ID, OTHER_ID = "e" * 32, "f" * 32
ALL = Wanted()


def shown(seq: int, data: dict[str, Any] | None = None, **changed: Any) -> Shown:
    """An element as an honest relay shows it, but for what is changed."""
    each = body({"n": seq} if data is None else data)
    signed = SigningFrame(Domain.APPEND, DOC).around(each.canonical)
    event = {
        "id": link(signed, author_pubkey=each.author, author_signature=each.signature),
        "kind": "element",
        "document": DOC,
        "ts": seq,
        "accepted_ms": 1,
        "author": each.author,
        "signature": each.signature,
    }
    return Shown(seq, event | changed, each.canonical)


def snapshot(seq: int, **changed: Any) -> Shown:
    text = snapshot_text(ALICE, DOC, upto_ts=1)
    event = {
        "id": sha256(text).hexdigest(),
        "kind": "snapshot",
        "document": DOC,
        "upto_ts": 1,
        "accepted_ms": 1,
        "author": ALICE.public_key,
        "vc": {ALICE.public_key: 1},
        "deleted": False,
    }
    return Shown(seq, event | changed, text)


def gone(seq: int, **changed: Any) -> dict[str, Any]:
    return {**shown(seq).event, "seq": seq, "status": "payload_compacted", **changed}


def status(seq: int = 9, mode: str = "tail") -> dict[str, Any]:
    return {"mode": mode, "snapshot_seq": seq, "min_seq": 1}


class Wire:
    """A client, and the relay's end of its connection in the hands of the test."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.client = RelayClient(
            ALICE, relay="relay.example:443", logs={}, request_timeout_ms=TIMEOUT_MS
        )
        self.connect()

    def connect(self, database: str = RELAY_ID) -> None:
        self.client.connected()
        self.say(Hello((1,), database, "c" * 64, {}, "a relay"))
        (auth,) = self.hear()
        assert isinstance(auth, Auth)
        self.say(Ok(auth.ref, {}))

    def say(self, *frames: RelayFrame) -> None:
        for frame in frames:
            self.client.receive(relay_frame(frame).decode(), self.now_ms)

    def hear(self) -> list[ClientFrame]:
        frames = []
        while (text := self.client.take_outgoing(self.now_ms)) is not None:
            frames.append(read_client_frame(text))
        return frames

    def page(
        self,
        since: int = 0,
        until_seq: int | None = None,
        limit: int = 5,
        wanted: Wanted = ALL,
    ) -> PendingChanges:
        return self.client.changes(
            wanted, since=since, until_seq=until_seq, limit=limit, now_ms=self.now_ms
        )

    def feed(self, since: int = 0, wanted: Wanted = ALL) -> Feed:
        feed = Feed("f", wanted)
        self.client.switch_on(feed, since, relay=RELAY_ID, now_ms=self.now_ms)
        self.hear()
        return feed


def end(seq: int, *, more: bool = False) -> dict[str, Any]:
    return {"seq": seq, "more": more}


Frames = Callable[[str], Sequence[RelayFrame]]
BAD_EVENTS: dict[str, Shown] = {
    "no kind": shown(3, kind="other"),
    "no id": shown(3, id="x"),
    "no document": shown(3, document=""),
    "no ts": shown(3, ts=None),
    "a ts below 0": shown(3, ts=-1),
    "no author": shown(3, author=""),
    "no time": shown(3, accepted_ms=1.5),
    "a signature of no size": shown(3, signature="x"),
    "an element without data": shown(3)._replace(payload=None),
    "a snapshot without clock": snapshot(3, vc=None),
    "a clock of text": snapshot(3, vc={"a": "1"}),
    "a snapshot without upto": snapshot(3, upto_ts="1"),
    "a snapshot that may be deleted": snapshot(3, deleted=None),
    "a seq of 0": shown(0),
}
PAGE_FAULTS: dict[str, Frames] = {
    "events before the status": lambda ref: [Events(ref, [shown(3)])],
    "the end before the status": lambda ref: [EndOfStored(ref, end(3))],
    "two statuses": lambda ref: [FeedStatus(ref, status())] * 2,
    "another mode": lambda ref: [FeedStatus(ref, status(mode="bootstrap"))],
    "no head": lambda ref: [FeedStatus(ref, {"mode": "tail"})],
    "a head below 0": lambda ref: [FeedStatus(ref, status(-1))],
    "an acknowledgement": lambda ref: [Ok(ref, {})],
    "events that go back": lambda ref: [
        FeedStatus(ref, status()),
        Events(ref, [shown(4), shown(3)]),
    ],
    "events below since": lambda ref: [FeedStatus(ref, status()), Events(ref, [shown(2)])],
    "an event twice": lambda ref: [
        FeedStatus(ref, status()),
        Events(ref, [shown(3)]),
        EventStatus(ref, gone(3)),
    ],
    "a status that is none": lambda ref: [
        FeedStatus(ref, status()),
        EventStatus(ref, gone(3, status="lost")),
    ],
    "a status without seq": lambda ref: [
        FeedStatus(ref, status()),
        EventStatus(ref, {**gone(3), "seq": None}),
    ],
    "an end before its events": lambda ref: [
        FeedStatus(ref, status()),
        Events(ref, [shown(4)]),
        EndOfStored(ref, end(3)),
    ],
    "an end that is none": lambda ref: [
        FeedStatus(ref, status()),
        EndOfStored(ref, {"seq": True}),
    ],
    **{
        name: lambda ref, bad=bad: [  # type: ignore[misc]
            FeedStatus(ref, status()),
            Events(ref, [bad]),
        ]
        for name, bad in BAD_EVENTS.items()
    },
}


@pytest.mark.parametrize("name", PAGE_FAULTS)
def test_what_an_honest_relay_never_shows_is_a_fault(name: str) -> None:
    wire = Wire()
    pending = wire.page(since=2)
    wire.hear()
    with pytest.raises(RelayFaultError):
        wire.say(*PAGE_FAULTS[name](pending.ref))


@pytest.mark.parametrize("name", PAGE_FAULTS)
def test_nor_does_it_in_a_live_feed(name: str) -> None:
    wire = Wire()
    feed = wire.feed(since=2)
    with pytest.raises(RelayFaultError):
        wire.say(*PAGE_FAULTS[name](feed.ref or ""))


def test_more_than_was_asked_for_is_a_fault() -> None:
    for frames in (
        [Events("", [shown(n) for n in range(3, 9)])],
        [Events("", [shown(9)])],
        [EndOfStored("", end(3, more=True))],
    ):
        wire = Wire()
        pending = wire.page(since=2, until_seq=8)
        wire.hear()
        wire.say(FeedStatus(pending.ref, status()))
        with pytest.raises(RelayFaultError):
            wire.say(*(frame._replace(ref=pending.ref) for frame in frames))


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted("public/"),
        Wanted(documents=frozenset({"notes/b"})),
        Wanted(documents=frozenset()),
        Wanted(authors=frozenset({BOB.public_key})),
        Wanted(kinds=frozenset({"snapshot"})),
    ],
    ids=str,
)
def test_events_that_a_filter_leaves_out_are_a_false_answer(wanted: Wanted) -> None:
    frames: list[Callable[[str], RelayFrame]] = [
        lambda ref: Events(ref, [shown(3)]),
        lambda ref: EventStatus(ref, gone(3)),
    ]
    for frame in frames:
        wire = Wire()
        page, feed = wire.page(wanted=wanted), wire.feed(wanted=wanted)
        for ref in (page.ref, feed.ref or ""):
            wire.say(FeedStatus(ref, status()), frame(ref))
        with pytest.raises(FalseAnswerError, match="asked for"):
            page.result()
        assert isinstance(feed.error, FalseAnswerError)
        assert feed.read() == []
    if not wanted.prefix:
        found = wire.client.find(wanted, (str(shown(3).event["id"]),), wire.now_ms)
        wire.hear()
        wire.say(Events(found.ref, [shown(3)]))
        with pytest.raises(FalseAnswerError, match="asked for"):
            found.result()


@pytest.mark.parametrize(
    "false",
    [
        shown(3)._replace(payload=b'{"n":4}'),
        shown(3, id="ab" * 32),
        shown(3, document="notes/b"),
        shown(3, author=BOB.public_key),
        shown(3, author="no key"),
        shown(3, signature="A" * 88),
        snapshot(3)._replace(payload=b"{}"),
    ],
    ids=str,
)
def test_a_payload_that_is_not_that_of_its_id_is_a_false_answer(false: Shown) -> None:
    wire = Wire()
    page = wire.page(since=2)
    found = wire.client.find(Wanted(), (str(false.event["id"]),), wire.now_ms)
    feed = wire.feed(since=2)
    wire.say(FeedStatus(page.ref, status()), Events(page.ref, [false]), Events(found.ref, [false]))
    wire.say(FeedStatus(feed.ref or "", status()), Events(feed.ref or "", [false]))
    for pending in (page, found):
        with pytest.raises(FalseAnswerError):
            pending.result()
    assert isinstance(feed.error, FalseAnswerError)
    assert feed.read() == []
    # The rest of it is not wanted.
    assert {frame.ref for frame in wire.hear() if isinstance(frame, Close)} >= {page.ref}


def test_events_that_were_not_asked_for_by_id_are_a_fault() -> None:
    ids = (str(shown(3).event["id"]), str(shown(4).event["id"]))
    for events in ([shown(5)], [shown(3), shown(3)]):
        wire = Wire()
        pending = wire.client.find(Wanted(), ids, wire.now_ms)
        wire.hear()
        with pytest.raises(RelayFaultError):
            wire.say(Events(pending.ref, events))


def test_a_page_that_grows_too_large_is_cut_and_the_rest_is_not_wanted() -> None:
    wire = Wire()
    pending = wire.page(limit=1000)
    wire.hear()
    wire.say(FeedStatus(pending.ref, status(100)))
    for n in range(1, 100):
        wire.say(Events(pending.ref, [shown(n, {"n": n, "fill": "x" * 500_000})]))
        if pending.is_settled:
            break
    page = pending.result()
    assert (page.last_seq, page.is_more, page.relay) == (n, True, RELAY_ID)
    assert n < 12
    assert wire.hear() == [Close(pending.ref)]
    # What was on its way does no harm.
    wire.say(Events(pending.ref, [shown(n + 1)]), Closed(pending.ref, "closed"))


def test_a_page_is_read_again_from_its_start_after_a_reconnect() -> None:
    wire = Wire()
    pending = wire.page(since=2)
    (asked,) = wire.hear()
    wire.say(FeedStatus(pending.ref, status()), Events(pending.ref, [shown(3), shown(4)]))
    wire.client.lost("gone", wire.now_ms)
    wire.connect(OTHER_ID)
    assert wire.hear() == [asked]
    wire.say(
        FeedStatus(pending.ref, status()),
        Events(pending.ref, [shown(3)]),
        EventStatus(pending.ref, gone(5)),
        EndOfStored(pending.ref, end(8)),
    )
    page = pending.result()
    assert [event.seq for event in page.events] == [3, 5]
    assert (page.last_seq, page.is_more, page.relay) == (8, False, OTHER_ID)


def test_a_relay_that_is_behind_its_reader_is_noticed() -> None:
    wire = Wire()
    pending, feed = wire.page(since=7), wire.feed(since=7)
    wire.say(FeedStatus(pending.ref, status(6)), FeedStatus(feed.ref or "", status(5)))
    with pytest.raises(LogBehindError) as caught:
        pending.result()
    assert (caught.value.head, caught.value.checkpoint) == (6, 7)
    assert isinstance(feed.error, LogBehindError)
    assert feed.error.head == 5


def test_a_live_feed_whose_buffer_is_full_is_closed_without_a_hole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "FEED_EVENTS_MAX", 3)
    wire = Wire()
    feed = wire.feed(since=2)
    ref = feed.ref or ""
    wire.say(FeedStatus(ref, status()), EndOfStored(ref, end(2)))
    for n in range(3, 6):
        assert feed.is_on
        wire.say(Events(ref, [shown(n)]))
    assert not feed.is_on
    assert wire.hear() == [Close(ref)]
    wire.say(Events(ref, [shown(6)]), Closed(ref, "closed"))
    assert [event.seq for event in feed.read()] == [3, 4, 5]
    assert feed.since == 5
    assert feed.error is None


def test_a_live_feed_that_never_ends_holds_no_more_than_fits() -> None:
    wire = Wire()
    feed = wire.feed()
    ref = feed.ref or ""
    wire.say(FeedStatus(ref, status(TS_MAX)))
    for n in range(1, 100):
        wire.say(Events(ref, [shown(n, {"n": n, "fill": "x" * 500_000})]))
    assert sum(event.size for event in feed.read()) <= FEED_BYTES_MAX + 600_000
    feed = wire.feed()
    wire.say(FeedStatus(feed.ref or "", status(TS_MAX)))
    ref = feed.ref or ""
    for n in range(1, FEED_EVENTS_MAX + 200):
        wire.say(EventStatus(ref, gone(n)))
    assert len(feed.read()) <= FEED_EVENTS_MAX


def test_a_live_feed_that_is_not_answered_is_given_up() -> None:
    wire = Wire()
    feed = wire.feed()
    wire.client.take_events()
    assert wire.client.due_ms == wire.now_ms + TIMEOUT_MS
    wire.now_ms += TIMEOUT_MS
    wire.client.tick(wire.now_ms)
    assert not feed.is_on
    assert wire.client.take_events() == [FeedMoved("f")]
    assert wire.client.due_ms is None


def test_a_relay_that_keeps_ending_a_feed_is_asked_less_and_less_often() -> None:
    wire, pauses = Wire(), list[int]()
    feed = Feed("f", Wanted())
    for _ in range(8):
        wire.client.switch_on(feed, 2, relay=RELAY_ID, now_ms=wire.now_ms)
        wire.hear()
        wire.say(Closed(feed.ref or "", "too slow"))
        pauses.append(feed.pause_ms(wire.now_ms))
        wire.now_ms += pauses[-1]
    assert pauses == [0, 1000, 2000, 4000, 8000, 16000, 30000, 30000]
    wire.client.switch_on(feed, 2, relay=RELAY_ID, now_ms=wire.now_ms)
    wire.hear()
    wire.now_ms += 10_000
    wire.say(Refusal(feed.ref or "", Code.STORAGE, "later", {}))
    assert feed.pause_ms(wire.now_ms) == 0
    assert feed.error is None


def test_a_feed_is_not_switched_on_where_it_was_not_read() -> None:
    wire = Wire()
    feed = Feed("f", Wanted())
    wire.client.switch_on(feed, 2, relay=OTHER_ID, now_ms=wire.now_ms)
    assert not feed.is_on
    wire.client.lost("gone", wire.now_ms)
    wire.client.switch_on(feed, 2, relay=RELAY_ID, now_ms=wire.now_ms)
    assert not feed.is_on
    assert wire.hear() == []


def test_a_page_that_nobody_waits_for_is_closed() -> None:
    wire = Wire()
    pending = wire.page()
    wire.hear()
    wire.client.forget(pending)
    assert wire.hear() == [Close(pending.ref)]


REF = st.sampled_from([str(n) for n in range(12)])
SEQ = st.one_of(st.integers(0, 9), st.sampled_from([-1, TS_MAX, TS_MAX + 1, True, 1.5, "7"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
FRAMES = st.one_of(
    st.builds(lambda ref, seq: FeedStatus(ref, status(seq)), REF, SEQ),
    st.builds(
        lambda ref, seqs: Events(ref, [shown(seq) for seq in seqs]),
        REF,
        st.lists(st.integers(0, 9), max_size=3),
    ),
    st.builds(lambda ref, seq: EventStatus(ref, gone(seq)), REF, st.integers(0, 9)),
    st.builds(
        lambda ref, name, value: Events(ref, [shown(5, **{name: value})]),
        REF,
        st.sampled_from(sorted(snapshot(1).event.keys() | shown(1).event.keys())),
        JSON,
    ),
    st.builds(lambda ref, seq, more: EndOfStored(ref, {"seq": seq, "more": more}), REF, SEQ, JSON),
    st.builds(lambda ref: Closed(ref, "because"), REF),
    st.builds(
        lambda ref, code, details: Refusal(ref, code, "because", details),
        REF,
        st.sampled_from(Code),
        st.dictionaries(st.sampled_from(["min_seq", "floor"]), JSON, max_size=2),
    ),
)
STEPS = st.lists(
    st.one_of(FRAMES, st.sampled_from(["page", "find", "feed", "off", "send", "tick", "read"])),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_a_relay_shows_nothing_but_the_documented_errors_is_raised(
    steps: list[Any],
) -> None:
    wire = Wire()
    asked: list[Pending[Any]] = []
    feed, seen = Feed("f", Wanted()), list[int]()
    for step in steps:
        wire.now_ms += 400
        match step:
            case "page":
                asked.append(wire.page(since=2))
            case "find":
                ids = tuple(str(shown(n).event["id"]) for n in range(1, 5))
                asked.append(wire.client.find(Wanted(), ids, wire.now_ms))
            case "feed" if not feed.is_on and feed.error is None:
                seen += [event.seq for event in feed.read()]
                since = max([2, *seen])
                wire.client.switch_on(feed, since, relay=RELAY_ID, now_ms=wire.now_ms)
            case "off":
                wire.client.switch_off(feed)
            case "send":
                wire.hear()
            case "tick":
                wire.client.tick(wire.now_ms)
            case "read" | "feed":
                seen += [event.seq for event in feed.read()]
            case frame:
                try:
                    wire.say(frame)
                except (RelayFaultError, NotAdmittedError):
                    wire.client.lost("fault", wire.now_ms)
                    wire.connect()
        assert seen == sorted(set(seen))
    wire.client.close("done", wire.now_ms)
    assert all(pending.is_settled for pending in asked)
    assert not feed.is_on
    for pending in asked:
        try:
            answer = pending.result()
        except TransportError:
            continue
        assert isinstance(pending, PendingChanges | PendingFind)
        events = answer if isinstance(pending, PendingFind) else answer.events
        assert [event.seq for event in events] == sorted({event.seq for event in events})


# ── a feed that an honest relay ends ───────────────────────────────────────────────────


async def test_a_feed_that_is_taken_away_says_why_to_its_reader() -> None:
    limits = Limits(subscriptions_max=1)
    async with one_peer(limits=limits) as (_, peer), peer.follow(DOC, 0):
        await peer.pull(DOC, 0)
        with pytest.raises(RelayRefusalError) as caught:
            await anext(peer.changes(live=True))
        assert caught.value.code is Code.TOO_MANY


def test_the_frames_of_a_feed_are_these() -> None:
    wire = Wire()
    wanted = Wanted("p/", frozenset({"p/a"}), frozenset({"x"}), frozenset({"element"}))
    page = wire.client.changes(wanted, since=3, until_seq=9, limit=7, now_ms=wire.now_ms)
    found = wire.client.find(wanted, ("ab" * 32,), wire.now_ms)
    feed = Feed("f", wanted)
    wire.client.switch_on(feed, 4, relay=RELAY_ID, now_ms=wire.now_ms)
    filters = wanted[1:]
    assert wire.hear() == [
        FollowChanges(page.ref, "tail", "p/", 3, 9, 7, *filters, False),
        Request(found.ref, ("ab" * 32,), *filters),
        FollowChanges(feed.ref or "", "tail", "p/", 4, None, 10_000, *filters, True),
    ]
