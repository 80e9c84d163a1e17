"""What goes wrong in the TypeScript peer, row by row, and does not go wrong here.

The numbers are those of the list of weaknesses; each test replays what happens there. Rows about
servers (W37, W38, W43, and the relay's half of W39 and W42) are in `test_weaknesses_servers`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    KEY,
    MALLORY,
    MEMBERS,
    Gates,
    OfflineError,
    RiggedLog,
    RiggedSnapshots,
    counter_of,
    document,
    opened,
    put_in,
    set_op,
    signed,
    signed_snapshot,
    state_of,
    write_starfish,
)
from walstore.canon import canonical_bytes
from walstore.crdt import COUNTER_MAX, ClockExhaustedError, LamportClock, WalCrdt
from walstore.document import (
    ALLOW_ANY,
    Body,
    Event,
    Fork,
    Gap,
    RejectedElementsError,
    Rejection,
    RollbackDetectedError,
    SequenceGapError,
    SessionUsedError,
    SnapshotMismatchError,
    SnapshotRefusedError,
    SnapshotVerdict,
    ValueTooLargeError,
    WalDocument,
)
from walstore.document.ports import RawElement
from walstore.errors import NameRefusedError, NotJsonError, TransportError
from walstore.net import WebSocketTransport
from walstore.relay import MemoryLog, Relay
from walstore.sealed import (
    ContentKeys,
    KeyringRefusedError,
    KeyringRollbackError,
    NativeEncryptor,
    create_keyring,
    open_keyring,
)
from walstore.signed import Identity, verify_append, verify_bytes
from walstore.signed.author import Domain, sign_bytes, signing_input_of
from walstore.signed.card import Card
from walstore.signed.encoding import decode_public_key
from walstore.store.sharing_steps import KEYRING
from walstore.store.store import WalStore


async def read(log: RiggedLog, **options: Any) -> tuple[WalDocument, list[Event]]:
    events: list[Event] = []
    options = {"on_author_error": "skip", "on_event": events.append, **options}
    return await opened(log, CAROL, **options), events


def encryptor(*epochs: int) -> NativeEncryptor:
    return NativeEncryptor(content_keys(*epochs), randomness=os.urandom)


def content_keys(*epochs: int) -> ContentKeys:
    return ContentKeys(max(epochs), {epoch: bytes([epoch]) * 32 for epoch in epochs})


class GatedLog(RiggedLog):
    """Suspends in the middle of every append."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = Gates()

    async def append(self, document_key: str, body: Body) -> int:
        await self.gates.wait()
        return await super().append(document_key, body)


class LossyLog(RiggedLog):
    """Stores an append and loses the answer, once."""

    is_lossy = True

    async def append(self, document_key: str, body: Body) -> int:
        ts = await super().append(document_key, body)
        if self.is_lossy:
            self.is_lossy = False
            raise OfflineError
        return ts


@pytest.mark.parametrize("wire", ["packed", "starfish"])
async def test_w01_adopting_a_snapshot_observes_every_clock_in_it(wire: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    writer = await opened(log, wire=wire, snapshot_store=store)
    writer.set_text("text", "hello")
    writer.set_text("text", "")
    writer.set_field("title", "old")
    await writer.commit()
    await writer.snapshot()
    log.prune(1)
    again = await opened(log, wire=wire, snapshot_store=store)
    assert counter_of(again) == counter_of(writer)
    again.set_field("title", "new")
    again.insert_text("text", 0, "again")
    await again.commit()
    reader, events = await read(log, snapshot_store=store)
    assert reader.field("title") == "new"
    assert reader.text("text") == "again"
    assert events == []


async def test_w01_a_snapshot_that_does_not_name_its_highest_clock_is_observed_too() -> None:
    """A peer's snapshots have no such member: every clock in the state is looked at."""
    log, store = RiggedLog(), RiggedSnapshots()
    put_in(log, write_starfish(BOB, [set_op(BOB, 7, "old")]))
    crdt = WalCrdt()
    crdt.fold([set_op(BOB, 7, "old")])
    content = {
        "state": crdt.export_state(),
        "uptoTs": 1,
        "writerSeq": {BOB.public_key: 1},
        "producedBy": BOB.public_key,
    }
    store.document = signed_snapshot(content, BOB)
    log.prune(1)
    doc = await opened(log, snapshot_store=store, wire="starfish")
    doc.set_field("title", "new")
    assert (doc.field("title"), counter_of(doc)) == ("new", 8)
    await doc.commit()
    assert (await read(log, snapshot_store=store))[0].field("title") == "new"


async def test_w02_two_sessions_of_one_author_never_collide() -> None:
    log = RiggedLog()
    tabs = [await opened(log) for _ in range(2)]
    for number, tab in enumerate(tabs):
        tab.set_text("text", f"tab {number}")
    for tab in tabs:
        await tab.commit()
    for tab in tabs:
        await tab.pull()
    assert state_of(tabs[0]) == state_of(tabs[1])
    assert sorted(tabs[0].text("text")) == sorted("tab 0tab 1")
    with pytest.raises(SessionUsedError):
        await opened(log, session_nonce=tabs[0].session)


async def test_w03_nobody_stamps_with_the_clocks_of_another() -> None:
    log = RiggedLog()
    alice = await opened(log)
    claimed = f"{ALICE.public_key}:{alice.session}"
    op = {"t": "ins", "list": "text", "id": f"1@{claimed}", "after": "", "value": "evil"}
    put_in(log, write_starfish(BOB, [{**op, "clock": {"c": 1, "r": claimed}}]))
    alice.set_text("text", "mine")
    await alice.commit()
    with pytest.raises(RejectedElementsError):
        await alice.pull()
    reader, events = await read(log)
    assert reader.text("text") == alice.text("text") == "mine"
    assert [type(event) for event in events] == [Rejection]


@pytest.mark.parametrize("kind", ["ins", "rmv"])
async def test_w04_an_empty_id_never_enters_a_list(kind: str) -> None:
    log = RiggedLog()
    op = {"t": kind, "list": "text", "id": "", "clock": {"c": 1, "r": f"{BOB.public_key}:s"}}
    put_in(log, write_starfish(BOB, [{**op, "after": "", "value": "x"}]))
    reader, events = await read(log)
    assert reader.materialize() == {}
    assert [type(event) for event in events] == [Rejection]


async def test_w05_removing_an_unseen_id_twice_follows_the_log_whatever_else_is_moved() -> None:
    log = RiggedLog()
    ops = [
        {"t": "rmv", "list": "text", "id": "9@x", "clock": {"c": number, "r": f"{key}:s"}}
        for number, key in ((5, BOB.public_key), (3, ALICE.public_key))
    ]
    put_in(log, write_starfish(BOB, ops[:1]))
    put_in(log, write_starfish(ALICE, ops[1:]))
    crdt = WalCrdt()
    crdt.fold(ops)
    for page_size in (1, 1000):
        reader, _ = await read(RiggedLog(log.elements, page_size=page_size))
        assert state_of(reader) == crdt.canonical_state()
    # Honest documents never remove what they have not seen.
    doc = await opened(RiggedLog())
    doc.remove_at("text", 0)
    doc.remove_text("text", 3, 5)
    assert await doc.commit() is None


async def test_w06_values_are_shared_with_nobody() -> None:
    log = RiggedLog()
    doc = await opened(log)
    value = {"deep": [1]}
    doc.set_field("a", value)
    doc.push("l", value)
    value["deep"].append(2)
    doc.materialize()["a"]["deep"].append(3)
    doc.values("l")[0]["deep"].append(4)
    with pytest.raises(TypeError):
        doc.view()["a"]["deep"] = 5
    await doc.commit()
    reader, _ = await read(log)
    assert reader.materialize() == doc.materialize() == {"a": {"deep": [1]}, "l": [{"deep": [1]}]}


async def test_w07_ops_made_while_a_commit_is_in_flight_are_kept() -> None:
    log = GatedLog()
    doc = await opened(log)
    doc.set_field("before", 1)
    committing = asyncio.create_task(doc.commit())
    await log.gates.reached()
    doc.set_field("during", 2)
    log.gates.release()
    await committing
    again = asyncio.create_task(doc.commit())
    await log.gates.run([again], lambda: 0)
    assert (await read(log))[0].materialize() == {"before": 1, "during": 2}


@pytest.mark.parametrize("wire", ["packed", "starfish"])
async def test_w08_what_is_stored_is_what_was_signed(wire: str) -> None:
    log = GatedLog()
    doc = await opened(log, wire=wire)
    inner: dict[str, Any] = {"n": 1}
    doc.set_field("a", inner)
    committing = asyncio.create_task(doc.commit())
    await log.gates.reached()
    doc.set_field("b", 2)
    inner["n"] = 2
    log.gates.release()
    await committing
    (element,) = log.elements
    assert verify_append(KEY, element["data"], ALICE.public_key, element["authorSignature"])
    assert (await read(log))[0].materialize() == {"a": {"n": 1}}


async def test_w09_overlapping_commits_use_each_seq_once() -> None:
    log = GatedLog()
    doc = await opened(log)
    tasks = []
    for number in range(5):
        doc.push("list", number)
        tasks.append(asyncio.create_task(doc.commit()))
    await log.gates.run(tasks, lambda: 0)
    seqs = [element["data"]["seq"] for element in log.elements]
    assert seqs == list(range(1, len(seqs) + 1))
    assert (await read(log))[0].values("list") == [0, 1, 2, 3, 4]


async def test_w10_a_lost_answer_is_retried_with_the_same_bytes() -> None:
    log = LossyLog()
    doc = await opened(log)
    doc.push("list", 1)
    with pytest.raises(TransportError):
        await doc.commit()
    doc.push("list", 2)
    await doc.commit()
    assert log.received[0] == log.received[1]
    assert [element["data"]["seq"] for element in log.elements] == [1, 2]
    assert (await read(log))[0].values("list") == [1, 2]


async def test_w11_a_bad_element_does_not_hold_the_cursor() -> None:
    class CountingLog(RiggedLog):
        count = 0

        async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
            page = await super().pull(document_key, checkpoint)
            self.count += len(page)
            return page

    log = CountingLog()
    put_in(log, write_starfish(BOB, [{"t": "set"}]))
    alice = await opened(log, on_author_error="skip")
    alice.set_field("a", 1)
    await alice.commit()
    reader, events = await read(log)
    assert reader.current_checkpoint == 2
    log.count = 0
    for _ in range(3):
        await reader.pull()
    assert log.count == 0
    assert len(events) == 1
    assert len(reader.rejected()) == 1


@pytest.mark.parametrize("op", [None, {}, {"t": "set", "reg": "a"}, {"t": "set", "clock": None}, 7])
async def test_w12_an_op_without_a_clock_rejects_its_element_and_nothing_else(op: Any) -> None:
    log = RiggedLog()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "partly"), op]))
    put_in(log, write_starfish(BOB, [set_op(BOB, 2, "good", "other")], seq=2))
    reader, events = await read(log)
    assert reader.materialize() == {"other": "good"}
    assert [type(event) for event in events] == [Rejection]


async def test_w13_what_cannot_be_opened_is_an_outcome_not_an_exception() -> None:
    log = RiggedLog()
    alice = await opened(log, encryptor=encryptor(1, 2))
    alice.set_field("a", 1)
    await alice.commit()
    put_in(log, signed({**log.elements[0]["data"], "author": BOB.public_key}, BOB))
    reader, events = await read(log, encryptor=encryptor(1))
    assert reader.unreadable == 2
    assert events == []
    whole, events = await read(log, encryptor=encryptor(1, 2))
    assert whole.materialize() == {"a": 1}
    assert [event.author for event in events if isinstance(event, Rejection)] == [BOB.public_key]


class TextLog(RiggedLog):
    """Serves one element as the text that it is, and then what was appended."""

    def __init__(self, text: bytes, author: Identity) -> None:
        super().__init__()
        # Whoever does harm signs what no encoder of ours would write.
        proof = sign_bytes(signing_input_of(Domain.APPEND, KEY, text), author)
        self.newest_ts = 1
        self._first = RawElement(1, text, author.public_key, proof.author_signature)

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        page = await super().pull(document_key, checkpoint)
        return [self._first, *page] if checkpoint < 1 else page


@pytest.mark.parametrize(
    ("member", "counter", "reason"),
    [
        ("c", 2**32 + 1, "far above everything seen"),
        ("c", 2**53 - 1, "far above everything seen"),
        ("c", 2**53, "a counter is not an integer from 1 to 2^53 - 1"),
        ("c", "1e400", "infinity"),
        ("c", 10**400, "infinity"),
        ("seq", 2**53, "`seq` is not an integer from 1 to 2^53 - 1"),
    ],
)
async def test_w14_no_counter_freezes_the_clock(member: str, counter: Any, reason: str) -> None:
    text = canonical_bytes(write_starfish(BOB, [set_op(BOB, 1, "frozen")])["data"])
    written = f'"{member}":1,'.encode()
    assert text.count(written) == 1
    log = TextLog(text.replace(written, f'"{member}":{counter},'.encode()), BOB)
    reader, events = await read(log)
    (event,) = events
    assert isinstance(event, Rejection)
    assert reason in event.reason
    reader.set_field("title", "free")
    assert counter_of(reader) == 1
    await reader.commit()
    assert (await read(log))[0].field("title") == "free"


def test_w14_a_local_tick_raises_before_it_overflows() -> None:
    clock = LamportClock("a", COUNTER_MAX)
    with pytest.raises(ClockExhaustedError):
        clock.tick()


def test_w15_who_may_write_and_who_may_sign_snapshots_has_to_be_said() -> None:
    parameters = inspect.signature(WalDocument).parameters
    for name in ("writers", "snapshot_role"):
        assert parameters[name].default is inspect.Parameter.empty
    # To let anybody write is possible, and has to be spelled out.
    WalDocument(
        KEY,
        transport=RiggedLog(),
        identity=ALICE,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
    )


async def test_w15_a_relay_cannot_write_under_its_own_key() -> None:
    log = RiggedLog()
    put_in(log, write_starfish(MALLORY, [set_op(MALLORY, 1, "evil")]))
    lie = WalCrdt()
    lie.fold([set_op(MALLORY, 1, "evil")])
    content = {
        "state": lie.export_state(),
        "uptoTs": 1,
        "writerSeq": {},
        "producedBy": MALLORY.public_key,
    }
    store = RiggedSnapshots(signed_snapshot(content, MALLORY))
    reader, _ = await read(log, snapshot_store=store)
    assert reader.materialize() == {}


async def pruned() -> tuple[RiggedLog, RiggedSnapshots]:
    """A log of two elements, the first of them covered by a snapshot and pruned."""
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await opened(log, snapshot_store=store)
    alice.set_field("old", 1)
    await alice.commit()
    await alice.snapshot()
    log.prune(1)
    alice.set_field("new", 2)
    await alice.commit()
    return log, store


async def test_w16_a_snapshot_after_pruning_keeps_what_was_pruned() -> None:
    log, store = await pruned()
    await (await opened(log, BOB, snapshot_store=store)).snapshot()
    log.prune(2)
    reader, _ = await read(log, snapshot_store=store)
    assert reader.materialize() == {"new": 2, "old": 1}


async def test_w16_a_log_that_does_not_reach_back_is_not_signed() -> None:
    log, _ = await pruned()
    store = RiggedSnapshots()
    producer, _ = await read(log, snapshot_store=store)
    with pytest.raises(SnapshotRefusedError):
        await producer.snapshot()
    assert store.document is None


async def test_w17_no_snapshot_signs_a_hole_away() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await opened(log)
    for number in range(3):
        alice.push("list", number)
        await alice.commit()
    holed = log.served([0, 2])
    producer, _ = await read(holed, snapshot_store=store)
    with pytest.raises(SnapshotRefusedError):
        await producer.snapshot()
    insisted = await producer.snapshot(over_gaps=True)
    assert insisted["state"]["x"]["over"]


async def test_w17_no_snapshot_signs_away_what_its_producer_cannot_open() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    for epochs in ((1,), (1, 2)):
        alice = await opened(log, encryptor=encryptor(*epochs))
        alice.push("list", max(epochs))
        await alice.commit()
    behind = await opened(log, BOB, encryptor=encryptor(1), snapshot_store=store)
    assert behind.unreadable == 1
    with pytest.raises(SnapshotRefusedError, match="cannot be opened"):
        await behind.snapshot()
    assert store.writes == []


async def test_w18_an_older_snapshot_never_replaces_a_newer_one() -> None:
    log, store, newer = RiggedLog(), RiggedSnapshots(), RiggedSnapshots()
    alice = await opened(log, snapshot_store=newer)
    alice.set_field("a", 1)
    await alice.commit()
    behind = RiggedLog(log.elements)
    alice.set_field("b", 2)
    await alice.commit()
    await alice.snapshot()

    def somebody_is_faster() -> None:
        store.document = newer.document

    store.before_write = somebody_is_faster
    slow = await opened(behind, BOB, snapshot_store=store)
    assert (await slow.snapshot())["uptoTs"] == 2
    assert store.document == newer.document


async def test_w19_a_snapshot_that_cannot_be_read_is_not_absent() -> None:
    class Unreachable(RiggedSnapshots):
        async def read(self, snapshot_key: str) -> Any:
            raise OfflineError

    with pytest.raises(TransportError):
        await opened(RiggedLog(), snapshot_store=Unreachable())


async def test_w20_an_emptied_log_is_noticed_and_nothing_is_written_to_it() -> None:
    log = RiggedLog()
    alice = await opened(log)
    alice.set_field("a", 1)
    await alice.commit()
    await alice.pull()
    empty = RiggedLog()
    again = document(empty, marks=alice.marks)
    with pytest.raises(RollbackDetectedError):
        await again.open()
    with pytest.raises(Exception, match="read-only"):
        again.set_field("a", 2)
    assert empty.received == []


async def test_w20_the_last_of_one_author_is_missed_though_a_newer_element_is_there() -> None:
    log = RiggedLog()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "bob's")]))
    put_in(log, write_starfish(ALICE, [set_op(ALICE, 2, "alice's")]))
    marks = (await read(log))[0].marks
    with pytest.raises(RollbackDetectedError):
        await read(log.kept(lambda element: element["ts"] != 1), marks=marks)


async def test_w20_a_log_that_ends_earlier_is_noticed_though_every_count_is_the_same() -> None:
    log = RiggedLog()
    for counter in (1, 2):
        put_in(log, write_starfish(BOB, [set_op(BOB, counter, "bob's")], seq=1))
    marks = (await read(log))[0].marks
    with pytest.raises(RollbackDetectedError):
        await read(log.kept(lambda element: element["ts"] != 2), marks=marks)


async def test_w21_two_contents_under_one_clock_are_reported_with_the_proof() -> None:
    log = RiggedLog()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "one")], seq=1))
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "two")], seq=1))
    reader, events = await read(log)
    assert reader.field("title") == "one"
    (fork,) = events
    assert isinstance(fork, Fork)
    assert (fork.first.ts, fork.second.ts) == (1, 2)
    for element in (fork.first, fork.second):
        assert verify_append(KEY, element.data, BOB.public_key, element.signature)


async def test_w21_one_count_for_two_elements_is_no_alarm() -> None:
    """Two tabs of a peer count alike; its retry repeats a count with more ops."""
    log = RiggedLog()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "one")], seq=1))
    put_in(log, write_starfish(BOB, [set_op(BOB, 2, "two")], seq=1))
    reader, events = await read(log)
    assert reader.field("title") == "two"
    assert events == []


async def test_w22_a_gap_heals_when_it_is_filled() -> None:
    log = RiggedLog()
    alice = await opened(log)
    for number in range(3):
        alice.push("list", number)
        await alice.commit()
    late = log.served([0, 2])
    strict = document(late, CAROL, strict_sequence=True)
    with pytest.raises(SequenceGapError):
        await strict.open()
    assert [type(gap) for gap in strict.detected_gaps()] == [Gap]
    put_in(late, log.elements[1])
    assert await strict.pull() == 1
    assert strict.detected_gaps() == []
    assert strict.values("list") == [0, 1, 2]


async def test_w23_the_name_proto_is_ignored_on_read_and_refused_on_write() -> None:
    log = RiggedLog()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, {"evil": 1}, "__proto__")]))
    reader, events = await read(log)
    assert (reader.materialize(), events) == ({}, [])
    edits: list[Callable[[], None]] = [
        lambda: reader.set_field("__proto__", 1),
        lambda: reader.push("__proto__", 1),
        lambda: reader.put("m", "__proto__", 1),
        lambda: reader.update({"__proto__": 1}),
    ]
    for edit in edits:
        with pytest.raises(NameRefusedError):
            edit()
    assert reader.materialize() == {}


async def test_w24_names_that_servers_strip_never_break_a_snapshot() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, 1, "constructor")]))
    doc, _ = await read(log, snapshot_store=store, wire="starfish")
    with pytest.raises(NameRefusedError):
        doc.set_field("constructor", 2)
    with pytest.raises(SnapshotRefusedError):
        await doc.snapshot()
    assert store.document is None


@pytest.mark.parametrize("wire", ["packed", "starfish"])
async def test_w25_a_value_that_could_not_be_sent_is_refused_at_the_call(wire: str) -> None:
    log = RiggedLog()
    doc = await opened(log, wire=wire)
    deep: Any = 1
    for _ in range(59):
        deep = [deep]
    with pytest.raises(NotJsonError):
        doc.set_field("a", deep)
    with pytest.raises(ValueTooLargeError):
        doc.set_field("a", "x" * 2**20)
    doc.set_field("b", "fine")
    doc.insert_text("t", 0, "long " * 4_000)
    await doc.commit()
    assert (await read(log))[0].text("t") == doc.text("t")
    assert doc.unsent == 0


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**53, object(), {1: 2}, {1, 2}, b"bytes", 1j, datetime.now(UTC)],
)
async def test_w26_only_json_is_signed(value: Any) -> None:
    doc = await opened(RiggedLog())
    for edit in (doc.set_field, doc.push):
        with pytest.raises(NotJsonError):
            edit("a", value)
        with pytest.raises(NotJsonError):
            edit("a", [{"deep": value}])
    assert doc.materialize() == {}
    assert await doc.commit() is None


@pytest.mark.parametrize("name", ["toString", "valueOf", "hasOwnProperty", "__init__", "keys", ""])
async def test_w27_names_that_objects_have_are_names_like_others(name: str) -> None:
    log = RiggedLog()
    doc = await opened(log)
    doc.update({name: 1, "other": [1]})
    await doc.commit()
    doc.update({name: 1, "other": [1]})
    assert await doc.commit() is None
    doc.update({"other": [1]})
    await doc.commit()
    assert (await read(log))[0].materialize() == {"other": [1]}


async def test_w28_a_pruned_log_opens_from_the_snapshot_and_says_that_it_cannot_check() -> None:
    log, store = await pruned()
    reader, events = await read(log, snapshot_store=store, posture="re-derive")
    assert reader.snapshot_verdict is SnapshotVerdict.UNVERIFIABLE
    assert reader.snapshot_verified is None
    assert reader.materialize() == {"new": 2, "old": 1}
    assert events == []


async def test_w29_a_false_snapshot_raises_and_the_log_is_shown() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await opened(log, snapshot_store=store, wire="starfish")
    alice.set_field("a", "true")
    await alice.commit()
    honest = await alice.snapshot()
    content = {name: honest[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    content["state"]["regs"]["a"]["value"] = "false"
    store.document = signed_snapshot(content, ALICE)
    reader = document(log, CAROL, snapshot_store=store, posture="re-derive")
    with pytest.raises(SnapshotMismatchError):
        await reader.open()
    assert reader.snapshot_verified is False
    assert reader.materialize() == {"a": "true"}


def keyring_of(scope: str) -> dict[str, Any]:
    recipients, chance = [BOB.kem_public_key], random.Random(scope).randbytes
    return create_keyring(
        recipients, scope=scope, adder=ALICE, now_s=1_700_000_000, randomness=chance
    )


def keys_of(keyring: object, *, scope: str = KEY) -> ContentKeys:
    return open_keyring(
        keyring,
        recipient=BOB,
        trusted_adders={ALICE.public_key},
        verify=verify_bytes,
        scope=scope,
        epoch_min=0,
    )


def test_w30_the_keyring_of_another_document_is_refused() -> None:
    transplanted = keyring_of("spaces/s1/other")
    with pytest.raises(KeyringRefusedError):
        keys_of(transplanted)
    keys_of(transplanted, scope="spaces/s1/other")


async def test_w31_an_older_keyring_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bob.wal"
    with pytest.raises(KeyringRollbackError):
        encryptor(1, 2).adopt(content_keys(1))
    async with (
        Relay.serve(MemoryLog()) as relay,
        WebSocketTransport(relay.url, identity=ALICE) as records,
    ):
        async with shared(relay) as alice:
            line = str(await alice.sharing.invite(Card.of(BOB)))
            old = await records.read_record(KEY, KEYRING)
            async with WalStore.join(line, identity=BOB, path=path) as bob:
                await alice.sharing.rotate()
                await bob.sharing.refresh()
        # Alice, who would make it good, is not there. What Bob has seen is in his file alone.
        newer = await records.read_record(KEY, KEYRING)
        assert old is not None
        assert newer is not None
        await records.write_record(KEY, KEYRING, old.text, newer.revision)
        options: dict[str, Any] = {"owner": ALICE.public_key, "is_sealed": True, "path": path}
        for _ in range(2):
            async with WalStore.open(KEY, identity=BOB, relay=relay.url, **options) as bob:
                with pytest.raises(KeyringRollbackError):
                    await bob.sharing.refresh()
                assert bob.sharing.keys is not None
                assert bob.sharing.keys.current_epoch == 2


def shared(relay: Relay) -> WalStore:
    """A sealed document of Alice's."""
    return WalStore.open(
        KEY, identity=ALICE, relay=relay.url, owner=ALICE.public_key, is_sealed=True
    )


async def test_w32_who_joins_after_a_rotation_sees_all() -> None:
    async with Relay.serve(MemoryLog()) as relay, shared(relay) as alice:
        alice["before"] = 1
        await alice.flush()
        await alice.sharing.rotate()
        alice["after"] = 2
        await alice.flush()
        line = str(await alice.sharing.invite(Card.of(BOB)))
        async with WalStore.join(line, identity=BOB) as bob:
            await bob.flush()
            assert bob.document.materialize() == {"after": 2, "before": 1}
            assert bob.document.unreadable == 0


async def test_w32_a_late_joiner_opens_and_sees_all_with_a_snapshot() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await opened(log, encryptor=encryptor(1))
    alice.set_field("before", 1)
    await alice.commit()
    again = await opened(log, encryptor=encryptor(1, 2), snapshot_store=store)
    again.set_field("after", 2)
    await again.commit()
    joiner = NativeEncryptor(ContentKeys(2, {2: bytes([2]) * 32}), randomness=os.urandom)
    alone, _ = await read(log, encryptor=joiner)
    assert (alone.unreadable, alone.materialize()) == (1, {"after": 2})
    await again.snapshot()
    whole, _ = await read(log, encryptor=joiner, snapshot_store=store)
    assert (whole.unreadable, whole.materialize()) == (0, {"after": 2, "before": 1})


async def test_w33_nothing_is_sealed_with_the_old_key_after_a_rotation() -> None:
    log = RiggedLog()
    mine = encryptor(1)
    doc = await opened(log, encryptor=mine)
    doc.set_field("a", 1)
    await doc.commit()
    mine.adopt(content_keys(1, 2))
    doc.set_field("b", 2)
    await doc.commit()
    assert [element["data"]["body"]["_epoch"] for element in log.elements] == [1, 2]


async def test_w33_what_waited_for_the_network_is_sealed_anew() -> None:
    class Offline(RiggedLog):
        is_offline = True

        async def append(self, document_key: str, body: Body) -> int:
            if self.is_offline:
                raise OfflineError
            return await super().append(document_key, body)

    log, mine = Offline(), encryptor(1)
    doc = await opened(log, encryptor=mine)
    for number in range(3):
        doc.push("list", number)
        with pytest.raises(TransportError):
            await doc.commit()
    mine.adopt(content_keys(1, 2))
    log.is_offline = False
    await doc.commit()
    assert [element["data"]["body"]["_epoch"] for element in log.elements] == [2, 2, 2]
    assert (await read(log, encryptor=encryptor(1, 2)))[0].values("list") == [0, 1, 2]


SMALL_ORDER = [
    "01" + "00" * 31,
    "ec" + "ff" * 30 + "7f",
    "00" * 32,
    "00" * 31 + "80",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "01" + "00" * 30 + "80",
    "ec" + "ff" * 31,
    "ed" + "ff" * 30 + "7f",
    "ed" + "ff" * 31,
    "ee" + "ff" * 30 + "7f",
    "ee" + "ff" * 31,
]


@pytest.mark.parametrize("key", SMALL_ORDER)
async def test_w34_a_small_order_key_signs_nothing(key: str) -> None:
    # Whatever the library makes of it that checks signatures.
    assert decode_public_key(key) is None
    log = RiggedLog()
    data = {"v": 1, "author": key, "seq": 1, "ops": []}
    log.add(data, key, "AQ" + "A" * 84 + "==")
    reader, events = await read(log, writers=ALLOW_ANY)
    assert reader.history() == []
    assert [type(event) for event in events] == [Rejection]


@pytest.mark.parametrize("variant", ["upper-case key", "unpadded", "url-safe", "white space"])
async def test_w35_one_key_is_one_identity_in_one_spelling(variant: str) -> None:
    log = RiggedLog()
    element = write_starfish(BOB, [set_op(BOB, 1, "x")])
    signature = element["authorSignature"]
    match variant:
        case "upper-case key":
            upper = BOB.public_key.upper()
            op = set_op(BOB, 1, "x") | {"clock": {"c": 1, "r": f"{upper}:s"}}
            # Everything fits, if this is a key.
            element = signed(element["data"] | {"author": upper, "ops": [op]}, BOB)
            element["authorPubkey"] = upper
        case "unpadded":
            element["authorSignature"] = signature.rstrip("=")
        case "url-safe":
            element["authorSignature"] = signature.replace("+", "-").replace("/", "_")
            assert element["authorSignature"] != signature
        case _:
            element["authorSignature"] = signature + "\n"
    put_in(log, element)
    reader, events = await read(log, writers=ALLOW_ANY)
    assert reader.materialize() == {}
    assert [type(event) for event in events] == [Rejection]


async def test_w36_long_texts_are_edited_in_little_time() -> None:
    """There, 2,000 characters take a second or two; here, a hundred times as many."""
    doc = await opened(RiggedLog())
    start = time.perf_counter()
    doc.set_text("text", "lorem ipsum " * 20_000)
    for at in range(2_000):
        doc.insert_text("text", at * 100, "x")
    shown = doc.text("text")
    doc.set_text("text", shown[:100_000] + "in the middle" + shown[100_000:])
    doc.set_text("text", shown[1_000:-1_000])
    assert doc.text("text") == shown[1_000:-1_000]
    assert time.perf_counter() - start < 20


async def test_w39_one_identity_is_author_signer_and_replica() -> None:
    """There is no second key that could differ: what signs is what the element names."""
    log = RiggedLog()
    doc = await opened(log, wire="starfish")
    doc.set_field("a", 1)
    await doc.commit()
    (element,) = log.elements
    assert element["authorPubkey"] == element["data"]["author"] == ALICE.public_key
    assert element["data"]["ops"][0]["clock"]["r"] == f"{ALICE.public_key}:{doc.session}"
    assert verify_append(KEY, element["data"], ALICE.public_key, element["authorSignature"])


@pytest.mark.parametrize("ts", [9_000_000_000_000_000, 2**53 - 1, 2**53, 1e300, -1, 1.5])
async def test_w40_a_ts_from_nowhere_does_not_move_the_cursor(ts: Any) -> None:
    log = RiggedLog()
    alice = await opened(log)
    alice.set_field("a", 1)
    await alice.commit()
    reader, _ = await read(log)
    log.replay(0)
    log.elements[-1]["ts"] = ts
    await reader.pull()
    assert reader.current_checkpoint == 1
    del log.elements[-1]
    log.newest_ts = 1
    alice.set_field("b", 2)
    await alice.commit()
    await reader.pull()
    assert reader.materialize() == {"a": 1, "b": 2}


async def test_w41_who_can_read_cannot_write_for_that() -> None:
    log = RiggedLog()
    recipient = await opened(log, MALLORY, encryptor=encryptor(1), writers=ALLOW_ANY)
    recipient.set_field("a", "evil")
    await recipient.commit()
    reader, events = await read(log, encryptor=encryptor(1), writers=MEMBERS)
    assert reader.materialize() == {}
    assert [type(event) for event in events] == [Rejection]


@pytest.mark.parametrize("page_size", [1, 2, 7])
async def test_w42_a_log_is_read_page_by_page(page_size: int) -> None:
    log = RiggedLog(page_size=page_size)
    alice = await opened(log)
    for number in range(10):
        alice.push("list", number)
        await alice.commit()
    reader, _ = await read(log)
    assert reader.values("list") == list(range(10))
    assert reader.current_checkpoint == 10


async def test_w44_overlapping_opens_bootstrap_once_and_a_failed_one_leaves_nothing() -> None:
    class SlowLog(RiggedLog):
        gates = Gates()
        bootstraps = 0
        fails = True

        async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
            self.bootstraps += checkpoint == 0
            await self.gates.wait()
            if checkpoint and self.fails:
                self.fails = False
                raise OfflineError
            return await super().pull(document_key, checkpoint)

    log = SlowLog()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "x")]))
    doc = document(log)
    failing = asyncio.create_task(doc.open())
    await asyncio.gather(log.gates.run([failing], lambda: 0), failing, return_exceptions=True)
    assert isinstance(failing.exception(), OfflineError)
    with pytest.raises(Exception, match="not open"):
        doc.materialize()
    log.bootstraps = 0
    opening = [asyncio.create_task(doc.open()) for _ in range(3)]
    await log.gates.run(opening, lambda: 0)
    assert log.bootstraps == 1
    assert doc.materialize() == {"title": "x"}
    assert len(doc.history()) == len(doc.retained_tail()) == 1
