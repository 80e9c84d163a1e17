"""Attacks by name: what a hostile relay or a hostile writer does, and what becomes of it.

A relay may withhold; it may not make readers believe anything that nobody signed, nor forget
what they have seen. A writer may write; it may not write as another, nor keep others from
writing, nor make two honest readers of one log show different documents.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import permutations
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
    MEMBERS,
    JsonElement,
    RiggedLog,
    RiggedSnapshots,
    counter_of,
    document,
    keyed,
    link_of,
    opened,
    put_in,
    set_op,
    signed,
    spoiled,
    state_of,
    write_packed,
    write_sealed,
    write_starfish,
)
from walstore.crdt import COUNTER_MAX, to_ops
from walstore.crdt.runs import Drop, Insert, Remove, Set
from walstore.document import (
    Event,
    Fork,
    Gap,
    Marks,
    ReadOnlyError,
    RejectedElementsError,
    Rejection,
    Rollback,
    RollbackDetectedError,
    SequenceGapError,
    SnapshotRefusedError,
    WalDocument,
)
from walstore.document.gaps import VOUCHED_MAX
from walstore.document.quarantine import REJECTIONS_MAX
from walstore.sealed import ContentKeys, NativeEncryptor, SealContext
from walstore.signed import Identity
from walstore.signed.roster import Counts
from walstore.wire.limits import COUNTER_JUMP_MAX

WIRES = ["packed", "starfish"]
PAGE_SIZES = [1, 2, 1000]
NOW_MS = 1_800_000_000_000


async def conversation(wire: str = "packed", rounds: int = 2) -> RiggedLog:
    """Alice and Bob write in turns, each after reading the other."""
    log = RiggedLog()
    alice, bob = await opened(log, ALICE, wire=wire), await opened(log, BOB, wire=wire)
    for number in range(rounds):
        for name, doc in (("a", alice), ("b", bob)):
            await doc.pull()
            doc.set_text("text", doc.text("text") + f"{name}{number} ")
            doc.set_field(name, number)
            doc.push("list", f"{name}{number}")
            await doc.commit()
    return log


async def read(log: RiggedLog, **options: Any) -> tuple[WalDocument, list[Event]]:
    events: list[Event] = []
    options = {"on_author_error": "skip", "on_event": events.append, **options}
    return await opened(log, CAROL, **options), events


async def fold_of(log: RiggedLog) -> str:
    return state_of((await read(RiggedLog(log.elements)))[0])


# ── hostile relay: replay and reorder ──────────────────────────────────────────────────


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("page_size", PAGE_SIZES)
async def test_replayed_elements_change_nothing(page_size: int, wire: str) -> None:
    log = await conversation(wire)
    expected = await fold_of(log)
    reader, events = await read(log)
    history, tail = reader.history(), reader.retained_tail()
    for _ in range(100):
        for place in range(4):
            log.replay(place)
    assert await reader.pull() == 0
    assert state_of(reader) == expected
    assert (reader.history(), reader.retained_tail()) == (history, tail)
    late, late_events = await read(RiggedLog(log.elements, page_size=page_size))
    assert state_of(late) == expected
    assert len(late.history()) == 4
    assert events == late_events == []
    assert late.detected_gaps() == []


@pytest.mark.parametrize("wire", WIRES)
async def test_elements_that_a_snapshot_covers_change_nothing_when_they_are_replayed(
    wire: str,
) -> None:
    log, store = await conversation(wire), RiggedSnapshots()
    alice = await opened(log, ALICE, snapshot_store=store, wire=wire)
    alice.put("map", "key", 1)
    await alice.commit()
    alice.drop("map", "key")
    alice.set_text("text", "")
    await alice.commit()
    await alice.snapshot()
    expected = await fold_of(log)
    for place in range(len(log.elements)):
        log.replay(place)
    reader, events = await read(log, snapshot_store=store)
    assert state_of(reader) == expected
    assert reader.detected_gaps() == []
    assert events == []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("page_size", [1, 1000])
async def test_any_order_of_the_log_folds_to_the_same(page_size: int, wire: str) -> None:
    # The one way of being read and written that most have is tried with more elements.
    is_usual = wire == "packed" and page_size == 1000
    log = await conversation(wire, rounds=3 if is_usual else 2)
    expected = await fold_of(log)
    for order in permutations(range(len(log.elements))):
        reader, events = await read(log.served(order, page_size=page_size))
        assert state_of(reader) == expected
        # A gap that was filled is withdrawn.
        assert reader.detected_gaps() == []
        assert all(isinstance(event, Gap) for event in events)


@settings(deadline=None, max_examples=40)
@given(st.data(), st.sampled_from(PAGE_SIZES))
async def test_any_order_and_repetition_of_a_long_log_folds_to_the_same(
    data: st.DataObject, page_size: int
) -> None:
    log = await conversation(rounds=5)
    places = list(range(len(log.elements)))
    extra = data.draw(st.lists(st.sampled_from(places), max_size=10))
    order = data.draw(st.permutations(places + extra))
    reader, _ = await read(log.served(order, page_size=page_size))
    assert state_of(reader) == await fold_of(log)
    assert reader.detected_gaps() == []
    assert reader.rejected() == []


async def test_a_strict_reader_learns_of_a_gap_and_of_its_end() -> None:
    log = await conversation()
    late = log.served([2])
    strict = document(late, CAROL, strict_sequence=True, on_author_error="skip")
    with pytest.raises(SequenceGapError) as caught:
        await strict.open()
    assert [(gap.expected, gap.got) for gap in caught.value.gaps] == [(1, 2)]
    assert strict.detected_gaps() != []
    for place in (0, 1, 3):
        put_in(late, log.elements[place])
    await strict.pull()
    assert strict.detected_gaps() == []
    assert state_of(strict) == await fold_of(log)


# ── hostile relay: forgetting ──────────────────────────────────────────────────────────

LOSSES: dict[str, Callable[[JsonElement], bool]] = {
    "everything": lambda element: False,
    "the last element": lambda element: bool(element["ts"] < 4),
    "the newer half": lambda element: bool(element["ts"] < 3),
    "all of one author": lambda element: bool(element["authorPubkey"] == ALICE.public_key),
    "the last of one author, a newer one stays": lambda element: bool(element["ts"] != 3),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", sorted(LOSSES))
async def test_a_log_that_fell_behind_the_marks_is_a_rollback(name: str, wire: str) -> None:
    log = await conversation(wire)
    marks = (await read(log))[0].marks
    events: list[Event] = []
    rolled_back = log.kept(LOSSES[name])
    doc = document(rolled_back, CAROL, marks=marks, on_event=events.append)
    with pytest.raises(RollbackDetectedError):
        await doc.open()
    assert any(isinstance(event, Rollback) for event in events)
    # Read-only: nothing is written with clocks that may have been used.
    edits: list[Callable[[], None]] = [
        lambda: doc.set_field("a", 1),
        lambda: doc.set_text("text", "x"),
        lambda: doc.update({}),
        lambda: doc.migrate("a"),
    ]
    for edit in edits:
        with pytest.raises(ReadOnlyError):
            edit()
    with pytest.raises(ReadOnlyError):
        await doc.commit()
    with pytest.raises(ReadOnlyError):
        await doc.snapshot()
    await doc.pull()
    doc.materialize()
    with pytest.raises(ReadOnlyError):
        doc.set_field("a", 1)
    doc.accept_rollback()
    doc.set_field("a", "accepted")
    await doc.commit()
    # The marks of the next session are those of the log that was accepted.
    again = await opened(rolled_back, CAROL, marks=doc.marks)
    assert again.field("a") == "accepted"


async def test_a_dropped_element_in_the_middle_is_a_gap_and_marks_tell_of_its_author() -> None:
    log = await conversation()
    holed = log.kept(lambda element: element["ts"] != 2)
    reader, events = await read(holed)
    assert [(gap.author, gap.expected, gap.got) for gap in reader.detected_gaps()] == [
        (BOB.public_key, 1, 2)
    ]
    assert sum(isinstance(event, Gap) for event in events) == 1
    put_in(holed, log.elements[1])
    await reader.pull()
    assert reader.detected_gaps() == []
    # Behind the last one of an author nothing is passed over: where nobody says to have seen it,
    # only marks tell that it is gone.
    log = RiggedLog()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "bob's")]))
    put_in(log, write_starfish(ALICE, [set_op(ALICE, 2, "alice's")]))
    marks = (await read(log))[0].marks
    cut = log.kept(lambda element: element["ts"] != 1)
    assert (await read(cut))[0].detected_gaps() == []
    told: list[Event] = []
    with pytest.raises(RollbackDetectedError):
        await document(cut, CAROL, marks=marks, on_event=told.append).open()
    assert told == [Rollback(f"element 1 of {BOB.public_key[:8]}… is gone")]


async def test_an_element_that_nobody_counts_is_missed_by_its_ts() -> None:
    """Two tabs of a peer count alike: without the later one, every count is what it was."""
    log = RiggedLog()
    for counter in (1, 2):
        put_in(log, write_starfish(BOB, [set_op(BOB, counter, counter)], seq=1))
    marks = (await read(log))[0].marks
    events: list[Event] = []
    doc = document(
        log.kept(lambda each: each["ts"] == 1), CAROL, marks=marks, on_event=events.append
    )
    with pytest.raises(RollbackDetectedError):
        await doc.open()
    assert events == [Rollback("it ends at 1, before 2")]


async def test_marks_survive_a_session_that_saw_less() -> None:
    """Marks only grow: a session on a rolled-back log does not forget what the one before saw."""
    log = await conversation()
    marks = (await read(log))[0].marks
    empty = document(RiggedLog(), CAROL, marks=marks)
    with pytest.raises(RollbackDetectedError):
        await empty.open()
    assert empty.marks == marks


async def test_marks_of_a_log_that_is_all_there_raise_no_alarm() -> None:
    for wire in WIRES:
        log = await conversation(wire)
        marks = Marks()
        for place in range(5):
            reader, events = await read(log.served(range(place)), marks=marks)
            assert events == []
            marks = reader.marks
        assert marks.ts == 4


async def test_what_an_honest_peer_has_seen_shows_what_the_relay_withholds() -> None:
    log = RiggedLog()
    alice = await opened(log, ALICE)
    alice.set_field("secret", 1)
    await alice.commit()
    bob = await opened(log, BOB)
    bob.set_field("b", 1)
    await bob.commit()
    withheld = log.kept(lambda element: element["authorPubkey"] == BOB.public_key)
    reader, _ = await read(withheld)
    gaps = reader.detected_gaps()
    assert [(gap.author, gap.expected, gap.got) for gap in gaps] == [(ALICE.public_key, 1, 2)]
    put_in(withheld, log.elements[0])
    await reader.pull()
    assert reader.detected_gaps() == []


async def test_a_log_that_was_forked_between_two_readers_shows_at_the_first_crossing() -> None:
    """The relay shows each of two clients another history of Alice's, then joins them."""
    log = await conversation()
    left = log.kept(lambda element: element["ts"] != 3)
    right = log.kept(lambda element: element["ts"] != 4)
    bob_side, carol_side = await opened(left, BOB), await opened(right, CAROL)
    carol_side.set_field("c", 1)
    await carol_side.commit()
    put_in(left, right.elements[-1])
    await bob_side.pull()
    # Carol has seen Alice's second element, which Bob was not given.
    assert [(gap.author, gap.expected) for gap in bob_side.detected_gaps()] == [
        (ALICE.public_key, 2)
    ]


# ── hostile relay: ts ──────────────────────────────────────────────────────────────────

BAD_TS: list[Any] = [0, 1, 4, -1, 1.5, 2**53, 9_000_000_000_000_000, 2**53 - 1, "9", None, True]


@pytest.mark.parametrize("ts", BAD_TS)
async def test_a_ts_that_is_none_is_refused_and_the_cursor_stays(ts: Any) -> None:
    log = await conversation()
    reader, events = await read(log, now_ms=lambda: NOW_MS)
    await reader.pull()
    element = write_packed(BOB, [Set("title", f"{BOB.public_key}:s", 100, "evil")])
    put_in(log, element)
    log.elements[-1]["ts"] = ts
    if type(ts) is int and ts <= 4:
        # A relay that serves it all the same, as if it were new.
        log.elements[-1]["ts"] = _Served(ts)
    await reader.pull()
    assert reader.current_checkpoint == 4
    assert reader.field("title") is None
    log.elements.pop()
    log.newest_ts = 4
    alice = await opened(log, ALICE)
    alice.set_field("title", "honest")
    await alice.commit()
    await reader.pull()
    assert reader.current_checkpoint == 5
    assert reader.field("title") == "honest"
    assert {type(event) for event in events} <= {Rejection}


class _Served(int):
    """A `ts` that passes for new."""

    def __gt__(self, other: object) -> bool:
        return True


# ── hostile writers: who they are ──────────────────────────────────────────────────────


async def attacked_by(
    *elements: JsonElement, log: RiggedLog | None = None, **options: Any
) -> tuple[WalDocument, list[Event], RiggedLog]:
    log = await conversation() if log is None else log
    reader, events = await read(log, **options)
    for element in elements:
        put_in(log, element)
    await reader.pull()
    return reader, events, log


async def assert_the_next_honest_edit_wins(reader: WalDocument, log: RiggedLog) -> None:
    alice = await opened(log, ALICE, on_author_error="skip")
    alice.set_field("title", "honest")
    alice.set_text("text", "honest " + alice.text("text"))
    alice.insert("list", 0, "honest")
    await alice.commit()
    await reader.pull()
    assert reader.field("title") == "honest"
    assert reader.text("text").startswith("honest ")
    assert reader.values("list")[0] == "honest"
    assert state_of(reader) == state_of(alice) == await fold_of(log)


def replica(author: Identity, session: str = "s") -> str:
    return f"{author.public_key}:{session}"


def clock(author: Identity, counter: Any, session: str = "s") -> dict[str, Any]:
    return {"c": counter, "r": replica(author, session)}


def ins_op(author: Identity, counter: Any, **members: Any) -> dict[str, Any]:
    op = {"t": "ins", "list": "text", "id": f"{counter}@{replica(author)}", "after": ""}
    return {**op, "clock": clock(author, counter), "value": "!", **members}


ATTACKS: dict[str, JsonElement] = {
    "an unauthorised writer": write_starfish(MALLORY, [set_op(MALLORY, 99, "evil")]),
    "an unauthorised writer, packed": write_packed(
        MALLORY, [Set("title", replica(MALLORY), 99, "evil")]
    ),
    "another author's clock": write_starfish(BOB, [set_op(ALICE, 99, "evil")]),
    "another author's clock, packed": write_packed(BOB, [Set("title", replica(ALICE), 99, "evil")]),
    "another session's clock, packed": write_packed(
        BOB, [Set("title", replica(BOB, "other"), 99, "evil")]
    ),
    "a clock of an author whose key is a prefix": write_starfish(
        BOB, [{**set_op(BOB, 99, "evil"), "clock": {"c": 99, "r": BOB.public_key}}]
    ),
    "another author in the envelope": signed(
        {"v": 1, "author": ALICE.public_key, "seq": 1, "ops": [set_op(ALICE, 99, "evil")]}, BOB
    ),
    "another author's name": {
        **write_starfish(MALLORY, [set_op(ALICE, 99, "evil")]),
        "authorPubkey": ALICE.public_key,
    },
    "the key in upper case": {
        **write_starfish(BOB, [set_op(BOB, 99, "evil")]),
        "authorPubkey": BOB.public_key.upper(),
    },
    "a signature for another document": signed(
        {"v": 1, "author": BOB.public_key, "seq": 1, "ops": [set_op(BOB, 99, "evil")]},
        BOB,
        document_key="spaces/s1/other",
    ),
    "no signature": {**write_starfish(BOB, [set_op(BOB, 99, "evil")]), "authorSignature": ""},
    "a spoiled signature": spoiled(write_starfish(BOB, [set_op(BOB, 99, "evil")])),
    "a small-order key": {
        **write_starfish(BOB, [set_op(BOB, 99, "evil")]),
        "authorPubkey": "01" + "00" * 31,
        "authorSignature": "AQ" + "A" * 84 + "==",
    },
    "an id that is another clock's": write_starfish(
        BOB, [ins_op(BOB, 99, id=f"1@{replica(ALICE)}")]
    ),
    "an empty id": write_starfish(BOB, [ins_op(BOB, 99, id="")]),
    "an empty id to remove": write_starfish(
        BOB, [{"t": "rmv", "list": "text", "id": "", "clock": clock(BOB, 99)}]
    ),
    "one bad op among good ones": write_starfish(BOB, [set_op(BOB, 99, "evil"), {"t": "set"}]),
    "a null op": write_starfish(BOB, [set_op(BOB, 99, "evil"), None]),
    "no ops": signed({"v": 1, "author": BOB.public_key, "seq": 1}, BOB),
    "an unknown version": signed({"v": 3, "author": BOB.public_key, "seq": 1, "ops": []}, BOB),
    "a version that is true": signed(
        {"v": True, "author": BOB.public_key, "seq": 1, "ops": [set_op(BOB, 99, "evil")]}, BOB
    ),
    "a jump of all counters": write_starfish(BOB, [set_op(BOB, 2**53 - 1, "evil")]),
    "a jump too far": write_starfish(BOB, [set_op(BOB, 2**32 + 1000, "evil")]),
    "a jump too far in a run": write_packed(
        BOB, [Insert("text", replica(BOB), 2**40, "", 0, "evil")]
    ),
    **{
        f"the counter {counter!r}": write_starfish(BOB, [set_op(BOB, counter, "evil")])
        for counter in (0, -1, 1.5, "7", None, True, 2**53, 1e300)
    },
    **{
        f"the seq {seq!r}": write_starfish(BOB, [set_op(BOB, 99, "evil")], seq=seq)
        for seq in (0, -1, 1.5, "7", None, True, 2**53)
    },
    **{
        f"the header {header!r}": write_starfish(BOB, [set_op(BOB, 99, "evil")], x=header)
        for header in (
            {"session": ""},
            {"session": "s"},
            {"session": "s", "seq": 0},
            {"session": "s" * 129, "seq": 1},
            {"session": "s", "seq": 1, "prev": "short"},
            {"session": "s", "seq": 1, "seen": {"x": 0}},
            {"session": "s", "seq": 1, "seen": {str(n): 1 for n in range(65)}},
        )
    },
    "sealed in a plain document": signed({"_encrypted": "AAAA", "_epoch": 1}, BOB),
}


@pytest.mark.parametrize("name", sorted(ATTACKS))
async def test_a_bad_element_is_rejected_whole_and_stops_nothing(name: str) -> None:
    log = await conversation()
    before = await fold_of(log)
    reader, events, log = await attacked_by(ATTACKS[name], log=log)
    assert state_of(reader) == before
    assert [type(event) for event in events] == [Rejection]
    assert isinstance(events[0], Rejection)
    assert events[0].ts == 5
    assert isinstance(events[0].evidence, dict)
    assert events[0].evidence["data"] == ATTACKS[name]["data"]
    assert reader.current_checkpoint == 5
    # It is not read again, and not reported again.
    await reader.pull()
    assert len(events) == 1
    await assert_the_next_honest_edit_wins(reader, log)
    assert len(events) == 1


@pytest.mark.parametrize("name", sorted(ATTACKS))
async def test_a_bad_element_raises_after_everything_good_was_folded(name: str) -> None:
    log = await conversation()
    put_in(log, ATTACKS[name])
    alice = await opened(log, ALICE, on_author_error="skip")
    alice.set_field("title", "after it")
    await alice.commit()
    reader = document(log, CAROL)
    with pytest.raises(RejectedElementsError) as caught:
        await reader.open()
    assert [each.ts for each in caught.value.rejections] == [5]
    assert reader.field("title") == "after it"
    assert await reader.pull() == 0


HARMLESS: dict[str, Sequence[dict[str, Any]]] = {
    "an anchor that does not exist": [ins_op(BOB, 99, after="nowhere")],
    "itself as its anchor": [ins_op(BOB, 99, after=f"99@{replica(BOB)}")],
    "a ring of anchors": [
        ins_op(BOB, 98, after=f"99@{replica(BOB)}"),
        ins_op(BOB, 99, after=f"98@{replica(BOB)}"),
    ],
    "an unknown kind": [{"t": "explode", "clock": clock(BOB, 99)}],
    "a register that nobody can show": [set_op(BOB, 99, "x", "__proto__")],
    "a huge name": [set_op(BOB, 99, "x", "n" * 50_000)],
    "a jump just far enough": [set_op(BOB, 2**32, "first")],
    "no ops at all": [],
}


@pytest.mark.parametrize("name", sorted(HARMLESS))
async def test_strange_but_valid_elements_keep_nobody_from_writing(name: str) -> None:
    reader, events, log = await attacked_by(write_starfish(BOB, HARMLESS[name]))
    assert events == []
    await assert_the_next_honest_edit_wins(reader, log)


async def test_a_revoked_writer_is_rejected_from_then_on() -> None:
    log = await conversation()
    members = set(MEMBERS)
    reader, events = await read(log, writers=members.__contains__)
    before = state_of(reader)
    members.remove(BOB.public_key)
    bob = await opened(log, BOB)
    bob.set_field("title", "revoked")
    await bob.commit()
    await reader.pull()
    assert state_of(reader) == before
    assert [event.reason for event in events if isinstance(event, Rejection)] == [
        "its author may not write"
    ]


async def test_a_reader_with_the_content_key_cannot_write_for_that() -> None:
    def encryptor() -> NativeEncryptor:
        return NativeEncryptor(ContentKeys(1, {1: bytes(32)}), randomness=os.urandom)

    log = RiggedLog()
    alice = await opened(log, ALICE, encryptor=encryptor())
    alice.set_field("title", "honest")
    await alice.commit()
    recipient = await opened(
        log, MALLORY, writers={ALICE.public_key, MALLORY.public_key}, encryptor=encryptor()
    )
    recipient.set_field("title", "evil")
    await recipient.commit()
    reader, events = await read(log, encryptor=encryptor())
    assert reader.field("title") == "honest"
    assert [type(event) for event in events] == [Rejection]


# ── hostile writers: seals ─────────────────────────────────────────────────────────────


def sealed_body(name: str) -> Any:
    context = SealContext(KEY, BOB.public_key, 1)
    good = keyed(1, 2).seal({"ops": [[""], ["s", "title", 0, 99, "evil"]]}, context)
    text = str(good["_sealed"])
    flipped = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
    other = SealContext("spaces/s1/other", BOB.public_key, 1)
    return {
        "flipped bits": {**good, "_sealed": flipped},
        "another epoch's label": {**good, "_epoch": 1},
        "a short text": {**good, "_sealed": "AAAA"},
        "no seal": {"ops": [[""], ["s", "title", 0, 99, "evil"]]},
        "a list": [good],
        "nothing": None,
        "plain text of the wrong type": keyed(1, 2).seal(b"[]", context),
        "plain text that is not UTF-8": keyed(1, 2).seal(b"\xff\xfe", context),
        "plain text that is not JSON": keyed(1, 2).seal(b'{"a":NaN}', context),
        "a seal from another document": keyed(1, 2).seal({"ops": [[""]]}, other),
        "another author's seal": keyed(1, 2).seal(
            {"ops": [[""]]}, SealContext(KEY, ALICE.public_key, 1)
        ),
        "a seal replayed under another seq": keyed(1, 2).seal(
            {"ops": [[""]]}, SealContext(KEY, BOB.public_key, 2)
        ),
    }[name]


SEALS = [
    "flipped bits",
    "another epoch's label",
    "a short text",
    "no seal",
    "a list",
    "nothing",
    "plain text of the wrong type",
    "plain text that is not UTF-8",
    "plain text that is not JSON",
    "a seal from another document",
    "another author's seal",
    "a seal replayed under another seq",
]


@pytest.mark.parametrize("name", SEALS)
async def test_a_seal_that_does_not_fit_is_rejected(name: str) -> None:
    log = RiggedLog()
    data = {"v": 2, "author": BOB.public_key, "session": "s", "seq": 1, "body": sealed_body(name)}
    put_in(log, signed(data, BOB))
    alice = await opened(log, ALICE, encryptor=keyed(1, 2), on_author_error="skip")
    alice.set_field("title", "honest")
    await alice.commit()
    reader, events = await read(log, encryptor=keyed(1, 2))
    assert reader.materialize() == {"title": "honest"}
    assert [type(event) for event in events] == [Rejection]
    # All that does not open looks the same from outside.
    assert isinstance(events[0], Rejection)
    assert events[0].reason == "the sealed data is rejected"


async def test_an_unreadable_element_is_counted_once_and_read_when_its_key_arrives() -> None:
    log = RiggedLog()
    alice = await opened(log, ALICE, encryptor=keyed(1, 2))
    alice.set_field("title", "new key")
    await alice.commit()
    for _ in range(5):
        log.replay(0)
    encryptor = keyed(1)
    reader, events = await read(log, encryptor=encryptor)
    assert (reader.unreadable, reader.materialize(), events) == (1, {}, [])
    assert await reader.retry_unreadable() == 0
    assert reader.unreadable == 1
    encryptor.adopt(ContentKeys(2, {1: bytes([1]) * 32, 2: bytes([2]) * 32}))
    assert await reader.retry_unreadable() == 1
    assert (reader.unreadable, reader.field("title")) == (0, "new key")
    assert reader.detected_gaps() == []
    assert events == []


# ── hostile writers: forks ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["a register", "a text", "a removal"])
async def test_one_clock_with_two_contents_is_reported_once_with_both_elements(kind: str) -> None:
    """Whoever signs two contents under one clock leaves the proof in the log."""
    runs: dict[str, tuple[Any, Any]] = {
        "a register": (
            Set("title", replica(BOB), 50, "one"),
            Set("title", replica(BOB), 50, "two"),
        ),
        "a text": (
            Insert("text", replica(BOB), 50, "", 0, "same one"),
            Insert("text", replica(BOB), 50, "", 0, "same two"),
        ),
        "a removal": (
            Remove("text", replica(BOB), 50, replica(ALICE), 7),
            Remove("text", replica(BOB), 50, replica(ALICE), 8),
        ),
    }
    first, second = (write_packed(BOB, [run], seq=n) for n, run in enumerate(runs[kind], start=1))
    log = await conversation()
    reader, events, log = await attacked_by(first, second, log=log)
    forks = [event for event in events if isinstance(event, Fork)]
    assert len(forks) == len(events) == 1
    assert (forks[0].author, forks[0].replica) == (BOB.public_key, replica(BOB))
    assert [each.as_json()["data"] for each in (forks[0].first, forks[0].second)] == [
        first["data"],
        second["data"],
    ]
    log.replay(4)
    log.replay(5)
    await reader.pull()
    assert len(events) == 1
    # The first in the log counts, for every reader, whatever it has read before.
    for page_size in PAGE_SIZES:
        late, late_events = await read(RiggedLog(log.elements, page_size=page_size))
        assert state_of(late) == state_of(reader)
        assert sum(isinstance(event, Fork) for event in late_events) == 1
    await assert_the_next_honest_edit_wins(reader, log)


@pytest.mark.parametrize("wire", WIRES)
async def test_honest_retries_are_no_forks(wire: str) -> None:
    """A peer that lost an answer sends the same ops again, with more behind them."""
    ops = [set_op(BOB, 50, "one"), set_op(BOB, 51, "two", "other")]
    elements = [
        write_starfish(BOB, ops[:1], seq=1),
        write_starfish(BOB, ops, seq=1),
        write_starfish(BOB, ops, seq=2),
    ]
    reader, events, _ = await attacked_by(*elements)
    assert events == []
    assert reader.field("other") == "two"


# ── hostile writers: divergence ────────────────────────────────────────────────────────


async def readers_of(log: RiggedLog) -> list[WalDocument]:
    """Readers that page differently, and one that has read the log as it grew."""
    readers = [(await read(RiggedLog(log.elements, page_size=size)))[0] for size in PAGE_SIZES]
    growing = RiggedLog()
    live, _ = await read(growing)
    for element in log.elements:
        growing.elements.append(element)
        await live.pull()
    return [*readers, live]


async def assert_all_readers_agree(log: RiggedLog) -> WalDocument:
    readers = await readers_of(log)
    assert len({state_of(reader) for reader in readers}) == 1
    assert len({tuple(reader.history()) for reader in readers}) == 1
    return readers[0]


def vouched(*unproven: Sequence[Any], last: Sequence[Any]) -> list[JsonElement]:
    """Elements with spoiled signatures, each linked to by the next, and a good one at the end."""
    elements: list[JsonElement] = []
    prev = None
    for seq, runs in enumerate(unproven, start=1):
        elements.append(spoiled(write_packed(BOB, runs, seq=seq, prev=prev)))
        prev = link_of(elements[-1])
    return [*elements, write_packed(BOB, last, seq=len(unproven) + 1, prev=prev)]


def write_title(counter: int, value: str, session: str = "s") -> list[Any]:
    return [Set("title", replica(BOB, session), counter, value)]


async def test_an_unproven_element_that_a_later_one_vouches_for_counts_for_all_readers() -> None:
    log = await conversation()
    first, second = vouched(write_title(50, "unproven"), last=[Set("b", replica(BOB), 51, "good")])
    put_in(log, first)
    put_in(log, second)
    reader = await assert_all_readers_agree(log)
    assert reader.field("title") == "unproven"
    assert reader.detected_gaps() == []


async def test_a_chain_of_unproven_elements_counts_for_all_readers() -> None:
    log = await conversation()
    elements = vouched(
        write_title(50, "one"), write_title(51, "two"), write_title(52, "three"), last=[]
    )
    alice = await opened(log, ALICE, on_author_error="skip")
    for element in elements:
        put_in(log, element)
        alice.push("list", "between")
        await alice.commit()
    reader = await assert_all_readers_agree(log)
    assert reader.field("title") == "three"


async def test_an_unproven_element_that_nobody_vouches_for_counts_for_no_reader() -> None:
    log = await conversation()
    elements = vouched(write_title(50, "one"), write_title(51, "two"), last=[])
    for element in elements[:-1]:
        put_in(log, element)
    reader = await assert_all_readers_agree(log)
    assert reader.field("title") is None


async def test_an_unproven_element_of_another_is_not_vouched_for() -> None:
    """A link of Mallory's, or of Alice's, proves nothing of Bob."""
    for who in (MALLORY, ALICE):
        log = await conversation()
        forged = spoiled(write_packed(BOB, write_title(50, "forged")))
        put_in(log, forged)
        put_in(log, write_packed(who, [], prev=link_of(forged)))
        reader = await assert_all_readers_agree(log)
        assert reader.field("title") is None


async def test_a_clock_used_again_before_the_element_that_used_it_first_is_proven() -> None:
    log = await conversation()
    first, last = vouched(write_title(50, "first in the log"), last=[])
    put_in(log, first)
    put_in(log, write_starfish(BOB, [set_op(BOB, 50, "second in the log")]))
    put_in(log, last)
    reader = await assert_all_readers_agree(log)
    assert reader.field("title") == "first in the log"


async def test_what_was_shown_is_still_a_base_after_the_order_was_restored() -> None:
    log = RiggedLog()
    alice = await opened(log, ALICE, session_nonce="s")
    alice.set_text("text", "abcdef")
    await alice.commit()
    reader, _ = await read(log)
    base = reader.view()
    early = Insert("text", replica(BOB), 50, "", 0, "EARLY ")
    first, last = vouched([early], last=[])
    put_in(log, first)
    # The same clocks once more, for other words in another place.
    again = Insert("text", replica(BOB), 50, replica(ALICE), 3, "again")
    put_in(log, write_packed(BOB, [again], seq=7))
    await reader.pull()
    assert reader._content.crdt.text("text") == "abcagaindef"
    put_in(log, last)
    await reader.pull()
    reader.set_text("text", "abXcdYef", base=base)
    reader.set_text("text", "abXcYef")
    assert reader.text("text") == "EARLY abXcYef"
    await reader.commit()
    await reader.pull()
    assert state_of(reader) == await fold_of(log)


async def test_two_removals_of_an_element_that_never_came_in_either_order() -> None:
    log = await conversation()
    nowhere = replica(ALICE, "never")
    first, last = vouched([Remove("text", replica(BOB), 60, nowhere, 5)], last=[])
    put_in(log, first)
    put_in(log, write_packed(CAROL, [Remove("text", replica(CAROL), 50, nowhere, 5)]))
    put_in(log, last)
    await assert_all_readers_agree(log)


async def test_a_jump_that_an_unproven_element_made_room_for() -> None:
    """The middle element is too far above everything but the one that is proven last."""
    log = await conversation()
    first, last = vouched(write_title(2**32, "unproven"), last=[])
    put_in(log, first)
    put_in(log, write_packed(CAROL, [Set("c", replica(CAROL), 2**33, "far")]))
    put_in(log, last)
    reader = await assert_all_readers_agree(log)
    assert reader.field("c") == "far"


async def test_a_jump_that_an_unproven_element_makes_is_measured_where_it_stands() -> None:
    log = await conversation()
    first, last = vouched(write_title(2**32 + 1000, "too far"), last=[])
    put_in(log, first)
    put_in(log, write_packed(CAROL, [Set("c", replica(CAROL), 2**32, "far enough")]))
    put_in(log, last)
    reader = await assert_all_readers_agree(log)
    assert reader.field("title") is None
    assert reader.field("c") == "far enough"


async def test_own_edits_that_wait_make_no_room_for_a_jump() -> None:
    """What is too far is too far for a reader with unsent edits as well."""
    log = await conversation()
    expected_counter = counter_of((await read(log))[0])
    busy, _ = await read(log)
    busy.set_text("draft", "x" * 1000)
    put_in(log, write_packed(BOB, [Set("title", replica(BOB), expected_counter + 2**32 + 1, "x")]))
    await busy.pull()
    assert busy.field("title") is None
    await busy.commit()
    await busy.pull()
    assert state_of(busy) == await fold_of(log)


async def test_removing_the_ids_that_another_will_use_next_divides_no_readers() -> None:
    """Bob knows Alice's session and removes what she has not written yet."""
    log = RiggedLog()
    alice = await opened(log, ALICE)
    alice.set_text("text", "hello")
    await alice.commit()
    future = Remove("text", replica(BOB), 100, replica(ALICE, alice.session), 6, 10)
    put_in(log, write_packed(BOB, [future]))
    alice.insert_text("text", 5, " before")
    await alice.pull()
    alice.insert_text("text", 0, "after ")
    await alice.commit()
    await alice.pull()
    reader = await assert_all_readers_agree(log)
    assert state_of(reader) == state_of(alice)
    # A new session is out of reach.
    again = await opened(log, ALICE)
    again.set_text("text", "free")
    await again.commit()
    assert (await assert_all_readers_agree(log)).text("text") == "free"


async def test_a_sealed_log_gives_all_readers_the_same_when_keys_come_late() -> None:
    log = RiggedLog()
    for who, epochs in ((ALICE, (1,)), (BOB, (1, 2)), (ALICE, (1,)), (BOB, (1, 2))):
        doc = await opened(log, who, encryptor=keyed(*epochs), on_author_error="skip")
        doc.set_text("text", doc.text("text") + str(len(log.elements)))
        doc.set_field("title", len(log.elements))
        await doc.commit()
    early = keyed(1)
    late, _ = await read(log, encryptor=early)
    early.adopt(ContentKeys(2, {1: bytes([1]) * 32, 2: bytes([2]) * 32}))
    await late.retry_unreadable()
    whole, _ = await read(log, encryptor=keyed(1, 2))
    assert state_of(late) == state_of(whole)
    assert late.history() == whole.history()


async def test_late_keys_make_no_room_for_what_was_before_them() -> None:
    log = RiggedLog()
    put_in(log, write_sealed(BOB, [Set("far", replica(BOB), COUNTER_JUMP_MAX + 9, 1)], epoch=1))
    later = Set("title", replica(ALICE), 10, "later")
    put_in(log, write_sealed(ALICE, [later], epoch=2))
    early = keyed(1)
    late, _ = await read(log, encryptor=early)
    early.adopt(ContentKeys(2, {1: bytes([1]) * 32, 2: bytes([2]) * 32}))
    await late.retry_unreadable()
    whole, _ = await read(log, encryptor=keyed(1, 2))
    assert whole.materialize() == late.materialize() == {"title": "later"}


async def test_what_counts_after_all_once_a_key_came_keeps_nobody_from_a_snapshot() -> None:
    log = RiggedLog()
    put_in(log, write_sealed(BOB, [Set("far", replica(BOB), COUNTER_JUMP_MAX, 1)], epoch=2))
    above = Set("title", replica(ALICE), 2 * COUNTER_JUMP_MAX, "above")
    put_in(log, write_sealed(ALICE, [above], epoch=1))
    early = keyed(1)
    late, _ = await read(log, encryptor=early, snapshot_store=RiggedSnapshots())
    assert [each.author for each in late.rejected()] == [ALICE.public_key]
    early.adopt(ContentKeys(2, {1: bytes([1]) * 32, 2: bytes([2]) * 32}))
    await late.retry_unreadable()
    assert late.rejected() == []
    await late.snapshot()


async def test_strangers_have_nothing_of_a_member_signed_away() -> None:
    log = RiggedLog()
    put_in(log, write_packed(BOB, [Set("far", replica(BOB), COUNTER_JUMP_MAX + 9, 1)]))
    reader, _ = await read(log, snapshot_store=RiggedSnapshots())
    for seq in range(1, REJECTIONS_MAX + 2):
        put_in(log, write_packed(MALLORY, [Set("x", replica(MALLORY), seq, seq)], seq=seq))
    with pytest.raises(SnapshotRefusedError, match="a rejected element at ts 1"):
        await reader.snapshot()
    assert len(reader.rejected()) == REJECTIONS_MAX + 1


# ── hostile writers: gaps and counts ───────────────────────────────────────────────────


async def test_a_hostile_count_harms_nobody_elses() -> None:
    """A seq out of nowhere is a gap of its author, and of nobody else."""
    log = await conversation()
    huge = write_packed(BOB, write_title(50, "x"), seq=2**53 - 1)
    vouching = write_packed(
        BOB, write_title(51, "x", "t"), session="t", seen={replica(ALICE, "never"): 2**53 - 1}
    )
    reader, events, log = await attacked_by(huge, vouching)
    assert {gap.author for gap in reader.detected_gaps()} <= {BOB.public_key, ALICE.public_key}
    assert sum(isinstance(event, Gap) for event in events) == 1
    await assert_the_next_honest_edit_wins(reader, log)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_rejected_element_is_not_missing(wire: str) -> None:
    """It is there, and whoever waits for it would wait for ever."""
    if wire == "packed":
        elements = [
            write_packed(BOB, write_title(2**50, "too far"), seq=1),
            write_packed(BOB, write_title(50, "good"), seq=2),
        ]
    else:
        elements = [
            write_starfish(BOB, [{"t": "set"}], seq=1),
            write_starfish(BOB, [set_op(BOB, 50, "good")], seq=2),
        ]
    reader, events, _ = await attacked_by(*elements, strict_sequence=True)
    assert reader.field("title") == "good"
    assert [type(event) for event in events] == [Rejection]
    assert reader.detected_gaps() == []


async def test_a_session_with_the_name_of_ones_own_is_seen_as_anothers() -> None:
    log = RiggedLog()
    alice = await opened(log, ALICE, session_nonce="tab")
    alice.set_field("secret", 1)
    await alice.commit()
    bob = await opened(log, BOB, session_nonce="tab")
    bob.set_field("b", 1)
    await bob.commit()
    reader, _ = await read(log.served([1]))
    assert [gap.author for gap in reader.detected_gaps()] == [ALICE.public_key]


async def test_repeated_counts_are_no_alarm() -> None:
    """Two tabs of a peer without sessions count alike; a retry counts again."""
    elements = [
        write_starfish(BOB, [set_op(BOB, 50 + number, number)], seq=seq)
        for number, seq in enumerate([1, 1, 2, 2, 3, 1])
    ]
    reader, events, _ = await attacked_by(*elements)
    assert events == []
    assert reader.detected_gaps() == []
    assert reader.field("title") == 5


async def test_a_rejected_element_keeps_nobody_out_of_the_document() -> None:
    log = RiggedLog()
    alice = await opened(log, ALICE)
    alice.set_field("title", "good")
    await alice.commit()
    log.add({"v": 1}, MALLORY.public_key, "forged")
    told: list[Event] = []
    async with document(log, BOB, on_event=told.append) as reader:
        assert reader.field("title") == "good"
    assert [type(event) for event in told] == [Rejection]


@pytest.mark.parametrize("write", [write_packed, write_starfish])
async def test_a_drop_of_writes_to_come_is_rejected_and_freezes_no_key(write: Any) -> None:
    log, events = RiggedLog(), list[Event]()
    alice = await opened(log, ALICE, on_author_error="skip")
    alice.put("m", "k", 1)
    await alice.commit()
    victim = f"{ALICE.public_key}:{alice.session}"
    for counter, seen in ((5, COUNTER_MAX), (6, 6)):
        drop = Drop("m", "k", f"{BOB.public_key}:s", counter, {victim: seen})
        runs = [drop] if write is write_packed else to_ops([drop])
        put_in(log, write(BOB, runs, seq=counter - 4))
    reader = await opened(log, CAROL, on_author_error="skip", on_event=events.append)
    rejected = [event.reason for event in events if isinstance(event, Rejection)]
    assert ["not older than itself" in reason for reason in rejected] == [True, True]
    await alice.pull()
    alice.put("m", "k", 2)
    await alice.commit()
    await reader.pull()
    assert reader.materialize() == alice.materialize() == {"m": {"k": 2}}


# ── what somebody says to have seen ────────────────────────────────────────────────────


def having_seen(seen: dict[str, int], *, seq: int = 1, prev: str | None = None) -> JsonElement:
    return write_packed(BOB, [], session="w", seq=seq, prev=prev, seen=seen)


async def test_nobody_misses_what_somebody_has_seen_of_who_may_not_write() -> None:
    snapshots = RiggedSnapshots()
    stranger = having_seen({replica(MALLORY): 3, "nobody:s": 1})
    reader, events, _ = await attacked_by(stranger, snapshot_store=snapshots)
    assert (events, reader.detected_gaps()) == ([], [])
    assert reader.own_snapshot() is not None
    await reader.snapshot()


async def test_what_the_revoked_say_to_have_seen_is_missed_no_longer() -> None:
    revoked: dict[str, Counts] = {}
    snapshots = RiggedSnapshots()
    liar = having_seen({replica(ALICE): 99, replica(CAROL): 7})
    reader, _, log = await attacked_by(liar, snapshot_store=snapshots, revoked=revoked.get)
    assert len(reader.detected_gaps()) == 2
    assert reader.own_snapshot() is None
    revoked[BOB.public_key] = reader.counted(BOB.public_key)
    new = await opened(log, CAROL, snapshot_store=snapshots, revoked=revoked.get)
    for each in (reader, new):
        assert each.detected_gaps() == []
        assert each.own_snapshot() is not None
        await each.snapshot()


async def test_a_gap_of_the_revoked_keeps_nobody_from_a_snapshot() -> None:
    revoked: dict[str, Counts] = {}
    snapshots = RiggedSnapshots()
    reader, _, _ = await attacked_by(
        having_seen({}, seq=4), snapshot_store=snapshots, revoked=revoked.get
    )
    with pytest.raises(SnapshotRefusedError):
        await reader.snapshot()
    revoked[BOB.public_key] = reader.counted(BOB.public_key)
    assert len(reader.detected_gaps()) == 1
    assert reader.own_snapshot() is not None
    await reader.snapshot()


async def test_who_lies_about_what_they_have_seen_fills_no_memory() -> None:
    lies, prev = list[JsonElement](), None
    for seq in range(1, 9):
        seen = {replica(ALICE, f"{seq}-{number}"): 1 for number in range(64)}
        lies.append(having_seen(seen, seq=seq, prev=prev))
        prev = link_of(lies[-1])
    reader, _, log = await attacked_by(*lies)
    assert len(reader.detected_gaps()) == VOUCHED_MAX
    assert len(reader.detected_gaps(count_max=8)) == 8
    # Somebody else's word counts all the same.
    put_in(log, write_packed(CAROL, [], session="w", seen={replica(ALICE, "true"): 2}))
    await reader.pull()
    assert "true" in {gap.session for gap in reader.detected_gaps()}


async def test_what_came_since_makes_room_for_what_else_was_seen() -> None:
    seen = [{replica(ALICE, f"{page}-{each}"): 1 for each in range(64)} for page in range(4)]
    first = [having_seen(each, seq=seq) for seq, each in enumerate(seen, 1)]
    reader, _, log = await attacked_by(*first)
    assert len(reader.detected_gaps()) == VOUCHED_MAX
    put_in(log, write_packed(ALICE, [], session="0-0"))
    put_in(log, having_seen({replica(ALICE, "late"): 1}, seq=5))
    await reader.pull()
    assert len(reader.detected_gaps()) == VOUCHED_MAX
    assert "late" in {gap.session for gap in reader.detected_gaps()}
