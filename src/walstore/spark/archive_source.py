"""A sealed archive as a source of events: the log of a relay that need not be there any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import NamedTuple

from walstore.archive.manifest import Manifest
from walstore.archive.plan import plan
from walstore.archive.reader import Archive, NotReachedError
from walstore.archive.rows import Row
from walstore.archive.sealed import raw_element
from walstore.canon import canonical_text
from walstore.document.ports import RawElement
from walstore.errors import UsageError
from walstore.spark.events import RowEvent, event_of
from walstore.spark.stages import shown


class ArchivePage(NamedTuple):
    """Everything above a position, at once."""

    events: list[RowEvent]
    last_seq: int
    is_more: bool = False


class ArchiveStatus(NamedTuple):
    """What an archive holds."""

    relay_id: str
    min_seq: int
    head_seq: int


class NotSealedError(UsageError):
    """An archive holds documents, and not the events that they are made of."""

    def __init__(self, mode: str) -> None:
        super().__init__(f"the archive is {mode}: only a sealed one holds events")


class ArchiveSource:
    """The events of the documents with one prefix, out of a sealed archive."""

    def __init__(self, archive: Archive, prefix: str = "") -> None:
        """Read an archive."""
        self._archive = archive
        self.prefix = prefix

    async def status(self) -> ArchiveStatus:
        """What there is now."""
        manifest = await self._manifest()
        return ArchiveStatus(
            manifest.source or "", 1 if manifest.artifacts else 0, manifest.head_position
        )

    async def page(self, since: int) -> ArchivePage:
        """All events above a position."""
        manifest = await self._manifest()
        events = [event async for event in self._events(since)]
        events.sort(key=lambda event: event.seq)
        return ArchivePage(events, manifest.head_position)

    async def wait(self, since: int) -> None:
        """Return at once: an archive is looked at when somebody wants to know."""

    async def bootstrap(
        self, documents: Collection[str] | None = None
    ) -> tuple[int, AsyncIterator[RowEvent]]:
        """The newest snapshot of each document, and the position that they are current at."""
        manifest = await self._manifest()
        newest: dict[str, RowEvent] = {}
        async for event in self._events(0):
            if event.kind == "snapshot" and (documents is None or event.document in documents):
                newest[event.document] = event
        return manifest.head_position, _each(list(newest.values()))

    async def documents(self) -> AsyncIterator[str]:
        """The keys of all documents."""
        known: set[str] = set()
        async for event in self._events(0):
            if event.document not in known:
                known.add(event.document)
                yield event.document

    async def snapshots(self, documents: Collection[str], upto: int) -> AsyncIterator[RowEvent]:
        """The snapshots of some documents up to a position, in order."""
        found = [
            event
            async for event in self._events(0)
            if event.kind == "snapshot" and event.document in documents and event.seq <= upto
        ]
        for event in sorted(found, key=lambda event: event.seq):
            yield event

    async def snapshot(self, document: str) -> bytes | None:
        """The text of a document's newest snapshot; None if there is none."""
        _, events = await self.bootstrap([document])
        async for event in events:
            return event.payload
        return None

    async def elements(self, document: str, after: int) -> AsyncIterator[RawElement]:
        """The elements of a document above a `ts`, in order."""
        async for row in self._rows():
            element = raw_element(row) if row["document"] == document else None
            if element is not None and element.ts > after:
                yield element

    async def record(self, document: str, name: str) -> str | None:
        """None: an archive holds no records."""
        return None

    async def _events(self, since: int) -> AsyncIterator[RowEvent]:
        async for row in self._rows():
            if isinstance(row["seq"], int) and row["seq"] > since:
                # No column can hold half a character; with a mark in its place nothing proves it.
                cells = {name: shown(c) if isinstance(c, str) else c for name, c in row.items()}
                yield event_of({**cells, "vc": canonical_text(row["vc"])})

    async def _rows(self) -> AsyncIterator[Row]:
        manifest = await self._manifest()
        way = plan(manifest)
        if way is None:
            raise NotReachedError(None)
        for number in range(manifest.parts):
            for row in await self._archive.part_rows(manifest, way, number):
                if str(row["document"]).startswith(self.prefix):
                    yield row

    async def _manifest(self) -> Manifest:
        manifest = await self._archive.manifest()
        if manifest.mode != "sealed":
            raise NotSealedError(manifest.mode)
        return manifest


async def _each(events: list[RowEvent]) -> AsyncIterator[RowEvent]:
    for event in events:
        yield event
