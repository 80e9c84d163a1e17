"""What a log may hold and no reader may take: recorded cases, and every check in its order.

- A bad element changes nothing, is reported once with its evidence, moves the cursor, and what
  comes after it shows.
- Of several flaws the one that is checked first is reported; so a proven author is never blamed
  for what a relay did.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.recorded import RecordedLog, load, named
from walstore.canon import canonical_bytes
from walstore.crdt import Op, pack_ops, to_runs
from walstore.crdt.runs import Verbatim
from walstore.document import (
    ALLOW_ANY,
    Event,
    Fork,
    RejectedElementsError,
    Rejection,
    SnapshotRefusedError,
    WalDocument,
)
from walstore.document.log import DocumentLog
from walstore.document.opening import Posture
from walstore.document.ports import RawElement
from walstore.net import MemorySnapshots
from walstore.sealed import (
    ContentKeys,
    Encryptor,
    PlainEncryptor,
    SealContext,
    StarfishEncryptor,
)
from walstore.signed import Identity, sign_append, sign_document
from walstore.wire.limits import (
    BATCH_OPS_MAX,
    COUNTER_JUMP_MAX,
    DATA_DEPTH_MAX,
    ELEMENT_BYTES_MAX,
    SESSION_SIZE_MAX,
    TS_MAX,
)

CASES = load("malformed.json")
KEY = "spaces/m/doc"
AUTHOR = Identity.from_seed(bytes([1]) * 32)
OTHER = Identity.from_seed(bytes([2]) * 32)
READER = Identity.from_seed(bytes([3]) * 32)
NOWHERE = SealContext("", "", 0)
SMALL_ORDER_KEY = "01" + "00" * 31
OPS = [{"t": "set", "reg": "x", "clock": {"c": 1, "r": AUTHOR.public_key + ":0"}, "value": 1}]

every_case = named(CASES)
every_refused = named([case for case in CASES if case["required"] == "reject element"])
every_posture = pytest.mark.parametrize("posture", ["trust", "trust-retain-tail", "re-derive"])
each_answer = pytest.mark.parametrize("on_author_error", ["throw", "skip"])


def envelope(writer: Identity = AUTHOR, /, seq: Any = 1, **members: Any) -> dict[str, Any]:
    return {"v": 1, "author": writer.public_key, "seq": seq, "ops": [], **members}


def element(ts: Any, data: Any, author: Identity = AUTHOR, **members: Any) -> dict[str, Any]:
    proof = sign_append(KEY, data, author)
    return {
        "ts": ts,
        "data": data,
        "authorPubkey": proof.author_pubkey,
        "authorSignature": proof.author_signature,
        **members,
    }


def op(counter: int, name: str, value: Any, author: Identity = OTHER) -> dict[str, Any]:
    clock = {"c": counter, "r": author.public_key + ":0"}
    return {"t": "set", "reg": name, "clock": clock, "value": value}


BEFORE = element(5, envelope(OTHER, 1, ops=[op(1, "before", 1)]), OTHER)
AFTER = element(15, envelope(OTHER, 2, ops=[op(2, "after", 2)]), OTHER)


class Reader:
    """A document over given elements, opened, with what it reported."""

    def __init__(self, elements: list[Any], **options: Any) -> None:
        self.events: list[Event] = []
        self.log = RecordedLog(elements, page=2)
        self.raised: RejectedElementsError | None = None
        self.document = WalDocument(
            KEY,
            transport=self.log,
            identity=READER,
            on_event=self.events.append,
            **{"writers": ALLOW_ANY, "snapshot_role": ALLOW_ANY, **options},
        )

    async def open(self) -> Reader:
        try:
            await self.document.open()
        except RejectedElementsError as error:
            self.raised = error
        return self

    @property
    def rejections(self) -> list[Rejection]:
        return [event for event in self.events if isinstance(event, Rejection)]


# ── the recorded cases ─────────────────────────────────────────────────────────────────


@each_answer
@every_posture
@every_refused
async def test_a_malformed_element_alone_changes_nothing(
    case: dict[str, Any], posture: Posture, on_author_error: str
) -> None:
    assert case["document_key"] == KEY
    reader = Reader([case["element"]], posture=posture, on_author_error=on_author_error)
    await reader.open()
    document = reader.document
    assert (reader.raised is not None) == (on_author_error == "throw")
    assert document.materialize() == {}
    assert document.detected_gaps() == []
    assert document.current_checkpoint == case["element"]["ts"]
    assert [each.evidence for each in reader.rejections] == [case["element"]]
    assert [each.evidence for each in document.rejected()] == [case["element"]]
    assert document.retained_tail() == []


@each_answer
@every_posture
@every_refused
async def test_what_comes_after_a_malformed_element_shows(
    case: dict[str, Any], posture: Posture, on_author_error: str
) -> None:
    elements = [BEFORE, case["element"], AFTER]
    reader = Reader(elements, posture=posture, on_author_error=on_author_error)
    await reader.open()
    document = reader.document
    assert (reader.raised is not None) == (on_author_error == "throw")
    assert document.materialize() == {"before": 1, "after": 2}
    assert document.current_checkpoint == 15
    assert [each.ts for each in reader.rejections] == [case["element"]["ts"]]
    assert await document.pull() == 0
    assert len(reader.rejections) == 1


@each_answer
@every_refused
async def test_a_malformed_element_that_is_pulled_later_stops_nothing(
    case: dict[str, Any], on_author_error: str
) -> None:
    reader = await Reader([BEFORE], on_author_error=on_author_error).open()
    document = reader.document
    reader.log.elements += [case["element"], AFTER]
    if on_author_error == "throw":
        with pytest.raises(RejectedElementsError) as caught:
            await document.pull()
        assert [each.ts for each in caught.value.rejections] == [case["element"]["ts"]]
    else:
        assert await document.pull() == 1
    assert document.materialize() == {"before": 1, "after": 2}
    document.set_field("mine", 3)
    await document.commit()
    assert await document.pull() == 1
    assert document.materialize() == {"before": 1, "after": 2, "mine": 3}
    assert len(reader.rejections) == 1


@every_refused
async def test_a_malformed_element_has_no_effect_on_later_clocks(case: dict[str, Any]) -> None:
    reader = await Reader([case["element"]], on_author_error="skip", wire="starfish").open()
    reader.document.set_field("mine", 1)
    await reader.document.commit()
    assert reader.log.elements[-1]["data"]["ops"][0]["clock"]["c"] == 1


@every_posture
async def test_a_register_called_proto_is_ignored(posture: Posture) -> None:
    [case] = [case for case in CASES if case["required"] != "reject element"]
    assert case["required"].startswith("accept element, ignore the op")
    reader = await Reader([BEFORE, case["element"], AFTER], posture=posture).open()
    assert reader.events == []
    assert reader.document.materialize() == {"before": 1, "after": 2}
    assert reader.document.field("__proto__") is None
    assert len(reader.document.retained_tail()) == 3


# ── every check in its order ───────────────────────────────────────────────────────────


class Judgement:
    """What a log made of one element between two good ones; those must show in any case."""

    def __init__(
        self,
        value: Any,
        *,
        writers: Callable[[str], bool] = ALLOW_ANY,
        encryptor: Encryptor | None = None,
    ) -> None:
        encryptor = PlainEncryptor() if encryptor is None else encryptor
        before, after = (
            element(
                ts, encryptor.seal(envelope(OTHER, seq, ops=[op(seq, name, seq)]), NOWHERE), OTHER
            )
            for ts, seq, name in ((5, 1, "before"), (15, 2, "after"))
        )
        self.log = DocumentLog(KEY, encryptor=encryptor, is_writer=writers)
        reading = self.log.read([before, value, after])
        shown = self.log.crdt.materialize()
        assert (shown.pop("before"), shown.pop("after")) == (1, 2)
        assert self.log.checkpoint == 15
        self.shown = shown
        self.rejections = [each for each in reading.events if isinstance(each, Rejection)]
        self.is_folded = len(reading.folded) == 3

    @property
    def is_accepted(self) -> bool:
        return self.is_folded and not self.rejections and not self.log.unreadable

    @property
    def rejection(self) -> Rejection:
        """The one rejection; a rejected element has changed nothing."""
        assert not self.is_folded
        assert self.shown == {}
        assert self.log.tracker.highest(AUTHOR.public_key, None) == 0
        [rejection] = self.rejections
        return rejection

    @property
    def reason(self) -> str:
        return self.rejection.reason


def nested(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


def valid(**members: Any) -> dict[str, Any]:
    """A good element at 10, or one with another member."""
    return {**element(10, envelope(ops=OPS)), **members}


def test_the_element_that_the_bad_ones_are_made_from_is_good() -> None:
    judgement = Judgement(valid())
    assert judgement.is_accepted
    assert judgement.shown == {"x": 1}


@pytest.mark.parametrize("value", [None, True, 7, "element", [], [valid()]])
def test_check_1_an_element_is_an_object(value: Any) -> None:
    assert Judgement(value).reason == "not an object"


@pytest.mark.parametrize("ts", [None, True, "10", 1.5, -1, TS_MAX + 1, 10**400, [], {}])
def test_check_1_a_ts_is_an_integer_within_range(ts: Any) -> None:
    assert Judgement(valid(ts=ts)).reason.startswith("`ts` is not an integer")
    value = valid()
    raw = RawElement(
        ts, canonical_bytes(value["data"]), value["authorPubkey"], value["authorSignature"]
    )
    assert Judgement(raw).reason.startswith("`ts` is not an integer")


def test_check_1_a_ts_is_there() -> None:
    value = valid()
    del value["ts"]
    assert Judgement(value).reason.startswith("`ts` is not an integer")


@pytest.mark.parametrize("ts", [0, 4, 5])
def test_check_1_a_ts_is_greater_than_the_one_before(ts: int) -> None:
    assert Judgement(valid(ts=ts)).reason == "`ts` does not increase"


@pytest.mark.parametrize("data", [None, True, 7, "{}", [], [envelope()]])
def test_check_1_the_data_is_an_object(data: Any) -> None:
    assert Judgement(valid(data=data)).reason == "`data` is not an object"
    assert Judgement(element(10, data)).reason == "`data` is not an object"


def test_check_1_the_data_is_there() -> None:
    value = valid()
    del value["data"]
    assert Judgement(value).reason == "`data` is not an object"


def test_check_1_the_depth_is_limited() -> None:
    deepest = envelope(ops=[{**OPS[0], "value": nested(DATA_DEPTH_MAX - 3)}])
    too_deep = envelope(ops=[{**OPS[0], "value": nested(DATA_DEPTH_MAX - 2)}])
    assert Judgement(element(10, deepest)).is_accepted
    assert "levels" in Judgement(element(10, too_deep)).reason


@pytest.mark.parametrize("levels", [1_000, 100_000])
def test_check_1_no_depth_exhausts_the_stack(levels: int) -> None:
    assert "levels" in Judgement(valid(data={"v": nested(levels)})).reason


def test_check_1_the_size_is_limited() -> None:
    def padded(size: int) -> dict[str, Any]:
        data = envelope(ops=OPS, pad="")
        return {**data, "pad": "." * (size - len(canonical_bytes(data)))}

    assert Judgement(element(10, padded(ELEMENT_BYTES_MAX))).is_accepted
    assert "bytes exceed" in Judgement(element(10, padded(ELEMENT_BYTES_MAX + 1))).reason


@pytest.mark.parametrize(
    "foreign",
    [float("nan"), float("inf"), 10**400, {1: 2}, {None: 1}, b"", {1}, Ellipsis],
    ids=repr,
)
def test_check_1_what_is_no_json_is_refused(foreign: Any) -> None:
    rejection = Judgement(valid(data={**envelope(ops=OPS), "x": foreign})).rejection
    assert not rejection.proven


@pytest.mark.parametrize("ts", [6, 10, 14])
def test_check_1_a_flaw_in_the_shape_moves_the_cursor(ts: int) -> None:
    log = DocumentLog(KEY, encryptor=PlainEncryptor(), is_writer=ALLOW_ANY)
    for bad in (valid(ts=ts, data=None), RawElement(ts, b"{", AUTHOR.public_key, "")):
        log.checkpoint = 5
        assert [type(event) for event in log.read([bad]).events] == [Rejection]
        assert log.checkpoint == ts


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b'{"v":NaN}', b"\xff", b'{"v":1e400}', b"{}{}"]
)
def test_check_1_data_that_comes_as_text_is_checked_alike(text: bytes) -> None:
    raw = RawElement(10, text, AUTHOR.public_key, valid()["authorSignature"])
    rejection = Judgement(raw).rejection
    assert (rejection.ts, rejection.author, rejection.proven) == (10, AUTHOR.public_key, False)


@pytest.mark.parametrize(
    "key",
    [
        None,
        7,
        "",
        AUTHOR.public_key.upper(),
        AUTHOR.public_key[:-1],
        AUTHOR.public_key + "0",
        " " + AUTHOR.public_key[1:],
        "é" * 64,
        "\ud800" * 64,
        SMALL_ORDER_KEY,
        "00" * 32,
        OTHER.public_key,
    ],
)
def test_check_2_the_author_key_is_strict(key: Any) -> None:
    assert not Judgement(valid(authorPubkey=key)).rejection.proven


SIGNATURE: str = valid()["authorSignature"]


def beyond_the_group_order(signature: str) -> str:
    """The same point with S + L: the classic second signature of one text."""
    raw = b64decode(signature)
    order = 2**252 + 27742317777372353535851937790883648493
    scalar = int.from_bytes(raw[32:], "little") + order
    return b64encode(raw[:32] + scalar.to_bytes(32, "little")).decode()


@pytest.mark.parametrize(
    "signature",
    [
        None,
        7,
        "",
        SIGNATURE.rstrip("="),
        SIGNATURE + "\n",
        " " + SIGNATURE,
        SIGNATURE.replace("=", "*"),
        SIGNATURE[:-3] + chr(ord(SIGNATURE[-3]) ^ 1) + "==",
        b64encode(b64decode(SIGNATURE)[:-1]).decode(),
        b64encode(bytes(64)).decode(),
        beyond_the_group_order(SIGNATURE),
        "\ud800" * 88,
    ],
)
def test_check_2_the_signature_is_strict(signature: Any) -> None:
    assert not Judgement(valid(authorSignature=signature)).rejection.proven


def test_check_2_the_signature_is_the_authors_over_this_data_in_this_log() -> None:
    data = envelope(ops=OPS)
    for proof in (
        sign_append(KEY, data, OTHER),
        sign_append(KEY + "2", data, AUTHOR),
        sign_document(KEY, data, AUTHOR),
        sign_append(KEY, {**data, "seq": 2}, AUTHOR),
    ):
        rejection = Judgement(valid(authorSignature=proof.author_signature)).rejection
        assert not rejection.proven
        assert "signature" in rejection.reason


def test_check_3_the_author_may_write() -> None:
    judgement = Judgement(valid(), writers=[OTHER.public_key].__contains__)
    assert judgement.reason == "its author may not write"
    assert judgement.rejection.proven


def sealing(**keys: bytes) -> StarfishEncryptor:
    """An encryptor with the content keys of given epochs, the last one current."""
    epochs = {int(name[1:]): key for name, key in keys.items()}
    return StarfishEncryptor(ContentKeys(max(epochs), epochs), randomness=bytes)


ONE, TWO = bytes([1]) * 32, bytes([2]) * 32
SEALED = sealing(e1=ONE)


def sealed(plain: dict[str, Any] | bytes, encryptor: StarfishEncryptor = SEALED) -> dict[str, Any]:
    return element(10, encryptor.seal(plain, NOWHERE))


def test_check_4_a_good_seal_opens() -> None:
    judgement = Judgement(sealed(envelope(ops=OPS)), encryptor=SEALED)
    assert judgement.is_accepted
    assert judgement.shown == {"x": 1}


def test_check_4_an_element_without_a_key_is_unreadable_and_not_rejected() -> None:
    later = sealing(e1=ONE, e2=TWO)
    judgement = Judgement(sealed(envelope(ops=OPS), later), encryptor=SEALED)
    assert judgement.rejections == []
    assert len(judgement.log.unreadable) == 1
    assert judgement.shown == {}
    log = judgement.log
    log.encryptor = later
    assert [entry.element.ts for entry in log.read_again().folded] == [10]
    assert log.crdt.get_register("x") == 1
    assert len(log.unreadable) == 0


@pytest.mark.parametrize(
    "plain", [b"", b"null", b"[]", b"7", b"{", b"\xff{}", b'{"a":NaN}', b'{"a":1e400}']
)
def test_check_4_a_seal_holds_a_json_object(plain: bytes) -> None:
    assert Judgement(sealed(plain), encryptor=SEALED).rejection.proven


@pytest.mark.parametrize("place", [0, 12, 40, -1])
def test_check_4_a_flipped_bit_breaks_the_seal(place: int) -> None:
    data = SEALED.seal(envelope(ops=OPS), NOWHERE)
    body = bytearray(b64decode(str(data["_encrypted"])))
    body[place] ^= 1
    flipped = element(10, {**data, "_encrypted": b64encode(body).decode()})
    assert Judgement(flipped, encryptor=SEALED).rejection.proven


@pytest.mark.parametrize("epoch", [0, -1, 1.5, "1", None, True, 2**53, [1]])
def test_check_4_an_epoch_is_a_counting_number(epoch: Any) -> None:
    data = {**SEALED.seal(envelope(ops=OPS), NOWHERE), "_epoch": epoch}
    assert Judgement(element(10, data), encryptor=SEALED).rejection.proven


def test_check_4_another_epoch_of_the_same_key_does_not_open() -> None:
    data = {**SEALED.seal(envelope(ops=OPS), NOWHERE), "_epoch": 2}
    both = sealing(e2=ONE)
    assert Judgement(element(10, data), encryptor=both).rejection.proven


def test_check_4_a_sealed_document_takes_no_plain_element_and_the_other_way_round() -> None:
    assert Judgement(valid(), encryptor=SEALED).rejection.proven
    assert Judgement(sealed(envelope(ops=OPS))).rejection.proven


BAD_SEQS: list[Any] = [0, -1, 1.5, "1", None, True, 2**53, [], {}]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (envelope(v=0, ops=OPS), "`v` is not 1"),
        (envelope(v=3, ops=OPS), "`v` is not 1"),
        (envelope(v="1", ops=OPS), "`v` is not 1"),
        (envelope(v=True, ops=OPS), "`v` is not 1"),
        (envelope(v=None, ops=OPS), "`v` is not 1"),
        (envelope(author=OTHER.public_key, ops=OPS), "`author` is not the one who signed"),
        (envelope(author=None, ops=OPS), "`author` is not the one who signed"),
        (envelope(author=AUTHOR.public_key.upper()), "`author` is not the one who signed"),
        *[
            (envelope(seq=seq, ops=OPS), "`seq` is not an integer from 1 to 2^53 - 1")
            for seq in BAD_SEQS
        ],
        *[
            (envelope(ops=ops), "`ops` is not an array")
            for ops in (None, {}, "[]", 7, True, {"0": OPS[0]})
        ],
        (envelope(ops=[OPS[0]] * (BATCH_OPS_MAX + 1)), f"more than {BATCH_OPS_MAX} ops"),
    ],
)
def test_check_5_the_envelope_is_checked(data: dict[str, Any], reason: str) -> None:
    rejection = Judgement(element(10, data)).rejection
    assert rejection.reason == reason
    assert rejection.proven


def test_check_5_an_envelope_without_ops_is_valid() -> None:
    assert Judgement(element(10, envelope())).is_accepted


def test_check_5_unknown_members_are_passed_over() -> None:
    assert Judgement(element(10, envelope(ops=OPS, later=[1], x={"other": 1}))).is_accepted


R = AUTHOR.public_key + ":0"
CLOCK = {"c": 1, "r": R}
SET = {"t": "set", "reg": "x", "clock": CLOCK, "value": 1}
INS = {"t": "ins", "list": "l", "id": f"1@{R}", "after": "", "clock": CLOCK, "value": 1}
RMV = {"t": "rmv", "list": "l", "id": f"1@{OTHER.public_key}:0", "clock": CLOCK}
DEL = {"t": "del", "reg": "x", "clock": CLOCK}


def without(op: dict[str, Any], member: str) -> dict[str, Any]:
    return {name: value for name, value in op.items() if name != member}


BAD_OPS: dict[str, Any] = {
    "null": None,
    "an array": [],
    "a text": "set",
    "without a kind": without(SET, "t"),
    "a kind that is no text": {**SET, "t": 1},
    "without a clock": without(SET, "clock"),
    "a clock that is an array": {**SET, "clock": [1, R]},
    "a clock without c": {**SET, "clock": {"r": R}},
    "a clock without r": {**SET, "clock": {"c": 1}},
    "a clock with more": {**SET, "clock": {**CLOCK, "x": 1}},
    **{
        f"c {c!r}": {**SET, "clock": {"c": c, "r": R}}
        for c in (0, -1, 1.5, "7", True, 2**53, 1e300)
    },
    "r a number": {**SET, "clock": {"c": 1, "r": 5}},
    "r without a session": {**SET, "clock": {"c": 1, "r": AUTHOR.public_key}},
    "r of another author": {**SET, "clock": {"c": 1, "r": OTHER.public_key + ":0"}},
    "r that begins otherwise": {**SET, "clock": {"c": 1, "r": " " + R}},
    "r with an endless session": {**SET, "clock": {"c": 1, "r": R + "0" * SESSION_SIZE_MAX}},
    "r in upper case": {**SET, "clock": {"c": 1, "r": R.upper()}},
    "set without a register": without(SET, "reg"),
    "set of a number": {**SET, "reg": 1},
    "set without a value": without(SET, "value"),
    "del without a register": without(DEL, "reg"),
    "ins without a list": without(INS, "list"),
    "ins without an id": without(INS, "id"),
    "ins with an empty id": {**INS, "id": ""},
    "ins with an id that is no text": {**INS, "id": 5},
    "ins with the id of another clock": {**INS, "id": f"2@{R}"},
    "ins with the id of another replica": {**INS, "id": f"1@{OTHER.public_key}:0"},
    "ins with a padded id": {**INS, "id": f"01@{R}"},
    "ins with a free id": {**INS, "id": "x"},
    "ins without an anchor": without(INS, "after"),
    "ins with an anchor that is no text": {**INS, "after": None},
    "ins without a value": without(INS, "value"),
    "rmv without a list": without(RMV, "list"),
    "rmv without an id": without(RMV, "id"),
    "rmv with an empty id": {**RMV, "id": ""},
    "rmv with an id that is no text": {**RMV, "id": 5},
    "an unknown kind without a clock": {"t": "inc"},
    "an unknown kind with another's clock": {"t": "inc", "clock": {"c": 1, "r": "r"}},
    "a counter far above everything": {**SET, "clock": {"c": COUNTER_JUMP_MAX + 2, "r": R}},
}


@pytest.mark.parametrize("op", BAD_OPS.values(), ids=BAD_OPS.keys())
def test_check_6_one_bad_op_rejects_the_whole_element(op: Any) -> None:
    good = [{**SET, "reg": "y", "clock": {"c": 2, "r": R}}, {**SET, "clock": {"c": 3, "r": R}}]
    for ops in ([op], [op, *good], [*good, op], [good[0], op, good[1]]):
        assert Judgement(element(10, envelope(ops=ops))).rejection.proven


@pytest.mark.parametrize("op", BAD_OPS.values(), ids=BAD_OPS.keys())
def test_check_6_holds_inside_a_seal(op: Any) -> None:
    assert Judgement(sealed(envelope(ops=[op])), encryptor=SEALED).rejection.proven


GOOD_OPS: dict[str, Any] = {
    "set": SET,
    "set to null": {**SET, "value": None},
    "del": DEL,
    "ins": INS,
    "ins after what nobody knows": {**INS, "after": "9@nobody"},
    "ins after free text": {**INS, "after": "x"},
    "ins after itself": {**INS, "after": INS["id"]},
    "rmv of what nobody knows": RMV,
    "rmv of a free id": {**RMV, "id": "x"},
    "an unknown kind": {"t": "inc", "clock": CLOCK, "by": [1]},
    "unknown members": {**SET, "note": {"a": 1}},
    "a counter spelled as a float": {**SET, "clock": {"c": 1.0, "r": R}},
    "the highest counter that can follow": {**SET, "clock": {"c": COUNTER_JUMP_MAX + 1, "r": R}},
    "a session of odd text": {**SET, "clock": {"c": 1, "r": AUTHOR.public_key + ":é\ud800:@"}},
}


@pytest.mark.parametrize("op", GOOD_OPS.values(), ids=GOOD_OPS.keys())
def test_check_6_takes_what_the_format_allows(op: Any) -> None:
    assert Judgement(element(10, envelope(ops=[op]))).is_accepted


@pytest.mark.parametrize("name", ["__proto__"])
@pytest.mark.parametrize("kind", [SET, DEL, INS, RMV])
def test_check_6_a_name_that_peers_cannot_show_is_ignored(kind: Any, name: str) -> None:
    member = "reg" if "reg" in kind else "list"
    judgement = Judgement(element(10, envelope(ops=[{**kind, member: name}])))
    assert judgement.is_accepted
    assert judgement.shown == {}


@pytest.mark.parametrize("name", ["constructor", "prototype", "__class__", "__dict__"])
def test_check_6_other_reserved_names_are_shown(name: str) -> None:
    judgement = Judgement(element(10, envelope(ops=[{**SET, "reg": name}])))
    assert judgement.shown == {name: 1}


# ── the same for version 2 ─────────────────────────────────────────────────────────────


def packed(*rows: Any, replicas: Any = ("",), **members: Any) -> dict[str, Any]:
    """Version-2 data of the session "0"."""
    table = list(replicas) if isinstance(replicas, tuple) else replicas
    return {
        "v": 2,
        "author": AUTHOR.public_key,
        "session": "0",
        "seq": 1,
        "body": {"ops": [table, *rows]},
        **members,
    }


[_, PACKED_SET] = pack_ops(to_runs([cast("Op", SET)]))
ELSE = OTHER.public_key + ":0"


def verbatim(op: Any) -> list[Any]:
    [_, row] = pack_ops([Verbatim({"t": "inc", "clock": CLOCK})])
    return [row[0], op]


BAD_PACKED: dict[str, dict[str, Any]] = {
    "another author": packed(PACKED_SET, author=OTHER.public_key),
    "no author": packed(PACKED_SET, author=None),
    "no session": without(packed(PACKED_SET), "session"),
    "no seq": without(packed(PACKED_SET), "seq"),
    "no body": without(packed(PACKED_SET), "body"),
    "a body that is an array": packed(body=[[""], PACKED_SET]),
    "no ops": packed(body={}),
    "ops that are an object": packed(body={"ops": {}}),
    "no table": packed(body={"ops": []}),
    "a table that is no array": packed(PACKED_SET, replicas="r"),
    "a replica that is no text": packed(PACKED_SET, replicas=(1,)),
    "the own replica twice": packed(PACKED_SET, replicas=("", R)),
    "another author's clock": packed(PACKED_SET, replicas=(ELSE,)),
    "another session's clock": packed(PACKED_SET, replicas=(AUTHOR.public_key + ":1",)),
    "a row that is no array": packed({}),
    "a row of an unknown kind": packed([99]),
    "a row of no kind": packed([]),
    "a verbatim op that is none": packed(verbatim(None)),
    "a verbatim op without a clock": packed(verbatim({"t": "inc"})),
    "a verbatim op of another": packed(verbatim({"t": "inc", "clock": {"c": 1, "r": ELSE}})),
    "a verbatim insert with a free id": packed(verbatim({**INS, "id": "x", "after": "y"})),
    "a verbatim insert with an empty id": packed(verbatim({**INS, "id": "", "after": "y"})),
    "a verbatim remove of an empty id": packed(verbatim({**RMV, "id": ""})),
    "a counter far above": packed([*PACKED_SET[:3], COUNTER_JUMP_MAX + 2, PACKED_SET[4]]),
}


def test_the_packed_element_that_the_bad_ones_are_made_from_is_good() -> None:
    judgement = Judgement(element(10, packed(PACKED_SET)))
    assert judgement.is_accepted
    assert judgement.shown == {"x": 1}
    assert Judgement(element(10, packed(verbatim({"t": "inc", "clock": CLOCK})))).is_accepted
    assert Judgement(element(10, packed(PACKED_SET, replicas=(R,)))).is_accepted


@pytest.mark.parametrize("data", BAD_PACKED.values(), ids=BAD_PACKED.keys())
def test_checks_5_and_6_hold_for_packed_elements(data: dict[str, Any]) -> None:
    rejection = Judgement(element(10, data)).rejection
    assert rejection.author == AUTHOR.public_key


@pytest.mark.parametrize(
    "header",
    [
        {"session": ""},
        {"session": 1},
        {"seq": 0},
        {"seq": "1"},
        {"seq": 2**53},
        {"prev": 1},
        {"prev": "00"},
        {"seen": []},
        {"seen": {"r": 0}},
        {"seen": {"r": "1"}},
    ],
    ids=repr,
)
def test_a_header_is_checked_in_both_versions(header: dict[str, Any]) -> None:
    assert Judgement(element(10, {**packed(PACKED_SET), **header})).rejection
    chained = envelope(ops=OPS, x={"session": "0", "seq": 1})
    assert Judgement(element(10, chained)).is_accepted
    assert Judgement(element(10, {**chained, "x": {**chained["x"], **header}})).rejection


ORDER: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "a bad shape before a bad signature",
        valid(data=None),
        valid(data=None, authorSignature=b64encode(bytes(64)).decode()),
    ),
    (
        "a bad signature before an author without the right",
        valid(authorSignature=b64encode(bytes(64)).decode()),
        {**valid(), "authorPubkey": READER.public_key},
    ),
    (
        "a bad signature before a bad envelope",
        valid(authorSignature=b64encode(bytes(64)).decode()),
        valid(data=envelope(v=7)),
    ),
    (
        "an author without the right before a bad envelope",
        element(10, envelope(READER, ops=[]), READER),
        element(10, envelope(READER, ops=[None]), READER),
    ),
    (
        "an author without the right before a seal",
        element(10, envelope(READER, ops=[]), READER),
        element(10, {"_encrypted": "", "_epoch": 9}, READER),
    ),
    (
        "a bad version before a bad author",
        element(10, envelope(v=7)),
        element(10, envelope(v=7, author="x", seq=0, ops=None)),
    ),
    (
        "a bad author before a bad seq",
        element(10, envelope(author="x")),
        element(10, envelope(author="x", seq=0, ops=None)),
    ),
    ("a bad seq before bad ops", element(10, envelope(seq=0)), element(10, envelope(seq=0, ops=7))),
]


@pytest.mark.parametrize(
    ("single", "several"), [row[1:] for row in ORDER], ids=[row[0] for row in ORDER]
)
def test_of_several_flaws_the_first_is_reported(single: Any, several: Any) -> None:
    writers = [AUTHOR.public_key, OTHER.public_key].__contains__
    first, both = Judgement(single, writers=writers), Judgement(several, writers=writers)
    assert first.reason == both.reason
    assert first.rejection.proven == both.rejection.proven


# ── what follows for the document ──────────────────────────────────────────────────────


@each_answer
async def test_pages_of_nothing_but_refuse_do_not_stop_the_log(on_author_error: str) -> None:
    refuse = [valid(ts=ts, data=None) for ts in range(6, 14)]
    reader = await Reader([BEFORE, *refuse, AFTER], on_author_error=on_author_error).open()
    assert reader.document.materialize() == {"before": 1, "after": 2}
    assert len(reader.rejections) == len(refuse)
    assert await reader.document.pull() == 0
    assert len(reader.rejections) == len(refuse)


async def test_an_element_twice_under_two_ts_changes_nothing_and_is_no_fork() -> None:
    reader = await Reader([BEFORE, valid(), valid(ts=11), AFTER]).open()
    assert reader.events == []
    assert reader.document.materialize() == {"before": 1, "x": 1, "after": 2}
    assert reader.document.current_checkpoint == 15


async def test_a_retry_that_repeats_a_seq_with_more_ops_is_no_fork() -> None:
    more = element(11, envelope(ops=[*OPS, {**SET, "reg": "y", "clock": {"c": 2, "r": R}}]))
    reader = await Reader([valid(), more]).open()
    assert reader.events == []
    assert reader.document.materialize() == {"x": 1, "y": 1}


async def test_of_two_ops_with_one_clock_the_first_in_the_log_counts_and_it_is_reported() -> None:
    second = element(11, envelope(seq=2, ops=[{**SET, "value": 2}]))
    reader = await Reader([valid(), second]).open()
    assert reader.document.materialize() == {"x": 1}
    [fork] = reader.events
    assert isinstance(fork, Fork)
    assert (fork.counter, fork.replica) == (1, R)
    assert (fork.first.ts, fork.second.ts) == (10, 11)


@pytest.mark.parametrize("values", [[1], list(range(BATCH_OPS_MAX))])
def test_clocks_that_are_used_over_and_over_again_are_told_in_linear_time(
    values: list[int],
) -> None:
    ops = [{**SET, "value": values[index % len(values)]} for index in range(BATCH_OPS_MAX)]
    log = DocumentLog(KEY, encryptor=PlainEncryptor(), is_writer=ALLOW_ANY)
    started = time.perf_counter()
    log.read([element(ts, envelope(seq=ts, ops=ops)) for ts in (1, 2)])
    # A comparison of each with each would be sixteen million.
    assert time.perf_counter() - started < 10
    assert log.crdt.materialize() == {"x": values[0]}


async def test_whoever_may_not_write_cannot_prevent_a_snapshot() -> None:
    options = {"on_author_error": "skip", "snapshot_store": MemorySnapshots()}
    bad = element(10, envelope(v=7))
    stranger = await Reader([BEFORE, bad], writers=[OTHER.public_key], **options).open()
    assert len(stranger.rejections) == 1
    assert (await stranger.document.snapshot())["uptoTs"] == 10
    options = {"on_author_error": "skip", "snapshot_store": MemorySnapshots()}
    writer = await Reader([BEFORE, bad], **options).open()
    with pytest.raises(SnapshotRefusedError):
        await writer.document.snapshot()
