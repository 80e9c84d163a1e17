"""The way of an edit into the log: nothing is lost, nothing counts twice, whatever happens.

The oracle is always the same: when the network behaves again, everything that was written is in
the log once, a fresh reader shows it, and each session has counted its elements without a hole.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    Gates,
    OfflineError,
    RiggedLog,
    RiggedSnapshots,
    document,
    keyed,
    link_of,
    opened,
    put_in,
    set_op,
    state_of,
    write_starfish,
)
from walstore.canon import canonical_bytes, parse
from walstore.document import (
    Body,
    Event,
    NotOpenError,
    ReadOnlyError,
    RejectedElementsError,
    Rejection,
    RollbackDetectedError,
    SessionNameError,
    SessionUsedError,
    SnapshotRefusedError,
    ValueTooLargeError,
    WalDocument,
)
from walstore.document.ledger import Highs
from walstore.document.log import DocumentLog
from walstore.document.ports import LogBehindError
from walstore.errors import NameRefusedError, TransportError, UsageError
from walstore.sealed import ContentKeys, NativeEncryptor, PlainEncryptor, SealContext
from walstore.wire.envelope import read_header
from walstore.wire.limits import (
    BATCH_OPS_MAX,
    BATCH_REMOVES_MAX,
    ELEMENT_BYTES_MAX,
    STARFISH_ELEMENT_BYTES_MAX,
)

WIRES = ["packed", "starfish"]


class GatedLog(RiggedLog):
    """Suspends before and after each call, and fails as it is told."""

    def __init__(self, gates: Gates, trouble: Callable[[], str] = lambda: "none") -> None:
        super().__init__()
        self.gates = gates
        self.trouble = trouble

    async def append(self, document_key: str, body: Body) -> int:
        trouble = self.trouble()
        await self.gates.wait()
        if trouble == "refuse":
            self.received.append(body)
            raise OfflineError
        ts = await super().append(document_key, body)
        await self.gates.wait()
        if trouble == "lose the answer":
            raise OfflineError
        if trouble == "answer garbage":
            return "soon"  # type: ignore[return-value]
        return ts

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        trouble = self.trouble()
        await self.gates.wait()
        page = await super().pull(document_key, checkpoint)
        await self.gates.wait()
        if trouble in ("refuse", "lose the answer"):
            raise OfflineError
        return page


class UnreliableLog(RiggedLog):
    """Does to each append what a list says, then behaves."""

    def __init__(self, troubles: Sequence[str] = ()) -> None:
        super().__init__()
        self.troubles = list(troubles)

    async def append(self, document_key: str, body: Body) -> int:
        trouble = self.troubles.pop(0) if self.troubles else "none"
        if trouble == "refuse":
            self.received.append(body)
            raise OfflineError
        ts = await super().append(document_key, body)
        match trouble:
            case "lose the answer":
                raise OfflineError
            case "answer text":
                return "1"  # type: ignore[return-value]
            case "answer nothing":
                return None  # type: ignore[return-value]
            case "answer a fraction":
                return 1.5  # type: ignore[return-value]
            case "answer a negative":
                return -1
            case "answer too much":
                return 2**53
            case "answer true":
                return True
            case "answer for another element":
                return int(self.elements[0]["ts"])
            case _:
                return ts


async def read_fresh(log: RiggedLog, **options: Any) -> WalDocument:
    return await opened(RiggedLog(log.elements), BOB, **options)


def header_of(data: dict[str, Any]) -> dict[str, Any]:
    header: dict[str, Any] = data if data.get("v") == 2 else data["x"]
    return header


def assert_each_session_counts_without_a_hole(log: RiggedLog) -> None:
    seqs: dict[str, list[int]] = {}
    for element in log.elements:
        header = header_of(element["data"])
        name = element["authorPubkey"] + ":" + header["session"]
        seqs.setdefault(name, []).append(header["seq"])
    for own in seqs.values():
        assert own == list(range(1, len(own) + 1))


def assert_resent_as_it_was(log: RiggedLog) -> None:
    """Whatever was handed in under one signature was the same, byte for byte."""
    by_seq: dict[tuple[str, str, int], set[tuple[bytes, str]]] = {}
    for body in log.received:
        header = header_of(body.data)
        name = (body.author, header["session"], header["seq"])
        by_seq.setdefault(name, set()).add((body.canonical, body.signature))
    assert all(len(bodies) == 1 for bodies in by_seq.values())


# ── one call ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wire", WIRES)
async def test_edits_made_while_a_commit_waits_are_sent_by_the_next(wire: str) -> None:
    gates = Gates()
    log = GatedLog(gates)
    opening = asyncio.create_task(opened(log, wire=wire))
    await gates.run([opening], lambda: 0)
    doc = await opening
    doc.set_field("before", 1)
    doc.push("list", 1)
    committing = asyncio.create_task(doc.commit())
    await gates.reached()
    doc.set_field("during", 2)
    doc.push("list", 2)
    doc.insert_text("text", 0, "typed")
    gates.release()
    await gates.reached()
    doc.push("list", 3)
    await gates.run([committing], lambda: 0)
    first = await read_fresh(log)
    assert first.materialize() == {"before": 1, "list": [1]}
    committing = asyncio.create_task(doc.commit())
    await gates.run([committing], lambda: 0)
    second = await read_fresh(log)
    assert second.materialize() == doc.materialize()
    assert second.values("list") == [1, 2, 3]
    assert len(log.elements) == 2


async def test_nothing_to_commit_is_nothing_sent() -> None:
    log = RiggedLog()
    doc = await opened(log)
    assert await doc.commit() is None
    doc.insert("list", 0, 1)
    assert await doc.commit() == 1
    assert await doc.commit() is None
    assert len(log.received) == 1


async def test_the_callers_objects_are_not_the_documents() -> None:
    log = RiggedLog()
    doc = await opened(log)
    inner: dict[str, Any] = {"a": [1]}
    doc.set_field("r", inner)
    doc.push("l", inner)
    doc.put("m", "k", inner)
    doc.update({**doc.materialize(), "u": [inner]})
    inner["a"].append("changed behind its back")
    shown = doc.materialize()
    shown["r"]["a"].append("and changed in the answer")
    shown["l"][0]["a"].clear()
    doc.values("l")[0]["a"].clear()
    doc.field("r")["a"].clear()
    doc.entries("m")["k"]["a"].clear()
    await doc.commit()
    expected = {"r": {"a": [1]}, "l": [{"a": [1]}], "m": {"k": {"a": [1]}}, "u": [{"a": [1]}]}
    assert doc.materialize() == expected
    assert (await read_fresh(log)).materialize() == expected


async def test_a_document_that_is_not_open_refuses_everything() -> None:
    doc = document(RiggedLog())
    for call in (doc.materialize, doc.view, doc.history, lambda: doc.set_field("a", 1)):
        with pytest.raises(NotOpenError):
            call()
    for wait in (doc.commit, doc.pull, doc.retry_unreadable):
        with pytest.raises(NotOpenError):
            await wait()


# ── failures ───────────────────────────────────────────────────────────────────────────

TROUBLES = [
    "refuse",
    "lose the answer",
    "answer text",
    "answer nothing",
    "answer a fraction",
    "answer a negative",
    "answer too much",
    "answer true",
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_append_that_is_not_acknowledged_is_sent_again_as_it_was(
    trouble: str, wire: str
) -> None:
    log = UnreliableLog([trouble, trouble])
    doc = await opened(log, wire=wire)
    doc.insert_text("t", 0, "one")
    for _ in range(2):
        with pytest.raises(TransportError):
            await doc.commit()
    assert doc.unsent == 1
    doc.insert_text("t", 3, " two")
    assert await doc.commit() == 2
    assert doc.unsent == 0
    assert_resent_as_it_was(log)
    assert_each_session_counts_without_a_hole(log)
    assert len(log.elements) == 2
    assert (await read_fresh(log)).text("t") == "one two"


@settings(deadline=None)
@given(st.lists(st.sampled_from([*TROUBLES, "none"]), max_size=12), st.sampled_from(WIRES))
async def test_any_row_of_failures_loses_and_doubles_nothing(
    troubles: list[str], wire: str
) -> None:
    log = UnreliableLog(troubles)
    doc = await opened(log, wire=wire)
    for number in range(6):
        doc.push("list", number)
        try:
            await doc.commit()
        except TransportError:
            await doc.pull()
    while doc.unsent:
        try:
            await doc.commit()
        except TransportError:
            continue
    fresh = await read_fresh(log)
    assert fresh.values("list") == list(range(6))
    assert not fresh.detected_gaps()
    assert_resent_as_it_was(log)
    assert_each_session_counts_without_a_hole(log)
    await doc.pull()
    assert state_of(doc) == state_of(fresh)


async def test_a_cancelled_commit_is_sent_again_as_it_was() -> None:
    gates = Gates()
    log = GatedLog(gates)
    opening = asyncio.create_task(opened(log))
    await gates.run([opening], lambda: 0)
    doc = await opening
    doc.set_field("a", 1)
    committing = asyncio.create_task(doc.commit())
    await gates.reached()
    gates.release()
    await gates.reached()
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert doc.unsent == 1
    doc.set_field("b", 2)
    again = asyncio.create_task(doc.commit())
    await gates.run([again], lambda: 0)
    assert_resent_as_it_was(log)
    assert (await read_fresh(log)).materialize() == {"a": 1, "b": 2}


class _FailingEncryptor(PlainEncryptor):
    """Seals nothing for a while, as one whose key is used up."""

    __slots__ = ("fails",)

    def __init__(self) -> None:
        self.fails = True

    def seal(self, plain: Any, context: SealContext) -> Any:
        if self.fails:
            raise UsageError("the key is used up")
        return super().seal(plain, context)


async def test_edits_that_could_not_be_sealed_are_sealed_next_time() -> None:
    log, encryptor = RiggedLog(), _FailingEncryptor()
    doc = await opened(log, encryptor=encryptor)
    doc.set_field("a", 1)
    for _ in range(2):
        with pytest.raises(UsageError):
            await doc.commit()
    doc.set_field("b", 2)
    encryptor.fails = False
    await doc.commit()
    assert (await read_fresh(log)).materialize() == {"a": 1, "b": 2}
    assert_each_session_counts_without_a_hole(log)


async def test_an_acknowledgement_for_another_element_loses_nothing() -> None:
    """What was acknowledged and is not in the log when it is read is sent again."""
    log = UnreliableLog()
    doc = await opened(log)
    doc.set_field("a", 1)
    await doc.commit()
    doc.set_field("b", 2)
    log.troubles = ["answer for another element"]
    await doc.commit()
    await doc.pull()
    await doc.commit()
    assert (await read_fresh(log)).materialize() == {"a": 1, "b": 2}
    assert len(log.elements) == 2


class _LyingLog(RiggedLog):
    """Acknowledges what it throws away."""

    def __init__(self) -> None:
        super().__init__()
        self.lies = True

    async def append(self, document_key: str, body: Body) -> int:
        if self.lies:
            self.received.append(body)
            return len(self.elements) + 1
        return await super().append(document_key, body)


@pytest.mark.parametrize("others_write", [True, False])
async def test_what_a_relay_acknowledged_and_threw_away_is_sent_again(others_write: bool) -> None:
    log = _LyingLog()
    doc = await opened(log)
    doc.set_field("a", 1)
    await doc.commit()
    doc.push("list", 1)
    await doc.commit()
    assert doc.unconfirmed == 2
    log.lies = False
    if others_write:
        bob = await opened(log, BOB)
        for number in range(3):
            bob.set_field("bob", number)
            await bob.commit()
    await doc.pull()
    assert doc.unconfirmed == 2
    assert doc.unsent == 2
    await doc.commit()
    await doc.pull()
    assert (doc.unconfirmed, doc.unsent) == (0, 0)
    fresh = await read_fresh(log)
    assert fresh.materialize() == doc.materialize()
    assert_resent_as_it_was(log)
    assert_each_session_counts_without_a_hole(log)


async def test_what_is_read_back_is_confirmed() -> None:
    log = RiggedLog()
    doc = await opened(log)
    doc.set_field("a", 1)
    assert doc.unconfirmed == 0
    await doc.commit()
    assert doc.unconfirmed == 1
    await doc.pull()
    assert doc.unconfirmed == 0
    await doc.commit()
    assert len(log.received) == 1


# ── everything at once ─────────────────────────────────────────────────────────────────


async def _act(doc: WalDocument, action: str) -> None:
    try:
        match action:
            case "commit":
                await doc.commit()
            case "pull":
                await doc.pull()
            case "snapshot":
                await doc.snapshot()
            case "open":
                await doc.open()
    except TransportError:
        return


ACTIONS = ["edit", "edit", "commit", "commit", "pull", "snapshot", "open", "go on"]


async def _interleave(seed: int, wire: str, trouble_share: float) -> None:
    chance = random.Random(seed)
    gates, store = Gates(), RiggedSnapshots()
    is_over = False

    def trouble() -> str:
        if is_over or chance.random() > trouble_share:
            return "none"
        return chance.choice(["refuse", "lose the answer", "answer garbage"])

    log = GatedLog(gates, trouble)
    docs = [document(log, who, wire=wire, snapshot_store=store) for who in (ALICE, BOB, CAROL)]
    is_over = True
    opening = [asyncio.create_task(doc.open()) for doc in docs]
    await gates.run(opening, lambda: chance.randrange(8))
    is_over = False

    tasks: list[asyncio.Task[Any]] = []
    written: list[int] = []
    for _ in range(40):
        doc, action = chance.choice(docs), chance.choice(ACTIONS)
        if action == "edit":
            written.append(len(written))
            doc.insert("list", chance.randrange(4), written[-1])
            doc.set_field(f"field {doc.session}", written[-1])
            if chance.random() < 0.2:
                doc.set_text("text", doc.text("text") + chr(97 + len(written) % 26))
        elif action == "go on":
            for _ in range(chance.randrange(6)):
                await anyio.lowlevel.checkpoint()
            if gates.waits:
                gates.release(chance.randrange(8))
        else:
            tasks.append(asyncio.create_task(_act(doc, action)))
    await gates.run(tasks, lambda: chance.randrange(8))

    is_over = True
    for action in ("commit", "pull", "commit", "pull"):
        final = [asyncio.create_task(_act(doc, action)) for doc in docs]
        await gates.run(final, lambda: chance.randrange(8))
    fresh = await read_fresh(log)
    states = {state_of(doc) for doc in [*docs, fresh]}
    assert len(states) == 1
    assert Counter(fresh.values("list")) == Counter(written)
    assert all(doc.unsent == doc.unconfirmed == 0 for doc in docs)
    assert not fresh.detected_gaps()
    assert_each_session_counts_without_a_hole(log)
    assert_resent_as_it_was(log)
    if store.document is not None:
        reader = opened(RiggedLog(log.elements), BOB, snapshot_store=store, posture="re-derive")
        assert (await reader).snapshot_verified is True


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("trouble_share", [0.0, 0.3])
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32))
async def test_edits_commits_pulls_and_snapshots_at_once_lose_nothing(
    wire: str, trouble_share: float, seed: int
) -> None:
    await _interleave(seed, wire, trouble_share)


# ── large commits ──────────────────────────────────────────────────────────────────────


def sealing(kind: str) -> Any:
    if kind == "plain":
        return None
    return NativeEncryptor(ContentKeys(1, {1: bytes(32)}), randomness=os.urandom)


def limit_of(wire: str) -> int:
    return STARFISH_ELEMENT_BYTES_MAX if wire == "starfish" else ELEMENT_BYTES_MAX


def removes_max(is_packed: bool) -> int:
    return BATCH_REMOVES_MAX if is_packed else BATCH_OPS_MAX


def write_a_long_text(doc: WalDocument, is_packed: bool) -> None:
    doc.insert_text("t", 0, "wörld" * (180_000 if is_packed else 3_000))


def remove_a_long_text(doc: WalDocument, is_packed: bool) -> None:
    size = removes_max(is_packed) + 1_000
    doc.insert_text("t", 0, "x" * size)
    doc.remove_text("t", 0, size)


def remove_from_behind(doc: WalDocument, is_packed: bool) -> None:
    size = removes_max(is_packed) + 1_000
    doc.insert_text("t", 0, "x" * size)
    for at in range(size - 1, -1, -1):
        doc.remove_text("t", at, 1)


def insert_many(doc: WalDocument, is_packed: bool) -> None:
    for number in range(5_000):
        doc.insert("l", 0, {"n": number})


def put_many(doc: WalDocument, is_packed: bool) -> None:
    for number in range(5_000):
        doc.put("m", str(number), number)


LARGE: dict[str, Callable[[WalDocument, bool], None]] = {
    "one long text": write_a_long_text,
    "a long text removed": remove_a_long_text,
    "a long text removed from behind": remove_from_behind,
    "many registers": lambda doc, _: doc.update({f"r{n}": n for n in range(5_000)}),
    "many inserts": insert_many,
    "many values": lambda doc, _: doc.set_list("l", [{"s": "x" * 200}] * 6_000),
    "many keys": put_many,
}


@pytest.mark.parametrize("seal", ["plain", "sealed"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", sorted(LARGE))
async def test_a_large_commit_is_cut_to_the_limits(name: str, wire: str, seal: str) -> None:
    log = RiggedLog()
    doc = await opened(log, wire=wire, encryptor=sealing(seal))
    LARGE[name](doc, wire == "packed")
    await doc.commit()
    assert len(log.received) > 1
    for body in log.received:
        assert len(body.canonical) <= limit_of(wire)
        if seal == "plain" and wire == "starfish":
            assert len(body.data["ops"]) <= BATCH_OPS_MAX
        elif seal == "plain":
            assert len(body.data["body"]["ops"]) <= BATCH_OPS_MAX + 1
    if seal == "plain" and wire == "starfish":
        # Whatever was cut in two, no clock is there twice.
        counters = [op["clock"]["c"] for body in log.received for op in body.data["ops"]]
        assert counters == list(range(1, len(counters) + 1))
    assert_each_session_counts_without_a_hole(log)
    fresh = await read_fresh(log, encryptor=sealing(seal))
    assert fresh.text("t") == doc.text("t")
    assert fresh.values("l") == doc.values("l")
    assert fresh.entries("m") == doc.entries("m")
    assert fresh.field("r4999") == doc.field("r4999")


async def test_more_removes_than_one_element_may_hold_are_cut() -> None:
    log = RiggedLog()
    doc = await opened(log)
    doc.insert_text("t", 0, "x" * (BATCH_REMOVES_MAX + 1))
    await doc.commit()
    doc.remove_text("t", 0, BATCH_REMOVES_MAX + 1)
    await doc.commit()
    assert len(log.elements) >= 3
    assert (await read_fresh(log)).text("t") == ""


async def test_as_many_as_one_element_may_hold_are_one_element() -> None:
    log = RiggedLog()
    doc = await opened(log)
    doc.insert_text("t", 0, "x" * BATCH_REMOVES_MAX)
    await doc.commit()
    doc.remove_text("t", 0, BATCH_REMOVES_MAX)
    await doc.commit()
    doc.update({f"r{number}": number for number in range(BATCH_OPS_MAX)})
    await doc.commit()
    assert len(log.elements) == 3
    fresh = await read_fresh(log)
    assert fresh.text("t") == ""
    assert fresh.field(f"r{BATCH_OPS_MAX - 1}") == BATCH_OPS_MAX - 1


async def sealed_at_once(size: int) -> list[int]:
    """The sizes of the elements that a text becomes."""
    log = RiggedLog()
    doc = await opened(log, encryptor=sealing("sealed"))
    doc.insert_text("t", 0, "x" * size)
    await doc.commit()
    return [len(body.canonical) for body in log.received]


async def test_what_is_sealed_leaves_room_for_a_longer_name_of_its_key() -> None:
    fits, cut = 1, ELEMENT_BYTES_MAX
    while cut - fits > 1:
        middle = (fits + cut) // 2
        fits, cut = (middle, cut) if len(await sealed_at_once(middle)) == 1 else (fits, middle)
    (largest,) = await sealed_at_once(fits)
    assert ELEMENT_BYTES_MAX - 128 < largest <= ELEMENT_BYTES_MAX - len(str(2**53))


EDITS_OF_ONE_VALUE: dict[str, Callable[[WalDocument, Any], None]] = {
    "a register": lambda doc, value: doc.set_field("x", value),
    "a list item": lambda doc, value: doc.push("x", value),
    "a set list": lambda doc, value: doc.set_list("x", [1, value]),
    "a map key": lambda doc, value: doc.put("x", "k", value),
    "a document": lambda doc, value: doc.update({"y": 1, "x": {"k": value}}),
    "a list in a document": lambda doc, value: doc.update({"y": 1, "x": [1, value]}),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", sorted(EDITS_OF_ONE_VALUE))
async def test_a_value_that_fits_no_element_is_refused_at_the_call(name: str, wire: str) -> None:
    log = RiggedLog()
    doc = await opened(log, wire=wire)
    for value in ("x" * limit_of(wire), ["é" * 100] * (limit_of(wire) // 150)):
        with pytest.raises(ValueTooLargeError):
            EDITS_OF_ONE_VALUE[name](doc, value)
    assert doc.materialize() == {}
    assert await doc.commit() is None
    doc.set_field("small", 1)
    assert await doc.commit() == 1


@pytest.mark.parametrize("seal", ["plain", "sealed"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", sorted(EDITS_OF_ONE_VALUE))
async def test_the_largest_value_that_is_taken_fits(name: str, wire: str, seal: str) -> None:
    log = RiggedLog()
    doc = await opened(log, wire=wire, encryptor=sealing(seal))
    size = limit_of(wire) // 2 - 50
    EDITS_OF_ONE_VALUE[name](doc, "x" * size)
    # Many sessions to report as seen, with names as long as they may be, leave it no less room.
    for number in range(70):
        header = {"session": '"' * 120 + str(number), "seq": 1}
        put_in(log, write_starfish(BOB, [], seq=number + 1, x=header))
    if seal == "plain":
        await doc.pull()
    await doc.commit()
    assert len(log.received[0].canonical) <= limit_of(wire)
    assert (await read_fresh(log, encryptor=sealing(seal), on_author_error="skip")).materialize()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_name_is_taken_up_to_a_sixteenth_of_an_element(wire: str) -> None:
    doc = await opened(RiggedLog(), wire=wire)
    with pytest.raises(ValueTooLargeError) as refused:
        doc.set_field("x" * limit_of(wire), 1)
    assert refused.value.limit * 16 <= limit_of(wire) < (refused.value.limit + 8) * 16
    largest = "x" * (refused.value.limit - len('""'))
    doc.set_field(largest, 1)
    with pytest.raises(ValueTooLargeError):
        doc.set_field(largest + "x", 1)
    assert doc.materialize() == {largest: 1}


@pytest.mark.parametrize("wire", WIRES)
async def test_a_value_is_taken_up_to_the_size_that_a_refusal_names(wire: str) -> None:
    doc = await opened(RiggedLog(), wire=wire)
    with pytest.raises(ValueTooLargeError) as refused:
        doc.set_field("x", "x" * limit_of(wire))
    assert refused.value.size == limit_of(wire) + len('""')
    largest = "x" * (refused.value.limit - len('""'))
    doc.set_field("x", largest)
    with pytest.raises(ValueTooLargeError):
        doc.set_field("x", largest + "x")
    assert doc.materialize() == {"x": largest}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", sorted(EDITS_OF_ONE_VALUE))
async def test_what_is_sent_is_canonical_whatever_the_value_is(name: str, wire: str) -> None:
    log = RiggedLog()
    doc = await opened(log, wire=wire)
    values: list[Any] = [1.0, 1e21, -0.0, 5e-324, "é\x7f\u2028", {"b": [1.5], "a": None}, [], True]
    for value in values:
        EDITS_OF_ONE_VALUE[name](doc, value)
        await doc.commit()
        (body,) = log.received
        assert body.canonical == canonical_bytes(parse(body.canonical))
        log.received.clear()
    assert (await read_fresh(log)).materialize() == doc.materialize()


NAMED: dict[str, Callable[[WalDocument, str], None]] = {
    "a register": lambda doc, name: doc.set_field(name, 1),
    "a list": lambda doc, name: doc.push(name, 1),
    "a text": lambda doc, name: doc.insert_text(name, 0, "a"),
    "a set text": lambda doc, name: doc.set_text(name, "a"),
    "a set list": lambda doc, name: doc.set_list(name, [1]),
    "a map": lambda doc, name: doc.put(name, "k", 1),
    "a key": lambda doc, name: doc.put("m", name, 1),
    "a document": lambda doc, name: doc.update({"a": 1, name: 2}),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("what", sorted(NAMED))
async def test_a_name_that_fits_no_element_is_refused_at_the_call(what: str, wire: str) -> None:
    doc = await opened(RiggedLog(), wire=wire)
    with pytest.raises(ValueTooLargeError):
        NAMED[what](doc, "n" * limit_of(wire))
    with pytest.raises(NameRefusedError):
        NAMED[what](doc, "__proto__")
    assert doc.materialize() == {}
    assert await doc.commit() is None


@pytest.mark.parametrize("wire", WIRES)
async def test_a_session_with_an_endless_name_does_not_wedge_those_who_delete_after_it(
    wire: str,
) -> None:
    """To remove an element, its id has to be named; an id as large as an element cannot be."""
    log = RiggedLog()
    replica = f"{BOB.public_key}:" + "s" * 100_000
    op = {"t": "ins", "list": "t", "id": f"1@{replica}", "after": "", "value": "x"}
    put_in(log, write_starfish(BOB, [{**op, "clock": {"c": 1, "r": replica}}]))
    doc = await opened(log, wire=wire, on_author_error="skip")
    doc.set_text("t", "")
    doc.set_field("a", 1)
    await doc.commit()
    assert all(len(body.canonical) <= limit_of(wire) for body in log.received)
    assert (await read_fresh(log, on_author_error="skip")).materialize() == doc.materialize()


# A version-1 snapshot spells maps out three levels deeper than lists.
DEPTHS = {"a register": 58, "a list item": 58, "a map key": 55}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("seal", ["plain", "sealed"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", sorted(DEPTHS))
async def test_the_deepest_value_that_is_taken_travels(name: str, wire: str, seal: str) -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    doc = await opened(log, wire=wire, encryptor=sealing(seal), snapshot_store=store)
    with pytest.raises(UsageError):
        EDITS_OF_ONE_VALUE[name](doc, nested(DEPTHS[name] + 1))
    EDITS_OF_ONE_VALUE[name](doc, nested(DEPTHS[name]))
    await doc.commit()
    await doc.snapshot()
    for posture in ("trust", "re-derive"):
        fresh = await read_fresh(
            log, encryptor=sealing(seal), snapshot_store=store, posture=posture
        )
        assert fresh.materialize() == doc.materialize()


# ── opening ────────────────────────────────────────────────────────────────────────────


class _CountingLog(GatedLog):
    """Counts pulls from the start, which is what a bootstrap does."""

    bootstraps = 0

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        self.bootstraps += checkpoint == 0
        return await super().pull(document_key, checkpoint)


async def test_overlapping_opens_bootstrap_once() -> None:
    gates = Gates()
    log = _CountingLog(gates)
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "x")]))
    doc = document(log)
    opening = [asyncio.create_task(doc.open()) for _ in range(5)]
    await gates.run(opening, lambda: 0)
    assert {await task for task in opening} == {doc}
    assert log.bootstraps == 1
    assert [version.ts for version in doc.history()] == [1]
    assert len(doc.retained_tail()) == 1


class _BrokenAfter(RiggedLog):
    """Fails after so many pulls, once."""

    pulls_left = 10**9

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        if self.pulls_left == 0:
            self.pulls_left = 10**9
            raise OfflineError
        self.pulls_left -= 1
        return await super().pull(document_key, checkpoint)


@pytest.mark.parametrize("posture", ["trust", "trust-retain-tail", "re-derive"])
@pytest.mark.parametrize("with_snapshot", [True, False])
@pytest.mark.parametrize("pulls", [0, 1, 2])
async def test_a_failed_open_leaves_nothing_and_can_be_retried(
    pulls: int, with_snapshot: bool, posture: str
) -> None:
    store = RiggedSnapshots() if with_snapshot else None
    log = _BrokenAfter(page_size=2)
    writer = await opened(log, BOB, snapshot_store=store)
    for number in range(7):
        writer.push("list", number)
        await writer.commit()
        if with_snapshot and number == 4:
            await writer.snapshot()
    put_in(log, write_starfish(BOB, [], seq=0))
    events: list[Event] = []
    options: dict[str, Any] = {
        "snapshot_store": store,
        "posture": posture,
        "on_author_error": "skip",
    }
    doc = document(log, on_event=events.append, **options)
    log.pulls_left = pulls
    with pytest.raises(OfflineError):
        await doc.open()
    with pytest.raises(NotOpenError):
        doc.materialize()
    assert events == []
    await doc.open()
    other = await opened(RiggedLog(log.elements), **options)
    assert doc.materialize() == other.materialize() == {"list": list(range(7))}
    assert state_of(doc) == state_of(other)
    assert doc.retained_tail() == other.retained_tail()
    assert doc.rejected() == other.rejected()
    assert len(doc.rejected()) == len(events) == 1
    assert doc.history() == other.history()
    assert doc.marks == other.marks


async def test_a_snapshot_store_that_cannot_be_read_is_no_absence() -> None:
    class Unreachable(RiggedSnapshots):
        fails = True

        async def read(self, snapshot_key: str) -> Any:
            if self.fails:
                raise OfflineError
            return await super().read(snapshot_key)

    store = Unreachable()
    doc = document(RiggedLog(), snapshot_store=store)
    with pytest.raises(OfflineError):
        await doc.open()
    store.fails = False
    await doc.open()
    assert doc.materialize() == {}


async def test_what_waits_is_there_when_the_document_is_opened_again() -> None:
    """Closing drops no edit: not the recorded ones, not those that were never acknowledged."""
    log = UnreliableLog(["refuse"])
    doc = document(log)
    async with doc:
        doc.insert_text("t", 0, "sealed ")
        with pytest.raises(TransportError):
            await doc.commit()
        doc.insert_text("t", 7, "recorded ")
    with pytest.raises(NotOpenError):
        doc.text("t")
    bob = await opened(log, BOB)
    bob.set_field("bob", 1)
    await bob.commit()
    async with doc:
        assert doc.text("t") == "sealed recorded "
        assert doc.field("bob") == 1
        doc.insert_text("t", 16, "new")
        await doc.commit()
    events: list[Event] = []
    fresh = await read_fresh(log, on_event=events.append)
    assert fresh.text("t") == "sealed recorded new"
    assert events == []
    assert_each_session_counts_without_a_hole(log)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("trace", ["a live value", "an overwritten value", "only a removal"])
async def test_a_session_nonce_is_never_used_twice(trace: str, wire: str) -> None:
    log = RiggedLog()
    doc = await opened(log, session_nonce="0", wire=wire)
    other = await opened(log, wire=wire)
    match trace:
        case "a live value":
            doc.set_field("a", 1)
        case "an overwritten value":
            doc.set_field("a", 1)
            await doc.commit()
            await other.pull()
            other.set_field("a", 2)
        case _:
            other.push("l", 1)
            await other.commit()
            await doc.pull()
            doc.remove_at("l", 0)
    await doc.commit()
    await other.commit()
    with pytest.raises(SessionUsedError):
        await opened(log, session_nonce="0")
    # Another author's session of that name is another session.
    await opened(log, BOB, session_nonce="0")


@pytest.mark.parametrize("session", ["", "é", "\n", "s" * 129])
def test_a_session_that_peers_would_not_read_is_refused_at_once(session: str) -> None:
    with pytest.raises(SessionNameError) as refused:
        document(RiggedLog(), session_nonce=session)
    assert refused.value.session == session


async def test_two_sessions_of_one_author_never_share_a_clock() -> None:
    log = RiggedLog()
    docs = [await opened(log) for _ in range(3)]
    assert len({doc.session for doc in docs}) == 3
    for number, doc in enumerate(docs):
        doc.push("list", number)
        doc.set_field("title", number)
    for doc in docs:
        await doc.commit()
    for doc in docs:
        await doc.pull()
    assert len({state_of(doc) for doc in docs}) == 1
    assert sorted(docs[0].values("list")) == [0, 1, 2]
    assert not docs[0].detected_gaps()


# ── key epochs ─────────────────────────────────────────────────────────────────────────


def keys(*epochs: int) -> ContentKeys:
    return ContentKeys(max(epochs), {epoch: bytes([epoch]) * 32 for epoch in epochs})


def encryptor_of(*epochs: int) -> NativeEncryptor:
    return NativeEncryptor(keys(*epochs), randomness=os.urandom)


@pytest.mark.parametrize("trouble", ["refuse", "lose the answer"])
@pytest.mark.parametrize("wire", WIRES)
async def test_what_waits_when_the_key_epoch_moves_on_is_sealed_anew_and_counts_once(
    wire: str, trouble: str
) -> None:
    log = UnreliableLog(["none", trouble])
    encryptor = encryptor_of(1)
    doc = await opened(log, encryptor=encryptor, wire=wire)
    doc.push("list", 1)
    await doc.commit()
    doc.push("list", 2)
    with pytest.raises(TransportError):
        await doc.commit()
    encryptor.adopt(keys(1, 2))
    doc.push("list", 3)
    await doc.commit()
    epochs = [
        (element["data"] if wire == "starfish" else element["data"]["body"])["_epoch"]
        for element in log.elements
    ]
    assert epochs == ([1, 2, 2] if trouble == "refuse" else [1, 1, 2])
    fresh = await read_fresh(log, encryptor=encryptor_of(1, 2))
    assert fresh.values("list") == [1, 2, 3]
    assert not fresh.detected_gaps()
    assert_each_session_counts_without_a_hole(log)


@pytest.mark.parametrize("wire", WIRES)
async def test_many_that_wait_when_the_key_epoch_moves_on_stay_a_chain(wire: str) -> None:
    log = RiggedLog()
    encryptor = encryptor_of(1)
    doc = await opened(log, encryptor=encryptor, wire=wire)
    for number in range(3):
        doc.push("list", number)
        doc.seal()
    encryptor.adopt(keys(1, 2))
    await doc.commit()
    fresh = await read_fresh(log, encryptor=encryptor_of(2))
    assert fresh.values("list") == [0, 1, 2]
    links = [link_of(element) for element in log.elements]
    headers = [read_header(element["data"]) for element in log.elements]
    assert [header and header.prev for header in headers] == [None, *links[:-1]]
    assert len(links) == 3
    assert_each_session_counts_without_a_hole(log)


async def test_an_epoch_that_moves_on_after_everything_arrived_sends_nothing() -> None:
    log = UnreliableLog(["lose the answer"])
    encryptor = encryptor_of(1)
    doc = await opened(log, encryptor=encryptor)
    doc.push("list", 1)
    with pytest.raises(TransportError):
        await doc.commit()
    encryptor.adopt(keys(1, 2))
    await doc.commit()
    assert doc.unsent == 0
    assert len(log.elements) == 1


async def test_what_comes_back_when_its_key_epoch_is_over_is_noted() -> None:
    log = UnreliableLog(["lose the answer"])
    encryptor = encryptor_of(1)
    doc = await opened(log, encryptor=encryptor)
    doc.push("list", 1)
    with pytest.raises(TransportError):
        await doc.commit()
    encryptor.adopt(keys(1, 2))
    assert doc.outdated_ts == 0
    await doc.pull()
    assert doc.unconfirmed == 0
    assert doc.outdated_ts == log.elements[0]["ts"]


async def test_what_is_noticed_while_seals_are_renewed_is_reported() -> None:
    log = UnreliableLog(["refuse"])
    events: list[Event] = []
    encryptor = encryptor_of(1)
    doc = await opened(log, encryptor=encryptor, on_event=events.append, on_author_error="skip")
    doc.push("list", 1)
    with pytest.raises(TransportError):
        await doc.commit()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "not sealed")]))
    encryptor.adopt(keys(1, 2))
    await doc.commit()
    assert [type(event) for event in events] == [Rejection]
    assert doc.unsent == 0


class _FailingNative(NativeEncryptor):
    fails = False

    def seal(self, plain: Any, context: SealContext) -> Any:
        if self.fails:
            raise UsageError("the key is used up")
        return super().seal(plain, context)


async def test_a_seal_that_fails_while_seals_are_renewed_loses_nothing() -> None:
    log = UnreliableLog(["refuse", "refuse"])
    encryptor = _FailingNative(keys(1), randomness=os.urandom)
    doc = await opened(log, encryptor=encryptor)
    for number in (1, 2):
        doc.push("list", number)
        with pytest.raises(TransportError):
            await doc.commit()
    encryptor.adopt(keys(1, 2))
    encryptor.fails = True
    with pytest.raises(UsageError):
        await doc.commit()
    encryptor.fails = False
    await doc.commit()
    fresh = await read_fresh(log, encryptor=encryptor_of(1, 2))
    assert fresh.values("list") == [1, 2]
    assert_each_session_counts_without_a_hole(log)


# ── the chain ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wire", WIRES)
async def test_each_element_names_the_one_before_it(wire: str) -> None:
    log = RiggedLog()
    for _ in range(2):
        doc = await opened(log, wire=wire)
        for number in range(2):
            doc.set_field("a", number)
            await doc.commit()
    headers = [
        element["data"] if wire == "packed" else element["data"]["x"] for element in log.elements
    ]
    assert [header.get("prev") for header in headers] == [
        None,
        *(link_of(element) for element in log.elements[:-1]),
    ]


async def test_a_large_commit_is_one_chain() -> None:
    log = RiggedLog()
    doc = await opened(log, wire="starfish")
    doc.insert_text("t", 0, "x" * 10_000)
    await doc.commit()
    links = [link_of(element) for element in log.elements]
    assert len(links) > 2
    assert [element["data"]["x"].get("prev") for element in log.elements] == [None, *links[:-1]]


class _BrokenOnSecondPage(RiggedLog):
    """Serves one element at a time, and fails after the first page, once."""

    is_broken = False

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        if self.is_broken and checkpoint:
            self.is_broken = False
            raise OfflineError
        return await super().pull(document_key, checkpoint)


@pytest.mark.parametrize("mode", ["skip", "throw"])
async def test_what_was_noticed_before_a_pull_failed_is_told_once(mode: str) -> None:
    log = _BrokenOnSecondPage(page_size=1)
    events: list[Event] = []
    doc = await opened(log, on_event=events.append, on_author_error=mode)
    put_in(log, write_starfish(BOB, [{"t": "set"}]))
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "good")], seq=2))
    log.is_broken = True
    with pytest.raises(OfflineError):
        await doc.pull()
    assert [type(event) for event in events] == [Rejection]
    # Who wants rejections raised gets this one with the next call that comes through.
    if mode == "throw":
        with pytest.raises(RejectedElementsError):
            await doc.pull()
    else:
        assert await doc.pull() == 1
    assert await doc.pull() == 0
    assert len(events) == 1
    assert doc.field("title") == "good"


async def test_what_was_noticed_before_a_snapshot_was_refused_is_told() -> None:
    log = RiggedLog()
    events: list[Event] = []
    options: dict[str, Any] = {"on_author_error": "skip", "on_event": events.append}
    doc = await opened(log, snapshot_store=RiggedSnapshots(), **options)
    put_in(log, write_starfish(BOB, [{"t": "set"}]))
    with pytest.raises(SnapshotRefusedError):
        await doc.snapshot()
    assert [type(event) for event in events] == [Rejection]
    with pytest.raises(SnapshotRefusedError):
        await doc.snapshot()
    assert len(events) == 1


async def test_a_log_that_was_emptied_while_the_document_was_closed_is_a_rollback() -> None:
    log = RiggedLog()
    doc = document(log)
    async with doc:
        doc.set_field("a", 1)
        await doc.commit()
        await doc.pull()
        doc.set_field("b", "waits")
    log.elements.clear()
    with pytest.raises(RollbackDetectedError):
        await doc.open()
    assert doc.materialize() == {"b": "waits"}
    with pytest.raises(ReadOnlyError):
        await doc.commit()
    doc.accept_rollback()
    await doc.commit()
    assert (await read_fresh(log)).field("b") == "waits"


class FallingLog(RiggedLog):
    """Loses everything while somebody reads it, and says so."""

    def __init__(self, gates: Gates) -> None:
        super().__init__()
        self.gates = gates

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        if not checkpoint:
            return await super().pull(document_key, checkpoint)
        await self.gates.wait()
        raise LogBehindError(head=0, checkpoint=checkpoint)


async def test_a_commit_that_waits_while_a_rollback_is_found_writes_nothing() -> None:
    gates = Gates()
    log = FallingLog(gates)
    doc = await opened(log)
    put_in(log, write_starfish(BOB, []))
    doc.set_field("a", "waits")
    pull = asyncio.ensure_future(doc.pull())
    await gates.reached()
    log.elements.clear()
    commit = asyncio.ensure_future(doc.commit())
    # It has asked for its turn by then.
    await anyio.lowlevel.checkpoint()
    gates.release()
    with pytest.raises(RollbackDetectedError):
        await pull
    with pytest.raises(ReadOnlyError):
        await commit
    assert log.received == []
    assert doc.field("a") == "waits"


async def test_rejections_raise_after_the_good_elements_were_folded() -> None:
    log = RiggedLog()
    bob = await opened(log, BOB)
    bob.set_field("a", 1)
    await bob.commit()
    put_in(log, write_starfish(BOB, [], seq=0))
    bob.set_field("b", 2)
    await bob.commit()
    doc = document(log)
    with pytest.raises(RejectedElementsError) as caught:
        await doc.open()
    assert [each.ts for each in caught.value.rejections] == [2]
    assert doc.materialize() == {"a": 1, "b": 2}
    assert await doc.pull() == 0


async def test_keys_that_come_late_open_what_waited_in_time_in_proportion_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = RiggedLog()
    early = await opened(log, BOB, encryptor=keyed(2))
    for number in range(20):
        early.set_field("x", number)
        await early.commit()
    late = await opened(log, CAROL, encryptor=keyed(3), on_author_error="skip")
    late.set_field("y", 1)
    await late.commit()
    keys = keyed(3)
    reader = await opened(log, ALICE, encryptor=keys, on_author_error="skip")
    assert reader.unreadable == 20
    keys.adopt(ContentKeys(3, {epoch: bytes([epoch]) * 32 for epoch in (1, 2, 3)}))
    new_highs, calls = DocumentLog._new_highs, Counter[str]()

    def counting(log: DocumentLog) -> Highs:
        calls["highs"] += 1
        return new_highs(log)

    monkeypatch.setattr(DocumentLog, "_new_highs", counting)
    await reader.retry_unreadable()
    assert (reader.unreadable, reader.field("x"), calls["highs"]) == (0, 19, 1)
