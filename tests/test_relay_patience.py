"""Those who take their time, say nothing, or ask without end: what a relay's patience is worth.

- Somebody honest is served all the while, append by append; what the others do goes on with each
  of these, so that it is neither too fast nor too slow, whatever the machine is busy with.
- A drip is a byte with every append: no pause is long enough for a limit on pauses to end it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from websockets.exceptions import ConnectionClosed

from tests.raw_websocket import TEXT, framed, raw_websocket
from tests.relay_clients import ANNA, BEN, CARL, PATIENCE_S, Speaker, eventually, speaking
from walstore.relay import MemoryLog, Relay, session
from walstore.relay.config import Settings
from walstore.relay.connection import PLAIN_CONNECTIONS_MAX
from walstore.relay.limits import Limits
from walstore.signed.auth import verify_auth
from walstore.wire.frames import Auth, Challenge, Close, Code, Ok, Pull, Refusal, client_frame
from walstore.wire.limits import CHALLENGE_MS_MAX

DOCUMENT = "notes/a"
SOON = replace(Settings(), handshake_ms_max=500, ping_interval_ms=200, drain_ms_max=200)

# How many documents somebody asks to follow, and goes on asking for when they are refused.
ASKED = int(os.environ.get("WALSTORE_ASKED", "30000"))

DRIPPERS = 20
# So many bytes of each are something to be patient with.
DRIPS_MIN = 20


class Stranger:
    """A connection, and whether the relay has ended it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._heard = asyncio.create_task(reader.read())

    @property
    def is_gone(self) -> bool:
        """Whether nothing more will come."""
        return self._heard.done()

    async def leave(self) -> None:
        """End it from here."""
        self.writer.transport.abort()
        await asyncio.gather(self._heard, return_exceptions=True)


@asynccontextmanager
async def strangers(port: int, count: int, start: bytes) -> AsyncIterator[list[Stranger]]:
    """So many, who have all begun in the same way."""
    there: list[Stranger] = []
    try:
        for _ in range(count):
            there.append(Stranger(*await asyncio.open_connection("127.0.0.1", port)))
            there[-1].writer.write(start)
        yield there
    finally:
        for each in there:
            await each.leave()


async def serve_until_gone(honest: Speaker, there: list[Stranger], drip: bytes) -> int:
    """Append again and again, until the relay has ended all the others; how often."""
    times = 0
    async with asyncio.timeout(PATIENCE_S):
        while left := [each for each in there if not each.is_gone]:
            await honest.append(BEN, DOCUMENT, {"n": times})
            times += 1
            for each in left:
                each.writer.write(drip)
    return times


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nX: ",
        b"GET /status HTTP/1.1\r\nHost: here\r\nX: ",
        b"PUT /admin/retention HTTP/1.1\r\nHost: here\r\nContent-Length: 60000\r\n\r\n",
        b"PUT /admin HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nea60\r\n",
    ],
    ids=["from the first byte", "a handshake", "a request", "a body", "a body in chunks"],
)
async def test_who_says_a_byte_at_a_time_is_gone_in_time_and_others_are_served(
    start: bytes,
) -> None:
    async with (
        Relay.serve(MemoryLog(), settings=SOON) as relay,
        speaking(relay.url, BEN) as honest,
        strangers(relay.port, DRIPPERS, start) as there,
    ):
        assert await serve_until_gone(honest, there, b"a") > DRIPS_MIN
        assert len(relay.peers) == 1


async def test_who_says_nothing_is_gone_in_time_and_others_are_served() -> None:
    async with (
        Relay.serve(MemoryLog(), settings=SOON) as relay,
        speaking(relay.url, BEN) as honest,
        strangers(relay.port, DRIPPERS, b"") as there,
    ):
        assert await serve_until_gone(honest, there, b"") > DRIPS_MIN


async def test_connections_that_say_nothing_are_so_many_at_most_and_others_are_served() -> None:
    limits = Limits(connections_max=2)
    most = limits.connections_max + PLAIN_CONNECTIONS_MAX
    async with Relay.serve(MemoryLog(), limits=limits) as relay:
        assert relay._server is not None
        async with (
            speaking(relay.url, BEN) as honest,
            strangers(relay.port, most + 20, b"") as there,
        ):
            # One of those that are let in is the honest one.
            await eventually(lambda: sum(each.is_gone for each in there) >= 21)
            for number in range(DRIPS_MIN):
                await honest.append(BEN, DOCUMENT, {"n": number})
            assert sum(each.is_gone for each in there) == 21
            assert len(relay._server.handlers) == most
        async with speaking(relay.url, CARL) as newcomer:
            await newcomer.append(CARL, DOCUMENT, {"n": 1})


async def test_who_talks_and_never_answers_a_ping_is_gone_and_others_are_served() -> None:
    times = 0
    async with (
        Relay.serve(MemoryLog(), settings=SOON) as relay,
        speaking(relay.url, BEN) as honest,
        raw_websocket(relay.port) as talker,
    ):
        async with asyncio.timeout(PATIENCE_S):
            while len(relay.peers) > 1:
                with suppress(ConnectionError):
                    await talker.say(framed(TEXT, b'["CLOSE","x"]'))
                await honest.append(BEN, DOCUMENT, {"n": times})
                times += 1
        await honest.append(BEN, DOCUMENT, {"n": times})
    assert times > DRIPS_MIN


async def test_who_never_stops_asking_to_follow_more_documents_follows_a_thousand() -> None:
    # So that no question has to wait for its turn.
    limits = Limits(frames_per_second=10**7, frames_burst=10**7)
    asked = [
        unmasked(client_frame(Pull(f"{n}", f"notes/{n}", None, 0, 10, is_live=True)))
        for n in range(ASKED)
    ]
    async with (
        Relay.serve(MemoryLog(), limits=limits, compression=False) as relay,
        speaking(relay.url, BEN) as honest,
        speaking(relay.url, ANNA) as greedy,
    ):
        (peer,) = [each for each in relay.peers if each.key == ANNA.public_key]
        counting = asyncio.create_task(count_refusals(greedy))
        for start in range(0, ASKED, 500):
            # Frames that are made already, past the library that would make them one by one.
            greedy.socket.transport.write(b"".join(asked[start : start + 500]))
            await honest.append(BEN, DOCUMENT, {"n": start})
            assert len(peer.subscriptions) <= limits.subscriptions_max
            assert len(relay._following._rooms) <= limits.subscriptions_max
        await greedy.say(Close("the last word"))
        refused = await counting
        assert refused == ASKED - limits.subscriptions_max
        print(f"{ASKED} documents asked for, {refused} refused")
        for held in (peer.subscriptions, peer.session._subscriptions, relay._following._rooms):
            assert len(held) == limits.subscriptions_max
        assert not peer.tasks
        await honest.append(BEN, DOCUMENT, {"n": ASKED})


def unmasked(text: bytes) -> bytes:
    """A frame of a client whose mask changes nothing: it is quickly made."""
    return bytes([0x81, 0x80 | len(text)]) + bytes(4) + text


async def count_refusals(greedy: Speaker) -> int:
    """Read up to the last word; how much was refused for being too many."""
    refused = 0
    async with asyncio.timeout(PATIENCE_S + ASKED / 1_000):
        while "the last word" not in (heard := str(await greedy.socket.recv())):
            refused += f'"{Code.TOO_MANY.value}"' in heard
    return refused


# ── proofs ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the proofs that were looked into, one by one."""
    keys: list[str] = []

    def counted(*, key: str, **proof: str) -> bool:
        keys.append(key)
        return verify_auth(key=key, **proof)

    monkeypatch.setattr(session, "verify_auth", counted)
    return keys


async def flood(relay: Relay, honest: Speaker, proof: Callable[[Speaker], Auth]) -> int:
    """Prove as much as a relay lets one, on one connection, while somebody else is served."""
    times = 0
    async with speaking(relay.url) as flooding:
        hearing = asyncio.create_task(flooding.closed())
        while not hearing.done():
            with suppress(ConnectionClosed):
                await flooding.say(*[proof(flooding)] * 10)
            await honest.append(BEN, DOCUMENT, {"n": times})
            times += 10
        assert hearing.result()[0] == 1008
    return times


async def test_proofs_of_another_connection_are_looked_into_so_often_and_no_more(
    verified: list[str],
) -> None:
    limits = Limits(faults_max=5, close_ms_max=100)
    async with (
        Relay.serve(MemoryLog(), limits=limits) as relay,
        speaking(relay.url, BEN) as honest,
        speaking(relay.url) as overheard,
    ):
        replayed = Auth("a", ANNA.public_key, overheard.answer_to_challenge(ANNA))
        connections = 20
        verified.clear()
        for _ in range(connections):
            assert await flood(relay, honest, lambda _: replayed) >= limits.faults_max
        assert verified == [ANNA.public_key] * (limits.faults_max + 1) * connections
        # It is good where it was made, and whose key it names has not to wait.
        await overheard.say(replayed)
        await overheard.get(Ok, "a")


async def test_challenges_are_not_made_as_fast_as_somebody_lets_them_expire(
    verified: list[str],
) -> None:
    now_ms = [1_700_000_000_000]
    limits = Limits(faults_max=5, close_ms_max=100)
    async with (
        Relay.serve(MemoryLog(), limits=limits, now_ms=lambda: now_ms[0]) as relay,
        speaking(relay.url, BEN) as honest,
        speaking(relay.url) as late,
    ):
        proof = Auth("a", ANNA.public_key, late.answer_to_challenge(ANNA))
        verified.clear()
        now_ms[0] += CHALLENGE_MS_MAX + 1
        for _ in range(limits.faults_max + 2):
            await late.say(proof)
            await honest.append(BEN, DOCUMENT, {"n": 1})
        assert (await late.closed())[0] == 1008
        # The first is late, and gets another challenge; the others are no answer to that.
        assert [type(each) for each in late.kept[:2]] == [Challenge, Refusal]
        assert not any(isinstance(each, Challenge) for each in late.kept[2:])
        assert len(verified) == limits.faults_max + 1
