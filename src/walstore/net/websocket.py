"""Logs, snapshots and records on a relay, over one websocket for many documents.

- The connection is made and kept in the background, for the length of an `async with` block. It is
  made again whenever it is lost, and everything goes on where it was.
- A call waits for a connection that is being made, and, right after one was lost, for the first
  attempt to make it again: what was asked is then asked again, the same elements in the same
  order. While attempts fail, calls fail at once, with an error that may be tried again.
- Every question has its time. What is large has more, and so has an answer that keeps coming.
- An append that failed may be stored or not. Sending the same again is safe: it is stored once.
- A document that is followed is pulled from what the relay has sent already, wherever that is
  without a hole; otherwise the relay is asked.
- The changes feed of the relay is read at the pace of whoever reads it.
- A transport that has nothing to do does nothing, but for a ping every few seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from walstore.canon import canonical_bytes, parse
from walstore.document.ports import Body, RawElement, StoredRecord, StoredSnapshot
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.errors import MalformedError
from walstore.net.backoff import Backoff
from walstore.net.changes import FIND_IDS_MAX
from walstore.net.client import RelayClient
from walstore.net.dialling import (
    Connect,
    Connection,
    RelayUrlError,
    address_of,
    websocket_connect,
)
from walstore.net.events import Admitted, FeedMoved, Settled
from walstore.net.faults import DocumentKeyRefusedError, FeedRefusedError, TransportClosedError
from walstore.net.feed import FeedEvent, Kind, Wanted, check_asked
from walstore.net.feed_reader import FeedReader, Line
from walstore.net.feeds import Feed
from walstore.net.follow import Bell, Bells, Follow
from walstore.net.following import Peer, Waiting
from walstore.net.keeper import Keeper, Timing
from walstore.net.keys import checked_key
from walstore.net.pending import Pending
from walstore.net.status import State, StatusSubscription, TransportStatus
from walstore.signed.author import verify_document_text
from walstore.signed.identity import Identity
from walstore.wire.element import has_too_many_values
from walstore.wire.frames import GetSnapshot
from walstore.wire.limits import (
    PULL_ELEMENTS_MAX,
    SNAPSHOT_PIECE_SIZE,
    SNAPSHOT_VALUES_MAX,
    TS_MAX,
)

__all__ = ["Connection", "Follow", "RelayUrlError", "Timing", "WebSocketTransport"]

Answer = TypeVar("Answer")

# Snapshots that are read at once: each may be as large as one may be.
_READS_MAX = 4


class WebSocketTransport:
    """A relay: a `Transport`, a `SnapshotStore`, a `RecordStore` and a `GrantStore`."""

    def __init__(
        self,
        url: str,
        *,
        identity: Identity,
        logs: Mapping[str, str] | None = None,
        compression: bool | None = None,
        request_timeout_ms: int = 10_000,
        backoff: Backoff | None = None,
        connect: Connect | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Prepare; `async with` connects.

        Args:
            url: Where the relay is, `ws://host:port` or `wss://host:port`.
            identity: Who this is: a relay takes elements and snapshots under its key only.
            logs: The logs by document key, as an earlier session has known them.
            compression: Whether to offer compression; if left out, unless the relay is on this
                machine.
            request_timeout_ms: How long an answer may take.
            backoff: The pauses before reconnecting.
            connect: Opens a connection; a websocket if left out.
            timing: Time and chance; the system's if left out.

        Raises:
            RelayUrlError: It is not the URL of a relay.
        """
        timing = Timing() if timing is None else timing
        backoff = Backoff() if backoff is None else backoff
        self._now_ms = timing.now_ms
        self._client = RelayClient(
            identity,
            relay=address_of(url),
            logs={} if logs is None else logs,
            request_timeout_ms=request_timeout_ms,
        )
        self._keeper = Keeper(
            self._client,
            url,
            connect=websocket_connect(compression=compression) if connect is None else connect,
            backoff=backoff,
            timing=timing,
            handshake_timeout_ms=request_timeout_ms,
            on_events=self._act,
        )
        # From the clock that never goes back to the one that people read.
        self._since_1970_ms = time.time_ns() // 1_000_000 - timing.now_ms()
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._bells: dict[str, Bells] = {}
        self._admitted = Bell()
        self._feeds: WeakValueDictionary[str, Bell] = WeakValueDictionary()
        self._feed_names = count(1)
        self._line = Line(
            self._client,
            timing,
            backoff,
            self._admitted,
            answer=self._answer,
            act=self._act,
            check=self._check_open,
        )
        self._reads = asyncio.Semaphore(_READS_MAX)
        # A relay takes the pieces of one snapshot at a time.
        self._writes = asyncio.Lock()
        self._listeners: dict[StatusSubscription, TransportStatus] = {}

    # ── lifetime ───────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> WebSocketTransport:
        """Begin to connect; whether that succeeds is told by `status`."""
        if self._tasks:
            raise TransportClosedError("a transport is opened once")
        work = (self._keeper.run(), self._keeper.tick())
        self._tasks = [asyncio.create_task(each) for each in work]
        for task in self._tasks:
            task.add_done_callback(self._stopped)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection; what waits for answers fails."""
        self._close("the transport was closed")
        await asyncio.wait(self._tasks)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """Let nobody wait for a connection that nothing makes any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._close(f"{type(error).__name__}: {error}")
            raise error

    def _close(self, reason: str) -> None:
        self._client.close(reason, self._now_ms())
        self._act()
        for bells in self._bells.values():
            bells.ring_all()
        for moved in [self._admitted, *self._feeds.values()]:
            moved.ring()
        for task in self._tasks:
            task.cancel()

    def _check_open(self) -> None:
        if not self._tasks:
            raise TransportClosedError
        if self._client.state is State.CLOSED:
            raise TransportClosedError(self._client.reason)

    # ── logs ───────────────────────────────────────────────────────────────────────────

    async def append(self, document_key: str, body: Body) -> int:
        """Append an element durably; the same one again gets the same `ts`.

        Raises:
            OtherLogError: The relay holds another log under this key.
            RelayRefusalError: The relay did not take it.
            TransportError: It is not known to be stored; the same body may be sent again.
        """
        key = self._checked(document_key)
        return await self._answer(self._client.append(key, body, self._now_ms()))

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[RawElement]:
        """One page of elements above a checkpoint; empty only if there are none.

        Raises:
            CheckpointTooOldError: Elements above the checkpoint are gone.
            LogBehindError: The log never reached the checkpoint: the relay was rolled back.
            OtherLogError: The relay holds another log under this key.
            RelayRefusalError: The relay does not hand it out.
            TransportError: The log cannot be read now.
        """
        key, checkpoint = self._checked(document_key), max(checkpoint, 0)
        while (bells := self._bells.get(key)) is not None:
            heard = bells.loaded.count
            page = self._client.buffered(key, checkpoint)
            if page is None:
                break
            if page is not Waiting.FOR_MORE:
                return page
            await bells.loaded.after(heard)
            self._check_open()
        return await self._answer(self._client.page(key, checkpoint, self._now_ms()))

    async def tail(self, document_key: str, upto: int, count: int) -> list[RawElement]:
        """The newest elements up to a `ts`, ascending; raises as `pull` does."""
        key, upto = self._checked(document_key), min(upto, TS_MAX)
        newest: list[RawElement] = []
        while count > len(newest) and upto >= 0:
            asked = min(count - len(newest), PULL_ELEMENTS_MAX)
            pending = self._client.tail(key, upto=upto, count=asked, now_ms=self._now_ms())
            part = await self._answer(pending)
            newest = part + newest
            if len(part) < asked:
                break
            upto = part[0].ts - 1
        return newest

    # ── snapshots ──────────────────────────────────────────────────────────────────────

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The stored snapshot, or None if the relay says that there is none.

        Raises:
            OtherLogError: The relay holds another log under this key.
            RelayRefusalError: The relay does not hand it out.
            TransportError: It is not known whether there is one.
        """
        key = self._document_key(snapshot_key)
        async with self._reads:
            self._check_open()
            stored = await self._answer(self._client.get_snapshot(key, self._now_ms()))
            if stored is None:
                return None
            revision, text = stored
            try:
                if len(text) <= SNAPSHOT_PIECE_SIZE:
                    return StoredSnapshot(parse(text), revision)
                # All else would wait while what is large is looked through.
                document = await asyncio.to_thread(_parse_signed, snapshot_key, text)
                return StoredSnapshot(document, revision)
            except MalformedError:
                # It is there, and is no snapshot: the document will say so.
                return StoredSnapshot(None, revision)

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace the revision that was read; None if there was none.

        Raises:
            SnapshotConflictError: The stored revision is another one, or covers more.
            OtherLogError: The relay holds another log under this key.
            RelayRefusalError: The relay did not take it.
            TransportError: It is not known to be stored.
        """
        key, text = self._document_key(snapshot_key), canonical_bytes(document)
        async with self._writes:
            self._check_open()
            pending = self._client.put_snapshot(key, text, revision, self._now_ms())
            await self._answer(pending)

    async def snapshot_by_revision(self, document_key: str, revision: str) -> bytes | None:
        """The text of a snapshot, current or not; None if the relay does not have it any more.

        Raises:
            FeedRefusedError: No snapshot has such a revision.
            OtherLogError: The relay holds another log under this key.
            RelayRefusalError: The relay does not hand it out.
            TransportError: It is not known whether there is one.
        """
        key = self._checked(document_key)
        check_asked(GetSnapshot("1", key, None, revision))
        async with self._reads:
            self._check_open()
            now_ms = self._now_ms()
            stored = await self._answer(self._client.get_snapshot(key, now_ms, revision=revision))
        return None if stored is None else stored[1]

    # ── records and grants ─────────────────────────────────────────────────────────────

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        """The stored record, or None if the relay says that there is none.

        Raises:
            OtherLogError: The relay holds another log under this key.
            RelayRefusalError: The relay does not hand it out.
            TransportError: It is not known whether there is one.
        """
        key = self._checked(document_key)
        return await self._answer(self._client.get_record(key, name, self._now_ms()))

    async def write_record(
        self, document_key: str, name: str, text: str, revision: str | None
    ) -> str:
        """Replace the revision that was read, None if there was none; the new revision.

        Raises:
            RecordConflictError: The stored revision is another one.
            OtherLogError: The relay holds another log under this key.
            RelayRefusalError: The relay did not take it.
            TransportError: It is not known to be stored.
        """
        key, now_ms = self._checked(document_key), self._now_ms()
        return await self._answer(
            self._client.keep_record(key, name, text, revision=revision, now_ms=now_ms)
        )

    async def publish_grant(self, grant: Mapping[str, Any]) -> None:
        """Have a signed grant of roles count from now on.

        Raises:
            RelayRefusalError: The relay did not take it.
            TransportError: It is not known to count.
        """
        self._check_open()
        await self._answer(self._client.publish_grant(grant, self._now_ms()))

    # ── the changes feed ───────────────────────────────────────────────────────────────

    def changes(
        self,
        prefix: str = "",
        *,
        since: int = 0,
        until_seq: int | None = None,
        documents: Iterable[str] | None = None,
        authors: Iterable[str] | None = None,
        kinds: Iterable[Kind] | None = None,
        live: bool = False,
        limit: int | None = None,
        relay_id: str | None = None,
    ) -> AsyncGenerator[FeedEvent, None]:
        """What the relay has accepted, in its order: each event once, over any reconnects.

        No more is asked for than is taken, but for a page or a buffer of a few MiB. A reader that
        is live waits out what may pass; another one is told, and may go on from its last `seq`.
        End an iteration that is left early with `aclose`.

        Args:
            prefix: Of which documents: those whose keys begin with it.
            since: Above which seq.
            until_seq: Up to which seq; None for all.
            documents: Of which of them; None for all.
            authors: By whom; None for anybody.
            kinds: Elements or snapshots; None for both.
            live: Whether to go on for ever, with what is yet to come.
            limit: How many events at most; None for all.
            relay_id: The database that `since` is of, if it was read in an earlier session.

        Raises:
            FeedRefusedError: No relay could be asked for this.
            ReplayTooOldError: What is above `since` can no longer be replayed; bootstrap.
            LogBehindError: The relay has accepted less than `since`: it was rolled back.
            OtherRelayError: Another database answers than before, or than `relay_id`.
            RelayRefusalError: The relay does not hand it out.
            TransportError: It cannot be read now, and the iteration is not live.
        """
        wanted = _wanted(prefix, documents, authors, kinds)
        check_asked(wanted.changes("1", "tail", since=since, until_seq=until_seq, is_live=live))
        if limit is not None and limit < 0:
            raise FeedRefusedError("`limit` is below 0")
        reader = FeedReader(
            self._line,
            self._new_feed(wanted),
            since=since,
            until_seq=until_seq,
            limit=limit,
            is_live=live,
            relay=relay_id,
        )
        self._feeds[reader.feed.name] = reader.moved
        return reader.events()

    async def bootstrap(
        self,
        prefix: str = "",
        *,
        documents: Iterable[str] | None = None,
        authors: Iterable[str] | None = None,
    ) -> tuple[int, AsyncGenerator[FeedEvent, None]]:
        """The snapshots that are current, and the seq to go on with: `changes` with that `since`.

        Of a document whose snapshot is replaced while they are read, the newer one is what
        `changes` shows. Arguments and errors are those of `changes`.
        """
        wanted = _wanted(prefix, documents, authors, ["snapshot"])
        check_asked(wanted.changes("1", "bootstrap", since=0))
        reader = FeedReader(self._line, self._new_feed(wanted), since=0)
        first = await reader.page("bootstrap", 0, None)
        return first.snapshot_seq, reader.snapshots(first)

    def find(
        self,
        ids: Iterable[str],
        *,
        documents: Iterable[str] | None = None,
        authors: Iterable[str] | None = None,
        kinds: Iterable[Kind] | None = None,
    ) -> AsyncGenerator[FeedEvent, None]:
        """Events by their ids, a few at a time; what may not be read, or is not there, is left out.

        Raises:
            FeedRefusedError: These are no ids.
            TransportError: They cannot be read now.
        """
        wanted, asked = _wanted("", documents, authors, kinds), list(dict.fromkeys(ids))
        parts = [
            tuple(asked[start : start + FIND_IDS_MAX])
            for start in range(0, len(asked), FIND_IDS_MAX)
        ]
        for part in parts:
            check_asked(wanted.request("1", part))
        return self._find(wanted, parts)

    async def _find(
        self, wanted: Wanted, parts: Sequence[tuple[str, ...]]
    ) -> AsyncGenerator[FeedEvent, None]:
        for part in parts:
            self._check_open()
            for event in await self._answer(self._client.find(wanted, part, self._now_ms())):
                yield event

    def _new_feed(self, wanted: Wanted) -> Feed:
        return Feed(str(next(self._feed_names)), wanted)

    @property
    def relay_id(self) -> str | None:
        """Names the relay's database, which every seq is of; None before the first connection."""
        return self._client.relay

    # ── following ──────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def follow(self, document_key: str, checkpoint: int) -> AsyncIterator[Follow]:
        """Be told what is new in a document above a checkpoint, and who else is there."""
        key = self._checked(document_key)
        bells = self._bells.setdefault(key, Bells())
        bells.readers += 1
        self._client.follow(key, max(checkpoint, 0), self._now_ms())
        self._act()
        try:
            yield Follow(bells, peers=lambda: self.peers(key), check=self._check_open)
        finally:
            self._client.unfollow(key)
            self._act()
            bells.readers -= 1
            if not bells.readers:
                del self._bells[key]

    def peers(self, document_key: str) -> dict[str, Peer]:
        """The others who are at a followed document, by the name of their connection."""
        return self._client.peers(document_key)

    def set_presence(self, document_key: str, payload: Mapping[str, Any] | None) -> None:
        """Tell the others who is there, now and after every reconnect; None to leave.

        Raises:
            NotJsonError: The payload has no JSON text.
            PresenceRefusedError: It is too large, or relays cannot read it.
        """
        self._client.set_presence(self._checked(document_key), payload)
        self._act()

    # ── what is known ──────────────────────────────────────────────────────────────────

    def log_of(self, document_key: str) -> str | None:
        """The log that a key stands for; None if no answer has named it yet."""
        return self._client.logs.get(document_key)

    def accept_log(self, document_key: str, log: str) -> None:
        """From now on a key stands for this log, after a person decided so; see `OtherLogError`."""
        self._client.accept_log(self._checked(document_key), log)

    @property
    def logs(self) -> dict[str, str]:
        """The logs by document key; keep them, and give them to the next session."""
        return self._client.logs

    @property
    def status(self) -> TransportStatus:
        """How it stands with the relay."""
        client, ping_ms = self._client, self._keeper.latency_ms
        last_ack_ms = client.last_ack_ms
        return TransportStatus(
            client.state,
            client.reason,
            client.unacknowledged,
            None if last_ack_ms is None else last_ack_ms + self._since_1970_ms,
            client.lag_ms if ping_ms is None else ping_ms,
            client.documents,
        )

    def on_status(self, callback: Callable[[TransportStatus], None]) -> StatusSubscription:
        """Have a function called with every new status, until the subscription is closed."""
        subscription = StatusSubscription(callback, self._listeners.pop)
        self._listeners[subscription] = self.status
        return subscription

    # ── calls ──────────────────────────────────────────────────────────────────────────

    def _checked(self, document_key: str) -> str:
        self._check_open()
        return checked_key(document_key)

    def _document_key(self, snapshot_key: str) -> str:
        if not snapshot_key.endswith(SNAPSHOT_SUFFIX):
            reason = f"the key of a snapshot ends in {SNAPSHOT_SUFFIX}"
            raise DocumentKeyRefusedError(snapshot_key, reason)
        return self._checked(snapshot_key.removesuffix(SNAPSHOT_SUFFIX))

    async def _answer(self, pending: Pending[Answer]) -> Answer:
        settled = self._waiting[pending.ref] = asyncio.get_running_loop().create_future()
        self._act()
        try:
            await settled
        finally:
            del self._waiting[pending.ref]
            self._client.forget(pending)
        return pending.result()

    def _act(self) -> None:
        """Tell everybody what the client has to tell."""
        for event in self._client.take_events():
            match event:
                case Settled():
                    settled = self._waiting.get(event.ref)
                    if settled is not None and not settled.done():
                        settled.set_result(None)
                case FeedMoved():
                    if (moved := self._feeds.get(event.name)) is not None:
                        moved.ring()
                case Admitted():
                    self._admitted.ring()
                case _:
                    if (bells := self._bells.get(event.document)) is not None:
                        bells.ring(event)
        self._keeper.wake()
        if self._listeners:
            self._tell(self.status)

    def _tell(self, status: TransportStatus) -> None:
        loop = asyncio.get_running_loop()
        for subscription, told in self._listeners.items():
            if status != told:
                self._listeners[subscription] = status
                # What goes wrong in a callback is no matter of the connection's.
                loop.call_soon(subscription.call, status)


def _parse_signed(snapshot_key: str, text: bytes) -> object:
    """A snapshot that somebody has signed; nothing else is parsed, as nothing runs meanwhile.

    Raises:
        MalformedError: It is not as it was signed, or there is more in it than is ever stored.
    """
    if has_too_many_values(text, SNAPSHOT_VALUES_MAX):
        raise MalformedError("snapshot", f"more than {SNAPSHOT_VALUES_MAX} values")
    if not verify_document_text(snapshot_key, text):
        raise MalformedError("snapshot", "its signature does not verify")
    return parse(text)


def _wanted(
    prefix: str,
    documents: Iterable[str] | None,
    authors: Iterable[str] | None,
    kinds: Iterable[str] | None,
) -> Wanted:
    filters = (documents, authors, kinds)
    return Wanted(prefix, *(None if each is None else frozenset(each) for each in filters))
