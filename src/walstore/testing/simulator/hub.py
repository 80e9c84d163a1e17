"""A relay's log and what is done with it in a relay, within reach of simulated lines.

- The log is the relay's own in memory, and what comes in is checked as a relay checks it.
- A hostile relay shows somebody else than it holds: a `View` hides, ends early, or puts another
  snapshot in the place of the stored one. What is forged or repeated is put into the log itself.
- Everything that was ever accepted is remembered, for whoever checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from walstore.canon import canonical_bytes, parse
from walstore.document.ports import (
    Body,
    CheckpointTooOldError,
    LogBehindError,
    RawElement,
    SnapshotConflictError,
    StoredSnapshot,
)
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.errors import MalformedError
from walstore.net.faults import AppendRefusedError
from walstore.relay.checking import check_element, check_snapshot
from walstore.relay.compaction import compact_all
from walstore.relay.log import Conflict, NewElement
from walstore.relay.memory import MemoryLog
from walstore.relay.retention import LogMode, Policy
from walstore.relay.session import PutWhole
from walstore.wire.frames import Append, Code

_PAGE_BYTES_MAX = 2**20


def _nothing(element: RawElement) -> bool:
    return False


@dataclass
class View:
    """What a hostile relay shows to one reader."""

    hides: Callable[[RawElement], bool] = _nothing
    ends_at: int | None = None
    snapshot: StoredSnapshot | None = None
    hides_snapshot: bool = False

    @property
    def is_honest(self) -> bool:
        """Whether it is just what the log holds."""
        return self == View()


@dataclass
class Hub:
    """One document's log at a relay."""

    document_key: str
    now_ms: Callable[[], int]
    page_size: int
    log: MemoryLog = field(default_factory=MemoryLog)
    views: dict[str, View] = field(default_factory=dict)
    # Every element that was ever taken, by its author's hand or not; and every snapshot.
    accepted: list[RawElement] = field(default_factory=list)
    snapshots: list[tuple[int, StoredSnapshot]] = field(default_factory=list)
    # The names of the elements, by `ts`; and the `ts` of those that nobody may take.
    ids: dict[int, str] = field(default_factory=dict)
    forged: set[int] = field(default_factory=set)
    # Whether to acknowledge the next element, and forget it.
    lies: int = 0

    def view(self, reader: str) -> View:
        """What a reader is shown."""
        return self.views.setdefault(reader, View())

    # ── what a relay does ──────────────────────────────────────────────────────────────

    async def append(self, body: Body) -> int:
        """Check and store an element."""
        frame = Append("1", self.document_key, None, body.author, body.signature, body.canonical)
        try:
            element = check_element(frame)
        except MalformedError as error:
            raise AppendRefusedError(Code.INVALID, error.reason) from error
        if self.lies:
            self.lies -= 1
            return await self.head() + 1
        return await self.store(element)

    async def store(self, element: NewElement) -> int:
        """Store anything."""
        (place,) = await self.log.append([element], self.now_ms())
        if place.is_new:
            self.ids[place.ts] = element.id
            self.accepted.append(
                RawElement(place.ts, element.data, element.author, element.signature)
            )
        return place.ts

    async def pull(self, reader: str, checkpoint: int) -> list[RawElement]:
        """A page as the reader is shown it."""
        view, after = self.view(reader), checkpoint
        while True:
            page = await self.log.page(
                self.document_key, after, count_max=self.page_size, bytes_max=_PAGE_BYTES_MAX
            )
            head = page.head if view.ends_at is None else min(view.ends_at, page.head)
            if after < page.floor:
                raise CheckpointTooOldError(page.floor)
            if checkpoint > head:
                raise LogBehindError(head=head, checkpoint=checkpoint)
            rows = [RawElement(row.ts, row.data, row.author, row.signature) for row in page.rows]
            shown = [row for row in rows if row.ts <= head and not view.hides(row)]
            if shown or not page.is_more:
                return shown
            after = rows[-1].ts

    async def tail(self, reader: str, upto: int, count: int) -> list[RawElement]:
        """The newest elements up to a `ts`, as the reader is shown them."""
        view = self.view(reader)
        upto = upto if view.ends_at is None else min(upto, view.ends_at)
        rows = await self.log.tail(self.document_key, upto, count)
        found = [RawElement(row.ts, row.data, row.author, row.signature) for row in rows]
        return [row for row in found if not view.hides(row)]

    async def read(self, reader: str) -> StoredSnapshot | None:
        """The snapshot that the reader is shown."""
        view = self.view(reader)
        if view.hides_snapshot:
            return view.snapshot
        stored = await self.log.snapshot(self.document_key)
        return None if stored is None else StoredSnapshot(parse(stored.text), stored.revision)

    async def write(self, document: dict[str, Any], revision: str | None) -> None:
        """Check and store a snapshot."""
        order = PutWhole("1", self.document_key, revision, canonical_bytes(document))
        try:
            snapshot = check_snapshot(order)
        except MalformedError as error:
            raise AppendRefusedError(Code.INVALID, error.reason) from error
        verdict = await self.log.put_snapshot(snapshot, self.now_ms())
        if isinstance(verdict, Conflict):
            raise SnapshotConflictError
        self.snapshots.append((snapshot.upto_ts, StoredSnapshot(document, snapshot.id)))

    async def prune(self, retain_tail_n: int) -> int:
        """Let go of what the current snapshot covers; how many elements went."""
        policy = Policy(log_mode=LogMode.COMPACT_BELOW_SNAPSHOT, retain_tail_n=retain_tail_n)
        removed = await compact_all(self.log, policy, archived_seq=None, now_ms=self.now_ms())
        return removed.elements

    async def head(self) -> int:
        """The `ts` of the newest element."""
        page = await self.log.page(self.document_key, 0, count_max=1, bytes_max=1)
        return page.head

    async def floor(self) -> int:
        """The `ts` up to which elements are gone."""
        page = await self.log.page(self.document_key, 0, count_max=1, bytes_max=1)
        return page.floor

    def relent(self) -> None:
        """Be honest from now on."""
        self.views.clear()
        self.lies = 0


class WholeLog:
    """Everything that was ever accepted, pruned or not, as a transport: for whoever checks."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def append(self, document_key: str, body: Body) -> int:
        """Nobody writes here."""
        raise NotImplementedError

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        """All elements above a checkpoint."""
        return [element for element in self._hub.accepted if element.ts > checkpoint]


def document_key_of(snapshot_key: str) -> str:
    """The document that a snapshot is of."""
    return snapshot_key.removesuffix(SNAPSHOT_SUFFIX)
