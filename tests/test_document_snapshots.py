"""Snapshots: believed for good reasons only, and never less than the log that they stand for."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    KEY,
    MALLORY,
    JsonElement,
    RiggedLog,
    RiggedSnapshots,
    counter_of,
    document,
    link_of,
    opened,
    put_in,
    set_op,
    signed_snapshot,
    spoiled,
    state_of,
    write_packed,
    write_starfish,
)
from walstore.crdt import WalCrdt
from walstore.crdt.runs import Set
from walstore.document import (
    Event,
    Gap,
    Marks,
    NoSnapshotStoreError,
    RejectedElementsError,
    Rejection,
    Rollback,
    RollbackDetectedError,
    SnapshotConflictError,
    SnapshotMismatchError,
    SnapshotRefusedError,
    SnapshotVerdict,
    WalDocument,
)
from walstore.sealed import ContentKeys, NativeEncryptor
from walstore.signed import Identity, sign_append, sign_document

POSTURES = ["trust", "trust-retain-tail", "re-derive"]
WIRES = ["packed", "starfish"]

every_posture = pytest.mark.parametrize("posture", POSTURES)
every_wire = pytest.mark.parametrize("wire", WIRES)


async def write(log: RiggedLog, who: Identity, *names: str, **options: Any) -> WalDocument:
    """A new session that writes one element for each name."""
    doc = await opened(log, who, **options)
    for name in names:
        doc.set_field(name, name)
        doc.push("list", name)
        await doc.commit()
    return doc


async def filled(wire: str = "packed") -> tuple[RiggedLog, RiggedSnapshots]:
    """Three elements of two people, a snapshot by the first, and a tail of two elements."""
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await write(log, ALICE, "a1", "a2", snapshot_store=store, wire=wire)
    await write(log, BOB, "b1", wire=wire)
    await alice.snapshot()
    await write(log, BOB, "b2", wire=wire)
    await write(log, ALICE, "a3", wire=wire)
    return log, store


async def full_fold(log: RiggedLog, **options: Any) -> WalDocument:
    return await opened(RiggedLog(log.elements), CAROL, on_author_error="skip", **options)


def stored(store: RiggedSnapshots) -> dict[str, Any]:
    assert isinstance(store.document, dict)
    return store.document


# ── what is believed ───────────────────────────────────────────────────────────────────


@every_wire
@every_posture
async def test_a_reader_resumes_where_the_snapshot_ends(posture: str, wire: str) -> None:
    log, store = await filled(wire)
    events: list[Event] = []
    reader = await opened(log, CAROL, snapshot_store=store, posture=posture, on_event=events.append)
    assert stored(store)["uptoTs"] == 3
    assert state_of(reader) == state_of(await full_fold(log))
    assert reader.current_checkpoint == 5
    assert events == []
    assert reader.snapshot_verdict is (
        SnapshotVerdict.VERIFIED if posture == "re-derive" else SnapshotVerdict.TRUSTED
    )
    assert reader.snapshot_verified is (True if posture == "re-derive" else None)
    assert not reader.detected_gaps()


@every_posture
async def test_without_a_snapshot_there_is_no_verdict(posture: str) -> None:
    log, _ = await filled()
    reader = await opened(log, CAROL, snapshot_store=RiggedSnapshots(), posture=posture)
    assert reader.snapshot_verdict is SnapshotVerdict.NONE
    assert reader.snapshot_verified is None
    assert state_of(reader) == state_of(await full_fold(log))


async def test_a_document_without_a_store_neither_reads_nor_writes_snapshots() -> None:
    doc = await opened(RiggedLog())
    with pytest.raises(NoSnapshotStoreError):
        await doc.snapshot()


@every_posture
async def test_a_snapshot_of_an_empty_log_is_a_snapshot(posture: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    doc = await opened(log, snapshot_store=store)
    await doc.snapshot()
    assert (await opened(log, BOB, snapshot_store=store, posture=posture)).materialize() == {}


# ── forged, foreign, false ─────────────────────────────────────────────────────────────


def relabelled(document: dict[str, Any]) -> dict[str, Any]:
    """Signed by Mallory in the name of Alice."""
    content = {name: document[name] for name in ("state", "uptoTs", "writerSeq")}
    return signed_snapshot({**content, "producedBy": ALICE.public_key}, MALLORY)


def of_another_document(document: dict[str, Any]) -> dict[str, Any]:
    content = {name: document[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    proof = sign_document("spaces/s1/other__snapshot", content, ALICE)
    return {**document, "authorSignature": proof.author_signature}


def of_the_wrong_domain(document: dict[str, Any]) -> dict[str, Any]:
    content = {name: document[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    proof = sign_append(KEY + "__snapshot", content, ALICE)
    return {**document, "authorSignature": proof.author_signature}


def with_another_state(document: dict[str, Any]) -> dict[str, Any]:
    lie = WalCrdt()
    lie.apply(set_op(ALICE, 1, "forged"))
    return {**document, "state": lie.export_state()}


def without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda document: {key: value for key, value in document.items() if key != name}


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "signed by another key": relabelled,
    "for another document": of_another_document,
    "in the wrong domain": of_the_wrong_domain,
    "with another state": with_another_state,
    "with a raised uptoTs": lambda document: {**document, "uptoTs": document["uptoTs"] + 1},
    "with a lowered uptoTs": lambda document: {**document, "uptoTs": document["uptoTs"] - 1},
    "with an altered writerSeq": lambda document: {**document, "writerSeq": {"x": 1}},
    "relabelled": lambda document: {**document, "producedBy": BOB.public_key},
    "with another signer": lambda document: {**document, "authorPubkey": BOB.public_key},
    "with a garbled signature": lambda document: {**document, "authorSignature": "AAAA"},
    "with a signature that is a number": lambda document: {**document, "authorSignature": 7},
    "without a state": without("state"),
    "without an uptoTs": without("uptoTs"),
    "without a writerSeq": without("writerSeq"),
    "without a producer": without("producedBy"),
    "without a key": without("authorPubkey"),
    "without a signature": without("authorSignature"),
    "that is empty": lambda document: {},
    "that is a list": lambda document: [document],
    "that is text": lambda document: "snapshot",
}


@every_posture
@pytest.mark.parametrize("name", sorted(FORGERIES))
async def test_a_forged_snapshot_is_refused(name: str, posture: str) -> None:
    log, store = await filled()
    forged = FORGERIES[name](deepcopy(stored(store)))
    events: list[Event] = []
    reader = document(
        log,
        CAROL,
        snapshot_store=RiggedSnapshots(forged),
        posture=posture,
        on_event=events.append,
    )
    with pytest.raises(RejectedElementsError):
        await reader.open()
    assert reader.snapshot_verdict is SnapshotVerdict.FORGED
    assert reader.snapshot_verified is False
    assert state_of(reader) == state_of(await full_fold(log))
    # One event, with the forgery as evidence.
    assert [type(event) for event in events] == [Rejection]
    assert isinstance(events[0], Rejection)
    assert events[0].evidence == forged
    # The document is open, and the forgery is in nobody's way.
    reader.set_field("mine", 1)
    await reader.commit()
    await reader.snapshot()
    assert await reader.pull() == 0


@every_posture
async def test_a_snapshot_without_the_role_is_as_good_as_none(posture: str) -> None:
    log, store = await filled()
    content = {name: stored(store)[name] for name in ("state", "uptoTs", "writerSeq")}
    foreign = signed_snapshot({**content, "producedBy": MALLORY.public_key}, MALLORY)
    events: list[Event] = []
    reader = await opened(
        log,
        CAROL,
        snapshot_store=RiggedSnapshots(foreign),
        posture=posture,
        on_event=events.append,
    )
    assert events == []
    assert reader.snapshot_verdict is SnapshotVerdict.NONE
    assert state_of(reader) == state_of(await full_fold(log))


@every_posture
async def test_who_may_write_may_not_sign_snapshots_for_that(posture: str) -> None:
    log, store = await filled()
    role = {BOB.public_key}
    reader = await opened(log, CAROL, snapshot_store=store, snapshot_role=role, posture=posture)
    assert reader.snapshot_verdict is SnapshotVerdict.NONE


def without_the_last_element(document: dict[str, Any], log: RiggedLog) -> dict[str, Any]:
    """A lie by the holder of the role: the newest covered element is not in the state."""
    lie = WalCrdt()
    for element in log.elements[:2]:
        lie.fold(element["data"]["ops"])
    return {**document, "state": {**document["state"], **lie.export_state()}}


def with_a_hidden_tombstone(document: dict[str, Any], log: RiggedLog) -> dict[str, Any]:
    state = deepcopy(document["state"])
    state["lists"]["list"][0]["deleted"] = True
    return {**document, "state": state}


def with_an_invented_value(document: dict[str, Any], log: RiggedLog) -> dict[str, Any]:
    state = deepcopy(document["state"])
    state["regs"]["a1"]["value"] = "invented"
    return {**document, "state": state}


def with_an_invented_map(document: dict[str, Any], log: RiggedLog) -> dict[str, Any]:
    lie = WalCrdt()
    lie.import_state(document["state"])
    clock = set_op(ALICE, 3, 0)["clock"]
    lie.fold([{"t": "put", "map": "m", "key": "k", "value": 1, "clock": clock}])
    state = lie.export_state()
    return {**document, "state": {**state, "x": {**document["state"]["x"], **state["x"]}}}


def at_no_elements_ts(document: dict[str, Any], log: RiggedLog) -> dict[str, Any]:
    log.elements[3]["ts"] += 5
    log.elements[4]["ts"] += 5
    return {**document, "uptoTs": 4}


def counting_others(document: dict[str, Any], log: RiggedLog) -> dict[str, Any]:
    return {**document, "writerSeq": {**document["writerSeq"], ALICE.public_key: 1}}


def counting_other_sessions(document: dict[str, Any], log: RiggedLog) -> dict[str, Any]:
    state = deepcopy(document["state"])
    for replica in state["x"]["seqs"]:
        state["x"]["seqs"][replica] -= 1
    return {**document, "state": state}


LIES: dict[str, Callable[[dict[str, Any], RiggedLog], dict[str, Any]]] = {
    "without the last element": without_the_last_element,
    "with a hidden tombstone": with_a_hidden_tombstone,
    "with an invented value": with_an_invented_value,
    "with an invented map": with_an_invented_map,
    "at no element's ts": at_no_elements_ts,
    "counting others": counting_others,
    "counting other sessions": counting_other_sessions,
}


async def lied_about(name: str) -> tuple[RiggedLog, RiggedSnapshots]:
    log, store = await filled("starfish")
    lie = LIES[name](deepcopy(stored(store)), log)
    content = {name: lie[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    return log, RiggedSnapshots(signed_snapshot(content, ALICE))


@pytest.mark.parametrize("name", sorted(LIES))
async def test_a_false_snapshot_is_found_out_by_deriving_it(name: str) -> None:
    log, store = await lied_about(name)
    lie = stored(store)
    events: list[Event] = []
    reader = document(log, CAROL, snapshot_store=store, posture="re-derive", on_event=events.append)
    with pytest.raises(SnapshotMismatchError):
        await reader.open()
    assert reader.snapshot_verdict is SnapshotVerdict.MISMATCH
    assert reader.snapshot_verified is False
    assert state_of(reader) == state_of(await full_fold(log))
    assert [event.evidence for event in events if isinstance(event, Rejection)] == [lie]
    assert len(events) == 1
    # What is found out once is not raised again, and an honest snapshot can take its place.
    assert await reader.pull() == 0
    await reader.snapshot()
    again = await opened(log, BOB, snapshot_store=store, posture="re-derive")
    assert again.snapshot_verified is True


async def test_a_false_snapshot_is_replaced_even_if_nothing_came_after_it() -> None:
    log, store = await lied_about("with an invented value")
    log = log.kept(lambda element: element["ts"] <= 3)
    reader = document(log, CAROL, snapshot_store=store, posture="re-derive", on_author_error="skip")
    await reader.open()
    await reader.snapshot()
    again = await opened(log, BOB, snapshot_store=store, posture="re-derive")
    assert again.snapshot_verified is True


@pytest.mark.parametrize("has_tail", [True, False])
async def test_a_tail_that_contradicts_the_snapshot_gives_it_away(has_tail: bool) -> None:
    log, store = await lied_about("without the last element")
    if has_tail:

        async def tail(document_key: str, upto: int, count: int) -> list[JsonElement]:
            return deepcopy([each for each in log.elements if each["ts"] <= upto][-count:])

        log.tail = tail  # type: ignore[attr-defined]
    reader = document(log, CAROL, snapshot_store=store)
    with pytest.raises(SnapshotMismatchError):
        await reader.open()
    assert reader.snapshot_verified is False
    # Nothing is signed on top of a lie.
    with pytest.raises(SnapshotRefusedError, match="false"):
        await reader.snapshot()
    assert stored(store)["producedBy"] == ALICE.public_key


async def test_who_trusts_a_snapshot_looks_at_nothing_that_it_covers() -> None:
    log, store = await lied_about("without the last element")
    reader = await opened(log, CAROL, snapshot_store=store, posture="trust")
    assert reader.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert all(each.ts > stored(store)["uptoTs"] for each in reader.retained_tail())


async def test_an_element_that_was_refused_for_its_counter_is_no_contradiction() -> None:
    """Whoever jumps too far, and then almost as far, puts no honest snapshot in the wrong."""
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await write(log, ALICE, "a1", snapshot_store=store, on_author_error="skip")
    put_in(log, write_starfish(BOB, [set_op(BOB, 2**32 + 500, "refused")], seq=1))
    put_in(log, write_starfish(BOB, [set_op(BOB, 2**32, "taken")], seq=2))
    await alice.snapshot(over_gaps=True)
    assert alice.field("title") == "taken"
    reader = await opened(log, CAROL, snapshot_store=store)
    assert reader.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert state_of(reader) == state_of(await full_fold(log))


# ── old and new ────────────────────────────────────────────────────────────────────────


async def test_a_stale_snapshot_does_not_replace_a_newer_one() -> None:
    """The store changes between reading and writing: the one that covers more stays."""
    log, store = RiggedLog(), RiggedSnapshots()
    slow = await write(log, ALICE, "a1", snapshot_store=store)
    newer = RiggedSnapshots()
    before = list(log.elements)
    late = await write(log, BOB, "b1", "b2", snapshot_store=newer)
    await late.snapshot()
    # The slow one has not been given what the newer snapshot covers.
    log.elements[:] = before

    def somebody_was_faster() -> None:
        store.document = newer.document

    store.before_write = somebody_was_faster
    assert await slow.snapshot() == newer.document
    assert store.document == newer.document
    assert store.writes == []


async def test_a_newer_snapshot_replaces_a_stale_one_that_came_in_between() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    first = await write(log, ALICE, "a1", snapshot_store=store)
    older = await first.snapshot()
    store.document = None
    fast = await write(log, BOB, "b1", snapshot_store=store)

    def an_older_one_comes_first() -> None:
        store.document = older

    store.before_write = an_older_one_comes_first
    newer = await fast.snapshot()
    assert newer["uptoTs"] == 2
    assert stored(store) == newer


async def test_a_store_that_never_agrees_is_given_up() -> None:
    class Restless(RiggedSnapshots):
        reads = 0

        async def read(self, snapshot_key: str) -> Any:
            self.reads += 1
            self.document = {"round": self.reads}
            return await super().read(snapshot_key)

    store = Restless()
    doc = await write(RiggedLog(), ALICE, "a1", snapshot_store=store, on_author_error="skip")
    store.reads = 0
    with pytest.raises(SnapshotConflictError):
        await doc.snapshot()
    # Read once before each attempt and once by each write.
    assert store.reads == 6
    assert store.writes == []


@every_posture
async def test_an_older_snapshot_than_before_is_a_rollback(posture: str) -> None:
    log, store = await filled()
    old = deepcopy(stored(store))
    reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
    await reader.snapshot()
    marks = (await opened(log, CAROL, snapshot_store=store, posture=posture)).marks
    assert marks.snapshot_ts == 5
    for served, reason in ((old, "older"), (None, "gone")):
        events: list[Event] = []
        again = document(
            log,
            CAROL,
            snapshot_store=RiggedSnapshots(served),
            posture=posture,
            marks=marks,
            on_event=events.append,
        )
        with pytest.raises(RollbackDetectedError, match=reason):
            await again.open()
        assert [type(event) for event in events] == [Rollback]
        assert state_of(again) == state_of(await full_fold(log))


def encryptor(*epochs: int) -> NativeEncryptor:
    keys = {epoch: bytes([epoch]) * 32 for epoch in epochs}
    return NativeEncryptor(ContentKeys(max(epochs), keys), randomness=os.urandom)


async def test_what_another_device_has_sealed_with_a_newer_key_stays_and_raises_nothing() -> None:
    """Both are of one author, and the keys of one of them are older."""
    log, snapshots = RiggedLog(), RiggedSnapshots()
    here = await write(log, ALICE, "a1", snapshot_store=snapshots, encryptor=encryptor(1))
    before = state_of(here)
    there = await opened(log, ALICE, snapshot_store=snapshots, encryptor=encryptor(1, 2))
    theirs = await there.snapshot()
    assert theirs["state"]["_epoch"] == 2
    assert await here.snapshot() == theirs
    assert stored(snapshots) == theirs
    assert state_of(here) == before


async def test_a_snapshot_that_needs_a_newer_key_is_not_overwritten() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    old = await write(log, ALICE, "a1", snapshot_store=store, encryptor=encryptor(1))
    new = await write(log, BOB, "b1", snapshot_store=store, encryptor=encryptor(1, 2))
    newest = await new.snapshot()
    frozen = log.kept(lambda element: element["ts"] == 1)
    behind = await opened(frozen, ALICE, snapshot_store=store, encryptor=encryptor(1))
    assert behind.snapshot_verdict is SnapshotVerdict.NONE
    assert await behind.snapshot() == newest
    assert stored(store) == newest
    # Who cannot read everything cannot sign over it either.
    with pytest.raises(SnapshotRefusedError, match="cannot be opened"):
        await old.snapshot()


async def test_a_late_joiner_reads_a_snapshot_under_the_newest_key() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    await write(log, ALICE, "a1", encryptor=encryptor(1))
    alice = await write(log, ALICE, "a2", snapshot_store=store, encryptor=encryptor(1, 2))
    await alice.snapshot()
    only_new = NativeEncryptor(ContentKeys(2, {2: bytes([2]) * 32}), randomness=os.urandom)
    for posture in POSTURES:
        joiner = await opened(log, BOB, snapshot_store=store, encryptor=only_new, posture=posture)
        assert joiner.values("list") == ["a1", "a2"]
        assert joiner.snapshot_verdict is not SnapshotVerdict.MISMATCH
    without_snapshot = await opened(log, BOB, encryptor=only_new)
    assert without_snapshot.unreadable == 1
    assert without_snapshot.materialize() == {"a2": "a2", "list": []}


# ── pruned logs ────────────────────────────────────────────────────────────────────────

PRUNED: dict[str, Callable[[JsonElement], bool]] = {
    "nothing": lambda element: True,
    "the first element": lambda element: bool(element["ts"] > 1),
    "all of one author": lambda element: bool(element["ts"] > 2),
    "all that is covered": lambda element: bool(element["ts"] > 3),
}


@every_wire
@every_posture
@pytest.mark.parametrize("pruned", sorted(PRUNED))
async def test_a_pruned_log_opens_from_the_snapshot(pruned: str, posture: str, wire: str) -> None:
    log, store = await filled(wire)
    expected = state_of(await full_fold(log))
    events: list[Event] = []
    reader = await opened(
        log.kept(PRUNED[pruned]),
        CAROL,
        snapshot_store=store,
        posture=posture,
        on_event=events.append,
        strict_sequence=True,
    )
    assert state_of(reader) == expected
    assert events == []
    assert reader.detected_gaps() == []
    if posture == "re-derive":
        is_whole = pruned == "nothing"
        verdict = SnapshotVerdict.VERIFIED if is_whole else SnapshotVerdict.UNVERIFIABLE
        assert reader.snapshot_verdict is verdict
        assert reader.snapshot_verified is (True if is_whole else None)


async def test_a_pruned_log_speaks_for_no_snapshot_even_if_nothing_of_it_shows() -> None:
    """What was pruned left no trace in the state; that it was true can still not be known."""
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await opened(log, ALICE, snapshot_store=store)
    for value in ("overwritten", "shown"):
        alice.set_field("title", value)
        await alice.commit()
    await alice.snapshot()
    log.prune(1)
    events: list[Event] = []
    reader = await opened(
        log, CAROL, snapshot_store=store, posture="re-derive", on_event=events.append
    )
    assert reader.snapshot_verdict is SnapshotVerdict.UNVERIFIABLE
    assert events == []
    assert reader.detected_gaps() == []


@every_posture
async def test_a_log_pruned_to_nothing_opens_from_the_snapshot(posture: str) -> None:
    log, store = await filled()
    alice = await opened(log, ALICE, snapshot_store=store)
    await alice.snapshot()
    reader = await opened(RiggedLog(), CAROL, snapshot_store=store, posture=posture)
    assert state_of(reader) == state_of(await full_fold(log))
    assert reader.snapshot_verified is None


@every_wire
@every_posture
@pytest.mark.parametrize("pruned", sorted(PRUNED))
async def test_a_snapshot_after_pruning_is_the_one_before_and_the_tail(
    pruned: str, posture: str, wire: str
) -> None:
    log, store = await filled(wire)
    expected = state_of(await full_fold(log))
    after = log.kept(PRUNED[pruned])
    producer = await opened(after, BOB, snapshot_store=store, posture=posture, wire=wire)
    document = await producer.snapshot()
    assert document["uptoTs"] == 5
    assert stored(store) == document
    reader = await opened(RiggedLog(), CAROL, snapshot_store=store)
    assert state_of(reader) == expected
    # What was pruned away makes no gap for those who come later, whatever they have seen before.
    await write(after, ALICE, "a4", snapshot_store=store, wire=wire)
    last = await opened(after, CAROL, snapshot_store=store, strict_sequence=True)
    assert last.detected_gaps() == []
    assert last.values("list") == ["a1", "a2", "b1", "b2", "a3", "a4"]


@every_wire
async def test_sessions_come_and_go_over_snapshots_without_false_alarms(wire: str) -> None:
    """Sessions end, others of the same author go on; marks, chains and counts all hold."""
    log, store = RiggedLog(), RiggedSnapshots()
    marks = Marks()
    long_lived = await opened(log, BOB, snapshot_store=store, wire=wire)
    for number in range(6):
        doc = await write(log, ALICE, f"a{number}", snapshot_store=store, wire=wire)
        other = await opened(log, ALICE, snapshot_store=store, wire=wire)
        await long_lived.pull()
        long_lived.set_field("bob", number)
        await long_lived.commit()
        # A session that saw an earlier head goes on after a snapshot.
        await (doc if number % 2 else long_lived).snapshot()
        other.set_field("late", number)
        await other.commit()
        for posture in POSTURES:
            events: list[Event] = []
            reader = await opened(
                log,
                CAROL,
                snapshot_store=store,
                posture=posture,
                marks=marks,
                strict_sequence=True,
                on_event=events.append,
            )
            assert events == []
            assert reader.detected_gaps() == []
            assert reader.snapshot_verified is (True if posture == "re-derive" else None)
            assert state_of(reader) == state_of(await full_fold(log))
            marks = reader.marks


# ── what is never signed away ──────────────────────────────────────────────────────────


async def test_no_snapshot_is_signed_over_a_gap() -> None:
    log, _ = await filled()
    holed = log.kept(lambda element: element["ts"] != 1)
    store = RiggedSnapshots()
    producer = await opened(holed, BOB, snapshot_store=store)
    with pytest.raises(SnapshotRefusedError, match="gap"):
        await producer.snapshot()
    assert store.document is None
    # The hole is filled: late, and under another `ts`.
    first = log.elements[0]
    holed.add(first["data"], first["authorPubkey"], first["authorSignature"])
    await producer.snapshot()
    reader = await opened(RiggedLog(), CAROL, snapshot_store=store)
    assert state_of(reader) == state_of(await full_fold(log))


async def test_a_withheld_element_is_not_signed_away_either() -> None:
    """No seq is missing, but somebody has seen more than this reader was given."""
    log, store = RiggedLog(), RiggedSnapshots()
    await write(log, ALICE, "a1")
    await write(log, BOB, "b1")
    cut = log.kept(lambda element: element["authorPubkey"] == BOB.public_key)
    producer = await opened(cut, CAROL, snapshot_store=store)
    with pytest.raises(SnapshotRefusedError, match="gap"):
        await producer.snapshot()


async def test_no_snapshot_is_signed_over_what_cannot_be_read() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    await write(log, ALICE, "a1", encryptor=encryptor(1))
    only_new = NativeEncryptor(ContentKeys(2, {2: bytes([2]) * 32}), randomness=os.urandom)
    producer = await opened(log, BOB, snapshot_store=store, encryptor=only_new)
    with pytest.raises(SnapshotRefusedError, match="cannot be opened"):
        await producer.snapshot()
    only_new.adopt(ContentKeys(2, {1: bytes([1]) * 32, 2: bytes([2]) * 32}))
    assert await producer.retry_unreadable() == 1
    await producer.snapshot()
    assert producer.values("list") == ["a1"]


async def test_an_author_whose_element_was_rejected_keeps_snapshots_from_being_signed() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    put_in(log, write_starfish(BOB, [{"t": "set"}]))
    producer = await opened(log, ALICE, snapshot_store=store, on_author_error="skip")
    with pytest.raises(SnapshotRefusedError, match="rejected"):
        await producer.snapshot()


async def test_signing_over_something_missing_is_said_in_the_snapshot() -> None:
    log, _ = await filled()
    store = RiggedSnapshots()
    holed = log.kept(lambda element: element["ts"] != 1)
    producer = await opened(holed, BOB, snapshot_store=store)
    document = await producer.snapshot(over_gaps=True)
    assert len(document["state"]["x"]["over"]) == 1
    assert "gap" in document["state"]["x"]["over"][0]


async def test_whoever_may_not_write_cannot_keep_others_from_a_snapshot() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    for number in range(5):
        put_in(log, write_packed(MALLORY, [], session=str(number), seq=9))
    alice = await opened(log, ALICE, snapshot_store=store, on_author_error="skip")
    alice.set_field("a", 1)
    await alice.commit()
    document = await alice.snapshot()
    # It says whom it leaves out, for when they are made a writer, and counts nothing of theirs.
    assert document["state"]["x"].pop("without") == [MALLORY.public_key]
    assert MALLORY.public_key not in str(document)


async def test_a_snapshot_holds_nothing_that_was_not_committed() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    doc = await write(log, ALICE, "a1", snapshot_store=store)
    doc.set_field("private", "draft")
    doc.push("list", "draft")
    await doc.snapshot()
    reader = await opened(log, CAROL, snapshot_store=store)
    assert reader.materialize() == {"a1": "a1", "list": ["a1"]}
    assert doc.field("private") == "draft"
    await doc.commit()
    await reader.pull()
    assert reader.materialize() == doc.materialize()


async def test_a_plain_snapshot_with_a_name_that_servers_drop_is_not_published() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "x", "constructor")]))
    alice = await opened(log, ALICE, snapshot_store=store, wire="starfish")
    with pytest.raises(SnapshotRefusedError, match="constructor"):
        await alice.snapshot()
    packed = await opened(log, ALICE, snapshot_store=store)
    await packed.snapshot()
    assert (await opened(log, CAROL, snapshot_store=store)).field("constructor") == "x"


# ── clocks ─────────────────────────────────────────────────────────────────────────────


@every_wire
@every_posture
async def test_an_edit_after_a_snapshot_wins(posture: str, wire: str) -> None:
    """Every clock in a snapshot counts as seen, also of what was removed again."""
    log, store = RiggedLog(), RiggedSnapshots()
    writer = await opened(log, ALICE, snapshot_store=store, wire=wire)
    writer.set_text("text", "x" * 100)
    await writer.commit()
    writer.set_text("text", "")
    writer.set_field("title", "old")
    writer.delete_field("gone")
    await writer.commit()
    await writer.snapshot()
    highest = counter_of(writer)
    log.prune(2)
    for who in (ALICE, BOB):
        doc = await opened(log, who, snapshot_store=store, posture=posture, wire=wire)
        assert counter_of(doc) >= highest
        doc.set_field("title", "new")
        assert doc.field("title") == "new"
        doc.insert_text("text", 0, who.public_key[:4])
        await doc.commit()
        events: list[Event] = []
        reader = await opened(
            log, CAROL, snapshot_store=store, posture=posture, on_event=events.append
        )
        assert reader.field("title") == "new"
        assert reader.text("text").startswith(who.public_key[:4])
        assert events == []


# ── the retained tail ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [0, 1, 2, 4, 64])
async def test_the_retained_tail_is_the_newest_elements_covered_or_not(count: int) -> None:
    log, store = await filled()
    reader = await opened(log, CAROL, snapshot_store=store, retain_tail_n=count)
    newest = [element["ts"] for element in log.elements][len(log.elements) - count :]
    newest = newest if count < len(log.elements) else [1, 2, 3, 4, 5]
    assert [element.ts for element in reader.retained_tail()] == (newest if count else [])
    assert [element.as_json() for element in reader.retained_tail()] == [
        element for element in log.elements if count and element["ts"] in newest
    ]
    await write(log, BOB, "b3")
    await reader.pull()
    assert [element.ts for element in reader.retained_tail()] == [*newest, 6][-count:][: count or 0]


async def test_a_snapshot_that_covers_everything_leaves_a_tail_to_check() -> None:
    log, store = await filled()
    await (await opened(log, ALICE, snapshot_store=store)).snapshot()
    reader = await opened(log, CAROL, snapshot_store=store, retain_tail_n=3)
    assert stored(store)["uptoTs"] == 5
    assert [element.ts for element in reader.retained_tail()] == [3, 4, 5]


# ── the law ────────────────────────────────────────────────────────────────────────────

steps = st.lists(
    st.tuples(
        st.sampled_from(["edit", "edit", "edit", "text", "remove", "map", "new session"])
        | st.sampled_from(["snapshot", "prune", "pull"]),
        st.integers(0, 2),
        st.integers(0, 7),
    ),
    max_size=25,
)


class _Scene:
    """Three people at one log, who come and go."""

    people = (ALICE, BOB, CAROL)

    def __init__(self, wire: str) -> None:
        self.log, self.store, self.wire = RiggedLog(), RiggedSnapshots(), wire
        self.docs: list[WalDocument] = []

    async def join(self, who: int) -> WalDocument:
        return await opened(self.log, self.people[who], snapshot_store=self.store, wire=self.wire)

    async def prune(self, upto: int) -> None:
        for reader in self.docs:
            # Who has not read what is pruned has to open the document anew.
            await reader.pull()
        if self.store.document is not None:
            self.log.prune(min(stored(self.store)["uptoTs"], upto))

    async def step(self, what: str, who: int, number: int) -> None:
        doc = self.docs[who]
        match what:
            case "edit":
                doc.set_field(f"f{number % 3}", number)
                doc.insert("list", number, number)
            case "text":
                doc.set_text("text", doc.text("text")[number:] + "abcdefgh"[number:])
            case "remove":
                doc.remove_at("list", number)
                doc.delete_field(f"f{number % 3}")
            case "map":
                doc.put("map", str(number % 2), number)
                doc.drop("map", str((number + 1) % 2))
            case "snapshot":
                await doc.snapshot()
            case "prune":
                await self.prune(number * 3)
            case "pull":
                await doc.pull()
            case _:
                doc = self.docs[who] = await self.join(who)
        await doc.commit()


@settings(deadline=None, max_examples=80)
@given(steps, st.sampled_from(WIRES))
async def test_snapshot_and_tail_are_the_full_fold(
    script: list[tuple[str, int, int]], wire: str
) -> None:
    scene = _Scene(wire)
    log, store, docs = scene.log, scene.store, scene.docs
    docs += [await scene.join(who) for who in range(3)]
    whole: dict[int, JsonElement] = {}
    for what, who, number in script:
        await scene.step(what, who, number)
        whole.update({element["ts"]: element for element in log.elements})
    expected = state_of(await full_fold(RiggedLog([whole[ts] for ts in sorted(whole)])))
    for doc in docs:
        await doc.pull()
        assert state_of(doc) == expected
    for posture in POSTURES:
        events: list[Event] = []
        reader = await opened(
            log, BOB, snapshot_store=store, posture=posture, on_event=events.append
        )
        assert state_of(reader) == expected
        assert events == []
        assert reader.snapshot_verdict is not SnapshotVerdict.MISMATCH


# ── what a snapshot names as the newest elements ───────────────────────────────────────


def naming(store: RiggedSnapshots, *elements: JsonElement) -> None:
    """Have a producer name elements as the newest that it has covered."""
    content = {name: stored(store)[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    heads = content["state"]["x"]["heads"]
    for element in elements:
        own = heads.setdefault(element["authorPubkey"], [])
        own.append([link_of(element), "named", 1])
    store.document = signed_snapshot(content, ALICE)


@every_posture
async def test_a_producer_and_a_relay_write_nothing_under_the_key_of_another(posture: str) -> None:
    log, store = await filled()
    clock = f"{BOB.public_key}:forged"
    before = spoiled(write_packed(BOB, [Set("before", clock, 50, 1)], session="forged"))
    last = spoiled(
        write_packed(
            BOB, [Set("last", clock, 51, 1)], session="forged", seq=2, prev=link_of(before)
        )
    )
    naming(store, last)
    put_in(log, before)
    put_in(log, last)
    events: list[Event] = []
    reader = await opened(
        log,
        CAROL,
        snapshot_store=store,
        posture=posture,
        on_author_error="skip",
        on_event=events.append,
    )
    assert {"before", "last"}.isdisjoint(reader.names())
    assert [event.ts for event in events if isinstance(event, Rejection)] == [6, 7]


async def test_what_is_named_and_delivered_again_is_taken_if_it_is_signed() -> None:
    log, store = await filled()
    good = write_packed(BOB, [Set("good", f"{BOB.public_key}:s", 50, 1)])
    naming(store, good)
    put_in(log, good)
    reader = await opened(log, CAROL, snapshot_store=store, posture="trust")
    assert reader.field("good") == 1


# ── what waits to be sent ──────────────────────────────────────────────────────────────


async def test_a_snapshot_that_claims_to_cover_unsent_edits_loses_none() -> None:
    log, store = await filled()
    alice = await opened(log, ALICE, snapshot_store=store, posture="trust")
    alice.set_field("mine", 1)
    alice.seal()
    content = {name: stored(store)[name] for name in ("state", "uptoTs", "writerSeq")}
    content["writerSeq"][f"{ALICE.public_key}:{alice.session}"] = 9
    store.document = signed_snapshot({**content, "producedBy": BOB.public_key}, BOB)
    await alice.reread()
    assert (alice.field("mine"), alice.unsent) == (1, 1)
    await alice.commit()
    await alice.pull()
    assert (alice.field("mine"), alice.unconfirmed) == (1, 0)
    assert (await full_fold(log)).field("mine") == 1


async def test_what_a_snapshot_covers_and_is_sent_once_more_changes_nothing() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await opened(log, ALICE, snapshot_store=store, posture="trust")
    alice.push("list", "a")
    alice.seal()
    # The answer is lost.
    body = alice._outbox.waiting()[0].body
    await log.append(KEY, body)
    other = await opened(log, ALICE)
    other.set_field("x", 1)
    await other.commit()
    bob = await opened(log, BOB, snapshot_store=store)
    bob.remove_at("list", 0)
    bob.push("list", "b")
    await bob.commit()
    await bob.snapshot()
    log.prune(3)
    # It is covered, but what the snapshot names is what another session went on with.
    await alice.reread()
    assert (alice.values("list"), alice.unsent) == (["b"], 1)
    await alice.commit()
    for reader in (alice, bob, await opened(log, CAROL, snapshot_store=store)):
        await reader.pull()
        assert reader.values("list") == ["b"]
        assert (reader.unconfirmed, reader.detected_gaps()) == (0, [])


async def test_what_was_noticed_is_told_though_who_is_told_of_changes_fails() -> None:
    log, _ = await filled()
    events: list[Event] = []

    def fail(_: object) -> None:
        raise ValueError("a defect of the app")

    reader = await opened(
        log, CAROL, on_changed=fail, on_event=events.append, on_author_error="skip"
    )
    put_in(log, write_packed(BOB, [Set("x", f"{BOB.public_key}:s", 50, 1)], seq=4))
    put_in(log, write_packed(MALLORY, [], session="t"))
    with pytest.raises(ValueError, match="a defect"):
        await reader.pull()
    assert {type(event) for event in events} == {Gap, Rejection}
    assert len(reader.rejected()) == 1


@pytest.mark.parametrize("wire", ["packed", "starfish"])
async def test_an_edit_of_who_starts_from_a_peers_snapshot_is_newer_than_all_in_it(
    wire: str,
) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await opened(log, ALICE, wire="starfish")
    for number in range(9):
        alice.set_field("title", number)
    await alice.commit()
    # A peer does not say which clock is the highest.
    content = {
        "state": alice._log.crdt.export_state(),
        "uptoTs": 1,
        "writerSeq": {ALICE.public_key: 1},
        "producedBy": ALICE.public_key,
    }
    store.document = signed_snapshot(content, ALICE)
    log.prune(1)
    bob = await opened(log, BOB, wire=wire, snapshot_store=store)
    bob.set_field("title", "newest")
    await bob.commit()
    await alice.pull()
    assert alice.field("title") == bob.field("title") == "newest"
