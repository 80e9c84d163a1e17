"""Rows, their keys and their order: what an archive holds, whatever it is written as.

- A row is a JSON object; its key is the values of the table's key fields, as an array.
- Rows and changes stand in the order of their keys: numbers before text, numbers by value, text by
  code points. So the same rows give the same bytes, and sorted files are merged as they are read.
- A change says what became of one key since the artifact before; of several in one window the
  last one counts. Only TRUNCATE has no key: it comes first, and empties the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Literal, NamedTuple

from walstore.canon import Json, canonical_text

Row = Mapping[str, Json]
Key = tuple[Json, ...]
SortKey = tuple[tuple[int, float | str], ...]
ColumnType = Literal["text", "integer", "boolean", "json"]


class Column(NamedTuple):
    """A member that every row has: its name, and what it holds. Any of them may be null."""

    name: str
    type: ColumnType


class Action(Enum):
    """What became of a row."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"


class RowChange(NamedTuple):
    """What became of one row.

    Attributes:
        action: What it is.
        key: Whose row; empty for TRUNCATE.
        old: The row before, if it is known.
        new: The row now; None for DELETE and TRUNCATE.
    """

    action: Action
    key: Key
    old: Row | None = None
    new: Row | None = None


class Window(NamedTuple):
    """Everything that happened in the half-open range `(since, to]`.

    Attributes:
        since: The position before the first change.
        to: The position that the table has reached with the last one.
        changes: At most one per key, in the order of their keys.
        churn: How many events they stand for.
        gap_upto: Up to here events may be missing; 0 if none are.
    """

    since: int
    to: int
    changes: Sequence[RowChange]
    churn: int
    gap_upto: int = 0


def key_of(row: Row, key_fields: Sequence[str]) -> Key:
    """The key of a row; a member that is not there counts as null."""
    return tuple(row.get(name) for name in key_fields)


def sort_key(key: Key) -> SortKey:
    """What keys are sorted by, the same in every process and every language."""
    return tuple(map(_rank, key))


def _rank(value: Json) -> tuple[int, float | str]:
    match value:
        case None:
            return 0, 0
        case bool():
            return 1, value
        case int() | float():
            return 2, value
        case str():
            return 3, value
        case _:
            return 4, canonical_text(value)
