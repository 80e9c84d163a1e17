"""The formats of the archive: the suite that all of them have to pass, and what is their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import walstore.archive
from walstore.archive.extras import ExtraMissingError
from walstore.archive.format import Format, FormatError, RowRefusedError
from walstore.archive.formats import FORMAT_IDS, UnknownFormatError, open_format
from walstore.archive.parquet_layout import DiffLayout
from walstore.archive.rows import Action, Column, Row, RowChange
from walstore.errors import UsageError
from walstore.testing.archive_format import CHANGES, COLUMNS, ROWS, FormatContract

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
_ROWS = st.fixed_dictionaries(
    {
        "name": st.none() | st.text(max_size=8),
        "count": st.none() | st.integers(-(2**53) + 1, 2**53 - 1),
        "open": st.none() | st.booleans(),
        "value": _VALUES,
    }
)


class TestJsonl(FormatContract):
    @pytest.fixture
    def format(self) -> Format:
        return open_format("jsonl")

    @pytest.fixture
    def unknown_action(self) -> bytes:
        return b'{"action":"UPSERT","key":["a"],"new":{"a":1}}\n'


class TestProtobuf(FormatContract):
    @pytest.fixture
    def format(self) -> Format:
        return open_format("protobuf")

    @pytest.fixture
    def unknown_action(self) -> bytes:
        return b'\x0f\x0a\x06UPSERT\x12\x05["a"]'


class TestParquet(FormatContract):
    @pytest.fixture
    def format(self) -> Format:
        return open_format("parquet")

    @pytest.fixture
    def unknown_action(self) -> bytes:
        table = pa.table(
            {"action": ["UPSERT"], "key": ['["a"]'], "old": [_NO_TEXT], "new_a": ["x"]}
        )
        return _file(table, DiffLayout([Column("a", "text")]).note)


_NO_TEXT = pa.scalar(None, pa.string())


def _file(table: Any, note: bytes | None) -> bytes:
    """A file as pyarrow writes it by itself."""
    out = BytesIO()
    with pq.ParquetWriter(out, table.schema, store_schema=False) as writer:
        if note is not None:
            writer.add_key_value_metadata({"walstore": note.decode()})
        writer.write_table(table)
    return out.getvalue()


# ── all of them ────────────────────────────────────────────────────────────────────────────


@given(st.lists(_ROWS, max_size=4))
@settings(max_examples=60, deadline=None)
def test_all_formats_hold_the_same_rows(rows: list[Row]) -> None:
    kinds = [open_format(each) for each in FORMAT_IDS]
    for columns in (COLUMNS, ()):
        read = [list(each.read_base(each.write_base(rows, columns), columns)) for each in kinds]
        assert read == [rows, rows, rows]


_PRINTS_HASHES = """
from hashlib import sha256
from walstore.archive.formats import FORMAT_IDS, open_format
from walstore.testing.archive_format import CHANGES, COLUMNS, ROWS
for each in map(open_format, FORMAT_IDS):
    for columns in (COLUMNS, ()):
        print(sha256(each.write_base(ROWS, columns)).hexdigest())
        print(sha256(each.write_diff(CHANGES, columns)).hexdigest())
"""


def test_another_process_writes_the_same_bytes() -> None:
    here = []
    for each in map(open_format, FORMAT_IDS):
        for columns in (COLUMNS, ()):
            here.append(sha256(each.write_base(ROWS, columns)).hexdigest())
            here.append(sha256(each.write_diff(CHANGES, columns)).hexdigest())
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", _PRINTS_HASHES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.split() == here


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(UnknownFormatError, match="'csv'; there are jsonl, parquet, protobuf"):
        open_format("csv")


@pytest.mark.parametrize(
    ("format_id", "module"), [("parquet", "pyarrow"), ("protobuf", "google.protobuf.message")]
)
def test_a_missing_extra_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, format_id: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ExtraMissingError, match=rf"pip install 'walstore\[{format_id}\]'"):
        open_format(format_id)
    assert issubclass(ExtraMissingError, UsageError)


# ── JSON lines ─────────────────────────────────────────────────────────────────────────────


def test_json_lines_are_canonical_texts() -> None:
    jsonl = open_format("jsonl")
    assert jsonl.write_base([{"b": 1.0, "a": "ä\ud800"}], ()) == b'{"a":"\xc3\xa4\\ud800","b":1}\n'
    assert jsonl.write_diff(
        [RowChange(Action.TRUNCATE, ()), RowChange(Action.UPDATE, ("k", 2), None, {"a": None})], ()
    ) == (b'{"action":"TRUNCATE","key":[]}\n{"action":"UPDATE","key":["k",2],"new":{"a":null}}\n')
    assert jsonl.write_base([], COLUMNS) == b""


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1}',
        b'{"a":1}\n{"a"',
        b"\n",
        b'{"a":1}\n\n',
        b"[]\n",
        b"1\n",
        b"{}{}\n",
        b"{\n}\n",
        b'{"a":NaN}\n',
        b'{"a":"\xff"}\n',
        b'\xef\xbb\xbf{"a":1}\n',
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}\n",
    ],
)
def test_a_line_that_is_no_whole_object_is_an_error(body: bytes) -> None:
    with pytest.raises(FormatError, match="malformed jsonl artifact"):
        list(open_format("jsonl").read_base(body, ()))


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"key":["a"]}',
        b'{"action":"DELETE"}',
        b'{"action":"DELETE","key":"a"}',
        b'{"action":"DELETE","key":[]}',
        b'{"action":["DELETE"],"key":["a"]}',
        b'{"action":"INSERT","key":["a"],"new":[]}',
        b'{"action":"INSERT","key":["a"],"new":null}',
        b'{"action":"INSERT","key":["a"],"new":{},"old":1}',
        b'{"action":"INSERT","key":["a"],"new":{},"newer":{}}',
        b'{"action":"insert","key":["a"],"new":{}}',
    ],
)
def test_a_line_that_is_no_change_is_an_error(line: bytes) -> None:
    with pytest.raises(FormatError, match="malformed jsonl artifact"):
        list(open_format("jsonl").read_diff(line + b"\n", ()))


# ── protobuf ───────────────────────────────────────────────────────────────────────────────

# The row {"a": 1, "b": [null, true, "x"]}, message by message: SnapshotRow, Struct, two entries.
_ENTRY_A = b"\x0a\x0e\x0a\x01a\x12\x09\x11\x00\x00\x00\x00\x00\x00\xf0\x3f"
_ENTRY_B = b"\x0a\x14\x0a\x01b\x12\x0f\x32\x0d\x0a\x02\x08\x00\x0a\x02\x20\x01\x0a\x03\x1a\x01x"
_ROW_AB = b"\x28\x0a\x26" + _ENTRY_A + _ENTRY_B


def test_protobuf_rows_are_delimited_structs() -> None:
    protobuf = open_format("protobuf")
    row: Row = {"b": [None, True, "x"], "a": 1}
    assert protobuf.write_base([row], ()) == _ROW_AB
    assert list(protobuf.read_base(_ROW_AB, ())) == [row]


def test_protobuf_changes_have_the_key_as_text() -> None:
    body = open_format("protobuf").write_diff([RowChange(Action.DELETE, ("ä", 1), {}, None)], ())
    assert body == b'\x14\x0a\x06DELETE\x12\x08["\xc3\xa4",1]\x1a\x00'


def test_the_messages_are_those_of_the_proto_file() -> None:
    messages = pytest.importorskip("walstore.archive.protobuf_messages")
    text = (Path(walstore.archive.__file__).parent / "artifact.proto").read_text()
    said = {
        name: {(kind, member, int(number)) for kind, member, number in _MEMBER.findall(block)}
        for name, block in re.findall(r"message (\w+) \{(.*?)\n\}", text, re.DOTALL)
    }
    made = {
        each.DESCRIPTOR.name: {
            ("string" if field.message_type is None else field.message_type.full_name, *_of(field))
            for field in each.DESCRIPTOR.fields
        }
        for each in (messages.SnapshotRow, messages.DiffChange)
    }
    assert said == made


_MEMBER = re.compile(r"^  ([\w.]+) (\w+) = (\d+);$", re.MULTILINE)


def _of(field: Any) -> tuple[str, int]:
    return field.name, field.number


def test_what_fits_no_struct_is_written_as_text() -> None:
    protobuf = open_format("protobuf")
    assert protobuf.write_base([{"a": "\ud800"}], ()) == b'\x10\x7a\x0e{"a":"\\ud800"}'


@pytest.mark.parametrize(
    "body",
    [
        b"\x00",  # an empty message holds no row
        b"\x02\x0a",  # cut off inside of the message
        b"\x80",  # … inside of the length
        b"\xff\xff\xff\xff\xff\x01",  # a length that none can have
        b"\xff\xff\xff\xff\x0f\x00",
        b"\x04\x0a\x00\x20\x00",  # a row, and an unknown member
        b"\x06\x0a\x04\x0a\x02\x0a\x00",  # a value that is not there
        b"\x08\x0a\x06\x0a\x04\x0a\x00\x12\x00",  # a value of no kind
        b"\x11\x0a\x0f\x0a\x0d\x0a\x00\x12\x09\x11\x00\x00\x00\x00\x00\x00\xf0\x7f",  # infinity
        b"\x09\x0a\x07\x0a\x05\x0a\x01\xff\x12\x00",  # a name that is not UTF-8
        b"\x03\x7a\x01{",  # a text that is not JSON
        b"\x04\x7a\x02[]",
    ],
)
def test_a_message_that_is_no_row_is_an_error(body: bytes) -> None:
    with pytest.raises(FormatError, match="malformed protobuf artifact"):
        list(open_format("protobuf").read_base(body, ()))


def test_messages_within_messages_are_followed_only_so_far() -> None:
    value = b"\x08\x00"
    for _ in range(200):
        value = _framed(0x32, _framed(0x0A, value))
    row = _framed(0x0A, _framed(0x0A, b"\x0a\x01a" + _framed(0x12, value)))
    with pytest.raises(FormatError, match="cannot be read"):
        list(open_format("protobuf").read_base(_varint(len(row)) + row, ()))


def _framed(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


# ── Parquet ────────────────────────────────────────────────────────────────────────────────


def test_a_parquet_base_is_a_table_to_others() -> None:
    table = pq.read_table(BytesIO(open_format("parquet").write_base(ROWS, COLUMNS)))
    assert table.schema.names == ["name", "count", "open", "value"]
    assert [str(each) for each in table.schema.types] == ["string", "int64", "bool", "string"]
    assert table.column("name").to_pylist() == [row["name"] for row in ROWS]
    assert table.column("count").to_pylist() == [row["count"] for row in ROWS]
    assert table.column("value").to_pylist()[0] == '{"a":"","b":[1,2.5,null]}'


def test_a_parquet_diff_is_a_table_to_others() -> None:
    table = pq.read_table(BytesIO(open_format("parquet").write_diff(CHANGES[1:3], COLUMNS)))
    assert table.schema.names == (
        ["action", "key", "old", "new_name", "new_count", "new_open", "new_value"]
    )
    assert table.column("action").to_pylist() == ["INSERT", "UPDATE"]
    assert table.column("key").to_pylist() == ['["ada"]', '["bo"]']
    assert table.column("new_name").to_pylist() == ["ada", ""]


def test_parquet_rows_without_columns_are_one_column_of_json() -> None:
    table = pq.read_table(BytesIO(open_format("parquet").write_base([{"b": 1, "a": [2]}], ())))
    assert table.to_pylist() == [{"row": '{"a":[2],"b":1}'}]


def test_parquet_files_have_row_groups_of_a_limited_size() -> None:
    columns = [Column("text", "text")]
    rows: list[Row] = [{"text": "x" * 2**22} for _ in range(6)]
    body = open_format("parquet").write_base(rows, columns)
    metadata = pq.ParquetFile(BytesIO(body)).metadata
    assert [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)] == [
        4,
        2,
    ]
    assert list(open_format("parquet").read_base(body, columns)) == rows


def test_a_diff_whose_texts_outgrow_the_dictionary_is_read() -> None:
    columns = [Column("name", "text"), Column("value", "json")]
    rows: list[Row] = [{"name": f"{index}" * 40, "value": [index] * 20} for index in range(9_000)]
    changes = [RowChange(Action.INSERT, (index,), row, row) for index, row in enumerate(rows)]
    parquet = open_format("parquet")
    assert list(parquet.read_diff(parquet.write_diff(changes, columns), columns)) == changes


def test_a_column_that_parquet_cannot_name_is_refused() -> None:
    with pytest.raises(RowRefusedError, match="UTF-8"):
        open_format("parquet").write_base([], [Column("\ud800", "text")])
    with pytest.raises(RowRefusedError, match="one name"):
        open_format("parquet").write_base([], [Column("a", "text"), Column("a", "json")])


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        (None, "no artifact"),
        (b"{", "not JSON"),
        (b"[]", "no base"),
        (b'{"columns":[["a","text"]],"kind":"diff"}', "no base"),
        (b'{"columns":[],"kind":"base"}', "columns"),
        (b'{"columns":[["a","date"]],"kind":"base"}', "columns"),
        (b'{"columns":[["b","text"]],"kind":"base"}', "columns"),
        (b'{"columns":[["a","text"],["a","text"]],"kind":"base"}', "one name"),
        (b'{"columns":[["\\ud800","text"]],"kind":"base"}', "UTF-8"),
        (b'{"columns":null,"kind":"base"}', "columns"),
    ],
)
def test_a_parquet_file_that_is_not_laid_out_as_it_says_is_an_error(
    note: bytes | None, reason: str
) -> None:
    body = _file(pa.table({"a": ["x"]}), note)
    with pytest.raises(FormatError, match=reason):
        list(open_format("parquet").read_base(body, ()))


@pytest.mark.parametrize("cell", ["", "{", "\ufdd0", "\ufdd01", "\ufdd0{}"])
def test_a_cell_that_is_not_of_its_column_is_an_error(cell: str) -> None:
    kind = "text" if cell.startswith("\ufdd0") else "json"
    note = b'{"columns":[["a","%b"]],"kind":"base"}' % kind.encode()
    with pytest.raises(FormatError):
        list(open_format("parquet").read_base(_file(pa.table({"a": [cell]}), note), ()))


def test_a_deletion_that_comes_with_a_new_row_is_an_error() -> None:
    table = pa.table({"action": ["DELETE"], "key": ['["a"]'], "old": [_NO_TEXT], "new_a": ["x"]})
    body = _file(table, DiffLayout([Column("a", "text")]).note)
    with pytest.raises(FormatError, match="DELETE with a new row"):
        list(open_format("parquet").read_diff(body, ()))


def test_a_few_bytes_do_not_become_many() -> None:
    count, text = 50_000, "x" * 2**20
    array = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))
    body = _file(pa.table({"a": array}), b'{"columns":[["a","text"]],"kind":"base"}')
    rows = list(open_format("parquet").read_base(body, ()))
    assert len(rows) == count
    assert {id(row["a"]) for row in rows} == {id(rows[0]["a"])}
    assert rows[0]["a"] == text
