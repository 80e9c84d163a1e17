"""What a relay needs of its database: logs, snapshots, one order of acceptance.

- Whatever a call has answered is on disk, synced, and survives a kill of process or machine.
- A call that raises `LogError` has changed nothing. If it was the sync that failed, a relay that is
  started anew may find it carried out all the same, whole: who makes it again is answered so.
- Elements and snapshots are *events*: each gets the next relay seq, in the order in which they
  become visible. A reader that has seen a seq never meets a lower one later.
- `ts` of a document always increases, whatever the clock says, and after everything was compacted.
- A payload goes, its row stays: what was accepted once is known for ever, and is never taken again.
- The signatures were checked before; a log knows rows, not what they mean.

The suite in `walstore.testing` checks all of it, for each implementation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, Protocol

from walstore.errors import StorageError

# Documents whose log's name is remembered: every answer holds it.
_LOG_IDS_MAX = 4096

Kind = Literal["element", "snapshot"]

# Readers of one document that are known; of more, those who read last.
READERS_MAX: Final = 1_000


class LogError(StorageError):
    """The database cannot do it now: it is full, locked, read-only or gone."""


class LogInUseError(LogError):
    """Another relay has the log."""


class LogCorruptError(LogError):
    """The database is damaged, or is none of ours; nothing was written to it."""


class NewElement(NamedTuple):
    """An element that was checked and is to be appended; `data` is its canonical text."""

    document: str
    id: str
    author: str
    signature: str
    data: bytes


class NewSnapshot(NamedTuple):
    """A snapshot that was checked and is to replace a revision.

    Attributes:
        document: The key of the document that it is of.
        revision: What it replaces; None if there must not be any.
        id: Its own revision, the SHA-256 of its text.
        author: Who signed it.
        upto_ts: The last element that it covers.
        vc: What it covers, by writer: its `writerSeq`.
        is_deletion: Whether it says that the document is deleted.
        text: Its canonical JSON text.
    """

    document: str
    revision: str | None
    id: str
    author: str
    upto_ts: int
    vc: Mapping[str, int]
    is_deletion: bool
    text: bytes


class Accepted(NamedTuple):
    """Where an event stands.

    Attributes:
        ts: The element's place in its document; for a snapshot its `upto_ts`.
        seq: Its place in the relay's order.
        is_new: Whether it was stored just now, or was there before.
        previous_ts: For a new element: the `ts` of the one before it; 0 if it is the first.
    """

    ts: int
    seq: int
    is_new: bool
    previous_ts: int


class Conflict(NamedTuple):
    """A snapshot or record was not stored: another revision is current, or covers more."""

    revision: str | None
    reason: str


class Row(NamedTuple):
    """A stored element."""

    ts: int
    seq: int
    author: str
    signature: str
    data: bytes


class Page(NamedTuple):
    """Elements of a document, ascending.

    Attributes:
        rows: The elements; empty if `after` is below the floor.
        is_more: Whether there are more above the last one.
        floor: Elements up to this `ts` may be gone; 0 if none is.
        head: The `ts` of the newest element, there or gone; 0 if there never was one.
    """

    rows: Sequence[Row]
    is_more: bool
    floor: int
    head: int


class Event(NamedTuple):
    """An element or a snapshot as the feed shows it.

    Attributes:
        seq: Its place in the relay's order.
        id: Its link, or its revision.
        kind: Which of the two it is.
        document: The document key.
        author: Who signed it.
        ts: The element's `ts`, or what the snapshot covers.
        accepted_ms: When it was accepted.
        signature: The element's signature; empty for a snapshot, which carries its own.
        vc: The snapshot's `writerSeq`; empty for an element.
        is_deletion: Whether it is a snapshot that says that the document is deleted.
        payload: The element's data, or the snapshot's text; None if it was compacted.
    """

    seq: int
    id: str
    kind: Kind
    document: str
    author: str
    ts: int
    accepted_ms: int
    signature: str
    vc: Mapping[str, int]
    is_deletion: bool
    payload: bytes | None


class Filter(NamedTuple):
    """Which events are wanted; None means any."""

    prefix: str = ""
    documents: frozenset[str] | None = None
    authors: frozenset[str] | None = None
    kinds: frozenset[str] | None = None


class FeedPage(NamedTuple):
    """Events in the relay's order.

    Attributes:
        events: The events that were wanted; empty if `since` is too old.
        last_seq: Up to where the page covers the feed: the last event if it was cut, else the end;
            or as far as was looked, where that was limited.
        is_more: Whether it was cut.
        min_seq: The lowest seq that can still be replayed; 0 if nothing was ever accepted.
        head_seq: The newest seq there is.
    """

    events: Sequence[Event]
    last_seq: int
    is_more: bool
    min_seq: int
    head_seq: int


class Bootstrap(NamedTuple):
    """The current snapshots, and the seq that they are current at: one consistent read.

    Their payloads (empty bytes) and what they cover are left out: together they may be more than
    fits the memory.

    Attributes:
        snapshot_seq: The newest seq there is.
        min_seq: The lowest seq that can still be replayed; 0 if nothing was ever accepted.
        events: The snapshots, by seq.
        is_more: Whether there are more above the last one.
    """

    snapshot_seq: int
    min_seq: int
    events: Sequence[Event]
    is_more: bool


class StoredSnapshot(NamedTuple):
    """The current snapshot of a document."""

    revision: str
    text: bytes


class StoredRecord(NamedTuple):
    """A record of a document; its revision is the SHA-256 of its text."""

    revision: str
    text: bytes


class DocumentStatus(NamedTuple):
    """What there is of one document."""

    document: str
    elements: int
    payload_bytes: int
    head: int
    floor: int
    snapshots: int
    snapshot_upto: int
    last_accepted_ms: int


class ReaderMark(NamedTuple):
    """How far somebody has read a document, and when that was."""

    document: str
    key: str
    checkpoint: int
    seen_ms: int


class Removal(NamedTuple):
    """What a compaction is to remove from one document.

    Attributes:
        document: The document.
        snapshot_ids: The snapshots whose payload goes.
        below_ts: Elements up to this `ts` lose their payload; 0 for none.
    """

    document: str
    snapshot_ids: Collection[str]
    below_ts: int


class Removed(NamedTuple):
    """What a compaction has removed."""

    elements: int
    snapshots: int
    payload_bytes: int


class KeptRecord(NamedTuple):
    """A record that another process of this relay has replaced."""

    document: str
    name: str
    revision: str


class Notice(NamedTuple):
    """Another process of this relay has accepted something, up to this seq, or replaced records."""

    seq: int
    records: tuple[KeptRecord, ...] = ()


class RelayLog(Protocol):
    """A relay's database. It is opened by its class, and closed by `aclose`."""

    @property
    def relay_id(self) -> str:
        """Names this database, for ever: 32 hex digits."""
        ...

    async def append(self, elements: Sequence[NewElement], now_ms: int) -> list[Accepted]:
        """Store elements in one durable step; known ones keep their place.

        Raises:
            LogError: None of them was stored.
        """
        ...

    async def page(self, document: str, after: int, *, count_max: int, bytes_max: int) -> Page:
        """Elements above a `ts`, at least one if there is any, until a limit is passed."""
        ...

    async def tail(self, document: str, upto: int, count: int) -> list[Row]:
        """The newest elements up to a `ts` that still have their payload, ascending."""
        ...

    async def put_snapshot(self, snapshot: NewSnapshot, now_ms: int) -> Accepted | Conflict:
        """Make a snapshot the current one, if the current revision is the one that it replaces.

        The same snapshot again is answered as before. It is a conflict if the current revision is
        another one, if that one has a higher `upto_ts`, or if `upto_ts` is above the log's head.
        """
        ...

    async def snapshot(self, document: str) -> StoredSnapshot | None:
        """The current snapshot: the one with the highest `upto_ts`, of several the newest."""
        ...

    async def snapshot_part(
        self, document: str, revision: str, *, start: int, size: int
    ) -> bytes | None:
        """Some bytes of a snapshot's text; None if it is not there.

        They are not checked: that is for the whole, which `snapshot` and `find` read.
        """
        ...

    async def snapshots(self, document: str) -> list[Event]:
        """The snapshots of a document that were not compacted, oldest first.

        Their payloads are given as empty bytes, so that they need not be read. What those cover
        that another one dominates is left out: there may be many, of some MiB each.
        """
        ...

    async def find(
        self, ids: Sequence[str], wanted: Filter, *, payload_bytes_max: int | None = None
    ) -> list[Event]:
        """The events with these ids that pass a filter, by seq.

        Payloads of more than `payload_bytes_max` are given as empty bytes, and are not read.
        """
        ...

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
        """Events above a seq and up to another one; compacted ones too, without their payload.

        What snapshots cover counts towards the bytes, as their payloads do: a page holds both.
        With `seqs_max` no more seqs than that are looked at, wanted or not: a page may be empty
        then, and still not the last.
        """
        ...

    async def bootstrap(
        self,
        wanted: Filter,
        *,
        since: int = 0,
        until: int | None = None,
        count_max: int | None = None,
    ) -> Bootstrap:
        """The snapshots that no other one of their document dominates, in one consistent read.

        With limits, those of them above a seq and up to another one, and no more than a count:
        what lies beyond is neither loaded nor compared, but for what dominates one of these.
        """
        ...

    async def documents(self, prefix: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is, newest first."""
        ...

    async def documents_after(self, document: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is of the documents above a key, by key: a way through all of them."""
        ...

    async def documents_count(self) -> int:
        """How many documents there are; none of them is loaded for that."""
        ...

    async def compact(self, removals: Sequence[Removal]) -> Removed:
        """Remove payloads, keep rows. The floors of the documents rise, and never fall."""
        ...

    async def trim(self, min_seq: int) -> None:
        """Let go of the replay of everything below a seq; the rows stay."""
        ...

    async def note_readers(self, marks: Sequence[ReaderMark]) -> None:
        """Remember how far readers are; a mark replaces that reader's former one.

        Whoever reads cannot fill a database: a mark of a document that nobody has written to is
        not kept, and of one that very many read, `READERS_MAX` are.
        """
        ...

    async def readers(self, document: str) -> list[ReaderMark]:
        """The readers of a document that are known."""
        ...

    async def put_grant(self, grant: Mapping[str, Any], now_ms: int) -> None:
        """Keep a grant that was checked, in place of an older one of the same by, to and prefix."""
        ...

    async def grants(self) -> list[dict[str, Any]]:
        """Every grant that counts."""
        ...

    async def record(self, document: str, name: str) -> StoredRecord | None:
        """A record of a document."""
        ...

    async def put_record(
        self, document: str, name: str, text: bytes, revision: str | None
    ) -> str | Conflict:
        """Replace a revision of a record, and return the new one; None if there must not be any.

        The same text again is answered as before. It is a conflict if the current revision is
        another one than the one to replace.
        """
        ...

    async def put_setting(self, name: str, value: Any) -> None:
        """Keep a JSON value under a name."""
        ...

    async def settings(self) -> dict[str, Any]:
        """Everything that was kept."""
        ...

    def notices(self) -> AsyncIterator[Notice]:
        """What other processes accept in the same database; ends at once if there cannot be any."""
        ...

    async def aclose(self) -> None:
        """Close the database, after what was begun is done."""
        ...


@lru_cache(maxsize=_LOG_IDS_MAX)
def log_id(relay_id: str, document: str) -> str:
    """Names the log that a database holds under a document key."""
    return sha256(f"walstore-log-v1\n{relay_id}\n{document}".encode()).hexdigest()[:32]


def record_revision(text: bytes) -> str:
    """Names a record by its text."""
    return sha256(text).hexdigest()


def dominates(left: Event, right: Event) -> bool:
    """Whether one snapshot makes another one of its document history.

    It does if it covers all that the other does and reaches as far; of equals, the newer one does.
    What a producer claims to cover beyond what it reaches cannot push honest snapshots aside.
    """
    if left.ts < right.ts or not covers(left.vc, right.vc):
        return False
    return left.seq > right.seq or left.ts > right.ts or not covers(right.vc, left.vc)


def covers(left: Mapping[str, int], right: Mapping[str, int]) -> bool:
    """Whether one vector clock is at least another; a missing writer counts as 0."""
    return all(left.get(writer, 0) >= seq for writer, seq in right.items())
