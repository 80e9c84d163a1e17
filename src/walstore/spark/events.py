"""Events as rows of a DataFrame hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

import pyarrow as pa

from walstore.canon import parse
from walstore.errors import MalformedError


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
    for row in batch.to_pylist():
        yield event_of(row)


def event_of(row: Mapping[str, Any]) -> RowEvent:
    """The event of a row."""
    data, vc = row["data"], row["vc"]
    return RowEvent(
        row["document"],
        row["seq"],
        cast('Literal["element", "snapshot"]', row["kind"]),
        row["id"],
        row["ts"],
        row["author"],
        row["signature"],
        row["accepted_ms"],
        {} if vc in (None, "{}") else _clock(vc),
        bool(row["deleted"]),
        None if data is None else data.encode(),
    )


def _clock(text: str) -> Mapping[str, int]:
    try:
        found = parse(text)
    except MalformedError:
        return {}
    return found if isinstance(found, dict) else {}
