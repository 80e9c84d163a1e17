"""What one task does for an archive: the events of a part in, its objects stored, a message out.

- It knows nothing of Spark: batches of Arrow come in and go out, in one process or in many.
- A task may be tried again: the same bytes go to the same keys, and change nothing.
- What begins an archive is a base, whatever its size, and is written as one at once.
- Events come by part, then document, then seq. A few documents are folded at a time, so that what
  is held is the rows of a part, and not its events.
- Keys are read from their file where they are needed, and are in no message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import pyarrow as pa

from walstore.archive.artifacts import Spot, encode_base, encode_diff, put_part, read_object
from walstore.archive.authority import Authority
from walstore.archive.destination import Destination
from walstore.archive.folded import Report, as_of
from walstore.archive.folder import Folder
from walstore.archive.format import Format
from walstore.archive.formats import open_format
from walstore.archive.manifest import Part
from walstore.archive.manifest_json import read_manifest
from walstore.archive.merge import merged
from walstore.archive.modes import FOLDED, SEALED, TableKind
from walstore.archive.plan import plan
from walstore.archive.reader import Archive
from walstore.archive.rows import Row, RowChange, sort_key
from walstore.archive.sealed import sealed_window
from walstore.archive.source import Source
from walstore.archive.wiring import Wiring
from walstore.archive.work import net_rows
from walstore.canon import canonical_text, parse
from walstore.signed.identity import Identity
from walstore.spark.address import Address
from walstore.spark.events import RowEvent, events_of

BUCKET = "bucket"

# Events of documents that are folded together, about.
CHUNK_EVENTS = 20_000

# Rejections that a part tells of one by one; the rest are counted.
TOLD_MAX = 100

_FIELDS: dict[str, pa.DataType] = {"part": pa.int64(), "message": pa.string()}
MESSAGE_SCHEMA = pa.schema(_FIELDS)
MESSAGE_DDL = "part bigint, message string"


@dataclass(frozen=True)
class PartWork:
    """Everything that a task has to know; it can be pickled, and holds no secret.

    Attributes:
        address: Where events are.
        mode: What the rows are.
        prefix: What the keys of the archive's objects begin with.
        parts: How many parts there are.
        destinations: Where to, as settings describe it.
        credentials: The profiles that those name.
        base_formats: What bases are written as.
        diff_formats: What diffs are written as.
        authority: Who may write.
        identity: The file with the archive's own identity.
        keeps_state: Whether folded rows carry what the fold goes on from.
        manifest: What the archive is made of now, as text; empty if there is none.
        since: Where the window begins.
        to: Where it ends.
        epoch: The archive epoch of its diff.
    """

    address: Address
    mode: Literal["sealed", "folded"]
    prefix: str
    parts: int
    destinations: tuple[Mapping[str, Any], ...]
    credentials: Mapping[str, Any]
    base_formats: tuple[str, ...]
    diff_formats: tuple[str, ...]
    authority: Authority
    identity: str | None
    keeps_state: bool
    manifest: bytes
    since: int
    to: int
    epoch: int

    @property
    def kind(self) -> TableKind:
        """What all tables of its mode have in common."""
        return SEALED if self.mode == "sealed" else FOLDED

    @property
    def diff_spot(self) -> Spot:
        """Where the diff of the window belongs."""
        return Spot(self.prefix, self.epoch, self.since, self.to, self.parts)

    @property
    def base_spot(self) -> Spot:
        """Where a base that takes the window in belongs."""
        return Spot(self.prefix, self.epoch + 1, None, self.to, self.parts)

    @property
    def is_first(self) -> bool:
        """Whether the window begins an archive."""
        return not self.manifest

    def write_events(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Store the parts that the events are of, as a diff or the first base; a message each."""
        write = self._write_first if self.is_first else self._write_diff
        rows = (
            (number, event)
            for batch in batches
            for number, event in zip(
                batch.column(BUCKET).to_pylist(),
                events_of(batch.drop_columns([BUCKET])),
                strict=True,
            )
        )
        for number, numbered in groupby(rows, key=lambda each: each[0]):
            events = (event for _, event in numbered)
            yield _message(number, asyncio.run(write(number, events)))

    async def write_empty(self, number: int) -> str:
        """Store a part in which nothing has happened, likewise; its message."""
        write = self._write_first if self.is_first else self._write_diff
        return canonical_text(await write(number, iter(())))

    # ── diffs ──────────────────────────────────────────────────────────────────────────

    def empty_bytes(self) -> int:
        """What such a part takes, in the first format of diffs."""
        return len(encode_diff([], _formats(self.diff_formats[:1]), self.kind.columns)[0].body)

    async def _write_diff(self, number: int, events: Iterator[RowEvent]) -> dict[str, Any]:
        changes, reports, churn = await self._changes(number, events)
        encoded = encode_diff(changes, _formats(self.diff_formats), self.kind.columns)
        parts = await put_part(self._destination(), self.diff_spot, number, encoded)
        return {
            "formats": _shown(parts),
            "row_count": len(changes),
            "diff_bytes": len(encoded[0].body),
            "churn": churn,
            "net_rows": net_rows(changes),
            **_told(reports),
        }

    async def _changes(
        self, number: int, events: Iterator[RowEvent]
    ) -> tuple[list[RowChange], list[Report], int]:
        if self.mode == "sealed":
            window = sealed_window(events, since=self.since, to=self.to)
            return list(window.changes), [], window.churn
        changes: list[RowChange] = []
        reports: list[Report] = []
        churn = 0
        async with self.address.opened() as source:
            folder = self._folder(source)
            kept = _Kept(as_of(row, self.since) for row in await self._rows(number))
            for chunk in _chunks(events):
                rows = kept.rows_of(chunk)
                folded = await folder.window(chunk, rows, since=self.since, to=self.to)
                changes += [each._replace(old=None) for each in folded.window.changes]
                reports += folded.reports
                churn += folded.window.churn
        changes.sort(key=lambda change: sort_key(change.key))
        return changes, reports, churn

    def _folder(self, source: Source) -> Folder:
        assert self.identity is not None
        identity = Identity.load(self.identity)
        return Folder(source, self.authority, identity, keeps_state=self.keeps_state)

    async def _rows(self, number: int) -> Iterator[Row]:
        """The rows that a part of the archive has, in the order of their documents."""
        manifest = read_manifest(self.manifest) if self.manifest else None
        way = None if manifest is None else plan(manifest)
        if manifest is None or way is None:
            return iter(())
        archive = Archive(self._destination(), self.prefix)
        return await archive.part_rows(manifest, way, number)

    # ── bases ──────────────────────────────────────────────────────────────────────────

    async def _write_first(self, number: int, events: Iterator[RowEvent]) -> dict[str, Any]:
        changes, reports, churn = await self._changes(number, events)
        rows = merged(iter(()), [changes], self.kind.key_fields)
        return {
            **await self._put_base(number, rows),
            "diff_bytes": 0,
            "churn": churn,
            "net_rows": net_rows(changes),
            **_told(reports),
        }

    def write_bases(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Store the parts of a base, out of the archive and the diffs that were written, if any."""
        for batch in batches:
            for row in batch.to_pylist():
                number: int = row["part"]
                written = asyncio.run(self._write_base(number, row["message"]))
                yield _message(number, written)

    async def _write_base(self, number: int, message: str) -> dict[str, Any]:
        old = await self._rows(number)
        changes = await self._diff(self._destination(), message) if message else []
        return await self._put_base(number, merged(old, [changes], self.kind.key_fields))

    async def _put_base(self, number: int, rows: Iterable[Row]) -> dict[str, Any]:
        encoded = encode_base(rows, _formats(self.base_formats), self.kind.columns)
        parts = await put_part(self._destination(), self.base_spot, number, encoded)
        return {"formats": _shown(parts), "row_count": encoded[0].row_count}

    async def _diff(self, destination: Destination, message: str) -> list[RowChange]:
        format = _formats(self.diff_formats[:1])[0]
        body = await read_object(destination, self.prefix, read_parts(message)[format.id])
        return list(format.read_diff(body, self.kind.columns))

    def _destination(self) -> Destination:
        """The first one: what is in it counts, and the driver has the others follow."""
        return Wiring(self.credentials).destinations(self.destinations[:1])[0]


def read_parts(message: str) -> dict[str, Part]:
    """The objects that a message tells of."""
    found: Any = parse(message)
    return {name: Part(**members) for name, members in found["formats"].items()}


def _message(number: int, content: dict[str, Any]) -> pa.RecordBatch:
    row = {"part": number, "message": canonical_text(content)}
    return pa.RecordBatch.from_pylist([row], schema=MESSAGE_SCHEMA)


def _shown(parts: dict[str, Part]) -> dict[str, Any]:
    return {name: part._asdict() for name, part in parts.items()}


def _told(reports: Sequence[Report]) -> dict[str, Any]:
    rejections = [
        [report.document, each.ts, each.reason] for report in reports for each in report.rejections
    ]
    return {
        "rejected": len(rejections),
        "rejections": rejections[:TOLD_MAX],
        "problems": [[report.document, each] for report in reports for each in report.problems][
            :TOLD_MAX
        ],
    }


def _formats(ids: Sequence[str]) -> list[Format]:
    return [open_format(each) for each in ids]


class _Kept:
    """Rows in the order of their documents, looked up in that order."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def rows_of(self, chunk: Sequence[RowEvent]) -> dict[str, Row]:
        """The rows of the documents of a chunk, which comes after all chunks before."""
        found: dict[str, Row] = {}
        for document in sorted({event.document for event in chunk}):
            while self._next is not None and str(self._next["document"]) < document:
                self._next = next(self._rows, None)
            if self._next is not None and self._next["document"] == document:
                found[document] = self._next
        return found


def _chunks(events: Iterator[RowEvent]) -> Iterator[list[RowEvent]]:
    """Events of whole documents, not many more than fit a chunk."""
    chunk: list[RowEvent] = []
    for _, some in groupby(events, key=lambda event: event.document):
        chunk += some
        if len(chunk) >= CHUNK_EVENTS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
