"""Removes payloads from the tables, in one transaction, beside the appends.

- The payloads go first and the head is locked last: removing may take long, and appends wait only
  while the few rows of the documents are written.
- Appends never touch the events that are there, so the two cannot wait for each other in a ring;
  two compactions go one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from walstore.relay import postgres_queries as queries
from walstore.relay.log import DocumentStatus, Removal, Removed
from walstore.relay.postgres_connections import Connection
from walstore.relay.postgres_rows import read_document, transposed, write_document


async def compact(connection: Connection, channel: str, removals: Sequence[Removal]) -> Removed:
    """Remove payloads and raise floors, inside a transaction of the caller's.

    Raises:
        LogCorruptError: A document's row is damaged.
    """
    await connection.execute(queries.COMPACTION_LOCK, {"channel": channel})
    merged = _merged(removals)
    gone = await _remove(connection, merged.values())
    await connection.execute(queries.LOCK_HEAD)
    wanted = {"documents": list(merged)}
    found = await connection.execute(queries.DOCUMENT, wanted, binary=True)
    reached = await connection.execute(queries.UPTO, wanted)
    upto: dict[str, int] = dict(await reached.fetchall())
    left = [
        _without(status, merged[status.document], gone[status.document], upto)
        for status in map(read_document, await found.fetchall())
    ]
    if left:
        rows = transposed([write_document(status) for status in left])
        await connection.execute(queries.PUT_DOCUMENTS, rows)
    return _total(gone.values())


async def _remove(connection: Connection, removals: Collection[Removal]) -> Mapping[str, Removed]:
    """Remove the payloads, and say what went from each document."""
    below = transposed([(removal.document, removal.below_ts) for removal in removals])
    named = [(removal.document, name) for removal in removals for name in removal.snapshot_ids]
    ids = transposed(named) if named else [[], []]
    gone: dict[str, Removed] = defaultdict(lambda: Removed(0, 0, 0))
    elements = await connection.execute(
        queries.REMOVE_ELEMENTS, {"documents": below[0], "below": below[1]}
    )
    for document, count, size in await elements.fetchall():
        gone[document] = _total([gone[document], Removed(count, 0, size)])
    snapshots = await connection.execute(
        queries.REMOVE_SNAPSHOTS, {"documents": ids[0], "ids": ids[1]}
    )
    for document, count, size in await snapshots.fetchall():
        gone[document] = _total([gone[document], Removed(0, count, size)])
    return gone


def _total(parts: Iterable[Removed]) -> Removed:
    total = Removed(0, 0, 0)
    for part in parts:
        total = Removed(*(left + right for left, right in zip(total, part, strict=True)))
    return total


def _merged(removals: Iterable[Removal]) -> dict[str, Removal]:
    """One removal for each document, which removes what all of its removals do."""
    merged: dict[str, Removal] = {}
    for removal in removals:
        other = merged.get(removal.document, Removal(removal.document, (), 0))
        merged[removal.document] = Removal(
            removal.document,
            {*other.snapshot_ids, *removal.snapshot_ids},
            max(other.below_ts, removal.below_ts),
        )
    return merged


def _without(
    status: DocumentStatus, removal: Removal, gone: Removed, upto: Mapping[str, int]
) -> DocumentStatus:
    """What there is of a document afterwards.

    A floor above the head would swallow what is appended next, so it ends there.
    """
    return status._replace(
        elements=status.elements - gone.elements,
        payload_bytes=status.payload_bytes - gone.payload_bytes,
        floor=max(status.floor, min(removal.below_ts, status.head)),
        snapshots=status.snapshots - gone.snapshots,
        snapshot_upto=upto.get(status.document, 0),
    )
