"""What a task does with the events of documents: batches of Arrow in, batches of Arrow out.

    events by document and seq ─► one document after the other ─► rows ─► batches

- It knows nothing of Spark: the same functions run in one process, and in tests without a Java.
- A document ends where the next one begins. What is held is one document, never a partition.
- Whatever is wrong with an event becomes a row with its reason. It never stops the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa

from walstore.archive.rows import Column, Row
from walstore.archive.sealed import COLUMNS as EVENT_COLUMNS
from walstore.archive.verification import NO_PLACE, DocumentVerifier, Judged, is_seq
from walstore.canon import parse
from walstore.errors import MalformedError
from walstore.spark.events import RowEvent, event_of
from walstore.spark.schema import EVENT_NAMES, schema_of

# The row that a document had before, beside its events.
KEPT: Final = "kept"

# Rows of one batch, and what their texts may take, about.
BATCH_ROWS_MAX: Final = 2_000
BATCH_BYTES_MAX: Final = 8 * 2**20

VERIFIED: Final = (*EVENT_COLUMNS, Column("verdict", "text"), Column("reason", "text"))

_JSON: Final = ("value", "authors", "state")


class Held(NamedTuple):
    """What there is of one document.

    Attributes:
        document: Its key.
        kept: The row that it had before, as its columns say; None if it had none.
        events: Its events, by seq.
    """

    document: str
    kept: Mapping[str, Any] | None
    events: list[RowEvent]

    @property
    def previous(self) -> Row | None:
        """The row that it had before, read."""
        if self.kept is None:
            return None
        return {**self.kept, **{name: _read(self.kept[name]) for name in _JSON}}


def documents(batches: Iterable[pa.RecordBatch]) -> Iterator[Held]:
    """Documents one after the other; their rows come together, and by seq."""
    rows = (row for batch in batches for row in batch.to_pylist() if _is_placed(row))
    for document, some in groupby(rows, key=lambda row: row["document"]):
        held = Held(document, None, [])
        for row in some:
            kept = row.get(KEPT)
            if kept is not None:
                held = held._replace(kept=kept)
            else:
                held.events.append(event_of(row))
        yield held


def batches_of(
    rows: Iterable[Sequence[Any]], columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """Rows as batches, none of them very large."""
    schema = schema_of(columns)
    waiting: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += sum(len(cell) for cell in row if type(cell) is str)
        if len(waiting) >= BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
            yield _batch(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting, schema)


def shown(text: str | None) -> str | None:
    """A text as a column can hold it: halves of characters are marked as such."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@dataclass(frozen=True)
class VerifyStage:
    """Says of every event whether it is what it is called, and who proves it.

    Attributes:
        is_chained: Whether events come by document and seq, and prove each other; if not, each
            one stands for itself, in any order.
    """

    is_chained: bool

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each event once, with a verdict and, if it is rejected, the reason."""
        rows = (row for batch in batches for row in batch.select(EVENT_NAMES).to_pylist())
        judged = _chained(rows) if self.is_chained else _alone(rows)
        return batches_of(map(_verified, judged), VERIFIED)


class _Asked(dict[str, Any]):
    """A row with what stands beside the event read, so that it can be compared.

    Attributes:
        row: The row as it came.
    """

    def __init__(self, row: dict[str, Any]) -> None:
        super().__init__(row, vc=_read(row["vc"]))
        self.row = row


def _chained(rows: Iterable[dict[str, Any]]) -> Iterator[Judged]:
    for key, some in groupby(rows, key=lambda row: row["document"]):
        verifier = DocumentVerifier(key or "")
        for row in some:
            yield from _taken(verifier, _Asked(row))
        yield from verifier.end()


def _alone(rows: Iterable[dict[str, Any]]) -> Iterator[Judged]:
    for row in rows:
        verifier = DocumentVerifier(row["document"] or "")
        yield from _taken(verifier, _Asked(row))
        yield from verifier.end()


def _taken(verifier: DocumentVerifier, row: _Asked) -> list[Judged]:
    seq = row["seq"]
    if row["document"] is None or not is_seq(seq):
        return [Judged(row, 0, "rejected", [NO_PLACE])]
    return verifier.take(row, seq)


def _verified(judged: Judged) -> list[Any]:
    assert isinstance(judged.row, _Asked)
    row, reason = judged.row.row, "; ".join(judged.reasons) or None
    return [*(row[name] for name in EVENT_NAMES), judged.verdict, reason]


def _read(text: object) -> Any:
    try:
        return parse(text) if isinstance(text, str) else None
    except MalformedError:
        return None


def _is_placed(row: Mapping[str, Any]) -> bool:
    """Whether a row is of a document, and has its place there; `verify` tells of the others."""
    is_timed = row["ts"] is not None and row["accepted_ms"] is not None
    is_kept = row.get(KEPT) is not None
    return row["document"] is not None and (is_kept or (is_seq(row["seq"]) and is_timed))


def _batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
