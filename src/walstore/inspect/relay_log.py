"""A document at a running relay as a place: read live, under the reader's own key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from walstore import net
from walstore.document.ports import (
    RecordStore,
    SnapshotStore,
    StoredRecord,
    StoredSnapshot,
    Transport,
)
from walstore.inspect.places import StillPlace
from walstore.signed import Identity


class Follow(Protocol):
    """Tells when there may be something new."""

    async def wait(self) -> None:
        """Return when there is."""
        ...


class LogPlace(StillPlace):
    """One document behind a transport."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        *,
        snapshots: SnapshotStore | None = None,
        records: RecordStore | None = None,
        follow: Follow | None = None,
    ) -> None:
        """Read a log; what is left out is not there."""
        super().__init__(name)
        self._transport = transport
        self._snapshots = snapshots
        self._records = records
        self._follow = follow

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """A page of elements above a checkpoint; raises as the transport does."""
        return await self._transport.pull(document_key, checkpoint)

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The snapshot."""
        return None if self._snapshots is None else await self._snapshots.read(snapshot_key)

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        """A record beside the log."""
        if self._records is None:
            return None
        return await self._records.read_record(document_key, name)

    async def wait(self) -> None:
        """Return when the relay has sent something."""
        if self._follow is None:
            await super().wait()
        else:
            await self._follow.wait()


@asynccontextmanager
async def opened_relay(url: str, document: str, *, identity: Identity) -> AsyncIterator[LogPlace]:
    """A document at a relay, for as long as the block lasts.

    Raises:
        RelayUrlError: It is not the URL of a relay.
        DocumentKeyRefusedError: No document has such a key.
    """
    async with (
        net.WebSocketTransport(url, identity=identity) as relay,
        relay.follow(document, 0) as follow,
    ):
        yield LogPlace(url, relay, snapshots=relay, records=relay, follow=follow)
