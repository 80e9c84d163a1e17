"""Undoing own edits, one step at a time, while others edit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rigged import ALICE, BOB, CAROL, RiggedLog, document, opened, put_in, write_starfish
from tests.undoing import Author, sync
from walstore.crdt import WalCrdt, Writer
from walstore.crdt.elements import Ids, find_rows, minus, united
from walstore.document import ReadOnlyError, WalDocument
from walstore.document.undoing import ALIASES_MAX, Aliases
from walstore.net import MemoryTransport


async def alone(**options: Any) -> Author:
    return await Author(MemoryTransport(), **options).open()


async def pair() -> tuple[Author, WalDocument]:
    transport = MemoryTransport()
    return await Author(transport).open(), await opened(transport, BOB)


async def knotted() -> tuple[Author, WalDocument]:
    """A list that no run can say: an element hangs on one that nobody knows."""
    log = RiggedLog()
    clock = {"c": 1, "r": f"{CAROL.public_key}:s"}
    op = {
        "t": "ins", "list": "body", "id": f"1@{clock['r']}", "after": "7@nobody", "clock": clock,
        "value": "?",
    }  # fmt: skip
    put_in(log, write_starfish(CAROL, [op]))
    return await Author(log).open(), await opened(log, BOB)


both_shapes = pytest.mark.parametrize("shape", [pair, knotted])


# ── lists ──────────────────────────────────────────────────────────────────────────────


@both_shapes
async def test_what_was_typed_is_removed_wherever_it_is_by_now(shape: Any) -> None:
    alice, bob = await shape()
    bob.insert_text("body", 0, "[]")
    await sync(bob, alice.doc)
    alice.doc.insert_text("body", 1, "abc")
    await sync(alice.doc, bob)
    bob.insert_text("body", 2, "XY")
    bob.insert_text("body", 0, "> ")
    await sync(bob, alice.doc)
    assert alice.text() == "> [aXYbc]"
    assert alice.undo() is not None
    assert alice.text() == "> [XY]"
    assert alice.redo() is not None
    assert alice.text() == "> [aXYbc]"
    await sync(alice.doc, bob)
    assert bob.text("body") == "> [aXYbc]"


@both_shapes
async def test_what_was_removed_is_back_in_its_place(shape: Any) -> None:
    alice, bob = await shape()
    bob.insert_text("body", 0, "one two three")
    await sync(bob, alice.doc)
    alice.doc.remove_text("body", 4, 4)
    await sync(alice.doc, bob)
    bob.insert_text("body", 0, ">> ")
    bob.insert_text("body", bob.text("body").index("three"), "X ")
    await sync(bob, alice.doc)
    assert alice.text() == ">> one X three"
    alice.undo()
    # What hangs on a removed element stays after it.
    assert alice.text() in (">> one two X three", ">> one X two three")
    text = alice.text()
    alice.redo()
    assert alice.text() == ">> one X three"
    alice.undo()
    assert alice.text() == text
    await sync(alice.doc, bob)
    assert bob.text("body") == text


@both_shapes
async def test_what_others_wrote_between_removed_elements_stays_between_them(shape: Any) -> None:
    alice, bob = await shape()
    bob.insert_text("body", 0, "abcd")
    await sync(bob, alice.doc)
    bob.insert_text("body", 2, "X")
    alice.doc.remove_text("body", 0, 4)
    await sync(bob, alice.doc)
    assert alice.text() == "X"
    alice.undo()
    assert alice.text() == "abXcd"


async def test_neighbours_are_brought_back_as_one_run() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "x" * 20_000)
    alice.doc.remove_text("body", 10, 15_000)
    alice.undo()
    assert [len(ranges) for ranges in alice.steps[-1].inserted.values()] == [1]
    assert alice.text() == "x" * 20_000
    alice.doc.crdt.check()


async def test_what_was_typed_and_taken_back_in_one_step_does_not_come_back() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "[]")
    alice.stack.boundary()
    with alice.stack.batch():
        alice.doc.insert_text("body", 1, "abc")
        alice.doc.remove_text("body", 2, 1)
    alice.undo()
    assert alice.text() == "[]"
    alice.redo()
    assert alice.text() == "[ac]"


async def test_an_older_step_finds_what_was_brought_back() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "abc")
    alice.stack.boundary()
    alice.doc.remove_text("body", 1, 1)
    shown = ["abc", "", "abc", "ac", "abc", ""]
    moves = [alice.undo, alice.undo, alice.redo, alice.redo, alice.undo, alice.undo]
    assert [(move() is not None, alice.text()) for move in moves] == [
        (True, text) for text in shown
    ]


async def test_values_of_any_kind_come_back() -> None:
    alice = await alone()
    values: list[Any] = ["a", "long text", 1, None, {"deep": [1, {"er": None}]}, "\ud800", "z"]
    alice.doc.set_list("items", values)
    alice.stack.boundary()
    alice.doc.remove_text("items", 0, 7)
    alice.undo()
    assert alice.doc.values("items") == values
    alice.undo()
    assert alice.doc.values("items") == []
    alice.redo()
    assert alice.doc.values("items") == values
    await alice.restart()
    assert alice.doc.values("items") == values


async def test_a_free_form_id_is_removed_and_brought_back() -> None:
    alice, bob = await knotted()
    clock = {"c": 50, "r": "peer"}
    odd: Any = {
        "t": "ins", "list": "body", "id": "odd", "after": "", "clock": clock, "value": "o"
    }  # fmt: skip
    for doc in (alice.doc, bob):
        # Only a state that a peer produced can hold such ids.
        doc.crdt.apply(odd)
    alice.doc.insert_text("body", 1, "xy")
    alice.stack.boundary()
    alice.doc.remove_text("body", 0, 2)
    assert alice.text() == "y"
    alice.undo()
    assert alice.text() == "oxy"
    alice.undo()
    assert alice.text() == "o"
    await sync(alice.doc, bob)
    assert bob.text("body") == "o"


async def test_a_range_without_end_costs_nothing() -> None:
    for shape in (pair, knotted):
        alice, _ = await shape()
        alice.doc.insert_text("body", 0, "abc")
        step = alice.steps[-1]
        (name, ((replica, _, _),)), *_ = step.inserted.items()
        step.inserted[name] = [(replica, 1, 2**52)]
        alice.undo()
        assert alice.text() == ""


async def test_what_was_let_go_cannot_be_brought_back_and_the_step_says_so() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "abcdef")
    alice.stack.boundary()
    alice.doc.remove_text("body", 1, 3)
    alice.doc._content.replace(alice.doc.crdt.collected())
    undone = alice.undo()
    assert undone is not None
    assert undone.lost == 3
    assert alice.text() == ""


async def test_a_stale_edit_after_an_undo_loses_nothing() -> None:
    alice, bob = await pair()
    alice.doc.set_text("body", "hello world")
    alice.stack.boundary()
    alice.doc.set_text("body", "hello")
    view = alice.doc.view()
    alice.undo()
    alice.doc.set_text("body", "HELLO", base=view)
    assert alice.text() == "HELLO world"
    await sync(alice.doc, bob)
    assert bob.text("body") == "HELLO world"


# ── registers and maps ─────────────────────────────────────────────────────────────────


async def test_a_register_is_set_back_and_forth() -> None:
    alice = await alone()
    alice.doc.set_field("title", 1)
    alice.doc.set_field("title", [2, {"a": None}])
    alice.doc.delete_field("title")
    shown = [alice.doc.field("title", "none")]
    for move in [alice.undo] * 3 + [alice.redo] * 3:
        assert move() is not None
        shown.append(alice.doc.field("title", "none"))
    two = [2, {"a": None}]
    assert shown == ["none", two, 1, "none", 1, two, "none"]


async def test_a_register_that_somebody_wrote_later_is_left_alone() -> None:
    alice, bob = await pair()
    alice.doc.set_field("title", "mine")
    alice.doc.insert_text("body", 0, "x")
    await sync(alice.doc, bob)
    bob.set_field("title", "theirs")
    await sync(bob, alice.doc)
    alice.undo()
    # The step before has nothing left to undo, and says nothing.
    alice.undo()
    assert alice.doc.field("title") == "theirs"
    assert not alice.stack.can_undo
    assert alice.text() == ""


async def test_a_register_is_not_set_back_over_a_list_that_took_its_name() -> None:
    alice, bob = await pair()
    alice.doc.set_field("title", "mine")
    alice.doc.delete_field("title")
    await sync(alice.doc, bob)
    bob.insert_text("title", 0, "theirs")
    await sync(bob, alice.doc)
    undone = alice.undo()
    assert undone is not None
    assert alice.doc.materialize()["title"] == list("theirs")


async def test_emptying_a_name_for_another_kind_is_undone() -> None:
    alice = await alone()
    alice.doc.set_text("x", "text")
    alice.stack.boundary()
    alice.doc.migrate("x")
    alice.doc.set_field("x", 1)
    await alice.restart()
    shown = []
    for move in [alice.undo] * 3 + [alice.redo] * 3:
        move()
        shown.append(alice.doc.materialize().get("x"))
    assert shown == [[], list("text"), [], list("text"), [], 1]


async def test_a_key_of_a_map_is_put_back_and_forth() -> None:
    alice = await alone()
    alice.doc.put("ages", "ann", 1)
    alice.doc.put("ages", "ann", 2)
    alice.doc.drop("ages", "ann")
    shown = [alice.doc.entries("ages")]
    for move in [alice.undo] * 3 + [alice.redo] * 3:
        assert move() is not None
        shown.append(alice.doc.entries("ages"))
    one, two = {"ann": 1}, {"ann": 2}
    assert shown == [{}, two, one, {}, one, two, {}]


async def test_to_undo_a_put_shows_what_others_have_put() -> None:
    alice, bob = await pair()
    bob.put("ages", "ann", "theirs")
    await sync(bob, alice.doc)
    alice.doc.put("ages", "ann", "mine")
    await sync(alice.doc, bob)
    alice.undo()
    assert alice.doc.entries("ages") == {"ann": "theirs"}
    alice.redo()
    assert alice.doc.entries("ages") == {"ann": "mine"}
    alice.undo()
    # It is their write again that shows, and theirs to drop.
    bob.drop("ages", "ann")
    await sync(alice.doc, bob)
    assert bob.entries("ages") == alice.doc.entries("ages") == {}


async def test_undo_after_a_drop_goes_back_to_what_others_have_put() -> None:
    alice, bob = await pair()
    bob.put("ages", "ann", "theirs")
    await sync(bob, alice.doc)
    alice.doc.put("ages", "ann", "mine")
    alice.doc.drop("ages", "ann")
    await alice.restart()
    shown = [alice.doc.entries("ages")]
    for move in [alice.undo] * 2 + [alice.redo] * 2 + [alice.undo] * 2:
        assert move() is not None
        shown.append(alice.doc.entries("ages"))
    mine, theirs = {"ann": "mine"}, {"ann": "theirs"}
    assert shown == [{}, mine, theirs, mine, {}, mine, theirs]


async def test_a_concurrent_put_outlives_the_undo_of_mine() -> None:
    alice, bob = await pair()
    bob.put("ages", "ann", "theirs")
    alice.doc.insert_text("body", 0, "my clock is ahead")
    alice.doc.put("ages", "ann", "mine")
    await sync(alice.doc, bob)
    assert alice.doc.entries("ages") == {"ann": "mine"}
    alice.undo()
    await sync(alice.doc, bob)
    assert alice.doc.entries("ages") == bob.entries("ages") == {"ann": "theirs"}


async def test_a_key_that_somebody_wrote_later_is_left_alone() -> None:
    alice, bob = await pair()
    alice.doc.put("ages", "ann", 1)
    alice.doc.drop("ages", "ann")
    await sync(alice.doc, bob)
    bob.put("ages", "ann", 2)
    await sync(bob, alice.doc)
    assert alice.undo() is None
    assert alice.doc.entries("ages") == {"ann": 2}


async def test_keys_of_a_batch_are_one_step() -> None:
    alice, bob = await pair()
    bob.put("ages", "ann", 0)
    await sync(bob, alice.doc)
    with alice.stack.batch():
        alice.doc.put("ages", "ann", 1)
        alice.doc.drop("ages", "ann")
        alice.doc.put("ages", "bo", 2)
        alice.doc.set_field("title", 1)
        alice.doc.set_field("title", 2)
    alice.undo()
    assert alice.doc.materialize()["ages"] == {"ann": 0}
    assert alice.doc.field("title") is None
    alice.redo()
    assert alice.doc.materialize()["ages"] == {"bo": 2}
    assert alice.doc.field("title") == 2


# ── what a document tells ──────────────────────────────────────────────────────────────


async def test_each_edit_has_a_step_and_remote_edits_have_none() -> None:
    alice, bob = await pair()
    alice.doc.update({"title": 1, "items": [1, 2]})
    assert len(alice.steps) == 1
    bob.insert_text("body", 0, "x")
    await sync(bob, alice.doc)
    alice.doc.remove_at("body", 9)
    assert len(alice.steps) == 1


async def test_the_step_is_told_before_the_change() -> None:
    told: list[str] = []
    doc = document(
        MemoryTransport(),
        on_step=lambda _: told.append("step"),
        on_changed=lambda _: told.append("changed"),
    )
    await doc.open()
    doc.set_field("title", 1)
    assert told == ["step", "changed"]


async def test_undoing_tells_its_changes_with_positions() -> None:
    changed: list[Any] = []
    alice = await alone(on_changed=lambda told: changed.extend(told.changes))
    alice.doc.insert_text("body", 0, "hello")
    alice.stack.boundary()
    alice.doc.remove_text("body", 1, 3)
    changed.clear()
    alice.undo()
    alice.undo()
    shown = list("ho")
    for each in changed:
        shown[each.position : each.position + each.removed] = each.inserted
    assert shown == []
    assert changed[0].inserted == "ell"


async def test_a_document_that_cannot_be_written_keeps_its_steps() -> None:
    alice = await alone()
    alice.doc.set_field("title", 1)
    alice.doc._read_only = "because"
    with pytest.raises(ReadOnlyError):
        alice.undo()
    alice.doc._read_only = None
    assert alice.undo() is not None
    assert alice.doc.field("title") is None


async def test_elements_of_others_are_never_taken_for_own() -> None:
    alice, bob = await pair()
    bob.insert_text("body", 0, "theirs")
    await sync(bob, alice.doc)
    alice.doc.insert_text("body", 0, "mine ")
    step = alice.steps[-1]
    step.inserted["body"].append((f"{BOB.public_key}:{bob.session}", 1, 6))
    alice.undo()
    assert alice.text() == "theirs"


# ── ids ────────────────────────────────────────────────────────────────────────────────


ranges = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 20), st.integers(1, 5)), max_size=6
)


def spelled(ids: list[Ids]) -> set[tuple[str, int]]:
    return {(replica, start + at) for replica, start, size in ids for at in range(size)}


@given(ranges, ranges)
def test_ranges_of_ids_are_sets(left: list[Ids], right: list[Ids]) -> None:
    assert spelled(united(left)) == spelled(left)
    assert sum(size for _, _, size in united(left)) == len(spelled(left))
    assert spelled(minus(left, right)) == spelled(left) - spelled(right)


@given(st.data())
def test_rows_hold_what_is_asked_for_with_nothing_in_between(data: st.DataObject) -> None:
    crdt = WalCrdt()
    hands = [Writer(crdt, "a"), Writer(crdt, "b")]
    for _ in range(data.draw(st.integers(1, 40))):
        hand = data.draw(st.sampled_from(hands))
        at = data.draw(st.integers(0, crdt.list_length("body")))
        if data.draw(st.integers(0, 2)):
            hand.insert_text("body", at, data.draw(st.text("xyz", min_size=1, max_size=3)))
        else:
            hand.remove("body", at, data.draw(st.integers(1, 4)))
    asked = data.draw(ranges)
    sequence = crdt.sequence("body")
    live = data.draw(st.booleans())
    rows = find_rows(sequence, asked, live=live)
    order = [
        (span.replica, span.counter + at, value, bool(span.live))
        for span in sequence.spans()  # type: ignore[union-attr]
        for at, value in enumerate(span.values)
    ]
    wanted = [each for each in order if each[:2] in spelled(asked) and each[3] is live]
    found = [
        [
            (each.ids[0], each.ids[1] + at, value, live)
            for each in row
            for at, value in enumerate(each.values)
        ]
        for row in rows
    ]
    assert [each for row in found for each in row] == wanted
    places = {each[:2]: place for place, each in enumerate(order)}
    for row in found:
        assert [places[each[:2]] - places[row[0][:2]] for each in row] == list(range(len(row)))
    for left, right in pairwise(found):
        assert places[right[0][:2]] > places[left[-1][:2]] + 1


def test_aliases_lead_to_the_newest_element() -> None:
    aliases = Aliases()
    aliases.add("body", ("a", 1, 5), (10, "b"))
    aliases.add("body", ("b", 11, 2), (20, "c"))
    assert aliases.newest("body", [("a", 0, 8)]) == [
        ("a", 0, 1), ("a", 6, 2), ("b", 10, 1), ("b", 13, 2), ("c", 20, 2),
    ]  # fmt: skip
    assert aliases.newest_id("body", "3@a") == "21@c"
    assert aliases.newest_id("other", "3@a") == "3@a"


def test_aliases_are_bounded_and_forget_the_oldest() -> None:
    aliases = Aliases()
    for number in range(1, ALIASES_MAX + 100):
        aliases.add("body", ("a", number * 2, 1), (number + 10**6, "b"))
    assert len(aliases) <= ALIASES_MAX
    newest = ALIASES_MAX + 99
    assert aliases.newest_id("body", f"{newest * 2}@a") == f"{newest + 10**6}@b"
    assert aliases.newest_id("body", "2@a") == "2@a"


async def test_the_same_step_is_not_undone_twice() -> None:
    # A process that died after an undo, before that was on file, starts with the step once more.
    alice, _ = await pair()
    alice.doc.insert_text("body", 0, "one two three")
    alice.stack.boundary()
    alice.doc.remove_text("body", 2, 6)
    kept = alice.stack.to_json()
    alice.undo()
    assert alice.text() == "one two three"
    await alice.doc.commit()
    stack = type(alice.stack).from_json(kept, author=ALICE.public_key)
    alice.stack = stack
    alice.undo()
    assert alice.text() == ""
