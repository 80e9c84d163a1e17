"""Folds one document's log in parts, without opening it: for archives, and for many at once.

    kept state ─┐
    snapshots ──┼─► DocumentLog ─► value, what was noticed, state to keep ─► …
    elements ───┘

- It is the fold that a document makes of its log, by the same code; nothing here has a meaning of
  its own. However the log is cut into parts, the value and the kept state are the same, byte for
  byte, as if it had been folded at once.
- The kept state is a snapshot that the folder has signed for itself. It is believed under no other
  key, and published nowhere.
- Elements that nothing proves, or that no key opens, are counted and remembered by name. Once one
  of them may count, only the whole log tells what it folds to: the answer is then `ReadAgain`.
  The same holds when others may write than before.
- Snapshots of those with the role count where they have let go of something, as for whoever opens
  the document; and where the elements below them are gone.
- No clock is asked, and nothing is random.
- As in a log that is read page by page, at most `UNPROVEN_MAX` elements wait for a proof. Counts
  take it that a log holds each element once, as relays see to; the value does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from walstore.crdt import WalCrdt
from walstore.crdt.nodes import NodeSequence
from walstore.crdt.packed_state import StateTooLargeError
from walstore.document.entries import Entry
from walstore.document.events import Fork, Gap, Rejection
from walstore.document.fold_note import NOTE_NAME, FoldNote
from walstore.document.fold_rules import FoldRules
from walstore.document.fold_start import (
    NotEnoughError,
    Start,
    above,
    based,
    check_vouching,
    cut_by,
    read_kept,
    resumed,
)
from walstore.document.gaps import Session
from walstore.document.log import UNPROVEN_MAX, Reading
from walstore.document.opening import started
from walstore.document.ports import RawElement
from walstore.document.snapshot import Snapshot, make_snapshot, newest_cut
from walstore.errors import MalformedError
from walstore.sealed.encryptor import PlainEncryptor
from walstore.sealed.outcomes import SealRejectedError
from walstore.signed.chain import Head
from walstore.signed.identity import Identity
from walstore.signed.roster import seq_of
from walstore.wire.envelope import Profile

__all__ = ["FoldRules", "Folded", "ReadAgain", "fold", "kept_note"]

_PLAIN = PlainEncryptor()


class Folded(NamedTuple):
    """What a log folds to, as far as it was read.

    Attributes:
        value: The document.
        state: What to go on from; None without an identity, or if it is too large to be kept.
        upto_ts: How far the log was read.
        elements: How many elements were good, since the base.
        authors: Who wrote, sorted.
        rejected: How many elements were rejected, since the base.
        unreadable: How many wait for a key, since the base.
        gaps: What is missing now.
        opened: Those of the gaps that were not there before this part.
        seen: The highest seq of each session.
        rejections: What was rejected in this part, with its reason.
        forks: Clocks that were used twice, as far as both uses are in this part.
        is_deleted: Whether the document was deleted, and nothing was written since.
    """

    value: dict[str, Any]
    state: dict[str, Any] | None
    upto_ts: int
    elements: int
    authors: list[str]
    rejected: int
    unreadable: int
    gaps: list[Gap]
    opened: list[Gap]
    seen: dict[Session, int]
    rejections: list[Rejection]
    forks: list[Fork]
    is_deleted: bool

    def is_fuller_than(self, other: Folded) -> bool:
        """Whether something is here that the other lacks, and nothing the other way round."""
        has_all = all(self.seen.get(session, 0) >= seq for session, seq in other.seen.items())
        is_less = sum(map(_size, self.gaps)) < sum(map(_size, other.gaps))
        return has_all and is_less and not _opened(self.gaps, other.gaps)


class ReadAgain(NamedTuple):
    """A part is not enough: the document has to be folded anew, from all that there is of it."""

    reason: str


def fold(
    rules: FoldRules,
    elements: Sequence[RawElement],
    *,
    identity: Identity | None,
    previous: Mapping[str, Any] | None = None,
    previous_seq: int = 0,
    relay_seq: int = 0,
    snapshots: Iterable[object] = (),
    gone_upto: int = 0,
    is_final: bool = False,
    is_ahead: bool = False,
    is_behind: bool = False,
    known: Mapping[str, Any] | None = None,
) -> Folded | ReadAgain:
    """Fold a part of a log on top of what was folded before.

    Args:
        rules: Who is believed.
        elements: The part, in the order of the log.
        identity: Who keeps states: it has signed the previous one, and signs the next.
        previous: The state that was kept of all before; None at the beginning of the log.
        previous_seq: The relay seq that this state is said to end at.
        relay_seq: The relay seq that the part ends at, to be kept with the next state; 0 if nobody
            will say it again.
        snapshots: The snapshots of the document that were stored meanwhile, in their order.
        gone_upto: Elements up to this `ts` may be missing from the part.
        is_final: Whether there is nothing to read again: what is at hand has to do.
        is_ahead: Whether the part is all that there is above the kept state, and reaches further
            than later parts begin: what they repeat of it is passed over.
        is_behind: Whether something is not in the part, to be kept in mind: until it is, later
            parts are not enough.
        known: A state that was kept, and that is not gone on from: what was seen there has to be
            in the part, as far as it still counts.

    Returns:
        What it folds to; or that the whole log is needed, and why. With `is_final` that is so only
        if the kept state cannot be used, if elements are gone and nothing that is believed stands
        for them, or if something is not there that was known.
    """
    noticed: list[Rejection] = []
    try:
        kept = resumed(
            rules,
            identity,
            previous,
            previous_seq=previous_seq,
            is_final=is_final,
            is_ahead=is_ahead,
        )
        start = based(rules, kept, snapshots, elements, gone_upto, noticed, is_final=is_final)
        while True:
            part = above(elements, start.note.base_ts)
            folding = _Fold(
                rules, start, relay_seq=relay_seq, is_ahead=is_ahead, is_behind=is_behind
            )
            if not is_final:
                check_vouching(start.note, part)
                if start is kept and previous is not None:
                    folding.check_met(part)
            folded = folding.read(part, noticed, identity)
            base = start.snapshot
            if start is kept or base is None or gone_upto > max(kept.upto_ts, kept.note.base_ts):
                break
            if not folding.goes_beyond(base):
                break
            kept = start = cut_by(rules, kept, base, elements, is_final=is_final)
    except NotEnoughError as error:
        return ReadAgain(str(error))
    if folding.has_lost(_kept_start(rules.document_key, identity, known)):
        return ReadAgain("the log lacks what was read of it before")
    return folded


def kept_note(
    document_key: str, *, identity: Identity, previous: Mapping[str, Any] | None
) -> FoldNote | None:
    """What a kept state remembers; None if it is none of this identity's."""
    start = _kept_start(document_key, identity, previous)
    return None if start is None else start.note


def _kept_start(
    document_key: str, identity: Identity | None, previous: Mapping[str, Any] | None
) -> Start | None:
    if previous is None or identity is None:
        return None
    try:
        return Start(*read_kept(document_key, identity, previous))
    except (MalformedError, SealRejectedError):
        return None


class _Fold:
    """One reading of a part."""

    def __init__(
        self,
        rules: FoldRules,
        start: Start,
        *,
        relay_seq: int,
        is_ahead: bool,
        is_behind: bool,
    ) -> None:
        self._rules = rules
        self._start = start
        self._relay_seq = relay_seq
        self._is_ahead = is_ahead
        self._is_behind = is_behind
        self._log = rules.new_log()
        if start.snapshot is not None:
            started(self._log, start.snapshot)
            self._log.tracker.resume(start.note.unsettled)
            self._log.revocations.expect(start.note.unmet)
        self._counted = {
            (author, session): seq for author, session, seq in self._log.tracker.sessions()
        }

    def check_met(self, part: Sequence[RawElement]) -> None:
        """See that nothing in a part counts of the revoked: what leads up to it may be before.

        Raises:
            NotEnoughError: Something does.
        """
        if self._log.is_met_by(part) or not self._waited_for().isdisjoint(
            each.author for each in part
        ):
            raise NotEnoughError("something of somebody revoked has come that was waited for")

    def _waited_for(self) -> set[str]:
        """The revoked whom something waits for, and no links tell what still counts of them."""
        log = self._log
        return {
            author
            for author in {replica.partition(":")[0] for _, replica in log.crdt.unmet()}
            if (counts := self._rules.revoked(author)) is not None
            and not log.tracker.has_all(author, None, seq_of(counts.get("", 0)))
        }

    def read(
        self, part: Sequence[RawElement], noticed: list[Rejection], identity: Identity | None
    ) -> Folded:
        """Fold the elements, and say what came of it."""
        log = self._log
        heads = dict(log.heads)
        known = log.tracker.gaps()
        reading = log.read(part)
        if log.is_out_of_order:
            log.crdt = log.refolded()
        rejections = _final(reading) + log.revocations.refused_unlinked()
        note = self._noted(part, rejections, reading)
        crdt, cuts = log.crdt, self._start.cuts
        gaps = sorted(log.tracker.gaps(), key=lambda gap: (*gap[:3], gap.session or ""))
        return Folded(
            value=crdt.materialize(),
            state=None if identity is None else self._kept(identity, note, heads),
            upto_ts=log.checkpoint,
            elements=note.elements,
            authors=list(note.authors),
            rejected=note.rejected,
            unreadable=note.unreadable,
            gaps=gaps,
            opened=_opened(gaps, known),
            seen={(author, session): seq for author, session, seq in log.tracker.sessions()},
            rejections=noticed + rejections,
            forks=[event for event in reading.events if isinstance(event, Fork)],
            is_deleted=newest_cut(cuts).is_deletion and not crdt.names(),
        )

    def goes_beyond(self, base: Snapshot) -> bool:
        """Whether a snapshot that it has begun at holds more of the revoked than counts."""
        return self._log.revocations.goes_beyond(base.heads)

    def has_lost(self, known: Start | None) -> bool:
        """Whether something is not there that was seen before, and still counts."""
        if known is None or known.snapshot is None:
            return False
        rules, now = self._rules, self._log.tracker
        before = started(rules.new_log(), known.snapshot).tracker
        before.resume(known.note.unsettled)
        for author, session, seq in before.sessions():
            if now.has_lost(author, session, rules.counted(author, session, seq)):
                return True
        missing = [
            gap._replace(got=min(gap.got, before.highest(gap.author, gap.session) + 1))
            for gap in now.gaps()
            # What leads up to what counts of the revoked may pass seqs over.
            if rules.revoked(gap.author) is None
            and gap.expected <= before.highest(gap.author, gap.session)
        ]
        return bool(_opened(missing, before.gaps()))

    def _noted(
        self, part: Sequence[RawElement], rejections: list[Rejection], reading: Reading
    ) -> FoldNote:
        rules, log, before = self._rules, self._log, self._start.note
        unproven = {
            **before.unproven,
            **{link: author for link, author in log.unproven.items() if rules.is_writer(author)},
        }
        unreadable = len(log.unreadable)
        authors = {part.author for part in reading.folded.parts}
        return before._replace(
            sharing=rules.sharing,
            relay_seq=self._relay_seq,
            is_behind=self._is_behind,
            base_ts=log.checkpoint if self._is_ahead else before.base_ts,
            # Where a state had to be gone on from that other rules have made, it stays theirs: as
            # soon as the whole log is there, it is read by these.
            writers_id=before.writers_id or rules.writers_id,
            keys_id=before.keys_id if before.unreadable else rules.keys_id if unreadable else "",
            elements=before.elements + len(part) - len(rejections) - unreadable,
            rejected=before.rejected + len(rejections),
            authors=tuple(sorted(authors.union(before.authors))),
            unreadable=before.unreadable + unreadable,
            unproven=dict(list(unproven.items())[-UNPROVEN_MAX:]),
            unsettled=log.tracker.unsettled(),
            unmet=log.revocations.unmet,
        )

    def _kept(
        self, identity: Identity, note: FoldNote, heads: dict[str, frozenset[Head]]
    ) -> dict[str, Any] | None:
        """The state, signed; None if no reader would accept it."""
        log = self._log
        _sort_nodes(log.crdt)
        try:
            return make_snapshot(
                log.crdt,
                document_key=self._rules.document_key,
                upto_ts=log.checkpoint,
                writer_seq=log.tracker.writer_seq(),
                heads=self._newest(heads),
                seqs=log.tracker.seqs(),
                identity=identity,
                # The value stands beside it: there is nothing to hide, and seals are random.
                encryptor=_PLAIN,
                profile=Profile.PACKED,
                cuts=self._start.cuts,
                covered=log.covered,
                note={NOTE_NAME: note.to_json()},
                ceiling=log.counter,
                without=log.revocations.without,
                torn=log.revocations.torn(),
            )
        except StateTooLargeError:
            return None

    def _newest(self, heads: dict[str, frozenset[Head]]) -> dict[str, frozenset[Head]]:
        """The last element of each author that went on with its session.

        The ends of all branches would depend on what was read together with what.
        """
        counted = self._counted
        for part in self._log.ledger.parts():
            header = part.header if isinstance(part, Entry) else part
            if header is None:
                continue
            session = part.author, header.session
            if part.seq_last > counted.get(session, 0):
                counted[session] = part.seq_last
                head = Head(part.link_last, header.session, part.seq_last)
                heads[part.author] = frozenset({head})
        return heads


def _final(reading: Reading) -> list[Rejection]:
    """The rejections that still stand: some elements are proven by later ones."""
    rejections = [event for event in reading.events if isinstance(event, Rejection)]
    if not rejections:
        return rejections
    rejections.sort(key=lambda rejection: rejection.ts or 0)
    times = {rejection.ts for rejection in rejections}
    folded = {entry.ts: entry.element for entry in reading.folded if entry.ts in times}
    return [
        rejection
        for rejection in rejections
        if rejection.ts not in folded or rejection.evidence != folded[rejection.ts].as_json()
    ]


def _opened(gaps: Iterable[Gap], known: Sequence[Gap]) -> list[Gap]:
    """The gaps that were not known; what is left of one that was is none."""
    others = set(gaps).difference(known)
    return [gap for gap in others if not any(_is_within(gap, each) for each in known)]


def _size(gap: Gap) -> int:
    return gap.got - gap.expected


def _is_within(gap: Gap, other: Gap) -> bool:
    """Whether all that a gap lacks is lacked by another one."""
    is_same = (gap.author, gap.session) == (other.author, other.session)
    return is_same and other.expected <= gap.expected and gap.got <= other.got


def _sort_nodes(crdt: WalCrdt) -> None:
    """Forget in which order the elements of irregular lists came: it is lost when they are kept."""
    for sequence in crdt.lists.values():
        if isinstance(sequence, NodeSequence):
            sequence.forget_arrival()
