"""How a snapshot is signed and stored: never over a gap, never over a newer one.

- A snapshot is the fold of everything up to the checkpoint: the snapshot that the log starts from,
  plus the verified tail.
- What is missing, cannot be opened, or was rejected although an authorised writer signed it, would
  be signed away: then there is no snapshot, unless the caller insists; the state then says so.
- It is stored by compare and swap. One that is believed and covers as much is left alone.
- Removed elements are let go only if everybody who reads on has seen them removed, and nothing is
  on its way that may name them. Who meets a newer barrier than its own starts from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from walstore.crdt import WalCrdt
from walstore.document.events import Rejection
from walstore.document.faults import SnapshotRefusedError
from walstore.document.log import DocumentLog
from walstore.document.opening import OverreachingSnapshotError, Source
from walstore.document.ports import SnapshotConflictError, SnapshotStore, StoredSnapshot
from walstore.document.snapshot import (
    Cut,
    Snapshot,
    find_dropped_name,
    make_deletion,
    make_snapshot,
    newest_cut,
)
from walstore.errors import MalformedError
from walstore.sealed.encryptor import is_outdated
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.signed.identity import Identity
from walstore.wire.envelope import Profile

_ATTEMPTS_MAX = 3


class BarrierMovedError(Exception):
    """The stored snapshot has let go of more than the log that was to be signed."""


class Draft(NamedTuple):
    """What is to be signed.

    Attributes:
        log: The log, read to its end.
        fold: What it folds to; None if the document is to be deleted.
        barrier: Where the log, as it was read, has let go of something last.
        cuts: Where the snapshot has let go of something.
        false: A stored document that is known to be false, or None.
        over: What the snapshot is signed over, all the same.
        rejected: What is still in the way of a snapshot, in one that a reader keeps for itself.
    """

    log: DocumentLog
    fold: WalCrdt | None
    barrier: Cut
    cuts: Sequence[Cut]
    false: object
    over: Sequence[str]
    rejected: Sequence[Rejection] = ()

    @property
    def is_cutting(self) -> bool:
        """Whether something is to be let go."""
        return newest_cut(self.cuts).is_after(self.barrier)


class Producer(NamedTuple):
    """Who signs snapshots, and how they are written."""

    source: Source
    identity: Identity
    profile: Profile
    is_chained: bool

    async def publish(self, store: SnapshotStore, draft: Draft) -> dict[str, Any]:
        """Sign the fold of a log and store it, unless the stored snapshot covers as much.

        Returns:
            The snapshot that is stored now.

        Raises:
            BarrierMovedError: The log has to be read anew, from the stored snapshot.
            SnapshotRefusedError: It holds a name that servers drop.
            SnapshotConflictError: Others kept replacing it meanwhile, or cover more.
            TransportError: It is not known to be stored.
        """
        document: dict[str, Any] | None = None
        for _ in range(_ATTEMPTS_MAX):
            stored = await store.read(self.source.snapshot_key)
            if stored is not None and self._covers(stored, draft):
                return cast("dict[str, Any]", stored.document)
            if document is None:
                document = self.sign(draft)
            revision = None if stored is None else stored.revision
            try:
                await store.write(self.source.snapshot_key, document, revision)
            except SnapshotConflictError:
                continue
            return document
        raise SnapshotConflictError

    def _covers(self, stored: StoredSnapshot, draft: Draft) -> bool:
        """Whether a stored snapshot is to be believed and covers what was read, or more."""
        if draft.false is not None and stored.document == draft.false:
            return False
        checkpoint = draft.log.checkpoint
        try:
            snapshot = self.source.read_snapshot(stored)
        except UnreadableError:
            # All but the state has been checked, and whoever has newer keys can read that.
            upto_ts = cast("dict[str, int]", stored.document)["uptoTs"]
            if draft.is_cutting and upto_ts >= checkpoint:
                raise SnapshotConflictError from None
            return upto_ts >= checkpoint
        except OverreachingSnapshotError as error:
            snapshot, is_overreaching = error.snapshot, True
        except (MalformedError, SealRejectedError):
            return False
        else:
            # What it names above the checkpoint may still be read.
            is_told = snapshot.upto_ts <= checkpoint
            is_overreaching = is_told and draft.log.revocations.goes_beyond(snapshot.heads)
        if snapshot.barrier.is_after(draft.barrier):
            raise BarrierMovedError
        if is_overreaching:
            return False
        if not draft.is_cutting:
            is_same = snapshot.upto_ts == checkpoint
            return snapshot.upto_ts > checkpoint or (is_same and self._is_sealed_anew(snapshot))
        if snapshot.upto_ts > checkpoint:
            raise SnapshotConflictError
        return False

    def _is_sealed_anew(self, snapshot: Snapshot) -> bool:
        """Whether those who have no key but the current one can open a snapshot."""
        state = snapshot.document["state"]
        return state is None or not is_outdated(state, self.source.encryptor)

    def sign(self, draft: Draft) -> dict[str, Any]:
        """Sign a snapshot.

        Raises:
            SnapshotRefusedError: It holds a name that servers drop.
        """
        log = draft.log
        if draft.fold is None:
            return make_deletion(
                document_key=self.source.document_key,
                upto_ts=log.checkpoint,
                writer_seq=log.tracker.writer_seq(),
                seqs=log.tracker.seqs() or {},
                identity=self.identity,
            )
        note: dict[str, Any] = {"over": list(draft.over)} if draft.over else {}
        if draft.rejected:
            note["rejected"] = [[each.ts, each.author, each.reason] for each in draft.rejected]
        document = make_snapshot(
            draft.fold,
            document_key=self.source.document_key,
            upto_ts=log.checkpoint,
            writer_seq=log.tracker.writer_seq(),
            heads=log.heads,
            seqs=log.tracker.seqs(),
            identity=self.identity,
            encryptor=self.source.encryptor,
            profile=self.profile,
            cuts=draft.cuts,
            covered=None if draft.is_cutting else log.covered,
            note=note,
            is_chained=self.is_chained,
            ceiling=log.counter,
            without=log.revocations.without,
            torn=log.revocations.torn(),
        )
        name = find_dropped_name(document)
        if name is not None:
            raise SnapshotRefusedError([f"the name {name!r}, which servers drop"])
        return document

    def cut_obstacles(self, log: DocumentLog, readers: Mapping[str, int]) -> list[str]:
        """What keeps removed elements from being let go.

        Args:
            log: The log, read to its end.
            readers: How far everybody has read who goes on reading.
        """
        reasons = [
            f"the reader {name[:16]}, who has read up to {checkpoint} of {log.checkpoint}"
            for name, checkpoint in readers.items()
            if checkpoint < log.checkpoint
        ]
        if self.profile is not Profile.PACKED:
            reasons.append("version 1, whose readers know no barriers")
        if log.tracker.seqs() is None:
            reasons.append("sessions that are not counted, because a peer's snapshot left them out")
        # Nothing would tell their elements from new ones if they were delivered once more.
        reasons += [
            f"elements of {author[:8]}…, which no session counts"
            for author in log.tracker.writer_seq()
        ]
        return reasons


def obstacles(source: Source, log: DocumentLog, rejected: Iterable[Rejection]) -> list[str]:
    """What a snapshot taken now would sign away.

    Whoever may not write, or may no longer, cannot keep others from one.
    """
    reasons = [
        f"a gap: elements {gap.expected} to {gap.got - 1} of {gap.author[:8]}…"
        for gap in log.tracker.gaps()
        if source.is_missed(gap)
    ]
    if log.unreadable:
        reasons.append(f"{len(log.unreadable)} elements that cannot be opened")
    reasons += [
        f"{len(links)} elements of {author[:8]}…, who was revoked, that count and are not here"
        for author, links in log.revocations.unmet.items()
    ]
    reasons += [
        f"a rejected element at ts {each.ts}"
        for each in rejected
        if each.ts and each.author is not None and source.may_hinder(each.author)
    ]
    return reasons
