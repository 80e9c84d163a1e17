"""Where the fold of a part of a log begins: at a kept state, at somebody's snapshot, at nothing.

- A kept state is believed under the folder's own key alone, only by the rules that it was folded
  by, and only where it says to end: an older one would hide what came between.
- Of the snapshots of those with the role, the one counts that has let go of most; where elements
  are gone, one that stands for them. One that covers more than counts is believed for what it has
  let go of: then all is folded that is below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from walstore.document.events import Rejection
from walstore.document.fold_note import FoldNote, read_note
from walstore.document.fold_rules import FoldRules
from walstore.document.log import ts_of
from walstore.document.opening import folded_with_cuts
from walstore.document.ports import RawElement
from walstore.document.snapshot import Cut, Snapshot, newest_cut, read_snapshot
from walstore.errors import MalformedError
from walstore.sealed.encryptor import PlainEncryptor
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.signed.identity import Identity
from walstore.wire.element import read_raw_element
from walstore.wire.envelope import read_header


class Start(NamedTuple):
    """Where a fold begins: at a snapshot, kept or of somebody with the role, or at nothing."""

    snapshot: Snapshot | None
    note: FoldNote

    @property
    def upto_ts(self) -> int:
        """How far the log is in it."""
        return 0 if self.snapshot is None else self.snapshot.upto_ts

    @property
    def cuts(self) -> Sequence[Cut]:
        """Where it has let go of something."""
        return () if self.snapshot is None else self.snapshot.cuts


class NotEnoughError(Exception):
    """The part cannot be folded by itself."""


def resumed(
    rules: FoldRules,
    identity: Identity | None,
    previous: Mapping[str, Any] | None,
    *,
    previous_seq: int,
    is_final: bool,
    is_ahead: bool,
) -> Start:
    """Start from the state that was kept.

    Raises:
        NotEnoughError: It cannot be used, is another one than is said, or was folded by other
            rules.
    """
    if previous is None:
        return Start(None, FoldNote())
    if identity is None:
        raise NotEnoughError("nobody has kept a state")
    try:
        kept, note = read_kept(rules.document_key, identity, previous)
    except (MalformedError, SealRejectedError) as error:
        raise NotEnoughError(f"the kept state cannot be used: {error}") from error
    # Former versions did not say it.
    if note.relay_seq and note.relay_seq != previous_seq:
        raise NotEnoughError(f"the kept state is that of {note.relay_seq}, not of {previous_seq}")
    if not is_final:
        if note.is_behind and not is_ahead:
            raise NotEnoughError("something has happened before that is not in the kept state")
        if note.writers_id != rules.writers_id:
            raise NotEnoughError("others may write than before")
        if note.unreadable and note.keys_id != rules.keys_id:
            raise NotEnoughError("other keys are at hand than before")
    return Start(kept, note)


def read_kept(
    document_key: str, identity: Identity, previous: Mapping[str, Any]
) -> tuple[Snapshot, FoldNote]:
    """A state that an identity has kept, and what it remembers.

    Raises:
        MalformedError: It is none of this identity's; or a `SealRejectedError`.
    """
    kept = read_snapshot(
        dict(previous),
        document_key=document_key,
        is_producer=identity.public_key.__eq__,
        encryptor=PlainEncryptor(),
    )
    return kept, read_note(kept.document)


def based(
    rules: FoldRules,
    start: Start,
    snapshots: Iterable[object],
    elements: Sequence[RawElement],
    gone_upto: int,
    noticed: list[Rejection],
    *,
    is_final: bool,
) -> Start:
    """Start from the snapshot that has let go of most, or that stands for what is gone.

    Raises:
        NotEnoughError: No snapshot does, or something above it is in the state and nowhere else.
    """
    is_gone = gone_upto > max(start.upto_ts, start.note.base_ts)
    believed = [
        snapshot
        for snapshot in _believed(rules, snapshots, noticed)
        if not is_gone or snapshot.upto_ts >= gone_upto
    ]
    base = max(believed, key=lambda snapshot: snapshot.barrier.place, default=None)
    if is_gone and base is None:
        raise NotEnoughError(f"elements up to {gone_upto} are gone")
    is_newer = base is not None and base.barrier.is_after(newest_cut(start.cuts))
    if base is None or not (is_gone or is_newer):
        return start
    # What was pruned below a snapshot that covers too much is nowhere else any more.
    if not is_gone and not rules.counts_all(base):
        return cut_by(rules, start, base, elements, is_final=is_final)
    if not is_newer:
        base = max(reversed(believed), key=lambda snapshot: snapshot.upto_ts)
    if start.upto_ts > base.upto_ts and not is_final:
        raise NotEnoughError("something was let go before what is folded already")
    return _begun(base)


def cut_by(
    rules: FoldRules,
    start: Start,
    snapshot: Snapshot,
    elements: Sequence[RawElement],
    *,
    is_final: bool,
) -> Start:
    """Start where a snapshot that covers more than counts has let go of something last.

    Raises:
        NotEnoughError: What is below is not at hand.
    """
    if start.upto_ts:
        if is_final:
            return start
        raise NotEnoughError("something was let go by a snapshot that covers more than counts")
    barrier_ts = snapshot.barrier.ts
    covered = [each for each in elements if ts_of(each) <= barrier_ts]
    rest = above(elements, barrier_ts)
    return _begun(folded_with_cuts(rules.new_log, snapshot, covered, rest) or snapshot)


def _begun(base: Snapshot) -> Start:
    counted = [*base.writer_seq.items(), *(base.seqs or {}).items()]
    authors = {replica.partition(":")[0] for replica, seq in counted if seq}
    return Start(base, FoldNote(base_ts=base.upto_ts, authors=tuple(sorted(authors))))


def _believed(
    rules: FoldRules, snapshots: Iterable[object], noticed: list[Rejection]
) -> Iterable[Snapshot]:
    for document in snapshots:
        try:
            yield read_snapshot(
                document,
                document_key=rules.document_key,
                is_producer=rules.is_producer,
                encryptor=rules.encryptor,
            )
        except (MalformedError, SealRejectedError) as error:
            noticed.append(Rejection(None, None, str(error), document, proven=False))
        except UnreadableError:
            # Whoever has the key starts from it; here its elements are waited for.
            continue


def above(elements: Sequence[RawElement], base_ts: int) -> Sequence[RawElement]:
    """The elements that are not in a base."""
    return [each for each in elements if ts_of(each) > base_ts] if base_ts else elements


def check_vouching(note: FoldNote, elements: Iterable[RawElement]) -> None:
    """See that none of the elements may prove one that waits.

    Raises:
        NotEnoughError: One may.
    """
    if not note.unproven:
        return
    for each in elements:
        try:
            header = read_header(read_raw_element(*each).data)
        except MalformedError:
            continue
        if header is not None and note.unproven.get(header.prev or "") == each.author:
            raise NotEnoughError("an element may be proven by now that was not before")
