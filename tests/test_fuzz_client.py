"""A client whose relay answers with nonsense by the thousand.

- What a relay could say to what was asked is made bad by the grammar of the protocol, and byte by
  byte; the greeting too.
- Nothing is raised but what is documented, no frame takes longer than it may, the memory stays what
  it was, whatever was asked comes to an end, and an honest relay is understood as before.

`WALSTORE_FUZZ_FRAMES` says how many a relay hears, and a third as many are said to a client; the
seed is printed, `WALSTORE_FUZZ_SEED` sets it.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from hashlib import sha256
from random import Random
from typing import Any

from tests.fuzzing.mutations import mutated
from tests.fuzzing.run import READ_MS_MAX
from walstore.canon import canonical_bytes
from walstore.document.ports import Body
from walstore.errors import TransportError
from walstore.net.client import RelayClient
from walstore.net.dialling import is_final
from walstore.net.faults import NotAdmittedError, RelayFaultError
from walstore.net.feed import Wanted
from walstore.net.feeds import Feed
from walstore.net.pending import Pending
from walstore.net.status import State
from walstore.signed import Identity, sign_append
from walstore.signed.author import Domain, signing_input
from walstore.signed.chain import link
from walstore.wire.frames import (
    Append,
    Auth,
    Challenge,
    ClientFrame,
    Close,
    Closed,
    Code,
    Delivered,
    Elements,
    EndOfStored,
    Events,
    EventStatus,
    FeedStatus,
    FollowChanges,
    GetRecord,
    GetSnapshot,
    Hello,
    KeepRecord,
    Kept,
    Ok,
    Presence,
    PublishGrant,
    Pull,
    PullTail,
    PutSnapshot,
    Record,
    Refusal,
    RelayFrame,
    Request,
    SetPresence,
    Shown,
    SnapshotPiece,
    read_client_frame,
    relay_frame,
)

FRAMES = int(os.environ.get("WALSTORE_FUZZ_FRAMES", "30000")) // 3
SEED = int(os.environ.get("WALSTORE_FUZZ_SEED", "0")) or time.time_ns() % 10**6

# What is said between two looks at what the client does, and how much time passes meanwhile.
BATCH = 8
BATCH_MS = 700
TIMEOUT_MS = 10_000

# How often a relay greets anew, and how often it says something good.
GREETINGS, GOOD = 0.1, 0.3

# What may be left of thousands of frames: caches that are bounded.
BLOCKS_BESIDE, BLOCKS_PER_FRAME_MAX = 4_000, 0.01

ALICE = Identity.from_seed(b"\x01" * 32)
RELAY = "relay.example:443"
DOCUMENTS = ("fuzz/followed", "fuzz/other")
LOG = "a" * 32
TEXT = '{"state":{}}'
REVISION = sha256(TEXT.encode()).hexdigest()
DATA = {"n": [1, {"a": "},{"}]}
HELLO = Hello((1,), "e" * 32, "c" * 64, {"frame_bytes_max": 2**20}, "a relay", ("records",))


def delivered(ts: int) -> Delivered:
    proof = sign_append(DOCUMENTS[0], DATA, ALICE)
    return Delivered(ts, ts, proof.author_pubkey, proof.author_signature, canonical_bytes(DATA))


def shown(seq: int) -> Shown:
    one = delivered(seq)
    signed = signing_input(Domain.APPEND, DOCUMENTS[0], DATA)
    event = {
        "kind": "element",
        "id": link(signed, author_pubkey=one.author, author_signature=one.signature),
        "document": DOCUMENTS[0],
        "author": one.author,
        "signature": one.signature,
        "ts": seq,
        "accepted_ms": 1,
    }
    return Shown(seq, event, one.data)


# The data is the same everywhere; so is what it is signed with.
ELEMENT, SHOWN = delivered(1), shown(1)


def end(ts: int) -> dict[str, Any]:
    return {"ts": ts, "log": LOG, "floor": 0, "head": ts, "more": False}


def answers(frame: ClientFrame) -> list[RelayFrame]:
    """What an honest relay says to what it is asked."""
    match frame:
        case Auth():
            return [Ok(frame.ref, {})]
        case Append():
            return [Ok(frame.ref, {"ts": 1, "seq": 1, "log": LOG})]
        case Pull():
            some = [ELEMENT._replace(ts=frame.after + n, seq=frame.after + n) for n in (1, 2)]
            return [Elements(frame.ref, some), EndOfStored(frame.ref, end(frame.after + 2))]
        case PullTail():
            some = [ELEMENT._replace(ts=frame.upto, seq=frame.upto)]
            return [Elements(frame.ref, some), EndOfStored(frame.ref, end(frame.upto))]
        case GetSnapshot():
            return [SnapshotPiece(frame.ref, REVISION, TEXT, True, LOG)]
        case PutSnapshot() | KeepRecord():
            revision = sha256(frame.text.encode()).hexdigest()
            return [Ok(frame.ref, {"revision": revision, "seq": 1, "log": LOG})]
        case GetRecord():
            return [Record(frame.ref, REVISION, TEXT, LOG)]
        case FollowChanges():
            seq = frame.since + 1
            status = {"mode": frame.mode, "snapshot_seq": seq, "min_seq": 1}
            return [
                FeedStatus(frame.ref, status),
                Events(frame.ref, [SHOWN._replace(seq=seq)]),
                EndOfStored(frame.ref, {"seq": seq, "more": False}),
            ]
        case Request():
            return [Events(frame.ref, [SHOWN]), EndOfStored(frame.ref, {"seq": 1, "more": False})]
        case PublishGrant():
            return [Ok(frame.ref, {})]
        case SetPresence() | Close():
            return []


def asides(ref: str) -> list[RelayFrame]:
    """What a relay may say at any time, or instead of an answer."""
    compacted = {**SHOWN.event, "seq": 3, "status": "payload_compacted"}
    return [
        Kept(ref, "roster", REVISION),
        EventStatus(ref, compacted),
        Closed(ref, "too slow"),
        Presence(DOCUMENTS[0], "p", ALICE.public_key, {"name": "Alice"}),
        Presence(DOCUMENTS[0], "p", None, None),
        Challenge("d" * 64),
        Refusal(None, Code.RATE_LIMITED, "slowly", {"retry_ms": 10}),
        *(Refusal(ref, code, "no", {"floor": 3, "log": LOG, "retry_ms": 5}) for code in Code),
    ]


class Victim:
    """A client in use, and what is between it and its relay."""

    def __init__(self, chance: Random) -> None:
        self.client = RelayClient(ALICE, relay=RELAY, logs={}, request_timeout_ms=TIMEOUT_MS)
        self.now_ms = 1_000
        self.asked: list[Pending[Any]] = []
        self.heard = self.faults = self.taken = 0
        self.slowest_ms = 0.0
        self.feed = Feed("feed", Wanted("fuzz/"))
        self._chance = chance
        self.client.follow(DOCUMENTS[0], 0, self.now_ms)
        self.client.set_presence(DOCUMENTS[0], {"name": "me"})

    def connect(self) -> None:
        """Up to where requests are sent, at an honest relay."""
        self.client.connected()
        self.client.receive(relay_frame(HELLO).decode(), self.now_ms)
        for frame in self.said():
            for answer in answers(frame):
                self.client.receive(relay_frame(answer).decode(), self.now_ms)
        assert self.client.state is State.LIVE

    def said(self) -> list[ClientFrame]:
        """What the client says."""
        frames = []
        while (text := self.client.take_outgoing(self.now_ms)) is not None:
            frames.append(read_client_frame(text))
        return frames

    def ask(self) -> None:
        """Ask for something of everything."""
        client, now_ms = self.client, self.now_ms
        document = self._chance.choice(DOCUMENTS)
        data = Body(canonical_bytes(DATA), ELEMENT.author, ELEMENT.signature)
        wanted, since = Wanted("fuzz/"), self._chance.randrange(3)
        self.asked += [
            client.append(document, data, now_ms),
            client.page(document, self._chance.randrange(5), now_ms),
            client.tail(document, upto=20, count=2, now_ms=now_ms),
            client.get_snapshot(document, now_ms),
            client.put_snapshot(document, TEXT.encode(), None, now_ms),
            client.get_record(document, "roster", now_ms),
            client.keep_record(document, "roster", TEXT, revision=None, now_ms=now_ms),
            client.changes(wanted, since=since, until_seq=None, limit=10, now_ms=now_ms),
            client.find(wanted, (SHOWN.event["id"],), now_ms),
        ]
        if not self.feed.is_on and not self.feed.pause_ms(now_ms):
            self.feed.error = None
            client.switch_on(self.feed, 0, relay=HELLO.relay, now_ms=now_ms)

    def hear(self, text: str) -> None:
        """Hear one frame; whoever says what no relay does is left, and comes back."""
        self.heard += 1
        began = time.thread_time()
        try:
            self.client.receive(text, self.now_ms)
            self.taken += 1
        except (RelayFaultError, NotAdmittedError) as error:
            self.faults += 1
            end = self.client.refused if is_final(error) else self.client.lost
            end(str(error), self.now_ms)
            self.connect()
        finally:
            self.slowest_ms = max(self.slowest_ms, (time.thread_time() - began) * 1000)

    def live_on(self) -> None:
        """Do what an app does between two messages."""
        self.now_ms += BATCH_MS
        self.client.tick(self.now_ms)
        self.client.take_events()
        self.client.buffered(DOCUMENTS[0], self._chance.choice((0, 2, 10**6)))
        self.client.peers(DOCUMENTS[0])
        self.feed.read()
        # What was settled is looked at once: its answer, or an error of ours.
        for pending in self.asked:
            if pending.is_settled:
                assert pending.error is None or isinstance(pending.error, TransportError)
        self.asked = [pending for pending in self.asked if not pending.is_settled]


def good_frames(victim: Victim) -> list[bytes]:
    """What a relay could say now."""
    if victim.client.state is not State.LIVE:
        return [relay_frame(HELLO), relay_frame(Refusal(None, Code.UNAVAILABLE, "later", {}))]
    said = [frame for frame in victim.said() if not isinstance(frame, SetPresence)]
    frames = [answer for frame in said for answer in answers(frame)]
    frames += asides(said[-1].ref if said else "1")
    return [relay_frame(frame) for frame in frames]


def attack(victim: Victim, chance: Random, frames: int) -> None:
    for _ in range(frames // BATCH):
        try:
            victim.ask()
        except TransportError:
            # What a relay does not answer is given up in time.
            victim.now_ms += TIMEOUT_MS
        if chance.random() < GREETINGS:
            victim.client.lost("gone", victim.now_ms)
            victim.client.connected()
        good, faults = good_frames(victim), victim.faults
        for _ in range(BATCH):
            if victim.faults > faults:
                good, faults = good_frames(victim), victim.faults
            text = chance.choice(good) if chance.random() < GOOD else mutated(chance, good)
            victim.hear(text.decode(errors="ignore"))
        if victim.client.state is not State.LIVE:
            victim.client.lost("gone", victim.now_ms)
            victim.connect()
        victim.live_on()


def test_a_client_that_hears_nonsense_goes_on_as_if_it_had_not() -> None:
    print(f"WALSTORE_FUZZ_SEED={SEED}")
    chance = Random(SEED)
    victim = Victim(chance)
    victim.connect()
    attack(victim, chance, FRAMES // 5)
    gc.collect()
    blocks = sys.getallocatedblocks()
    rest = FRAMES - FRAMES // 5
    attack(victim, chance, rest)
    gc.collect()
    grown = sys.getallocatedblocks() - blocks
    print(f"{grown} more blocks after {rest} frames said to a client, {victim.faults} faults")
    assert grown < BLOCKS_BESIDE + rest * BLOCKS_PER_FRAME_MAX
    # The attack was one: some of it was believed, and some of it was not.
    assert victim.heard >= FRAMES - 2 * BATCH
    assert min(victim.faults, victim.taken) > FRAMES // 5
    assert victim.slowest_ms <= READ_MS_MAX, f"{victim.slowest_ms} ms"
    check_honest(victim)


def check_honest(victim: Victim) -> None:
    """On a new connection, to an honest relay, everything is as it should be."""
    client = victim.client
    client.lost("gone", victim.now_ms)
    victim.now_ms += 10 * TIMEOUT_MS
    client.tick(victim.now_ms)
    assert all(pending.is_settled for pending in victim.asked)
    assert client.unacknowledged == 0
    victim.connect()
    document = "fuzz/honest"
    client.follow(document, 0, victim.now_ms)
    data = Body(canonical_bytes(DATA), ELEMENT.author, ELEMENT.signature)
    append = client.append(document, data, victim.now_ms)
    page = client.page(document, 0, victim.now_ms)
    snapshot = client.get_snapshot(document, victim.now_ms)
    for frame in victim.said():
        for answer in answers(frame):
            client.receive(relay_frame(answer).decode(), victim.now_ms)
    assert append.result() == 1
    assert [element.ts for element in page.result()] == [1, 2]
    assert snapshot.result() == (REVISION, TEXT.encode())
    found = client.buffered(document, 0)
    assert isinstance(found, list)
    assert [element.ts for element in found] == [1, 2]
