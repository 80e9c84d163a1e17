"""What rows and changes look like, before they are written and after they were read.

- Where a table has columns, a row has exactly their members, each of its column's type or null. One
  that is missing is null: the row may be older than the column.
- Where it has none, a row is any JSON object.
- Numbers are those that every format and every reader holds exactly: a whole number within
  ±(2^53 − 1) is an `int`, an integer beyond is refused, not rounded.
- TRUNCATE has no key, old or new; DELETE has no new; INSERT and UPDATE have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from walstore.archive.format import FormatError, RowRefusedError
from walstore.archive.rows import Action, Column, ColumnType, Row, RowChange
from walstore.canon import INTEGER_MAX, Json, canonical_bytes

_ACTIONS = {action.value: action for action in Action}

# No canonical text of an integer beyond ±(2^53 − 1) is without sixteen digits or an exponent.
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = b"0" * 16
_EXPONENT = b"e+"


class RawChange(NamedTuple):
    """A change as a body spells it; nothing of it is checked."""

    action: Json
    key: Json
    old: Json
    new: Json


class _MisshapenError(Exception):
    """What is wrong with a row or a change. It never leaves this module."""


def rows_to_write(rows: Iterable[Row], columns: Sequence[Column]) -> Iterator[dict[str, Json]]:
    """The rows, each with exactly the members of the columns.

    Raises:
        RowRefusedError: One has another member, or one of another type.
    """
    try:
        for row in rows:
            yield _row(row, columns)
    except _MisshapenError as error:
        raise RowRefusedError(str(error)) from error


def rows_read(format_id: str, found: Iterable[Json], columns: Sequence[Column]) -> Iterator[Row]:
    """The rows of a body, each with exactly the members of the columns.

    Raises:
        FormatError: One has another member, or one of another type, or is no object.
    """
    try:
        for row in found:
            yield _row(row, columns)
    except _MisshapenError as error:
        raise FormatError(format_id, str(error)) from error


def changes_to_write(
    changes: Iterable[RowChange], columns: Sequence[Column]
) -> Iterator[RowChange]:
    """The changes, whose rows have exactly the members of the columns.

    Raises:
        RowRefusedError: One is of another shape.
    """
    try:
        for change in changes:
            raw = RawChange(change.action.value, list(change.key), change.old, change.new)  # type: ignore[arg-type]
            yield _change(raw, columns)
    except _MisshapenError as error:
        raise RowRefusedError(str(error)) from error


def changes_read(
    format_id: str, found: Iterable[RawChange], columns: Sequence[Column]
) -> Iterator[RowChange]:
    """The changes of a body, whose rows have exactly the members of the columns.

    Raises:
        FormatError: One is of another shape, or of an unknown action.
    """
    try:
        for raw in found:
            yield _change(raw, columns)
    except _MisshapenError as error:
        raise FormatError(format_id, str(error)) from error


def exact_bytes(value: object) -> bytes:
    """The canonical text of a value, in which every number is the very same.

    Raises:
        RowRefusedError: It holds an integer beyond ±(2^53 − 1), which would be rounded.
        NotJsonError: It has no canonical text.
    """
    text = canonical_bytes(value)
    if _may_be_large(text) and _has_large_integer(value):
        raise RowRefusedError("it holds an integer beyond ±(2^53 − 1)")
    return text


def _row(row: object, columns: Sequence[Column]) -> dict[str, Json]:
    if not isinstance(row, Mapping):
        raise _MisshapenError("a row is not an object")
    if not columns:
        return row if type(row) is dict else dict(row)
    shaped = {name: _cell(row.get(name), name, kind) for name, kind in columns}
    if not row.keys() <= shaped.keys():
        stranger = min(row.keys() - shaped.keys())
        raise _MisshapenError(f"a row has a member {stranger!r}, which is no column")
    return shaped


def _cell(value: Any, name: str, kind: ColumnType) -> Json:
    if value is None or kind == "json":
        return value  # type: ignore[no-any-return]
    if kind == "text":
        if type(value) is str:
            return value
    elif kind == "boolean":
        if type(value) is bool:
            return value
    elif type(value) is int or (type(value) is float and value.is_integer()):
        if not -INTEGER_MAX <= value <= INTEGER_MAX:
            raise _MisshapenError(f"{name!r} is an integer beyond ±(2^53 − 1)")
        return int(value)
    raise _MisshapenError(f"{name!r} is not of its column's type, {kind}")


def _change(raw: RawChange, columns: Sequence[Column]) -> RowChange:
    action = _ACTIONS.get(raw.action) if isinstance(raw.action, str) else None
    if action is None:
        raise _MisshapenError("an unknown action")
    if not isinstance(raw.key, list):
        raise _MisshapenError("a key is not an array")
    old = None if raw.old is None else _row(raw.old, columns)
    new = None if raw.new is None else _row(raw.new, columns)
    if (not raw.key) != (action is Action.TRUNCATE):
        raise _MisshapenError(f"{action.value} with {'a' if raw.key else 'no'} key")
    if (new is None) != (action in (Action.DELETE, Action.TRUNCATE)):
        raise _MisshapenError(f"{action.value} with {'no' if new is None else 'a'} new row")
    if old is not None and action is Action.TRUNCATE:
        raise _MisshapenError("TRUNCATE with an old row")
    return RowChange(action, tuple(raw.key), old, new)


def _may_be_large(text: bytes) -> bool:
    return _EXPONENT in text or _MANY_DIGITS in text.translate(_DIGITS)


def _has_large_integer(value: object) -> bool:
    # The value has a canonical text already, so it is a tree of finite depth.
    level: list[Any] = [value]
    while level:
        below: list[Any] = []
        for item in level:
            if type(item) is int and not -INTEGER_MAX <= item <= INTEGER_MAX:
                return True
            if type(item) is dict:
                below.extend(item.values())
            elif type(item) is list or type(item) is tuple:
                below.extend(item)
        level = below
    return False
