"""A running relay that hears nonsense by the thousand, from somebody who has proved a key.

- Frames are made by the grammar of the protocol, and byte by byte; some are good. Elements and
  snapshots among them are signed anew after they were changed, because who signs may be hostile.
- Nothing is logged, nothing is stored but what was signed, nobody else waits, no frame and no check
  takes longer than it may, and the memory stays what it was.
- Frames have to get through: so many orders are carried out, and so many elements stored.

`WALSTORE_FUZZ_FRAMES` says how many; the seed is printed, `WALSTORE_FUZZ_SEED` sets it.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar, cast

import pytest

from tests.fuzzing.mutations import mutated
from tests.fuzzing.of_logs import KEYSTROKES
from tests.relay_clients import ANNA, BEN, Speaker, appending, snapshot_text, speaking
from walstore.canon import canonical_bytes, parse
from walstore.errors import MalformedError, NotJsonError
from walstore.relay import MemoryLog, Relay
from walstore.relay.checking import check_element, check_snapshot
from walstore.relay.committer import Committer, NotStored
from walstore.relay.limits import Limits
from walstore.relay.log import Filter, NewElement
from walstore.relay.peer import Peer
from walstore.relay.session import Order
from walstore.signed.author import (
    Domain,
    sign_bytes,
    sign_document,
    signing_input_of,
    verify_append,
    verify_document,
)
from walstore.signed.grant import read_grant, sign_grant
from walstore.wire.frames import (
    Append,
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

FRAMES = int(os.environ.get("WALSTORE_FUZZ_FRAMES", "30000"))
SEED = int(os.environ.get("WALSTORE_FUZZ_SEED", "0")) or time.time_ns() % 10**6

DOCUMENT = "fuzz/attacked"
BATCH = 50
# One frame, in milliseconds of the processor, and one check of what it holds.
FRAME_MS_MAX = 50.0
# How much has to get through: a fifth as many as there are frames are signed anew beside them.
ORDERS_PER_FRAME_MIN = 0.2
STORED_PER_FRAME_MIN = 0.05
# What the signature of a snapshot is over.
SNAPSHOT_MEMBERS = ("state", "uptoTs", "writerSeq", "producedBy")
# What may be left of thousands of frames: caches that are bounded, and what was good and is kept.
CACHED_BLOCKS_MAX = 8_000
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


def signed_anew(chance: Random, number: int) -> str:
    """An append or a snapshot with a good signature over whatever it holds."""
    document = f"signed/{number % 100}"
    if chance.random() < 0.7:
        data = spelled(chance, mutated(chance, KEYSTROKES))
        proof = sign_bytes(signing_input_of(Domain.APPEND, document, data), ANNA)
        append = Append("a", document, None, ANNA.public_key, proof.author_signature, data)
        return client_frame(append).decode(errors="ignore")
    text = mutated(chance, [snapshot_text(ANNA, document, upto_ts=number)])
    try:
        content = parse(text)
        assert isinstance(content, dict)
        signed = {name: content.get(name) for name in SNAPSHOT_MEMBERS}
        proof = sign_document(f"{document}__snapshot", signed, ANNA)
        text = canonical_bytes(content | {"authorSignature": proof.author_signature})
    except (AssertionError, MalformedError, NotJsonError):
        # It has no text that could be signed.
        pass
    put = PutSnapshot("put", document, None, None, text.decode(errors="ignore"), True)
    return client_frame(put).decode()


def spelled(chance: Random, text: bytes) -> bytes:
    """The same as canonical text, mostly and where there is one."""
    try:
        return canonical_bytes(parse(text)) if chance.random() < 0.8 else text
    except (MalformedError, NotJsonError):
        return text


Result = TypeVar("Result")


class Metered(Generic[Result]):
    """A coroutine, and what its own steps take of the processor, without others' in between."""

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        self._coroutine = coroutine
        self.took_ms = 0.0

    def __await__(self) -> Generator[Any, Any, Result]:
        step: Callable[[], Any] = partial(self._coroutine.send, None)
        while True:
            began = time.thread_time()
            try:
                waited_for = step()
            except StopIteration as end:
                return cast("Result", end.value)
            finally:
                self.took_ms += (time.thread_time() - began) * 1000
            try:
                yield waited_for
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's to take
                step = partial(self._coroutine.throw, error)
            else:
                step = partial(self._coroutine.send, None)


class TimedCommitter(Committer):
    """A committer that remembers what its checks took of the event loop."""

    slowest_ms = 0.0
    checked = 0

    async def _check(self, frames: Sequence[Append]) -> list[NewElement | NotStored]:
        metered = Metered(super()._check(frames))
        verdicts = await metered
        self.checked += len(frames)
        self.slowest_ms = max(self.slowest_ms, metered.took_ms)
        return verdicts


class Timed(Relay):
    """A relay that remembers what its slowest frame took."""

    slowest_ms = 0.0
    heard = 0
    orders = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._committer.__class__ = TimedCommitter

    @property
    def committer(self) -> TimedCommitter:
        assert isinstance(self._committer, TimedCommitter)
        return self._committer

    async def _execute(self, peer: Peer, order: Order) -> None:
        self.orders += 1
        await super()._execute(peer, order)

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


async def attack_signed(speaker: Speaker, chance: Random, frames: int) -> None:
    for start in range(0, frames, BATCH):
        await speaker.say(*[signed_anew(chance, start + each) for each in range(BATCH)])
        await speaker.silence()


class Checks:
    """What the checks of single elements and snapshots take, in whichever thread."""

    def __init__(self) -> None:
        self.slowest_ms = 0.0

    def metered(self, check: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def metered(checked: Any) -> Any:
            began = time.thread_time()
            try:
                return check(checked)
            finally:
                self.slowest_ms = max(self.slowest_ms, (time.thread_time() - began) * 1000)

        return metered


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


async def check_signatures(log: MemoryLog) -> int:
    """Everything that is stored, in whichever document, is what its author has signed.

    Returns:
        How much of what was signed anew there is.
    """
    page = await log.feed(0, None, Filter(), count_max=10**6, bytes_max=2**40)
    assert not page.is_more
    for event in page.events:
        assert event.payload is not None
        content = parse(event.payload)
        assert isinstance(content, dict)
        if event.kind == "element":
            assert verify_append(event.document, content, event.author, event.signature), event
        else:
            signed = {name: content.get(name) for name in SNAPSHOT_MEMBERS}
            assert content["authorPubkey"] == signed["producedBy"] == event.author
            key, signature = f"{event.document}__snapshot", content["authorSignature"]
            assert verify_document(key, signed, event.author, signature), event
    for grant in await log.grants():
        read_grant(grant)
    stored = {(event.kind, event.document) for event in page.events}
    assert {("element", DOCUMENT), ("snapshot", DOCUMENT), ("element", "fuzz/honest")} <= stored
    return sum(event.document.startswith("signed/") for event in page.events)


async def test_a_relay_that_hears_nonsense_goes_on_as_if_it_had_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"WALSTORE_FUZZ_SEED={SEED}")
    caplog.set_level(logging.WARNING)
    chance, log, checks = Random(SEED), MemoryLog(), Checks()
    monkeypatch.setattr("walstore.relay.committer.check_element", checks.metered(check_element))
    monkeypatch.setattr(
        "walstore.relay.checking_apart.check_snapshot", checks.metered(check_snapshot)
    )
    async with (
        Timed.serve(log, limits=FAST) as relay,
        speaking(relay.url, BEN) as honest,
        speaking(relay.url, ANNA) as anna,
    ):
        assert isinstance(relay, Timed)
        await anna.append(ANNA, DOCUMENT, {"n": 0})
        await anna.put(DOCUMENT, snapshot_text(ANNA, DOCUMENT, upto_ts=0), replaces=None)
        await attack_signed(anna, chance, FRAMES // 5)
        await attack(anna, chance, FRAMES // 5)
        gc.collect()
        blocks, mib = sys.getallocatedblocks(), resident_mib()
        rest = FRAMES - FRAMES // 5
        await attack(anna, chance, rest)
        gc.collect()
        grown = sys.getallocatedblocks() - blocks
        print(f"{grown} more blocks after {rest} frames", end=", ")
        assert grown < CACHED_BLOCKS_MAX + rest * BLOCKS_PER_FRAME_MAX
        assert resident_mib() - mib < GROWN_MIB_MAX
        await honest.append(BEN, "fuzz/honest", {"n": 1})
        # The attack was one: it was heard, and the relay was not spared by a limit.
        assert relay.heard >= FRAMES
        assert relay.slowest_ms <= FRAME_MS_MAX, f"{relay.slowest_ms} ms"
        assert relay.committer.slowest_ms <= FRAME_MS_MAX, f"{relay.committer.slowest_ms} ms"
        assert checks.slowest_ms <= FRAME_MS_MAX, f"{checks.slowest_ms} ms"
        stored = await check_signatures(log)
        print(f"{relay.heard} frames, slowest {relay.slowest_ms:.1f} ms", end=", ")
        print(f"{relay.orders} orders, {relay.committer.checked} appends checked", end=", ")
        print(f"slowest {max(relay.committer.slowest_ms, checks.slowest_ms):.1f} ms", end=", ")
        print(f"{stored} stored that were signed anew")
        assert relay.orders >= FRAMES * ORDERS_PER_FRAME_MIN
        assert stored >= FRAMES * STORED_PER_FRAME_MIN
    assert [record.getMessage() for record in caplog.records] == []
