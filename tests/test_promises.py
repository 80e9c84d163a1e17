"""Promises that need many trials, or everything at once: answers that get lost, clocks that are
wrong, relays that are read by their operator, members who were removed, batches made to hurt.

Each size is small here and large in `make torture`; `docs/reliability.md` has the table.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import tracemalloc
from array import array
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.archive_process import ask, until
from tests.relay_process import forking
from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    KEY,
    OfflineError,
    RiggedLog,
    opened,
    put_in,
    set_op,
    write_starfish,
)
from walstore.canon import canonical_bytes
from walstore.document import Body, Event, Rejection
from walstore.errors import PeerError, TransportError
from walstore.net import MemoryTransport, WebSocketTransport
from walstore.net.backoff import Backoff
from walstore.net.websocket import Follow
from walstore.relay import MemoryLog, Relay
from walstore.relay.log import Page, Row
from walstore.sealed import (
    ContentKeys,
    NativeEncryptor,
    SealContext,
    StarfishEncryptor,
    create_keyring,
    open_keyring,
    rotate_keyring,
)
from walstore.signed import Identity, sign_append, verify_bytes
from walstore.signed.card import Card
from walstore.store.store import WalStore
from walstore.wire.limits import BATCH_OPS_MAX, ELEMENT_BYTES_MAX

SEED = int(os.environ.get("WALSTORE_PROMISES_SEED", "0")) or time.time_ns() % 10**6
APPENDS = int(os.environ.get("WALSTORE_LOST_ANSWERS", "30000"))
TRIALS = int(os.environ.get("WALSTORE_REVOCATIONS", "400"))
SEALS = int(os.environ.get("WALSTORE_SEALS", "200000"))
STORM = int(os.environ.get("WALSTORE_STORM", "200"))

# All of them are in sync again within this time.
STORM_S_MAX = 30.0

DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000


# ── answers that get lost ──────────────────────────────────────────────────────────────


class LossyTransport(MemoryTransport):
    """Loses one request in twenty on its way there, and one answer in ten on its way back."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.lost = 0

    async def append(self, document_key: str, body: Body) -> int:
        drawn = self._chance.random()
        if drawn < 0.05:
            raise OfflineError
        ts = await super().append(document_key, body)
        if drawn < 0.15:
            self.lost += 1
            raise OfflineError
        return ts


async def test_whatever_answers_get_lost_every_append_has_its_effect_once() -> None:
    print(f"WALSTORE_PROMISES_SEED={SEED}")
    log = LossyTransport(random.Random(SEED))
    writer = await opened(log)
    for number in range(APPENDS):
        writer.push("list", number)
        while writer.unsent or writer.has_unsealed:
            try:
                await writer.commit()
            except TransportError:
                continue
    assert log.lost >= APPENDS // 20
    print(f"{log.lost} answers to {APPENDS} appends were lost")
    elements = log._logs[KEY]
    assert len({element.signature for element in elements}) == len(elements) == APPENDS
    reader = await opened(log, CAROL)
    assert reader.values("list") == list(range(APPENDS))
    assert reader.detected_gaps() == []


# ── clocks that are wrong ──────────────────────────────────────────────────────────────

NOW_MS = 1_700_000_000_000
CLOCKS: dict[str, Callable[[int], int]] = {
    "an hour behind": lambda step: NOW_MS - HOUR_MS + step,
    "an hour ahead": lambda step: NOW_MS + HOUR_MS + step,
    "stopped": lambda step: NOW_MS,
    "a day back, half-way": lambda step: NOW_MS + step - (DAY_MS if step > 20 else 0),
    "to and fro": lambda step: NOW_MS + (HOUR_MS if step % 2 else -HOUR_MS),
}


@pytest.mark.parametrize("of_relay", CLOCKS)
@pytest.mark.parametrize("of_client", CLOCKS)
async def test_no_clock_keeps_an_honest_writer_out(of_relay: str, of_client: str) -> None:
    step = 0

    def now(name: str) -> Callable[[], int]:
        return lambda: CLOCKS[name](step)

    events: list[Event] = []
    async with (
        Relay.serve(MemoryLog(), now_ms=now(of_relay)) as relay,
        WebSocketTransport(relay.url, identity=ALICE) as first,
        WebSocketTransport(relay.url, identity=BOB) as second,
    ):
        options = {"now_ms": now(of_client), "on_event": events.append}
        alice = await opened(first, ALICE, **options)
        bob = await opened(second, BOB, **options)
        stamps: list[int] = []
        for step in range(40):
            writer = (alice, bob)[step % 2]
            writer.push("list", step)
            ts = await writer.commit()
            assert ts is not None
            stamps.append(ts)
        await alice.pull()
        await bob.pull()
        assert stamps == sorted(set(stamps))
        assert sorted(alice.values("list")) == list(range(40))
        assert alice.values("list") == bob.values("list")
    assert events == []


# ── what a relay gets to see ───────────────────────────────────────────────────────────

SECRETS = {"text": "the quick brown fox", "field": "jumps over", "name": "the lazy dog"}


async def test_a_relay_keeps_nothing_that_its_operator_could_read(tmp_path: Path) -> None:
    """Everything that its process writes, logs and tells is looked through, for what was written
    and for every key.
    """
    alice_seed, invited_seed = os.urandom(32), os.urandom(32)
    alice, invited = Identity.from_seed(alice_seed), Identity.from_seed(invited_seed)
    with forking(tmp_path) as forker:
        relay = await forker.start("--database", "relay.db", "--log-level", "debug")
        async with WalStore.open(
            "secret/doc",
            identity=alice,
            relay=relay.url,
            owner=alice.public_key,
            is_sealed=True,
        ) as store:
            await store.sharing.invite(Card.of(invited).line, ["read"])
            store.set_text("text", SECRETS["text"])
            store["field"] = {SECRETS["name"]: SECRETS["field"]}
            await store.commit()
            await store.snapshot()
            await store.sharing.revoke(invited.public_key)
            assert store._sharing is not None
            keys = store._sharing.keys
            assert keys is not None
            assert len(keys.key_ids) == 2
            content_keys = [keys.key(epoch) for epoch in keys.key_ids]
            told = [
                await asyncio.to_thread(ask, relay.url, "GET", place)
                for place in ("/status", "/metrics")
            ]
        os.kill(relay.number, signal.SIGTERM)

        async def has_stopped() -> bool:
            return "info    stopped" in forker.errors()

        await until(has_stopped)
        forker.kill(relay.number)
    logged = (tmp_path / "errors.txt").read_bytes()
    stored = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("relay.db*")))
    assert b"secret/doc" in stored, "what is no secret is not found either: nothing was looked at"
    written = logged + stored + repr(told).encode()
    needles = [word.encode() for text in SECRETS.values() for word in text.split()]
    for key in (alice_seed, invited_seed, *content_keys):
        needles += [key, key.hex().encode(), b64encode(key), urlsafe_b64encode(key)]
    # Short words are found in any cipher text, by chance.
    for needle in filter(lambda each: len(each) > 4, needles):
        assert needle not in written, needle


# ── members who were removed ───────────────────────────────────────────────────────────


def test_who_was_removed_opens_nothing_that_was_sealed_later() -> None:
    chance = random.Random(SEED)
    seals = 0
    for trial in range(TRIALS):
        people = [Identity.from_seed(chance.randbytes(32)) for _ in range(chance.randint(2, 5))]
        owner, gone = people[0], people[-1]

        def keys_of(keyring: object, who: Identity, owner: Identity = owner) -> ContentKeys:
            return open_keyring(
                keyring,
                recipient=who,
                trusted_adders={owner.public_key},
                verify=verify_bytes,
                scope=KEY,
                epoch_min=0,
            )

        made: dict[str, Any] = {
            "scope": KEY,
            "adder": owner,
            "now_s": trial,
            "randomness": chance.randbytes,
        }
        first = create_keyring([who.kem_public_key for who in people], **made)
        known = keys_of(first, gone)
        left = [who.kem_public_key for who in people[:-1]]
        second = rotate_keyring(first, keys_of(first, owner), left, **made)
        with pytest.raises(PeerError):
            keys_of(second, gone)
        sealer = NativeEncryptor(keys_of(second, owner), randomness=chance.randbytes)
        eavesdropper = NativeEncryptor(known, randomness=chance.randbytes)
        for count in range(1, 4):
            context = SealContext(KEY, owner.public_key, count)
            later = sealer.seal({"n": count}, context)
            for claimed in (later, {**later, "_epoch": 1}):
                seals += 1
                with pytest.raises(PeerError):
                    eavesdropper.open(claimed, context)
    assert seals == 6 * TRIALS
    print(f"{seals} seals stayed shut for who was removed")


@pytest.mark.parametrize(
    ("kind", "member", "seals"),
    [(NativeEncryptor, "_sealed", SEALS), (StarfishEncryptor, "_encrypted", SEALS // 4)],
)
def test_no_nonce_is_used_twice(
    kind: type[NativeEncryptor | StarfishEncryptor], member: str, seals: int
) -> None:
    sealer = kind(ContentKeys(1, {1: bytes(32)}), randomness=os.urandom)
    context = SealContext(KEY, ALICE.public_key, 1)
    # A text begins with its nonce. Eight bytes of each are enough, and fit the memory ten million
    # times.
    starts = array("Q")
    for _ in range(seals):
        starts.frombytes(b64decode(str(sealer.seal({}, context)[member])[:12])[:8])
    assert len(starts) == seals
    print(f"{len(starts)} seals by {kind.__name__}")
    assert all(left != right for left, right in pairwise(sorted(starts)))


# ── many who come back at once ─────────────────────────────────────────────────────────


# What is there before the storm: so many elements in each of these logs.
STORM_LOGS, STORM_ELEMENTS = 5, 60


class ReadLog(MemoryLog):
    """A relay's log, and how many elements were read of it to be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    async def page(self, *arguments: Any, **options: Any) -> Page:
        page = await super().page(*arguments, **options)
        self.rows += len(page.rows)
        return page

    async def tail(self, *arguments: Any, **options: Any) -> list[Row]:
        rows = await super().tail(*arguments, **options)
        self.rows += len(rows)
        return rows


class NotedBackoff(Backoff):
    """The pauses of one client, and what they were."""

    noted_ms: list[int]

    def pause_ms(self, failures: int, chance: float) -> int:
        pause_ms = super().pause_ms(failures, chance)
        self.noted_ms.append(pause_ms)
        return pause_ms


class Follower:
    """Somebody who follows a document, by whatever the transport makes of it."""

    def __init__(self, relay: Relay, number: int) -> None:
        self.identity = Identity.from_seed(number.to_bytes(32))
        self.document = f"storm/{number % STORM_LOGS}"
        backoff = NotedBackoff()
        backoff.noted_ms = self.pauses_ms = list[int]()
        self.transport = WebSocketTransport(
            relay.url, identity=self.identity, request_timeout_ms=60_000, backoff=backoff
        )
        self.seen: list[int] = []

    async def append(self, number: int) -> None:
        data = {"n": number}
        proof = sign_append(self.document, data, self.identity)
        await self.transport.append(self.document, Body(canonical_bytes(data), *proof))

    async def read(self, live: Follow, count: int) -> None:
        """Read until so many elements have come."""
        while len(self.seen) < count:
            await live.wait()
            while page := await self.transport.pull(
                self.document, self.seen[-1] if self.seen else 0
            ):
                self.seen += [each.ts for each in page]


async def test_many_clients_who_lose_their_relay_are_all_back_soon() -> None:
    log = ReadLog()
    async with Relay.serve(log) as relay, AsyncExitStack() as stack:
        followers = [Follower(relay, number) for number in range(STORM)]
        for each in followers:
            await stack.enter_async_context(each.transport)
        for each in followers[:STORM_LOGS]:
            await asyncio.gather(*map(each.append, range(STORM_ELEMENTS)))
        live = [
            await stack.enter_async_context(each.transport.follow(each.document, 0))
            for each in followers
        ]
        whole = zip(followers, live, strict=True)
        await asyncio.gather(*(each.read(its, STORM_ELEMENTS) for each, its in whole))
        assert log.rows == STORM * STORM_ELEMENTS
        for each in followers:
            each.pauses_ms.clear()
        rows, began = log.rows, time.monotonic()
        for peer in list(relay.peers):
            peer._socket.transport.abort()
        # One of each log has written something by the time that the others are back.
        writing = [
            asyncio.create_task(each.append(STORM_ELEMENTS)) for each in followers[:STORM_LOGS]
        ]
        new = zip(followers, live, strict=True)
        await asyncio.gather(*(each.read(its, STORM_ELEMENTS + 1) for each, its in new))
        took_s = time.monotonic() - began
        await asyncio.gather(*writing)
        delivered = sum(peer.delivered for peer in relay.peers)
    # Of the log it is read what is new to each, and nothing more; who was back before it was
    # written is told, and reads nothing.
    assert log.rows - rows <= STORM
    assert log.rows - rows + delivered >= STORM
    for each in followers:
        assert len(set(each.seen)) == len(each.seen) == STORM_ELEMENTS + 1
    # Nobody comes at once, and nobody with the others.
    first_ms = sorted(each.pauses_ms[0] for each in followers)
    # That of a connection that had not lasted for long: half of it is chance.
    most_ms = Backoff().pause_ms_min
    assert most_ms / 2 <= first_ms[0] <= first_ms[-1] <= most_ms
    assert first_ms[-1] - first_ms[0] > most_ms / 4
    assert len(set(first_ms)) > min(STORM, most_ms / 2) / 2
    assert took_s < STORM_S_MAX
    print(f"{STORM} clients were in sync again after {took_s:.1f} s")
    print(f"{log.rows - rows} elements were read for them, {delivered} were handed on")


# ── batches made to hurt ───────────────────────────────────────────────────────────────


def heavy() -> dict[str, dict[str, Any]]:
    """Elements that are signed as they should be, and too much of something."""
    many = [set_op(BOB, number, None) for number in range(1, BATCH_OPS_MAX + 2)]
    deep: Any = 1
    for _ in range(62):
        deep = [deep]
    return {
        "too many ops": write_starfish(BOB, many),
        "too many bytes": write_starfish(BOB, [set_op(BOB, 1, "x" * ELEMENT_BYTES_MAX)]),
        "too deep": write_starfish(BOB, [set_op(BOB, 1, deep)]),
        "too far ahead": write_starfish(BOB, [set_op(BOB, 2**33, 1)]),
    }


@pytest.mark.parametrize("name", ["too many ops", "too many bytes", "too deep", "too far ahead"])
async def test_what_is_too_much_is_refused_whole_and_holds_nobody_up(name: str) -> None:
    log, events = RiggedLog(), list[Event]()
    put_in(log, heavy()[name])
    reader = await opened(log, CAROL, on_author_error="skip", on_event=events.append)
    assert [type(event) for event in events] == [Rejection]
    assert reader.materialize() == {}
    reader.set_field("title", "fine")
    await reader.commit()
    honest = await opened(log, ALICE, on_author_error="skip")
    assert honest.materialize() == {"title": "fine"}


async def test_reading_the_heaviest_element_takes_little_more_than_it_is_large() -> None:
    ops = [set_op(BOB, n, "y" * 40, f"r{n}") for n in range(1, BATCH_OPS_MAX + 1)]
    log = RiggedLog()
    put_in(log, write_starfish(BOB, ops))
    size = len(canonical_bytes(log.elements[0]["data"]))
    assert size > ELEMENT_BYTES_MAX // 2
    tracemalloc.start()
    try:
        reader = await opened(log, CAROL)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(reader.materialize()) == BATCH_OPS_MAX
    # The log keeps its elements as text beside what they fold to; parsed JSON is several times it.
    assert peak < 16 * ELEMENT_BYTES_MAX
