"""What a task does to fold documents: the rows of `walstore.archive.folded`, by the same code.

- A document that has a row and no new event keeps its row, as it is.
- What was rejected, is missing, forked, sealed or could not be folded is told by `notices`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, NamedTuple

import pyarrow as pa

from walstore.archive.folded import COLUMNS as FOLDED
from walstore.archive.folded import Report
from walstore.archive.rows import Column, Row
from walstore.canon import canonical_text
from walstore.spark.events import RowEvent
from walstore.spark.running import turn
from walstore.spark.stages import Held, batches_of, documents, shown
from walstore.spark.trust import Believer, Trust
from walstore.wire.limits import TS_MAX

NOTICES: Final = (
    Column("document", "text"),
    Column("seq", "integer"),
    Column("ts", "integer"),
    Column("author", "text"),
    Column("kind", "text"),
    Column("reason", "text"),
)

# Events of documents that are folded in one go, about.
CHUNK_EVENTS: Final = 5_000


class _Folded(NamedTuple):
    held: Held
    row: Row | None
    reports: list[Report]


@dataclass(frozen=True)
class FoldStage:
    """Folds documents.

    Attributes:
        trust: Who is believed.
        has_previous: Whether events may go on from rows that are not there, of deleted documents.
        until_ms: What was accepted later is left out, and all that came after it.
    """

    trust: Trust
    has_previous: bool = False
    until_ms: int | None = None

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each document that is not deleted."""
        cells = (_cells(each) for each in self._folded(batches))
        return batches_of((row for row in cells if row is not None), FOLDED)

    def notices(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each thing that was noticed."""
        told = (row for each in self._folded(batches) for row in _noticed(each))
        return batches_of(told, NOTICES)

    def _folded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Folded]:
        with self.trust.opened() as believer:
            for chunk in chunks(documents(batches)):
                yield from turn(believer.runner, self._fold(believer, chunk))

    async def _fold(self, believer: Believer, chunk: list[Held]) -> list[_Folded]:
        return [await self._fold_one(believer, held) for held in chunk]

    async def _fold_one(self, believer: Believer, held: Held) -> _Folded:
        previous, events = held.previous, self._wanted(held.events)
        if not events:
            return _Folded(held, None, [])
        believer.hold(events)
        folded = await believer.folder.window(
            events,
            {} if previous is None else {held.document: previous},
            since=events[0].seq - 1 if self.has_previous else 0,
            to=TS_MAX,
        )
        if not folded.window.changes:
            return _Folded(held, None, folded.reports)
        (change,) = folded.window.changes
        # What is deleted has no row any more, whatever it had.
        return _Folded(held._replace(kept=None), change.new, folded.reports)

    def _wanted(self, events: list[RowEvent]) -> list[RowEvent]:
        if self.until_ms is None:
            return events
        until_ms = self.until_ms
        return list(takewhile(lambda event: event.accepted_ms <= until_ms, events))


def chunks(documents: Iterable[Held]) -> Iterator[list[Held]]:
    """Documents, as many together as have not many more events than fit a chunk."""
    chunk: list[Held] = []
    size = 0
    for held in documents:
        chunk.append(held)
        size += len(held.events) + 1
        if size >= CHUNK_EVENTS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _cells(folded: _Folded) -> list[Any] | None:
    if folded.row is None:
        kept = folded.held.kept
        return None if kept is None else [kept[column.name] for column in FOLDED]
    return [_cell(folded.row[column.name], column) for column in FOLDED]


def _cell(value: Any, column: Column) -> Any:
    return canonical_text(value) if column.type == "json" and value is not None else value


def _noticed(folded: _Folded) -> Iterator[list[Any]]:
    document = folded.held.document
    seqs = {event.ts: event.seq for event in folded.held.events if event.kind == "element"}
    for report in folded.reports:
        for rejection in report.rejections:
            ts = rejection.ts
            seq = None if ts is None else seqs.get(ts)
            author = shown(rejection.author)
            yield [document, seq, ts, author, "rejected", shown(rejection.reason)]
        for gap in report.gaps:
            session = "" if gap.session is None else f" of session {gap.session}"
            reason = f"elements {gap.expected} to {gap.got - 1}{session} are missing"
            yield [document, None, None, shown(gap.author), "missing", shown(reason)]
        for fork in report.forks:
            ts = fork.second.ts
            reason = f"its clock {fork.counter} was used at {fork.first.ts} for something else"
            yield [document, seqs.get(ts), ts, shown(fork.author), "forked", reason]
        if report.unreadable:
            reason = f"{report.unreadable} elements wait for a key"
            yield [document, None, None, None, "sealed", reason]
        for problem in report.problems:
            yield [document, None, None, None, "problem", shown(problem)]
