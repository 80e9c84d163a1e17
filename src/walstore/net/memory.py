"""Logs, snapshots and records in memory: for tests, and for documents within one process.

- It keeps every promise of the ports: a `ts` that always increases, the same `ts` for the same
  element, ascending pages, replacement by compare and swap.
- What it hands out is text, as if it had come over a wire.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from operator import attrgetter
from typing import Any

import anyio

from walstore.canon import canonical_bytes, content_hash, parse
from walstore.document.ports import (
    Body,
    LogBehindError,
    RawElement,
    RecordConflictError,
    SnapshotConflictError,
    StoredRecord,
    StoredSnapshot,
)
from walstore.wire.limits import PULL_ELEMENTS_MAX

_ts = attrgetter("ts")


class MemoryTransport:
    """Logs by document key."""

    def __init__(self, *, page_size: int = PULL_ELEMENTS_MAX) -> None:
        self._logs: dict[str, list[RawElement]] = {}
        self._known: dict[tuple[str, str, str, bytes], int] = {}
        self._page_size = page_size
        self._followers: dict[str, set[MemoryFollow]] = {}

    async def append(self, document_key: str, body: Body) -> int:
        """Append an element; the same one again gets the same `ts`."""
        name = (document_key, body.author, body.signature, body.canonical)
        ts = self._known.get(name)
        if ts is None:
            log = self._logs.setdefault(document_key, [])
            ts = log[-1].ts + 1 if log else 1
            log.append(RawElement(ts, body.canonical, body.author, body.signature))
            self._known[name] = ts
            for follower in self._followers.get(document_key, ()):
                follower.ring()
        return ts

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        """One page of elements above a checkpoint.

        Raises:
            LogBehindError: The log never reached the checkpoint.
        """
        log = self._logs.get(document_key, [])
        head = log[-1].ts if log else 0
        if checkpoint == head:
            return []
        if checkpoint > head:
            raise LogBehindError(head=head, checkpoint=checkpoint)
        start = bisect_right(log, checkpoint, key=_ts)
        return log[start : start + self._page_size]

    async def tail(self, document_key: str, upto: int, count: int) -> list[RawElement]:
        """The newest elements up to a `ts`."""
        log = self._logs.get(document_key, [])
        end = bisect_right(log, upto, key=_ts)
        return log[max(end - count, 0) : end]

    @asynccontextmanager
    async def follow(self, document_key: str, checkpoint: int) -> AsyncIterator[MemoryFollow]:
        """Be told, for the length of a block, when there may be something new to pull."""
        followers = self._followers.setdefault(document_key, set())
        follower = MemoryFollow()
        followers.add(follower)
        try:
            if await self.pull(document_key, checkpoint):
                follower.ring()
            yield follower
        finally:
            followers.discard(follower)


class MemoryFollow:
    """Somebody who follows a log in memory."""

    def __init__(self) -> None:
        self._rung = anyio.Event()

    def ring(self) -> None:
        """There is something new."""
        self._rung.set()

    async def wait(self) -> None:
        """Return when there may be something new to pull since the last time."""
        await self._rung.wait()
        self._rung = anyio.Event()


class MemorySnapshots:
    """Snapshot documents by key."""

    def __init__(self) -> None:
        self._documents: dict[str, bytes] = {}

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The stored snapshot, or None."""
        text = self._documents.get(snapshot_key)
        return None if text is None else StoredSnapshot(parse(text), content_hash(parse(text)))

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace a revision.

        Raises:
            SnapshotConflictError: The stored revision is another one.
        """
        stored = await self.read(snapshot_key)
        if (stored.revision if stored is not None else None) != revision:
            raise SnapshotConflictError
        self._documents[snapshot_key] = canonical_bytes(document)


class MemoryRecords:
    """Records by document key and name."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], StoredRecord] = {}

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        """The stored record, or None."""
        return self._records.get((document_key, name))

    async def write_record(
        self, document_key: str, name: str, text: str, revision: str | None
    ) -> str:
        """Replace a revision; the same text again is never a conflict.

        Raises:
            RecordConflictError: The stored revision is another one.
        """
        stored, new = self._records.get((document_key, name)), sha256(text.encode()).hexdigest()
        current = None if stored is None else stored.revision
        if current not in (revision, new):
            raise RecordConflictError
        self._records[document_key, name] = StoredRecord(text, new)
        return new
