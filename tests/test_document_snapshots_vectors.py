"""Recorded snapshots, good and forged, in every posture.

- Accepted is what shows when the log holds nothing else; rejected is what never shows.
- A forgery is reported; a good snapshot by somebody without the role is passed over in silence.
- A lie by the role is found by who folds the log, and the log is what is shown then.
"""

from __future__ import annotations

from collections.abc import Callable
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
from walstore.document.opening import Posture
from walstore.document.snapshot import (
    SNAPSHOT_SUFFIX,
    ForeignSnapshotError,
    ForgedSnapshotError,
    read_snapshot,
)
from walstore.errors import MalformedError
from walstore.sealed import PlainEncryptor
from walstore.signed import AuthorProof, Identity, sign_document

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


# ── well signed by the role, and no snapshot all the same ──────────────────────────────

LINK = "0" * 64
NAMELESS = {"id": "", "after": "", "clock": {"c": 1, "r": "r"}, "value": 1, "deleted": False}
SOUND: dict[str, Any] = {
    "state": {"v": 1, "regs": {}, "lists": {}, "x": {"maxClock": 1, "heads": {}, "seqs": {}}},
    "uptoTs": 1,
    "writerSeq": {},
    "producedBy": READER.public_key,
}


def with_state(**members: Any) -> dict[str, Any]:
    return {"state": {**SOUND["state"], **members}}


def with_x(**members: Any) -> dict[str, Any]:
    return with_state(x={**SOUND["state"]["x"], **members})


def cut_with_x(**members: Any) -> dict[str, Any]:
    return with_x(cuts=[[1, 1]], **members)


def each(
    member: str, *values: Any, within: Callable[..., dict[str, Any]] = dict
) -> dict[str, dict[str, Any]]:
    """A row for every value of a member."""
    return {f"{member} {value!r}": within(**{member: value}) for value in values}


UNSOUND: dict[str, dict[str, Any]] = {
    **each("uptoTs", None, True, "1", 1.5, -1, 2**53),
    **each("writerSeq", None, [], {"a": None}, {"a": -1}, {"a": 1.5}, {"a": "1"}, {"a": 2**53}),
    **each("state", [], "{}", 7, {"_encrypted": "", "_epoch": 1}),
    **each("v", 0, 2, 3, "1", None, True, within=with_state),
    **each("regs", None, [], {"r": None}, {"r": {"value": 1}}, within=with_state),
    **each("lists", None, [], {"l": {}}, {"l": [None]}, {"l": [NAMELESS]}, within=with_state),
    **each("maxClock", None, True, -1, 1.5, 2**53, within=with_x),
    **each("ceiling", None, True, -1, 1.5, 2**53, within=with_x),
    **each("cuts", None, [1], [[1]], [[0, 1]], [[2, 1]], [[1, 0]], within=with_x),
    **each("cuts", [[1, 2**53]], [[1, 1], [1, 1]], [[True, 1]], within=with_x),
    **each("covered", [], {"a:s": "1"}, {"a:s": 0}, within=cut_with_x),
    **each("seqs", [], {"a:s": "1"}, {"a:s": -1}, within=with_x),
    **each("heads", [], {"a": {}}, {"a": [1]}, {"a": [[LINK, "s"]]}, within=with_x),
    **each("heads", {"a": [["0", "s", 1]]}, {"a": [[LINK, "s" * 129, 1]]}, within=with_x),
    **each("heads", {"a": [[LINK, "s", 0]]}, {"a": [[LINK, "s", True]]}, within=with_x),
    "packed as nothing": with_state(v=2, packed=[]),
}


def signed(**members: Any) -> dict[str, Any]:
    content = {**SOUND, **members}
    return {**content, **named_proof(sign_document("k" + SNAPSHOT_SUFFIX, content, READER))}


def named_proof(proof: AuthorProof) -> dict[str, str]:
    return {"authorPubkey": proof.author_pubkey, "authorSignature": proof.author_signature}


async def open_with(snapshot: Any, posture: Posture) -> tuple[WalDocument, list[Event]]:
    events: list[Event] = []
    document = WalDocument(
        "k",
        transport=RecordedLog(),
        identity=READER,
        writers=(),
        snapshot_role=[READER.public_key],
        snapshot_store=await stored("k", snapshot),
        posture=posture,
        on_author_error="skip",
        on_event=events.append,
    )
    return await document.open(), events


async def test_the_snapshot_that_the_unsound_ones_are_made_from_is_sound() -> None:
    document, events = await open_with(signed(), "trust")
    assert document.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert document.current_checkpoint == 1
    assert events == []


@every_posture
@pytest.mark.parametrize("members", UNSOUND.values(), ids=UNSOUND.keys())
async def test_an_unsound_snapshot_of_the_role_is_refused_whole(
    members: dict[str, Any], posture: Posture
) -> None:
    document, events = await open_with(signed(**members), posture)
    assert document.snapshot_verdict is SnapshotVerdict.FORGED
    assert document.current_checkpoint == 0
    assert document.materialize() == {}
    assert [type(event) for event in events] == [Rejection]


@every_posture
@pytest.mark.parametrize("missing", ["state", "uptoTs", "writerSeq", "producedBy"])
async def test_a_snapshot_without_a_signed_member_is_refused(
    missing: str, posture: Posture
) -> None:
    content = {name: value for name, value in SOUND.items() if name != missing}
    proof = sign_document("k" + SNAPSHOT_SUFFIX, content, READER)
    document, events = await open_with({**content, **named_proof(proof)}, posture)
    assert document.snapshot_verdict is SnapshotVerdict.FORGED
    assert [type(event) for event in events] == [Rejection]
