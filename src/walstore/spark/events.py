"""Events as rows of a DataFrame hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from walstore.canon import parse
from walstore.errors import MalformedError
from walstore.spark.schema import EVENT_NAMES


class RowEvent(NamedTuple):
    """An event out of a batch: what `walstore.archive.source.Event` asks for."""

    document: str
    seq: int
    kind: Literal["element", "snapshot"]
    id: str
    ts: int
    author: str
    signature: str
    accepted_ms: int
    vc: Mapping[str, int]
    is_deletion: bool
    payload: bytes | None


def events_of(batch: pa.RecordBatch) -> Iterator[RowEvent]:
    """The events of a batch."""
    columns = {name: batch.column(name) for name in EVENT_NAMES}
    # What is text is bytes already: Arrow need not read it, for nobody here does.
    columns["data"] = columns["data"].cast(pa.binary())
    cells = {name: column.to_pylist() for name, column in columns.items()}
    cells["vc"] = [_clock(text) for text in cells["vc"]]
    cells["deleted"] = [bool(each) for each in cells["deleted"]]
    return map(RowEvent, *cells.values())


def event_of(row: Mapping[str, Any]) -> RowEvent:
    """The event of a row."""
    *cells, vc, deleted, data = (row[name] for name in EVENT_NAMES)
    return RowEvent._make((*cells, _clock(vc), bool(deleted), _payload(data)))


def _payload(data: str | None) -> bytes | None:
    return None if data is None else data.encode("utf-8", "surrogatepass")


def _clock(text: str | None) -> Mapping[str, int]:
    if text is None or text == "{}":
        return {}
    try:
        found = parse(text)
    except MalformedError:
        return {}
    return found if isinstance(found, dict) else {}
