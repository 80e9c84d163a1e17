"""Edits by id: what arrived after the base was rendered survives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.reconcile import (
    InsertAfter,
    RemoveIds,
    as_hunks,
    diff_items,
    diff_text,
    edits_by_id,
)

law = settings(deadline=None)

few_letters = st.text("abc", max_size=12)


class ListedIds:
    """The ids of a base, one by one."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids

    def id_at(self, position: int) -> int:
        assert position >= 0
        return self._ids[position]

    def ids_of(self, start: int, count: int) -> list[int]:
        assert count >= 1
        return list(self._ids[start : start + count])


class Elements:
    """A list with ids and tombstones; the newest insertion after an anchor shows first."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.ids = list(range(1, len(values) + 1))
        self.values = dict(zip(self.ids, values, strict=True))
        self.removed: set[int] = set()

    def insert_after(self, anchor: int | None, values: Sequence[Any]) -> list[int]:
        at = 0 if anchor is None else self.ids.index(anchor) + 1
        first = len(self.ids) + 1
        ids = list(range(first, first + len(values)))
        self.ids[at:at] = ids
        self.values.update(zip(ids, values, strict=True))
        return ids

    def apply(self, edits: Sequence[RemoveIds[list[int]] | InsertAfter[int, Any]]) -> None:
        for edit in edits:
            if isinstance(edit, RemoveIds):
                self.removed.update(edit.ids)
            else:
                self.insert_after(edit.anchor, edit.values)

    def live(self) -> list[int]:
        return [id for id in self.ids if id not in self.removed]

    def text(self) -> str:
        return "".join(self.values[id] for id in self.live())


@law
@given(few_letters, few_letters)
def test_without_other_edits_the_result_is_the_new_value(base: str, new: str) -> None:
    elements = Elements(base)
    elements.apply(edits_by_id(diff_text(base, new), ListedIds(elements.live())))
    assert elements.text() == new


@law
@given(few_letters, few_letters, st.data())
def test_what_arrived_after_the_base_is_kept(base: str, new: str, data: st.DataObject) -> None:
    elements = Elements(base)
    shown = ListedIds(elements.live())
    anchors = data.draw(st.lists(st.sampled_from([None, *elements.ids]), max_size=4))
    arrived = [id for anchor in anchors for id in elements.insert_after(anchor, "XY")]
    gone = set(data.draw(st.lists(st.sampled_from(elements.ids), max_size=4))) if base else set()
    arrived = [id for id in arrived if id not in gone]
    elements.removed |= gone
    elements.apply(edits_by_id(diff_text(base, new), shown))
    live = elements.live()
    assert set(arrived) <= set(live), "nothing that arrived is removed"
    assert not gone & set(live), "nothing that was removed comes back"
    mine = "".join(elements.values[id] for id in elements.ids if elements.values[id] not in "XY")
    assert is_subsequence(new, mine), "the user's text is there, in its order"


def is_subsequence(part: str, whole: str) -> bool:
    letters = iter(whole)
    return all(letter in letters for letter in part)


def test_a_remote_edit_between_render_and_update_is_kept() -> None:
    elements = Elements("hello world")
    shown = ListedIds(elements.live())
    elements.insert_after(elements.ids[4], ", big")
    elements.apply(edits_by_id(diff_text("hello world", "hello there world"), shown))
    assert elements.text() == "hello, big there world"


def test_removals_come_first_then_insertions_each_after_its_left_neighbour() -> None:
    hunks = diff_text("abcdef", "XabcYf!")
    assert edits_by_id(hunks, ListedIds(range(10, 16))) == [
        RemoveIds([13, 14]),
        InsertAfter(None, "X"),
        InsertAfter(12, "Y"),
        InsertAfter(15, "!"),
    ]


def test_the_same_value_gives_no_edit() -> None:
    assert edits_by_id(diff_text("same", "same"), ListedIds(range(4))) == []


pairs = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from("ab")).map(list),
    max_size=7,
    unique_by=lambda item: item[0],
)


@law
@given(pairs, pairs)
def test_replaced_items_stand_where_the_old_ones_stood(old: list[Any], new: list[Any]) -> None:
    elements = Elements(old)
    edits = as_hunks(diff_items(old, new, key=lambda item: item[0]))
    elements.apply(edits_by_id(edits, ListedIds(elements.live())))
    assert [elements.values[id] for id in elements.live()] == new
