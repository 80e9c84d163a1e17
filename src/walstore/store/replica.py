"""One document in two places: here, in a local file, and in a log somewhere else.

- What is here is read first; what comes from elsewhere is kept here before it is handed on.
- While a store opens, only what is here is read: opening does not wait for a network.
- What is here has no holes: every element above a floor, up to the newest. Where a log elsewhere
  begins with a snapshot, nothing is kept until a state is that covers what is not here.
- Elements are kept as they came, signed and maybe sealed; they are checked whenever they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from walstore.canon import canonical_bytes, content_hash, parse
from walstore.document.ports import (
    Body,
    CheckpointTooOldError,
    RawElement,
    SnapshotStore,
    StoredSnapshot,
    Transport,
)
from walstore.errors import MalformedError, NotJsonError, TransportError
from walstore.local import LocalFile
from walstore.wire.limits import ELEMENT_BYTES_MAX, PULL_ELEMENTS_MAX, TS_MAX

# The slot of the `ts` above which every element is here.
_FLOOR = "floor"


class NoRelayError(TransportError):
    """There is nowhere to send it."""

    def __init__(self) -> None:
        super().__init__("this store has no relay", retryable=False)


class Replica:
    """A transport and snapshot store that reads here first."""

    def __init__(
        self,
        *,
        file: LocalFile | None,
        transport: Transport | None,
        snapshots: SnapshotStore | None,
    ) -> None:
        """Join a local file and a log elsewhere; either may be missing."""
        self._file = file
        self._transport = transport
        self._snapshots = snapshots
        self.is_local = True
        self._floor = 0 if file is None else _read_floor(file)
        # How many elements were handed out.
        self.count = 0
        # Whether something was handed out that is not kept: a state has to be, before anything is.
        self.has_hole = False

    @property
    def has_something(self) -> bool:
        """Whether there is something here that the document can be opened from."""
        if self._file is None:
            return False
        if self._file.state() is not None:
            return True
        if self._floor:
            # The elements do not make another state.
            return False
        pending = self._file.pending()
        return bool(self._file.head() or pending.recorded or pending.bodies)

    def whole(self) -> Transport:
        """Where the log can be read from its beginning: here, if all of it is, else elsewhere.

        Raises:
            NoRelayError: It is not all here, and there is nowhere else.
        """
        if self._file is not None and not self._floor:
            return Replica(file=self._file, transport=None, snapshots=None)
        if self._transport is None:
            raise NoRelayError
        return self._transport

    async def append(self, document_key: str, body: Body) -> int:
        """Append to the log elsewhere.

        Raises:
            NoRelayError: There is none.
            TransportError: It is not known to be stored.
        """
        if self._transport is None:
            raise NoRelayError
        return await self._transport.append(document_key, body)

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """A page of what is here, or else of what is elsewhere.

        Raises:
            CheckpointTooOldError: Elements above the checkpoint are gone.
            TransportError: The log cannot be read now.
        """
        page: Sequence[object] = self._page(checkpoint)
        if not page and not self.is_local and self._transport is not None:
            page = await self._transport.pull(document_key, checkpoint)
            self._keep(page, checkpoint)
        self.count += len(page)
        return page

    async def tail(self, document_key: str, upto: int, count: int) -> Sequence[object]:
        """The newest elements up to a `ts`."""
        if self._file is not None and (self.is_local or self._file.head() >= upto):
            return self._file.tail(upto, count)
        tail = getattr(self._transport, "tail", None)
        if self.is_local or tail is None:
            return []
        found: Sequence[object] = await tail(document_key, upto, count)
        return found

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The state that is here, while opening; else the snapshot elsewhere."""
        if self.is_local:
            return self._state()
        return None if self._snapshots is None else await self._snapshots.read(snapshot_key)

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace the snapshot elsewhere.

        Raises:
            NoRelayError: There is none.
            SnapshotConflictError: The stored revision is another one.
            TransportError: It is not known to be stored.
        """
        if self._snapshots is None:
            raise NoRelayError
        await self._snapshots.write(snapshot_key, document, revision)

    def keep_state(self, document: Mapping[str, Any]) -> None:
        """Keep a fold of what is here, to open from next time."""
        if self._file is None:
            return
        upto = document["uptoTs"]
        self._file.put_state(canonical_bytes(document), upto)
        if upto > max(self._file.head(), self._floor):
            # In this order, whatever is cut short is done anew from what the log has elsewhere.
            self._file.put(_FLOOR, upto)
            self._file.drop_elements(upto)
            self._floor = upto
        self.has_hole = False

    def _state(self) -> StoredSnapshot | None:
        kept = None if self._file is None else self._file.state()
        if kept is None:
            return None
        try:
            document = parse(kept[0])
        except MalformedError:
            # The elements make another one.
            return None
        return StoredSnapshot(document, content_hash(document))

    def _page(self, checkpoint: int) -> Sequence[RawElement]:
        """A page of what is here; empty if it has to be read elsewhere."""
        if self._file is None:
            return []
        if checkpoint >= self._floor:
            return self._file.page(checkpoint, PULL_ELEMENTS_MAX)
        if self.is_local:
            raise CheckpointTooOldError(self._floor)
        return []

    def _keep(self, page: Sequence[object], checkpoint: int) -> None:
        """Keep a page that follows on a checkpoint, unless that leaves a hole."""
        if self._file is None or not page:
            return
        if checkpoint > max(self._file.head(), self._floor):
            self.has_hole = True
            return
        kept = [raw for each in page if (raw := _raw(each)) is not None]
        self._file.add_elements([raw for raw in kept if _is_storable(raw, self._floor)])


def _read_floor(file: LocalFile) -> int:
    floor = file.get(_FLOOR, 0)
    return floor if isinstance(floor, int) else 0


def _is_storable(raw: RawElement, floor: int) -> bool:
    return floor < raw.ts <= TS_MAX and len(raw.data) <= ELEMENT_BYTES_MAX


def _raw(element: object) -> RawElement | None:
    """An element as it is kept; None if it has not the shape of one, and will be rejected."""
    if isinstance(element, RawElement):
        return element
    match element:
        case {
            "ts": int(ts),
            "data": dict(data),
            "authorPubkey": str(author),
            "authorSignature": str(signature),
        }:
            try:
                return RawElement(ts, canonical_bytes(data), author, signature)
            except NotJsonError:
                return None
        case _:
            return None
