"""A relay's log in memory: for tests, and for a relay inside a program that keeps nothing.

- It keeps every promise of the port but one: it is gone with the process.
- Nothing in it waits, so each call is one step; no lock is needed within one event loop.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from walstore.canon import canonical_bytes, parse
from walstore.relay.frontier import bare, told_apart, undominated
from walstore.relay.log import (
    READERS_MAX,
    Accepted,
    Bootstrap,
    Conflict,
    DocumentStatus,
    Event,
    FeedPage,
    Filter,
    NewElement,
    NewSnapshot,
    Notice,
    Page,
    ReaderMark,
    Removal,
    Removed,
    Row,
    StoredRecord,
    StoredSnapshot,
    record_revision,
)


@dataclass(slots=True)
class _Document:
    """The places of a document's events in the relay's order."""

    elements: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    head: int = 0
    floor: int = 0


class MemoryLog:
    """Events in a list, the one with seq n at place n - 1."""

    def __init__(self) -> None:
        self._relay_id = secrets.token_hex(16)
        self._events: list[Event] = []
        self._known: dict[tuple[str, str], Accepted] = {}
        self._documents: dict[str, _Document] = {}
        self._min_seq = 1
        self._readers: dict[str, dict[str, ReaderMark]] = {}
        self._grants: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._records: dict[tuple[str, str], StoredRecord] = {}
        self._settings: dict[str, bytes] = {}

    @property
    def relay_id(self) -> str:
        """Names this log, as long as it lives."""
        return self._relay_id

    async def append(self, elements: Sequence[NewElement], now_ms: int) -> list[Accepted]:
        """Keep elements; known ones keep their place."""
        return [self._append(element, now_ms) for element in elements]

    def _append(self, element: NewElement, now_ms: int) -> Accepted:
        known = self._known.get((element.document, element.id))
        if known is not None:
            return known._replace(is_new=False)
        document = self._documents.setdefault(element.document, _Document())
        previous, document.head = document.head, max(now_ms, document.head + 1)
        event = Event(
            seq=len(self._events) + 1,
            id=element.id,
            kind="element",
            document=element.document,
            author=element.author,
            ts=document.head,
            accepted_ms=now_ms,
            signature=element.signature,
            vc={},
            is_deletion=False,
            payload=element.data,
        )
        document.elements.append(event.seq)
        return self._accept(event, previous)

    def _accept(self, event: Event, previous_ts: int) -> Accepted:
        self._events.append(event)
        accepted = Accepted(event.ts, event.seq, True, previous_ts)
        self._known[event.document, event.id] = accepted
        return accepted

    async def page(self, document: str, after: int, *, count_max: int, bytes_max: int) -> Page:
        """Elements above a `ts`, at least one if there is any, until a limit is passed."""
        found = self._documents.get(document, _Document())
        rows: list[Row] = []
        if after >= found.floor:
            size = 0
            for row in self._rows(found.elements[self._place(found, after) :]):
                rows.append(row)
                size += len(row.data)
                if len(rows) >= count_max or size >= bytes_max:
                    break
        is_more = bool(rows) and rows[-1].ts < found.head
        return Page(rows, is_more, found.floor, found.head)

    async def tail(self, document: str, upto: int, count: int) -> list[Row]:
        """The newest elements up to a `ts` that still have their payload, ascending."""
        found = self._documents.get(document, _Document())
        first, end = self._place(found, found.floor), self._place(found, upto)
        return list(self._rows(found.elements[max(first, end - count) : end]))

    def _place(self, document: _Document, ts: int) -> int:
        return bisect_right(document.elements, ts, key=lambda seq: self._events[seq - 1].ts)

    def _rows(self, seqs: Sequence[int]) -> Iterator[Row]:
        for seq in seqs:
            event = self._events[seq - 1]
            assert event.payload is not None
            yield Row(event.ts, event.seq, event.author, event.signature, event.payload)

    def _at(self, seqs: Sequence[int]) -> list[Event]:
        return [self._events[seq - 1] for seq in seqs]

    async def put_snapshot(self, snapshot: NewSnapshot, now_ms: int) -> Accepted | Conflict:
        """Make a snapshot the current one, if the current revision is the one that it replaces."""
        known = self._known.get((snapshot.document, snapshot.id))
        if known is not None:
            return known._replace(is_new=False)
        document = self._documents.get(snapshot.document, _Document())
        current = self._current(document)
        revision = current.id if current is not None else None
        if revision != snapshot.revision:
            return Conflict(revision, "another snapshot is current")
        if current is not None and current.ts > snapshot.upto_ts:
            return Conflict(revision, "the current snapshot covers more")
        if snapshot.upto_ts > document.head:
            return Conflict(revision, "it covers elements that the log does not have")
        event = Event(
            seq=len(self._events) + 1,
            id=snapshot.id,
            kind="snapshot",
            document=snapshot.document,
            author=snapshot.author,
            ts=snapshot.upto_ts,
            accepted_ms=now_ms,
            signature="",
            vc=dict(snapshot.vc),
            is_deletion=snapshot.is_deletion,
            payload=snapshot.text,
        )
        self._documents.setdefault(snapshot.document, document).snapshots.append(event.seq)
        return self._accept(event, 0)

    def _current(self, document: _Document) -> Event | None:
        there = [event for event in self._at(document.snapshots) if event.payload is not None]
        return max(there, key=lambda event: (event.ts, event.seq), default=None)

    async def snapshot(self, document: str) -> StoredSnapshot | None:
        """The current snapshot."""
        current = self._current(self._documents.get(document, _Document()))
        if current is None or current.payload is None:
            return None
        return StoredSnapshot(current.id, current.payload)

    async def snapshot_part(
        self, document: str, revision: str, *, start: int, size: int
    ) -> bytes | None:
        """Some bytes of a snapshot's text; None if it is not there."""
        wanted = Filter(documents=frozenset({document}), kinds=frozenset({"snapshot"}))
        for event in await self.find([revision], wanted):
            return None if event.payload is None else event.payload[start : start + size]
        return None

    async def snapshots(self, document: str) -> list[Event]:
        """The snapshots of a document that were not compacted, payloads as empty bytes."""
        found = self._documents.get(document, _Document())
        return told_apart(
            event._replace(payload=b"")
            for event in self._at(found.snapshots)
            if event.payload is not None
        )

    async def find(
        self, ids: Sequence[str], wanted: Filter, *, payload_bytes_max: int | None = None
    ) -> list[Event]:
        """The events with these ids that pass a filter, by seq."""
        names = set(ids)
        found = [event for event in self._events if event.id in names and _passes(event, wanted)]
        if payload_bytes_max is None:
            return found
        return [
            event._replace(payload=b"") if len(event.payload or b"") > payload_bytes_max else event
            for event in found
        ]

    async def feed(
        self,
        since: int,
        until: int | None,
        wanted: Filter,
        *,
        count_max: int,
        bytes_max: int,
        seqs_max: int | None = None,
    ) -> FeedPage:
        """Events above a seq and up to another one; compacted ones too, without their payload."""
        head = len(self._events)
        end = head if until is None else min(until, head)
        if since + 1 < self._lowest:
            return FeedPage([], since, False, self._lowest, head)
        looked = end if seqs_max is None else min(end, since + seqs_max)
        events: list[Event] = []
        size = 0
        for event in self._events[since : max(looked, since)]:
            if not _passes(event, wanted):
                continue
            if len(events) >= count_max or (events and size >= bytes_max):
                return FeedPage(events, events[-1].seq, True, self._lowest, head)
            events.append(event)
            size += len(event.payload or b"") + sum(map(len, event.vc))
        return FeedPage(events, max(since, looked), looked < end, self._lowest, head)

    @property
    def _lowest(self) -> int:
        return self._min_seq if self._events else 0

    async def bootstrap(
        self,
        wanted: Filter,
        *,
        since: int = 0,
        until: int | None = None,
        count_max: int | None = None,
    ) -> Bootstrap:
        """The snapshots that no other one of their document dominates."""
        head = len(self._events)
        window = range(since + 1, (head if until is None else until) + 1)
        there = (
            event
            for event in self._events
            if event.kind == "snapshot" and event.payload is not None
        )
        events = [
            bare(event)
            for event in undominated(there)
            if event.seq in window and _passes(event, wanted)
        ]
        is_more = count_max is not None and len(events) > count_max
        return Bootstrap(head, self._lowest, events[:count_max], is_more)

    async def documents(self, prefix: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is, newest first."""
        found = [
            self._status(key, document)
            for key, document in self._documents.items()
            if key.startswith(prefix)
        ]
        found.sort(key=lambda status: status.last_accepted_ms, reverse=True)
        return found[:count_max]

    async def documents_after(self, document: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is of the documents above a key, by key."""
        keys = sorted(key for key in self._documents if key > document)
        return [self._status(key, self._documents[key]) for key in keys[:count_max]]

    async def documents_count(self) -> int:
        """How many documents there are."""
        return len(self._documents)

    def _status(self, key: str, document: _Document) -> DocumentStatus:
        events = self._at(document.elements) + self._at(document.snapshots)
        there = [event for event in events if event.payload is not None]
        current = self._current(document)
        return DocumentStatus(
            document=key,
            elements=sum(event.kind == "element" for event in there),
            payload_bytes=sum(len(event.payload or b"") for event in there),
            head=document.head,
            floor=document.floor,
            snapshots=sum(event.kind == "snapshot" for event in there),
            snapshot_upto=current.ts if current is not None else 0,
            last_accepted_ms=max(events, key=lambda event: event.seq).accepted_ms,
        )

    async def compact(self, removals: Sequence[Removal]) -> Removed:
        """Remove payloads, keep rows. The floors of the documents rise, and never fall."""
        gone: list[Event] = []
        for removal in removals:
            document = self._documents.get(removal.document)
            if document is None:
                continue
            gone += self._strip(document.elements[: self._place(document, removal.below_ts)])
            names = set(removal.snapshot_ids)
            gone += self._strip(
                [event.seq for event in self._at(document.snapshots) if event.id in names]
            )
            document.floor = max(document.floor, min(removal.below_ts, document.head))
        return Removed(
            elements=sum(event.kind == "element" for event in gone),
            snapshots=sum(event.kind == "snapshot" for event in gone),
            payload_bytes=sum(len(event.payload or b"") for event in gone),
        )

    def _strip(self, seqs: Sequence[int]) -> list[Event]:
        gone = [event for event in self._at(seqs) if event.payload is not None]
        for event in gone:
            self._events[event.seq - 1] = event._replace(payload=None)
        return gone

    async def trim(self, min_seq: int) -> None:
        """Let go of the replay of everything below a seq; the rows stay."""
        # A reader that has seen everything is never too old.
        self._min_seq = max(self._min_seq, min(min_seq, len(self._events) + 1))

    async def note_readers(self, marks: Sequence[ReaderMark]) -> None:
        """Remember how far readers are; a mark replaces that reader's former one."""
        for mark in marks:
            if mark.document in self._documents:
                self._readers.setdefault(mark.document, {})[mark.key] = mark
        for document in {mark.document for mark in marks}:
            known = self._readers.get(document, {})
            last = sorted(known, key=lambda key: (-known[key].seen_ms, key))
            for key in last[READERS_MAX:]:
                del known[key]

    async def readers(self, document: str) -> list[ReaderMark]:
        """The readers of a document that are known."""
        return list(self._readers.get(document, {}).values())

    async def put_grant(self, grant: Mapping[str, Any], now_ms: int) -> None:
        """Keep a grant that was checked, in place of an older one of the same by, to and prefix."""
        name = (grant["by"], grant["to"], grant["prefix"])
        former = self._grants.get(name)
        if former is None or former["at"] < grant["at"]:
            self._grants[name] = deepcopy(dict(grant))

    async def grants(self) -> list[dict[str, Any]]:
        """Every grant that counts."""
        return deepcopy(list(self._grants.values()))

    async def record(self, document: str, name: str) -> StoredRecord | None:
        """A record of a document."""
        return self._records.get((document, name))

    async def put_record(
        self, document: str, name: str, text: bytes, revision: str | None
    ) -> str | Conflict:
        """Replace a revision of a record; the same text again is answered as before."""
        stored, new = self._records.get((document, name)), record_revision(text)
        current = None if stored is None else stored.revision
        if current not in (revision, new):
            return Conflict(current, "another record is current")
        self._records[document, name] = StoredRecord(new, text)
        return new

    async def put_setting(self, name: str, value: Any) -> None:
        """Keep a JSON value under a name."""
        self._settings[name] = canonical_bytes(value)

    async def settings(self) -> dict[str, Any]:
        """Everything that was kept."""
        return {name: parse(text) for name, text in self._settings.items()}

    async def notices(self) -> AsyncIterator[Notice]:
        """Ends at once: no other process can see this log."""
        others: tuple[Notice, ...] = ()
        for notice in others:
            yield notice

    async def aclose(self) -> None:
        """Nothing to do: it is gone when nobody holds it."""


def _passes(event: Event, wanted: Filter) -> bool:
    return (
        event.document.startswith(wanted.prefix)
        and (wanted.documents is None or event.document in wanted.documents)
        and (wanted.authors is None or event.author in wanted.authors)
        and (wanted.kinds is None or event.kind in wanted.kinds)
    )
