"""Elements of a list are found again in another fold of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from walstore.crdt import WalCrdt
from walstore.crdt.writer import Writer
from walstore.document.bases import Edit
from walstore.document.realignment import Key, edits_between, keys_of

keys = st.lists(st.integers(0, 30), unique=True).map(
    lambda numbers: [(f"{number}@a", "x") for number in numbers]
)


def applied(before: list[Key], after: list[Key], edits: list[Edit]) -> list[Key]:
    """What the edits make of a list, if what is inserted is taken from the other one."""
    result: list[Key] = []
    kept = 0
    for position, removed, inserted in edits:
        result += before[kept:position]
        result += after[len(result) : len(result) + inserted]
        kept = position + removed
    return result + before[kept:]


@given(keys, keys)
def test_the_edits_lead_from_one_list_to_the_other(before: list[Key], after: list[Key]) -> None:
    edits = edits_between(before, after)
    assert applied(before, after, edits) == after
    assert edits == sorted(edits)


@given(keys, st.data())
def test_what_stays_in_its_order_is_never_touched(before: list[Key], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(before))) if before else set()
    after = [key for key in before if key not in gone]
    edits = edits_between(before, after)
    assert sum([removed for _, removed, _ in edits]) == len(gone)
    assert sum([inserted for _, _, inserted in edits]) == 0
    assert edits_between(before, before) == []


def test_equal_values_are_told_apart_by_their_ids_and_equal_ids_by_their_values() -> None:
    before: list[Key] = [("1@a", "x"), ("2@a", "x"), ("3@a", "x")]
    assert edits_between(before, before[1:]) == [(0, 1, 0)]
    assert edits_between(before, [("1@a", "y"), *before[1:]]) == [(0, 1, 1)]


def test_any_value_has_a_key_of_its_own() -> None:
    crdt = WalCrdt()
    values: list[Any] = ["1", 1, "", None, {"a": [1]}, [1], True, " 1", "😀", "\ud800"]
    Writer(crdt, "a").insert("items", 0, values)
    names = [name for _, name in keys_of(crdt, "items")]
    assert len(set(names)) == len(values)
