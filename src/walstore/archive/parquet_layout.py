"""How rows and changes lie in a Parquet file.

- A base has the table's columns. A diff has `action`, `key` and `old`, the last two as JSON texts,
  and the table's columns as they are now, each as `new_…`; they are null where there is no new row.
- Where a table has no columns, its rows are in one, `row`, as JSON texts.
- What the columns are stands in the file: Parquet knows no difference between text and JSON.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from walstore.archive.format import FormatError, RowRefusedError
from walstore.archive.parquet_cells import FORMAT_ID, Cell, cell_of, type_of, values_of
from walstore.archive.rows import Action, Column, ColumnType, RowChange
from walstore.archive.shape import RawChange
from walstore.canon import Json, canonical_bytes, parse
from walstore.errors import MalformedError

# What stands for a whole row where nobody knows its members.
_WHOLE_ROW = (Column("row", "json"),)

_HEAD = (Column("action", "text"), Column("key", "json"), Column("old", "json"))
_NEW = "new_"
_TYPES: tuple[ColumnType, ...] = ("text", "integer", "boolean", "json")
_WITHOUT_NEW = (Action.DELETE.value, Action.TRUNCATE.value)

_Item = TypeVar("_Item")
_Raw = TypeVar("_Raw")
_Plain = dict[str, Json]


class Layout(ABC, Generic[_Item, _Raw]):
    """How one kind of artifact lies in a file.

    Attributes:
        kind: Which kind.
        columns: The columns of the file.
    """

    kind: str
    columns: tuple[Column, ...]

    def __init__(self, columns: Sequence[Column]) -> None:
        """Lay out a table with these columns; with none, if nobody knows them.

        Raises:
            RowRefusedError: Two columns have one name, or a name cannot be written.
        """
        names = [column.name for column in columns]
        if len(set(names)) < len(names):
            raise RowRefusedError("two columns have one name")
        if not all(map(_is_utf8, names)):
            raise RowRefusedError("the name of a column has no UTF-8")
        self._table = tuple(columns)
        self.columns = self._laid(self._table or _WHOLE_ROW)

    @property
    def note(self) -> bytes:
        """What a file says of its layout."""
        columns = [list(column) for column in self._table] or None
        return canonical_bytes({"columns": columns, "kind": self.kind})

    @classmethod
    def read_note(cls, note: bytes) -> tuple[Column, ...]:
        """The columns of the table that a file is of.

        Raises:
            FormatError: It does not say, or is of another kind.
        """
        try:
            found = parse(note)
        except MalformedError as error:
            raise FormatError(FORMAT_ID, f"its note is not JSON: {error.reason}") from error
        if not isinstance(found, dict) or found.get("kind") != cls.kind:
            raise FormatError(FORMAT_ID, f"it is no {cls.kind}")
        return _columns_of(found.get("columns"))

    @property
    def text_names(self) -> list[str]:
        """Which columns of the file are strings."""
        return [name for name, kind in self.columns if kind in ("text", "json")]

    def schema(self, pa: Any) -> Any:
        """The columns of the file, for pyarrow."""
        return pa.schema([pa.field(name, type_of(pa, kind)) for name, kind in self.columns])

    def arrays(self, pa: Any, group: Sequence[list[Cell]]) -> list[Any]:
        """The cells of a row group, by column."""
        cells = zip(*group, strict=True)
        return [
            pa.array(each, type_of(pa, kind))
            for each, (_, kind) in zip(cells, self.columns, strict=True)
        ]

    @abstractmethod
    def cells(self, item: _Item) -> list[Cell]:
        """What is written for a row or a change; raises as `cell_of` does."""

    @abstractmethod
    def items(self, found: Sequence[Any]) -> Iterator[_Raw]:
        """The rows or changes that the arrays of a row group hold.

        Raises:
            FormatError: A cell is not what its column says.
        """

    @abstractmethod
    def _laid(self, columns: tuple[Column, ...]) -> tuple[Column, ...]: ...

    def _row_cells(self, row: _Plain) -> list[Cell]:
        if not self._table:
            return [cell_of(row, "json")]
        return [cell_of(row[name], kind) for name, kind in self._table]

    def _row(self, cells: Sequence[Json]) -> Json:
        if not self._table:
            return cells[0]
        return {name: cell for (name, _), cell in zip(self._table, cells, strict=True)}

    def _rows_of_cells(self, found: Sequence[Any]) -> Iterator[tuple[Json, ...]]:
        columns = zip(found, self.columns, strict=True)
        return zip(*(values_of(array, column) for array, column in columns), strict=True)


class BaseLayout(Layout[_Plain, Json]):
    """How a base lies in a file."""

    kind = "base"

    def cells(self, item: _Plain) -> list[Cell]:
        """What is written for a row; raises as `cell_of` does."""
        return self._row_cells(item)

    def items(self, found: Sequence[Any]) -> Iterator[Json]:
        """The rows that the arrays of a row group hold; raises as `Layout.items` does."""
        return map(self._row, self._rows_of_cells(found))

    def _laid(self, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return columns


class DiffLayout(Layout[RowChange, RawChange]):
    """How a diff lies in a file."""

    kind = "diff"

    def cells(self, item: RowChange) -> list[Cell]:
        """What is written for a change; raises as `cell_of` does."""
        values = (item.action.value, list(item.key), item.old)
        head = [cell_of(value, kind) for value, (_, kind) in zip(values, _HEAD, strict=True)]
        if item.new is None:
            return head + [None] * (len(self.columns) - len(_HEAD))
        return head + self._row_cells(cast(_Plain, item.new))

    def items(self, found: Sequence[Any]) -> Iterator[RawChange]:
        """The changes that the arrays of a row group hold; raises as `Layout.items` does."""
        for action, key, old, *new in self._rows_of_cells(found):
            if action not in _WITHOUT_NEW:
                yield RawChange(action, key, old, self._row(new))
            elif any(cell is not None for cell in new):
                raise FormatError(FORMAT_ID, f"{action} with a new row")
            else:
                yield RawChange(action, key, old, None)

    def _laid(self, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return (*_HEAD, *(Column(_NEW + name, kind) for name, kind in columns))


def _columns_of(found: Json) -> tuple[Column, ...]:
    if found is None:
        return ()
    if not isinstance(found, list) or not found or not all(map(_is_column, found)):
        raise FormatError(FORMAT_ID, "its columns are none")
    return tuple(Column(*each) for each in found)


def _is_column(found: object) -> bool:
    match found:
        case [str(), kind]:
            return kind in _TYPES
        case _:
            return False


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
