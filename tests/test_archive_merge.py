"""A base and its diffs, merged: as if the changes had been made in a dictionary."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.archive.collapse import change_of, collapsed
from walstore.archive.merge import OrderError, merged
from walstore.archive.rows import Action, Key, Row, RowChange, key_of, sort_key

FIELDS = ("space", "id")
TRUNCATE = RowChange(Action.TRUNCATE, ())

spaces = st.sampled_from(["", "a", "a b", "b", "é", "\U0001f600"])
ids = st.one_of(st.integers(-3, 12), st.sampled_from(["1", "c", "b c"]), st.none())
rows = st.builds(
    lambda space, id, value: {"space": space, "id": id, "value": value}, spaces, ids, st.integers()
)


class Table:
    """The plain way: every row in a dictionary, every change at once."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def apply(self, change: RowChange) -> None:
        if change.action is Action.TRUNCATE:
            self.rows.clear()
            return
        if change.action is Action.UPDATE and change.old is not None:
            self.rows.pop(repr(key_of(change.old, FIELDS)), None)
        if change.new is None:
            self.rows.pop(repr(change.key), None)
        else:
            self.rows[repr(change.key)] = change.new

    def find(self, key: Key) -> Row | None:
        return self.rows.get(repr(key))

    def sorted(self) -> list[Row]:
        return sorted(self.rows.values(), key=lambda row: sort_key(key_of(row, FIELDS)))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Row], list[list[RowChange]], list[Row]]:
    """A base, windows of changes as they happened, and the rows in the end."""
    table = Table()
    for row in draw(st.lists(rows)):
        table.apply(RowChange(Action.INSERT, key_of(row, FIELDS), None, row))
    base = table.sorted()
    windows = []
    for _ in range(draw(st.integers(0, 4))):
        window = []
        for _ in range(draw(st.integers(0, 12))):
            change = draw(changes_of(table))
            table.apply(change)
            window.append(change)
        windows.append(window)
    return base, windows, table.sorted()


@st.composite
def changes_of(draw: st.DrawFn, table: Table) -> RowChange:
    kind = draw(st.sampled_from(["put", "put", "put", "move", "delete", "truncate"]))
    if kind == "truncate":
        return TRUNCATE
    row = draw(rows)
    key = key_of(row, FIELDS)
    if kind == "delete":
        return RowChange(Action.DELETE, key, table.find(key))
    if kind == "move" and table.rows and table.find(key) is None:
        moved = draw(st.sampled_from(table.sorted()))
        return RowChange(Action.UPDATE, key, moved, row)
    return change_of(key, table.find(key), row)


@given(histories())
def test_a_base_and_its_diffs_are_the_table(
    history: tuple[list[Row], list[list[RowChange]], list[Row]],
) -> None:
    base, windows, expected = history
    diffs = [collapsed(window, FIELDS) for window in windows]
    assert list(merged(base, diffs, FIELDS)) == expected


@given(histories())
def test_replaying_diffs_that_the_base_has_already_changes_nothing(
    history: tuple[list[Row], list[list[RowChange]], list[Row]],
) -> None:
    base, windows, expected = history
    diffs = [collapsed(window, FIELDS) for window in windows]
    assert list(merged(merged(base, diffs, FIELDS), diffs, FIELDS)) == expected


def row(id: int | str, value: int = 0) -> Row:
    return {"space": "a", "id": id, "value": value}


def insert(new: Row) -> RowChange:
    return RowChange(Action.INSERT, key_of(new, FIELDS), None, new)


def test_a_truncation_comes_before_what_was_inserted_after_it() -> None:
    window = [insert(row(1)), TRUNCATE, insert(row(3)), insert(row(2))]
    assert collapsed(window, FIELDS) == [TRUNCATE, insert(row(2)), insert(row(3))]


def test_an_update_of_the_key_leaves_no_old_row() -> None:
    moved = RowChange(Action.UPDATE, ("a", 2), row(1), row(2))
    assert collapsed([moved], FIELDS) == [
        RowChange(Action.DELETE, ("a", 1), row(1)),
        RowChange(Action.INSERT, ("a", 2), None, row(2)),
    ]


def test_keys_of_several_fields_are_never_taken_for_one_another() -> None:
    left = {"space": "a b", "id": "c"}
    right = {"space": "a", "id": "b c"}
    assert len(collapsed([insert(left), insert(right)], FIELDS)) == 2


def test_numbers_in_keys_are_sorted_by_value() -> None:
    window = [insert(row(10)), insert(row(9)), insert(row("1"))]
    assert [change.key[1] for change in collapsed(window, FIELDS)] == [9, 10, "1"]


@pytest.mark.parametrize(
    ("base", "diff"),
    [
        ([row(2), row(1)], []),
        ([row(1), row(1)], []),
        ([], [insert(row(2)), insert(row(1))]),
        ([], [insert(row(1)), TRUNCATE]),
    ],
)
def test_an_artifact_that_is_not_in_order_is_refused(
    base: Sequence[Row], diff: Sequence[RowChange]
) -> None:
    with pytest.raises(OrderError):
        list(merged(base, [diff], FIELDS))
