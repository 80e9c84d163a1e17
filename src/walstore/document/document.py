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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from walstore.crdt import Change, Json, Run, WalCrdt
from walstore.document.changed import Changed, Changes
from walstore.document.content import Content
from walstore.document.counting import counted_anew, counted_by, counts_all
from walstore.document.differences import differences
from walstore.document.entries import Part
from walstore.document.events import Displaced, Event, Gap, Rejection, Rollback
from walstore.document.faults import (
    NoSnapshotStoreError,
    NotOpenError,
    ReadOnlyError,
    RejectedElementsError,
    RollbackDetectedError,
    SequenceGapError,
    SessionNameError,
    SessionUsedError,
    SnapshotMismatchError,
    SnapshotRefusedError,
    StillRefusedError,
    UnopenedError,
)
from walstore.document.history import (
    Blame,
    Version,
    blame_of,
    versions_of,
)
from walstore.document.journal import (
    Journal,
    LeftBody,
    RefusedBodies,
    TooLargeToRecordError,
    revive_bodies,
    seal_edits,
)
from walstore.document.log import DocumentLog, Reading
from walstore.document.opening import (
    Marks,
    Opening,
    Posture,
    PrunedLogError,
    SnapshotVerdict,
    Source,
    is_covered,
    log_from,
    open_document,
    read_page,
    rolled_back,
)
from walstore.document.outbox import Outbox, Refusal
from walstore.document.own_past import OwnPast
from walstore.document.ports import (
    CheckpointTooOldError,
    ElementRefusedError,
    LogBehindError,
    RawElement,
    SnapshotConflictError,
    SnapshotStore,
    StoredSnapshot,
    Transport,
)
from walstore.document.publishing import BarrierMovedError, Draft, Producer, obstacles
from walstore.document.quarantine import Quarantine
from walstore.document.rejoining import Before, Rejoined, rejoin, settled
from walstore.document.remaking import Alias, Commit, remake
from walstore.document.returning import can_return
from walstore.document.revoked import Revoked, nobody_revoked
from walstore.document.sealing import Sealed, Sealer
from walstore.document.snapshot import Cut, Snapshot, deletion_cuts, newest_cut
from walstore.document.stranded import Stranded
from walstore.document.turns import Turns
from walstore.document.undoing import Aliases, Step, capture, invert
from walstore.document.view import View
from walstore.errors import TransportError, UsageError
from walstore.sealed.encryptor import Encryptor, PlainEncryptor
from walstore.sealed.outcomes import UnreadableError
from walstore.signed.identity import Identity
from walstore.signed.roster import Counts, counted_in
from walstore.wire.element import Element
from walstore.wire.envelope import Profile, is_session
from walstore.wire.limits import TS_MAX

Keys = Collection[str] | Callable[[str], bool]

# The texts of versions that are kept, where not all are.
HISTORY_BYTES_MAX = 16 * 2**20

# How often others may let go of something while a snapshot is being made.
_RESTARTS_MAX = 3


def ALLOW_ANY(key: str) -> bool:  # noqa: N802 - reads as the constant that it stands for
    """Let any key write, or sign snapshots: for logs that something else protects."""
    return True


class SetAside(NamedTuple):
    """What was taken out of the queue.

    Attributes:
        refused: The bodies, and why they are not taken.
        aliases: Which elements and writes that waited were made anew, and as which.
    """

    refused: RefusedBodies
    aliases: Sequence[Alias]


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
        revoked: Revoked = nobody_revoked,
        encryptor: Encryptor | None = None,
        snapshot_store: SnapshotStore | None = None,
        session_nonce: str | None = None,
        posture: Posture = "trust-retain-tail",
        retain_tail_n: int = 64,
        history_max: int | None = None,
        is_kept: Callable[[], bool] | None = None,
        on_author_error: Literal["throw", "skip"] = "throw",
        strict_sequence: bool = False,
        wire: Literal["packed", "starfish"] = "packed",
        chained: bool = True,
        marks: Marks | None = None,
        on_event: Callable[[Event], None] | None = None,
        on_changed: Callable[[Changed], None] | None = None,
        on_step: Callable[[Step], None] | None = None,
        journal: Journal | None = None,
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
            revoked: What still counts of a writer who was revoked, as `counted` has told it: by
                session, the empty one where a peer counts by author; None of anybody else.
            encryptor: Seals and opens; plain if left out.
            snapshot_store: Where snapshots are; without one they are neither read nor written.
            session_nonce: Names the session; random if left out, and never to be used twice.
            posture: What to believe of a snapshot.
            retain_tail_n: How many of the newest elements to keep for checking again.
            history_max: How many versions `history`, `at`, `diff` and `blame` know at least, as far
                as they are not too large: older ones are let go of, so that a session that lasts
                does not grow with its log. Without it, they are all kept.
            is_kept: Whether what is read is kept elsewhere. Own elements of versions that are let
                go of are kept here, if it is not: the log may lose them yet.
            on_author_error: Whether `open` and `pull` raise, after folding all that is good, when
                something was rejected, or only report it.
            strict_sequence: Whether a gap raises as well.
            wire: `packed`, or `starfish` for logs that TypeScript peers read.
            chained: Whether to add the chain to `starfish` elements; `packed` ones have it always.
            marks: The marks of an earlier session.
            on_event: Called with everything that is noticed.
            on_changed: Called after each edit and each element that was folded, in order, with what
                it has changed; not for what `open` reads.
            on_step: Called after each edit, before `on_changed`, with what it takes to undo it.
            journal: Where edits are kept until they are in the log, across processes.
            pool: Threads to verify signatures with.
            now_ms: The time in milliseconds since 1970; the system's if left out.

        Raises:
            SessionNameError: A session cannot be called so.
        """
        if session_nonce is not None and not is_session(session_nonce):
            raise SessionNameError(session_nonce)
        self.document_key = document_key
        self.session = secrets.token_hex(16) if session_nonce is None else session_nonce
        self._is_session_given = session_nonce is not None
        self._identity = identity
        self._replica = f"{identity.public_key}:{self.session}"
        self._source = Source(
            document_key,
            transport=transport,
            snapshot_store=snapshot_store,
            encryptor=PlainEncryptor() if encryptor is None else encryptor,
            is_writer=_membership(writers),
            is_producer=_membership(snapshot_role),
            now_ms=_system_ms if now_ms is None else now_ms,
            pool=pool,
            revoked=revoked,
        )
        profile = Profile(wire)
        is_chained = chained or profile is Profile.PACKED
        self._producer = Producer(self._source, identity, profile, is_chained)
        self._posture: Posture = posture
        self._raises = on_author_error == "throw"
        self._is_strict = strict_sequence
        self._marks = Marks() if marks is None else marks
        self._history_max = history_max
        self._is_kept = is_kept
        self._own_past = OwnPast(HISTORY_BYTES_MAX)
        self._on_event = on_event
        self._on_changed = on_changed
        self._on_step = on_step
        self._journal = journal
        self._is_watched = not (journal is None and on_changed is None and on_step is None)
        # Edits that the journal could not keep yet.
        self._unkept: list[Run] = []
        self._turns = Turns()
        self._sealer = Sealer(
            document_key,
            identity=identity,
            session=self.session,
            encryptor=self._source.encryptor,
            profile=profile,
            is_chained=is_chained,
        )
        self._outbox = Outbox(self._sealer, journal)
        self._stranded = Stranded(self._source, journal)
        self._is_open = False
        self._is_restored = False
        self._read_only: str | None = None
        # Where the log ends, if that is before what was read of it; and once that was accepted, how
        # far replicas were counted: what is only here is not missed elsewhere.
        self._ends_at: int | None = None
        self._lost: dict[tuple[str, str | None], int] = {}
        # What of the revoked was still missing when it was looked for once more.
        self._starved_of: dict[str, list[str]] = {}
        # What the log starts from, though it holds more than counts: there is nothing else.
        self._kept_base: Snapshot | None = None
        self._log = self._source.new_log()
        self._content = self._new_content(self._log)
        # The newest snapshot that is known of, the one that the verdict is on, and the one that the
        # log here starts from.
        self._snapshot: Snapshot | None = None
        self._opened_with: Snapshot | None = None
        self._base: Snapshot | None = None
        self._verdict = SnapshotVerdict.NONE
        self._retained: deque[Element] = deque(maxlen=max(retain_tail_n, 0))
        self._quarantined = Quarantine(self._source.may_hinder)
        # Noticed and not told yet; told, and not raised yet because the call failed otherwise.
        self._noticed: list[Event] = []
        self._told: list[Event] = []

    # ── opening ────────────────────────────────────────────────────────────────────────

    async def open(
        self, *, posture: Posture | None = None, is_own_state: bool = False
    ) -> WalDocument:
        """Bootstrap from the snapshot and the log; calling it again does nothing.

        Args:
            posture: What to believe of the snapshot this time, if not what was said before.
            is_own_state: Whether all that is read is kept here, and the snapshot is one of
                `own_snapshot`: then it says nothing of how far the log and the snapshot for
                everybody have come, and the marks are held against what is read later.

        Raises:
            RejectedElementsError: Something was rejected; the document is open all the same.
            SnapshotMismatchError: The snapshot is false; the document is open all the same.
            RollbackDetectedError: The log fell behind the marks; the document is read-only.
            SequenceGapError: Elements are missing, and `strict_sequence` was asked for.
            SessionUsedError: The session nonce was used before.
            PrunedLogError: The log is pruned and no snapshot stands for it; nothing is open.
            TransportError: The log or the snapshot cannot be read now; nothing is open.
        """
        async with self._turns:
            if self._is_open:
                return self
            marks = self._marks
            if is_own_state:
                self._marks = Marks()
            await self._bootstrap(posture or self._posture)
            if is_own_state:
                self._quarantined.restore([] if self._snapshot is None else self._snapshot.rejected)
                self._snapshot = None
            self._marks = marks
            self._is_open = True
        self._tell()
        self._raise(is_opening=True)
        return self

    async def __aenter__(self) -> WalDocument:
        """Open; what was rejected is reported, and does not keep anybody out."""
        with suppress(RejectedElementsError):
            await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._edited()
        self._marks = self.marks

    async def _bootstrap(self, posture: Posture) -> None:
        opening = await self._read_anew(posture)
        self._check_session(opening.log)
        self._carry_over(opening)
        self._log, self._content = opening.log, self._new_content(opening.log)
        self._take_in(opening)

    async def _restart(self) -> int:
        """Start from the snapshot once more; how many elements were folded.

        What is not in the log yet, sealed or not, is kept, and so is what was shown.
        """
        self._marks = self.marks
        try:
            opening = await self._read_anew(self._posture)
        except PrunedLogError as error:
            if error.rollback is not None and self._read_only is None:
                self._noticed.append(error.rollback)
                self._read_only = error.rollback.reason
            raise
        return self._go_on_from(opening)

    def _go_on_from(self, opening: Opening) -> int:
        self._carry_over(opening)
        self._log = opening.log
        self._log.crdt.fold_runs(self._content.recorded())
        self._content.replace(self._log.crdt)
        folded = self._take_in(opening)
        self._tell_replaced()
        return folded

    async def _read_anew(self, posture: Posture) -> Opening:
        return await open_document(
            self._source,
            posture,
            retain_tail_n=self._retained.maxlen or 0,
            marks=self._marks,
        )

    def _carry_over(self, opening: Opening) -> None:
        """Take what is on its way into a log that was read anew."""
        log, base, own = opening.log, opening.base, self._identity.public_key
        if log.is_out_of_order:
            log.crdt = log.refolded()
        log.crdt.counter = max(log.crdt.counter, self._log.crdt.counter)
        newest = _newest_of(log, own)
        self._outbox.start(author_seq=log.tracker.highest(own, None), prev=newest)
        self._restore(log, newest)
        if base is not None:
            # Others may only claim to cover what was not acknowledged, unless they know its link;
            # and who counts no sessions cannot tell it from what another session wrote. But where
            # something was let go, to fold it once more might bring it back.
            is_own = base.produced_by == own and base.seqs is not None
            is_certain = is_own or bool(base.cuts)
            heads = None if is_certain else {head.link for head in base.heads.get(own, ())}
            self._outbox.settle(lambda sealed: is_covered(sealed, base), heads)
            log.leave_out(self._log.revocations.without, upto_ts=base.silent_upto_ts)
        self._outbox.carry_over(log)
        self._stranded.carry_over(log, base)
        log.carried_counter = log.crdt.counter

    def _restore(self, log: DocumentLog, newest: str | None) -> None:
        """Take over, once, what earlier processes have left."""
        if self._journal is None or self._is_restored:
            return
        left = self._journal.leftover()
        bodies = revive_bodies(left.bodies, log, self._sealer)
        author_seq = max(
            [log.tracker.highest(self._identity.public_key, None)]
            + [sealed.author_seq or 0 for sealed in bodies]
        )
        for edits in left.edits:
            sealed = seal_edits(edits, self._sealer, author_seq=author_seq + 1, newest=newest)
            self._journal.seal(edits.session, sealed)
            author_seq += len(sealed)
            bodies += sealed
        self._outbox.restore(bodies, {each.link for each in left.bodies if each.is_acknowledged})
        self._stranded.restore(left.stranded, left.fold)
        self._is_restored = True

    def _take_in(self, opening: Opening) -> int:
        """Take note of what came of reading the log; how many elements were folded."""
        self._base, self._verdict = opening.base, opening.verdict
        self._snapshot = self._opened_with = opening.snapshot
        self._retained.clear()
        self._retained.extend(opening.retained)
        self._quarantined.clear()
        self._noticed += opening.events
        self._lost = {}
        folded = sum([self._note(reading) for reading in opening.readings])
        self._check_marks()
        return folded

    def _forget(self) -> None:
        """Let go of the oldest versions, if there are twice as many as are to be kept.

        Only after what is on its way was looked for in the log: it is not found there afterwards.
        """
        # What the log has lost is nowhere but here.
        if self._history_max is not None and not self._lost and self._read_only is None:
            count_max = 2 * max(self._history_max, 1)
            gone = self._log.forget(count_max=count_max, bytes_max=HISTORY_BYTES_MAX)
            if self._is_kept is None or not self._is_kept():
                own = [part for part in gone if part.author == self._identity.public_key]
                self._own_past.add(_raw_elements(own))

    def _new_content(self, log: DocumentLog) -> Content:
        content = Content(
            log.crdt, self._replica, self._sealer.check_value, self._sealer.check_name
        )
        if self._on_changed is not None:
            content.listen()
        if self._on_step is not None:
            content.remember()
        return content

    def _note(self, reading: Reading) -> int:
        """Take in what came of a page; how many elements were folded."""
        self._noticed += reading.events
        self._quarantined.note(reading)
        folded = 0
        for part in reading.folded.parts:
            self._retained += part.newest(self._retained.maxlen or 0)
            replica = part.replica
            if replica is not None and replica != self._replica:
                self._outbox.note(replica, part.seq_last)
            folded += len(part)
        return folded

    def _check_session(self, log: DocumentLog) -> None:
        if not self._is_session_given or self._outbox.has_written:
            return
        is_counted = log.tracker.highest(self._identity.public_key, self.session)
        if (
            is_counted
            or log.ledger.has_replica(self._replica)
            or log.crdt.has_replica(self._replica)
        ):
            raise SessionUsedError(self.session)

    def _check_marks(self) -> None:
        events = self._noticed
        if self._log.checkpoint < self._marks.ts:
            events.append(Rollback(f"it ends at {self._log.checkpoint}, before {self._marks.ts}"))
        for replica, seq in self._marks.seqs.items():
            author, _, session = replica.partition(":")
            if not self._source.is_writer(author) or self._log.revocations.is_waiting_for(author):
                continue
            counted = self._source.counted(replica, seq)
            if counted < seq:
                # What was read has not to be all that counts: less of it may never have come.
                continue
            if self._log.tracker.has_lost(author, session or None, counted):
                events.append(Rollback(f"element {seq} of {author[:8]}… is gone"))
        lost = [event for event in events if isinstance(event, Rollback)]
        self._read_only = lost[0].reason if lost else None
        heads = [event.head for event in lost if event.head is not None]
        self._ends_at = min(heads) if heads else None

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

    def kind(self, name: str) -> str | None:
        """What a name is: "register", "list", "text" (a list of characters only) or "map"."""
        return self._opened().kind(name)

    def names(self) -> list[str]:
        """The names of everything that shows, in code-point order."""
        return self._opened().crdt.names()

    def length(self, name: str) -> int:
        """How many elements a list has."""
        return self._opened().crdt.list_length(name)

    @property
    def crdt(self) -> WalCrdt:
        """What the document folds to, uncommitted edits included: to be read, not edited."""
        return self._opened().crdt

    @property
    def version(self) -> int:
        """Counts the changes, own and others'."""
        return self._opened().version

    def is_writer(self, key: str) -> bool:
        """Whether a key may write."""
        return self._source.is_writer(key)

    @property
    def tail_length(self) -> int:
        """How many elements were read above the snapshot that this session started from."""
        return self._log.length

    @property
    def is_read_only(self) -> bool:
        """Whether edits are refused, because the log lost something."""
        return self._read_only is not None

    @property
    def rollback(self) -> str | None:
        """What the log has lost, in words, if that was not accepted yet; else None."""
        return self._read_only

    @property
    def stranded(self) -> int:
        """How many elements are shown here that the log has lost, and only others can send."""
        return self._stranded.count

    @property
    def has_unsent(self) -> bool:
        """Whether anything was edited or sealed that no relay has acknowledged."""
        return bool(self._content.recorded()) or self._outbox.has_unsent

    @property
    def has_unsealed(self) -> bool:
        """Whether anything was edited that is not sealed yet."""
        return bool(self._content.recorded()) or self._outbox.has_recorded

    @property
    def has_unkept(self) -> bool:
        """Whether anything was edited that the journal could not keep so far."""
        return bool(self._unkept)

    @property
    def is_outdated(self) -> bool:
        """Whether what waits was sealed in a key epoch that is over, and can be sealed anew."""
        return self._outbox.is_outdated

    def check_message(self, message: str) -> None:
        """Refuse what `commit` would refuse as a message.

        Raises:
            UsageError: It is not a short text.
        """
        self._sealer.check_message(message)

    def seal(self, *, message: str | None = None) -> None:
        """Seal what was edited, to be sent later.

        Args:
            message: What to say of it in the history.

        Raises:
            StorageError: The journal cannot keep it now; it stays recorded.
            UsageError: The message is not a short text; nothing was sealed.
        """
        self._writable()
        if message is not None:
            self._sealer.check_message(message)
        self._edited()
        self._outbox.seal(self._log, message)

    def detected_gaps(self, *, count_max: int | None = None) -> list[Gap]:
        """The elements that are missing now, or the first so many gaps."""
        self._opened()
        return self._log.tracker.gaps(count_max)

    def elements(self) -> list[RawElement]:
        """The elements of the versions that `history` knows, in order; before them own ones
        that are kept nowhere else.
        """
        self._opened()
        return self._own_past.before(_raw_elements(self._log.ledger.parts()))

    def retained_tail(self) -> list[Element]:
        """The newest verified elements, to be checked again."""
        self._opened()
        return list(self._retained)

    def rejected(self) -> list[Rejection]:
        """What authors signed and readers cannot take."""
        self._opened()
        return list(self._quarantined)

    def counted(self, author: str) -> Counts:
        """What was read of an author, for others to go on counting it after they were revoked."""
        self._opened()
        seqs, base = counted_in(self.marks.seqs, author), self._base
        # A deletion names no heads, and what goes on from it only its own.
        are_heads_known = base is None or (
            author in base.heads and not any(cut.is_deletion for cut in base.cuts)
        )
        return counted_by(self._log, author, seqs, are_heads_known=are_heads_known)

    async def recount(self, author: str) -> Counts:
        """The same, for sure: what the log starts from is not believed for it, as far as the log is
        there from its beginning.

        Raises:
            TransportError: It cannot be read now.
        """
        anew = None
        if self._log.base is not None:
            barrier_ts = self._barrier().ts
            anew = await counted_anew(self._source, author, self._log, barrier_ts=barrier_ts)
        return self.counted(author) if anew is None else anew

    def counts_all(self, author: str) -> bool:
        """Whether everything that was read of an author counts, for sure."""
        self._opened()
        return counts_all(self._log, author)

    @property
    def left_out(self) -> frozenset[str]:
        """Those of whom something was passed over that would count, if they were made writers."""
        self._opened()
        return frozenset(self._log.revocations.without)

    @property
    def has_begun_anew(self) -> bool:
        """Whether what is read goes on from a deletion."""
        return any(cut.is_deletion for cut in self._cuts())

    async def can_return(self, author: str) -> bool:
        """Whether all that somebody has written who may not can be read by all, should it count.

        Raises:
            TransportError: The snapshot or the log cannot be read now.
        """
        self._opened()
        async with self._turns:
            return await can_return(self._source, self._log, author)

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
        return self._outbox.unconfirmed

    @property
    def unreadable(self) -> int:
        """How many elements wait for a key."""
        return len(self._log.unreadable)

    @property
    def outdated_ts(self) -> int:
        """The `ts` of the newest element whose key epoch was over when it was read; 0 if none was.

        Whoever gets no key but the current one sees what it says in a newer snapshot only.
        """
        return self._log.outdated_ts

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
    def is_deleted(self) -> bool:
        """Whether the document was deleted, and nothing has been written since."""
        content = self._opened()
        return self._base is not None and self._base.is_deletion and not content.crdt.names()

    @property
    def snapshot_ts(self) -> int:
        """The `uptoTs` of the newest snapshot that was believed, now or before; 0 if none was."""
        snapshot_ts = self._snapshot.upto_ts if self._snapshot is not None else 0
        return max(self._marks.snapshot_ts, snapshot_ts)

    @property
    def marks(self) -> Marks:
        """How far this reader has been; keep it and give it to the next session."""
        seqs = dict(self._marks.seqs)
        for author, session, seq in self._log.tracker.sessions():
            if seq <= self._lost.get((author, session), 0):
                continue
            replica = author if session is None else f"{author}:{session}"
            seqs[replica] = max(seqs.get(replica, 0), seq)
        return Marks(max(self._marks.ts, self._log.checkpoint), self.snapshot_ts, seqs)

    def accept_rollback(self) -> None:
        """Go on with a log that lost elements, after a person decided to.

        What was read here and is gone there stays here, for as long as this session does not have
        to start anew from the log: it is shown, but it is not sent again, and who has not read it
        does not see it. It stands in the way of snapshots as a gap does. `rejoin` brings it back.
        """
        self._marks = Marks()
        self._read_only = None
        self._told = [event for event in self._told if not isinstance(event, Rollback)]
        if self._ends_at is not None:
            self._step_back(self._ends_at)

    def _step_back(self, head: int) -> None:
        """Read on from where the log ends."""
        self._ends_at = None
        self._log.step_back(head)
        sessions = self._log.tracker.sessions()
        self._lost = {(author, session): seq for author, session, seq in sessions}
        if self._snapshot is not None and self._snapshot.upto_ts > head:
            self._snapshot = None

    # ── editing ────────────────────────────────────────────────────────────────────────

    def set_field(self, name: str, value: Json) -> None:
        """Write a register."""
        self._writable().set_field(name, value)
        self._after_edit()

    def delete_field(self, name: str) -> None:
        """Delete a register."""
        self._writable().delete_field(name)
        self._after_edit()

    def insert(self, name: str, index: int, value: Json) -> None:
        """Insert a value into a list: at or below 0 at the head, past the end at the end."""
        self._writable().insert(name, index, value)
        self._after_edit()

    def push(self, name: str, value: Json) -> None:
        """Append a value to a list."""
        content = self._writable()
        content.insert(name, content.crdt.list_length(name), value)
        self._after_edit()

    def remove_at(self, name: str, index: int) -> None:
        """Remove an element of a list; nothing happens if there is none at the position."""
        self._writable().remove(name, index)
        self._after_edit()

    def insert_text(self, name: str, index: int, text: str) -> None:
        """Insert characters into a text."""
        self._writable().insert_text(name, index, text)
        self._after_edit()

    def remove_text(self, name: str, index: int, count: int) -> None:
        """Remove characters of a text, or elements of a list."""
        self._writable().remove(name, index, count)
        self._after_edit()

    def splice(self, name: str, index: int, count: int, inserted: str | Sequence[Json]) -> None:
        """Put values, or the characters of a text, in the place of elements of a list, at once."""
        self._writable().splice(name, index, count, inserted)
        self._after_edit()

    def put(self, name: str, key: str, value: Json) -> None:
        """Write a key of an observed-remove map."""
        self._writable().put(name, key, value)
        self._after_edit()

    def drop(self, name: str, key: str) -> None:
        """Remove a key of an observed-remove map; a concurrent write of it stays."""
        self._writable().drop(name, key)
        self._after_edit()

    def migrate(self, name: str) -> None:
        """Empty a name, so that it may be used for another kind of value."""
        self._writable().migrate(name)
        self._after_edit()

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
        self._after_edit()

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
        self._after_edit()

    def update(self, wanted: Mapping[str, Any], *, base: View | None = None) -> None:
        """Make the whole document read as given; what arrived since `base` is kept."""
        self._writable().update(wanted, base=base)
        self._after_edit()

    def undo_step(self, step: Step, aliases: Aliases) -> int:
        """Undo what own edits did, as a new edit; its step, given to `on_step`, redoes them.

        Args:
            step: What they did.
            aliases: What earlier calls have inserted again; this one adds to it.

        Returns:
            How many elements and values cannot be brought back, because they were let go.
        """
        content = self._writable()
        try:
            return invert(content, step, aliases, author=self._identity.public_key)
        finally:
            self._after_edit()

    setText = set_text  # noqa: N815 - the name in the TypeScript package
    setList = set_list  # noqa: N815 - the name in the TypeScript package

    # ── network ────────────────────────────────────────────────────────────────────────

    async def commit(self, *, message: str | None = None) -> int | None:
        """Seal what was edited, and send everything that is not acknowledged yet.

        Args:
            message: What to say of it in the history. It is sealed with the edits; where there are
                none, it names the version that the document has by then.

        Returns:
            The `ts` of the last element sent, or None if there was nothing to send.

        Raises:
            ElementRefusedError: Something was refused, and will be refused again; see `set_aside`.
            TransportError: Something is not known to be stored; it is sent again next time.
            UsageError: The message is not a short text; nothing was sealed.
        """
        self._writable()
        if message is not None:
            self._sealer.check_message(message)
        try:
            async with self._turns:
                # Whoever had the turn before may have found that the log was rolled back.
                self._writable()
                self._edited()
                self._outbox.seal(self._log, message)
                return await self._send()
        finally:
            self._tell()

    async def _send(self) -> int | None:
        ts: int | None = None
        while (sealed := self._outbox.next()) is not None:
            refusal = self._outbox.refusal
            if refusal is not None and self._outbox.is_stopped:
                raise StillRefusedError(refusal.reason, is_of_author=refusal.is_of_author)
            if self._outbox.is_outdated:
                # What the relay holds, its answer having been lost, must not be written again.
                await self._pull()
                self._writable()
                self._outbox.renew(self._log)
                continue
            try:
                answer = await self._source.transport.append(self.document_key, sealed.body)
            except ElementRefusedError as error:
                if await self._recut(sealed, error.bytes_max):
                    continue
                self._outbox.refuse(Refusal(sealed.link, str(error), error.is_of_author))
                raise
            ts = _checked_ts(answer)
            self._outbox.acknowledge(sealed, ts)
            self._settle_below(ts)
        return ts

    def _settle_below(self, ts: int) -> None:
        """Let go of what was acknowledged at a `ts`, if that is below what the log here starts from
        and held by it: the answer was lost, and the element cannot be read any more.
        """
        base = self._base
        if base is not None and ts <= base.upto_ts:
            self._outbox.settle(lambda sealed: is_covered(sealed, base), heads=())

    async def _recut(self, sealed: Sealed, bytes_max: int | None) -> bool:
        """Cut what is larger than the log takes, if that is so and can be done."""
        if bytes_max is None or not all(each.is_opened for each in self._outbox.waiting()):
            return False
        self._sealer.limit(bytes_max)
        if not sealed.is_divisible or len(sealed.body.canonical) <= self._sealer.bytes_max:
            return False
        await self._pull()
        self._writable()
        self._outbox.recut(self._log)
        return True

    # ── what the log refuses ───────────────────────────────────────────────────────────

    @property
    def refused(self) -> tuple[Refusal, Sealed] | None:
        """What is first in the queue, and will never be taken as it is; None if nothing is known
        to be.
        """
        refusal, sealed = self._outbox.refusal, self._outbox.next()
        return None if refusal is None or sealed is None else (refusal, sealed)

    def note_refused(self, refusal: Refusal) -> None:
        """Take it as known that an element is refused, if it is first in the queue."""
        self._outbox.refuse(refusal)

    def retry_refused(self) -> None:
        """Let what is refused be sent once more: something has changed."""
        self._outbox.retry()

    def read_body(self, left: LeftBody) -> Sealed:
        """What is in a body that was sealed before, as far as its key is at hand."""
        self._opened()
        (sealed,) = revive_bodies([left], self._log, self._sealer)
        return sealed

    async def set_aside(self) -> SetAside | None:
        """Take what is refused out of the queue, so that what is behind it can be sent.

        The document then reads as if it had not been edited; what was edited later is made anew, by
        another session. If the author may not write at all, everything that waits is taken out.

        Returns:
            What was taken out; None if nothing is refused, or the log holds it after all.

        Raises:
            UnopenedError: Something that waits cannot be made anew now; nothing has changed.
            StorageError: The journal cannot keep it now; nothing has changed.
            TransportError: The log cannot be read now; nothing has changed.
        """
        self._writable()
        try:
            async with self._turns:
                refusal = self._outbox.refusal
                if refusal is not None:
                    await self._make_sure(refusal)
                    self._edited()
                    self._outbox.seal(self._log)
                return self._take_out(self._outbox.refusal)
        finally:
            self._tell()

    async def _make_sure(self, refusal: Refusal) -> None:
        """See what the log holds, its answer having been lost: it must not be written again."""
        try:
            await self._pull()
        except TransportError:
            # To whom may write nothing it may also show nothing; then nothing is written again.
            if not refusal.is_of_author:
                raise
        self._outbox.let_go_of_read(self._log)
        self._writable()

    def _take_out(self, refusal: Refusal | None) -> SetAside | None:
        if refusal is None:
            return None
        waiting = self._outbox.waiting()
        count = len(waiting) if refusal.is_of_author else 1
        refused, behind = waiting[:count], waiting[count:]
        if not all(sealed.is_opened for sealed in behind):
            raise UnopenedError
        sealer, own = self._sealer.for_session(secrets.token_hex(16)), self._identity.public_key
        replica = f"{own}:{sealer.session}"
        fold = self._fold_without({sealed.link for sealed in waiting})
        remade = remake(
            fold,
            refused=[run for sealed in refused for run in sealed.runs],
            waiting=[Commit(sealed.runs, sealed.message) for sealed in behind],
            replica=replica,
        )
        self._outbox.set_aside(
            self._log,
            kept := RefusedBodies(refused, refusal.reason, refusal.is_of_author),
            remade.commits,
            sealer=sealer,
            author_seq=self._log.tracker.highest(own, None),
            newest=_newest_of(self._log, own),
        )
        self.session, self._replica, self._sealer = sealer.session, replica, sealer
        self._log.crdt = fold
        self._content.replace(fold)
        self._content.begin(replica)
        self._tell_replaced()
        return SetAside(kept, remade.aliases)

    def _fold_without(self, gone: Collection[str]) -> WalCrdt:
        """The fold of everything but some own elements that are not in the log yet."""
        crdt = self._log.refolded()
        displaced = crdt.displaced
        for entry in self._log.own_unread():
            if entry.link not in gone:
                crdt.fold_runs(entry.runs)
        self._stranded.fold_into(crdt)
        crdt.counter = max(crdt.counter, self._log.crdt.counter)
        # All others were told of when they were folded first.
        crdt.displaced = displaced
        return crdt

    async def pull(self) -> int:
        """Read, check and fold what is new in the log.

        Returns:
            How many elements were folded.

        Raises:
            RejectedElementsError: Something was rejected; all that is good was folded.
            SequenceGapError: Elements are missing, and `strict_sequence` was asked for.
            RollbackDetectedError: The log lacks something that was read in it before: it ends
                earlier, or was pruned below a snapshot without it; the document is read-only.
            PrunedLogError: The log was pruned, and no snapshot stands for what is gone.
            TransportError: The log cannot be read now.
        """
        self._opened()
        try:
            async with self._turns:
                folded = await self._pull()
        finally:
            self._tell()
        self._raise()
        return folded

    async def snapshot(
        self, *, over_gaps: bool = False, collect: Mapping[str, int] | None = None
    ) -> dict[str, Any]:
        """Sign a snapshot of the whole log and store it.

        Args:
            over_gaps: Sign even if something is missing or unreadable; the state then says so.
            collect: Let go of the removed elements of lists, for good. The checkpoints of all who
                read on, by any name, as a relay knows them: each has to be at the end of the log,
                with no edits that are not sent. Somebody who is left out, and still writes after
                an element that was let go, is heard with a `Displaced` event.

        Returns:
            The snapshot that is stored now; somebody else's if that covers more.

        Raises:
            SnapshotRefusedError: Something is missing or unreadable, or a name would be dropped; or
                `collect` was asked for and somebody, or something, is not at the end of the log.
            TransportError: It is not known to be stored.
        """
        if collect is None:
            return await self._publish(lambda: self._draft(over_gaps))
        return await self._publish(lambda: self._draft_cut(collect))

    def own_snapshot(self) -> dict[str, Any] | None:
        """The fold of what was read, signed by this reader for itself, to open from next time.

        Returns:
            The snapshot, or None if something is missing that may still come.
        """
        self._opened()
        gaps = self._log.tracker.gaps()
        if self._log.is_waiting or any(map(self._source.is_missed, gaps)):
            return None
        # What is in the way of a snapshot is not read again by whoever opens from this one.
        draft = self._draft(over_gaps=True)._replace(rejected=self._quarantined.hindering)
        return self._producer._replace(profile=Profile.PACKED, is_chained=True).sign(draft)

    async def delete_document(self) -> dict[str, Any]:
        """Delete everything up to now: store a snapshot that says so, for all to see.

        Who opens the document finds it empty. It may be written again; what others wrote without
        knowing stays. The relay lets go of the elements as for any snapshot.

        Returns:
            The snapshot that is stored now.

        Raises:
            SnapshotRefusedError: Edits of this session are not in the log yet, or peers that read
                version 1 would not understand.
            TransportError: It is not known to be stored.
        """
        return await self._publish(self._draft_deletion)

    async def adopt_barrier(self) -> bool:
        """Start anew if the stored snapshot has let go of elements that are still kept here.

        Returns:
            Whether it has.

        Raises:
            TransportError: The snapshot or the log cannot be read now.
        """
        self._opened()
        if self._source.snapshot_store is None:
            raise NoSnapshotStoreError
        try:
            async with self._turns:
                before = self._barrier()
                stored = await self._source.stored_snapshot(is_strict=False)
                if stored is not None and stored.barrier.is_after(before):
                    await self._restart()
        finally:
            self._tell()
        self._raise()
        return self._barrier().is_after(before)

    async def reread(self) -> int:
        """Read the log anew, after others may write, or were revoked, than when it was read.

        What was rejected and counts now is folded, and what no longer counts is gone. What is not
        in the log yet is kept, and so is what was shown.

        Returns:
            How many elements were folded.

        Raises:
            RejectedElementsError: Something was rejected; all that is good was folded.
            SequenceGapError: Elements are missing, and `strict_sequence` was asked for.
            RollbackDetectedError: The log fell behind what was read before.
            TransportError: The log or the snapshot cannot be read now; nothing has changed.
        """
        self._opened()
        try:
            async with self._turns:
                folded = await self._restart()
        finally:
            self._tell()
        self._raise()
        return folded

    async def rejoin(
        self,
        transport: Transport,
        snapshot_store: SnapshotStore | None,
        *,
        elements: Callable[[], Sequence[RawElement]],
        keep: Callable[[Rejoined], None],
    ) -> Rejoined:
        """Go on with a log that lost elements, after a person decided to, and lose nothing here.

        The log is read anew. Own elements that it has lost are sent again with the next commit,
        byte for byte. Those of others are shown, as `stranded`, until their authors have sent them.

        Args:
            transport: Where the log is now.
            snapshot_store: Where its snapshot is.
            elements: Those that were read before and are not in the log any more, ascending, as
                far as they are at hand; asked for once the log was read.
            keep: Keeps what came of it in one step, before anything changes here.

        Returns:
            What came of it.

        Raises:
            TransportError: The log or the snapshot cannot be read now; nothing has changed.
            StorageError: It cannot be kept; nothing has changed.
        """
        self._opened()
        source = replace(self._source, transport=transport, snapshot_store=snapshot_store)
        retain = self._retained.maxlen or 0
        try:
            async with self._turns:
                opening = settled(
                    await open_document(source, self._posture, retain_tail_n=retain, marks=Marks())
                )
                before = Before(
                    self._log, self._log.fold_at(TS_MAX), elements(), self._stranded.fold
                )
                rejoined = rejoin(
                    opening,
                    before,
                    source=self._source,
                    producer=self._producer._replace(profile=Profile.PACKED, is_chained=True),
                    epoch=self._sealer.epoch,
                )
                keep(rejoined)
                self._take_up(opening, rejoined)
        finally:
            self._tell()
        return rejoined

    def _take_up(self, opening: Opening, rejoined: Rejoined) -> None:
        self._marks = Marks()
        self._told = [event for event in self._told if not isinstance(event, Rollback)]
        self._outbox.put_back(rejoined.again)
        self._own_past.drop(sealed.body.signature for sealed in rejoined.again)
        self._stranded.add(rejoined.stranded)
        self._stranded.keep_fold(rejoined.fold)
        self._go_on_from(opening)
        self._outbox.confirm(self._log)

    def rewrite_stranded(self) -> None:
        """Write what is stranded once more, as an edit of this author's: for authors who are gone.

        Whoever still has the elements and sends them again, has written all of it twice.

        Raises:
            UsageError: A name is of another kind by now, or a value cannot be written here; nothing
                has changed.
        """
        content = self._writable()
        if not self._stranded.count:
            return
        shown = content.crdt.clone()
        self._stranded.hide(self._log)
        self._refold()
        try:
            content.revert_to(shown)
        except UsageError:
            self._stranded.carry_over(self._log, self._base)
            self._refold()
            self._tell_replaced()
            raise
        self._edited()
        self._stranded.let_go()

    def drop_stranded(self) -> None:
        """Show what is stranded no longer: somebody has written it anew, or nobody misses it.

        What was edited here after it, or in the middle of it, is not shown without it. Whoever
        still has the elements and sends them again brings all of it back.
        """
        self._writable()
        if not self._stranded.count:
            return
        self._stranded.hide(self._log)
        self._refold()
        self._stranded.let_go()
        self._tell_replaced()

    async def retry_unreadable(self) -> int:
        """Open what could not be opened before: a new keyring was adopted, or a snapshot stored.

        What a stored snapshot stands for needs no key any more: then the log is read from there.

        Returns:
            How many elements were folded.

        Raises:
            RejectedElementsError: Something was rejected; all that is good was folded.
            SequenceGapError: Elements are missing, and `strict_sequence` was asked for.
            TransportError: The snapshot cannot be read now; what the keys open was folded.
        """
        self._opened()
        try:
            async with self._turns:
                changes = Changes()
                folded = self._note(self._log.read_again(changes))
                self._follow(changes)
                self._restore_order()
                if self._log.unreadable and await self._is_unreadable_covered():
                    folded += await self._restart()
        finally:
            self._tell()
        self._raise()
        return folded

    async def _is_unreadable_covered(self) -> bool:
        """Whether a stored snapshot stands for something that cannot be opened."""
        stored = await self._source.stored_snapshot()
        oldest_ts = min(element.ts for element in self._log.unreadable.values())
        return stored is not None and oldest_ts <= stored.upto_ts

    def _restore_order(self) -> None:
        """Fold anew if an element was folded late."""
        if not self._log.is_out_of_order:
            return
        self._refold()
        self._tell_replaced()

    def _refold(self) -> None:
        crdt = self._fold_without(())
        self._outbox.fold_recorded(crdt)
        crdt.fold_runs(self._content.recorded())
        self._log.crdt = crdt
        self._content.replace(crdt)

    async def _pull(self) -> int:
        folded = 0
        try:
            while True:
                before, changes = self._log.checkpoint, Changes()
                reading = await read_page(self._source, self._log, changes)
                if reading is not None:
                    # First of all: whoever is told of the changes may raise.
                    folded += self._note(reading)
                    self._follow(changes)
                if self._log.checkpoint == before:
                    break
            if self._log.revocations.is_starved:
                folded += await self._read_starved()
            if self._base is not None:
                folded += await self._read_beyond(self._base)
        except CheckpointTooOldError:
            folded += await self._restart()
        except LogBehindError as error:
            self._fell_behind(error)
        self._restore_order()
        self._outbox.confirm(self._log)
        self._stranded.confirm(self._log)
        self._outbox.observe(self._log.tracker.highest(self._identity.public_key, None))
        self._forget()
        return folded

    async def _read_starved(self) -> int:
        """Read once more what may have found no room to wait; how many elements were folded."""
        if self._log.revocations.unmet == self._starved_of:
            return 0
        folded = await self._restart()
        # What is still missing then is withheld: once is enough.
        self._starved_of = self._log.revocations.unmet
        return folded

    async def _read_beyond(self, base: Snapshot) -> int:
        """Read anew if the snapshot that the log starts from turns out to hold more than counts;
        how many elements were folded.
        """
        if base is self._kept_base or not self._log.revocations.goes_beyond(base.heads):
            return 0
        folded = await self._restart()
        # If it is still there, there is nothing else to read.
        self._kept_base = self._base
        return folded

    def _fell_behind(self, error: LogBehindError) -> None:
        """The log ends before what was read of it: it is told once, and raised each time."""
        event = rolled_back(error)
        is_news = self._ends_at is None or error.head < self._ends_at
        (self._noticed if is_news else self._told).append(event)
        if is_news:
            self._ends_at = error.head
        self._read_only = event.reason

    async def _publish(self, draft: Callable[[], Draft]) -> dict[str, Any]:
        self._writable()
        store = self._source.snapshot_store
        if store is None:
            raise NoSnapshotStoreError
        try:
            async with self._turns:
                document = await self._publish_to(store, draft)
        finally:
            self._tell()
        self._raise()
        return document

    async def _publish_to(self, store: SnapshotStore, draft: Callable[[], Draft]) -> dict[str, Any]:
        for _ in range(_RESTARTS_MAX):
            await self._pull()
            self._writable()
            drafted = draft()
            try:
                document = await self._producer.publish(store, drafted)
            except BarrierMovedError:
                await self._restart()
                continue
            if document.get("producedBy") == self._identity.public_key:
                self._adopt_own(document, drafted)
            return document
        raise SnapshotConflictError

    def _adopt_own(self, document: dict[str, Any], drafted: Draft) -> None:
        """Take over a snapshot of one's own that was published, or was there already."""
        try:
            snapshot = self._source.read_snapshot(StoredSnapshot(document, ""), is_strict=False)
        except UnreadableError:
            # Another device has sealed it, with a key that is not here yet.
            return
        self._snapshot = snapshot
        if drafted.is_cutting:
            self._start_from(snapshot)

    def _start_from(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot that covers just what was read."""
        log = log_from(self._source, snapshot)
        trusted = SnapshotVerdict.TRUSTED
        self._go_on_from(Opening(log, snapshot, snapshot, trusted, list(self._retained), [], []))

    def _draft(self, over_gaps: bool) -> Draft:
        reasons = obstacles(self._source, self._log, self._quarantined)
        false = self._false_document()
        if self._base is not None and self._base.document == false:
            reasons.append("a snapshot that is false")
        if self._lost:
            reasons.append("elements that are here, and gone from the log")
        if reasons and not over_gaps:
            raise SnapshotRefusedError(reasons)
        fold = self._log.fold_at(TS_MAX)
        return Draft(self._log, fold, self._barrier(), self._cuts(), false, reasons)

    def _draft_cut(self, readers: Mapping[str, int]) -> Draft:
        reasons = [
            *obstacles(self._source, self._log, self._quarantined),
            *self._producer.cut_obstacles(self._log, readers),
            *self._unfinished(),
        ]
        if reasons:
            raise SnapshotRefusedError(reasons)
        draft = self._draft(over_gaps=False)
        if draft.fold is None or not draft.fold.counter:
            return draft
        fold, ts = draft.fold.collected(), self._log.checkpoint
        if ts == draft.barrier.ts:
            # Nothing was removed since.
            return draft
        return draft._replace(fold=fold, cuts=[*draft.cuts, Cut(ts, fold.counter)])

    def _draft_deletion(self) -> Draft:
        reasons = [*self._producer.cut_obstacles(self._log, {}), *self._unfinished()]
        if reasons:
            raise SnapshotRefusedError(reasons)
        cuts = deletion_cuts(self._log.checkpoint)
        return Draft(self._log, None, self._barrier(), cuts, self._false_document(), [])

    def _unfinished(self) -> list[str]:
        is_done = self._outbox.is_idle and not self._content.recorded()
        return [] if is_done else ["edits that were not read in the log yet; commit and pull first"]

    def _cuts(self) -> Sequence[Cut]:
        return self._base.cuts if self._base is not None else ()

    def _barrier(self) -> Cut:
        return newest_cut(self._cuts())

    def _false_document(self) -> object:
        """The stored snapshot, if it was found to be false."""
        is_false = self._verdict is SnapshotVerdict.MISMATCH and self._opened_with is not None
        return self._opened_with.document if is_false and self._opened_with else None

    # ── history ────────────────────────────────────────────────────────────────────────

    def history(self) -> list[Version]:
        """The committed versions since the snapshot that this session started from, or the newest
        of them: see `history_max`.
        """
        self._opened()
        return versions_of(self._log.ledger.parts())

    @property
    def history_length(self) -> int:
        """How many versions `history` knows."""
        return self._log.ledger.count

    def at(self, version: int) -> dict[str, Any]:
        """The document as it was after the element with a `ts`.

        Raises:
            ValueError: The version is older than what `history` knows.
        """
        self._opened()
        self._check_version(version)
        return self._log.fold_at(version).materialize()

    def diff(self, before: int, after: int) -> list[Change]:
        """What changed from one version to another, each the `ts` of an element.

        Raises:
            ValueError: A version is older than what `history` knows, or was not read in the log
                yet.
        """
        return differences(self._fold_of(before), self._fold_of(after))

    def revert_to(self, version: int) -> None:
        """Make the document read as it did after the element with a `ts`, as an edit of now.

        What others write meanwhile is kept, and the edit can be undone like any other.

        Raises:
            ValueError: The version is older than what `history` knows, or was not read in the log
                yet.
            UsageError: A name is of another kind by now, or a value cannot be written here; nothing
                has changed.
        """
        self._writable().revert_to(self._fold_of(version))
        self._after_edit()

    def blame(self, name: str, *, at: int | None = None) -> list[Blame]:
        """Who wrote each stretch of a list, a register, or each key of a map; in which element.

        The keys of a map are in code-point order. A register that was deleted has nobody to blame.

        Args:
            name: The list, register or map.
            at: As of the version with this `ts`; as of now if left out, uncommitted edits and all.

        Raises:
            ValueError: The version is older than what `history` knows, or was not read in the log
                yet.
        """
        ledger = self._log.ledger
        if at is None:
            return blame_of(self._opened().crdt, name, ledger)
        return blame_of(self._fold_of(at), name, ledger.upto(at))

    def _fold_of(self, version: int) -> WalCrdt:
        """The fold of a version that is there, and was read."""
        self._opened()
        if version > self._log.checkpoint:
            raise ValueError(f"the log was read up to {self._log.checkpoint}; pull first")
        self._check_version(version)
        return self._log.fold_at(version)

    def _check_version(self, version: int) -> None:
        if version < self._log.base_ts:
            raise ValueError(f"the history here starts at {self._log.base_ts}")

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _opened(self) -> Content:
        if not self._is_open:
            raise NotOpenError
        return self._content

    def _writable(self) -> Content:
        if self._read_only is not None:
            raise ReadOnlyError(self._read_only)
        return self._opened()

    def _after_edit(self) -> None:
        # Where nobody waits for it, edits are taken over when they are committed.
        if self._is_watched:
            self._edited()

    def _edited(self) -> None:
        """Take over what was edited: keep it, then tell of it."""
        runs = self._content.take()
        if not self._is_watched:
            self._outbox.record(runs)
            return
        befores = self._content.take_befores() if runs else None
        step = None if befores is None else capture(self._content.crdt, runs, befores)
        self._outbox.record(runs)
        try:
            if self._journal is not None and (runs or self._unkept):
                self._unkept += runs
                self._keep(self._journal, self._unkept)
                self._unkept = []
        finally:
            if step is not None and self._on_step is not None:
                self._on_step(step)
            self._tell_changed("local", self._identity.public_key)

    def _keep(self, journal: Journal, runs: list[Run]) -> None:
        try:
            journal.record(runs)
        except TooLargeToRecordError:
            self._outbox.seal(self._log)

    def _follow(self, changes: Changes) -> None:
        """Keep up with what was folded, and tell of it."""
        self._content.follow(changes)
        if self._on_changed is not None:
            for changed in changes.by_element():
                self._on_changed(changed)

    def _tell_replaced(self) -> None:
        self._tell_changed("remote", "")

    def _tell_changed(self, origin: Literal["local", "remote"], author: str) -> None:
        changes = self._content.take_changes()
        if changes and self._on_changed is not None:
            self._on_changed(Changed(origin, author, None, changes))

    def _tell(self) -> None:
        """Tell what was noticed, each thing once, whatever else went wrong."""
        displaced = self._log.crdt.displaced
        if displaced:
            self._log.crdt.displaced = []
            self._noticed += [
                Displaced(run.list, run.replica, run.counter, len(run.values)) for run in displaced
            ]
        if not self._noticed:
            return
        events, self._noticed = self._noticed, []
        self._told += events
        if self._on_event is not None:
            for event in events:
                self._on_event(event)

    def _raise(self, *, is_opening: bool = False) -> None:
        """Raise for what was told since the last time, if that was asked for."""
        if not self._told:
            return
        events, self._told = self._told, []
        rollbacks = [event for event in events if isinstance(event, Rollback)]
        # What was taken for one may have been found since.
        if rollbacks and self._read_only is not None:
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


def _raw_elements(parts: Iterable[Part]) -> list[RawElement]:
    return [
        RawElement(element.ts, element.canonical, element.author, element.signature)
        for part in parts
        for element in part.newest(len(part))
    ]


def _newest_of(log: DocumentLog, author: str) -> str | None:
    """The link to an author's newest element."""
    for part in reversed(log.ledger.entries.parts):
        if part.author == author and part.replica is not None:
            return part.link_last
    heads = sorted(log.heads.get(author, ()))
    return heads[-1].link if heads else None


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


def _membership(keys: Keys) -> Callable[[str], bool]:
    return keys if callable(keys) else frozenset(keys).__contains__


def _checked_ts(ts: object) -> int:
    if type(ts) is not int or not 0 <= ts <= TS_MAX:
        raise TransportError("the relay acknowledged with something else than a ts", retryable=True)
    return ts
