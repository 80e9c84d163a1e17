"""The client's side of the relay protocol: frames in, frames and events out.

- Pure: no sockets, no clock. A shell feeds it what comes, sends what it has to say, and tells it
  the time.
- Every frame is hostile until checked. What an honest relay never says is a `RelayFaultError`, and
  ends the connection; what merely comes too late is ignored and counted.
- It outlives connections: what waits for an answer is asked again on the next one, the same
  elements in the same order; what is followed is resumed where its reader is.

    connected ─► HELLO ─► AUTH ─► OK ─► live ──lost──► connecting ──lost──► offline
                                         ▲                 │                   │
                                         └─────────────────┴───────────────────┘

While it is connecting, what is asked waits for the connection. Once an attempt has failed it is
offline: everything that waits fails, and so does whatever is asked, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from walstore.canon import canonical_bytes
from walstore.document.ports import Body, RawElement
from walstore.errors import TransportError
from walstore.net.admission import Admission
from walstore.net.alarm import Alarm
from walstore.net.changes import Mode, PendingChanges, PendingFind
from walstore.net.events import Admitted, ClientEvent
from walstore.net.faults import (
    ElementTooLargeError,
    NotAdmittedError,
    OfflineError,
    PresenceRefusedError,
    RecordRefusedError,
    RelayFaultError,
    TooLargeError,
    TransportClosedError,
)
from walstore.net.feed import Wanted
from walstore.net.feeds import Feed, Feeds
from walstore.net.following import Peer, Waiting
from walstore.net.ledger import AnyPending, Ledger
from walstore.net.logs import KnownLogs
from walstore.net.outgoing import Outgoing
from walstore.net.pending import Pending
from walstore.net.requests import (
    PendingAppend,
    PendingGrant,
    PendingKeep,
    PendingPage,
    PendingPut,
    PendingRecord,
    PendingSnapshot,
    PendingTail,
)
from walstore.net.status import State
from walstore.net.subscriptions import Subscriptions
from walstore.signed.identity import Identity
from walstore.wire.element import has_too_many_values
from walstore.wire.frames import (
    Challenge,
    FrameError,
    Hello,
    Presence,
    Refusal,
    RelayFrame,
    read_client_frame,
    read_relay_frame,
)
from walstore.wire.frames.fields import WrongError, read_record_name, read_record_text
from walstore.wire.limits import (
    ELEMENT_BYTES_MAX,
    PRESENCE_BYTES_MAX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOT_VALUES_MAX,
)

# A presence as it is passed on: what was said, and who said it.
_PRESENCE_FRAME_SIZE_MAX = PRESENCE_BYTES_MAX + 1024


class RelayClient:
    """One client, over as many connections as it takes.

    Attributes:
        state: How it stands with the relay.
        reason: Why, in words.
        relay: The database that the relay has named last; None if none has yet.
        last_ack_ms: When something was last acknowledged; None if nothing was yet.
        lag_ms: How long that took.
        ignored: How many frames came that nobody waited for.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        relay: str,
        logs: Mapping[str, str],
        request_timeout_ms: int,
    ) -> None:
        """Begin without a connection.

        Args:
            identity: Whose key is proved.
            relay: The host and port that are dialled.
            logs: The logs by document key, as far as they are known.
            request_timeout_ms: How long an answer may take.
        """
        self.state = State.CONNECTING
        self.reason = "connecting"
        self.relay: str | None = None
        self.last_ack_ms: int | None = None
        self.lag_ms: int | None = None
        self.ignored = 0
        self._presences: dict[str, bytes] = {}
        self._events: list[ClientEvent] = []
        self._alarm = Alarm()
        self._outgoing = Outgoing(self._alarm)
        self._new_admission = partial(Admission, identity, relay, self._outgoing)
        self._admission = self._new_admission()
        self._logs = KnownLogs(logs)
        parts = (self._outgoing, self._logs, self._events, self._alarm)
        self._ledger = Ledger(*parts, timeout_ms=request_timeout_ms)
        self._subscriptions = Subscriptions(*parts, timeout_ms=request_timeout_ms)
        self._feeds = Feeds(
            self._outgoing, self._events, self._alarm, timeout_ms=request_timeout_ms
        )

    # ── what is asked ──────────────────────────────────────────────────────────────────

    def append(self, document: str, body: Body, now_ms: int) -> PendingAppend:
        """Append an element.

        Raises:
            TransportError: It cannot be sent: offline, refused, closed, busy or too large.
        """
        if len(body.canonical) > ELEMENT_BYTES_MAX:
            raise ElementTooLargeError(len(body.canonical), ELEMENT_BYTES_MAX)
        return self._ask(PendingAppend(self._outgoing.next_ref(), document, body), now_ms)

    def page(self, document: str, checkpoint: int, now_ms: int) -> PendingPage:
        """Ask the relay for elements above a checkpoint; raises as `append` does."""
        return self._ask(PendingPage(self._outgoing.next_ref(), document, checkpoint), now_ms)

    def tail(self, document: str, *, upto: int, count: int, now_ms: int) -> PendingTail:
        """Ask for the newest elements up to a `ts`; raises as `append` does."""
        return self._ask(PendingTail(self._outgoing.next_ref(), document, upto, count), now_ms)

    def get_snapshot(
        self, document: str, now_ms: int, *, revision: str | None = None
    ) -> PendingSnapshot:
        """Ask for the current snapshot, or for a revision of it; raises as `append` does."""
        ref = self._outgoing.next_ref()
        return self._ask(PendingSnapshot(ref, document, revision), now_ms)

    def put_snapshot(
        self, document: str, text: bytes, revision: str | None, now_ms: int
    ) -> PendingPut:
        """Replace a revision of the snapshot; raises as `append` does."""
        if len(text) > SNAPSHOT_BYTES_MAX:
            raise TooLargeError(len(text), SNAPSHOT_BYTES_MAX)
        if has_too_many_values(text, SNAPSHOT_VALUES_MAX):
            raise TooLargeError(SNAPSHOT_VALUES_MAX + 1, SNAPSHOT_VALUES_MAX, unit="values")
        return self._ask(PendingPut(self._outgoing.next_ref(), document, text, revision), now_ms)

    def get_record(self, document: str, name: str, now_ms: int) -> PendingRecord:
        """Ask for a record; raises as `append` does.

        Raises:
            RecordRefusedError: No record has that name.
        """
        _check_record(read_record_name, name)
        return self._ask(PendingRecord(self._outgoing.next_ref(), document, name), now_ms)

    def keep_record(
        self, document: str, name: str, text: str, *, revision: str | None, now_ms: int
    ) -> PendingKeep:
        """Replace a revision of a record; raises as `append` does.

        Raises:
            RecordRefusedError: No record has that name or that text.
        """
        _check_record(read_record_name, name)
        _check_record(read_record_text, text)
        ref = self._outgoing.next_ref()
        return self._ask(PendingKeep(ref, document, name, text, revision), now_ms)

    def publish_grant(self, grant: Mapping[str, Any], now_ms: int) -> PendingGrant:
        """Publish a signed grant; raises as `append` does."""
        prefix = str(grant.get("prefix", ""))
        return self._ask(PendingGrant(self._outgoing.next_ref(), prefix, dict(grant)), now_ms)

    def changes(
        self,
        wanted: Wanted,
        *,
        mode: Mode = "tail",
        since: int,
        until_seq: int | None,
        limit: int,
        now_ms: int,
    ) -> PendingChanges:
        """Ask for a page of the changes feed; raises as `append` does."""
        return self._ask(
            PendingChanges(
                self._outgoing.next_ref(),
                wanted,
                mode=mode,
                since=since,
                until_seq=until_seq,
                limit=limit,
            ),
            now_ms,
        )

    def find(self, wanted: Wanted, ids: tuple[str, ...], now_ms: int) -> PendingFind:
        """Ask for events by their ids; raises as `append` does."""
        return self._ask(PendingFind(self._outgoing.next_ref(), wanted, ids), now_ms)

    def switch_on(self, feed: Feed, since: int, *, relay: str, now_ms: int) -> None:
        """Follow a feed live above a seq, if there is a connection to where that was read."""
        if self.state is State.LIVE and self.relay == relay:
            self._feeds.begin(feed, since, now_ms)

    def switch_off(self, feed: Feed) -> None:
        """Follow a feed no longer."""
        self._feeds.end(feed)

    def forget(self, pending: Pending[Any]) -> None:
        """Nobody waits for this answer any more."""
        self._ledger.forget(pending)

    def buffered(self, document: str, checkpoint: int) -> Sequence[RawElement] | Waiting | None:
        """What has come of a followed document above a checkpoint; None if the relay must say."""
        return self._subscriptions.read(document, checkpoint)

    def follow(self, document: str, checkpoint: int, now_ms: int) -> None:
        """Follow a document live, above a checkpoint, until it was unfollowed as often."""
        is_live = self.state is State.LIVE
        self._subscriptions.follow(document, checkpoint, now_ms, is_live=is_live)

    def unfollow(self, document: str) -> None:
        """One follower less."""
        self._subscriptions.unfollow(document)

    def peers(self, document: str) -> dict[str, Peer]:
        """Who else is at a followed document."""
        return self._subscriptions.peers(document)

    def set_presence(self, document: str, payload: Mapping[str, Any] | None) -> None:
        """Tell the others who is there; told again after every reconnect, until it is None.

        Raises:
            NotJsonError: The payload has no JSON text.
            PresenceRefusedError: It is too large, or relays cannot read it.
        """
        text = canonical_bytes(None if payload is None else dict(payload))
        presence = b'["PRESENCE",%b,%b]' % (orjson.dumps(document), text)
        try:
            read_client_frame(presence)
        except FrameError as error:
            raise PresenceRefusedError(error.reason) from error
        self._presences[document] = presence
        if payload is None:
            del self._presences[document]
        if self.state is State.LIVE:
            self._outgoing.announce(document, presence)

    def _ask(self, pending: AnyPending, now_ms: int) -> AnyPending:
        if self.state not in (State.LIVE, State.CONNECTING):
            raise self._unavailable()
        self._ledger.add(pending, now_ms)
        if self.state is State.LIVE:
            self._ledger.send(pending)
        return pending

    def _unavailable(self) -> TransportError:
        match self.state:
            case State.REFUSED:
                return NotAdmittedError(self.reason)
            case State.CLOSED:
                return TransportClosedError(self.reason)
            case _:
                return OfflineError(self.reason)

    # ── what is known ──────────────────────────────────────────────────────────────────

    @property
    def logs(self) -> dict[str, str]:
        """The logs by document key."""
        return self._logs.all()

    def accept_log(self, document: str, log: str) -> None:
        """From now on a key stands for this log."""
        self._logs.accept(document, log)

    @property
    def documents(self) -> frozenset[str]:
        """The documents that are followed."""
        return self._subscriptions.documents

    @property
    def unacknowledged(self) -> int:
        """How many elements and snapshots are not known to be stored."""
        return self._ledger.writes

    def take_events(self) -> list[ClientEvent]:
        """What has happened since the last time."""
        events = list(self._events)
        self._events.clear()
        return events

    @property
    def has_events(self) -> bool:
        """Whether something has happened since the last time."""
        return bool(self._events)

    @property
    def due_ms(self) -> int | None:
        """When to call `tick`, at the latest; None if there is no need to."""
        return self._alarm.due_ms

    @property
    def has_outgoing(self) -> bool:
        """Whether there is something to say, now or a little later."""
        return bool(self._outgoing)

    def take_outgoing(self, now_ms: int) -> bytes | None:
        """The next frame to send; None if there is nothing to say now."""
        return self._outgoing.take(now_ms, self._ledger.begun, self._ledger.too_large)

    # ── the connection ─────────────────────────────────────────────────────────────────

    def connected(self) -> None:
        """There is a connection; the relay is to speak first."""
        self._admission = self._new_admission()

    def lost(self, reason: str, now_ms: int) -> None:
        """The connection is gone, or an attempt to make one failed.

        After a connection that worked, one attempt is waited for: what is asked meanwhile, and what
        was asked, goes out with it. If that fails too, or will not be made soon, all of it fails.
        """
        was_live = self.state is State.LIVE
        self._end(State.CONNECTING if was_live else State.OFFLINE, reason, now_ms)

    def refused(self, reason: str, now_ms: int) -> None:
        """The relay does not let this client in."""
        self._end(State.REFUSED, reason, now_ms)

    def close(self, reason: str, now_ms: int) -> None:
        """There will be no more connections."""
        self._end(State.CLOSED, reason, now_ms)

    def _end(self, state: State, reason: str, now_ms: int) -> None:
        if self.state is State.CLOSED:
            return
        self.state, self.reason = state, reason
        self._outgoing.clear()
        self._ledger.disconnect()
        self._subscriptions.disconnect(now_ms)
        self._feeds.disconnect()
        if state is not State.CONNECTING:
            self._ledger.fail_all(self._unavailable)

    def tick(self, now_ms: int) -> None:
        """Give up what takes too long, and look again where nothing tells."""
        self._alarm.clear()
        self._ledger.tick(now_ms)
        self._subscriptions.tick(now_ms, is_live=self.state is State.LIVE)
        self._feeds.tick(now_ms)

    # ── what comes ─────────────────────────────────────────────────────────────────────

    def receive(self, raw: str | bytes, now_ms: int) -> None:
        """Take a message of the relay's.

        Raises:
            RelayFaultError: It breaks the protocol; the connection is to be closed.
            NotAdmittedError: The relay does not let this client in; likewise.
        """
        if self.state is State.CLOSED:
            return
        if isinstance(raw, bytes):
            raise RelayFaultError("a binary message")
        try:
            frame = read_relay_frame(raw)
        except FrameError as error:
            raise RelayFaultError(error.reason) from error
        if not self._admission.is_greeted:
            self._admission.greet(frame)
            self.relay = self._admission.database
        elif isinstance(frame, Presence) and len(raw) > _PRESENCE_FRAME_SIZE_MAX:
            self.ignored += 1
        else:
            self._take(frame, now_ms)

    def _take(self, frame: RelayFrame, now_ms: int) -> None:
        match frame:
            case Hello():
                raise RelayFaultError("a second hello")
            case Challenge():
                self._admission.prove(frame.challenge)
            case Presence():
                self.ignored += not self._subscriptions.take_presence(frame)
            case Refusal(ref=None):
                # It belongs to no request; a presence, say, that came too fast.
                self.ignored += 1
            case _:
                self._take_answer(frame, frame.ref or "", now_ms)

    def _take_answer(self, frame: RelayFrame, ref: str, now_ms: int) -> None:
        if ref == self._admission.ref:
            self._admission.take(frame)
            if self.state is not State.LIVE:
                self._admitted(now_ms)
        elif (following := self._subscriptions.get(ref)) is not None:
            self._subscriptions.take(following, frame, now_ms)
        elif (feed := self._feeds.get(ref)) is not None:
            self._feeds.take(feed, frame, now_ms)
        elif (pending := self._ledger.get(ref)) is not None:
            if isinstance(pending, PendingChanges):
                pending.relay = self.relay or ""
            self._ledger.take(pending, frame, now_ms)
            if pending.is_settled and pending.error is None:
                self._settled(pending, now_ms)
        elif self._outgoing.was_used(ref):
            self.ignored += 1
        else:
            raise RelayFaultError("an answer to something that was never asked")

    def _settled(self, pending: Pending[Any], now_ms: int) -> None:
        if pending.is_write and pending.begun_ms is not None:
            self.last_ack_ms = now_ms
            self.lag_ms = now_ms - pending.begun_ms
        if isinstance(pending, PendingAppend):
            self._subscriptions.acknowledged(pending.document, pending.result())
        elif isinstance(pending, PendingPage):
            self._subscriptions.paged(pending, now_ms)

    def _admitted(self, now_ms: int) -> None:
        self.state, self.reason = State.LIVE, "live"
        self._events.append(Admitted())
        self._ledger.send_all()
        self._subscriptions.resume(now_ms)
        for document, presence in self._presences.items():
            self._outgoing.announce(document, presence)


def _check_record(read: Callable[[object], str], value: str) -> None:
    try:
        read(value)
    except WrongError as error:
        raise RecordRefusedError(str(error)) from None
