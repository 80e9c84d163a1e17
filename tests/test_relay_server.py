"""A running relay, over real websockets: what it promises, and what it withstands."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.relay_clients import (
    ANNA,
    BEN,
    CARL,
    PATIENCE_S,
    Speaker,
    appending,
    eventually,
    identity,
    narrow_socket,
    revision_of,
    snapshot_text,
    speaking,
)
from walstore.canon import canonical_bytes
from walstore.cli.admin_client import ask_relay
from walstore.errors import MalformedError
from walstore.relay.checking import check_snapshot
from walstore.relay.config import Settings
from walstore.relay.frontier import UNDOMINATED_MAX
from walstore.relay.limits import Limits
from walstore.relay.log import (
    Accepted,
    Filter,
    LogError,
    NewElement,
    NewSnapshot,
    RelayLog,
    Removal,
    log_id,
)
from walstore.relay.memory import MemoryLog
from walstore.relay.retention import Policy, SnapshotMode
from walstore.relay.roles import Roles
from walstore.relay.server import Relay
from walstore.relay.session import Drop, PutWhole
from walstore.relay.sqlite import SqliteLog
from walstore.signed.auth import sign_auth
from walstore.signed.author import Domain, SigningFrame, sign_append, sign_document
from walstore.signed.chain import link
from walstore.signed.grant import Grant, sign_grant
from walstore.wire.frames import (
    Append,
    Auth,
    ClientFrame,
    Close,
    Closed,
    Code,
    Elements,
    EndOfStored,
    Events,
    FeedStatus,
    FollowChanges,
    GetRecord,
    GetSnapshot,
    Hello,
    Ok,
    Presence,
    PublishGrant,
    Pull,
    PullTail,
    PutSnapshot,
    Refusal,
    Request,
    SetPresence,
    client_frame,
    read_relay_frame,
)
from walstore.wire.limits import (
    COUNTS_MAX,
    FRAME_BYTES_MAX,
    SNAPSHOT_PIECE_SIZE,
    SNAPSHOT_VALUES_MAX,
    TS_AHEAD_MS_MAX,
    TS_MAX,
)

DOCUMENT = "notes/a"


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RelayLog]:
    if request.param == "memory":
        yield MemoryLog()
    else:
        async with SqliteLog.open(tmp_path / "relay.db") as opened:
            yield opened


@pytest.fixture
async def relay(log: RelayLog) -> AsyncIterator[Relay]:
    async with Relay.serve(log) as running:
        yield running


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Whatever a peer does, nothing of ours fails with a traceback."""
    logging.getLogger("walstore.relay.sockets").setLevel(logging.ERROR)
    yield caplog
    gc.collect()
    # A handshake that fails is told by the library with a traceback, and to nobody but us here.
    failures = [each.getMessage() for each in caplog.records if each.exc_info]
    assert [each for each in failures if each != "opening handshake failed"] == []


def roles_of(text: str) -> Roles:
    for name, who in {"ANNA": ANNA, "BEN": BEN, "CARL": CARL}.items():
        text = text.replace(name, f'"{who.public_key}"')
    return Roles.from_table(tomllib.loads(text), source="roles.toml")


def id_of(frame: Append) -> str:
    signed = SigningFrame(Domain.APPEND, frame.document).around(frame.data)
    return link(signed, author_pubkey=frame.author, author_signature=frame.signature)


def numbers(elements: Sequence[Any]) -> list[int]:
    return [int(each.data[5:-1]) for each in elements]


def tail(
    ref: str = "feed", *, since: int = 0, prefix: str = "", live: bool = False, **options: Any
) -> FollowChanges:
    frame = FollowChanges(ref, "tail", prefix, since, None, 10_000, None, None, None, live)
    return frame._replace(**options)


def bootstrap(ref: str = "boot", prefix: str = "") -> FollowChanges:
    return tail(ref, prefix=prefix)._replace(mode="bootstrap")


class GatedLog(MemoryLog):
    """A log whose disk waits, or fails, when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.is_full = False

    async def append(self, elements: Sequence[NewElement], now_ms: int) -> list[Accepted]:
        self.waiting += len(elements)
        await self.gate.wait()
        if self.is_full:
            raise LogError("/secret/path: no space left on device")
        return await super().append(elements, now_ms)


# ── appending ──────────────────────────────────────────────────────────────────────────


async def test_the_hello_comes_first_and_names_the_database(relay: Relay) -> None:
    async with speaking(relay.url) as one, speaking(relay.url) as other:
        assert one.hello.relay == other.hello.relay == relay.log.relay_id
        assert one.hello.challenge != other.hello.challenge


async def test_an_append_is_answered_with_its_place(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        first = await anna.append(ANNA, DOCUMENT, {"n": 1})
        second = await anna.append(ANNA, DOCUMENT, {"n": 2})
        other = await anna.append(ANNA, "notes/b", {"n": 3})
        assert first.result["ts"] < second.result["ts"]
        assert [each.result["seq"] for each in (first, second, other)] == [1, 2, 3]


async def test_the_same_element_again_gets_the_same_answer_and_no_new_seq(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, ANNA) as again:
        await anna.follow(DOCUMENT)
        frame = appending(ANNA, DOCUMENT, {"n": 1})
        await anna.say(*[frame._replace(ref=f"{number}") for number in range(5)])
        answers = [await anna.outcome(f"{number}") for number in range(5)]
        await again.say(frame)
        answers.append(await again.outcome("append"))
        assert {(each.result["ts"], each.result["seq"]) for each in answers} == {  # type: ignore[union-attr]
            (answers[0].result["ts"], 1)  # type: ignore[union-attr]
        }
        assert len(await anna.elements(1)) == 1
        assert await anna.silence() == []


async def test_nothing_is_acknowledged_before_the_log_has_it() -> None:
    log = GatedLog()
    async with Relay.serve(log) as relay, speaking(relay.url, ANNA, BEN) as anna:
        await anna.follow(DOCUMENT)
        log.gate.clear()
        await anna.say(appending(ANNA, DOCUMENT, {"n": 1}))
        await eventually(lambda: log.waiting == 1)
        assert await anna.silence() == []
        assert (await log.page(DOCUMENT, 0, count_max=1, bytes_max=1)).rows == []
        log.gate.set()
        await anna.get(Ok, "append")
        assert numbers(await anna.elements(1)) == [1]


def forged(**changes: Any) -> Append:
    return appending(ANNA, DOCUMENT, {"n": 1})._replace(**changes)


@pytest.mark.parametrize(
    "frame",
    [
        forged(data=b'{"n":2}'),
        forged(document="notes/b"),
        forged(signature=sign_append(DOCUMENT, {"n": 1}, BEN).author_signature),
        forged(signature="A" * 86 + "=="),
        forged(signature="A" * 85 + "B=="),
        forged(data=b'{ "n":1}'),
        forged(data=b'{"n":1.0}'),
        forged(data=b'{"b":1,"a":2}'),
        forged(data=b'{"n":1,"n":1}'),
        forged(data=b'{"n":%b}' % (b"[" * 100 + b"]" * 100)),
        forged(data=b'{"n":%b}' % (b"9" * 400)),
        forged(data=rb'{"n":"\u0041"}'),
    ],
)
async def test_what_its_author_did_not_sign_is_not_stored(frame: Append) -> None:
    log = MemoryLog()
    async with Relay.serve(log) as relay, speaking(relay.url, ANNA, BEN) as anna:
        await anna.say(frame)
        refusal = await anna.refusal()
        assert refusal.code in (Code.INVALID, Code.MALFORMED)
        assert await log.documents("", count_max=10) == []
        await anna.append(ANNA, DOCUMENT, {"n": 1})


@pytest.mark.parametrize("text", ["\ud800", "\udfff!", "a\ud83d", "\x00", "\u2028", "😀", '",{'])
async def test_whatever_text_an_element_holds_it_goes_round_to_the_byte(
    log: RelayLog, text: str
) -> None:
    async with Relay.serve(log) as relay, speaking(relay.url, ANNA) as anna:
        await anna.follow(DOCUMENT)
        await anna.append(ANNA, DOCUMENT, {"t": text})
        (live,) = await anna.elements(1)
        assert live.data == canonical_bytes({"t": text})
        await anna.say(tail())
        found, _ = await anna.events("feed")
        assert canonical_bytes(found[0][1]["data"]) == live.data


async def test_only_the_author_may_append(relay: Relay) -> None:
    async with speaking(relay.url) as nobody, speaking(relay.url, BEN) as ben:
        frame = appending(ANNA, DOCUMENT, {"n": 1})
        await nobody.say(frame)
        assert (await nobody.refusal("append")).code is Code.AUTH_REQUIRED
        await ben.say(frame)
        assert (await ben.refusal("append")).code is Code.RESTRICTED


async def test_the_order_of_one_connection_is_the_order_of_the_log(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        await anna.say(*[appending(ANNA, DOCUMENT, {"n": n}, ref=f"{n}") for n in range(600)])
        places = [await anna.get(Ok, f"{n}") for n in range(600)]
        assert [each.result["seq"] for each in places] == list(range(1, 601))
        await anna.follow(DOCUMENT)
        assert numbers(await anna.elements(600)) == list(range(600))


# ── following a document ───────────────────────────────────────────────────────────────


async def test_everybody_who_follows_gets_everything_once(relay: Relay) -> None:
    async with AsyncExitStack() as stack:
        several = [await stack.enter_async_context(speaking(relay.url, ANNA)) for _ in range(5)]
        for each in several:
            await each.follow(DOCUMENT)
        for number in range(10):
            await several[number % 5].append(ANNA, DOCUMENT, {"n": number})
        first, *others = [await each.elements(10) for each in several]
        assert numbers(first) == list(range(10))
        assert all(other == first for other in others)


@pytest.mark.parametrize("is_feed", [False, True])
async def test_there_is_no_hole_when_live_begins_amid_appends(relay: Relay, is_feed: bool) -> None:
    total = 400
    async with AsyncExitStack() as stack:
        writers = [
            await stack.enter_async_context(speaking(relay.url, identity(10 + number)))
            for number in range(2)
        ]
        readers = [await stack.enter_async_context(speaking(relay.url, ANNA)) for _ in range(6)]

        async def write(place: int) -> None:
            for number in range(place, total, 2):
                author = identity(10 + place)
                await writers[place].append(author, DOCUMENT, {"n": number})

        async def read(place: int) -> list[int]:
            await eventually(lambda: sum(each.requests for each in writers) >= 40 * place)
            if not is_feed:
                await readers[place].say(Pull("live", DOCUMENT, None, 0, 1000, True))
                return [each.seq for each in await readers[place].elements(total)]
            await readers[place].say(tail("live", live=True))
            seqs: list[int] = []
            while len(seqs) < total:
                seqs += [each.seq for each in (await readers[place].get(Events, "live")).events]
            return seqs

        results = await asyncio.gather(
            *(write(place) for place in range(2)), *(read(place) for place in range(6))
        )
        for seqs in results[2:]:
            assert seqs == list(range(1, total + 1))
        for reader in readers:
            assert all(
                isinstance(each, EndOfStored | FeedStatus) for each in await reader.silence()
            )


class LateLog(MemoryLog):
    """A log whose answers are old by the time that they arrive, when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.reads = 0

    async def page(self, *arguments: Any, **options: Any) -> Any:
        return await self._late(super().page(*arguments, **options))

    async def tail(self, *arguments: Any, **options: Any) -> Any:
        return await self._late(super().tail(*arguments, **options))

    async def feed(self, *arguments: Any, **options: Any) -> Any:
        return await self._late(super().feed(*arguments, **options))

    async def find(self, *arguments: Any, **options: Any) -> Any:
        return await self._late(super().find(*arguments, **options))

    async def snapshot(self, *arguments: Any, **options: Any) -> Any:
        return await self._late(super().snapshot(*arguments, **options))

    async def record(self, *arguments: Any, **options: Any) -> Any:
        return await self._late(super().record(*arguments, **options))

    async def _late(self, answer: Awaitable[Any]) -> Any:
        found = await answer
        self.reads += 1
        await self.gate.wait()
        return found


@pytest.mark.parametrize("stored", [0, 3])
@pytest.mark.parametrize("is_feed", [False, True])
async def test_what_is_stored_while_the_last_page_is_on_its_way_is_not_lost(
    stored: int, is_feed: bool
) -> None:
    log = LateLog()
    async with (
        Relay.serve(log) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN) as ben,
    ):
        for number in range(stored):
            await anna.append(ANNA, DOCUMENT, {"n": number})
        log.gate.clear()
        reads = log.reads
        if is_feed:
            await ben.say(tail("live", live=True))
        else:
            await ben.say(Pull("live", DOCUMENT, None, 0, 1000, True))
        await eventually(lambda: log.reads > reads)
        await anna.append(ANNA, DOCUMENT, {"n": stored})
        log.gate.set()
        if is_feed:
            seqs: list[int] = []
            while len(seqs) <= stored:
                seqs += [each.seq for each in (await ben.get(Events, "live")).events]
        else:
            seqs = [each.seq for each in await ben.elements(stored + 1)]
        assert seqs == list(range(1, stored + 2))


async def test_a_page_says_whether_there_is_more(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        places = [(await anna.append(ANNA, DOCUMENT, {"n": n})).result["ts"] for n in range(5)]
        await anna.say(Pull("p", DOCUMENT, None, 0, 2, False))
        assert numbers(await anna.elements(2, ref="p")) == [0, 1]
        end = await anna.get(EndOfStored, "p")
        log = log_id(relay.log.relay_id, DOCUMENT)
        wanted = {"ts": places[1], "log": log, "floor": 0, "head": places[4], "more": True}
        assert end.result == wanted
        await anna.say(Pull("p", DOCUMENT, log, places[1], 1000, False))
        assert numbers(await anna.elements(3, ref="p")) == [2, 3, 4]
        assert (await anna.get(EndOfStored, "p")).result["more"] is False
        await anna.say(Pull("p", DOCUMENT, log, places[4], 1000, False))
        assert (await anna.get(EndOfStored, "p")).result["ts"] == places[4]


async def test_how_far_a_log_reaches_is_told_whatever_was_asked_for(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        await anna.say(Pull("p", DOCUMENT, None, 7, 10, False))
        assert (await anna.get(EndOfStored, "p")).result["head"] == 0
        places = [(await anna.append(ANNA, DOCUMENT, {"n": n})).result["ts"] for n in range(3)]
        await relay.log.compact([Removal(DOCUMENT, (), places[2])])
        for frame in (
            Pull("p", DOCUMENT, None, places[2], 10, False),
            Pull("p", DOCUMENT, None, TS_MAX, 10, False),
            Pull("p", DOCUMENT, None, TS_MAX, 10, True),
            PullTail("p", DOCUMENT, None, TS_MAX, 10),
        ):
            await anna.say(frame)
            assert (await anna.get(EndOfStored, "p")).result["head"] == places[2]


async def test_an_acknowledgement_names_the_log(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        answer = await anna.append(ANNA, DOCUMENT, {"n": 1})
        assert answer.result["log"] == log_id(relay.log.relay_id, DOCUMENT)


async def test_the_newest_elements_come_ascending(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        places = [(await anna.append(ANNA, DOCUMENT, {"n": n})).result["ts"] for n in range(80)]
        for upto, last, wanted in [
            (places[69], 40, list(range(30, 70))),
            (places[69], 1, [69]),
            (TS_MAX, 3, [77, 78, 79]),
            (places[1], 1000, [0, 1]),
        ]:
            await anna.say(PullTail("t", DOCUMENT, None, upto, last))
            assert numbers(await anna.elements(len(wanted), ref="t")) == wanted
            end = await anna.get(EndOfStored, "t")
            assert end.result["ts"] == places[wanted[-1]]
        await anna.say(PullTail("t", DOCUMENT, None, 5, 5))
        assert (await anna.get(EndOfStored, "t")).result["ts"] == 5


async def test_who_comes_back_goes_on_from_the_cursor(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        places = [(await anna.append(ANNA, DOCUMENT, {"n": n})).result["ts"] for n in range(4)]
    async with speaking(relay.url, ANNA) as anna:
        await anna.follow(DOCUMENT, after=places[1])
        assert numbers(await anna.elements(2)) == [2, 3]
        await anna.follow(DOCUMENT, after=0, ref="all")
        assert numbers(await anna.elements(4, ref="all")) == [0, 1, 2, 3]


async def test_a_ref_that_is_used_again_follows_only_the_new_document(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        await anna.follow("notes/a")
        await anna.follow("notes/b")
        await anna.append(ANNA, "notes/a", {"n": 1})
        await anna.append(ANNA, "notes/b", {"n": 2})
        assert numbers(await anna.elements(1)) == [2]
        await anna.say(tail("live", live=True))
        await anna.events("live")
        await anna.append(ANNA, "notes/b", {"n": 3})
        assert [each.seq for each in (await anna.get(Events, "live")).events] == [3]
        assert await anna.silence() == []


async def test_refs_that_are_used_again_and_again_count_once() -> None:
    limits = Limits(subscriptions_max=2)
    async with (
        Relay.serve(MemoryLog(), limits=limits) as relay,
        speaking(relay.url, ANNA) as anna,
    ):
        for number in range(5):
            await anna.follow(f"notes/{number}", ref="1")
            await anna.follow(f"other/{number}", ref="2")
        await anna.say(Pull("3", DOCUMENT, None, 0, 10, True))
        assert (await anna.refusal("3")).code is Code.TOO_MANY
        for number in range(5):
            await anna.append(ANNA, f"notes/{number}", {"n": number})
        assert numbers(await anna.elements(1, ref="1")) == [4]
        assert await anna.silence() == []


async def test_after_close_nothing_more_comes(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        await anna.follow(DOCUMENT)
        await anna.say(tail("feed", live=True))
        await anna.events("feed")
        await anna.say(Close("live"), Close("feed"), Close("never"))
        assert [await anna.get(Closed, ref) for ref in ("live", "feed", "never")] == [
            Closed(ref, "closed") for ref in ("live", "feed", "never")
        ]
        await anna.append(ANNA, DOCUMENT, {"n": 1})
        assert await anna.silence() == []


async def test_a_cursor_from_the_future_stops_nobody_else(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, BEN) as ben:
        await anna.append(ANNA, DOCUMENT, {"n": 1})
        await ben.follow(DOCUMENT, after=TS_MAX)
        await anna.follow(DOCUMENT)
        await anna.append(ANNA, DOCUMENT, {"n": 2})
        assert numbers(await anna.elements(2)) == [1, 2]


async def test_many_large_elements_at_once_come_in_messages_that_can_be_read() -> None:
    # The log waits, so that all of them are stored and handed out together.
    log = GatedLog()
    async with (
        Relay.serve(log) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN, max_size=2 * FRAME_BYTES_MAX) as ben,
    ):
        await ben.follow(DOCUMENT)
        log.gate.clear()
        fillers = [{"n": number, "t": "x" * 700_000} for number in range(9)]
        await anna.say(*[appending(ANNA, DOCUMENT, each, ref=f"{each['n']}") for each in fillers])
        await anna.silence()
        log.gate.set()
        found = await ben.elements(9)
        assert [each.data for each in found] == [canonical_bytes(each) for each in fillers]
        await ben.follow(DOCUMENT, ref="again")
        assert await ben.elements(9, ref="again") == found
        await ben.say(PullTail("tail", DOCUMENT, None, TS_MAX, 1000))
        assert await ben.elements(9, ref="tail") == found


async def test_what_was_asked_for_is_sent_as_fast_as_it_is_read(log: RelayLog) -> None:
    """Much more than may be unread at a time, to somebody who reads all of it."""
    limits = Limits(pending_bytes_max=2**20, lag_bytes_max=2**16)
    async with (
        Relay.serve(log, limits=limits) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN, sock=narrow_socket(relay.port), max_queue=1) as ben,
    ):
        frames = [
            appending(ANNA, DOCUMENT, {"n": n, "t": "x" * 400_000}, ref=f"{n}") for n in range(16)
        ]
        for frame in frames:
            await anna.say(frame)
            await anna.get(Ok, frame.ref)
        wanted = [frame.data for frame in frames]
        await ben.say(PullTail("t", DOCUMENT, None, TS_MAX, 1000))
        assert [each.data for each in await ben.elements(16, ref="t")] == wanted
        await ben.say(Request("q", tuple(map(id_of, frames)), None, None, None))
        found, _ = await ben.events("q")
        assert [canonical_bytes(event["data"]) for _, event in found] == wanted
        await ben.say(tail())
        found, _ = await ben.events("feed")
        assert [canonical_bytes(event["data"]) for _, event in found] == wanted


async def test_another_log_of_the_same_name_is_told_apart(relay: Relay) -> None:
    async with (
        Relay.serve(MemoryLog()) as other,
        speaking(relay.url, ANNA) as here,
        speaking(other.url, ANNA) as there,
    ):
        one = (await here.follow(DOCUMENT)).result["log"]
        two = (await there.follow(DOCUMENT)).result["log"]
        assert one != two
        await there.say(Pull("p", DOCUMENT, one, 0, 10, False))
        refusal = await there.refusal("p")
        assert (refusal.code, refusal.details) == (Code.OTHER_LOG, {"log": two})
        await there.say(appending(ANNA, DOCUMENT, {"n": 1}, log=one))
        assert (await there.refusal("append")).code is Code.OTHER_LOG
        await there.say(appending(ANNA, DOCUMENT, {"n": 1}, log=two))
        await there.get(Ok, "append")


async def test_below_the_floor_a_client_is_sent_to_the_snapshot(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        places = [(await anna.append(ANNA, DOCUMENT, {"n": n})).result["ts"] for n in range(4)]
        await relay.log.compact([Removal(DOCUMENT, (), places[1])])
        for is_live in (True, False):
            await anna.say(Pull("p", DOCUMENT, None, places[0], 10, is_live))
            refusal = await anna.refusal("p")
            assert refusal.code is Code.CHECKPOINT_TOO_OLD
            assert refusal.details == {"floor": places[1]}
        assert (await anna.follow(DOCUMENT, after=places[1])).result["floor"] == places[1]
        assert numbers(await anna.elements(2)) == [2, 3]


# ── the changes feed ───────────────────────────────────────────────────────────────────


async def test_seq_counts_what_was_accepted_from_everybody(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, BEN) as ben:
        for number in range(6):
            author, speaker = [(ANNA, anna), (BEN, ben)][number % 2]
            await speaker.append(author, f"notes/{number % 3}", {"n": number})
        await anna.say(tail())
        found, end = await anna.events("feed")
        assert [seq for seq, _ in found] == [1, 2, 3, 4, 5, 6]
        assert [event["data"]["n"] for _, event in found] == list(range(6))
        assert end.result == {"seq": 6, "more": False}


async def test_an_event_shows_all_that_is_known_of_it(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        frame = appending(ANNA, DOCUMENT, {"n": 1})
        await anna.say(frame)
        ts = (await anna.get(Ok, "append")).result["ts"]
        text = snapshot_text(ANNA, DOCUMENT, upto_ts=ts)
        await anna.put(DOCUMENT, text, replaces=None)
        await anna.say(tail())
        (first, second), _ = await anna.events("feed")
        assert first[1].pop("accepted_ms") > 0
        assert first == (
            1,
            {
                "id": id_of(frame),
                "kind": "element",
                "document": DOCUMENT,
                "ts": ts,
                "author": ANNA.public_key,
                "signature": frame.signature,
                "data": {"n": 1},
            },
        )
        assert second[1]["kind"] == "snapshot"
        assert second[1]["id"] == revision_of(text)
        assert second[1]["upto_ts"] == ts
        assert second[1]["vc"] == {ANNA.public_key: 1}
        assert canonical_bytes(second[1]["snapshot"]) == text


async def filled(relay: Relay, anna: Speaker, ben: Speaker) -> None:
    """1 and 3 by Anna, 2 and 4 by Ben; 1 and 2 in notes/a, 3 in notes/b, 4 elsewhere; 5 put."""
    ts = 0
    for speaker, author, document, number in [
        (anna, ANNA, "notes/a", 1),
        (ben, BEN, "notes/a", 2),
        (anna, ANNA, "notes/b", 3),
        (ben, BEN, "other", 4),
    ]:
        place = await speaker.append(author, document, {"n": number})
        ts = place.result["ts"] if document == "notes/a" else ts
    await anna.put("notes/a", snapshot_text(ANNA, "notes/a", upto_ts=ts), replaces=None)


@pytest.mark.parametrize(
    ("frame", "wanted", "last", "more"),
    [
        (tail(), [1, 2, 3, 4, 5], 5, False),
        (tail(since=2), [3, 4, 5], 5, False),
        (tail(since=5), [], 5, False),
        (tail(since=99), [], 99, False),
        (tail(until_seq=3), [1, 2, 3], 3, False),
        (tail(since=1, until_seq=3), [2, 3], 3, False),
        (tail(limit=2), [1, 2], 2, True),
        (tail(since=1, limit=2), [2, 3], 3, True),
        (tail(limit=5), [1, 2, 3, 4, 5], 5, False),
        (tail(until_seq=3, limit=2), [1, 2], 2, True),
        (tail(prefix="notes/"), [1, 2, 3, 5], 5, False),
        (tail(prefix="notes/", limit=2), [1, 2], 2, True),
        (tail(prefix="notes/a", until_seq=4), [1, 2], 4, False),
        (tail(documents=frozenset({"notes/b", "other"})), [3, 4], 5, False),
        (tail(authors=frozenset({BEN.public_key})), [2, 4], 5, False),
        (tail(kinds=frozenset({"snapshot"})), [5], 5, False),
        (
            tail(kinds=frozenset({"element"}), authors=frozenset({ANNA.public_key})),
            [1, 3],
            5,
            False,
        ),
        (tail(documents=frozenset()), [], 5, False),
        (tail(prefix="%"), [], 5, False),
        (tail(prefix="note_"), [], 5, False),
        (tail(prefix="NOTES"), [], 5, False),
    ],
)
async def test_a_tail_covers_what_was_asked_for_and_says_how_far(
    relay: Relay, frame: FollowChanges, wanted: list[int], last: int, more: bool
) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, BEN) as ben:
        await filled(relay, anna, ben)
        await anna.say(frame)
        status = await anna.get(FeedStatus, "feed")
        assert status.status == {"mode": "tail", "snapshot_seq": 5, "min_seq": 1}
        found, end = await anna.events("feed")
        assert [seq for seq, _ in found] == wanted
        assert end.result == {"seq": last, "more": more}


async def test_a_live_tail_whose_page_was_cut_goes_on_by_itself(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        for number in range(5):
            await anna.append(ANNA, DOCUMENT, {"n": number})
        await anna.say(tail(limit=2, live=True))
        found, end = await anna.events("feed")
        assert ([seq for seq, _ in found], end.result) == ([1, 2], {"seq": 2, "more": True})
        assert [each.seq for each in (await anna.get(Events, "feed")).events] == [3, 4, 5]
        await anna.append(ANNA, DOCUMENT, {"n": 5})
        assert [each.seq for each in (await anna.get(Events, "feed")).events] == [6]


async def test_a_long_feed_comes_in_frames_of_at_most_128(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        await anna.say(*[appending(ANNA, DOCUMENT, {"n": n}, ref=f"{n}") for n in range(600)])
        await anna.get(Ok, "599")
        await anna.say(tail())
        found, end = await anna.events("feed")
        assert [seq for seq, _ in found] == list(range(1, 601))
        assert end.result == {"seq": 600, "more": False}


async def test_several_followers_of_a_feed_see_the_same_seqs(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, BEN) as ben:
        for each in (anna, ben):
            await each.say(tail(live=True, prefix="notes/"))
            await each.events("feed")
        await anna.append(ANNA, "other", {"n": 1})
        await ben.append(BEN, DOCUMENT, {"n": 2})
        heard = [await each.get(Events, "feed") for each in (anna, ben)]
        assert heard[0] == heard[1]
        assert [each.seq for each in heard[0].events] == [2]


async def test_what_was_compacted_is_told_in_its_place(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        frames = [appending(ANNA, DOCUMENT, {"n": n}, ref=f"{n}") for n in range(4)]
        await anna.say(*frames)
        places = [await anna.get(Ok, frame.ref) for frame in frames]
        await anna.append(ANNA, "notes/b", {"n": 9})
        await relay.log.compact([Removal(DOCUMENT, (), places[1].result["ts"])])
        await anna.say(tail())
        found, end = await anna.events("feed")
        assert [seq for seq, _ in found] == [1, 2, 3, 4, 5]
        assert [event.get("status") for _, event in found] == ["payload_compacted"] * 2 + [None] * 3
        assert [event["id"] for _, event in found[:4]] == [id_of(frame) for frame in frames]
        assert "data" not in found[0][1]
        assert found[0][1]["ts"] == places[0].result["ts"]
        assert end.result["seq"] == 5
        # It is known for ever: the same element is taken for what it is.
        await anna.say(frames[0])
        assert await anna.get(Ok, "0") == places[0]


async def test_below_the_replay_window_a_client_has_to_bootstrap(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        for number in range(5):
            await anna.append(ANNA, DOCUMENT, {"n": number})
        await relay.log.trim(4)
        await anna.say(tail(since=2))
        refusal = await anna.refusal("feed")
        assert refusal.code is Code.CHECKPOINT_TOO_OLD
        assert refusal.details == {"min_seq": 4}
        assert "min_seq is 4" in refusal.message
        assert await anna.get(Closed, "feed") == Closed("feed", refusal.message)
        await anna.say(tail(since=3))
        found, _ = await anna.events("feed")
        assert [seq for seq, _ in found] == [4, 5]


async def test_a_bootstrap_shows_what_is_current_and_a_tail_goes_on(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        revision, ts = None, 0
        for number in range(3):
            ts = (await anna.append(ANNA, DOCUMENT, {"n": number})).result["ts"]
            writers = {ANNA.public_key: number + 1}
            text = snapshot_text(ANNA, DOCUMENT, upto_ts=ts, writer_seq=writers)
            assert isinstance(await anna.put(DOCUMENT, text, replaces=revision), Ok)
            revision = revision_of(text)
        await anna.say(bootstrap())
        assert (await anna.get(FeedStatus, "boot")).status == {
            "mode": "bootstrap",
            "snapshot_seq": 6,
            "min_seq": 1,
        }
        found, end = await anna.events("boot")
        assert [(seq, event["id"]) for seq, event in found] == [(6, revision)]
        assert end.result == {"seq": 6, "more": False}
        await anna.append(ANNA, DOCUMENT, {"n": 3})
        await anna.say(tail(since=end.result["seq"], live=True))
        found, _ = await anna.events("feed")
        assert [seq for seq, _ in found] == [7]


async def test_a_bootstrap_can_be_read_in_parts(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        for number in range(5):
            document = f"notes/{number}"
            ts = (await anna.append(ANNA, document, {"n": number})).result["ts"]
            await anna.put(document, snapshot_text(ANNA, document, upto_ts=ts), replaces=None)
        await anna.say(bootstrap()._replace(limit=2))
        found, end = await anna.events("boot")
        assert ([seq for seq, _ in found], end.result) == ([2, 4], {"seq": 4, "more": True})
        # What replaces a snapshot meanwhile is for the tail that follows.
        ts = (await anna.append(ANNA, "notes/2", {"n": 9})).result["ts"]
        newer = snapshot_text(ANNA, "notes/2", upto_ts=ts, writer_seq={ANNA.public_key: 2})
        current = await anna.snapshot("notes/2")
        assert current is not None
        assert isinstance(await anna.put("notes/2", newer, replaces=revision_of(current)), Ok)
        await anna.say(bootstrap()._replace(limit=2, since=4, until_seq=10))
        found, end = await anna.events("boot")
        assert ([seq for seq, _ in found], end.result) == ([8, 10], {"seq": 10, "more": False})


async def test_a_bootstrap_amid_writes_is_one_consistent_read(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, BEN) as ben:
        documents = [f"notes/{number}" for number in range(4)]
        is_done = False

        async def write() -> None:
            nonlocal is_done
            current: dict[str, str | None] = dict.fromkeys(documents)
            for number in range(25):
                for document in documents:
                    place = await anna.append(ANNA, document, {"n": number})
                    text = snapshot_text(
                        ANNA,
                        document,
                        upto_ts=place.result["ts"],
                        writer_seq={ANNA.public_key: number + 1},
                    )
                    await anna.put(document, text, replaces=current[document])
                    current[document] = revision_of(text)
            is_done = True

        async def boot() -> int:
            rounds = 0
            while not is_done:
                rounds += 1
                await ben.say(bootstrap())
                found, end = await ben.events("boot")
                at = end.result["seq"]
                assert all(seq <= at for seq, _ in found)
                # The same from the whole feed up to that point: nothing else is current there.
                await ben.say(tail(until_seq=at, kinds=frozenset({"snapshot"})))
                newest = {}
                for seq, event in (await ben.events("feed"))[0]:
                    newest[event["document"]] = seq
                assert {event["document"]: seq for seq, event in found} == newest
            return rounds

        _, rounds = await asyncio.gather(write(), boot())
        assert rounds > 1


# ── events by id ───────────────────────────────────────────────────────────────────────


async def test_of_an_id_it_is_told_whether_it_is_there_or_gone_or_unknown(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        frames = [appending(ANNA, DOCUMENT, {"n": n}, ref=f"{n}") for n in range(4)]
        await anna.say(*frames)
        places = [await anna.get(Ok, frame.ref) for frame in frames]
        await relay.log.compact([Removal(DOCUMENT, (), places[1].result["ts"])])
        ids = [id_of(frame) for frame in frames]
        await anna.say(Request("q", ("ab" * 32, *reversed(ids)), None, None, None))
        found, end = await anna.events("q")
        assert [seq for seq, _ in found[:2]] == [3, 4]
        assert [event["id"] for _, event in found[2:]] == sorted(ids[:2])
        assert {event["status"] for _, event in found[2:]} == {"payload_compacted"}
        assert end.result == {"seq": 4, "more": False}
        await anna.say(Request("q", ("ab" * 32,), None, None, None))
        assert await anna.events("q") == ([], EndOfStored("q", {"seq": 0, "more": False}))


@pytest.mark.parametrize(
    "only",
    [
        {"authors": frozenset({BEN.public_key})},
        {"documents": frozenset({"notes/b"})},
        {"kinds": frozenset({"snapshot"})},
    ],
)
async def test_a_filter_holds_for_what_is_gone_too(relay: Relay, only: dict[str, Any]) -> None:
    async with speaking(relay.url, ANNA) as anna:
        frame = appending(ANNA, DOCUMENT, {"n": 1})
        await anna.say(frame)
        ts = (await anna.get(Ok, "append")).result["ts"]
        request = Request("q", (id_of(frame),), None, None, None)
        for removals in ([], [Removal(DOCUMENT, (), ts)]):
            await relay.log.compact(removals)
            await anna.say(request)
            assert len((await anna.events("q"))[0]) == 1
            await anna.say(request._replace(**only))
            assert (await anna.events("q"))[0] == []


async def test_whether_something_exists_is_told_only_to_those_who_may_read_it() -> None:
    roles = roles_of('[[grant]]\nkey = "secret"\nread = [ANNA]\nwrite = [ANNA]')
    log = MemoryLog()
    async with (
        Relay.serve(log, roles=roles) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN) as ben,
        speaking(relay.url) as nobody,
    ):
        frame = appending(ANNA, "secret", {"n": 1})
        await anna.say(frame)
        ts = (await anna.get(Ok, "append")).result["ts"]
        request = Request("q", (id_of(frame),), None, None, None)
        for removals in ([], [Removal("secret", (), ts)]):
            await log.compact(removals)
            for stranger in (ben, nobody):
                await stranger.say(request)
                assert await stranger.events("q") == (
                    [],
                    EndOfStored("q", {"seq": 0, "more": False}),
                )
            await anna.say(request)
            assert len((await anna.events("q"))[0]) == 1


# ── snapshots ──────────────────────────────────────────────────────────────────────────


async def test_a_snapshot_replaces_the_one_it_names(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        assert await anna.snapshot(DOCUMENT) is None
        ts = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        first, second = (
            snapshot_text(ANNA, DOCUMENT, upto_ts=ts, state={"v": version}) for version in (1, 2)
        )
        put = await anna.put(DOCUMENT, first, replaces=None)
        assert isinstance(put, Ok)
        assert put.result == {"revision": revision_of(first), "seq": 2}
        again = await anna.put(DOCUMENT, first, replaces=None)
        assert isinstance(again, Ok)
        assert again.result == put.result
        conflict = await anna.put(DOCUMENT, second, replaces=None)
        assert isinstance(conflict, Refusal)
        assert (conflict.code, conflict.details) == (
            Code.CONFLICT,
            {"revision": revision_of(first)},
        )
        assert isinstance(await anna.put(DOCUMENT, second, replaces=revision_of(first)), Ok)
        assert await anna.snapshot(DOCUMENT) == second
        assert await anna.snapshot(DOCUMENT, revision_of(first)) == first
        assert await anna.snapshot(DOCUMENT, "ab" * 32) is None
        assert await anna.snapshot("notes/b", revision_of(first)) is None


async def test_of_those_who_race_for_a_revision_exactly_one_wins(relay: Relay) -> None:
    async with AsyncExitStack() as stack:
        authors = [identity(20 + number) for number in range(6)]
        several = [
            await stack.enter_async_context(speaking(relay.url, author)) for author in authors
        ]
        revision = None
        for version in range(4):
            ts = (await several[0].append(authors[0], DOCUMENT, {"n": version})).result["ts"]
            texts = [
                snapshot_text(author, DOCUMENT, upto_ts=ts, state={"v": version})
                for author in authors
            ]
            outcomes = await asyncio.gather(
                *(
                    speaker.put(DOCUMENT, text, replaces=revision)
                    for speaker, text in zip(several, texts, strict=True)
                )
            )
            winners = [place for place, each in enumerate(outcomes) if isinstance(each, Ok)]
            assert len(winners) == 1
            revision = revision_of(texts[winners[0]])
            for outcome in outcomes:
                if isinstance(outcome, Refusal):
                    assert outcome.code is Code.CONFLICT
                    assert outcome.details == {"revision": revision}
            assert await several[0].snapshot(DOCUMENT) == texts[winners[0]]


async def test_a_snapshot_of_several_megabytes_goes_there_and_back(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, BEN) as ben:
        ts = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        state = {"text": 'é"\\\n😀' * 200_000}
        text = snapshot_text(ANNA, DOCUMENT, upto_ts=ts, state=state)
        assert len(text) > 2 * 2**20
        await ben.say(tail(live=True))
        await ben.events("feed")
        assert isinstance(await anna.put(DOCUMENT, text, replaces=None), Ok)
        assert await ben.snapshot(DOCUMENT) == text
        # The feed names it, and does not carry it.
        ((seq, event, payload),) = (await ben.get(Events, "feed")).events
        assert (seq, payload) == (2, None)
        assert await ben.snapshot(DOCUMENT, event["id"]) == text


async def test_uploads_that_never_end_make_room_for_those_that_do() -> None:
    limits = Limits(uploads_bytes_max=8 * SNAPSHOT_PIECE_SIZE)
    piece = PutSnapshot("put", "never", None, None, "x" * SNAPSHOT_PIECE_SIZE, False)
    async with (
        Relay.serve(MemoryLog(), limits=limits) as relay,
        speaking(relay.url, ANNA) as anna,
        AsyncExitStack() as stack,
    ):
        stalled = [await stack.enter_async_context(speaking(relay.url, BEN)) for _ in range(8)]
        for each in stalled:
            await each.say(piece)
            assert await each.silence() == []
        ts = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        state = {"text": "x" * 2 * SNAPSHOT_PIECE_SIZE}
        text = snapshot_text(ANNA, DOCUMENT, upto_ts=ts, state=state)
        assert isinstance(await anna.put(DOCUMENT, text, replaces=None), Ok)
        for each in stalled[:3]:
            await each.say(piece)
            assert (await each.refusal("put")).code is Code.UNAVAILABLE
        # What was stored takes no room any more.
        larger = snapshot_text(ANNA, DOCUMENT, upto_ts=ts, state=state | {"n": 1})
        assert isinstance(await anna.put(DOCUMENT, larger, replaces=revision_of(text)), Ok)
        await stalled[3].say(piece)
        assert await stalled[3].silence() == []


async def test_who_reads_a_snapshot_slowly_has_the_whole_though_the_relay_compacts() -> None:
    token = "a-token-of-the-operator"
    policy = Policy(snapshot_mode=SnapshotMode.CURRENT_ONLY)
    settings = Settings(admin_token=token, retention=policy)
    async with (
        Relay.serve(MemoryLog(), compression=False, settings=settings) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN, sock=narrow_socket(relay.port), max_queue=1) as slow,
    ):
        ts = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        text = snapshot_text(ANNA, DOCUMENT, upto_ts=ts, state={"text": "x" * 2**23})
        assert isinstance(await anna.put(DOCUMENT, text, replaces=None), Ok)
        peer = list(relay.peers)[-1]
        reading = asyncio.create_task(slow.snapshot(DOCUMENT))
        await eventually(lambda: peer.pending_bytes > 0)
        newer = snapshot_text(ANNA, DOCUMENT, upto_ts=ts, state={"text": "y"})
        assert isinstance(await anna.put(DOCUMENT, newer, replaces=revision_of(text)), Ok)
        url = f"http://127.0.0.1:{relay.port}"

        def compacted() -> int:
            answer = ask_relay(url, method="POST", path="/admin/compact", token=token)
            return int(answer["removed"]["snapshots"])

        assert await asyncio.to_thread(compacted) == 0
        assert await reading == text
        assert await asyncio.to_thread(compacted) == 1
        assert await slow.snapshot(DOCUMENT) == newer


async def test_who_reads_a_snapshot_that_is_removed_meanwhile_is_told_to_ask_again() -> None:
    log = MemoryLog()
    async with (
        Relay.serve(log, compression=False) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN, sock=narrow_socket(relay.port), max_queue=1) as slow,
    ):
        ts = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        text = snapshot_text(ANNA, DOCUMENT, upto_ts=ts, state={"text": "x" * 2**23})
        assert isinstance(await anna.put(DOCUMENT, text, replaces=None), Ok)
        peer = list(relay.peers)[-1]
        await slow.say(GetSnapshot("get", DOCUMENT, None, None))
        await eventually(lambda: peer.pending_bytes > 0)
        await log.compact([Removal(DOCUMENT, [revision_of(text)], 0)])
        refusal = await slow.refusal("get")
        assert refusal.code is Code.UNAVAILABLE
        assert refusal.code.retryable
        assert await slow.snapshot(DOCUMENT) is None


def broken(text: bytes, old: bytes, new: bytes) -> bytes:
    assert text.count(old) == 1
    return text.replace(old, new)


SOUND = snapshot_text(ANNA, DOCUMENT, upto_ts=5, state={"v": 1})


def deletion_without_its_state() -> bytes:
    content = {"uptoTs": 5, "writerSeq": {"a": 1}, "producedBy": ANNA.public_key}
    proof = sign_document(f"{DOCUMENT}__snapshot", {**content, "state": None}, ANNA)
    signed = {"authorPubkey": proof.author_pubkey, "authorSignature": proof.author_signature}
    return canonical_bytes(content | signed)


@pytest.mark.parametrize(
    "text",
    [
        deletion_without_its_state(),
        broken(SOUND, b'"v":1', b'"v":2'),
        broken(SOUND, b'"uptoTs":5', b'"uptoTs":4'),
        broken(SOUND, b'"uptoTs":5', b'"uptoTs":true'),
        broken(SOUND, b'"uptoTs":5', b'"uptoTs":-1'),
        broken(SOUND, b'"uptoTs":5', b'"uptoTs":5.5'),
        SOUND + b" ",
        b" " + SOUND,
        b"{}",
        b"[]",
        b"null",
        b"",
        b"{" * 1000,
        b"[" * 1000 + b"]" * 1000,
        b"9" * 5000,
        rb'{"a":"\ud800"}',
        snapshot_text(ANNA, "notes/b", upto_ts=5),
        snapshot_text(ANNA, DOCUMENT, upto_ts=5, writer_seq={"": 1}),
        snapshot_text(ANNA, DOCUMENT, upto_ts=5, writer_seq={"\ud800": 1}),
        snapshot_text(ANNA, DOCUMENT, upto_ts=5, writer_seq={"\x00": 1}),
        snapshot_text(ANNA, DOCUMENT, upto_ts=5, writer_seq={"a": 0}),
        snapshot_text(ANNA, DOCUMENT, upto_ts=5, writer_seq={"a": TS_MAX + 1}),
        snapshot_text(ANNA, DOCUMENT, upto_ts=5, writer_seq={"a": True}),
        snapshot_text(ANNA, DOCUMENT, upto_ts=5, writer_seq={"a" * 300: 1}),
        snapshot_text(ANNA, DOCUMENT, upto_ts=5, writer_seq={"a:é": 1}),
        snapshot_text(ANNA, DOCUMENT, upto_ts=5, writer_seq={"a:": 1}),
        snapshot_text(
            ANNA, DOCUMENT, upto_ts=5, writer_seq={f"a:{n:0120}": 1 for n in range(40_000)}
        ),
        snapshot_text(
            ANNA, DOCUMENT, upto_ts=5, writer_seq={f"{n}": 1 for n in range(COUNTS_MAX + 1)}
        ),
    ],
    ids=range(28),
)
async def test_a_snapshot_that_is_not_signed_and_sound_is_not_stored(text: bytes) -> None:
    log = MemoryLog()
    async with Relay.serve(log) as relay, speaking(relay.url, ANNA) as anna:
        await anna.append(ANNA, DOCUMENT, {"n": 1})
        pieces = [text[start : start + 100_000] for start in range(0, len(text) or 1, 100_000)]
        for piece in pieces:
            is_last = piece is pieces[-1]
            await anna.say(PutSnapshot("put", DOCUMENT, None, None, piece.decode(), is_last))
        assert (await anna.refusal("put")).code is Code.INVALID
        assert await log.snapshots(DOCUMENT) == []


def test_a_snapshot_of_too_many_values_is_refused_unread() -> None:
    # Whoever parsed it, or looked at its signature, would find another reason.
    text = b"[" + b"[]," * (SNAPSHOT_VALUES_MAX // 2) + b"[]"
    with pytest.raises(MalformedError, match="values"):
        check_snapshot(PutWhole("put", DOCUMENT, None, text))


async def test_a_snapshot_is_its_producers_to_put_and_nobody_elses() -> None:
    roles = roles_of(
        '[[grant]]\nprefix = ""\nread = [ANNA, BEN]\nwrite = [ANNA, BEN]\nsnapshot = [ANNA]'
    )
    async with (
        Relay.serve(MemoryLog(), roles=roles) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN) as ben,
        speaking(relay.url, ANNA, BEN) as both,
    ):
        ts = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        by_anna, by_ben = (snapshot_text(each, DOCUMENT, upto_ts=ts) for each in (ANNA, BEN))
        for speaker, text in [(ben, by_anna), (ben, by_ben), (anna, by_ben), (both, by_ben)]:
            refusal = await speaker.put(DOCUMENT, text, replaces=None)
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.RESTRICTED
        assert isinstance(await both.put(DOCUMENT, by_anna, replaces=None), Ok)


async def test_snapshots_that_do_not_cover_one_another_are_taken_up_to_a_limit() -> None:
    log = MemoryLog()
    revision = None
    for number in range(UNDOMINATED_MAX):
        put = NewSnapshot(
            DOCUMENT, revision, f"{number:064x}", "a", 0, {f"w{number}": 1}, False, b"{}"
        )
        assert isinstance(await log.put_snapshot(put, 1), Accepted)
        revision = put.id
    async with Relay.serve(log) as relay, speaking(relay.url, ANNA) as anna:
        beside = snapshot_text(ANNA, DOCUMENT, upto_ts=0)
        refused = await anna.put(DOCUMENT, beside, replaces=revision)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.TOO_MANY
        # One that covers another takes its place.
        above = snapshot_text(ANNA, DOCUMENT, upto_ts=0, writer_seq={"w3": 1, "w4": 2})
        assert isinstance(await anna.put(DOCUMENT, above, replaces=revision), Ok)
        assert isinstance(await anna.put(DOCUMENT, above, replaces=revision), Ok)
    assert len((await log.bootstrap(Filter())).events) == UNDOMINATED_MAX - 1


async def test_a_snapshot_never_covers_less_nor_more_than_there_is(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        first = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        second = (await anna.append(ANNA, DOCUMENT, {"n": 2})).result["ts"]
        more = snapshot_text(ANNA, DOCUMENT, upto_ts=second + 1)
        refusal = await anna.put(DOCUMENT, more, replaces=None)
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.CONFLICT
        current = snapshot_text(ANNA, DOCUMENT, upto_ts=second)
        assert isinstance(await anna.put(DOCUMENT, current, replaces=None), Ok)
        less = snapshot_text(ANNA, DOCUMENT, upto_ts=first)
        refusal = await anna.put(DOCUMENT, less, replaces=revision_of(current))
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.CONFLICT
        assert await anna.snapshot(DOCUMENT) == current


async def test_writers_with_odd_names_do_not_break_the_feed(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        ts = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        writers = {'"': 1, "\\": 2, "~ ": 3, "a:: ": 4}
        text = snapshot_text(ANNA, DOCUMENT, upto_ts=ts, writer_seq=writers)
        assert isinstance(await anna.put(DOCUMENT, text, replaces=None), Ok)
        await anna.say(tail())
        found, _ = await anna.events("feed")
        assert found[1][1]["vc"] == writers
        await anna.say(bootstrap())
        assert len((await anna.events("boot"))[0]) == 1


# ── presence ───────────────────────────────────────────────────────────────────────────


async def test_presence_is_passed_on_and_ends_with_the_connection(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        await anna.follow(DOCUMENT)
        async with speaking(relay.url, BEN) as ben:
            await ben.follow(DOCUMENT)
            await ben.say(SetPresence(DOCUMENT, {"at": 3}))
            here = await anna.get(Presence)
            assert (here.document, here.key) == (DOCUMENT, BEN.public_key)
            assert here.payload == {"at": 3}
            assert await ben.silence() == []
            # Who comes later is told who is there.
            async with speaking(relay.url, CARL) as carl:
                await carl.follow(DOCUMENT)
                assert await carl.get(Presence) == here
            ben.socket.transport.abort()
        assert await anna.get(Presence) == here._replace(payload=None)


async def test_presence_is_left_by_saying_so_and_told_once(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, BEN) as ben:
        await anna.follow(DOCUMENT)
        await ben.say(SetPresence(DOCUMENT, {}), SetPresence(DOCUMENT, None))
        await ben.say(SetPresence(DOCUMENT, None), SetPresence("notes/b", None))
        await ben.silence()
        assert [(await anna.get(Presence)).payload for _ in range(2)] == [{}, None]
        assert await anna.silence() == []


async def test_presence_is_never_stored(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, BEN) as ben:
        await anna.follow(DOCUMENT)
        await ben.say(SetPresence(DOCUMENT, {"secret": "whereabouts"}))
        await anna.get(Presence)
        assert await relay.log.documents("", count_max=9) == []
        await ben.say(tail())
        assert (await ben.events("feed"))[0] == []


async def test_a_presence_that_cannot_be_passed_on_breaks_nobodys_connection(
    relay: Relay,
) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, BEN) as ben:
        for depth in (200, 252, 253, 254, 255, 600):
            await ben.say('["PRESENCE","notes/a",{"a":%s}]' % ("[" * depth + "]" * depth))
            await ben.silence()
            await anna.follow(DOCUMENT)
            await anna.append(ANNA, DOCUMENT, {"n": depth})
            await anna.silence()


# ── roles in a running relay ───────────────────────────────────────────────────────────


def revoking(prefix: str = "notes/", *, at_ms: int, roles: Sequence[str] = ()) -> PublishGrant:
    grant = sign_grant(ANNA, prefix=prefix, to=BEN.public_key, roles=roles, at_ms=at_ms)
    return PublishGrant("grant", grant)


async def test_who_is_revoked_hears_nothing_more(log: RelayLog) -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [ANNA]\nread = [ANNA]\nwrite = [ANNA]')
    async with (
        Relay.serve(log, roles=roles) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN) as ben,
    ):
        await ben.say(Pull("live", DOCUMENT, None, 0, 10, True))
        assert (await ben.refusal("live")).code is Code.RESTRICTED
        await anna.say(revoking(at_ms=1, roles=["read"]))
        await anna.get(Ok, "grant")
        await ben.follow(DOCUMENT)
        await ben.say(tail(prefix="notes/", live=True))
        await ben.events("feed")
        await anna.append(ANNA, DOCUMENT, {"n": 1})
        await ben.elements(1)
        await ben.get(Events, "feed")
        await anna.say(revoking(at_ms=2))
        await anna.get(Ok, "grant")
        for ref in ("live", "feed"):
            assert (await ben.refusal(ref)).code is Code.RESTRICTED
        await anna.append(ANNA, DOCUMENT, {"n": 2})
        left = await ben.silence()
        assert all(isinstance(each, Closed) for each in left)
        assert {each[0] for each in left} == {"live", "feed"}
        # An older grant that is sent again gives nothing back.
        await ben.say(revoking(at_ms=1, roles=["read"]))
        await ben.outcome("grant")
        await ben.say(Pull("live", DOCUMENT, None, 0, 10, True))
        assert (await ben.refusal("live")).code is Code.RESTRICTED
    # Nor does a restart.
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [ANNA]')
    async with Relay.serve(log, roles=roles) as relay, speaking(relay.url, BEN) as ben:
        await ben.say(Pull("live", DOCUMENT, None, 0, 10, True))
        assert (await ben.refusal("live")).code is Code.RESTRICTED


async def test_who_is_revoked_is_no_longer_present() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [ANNA]\nread = [ANNA, CARL]')
    async with (
        Relay.serve(MemoryLog(), roles=roles) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN) as ben,
    ):
        await anna.follow(DOCUMENT)
        await anna.say(revoking(at_ms=1, roles=["read"]))
        await anna.get(Ok, "grant")
        await ben.say(SetPresence(DOCUMENT, {"name": "Ben"}))
        there = await anna.get(Presence)
        await anna.say(revoking(at_ms=2))
        assert await anna.get(Presence) == there._replace(payload=None)
        async with speaking(relay.url, CARL) as carl:
            await carl.follow(DOCUMENT)
            assert await carl.silence() == []


@pytest.mark.parametrize(
    "asked",
    [
        Pull("asked", DOCUMENT, None, 0, 10, False),
        PullTail("asked", DOCUMENT, None, TS_MAX, 10),
        GetSnapshot("asked", DOCUMENT, None),
        GetRecord("asked", DOCUMENT, "roster"),
        FollowChanges("asked", "bootstrap", "notes/", 0, None, 9, None, None, None, False),
        FollowChanges("asked", "tail", "notes/", 0, None, 9, None, None, None, False),
    ],
)
async def test_who_is_revoked_while_something_is_read_for_them_does_not_get_it(
    asked: ClientFrame,
) -> None:
    roles = roles_of(
        '[[grant]]\nprefix = "notes/"\ngrant = [ANNA]\nread = [ANNA]\nwrite = [ANNA]\n'
        "snapshot = [ANNA]"
    )
    log = LateLog()
    async with (
        Relay.serve(log, roles=roles) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN) as ben,
    ):
        await anna.say(revoking(at_ms=1, roles=["read"]))
        await anna.get(Ok, "grant")
        ts = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        await anna.put(DOCUMENT, snapshot_text(ANNA, DOCUMENT, upto_ts=ts), replaces=None)
        log.gate.clear()
        reads = log.reads
        await ben.say(asked)
        await eventually(lambda: log.reads > reads)
        await anna.say(revoking(at_ms=2))
        await anna.get(Ok, "grant")
        log.gate.set()
        assert (await ben.refusal("asked")).code is Code.RESTRICTED
        assert not [each for each in ben.kept if isinstance(each, Elements | Events)]
        assert not [each for each in await ben.silence() if isinstance(each, Elements | Events)]


async def test_a_tail_ends_where_the_log_ended_when_it_was_asked_for() -> None:
    log = LateLog()
    async with (
        Relay.serve(log) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN) as ben,
    ):
        first = await anna.append(ANNA, DOCUMENT, {"n": 1})
        log.gate.clear()
        reads = log.reads
        await ben.say(PullTail("tail", DOCUMENT, None, TS_MAX, 10))
        await eventually(lambda: log.reads > reads)
        await anna.append(ANNA, DOCUMENT, {"n": 2})
        log.gate.set()
        end = await ben.get(EndOfStored, "tail")
        assert end.result["ts"] == first.result["ts"]
        assert numbers(await ben.elements(1, ref="tail")) == [1]


async def test_what_may_not_be_read_is_not_even_loaded() -> None:
    loaded: dict[str, set[int]] = {}

    class Recording(MemoryLog):
        async def find(self, *arguments: Any, **options: Any) -> Any:
            found = await super().find(*arguments, **options)
            for event in found:
                loaded.setdefault(event.document, set()).add(len(event.payload or b""))
            return found

    roles = roles_of(
        '[[grant]]\nprefix = ""\nread = [ANNA]\nwrite = [ANNA]\n'
        '[[grant]]\nprefix = "notes/"\nread = [BEN]'
    )
    asked = [appending(ANNA, key, {"n": 1}, ref=key) for key in ("notes/a", "secret/a")]
    async with (
        Relay.serve(Recording(), roles=roles) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN) as ben,
    ):
        for frame in asked:
            await anna.say(frame)
            await anna.get(Ok, frame.ref)
        await ben.say(Request("ids", tuple(map(id_of, asked)), None, None, None))
        shown, _ = await ben.events("ids")
    assert [event["document"] for _, event in shown] == ["notes/a"]
    assert loaded == {"notes/a": {0, len(asked[0].data)}, "secret/a": {0}}


async def test_who_does_not_read_holds_one_bootstrap_and_no_more() -> None:
    class Counting(MemoryLog):
        bootstraps = 0

        async def bootstrap(self, wanted: Filter, **options: Any) -> Any:
            self.bootstraps += 1
            return await super().bootstrap(wanted, **options)

    log = Counting()
    for number in range(40):
        text = b'{"%d":"%b"}' % (number, b"x" * 2**18)
        put = NewSnapshot(f"d{number}", None, f"{number:064x}", "a", 0, {"w": 1}, False, text)
        await log.put_snapshot(put, 1)
    async with (
        Relay.serve(log) as relay,
        speaking(relay.url, ANNA, sock=narrow_socket(relay.port), max_queue=1) as slow,
    ):
        (peer,) = relay.peers
        for number in range(10):
            await slow.say(bootstrap(f"{number}"))
        await eventually(lambda: len(peer.tasks) == 10 and peer.pending_bytes > 0)
        assert log.bootstraps == 1
        for number in range(10):
            shown, _ = await slow.events(f"{number}")
            assert len(shown) == 40
        assert log.bootstraps == 10


async def test_a_grant_that_counts_already_has_nobody_looked_at_anew() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [ANNA]\nread = [ANNA]')
    looked = 0
    async with (
        Relay.serve(MemoryLog(), roles=roles) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, BEN) as ben,
    ):
        await anna.say(revoking(at_ms=2, roles=["read"]))
        await anna.get(Ok, "grant")
        await ben.follow(DOCUMENT)
        (peer,) = [each for each in relay.peers if each.key == BEN.public_key]
        may_read = peer.session.may_read

        def counted(document: str, now_ms: int) -> bool:
            nonlocal looked
            looked += 1
            return may_read(document, now_ms)

        peer.session.may_read = counted  # type: ignore[method-assign]
        for at_ms in (1, 2, 2):
            await ben.say(revoking(at_ms=at_ms, roles=["read"]))
            await ben.get(Ok, "grant")
        assert looked == 0
        await ben.say(revoking(at_ms=3, roles=["read"]))
        await ben.get(Ok, "grant")
        assert looked == 1


async def test_a_grant_that_is_kept_is_verified_once() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [ANNA]')
    added: list[Grant] = []
    log = MemoryLog()
    async with Relay.serve(log, roles=roles) as relay:
        add = roles.add

        def noted(grant: Grant) -> bool:
            added.append(grant)
            return add(grant)

        roles.add = noted  # type: ignore[method-assign]
        for at_ms, count in ((1, 1), (1, 1), (2, 2), (2, 2)):
            # As another process of the relay would keep it.
            await log.put_grant(revoking(at_ms=at_ms, roles=["read"]).grant, 1)
            await relay._renew_grants()
            assert len(added) == count


async def test_a_snapshot_is_looked_into_only_for_who_may_put_it() -> None:
    roles = roles_of('[[grant]]\nprefix = ""\nread = [ANNA]\nsnapshot = [ANNA]')
    async with (
        Relay.serve(MemoryLog(), roles=roles) as relay,
        speaking(relay.url, ANNA, BEN) as both,
    ):
        # Nobody gets so far as to notice that it is no JSON.
        text = b'{"authorPubkey":"%b", no more' % BEN.public_key.encode()
        refused = await both.put(DOCUMENT, text, replaces=None)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.RESTRICTED
        text = text.replace(BEN.public_key.encode(), ANNA.public_key.encode())
        refused = await both.put(DOCUMENT, text, replaces=None)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.INVALID


async def test_a_grant_survives_a_restart(log: RelayLog) -> None:
    text = '[[grant]]\nprefix = "notes/"\ngrant = [ANNA]'
    async with Relay.serve(log, roles=roles_of(text)) as relay, speaking(relay.url, ANNA) as anna:
        await anna.say(revoking(at_ms=1, roles=["read", "write"]))
        await anna.get(Ok, "grant")
    async with Relay.serve(log, roles=roles_of(text)) as relay, speaking(relay.url, BEN) as ben:
        await ben.append(BEN, DOCUMENT, {"n": 1})
        await ben.follow(DOCUMENT)


# ── who dials what ─────────────────────────────────────────────────────────────────────


async def test_a_proof_made_for_another_relay_cannot_be_passed_on_here(relay: Relay) -> None:
    """What a relay in the middle can do: dial here under its own name, and hand the answer on."""
    name = "evil.example:9"
    async with connect(f"ws://{name}", sock=narrow_socket(relay.port), proxy=None) as middle:
        hello = read_relay_frame(await middle.recv())
        assert isinstance(hello, Hello)
        signature = sign_auth(challenge=hello.challenge, relay=name, identity=ANNA)
        await middle.send(client_frame(Auth("a", ANNA.public_key, signature)).decode())
        answer = read_relay_frame(await middle.recv())
        assert isinstance(answer, Refusal)
        assert answer.code is Code.AUTH_FAILED


async def test_a_client_names_what_it_has_dialled(relay: Relay) -> None:
    for url in (relay.url, f"ws://localhost:{relay.port}"):
        async with speaking(url, ANNA, sock=narrow_socket(relay.port)) as anna:
            await anna.append(ANNA, DOCUMENT, {"url": url})


async def test_behind_a_proxy_the_public_name_counts_whatever_arrives() -> None:
    async with (
        Relay.serve(MemoryLog(), public_url="wss://Relay.Example/ws") as relay,
        speaking(relay.url) as anna,
    ):
        anna.address = "relay.example:443"
        await anna.prove(ANNA)
        anna.address = f"127.0.0.1:{relay.port}"
        await anna.say(Auth("a", BEN.public_key, anna.answer_to_challenge(BEN)))
        assert (await anna.refusal("a")).code is Code.AUTH_FAILED


async def test_two_names_in_one_request_are_no_trouble(relay: Relay) -> None:
    async with speaking(relay.url, additional_headers=[("Host", "evil.example")]) as anna:
        await anna.prove(ANNA)


# ── bad input ──────────────────────────────────────────────────────────────────────────


async def test_a_binary_message_ends_the_connection_with_a_reason(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, ANNA) as other:
        await anna.socket.send(b'["CLOSE","r"]')
        assert await anna.closed() == (1003, "frames are text")
        await other.append(ANNA, DOCUMENT, {"n": 1})


async def test_an_oversize_message_ends_the_connection_with_a_reason(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, ANNA) as other:
        await anna.socket.send('["CLOSE","%s"]' % ("x" * FRAME_BYTES_MAX))
        code, reason = await anna.closed()
        assert code == 1009
        assert reason
        await other.append(ANNA, DOCUMENT, {"n": 1})


async def test_half_a_character_on_the_wire_ends_the_connection(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna, speaking(relay.url, ANNA) as other:
        await anna.socket.send(b'["CLOSE","\xff"]', text=True)
        assert (await anna.closed())[0] == 1007
        await other.append(ANNA, DOCUMENT, {"n": 1})


async def test_who_keeps_on_at_it_is_dropped_and_has_to_wait() -> None:
    now_ms = [1_700_000_000_000]
    limits = Limits(faults_max=5, penalty_ms=60_000)
    async with (
        Relay.serve(MemoryLog(), limits=limits, now_ms=lambda: now_ms[0]) as relay,
        speaking(relay.url, BEN) as honest,
    ):
        async with speaking(relay.url, ANNA) as anna:
            await anna.say(*["漢" * 50] * 6)
            code, reason = await anna.closed()
            assert code == 1008
            assert reason is not None
            assert reason.startswith("too many faults")
        async with speaking(relay.url) as anna:
            proof = Auth("a", ANNA.public_key, anna.answer_to_challenge(ANNA))
            await anna.say(proof)
            refusal = await anna.refusal("a")
            assert refusal.code is Code.RATE_LIMITED
            assert refusal.details == {"retry_ms": 60_000}
            now_ms[0] += 60_000
            await anna.say(proof)
            await anna.get(Ok, "a")
        await honest.append(BEN, DOCUMENT, {"n": 1})


async def test_a_flood_of_bad_signatures_ends_at_the_limit() -> None:
    log = MemoryLog()
    limits = Limits(faults_max=20, in_flight_max=16, close_ms_max=100)
    async with (
        Relay.serve(log, limits=limits) as relay,
        speaking(relay.url, BEN) as honest,
        speaking(relay.url, ANNA) as anna,
    ):
        bad = appending(ANNA, DOCUMENT, {"n": 1})._replace(data=b'{"n":2}')
        with suppress(ConnectionClosed):
            await anna.say(*[bad._replace(ref=f"{number}") for number in range(1000)])
        assert (await anna.closed())[0] == 1008
        await honest.append(BEN, DOCUMENT, {"n": 1})
        assert (await log.documents("", count_max=9))[0].elements == 1


async def test_ten_thousand_malformed_frames_cost_nothing(
    logged: pytest.LogCaptureFixture,
) -> None:
    fast = Limits(faults_max=10**9, frames_per_second=10**9, frames_burst=10**9)
    chance = random.Random(7)
    specimens = [
        client_frame(frame)
        for frame in (
            appending(ANNA, DOCUMENT, {"n": [1, {"a": "},{"}]}),
            Pull("p", DOCUMENT, None, 0, 10, False),
            PutSnapshot("put", DOCUMENT, None, None, "{}", True),
            tail(),
            Request("q", ("ab" * 32,), None, None, None),
            SetPresence(DOCUMENT, {"name": "Anna"}),
        )
    ]

    def tampered() -> str:
        text = bytearray(chance.choice(specimens))
        place = chance.randrange(len(text))
        text[place : place + chance.randint(0, 3)] = chance.choice(
            [b"[", b"]", b'"', b"\\", rb"\ud800", b"9" * 30, b"null", b"-", b"[" * 300]
        )
        return bytes(text).decode(errors="ignore")

    async with Relay.serve(MemoryLog(), limits=fast) as relay, speaking(relay.url, ANNA) as anna:

        async def attack(count: int) -> int:
            for _ in range(count // 50):
                await anna.say(*[tampered() for _ in range(50)])
                await anna.silence()
            gc.collect()
            return sys.getallocatedblocks()

        before = await attack(2_000)
        after = await attack(8_000)
        assert after - before < 4_000
        await anna.append(ANNA, "notes/b", {"n": 1})
    assert logged.records == []


async def test_a_connection_too_many_is_turned_away() -> None:
    limits = Limits(connections_max=2)
    async with (
        Relay.serve(MemoryLog(), limits=limits) as relay,
        speaking(relay.url, ANNA) as anna,
    ):
        async with speaking(relay.url, BEN), connect(relay.url, proxy=None) as third:
            with pytest.raises(ConnectionClosed):
                await third.recv()
            assert third.close_code == 1013
            assert third.close_reason == "too many connections"
        await eventually(lambda: len(relay.peers) == 1)
        async with speaking(relay.url, BEN):
            await anna.append(ANNA, DOCUMENT, {"n": 1})


async def test_there_are_only_so_many_subscriptions_and_presences() -> None:
    limits = Limits(subscriptions_max=3)
    async with (
        Relay.serve(MemoryLog(), limits=limits) as relay,
        speaking(relay.url, ANNA) as anna,
    ):
        for number in range(3):
            await anna.follow(f"notes/{number}", ref=f"{number}")
            await anna.say(SetPresence(f"notes/{number}", {}))
        await anna.say(Pull("more", DOCUMENT, None, 0, 10, True))
        assert (await anna.refusal("more")).code is Code.TOO_MANY
        await anna.say(SetPresence(DOCUMENT, {}))
        assert (await anna.refusal()).code is Code.TOO_MANY
        await anna.say(Close("1"))
        await anna.follow(DOCUMENT, ref="more")


# ── peers that do not play along ───────────────────────────────────────────────────────

LARGE = "x" * 60_000


async def write_large(speaker: Speaker, author: Any, numbers: Sequence[int]) -> None:
    for number in numbers:
        await speaker.append(author, DOCUMENT, {"n": number, "t": LARGE})


async def test_who_stops_reading_is_left_behind_and_has_no_hole_later(log: RelayLog) -> None:
    limits = Limits(lag_bytes_max=2**16)
    async with (
        Relay.serve(log, limits=limits, compression=False) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, CARL) as carl,
        speaking(relay.url, BEN, sock=narrow_socket(relay.port), max_queue=1) as slow,
    ):
        await carl.follow(DOCUMENT)
        await slow.follow(DOCUMENT)
        (peer,) = [each for each in relay.peers if each.key == BEN.public_key]
        most = 0
        for start in range(0, 150, 10):
            await write_large(anna, ANNA, range(start, start + 10))
            await carl.elements(10)
            most = max(most, peer.pending_bytes)
        # Nine megabytes were written; what waits for the slow one is a page of them.
        assert 2**16 < most < 2**16 + 2 * 2**20
        assert peer.is_open
        found = await slow.elements(150)
        assert [int(each.data[5:].split(b",")[0]) for each in found] == list(range(150))
        await write_large(anna, ANNA, [150])
        assert len(await slow.elements(1)) == 1


def stored(document: str, count: int) -> list[NewElement]:
    """Elements of about a MiB together, as a log takes them."""
    data = b'{"t":"%b"}' % (b"x" * (2**20 // count))
    return [NewElement(document, f"{document}-{n}", "a", "s", data) for n in range(count)]


async def test_who_opens_many_documents_is_sent_one_page_after_the_other() -> None:
    log, documents = MemoryLog(), [f"notes/{number}" for number in range(12)]
    for document in documents:
        await log.append(stored(document, 16), 1)
    async with (
        Relay.serve(log, limits=Limits(pending_bytes_max=3 * 2**20), compression=False) as relay,
        speaking(relay.url, BEN, sock=narrow_socket(relay.port), max_queue=1) as slow,
    ):
        (peer,) = relay.peers
        for document in documents:
            await slow.say(Pull(document, document, None, 0, 1000, True))
        # What the system takes of its own accord is not pending.
        await eventually(lambda: len(peer.subscriptions) == 12 and peer.pending_bytes > 2**16)
        for document in documents:
            await slow.get(EndOfStored, document)
            assert peer.pending_bytes < 2 * 2**20
        found = [each for each in slow.kept if isinstance(each, Elements)]
        assert sum(len(each.elements) for each in found) == 12 * 16


async def test_who_is_behind_is_told_of_presences_later() -> None:
    log = MemoryLog()
    for number in range(24):
        await log.append([stored(f"{number}", 2)[0]._replace(document=DOCUMENT)], 1)
    limits = Limits(lag_bytes_max=2**16, pending_bytes_max=2**21, presence_per_second=10_000)
    async with (
        Relay.serve(log, limits=limits, compression=False) as relay,
        speaking(relay.url, BEN, sock=narrow_socket(relay.port), max_queue=1) as slow,
        speaking(relay.url, ANNA) as anna,
    ):
        (peer,) = [each for each in relay.peers if each.key == BEN.public_key]
        await slow.say(Pull("live", DOCUMENT, None, 0, 1000, True))
        await eventually(lambda: peer.pending_bytes > limits.lag_bytes_max)
        for number in range(600):
            await anna.say(SetPresence(DOCUMENT, {"n": number, "x": "x" * 3900}))
        await anna.say(SetPresence(DOCUMENT, None))
        assert await anna.silence() == []
        # More than what it may have pending was said.
        assert peer.is_open
        await slow.elements(24)
        # That somebody has left is told in any case.
        while (await slow.get(Presence)).payload is not None:
            pass
        await anna.say(SetPresence(DOCUMENT, {"n": 0}))
        assert (await slow.get(Presence)).payload == {"n": 0}


async def test_who_follows_past_compacted_snapshots_that_covered_much_is_not_dropped() -> None:
    log, revision = MemoryLog(), None
    for number in range(12):
        counts = {f"{writer:0200x}": number + 1 for writer in range(2500)}
        put = NewSnapshot(DOCUMENT, revision, f"{number:064x}", "a", 0, counts, False, b"{}")
        await log.put_snapshot(put, 1)
        revision = put.id
    await log.compact([Removal(DOCUMENT, {f"{number:064x}" for number in range(11)}, 0)])
    async with (
        Relay.serve(log, limits=Limits(pending_bytes_max=2 * 2**20), compression=False) as relay,
        speaking(relay.url, BEN, sock=narrow_socket(relay.port), max_queue=1) as slow,
    ):
        await slow.say(tail())
        (peer,) = relay.peers
        await eventually(lambda: peer.pending_bytes > 0)
        shown, _ = await slow.events("feed")
    assert [seq for seq, _ in shown] == list(range(1, 13))


async def test_who_never_reads_again_is_dropped_and_holds_nobody_up() -> None:
    limits = Limits(lag_bytes_max=2**16, stall_ms_max=500, close_ms_max=100)
    async with (
        Relay.serve(MemoryLog(), limits=limits, compression=False) as relay,
        speaking(relay.url, ANNA) as anna,
        speaking(relay.url, CARL) as carl,
    ):
        slow = await connect(
            relay.url, sock=narrow_socket(relay.port), max_queue=1, proxy=None, close_timeout=0
        )
        speaker = Speaker(slow, read_hello(await slow.recv()), f"127.0.0.1:{relay.port}")
        await speaker.prove(BEN)
        await speaker.follow(DOCUMENT)
        await carl.follow(DOCUMENT)
        for start in range(0, 150, 10):
            await write_large(anna, ANNA, range(start, start + 10))
            await carl.elements(10)
        # It is gone for good, and so is what was kept for it.
        await eventually(lambda: len(relay.peers) == 2)
        await write_large(anna, ANNA, range(150, 160))
        await carl.elements(10)
        slow.transport.abort()
        await slow.wait_closed()


def read_hello(text: Any) -> Hello:
    hello = read_relay_frame(text)
    assert isinstance(hello, Hello)
    return hello


async def send_for_ever(client: ClientConnection, text: str) -> None:
    while True:
        await client.send(text)


async def test_who_writes_and_never_reads_the_answers_is_dropped() -> None:
    limits = Limits(pending_bytes_max=2**18, close_ms_max=100, frames_per_second=10**6)
    answer_bytes_max = 200
    async with Relay.serve(MemoryLog(), limits=limits, compression=False) as relay:
        async with connect(
            relay.url, sock=narrow_socket(relay.port), max_queue=1, proxy=None, close_timeout=0
        ) as deaf:
            await eventually(lambda: len(relay.peers) == 1)
            (peer,) = relay.peers
            writing = asyncio.create_task(send_for_ever(deaf, f'["CLOSE","{"x" * 64}"]'))
            while not writing.done():
                # One answer more than the limit is what there may be, whatever it is dropped for.
                assert peer.pending_bytes <= limits.pending_bytes_max + answer_bytes_max
                await asyncio.sleep(0)
            with pytest.raises(ConnectionClosed):
                await writing
        assert peer.dropped == Drop(1008, "too slow: too much of what was asked for is not read")
        await eventually(lambda: not relay.peers)


async def test_connections_that_break_off_anywhere_leave_nothing_behind(relay: Relay) -> None:
    handshake = (
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{relay.port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    openings = [
        b"",
        handshake[:20],
        handshake,
        handshake + b"\x81",
        handshake + b"\x81\xfe\xff",
        handshake + b"\x81\x8a1234abc",
        handshake + b"\xff" * 40,
    ]
    async with speaking(relay.url, ANNA) as anna:
        await anna.follow(DOCUMENT)
        for number, opening in enumerate(openings):
            for is_abrupt in (False, True):
                reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
                writer.write(opening)
                await writer.drain()
                if opening.startswith(handshake):
                    async with asyncio.timeout(PATIENCE_S):
                        await reader.read(1)
                if is_abrupt:
                    writer.transport.abort()
                else:
                    writer.close()
                    await writer.wait_closed()
            await anna.append(ANNA, DOCUMENT, {"n": number})
        assert len(await anna.elements(len(openings))) == len(openings)
        await eventually(lambda: len(relay.peers) == 1)


# ── when the disk fails ────────────────────────────────────────────────────────────────


async def test_a_full_disk_refuses_appends_and_nothing_else(
    logged: pytest.LogCaptureFixture,
) -> None:
    log = GatedLog()
    async with Relay.serve(log) as relay, speaking(relay.url, ANNA) as anna:
        await anna.append(ANNA, DOCUMENT, {"n": 1})
        log.is_full = True
        frames = [appending(ANNA, DOCUMENT, {"n": n}, ref=f"{n}") for n in range(2, 12)]
        await anna.say(*frames)
        for frame in frames:
            refusal = await anna.refusal(frame.ref)
            assert refusal.code is Code.STORAGE
            assert refusal.code.retryable
            assert "/secret/path" not in refusal.message
        await anna.follow(DOCUMENT)
        assert numbers(await anna.elements(1)) == [1]
        await anna.say(tail())
        assert len((await anna.events("feed"))[0]) == 1
        log.is_full = False
        await anna.say(*frames)
        for frame in frames:
            await anna.get(Ok, frame.ref)
        assert numbers(await anna.elements(10)) == list(range(2, 12))
    assert any("no space left" in record.getMessage() for record in logged.records)


class BlindLog(MemoryLog):
    """A log that cannot be read when a test says so."""

    is_blind = False

    def _look(self) -> None:
        if self.is_blind:
            raise LogError("/secret/path: input/output error")

    async def page(self, *arguments: Any, **options: Any) -> Any:
        self._look()
        return await super().page(*arguments, **options)

    async def tail(self, *arguments: Any) -> Any:
        self._look()
        return await super().tail(*arguments)

    async def find(self, *arguments: Any, **options: Any) -> Any:
        self._look()
        return await super().find(*arguments, **options)

    async def snapshot(self, *arguments: Any) -> Any:
        self._look()
        return await super().snapshot(*arguments)

    async def bootstrap(self, *arguments: Any, **options: Any) -> Any:
        self._look()
        return await super().bootstrap(*arguments, **options)

    async def feed(self, *arguments: Any, **options: Any) -> Any:
        self._look()
        return await super().feed(*arguments, **options)

    async def put_snapshot(self, *arguments: Any) -> Any:
        self._look()
        return await super().put_snapshot(*arguments)

    async def put_grant(self, *arguments: Any) -> Any:
        self._look()
        return await super().put_grant(*arguments)


async def test_what_cannot_be_read_is_said_and_works_again_later() -> None:
    log = BlindLog()
    roles = roles_of(
        '[[grant]]\nprefix = ""\ngrant = [ANNA]\nread = [ANNA]\nwrite = [ANNA]\nsnapshot = [ANNA]'
    )
    async with Relay.serve(log, roles=roles) as relay, speaking(relay.url, ANNA) as anna:
        ts = (await anna.append(ANNA, DOCUMENT, {"n": 1})).result["ts"]
        text = snapshot_text(ANNA, DOCUMENT, upto_ts=ts)
        requests: list[ClientFrame] = [
            Pull("r", DOCUMENT, None, 0, 10, False),
            Pull("r", DOCUMENT, None, 0, 10, True),
            PullTail("r", DOCUMENT, None, ts, 5),
            tail("r"),
            bootstrap("r"),
            Request("r", ("ab" * 32,), None, None, None),
            PutSnapshot("r", DOCUMENT, None, None, text.decode(), True),
            revoking(at_ms=1, roles=["read"])._replace(ref="r"),
        ]
        log.is_blind = True
        for frame in requests:
            await anna.say(frame)
            refusal = await anna.refusal("r")
            assert refusal.code is Code.STORAGE
            assert "/secret/path" not in refusal.message
        await anna.append(ANNA, DOCUMENT, {"n": 2})
        log.is_blind = False
        await anna.silence()
        await anna.follow(DOCUMENT)
        assert numbers(await anna.elements(2)) == [1, 2]
        assert isinstance(await anna.put(DOCUMENT, text, replaces=None), Ok)


# ── the end ────────────────────────────────────────────────────────────────────────────


async def test_what_was_taken_is_answered_before_the_relay_goes() -> None:
    log = GatedLog()
    limits = Limits(in_flight_max=4)
    async with AsyncExitStack() as stack:
        serving = AsyncExitStack()
        relay = await serving.enter_async_context(Relay.serve(log, limits=limits))
        url = relay.url
        anna = await stack.enter_async_context(speaking(relay.url, ANNA))
        ben = await stack.enter_async_context(speaking(relay.url, BEN))
        await ben.follow(DOCUMENT)
        log.gate.clear()
        await anna.say(*[appending(ANNA, DOCUMENT, {"n": n}, ref=f"{n}") for n in range(6)])
        await eventually(lambda: log.waiting > 0)
        ending = asyncio.create_task(serving.aclose())
        await eventually(lambda: relay.is_draining)
        await ben.say(appending(BEN, DOCUMENT, {"n": 9}))
        assert (await ben.refusal("append")).code is Code.UNAVAILABLE
        assert await ben.silence() == []
        log.gate.set()
        outcomes = [await anna.outcome(f"{n}") for n in range(4)]
        assert all(isinstance(each, Ok) for each in outcomes)
        assert await anna.closed() == (1012, "the relay is restarting")
        assert await ben.closed() == (1012, "the relay is restarting")
        await ending
        page = await log.page(DOCUMENT, 0, count_max=99, bytes_max=10**6)
        assert numbers(await ben_elements(ben)) == numbers(page.rows)
        with pytest.raises(OSError, match="Connect"):
            await connect(url, proxy=None)


async def ben_elements(ben: Speaker) -> list[Any]:
    """What was handed out before the end."""
    return [each for frame in ben.kept if isinstance(frame, Elements) for each in frame.elements]


async def test_a_peer_that_does_not_read_does_not_keep_the_relay_from_going() -> None:
    limits = Limits(lag_bytes_max=2**16, close_ms_max=100)
    serving = AsyncExitStack()
    relay = await serving.enter_async_context(
        Relay.serve(MemoryLog(), limits=limits, compression=False)
    )
    deaf = await connect(
        relay.url, sock=narrow_socket(relay.port), max_queue=1, proxy=None, close_timeout=0
    )
    speaker = Speaker(deaf, read_hello(await deaf.recv()), f"127.0.0.1:{relay.port}")
    await speaker.prove(BEN)
    await speaker.follow(DOCUMENT)
    async with speaking(relay.url, ANNA) as anna:
        await write_large(anna, ANNA, range(150))
    async with asyncio.timeout(PATIENCE_S):
        await serving.aclose()
    deaf.transport.abort()
    await deaf.wait_closed()


async def test_everything_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    async with (
        SqliteLog.open(path) as log,
        Relay.serve(log) as relay,
        speaking(relay.url, ANNA) as anna,
    ):
        frames = [appending(ANNA, DOCUMENT, {"n": n}, ref=f"{n}") for n in range(50)]
        await anna.say(*frames)
        places = [await anna.get(Ok, frame.ref) for frame in frames]
        name = anna.hello.relay
    async with (
        SqliteLog.open(path) as log,
        Relay.serve(log) as relay,
        speaking(relay.url, ANNA) as anna,
    ):
        assert anna.hello.relay == name
        await anna.follow(DOCUMENT)
        found = await anna.elements(50)
        assert [(each.ts, each.seq) for each in found] == [
            (each.result["ts"], each.result["seq"]) for each in places
        ]
        await anna.say(frames[7])
        assert await anna.get(Ok, "7") == places[7]
        later = await anna.append(ANNA, DOCUMENT, {"n": 50})
        assert later.result["ts"] > places[-1].result["ts"]
        assert later.result["seq"] == 51


async def test_a_clock_that_is_days_ahead_for_a_moment_stamps_nothing_that_readers_refuse(
    log: RelayLog,
) -> None:
    now_ms = [1_700_000_000_000]
    async with (
        Relay.serve(log, now_ms=lambda: now_ms[0]) as relay,
        speaking(relay.url, ANNA) as anna,
    ):
        for n, jump in enumerate([0, 3 * 24 * 3600 * 1000, -3 * 24 * 3600 * 1000]):
            now_ms[0] += jump
            place = (await anna.append(ANNA, DOCUMENT, {"n": n})).result
            assert place["ts"] < 1_700_000_000_000 + TS_AHEAD_MS_MAX


async def test_ts_increases_whatever_the_clock_does(log: RelayLog) -> None:
    now_ms = [1_700_000_000_000]
    async with (
        Relay.serve(log, now_ms=lambda: now_ms[0]) as relay,
        speaking(relay.url, ANNA) as anna,
    ):
        places = []
        for number, jump in enumerate([0, -86_400_000, 0, 3_600_000, -1]):
            now_ms[0] += jump
            places.append((await anna.append(ANNA, DOCUMENT, {"n": number})).result["ts"])
        assert places == sorted(set(places))


async def test_who_reads_what_nobody_wrote_leaves_nothing_behind() -> None:
    log = MemoryLog()
    async with Relay.serve(log) as relay, speaking(relay.url, ANNA) as anna:
        await anna.append(ANNA, "notes/a", {"n": 1})
        for number, document in enumerate(["notes/a", "notes/b", "anything/else"]):
            await anna.follow(document, ref=f"live {number}")
    assert [mark.key for mark in await log.readers("notes/a")] == [ANNA.public_key]
    assert await log.readers("notes/b") == await log.readers("anything/else") == []
