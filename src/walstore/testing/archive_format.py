"""What every format of artifacts must do, as tests: for whoever writes an implementation.

A class inherits `FormatContract` and provides two fixtures; pytest runs the rest:

    class TestMyFormat(FormatContract):
        @pytest.fixture
        def format(self) -> Format:
            return MyFormat()

        @pytest.fixture
        def unknown_action(self) -> bytes:
            return b"a diff of one change, which is neither INSERT, UPDATE, DELETE nor TRUNCATE"
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from walstore.archive.format import Format, FormatError, RowRefusedError
from walstore.archive.rows import Action, Column, Row, RowChange
from walstore.canon import VALUE_DEPTH_MAX
from walstore.errors import NotJsonError

COLUMNS = (
    Column("name", "text"),
    Column("count", "integer"),
    Column("open", "boolean"),
    Column("value", "json"),
)

ROWS: tuple[Row, ...] = (
    {"name": "ada", "count": 1, "open": True, "value": {"b": [1, 2.5, None], "a": ""}},
    {"name": "bo", "count": 0, "open": False, "value": None},
    {"name": None, "count": None, "open": None, "value": [True, False, "true", 1, 0]},
    {"name": "", "count": -(2**53 - 1), "open": True, "value": "text"},
    {"name": "cy", "count": 2**53 - 1, "open": False, "value": 0.1},
)

CHANGES: tuple[RowChange, ...] = (
    RowChange(Action.TRUNCATE, ()),
    RowChange(Action.INSERT, ("ada",), None, ROWS[0]),
    RowChange(Action.UPDATE, ("bo",), ROWS[1], ROWS[3]),
    RowChange(Action.UPDATE, ("bo", 7), None, ROWS[2]),
    RowChange(Action.DELETE, ("cy", None, 1.5, True), ROWS[4], None),
    RowChange(Action.DELETE, ("dee",), None, None),
)

# Texts that a wrong encoding, escape or separator would bend.
_ODD_TEXTS = (
    "ä",
    "a\u0308",
    "日本語",
    "🦉",
    "\x00",
    "a\x00b",
    "\n",
    "\r\n",
    "\u2028",
    "\ufeff",
    '"',
    "\\",
    "\\ud800",
    "\x7f\x80",
    "\ufdd0",
    '\ufdd0"x"',
    "\uffff",
    "\U0010ffff",
    "\ud800",
    "a\udfffb",
    "\udc00\ud800",
    "null",
    "NaN",
)

_NUMBERS = (
    0,
    1,
    -1,
    2**53 - 1,
    1 - 2**53,
    0.1,
    -2.5,
    5e-324,
    1.7976931348623157e308,
    2.0**53,
    1e21,
)

_FLIPS = 500
_NOISES = 500
_NOISE_BYTES_MAX = 200


class FormatContract:
    """The promises of `Format`, one test each."""

    # ── names ──────────────────────────────────────────────────────────────────────────

    def test_it_has_an_id_and_an_extension(self, format: Format) -> None:
        assert format.id
        assert format.extension.startswith(".")
        assert "/" not in format.id + format.extension

    # ── what is written is read ────────────────────────────────────────────────────────

    @pytest.mark.parametrize("columns", [COLUMNS, ()], ids=["columns", "no columns"])
    def test_rows_are_read_as_they_were_written(
        self, format: Format, columns: Sequence[Column]
    ) -> None:
        assert _reread(format, ROWS, columns) == list(ROWS)

    @pytest.mark.parametrize("columns", [COLUMNS, ()], ids=["columns", "no columns"])
    def test_changes_are_read_as_they_were_written(
        self, format: Format, columns: Sequence[Column]
    ) -> None:
        body = format.write_diff(CHANGES, columns)
        assert list(format.read_diff(body, columns)) == list(CHANGES)

    @pytest.mark.parametrize("columns", [COLUMNS, ()], ids=["columns", "no columns"])
    def test_nothing_is_read_as_nothing(self, format: Format, columns: Sequence[Column]) -> None:
        assert _reread(format, (), columns) == []
        assert list(format.read_diff(format.write_diff((), columns), columns)) == []

    def test_booleans_numbers_and_texts_stay_apart(self, format: Format) -> None:
        values = [True, 1, "1", False, 0, "", None, [], {}, "null", "true", [None], {"": None}]
        read = _reread_values(format, values)
        assert read == values
        assert [type(each) for each in read] == [type(each) for each in values]

    def test_an_empty_row_is_one(self, format: Format) -> None:
        assert _reread(format, [{}, {}], ()) == [{}, {}]
        change = RowChange(Action.UPDATE, (1,), {}, {})
        assert list(format.read_diff(format.write_diff([change], ()), ())) == [change]

    def test_rows_without_columns_may_have_any_members(self, format: Format) -> None:
        rows: list[Row] = [
            {"a": 1},
            {"b": {"c": []}},
            {"": "x", "row": 1, "action": 2, "json": "{}"},
        ]
        assert _reread(format, rows, ()) == rows

    def test_columns_may_have_any_names(self, format: Format) -> None:
        names = ("new", "old", "key", "action", "row", "a.b", "a b", "ä", "1", "Name", "name", "`")
        columns = [Column(name, "text") for name in names]
        row = {name: f"<{name}>" for name in names}
        change = RowChange(Action.INSERT, ("x",), row, row)
        assert _reread(format, [row], columns) == [row]
        assert list(format.read_diff(format.write_diff([change], columns), columns)) == [change]

    def test_every_text_is_read_as_it_was(self, format: Format) -> None:
        rows = [
            {"name": text, "count": 1, "open": None, "value": {text: [text]}} for text in _ODD_TEXTS
        ]
        changes = [RowChange(Action.INSERT, (row["name"],), row, row) for row in rows]
        assert _reread(format, rows, COLUMNS) == rows
        assert _reread(format, rows, ()) == rows
        assert list(format.read_diff(format.write_diff(changes, COLUMNS), COLUMNS)) == changes

    def test_numbers_are_read_as_they_were(self, format: Format) -> None:
        read = _reread_values(format, list(_NUMBERS))
        assert read == list(_NUMBERS)
        assert [type(each) for each in read] == [type(each) for each in _NUMBERS]

    def test_a_whole_number_is_read_as_an_integer(self, format: Format) -> None:
        read = _reread_values(format, [1.0, -0.0, -3.0, {"a": [2.0]}])
        assert repr(read) == repr([1, 0, -3, {"a": [2]}])
        (row,) = _reread(format, [{"name": "a", "count": 7.0}], COLUMNS)
        assert repr(row["count"]) == "7"

    def test_values_nest_as_deep_as_documents_do(self, format: Format) -> None:
        lists: Any = "deep"
        objects: Any = "deep"
        for _ in range(VALUE_DEPTH_MAX):
            lists, objects = [lists], {"in": objects}
        assert _reread_values(format, [lists, objects]) == [lists, objects]
        change = RowChange(Action.UPDATE, ("a",), {"value": lists}, {"value": objects})
        assert list(format.read_diff(format.write_diff([change], ()), ())) == [change]

    def test_a_row_may_be_larger_than_16_mib(self, format: Format) -> None:
        text = "".join(random.Random(1).choices("abcdefgh\n\u00e9\u65e5", k=2**16)) * (17 * 2**4)
        small: Row = {"name": "small", "count": 1, "open": True, "value": None}
        rows = [small, {**small, "name": text}, small]
        assert _reread(format, rows, COLUMNS) == rows
        change = RowChange(Action.INSERT, (1,), None, {**small, "value": [text]})
        body = format.write_diff([change, CHANGES[1]], COLUMNS)
        assert list(format.read_diff(body, COLUMNS)) == [change, CHANGES[1]]

    def test_many_rows_keep_their_order(self, format: Format) -> None:
        rows = [
            {"name": f"{index * 7919 % 70_001}", "count": index, "open": None, "value": None}
            for index in range(70_001)
        ]
        body = format.write_base(iter(rows), COLUMNS)
        assert list(format.read_base(body, COLUMNS)) == rows

    # ── the same rows, the same bytes ──────────────────────────────────────────────────

    def test_the_same_rows_give_the_same_bytes(self, format: Format) -> None:
        backwards = [dict(reversed(list(row.items()))) for row in ROWS]
        for columns in (COLUMNS, ()):
            body = format.write_base(ROWS, columns)
            assert format.write_base(iter(backwards), columns) == body
            assert format.write_base(format.read_base(body, columns), columns) == body

    def test_the_same_changes_give_the_same_bytes(self, format: Format) -> None:
        for columns in (COLUMNS, ()):
            body = format.write_diff(CHANGES, columns)
            assert format.write_diff(iter(CHANGES), columns) == body
            assert format.write_diff(format.read_diff(body, columns), columns) == body

    def test_one_number_has_one_spelling(self, format: Format) -> None:
        for left, right in ((1, 1.0), (0, -0.0), (2**53 - 1, float(2**53 - 1))):
            for columns in (COLUMNS, ()):
                bodies = [
                    format.write_base([{"count": number, "value": [number]}], columns)
                    for number in (left, right)
                ]
                assert bodies[0] == bodies[1]

    # ── what a row has to be ───────────────────────────────────────────────────────────

    def test_a_member_that_is_missing_is_null(self, format: Format) -> None:
        empty = dict.fromkeys((column.name for column in COLUMNS), None)
        assert _reread(format, [{"name": "a"}, {}], COLUMNS) == [empty | {"name": "a"}, empty]

    def test_a_column_that_came_later_is_null_in_older_rows(self, format: Format) -> None:
        body = format.write_base(ROWS, COLUMNS)
        columns = (Column("later", "json"), *COLUMNS)
        assert list(format.read_base(body, columns)) == [{"later": None, **row} for row in ROWS]

    def test_a_body_can_be_read_without_its_columns(self, format: Format) -> None:
        assert list(format.read_base(format.write_base(ROWS, COLUMNS), ())) == list(ROWS)
        assert list(format.read_diff(format.write_diff(CHANGES, COLUMNS), ())) == list(CHANGES)

    def test_columns_can_be_told_of_a_body_that_was_written_without(self, format: Format) -> None:
        assert list(format.read_base(format.write_base(ROWS, ()), COLUMNS)) == list(ROWS)
        assert list(format.read_diff(format.write_diff(CHANGES, ()), COLUMNS)) == list(CHANGES)

    @pytest.mark.parametrize(
        "row",
        [
            {"name": "a", "other": None},
            {"name": 1},
            {"name": True},
            {"count": "1"},
            {"count": True},
            {"count": 1.5},
            {"count": 2**53},
            {"count": -(2**53)},
            {"open": 1},
            {"open": "true"},
            {"value": 2**53},
            {"value": {"a": [1, -(2**60) - 1]}},
            {"value": 10**23},
        ],
    )
    def test_a_row_that_is_not_of_its_columns_is_refused(self, format: Format, row: Row) -> None:
        with pytest.raises(RowRefusedError):
            format.write_base([ROWS[0], row], COLUMNS)
        with pytest.raises(RowRefusedError):
            format.write_diff([RowChange(Action.INSERT, ("a",), None, row)], COLUMNS)
        with pytest.raises(RowRefusedError):
            format.write_diff([RowChange(Action.DELETE, ("a",), row, None)], COLUMNS)

    def test_an_integer_that_would_be_rounded_is_refused_without_columns_too(
        self, format: Format
    ) -> None:
        for value in (2**53, -(2**53), 10**23, 2**64, [{"a": 2**53 + 1}]):
            with pytest.raises(RowRefusedError):
                format.write_base([{"value": value}], ())
            with pytest.raises(RowRefusedError):
                format.write_diff([RowChange(Action.DELETE, (value,))], ())

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, b"bytes", object()])
    def test_what_is_not_json_is_refused(self, format: Format, value: Any) -> None:
        with pytest.raises(NotJsonError):
            format.write_base([{"value": [value]}], ())
        with pytest.raises(NotJsonError):
            format.write_base([{"value": [value]}], COLUMNS)

    @pytest.mark.parametrize(
        "change",
        [
            RowChange(Action.INSERT, ("a",)),
            RowChange(Action.UPDATE, ("a",), {"name": "a"}),
            RowChange(Action.INSERT, (), None, {"name": "a"}),
            RowChange(Action.DELETE, ("a",), None, {"name": "a"}),
            RowChange(Action.DELETE, ()),
            RowChange(Action.TRUNCATE, ("a",)),
            RowChange(Action.TRUNCATE, (), {"name": "a"}),
            RowChange(Action.TRUNCATE, (), None, {"name": "a"}),
        ],
    )
    def test_a_change_that_makes_no_sense_is_refused(
        self, format: Format, change: RowChange
    ) -> None:
        with pytest.raises(RowRefusedError):
            format.write_diff([change], COLUMNS)

    # ── what is read is checked ────────────────────────────────────────────────────────

    def test_an_unknown_action_is_an_error(self, format: Format, unknown_action: bytes) -> None:
        with pytest.raises(FormatError, match="unknown action") as caught:
            list(format.read_diff(unknown_action, ()))
        assert caught.value.format_id == format.id

    def test_rows_of_other_columns_are_an_error(self, format: Format) -> None:
        body = format.write_base(ROWS, COLUMNS)
        for columns in (COLUMNS[1:], (Column("name", "integer"), *COLUMNS[1:])):
            with pytest.raises(FormatError):
                list(format.read_base(body, columns))

    def test_bases_and_diffs_are_not_taken_for_one_another(self, format: Format) -> None:
        with pytest.raises(FormatError):
            list(format.read_diff(format.write_base(ROWS, COLUMNS), COLUMNS))
        with pytest.raises(FormatError):
            list(format.read_base(format.write_diff(CHANGES, COLUMNS), COLUMNS))

    @pytest.mark.parametrize("columns", [COLUMNS, ()], ids=["columns", "no columns"])
    def test_a_base_that_was_cut_off_is_never_taken_for_more_than_it_is(
        self, format: Format, columns: Sequence[Column]
    ) -> None:
        body = format.write_base(ROWS, columns)
        for end in range(len(body)):
            rows = _read_or_none(lambda cut: format.read_base(cut, columns), body[:end])
            assert rows is None or format.write_base(rows, columns) == body[:end]
        assert _read_or_none(lambda cut: format.read_base(cut, columns), body[:-1]) is None

    @pytest.mark.parametrize("columns", [COLUMNS, ()], ids=["columns", "no columns"])
    def test_a_diff_that_was_cut_off_is_never_taken_for_more_than_it_is(
        self, format: Format, columns: Sequence[Column]
    ) -> None:
        body = format.write_diff(CHANGES, columns)
        for end in range(len(body)):
            changes = _read_or_none(lambda cut: format.read_diff(cut, columns), body[:end])
            assert changes is None or format.write_diff(changes, columns) == body[:end]
        assert _read_or_none(lambda cut: format.read_diff(cut, columns), body[:-1]) is None

    @pytest.mark.parametrize("columns", [COLUMNS, ()], ids=["columns", "no columns"])
    def test_damage_is_reported_as_such_and_as_nothing_else(
        self, format: Format, columns: Sequence[Column]
    ) -> None:
        rng = random.Random(7)
        base, diff = format.write_base(ROWS, columns), format.write_diff(CHANGES, columns)
        for _ in range(_FLIPS):
            _read_or_none(lambda body: format.read_base(body, columns), _damaged(rng, base))
            _read_or_none(lambda body: format.read_diff(body, columns), _damaged(rng, diff))

    def test_noise_is_reported_as_such_and_as_nothing_else(self, format: Format) -> None:
        rng = random.Random(8)
        for _ in range(_NOISES):
            noise = rng.randbytes(rng.randint(1, _NOISE_BYTES_MAX))
            _read_or_none(lambda body: format.read_base(body, COLUMNS), noise)
            _read_or_none(lambda body: format.read_diff(body, COLUMNS), noise)


def _reread(format: Format, rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
    return list(format.read_base(format.write_base(rows, columns), columns))


def _reread_values(format: Format, values: list[Any]) -> list[Any]:
    """Values, written and read as a member of rows, with and without columns."""
    rows = [{"value": value} for value in values]
    columns = [Column("value", "json")]
    without, typed = _reread(format, rows, ()), _reread(format, rows, columns)
    assert repr(without) == repr(typed)
    return [row["value"] for row in without]


def _read_or_none(read: Callable[[bytes], Iterator[Any]], body: bytes) -> list[Any] | None:
    """What a body holds; None if it is said to be damaged. Whatever else is raised is a failure."""
    try:
        return list(read(body))
    except FormatError:
        return None


def _damaged(rng: random.Random, body: bytes) -> bytes:
    """A body with a bit flipped, a byte changed, a piece missing, doubled or from elsewhere."""
    at, end = sorted(rng.choices(range(len(body) + 1), k=2))
    match rng.randrange(5):
        case 0:
            at = rng.randrange(len(body))
            return body[:at] + bytes([body[at] ^ (1 << rng.randrange(8))]) + body[at + 1 :]
        case 1:
            at = rng.randrange(len(body))
            return body[:at] + rng.randbytes(1) + body[at + 1 :]
        case 2:
            return body[:at] + body[end:]
        case 3:
            return body[:end] + body[at:]
        case _:
            return body[:at] + rng.randbytes(end - at) + body[end:]
