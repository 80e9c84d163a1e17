"""A running relay that hears nonsense by the thousand, from somebody who has proved a key.

- Frames are made by the grammar of the protocol, and byte by byte; some are good.
- Nothing is logged, nothing is stored but what was signed, nobody else waits, no frame takes
  longer than it may, and the memory stays what it was.

`WALSTORE_FUZZ_FRAMES` says how many; the seed is printed, `WALSTORE_FUZZ_SEED` sets it.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.fuzzing.mutations import mutated
from tests.relay_clients import ANNA, BEN, Speaker, appending, snapshot_text, speaking
from walstore.canon import parse
from walstore.relay import MemoryLog, Relay
from walstore.relay.limits import Limits
from walstore.relay.log import Filter
from walstore.relay.peer import Peer
from walstore.signed.author import verify_append, verify_document
from walstore.signed.grant import read_grant, sign_grant
from walstore.wire.frames import (
    Auth,
    ClientFrame,
    Close,
    FollowChanges,
    GetRecord,
    GetSnapshot,
    KeepRecord,
    PublishGrant,
    Pull,
    PullTail,
    PutSnapshot,
    Request,
    SetPresence,
    client_frame,
)

FRAMES = int(os.environ.get("WALSTORE_FUZZ_FRAMES", "10000"))
SEED = int(os.environ.get("WALSTORE_FUZZ_SEED", "0")) or time.time_ns() % 10**6

DOCUMENT = "fuzz/attacked"
BATCH = 50
# One frame, in milliseconds of the processor.
FRAME_MS_MAX = 50.0
# What the signature of a snapshot is over.
SNAPSHOT_MEMBERS = ("state", "uptoTs", "writerSeq", "producedBy")
# What may be left of thousands of frames: caches that are bounded, and what was good and is kept.
BLOCKS_PER_FRAME_MAX = 0.01
GROWN_MIB_MAX = 10.0

FAST = Limits(
    faults_max=10**12,
    frames_per_second=10**9,
    frames_burst=10**9,
    presence_per_second=10**9,
    subscriptions_max=50,
    keys_max=4,
)


def specimens() -> list[bytes]:
    grant = sign_grant(ANNA, prefix="fuzz/", to=BEN.public_key, roles=["read"], at_ms=1)
    snapshot = snapshot_text(ANNA, DOCUMENT, upto_ts=0).decode()
    frames: list[ClientFrame] = [
        Auth("a", ANNA.public_key, "A" * 86 + "=="),
        PublishGrant("g", grant),
        appending(ANNA, DOCUMENT, {"n": [1, {"a": "},{"}]}),
        Pull("p", DOCUMENT, None, 0, 10, False),
        Pull("p", DOCUMENT, None, 0, 10, True, with_records=True),
        PullTail("t", DOCUMENT, None, 5, 10),
        GetSnapshot("s", DOCUMENT, None),
        PutSnapshot("put", DOCUMENT, None, None, snapshot, True),
        PutSnapshot("put", DOCUMENT, None, "ab" * 32, "{", False),
        GetRecord("r", DOCUMENT, "roster"),
        KeepRecord("k", DOCUMENT, None, "roster", None, "{}"),
        FollowChanges("f", "tail", "fuzz/", 0, None, 10, None, None, None, False),
        FollowChanges("f", "bootstrap", "fuzz/", 0, None, 10, None, None, None, True),
        Request("q", ("ab" * 32,), None, None, None),
        SetPresence(DOCUMENT, {"name": "Anna"}),
        Close("p"),
    ]
    return [client_frame(frame) for frame in frames]


class Metered:
    """A coroutine, and what its own steps take of the processor, without others' in between."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self.took_ms = 0.0

    def __await__(self) -> Generator[Any, Any, None]:
        step: Callable[[], Any] = partial(self._coroutine.send, None)
        while True:
            began = time.thread_time()
            try:
                waited_for = step()
            except StopIteration:
                return
            finally:
                self.took_ms += (time.thread_time() - began) * 1000
            try:
                yield waited_for
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's to take
                step = partial(self._coroutine.throw, error)
            else:
                step = partial(self._coroutine.send, None)


class Timed(Relay):
    """A relay that remembers what its slowest frame took."""

    slowest_ms = 0.0
    heard = 0

    async def _take(self, peer: Peer, text: bytes) -> None:
        metered = Metered(super()._take(peer, text))
        await metered
        self.heard += 1
        self.slowest_ms = max(self.slowest_ms, metered.took_ms)


def nonsense(chance: Random, good: list[bytes]) -> str:
    return mutated(chance, good).decode(errors="ignore")


async def attack(speaker: Speaker, chance: Random, frames: int) -> None:
    good = specimens()
    for _ in range(frames // BATCH):
        await speaker.say(*[nonsense(chance, good) for _ in range(BATCH)])
        await speaker.silence()


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


async def check_signatures(log: MemoryLog) -> None:
    """Everything that is stored, in whichever document, is what its author has signed."""
    page = await log.feed(0, None, Filter(), count_max=10**6, bytes_max=2**40)
    assert not page.is_more
    for event in page.events:
        assert event.payload is not None
        content = parse(event.payload)
        assert isinstance(content, dict)
        if event.kind == "element":
            assert verify_append(event.document, content, event.author, event.signature), event
        else:
            signed = {name: content[name] for name in SNAPSHOT_MEMBERS}
            assert content["authorPubkey"] == signed["producedBy"] == event.author
            key, signature = f"{event.document}__snapshot", content["authorSignature"]
            assert verify_document(key, signed, event.author, signature), event
    for grant in await log.grants():
        read_grant(grant)
    stored = {(event.kind, event.document) for event in page.events}
    assert {("element", DOCUMENT), ("snapshot", DOCUMENT), ("element", "fuzz/honest")} <= stored


async def test_a_relay_that_hears_nonsense_goes_on_as_if_it_had_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    print(f"WALSTORE_FUZZ_SEED={SEED}")
    caplog.set_level(logging.WARNING)
    chance, log = Random(SEED), MemoryLog()
    async with (
        Timed.serve(log, limits=FAST) as relay,
        speaking(relay.url, BEN) as honest,
        speaking(relay.url, ANNA) as anna,
    ):
        assert isinstance(relay, Timed)
        await anna.append(ANNA, DOCUMENT, {"n": 0})
        await anna.put(DOCUMENT, snapshot_text(ANNA, DOCUMENT, upto_ts=0), replaces=None)
        await attack(anna, chance, FRAMES // 5)
        gc.collect()
        blocks, mib = sys.getallocatedblocks(), resident_mib()
        rest = FRAMES - FRAMES // 5
        await attack(anna, chance, rest)
        gc.collect()
        grown = sys.getallocatedblocks() - blocks
        print(f"{grown} more blocks after {rest} frames", end=", ")
        assert grown < 4_000 + rest * BLOCKS_PER_FRAME_MAX
        assert resident_mib() - mib < GROWN_MIB_MAX
        await honest.append(BEN, "fuzz/honest", {"n": 1})
        # The attack was one: it was heard, and the relay was not spared by a limit.
        assert relay.heard >= FRAMES
        assert relay.slowest_ms <= FRAME_MS_MAX, f"{relay.slowest_ms} ms"
        await check_signatures(log)
        print(f"{relay.heard} frames, slowest {relay.slowest_ms:.1f} ms")
    assert [record.getMessage() for record in caplog.records] == []
