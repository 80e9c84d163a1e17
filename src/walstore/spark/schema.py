"""The columns of events in a DataFrame: a contract.

    document string      the key of the document
    seq bigint           the place in the relay's order
    kind string          element or snapshot
    id string            the link of the element, or the revision of the snapshot
    ts bigint            the element's place in its document, or what the snapshot covers
    author string        who signed it, as the relay says
    signature string     the element's signature; empty for a snapshot
    accepted_ms bigint   when the relay accepted it, in milliseconds since 1970
    vc string            what a snapshot covers, by writer, as JSON
    deleted boolean      whether a snapshot says that the document is deleted
    data string          what was signed, exactly; null if the relay has let it go

They are those of a sealed archive, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from walstore.archive.rows import Column
from walstore.archive.sealed import COLUMNS, text_of
from walstore.archive.source import Event
from walstore.canon import canonical_text

_ARROW: Final[dict[str, pa.DataType]] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "boolean": pa.bool_(),
    "json": pa.string(),
}
_SQL: Final = {"text": "string", "integer": "bigint", "boolean": "boolean", "json": "string"}

EVENT_NAMES: Final = tuple(column.name for column in COLUMNS)


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Columns as Arrow has them; JSON is text."""
    return pa.schema([(column.name, _ARROW[column.type]) for column in columns])


def ddl_of(columns: Sequence[Column]) -> str:
    """Columns as SQL has them; JSON is text."""
    return ", ".join(f"{column.name} {_SQL[column.type]}" for column in columns)


def events_schema(names: Sequence[str] = EVENT_NAMES) -> pa.Schema:
    """The columns as Arrow has them."""
    return pa.schema([(name, _TYPES[name]) for name in names])


def events_ddl(names: Sequence[str] = EVENT_NAMES) -> str:
    """The columns as SQL has them."""
    types = {column.name: _SQL[column.type] for column in COLUMNS}
    return ", ".join(f"{name} {types[name]}" for name in names)


def events_batch(events: Iterable[Event], names: Sequence[str] = EVENT_NAMES) -> pa.RecordBatch:
    """Events as a batch."""
    given = list(events)
    schema = events_schema(names)
    return pa.RecordBatch.from_arrays([_column(name, given) for name in names], schema=schema)


def _column(name: str, events: list[Event]) -> pa.Array[Any]:
    # Of millions of events, a column is made quicker than a row.
    if name == "data":
        return _texts([event.payload for event in events])
    cells = list(map(_CELLS[name], events))
    return pa.array(cells, _TYPES[name])


def _texts(payloads: list[bytes | None]) -> pa.Array[Any]:
    """What was signed; bytes that are no text are left out."""
    try:
        return pa.array(payloads, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([text_of(each) for each in payloads], pa.string())


def _clock(event: Event) -> str:
    return canonical_text(dict(event.vc)) if event.vc else "{}"


_TYPES: Final = {column.name: _ARROW[column.type] for column in COLUMNS}
_CELLS: Final[dict[str, Callable[[Any], Any]]] = {
    **{name: attrgetter(name) for name in EVENT_NAMES},
    "vc": _clock,
    "deleted": attrgetter("is_deletion"),
}
