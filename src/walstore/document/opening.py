"""How a document is opened: what is believed of its snapshot, and where its log starts.

- `trust` adopts the snapshot and reads the tail; `trust-retain-tail` also looks whether the newest
  elements that it covers are in it, and keeps them; `re-derive` folds the log from its start and
  holds the snapshot against it.
- Who lacks the role is ignored, who forges is reported. Only a definite answer that there is no
  snapshot counts as absence.
- What is pruned or cannot be read cannot be held against a snapshot: it is then unverifiable, and
  the document starts from it. A false one is reported, and the log's own fold is shown.
- A pruned log without a snapshot to start from does not open: what is left of it is no document.
- Where a snapshot has let go of removed elements, the log is held against it with the same cuts,
  and the document starts from the snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Literal, NamedTuple

from walstore.crdt import COUNTER_MAX, Change, MapChanged, WalCrdt
from walstore.crdt.counters import Counters
from walstore.crdt.runs import Insert, Remove
from walstore.document.changed import Changes
from walstore.document.events import Event, Gap, Rejection, Rollback
from walstore.document.gaps import Session
from walstore.document.ledger import Entry, highest_counter
from walstore.document.log import DocumentLog, Reading, ts_of
from walstore.document.ports import (
    CheckpointTooOldError,
    LogBehindError,
    SnapshotStore,
    StoredSnapshot,
    Transport,
)
from walstore.document.revoked import Revoked, counted_seq, is_overreaching, nobody_revoked
from walstore.document.sealing import Sealed
from walstore.document.snapshot import (
    SNAPSHOT_SUFFIX,
    Cut,
    ForeignSnapshotError,
    Snapshot,
    deletion_cuts,
    read_snapshot,
    same_state,
)
from walstore.errors import MalformedError, TransportError
from walstore.sealed.encryptor import Encryptor
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.signed.roster import Counted, seq_of
from walstore.wire.element import Element
from walstore.wire.limits import COUNTER_JUMP_MAX, TS_MAX

Posture = Literal["trust", "trust-retain-tail", "re-derive"]


class SnapshotVerdict(Enum):
    """What became of the stored snapshot."""

    NONE = "there is none, or none by a key with the role"
    TRUSTED = "adopted on its producer's word"
    VERIFIED = "the log folds to it"
    UNVERIFIABLE = "adopted; the log before it is pruned or cannot be read"
    MISMATCH = "the log folds to something else"
    FORGED = "it is not what it claims to be"

    @property
    def is_believed(self) -> bool:
        """Whether the document may start from it."""
        return self in (self.TRUSTED, self.VERIFIED, self.UNVERIFIABLE)


class PrunedLogError(CheckpointTooOldError):
    """The log is pruned, and there is no snapshot to start from that stands for what is gone.

    Attributes:
        verdict: What became of the stored snapshot.
        rollback: What is known to be lost: there was a newer snapshot once; None if nothing is.
    """

    def __init__(
        self, floor: int, verdict: SnapshotVerdict, rollback: Rollback | None = None
    ) -> None:
        reason = verdict.value
        if verdict.is_believed:
            reason = "it does not reach so far"
        elif verdict is SnapshotVerdict.NONE:
            reason = "there is none by a key with the role, or none that can be opened"
        TransportError.__init__(
            self,
            f"the log is pruned up to {floor}, and no snapshot can stand for that: {reason}",
            retryable=False,
        )
        self.floor = floor
        self.verdict = verdict
        self.rollback = rollback


class OverreachingSnapshotError(MalformedError):
    """A snapshot, honest as far as can be told, that covers what no longer counts, or without what
    counts again.

    Attributes:
        snapshot: The snapshot.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__("snapshot", "it was made when other elements of a revoked author counted")
        self.snapshot = snapshot


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


@dataclass(frozen=True, slots=True)
class Source:
    """Where a document is read from, and who is believed."""

    document_key: str
    transport: Transport
    snapshot_store: SnapshotStore | None
    encryptor: Encryptor
    is_writer: Callable[[str], bool]
    is_producer: Callable[[str], bool]
    now_ms: Callable[[], int]
    pool: Executor | None
    revoked: Revoked = nobody_revoked

    @property
    def snapshot_key(self) -> str:
        """Where the document's snapshot is."""
        return self.document_key + SNAPSHOT_SUFFIX

    def may_hinder(self, author: str) -> bool:
        """Whether what is wrong with an author's elements has to be settled by somebody."""
        return self.is_writer(author) and self.revoked(author) is None

    def is_missed(self, gap: Gap) -> bool:
        """Whether a gap has to be closed by somebody: of the revoked, what the owner has read."""
        counts = self.revoked(gap.author)
        if counts is None:
            return self.is_writer(gap.author)
        counted = counts.get(gap.session or "")
        if not isinstance(counted, Counted) or counted.torn is not None:
            # The seqs of a torn session may be left out by its author.
            return False
        return gap.expected <= counted.seq

    def is_told_by_links(self, author: str, session: str | None) -> bool:
        """Whether nothing but the links in an element is needed to tell if it counts."""
        counts = self.revoked(author)
        return counts is None or isinstance(counts.get(session or ""), Counted)

    def counted(self, replica: str, seq: int) -> int:
        """How far a replica counts that has been read up to a seq."""
        author, _, session = replica.partition(":")
        return counted_seq(self.revoked, author, session, seq)

    def new_log(self) -> DocumentLog:
        """The log, not read yet."""
        return DocumentLog(
            self.document_key,
            encryptor=self.encryptor,
            is_writer=self.is_writer,
            revoked=self.revoked,
            now_ms=self.now_ms,
            pool=self.pool,
        )

    async def stored_snapshot(self, *, is_strict: bool = True) -> Snapshot | None:
        """The stored snapshot, if it can be opened and is to be believed; see `read_snapshot`."""
        stored = None
        if self.snapshot_store is not None:
            stored = await self.snapshot_store.read(self.snapshot_key)
        try:
            return None if stored is None else self.read_snapshot(stored, is_strict=is_strict)
        except (MalformedError, SealRejectedError, UnreadableError):
            return None

    def read_snapshot(self, stored: StoredSnapshot, *, is_strict: bool = True) -> Snapshot:
        """Check and open a stored snapshot; raises as `read_snapshot` does.

        Args:
            stored: The snapshot.
            is_strict: Whether to refuse one that covers more of a revoked author than counts, or
                less of who is a member again.

        Raises:
            OverreachingSnapshotError: It does.
        """
        snapshot = read_snapshot(
            stored.document,
            document_key=self.document_key,
            is_producer=self.is_producer,
            encryptor=self.encryptor,
        )
        if is_strict and (
            self._lacks_what_counts(snapshot) or is_overreaching(self.revoked, snapshot)
        ):
            raise OverreachingSnapshotError(snapshot)
        return snapshot

    def _lacks_what_counts(self, snapshot: Snapshot) -> bool:
        """Whether it was made without what somebody wrote of whom more counts by now."""
        return any(self._lacks(snapshot, each) for each in snapshot.without)

    def _lacks(self, snapshot: Snapshot, author: str) -> bool:
        counts = self.revoked(author)
        if counts is None:
            return self.is_writer(author)
        return any(
            seq_of(counted) > covered
            for session, counted in counts.items()
            if (covered := snapshot.seq_of(author, session)) is not None
        )


class Opening(NamedTuple):
    """What came of opening a document.

    Attributes:
        log: The log, read to its end.
        snapshot: The snapshot that the verdict is on; None if none is believed.
        base: The snapshot that the log starts from; None if it starts at its beginning.
        verdict: What became of the snapshot.
        retained: The newest elements that the snapshot covers, if they were asked for.
        readings: What became of the elements that were read.
        events: What was noticed besides.
    """

    log: DocumentLog
    snapshot: Snapshot | None
    base: Snapshot | None
    verdict: SnapshotVerdict
    retained: list[Element]
    readings: list[Reading]
    events: list[Event]


async def open_document(
    source: Source, posture: Posture, *, retain_tail_n: int, marks: Marks
) -> Opening:
    """Read a document's snapshot and log.

    Raises:
        PrunedLogError: What is gone from the log is in no snapshot that can be used.
        TransportError: One of them cannot be read now.
    """
    tried = -1
    while True:
        events: list[Event] = []
        # What was pruned below a snapshot that covers too much is nowhere else any more.
        is_strict = tried < 0
        snapshot, verdict = await _load_snapshot(source, marks, events, is_strict=is_strict)
        try:
            opening = await _open_with(
                source, posture, snapshot, verdict, events, retain_tail_n=retain_tail_n
            )
            if snapshot is None or not (is_strict and verdict.is_believed):
                return opening
            if not opening.log.revocations.goes_beyond(snapshot.heads):
                return opening
            snapshot, verdict, events = (
                snapshot if snapshot.cuts else None,
                SnapshotVerdict.NONE,
                [],
            )
            return await _open_with(
                source, posture, snapshot, verdict, events, retain_tail_n=retain_tail_n
            )
        except CheckpointTooOldError as error:
            upto = 0 if snapshot is None else snapshot.upto_ts
            # It may have been pruned below a newer snapshot, just now.
            if upto <= tried:
                lost = [event for event in events if isinstance(event, Rollback)]
                raise PrunedLogError(error.floor, verdict, next(iter(lost), None)) from error
            tried = upto


async def _open_with(
    source: Source,
    posture: Posture,
    snapshot: Snapshot | None,
    verdict: SnapshotVerdict,
    events: list[Event],
    *,
    retain_tail_n: int,
) -> Opening:
    """Open by a snapshot; one that is not believed serves for its cuts alone."""
    if verdict is SnapshotVerdict.NONE and snapshot is not None:
        return await _trust_cuts(source, snapshot, events)
    if posture == "re-derive":
        return await _derive(source, snapshot, verdict, events)
    count = retain_tail_n if posture == "trust-retain-tail" else 0
    return await _trust(source, snapshot, verdict, events, count)


async def _trust(
    source: Source,
    snapshot: Snapshot | None,
    verdict: SnapshotVerdict,
    events: list[Event],
    retain_tail_n: int,
) -> Opening:
    """Start from the snapshot, and look at the newest elements that it covers."""
    retained = list[Element]()
    if snapshot is not None and retain_tail_n > 0:
        retained, is_false = await _retain_below(source, snapshot, retain_tail_n)
        if is_false:
            reason = "its tail holds edits that the state does not"
            events.append(_false(snapshot, reason))
            verdict = SnapshotVerdict.MISMATCH
    log, readings = log_from(source, snapshot), list[Reading]()
    try:
        while True:
            before = log.checkpoint
            reading = await read_page(source, log)
            if reading is not None:
                readings.append(reading)
            if log.checkpoint == before:
                break
        if log.revocations.is_starved:
            log = log_from(source, snapshot)
            _, rest = await _both_sides(source, log.checkpoint, after=log.checkpoint)
            log.foresee(rest)
            readings = [log.read(rest)]
    except LogBehindError as error:
        # What the snapshot covers was in the log once, and is not any more.
        events.append(rolled_back(error))
    return Opening(log, snapshot, snapshot, verdict, retained, readings, events)


async def _trust_cuts(source: Source, snapshot: Snapshot, events: list[Event]) -> Opening:
    """Start where a snapshot has let go of something last, from what the log folds to up to there.

    It is not believed for what it covers; but whoever has let go of the same goes on from there.
    Whoever cannot open all of the log has nothing but the snapshot.
    """
    covered, rest = await _both_sides(source, snapshot.barrier.ts, is_behind_told=True)
    base = folded_with_cuts(source.new_log, snapshot, covered, rest)
    if base is None:
        return await _trust(source, snapshot, SnapshotVerdict.TRUSTED, events, retain_tail_n=0)
    opening = await _trust(source, base, SnapshotVerdict.NONE, events, retain_tail_n=0)
    return opening._replace(snapshot=None)


def folded_with_cuts(
    new_log: Callable[[], DocumentLog],
    snapshot: Snapshot,
    covered: Sequence[object],
    rest: Sequence[object],
) -> Snapshot | None:
    """What a log folds to up to where a snapshot has let go of something last, if the same is let
    go; None if not all of it can be opened.

    Args:
        new_log: Makes a log that was not read yet.
        snapshot: The snapshot.
        covered: The elements of the log up to there.
        rest: Those above.
    """
    barrier, log = snapshot.barrier, new_log()
    log.foresee([*covered, *rest])
    judged, _ = _read_covered(new_log, log, snapshot, covered, rest)
    if log.unreadable:
        return None
    seqs = log.tracker.seqs()
    base = snapshot._replace(
        upto_ts=barrier.ts,
        writer_seq=log.tracker.writer_seq(),
        heads=judged.heads,
        seqs=seqs,
        covered=seqs or {},
        document={**snapshot.document, "state": None if barrier.is_deletion else {}},
        ceiling=judged.counter,
        without=frozenset(log.revocations.without),
        torn=log.revocations.torn(),
    )
    # What never comes of the revoked is known once all is here that counts of them.
    judged.read(rest)
    crdt, cuts = _fold_with_cuts(judged, snapshot, upto_ts=barrier.ts)
    return base._replace(crdt=crdt, cuts=cuts)


def rolled_back(error: LogBehindError) -> Rollback:
    """What is to be told of a log that ends before what was read of it."""
    return Rollback(error.reason, error.head)


async def read_page(
    source: Source, log: DocumentLog, changes: Changes | None = None
) -> Reading | None:
    """Read the next page of a log; None if it is empty.

    After a page that does not move the checkpoint there is nothing more to read: it was empty, or
    nothing but refuse.

    Args:
        source: Where it is.
        log: How far it was read.
        changes: If given, what the page changed in the document is appended to it.

    Raises:
        CheckpointTooOldError: The log is pruned above where it was left.
        LogBehindError: The log ends before where it was left.
        TransportError: It cannot be read now.
    """
    page = await source.transport.pull(source.document_key, log.checkpoint)
    return log.read(page, changes) if page else None


async def _load_snapshot(
    source: Source, marks: Marks, events: list[Event], *, is_strict: bool
) -> tuple[Snapshot | None, SnapshotVerdict]:
    """The stored snapshot and the verdict on it; one that is not believed, for its cuts alone."""
    if source.snapshot_store is None:
        return None, SnapshotVerdict.NONE
    stored = await source.snapshot_store.read(source.snapshot_key)
    if stored is None:
        if marks.snapshot_ts:
            events.append(Rollback("the snapshot is gone"))
        return None, SnapshotVerdict.NONE
    try:
        snapshot = source.read_snapshot(stored, is_strict=is_strict)
    except ForeignSnapshotError:
        return None, SnapshotVerdict.NONE
    except OverreachingSnapshotError as error:
        return error.snapshot if error.snapshot.cuts else None, SnapshotVerdict.NONE
    except (MalformedError, SealRejectedError) as error:
        events.append(Rejection(None, None, str(error), stored.document, proven=False))
        return None, SnapshotVerdict.FORGED
    except UnreadableError:
        return None, SnapshotVerdict.NONE
    if snapshot.upto_ts < marks.snapshot_ts:
        events.append(Rollback("the snapshot is older than the one seen before"))
        return None, SnapshotVerdict.NONE
    return snapshot, SnapshotVerdict.TRUSTED


def log_from(source: Source, snapshot: Snapshot | None) -> DocumentLog:
    """A log that starts where a snapshot ends, or at its beginning."""
    log = source.new_log()
    return log if snapshot is None else started(log, snapshot)


def started(log: DocumentLog, snapshot: Snapshot) -> DocumentLog:
    """A log that was not read yet, started where a snapshot ends."""
    log.start(snapshot.crdt, snapshot.heads, snapshot.ceiling)
    log.checkpoint = log.base_ts = snapshot.upto_ts
    for author, seq in snapshot.writer_seq.items():
        log.tracker.cover(author, None, seq)
    for replica, seq in (snapshot.seqs or {}).items():
        author, _, session = replica.partition(":")
        log.tracker.cover(author, session, seq)
        log.links.begin_with(author, session, seq)
    if snapshot.seqs is None:
        log.tracker.cover_unknown()
    log.covered = dict(snapshot.covered)
    log.revocations.left_out = dict.fromkeys(snapshot.without, 0)
    return log


async def _derive(
    source: Source, snapshot: Snapshot | None, verdict: SnapshotVerdict, events: list[Event]
) -> Opening:
    """Fold the log from its start, and hold the snapshot against it where it ends."""
    upto = TS_MAX if snapshot is None else snapshot.upto_ts
    try:
        covered, rest = await _both_sides(source, upto)
    except CheckpointTooOldError:
        if snapshot is None:
            raise
        unverifiable = SnapshotVerdict.UNVERIFIABLE
        return await _trust(source, snapshot, unverifiable, events, retain_tail_n=0)
    log, base = source.new_log(), None
    log.foresee([*covered, *rest])
    if snapshot is None:
        readings = [log.read(covered), log.read(rest)]
        return Opening(log, None, None, verdict, [], readings, events)
    judged, readings = _read_covered(source.new_log, log, snapshot, covered, rest)
    flaw, lacked = _flaw(log, judged, snapshot), _lacked(log, snapshot)
    is_unreadable, unlinked = bool(log.unreadable), set(log.revocations.unlinked)
    above = log.read(rest)
    # What is there where the snapshot does not reach any more was not missing.
    is_lacked = not all(log.tracker.has_all(*session, seq) for session, seq in lacked.items())
    if is_unreadable or is_lacked or not unlinked.isdisjoint(log.revocations.unlinked):
        # What is not there cannot be held against the snapshot, nor speak for it.
        verdict, base = SnapshotVerdict.UNVERIFIABLE, snapshot
        readings = [_without_gaps(reading) for reading in readings]
    elif flaw is None:
        verdict, base = SnapshotVerdict.VERIFIED, snapshot if snapshot.cuts else None
    elif unlinked:
        # Who signed it may not have known yet that something of the revoked does not count.
        snapshot, verdict = None, SnapshotVerdict.NONE
    else:
        verdict = SnapshotVerdict.MISMATCH
        events.append(_false(snapshot, flaw))
    if base is not None:
        log = log_from(source, base)
        log.foresee(rest)
        above = log.read(rest)
    return Opening(log, snapshot, base, verdict, [], [*readings, above], events)


def _read_covered(
    new_log: Callable[[], DocumentLog],
    log: DocumentLog,
    snapshot: Snapshot,
    covered: Sequence[object],
    rest: Sequence[object],
) -> tuple[DocumentLog, list[Reading]]:
    """Read what a snapshot covers into a log; the same since the last deletion that the snapshot
    knows of, and what came of it.

    What was there before a cut is passed over above it, as by all who read on from there.
    """
    ends = [cut.ts for cut in snapshot.cuts]
    parts: list[list[object]] = [[] for _ in (*ends, None)]
    for element in covered:
        parts[bisect_left(ends, ts_of(element))].append(element)
    judged, readings = log, [log.read(parts[0])]
    for place, cut in enumerate(snapshot.cuts, 1):
        judged.covered = log.covered = log.tracker.seqs() or {}
        if cut.is_deletion:
            judged = _deleted(new_log, log, cut.ts)
            judged.foresee([*chain.from_iterable(parts[place:]), *rest])
        if judged is not log:
            judged.read(parts[place])
        readings.append(log.read(parts[place]))
    return judged, readings


async def _both_sides(
    source: Source, upto: int, *, after: int = 0, is_behind_told: bool = False
) -> tuple[list[object], list[object]]:
    """The whole log, or what is after a `ts`: what is up to another one, and what is above.

    Args:
        source: Where it is.
        upto: What divides it.
        after: Where it begins.
        is_behind_told: Whether somebody else tells if it ends before what was read of it.
    """
    covered: list[object] = []
    rest: list[object] = []
    checkpoint = after
    while True:
        try:
            page = await source.transport.pull(source.document_key, checkpoint)
        except LogBehindError:
            if is_behind_told:
                return covered, rest
            raise
        for element in page:
            (covered if ts_of(element) <= upto else rest).append(element)
        newest = max((ts_of(element) for element in page), default=checkpoint)
        if newest <= checkpoint:
            return covered, rest
        checkpoint = newest


def _without_gaps(reading: Reading) -> Reading:
    return reading._replace(
        events=[event for event in reading.events if not isinstance(event, Gap)]
    )


def _deleted(new_log: Callable[[], DocumentLog], log: DocumentLog, ts: int) -> DocumentLog:
    """A log that starts at a deletion, as for all who read on from there: they know how far the
    sessions had come, and nothing else of what was before.
    """
    crdt, seqs = WalCrdt(), log.tracker.seqs() or {}
    crdt.horizon = COUNTER_MAX
    authors = log.tracker.writer_seq()
    deletion = Snapshot(crdt, ts, authors, {}, seqs, seqs, deletion_cuts(ts), "", {})
    return started(new_log(), deletion)


def _flaw(log: DocumentLog, judged: DocumentLog, snapshot: Snapshot) -> str | None:
    """What in a snapshot is not as the log says.

    Args:
        log: The log, read from its start.
        judged: The same, or since the last deletion that the snapshot knows of.
        snapshot: The snapshot.
    """
    if log.is_out_of_order:
        log.crdt = log.refolded()
    crdt = _fold_with_cuts(judged, snapshot)[0] if snapshot.cuts else log.crdt
    if not same_state(crdt, snapshot):
        return "the log folds to another state"
    if any(seq > snapshot.covered.get(replica, 0) for replica, seq in judged.covered.items()):
        return "`covered` leaves out what was there before a cut"
    # Who counts on from there has no clocks left, or some that others take for let go.
    if snapshot.crdt.counter > crdt.counter:
        return "`maxClock` is above every clock"
    if snapshot.ceiling > judged.counter and not judged.has_unopened:
        return "`ceiling` is above every clock"
    if snapshot.cuts and snapshot.crdt.counter < crdt.counter:
        return "`maxClock` is below a clock"
    if snapshot.crdt.horizon != crdt.horizon:
        return "`cuts` name another counter"
    if snapshot.upto_ts != log.checkpoint:
        return "`uptoTs` is no element's"
    if snapshot.seqs is not None:
        if log.tracker.writer_seq() != snapshot.writer_seq:
            return "`writerSeq` counts other elements"
        if log.tracker.seqs() != snapshot.seqs:
            return "`seqs` counts other elements"
    return None


def _fold_with_cuts(
    log: DocumentLog, snapshot: Snapshot, *, upto_ts: int = TS_MAX
) -> tuple[WalCrdt, list[Cut]]:
    """Fold a log up to a `ts`, and let go of the same at the same places as in a snapshot; the cuts
    as well, as they are where no more and no less counts than now.
    """
    due = deque(cut for cut in snapshot.cuts if cut.ts > log.base_ts)
    cuts = [cut for cut in snapshot.cuts if cut.ts <= log.base_ts]
    crdt = log.fold_on(log.base)
    entries = [entry for entry in log.ledger.entries if entry.ts <= upto_ts]
    # After the last element there may be cuts, too.
    for entry in [*sorted(entries, key=lambda entry: entry.ts), None]:
        # Between cuts where nothing was folded, once is as good as often.
        is_due = False
        while due and (entry is None or due[0].ts < entry.ts):
            is_due, cut = True, due.popleft()
            # There may be nothing below that counts, and a cut has a counter all the same.
            cuts.append(cut._replace(horizon=max(crdt.counter, 1)))
        if is_due:
            crdt = crdt.collected()
            crdt.horizon = max(crdt.horizon, cuts[-1].horizon)
        if entry is not None:
            crdt.fold_runs(entry.runs)
    return crdt, cuts


def _lacked(log: DocumentLog, snapshot: Snapshot) -> dict[Session, int]:
    """The sessions of which a snapshot covers something that is missing from a log, and up to
    which seq.
    """
    covered: dict[Session, int] = {
        (author, None): seq for author, seq in snapshot.writer_seq.items()
    }
    for replica, seq in (snapshot.seqs or {}).items():
        author, _, nonce = replica.partition(":")
        covered[author, nonce] = seq
    authors = log.tracker.authors()
    lacked = {session: seq for session, seq in covered.items() if session[0] not in authors}
    for gap in log.tracker.gaps():
        session = gap.author, gap.session
        is_told = gap.session is None or snapshot.seqs is not None
        upto = covered.get(session, 0) if is_told else gap.got - 1
        if gap.expected <= upto:
            lacked[session] = upto
    return lacked


async def _retain_below(
    source: Source, snapshot: Snapshot, count: int
) -> tuple[list[Element], bool]:
    """The newest elements that a snapshot covers, and whether they contradict it."""
    tail = getattr(source.transport, "tail", None)
    if tail is not None:
        page = await tail(source.document_key, snapshot.upto_ts, count)
    else:
        page = await _page_below(source, snapshot.upto_ts, count)
    checker = source.new_log()
    checker.tracker.cover_unknown()
    checker.counter = snapshot.ceiling
    entries = checker.read(page).folded
    crdt = checker.fold_on(snapshot.crdt)
    # Where seqs alone tell what counts of the revoked, it is what came first: maybe before these.
    told = [
        entry
        for entry in entries
        if source.is_told_by_links(entry.author, entry.session)
        and not _is_left_out(entry, snapshot)
    ]
    is_false = _contradicts(told, snapshot, crdt, is_whole=len(page) < count)
    return [entry.element for entry in entries], is_false


def _is_left_out(entry: Entry, snapshot: Snapshot) -> bool:
    """Whether an element did not count when a snapshot was made, which is no lie."""
    covered = snapshot.seq_of(entry.author, entry.session)
    return entry.author in snapshot.without and (covered is None or entry.seq_last > covered)


async def _page_below(source: Source, upto: int, count: int) -> list[object]:
    """The newest elements up to a `ts`, from a transport that can only read forward."""
    newest: deque[object] = deque(maxlen=count)
    checkpoint = 0
    while True:
        try:
            page = await source.transport.pull(source.document_key, checkpoint)
        except CheckpointTooOldError as error:
            # What is pruned needs no check: there is nothing to hold against the snapshot.
            if not checkpoint < error.floor < upto:
                return list(newest)
            checkpoint = error.floor
            continue
        newest.extend(element for element in page if ts_of(element) <= upto)
        last = max((ts_of(element) for element in page), default=checkpoint)
        if last <= checkpoint or last >= upto:
            return list(newest)
        checkpoint = last


def is_covered(sealed: Sealed, snapshot: Snapshot) -> bool:
    """Whether a snapshot covers an own element, as far as can be told."""
    header, author = sealed.header, sealed.body.author
    if header is not None and snapshot.seqs is not None:
        return snapshot.seqs.get(f"{author}:{header.session}", 0) >= header.seq
    if (sealed.author_seq or 0) > snapshot.writer_seq.get(author, 0):
        return False
    changes: list[Change] = []
    snapshot.crdt.clone().fold_runs(sealed.runs, changes)
    return not changes


def _contradicts(
    tail: Sequence[Entry], snapshot: Snapshot, crdt: WalCrdt, *, is_whole: bool
) -> bool:
    """Whether elements that a snapshot covers hold edits that its state, as a fold, does not."""
    changes: list[Change] = []
    counter = 0 if is_whole else None
    early = _removed_early(tail) if snapshot.cuts else ()
    for entry in tail:
        is_repeated = entry.seq_last <= snapshot.covered.get(entry.replica or "", -1)
        if entry.ts <= snapshot.barrier.ts or is_repeated or entry.ts in early:
            # What it inserted may have been removed and let go since.
            continue
        highest = highest_counter(entry.runs)
        # After a jump that no honest writer makes, the element may have been refused, and so may
        # all that are above it. Its producer knew, and this reader cannot: what came before the
        # tail would tell.
        if counter is not None:
            if highest > counter + COUNTER_JUMP_MAX // 2:
                break
            crdt.fold_runs(entry.runs, changes)
        counter = max(counter or 0, highest)
    # A peer that knows no sessions knows no maps either, and cannot be held to them.
    return any(snapshot.seqs is not None or not isinstance(each, MapChanged) for each in changes)


def _removed_early(tail: Sequence[Entry]) -> set[int]:
    """The `ts` of elements that remove what only later ones insert: after a cut, that is let go of
    where they stand, and there all the same in the end.
    """
    found: set[int] = set()
    later: dict[str, Counters] = defaultdict(Counters)
    for entry in reversed(tail):
        for run in entry.runs:
            if isinstance(run, Remove):
                end = run.first_target + run.size
                if later[run.list].last_below(run.target_replica, end) >= run.first_target:
                    found.add(entry.ts)
        for run in entry.runs:
            if isinstance(run, Insert):
                later[run.list].add(run.replica, run.counter, len(run.values))
    return found


def _false(snapshot: Snapshot, reason: str) -> Rejection:
    return Rejection(None, snapshot.produced_by, reason, snapshot.document, proven=True)
