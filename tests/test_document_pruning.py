"""Pruned logs, collected tombstones and deleted documents: nothing is lost, nothing comes back."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from itertools import count
from random import Random
from typing import Any

import pytest

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    KEY,
    MALLORY,
    JsonElement,
    OfflineError,
    RiggedLog,
    RiggedSnapshots,
    counter_of,
    document,
    link_of,
    opened,
    put_in,
    signed_snapshot,
    state_of,
    write_packed,
)
from walstore.canon import canonical_bytes
from walstore.crdt import COUNTER_MAX, Run, WalCrdt
from walstore.crdt.runs import Insert, Remove, Set
from walstore.document import (
    Body,
    CheckpointTooOldError,
    Displaced,
    Event,
    Marks,
    PrunedLogError,
    Rejection,
    SnapshotMismatchError,
    SnapshotRefusedError,
    SnapshotVerdict,
    StoredSnapshot,
    WalDocument,
)
from walstore.document.ports import RawElement
from walstore.errors import TransportError
from walstore.relay.checking import check_snapshot
from walstore.relay.log import covers
from walstore.relay.session import PutWhole
from walstore.sealed import ContentKeys, NativeEncryptor
from walstore.signed import Identity
from walstore.signed.roster import Counts
from walstore.wire.limits import COUNTER_JUMP_MAX

POSTURES = ["trust", "trust-retain-tail", "re-derive"]

BOBS = f"{BOB.public_key}:s"
every_posture = pytest.mark.parametrize("posture", POSTURES)
every_wire = pytest.mark.parametrize("wire", ["packed", "starfish"])


class PrunableLog(RiggedLog):
    """A log that says what is gone, and knows for ever what it has accepted."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.floor = 0
        self.known: dict[str, int] = {}
        self.is_offline = False
        self.is_answering = True
        # How often something was to be appended.
        self.asked = 0

    async def append(self, document_key: str, body: Body) -> int:
        if self.is_offline:
            raise OfflineError
        self.asked += 1
        if body.signature not in self.known:
            self.known[body.signature] = await super().append(document_key, body)
        if not self.is_answering:
            raise OfflineError
        return self.known[body.signature]

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        if self.is_offline:
            raise OfflineError
        if checkpoint < self.floor:
            raise CheckpointTooOldError(self.floor)
        return await super().pull(document_key, checkpoint)

    def prune(self, upto: int) -> None:
        super().prune(upto)
        self.floor = max(self.floor, upto)


class TailedLog(PrunableLog):
    """One that can also read from its end."""

    async def tail(self, document_key: str, upto: int, count: int) -> Sequence[object]:
        below = [each for each in self.elements if each["ts"] <= upto]
        return deepcopy(below[-count:])


def encryptor(*epochs: int) -> NativeEncryptor:
    keys = {epoch: bytes([epoch]) * 32 for epoch in epochs}
    return NativeEncryptor(ContentKeys(max(epochs), keys), randomness=os.urandom)


async def typed(
    log: RiggedLog, who: Identity, text: str, *, at: int = 0, **options: Any
) -> WalDocument:
    """A new session that inserts a text and commits it."""
    doc = await opened(log, who, **options)
    doc.insert_text("body", at, text)
    await doc.commit()
    return doc


async def written(
    log: RiggedLog, store: RiggedSnapshots, wire: str = "packed"
) -> tuple[WalDocument, WalDocument]:
    """Alice and Bob, both open, after a few elements of both."""
    alice = await opened(log, ALICE, snapshot_store=store, wire=wire)
    bob = await opened(log, BOB, snapshot_store=store, wire=wire)
    for turn, doc in enumerate([alice, bob, alice, bob, alice]):
        await doc.pull()
        doc.insert_text("body", 0, f"{turn}abc")
        doc.set_field(f"field{turn}", turn)
        doc.remove_text("body", 1, 1)
        await doc.commit()
    await alice.pull()
    return alice, bob


# ── opening a pruned log ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [PrunableLog, TailedLog])
@every_wire
@every_posture
async def test_a_pruned_log_opens_from_its_snapshot(posture: str, wire: str, kind: Any) -> None:
    log, store = kind(page_size=2), RiggedSnapshots()
    alice, bob = await written(log, store, wire)
    await alice.snapshot()
    await bob.pull()
    bob.set_field("late", True)
    await bob.commit()
    await alice.pull()
    before = await opened(log, CAROL, snapshot_store=store, posture=posture)
    log.prune(3)
    events: list[Event] = []
    after = await opened(log, CAROL, snapshot_store=store, posture=posture, on_event=events.append)
    assert state_of(after) == state_of(before) == state_of(alice)
    assert events == []
    assert after.current_checkpoint == 6
    assert after.snapshot_verdict is (
        SnapshotVerdict.UNVERIFIABLE if posture == "re-derive" else SnapshotVerdict.TRUSTED
    )
    if posture == "trust-retain-tail":
        assert [element.ts for element in after.retained_tail()] == [4, 5, 6]


@every_posture
async def test_a_pruned_log_without_a_snapshot_does_not_open(posture: str) -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    await written(log, store)
    log.prune(2)
    with pytest.raises(PrunedLogError, match=r"pruned up to 2.*there is none") as caught:
        await opened(log, CAROL, snapshot_store=store, posture=posture)
    assert caught.value.floor == 2
    assert not caught.value.retryable
    assert isinstance(caught.value, TransportError)


@every_posture
async def test_a_pruned_log_does_not_open_from_a_snapshot_that_ends_before_it(posture: str) -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    await typed(log, ALICE, "a")
    await (await opened(log, ALICE, snapshot_store=store)).snapshot()
    await typed(log, ALICE, "b")
    await typed(log, ALICE, "c")
    log.prune(2)
    with pytest.raises(PrunedLogError, match="does not reach so far"):
        await opened(log, CAROL, snapshot_store=store, posture=posture)


@every_posture
async def test_a_pruned_log_does_not_open_from_a_forged_snapshot(posture: str) -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    honest = await alice.snapshot()
    log.prune(5)
    store.document = signed_snapshot({**honest, "producedBy": ALICE.public_key}, MALLORY)
    with pytest.raises(PrunedLogError, match="not what it claims to be"):
        await opened(log, CAROL, snapshot_store=store, posture=posture)


@every_posture
async def test_a_log_that_is_pruned_while_it_is_opened_opens_from_the_new_snapshot(
    posture: str,
) -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    expected = state_of(alice)
    honest = await alice.snapshot()

    class Late(RiggedSnapshots):
        async def read(self, snapshot_key: str) -> StoredSnapshot | None:
            answer = await super().read(snapshot_key)
            log.prune(5)
            self.document = honest
            return answer

    store = Late()
    reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
    assert state_of(reader) == expected


async def test_a_pruned_log_does_not_open_without_the_key_of_its_snapshot() -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    doc = await typed(log, ALICE, "sealed", snapshot_store=store, encryptor=encryptor(1, 2))
    await doc.pull()
    await doc.snapshot()
    log.prune(1)
    reader = await opened(log, CAROL, snapshot_store=store, encryptor=encryptor(1, 2))
    assert reader.text("body") == "sealed"
    with pytest.raises(PrunedLogError, match="none that can be opened"):
        await opened(log, CAROL, snapshot_store=store, encryptor=encryptor(1))


# ── a live document below the floor ────────────────────────────────────────────────────


@every_wire
@every_posture
async def test_a_live_document_below_the_floor_goes_on_from_the_snapshot(
    posture: str, wire: str
) -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    alice, _ = await written(log, store, wire)
    carol = await opened(log, CAROL, snapshot_store=store, posture=posture, wire=wire)
    # On Carol's side: one edit that is sealed and not sent, and one that is not even sealed.
    carol.insert_text("body", 3, "SEALED")
    log.is_offline = True
    with pytest.raises(OfflineError):
        await carol.commit()
    log.is_offline = False
    carol.insert_text("body", 0, "FRESH")
    carol.set_field("carol", 1)
    base = carol.view()
    # On the other side: elements, a snapshot, and all of it pruned.
    alice.insert_text("body", 0, "alice ")
    alice.remove_text("body", 8, 2)
    await alice.commit()
    await alice.snapshot()
    log.prune(6)
    await alice.pull()
    assert await carol.pull() == 0
    assert carol.current_checkpoint == 6
    assert "SEALED" in carol.text("body")
    assert "FRESH" in carol.text("body")
    assert "alice " in carol.text("body")
    # What was shown before can still be edited.
    edited = base["body"].replace("FRESH", "FRESHER")
    carol.set_text("body", edited, base=base)
    assert "alice " in carol.text("body")
    assert "FRESHER" in carol.text("body")
    await carol.commit()
    await carol.pull()
    await alice.pull()
    assert (carol.unsent, carol.unconfirmed) == (0, 0)
    assert state_of(alice) == state_of(carol)
    assert not alice.detected_gaps()
    assert not carol.detected_gaps()


async def test_what_was_shown_is_found_again_element_by_element() -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    alice = await opened(log, ALICE, snapshot_store=store)
    alice.insert_text("body", 0, "aaaa")
    await alice.commit()
    bob = await opened(log, BOB, snapshot_store=store)
    base = bob.view()
    alice.remove_text("body", 0, 2)
    await alice.commit()
    await alice.pull()
    await alice.snapshot()
    log.prune(2)
    await bob.pull()
    assert bob.text("body") == "aa"
    # Bob removes the first two as well, in his own words: the ones that are left are not those.
    bob.set_text("body", "aa", base=base, caret=0)
    assert bob.text("body") == "aa"
    bob.set_text("body", "aab", base=base, caret=3)
    await bob.commit()
    await alice.pull()
    assert state_of(alice) == state_of(bob)


@every_wire
async def test_what_was_acknowledged_and_pruned_since_is_not_sent_again(wire: str) -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    alice, bob = await written(log, store, wire)
    bob.set_field("acknowledged", True)
    await bob.commit()
    assert bob.unconfirmed == 2
    await alice.snapshot()
    log.prune(6)
    received = len(log.received)
    await bob.pull()
    assert bob.unconfirmed == 0
    await bob.commit()
    assert len(log.received) == received
    assert state_of(bob) == state_of(alice)


@every_wire
async def test_what_was_pruned_before_it_is_acknowledged_is_sent_once_more_and_no_longer(
    wire: str,
) -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    first = await opened(log, ALICE, snapshot_store=store, wire=wire)
    first.set_field("first", 1)
    log.is_answering = False
    with pytest.raises(OfflineError):
        await first.commit()
    log.is_answering = True
    # Another session of Alice's goes on from it: it is not her newest element any more.
    second = await opened(log, ALICE, snapshot_store=store, wire=wire)
    second.set_field("second", 2)
    await second.commit()
    bob = await opened(log, BOB, snapshot_store=store, wire=wire)
    await bob.snapshot()
    log.prune(2)
    for _ in range(3):
        await first.pull()
        await first.commit()
    assert (first.unsent, first.unconfirmed) == (0, 0)
    assert [body.author for body in log.received] == [ALICE.public_key] * 2
    assert log.asked == 3
    assert state_of(first) == state_of(bob)


async def test_what_shows_nothing_is_sent_though_another_session_has_its_seq() -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    await typed(log, BOB, "a", wire="starfish")
    first = await opened(log, ALICE, snapshot_store=store, wire="starfish")
    # The same person, where no sessions are counted.
    second = await opened(log, ALICE, snapshot_store=store, wire="starfish", chained=False)
    for each in (first, second):
        each.remove_text("body", 0, 1)
    log.is_offline = True
    with pytest.raises(OfflineError):
        await first.commit()
    log.is_offline = False
    await second.commit()
    await second.snapshot()
    log.prune(2)
    await first.pull()
    first.set_field("first", 1)
    await first.commit()
    await first.pull()
    await second.pull()
    assert second.detected_gaps() == first.detected_gaps() == []
    assert state_of(first) == state_of(second)


async def test_a_live_document_without_a_usable_snapshot_says_so_and_keeps_everything() -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    alice, bob = await written(log, store)
    bob.set_field("mine", 1)
    shown = bob.materialize()
    await typed(log, ALICE, "x")
    await alice.pull()
    log.prune(6)
    with pytest.raises(PrunedLogError):
        await bob.pull()
    assert bob.materialize() == shown
    await alice.snapshot()
    await bob.pull()
    await bob.commit()
    await alice.pull()
    assert alice.field("mine") == 1


async def test_a_snapshot_that_lacks_what_was_read_before_is_a_rollback() -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    alice, bob = await written(log, store)
    stale = await alice.snapshot()
    await alice.commit()
    await bob.pull()
    marks = Marks(ts=99)
    log.prune(5)
    store.document = stale
    reader = document(log, CAROL, snapshot_store=store, marks=marks, on_author_error="skip")
    with pytest.raises(Exception, match="rolled back"):
        await reader.open()


# ── what a relay sees ──────────────────────────────────────────────────────────────────


async def test_a_packed_snapshot_shows_what_it_covers() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await written(log, store)
    first = await alice.snapshot()
    assert first["writerSeq"] == {
        f"{ALICE.public_key}:{alice.session}": 3,
        f"{BOB.public_key}:{bob.session}": 2,
    }
    assert first["state"]["x"]["sessions"] is True
    assert "seqs" not in first["state"]["x"]
    await typed(log, BOB, "more")
    second = await alice.snapshot()
    assert covers(second["writerSeq"], first["writerSeq"])
    assert not covers(first["writerSeq"], second["writerSeq"])


async def test_a_packed_snapshot_of_the_former_shape_is_read() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    new = await alice.snapshot()
    x = {name: value for name, value in new["state"]["x"].items() if name != "sessions"}
    state = {**new["state"], "x": {**x, "seqs": new["writerSeq"]}}
    content = {"uptoTs": 5, "writerSeq": {}, "producedBy": ALICE.public_key}
    store.document = signed_snapshot({"state": state, **content}, ALICE)
    reader = await opened(log, CAROL, snapshot_store=store, posture="re-derive")
    assert reader.snapshot_verdict is SnapshotVerdict.VERIFIED


async def test_a_snapshot_that_counts_a_session_wrongly_is_false() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    honest = await alice.snapshot()
    counts = {**honest["writerSeq"], f"{ALICE.public_key}:{alice.session}": 2}
    content = {name: honest[name] for name in ("state", "uptoTs", "producedBy")}
    store.document = signed_snapshot({**content, "writerSeq": counts}, ALICE)
    reader = await opened(
        log, CAROL, snapshot_store=store, posture="re-derive", on_author_error="skip"
    )
    assert reader.snapshot_verdict is SnapshotVerdict.MISMATCH


@pytest.mark.parametrize(
    ("session", "is_taken"),
    [
        ("0", True),
        (" ~", True),
        ('"\\', True),
        ("a:b", True),
        ("s" * 128, True),
        ("s" * 129, False),
        ("é", False),
        ("a\u200bb", False),
        ("\n", False),
        ("\ud800", False),
    ],
)
async def test_whatever_a_session_is_called_a_relay_takes_what_is_signed_over_it(
    session: str, is_taken: bool
) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    runs: list[Run] = [Set("x", f"{BOB.public_key}:{session}", 1, 7)]
    put_in(log, write_packed(BOB, runs, session=session))
    reader = await opened(log, ALICE, on_author_error="skip")
    assert reader.field("x") == (7 if is_taken else None)
    # Nothing is signed over what is refused, but for what is of the revoked.
    revoked = {} if is_taken else {BOB.public_key: dict[str, int]()}
    alice = await opened(
        log, ALICE, snapshot_store=store, revoked=revoked.get, on_author_error="skip"
    )
    assert_a_relay_takes(await alice.snapshot())
    assert_a_relay_takes(await alice.delete_document())


@pytest.mark.parametrize(("session", "seq"), [("s", 0), ("\n", 1), ("\ud800", 1), ("", 1)])
async def test_no_producer_has_others_sign_counts_that_no_relay_takes(
    session: str, seq: int
) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    honest = await alice.snapshot()
    seqs = {**honest["writerSeq"], f"{BOB.public_key}:{session}": seq}
    state = {**honest["state"], "x": {**honest["state"]["x"], "seqs": seqs}}
    content = {"uptoTs": 5, "writerSeq": {}, "producedBy": ALICE.public_key}
    store.document = signed_snapshot({"state": state, **content}, ALICE)
    carol = await opened(log, CAROL, snapshot_store=store, on_author_error="skip")
    carol.set_field("y", 1)
    await carol.commit()
    await carol.pull()
    assert_a_relay_takes(await carol.snapshot())


def assert_a_relay_takes(snapshot: dict[str, Any]) -> None:
    check_snapshot(PutWhole("", KEY, None, canonical_bytes(snapshot)))


# ── deleted documents ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_pruned", [False, True])
@every_posture
async def test_a_deleted_document_is_empty_and_can_be_written_again(
    posture: str, is_pruned: bool
) -> None:
    log, store = TailedLog(), RiggedSnapshots()
    alice, bob = await written(log, store)
    before = await alice.snapshot()
    deletion = await alice.delete_document()
    assert deletion["state"] is None
    assert deletion["uptoTs"] == 5
    assert covers(deletion["writerSeq"], before["writerSeq"])
    assert alice.is_deleted
    assert alice.materialize() == {}
    if is_pruned:
        log.prune(5)
    events: list[Event] = []
    reader = await opened(log, CAROL, snapshot_store=store, posture=posture, on_event=events.append)
    assert reader.is_deleted
    assert reader.materialize() == {}
    reader.insert_text("body", 0, "again")
    await reader.commit()
    await alice.pull()
    assert alice.materialize() == {"body": list("again")}
    assert [alice.is_deleted] == [False]
    again = await alice.snapshot()
    assert again["state"] is not None
    assert again["uptoTs"] > deletion["uptoTs"]
    assert covers(again["writerSeq"], deletion["writerSeq"])
    last = await opened(log, BOB, snapshot_store=store, posture=posture, on_event=events.append)
    assert last.materialize() == {"body": list("again")}
    assert last.snapshot_verdict is (
        SnapshotVerdict.TRUSTED
        if posture != "re-derive"
        else SnapshotVerdict.UNVERIFIABLE
        if is_pruned
        else SnapshotVerdict.VERIFIED
    )
    assert events == []
    assert await bob.adopt_barrier()
    assert bob.materialize() == {"body": list("again")}


async def test_deleting_twice_changes_nothing() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    assert await alice.delete_document() == await alice.delete_document()
    assert len(store.writes) == 1


async def test_a_document_with_edits_on_their_way_is_not_deleted() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    alice.set_field("mine", 1)
    with pytest.raises(SnapshotRefusedError, match="not read in the log"):
        await alice.delete_document()
    assert store.document is None
    await alice.commit()
    await alice.delete_document()
    assert alice.is_deleted


async def test_a_deletion_is_refused_where_peers_would_not_understand_it() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store, "starfish")
    with pytest.raises(SnapshotRefusedError, match="version 1"):
        await alice.delete_document()


@pytest.mark.parametrize("content", [{"state": None}, {"state": None, "uptoTs": 6}])
async def test_a_forged_deletion_deletes_nothing(content: dict[str, Any]) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    honest = await alice.snapshot()
    store.document = {**honest, **content}
    reader = await opened(log, CAROL, snapshot_store=store, on_author_error="skip")
    assert reader.snapshot_verdict is SnapshotVerdict.FORGED
    assert state_of(reader) == state_of(alice)


@every_posture
async def test_what_was_deleted_does_not_come_back_when_it_is_delivered_again(posture: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    await alice.delete_document()
    for place in range(5):
        log.replay(place)
    await alice.pull()
    assert alice.materialize() == {}
    reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
    assert reader.materialize() == {}


async def test_after_a_deletion_nobody_folds_all_anew_for_what_they_wrote_after_others() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    await alice.delete_document()
    there = [alice, await opened(log, BOB, snapshot_store=store)]
    folds = [each._log.crdt for each in there]
    for number in range(4):
        for each in there:
            each.insert_text("note", each.length("note"), str(number))
            await each.commit()
            for other in there:
                await other.pull()
    assert [each.text("note") for each in there] == ["00112233"] * 2
    assert all(each._log.crdt is fold for each, fold in zip(there, folds, strict=True))


@pytest.mark.parametrize("names", ["removes", "goes on from", "goes on from beyond"])
async def test_naming_what_comes_next_after_a_deletion_divides_no_readers(names: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    await alice.delete_document()
    alice.insert_text("body", 0, "ab")
    await alice.commit()
    await alice.pull()
    there = await opened(log, CAROL, snapshot_store=store)
    # Typed, and not in the log yet.
    following = counter_of(alice) + 1
    alice.insert_text("body", 2, "c")
    hers, his = f"{ALICE.public_key}:{alice.session}", f"{BOB.public_key}:s"
    run: Run = Remove("body", his, following, hers, following)
    if names != "removes":
        ahead = 0 if names == "goes on from" else 100
        run = Insert("body", his, following + 200, hers, following + ahead, "X")
    put_in(log, write_packed(BOB, [run]))
    await alice.pull()
    alice.insert_text("body", 2, "d")
    await alice.commit()
    for doc in (alice, there):
        await doc.pull()
    fresh = await opened(log, CAROL, snapshot_store=store)
    assert state_of(alice) == state_of(there) == state_of(fresh)
    assert alice.text("body") == there.text("body")


@pytest.mark.parametrize("names", ["removes", "goes on from"])
async def test_naming_what_was_typed_before_a_barrier_divides_no_readers(names: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await written(log, store)
    carol = await opened(log, CAROL, snapshot_store=store)
    # Typed, and not in the log yet; those who let go know nothing of it.
    following = counter_of(carol) + 1
    carol.insert_text("body", 0, "mine")
    alice.insert_text("body", 0, "far more than that")
    await alice.commit()
    await alice.pull()
    await alice.snapshot(collect=at_end(alice))
    await carol.adopt_barrier()
    hers, his = f"{CAROL.public_key}:{carol.session}", f"{BOB.public_key}:s"
    run: Run = Remove("body", his, counter_of(alice) + 1, hers, following)
    if names != "removes":
        run = Insert("body", his, counter_of(alice) + 1, hers, following, "X")
    put_in(log, write_packed(BOB, [run]))
    await carol.pull()
    await carol.commit()
    for doc in (alice, carol):
        await doc.pull()
    fresh = await opened(log, CAROL, snapshot_store=store)
    assert state_of(alice) == state_of(carol) == state_of(fresh)
    assert alice.text("body") == carol.text("body")


async def test_what_was_shown_before_a_deletion_can_still_be_edited() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await written(log, store)
    await bob.pull()
    base, latest = bob.view(), bob.text("body")
    await alice.delete_document()
    assert await bob.adopt_barrier()
    alice.insert_text("body", 0, "all new")
    await alice.commit()
    await bob.pull()
    bob.set_text("body", base["body"][2:] + ", more", base=base)
    assert sorted(bob.text("body")) == sorted("all new, more")
    bob.update({**base, "body": latest}, base=base)
    bob.set_text("body", "", base=base)
    assert sorted(bob.text("body")) == sorted("all new, more")
    await bob.commit()
    await alice.pull()
    assert state_of(alice) == state_of(bob)


async def test_edits_of_somebody_who_did_not_know_of_the_deletion_stay() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await written(log, store)
    await bob.pull()
    bob.insert_text("body", 4, "kept")
    bob.remove_text("body", 0, 2)
    await alice.delete_document()
    await bob.commit()
    events: list[Event] = []
    reader = await opened(log, CAROL, snapshot_store=store, on_event=events.append)
    assert reader.text("body") == "kept"
    assert [type(event) for event in events] == [Displaced]
    await alice.pull()
    assert state_of(alice) == state_of(reader)


async def test_edits_of_somebody_who_did_not_know_of_a_deletion_stay_after_a_barrier() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await written(log, store)
    await bob.pull()
    bob.insert_text("body", 4, "kept")
    await alice.delete_document()
    # Whoever opens it now counts from 1 again, and names nothing as high as what is gone.
    carol = await opened(log, CAROL, snapshot_store=store)
    carol.insert_text("body", 0, "new ")
    await carol.commit()
    await carol.pull()
    await carol.snapshot(collect=at_end(carol))
    events: list[Event] = []
    await bob.commit()
    reader = await opened(log, ALICE, snapshot_store=store, on_event=events.append)
    assert sorted(reader.text("body")) == sorted("new kept")
    assert [type(event) for event in events] == [Displaced]
    await carol.pull()
    await bob.adopt_barrier()
    assert state_of(carol) == state_of(bob) == state_of(reader)
    derived = await opened(log, CAROL, snapshot_store=store, posture="re-derive")
    assert derived.snapshot_verdict is SnapshotVerdict.VERIFIED
    assert state_of(derived) == state_of(reader)


# ── collected tombstones ───────────────────────────────────────────────────────────────


async def edited(log: RiggedLog, store: RiggedSnapshots) -> tuple[WalDocument, WalDocument]:
    """Two people who wrote into one another's text, and removed much of it again."""
    alice, bob = await written(log, store)
    await bob.pull()
    bob.set_text("body", "a secret and some more text")
    await bob.commit()
    await alice.pull()
    alice.remove_text("body", 2, 7)
    alice.insert_text("body", 2, "!!")
    alice.delete_field("field1")
    await alice.commit()
    await alice.pull()
    await bob.pull()
    return alice, bob


def at_end(*docs: WalDocument) -> dict[str, int]:
    return {f"reader {place}": doc.current_checkpoint for place, doc in enumerate(docs)}


async def test_collecting_drops_tombstones_and_their_values_and_shows_the_same() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await edited(log, store)
    shown = alice.materialize()
    full = await alice.snapshot()
    small = await alice.snapshot(collect=at_end(alice, bob))
    assert len(store.writes) == 2
    assert small["state"]["x"]["barrier"] == small["uptoTs"] == full["uptoTs"]
    ((name, visible, removed, *_),) = small["state"]["packed"][3]
    assert (name, removed) == ("body", 0)
    assert "secret" not in visible
    assert full["state"]["packed"][3][0][2] > 0
    assert alice.materialize() == shown
    assert '"deleted":true' not in state_of(alice).replace('"deleted":true,"value":null', "")


@pytest.mark.parametrize("is_pruned", [False, True])
@every_posture
async def test_readers_of_a_barrier_converge_with_those_who_made_it(
    posture: str, is_pruned: bool
) -> None:
    log, store = TailedLog(), RiggedSnapshots()
    alice, bob = await edited(log, store)
    await alice.snapshot(collect=at_end(alice, bob))
    if is_pruned:
        log.prune(alice.current_checkpoint)
    for doc in (alice, bob):
        await doc.pull()
        doc.insert_text("body", 3, "new")
        doc.remove_text("body", 0, 2)
        await doc.commit()
    await alice.pull()
    await bob.pull()
    assert bob.materialize() == alice.materialize()
    events: list[Event] = []
    carol = await opened(log, CAROL, snapshot_store=store, posture=posture, on_event=events.append)
    assert state_of(carol) == state_of(alice)
    if posture == "re-derive" and not is_pruned:
        assert carol.snapshot_verdict is SnapshotVerdict.VERIFIED
    # Bob has folded the same without letting go; the next snapshot is not built on that.
    await bob.snapshot()
    assert state_of(bob) == state_of(alice)
    later = await opened(log, CAROL, snapshot_store=store, posture=posture, on_event=events.append)
    assert state_of(later) == state_of(alice)
    assert events == []
    assert later.snapshot_verdict is (
        SnapshotVerdict.TRUSTED
        if posture != "re-derive"
        else SnapshotVerdict.UNVERIFIABLE
        if is_pruned
        else SnapshotVerdict.VERIFIED
    )


async def test_a_reader_who_is_behind_keeps_tombstones_from_being_collected() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await edited(log, store)
    readers = {"alice": alice.current_checkpoint, "carol": 2, "bob": bob.current_checkpoint}
    with pytest.raises(SnapshotRefusedError, match="carol, who has read up to 2 of 7") as caught:
        await alice.snapshot(collect=readers)
    assert len(caught.value.reasons) == 1
    assert store.document is None


@pytest.mark.parametrize("is_sent", [False, True])
async def test_edits_on_their_way_keep_tombstones_from_being_collected(is_sent: bool) -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    alice, bob = await edited(log, store)
    alice.insert_text("body", 0, "x")
    if is_sent:
        log.is_offline = True
        with pytest.raises(OfflineError):
            await alice.commit()
        log.is_offline = False
    with pytest.raises(SnapshotRefusedError, match="not read in the log yet"):
        await alice.snapshot(collect=at_end(alice, bob))


async def test_tombstones_are_not_collected_over_a_gap_even_if_one_insists() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await edited(log, store)
    broken = log.kept(lambda element: element["ts"] != 2)
    carol = await opened(broken, CAROL, snapshot_store=store)
    with pytest.raises(SnapshotRefusedError, match="a gap"):
        await carol.snapshot(over_gaps=True, collect=at_end(alice, bob))


@pytest.mark.parametrize("chained", [True, False])
async def test_tombstones_are_not_collected_where_version_1_is_written(chained: bool) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    await typed(log, BOB, "bob", wire="starfish", chained=chained)
    alice = await typed(log, ALICE, "alice", snapshot_store=store)
    await alice.pull()
    with pytest.raises(SnapshotRefusedError, match="no session counts"):
        await alice.snapshot(collect={})
    peer = await opened(log, CAROL, snapshot_store=store, wire="starfish")
    with pytest.raises(SnapshotRefusedError, match="know no barriers"):
        await peer.snapshot(collect={})


async def late_writer(log: RiggedLog, store: RiggedSnapshots) -> tuple[WalDocument, WalDocument]:
    """Somebody who was not counted, with an edit in the middle of what was let go."""
    alice, _ = await edited(log, store)
    carol = await opened(log, CAROL, snapshot_store=store)
    alice.insert_text("body", 5, "to be removed")
    await alice.commit()
    await carol.pull()
    carol.insert_text("body", 10, "[carol]")
    carol.remove_text("body", 5, 3)
    await alice.pull()
    alice.remove_text("body", 5, 13)
    await alice.commit()
    await alice.pull()
    return alice, carol


@every_posture
async def test_an_edit_after_a_collected_element_is_kept_and_reported(posture: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, carol = await late_writer(log, store)
    await alice.snapshot(collect=at_end(alice))
    await carol.commit()
    events: list[Event] = []
    reader = await opened(log, BOB, snapshot_store=store, posture=posture, on_event=events.append)
    await alice.pull()
    assert state_of(reader) == state_of(alice)
    assert "[carol]" in reader.text("body")
    assert "removed" not in reader.text("body")
    assert [event for event in events if not isinstance(event, Displaced)] == []
    assert [(event.list, event.size) for event in events if isinstance(event, Displaced)] == [
        ("body", 7)
    ]
    # The document goes on as before: read, written, and signed.
    reader.insert_text("body", 0, "on we go ")
    await reader.commit()
    await reader.pull()
    await reader.snapshot()
    await carol.adopt_barrier()
    await alice.pull()
    assert state_of(carol) == state_of(alice) == state_of(reader)
    last = await opened(log, CAROL, snapshot_store=store, posture=posture)
    assert state_of(last) == state_of(alice)
    if posture == "re-derive":
        assert last.snapshot_verdict is SnapshotVerdict.VERIFIED


async def test_own_edits_after_collected_elements_survive_a_restart() -> None:
    log, store = PrunableLog(), RiggedSnapshots()
    alice, carol = await late_writer(log, store)
    await alice.snapshot(collect=at_end(alice))
    log.prune(alice.current_checkpoint)
    events: list[Event] = []
    carol._on_event = events.append
    await carol.pull()
    assert "[carol]" in carol.text("body")
    assert [type(event) for event in events] == [Displaced]
    await carol.commit()
    await carol.pull()
    await alice.pull()
    assert state_of(carol) == state_of(alice)


class RawLog(RiggedLog):
    """One that hands out elements as text, which is how keystrokes are read many at a time."""

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        return [
            RawElement(
                each["ts"],
                canonical_bytes(each["data"]),
                each["authorPubkey"],
                each["authorSignature"],
            )
            for each in self.elements
            if each["ts"] > checkpoint
        ]


@pytest.mark.parametrize("kind", [RiggedLog, RawLog])
@every_posture
async def test_what_was_collected_does_not_come_back_when_it_is_delivered_again(
    posture: str, kind: Any
) -> None:
    log, store = kind(), RiggedSnapshots()
    alice, bob = await edited(log, store)
    for place, character in enumerate("keystrokes"):
        bob.insert_text("body", place, character)
        await bob.commit()
    await bob.pull()
    bob.remove_text("body", 2, 6)
    await bob.commit()
    await alice.pull()
    await alice.snapshot(collect=at_end(alice))
    expected = state_of(alice)
    for place in range(len(log.elements)):
        log.replay(place)
    await alice.pull()
    assert state_of(alice) == expected
    reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
    assert state_of(reader) == expected


async def let_go(doc: WalDocument, how: str) -> None:
    """Let go of what was removed, or of everything."""
    if how == "deleted":
        await doc.delete_document()
    else:
        await doc.snapshot(collect=at_end(doc))


@pytest.mark.parametrize("how", ["collected", "deleted"])
async def test_a_seq_that_is_used_twice_after_a_barrier_divides_no_readers(how: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await edited(log, store)
    await let_go(alice, how)
    there = await opened(log, CAROL, snapshot_store=store)
    for name in ("one", "two"):
        run = Set(name, f"{BOB.public_key}:s", 100 + len(log.elements), name)
        put_in(log, write_packed(BOB, [run], session="s", seq=1))
        for doc in (alice, there):
            await doc.pull()
            assert doc.field(name) == name
        for posture in POSTURES:
            reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
            assert state_of(reader) == state_of(there)
            if posture == "re-derive":
                assert reader.snapshot_verdict is SnapshotVerdict.VERIFIED
        await alice.snapshot()


def bobs(counter: int, *, seq: int, **members: Any) -> JsonElement:
    """An element of Bob's."""
    return write_packed(BOB, [Set("bob", f"{BOB.public_key}:s", counter, seq)], seq=seq, **members)


async def test_a_seq_of_what_was_rejected_before_a_deletion_is_not_used_again() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    put_in(log, bobs(1, seq=1, body={}))
    alice = await opened(log, ALICE, snapshot_store=store, on_author_error="skip")
    await alice.delete_document()
    put_in(log, bobs(2, seq=1))
    alice.set_field("title", "later")
    await alice.commit()
    await alice.snapshot()
    reader = await opened(
        log, CAROL, snapshot_store=store, posture="re-derive", on_author_error="skip"
    )
    assert reader.snapshot_verdict is SnapshotVerdict.VERIFIED
    assert reader.materialize() == alice.materialize() == {"title": "later"}


async def test_what_is_too_far_above_everything_since_a_deletion_makes_no_snapshot_false() -> None:
    log, store, revoked = RiggedLog(), RiggedSnapshots(), dict[str, Counts]()
    options: dict[str, Any] = {
        "snapshot_store": store,
        "revoked": revoked.get,
        "on_author_error": "skip",
    }
    first = put_in(log, bobs(COUNTER_JUMP_MAX, seq=1))
    second = put_in(log, bobs(2 * COUNTER_JUMP_MAX, seq=2, prev=link_of(first)))
    await (await opened(log, ALICE, **options)).delete_document()
    # Above what he wrote before the deletion; whoever starts there has seen nothing of that.
    put_in(log, bobs(2 * COUNTER_JUMP_MAX + 1, seq=3, prev=link_of(second)))
    alice = await opened(log, ALICE, **options)
    assert [each.author for each in alice.rejected()] == [BOB.public_key]
    revoked[BOB.public_key] = alice.counted(BOB.public_key)
    await alice.reread()
    alice.set_field("title", "later")
    await alice.commit()
    await alice.snapshot()
    reader = await opened(log, CAROL, posture="re-derive", **options)
    assert reader.snapshot_verdict is SnapshotVerdict.VERIFIED
    assert reader.materialize() == alice.materialize() == {"title": "later"}


@pytest.mark.parametrize("how", ["collected", "deleted"])
@every_posture
async def test_what_a_relay_repeats_from_before_a_barrier_makes_no_snapshot_false(
    posture: str, how: str
) -> None:
    log, store = TailedLog(), RiggedSnapshots()
    alice, _ = await edited(log, store)
    await let_go(alice, how)
    barrier = alice.current_checkpoint
    alice.insert_text("body", 0, "new ")
    await alice.commit()
    log.replay(0)
    await alice.pull()
    await alice.snapshot()
    log.prune(barrier)
    reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
    assert reader.snapshot_verdict.is_believed
    assert state_of(reader) == state_of(alice)


@pytest.mark.parametrize("how", ["collected", "deleted"])
async def test_what_comes_after_a_seq_from_before_a_barrier_is_held_against_a_snapshot(
    how: str,
) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await edited(log, store)
    for name in ("one", "two"):
        # The second one uses a seq once more that was there before the barrier.
        run = Set(name, f"{BOB.public_key}:s", 100 + len(log.elements), name)
        put_in(log, write_packed(BOB, [run], session="s", seq=1))
        await alice.pull()
        if name == "one":
            await let_go(alice, how)
    alice.set_field("title", "later")
    await alice.commit()
    await alice.snapshot()
    reader = await opened(log, CAROL, snapshot_store=store, posture="re-derive")
    assert reader.snapshot_verdict is SnapshotVerdict.VERIFIED
    assert (reader.field("title"), reader.field("two")) == ("later", None)
    assert state_of(reader) == state_of(alice)


@pytest.mark.parametrize("is_deleted", [True, False])
@pytest.mark.parametrize(
    "runs",
    [
        [
            [Remove("body", BOBS, 2, BOBS, 1)],
            [Insert("body", BOBS, 1, "", 0, "BC")],
        ],
        [
            [Insert("body", BOBS, 1, "", 0, "BC")],
            [Remove("body", BOBS, 3, BOBS, 5, 3)],
            [Insert("body", BOBS, 4, BOBS, 2, "DEF")],
        ],
    ],
)
async def test_what_is_removed_before_it_comes_makes_no_snapshot_false_after_a_cut(
    runs: list[list[Run]], is_deleted: bool
) -> None:
    log, snapshots = RiggedLog(), RiggedSnapshots()
    put_in(log, write_packed(ALICE, [Set("title", f"{ALICE.public_key}:s", 1, "gone")]))
    producer = await opened(log, ALICE, snapshot_store=snapshots)
    await (producer.delete_document() if is_deleted else producer.snapshot(collect={}))
    prev = None
    for seq, each in enumerate(runs, start=1):
        put_in(log, element := write_packed(BOB, each, seq=seq, prev=prev))
        prev = link_of(element)
    producer = await opened(log, ALICE, snapshot_store=snapshots, on_author_error="skip")
    await producer.snapshot()
    for posture in POSTURES:
        reader = await opened(log, CAROL, snapshot_store=snapshots, posture=posture)
        assert reader.snapshot_verdict.is_believed, posture
        assert state_of(reader) == state_of(producer)


@pytest.mark.parametrize("how", ["collected", "deleted"])
async def test_a_snapshot_that_lets_what_was_let_go_come_back_is_false(how: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, _ = await edited(log, store)
    await let_go(alice, how)
    alice.set_field("title", "after it")
    await alice.commit()
    await alice.pull()
    honest = await alice.snapshot()
    own = f"{ALICE.public_key}:{alice.session}"
    assert list(honest["state"]["x"]["covered"]) == [own]
    content = {name: honest[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    content["state"]["x"]["covered"][own] -= 1
    store.document = signed_snapshot(content, ALICE)
    reader = await opened(
        log, CAROL, snapshot_store=store, posture="re-derive", on_author_error="skip"
    )
    assert reader.snapshot_verdict is SnapshotVerdict.MISMATCH


async def test_collecting_again_lets_go_of_what_was_removed_since() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await edited(log, store)
    first = await alice.snapshot(collect=at_end(alice, bob))
    assert await alice.snapshot(collect=at_end(alice, bob)) == first
    alice.remove_text("body", 0, 4)
    await alice.commit()
    await alice.pull()
    second = await alice.snapshot(collect=at_end(alice))
    assert [cut[0] for cut in second["state"]["x"]["cuts"]] == [first["uptoTs"], second["uptoTs"]]
    for posture in POSTURES:
        reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
        assert state_of(reader) == state_of(alice)
        if posture == "re-derive":
            assert reader.snapshot_verdict is SnapshotVerdict.VERIFIED


@every_posture
async def test_sealed_documents_are_collected_and_deleted_like_others(posture: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    options: dict[str, Any] = {"snapshot_store": store, "encryptor": encryptor(1)}
    doc = await typed(log, ALICE, "some secret text", **options)
    doc.remove_text("body", 5, 7)
    await doc.commit()
    await doc.pull()
    snapshot = await doc.snapshot(collect=at_end(doc))
    assert set(snapshot["state"]) == {"_sealed", "_epoch"}
    reader = await opened(log, BOB, posture=posture, **options)
    assert state_of(reader) == state_of(doc)
    await reader.delete_document()
    # Nobody needs a key to learn that there is nothing left.
    late = await opened(log, CAROL, snapshot_store=store, encryptor=encryptor(2), posture="trust")
    assert late.is_deleted
    assert (await opened(log, CAROL, posture=posture, **options)).is_deleted


async def test_a_barrier_that_let_go_of_something_live_is_false() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await edited(log, store)
    liar = await opened(log, BOB, snapshot_store=RiggedSnapshots())
    liar.remove_text("body", 0, 1)
    lie = liar._log.crdt.collected().export_packed()
    honest = await alice.snapshot(collect=at_end(alice, bob))
    content = {name: honest[name] for name in ("uptoTs", "writerSeq", "producedBy")}
    state = {**honest["state"], "packed": lie}
    store.document = signed_snapshot({"state": state, **content}, ALICE)
    events: list[Event] = []
    reader = await opened(
        log,
        CAROL,
        snapshot_store=store,
        posture="re-derive",
        on_author_error="skip",
        on_event=events.append,
    )
    assert reader.snapshot_verdict is SnapshotVerdict.MISMATCH
    assert [type(event) for event in events] == [Rejection]
    assert reader.materialize() == alice.materialize()


@pytest.mark.parametrize(
    ("cut", "member", "counter"),
    [
        (False, "maxClock", COUNTER_MAX),
        (True, "maxClock", COUNTER_MAX),
        (True, "maxClock", -1),
        (True, "cuts", COUNTER_MAX - 1),
        (True, "cuts", 1),
        (False, "ceiling", COUNTER_MAX),
        (True, "ceiling", COUNTER_MAX),
    ],
)
async def test_a_snapshot_at_another_counter_than_its_log_is_false(
    cut: bool, member: str, counter: int
) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    alice, bob = await edited(log, store)
    alice.remove_text("body", 0, 1)
    await alice.commit()
    for doc in (alice, bob):
        await doc.pull()
    honest = await alice.snapshot(collect=at_end(alice, bob) if cut else None)
    content = {name: honest[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    if counter < 0:
        counter += honest["state"]["x"]["maxClock"]
    lie = [[honest["uptoTs"], counter]] if member == "cuts" else counter
    content["state"]["x"][member] = lie
    if member == "maxClock":
        # It stands there twice.
        content["state"]["packed"][-1] = counter
    store.document = signed_snapshot(content, ALICE)
    reader = await opened(
        log, CAROL, snapshot_store=store, posture="re-derive", on_author_error="skip"
    )
    assert reader.snapshot_verdict is SnapshotVerdict.MISMATCH
    reader.insert_text("body", 0, "on")
    await reader.commit()
    await bob.pull()
    assert bob.text("body").startswith("on")


async def test_a_row_of_cuts_costs_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    await edited(log, store)
    log.elements = [{**each, "ts": each["ts"] * 1_000} for each in log.elements]
    honest = await (await opened(log, ALICE, snapshot_store=store)).snapshot()
    content = {name: honest[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    content["state"]["x"]["cuts"] = [[honest["uptoTs"] - back, 10] for back in range(499, 0, -1)]
    store.document = signed_snapshot(content, ALICE)
    collected, calls = WalCrdt.collected, Counter[str]()

    def counting(crdt: WalCrdt) -> WalCrdt:
        calls["collected"] += 1
        return collected(crdt)

    monkeypatch.setattr(WalCrdt, "collected", counting)
    await opened(log, CAROL, snapshot_store=store, posture="re-derive", on_author_error="skip")
    assert calls["collected"] == 1


async def test_who_lies_about_the_readers_displaces_what_they_write() -> None:
    """What the barrier is for: who is behind, and is passed over, finds text in another place."""
    log, store = RiggedLog(), RiggedSnapshots()
    alice, carol = await late_writer(log, store)
    assert carol.current_checkpoint < alice.current_checkpoint
    with pytest.raises(SnapshotRefusedError):
        await alice.snapshot(collect=at_end(alice, carol))
    await alice.snapshot(collect={"carol": alice.current_checkpoint})
    await carol.commit()
    await carol.pull()
    events: list[Event] = []
    reader = await opened(log, BOB, snapshot_store=store, on_event=events.append)
    assert [type(event) for event in events] == [Displaced]
    assert reader.text("body") != carol.text("body")


# ── answers that are lost, and everything at once ──────────────────────────────────────


class ForgetfulSnapshots(RiggedSnapshots):
    """A store whose answers can be lost after it has stored."""

    def __init__(self) -> None:
        super().__init__()
        self.is_losing = False

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        await super().write(snapshot_key, document, revision)
        if self.is_losing:
            raise OfflineError


@pytest.mark.parametrize("what", ["collect", "delete"])
async def test_a_barrier_whose_answer_was_lost_is_met_again(what: str) -> None:
    log, store = PrunableLog(), ForgetfulSnapshots()
    alice, bob = await edited(log, store)
    store.is_losing = True
    readers = at_end(alice, bob)
    lost = alice.snapshot(collect=readers) if what == "collect" else alice.delete_document()
    with pytest.raises(OfflineError):
        await lost
    store.is_losing = False
    alice.insert_text("body", 0, "on")
    await alice.commit()
    await alice.snapshot()
    log.prune(alice.current_checkpoint)
    for posture in POSTURES:
        reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
        assert state_of(reader) == state_of(alice)
    await bob.pull()
    assert state_of(bob) == state_of(alice)


class World:
    """Three people, a log that forgets, and an account of what each of them did to a list."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.log, self.store = TailedLog(page_size=3), RiggedSnapshots()
        self.docs: list[WalDocument] = []
        self.numbers = count(1)
        self.expected: set[int] = set()

    async def open(self, who: Identity) -> WalDocument:
        posture = self.rng.choice(POSTURES)
        return await opened(self.log, who, snapshot_store=self.store, posture=posture)

    async def run(self, steps: int) -> None:
        self.docs = [await self.open(who) for who in (ALICE, BOB, CAROL)]
        choices = [self.edit] * 8 + [self.commit, self.pull, self.reopen] * 3
        choices += [self.snapshot, self.prune, self.collect] * 2
        for _ in range(steps):
            await self.rng.choice(choices)(self.rng.choice(self.docs))
        await self.settle()

    async def edit(self, doc: WalDocument) -> None:
        shown = doc.values("items")
        if shown and self.rng.random() < 0.45:
            at = self.rng.randrange(len(shown))
            doc.remove_at("items", at)
            self.expected.discard(shown[at])
        else:
            number = next(self.numbers)
            doc.insert("items", self.rng.randint(0, len(shown)), number)
            self.expected.add(number)

    async def commit(self, doc: WalDocument) -> None:
        await doc.commit()

    async def pull(self, doc: WalDocument) -> None:
        await doc.pull()

    async def reopen(self, doc: WalDocument) -> None:
        await doc.commit()
        place = self.docs.index(doc)
        self.docs[place] = await self.open((ALICE, BOB, CAROL)[place])

    async def snapshot(self, doc: WalDocument) -> None:
        await doc.snapshot()

    async def prune(self, doc: WalDocument) -> None:
        if isinstance(self.store.document, dict):
            self.log.prune(self.store.document["uptoTs"] - self.rng.randint(0, 3))

    async def collect(self, doc: WalDocument) -> None:
        if self.rng.random() < 0.7:
            await self.settle()
        with suppress(SnapshotRefusedError):
            # Nobody else has edits on the way, and the document itself looks at its own.
            if not any(each.unconfirmed or each._content.recorded() for each in self.docs):
                await doc.snapshot(collect=at_end(*self.docs))

    async def settle(self) -> None:
        """Everybody sends and reads everything; then all show the same."""
        for _ in range(2):
            for doc in self.docs:
                await doc.commit()
                await doc.pull()
        await self.docs[0].pull()
        shown = [doc.values("items") for doc in self.docs]
        assert shown[0] == shown[1] == shown[2]
        assert set(shown[0]) == self.expected
        assert len(shown[0]) == len(self.expected)


@pytest.mark.parametrize("seed", range(40))
async def test_any_course_of_events_loses_nothing_and_brings_nothing_back(seed: int) -> None:
    world = World(seed)
    await world.run(80)
    for doc in world.docs:
        await doc.adopt_barrier()
    states = {state_of(doc) for doc in world.docs}
    readers = [await world.open(who) for who in (ALICE, BOB, CAROL)]
    assert states | {state_of(reader) for reader in readers} == states
    assert len(states) == 1


# ── members who are revoked and come back ──────────────────────────────────────────────


async def returned(collect: bool = False) -> tuple[PrunableLog, RiggedSnapshots, list[WalDocument]]:
    """Bob's last element is in the log before he is revoked; a snapshot follows, and he is back."""
    log, snapshots, revoked = PrunableLog(), RiggedSnapshots(), dict[str, Counts]()
    options: dict[str, Any] = {"snapshot_store": snapshots, "on_author_error": "skip"}
    alice, bob, carol = [
        await opened(log, who, revoked=revoked.get, **options) for who in (ALICE, BOB, CAROL)
    ]
    bob.insert_text("note", 0, "ab")
    bob.remove_text("note", 0, 1)
    await bob.commit()
    await alice.pull()
    counts = alice.counted(BOB.public_key)
    bob.set_field("late", 1)
    await bob.commit()
    for each in (bob, carol):
        await each.pull()
    revoked[BOB.public_key] = counts
    await alice.reread()
    await alice.snapshot(collect={} if collect else None)
    for each in (bob, carol):
        await each.reread()
        assert each.field("late") is None
    revoked.clear()
    return log, snapshots, [alice, bob, carol]


@pytest.mark.parametrize("is_cut", [False, True])
async def test_who_is_revoked_and_comes_back_finds_what_was_in_flight_and_stops_nobody(
    is_cut: bool,
) -> None:
    log, snapshots, there = await returned(collect=is_cut)
    for each in there:
        await each.reread()
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        there.append(await opened(log, CAROL, posture=posture, snapshot_store=snapshots))
        assert there[-1].snapshot_verdict is SnapshotVerdict.NONE
    await there[0].snapshot()
    there.append(await opened(log, CAROL, posture="re-derive", snapshot_store=snapshots))
    assert there[-1].snapshot_verdict is SnapshotVerdict.VERIFIED
    for each in there:
        await each.pull()
        assert each.materialize() == {"note": ["b"], "late": 1}
        assert not each.is_read_only
    # What was let go stays let go.
    assert len({state_of(each) for each in there}) == 1
    assert ("cuts" in snapshots.writes[-1]["state"]["x"]) == is_cut


async def test_what_was_in_flight_and_is_pruned_makes_no_snapshot_false() -> None:
    log, snapshots, (alice, *_) = await returned()
    # The element that did not count is still there, and what came before is gone.
    log.prune(1)
    await alice.reread()
    for posture in ("trust", "trust-retain-tail"):
        reader = await opened(log, CAROL, posture=posture, snapshot_store=snapshots)
        assert reader.snapshot_verdict is SnapshotVerdict.TRUSTED
        assert reader.materialize() == {"note": ["b"]}
    alice.set_field("title", "on")
    await alice.commit()
    await alice.snapshot()


async def test_a_peers_snapshot_names_nobody_and_may_lack_what_was_passed_over() -> None:
    log, snapshots, revoked = PrunableLog(), RiggedSnapshots(), dict[str, Counts]()
    peer: dict[str, Any] = {"snapshot_store": snapshots, "on_author_error": "skip"}
    peer |= {"wire": "starfish", "chained": False}
    alice = await opened(log, ALICE, revoked=revoked.get, **peer)
    bob = await opened(log, BOB, **peer)
    bob.set_field("title", "one")
    await bob.commit()
    await alice.pull()
    revoked[BOB.public_key] = alice.counted(BOB.public_key)
    assert await alice.can_return(BOB.public_key)
    bob.set_field("title", "two")
    await bob.commit()
    await alice.pull()
    assert await alice.can_return(BOB.public_key)
    await alice.snapshot()
    assert not await alice.can_return(BOB.public_key)


async def test_who_comes_back_is_not_refused_by_who_goes_on_from_a_state_of_their_own() -> None:
    log, snapshots, revoked = RiggedLog(), RiggedSnapshots(), dict[str, Counts]()
    options: dict[str, Any] = {"snapshot_store": snapshots, "on_author_error": "skip"}
    alice = await opened(log, ALICE, revoked=revoked.get, **options)
    bob = await opened(log, BOB, **options)
    bob.set_field("title", "one")
    await bob.commit()
    await alice.pull()
    revoked[BOB.public_key] = alice.counted(BOB.public_key)
    await alice.snapshot()
    bob.set_field("title", "two")
    await bob.commit()
    await alice.pull()
    assert await alice.can_return(BOB.public_key)
    # It names Bob, and does not say where he has written what does not count.
    state = RiggedSnapshots(alice.own_snapshot())
    options["snapshot_store"] = state
    again = await document(log, ALICE, revoked=revoked.get, **options).open(is_own_state=True)
    state.document = snapshots.document
    assert await again.can_return(BOB.public_key)


async def test_naming_others_as_left_out_hides_no_lie() -> None:
    log, snapshots = PrunableLog(), RiggedSnapshots()
    alice = await opened(log, ALICE, snapshot_store=snapshots)
    for title in ("one", "two", "three"):
        alice.set_field("title", title)
        await alice.commit()
    lie = await (await opened(log, BOB, snapshot_store=snapshots)).snapshot()
    content = {name: value for name, value in lie.items() if not name.startswith("author")}
    empty = WalCrdt().export_packed()
    content["state"] = {**content["state"], "packed": empty}
    content["state"]["x"] = {**content["state"]["x"], "without": [ALICE.public_key]}
    log.prune(1)
    snapshots.document = signed_snapshot(content, BOB)
    with pytest.raises(SnapshotMismatchError):
        await opened(log, CAROL, posture="trust-retain-tail", snapshot_store=snapshots)
