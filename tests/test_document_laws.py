"""Stale-safe reconcile: an edit of what was shown loses nothing that has arrived since.

Every character or item in these tests is written once and never again, so that a result can be
held against both sides: what it shows of the user's is what the user asked for, less what the
others removed, and what it shows of the others' is what they have, less what the user removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import ALICE, BOB, CAROL, MALLORY, counter_of, opened, state_of
from walstore.document import KindError, View, WalDocument
from walstore.errors import NotJsonError
from walstore.net import MemoryTransport
from walstore.reconcile import diff_text

# How long one example takes is for others to say.
untimed = settings(deadline=None)
untimed_few = settings(deadline=None, max_examples=60)


class Cut(NamedTuple):
    """An edit anywhere: at a place, in parts of the length, some elements go and some come."""

    place: float
    removed: int
    inserted: int


cuts = st.builds(Cut, st.floats(0, 1, allow_nan=False), st.integers(0, 3), st.integers(0, 3))
some_cuts = st.lists(cuts, max_size=4)


class Editor:
    """Edits lists with elements of its own, and remembers what it took away."""

    def __init__(self, fresh: Callable[[int], Any], start: int) -> None:
        self._fresh = fresh
        self._numbers = count(start)
        self.removed: set[Any] = set()

    def edit(self, value: Sequence[Any], edits: Sequence[Cut]) -> list[Any]:
        items = list(value)
        for cut in edits:
            at = int(cut.place * len(items))
            self.removed.update(items[at : at + cut.removed])
            items[at : at + cut.removed] = self.new(cut.inserted)
        return items

    def new(self, size: int) -> list[Any]:
        return [self._fresh(next(self._numbers)) for _ in range(size)]


def edit_in_place(doc: WalDocument, name: str, editor: Editor, edits: Sequence[Cut]) -> None:
    """The same edits by position, one after another."""
    for cut in edits:
        items = doc.values(name)
        at = int(cut.place * len(items))
        editor.removed.update(items[at : at + cut.removed])
        doc.remove_text(name, at, cut.removed)
        for offset, item in enumerate(editor.new(cut.inserted)):
            doc.insert(name, at + offset, item)


def without(items: Sequence[Any], gone: set[Any]) -> list[Any]:
    return [item for item in items if item not in gone]


def only(items: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
    return [item for item in items if item in set(kept)]


def hold_against(
    result: Sequence[Any],
    *,
    wanted: Sequence[Any],
    theirs: Sequence[Any],
    user: Editor,
    others: Editor,
) -> None:
    """The two projections of a result that nothing may be missing from."""
    assert len(set(result)) == len(result)
    assert only(result, wanted) == without(wanted, others.removed)
    assert only(result, theirs) == without(theirs, user.removed)
    assert set(result) <= set(wanted) | set(theirs)


def characters(number: int) -> str:
    # From the CJK ideographs: no two of them ever join to one cluster.
    return chr(0x4E00 + number)


async def pair(initial: Sequence[Any]) -> tuple[WalDocument, WalDocument]:
    """Two documents on one log that show the same list."""
    transport = MemoryTransport()
    alice = await opened(transport, ALICE)
    for item in initial:
        alice.push("list", item)
    await alice.commit()
    return alice, await opened(transport, BOB)


async def arrive(writer: WalDocument, reader: WalDocument) -> None:
    await writer.commit()
    await reader.pull()


async def converged(*docs: WalDocument) -> bool:
    for doc in docs:
        await doc.commit()
    for doc in docs:
        await doc.pull()
    return len({state_of(doc) for doc in docs}) == 1


# ── one stale edit ─────────────────────────────────────────────────────────────────────


def read_by(doc: WalDocument, way: str) -> View | None:
    """Read a document in one of the ways; only a view is handed back as a base."""
    match way:
        case "view":
            return doc.view()
        case "text":
            doc.text("list")
        case "values":
            doc.values("list")
        case _:
            doc.materialize()
    return None


reads = st.sampled_from(["view", "text", "values", "materialize"])
sizes = st.integers(0, 12)


@untimed
@given(reads, sizes, some_cuts, some_cuts)
async def test_a_text_edited_from_a_stale_read_loses_nothing(
    read: str, size: int, remote: list[Cut], local: list[Cut]
) -> None:
    user, others = Editor(characters, 1000), Editor(characters, 2000)
    initial = [characters(number) for number in range(size)]
    alice, bob = await pair(initial)
    base = read_by(alice, read)
    edit_in_place(bob, "list", others, remote)
    theirs = bob.values("list")
    await arrive(bob, alice)
    wanted = user.edit(initial, local)
    alice.set_text("list", "".join(wanted), base=base)
    hold_against(alice.values("list"), wanted=wanted, theirs=theirs, user=user, others=others)
    assert await converged(alice, bob)


@untimed
@given(reads.filter(lambda read: read != "text"), sizes, some_cuts, some_cuts)
async def test_a_list_edited_from_a_stale_read_loses_nothing(
    read: str, size: int, remote: list[Cut], local: list[Cut]
) -> None:
    user, others = Editor(int, 1000), Editor(int, 2000)
    initial = list(range(size))
    alice, bob = await pair(initial)
    base = read_by(alice, read)
    edit_in_place(bob, "list", others, remote)
    theirs = bob.values("list")
    await arrive(bob, alice)
    wanted = user.edit(initial, local)
    alice.set_list("list", wanted, base=base)
    hold_against(alice.values("list"), wanted=wanted, theirs=theirs, user=user, others=others)
    assert await converged(alice, bob)


@untimed
@given(sizes, some_cuts, some_cuts)
async def test_update_of_a_stale_view_loses_nothing(
    size: int, remote: list[Cut], local: list[Cut]
) -> None:
    user, others = Editor(characters, 1000), Editor(characters, 2000)
    initial = [characters(number) for number in range(size)]
    alice, bob = await pair(initial)
    base = alice.view()
    edit_in_place(bob, "list", others, remote)
    theirs = bob.values("list")
    await arrive(bob, alice)
    wanted = user.edit(initial, local)
    alice.update({**base, "list": "".join(wanted)} if initial else {"list": wanted}, base=base)
    hold_against(alice.values("list"), wanted=wanted, theirs=theirs, user=user, others=others)


@untimed
@given(st.text("ab", max_size=8), st.text("ab", max_size=8), some_cuts)
async def test_equal_characters_do_not_confuse_a_stale_edit(
    shown: str, wanted: str, remote: list[Cut]
) -> None:
    others = Editor(characters, 0)
    alice, bob = await pair(shown)
    base = alice.view()
    # Only insertions, so that what the user asked for is all still there to be compared.
    edit_in_place(bob, "list", others, [cut._replace(removed=0) for cut in remote])
    theirs = bob.values("list")
    await arrive(bob, alice)
    alice.set_text("list", wanted, base=base)
    markers = [item for item in theirs if item not in "ab"]
    assert without(alice.values("list"), set(markers)) == list(wanted)
    assert only(alice.values("list"), markers) == markers


# ── chains of stale edits ──────────────────────────────────────────────────────────────

rounds = st.lists(st.tuples(some_cuts, some_cuts, st.booleans(), st.booleans()), max_size=5)


@untimed_few
@given(sizes, rounds, st.booleans())
async def test_a_chain_of_edits_without_reading_again_loses_nothing(
    size: int, steps: list[tuple[list[Cut], list[Cut], bool, bool]], as_text: bool
) -> None:
    make: Callable[[int], Any] = characters if as_text else int
    user, others = Editor(make, 1000), Editor(make, 2000)
    initial = [make(number) for number in range(size)]
    alice, bob = await pair(initial)
    alice.values("list")
    wanted: list[Any] = list(initial)
    theirs: set[Any] = set()
    for remote, local, bob_pulls, alice_commits in steps:
        edit_in_place(bob, "list", others, remote)
        theirs.update(bob.values("list"))
        await arrive(bob, alice)
        wanted = user.edit(wanted, local)
        if as_text:
            alice.set_text("list", "".join(wanted))
        else:
            alice.set_list("list", wanted)
        if alice_commits:
            await alice.commit()
        if bob_pulls:
            await bob.pull()
    result = alice.values("list")
    assert only(result, wanted) == without(wanted, others.removed)
    assert set(result) == (set(wanted) | theirs) - user.removed - others.removed
    assert await converged(alice, bob)


@untimed_few
@given(sizes, st.lists(some_cuts, min_size=1, max_size=4), st.data())
async def test_any_view_that_is_still_held_is_a_good_base(
    size: int, steps: list[list[Cut]], data: st.DataObject
) -> None:
    """The user goes back to an old view, whatever was shown, edited or read in between."""
    user, others = Editor(int, 1000), Editor(int, 2000)
    alice, bob = await pair(list(range(size)))
    views = [alice.view()]
    for remote in steps:
        edit_in_place(bob, "list", others, remote)
        await arrive(bob, alice)
        views.append(alice.view())
    base = data.draw(st.sampled_from(views))
    theirs = bob.values("list")
    shown = list(base.get("list", ()))
    wanted = user.edit(shown, data.draw(some_cuts))
    alice.set_list("list", wanted, base=base)
    hold_against(alice.values("list"), wanted=wanted, theirs=theirs, user=user, others=others)


@untimed
@given(st.text("abc", max_size=6), st.lists(st.text("abc", max_size=6), max_size=4))
async def test_alone_a_text_reads_as_it_was_last_set(first: str, texts: list[str]) -> None:
    doc = await opened(MemoryTransport())
    doc.insert_text("t", 0, first)
    for text in texts:
        doc.set_text("t", text)
        assert doc.field("t") is None
        assert doc.view().text("t") == text


positional = st.tuples(
    st.floats(0, 1, allow_nan=False), st.integers(0, 2), st.text("xyz", max_size=3)
)


@untimed
@given(st.text("abc", max_size=6), st.lists(positional, max_size=4), st.text("abcxyz", max_size=8))
async def test_own_edits_by_position_count_as_shown(
    first: str, edits: list[tuple[float, int, str]], text: str
) -> None:
    """Who inserts by position knows it; setting the text afterwards does not keep both."""
    doc = await opened(MemoryTransport())
    doc.insert_text("t", 0, first)
    doc.text("t")
    for place, removed, inserted in edits:
        at = int(place * len(first))
        doc.remove_text("t", at, removed)
        doc.insert_text("t", at, inserted)
        first = first[:at] + inserted + first[at + removed :]
    doc.set_text("t", text)
    assert doc.text("t") == text


# ── whole documents ────────────────────────────────────────────────────────────────────

names = st.sampled_from(["a", "b", "c", "d"])
registers = st.dictionaries(names, st.integers(0, 3), max_size=4)


@untimed
@given(registers, registers, registers)
async def test_update_keeps_what_others_did_to_the_keys_that_it_leaves_alone(
    shown: dict[str, int], remote: dict[str, int], wanted: dict[str, int]
) -> None:
    transport = MemoryTransport()
    alice = await opened(transport, ALICE)
    alice.update(shown)
    await alice.commit()
    bob = await opened(transport, BOB)
    base = alice.view()
    bob.update(remote)
    await arrive(bob, alice)
    alice.update(wanted, base=base)

    expected: dict[str, int] = {}
    for name in shown.keys() | remote.keys() | wanted.keys():
        ours, old, new = wanted.get(name), shown.get(name), remote.get(name)
        # A key that others changed is not what the user meant to delete.
        kept = new if ours == old or (ours is None and new != old) else ours
        if kept is not None:
            expected[name] = kept
    assert alice.materialize() == expected
    assert await converged(alice, bob)


@untimed
@given(registers, registers, registers)
async def test_update_of_a_map_keeps_concurrent_keys(
    shown: dict[str, int], remote: dict[str, int], wanted: dict[str, int]
) -> None:
    transport = MemoryTransport()
    alice = await opened(transport, ALICE)
    alice.put("m", "z", 9)
    for key, value in shown.items():
        alice.put("m", key, value)
    await alice.commit()
    bob = await opened(transport, BOB)
    base = alice.view()
    bob.update({"m": {**remote, "z": 9}})
    alice.update({"m": {**wanted, "z": 9}}, base=base)
    assert await converged(alice, bob)
    for key in "abcd":
        ours, old, new = wanted.get(key), shown.get(key), remote.get(key)
        if ours == old:
            assert alice.entries("m").get(key) == new
        elif new == old:
            assert alice.entries("m").get(key) == ours
        else:
            # Both changed it: a write wins over a remove, and of two writes one wins.
            assert alice.entries("m").get(key) in {ours, new} - ({None} if ours or new else set())


async def test_update_survives_a_text_that_others_emptied_meanwhile() -> None:
    transport = MemoryTransport()
    alice = await opened(transport, ALICE)
    alice.insert_text("body", 0, "gone soon")
    alice.set_field("title", "old")
    await alice.commit()
    bob = await opened(transport, BOB)
    base = alice.view()
    bob.set_text("body", "")
    await arrive(bob, alice)
    alice.update({**base, "title": "new"}, base=base)
    assert alice.field("title") == "new"
    assert alice.text("body") == ""


async def test_update_survives_a_key_that_others_deleted_meanwhile() -> None:
    transport = MemoryTransport()
    alice = await opened(transport, ALICE)
    alice.update({"gone": 1, "title": "old"})
    await alice.commit()
    bob = await opened(transport, BOB)
    base = alice.view()
    bob.delete_field("gone")
    await arrive(bob, alice)
    alice.update({**base, "title": "new"}, base=base)
    assert alice.materialize() == {"title": "new"}


async def test_a_base_of_another_document_is_refused() -> None:
    alice, bob = await pair("abc")
    with pytest.raises(ValueError, match="another document"):
        alice.set_text("list", "abcd", base=bob.view())
    assert alice.text("list") == "abc"


# ── nothing to do ──────────────────────────────────────────────────────────────────────

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=6,
)
documents = st.dictionaries(st.text("abcd", min_size=1, max_size=2), json_values, max_size=4)


@untimed
@given(documents)
async def test_the_same_value_again_queues_nothing(wanted: dict[str, Any]) -> None:
    doc = await opened(MemoryTransport())
    doc.update(wanted)
    await doc.commit()
    doc.update(wanted)
    assert await doc.commit() is None
    doc.update(doc.materialize())
    assert await doc.commit() is None
    view = doc.view()
    doc.update(view, base=view)
    doc.update(dict(doc.view()))
    assert await doc.commit() is None


@untimed
@given(st.text(max_size=20))
async def test_the_same_text_again_queues_nothing(text: str) -> None:
    doc = await opened(MemoryTransport())
    doc.set_text("t", text)
    await doc.commit()
    doc.set_text("t", text)
    doc.set_text("t", text, base=doc.view())
    doc.set_text("t", doc.text("t"))
    assert await doc.commit() is None


@pytest.mark.parametrize("read", ["view", "text", "values", "materialize"])
async def test_a_list_that_was_not_there_was_shown_empty(read: str) -> None:
    transport = MemoryTransport()
    alice, bob = await opened(transport, ALICE), await opened(transport, BOB)
    base = read_by(alice, read)
    bob.set_text("list", "world")
    await arrive(bob, alice)
    alice.set_text("list", "hello ", base=base)
    assert alice.text("list") == "hello world"


@pytest.mark.parametrize("emptied", ["text", "list", "map", "register"])
async def test_a_document_with_an_emptied_member_can_be_handed_back(emptied: str) -> None:
    doc = await opened(MemoryTransport())
    if emptied == "text":
        doc.insert_text("x", 0, "a")
        doc.remove_text("x", 0, 1)
    elif emptied == "list":
        doc.push("x", {"a": 1})
        doc.remove_at("x", 0)
    elif emptied == "map":
        doc.put("x", "k", 1)
        doc.drop("x", "k")
    else:
        doc.set_field("x", 1)
        doc.delete_field("x")
    await doc.commit()
    view = doc.view()
    doc.update(dict(view), base=view)
    doc.update(dict(doc.view()))
    doc.update(doc.materialize())
    assert await doc.commit() is None


async def test_a_number_in_another_spelling_is_the_same_value() -> None:
    doc = await opened(MemoryTransport())
    doc.update({"n": 1, "list": [1, {"a": 2}]})
    await doc.commit()
    doc.update({"n": 1.0, "list": [1.0, {"a": 2.0}]})
    assert await doc.commit() is None
    doc.update({"n": True, "list": [1, {"a": 2}]})
    assert doc.field("n") is True


# ── few edits ──────────────────────────────────────────────────────────────────────────


MINIMAL: dict[str, tuple[Any, Any, int]] = {
    "one substitution": ("abcde", "abXde", 2),
    "one insertion into 5,000 equal characters": ("a" * 5000, "a" * 5001, 1),
    "an item in the middle": (["a", "b", "c"], ["a", "x", "c"], 2),
    "two distant edits": ("a" * 500 + "b" * 500, "X" + "a" * 500 + "b" * 500 + "Y", 2),
    "a removal": (list(range(50)), [*range(20), *range(21, 50)], 1),
    "a swap": ([1, 2, 3], [1, 3, 2], 2),
    "one object among many": ([{"id": n} for n in range(9)], [{"id": n} for n in range(8)], 1),
}


@pytest.mark.parametrize("name", sorted(MINIMAL))
async def test_few_ops_are_made_of(name: str) -> None:
    before, after, ops = MINIMAL[name]
    doc = await opened(MemoryTransport())
    set_value = doc.set_text if isinstance(before, str) else doc.set_list
    set_value("x", before)
    start = counter_of(doc)
    set_value("x", after)
    assert counter_of(doc) - start == ops


@untimed
@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
async def test_a_text_takes_as_many_ops_as_its_diff(before: str, after: str) -> None:
    doc = await opened(MemoryTransport())
    doc.set_text("x", before)
    start = counter_of(doc)
    doc.set_text("x", after)
    hunks = diff_text(before, after)
    assert counter_of(doc) - start == sum(hunk.removed + len(hunk.inserted) for hunk in hunks)


@pytest.mark.parametrize("caret", [1, 2, 3])
async def test_the_caret_tells_where_an_equal_character_was_typed(caret: int) -> None:
    transport = MemoryTransport()
    alice, bob = await opened(transport, ALICE), await opened(transport, BOB)
    alice.set_text("t", "aaa")
    await arrive(alice, bob)
    base = alice.view()
    # Bob marks the place behind each of the three; Alice's character joins the run it was typed in.
    bob.set_text("t", "a1a2a3")
    await arrive(bob, alice)
    alice.set_text("t", "aaaa", base=base, caret=caret)
    marked = {1: ("aa1a2a3", "aa1a2a3"), 2: ("aa1a2a3", "a1aa2a3"), 3: ("a1aa2a3", "a1a2aa3")}
    assert alice.text("t") in marked[caret]


@untimed
@given(
    st.lists(st.integers(0, 9), unique=True, max_size=6),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), unique_by=lambda item: item[0]),
    some_cuts,
)
async def test_items_with_a_key_keep_their_neighbours_when_their_content_changes(
    shown: list[int], wanted: list[tuple[int, int]], remote: list[Cut]
) -> None:
    alice, bob = await pair([{"id": number, "n": 0} for number in shown])
    base = alice.view()
    for number, cut in enumerate(remote):
        bob.insert("list", int(cut.place * len(shown)), {"id": 100 + number, "n": 0})
    await arrive(bob, alice)
    asked = [{"id": number, "n": n} for number, n in wanted]
    alice.set_list("list", asked, base=base, key="id")
    result = alice.values("list")
    assert [item for item in result if item["id"] < 100] == asked
    assert sorted(item["id"] for item in result if item["id"] >= 100) == [
        100 + number for number in range(len(remote))
    ]


async def test_items_with_a_key_stay_where_they_are_among_what_came_in_between() -> None:
    alice, bob = await pair([{"id": name, "n": 0} for name in "abc"])
    base = alice.view()
    bob.set_list("list", [{"id": name, "n": 0} for name in "aXbYcZ"])
    await arrive(bob, alice)
    alice.set_list("list", [{"id": name, "n": 1} for name in "abc"], base=base, key="id")
    await arrive(alice, bob)
    assert [item["id"] for item in bob.values("list")] == list("aXbYcZ")
    alice.set_list("list", [{"id": name, "n": 2} for name in "acb"], key=lambda item: item["id"])
    shown = [(item["id"], item["n"]) for item in alice.values("list")]
    assert [item for item in shown if item[0] in "abc"] == [("a", 2), ("c", 2), ("b", 2)]
    assert [item for item in shown if item[0] in "XYZ"] == [("X", 0), ("Y", 0), ("Z", 0)]
    assert await converged(alice, bob)


# ── kinds ──────────────────────────────────────────────────────────────────────────────


def make_kind(doc: WalDocument, kind: str) -> None:
    match kind:
        case "register":
            doc.set_field("x", [1])
        case "list":
            doc.push("x", 1)
        case "text":
            doc.insert_text("x", 0, "a")
        case _:
            doc.put("x", "k", 1)


AS_KIND: dict[str, list[Callable[[WalDocument], None]]] = {
    "register": [
        lambda doc: doc.set_field("x", 2),
        lambda doc: doc.delete_field("x"),
        lambda doc: doc.update({"x": 2}),
    ],
    "list": [
        lambda doc: doc.push("x", 2),
        lambda doc: doc.insert("x", 0, 2),
        lambda doc: doc.remove_at("x", 0),
        lambda doc: doc.set_list("x", [2]),
        lambda doc: doc.update({"x": [2]}),
    ],
    "text": [
        lambda doc: doc.insert_text("x", 0, "b"),
        lambda doc: doc.remove_text("x", 0, 1),
        lambda doc: doc.set_text("x", "b"),
    ],
    "map": [lambda doc: doc.put("x", "k", 2), lambda doc: doc.drop("x", "k")],
}
CLASHES = [
    (kind, wanted, number)
    for kind in AS_KIND
    for wanted, edits in AS_KIND.items()
    for number in range(len(edits))
    # A text is a list of characters, and takes whatever a list does; a list of other values
    # takes characters, but cannot be set as a text.
    if kind != wanted and {kind, wanted} != {"list", "text"}
]


@pytest.mark.parametrize(("kind", "wanted", "number"), CLASHES)
async def test_a_name_keeps_its_kind(kind: str, wanted: str, number: int) -> None:
    doc = await opened(MemoryTransport())
    make_kind(doc, kind)
    doc.set_field("other", 1)
    before, clocks = doc.materialize(), counter_of(doc)
    with pytest.raises(KindError) as caught:
        AS_KIND[wanted][number](doc)
    assert caught.value.name == "x"
    assert caught.value.kind == kind
    assert (doc.materialize(), counter_of(doc)) == (before, clocks)


@pytest.mark.parametrize("half", ["\ud83d", "caf\udce9", "\ud83d\ude00"])
@pytest.mark.parametrize(
    "edit",
    [
        lambda doc, half: doc.set_text("x", half),
        lambda doc, half: doc.insert_text("x", 1, half),
        lambda doc, half: doc.splice("x", 0, 1, half),
        lambda doc, half: doc.update({"other": 2, "x": half}),
    ],
    ids=["set", "insert", "splice", "update"],
)
async def test_a_text_stays_one_whatever_it_is_to_read(
    edit: Callable[[WalDocument, str], None], half: str
) -> None:
    doc = await opened(MemoryTransport())
    make_kind(doc, "text")
    doc.set_field("other", 1)
    before, clocks = doc.materialize(), counter_of(doc)
    with pytest.raises(NotJsonError, match="half a character"):
        edit(doc, half)
    assert (doc.materialize(), counter_of(doc)) == (before, clocks)


MIGRATIONS = [
    (kind, wanted)
    for kind in AS_KIND
    for wanted in AS_KIND
    # An emptied list still shows, and would hide the map.
    if (kind, wanted) not in {("list", "map"), ("text", "map")}
]


@pytest.mark.parametrize(("kind", "wanted"), MIGRATIONS)
async def test_a_migrated_name_can_become_anything(kind: str, wanted: str) -> None:
    transport = MemoryTransport()
    alice, bob = await opened(transport, ALICE), await opened(transport, BOB)
    make_kind(alice, kind)
    await arrive(alice, bob)
    alice.migrate("x")
    assert not alice.materialize().get("x")
    make_kind(alice, wanted)
    await arrive(alice, bob)
    fresh = await opened(MemoryTransport())
    make_kind(fresh, wanted)
    assert alice.materialize() == bob.materialize() == fresh.materialize()
    # And it keeps that kind from now on.
    AS_KIND[wanted][0](alice)
    AS_KIND[wanted][0](bob)


async def test_a_list_of_objects_is_no_text() -> None:
    doc = await opened(MemoryTransport())
    doc.push("x", {"a": 1})
    with pytest.raises(KindError):
        doc.set_text("x", "b")
    assert doc.values("x") == [{"a": 1}]


BAD_DOCUMENTS: dict[str, dict[str, Any]] = {
    "not JSON": {"a": 1, "b": {1, 2}},
    "NaN": {"a": 1, "b": float("nan")},
    "an integer beyond 2^53": {"a": 1, "b": [2**53]},
    "a forbidden name": {"a": 1, "__proto__": 2},
    "a forbidden name of a list": {"a": 1, "constructor": [2]},
    "a forbidden member": {"a": 1, "b": {"__proto__": 2}},
    "too large": {"a": 1, "b": "x" * 2_000_000},
    "too large in a list": {"a": 1, "b": [1, "x" * 2_000_000]},
    "another kind": {"a": 1, "register": [1]},
    "a name too large": {"a": 1, "x" * 2_000_000: 1},
}


@pytest.mark.parametrize("name", sorted(BAD_DOCUMENTS))
async def test_a_refused_update_changes_nothing(name: str) -> None:
    doc = await opened(MemoryTransport())
    doc.set_field("register", 0)
    doc.push("list", 1)
    await doc.commit()
    before, clocks = doc.materialize(), counter_of(doc)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is checked below
        doc.update(BAD_DOCUMENTS[name])
    assert type(caught.value).__module__.startswith("walstore.")
    assert (doc.materialize(), counter_of(doc)) == (before, clocks)
    assert await doc.commit() is None


@pytest.mark.parametrize("value", ["text", b"bytes", {"a": 1}, {1, 2}, 5, None, iter([1])])
async def test_a_list_cannot_be_set_to_what_is_none(value: Any) -> None:
    doc = await opened(MemoryTransport())
    with pytest.raises(NotJsonError):
        doc.set_list("x", value)
    assert doc.materialize() == {}


@pytest.mark.parametrize("value", [b"bytes", 5, None, ["a"]])
async def test_a_text_cannot_be_set_to_what_is_none(value: Any) -> None:
    doc = await opened(MemoryTransport())
    with pytest.raises(NotJsonError):
        doc.set_text("x", value)
    assert doc.materialize() == {}


# ── all at once ────────────────────────────────────────────────────────────────────────


def sessions(docs: Sequence[WalDocument]) -> Iterator[tuple[WalDocument, Editor]]:
    for number, doc in enumerate(docs, start=1):
        yield doc, Editor(characters, 1000 * number)


steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["set", "place", "read", "commit", "pull"]), cuts),
    max_size=25,
)


@untimed_few
@given(steps)
async def test_three_stale_editors_converge_and_lose_nothing(
    script: list[tuple[int, str, Cut]],
) -> None:
    transport = MemoryTransport()
    docs = [await opened(transport, who) for who in (ALICE, BOB, CAROL)]
    editors = list(sessions(docs))
    believed: list[list[Any]] = [doc.values("list") for doc in docs]
    written: set[Any] = set()
    for who, action, cut in script:
        doc, editor = editors[who]
        match action:
            case "set":
                believed[who] = editor.edit(believed[who], [cut])
                doc.set_text("list", "".join(believed[who]))
                written.update(believed[who])
            case "place":
                edit_in_place(doc, "list", editor, [cut])
                believed[who] = doc.values("list")
                written.update(believed[who])
            case "read":
                believed[who] = doc.values("list")
            case "commit":
                await doc.commit()
            case _:
                await doc.pull()
    assert await converged(*docs)
    removed = set[Any]().union(*(editor.removed for _, editor in editors))
    assert set(docs[0].values("list")) == written - removed


async def test_a_stranger_changes_nothing_for_those_who_edit() -> None:
    """The laws hold beside elements that are not folded."""
    transport = MemoryTransport()
    alice, bob = await opened(transport, ALICE), await opened(transport, BOB)
    alice.set_text("list", "abc")
    await arrive(alice, bob)
    base = alice.view()
    mallory = await opened(transport, MALLORY, writers={MALLORY.public_key}, on_author_error="skip")
    mallory.insert_text("list", 0, "evil")
    await mallory.commit()
    bob.set_text("list", "ab!c")
    await bob.commit()
    with pytest.raises(Exception, match="may not write"):
        await alice.pull()
    alice.set_text("list", "abc?", base=base)
    assert alice.text("list") == "ab!c?"
