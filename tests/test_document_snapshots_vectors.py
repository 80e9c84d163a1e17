"""Recorded snapshots, good and forged, in every posture.

- Accepted is what shows when the log holds nothing else; rejected is what never shows.
- A forgery is reported; a good snapshot by somebody without the role is passed over in silence.
- A lie by the role is found by who folds the log, and the log is what is shown then.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.recorded import RecordedLog, load, named, stored
from walstore.canon import canonical_text, parse
from walstore.crdt import WalCrdt
from walstore.document import (
    Event,
    RejectedElementsError,
    Rejection,
    SnapshotMismatchError,
    SnapshotVerdict,
    WalDocument,
)
from walstore.document.document import Posture
from walstore.document.snapshot import (
    SNAPSHOT_SUFFIX,
    ForeignSnapshotError,
    ForgedSnapshotError,
    read_snapshot,
)
from walstore.errors import MalformedError
from walstore.sealed import PlainEncryptor
from walstore.signed import Identity

CASES = load("snapshots.json")
READER = Identity.from_seed(bytes(32))
LIE = "accept under trust postures, mismatch under re-derive"
FOREIGN = "well signed by a key without the role"

every_case = named(CASES)
every_good = named([case for case in CASES if case["required"] == "accept"])
every_bad = named([case for case in CASES if case["required"] == "reject"])
every_lie = named([case for case in CASES if case["required"] == LIE])
every_posture = pytest.mark.parametrize("posture", ["trust", "trust-retain-tail", "re-derive"])
every_trust = pytest.mark.parametrize("posture", ["trust", "trust-retain-tail"])


def snapshot_of(case: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", parse(case["snapshot_json"]))


def key_of(case: dict[str, Any]) -> str:
    return cast("str", case["snapshot_key"]).removesuffix(SNAPSHOT_SUFFIX)


def log_of(case: dict[str, Any]) -> list[Any]:
    """The log of the document that the snapshot is stored under."""
    is_moved = case["name"].endswith("moved to another document")
    return [] if is_moved else cast("list[Any]", case["log"])


def fold(elements: list[Any]) -> WalCrdt:
    crdt = WalCrdt()
    for element in elements:
        crdt.fold(element["data"]["ops"])
    return crdt


class Reader:
    """A document of somebody who only reads, and what it reported."""

    def __init__(self, document: WalDocument, events: list[Event]) -> None:
        self.document = document
        self.events = events
        self.raised: Exception | None = None


async def read(
    case: dict[str, Any], posture: Posture, elements: list[Any], *, throws: bool = True
) -> Reader:
    events: list[Event] = []
    document = WalDocument(
        key_of(case),
        transport=RecordedLog(elements),
        identity=READER,
        writers={element["authorPubkey"] for element in case["log"]},
        snapshot_role=[case["role_pubkey"]],
        snapshot_store=await stored(key_of(case), snapshot_of(case)),
        posture=posture,
        on_author_error="throw" if throws else "skip",
        on_event=events.append,
    )
    reader = Reader(document, events)
    try:
        await document.open()
    except (RejectedElementsError, SnapshotMismatchError) as error:
        reader.raised = error
    return reader


@every_case
def test_a_state_has_the_recorded_canonical_form(case: dict[str, Any]) -> None:
    crdt = WalCrdt()
    crdt.import_state(snapshot_of(case)["state"])
    assert crdt.canonical_state() == case["state_canonical"]


@every_good
def test_the_log_folds_to_the_recorded_canonical_form(case: dict[str, Any]) -> None:
    assert fold(case["log"]).canonical_state() == case["state_canonical"]


@every_case
def test_a_snapshot_is_read_or_refused_as_required(case: dict[str, Any]) -> None:
    def read_it() -> str:
        snapshot = read_snapshot(
            snapshot_of(case),
            document_key=key_of(case),
            is_producer=[case["role_pubkey"]].__contains__,
            encryptor=PlainEncryptor(),
        )
        return snapshot.crdt.canonical_state()

    if case["required"] != "reject":
        assert read_it() == case["state_canonical"]
        return
    kind = ForeignSnapshotError if case["name"].endswith(FOREIGN) else ForgedSnapshotError
    with pytest.raises(MalformedError) as caught:
        read_it()
    assert type(caught.value) is kind


@every_posture
@every_good
async def test_a_good_snapshot_is_accepted(case: dict[str, Any], posture: Posture) -> None:
    reader = await read(case, posture, case["log"])
    document = reader.document
    assert reader.raised is None
    assert reader.events == []
    assert document.materialize() == fold(case["log"]).materialize()
    assert document.current_checkpoint == snapshot_of(case)["uptoTs"]
    is_derived = posture == "re-derive"
    assert document.snapshot_verified is (True if is_derived else None)
    verdict = SnapshotVerdict.VERIFIED if is_derived else SnapshotVerdict.TRUSTED
    assert document.snapshot_verdict is verdict


@every_posture
@every_good
async def test_a_good_snapshot_stands_for_a_pruned_log(
    case: dict[str, Any], posture: Posture
) -> None:
    reader = await read(case, posture, [])
    document = reader.document
    assert reader.raised is None
    assert document.materialize() == fold(case["log"]).materialize()
    assert document.current_checkpoint == snapshot_of(case)["uptoTs"]
    assert document.detected_gaps() == []
    is_derived = posture == "re-derive"
    verdict = SnapshotVerdict.UNVERIFIABLE if is_derived else SnapshotVerdict.TRUSTED
    assert document.snapshot_verdict is verdict
    assert document.snapshot_verified is None


@every_good
async def test_a_snapshot_stands_for_an_author_whose_elements_are_all_pruned(
    case: dict[str, Any],
) -> None:
    first = case["log"][0]["authorPubkey"]
    others = [element for element in case["log"] if element["authorPubkey"] != first]
    reader = await read(case, "re-derive", others)
    assert reader.document.snapshot_verdict is SnapshotVerdict.UNVERIFIABLE
    assert reader.document.materialize() == fold(case["log"]).materialize()


@every_good
async def test_what_retain_tail_retains_is_below_the_snapshot_too(case: dict[str, Any]) -> None:
    reader = await read(case, "trust-retain-tail", case["log"])
    assert [each.as_json() for each in reader.document.retained_tail()] == case["log"]


@every_posture
@every_bad
async def test_a_bad_snapshot_never_shows(case: dict[str, Any], posture: Posture) -> None:
    for elements in (log_of(case), []):
        document = (await read(case, posture, elements, throws=False)).document
        assert document.materialize() == fold(elements).materialize()
        assert document.current_checkpoint == max([0, *[each["ts"] for each in elements]])
        assert document.detected_gaps() == []


@every_posture
@every_bad
async def test_a_forgery_is_reported_and_who_lacks_the_role_is_passed_over(
    case: dict[str, Any], posture: Posture
) -> None:
    for throws in (True, False):
        reader = await read(case, posture, log_of(case), throws=throws)
        document = reader.document
        if case["name"].endswith(FOREIGN):
            assert reader.raised is None
            assert reader.events == []
            assert document.snapshot_verdict is SnapshotVerdict.NONE
            assert document.snapshot_verified is None
            continue
        assert isinstance(reader.raised, RejectedElementsError) == throws
        [rejection] = reader.events
        assert isinstance(rejection, Rejection)
        assert rejection.evidence == snapshot_of(case)
        assert not rejection.proven
        assert document.snapshot_verdict is SnapshotVerdict.FORGED
        assert document.snapshot_verified is False


@every_trust
@every_lie
async def test_a_lie_of_the_role_is_believed_by_those_who_trust(
    case: dict[str, Any], posture: Posture
) -> None:
    reader = await read(case, posture, case["log"])
    document = reader.document
    assert reader.raised is None
    assert reader.events == []
    assert document.materialize() == {**fold(case["log"]).materialize(), "injected": "lie"}
    assert document.snapshot_verdict is SnapshotVerdict.TRUSTED


@every_lie
async def test_a_lie_of_the_role_is_found_by_who_folds_the_log(case: dict[str, Any]) -> None:
    for throws in (True, False):
        reader = await read(case, "re-derive", case["log"], throws=throws)
        document = reader.document
        assert isinstance(reader.raised, SnapshotMismatchError) == throws
        assert document.materialize() == fold(case["log"]).materialize()
        assert document.snapshot_verdict is SnapshotVerdict.MISMATCH
        assert document.snapshot_verified is False
        [rejection] = reader.events
        assert isinstance(rejection, Rejection)
        assert rejection.author == case["role_pubkey"]
        assert rejection.proven


@every_good
async def test_our_snapshot_of_the_log_has_the_recorded_canonical_form(
    case: dict[str, Any],
) -> None:
    for wire in ("starfish", "packed"):
        document = WalDocument(
            key_of(case),
            transport=RecordedLog(case["log"]),
            identity=READER,
            writers={element["authorPubkey"] for element in case["log"]},
            snapshot_role=[READER.public_key],
            snapshot_store=await stored(key_of(case), None),
            wire=wire,
        )
        await document.open()
        ours = read_snapshot(
            await document.snapshot(),
            document_key=key_of(case),
            is_producer=[READER.public_key].__contains__,
            encryptor=PlainEncryptor(),
        )
        assert ours.crdt.canonical_state() == case["state_canonical"]
        assert ours.upto_ts == snapshot_of(case)["uptoTs"]
        assert ours.writer_seq == snapshot_of(case)["writerSeq"]


@every_case
def test_what_is_signed_is_recorded(case: dict[str, Any]) -> None:
    snapshot = snapshot_of(case)
    members = ("state", "uptoTs", "writerSeq", "producedBy")
    content = {name: snapshot[name] for name in members}
    text = canonical_text({"d": content, "k": case["snapshot_key"]})
    assert case["signing_input"] == f"starfish-doc-author-v1\n{text}"
