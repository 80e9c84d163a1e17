"""A document: a signed log, folded, edited and committed by one session of one author.

- Edits are synchronous and local; `commit`, `pull`, `snapshot` and `open` are awaited and take
  turns. Edits made while they wait are kept for the next commit.
- A commit is sealed once and sent, byte for byte the same, until it is acknowledged.
- Who may write and who may sign snapshots has to be said; `ALLOW_ANY` says it explicitly.
- What a relay delivers is checked here; it is believed in nothing but availability and order.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from enum import Enum
from typing import Any, Literal, NamedTuple, cast

import anyio

from walstore.canon import canonical_bytes
from walstore.crdt import Change, Json, MapChanged, Run, WalCrdt
from walstore.document.content import Content
from walstore.document.events import Event, Gap, Rejection, Rollback
from walstore.document.faults import (
    NoSnapshotStoreError,
    NotOpenError,
    ReadOnlyError,
    RejectedElementsError,
    RollbackDetectedError,
    SequenceGapError,
    SessionUsedError,
    SnapshotMismatchError,
    SnapshotRefusedError,
)
from walstore.document.history import Blame, Version, blame_list, versions_of
from walstore.document.ledger import Entry
from walstore.document.log import DocumentLog, Reading, highest_counter, ts_of
from walstore.document.ports import SnapshotConflictError, SnapshotStore, StoredSnapshot, Transport
from walstore.document.sealing import Sealed, Sealer
from walstore.document.snapshot import (
    SNAPSHOT_SUFFIX,
    ForeignSnapshotError,
    Snapshot,
    find_dropped_name,
    make_snapshot,
    read_snapshot,
    same_state,
)
from walstore.document.view import View
from walstore.errors import MalformedError, TransportError
from walstore.sealed.encryptor import Encryptor, PlainEncryptor
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.signed.identity import Identity
from walstore.wire.element import Element
from walstore.wire.envelope import Profile
from walstore.wire.limits import COUNTER_JUMP_MAX, SEEN_SESSIONS_MAX, TS_MAX

Posture = Literal["trust", "trust-retain-tail", "re-derive"]
Keys = Collection[str] | Callable[[str], bool]

_SNAPSHOT_ATTEMPTS_MAX = 3


def ALLOW_ANY(key: str) -> bool:  # noqa: N802 - reads as the constant that it stands for
    """Let any key write, or sign snapshots: for logs that something else protects."""
    return True


class SnapshotVerdict(Enum):
    """What became of the stored snapshot."""

    NONE = "there is none, or none by a key with the role"
    TRUSTED = "adopted on its producer's word"
    VERIFIED = "the log folds to it"
    UNVERIFIABLE = "adopted; the log before it is pruned or cannot be read"
    MISMATCH = "the log folds to something else"
    FORGED = "it is not what it claims to be"


class Marks(NamedTuple):
    """How far this reader has been, to be kept and given back: what a log must not fall behind.

    Attributes:
        ts: The last `ts` read.
        snapshot_ts: The `uptoTs` of the newest snapshot.
        seqs: The highest seq by replica.
    """

    ts: int = 0
    snapshot_ts: int = 0
    seqs: Mapping[str, int] = {}


class WalDocument:
    """One document, open for one session."""

    def __init__(
        self,
        document_key: str,
        *,
        transport: Transport,
        identity: Identity,
        writers: Keys,
        snapshot_role: Keys,
        encryptor: Encryptor | None = None,
        snapshot_store: SnapshotStore | None = None,
        session_nonce: str | None = None,
        posture: Posture = "trust-retain-tail",
        retain_tail_n: int = 64,
        on_author_error: Literal["throw", "skip"] = "throw",
        strict_sequence: bool = False,
        wire: Literal["packed", "starfish"] = "packed",
        chained: bool = True,
        marks: Marks | None = None,
        on_event: Callable[[Event], None] | None = None,
        pool: Executor | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Describe a document; nothing is read before `open()`.

        Args:
            document_key: The storage path of the log.
            transport: Where the log is.
            identity: Who writes.
            writers: The keys that may write, or a function that knows them.
            snapshot_role: The keys that may sign snapshots, or a function that knows them.
            encryptor: Seals and opens; plain if left out.
            snapshot_store: Where snapshots are; without one they are neither read nor written.
            session_nonce: Names the session; random if left out, and never to be used twice.
            posture: What to believe of a snapshot.
            retain_tail_n: How many of the newest elements to keep for checking again.
            on_author_error: Whether `open` and `pull` raise, after folding all that is good, when
                something was rejected, or only report it.
            strict_sequence: Whether a gap raises as well.
            wire: `packed`, or `starfish` for logs that TypeScript peers read.
            chained: Whether to add the chain to `starfish` elements; `packed` ones have it always.
            marks: The marks of an earlier session.
            on_event: Called with everything that is noticed.
            pool: Threads to verify signatures with.
            now_ms: The time in milliseconds since 1970; the system's if left out.
        """
        self.document_key = document_key
        self.session = secrets.token_hex(16) if session_nonce is None else session_nonce
        self._is_session_given = session_nonce is not None
        self._transport = transport
        self._identity = identity
        self._is_writer = _membership(writers)
        self._is_producer = _membership(snapshot_role)
        self._encryptor = PlainEncryptor() if encryptor is None else encryptor
        self._snapshot_store = snapshot_store
        self._posture = posture
        self._raises = on_author_error == "throw"
        self._is_strict = strict_sequence
        self._profile = Profile(wire)
        self._is_chained = chained
        self._marks = Marks() if marks is None else marks
        self._on_event = on_event
        self._pool = pool
        self._now_ms = _system_ms if now_ms is None else now_ms
        # Taking a free lock does not give way to other tasks: an edit is sent without delay.
        self._lock = anyio.Lock(fast_acquire=True)
        self._sealer = Sealer(
            document_key,
            identity=identity,
            session=self.session,
            encryptor=self._encryptor,
            profile=self._profile,
            is_chained=chained,
        )
        self._is_open = False
        self._read_only: str | None = None
        self._log = self._new_log()
        self._content = self._new_content(self._log)
        # The newest snapshot that is known of, the one that the verdict is on, and the one that the
        # log here starts from.
        self._snapshot: Snapshot | None = None
        self._opened_with: Snapshot | None = None
        self._base: Snapshot | None = None
        self._verdict = SnapshotVerdict.NONE
        self._retained: deque[Element] = deque(maxlen=max(retain_tail_n, 0))
        self._quarantined: list[Rejection] = []
        # On their way: recorded and not sealed yet, sealed and not acknowledged yet, acknowledged
        # and not read in the log yet.
        self._unsealed: list[Run] = []
        self._outbox: deque[Sealed] = deque()
        self._acknowledged: dict[str, Sealed] = {}
        self._seq = 0
        self._author_seq = 0
        self._prev: str | None = None
        self._news: dict[str, int] = {}

    # ── opening ────────────────────────────────────────────────────────────────────────

    async def open(self) -> WalDocument:
        """Bootstrap from the snapshot and the log; calling it again does nothing.

        Raises:
            RejectedElementsError: Something was rejected; the document is open all the same.
            SnapshotMismatchError: The snapshot is false; the document is open all the same.
            RollbackDetectedError: The log fell behind the marks; the document is read-only.
            SequenceGapError: Elements are missing, and `strict_sequence` was asked for.
            SessionUsedError: The session nonce was used before.
            TransportError: The log or the snapshot cannot be read now; nothing is open.
        """
        async with self._lock:
            if self._is_open:
                return self
            events = await self._bootstrap()
            self._is_open = True
        self._report(events, is_opening=True)
        return self

    async def __aenter__(self) -> WalDocument:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._unsealed += self._content.take()

    async def _bootstrap(self) -> list[Event]:
        events: list[Event] = []
        # What an attempt that failed has left.
        self._retained.clear()
        self._quarantined.clear()
        self._news.clear()
        snapshot, verdict = await self._load_snapshot(events)
        log = self._new_log()
        if self._posture == "re-derive":
            verdict, log = await self._derive(log, snapshot, verdict, events)
        else:
            if snapshot is not None:
                self._adopt(log, snapshot)
                if self._posture == "trust-retain-tail":
                    verdict = await self._retain_below(log, snapshot, verdict, events)
            await self._read_all(log, events)
        self._check_session(log)
        derived = verdict in (SnapshotVerdict.VERIFIED, SnapshotVerdict.MISMATCH)
        self._base = None if self._posture == "re-derive" and derived else snapshot
        if log.is_out_of_order:
            log.crdt = log.refolded(self._base.crdt if self._base is not None else None)
        self._carry_over(log)
        self._log, self._verdict = log, verdict
        self._snapshot = self._opened_with = snapshot
        self._content = self._new_content(log)
        own = log.tracker.highest(self._identity.public_key, None)
        self._author_seq = max(self._author_seq, own)
        if not self._seq:
            self._prev = self._newest_own(log)
        self._check_marks(events)
        return events

    def _new_log(self) -> DocumentLog:
        return DocumentLog(
            self.document_key,
            encryptor=self._encryptor,
            is_writer=self._is_writer,
            now_ms=self._now_ms,
            pool=self._pool,
        )

    def _carry_over(self, log: DocumentLog) -> None:
        """Take what was on its way when the document was closed into a new fold of the log."""
        log.crdt.counter = max(log.crdt.counter, self._log.crdt.counter)
        for sealed in [*self._acknowledged.values(), *self._outbox]:
            if not log.holds(sealed.link):
                log.adopt_own(_own_entry(sealed))
                log.crdt.fold_runs(sealed.runs)
        log.crdt.fold_runs(self._unsealed)

    def _new_content(self, log: DocumentLog) -> Content:
        replica = f"{self._identity.public_key}:{self.session}"
        return Content(log.crdt, replica, self._sealer.check_value, self._sealer.check_name)

    async def _load_snapshot(self, events: list[Event]) -> tuple[Snapshot | None, SnapshotVerdict]:
        if self._snapshot_store is None:
            return None, SnapshotVerdict.NONE
        stored = await self._snapshot_store.read(self.document_key + SNAPSHOT_SUFFIX)
        if stored is None:
            if self._marks.snapshot_ts:
                events.append(Rollback("the snapshot is gone"))
            return None, SnapshotVerdict.NONE
        try:
            snapshot = self._read_snapshot(stored)
        except ForeignSnapshotError:
            return None, SnapshotVerdict.NONE
        except (MalformedError, SealRejectedError) as error:
            events.append(Rejection(None, None, str(error), stored.document, proven=False))
            return None, SnapshotVerdict.FORGED
        except UnreadableError:
            return None, SnapshotVerdict.NONE
        if snapshot.upto_ts < self._marks.snapshot_ts:
            events.append(Rollback("the snapshot is older than the one seen before"))
            return None, SnapshotVerdict.NONE
        return snapshot, SnapshotVerdict.TRUSTED

    def _read_snapshot(self, stored: StoredSnapshot) -> Snapshot:
        return read_snapshot(
            stored.document,
            document_key=self.document_key,
            is_producer=self._is_producer,
            encryptor=self._encryptor,
        )

    def _adopt(self, log: DocumentLog, snapshot: Snapshot) -> None:
        """Start a log where a snapshot ends."""
        # The snapshot keeps its own state, for the next one to build on.
        log.start(snapshot.crdt.clone())
        log.checkpoint = snapshot.upto_ts
        log.heads = dict(snapshot.heads)
        for author, seq in snapshot.writer_seq.items():
            log.tracker.cover(author, None, seq)
        for replica, seq in (snapshot.seqs or {}).items():
            author, _, session = replica.partition(":")
            log.tracker.cover(author, session, seq)
        if snapshot.seqs is None:
            log.tracker.cover_unknown()

    async def _read_all(self, log: DocumentLog, events: list[Event]) -> list[Entry]:
        """Read a log to its end."""
        folded: list[Entry] = []
        while True:
            before = log.checkpoint
            page = await self._transport.pull(self.document_key, before)
            reading = log.read(page)
            folded += self._noted(reading, events)
            # A page that moves nothing is empty, or nothing but refuse.
            if log.checkpoint == before:
                return folded

    def _noted(self, reading: Reading, events: list[Event]) -> list[Entry]:
        events += reading.events
        self._quarantined += [
            event for event in reading.events if isinstance(event, Rejection) and event.proven
        ]
        for entry in reading.folded:
            self._retained.append(entry.element)
            header = entry.header
            if header is not None and header.session != self.session:
                self._news[f"{entry.author}:{header.session}"] = header.seq
        return reading.folded

    async def _derive(
        self,
        log: DocumentLog,
        snapshot: Snapshot | None,
        verdict: SnapshotVerdict,
        events: list[Event],
    ) -> tuple[SnapshotVerdict, DocumentLog]:
        """Fold the log from its start, and hold the snapshot against it where it ends."""
        upto = TS_MAX if snapshot is None else snapshot.upto_ts
        covered: list[object] = []
        rest: list[object] = []
        checkpoint = 0
        while True:
            page = await self._transport.pull(self.document_key, checkpoint)
            newest = max((ts_of(element) for element in page), default=checkpoint)
            for element in page:
                (covered if ts_of(element) <= upto else rest).append(element)
            if newest <= checkpoint:
                break
            checkpoint = newest
        self._noted(log.read(covered), events)
        if snapshot is not None:
            flaw = self._flaw(log, snapshot)
            if flaw is None:
                verdict = SnapshotVerdict.VERIFIED
            elif _is_incomplete(log, snapshot):
                # What is not there cannot be held against the snapshot.
                verdict = SnapshotVerdict.UNVERIFIABLE
                log = self._new_log()
                self._adopt(log, snapshot)
                events[:] = [event for event in events if not isinstance(event, Gap)]
            else:
                verdict = SnapshotVerdict.MISMATCH
                events.append(Rejection(None, snapshot.produced_by, flaw, snapshot.document, True))
        self._noted(log.read(rest), events)
        return verdict, log

    def _flaw(self, log: DocumentLog, snapshot: Snapshot) -> str | None:
        """What in a snapshot is not as the log says."""
        if not same_state(log.crdt, snapshot):
            return "the log folds to another state"
        if snapshot.upto_ts != log.checkpoint:
            return "`uptoTs` is no element's"
        if snapshot.seqs is not None:
            if log.tracker.writer_seq() != snapshot.writer_seq:
                return "`writerSeq` counts other elements"
            if log.tracker.seqs() != snapshot.seqs:
                return "`seqs` counts other elements"
        return None

    async def _retain_below(
        self,
        log: DocumentLog,
        snapshot: Snapshot,
        verdict: SnapshotVerdict,
        events: list[Event],
    ) -> SnapshotVerdict:
        """Keep the newest elements that the snapshot covers, and see that it holds them."""
        count = self._retained.maxlen or 0
        if not count:
            return verdict
        tail = getattr(self._transport, "tail", None)
        if tail is not None:
            page = await tail(self.document_key, snapshot.upto_ts, count)
        else:
            page = await self._page_below(snapshot.upto_ts, count)
        checker = self._new_log()
        checker.tracker.cover_unknown()
        checker.counter = snapshot.crdt.counter
        entries = checker.read(page).folded
        self._retained.extend(entry.element for entry in entries)
        if not _contradicts(entries, snapshot, is_whole=len(page) < count):
            return verdict
        reason = "its tail holds edits that the state does not"
        events.append(Rejection(None, snapshot.produced_by, reason, snapshot.document, True))
        return SnapshotVerdict.MISMATCH

    async def _page_below(self, upto: int, count: int) -> list[object]:
        """The newest elements up to a `ts`, from a transport that can only read forward."""
        newest: deque[object] = deque(maxlen=count)
        checkpoint = 0
        while True:
            page = await self._transport.pull(self.document_key, checkpoint)
            newest.extend(element for element in page if ts_of(element) <= upto)
            last = max((ts_of(element) for element in page), default=checkpoint)
            if last <= checkpoint or last >= upto:
                return list(newest)
            checkpoint = last

    def _check_session(self, log: DocumentLog) -> None:
        replica = f"{self._identity.public_key}:{self.session}"
        if not self._is_session_given or self._seq:
            return
        is_counted = log.tracker.highest(self._identity.public_key, self.session)
        if is_counted or log.ledger.has_replica(replica) or log.crdt.has_replica(replica):
            raise SessionUsedError(self.session)

    def _newest_own(self, log: DocumentLog) -> str | None:
        own = self._identity.public_key
        for entry in reversed(log.ledger.entries):
            if entry.author == own and entry.header is not None:
                return entry.link
        heads = sorted(log.heads.get(own, ()))
        return heads[-1].link if heads else None

    def _check_marks(self, events: list[Event]) -> None:
        if self._log.checkpoint < self._marks.ts:
            events.append(Rollback(f"it ends at {self._log.checkpoint}, before {self._marks.ts}"))
        for replica, seq in self._marks.seqs.items():
            author, _, session = replica.partition(":")
            if self._log.tracker.has_lost(author, session or None, seq):
                events.append(Rollback(f"element {seq} of {author[:8]}… is gone"))
        lost = [event.reason for event in events if isinstance(event, Rollback)]
        self._read_only = lost[0] if lost else None

    # ── reading ────────────────────────────────────────────────────────────────────────

    def materialize(self) -> dict[str, Any]:
        """The document as JSON, uncommitted edits included."""
        return self._opened().materialize()

    def view(self) -> View:
        """The document as an immutable value that remembers its version."""
        return self._opened().view()

    def text(self, name: str) -> str:
        """A text, or the strings of a list joined."""
        return self._opened().text(name)

    def values(self, name: str) -> list[Any]:
        """The values of a list."""
        return self._opened().values(name)

    def field(self, name: str, default: Any = None) -> Any:
        """The value of a register, or `default`."""
        return self._opened().crdt.get_register(name, default)

    def entries(self, name: str) -> dict[str, Any]:
        """The keys of a map with their values."""
        return self._opened().crdt.map_items(name)

    def detected_gaps(self) -> list[Gap]:
        """The elements that are missing now."""
        self._opened()
        return self._log.tracker.gaps()

    def retained_tail(self) -> list[Element]:
        """The newest verified elements, to be checked again."""
        self._opened()
        return list(self._retained)

    def rejected(self) -> list[Rejection]:
        """What authors signed and readers cannot take."""
        self._opened()
        return list(self._quarantined)

    @property
    def current_checkpoint(self) -> int:
        """The `ts` up to which the log was read."""
        return self._log.checkpoint

    @property
    def unsent(self) -> int:
        """How many sealed commits wait to be acknowledged."""
        return len(self._outbox)

    @property
    def unconfirmed(self) -> int:
        """How many sealed commits were not read in the log yet, acknowledged or not."""
        return len(self._outbox) + len(self._acknowledged)

    @property
    def unreadable(self) -> int:
        """How many elements wait for a key."""
        return len(self._log.unreadable)

    @property
    def snapshot_verdict(self) -> SnapshotVerdict:
        """What became of the stored snapshot."""
        self._opened()
        return self._verdict

    @property
    def snapshot_verified(self) -> bool | None:
        """Whether the snapshot was checked and found true; None if none was checked."""
        match self.snapshot_verdict:
            case SnapshotVerdict.VERIFIED:
                return True
            case SnapshotVerdict.MISMATCH | SnapshotVerdict.FORGED:
                return False
            case _:
                return None

    @property
    def marks(self) -> Marks:
        """How far this reader has been; keep it and give it to the next session."""
        seqs = dict(self._marks.seqs)
        for author, session, seq in self._log.tracker.sessions():
            replica = author if session is None else f"{author}:{session}"
            seqs[replica] = max(seqs.get(replica, 0), seq)
        snapshot_ts = self._snapshot.upto_ts if self._snapshot is not None else 0
        return Marks(
            max(self._marks.ts, self._log.checkpoint),
            max(self._marks.snapshot_ts, snapshot_ts),
            seqs,
        )

    def accept_rollback(self) -> None:
        """Go on with a log that lost elements, after a person decided to."""
        self._marks = Marks()
        self._read_only = None

    # ── editing ────────────────────────────────────────────────────────────────────────

    def set_field(self, name: str, value: Json) -> None:
        """Write a register."""
        self._writable().set_field(name, value)

    def delete_field(self, name: str) -> None:
        """Delete a register."""
        self._writable().delete_field(name)

    def insert(self, name: str, index: int, value: Json) -> None:
        """Insert a value into a list: at or below 0 at the head, past the end at the end."""
        self._writable().insert(name, index, value)

    def push(self, name: str, value: Json) -> None:
        """Append a value to a list."""
        content = self._writable()
        content.insert(name, content.crdt.list_length(name), value)

    def remove_at(self, name: str, index: int) -> None:
        """Remove an element of a list; nothing happens if there is none at the position."""
        self._writable().remove(name, index)

    def insert_text(self, name: str, index: int, text: str) -> None:
        """Insert characters into a text."""
        self._writable().insert_text(name, index, text)

    def remove_text(self, name: str, index: int, count: int) -> None:
        """Remove characters of a text, or elements of a list."""
        self._writable().remove(name, index, count)

    def put(self, name: str, key: str, value: Json) -> None:
        """Write a key of an observed-remove map."""
        self._writable().put(name, key, value)

    def drop(self, name: str, key: str) -> None:
        """Remove a key of an observed-remove map; a concurrent write of it stays."""
        self._writable().drop(name, key)

    def migrate(self, name: str) -> None:
        """Empty a name, so that it may be used for another kind of value."""
        self._writable().migrate(name)

    def set_text(
        self, name: str, text: str, *, base: View | None = None, caret: int | None = None
    ) -> None:
        """Make a text read as given; what arrived since `base` was shown is kept.

        Args:
            name: The text.
            text: What it should read.
            base: The view that `text` was edited from; without one, what was last read.
            caret: Where the cursor stands in `text` after the edit; tells equal edits apart.
        """
        self._writable().set_text(name, text, base=base, caret=caret)

    def set_list(
        self,
        name: str,
        values: Sequence[Json],
        *,
        base: View | None = None,
        key: str | Callable[[Any], object] | None = None,
    ) -> None:
        """Make a list hold the given values; what arrived since `base` was shown is kept.

        Args:
            name: The list.
            values: What it should hold.
            base: The view that `values` were edited from; without one, what was last read.
            key: What makes an item the same item after an edit: a member name, or a function.
        """
        self._writable().set_list(name, values, base=base, key=key)

    def update(self, wanted: Mapping[str, Any], *, base: View | None = None) -> None:
        """Make the whole document read as given; what arrived since `base` is kept."""
        self._writable().update(wanted, base=base)

    setText = set_text  # noqa: N815 - the name in the TypeScript package
    setList = set_list  # noqa: N815 - the name in the TypeScript package

    # ── network ────────────────────────────────────────────────────────────────────────

    async def commit(self) -> int | None:
        """Seal what was edited, and send everything that is not acknowledged yet.

        Returns:
            The `ts` of the last element sent, or None if there was nothing to send.

        Raises:
            TransportError: Something is not known to be stored; it is sent again next time.
        """
        self._writable()
        async with self._lock:
            self._seal_edits()
            ts: int | None = None
            while self._outbox:
                await self._renew_seals()
                if not self._outbox:
                    # All of it had arrived, and only the answers were lost.
                    break
                sealed = self._outbox[0]
                ts = _checked_ts(await self._transport.append(self.document_key, sealed.body))
                self._outbox.popleft()
                self._acknowledged[sealed.link] = sealed
            return ts

    async def pull(self) -> int:
        """Read, check and fold what is new in the log.

        Returns:
            How many elements were folded.

        Raises:
            RejectedElementsError: Something was rejected; all that is good was folded.
            SequenceGapError: Elements are missing, and `strict_sequence` was asked for.
            TransportError: The log cannot be read now.
        """
        self._opened()
        events: list[Event] = []
        async with self._lock:
            folded = await self._pull(events)
        self._report(events)
        return folded

    async def snapshot(self, *, over_gaps: bool = False) -> dict[str, Any]:
        """Sign a snapshot of the whole log and store it.

        Args:
            over_gaps: Sign even if something is missing or unreadable; the state then says so.

        Returns:
            The snapshot that is stored now; somebody else's if that covers more.

        Raises:
            SnapshotRefusedError: Something is missing or unreadable, or a name would be dropped.
            TransportError: It is not known to be stored.
        """
        self._writable()
        if self._snapshot_store is None:
            raise NoSnapshotStoreError
        events: list[Event] = []
        async with self._lock:
            await self._pull(events)
            document = await self._publish(self._snapshot_store, over_gaps)
        self._report(events)
        return document

    async def retry_unreadable(self) -> int:
        """Open what could not be opened before, after a new keyring was adopted.

        Returns:
            How many elements were folded.
        """
        self._opened()
        events: list[Event] = []
        async with self._lock:
            changes: list[Change] = []
            folded = len(self._noted(self._log.read_again(changes), events))
            self._content.follow(changes)
            self._restore_order()
        self._report(events)
        return folded

    def _restore_order(self) -> None:
        """Fold anew if a late element should have come before one that used its clock again."""
        if not self._log.is_out_of_order:
            return
        crdt = self._log.refolded(self._base.crdt if self._base is not None else None)
        for entry in self._log.own_unread():
            crdt.fold_runs(entry.runs)
        crdt.fold_runs([*self._unsealed, *self._content.recorded()])
        self._log.crdt = crdt
        self._content.replace(crdt)

    async def _pull(self, events: list[Event]) -> int:
        folded = 0
        while True:
            before = self._log.checkpoint
            page = await self._transport.pull(self.document_key, before)
            changes: list[Change] = []
            reading = self._log.read(page, changes)
            self._content.follow(changes)
            folded += len(self._noted(reading, events))
            if self._log.checkpoint == before:
                break
        self._restore_order()
        self._confirm()
        own = self._log.tracker.highest(self._identity.public_key, None)
        self._author_seq = max(self._author_seq, own)
        return folded

    def _confirm(self) -> None:
        """Let what was acknowledged, and is not in the log that was read to its end, be resent."""
        acknowledged, self._acknowledged = self._acknowledged, {}
        gone = [sealed for link, sealed in acknowledged.items() if not self._log.holds(link)]
        self._outbox.extendleft(reversed(gone))

    def _seal_edits(self) -> None:
        """Move what was recorded into the outbox before anything is awaited."""
        self._unsealed += self._content.take()
        if not self._unsealed:
            return
        seen = self._newly_seen()
        bodies = self._sealer.seal(
            self._unsealed,
            seq=self._seq + 1,
            author_seq=self._author_seq + 1,
            prev=self._prev,
            seen=seen,
        )
        self._unsealed = []
        for replica in seen:
            del self._news[replica]
        for sealed in bodies:
            self._outbox.append(sealed)
            self._log.adopt_own(_own_entry(sealed))
        self._seq += len(bodies)
        self._author_seq += len(bodies)
        self._prev = bodies[-1].link

    def _newly_seen(self) -> dict[str, int]:
        """What the next element reports as seen: as much as leaves room for all else in it."""
        seen: dict[str, int] = {}
        room = self._sealer.bytes_max // 8
        for replica, seq in self._news.items():
            room -= len(canonical_bytes([replica, seq]))
            if room < 0 or len(seen) == SEEN_SESSIONS_MAX:
                break
            seen[replica] = seq
        return seen

    async def _renew_seals(self) -> None:
        """Seal what waits anew if the key epoch has moved on since."""
        if self._outbox[0].epoch == self._sealer.epoch:
            return
        # What the relay holds already, its answer having been lost, must not be written again.
        events: list[Event] = []
        await self._pull(events)
        self._tell(events)
        waiting = [sealed for sealed in self._outbox if not self._log.holds(sealed.link)]
        renewed: dict[str | None, Sealed] = {}
        for sealed in waiting:
            prev = None if sealed.header is None else sealed.header.prev
            prev = renewed[prev].link if prev in renewed else prev
            renewed[sealed.link] = self._sealer.renew(sealed, prev)
        self._outbox = deque(renewed.values())
        for sealed in waiting:
            self._log.disown(sealed.link)
            self._log.adopt_own(_own_entry(renewed[sealed.link]))
        if self._prev in renewed:
            self._prev = renewed[self._prev].link

    async def _publish(self, store: SnapshotStore, over_gaps: bool) -> dict[str, Any]:
        key = self.document_key + SNAPSHOT_SUFFIX
        reasons = self._obstacles()
        if reasons and not over_gaps:
            raise SnapshotRefusedError(reasons)
        document: dict[str, Any] | None = None
        for _ in range(_SNAPSHOT_ATTEMPTS_MAX):
            stored = await store.read(key)
            if stored is not None and self._covers_all(stored):
                return cast("dict[str, Any]", stored.document)
            if document is None:
                document = self._sign_snapshot({"over": reasons} if reasons else None)
                name = find_dropped_name(document)
                if name is not None:
                    raise SnapshotRefusedError([f"the name {name!r}, which servers drop"])
            try:
                await store.write(key, document, stored.revision if stored is not None else None)
            except SnapshotConflictError:
                continue
            self._snapshot = self._read_snapshot(StoredSnapshot(document, ""))
            return document
        raise SnapshotConflictError

    def _covers_all(self, stored: StoredSnapshot) -> bool:
        """Whether a stored snapshot is to be believed and covers what was read, or more."""
        if self._is_known_false(stored.document):
            return False
        try:
            upto_ts = self._read_snapshot(stored).upto_ts
        except UnreadableError:
            # All but the state has been checked, and whoever has newer keys can read that.
            upto_ts = cast("dict[str, int]", stored.document)["uptoTs"]
        except (MalformedError, SealRejectedError):
            return False
        return upto_ts >= self._log.checkpoint

    def _is_known_false(self, document: object) -> bool:
        is_false = self._verdict is SnapshotVerdict.MISMATCH
        return is_false and self._opened_with is not None and self._opened_with.document == document

    def _obstacles(self) -> list[str]:
        """What a snapshot taken now would sign away."""
        reasons = [
            f"a gap: elements {gap.expected} to {gap.got - 1} of {gap.author[:8]}…"
            for gap in self._log.tracker.gaps()
        ]
        if self._base is not None and self._is_known_false(self._base.document):
            reasons.append("a snapshot that is false")
        if self._log.unreadable:
            reasons.append(f"{len(self._log.unreadable)} elements that cannot be opened")
        # Whoever may not write cannot keep others from a snapshot either.
        reasons += [
            f"a rejected element at ts {each.ts}"
            for each in self._quarantined
            if each.ts and each.author is not None and self._is_writer(each.author)
        ]
        return reasons

    def _sign_snapshot(self, note: Mapping[str, Any] | None) -> dict[str, Any]:
        return make_snapshot(
            self._fold_at(self._log.checkpoint),
            document_key=self.document_key,
            upto_ts=self._log.checkpoint,
            writer_seq=self._log.tracker.writer_seq(),
            heads=self._log.heads,
            seqs=self._log.tracker.seqs(),
            identity=self._identity,
            encryptor=self._encryptor,
            profile=self._profile,
            note=note,
            is_chained=self._is_chained or self._profile is Profile.PACKED,
        )

    # ── history ────────────────────────────────────────────────────────────────────────

    def history(self) -> list[Version]:
        """The committed versions since the snapshot that this session started from."""
        self._opened()
        return versions_of(self._committed())

    def at(self, version: int) -> dict[str, Any]:
        """The document as it was after the element with a `ts`.

        Raises:
            ValueError: The version is older than the snapshot that this session started from.
        """
        self._opened()
        start = self._base_ts()
        if version < start:
            raise ValueError(f"the history here starts at {start}")
        return self._fold_at(version).materialize()

    def blame(self, name: str) -> list[Blame]:
        """Who wrote each stretch of a list, and in which element."""
        return blame_list(self._opened().crdt, name, self._log.ledger)

    def _base_ts(self) -> int:
        return self._base.upto_ts if self._base is not None else 0

    def _committed(self) -> list[Entry]:
        committed = [entry for entry in self._log.ledger.entries if entry.element.ts]
        return sorted(committed, key=lambda entry: entry.element.ts)

    def _fold_at(self, version: int) -> WalCrdt:
        """The fold of the log up to a `ts`, without uncommitted edits."""
        crdt = self._base.crdt.clone() if self._base is not None else WalCrdt()
        for entry in self._committed():
            if entry.element.ts <= version:
                crdt.fold_runs(entry.runs)
        return crdt

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _opened(self) -> Content:
        if not self._is_open:
            raise NotOpenError
        return self._content

    def _writable(self) -> Content:
        if self._read_only is not None:
            raise ReadOnlyError(self._read_only)
        return self._opened()

    def _report(self, events: list[Event], *, is_opening: bool = False) -> None:
        """Tell what was noticed, then raise if that was asked for."""
        self._tell(events)
        rollbacks = [event for event in events if isinstance(event, Rollback)]
        if rollbacks:
            raise RollbackDetectedError(rollbacks[0].reason)
        gaps = [event for event in events if isinstance(event, Gap)]
        if gaps and self._is_strict:
            raise SequenceGapError(gaps)
        if not self._raises:
            return
        rejections = [event for event in events if isinstance(event, Rejection)]
        if is_opening and self._verdict is SnapshotVerdict.MISMATCH:
            false = [event for event in rejections if event.ts is None and event.proven]
            raise SnapshotMismatchError(false[0].reason)
        if rejections:
            raise RejectedElementsError(rejections)

    def _tell(self, events: list[Event]) -> None:
        if self._on_event is not None:
            for event in events:
                self._on_event(event)


def _is_incomplete(log: DocumentLog, snapshot: Snapshot) -> bool:
    """Whether something that a snapshot covers is missing from a log, or cannot be read."""
    replicas = [*snapshot.writer_seq, *(snapshot.seqs or ())]
    covered = {replica.partition(":")[0] for replica in replicas}
    is_author_gone = not covered <= log.tracker.authors()
    return bool(log.tracker.gaps() or log.unreadable or is_author_gone)


def _contradicts(tail: Sequence[Entry], snapshot: Snapshot, *, is_whole: bool) -> bool:
    """Whether elements that a snapshot covers hold edits that its state does not."""
    crdt = snapshot.crdt.clone()
    changes: list[Change] = []
    counter = 0 if is_whole else None
    for entry in tail:
        highest = highest_counter(entry.runs)
        # After a jump that no honest writer makes, the element may have been refused, which its
        # producer knew and this reader cannot: what came before the tail would tell.
        if counter is not None and highest <= counter + COUNTER_JUMP_MAX // 2:
            crdt.fold_runs(entry.runs, changes)
        counter = max(counter or 0, highest)
    # A peer that knows no sessions knows no maps either, and cannot be held to them.
    return any(snapshot.seqs is not None or not isinstance(each, MapChanged) for each in changes)


def _own_entry(sealed: Sealed) -> Entry:
    """The entry of an own element that has no place in the log yet."""
    body = sealed.body
    element = Element(0, body.canonical, body.author, body.signature)
    return Entry(element, sealed.link, sealed.header, sealed.author_seq, sealed.runs)


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


def _membership(keys: Keys) -> Callable[[str], bool]:
    return keys if callable(keys) else frozenset(keys).__contains__


def _checked_ts(ts: object) -> int:
    if type(ts) is not int or not 0 <= ts <= TS_MAX:
        raise TransportError("the relay acknowledged with something else than a ts", retryable=True)
    return ts
