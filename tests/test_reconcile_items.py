"""The laws of `diff_items`: equality of canonical text, minimal, identity by key."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.canon import canonical_text
from walstore.errors import NotJsonError
from walstore.reconcile import (
    Hunk,
    ItemEdit,
    Replaced,
    apply_to_items,
    as_hunks,
    diff_items,
)

law = settings(deadline=None)

# Values that Python and JSON disagree about, and their likes.
scalars = [None, True, False, 0, -0.0, 1, 1.0, 2**53 - 1, 2.0**53, 1e300, "", "1", "null", "a", "é"]
surrogates = ["😀", "\ud83d\ude00", "\ud83d"]
containers = [[], [1], (1.0,), [True], {}, {"a": 1}, {"a": 1.0}, {"a": True}]
tricky = st.sampled_from([*scalars, *surrogates, *containers])
tricky_lists = st.lists(tricky, max_size=12)
keyed = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 9), "text": st.sampled_from("abc")}), max_size=10
)
uniquely_keyed = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 9), "text": st.sampled_from("abc")}),
    max_size=10,
    unique_by=lambda item: item["id"],
)


def texts(items: Any) -> list[str]:
    return [canonical_text(item) for item in items]


def lcs_length(old: list[Any], new: list[Any]) -> int:
    row = [0] * (len(new) + 1)
    for left in old:
        above = row
        row = [0]
        for at, right in enumerate(new):
            row.append(above[at] + 1 if left == right else max(above[at + 1], row[at]))
    return row[-1]


def size(edits: list[Any]) -> int:
    return sum(hunk.removed + len(hunk.inserted) for hunk in as_hunks(edits))


def check_laws(old: list[Any], new: list[Any], edits: list[Any]) -> None:
    assert texts(apply_to_items(old, edits)) == texts(new)
    end, after_hunk = 0, False
    for edit in edits:
        is_hunk = isinstance(edit, Hunk)
        assert edit.start > end or (edit.start == end and not (is_hunk and after_hunk))
        assert not is_hunk or edit.removed or edit.inserted
        end, after_hunk = edit.start + (edit.removed if is_hunk else 1), is_hunk


@law
@given(tricky_lists, tricky_lists)
def test_the_hunks_lead_from_old_to_new_and_are_minimal(old: list[Any], new: list[Any]) -> None:
    hunks = diff_items(old, new)
    assert texts(apply_to_items(old, hunks)) == texts(new)
    assert size(hunks) == len(old) + len(new) - 2 * lcs_length(texts(old), texts(new))
    assert as_hunks(hunks) == hunks, "hunks never touch"


@law
@given(tricky, tricky)
def test_items_are_equal_exactly_if_their_canonical_texts_are(left: Any, right: Any) -> None:
    assert (diff_items([left], [right]) == []) == (canonical_text(left) == canonical_text(right))


@law
@given(tricky_lists)
def test_equal_lists_give_no_edit(items: list[Any]) -> None:
    assert diff_items(items, list(items)) == []
    assert diff_items(items, list(items), key="id") == []


@law
@given(tricky_lists, tricky_lists)
def test_what_one_way_removes_the_other_inserts(old: list[Any], new: list[Any]) -> None:
    there, back = diff_items(old, new), diff_items(new, old)
    assert sum(h.removed for h in there) == sum(len(h.inserted) for h in back)


def test_one_changed_item_is_one_removed_and_one_inserted() -> None:
    assert diff_items(["a", "b", "c"], ["a", "x", "c"]) == [Hunk(1, 1, ["x"])]


def test_a_move_is_a_removal_and_an_insertion() -> None:
    assert diff_items([1, 2, 3, 4], [4, 1, 2, 3]) == [Hunk(0, 0, [4]), Hunk(3, 1, [])]


@pytest.mark.parametrize(
    "item", [float("nan"), float("inf"), 10**400, b"bytes", {1: 2}, {"a": {1}}, object()]
)
def test_what_is_not_json_is_refused(item: object) -> None:
    with pytest.raises(NotJsonError):
        diff_items([], [item])
    with pytest.raises(NotJsonError):
        diff_items(["a"], ["a"], key=lambda _: item)


@law
@given(uniquely_keyed, uniquely_keyed)
def test_with_a_key_every_item_that_can_stay_stays(
    old: list[dict[str, Any]], new: list[dict[str, Any]]
) -> None:
    edits = diff_items(old, new, key="id")
    check_laws(old, new, edits)
    hunks = [edit for edit in edits if isinstance(edit, Hunk)]
    kept = lcs_length([item["id"] for item in old], [item["id"] for item in new])
    assert size(hunks) == len(old) + len(new) - 2 * kept


@law
@given(uniquely_keyed, uniquely_keyed)
def test_a_replaced_item_has_the_key_of_the_old_one_and_other_content(
    old: list[dict[str, Any]], new: list[dict[str, Any]]
) -> None:
    for edit in diff_items(old, new, key="id"):
        if isinstance(edit, Replaced):
            assert edit.item["id"] == old[edit.start]["id"]
            assert edit.item["text"] != old[edit.start]["text"]


@law
@given(keyed, keyed)
def test_repeated_keys_still_lead_from_old_to_new(
    old: list[dict[str, Any]], new: list[dict[str, Any]]
) -> None:
    check_laws(old, new, diff_items(old, new, key="id"))


def test_a_key_that_a_side_has_twice_identifies_nothing() -> None:
    old = [{"id": 1, "t": "a"}]
    new = [{"id": 1, "t": "b"}, {"id": 1, "t": "a"}]
    assert diff_items(old, new, key="id") == [Hunk(0, 0, new[:1])]


def test_an_edited_item_keeps_its_identity_by_member_or_function() -> None:
    old = [{"id": 1, "t": "a"}, {"id": 2, "t": "b"}, {"id": 3, "t": "c"}]
    new = [{"id": 0, "t": "z"}, {"id": 1.0, "t": "A"}, {"id": 3, "t": "C"}]
    expected: list[ItemEdit[dict[str, Any]]] = [
        Hunk(0, 0, [new[0]]),
        Replaced(0, new[1]),
        Hunk(1, 1, []),
        Replaced(2, new[2]),
    ]
    assert diff_items(old, new, key="id") == expected
    assert diff_items(old, new, key=lambda item: item["id"]) == expected
    assert apply_to_items(old, expected) == new
    assert as_hunks(expected) == [Hunk(0, 3, new)]


def test_items_without_a_key_are_compared_by_content() -> None:
    old = ["a", {"id": 1, "t": "a"}, {"t": "x"}, {"id": None, "t": "y"}]
    new = ["b", {"id": 1, "t": "b"}, {"t": "x"}, {"id": None, "t": "z"}]
    expected = [Hunk(0, 1, ["b"]), Replaced(1, new[1]), Hunk(3, 1, [new[3]])]
    assert diff_items(old, new, key="id") == expected


def test_keys_are_never_taken_for_contents() -> None:
    assert size(diff_items([{"id": "a"}], ["a"], key="id")) == 2
    assert size(diff_items(["a"], ["b"], key=lambda item: item)) == 2
    item = {"id": "a"}
    assert diff_items(["a", item], [item], key="id") == [Hunk(0, 1, [])]


@settings(law, max_examples=8)
@given(seed=st.integers(0, 2**32), values=st.sampled_from([2, 300, 10**9]))
def test_lists_too_large_to_compare_keep_the_laws(seed: int, values: int) -> None:
    chance = random.Random(seed)
    old = [chance.randrange(values) for _ in range(20_000)]
    new = list(old)
    for at in chance.sample(range(len(new)), 100):
        new[at] = -1
    hunks = diff_items(old, new)
    assert apply_to_items(old, hunks) == new
    assert size(hunks) == 200


def test_items_that_are_all_different_are_reordered_minimally_however_many() -> None:
    old = list(range(20_000))
    new = old[10_000:] + old[:9_000]
    hunks = diff_items(old, new)
    assert apply_to_items(old, hunks) == new
    assert size(hunks) == 10_000 + 9_000
