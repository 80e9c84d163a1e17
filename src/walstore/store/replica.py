"""One document in two places: here, in a local file, and in a log somewhere else.

- What is here is read first; what comes from elsewhere is kept here before it is handed on.
- While a store opens, only what is here is read: opening does not wait for a network.
- What is here has no holes: every element above a floor, up to the newest. Where a log elsewhere
  begins with a snapshot, nothing is kept until a state is that covers what is not here.
- Below the floor only own elements stay, in their order: whatever a relay loses, they can be sent
  again. Their places there say nothing.
- What was read and cannot be kept for now leaves a hole. Bodies that were read beyond it stay among
  what is on its way until it is closed: nothing else here stands for them.
- Elements are kept as they came, signed and maybe sealed; they are checked whenever they are read.
- A log elsewhere must not fall behind what was read of it, in this process or before. Whenever
  there may be another relay, it is asked for the newest element that was read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from walstore.canon import canonical_bytes, content_hash, parse
from walstore.document.log import ts_of
from walstore.document.opening import Marks
from walstore.document.ports import (
    Body,
    CheckpointTooOldError,
    LogBehindError,
    LogReplacedError,
    RawElement,
    SnapshotStore,
    StoredSnapshot,
    Transport,
)
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.errors import MalformedError, NotJsonError, TransportError
from walstore.local import LocalFile, Start
from walstore.net.faults import RelayRefusalError
from walstore.store.high_water import HighWater
from walstore.store.refused import NotWriterError
from walstore.wire.frames import Code
from walstore.wire.limits import ELEMENT_BYTES_MAX, PULL_ELEMENTS_MAX, TS_AHEAD_MS_MAX, TS_MAX

# The slot of the `ts` above which every element is here.
_FLOOR = "floor"


class NoRelayError(TransportError):
    """There is nowhere to send it."""

    def __init__(self) -> None:
        super().__init__("this store has no relay", retryable=False)


class NotLookedError(TransportError):
    """The connection is a new one, and who counts there was not looked at yet: nothing is sent."""

    def __init__(self) -> None:
        super().__init__("the members have to be looked up first", retryable=True)


class KeyOverError(TransportError):
    """Another key has come to be known since it was sealed: it is sealed anew before it is sent."""

    def __init__(self) -> None:
        super().__init__("it has to be sealed with the new key first", retryable=True)


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
        # Whether what is appended would count; nobody is sent what they would have to reject.
        self.may_append: Callable[[], bool] = lambda: True
        # Whether something has to be looked at before anything is appended.
        self.is_look_due: Callable[[], bool] = lambda: False
        # Whether what is sent next is sealed with a key that is over.
        self.is_key_over: Callable[[], bool] = lambda: False
        self._floor = 0 if file is None else _read_floor(file)
        self._high_water = HighWater() if file is None else HighWater.read(file.marks)
        # Counts reasons to doubt that the relay holds the newest element that was read, and how
        # many of them were settled: one that arises meanwhile is not settled by an older answer.
        self._doubts = 1
        self._settled = 0
        # The newest element that was here before anything came from elsewhere.
        self.opened_at = 0 if file is None else file.head()
        # How many elements were handed out.
        self.count = 0
        # Whether something was handed out that is not kept: a state has to be, before anything is.
        self.has_hole = False
        # The links of bodies that were read in the log while it was so.
        self._beyond_hole: set[str] = set()

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
        # What was acknowledged is elsewhere, and maybe much more that it hangs on.
        unsent = [body for body in pending.bodies if body.acknowledged is None]
        return bool(self._file.head() or pending.recorded or unsent)

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
            NotWriterError: Nobody would read it.
            NotLookedError: It is not known whether, and what it is to be sealed with.
            KeyOverError: It became known meanwhile that it is to be sealed anew.
            LogBehindError: The log has lost what was read of it; nothing is sent to it.
            TransportError: It is not known to be stored.
        """
        if self._transport is None:
            raise NoRelayError
        if self.is_look_due():
            raise NotLookedError
        if not self.may_append():
            raise NotWriterError
        try:
            await self._make_sure_if_shown(self._transport, document_key)
            if self.is_key_over():
                raise KeyOverError
            return await self._transport.append(document_key, body)
        except TransportError:
            self.doubt()
            raise

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """A page of what is here, or else of what is elsewhere.

        Raises:
            CheckpointTooOldError: Elements above the checkpoint are gone.
            LogBehindError: The log elsewhere has lost what was read of it.
            TransportError: The log cannot be read now.
        """
        page: Sequence[object] = self._page(checkpoint)
        if not page and not self.is_local and self._transport is not None:
            try:
                page = await self._pull(self._transport, document_key, checkpoint)
            except TransportError:
                self.doubt()
                raise
        self.count += len(page)
        return page

    async def pull_elsewhere(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """A page as everybody else is given it; it is not kept here.

        Raises:
            NoRelayError: There is nowhere else.
            CheckpointTooOldError: Elements above the checkpoint are gone there.
            TransportError: The log cannot be read now.
        """
        if self._transport is None:
            raise NoRelayError
        return await self._transport.pull(document_key, checkpoint)

    async def _pull(
        self, transport: Transport, document_key: str, checkpoint: int
    ) -> Sequence[object]:
        await self._make_sure(transport, document_key)
        page = await transport.pull(document_key, checkpoint)
        # It may have come over another connection than it was asked for on, and of another log.
        await self._make_sure(transport, document_key)
        self._keep(page, checkpoint)
        if not page and checkpoint < self._high_water.ts:
            raise LogBehindError(head=checkpoint, checkpoint=self._high_water.ts)
        return page

    def doubt(self) -> None:
        """There may be another relay than before, or one that was put back."""
        self._doubts += 1

    async def _make_sure(self, transport: Transport, document_key: str) -> None:
        while self._settled < self._doubts:
            doubts = self._doubts
            await self._look_for_newest(transport, document_key)
            self._settled = max(self._settled, doubts)

    async def _make_sure_if_shown(self, transport: Transport, document_key: str) -> None:
        try:
            await self._make_sure(transport, document_key)
        except RelayRefusalError as error:
            # Who is not shown the log cannot look for anything in it; whether it takes what they
            # send, it says by itself.
            if error.code is not Code.RESTRICTED:
                raise

    async def _look_for_newest(self, transport: Transport, document_key: str) -> None:
        """Make sure that the log holds the newest element that was read, or has pruned it."""
        ts, tail = self._high_water.newest_ts, getattr(transport, "tail", None)
        if not ts or (tail is not None and self._is_newest(await tail(document_key, ts, 1))):
            return
        try:
            page = await transport.pull(document_key, ts - 1)
        except LogBehindError as error:
            raise LogBehindError(head=error.head, checkpoint=ts) from error
        except CheckpointTooOldError:
            # What a snapshot stands for is not looked for one by one.
            return
        if not self._is_newest(page[:1]):
            raise LogReplacedError(head=0, checkpoint=ts)

    def _is_newest(self, found: Sequence[object]) -> bool:
        raw = raw_of(found[0]) if found else None
        high_water = self._high_water
        return raw is not None and (raw.ts, raw.signature) == (
            high_water.newest_ts,
            high_water.signature,
        )

    async def tail(self, document_key: str, upto: int, count: int) -> Sequence[object]:
        """The newest elements up to a `ts`."""
        if self._file is not None and (self.is_local or self._file.head() >= upto):
            return [raw for raw in self._file.tail(upto, count) if raw.ts > self._floor]
        tail = getattr(self._transport, "tail", None)
        if self.is_local or tail is None:
            return []
        found: Sequence[object] = await tail(document_key, upto, count)
        shaped = [raw for each in found if (raw := raw_of(each)) is not None]
        self._rise(self._high_water.risen(0, [raw for raw in shaped if raw.ts <= _ts_max()]))
        return found

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The state that is here, while opening; else the snapshot elsewhere."""
        if self.is_local:
            return self._state()
        stored = None if self._snapshots is None else await self._snapshots.read(snapshot_key)
        if self._file is not None and stored is not None:
            # What it stands for may be all there is, and has to be kept as well.
            self.has_hole |= _upto(stored) > max(self._file.head(), self._floor)
        return stored

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace the snapshot elsewhere.

        Raises:
            NoRelayError: There is none.
            SnapshotConflictError: The stored revision is another one.
            LogBehindError: The log has lost what was read of it, and the snapshot would hide that.
            TransportError: It is not known to be stored.
        """
        if self._snapshots is None:
            raise NoRelayError
        if self._transport is not None:
            document_key = snapshot_key.removesuffix(SNAPSHOT_SUFFIX)
            await self._make_sure_if_shown(self._transport, document_key)
        await self._snapshots.write(snapshot_key, document, revision)

    def keep_state(
        self, document: Mapping[str, Any], read: Callable[[], Iterable[RawElement]]
    ) -> None:
        """Keep a fold of what was read, to open from next time.

        Args:
            document: The fold, signed by this reader for itself.
            read: The elements that were read, as far as they are at hand; asked for if they are not
                all here.
        """
        if self._file is None:
            return
        upto, own = document["uptoTs"], document["producedBy"]
        self._file.put_state(canonical_bytes(document), upto)
        end = max(self._file.head(), self._floor)
        if upto > end:
            # In this order, whatever is cut short is done anew from what the log has elsewhere.
            self._file.put(_FLOOR, upto)
            self._file.drop_elements(upto, but_of=own)
            self._floor = upto
            beyond = [raw for raw in read() if raw.author == own and end < raw.ts <= upto]
            self._file.add_elements(beyond)
        self.has_hole = False
        self.confirm(())

    def confirm(self, links: Iterable[str]) -> None:
        """Let go of bodies that were read in the log, once something else here stands for them."""
        if self._file is None:
            return
        self._beyond_hole.update(links)
        if not self.has_hole:
            self._file.confirmed(self._beyond_hole)
            self._beyond_hole.clear()

    # ── what was read ──────────────────────────────────────────────────────────────────

    @property
    def marks(self) -> Marks:
        """What earlier processes have read, of whatever can be read now."""
        ts, snapshot_ts = self._high_water.ts, self._high_water.snapshot_ts
        return Marks(
            0 if self._transport is None else ts, 0 if self._snapshots is None else snapshot_ts
        )

    def note_snapshot(self, snapshot_ts: int) -> None:
        """Take note of the newest snapshot elsewhere that was believed."""
        self._rise(self._high_water.with_snapshot(snapshot_ts))

    def _rise(self, high_water: HighWater) -> None:
        if high_water != self._high_water:
            if self._file is not None:
                self._file.marks = high_water.as_json()
            self._high_water = high_water

    def elements(self) -> Iterator[RawElement]:
        """Every element that is kept here, ascending."""
        checkpoint = -1
        while self._file is not None and (page := self._file.page(checkpoint, PULL_ELEMENTS_MAX)):
            yield from page
            checkpoint = page[-1].ts

    def start_over(
        self, start: Start, high_water: HighWater, covered: Sequence[RawElement]
    ) -> None:
        """Go on from another log, in one step.

        Args:
            start: What to go on from, but for its floor and its marks.
            high_water: How far it was read.
            covered: Own elements that its state stands for, in order.
        """
        floor = 0 if start.state is None else start.state[1]
        elements = [raw for raw in start.elements if _is_storable(raw, floor, _ts_max())]
        newest = high_water.risen(0, elements)
        # As many as there are were in the log once, each at a place of its own.
        below = [raw._replace(ts=floor - at) for at, raw in enumerate(reversed(covered))]
        if self._file is not None:
            self._file.start_over(
                start._replace(
                    elements=[*(raw for raw in below if raw.ts > 0), *elements],
                    marks=newest.as_json(),
                    slots={_FLOOR: floor},
                )
            )
        self._floor, self._high_water = floor, newest
        self._settled, self.has_hole = self._doubts, False
        # All that is on its way waits again.
        self._beyond_hole.clear()

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
        if not page:
            return
        ts_max = _ts_max()
        shaped = [raw for each in page if (raw := raw_of(each)) is not None]
        kept = [raw for raw in shaped if _is_storable(raw, self._floor, ts_max)]
        ts = max([ts for each in page if (ts := ts_of(each)) <= ts_max], default=0)
        risen = self._high_water.risen(ts, kept)
        if self._file is not None and checkpoint > max(self._file.head(), self._floor):
            self.has_hole = True
            self._file.marks = risen.as_json()
        elif self._file is not None:
            self._file.add_elements(kept, marks=risen.as_json())
        self._high_water = risen


def _read_floor(file: LocalFile) -> int:
    floor = file.get(_FLOOR, 0)
    return floor if isinstance(floor, int) else 0


def _upto(stored: StoredSnapshot) -> int:
    """How far a snapshot claims to reach."""
    match stored.document:
        case {"uptoTs": int(upto)}:
            return upto
        case _:
            return 0


def _ts_max() -> int:
    """The highest `ts` that readers take now: what is beyond may come again, and is not kept."""
    return min(time.time_ns() // 1_000_000 + TS_AHEAD_MS_MAX, TS_MAX)


def _is_storable(raw: RawElement, floor: int, ts_max: int) -> bool:
    return floor < raw.ts <= ts_max and len(raw.data) <= ELEMENT_BYTES_MAX


def raw_of(element: object) -> RawElement | None:
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
