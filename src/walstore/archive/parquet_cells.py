"""Members of rows as cells of Parquet, and back.

- Text is a string, an integer an int64, a boolean a bool; JSON is a string that holds its canonical
  text. Any of them may be null.
- Parquet's strings are UTF-8, which has no lone surrogates. A text that holds one is written as a
  mark and its canonical JSON text, as is one that begins with the mark; every other is itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from walstore.archive.format import FormatError
from walstore.archive.rows import Column, ColumnType
from walstore.archive.shape import exact_bytes
from walstore.canon import Json, canonical_text, parse
from walstore.errors import MalformedError

FORMAT_ID = "parquet"

# A code point that is no character; texts begin with it hardly ever, and are escaped if they do.
MARK = "\ufdd0"

Cell = bool | int | str | None


def type_of(pa: Any, kind: ColumnType) -> Any:
    """The type of Parquet that holds a column."""
    match kind:
        case "integer":
            return pa.int64()
        case "boolean":
            return pa.bool_()
        case "text" | "json":
            return pa.string()


def cell_of(value: Any, kind: ColumnType) -> Cell:
    """What is written for a value that is of its column's type.

    Raises:
        RowRefusedError: It holds a number that would be rounded.
        NotJsonError: It has no canonical text.
    """
    if value is None:
        return None
    if kind == "json":
        return exact_bytes(value).decode()
    if kind == "text" and not value.isascii() and _needs_mark(value):
        return MARK + canonical_text(value)
    return value  # type: ignore[no-any-return]


def values_of(array: Any, column: Column) -> list[Json]:
    """The values that an array holds.

    Raises:
        FormatError: A text is not what its column says.
    """
    match column.type:
        case "text":
            return _decoded(array, _text_of)
        case "json":
            return _decoded(array, _json_of)
        case "integer" | "boolean":
            return array.to_pylist()  # type: ignore[no-any-return]


def _needs_mark(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return text.startswith(MARK)


def _decoded(array: Any, decode: Callable[[str], Json]) -> list[Json]:
    """The values of texts. Equal ones are held once, so that few bytes cannot become many."""
    known = [decode(text) for text in array.dictionary.to_pylist()]
    return [None if index is None else known[index] for index in array.indices.to_pylist()]


def _text_of(text: str) -> str:
    if not text.startswith(MARK):
        return text
    value = _json_of(text[len(MARK) :])
    if not isinstance(value, str):
        raise FormatError(FORMAT_ID, "an escaped text is none")
    return value


def _json_of(text: str) -> Json:
    try:
        return parse(text)
    except MalformedError as error:
        raise FormatError(FORMAT_ID, f"a cell is not JSON: {error.reason}") from error
