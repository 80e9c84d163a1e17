"""A recorded encrypted document with a rotation: who can read what, and when.

- Key epoch 1 is Alice's, Bob's and Eve's; key epoch 2 is Alice's, Bob's and Carol's.
- What a reader has no key for is unreadable: counted, kept, no gap, and read when a key arrives.
- Who came late has the content from a snapshot in the newest key epoch.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.recorded import RecordedLog, load, named, stored
from walstore.canon import canonical_text
from walstore.crdt import WalCrdt
from walstore.document import (
    Body,
    Event,
    SnapshotRefusedError,
    SnapshotVerdict,
    WalDocument,
)
from walstore.document.opening import Posture
from walstore.document.snapshot import read_snapshot
from walstore.errors import TransportError
from walstore.net import MemorySnapshots
from walstore.sealed import (
    ContentKeys,
    KeyringRefusedError,
    SealContext,
    StarfishEncryptor,
    open_keyring,
)
from walstore.signed import Identity, verify_bytes

CASES = load("keyring.json")

every_case = named(CASES)
every_posture = pytest.mark.parametrize("posture", ["trust", "trust-retain-tail", "re-derive"])


def keyring_at(case: dict[str, Any], epoch: int) -> dict[str, Any]:
    """The keyring as it was before it was rotated beyond an epoch."""
    epochs = {name: each for name, each in case["keyring"]["epochs"].items() if int(name) <= epoch}
    return {**case["keyring"], "currentEpoch": epoch, "epochs": epochs}


def keys_of(case: dict[str, Any], name: str, *, epoch: int = 2) -> ContentKeys:
    return open_keyring(
        keyring_at(case, epoch),
        recipient=Identity.from_seed(
            bytes(32), kem_private_key=case["people"][name]["kem_priv_hex"]
        ),
        trusted_adders=case["trusted_adders"],
        verify=verify_bytes,
        scope=case["document"]["document_key"],
        epoch_min=0,
        trust_unbound=True,
    )


def encryptor_of(case: dict[str, Any], name: str, *, epoch: int = 2) -> StarfishEncryptor:
    return StarfishEncryptor(keys_of(case, name, epoch=epoch), randomness=os.urandom)


def writers_of(case: dict[str, Any]) -> set[str]:
    return {element["authorPubkey"] for element in case["document"]["elements"]}


def fold(case: dict[str, Any], *places: int) -> str:
    """What some elements of the log, opened by Alice, fold to."""
    alice, crdt = encryptor_of(case, "alice"), WalCrdt()
    for place in places:
        data = case["document"]["elements"][place]["data"]
        opened: Any = alice.open(data, SealContext("", "", 0))
        crdt.fold(opened["ops"])
    return canonical_text(crdt.materialize())


class Room:
    """The recorded log and snapshot, and documents over them."""

    def __init__(self, case: dict[str, Any], snapshots: MemorySnapshots | None) -> None:
        self.case = case
        self.log = RecordedLog(case["document"]["elements"])
        self.snapshots = snapshots

    @classmethod
    async def make(cls, case: dict[str, Any], *, with_snapshot: bool = True) -> Room:
        document = case["document"]
        snapshot = document["snapshot"] if with_snapshot else None
        return cls(case, await stored(document["document_key"], snapshot))

    def document(
        self, encryptor: StarfishEncryptor, *, identity: Identity | None = None, **options: Any
    ) -> tuple[WalDocument, list[Event]]:
        """A document that raises at everything there is to raise at."""
        events: list[Event] = []
        identity = Identity.from_seed(bytes([9]) * 32) if identity is None else identity
        document = WalDocument(
            self.case["document"]["document_key"],
            transport=self.log,
            identity=identity,
            writers=writers_of(self.case) | {identity.public_key},
            snapshot_role=[*self.case["trusted_adders"], identity.public_key],
            snapshot_store=self.snapshots,
            encryptor=encryptor,
            strict_sequence=True,
            on_event=events.append,
            **options,
        )
        return document, events


@every_posture
@every_case
async def test_who_holds_every_key_reads_everything(case: dict[str, Any], posture: Posture) -> None:
    expected = case["document"]["full_reader"]
    for name in ("alice", "bob"):
        room = await Room.make(case)
        document, events = room.document(encryptor_of(case, name), posture=posture)
        await document.open()
        assert canonical_text(document.materialize()) == expected["materialize"]
        assert document.text("t") == case["document"]["late_joiner"]["text_t"]
        assert document.unreadable == 0
        assert document.detected_gaps() == []
        assert events == []
        is_derived = posture == expected["posture"]
        assert document.snapshot_verified is (expected["snapshot_verified"] if is_derived else None)


@every_case
async def test_the_recorded_snapshot_holds_the_recorded_state(case: dict[str, Any]) -> None:
    for name in ("alice", "bob", "carol"):
        snapshot = read_snapshot(
            case["document"]["snapshot"],
            document_key=case["document"]["document_key"],
            is_producer=case["trusted_adders"].__contains__,
            encryptor=encryptor_of(case, name),
        )
        assert snapshot.crdt.canonical_state() == case["document"]["snapshot_plain_canonical"]


@every_posture
@every_case
async def test_who_came_late_has_the_content_from_the_snapshot(
    case: dict[str, Any], posture: Posture
) -> None:
    expected = case["document"]["late_joiner"]
    room = await Room.make(case)
    document, events = room.document(encryptor_of(case, expected["reader"]), posture=posture)
    await document.open()
    assert canonical_text(document.materialize()) == expected["materialize"]
    assert document.text("t") == expected["text_t"]
    assert document.unreadable == 0
    assert document.detected_gaps() == []
    assert events == []
    is_derived = posture == "re-derive"
    verdict = SnapshotVerdict.UNVERIFIABLE if is_derived else SnapshotVerdict.TRUSTED
    assert document.snapshot_verdict is verdict
    assert document.snapshot_verified is None


@every_posture
@every_case
async def test_who_came_late_reads_on_without_a_snapshot(
    case: dict[str, Any], posture: Posture
) -> None:
    room = await Room.make(case, with_snapshot=False)
    document, events = room.document(encryptor_of(case, "carol"), posture=posture)
    await document.open()
    assert document.unreadable == 2
    assert document.detected_gaps() == []
    assert events == []
    assert document.rejected() == []
    assert document.current_checkpoint == case["document"]["elements"][-1]["ts"]
    assert canonical_text(document.materialize()) == fold(case, 2, 3)


@every_case
async def test_nobody_signs_over_what_they_cannot_read(case: dict[str, Any]) -> None:
    room = await Room.make(case, with_snapshot=False)
    document, _ = room.document(encryptor_of(case, "carol"))
    await document.open()
    with pytest.raises(SnapshotRefusedError):
        await document.snapshot()


@every_case
async def test_what_was_unreadable_is_read_when_its_key_arrives(case: dict[str, Any]) -> None:
    room = await Room.make(case, with_snapshot=False)
    encryptor = encryptor_of(case, "carol")
    document, events = room.document(encryptor)
    await document.open()
    assert await document.retry_unreadable() == 0
    assert document.unreadable == 2
    encryptor.adopt(keys_of(case, "alice"))
    assert await document.retry_unreadable() == 2
    assert document.unreadable == 0
    assert await document.retry_unreadable() == 0
    assert events == []
    expected = case["document"]["full_reader"]["materialize"]
    assert canonical_text(document.materialize()) == expected
    assert (await document.snapshot())["uptoTs"] == case["document"]["elements"][-1]["ts"]


@every_case
async def test_who_was_removed_reads_what_was_written_before(case: dict[str, Any]) -> None:
    with pytest.raises(KeyringRefusedError):
        keys_of(case, "eve")
    room = await Room.make(case)
    document, events = room.document(encryptor_of(case, "eve", epoch=1))
    await document.open()
    assert document.snapshot_verdict is SnapshotVerdict.NONE
    assert document.unreadable == 2
    assert document.detected_gaps() == []
    assert events == []
    assert canonical_text(document.materialize()) == fold(case, 0, 1)


@every_posture
@every_case
async def test_an_open_document_goes_through_a_rotation(
    case: dict[str, Any], posture: Posture
) -> None:
    room = await Room.make(case, with_snapshot=False)
    later = room.log.elements[2:]
    del room.log.elements[2:]
    encryptor = encryptor_of(case, "bob", epoch=1)
    document, events = room.document(encryptor, posture=posture)
    await document.open()
    assert canonical_text(document.materialize()) == fold(case, 0, 1)
    room.log.elements += later
    assert await document.pull() == 0
    assert document.unreadable == 2
    encryptor.adopt(keys_of(case, "bob"))
    assert await document.retry_unreadable() == 2
    assert events == []
    expected = case["document"]["full_reader"]["materialize"]
    assert canonical_text(document.materialize()) == expected


@every_case
async def test_after_a_rotation_edits_are_sealed_in_the_new_epoch(case: dict[str, Any]) -> None:
    for wire in ("starfish", "packed"):
        room = await Room.make(case)
        encryptor = encryptor_of(case, "bob", epoch=1)
        writer, _ = room.document(encryptor, wire=wire)
        await writer.open()
        writer.push("l", "sealed")
        encryptor.adopt(keys_of(case, "bob"))
        await writer.commit()
        data = room.log.elements[-1]["data"]
        assert (data if wire == "starfish" else data["body"])["_epoch"] == 2
        carol, events = room.document(encryptor_of(case, "carol"))
        await carol.open()
        assert "sealed" in carol.values("l")
        assert events == []


class Unreachable(RecordedLog):
    """A log that takes nothing yet."""

    is_reachable = False

    async def append(self, document_key: str, body: Body) -> int:
        if not self.is_reachable:
            raise TransportError("not now", retryable=True)
        return await super().append(document_key, body)


@every_case
async def test_what_waited_through_a_rotation_is_sealed_anew(case: dict[str, Any]) -> None:
    room = await Room.make(case)
    room.log = Unreachable(case["document"]["elements"])
    encryptor = encryptor_of(case, "bob", epoch=1)
    writer, _ = room.document(encryptor)
    await writer.open()
    writer.push("l", "waited")
    with pytest.raises(TransportError):
        await writer.commit()
    encryptor.adopt(keys_of(case, "bob"))
    room.log.is_reachable = True
    await writer.commit()
    assert [each["data"]["body"]["_epoch"] for each in room.log.elements[4:]] == [2]
    carol, events = room.document(encryptor_of(case, "carol"))
    await carol.open()
    assert carol.values("l").count("waited") == 1
    assert events == []


@every_case
async def test_our_snapshot_in_the_current_epoch_serves_who_came_late(
    case: dict[str, Any],
) -> None:
    for wire in ("starfish", "packed"):
        room = await Room.make(case, with_snapshot=False)
        alice, _ = room.document(encryptor_of(case, "alice"), wire=wire)
        await alice.open()
        signed = await alice.snapshot()
        assert signed["state"]["_epoch"] == 2
        assert set(signed["state"]) == {"_encrypted", "_epoch"}
        carol, events = room.document(encryptor_of(case, "carol"))
        await carol.open()
        assert carol.materialize() == alice.materialize()
        assert carol.unreadable == 0
        assert events == []


@every_case
async def test_nothing_readable_is_outside_the_seal(case: dict[str, Any]) -> None:
    room = await Room.make(case)
    for wire in ("starfish", "packed"):
        writer, _ = room.document(encryptor_of(case, "bob"), wire=wire)
        await writer.open()
        writer.set_field("confidential name", "confidential value")
        writer.insert_text("confidential list", 0, "confidential text")
        await writer.commit()
        await writer.snapshot()
    kept = canonical_text(room.log.elements)
    assert room.snapshots is not None
    newest = await room.snapshots.read(case["document"]["document_key"] + "__snapshot")
    assert newest is not None
    assert "confidential" not in kept
    assert "confidential" not in canonical_text(newest.document)
