"""Undo stacks: only what is mine, whatever others do meanwhile, and across restarts.

The law. Every element here is written once and never again, so that it can be told who wrote it.
An element shows if it was written, by others or by a step of mine that is not undone, and was not
removed: by others, or by a step of mine that is not undone. What shows keeps its order for ever.
Whatever else is edited, undone and redone, all replicas end up with the same bytes.
"""

from __future__ import annotations

import random
from copy import deepcopy
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import ALICE, BOB, CAROL, RiggedLog, opened, put_in, state_of, write_starfish
from tests.undoing import Author, sync
from walstore.canon import canonical_bytes
from walstore.document import WalDocument
from walstore.net import MemoryTransport
from walstore.store.undo import (
    UNDO_GROUP_MS,
    UNDO_STEPS_MAX,
    Selected,
    UndoInProgressError,
    UndoStack,
)

laws = settings(deadline=None, max_examples=120)


async def alone(**options: Any) -> Author:
    return await Author(MemoryTransport(), **options).open()


async def pair() -> tuple[Author, WalDocument]:
    transport = MemoryTransport()
    return await Author(transport).open(), await opened(transport, BOB)


# ── the law ────────────────────────────────────────────────────────────────────────────


class Model:
    """What my document should show, said without ids or clocks.

    An element that is brought back is another one to those who have not heard of it yet: what they
    remove is the one that they have seen.
    """

    def __init__(self) -> None:
        self.lives: dict[str, int] = {}
        self.shown: set[str] = set()
        self.undo: list[tuple[set[str], set[str]]] = []
        self.redo: list[tuple[set[str], set[str]]] = []

    def insert(self, tokens: list[str]) -> None:
        for token in tokens:
            self.lives[token] = self.lives.get(token, 0) + 1
        self.shown.update(tokens)

    def edit(self, inserted: list[str], removed: list[str]) -> None:
        self.insert(inserted)
        self.shown.difference_update(removed)
        self.undo.append((set(inserted), set(removed)))
        self.redo.clear()

    def move(self, source: list[Any], target: list[Any]) -> bool:
        while source:
            inserted, removed = source.pop()
            gone = inserted & self.shown
            back = removed - inserted - self.shown
            self.shown -= gone
            self.insert(sorted(back))
            if gone or back:
                target.append((back, gone))
                return True
        return False

    def remove_seen(self, token: str, life: int) -> None:
        if self.lives[token] == life:
            self.shown.discard(token)


class Play:
    """Two people on one list: I undo, the other one just edits."""

    def __init__(self, data: st.DataObject, me: Author, other: WalDocument) -> None:
        self.draw = data.draw
        self.me = me
        self.other = other
        self.model = Model()
        self.number = 0
        # What the other one sees, and has done since we last met.
        self.seen: dict[str, int] = {}
        self.their_inserts: list[str] = []
        self.their_removes: list[tuple[str, int]] = []
        # Which of two elements comes first; once it is known it stays so.
        self.order: dict[frozenset[str], str] = {}

    def tokens(self, size: int) -> list[str]:
        self.number += size
        return [chr(0x4E00 + self.number - at) for at in range(size)]

    def cut(self, doc: WalDocument) -> tuple[int, list[str], list[str]]:
        length = doc.crdt.list_length("body")
        at = self.draw(st.integers(0, length))
        removed = doc.values("body")[at : at + self.draw(st.integers(0, 4))]
        return at, removed, self.tokens(self.draw(st.integers(0 if removed else 1, 3)))

    def edit(self) -> None:
        doc = self.me.doc
        at, removed, inserted = self.cut(doc)
        if self.draw(st.booleans()):
            text = doc.text("body")
            wanted = text[:at] + "".join(inserted) + text[at + len(removed) :]
            doc.set_text("body", wanted)
        else:
            with self.me.stack.batch():
                doc.remove_text("body", at, len(removed))
                doc.insert_text("body", at, "".join(inserted))
        self.me.stack.boundary()
        self.model.edit(inserted, removed)

    def they_edit(self) -> None:
        at, removed, inserted = self.cut(self.other)
        self.other.remove_text("body", at, len(removed))
        self.other.insert_text("body", at, "".join(inserted))
        self.their_removes += [(token, self.seen[token]) for token in removed]
        self.their_inserts += inserted
        self.seen.update(dict.fromkeys(inserted, 1))

    def undo(self) -> None:
        assert self.me.stack.can_undo is bool(self.model.undo)
        has_moved = self.model.move(self.model.undo, self.model.redo)
        assert (self.me.undo() is not None) is has_moved

    def redo(self) -> None:
        assert self.me.stack.can_redo is bool(self.model.redo)
        has_moved = self.model.move(self.model.redo, self.model.undo)
        assert (self.me.redo() is not None) is has_moved

    async def meet(self) -> None:
        await sync(self.me.doc, self.other, self.me.doc)
        self.model.insert(self.their_inserts)
        for token, life in self.their_removes:
            self.model.remove_seen(token, life)
        self.their_inserts, self.their_removes = [], []
        self.seen = {token: self.model.lives[token] for token in self.model.shown}
        assert state_of(self.me.doc) == state_of(self.other)

    def check(self) -> None:
        shown = self.me.doc.values("body")
        assert len(set(shown)) == len(shown)
        assert set(shown) == self.model.shown
        for left, right in combinations(shown, 2):
            assert self.order.setdefault(frozenset((left, right)), left) == left
        self.me.doc.crdt.check()


async def knotted() -> tuple[Author, WalDocument]:
    log = RiggedLog()
    clock = {"c": 1, "r": f"{CAROL.public_key}:s"}
    op = {
        "t": "ins", "list": "body", "id": f"1@{clock['r']}", "after": "7@nobody", "clock": clock,
        "value": "?",
    }  # fmt: skip
    put_in(log, write_starfish(CAROL, [op]))
    return await Author(log).open(), await opened(log, BOB)


MOVES = ["edit", "edit", "they_edit", "undo", "undo", "redo", "meet", "restart"]


@laws
@given(st.data(), st.lists(st.sampled_from(MOVES), max_size=24), st.sampled_from([pair, knotted]))
async def test_own_edits_are_undone_and_others_kept(
    data: st.DataObject, moves: list[str], shape: Any
) -> None:
    me, other = await shape()
    play = Play(data, me, other)
    play.they_edit()
    await play.meet()
    for move in moves:
        match move:
            case "meet":
                await play.meet()
            case "restart":
                await me.restart()
            case _:
                getattr(play, move)()
        play.check()
    await play.meet()
    play.check()
    shown = me.text()
    count = 0
    while me.undo() is not None:
        play.model.move(play.model.undo, play.model.redo)
        play.check()
        count += 1
    own = {token for step in play.model.redo for token in step[1]}
    assert not own & set(me.text()), "nothing of mine is left"
    for _ in range(count):
        me.redo()
        play.model.move(play.model.redo, play.model.undo)
    play.check()
    assert me.text() == shown
    await play.meet()


class Scribe(Author):
    """Edits everything there is at random."""

    def edit(self, chance: random.Random) -> None:
        doc = self.doc
        match chance.randrange(9):
            case 0:
                doc.set_field(chance.choice("rs"), chance.randrange(100))
            case 1:
                doc.delete_field("r")
            case 2:
                doc.put("map", chance.choice("kl"), chance.randrange(100))
            case 3:
                doc.drop("map", chance.choice("kl"))
            case 4:
                doc.set_list("items", [chance.randrange(3) for _ in range(chance.randrange(5))])
            case 5 | 6:
                length = doc.crdt.list_length("body")
                doc.remove_text("body", chance.randint(0, length), chance.randrange(4))
            case _:
                length = doc.crdt.list_length("body")
                doc.insert_text("body", chance.randint(0, length), "abc"[: chance.randint(1, 3)])


def shown(doc: WalDocument) -> dict[str, Any]:
    """What a document shows; a name that was emptied is as good as none."""
    return {name: value for name, value in doc.materialize().items() if value not in ([], {})}


@laws
@given(st.integers(0, 2**32), st.integers(1, 25))
async def test_undo_goes_back_and_redo_forth_step_by_step(seed: int, size: int) -> None:
    chance = random.Random(seed)
    me = Scribe(MemoryTransport())
    await me.open()
    pasts = [shown(me.doc)]
    while len(pasts) <= size:
        me.edit(chance)
        me.stack.boundary()
        if len(me.steps) == len(pasts):
            pasts.append(shown(me.doc))
    place = size
    for _ in range(3 * size):
        if chance.random() < 0.05:
            await me.restart()
        if chance.random() < 0.6:
            moved = me.undo() is not None
            assert moved is (place > 0)
            place -= moved
        else:
            moved = me.redo() is not None
            assert moved is (place < size)
            place += moved
        assert shown(me.doc) == pasts[place]


@laws
@given(st.integers(0, 2**32))
async def test_all_who_undo_and_redo_end_up_with_the_same(seed: int) -> None:
    chance = random.Random(seed)
    transport = MemoryTransport()
    people = [Scribe(transport, who) for who in (ALICE, BOB, CAROL)]
    for who in people:
        await who.open()
    for _ in range(60):
        who = chance.choice(people)
        who.now_ms += chance.choice([0, 0, 1000])
        move = chance.randrange(10)
        if move < 5:
            who.edit(chance)
        elif move < 7:
            who.undo()
        elif move < 8:
            who.redo()
        elif move < 9:
            await sync(*[each.doc for each in chance.sample(people, 2)])
        else:
            await who.restart()
    docs = [who.doc for who in people]
    await sync(*docs, *docs)
    assert len({state_of(doc) for doc in docs}) == 1
    for doc in docs:
        doc.crdt.check()


class LastWrite:
    """What a register should show: its value, and whose write that is."""

    def __init__(self) -> None:
        self.value: Any = None
        self.write: object = None
        self.undo: list[tuple[Any, object, object]] = []
        self.redo: list[tuple[Any, object, object]] = []

    def set(self, value: Any) -> None:
        before, old = self.value, self.write
        self.value, self.write = value, object()
        self.undo.append((before, old, self.write))
        self.redo.clear()

    def follow(self, value: Any) -> None:
        if value != self.value:
            self.value, self.write = value, object()

    def move(self, source: list[Any], target: list[Any]) -> None:
        while source:
            before, old, written = source.pop()
            if self.write is written:
                target.append((self.value, written, old))
                self.value, self.write = before, old
                return


@laws
@given(st.lists(st.sampled_from(["mine", "theirs", "undo", "redo", "meet", "restart"])))
async def test_a_register_shows_the_last_write_that_is_not_undone(moves: list[str]) -> None:
    me, other = await pair()
    model = LastWrite()
    for number, move in enumerate(moves, 1):
        match move:
            case "mine":
                me.doc.set_field("r", number)
                model.set(number)
            case "theirs":
                other.set_field("r", -number)
            case "undo":
                me.undo()
                model.move(model.undo, model.redo)
            case "redo":
                me.redo()
                model.move(model.redo, model.undo)
            case "restart":
                await me.restart()
            case _:
                await sync(me.doc, other, me.doc)
                model.follow(me.doc.field("r"))
                assert state_of(me.doc) == state_of(other)
        if move != "restart":
            assert me.doc.field("r") == model.value
        model.follow(me.doc.field("r"))


# ── steps ──────────────────────────────────────────────────────────────────────────────


async def test_typing_on_is_one_step() -> None:
    alice = await alone()
    for at, character in enumerate("hello"):
        alice.now_ms += UNDO_GROUP_MS
        alice.doc.insert_text("body", at, character)
    alice.undo()
    assert alice.text() == ""
    assert not alice.stack.can_undo


async def test_typing_in_a_text_field_is_one_step_whatever_others_type() -> None:
    alice, bob = await pair()
    for character in "hello":
        alice.doc.set_text("body", alice.text() + character)
        await sync(alice.doc, bob)
        bob.insert_text("body", 0, ">")
        await sync(bob, alice.doc)
    alice.undo()
    assert alice.text() == ">>>>>"


async def test_a_pause_an_other_place_and_a_boundary_begin_a_step() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "ab")
    alice.now_ms += UNDO_GROUP_MS + 1
    alice.doc.insert_text("body", 2, "cd")
    alice.doc.insert_text("body", 0, "ef")
    alice.stack.boundary()
    alice.doc.insert_text("body", 2, "gh")
    alice.doc.insert_text("other", 0, "ij")
    alice.doc.set_field("title", 1)
    alice.doc.set_field("title", 2)
    shown = []
    while alice.undo() is not None:
        shown.append((alice.doc.field("title"), alice.text("other"), alice.text()))
    assert shown == [
        (1, "ij", "efghabcd"),
        (None, "ij", "efghabcd"),
        (None, "", "efghabcd"),
        (None, "", "efabcd"),
        (None, "", "abcd"),
        (None, "", "ab"),
        (None, "", ""),
    ]


async def test_deleting_on_is_one_step_in_both_directions() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "0123456789")
    alice.stack.boundary()
    for at in (5, 4, 3):
        alice.doc.remove_text("body", at, 1)
    alice.stack.boundary()
    for _ in range(3):
        alice.doc.remove_text("body", 3, 1)
    assert alice.text() == "0129"
    alice.undo()
    assert alice.text() == "0126789"
    alice.undo()
    assert alice.text() == "0123456789"


async def test_a_clock_that_is_set_back_begins_a_step() -> None:
    alice = await alone()
    alice.now_ms = 10_000
    alice.doc.insert_text("body", 0, "a")
    alice.now_ms = 0
    alice.doc.insert_text("body", 1, "b")
    alice.undo()
    assert alice.text() == "a"


async def test_a_batch_is_one_step_and_nothing_joins_it() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "a")
    with alice.stack.batch():
        alice.doc.insert_text("body", 1, "b")
        alice.stack.boundary()
        with alice.stack.batch():
            alice.now_ms += 10_000
            alice.doc.set_field("title", 1)
        alice.doc.insert_text("body", 0, "c")
    alice.doc.insert_text("body", 1, "d")
    assert alice.text() == "cdab"
    alice.undo()
    assert (alice.text(), alice.doc.field("title")) == ("cab", 1)
    alice.undo()
    assert (alice.text(), alice.doc.field("title")) == ("a", None)
    alice.redo()
    assert (alice.text(), alice.doc.field("title")) == ("cab", 1)


async def test_an_empty_batch_is_no_step() -> None:
    alice = await alone()
    with alice.stack.batch():
        alice.doc.remove_at("body", 3)
    assert not alice.stack.can_undo
    assert alice.undo() is None
    assert alice.redo() is None


async def test_a_new_edit_leaves_nothing_to_redo() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "a")
    alice.undo()
    alice.doc.insert_text("body", 0, "b")
    assert not alice.stack.can_redo
    assert alice.redo() is None
    assert alice.text() == "b"


async def test_typing_on_after_an_undo_is_a_step_of_its_own() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "ab")
    alice.stack.boundary()
    alice.doc.insert_text("body", 2, "cd")
    alice.undo()
    alice.doc.insert_text("body", 2, "ef")
    alice.undo()
    assert alice.text() == "ab"


async def test_what_a_listener_writes_about_an_undo_belongs_to_it() -> None:
    def count(_: Any) -> None:
        length = alice.doc.crdt.list_length("body")
        if alice.doc.field("length") != length:
            alice.doc.set_field("length", length)

    alice = await alone(on_changed=count)
    with alice.stack.batch():
        alice.doc.insert_text("body", 0, "abc")
    assert alice.doc.field("length") == 3
    alice.undo()
    assert (alice.text(), alice.doc.field("length")) == ("", 0)
    assert not alice.stack.can_undo
    alice.redo()
    assert (alice.text(), alice.doc.field("length")) == ("abc", 3)


async def test_undo_is_refused_while_an_undo_is_told_of() -> None:
    refused: list[Exception] = []

    def undo_too(_: Any) -> None:
        if alice.stack.can_redo or not alice.stack.can_undo:
            return
        try:
            alice.undo()
        except UndoInProgressError as error:
            refused.append(error)

    alice = await alone()
    alice.doc.set_field("title", 1)
    alice.doc.set_field("title", 2)
    alice.doc._on_changed = undo_too
    alice.doc._content.listen()
    alice.undo()
    assert len(refused) == 1
    assert alice.doc.field("title") == 1


# ── selections ─────────────────────────────────────────────────────────────────────────


async def test_the_selection_comes_back_with_what_was_selected() -> None:
    alice, bob = await pair()
    alice.doc.insert_text("body", 0, "one two three")
    alice.stack.boundary()
    alice.before = alice.select(4, 7)
    alice.doc.set_text("body", "one 2 three")
    alice.stack.set_after(alice.select(5))
    await sync(alice.doc, bob)
    bob.insert_text("body", 0, ">> ")
    await sync(bob, alice.doc)
    undone = alice.undo()
    assert undone is not None
    assert undone.selection == Selected("body", 7, 10)
    assert alice.text()[7:10] == "two"
    await alice.restart()
    redone = alice.redo()
    assert redone is not None
    assert redone.selection == Selected("body", 8, 8)
    undone = alice.undo()
    assert undone is not None
    assert undone.selection == Selected("body", 7, 10)


async def test_a_group_has_the_selection_before_its_first_edit_and_after_its_last() -> None:
    alice = await alone()
    for at, character in enumerate("abc"):
        alice.before = alice.select(at)
        alice.doc.insert_text("body", at, character)
        alice.stack.set_after(alice.select(at + 1))
    undone, redone = alice.undo(), alice.redo()
    assert undone is not None
    assert redone is not None
    assert undone.selection == Selected("body", 0, 0)
    assert redone.selection == Selected("body", 3, 3)


async def test_without_a_selection_there_is_none() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "a")
    undone = alice.undo()
    assert undone is not None
    assert undone.selection is None


# ── limits, and what is on file ────────────────────────────────────────────────────────


async def test_the_oldest_steps_are_let_go() -> None:
    alice = await alone()
    for number in range(UNDO_STEPS_MAX + 5):
        alice.doc.set_field("title", number)
    count = 0
    while alice.undo() is not None:
        count += 1
    assert count == UNDO_STEPS_MAX
    assert alice.doc.field("title") == 4


async def test_large_values_make_for_fewer_steps() -> None:
    alice = await alone()
    alice.stack = UndoStack(author=ALICE.public_key, bytes_max=20_000)
    for number in range(100):
        alice.doc.set_field("title", str(number) * 1000)
    kept = alice.stack.to_json()
    assert len(canonical_bytes(kept)) <= 20_000
    count = 0
    while alice.undo() is not None:
        count += 1
    assert 5 < count < 20


async def test_a_step_that_is_too_large_for_a_file_can_still_be_undone() -> None:
    alice = await alone()
    alice.stack = UndoStack(author=ALICE.public_key, bytes_max=1000)
    alice.doc.set_field("title", "x" * 5000)
    alice.doc.set_field("title", "y")
    kept = alice.stack.to_json()
    assert len(canonical_bytes(kept)) <= 1000
    alice.undo()
    assert alice.doc.field("title") == "x" * 5000


async def test_an_older_step_that_is_left_alone_on_file_still_finds_its_elements() -> None:
    alice = await alone()
    alice.doc.insert_text("body", 0, "abc")
    alice.stack.boundary()
    alice.doc.remove_text("body", 0, 3)
    alice.undo()
    kept = alice.stack.to_json()
    kept["redo"] = []
    alice.stack = UndoStack.from_json(kept, author=ALICE.public_key)
    alice.undo()
    assert alice.text() == ""


async def written() -> Any:
    alice, bob = await pair()
    bob.insert_text("body", 0, "theirs")
    bob.put("map", "k", 0)
    await sync(bob, alice.doc)
    alice.before = alice.select(2, 3)
    alice.doc.set_text("body", "the ir")
    alice.doc.put("map", "k", [1])
    alice.doc.drop("map", "k")
    alice.doc.set_field("r", {"a": 1})
    alice.doc.delete_field("r")
    alice.doc.remove_text("body", 0, 3)
    for _ in range(4):
        alice.undo()
    return alice.stack.to_json()


async def test_a_stack_goes_through_json() -> None:
    kept = await written()
    stack = UndoStack.from_json(kept, author=ALICE.public_key)
    assert stack.damage is None
    assert stack.to_json() == kept
    assert stack.can_undo
    assert stack.can_redo


def test_without_anything_on_file_a_stack_is_new() -> None:
    stack = UndoStack.from_json(None, author=ALICE.public_key)
    assert stack.damage is None
    assert not stack.can_undo


async def test_a_stack_of_another_author_is_dropped() -> None:
    stack = UndoStack.from_json(await written(), author=BOB.public_key)
    assert stack.damage is not None
    assert not stack.can_undo
    assert not stack.can_redo


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, each in inside:
            found += places(each, (*path, key)) if isinstance(each, dict | list) else [(*path, key)]
    return found


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 2**53, 1.5, "", "x", "[", "\ud800", [], {}, [0, 0], [[]], 10**400]
)


@laws
@given(st.data())
async def test_a_damaged_stack_is_dropped_or_harmless(data: st.DataObject) -> None:
    kept = await written()
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(kept)))
        holder = kept
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = deepcopy(data.draw(JUNK))
    stack = UndoStack.from_json(kept, author=ALICE.public_key)
    assert stack.damage is None or not (stack.can_undo or stack.can_redo)
    alice, bob = await pair()
    bob.insert_text("body", 0, "theirs")
    await sync(bob, alice.doc)
    alice.stack = stack
    for _ in range(3):
        alice.undo()
    for _ in range(3):
        alice.redo()
    assert alice.text() == "theirs"


@pytest.mark.parametrize("value", [1, "x", [], {}, {"v": 2}, {"v": True}, {"v": 1}])
def test_what_is_no_stack_is_dropped_with_a_reason(value: object) -> None:
    stack = UndoStack.from_json(value, author=ALICE.public_key)
    assert stack.damage
    assert not stack.can_undo
