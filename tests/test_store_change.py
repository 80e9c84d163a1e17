"""Changes: a delta turns the value before into the value after, alone or together with others."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.board import Board, paths
from tests.replaying import replay, shown
from walstore.crdt import Change as Folded
from walstore.crdt import ListChanged, Run, WalCrdt, Writer
from walstore.crdt.crdt import BUILD_RUNS_MIN
from walstore.document.changed import Changed
from walstore.document.view import frozen
from walstore.store.change import (
    ABSENT,
    INSERTED_MAX,
    SPLICES_MAX,
    Assigned,
    Change,
    CrdtState,
    Deleted,
    Delta,
    Elements,
    Splice,
    Splices,
    apply_delta,
    changes_of,
    coalesce,
    succeed,
)

NAMES = ("body", "todo", "prefs")
VALUES: tuple[Any, ...] = ("a", "é", "😀", "two", "\ud83d", 1, None, {"a": [1, {"b": 2}]}, ["x"])


class Edit(NamedTuple):
    """One edit: what, where, and with what, for whatever document it comes to."""

    what: str
    name: str
    position: int
    size: int
    value: Any


edits = st.builds(
    Edit,
    st.sampled_from(("type", "type", "insert", "remove", "set", "delete", "put", "drop")),
    st.sampled_from(NAMES),
    st.integers(0, 12),
    st.integers(1, 4),
    st.sampled_from(VALUES),
)


def make(writer: Writer, edit: Edit) -> None:
    """Make an edit; nothing keeps a name to one kind, as nothing keeps replicas from it."""
    key = "abc"[edit.position % 3]
    match edit.what:
        case "type":
            writer.insert_text(edit.name, edit.position, "xyzw"[: edit.size])
        case "insert":
            writer.insert(edit.name, edit.position, [edit.value])
        case "remove":
            writer.remove(edit.name, edit.position, edit.size)
        case "set":
            writer.set(edit.name, edit.value)
        case "delete":
            writer.delete(edit.name)
        case "put":
            writer.put(edit.name, key, edit.value)
        case "drop":
            writer.drop(edit.name, key)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Run]]:
    """What two replicas wrote, knowing now more and now less of one another, in a causal order."""
    log: list[list[Run]] = []
    replicas = [
        (Writer(crdt, name), crdt, [0]) for name, crdt in (("a", WalCrdt()), ("b", WalCrdt()))
    ]
    for who, is_synced, made in draw(
        st.lists(st.tuples(st.booleans(), st.booleans(), st.lists(edits, max_size=5)), max_size=12)
    ):
        writer, crdt, known = replicas[who]
        if is_synced:
            for runs in log[known[0] :]:
                crdt.fold_runs(runs)
            known[0] = len(log)
        for edit in made:
            make(writer, edit)
        log.append(writer.take())
    return log


def folds(log: list[list[Run]], sizes: list[int]) -> list[tuple[list[Change], dict[str, Any]]]:
    """Fold a log, some entries at a time: what each fold changed, and what was shown after it."""
    crdt = WalCrdt()
    state = CrdtState(lambda: crdt)
    made: list[tuple[list[Change], dict[str, Any]]] = []
    start = version = 0
    while start < len(log):
        end = start + sizes[len(made) % len(sizes)]
        folded: list[Folded] = []
        for runs in log[start:end]:
            crdt.fold_runs(runs, folded)
        version += len(folded)
        changed = Changed("remote", "key", end, folded)
        made.append((changes_of(changed, version=version, read=state), shown(state)))
        start = end
    return made


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(histories(), sizes)
def test_replaying_the_deltas_gives_what_is_shown_at_every_path(
    log: list[list[Run]], sizes: list[int]
) -> None:
    values: dict[str, Any] = {}
    for changes, after in folds(log, sizes):
        for change in changes:
            replay(values, change)
        assert values == after


@given(histories(), sizes)
def test_a_change_says_what_is_there_after_it(log: list[list[Run]], sizes: list[int]) -> None:
    for changes, after in folds(log, sizes):
        for change in changes:
            value = after.get(change.path, ABSENT)
            assert (change.delta == Deleted()) == (value is ABSENT)
            if change.kind in ("text", "list"):
                assert (change.kind == "text") == isinstance(value, str)


@given(histories(), sizes)
def test_coalesced_changes_of_a_path_lead_to_the_same_value(
    log: list[list[Run]], sizes: list[int]
) -> None:
    values: dict[str, Any] = {}
    waiting: dict[str, tuple[Any, Change]] = {}
    for changes, _ in folds(log, sizes):
        for change in changes:
            before, left = waiting.get(change.path, (values.get(change.path, ABSENT), None))
            # A key's value before is no business of a name that replaced it meanwhile.
            is_new = left is None or ("/" in change.path and change.path not in values)
            merged = change if is_new or left is None else coalesce(left, change)
            assert merged is not None
            start = values.get(change.path, ABSENT) if is_new else before
            waiting[change.path] = start, merged
            replay(values, change)
            assert apply_delta(start, merged.delta) == values.get(change.path, ABSENT)


INSERTED: list[Elements] = ["", "a", "bc", "😀", "xyz", (1,), ("a", None), ("two",)]


@st.composite
def spliced(draw: st.DrawFn) -> tuple[Elements, list[Splice]]:
    """A value, and splices each of which fits what the ones before it leave."""
    firsts: list[Elements] = ["", "abcdefgh", (1, 2, "three", 4), ("a", 1)]
    first = draw(st.sampled_from(firsts))
    length = len(first)
    made: list[Splice] = []
    for inserted in draw(st.lists(st.sampled_from(INSERTED), max_size=10)):
        position = draw(st.integers(0, length))
        removed = draw(st.integers(0, min(3, length - position)))
        made.append(Splice(position, removed, inserted))
        length += len(inserted) - removed
    return first, made


def naive(value: Elements, splices: list[Splice]) -> Elements:
    """The value after splices, made one element at a time."""
    result = list(value)
    for position, removed, inserted in splices:
        result[position : position + removed] = list(inserted)
    is_text = all(isinstance(each, str) and len(each) == 1 for each in result)
    return "".join(result) if is_text else tuple(result)


def change(delta: Delta, **fields: Any) -> Change:
    """A change that is about its delta."""
    return Change("body", "text", delta, "local", "ada", 1, None)._replace(**fields)


def merged(*deltas: Delta) -> Delta:
    """The delta of successive ones."""
    result = change(deltas[0])
    for delta in deltas[1:]:
        following = coalesce(result, change(delta))
        assert following is not None
        result = following
    return result.delta


@given(spliced())
def test_splices_do_what_they_say(case: tuple[Elements, list[Splice]]) -> None:
    first, splices = case
    assert apply_delta(first, Splices(tuple(splices))) == naive(first, splices)


@given(spliced(), st.integers(0, 10))
def test_coalesced_splices_have_the_same_effect_ascend_and_do_not_touch(
    case: tuple[Elements, list[Splice]], cut: int
) -> None:
    first, splices = case
    delta = merged(Splices(()), Splices(tuple(splices[:cut])), Splices(tuple(splices[cut:])))
    assert isinstance(delta, Splices)
    assert apply_delta(first, delta) == naive(first, splices)
    end = -1
    for position, removed, inserted in delta.splices:
        assert position > end
        assert removed or inserted
        end = position + len(inserted)


@given(spliced())
def test_a_whole_value_takes_splices_in(case: tuple[Elements, list[Splice]]) -> None:
    first, splices = case
    delta = merged(Assigned(first), Splices(tuple(splices)))
    assert delta == Assigned(naive(first, splices))


def test_typing_on_becomes_one_splice_and_taking_it_back_none() -> None:
    typing = [Splices((Splice(3 + at, 0, letter),)) for at, letter in enumerate("hello")]
    assert merged(*typing) == Splices((Splice(3, 0, "hello"),))
    backspaces = [Splices((Splice(7 - at, 1, ""),)) for at in range(5)]
    assert merged(*typing, *backspaces) == Splices(())


def test_what_comes_last_counts_whatever_was_before() -> None:
    for left in (Assigned(1), Deleted(), Splices((Splice(0, 0, "a"),))):
        assert merged(left, Assigned({"a": 1})) == Assigned({"a": 1})
        assert merged(left, Deleted()) == Deleted()
    assert merged(Deleted(), Splices((Splice(0, 0, "a"),))) == Assigned("a")


def test_a_delta_of_too_many_places_is_not_kept() -> None:
    # From the end on, so that no place moves another one.
    places = [Splice(2 * at, 0, "x") for at in reversed(range(SPLICES_MAX + 1))]
    assert coalesce(change(Splices(tuple(places[1:]))), change(Splices(()))) is not None
    assert coalesce(change(Splices(tuple(places[1:]))), change(Splices((places[0],)))) is None


def test_a_delta_of_too_many_elements_is_not_kept() -> None:
    half = Splices((Splice(0, 0, "x" * (INSERTED_MAX // 2)),))
    assert coalesce(change(half), change(half)) is not None
    assert coalesce(change(merged(half, half)), change(Splices((Splice(0, 0, "x"),)))) is None
    long = Assigned("x" * INSERTED_MAX)
    assert coalesce(change(long), change(Splices((Splice(0, 0, "x"),)))) is None
    assert coalesce(change(long), change(Deleted())) is not None


def test_coalescing_a_huge_fold_gives_up_early() -> None:
    places = tuple([Splice(2 * at, 0, "x") for at in reversed(range(200_000))])
    assert coalesce(change(Splices(())), change(Splices(places))) is None


@pytest.mark.parametrize(
    ("left", "right", "origin", "author"),
    [
        ("local", "local", "local", "right"),
        ("remote", "remote", "remote", "right"),
        ("remote", "local", "remote", "left"),
        ("local", "remote", "remote", "right"),
        ("local", "undo", "undo", "right"),
    ],
)
def test_what_others_did_is_never_taken_for_ones_own(
    left: str, right: str, origin: str, author: str
) -> None:
    one = change(Assigned(1), origin=left, author="left", version=4, ts=1)
    other = change(Assigned(2), origin=right, author="right", version=7, ts=2)
    both = succeed(one, other, Assigned(2))
    assert (both.origin, both.author, both.version) == (origin, author, 7)
    assert both.ts == (1 if author == "left" else 2)


# ── from folds ─────────────────────────────────────────────────────────────────────────


def test_all_edits_of_a_text_in_one_fold_are_one_change_in_their_order() -> None:
    board = Board()
    changes = board.edit(
        lambda writer: writer.insert_text("body", 0, "held"),
        lambda writer: writer.set("title", "x"),
        lambda writer: writer.insert_text("body", 2, "llo wor"),
    )
    assert paths(changes) == ["body", "title"]
    delta = changes[0].delta
    assert isinstance(delta, Splices)
    assert [splice[:2] for splice in delta.splices] == [(0, 0), (2, 0)]
    assert apply_delta(ABSENT, delta) == "hello world"


def test_a_register_written_twice_in_one_fold_is_one_change() -> None:
    board = Board()
    changes = board.edit(lambda w: w.set("title", 1), lambda w: w.set("title", 2))
    assert [each.delta for each in changes] == [Assigned(2)]
    changes = board.edit(lambda w: w.put("prefs", "a", 1), lambda w: w.drop("prefs", "a"))
    assert [(each.path, each.kind, each.delta) for each in changes] == [
        ("prefs/a", "map", Deleted())
    ]


def test_a_change_tells_where_it_comes_from() -> None:
    crdt = WalCrdt()
    Writer(crdt, "a").insert_text("body", 0, "a")
    changed = Changed("remote", "key", 12, [ListChanged("body", 0, 0, "a")])
    (made,) = changes_of(changed, version=5, read=CrdtState(lambda: crdt))
    assert made == Change("body", "text", Splices((Splice(0, 0, "a"),)), "remote", "key", 5, 12)


def test_what_a_register_hides_is_told_when_the_register_goes() -> None:
    board = Board()
    board.type("body", 0, "text")
    assert [each.delta for each in board.set("body", 1)] == [Assigned(1)]
    assert board.type("body", 0, "more ") == []
    (change,) = board.edit(lambda writer: writer.delete("body"))
    assert (change.kind, change.delta) == ("text", Assigned("more text"))


def test_a_map_that_a_register_hid_is_told_key_by_key() -> None:
    board = Board()
    board.put("prefs", "a", 1)
    board.set("prefs", 0)
    assert board.put("prefs", "b", 2) == []
    changes = board.edit(lambda writer: writer.delete("prefs"))
    assert [(each.path, each.delta) for each in changes] == [
        ("prefs", Deleted()),
        ("prefs/a", Assigned(1)),
        ("prefs/b", Assigned(2)),
    ]


def test_a_text_laid_out_at_once_is_told_as_text() -> None:
    source = WalCrdt()
    writer = Writer(source, "a")
    for _ in range(BUILD_RUNS_MIN * 2):
        writer.insert_text("body", 0, "a")
        writer.insert_text("body", 99, "b")
    runs = writer.take()
    assert len(runs) >= BUILD_RUNS_MIN
    board = Board()
    folded: list[Folded] = []
    board.crdt.fold_runs(runs, folded)
    changed = Changed("remote", "a", 1, folded)
    (change,) = changes_of(changed, version=1, read=board.state)
    assert change.kind == "text"
    assert apply_delta(ABSENT, change.delta) == source.text("body")


def test_what_a_change_holds_cannot_be_changed() -> None:
    board = Board()
    (register,) = board.set("title", {"a": [1]})
    (items,) = board.edit(lambda writer: writer.insert("todo", 0, [{"done": False}, [1]]))
    assert isinstance(register.delta, Assigned)
    assert isinstance(register.delta.value, MappingProxyType)
    assert register.delta.value["a"] == (1,)
    assert items.delta == Splices((Splice(0, 0, (frozen({"done": False}), (1,))),))
    attempts: list[Callable[[], None]] = [
        lambda: setattr(register, "path", "x"),
        lambda: setattr(register.delta, "value", 2),
        lambda: setattr(items.delta, "splices", ()),
    ]
    for attempt in attempts:
        with pytest.raises(AttributeError):
            attempt()


def test_absence_is_told_apart_from_none_even_after_a_copy() -> None:
    board = Board()
    (change,) = board.set("title", None)
    assert apply_delta(ABSENT, change.delta) is None
    assert board.state.register("nothing") is ABSENT
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT
    assert repr(ABSENT) == "ABSENT"


def test_half_a_character_makes_a_text_a_list_in_a_change_as_in_a_view() -> None:
    crdt = WalCrdt()
    Writer(crdt, "a").insert_text("body", 0, "a\ud83d")
    changed = Changed("local", "a", None, [ListChanged("body", 0, 0, "a\ud83d")])
    state = CrdtState(lambda: crdt)
    (change,) = changes_of(changed, version=1, read=state)
    assert change.kind == "list"
    assert apply_delta(ABSENT, change.delta) == state.list_value("body") == ("a", "\ud83d")
