"""Peers that take more than their share: of the relay's attention, of its log, of its patience."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from tests.raw_websocket import TEXT, framed, raw_websocket
from tests.relay_clients import (
    ANNA,
    BEN,
    CARL,
    Speaker,
    appending,
    eventually,
    narrow_socket,
    speaking,
)
from walstore.relay import MemoryLog, Relay, checking
from walstore.relay.committer import Committer
from walstore.relay.config import Settings
from walstore.relay.limits import Limits
from walstore.relay.log import Accepted, FeedPage, NewElement, NewSnapshot, Page, Removal
from walstore.relay.metrics import Metrics
from walstore.relay.peer import Peer
from walstore.relay.server import _FRAMES_IN_A_ROW
from walstore.relay.session import frames_in
from walstore.relay.sqlite import SqliteLog
from walstore.signed import Identity
from walstore.signed.author import verify_bytes
from walstore.wire.frames import (
    Auth,
    Code,
    EndOfStored,
    FollowChanges,
    Presence,
    Pull,
    Request,
    SetPresence,
)
from walstore.wire.limits import PULL_BYTES_MAX

DOCUMENT = "notes/a"

# Nobody is granted more for as long as a test takes: what is left tells what was taken.
NEVER_AGAIN = Limits(frames_per_second=1, frames_burst=10**6, pending_bytes_max=2**30)
FAST = Limits(frames_per_second=10**6)
CHATTER = framed(TEXT, b'["CLOSE","x"]')


def taken(peer: Peer) -> int:
    """How many frames of a peer were looked at."""
    return 10**6 - int(peer.session._frames._tokens)


@asynccontextmanager
async def watched(peer: Peer, counted: list[tuple[int, int]]) -> AsyncIterator[None]:
    """Note, each time that others have their turn, what was taken, and what waits to be."""

    async def watch() -> None:
        while True:
            counted.append((taken(peer), len(peer._socket.recv_messages.frames)))
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    yield
    watching.cancel()


async def test_who_says_much_at_once_lets_others_have_their_turn() -> None:
    counted: list[tuple[int, int]] = []
    async with (
        Relay.serve(MemoryLog(), limits=NEVER_AGAIN, compression=False) as relay,
        raw_websocket(relay.port) as chatty,
    ):
        (peer,) = relay.peers
        # As if it had proved a key.
        peer.session._frames.refill()
        async with watched(peer, counted):
            await chatty.say(CHATTER * 20_000)
            # A few more are granted while they are taken, and look as if they were not.
            await eventually(lambda: taken(peer) >= 19_900)
    steps = [after[0] - before[0] for before, after in pairwise(counted)]
    assert 0 < max(steps) <= _FRAMES_IN_A_ROW
    # What has come is held, and so it is not much.
    assert max(waiting for _, waiting in counted) < 1_000


async def test_who_says_much_in_few_frames_lets_others_have_their_turn() -> None:
    counted: list[tuple[int, int]] = []
    long = b'["CLOSE","%b"]' % (b"x" * 2**16)
    limits = replace(NEVER_AGAIN, faults_max=10**6)
    async with (
        Relay.serve(MemoryLog(), limits=limits, compression=False) as relay,
        raw_websocket(relay.port) as chatty,
    ):
        (peer,) = relay.peers
        peer.session._frames.refill()
        async with watched(peer, counted):
            await chatty.say(framed(TEXT, long) * 100)
            await eventually(lambda: taken(peer) >= 99 * frames_in(long))
    steps = [after[0] - before[0] for before, after in pairwise(counted)]
    assert 0 < max(steps) < _FRAMES_IN_A_ROW + frames_in(long)


def count_compressed(relay: Relay, counted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note the size of each message that is compressed for anybody who is there."""
    for peer in relay.peers:
        for extension in peer._socket.protocol.extensions:

            def encode(frame: Frame, inner: Callable[[Frame], Frame] = extension.encode) -> Frame:
                if frame.opcode is Opcode.TEXT:
                    counted.append(len(frame.data))
                return inner(frame)

            monkeypatch.setattr(extension, "encode", encode)


@asynccontextmanager
async def compressing(
    followers: int, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[list[Speaker], Speaker]]:
    """Who follows a document over compressed connections, and who writes to it over another one."""
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(Relay.serve(MemoryLog()))
        there = [
            await stack.enter_async_context(speaking(relay.url, BEN, compression="deflate"))
            for _ in range(followers)
        ]
        for follower in there:
            await follower.follow(DOCUMENT)
        count_compressed(relay, counted, monkeypatch)
        anna = await stack.enter_async_context(speaking(relay.url, ANNA, compression=None))
        yield there, anna


async def test_what_many_get_is_compressed_for_so_many_that_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    sizes = [100, 200_000, 101, 600_000, 102]
    async with compressing(5, counted, monkeypatch) as (followers, anna):
        for size in sizes:
            await anna.append(ANNA, DOCUMENT, {"s": "x" * size})
        for follower in followers:
            heard = await follower.elements(len(sizes))
            assert [len(each.data) for each in heard] == [size + len(b'{"s":""}') for size in sizes]
    large = [size for size in counted if size > 10_000]
    # Two of five get the first of the large ones compressed, and nobody the second one.
    assert len(large) == 2
    assert max(large) < 210_000
    assert len(counted) - len(large) == 3 * len(followers)


async def test_what_is_large_is_not_compressed_for_whoever_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    async with compressing(1, counted, monkeypatch) as ([ben], anna):
        for size in (200_000, 600_000):
            await anna.append(ANNA, DOCUMENT, {"s": "x" * size})
        await ben.elements(2)
        counted.clear()
        await ben.say(Pull("again", DOCUMENT, None, 0, 2, is_live=False))
        assert [len(each.data) for each in await ben.elements(2, ref="again")] == [200_008, 600_008]
        await ben.get(EndOfStored)
    assert len(counted) == 2
    assert max(counted) < 210_000


async def test_who_is_there_is_told_to_many_as_elements_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    async with compressing(200, counted, monkeypatch) as (followers, anna):
        await anna.follow(DOCUMENT)
        await anna.say(SetPresence(DOCUMENT, {"note": "x" * 3_900}))
        for follower in followers:
            assert (await follower.get(Presence)).payload == {"note": "x" * 3_900}
        assert 100 < len(counted) < len(followers)
        assert sum(counted) <= 2**19


async def test_who_is_gone_is_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        Relay.serve(MemoryLog(), limits=FAST, compression=False) as relay,
        speaking(relay.url, ANNA) as honest,
    ):
        for _ in range(5):
            async with raw_websocket(relay.port) as chatty:
                await chatty.say(CHATTER * 2_000)
                chatty.writer.transport.abort()
        await eventually(lambda: len(relay.peers) == 1)
        await honest.append(ANNA, DOCUMENT, {"n": 1})
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_who_asks_to_follow_a_hundred_thousand_documents_follows_a_thousand() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        speaking(relay.url, BEN) as honest,
        speaking(relay.url, ANNA) as greedy,
    ):

        async def ask() -> None:
            with suppress(ConnectionClosed):
                for number in range(100_000):
                    await greedy.say(Pull(f"{number}", f"notes/{number}", None, 0, 10, True))

        asking = asyncio.create_task(ask())
        refused = await greedy.refusal()
        assert (refused.ref, refused.code) == ("1000", Code.TOO_MANY)
        await honest.append(BEN, DOCUMENT, {"n": 1})
        (peer,) = [each for each in relay.peers if each.key == ANNA.public_key]
        assert len(peer.subscriptions) == 1000
        assert len(relay._following._rooms) == 1000
        asking.cancel()
        greedy.socket.transport.abort()
        await eventually(lambda: len(relay.peers) == 1)
        assert not relay._following._rooms


class CountedLog(MemoryLog):
    """A log that counts the pages that are read of it at the same time, and how far they look."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = self.seqs = 0

    async def feed(self, since: int, *arguments: Any, **options: Any) -> FeedPage:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        page = await super().feed(since, *arguments, **options)
        self.now -= 1
        self.seqs = max(self.seqs, page.last_seq - since)
        return page


async def test_who_asks_for_many_feeds_is_read_for_page_by_page() -> None:
    log = CountedLog()
    count, feeds = 20_000, 20
    rows = [NewElement(DOCUMENT, f"{n:064x}", "a", "s", b"{}") for n in range(count)]
    await log.append(rows, 1)
    wanted = FollowChanges("", "tail", "", 0, None, 10, None, frozenset({"nobody"}), None, False)
    async with Relay.serve(log) as relay, speaking(relay.url, ANNA) as greedy:
        for number in range(feeds):
            await greedy.say(wanted._replace(ref=f"{number}"))
        for number in range(feeds):
            end = await greedy.get(EndOfStored, f"{number}")
            assert end.result == {"seq": count, "more": False}
    assert log.most == 1
    assert 0 < log.seqs < count


async def test_little_is_held_of_what_snapshots_covered_that_are_gone(tmp_path: Path) -> None:
    many = {f"writer {number:05}": 1 for number in range(5_000)}
    ids = [f"{number:064x}" for number in range(64)]
    async with (
        SqliteLog.open(tmp_path / "relay.db") as log,
        Relay.serve(log) as relay,
        speaking(relay.url, ANNA) as anna,
    ):
        for replaced, id in zip([None, *ids], ids, strict=False):
            new = NewSnapshot(DOCUMENT, replaced, id, "a", 0, {**many, "~": 1}, False, b"{}")
            assert isinstance(await log.put_snapshot(new, 1), Accepted)
        await log.compact([Removal(DOCUMENT, ids, 0)])
        peaks = []
        for count in (16, 64):
            tracemalloc.start()
            await anna.say(Request("ids", tuple(ids[:count]), None, None, None))
            heard = 0
            while not str(await anna.socket.recv()).startswith('["EOSE"'):
                heard += 1
            assert heard == count
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


async def test_who_appends_much_lets_others_have_their_turn() -> None:
    batches: list[list[str]] = []

    class Recording(MemoryLog):
        async def append(self, elements: Sequence[NewElement], now_ms: int) -> list[Accepted]:
            batches.append([each.document for each in elements])
            return await super().append(elements, now_ms)

    committer = Committer(
        Recording(),
        queue_max=10_000,
        queue_bytes_max=2**30,
        now_ms=lambda: 1,
        on_stored=lambda _: None,
        metrics=Metrics(),
    )
    answered: list[str] = []

    def submit(who: Identity, number: int, filler: str) -> None:
        name = f"{who.public_key}-{number}"
        frame = appending(who, who.public_key, {"n": number, "x": filler})
        committer.submit(who.public_key, frame, lambda _: answered.append(name))

    # Much of one in many elements, and in few large ones; then of two others.
    for number in range(600):
        submit(ANNA, number, "")
    for number in range(4):
        submit(CARL, number, "x" * 600_000)
    for number in range(3):
        submit(BEN, number, "")
    running = asyncio.create_task(committer.run())
    await committer.drained()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for who in (ANNA, BEN, CARL):
        own = [name for name in answered if name.startswith(who.public_key)]
        assert own == [f"{who.public_key}-{number}" for number in range(len(own))]
    assert sum(map(len, batches)) == len(answered) == 607
    # Everybody is in each batch until nothing of theirs is left, whatever the others have sent.
    assert batches[0].count(BEN.public_key) + batches[1].count(BEN.public_key) == 3
    assert max(batch.count(CARL.public_key) for batch in batches) == 2


async def test_who_does_not_answer_a_ping_is_gone_and_others_are_not() -> None:
    settings = replace(Settings(), ping_interval_ms=200, drain_ms_max=200)
    async with (
        Relay.serve(MemoryLog(), settings=settings) as relay,
        speaking(relay.url, BEN) as honest,
        # It is connected, and the system takes whatever is sent to it.
        raw_websocket(relay.port),
    ):
        await honest.follow(DOCUMENT)
        assert len(relay.peers) == 2
        await eventually(lambda: len(relay.peers) == 1)
        await honest.append(BEN, DOCUMENT, {"n": 1})
        assert len(await honest.elements(1)) == 1


async def test_of_who_forges_so_many_signatures_are_looked_into_and_none_while_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_into: list[str] = []

    def counted(author: object, signed: bytes, signature: object) -> bool:
        looked_into.append(str(author))
        return verify_bytes(author, signed, signature)

    monkeypatch.setattr(checking, "verify_bytes", counted)
    now_ms = [1_700_000_000_000]
    limits = replace(FAST, faults_max=5, in_flight_max=8, close_ms_max=100)
    forged = appending(ANNA, DOCUMENT, {"n": 1})._replace(data=b'{"n":2}')
    async with (
        Relay.serve(MemoryLog(), limits=limits, now_ms=lambda: now_ms[0]) as relay,
        speaking(relay.url, BEN) as honest,
    ):
        for again in range(1, 4):
            async with speaking(relay.url, ANNA) as forger:
                closed = asyncio.create_task(forger.closed())
                while not closed.done():
                    with suppress(ConnectionClosed):
                        await forger.say(*[forged] * 10)
                    await honest.append(BEN, DOCUMENT, {"n": 1})
                assert closed.result()[0] == 1008
            # Those that were under way when it was one too many, and no more.
            most = again * (limits.faults_max + limits.in_flight_max)
            assert again * limits.faults_max < looked_into.count(ANNA.public_key) <= most
            seen = len(looked_into)
            async with speaking(relay.url) as forger:
                await forger.say(Auth("a", ANNA.public_key, forger.answer_to_challenge(ANNA)))
                assert (await forger.refusal("a")).code is Code.RATE_LIMITED
                await forger.say(*[forged._replace(ref=f"{number}") for number in range(100)])
                assert (await forger.refusal("99")).code is Code.AUTH_REQUIRED
            assert len(looked_into) == seen
            now_ms[0] += limits.penalty_ms


class PagedLog(MemoryLog):
    """A log that counts the elements that are read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    async def page(self, *arguments: Any, **options: Any) -> Page:
        page = await super().page(*arguments, **options)
        self.rows += len(page.rows)
        return page


async def test_for_who_does_not_read_a_page_is_read_and_no_more_however_much_is_written() -> None:
    log = PagedLog()
    deaf = 10
    async with (
        Relay.serve(log, compression=False) as relay,
        speaking(relay.url, BEN) as honest,
        AsyncExitStack() as stack,
    ):
        for number in range(100):
            await honest.append(BEN, DOCUMENT, {"n": number, "t": "x" * 60_000})
        for _ in range(deaf):
            options = {"sock": narrow_socket(relay.port), "max_queue": 1}
            speaker = await stack.enter_async_context(speaking(relay.url, ANNA, **options))
            await speaker.say(Pull("live", DOCUMENT, None, 0, 1000, True))
            stack.callback(speaker.socket.transport.abort)
        await eventually(lambda: sum(peer.pending_bytes > 0 for peer in relay.peers) == deaf)
        for number in range(200):
            await honest.append(BEN, DOCUMENT, {"n": number, "t": "x" * 6_000})
        # A few pages are with their systems; of what is written since they know nothing.
        per_page = PULL_BYTES_MAX // 60_000 + 1
        assert 0 < log.rows <= 4 * per_page * deaf
        (own,) = [peer for peer in relay.peers if peer.key == BEN.public_key]
        assert sum(peer.delivered for peer in relay.peers if peer is not own) == 0
