"""How a snapshot is signed and stored: never over a gap, never over a newer one.

- A snapshot is the fold of everything up to the checkpoint: the snapshot that the log starts from,
  plus the verified tail.
- What is missing, cannot be opened, or was rejected although an authorised writer signed it, would
  be signed away: then there is no snapshot, unless the caller insists; the state then says so.
- It is stored by compare and swap. One that is believed and covers as much is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from walstore.crdt import WalCrdt
from walstore.document.events import Rejection
from walstore.document.faults import SnapshotRefusedError
from walstore.document.log import DocumentLog
from walstore.document.opening import Source
from walstore.document.ports import SnapshotConflictError, SnapshotStore, StoredSnapshot
from walstore.document.snapshot import find_dropped_name, make_snapshot
from walstore.errors import MalformedError
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.signed.identity import Identity
from walstore.wire.envelope import Profile

_ATTEMPTS_MAX = 3


class Producer(NamedTuple):
    """Who signs snapshots, and how they are written."""

    source: Source
    identity: Identity
    profile: Profile
    is_chained: bool

    async def publish(
        self,
        store: SnapshotStore,
        log: DocumentLog,
        fold: WalCrdt,
        *,
        false: object,
        over: Sequence[str],
    ) -> dict[str, Any]:
        """Sign the fold of a log and store it, unless the stored snapshot covers as much.

        Args:
            store: Where snapshots are.
            log: The log, read to its end.
            fold: What it folds to.
            false: A stored document that is known to be false, or None.
            over: What the snapshot is signed over, all the same.

        Returns:
            The snapshot that is stored now.

        Raises:
            SnapshotRefusedError: It holds a name that servers drop.
            SnapshotConflictError: Others kept replacing it meanwhile.
            TransportError: It is not known to be stored.
        """
        document: dict[str, Any] | None = None
        for _ in range(_ATTEMPTS_MAX):
            stored = await store.read(self.source.snapshot_key)
            if stored is not None and self._covers(stored, log.checkpoint, false):
                return cast("dict[str, Any]", stored.document)
            if document is None:
                document = self._sign(log, fold, over)
            revision = None if stored is None else stored.revision
            try:
                await store.write(self.source.snapshot_key, document, revision)
            except SnapshotConflictError:
                continue
            return document
        raise SnapshotConflictError

    def _covers(self, stored: StoredSnapshot, checkpoint: int, false: object) -> bool:
        """Whether a stored snapshot is to be believed and covers what was read, or more."""
        if false is not None and stored.document == false:
            return False
        try:
            upto_ts = self.source.read_snapshot(stored).upto_ts
        except UnreadableError:
            # All but the state has been checked, and whoever has newer keys can read that.
            upto_ts = cast("dict[str, int]", stored.document)["uptoTs"]
        except (MalformedError, SealRejectedError):
            return False
        return upto_ts >= checkpoint

    def _sign(self, log: DocumentLog, fold: WalCrdt, over: Sequence[str]) -> dict[str, Any]:
        document = make_snapshot(
            fold,
            document_key=self.source.document_key,
            upto_ts=log.checkpoint,
            writer_seq=log.tracker.writer_seq(),
            heads=log.heads,
            seqs=log.tracker.seqs(),
            identity=self.identity,
            encryptor=self.source.encryptor,
            profile=self.profile,
            note={"over": list(over)} if over else None,
            is_chained=self.is_chained,
        )
        name = find_dropped_name(document)
        if name is not None:
            raise SnapshotRefusedError([f"the name {name!r}, which servers drop"])
        return document


def obstacles(source: Source, log: DocumentLog, rejected: Iterable[Rejection]) -> list[str]:
    """What a snapshot taken now would sign away."""
    reasons = [
        f"a gap: elements {gap.expected} to {gap.got - 1} of {gap.author[:8]}…"
        for gap in log.tracker.gaps()
    ]
    if log.unreadable:
        reasons.append(f"{len(log.unreadable)} elements that cannot be opened")
    # Whoever may not write cannot keep others from a snapshot either.
    reasons += [
        f"a rejected element at ts {each.ts}"
        for each in rejected
        if each.ts and each.author is not None and source.is_writer(each.author)
    ]
    return reasons
