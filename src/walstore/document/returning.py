"""Whether somebody who may not write can be made a writer, so that all readers still agree.

- What was passed over of them counts then, whether they were revoked or never were a writer. Who
  reads the log from its beginning finds it; so a snapshot that was made without it is passed over
  in its turn.
- Where the log below such a snapshot is gone, or was deleted by one that names nobody, there is no
  such way: who had read it would miss it, and nobody could read it any more. Whether there was
  anything of theirs is looked up below a deletion, as far as the log is there.
- What is above the snapshot that everybody starts from is read with the rest of the log.
"""

from __future__ import annotations

from walstore.document.counting import read_anew
from walstore.document.log import DocumentLog
from walstore.document.opening import Source
from walstore.document.ports import CheckpointTooOldError, Transport, pulling_elsewhere


async def can_return(source: Source, log: DocumentLog, author: str) -> bool:
    """Whether all that somebody has written who may not can be read by all, should it count.

    Args:
        source: Where the document is.
        log: Its log, read to the end.
        author: Who it is.

    Raises:
        TransportError: The snapshot or the log cannot be read now.
    """
    snapshot = await source.stored_snapshot(is_strict=False)
    is_named = snapshot is not None and author in snapshot.without
    first_ts = log.revocations.without.get(author)
    if is_named or (snapshot is None and first_ts is not None):
        return await _is_whole(source.transport, source.document_key)
    silent_upto_ts = 0 if snapshot is None else snapshot.silent_upto_ts
    if not silent_upto_ts:
        return True
    if first_ts is not None:
        # Of who is in a state that was kept here, it is not known any more where that was.
        return first_ts > silent_upto_ts
    return not await _is_left_out(source, log, author, upto_ts=silent_upto_ts)


async def _is_left_out(source: Source, log: DocumentLog, author: str, *, upto_ts: int) -> bool:
    """Whether anything of somebody was passed over up to a `ts`, as far as that is there."""
    past = source.new_log()
    try:
        # What counts above may lead up to what is below.
        await read_anew(source, past, author, log, barrier_ts=upto_ts)
    except CheckpointTooOldError:
        return False
    return past.revocations.without.get(author, upto_ts + 1) <= upto_ts


async def _is_whole(transport: Transport, document_key: str) -> bool:
    """Whether everybody can read a log from its beginning."""
    try:
        await pulling_elsewhere(transport)(document_key, 0)
    except CheckpointTooOldError:
        return False
    return True
