"""The two kinds of tables, as the engine sees them: events in, a window out.

- `SealedTable` keeps the events themselves. `FoldedTable` keeps the documents that they fold to,
  and reads the rows that documents had from the archive: the archive is its only memory.
- Where the source no longer reaches back to the head, `catch_up` takes what it still has: sealed
  rows up to where it begins, and folded ones up to where it ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from walstore.archive import folded, sealed
from walstore.archive.buckets import bucket_of
from walstore.archive.folded import Report, as_of
from walstore.archive.folder import Folder
from walstore.archive.manifest import Manifest, Mode
from walstore.archive.plan import plan
from walstore.archive.reader import Archive
from walstore.archive.rows import Column, Row, RowChange, Window
from walstore.archive.sealed import sealed_window
from walstore.archive.source import Event, Source, check_beginning

# Rows of documents that were touched lately; each is at most what a relay takes as a snapshot.
ROWS_KEPT_MAX = 1024

# Documents of which it is remembered that they have a row: some ten MiB of names.
NAMES_KEPT_MAX = 2**18


class TableKind(NamedTuple):
    """What all tables of a mode have in common."""

    mode: Mode
    key_fields: tuple[str, ...]
    columns: tuple[Column, ...]


SEALED = TableKind("sealed", sealed.KEY_FIELDS, sealed.COLUMNS)
FOLDED = TableKind("folded", folded.KEY_FIELDS, folded.COLUMNS)


class EventTable(Protocol):
    """A table that is made of events."""

    @property
    def kind(self) -> TableKind:
        """What it has in common with others."""
        ...

    async def window(
        self, events: Sequence[Event], *, to: int, manifest: Manifest | None
    ) -> Window:
        """What the events since the head change."""
        ...

    async def catch_up(self, *, min_seq: int, manifest: Manifest | None) -> Window:
        """What has changed since a head from which the events are no longer to be had.

        Raises:
            FalseBeginningError: The source cannot begin at `min_seq`.
            ReplayTooOldError: It has let go of more meanwhile.
        """
        ...

    def committed(self, window: Window) -> None:
        """A window is in the archive now."""
        ...

    def forget(self) -> None:
        """The archive is another one than was thought."""
        ...


class SealedTable:
    """The events themselves."""

    kind = SEALED

    def __init__(self, source: Source) -> None:
        """Keep the events of a source."""
        self._source = source

    async def window(
        self, events: Sequence[Event], *, to: int, manifest: Manifest | None
    ) -> Window:
        """The rows of the events."""
        return sealed_window(events, since=_head(manifest), to=to)

    async def catch_up(self, *, min_seq: int, manifest: Manifest | None) -> Window:
        """The current snapshots, which stand for what is gone; what is left is read as always."""
        head = _head(manifest)
        to = max(min_seq - 1, head)
        at, snapshots = await self._source.bootstrap()
        events = [event async for event in snapshots if head < event.seq <= to]
        check_beginning(min_seq=min_seq, head_seq=at)
        # What cannot be gone on from is no beginning, and the head stays where it is.
        await self._source.page(to)
        # A source may still have the elements: it cannot say where in the feed they were.
        gap_upto = to if to > head else 0
        return sealed_window(events, since=head, to=to)._replace(gap_upto=gap_upto)

    def committed(self, window: Window) -> None:
        """Nothing is remembered."""

    def forget(self) -> None:
        """Nothing is remembered."""


class FoldedTable:
    """The documents that the events fold to."""

    kind = FOLDED

    def __init__(
        self,
        source: Source,
        archive: Archive,
        folder: Folder,
        *,
        on_report: Callable[[Report], None] | None = None,
    ) -> None:
        """Fold the documents of a source.

        Args:
            source: Where they are.
            archive: Where their rows are.
            folder: Folds them.
            on_report: Told of what was rejected, is missing, or cannot be read.
        """
        self._source = source
        self._archive = archive
        self._folder = folder
        self._on_report = on_report
        # The rows as of a position. Events above a later one must never be folded onto them.
        self._rows: OrderedDict[str, Row | None] = OrderedDict()
        self._rows_at = 0
        # The documents that have rows there, by part: a new one is not looked for in the archive.
        self._names: dict[int, set[str]] = {}
        self._parts = 1

    async def window(
        self, events: Sequence[Event], *, to: int, manifest: Manifest | None
    ) -> Window:
        """What the events make of their documents."""
        since = first = _head(manifest)
        if manifest is not None and events:
            # Events that left no row, such as those of a document that is deleted again, do not
            # move the head: what lies between is in no row, and not among these events either.
            first = max(since, events[0].seq - 1)
        rows = await self._rows_of({event.document for event in events}, manifest)
        found, reports = await self._folder.window(events, rows, since=first, to=to)
        self._tell(reports)
        return _without_old(found._replace(since=since))

    async def catch_up(self, *, min_seq: int, manifest: Manifest | None) -> Window:
        """All documents that there are, here or there, read anew."""
        status = await self._source.status()
        check_beginning(min_seq=min_seq, head_seq=status.head_seq)
        # A feed names only those that have a snapshot, or an event that is left.
        documents = {document async for document in self._source.documents()}
        documents |= await self._archived(manifest)
        documents |= await self._named_from(min_seq - 1)
        rows = await self._rows_of(documents, manifest)
        found, reports = await self._folder.anew(
            documents, rows, since=_head(manifest), to=status.head_seq
        )
        self._tell(reports)
        return _without_old(found)

    async def _archived(self, manifest: Manifest | None) -> set[str]:
        way = None if manifest is None else plan(manifest)
        if manifest is None or way is None:
            return set()
        documents: set[str] = set()
        for number in range(manifest.parts):
            rows = await self._archive.part_rows(manifest, way, number)
            documents.update(str(row["document"]) for row in rows)
        return documents

    async def _named_from(self, seq: int) -> set[str]:
        documents: set[str] = set()
        while True:
            page = await self._source.page(seq)
            documents.update(event.document for event in page.events)
            if not page.is_more or page.last_seq <= seq:
                return documents
            seq = page.last_seq

    async def _rows_of(
        self, documents: Collection[str], manifest: Manifest | None
    ) -> dict[str, Row]:
        """The rows that documents have in the archive."""
        if self._rows_at != _head(manifest):
            self.forget()
            self._rows_at = _head(manifest)
        self._parts = 1 if manifest is None else manifest.parts
        found: dict[str, Row | None] = {}
        for document in documents:
            names = self._names_beside(document)
            if document not in self._rows and (names is None or document in names):
                found[document] = None
        way = None if manifest is None else plan(manifest)
        if manifest is not None and way is not None:
            for number in sorted({bucket_of((each,), manifest.parts) for each in found}):
                names = set()
                for row in await self._archive.part_rows(manifest, way, number):
                    if len(names) <= NAMES_KEPT_MAX // manifest.parts:
                        names.add(str(row["document"]))
                    if row["document"] in found:
                        found[str(row["document"])] = as_of(row, manifest.head_position)
                self._remember(number, names)
        known = {each: self._rows[each] for each in documents if each in self._rows}
        return {name: row for name, row in {**known, **found}.items() if row is not None}

    def _names_beside(self, document: str) -> set[str] | None:
        """The documents in the same part that have rows; None if they are not remembered."""
        return self._names.get(bucket_of((document,), self._parts))

    def _remember(self, number: int, names: set[str]) -> None:
        """Remember which documents of a part have rows, unless there are too many."""
        if len(names) <= NAMES_KEPT_MAX // self._parts:
            self._names[number] = names
        else:
            self._names.pop(number, None)

    def committed(self, window: Window) -> None:
        """Remember the rows that were written: they are likely to be needed next."""
        if self._rows_at != window.since:
            self.forget()
        self._rows_at = window.to
        for change in window.changes:
            document = str(change.key[0])
            self._rows[document] = change.new
            self._rows.move_to_end(document)
            number = bucket_of((document,), self._parts)
            if change.new is not None and number in self._names:
                self._names[number].add(document)
                self._remember(number, self._names[number])
        while len(self._rows) > ROWS_KEPT_MAX:
            self._rows.popitem(last=False)

    def forget(self) -> None:
        """Read rows from the archive again."""
        self._rows.clear()
        self._names.clear()

    def _tell(self, reports: Iterable[Report]) -> None:
        if self._on_report is not None:
            for report in reports:
                self._on_report(report)


def _head(manifest: Manifest | None) -> int:
    return 0 if manifest is None else manifest.head_position


def _without_old(window: Window) -> Window:
    """A window that says what rows are, and not what they were: that is in the archive already."""
    changes: list[RowChange] = [change._replace(old=None) for change in window.changes]
    return window._replace(changes=changes)
