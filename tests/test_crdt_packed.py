"""Documents out of packed states: shown at once, complete when it matters, never half taken in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.oracle import AnyOp, canon
from tests.strategies import histories
from walstore.crdt import WalCrdt, Writer, pack_ops, to_runs, unpack_ops
from walstore.crdt.packed_sequence import PackedSequence
from walstore.crdt.runs import is_character
from walstore.errors import MalformedError


def written() -> WalCrdt:
    crdt = WalCrdt()
    writer = Writer(crdt, "ada")
    writer.insert_text("body", 0, "Hello wide world")
    writer.remove("body", 5, 5)
    writer.insert("todo", 0, [1, {"a": [2]}])
    writer.set("title", "T")
    return crdt


def lazily(packed: object) -> WalCrdt:
    crdt = WalCrdt()
    crdt.import_packed(packed, lazy=True)
    return crdt


def is_packed(crdt: WalCrdt, name: str) -> bool:
    return isinstance(crdt.lists[name], PackedSequence)


def test_what_a_list_shows_needs_no_structure() -> None:
    crdt = lazily(written().export_packed())
    assert crdt.text("body") == "Hello world"
    assert crdt.list_values("todo") == [1, {"a": [2]}]
    assert (crdt.list_length("body"), crdt.is_text("body"), crdt.is_text("todo")) == (
        11,
        True,
        False,
    )
    assert crdt.materialize() == written().materialize()
    assert is_packed(crdt, "body")
    assert is_packed(crdt, "todo")


def test_an_edit_unpacks_the_list_that_it_touches_and_no_other() -> None:
    crdt = lazily(written().export_packed())
    Writer(crdt, "bo").insert_text("body", 11, "!")
    assert crdt.text("body") == "Hello world!"
    assert not is_packed(crdt, "body")
    assert is_packed(crdt, "todo")
    crdt.check()


def test_a_writer_stamps_above_removes_that_left_no_trace_in_the_state() -> None:
    source = written()
    crdt = lazily(source.export_packed())
    assert crdt.counter == source.counter
    writer = Writer(crdt, "ada")
    writer.insert_text("other", 0, "x")
    assert writer.take()[0].counter == source.counter + 1  # type: ignore[union-attr]


@given(histories())
def test_a_lazily_read_state_is_the_eagerly_read_one(ops: list[AnyOp]) -> None:
    source = WalCrdt()
    source.fold(ops)
    packed = source.export_packed()
    eager, lazy = WalCrdt(), lazily(packed)
    eager.import_packed(packed)
    assert canon(lazy.export_packed()) == canon(packed)
    assert lazy.clone().canonical_state() == eager.canonical_state() == source.canonical_state()
    assert lazy.counter == eager.counter == source.counter
    lazy.fold(ops)
    assert lazy.canonical_state() == source.canonical_state()
    lazy.check()


def test_without_removed_values_all_that_shows_is_the_same_and_edits_go_on() -> None:
    source = written()
    shallow = lazily(source.export_packed(keep_removed=False))
    assert shallow.materialize() == source.materialize()
    assert shallow.list_ids("body") == source.list_ids("body")
    assert "wide" not in str(shallow.export_packed())
    for crdt in (source, shallow):
        Writer(crdt, "bo").insert_text("body", 5, ",")
    assert shallow.text("body") == source.text("body") == "Hello, world"
    shallow.check()


def damaged(place: int, value: Any) -> list[Any]:
    packed = written().export_packed()
    packed[3][0][place] = value
    return packed


def test_a_malformed_structure_is_refused_before_anything_has_changed() -> None:
    crdt = written()
    before = crdt.canonical_state()
    with pytest.raises(MalformedError):
        crdt.import_packed(damaged(5, "AAAA"))
    assert crdt.canonical_state() == before


def test_a_malformed_structure_read_lazily_raises_when_it_is_needed() -> None:
    crdt = lazily(damaged(5, "AAAA"))
    assert crdt.text("body") == "Hello world"
    for _ in range(2):
        with pytest.raises(MalformedError):
            Writer(crdt, "bo").insert_text("body", 0, "x")
    assert crdt.text("body") == "Hello world"
    Writer(crdt, "bo").set("title", "still works")


def test_a_counter_below_a_clock_of_the_state_is_refused() -> None:
    packed = written().export_packed()
    packed[5] = 3
    with pytest.raises(MalformedError):
        WalCrdt().import_packed(packed)
    # The clocks of lists are seen when they are unpacked; nobody can have edited them before.
    packed[2] = []
    crdt = lazily(packed)
    with pytest.raises(MalformedError):
        crdt.list_ids("body")


def test_a_write_that_was_dropped_does_not_come_back_with_a_state() -> None:
    packed, plain = WalCrdt(), WalCrdt()
    packed.import_packed([1, ["r"], [], [], [["m", ["k", [0, 5, "v"], [0, 7]]]], 7])
    entry = {"puts": {"r": [5, "v"]}, "seen": {"r": 7}}
    plain.import_state({"v": 1, "regs": {}, "lists": {}, "x": {"maps": {"m": {"k": entry}}}})
    assert packed.map_items("m") == plain.map_items("m") == {}
    assert packed.canonical_state() == plain.canonical_state()


@given(histories())
def test_whether_a_list_is_text_does_not_depend_on_how_it_was_loaded(ops: list[AnyOp]) -> None:
    folded, plain, eager, unpacked = WalCrdt(), WalCrdt(), WalCrdt(), WalCrdt()
    folded.fold(ops)
    plain.import_state(folded.export_state())
    eager.import_packed(folded.export_packed())
    unpacked.fold_runs(unpack_ops(pack_ops(to_runs(ops))))
    for name in folded.list_names():
        is_text = all(map(is_character, folded.list_values(name)))
        for crdt in (folded, plain, eager, lazily(folded.export_packed()), unpacked):
            assert crdt.is_text(name) is is_text


@pytest.mark.parametrize("values", [["a", "b"], ["a", 1, "b"], ["a", "\ud83d", "\ude00"]])
def test_characters_in_an_array_are_as_much_text_as_others(values: list[Any]) -> None:
    crdt = WalCrdt()
    crdt.fold_runs(unpack_ops([["r"], [0, "body", 0, 1, 0, 0, values]]))
    assert crdt.is_text("body") is lazily(crdt.export_packed()).is_text("body")
    for position, value in reversed(list(enumerate(values))):
        if not is_character(value):
            Writer(crdt, "w").remove("body", position)
    assert crdt.is_text("body")
    assert lazily(crdt.export_packed()).is_text("body")
