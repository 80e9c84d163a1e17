"""A relay's log that documents are written to directly, and tables that are kept of it.

- `LogTransport` is a transport, a snapshot store and a record store on any `RelayLog`, without a
  relay around it: what is appended is not checked, so that a test can append anything.
- `Kept` is a table as whoever applies its windows has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import count
from typing import Any

from tests.rigged import JsonElement
from walstore.archive.folded import Report
from walstore.archive.folder import Folder
from walstore.archive.rows import Action, Row, Window
from walstore.archive.source import Event, Source
from walstore.canon import canonical_bytes, canonical_text, parse
from walstore.document.ports import (
    Body,
    CheckpointTooOldError,
    RawElement,
    RecordConflictError,
    SnapshotConflictError,
    StoredRecord,
    StoredSnapshot,
)
from walstore.errors import MalformedError
from walstore.relay.log import Conflict, NewElement, NewSnapshot, RelayLog
from walstore.signed.author import Domain, signing_input_of
from walstore.signed.chain import link

SUFFIX = "__snapshot"


class LogTransport:
    """Documents right on a relay's log."""

    def __init__(self, log: RelayLog) -> None:
        self.log = log
        self._clock = count(1_700_000_000_000)

    async def append(self, document_key: str, body: Body) -> int:
        return await self.add(document_key, body.canonical, body.author, body.signature)

    async def add(self, document_key: str, data: bytes, author: str, signature: str) -> int:
        """Append anything."""
        signed = signing_input_of(Domain.APPEND, document_key, data)
        try:
            name = link(signed, author_pubkey=author, author_signature=signature)
        except MalformedError:
            name = sha256(signed).hexdigest()
        element = NewElement(document_key, name, author, signature, data)
        (accepted,) = await self.log.append([element], next(self._clock))
        return accepted.ts

    async def put_in(self, document_key: str, element: JsonElement) -> int:
        """Append an element of a hostile writer."""
        data = canonical_bytes(element["data"])
        author, signature = element["authorPubkey"], element["authorSignature"]
        return await self.add(document_key, data, author, signature)

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        page = await self.log.page(document_key, checkpoint, count_max=100, bytes_max=2**20)
        if checkpoint < page.floor:
            raise CheckpointTooOldError(page.floor)
        return [RawElement(row.ts, row.data, row.author, row.signature) for row in page.rows]

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        stored = await self.log.snapshot(snapshot_key.removesuffix(SUFFIX))
        return None if stored is None else StoredSnapshot(parse(stored.text), stored.revision)

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        text = canonical_bytes(document)
        snapshot = NewSnapshot(
            snapshot_key.removesuffix(SUFFIX),
            revision,
            sha256(text).hexdigest(),
            document["producedBy"],
            document["uptoTs"],
            document["writerSeq"],
            document["state"] is None,
            text,
        )
        answer = await self.log.put_snapshot(snapshot, next(self._clock))
        if isinstance(answer, Conflict):
            raise SnapshotConflictError

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        stored = await self.log.record(document_key, name)
        return None if stored is None else StoredRecord(stored.text.decode(), stored.revision)

    async def write_record(
        self, document_key: str, name: str, text: str, revision: str | None
    ) -> str:
        answer = await self.log.put_record(document_key, name, text.encode(), revision)
        if isinstance(answer, Conflict):
            raise RecordConflictError
        return answer


async def all_events(source: Source, since: int = 0) -> list[Event]:
    """Every event above a position."""
    events: list[Event] = []
    while True:
        page = await source.page(since)
        events += page.events
        if not page.is_more:
            return events
        since = page.last_seq


class Kept:
    """The rows of a table, by their keys as text."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.position = 0
        self.reports: list[Report] = []

    def apply(self, window: Window) -> None:
        """What whoever follows an archive does."""
        assert window.since == self.position
        keys = [canonical_text(list(change.key)) for change in window.changes]
        assert len(set(keys)) == len(keys)
        for key, change in zip(keys, window.changes, strict=True):
            assert (self.rows.get(key) is None) == (change.action is Action.INSERT)
            assert change.old == self.rows.get(key) or change.old is None
            if change.new is None:
                assert change.action is Action.DELETE
                del self.rows[key]
            else:
                self.rows[key] = change.new
        self.position = window.to

    def by_document(self) -> Mapping[str, Row]:
        """The rows of a table of documents."""
        return {str(row["document"]): row for row in self.rows.values()}

    def text(self) -> str:
        """Everything, to be compared."""
        return canonical_text({key: dict(self.rows[key]) for key in sorted(self.rows)})

    async def fold(self, folder: Folder, events: Iterable[Event], to: int) -> list[Report]:
        """Take in a window of events."""
        folded = await folder.window(events, self.by_document(), since=self.position, to=to)
        self.apply(folded.window)
        self.reports += folded.reports
        return folded.reports
