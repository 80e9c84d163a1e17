"""The documents that a client follows live, over as many connections as it takes.

- A document has one subscription, however many follow it.
- What is not read yet is bounded for all documents together; past that, subscriptions end and are
  taken up again when their readers have caught up.
- Before the log of a document is known, nothing of it is handed out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from walstore.document.ports import RawElement
from walstore.net.alarm import Alarm
from walstore.net.events import (
    ClientEvent,
    Loaded,
    Moved,
    PeersChanged,
    RecordsChanged,
    SnapshotChanged,
)
from walstore.net.faults import RelayFaultError
from walstore.net.following import Following, Peer, Phase, Waiting
from walstore.net.logs import KnownLogs
from walstore.net.outgoing import Outgoing
from walstore.net.requests import PendingPage, read_head, read_log_of
from walstore.wire.frames import (
    RECORDS_FEATURE,
    ClientFrame,
    Closed,
    Elements,
    EndOfStored,
    Kept,
    Presence,
    Pull,
    Refusal,
    RelayFrame,
)
from walstore.wire.limits import PULL_ELEMENTS_MAX

# Unread elements of all documents that are followed.
BUFFERED_BYTES_MAX = 64 * 2**20


class Subscriptions:
    """Everything that is followed."""

    def __init__(
        self,
        outgoing: Outgoing,
        logs: KnownLogs,
        events: list[ClientEvent],
        alarm: Alarm,
        *,
        timeout_ms: int,
    ) -> None:
        """Begin with nothing.

        Args:
            outgoing: Takes what is to be sent.
            logs: The logs that subscriptions name.
            events: Told when there is something to read.
            alarm: Told when something is to be looked at again.
            timeout_ms: How long a relay may say nothing before all that is stored has come.
        """
        self._outgoing = outgoing
        self._logs = logs
        self._events = events
        self._alarm = alarm
        self._timeout_ms = timeout_ms
        self._following: dict[str, Following] = {}
        self._by_ref: dict[str, Following] = {}

    @property
    def documents(self) -> frozenset[str]:
        """The documents that are followed."""
        return frozenset(self._following)

    @property
    def buffered_bytes(self) -> int:
        """How much was not read yet."""
        return sum(following.size for following in self._following.values())

    def get(self, ref: str) -> Following | None:
        """What is subscribed to under a ref."""
        return self._by_ref.get(ref)

    def follow(self, document: str, checkpoint: int, now_ms: int, *, is_live: bool) -> None:
        """Follow a document above a checkpoint, until it was unfollowed as often.

        Args:
            document: Its key.
            checkpoint: Where its reader is.
            now_ms: The time.
            is_live: Whether there is a connection to subscribe on.
        """
        following = self._following.get(document)
        if following is None:
            following = self._following[document] = Following(document, checkpoint)
            if is_live:
                self._subscribe(following, checkpoint, now_ms)
        following.followers += 1

    def unfollow(self, document: str) -> None:
        """One follower less."""
        following = self._following[document]
        following.followers -= 1
        if not following.followers:
            self._unsubscribe(following)
            del self._following[document]
            self._events.append(Loaded(document))

    def read(self, document: str, checkpoint: int) -> Sequence[RawElement] | Waiting | None:
        """What has come of a document above a checkpoint; None if only the relay knows."""
        following = self._following.get(document)
        if following is None:
            return None
        if self._logs.of(document) is None:
            return Waiting.FOR_MORE if following.phase is Phase.LOADING else None
        return following.read(checkpoint)

    def peers(self, document: str) -> dict[str, Peer]:
        """Who else is at a document."""
        following = self._following.get(document)
        return {} if following is None else dict(following.peers)

    # ── the connection ─────────────────────────────────────────────────────────────────

    def resume(self, now_ms: int) -> None:
        """Subscribe to everything on a new connection, where its readers are."""
        for following in self._following.values():
            self._subscribe(following, following.asked, now_ms)

    def disconnect(self, now_ms: int) -> None:
        """The connection is gone; what has come can still be read."""
        self._by_ref.clear()
        for following in self._following.values():
            following.suspend(now_ms)
            self._events.append(Loaded(following.document))
            if following.peers:
                following.peers.clear()
                self._events.append(PeersChanged(following.document))

    def tick(self, now_ms: int, *, is_live: bool) -> None:
        """Give up what takes too long, and look again where nothing tells."""
        for following in self._following.values():
            if following.phase is Phase.LOADING and now_ms >= following.deadline_ms:
                self._unsubscribe(following)
                self._fail(following, now_ms)
            elif is_live and following.is_due(now_ms):
                self._events.append(Moved(following.document))
            if is_live:
                self._wait_for(following)

    def acknowledged(self, document: str, ts: int) -> None:
        """An element was stored: a log that ends before it was not read to its end."""
        following = self._following.get(document)
        if following is not None:
            following.acknowledge(ts)

    def paged(self, page: PendingPage, now_ms: int) -> None:
        """A reader has read a page; at the end of the log it can be told again what is new."""
        following = self._following.get(page.document)
        if following is not None and not page.is_more and following.may_subscribe(now_ms):
            self._subscribe(following, page.last_ts, now_ms)

    # ── what comes ─────────────────────────────────────────────────────────────────────

    def take(self, following: Following, frame: RelayFrame, now_ms: int) -> None:
        """Take a frame that names a subscription.

        Raises:
            RelayFaultError: It cannot belong to it.
        """
        if not following.is_sent:
            raise RelayFaultError("an answer to something that was not sent yet")
        match frame:
            case Elements():
                self._take_elements(following, frame, now_ms)
            case EndOfStored() if following.phase is Phase.LOADING:
                self._take_end(following, frame, now_ms)
            case Kept(name="snapshot"):
                self._events.append(SnapshotChanged(following.document))
            case Kept():
                self._events.append(RecordsChanged(following.document))
            case Refusal() | Closed():
                self._by_ref.pop(following.ref or "", None)
                self._fail(following, now_ms)
            case _:
                raise RelayFaultError(f"{type(frame).__name__} does not answer a live pull")

    def take_presence(self, frame: Presence) -> bool:
        """Note somebody's presence; whether it is news."""
        following = self._following.get(frame.document)
        if following is None or not following.take_presence(frame):
            return False
        self._events.append(PeersChanged(frame.document))
        return True

    def _take_elements(self, following: Following, frame: Elements, now_ms: int) -> None:
        has_room = self.buffered_bytes <= BUFFERED_BYTES_MAX
        if frame.elements:
            following.deadline_ms = now_ms + self._timeout_ms
            self._events.append(Loaded(following.document))
            if following.is_news(frame, now_ms):
                self._events.append(Moved(following.document))
            else:
                self._wait_for(following)
        if not (has_room and following.take(frame)):
            self._unsubscribe(following)
            following.suspend(now_ms)
            self._wait_for(following)

    def _take_end(self, following: Following, frame: EndOfStored, now_ms: int) -> None:
        is_same = self._logs.is_same(following.document, read_log_of(frame))
        if is_same and not following.is_beyond(read_head(frame)):
            following.end_of_stored(frame, now_ms)
            self._events.append(Loaded(following.document))
        else:
            # The reader is told by the page that it asks for next.
            following.forget()
            self._unsubscribe(following)
            self._fail(following, now_ms)

    def _fail(self, following: Following, now_ms: int) -> None:
        following.fail(now_ms)
        self._events.append(Loaded(following.document))
        self._wait_for(following)

    def _wait_for(self, following: Following) -> None:
        if following.due_ms:
            self._alarm.at(following.due_ms)

    def _subscribe(self, following: Following, after: int, now_ms: int) -> None:
        ref = self._outgoing.next_ref()
        following.begin(ref, after, now_ms + self._timeout_ms)
        self._wait_for(following)
        self._by_ref[ref] = following
        self._outgoing.add(ref, self._frames(following, ref))

    def _frames(self, following: Following, ref: str) -> Iterator[ClientFrame]:
        following.is_sent = True
        yield Pull(
            ref,
            following.document,
            self._logs.of(following.document),
            following.begins_after,
            PULL_ELEMENTS_MAX,
            is_live=True,
            with_records=RECORDS_FEATURE in self._outgoing.features,
        )

    def _unsubscribe(self, following: Following) -> None:
        if following.ref is None:
            return
        self._by_ref.pop(following.ref, None)
        self._outgoing.drop(following.ref)
        if following.is_sent:
            self._outgoing.close(following.ref)
