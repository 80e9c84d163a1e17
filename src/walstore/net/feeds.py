"""Changes feeds that are followed live, over as many connections as it takes.

                subscribe                  the buffer is full, the connection is gone,
    OFF ────────────────────────► ON ──────── or the relay ends or refuses it ──────► OFF

- A feed that is on holds every event above where it was subscribed, without a hole, as far as they
  fit. Once it is off, its reader takes what has come, and reads pages from there on.
- What a reader does not take is not asked for: a full buffer ends the subscription.
- A relay that keeps ending a feed is asked less and less often.
"""

from __future__ import annotations

from collections.abc import Iterator

from walstore.document.ports import LogBehindError
from walstore.errors import TransportError
from walstore.net.alarm import Alarm
from walstore.net.changes import check_next, read_covered, read_head_seq
from walstore.net.events import ClientEvent, FeedMoved
from walstore.net.faults import FalseAnswerError, RelayFaultError, feed_error_of
from walstore.net.feed import FeedEvent, Wanted, read_shown, read_status
from walstore.net.outgoing import Outgoing
from walstore.wire.frames import (
    ClientFrame,
    Closed,
    EndOfStored,
    Events,
    EventStatus,
    FeedStatus,
    Refusal,
    RelayFrame,
)

# Events of one feed that were not taken yet, and what they may take.
FEED_EVENTS_MAX = 4096
FEED_BYTES_MAX = 4 * 2**20

# A feed that was on for this long had not failed.
_LASTING_MS = 10_000
_PAUSE_MS_MIN = 1_000
_PAUSE_MS_MAX = 30_000


class Feed:
    """One reader's feed.

    Attributes:
        name: Told when something has happened.
        since: Up to where everything has come.
        error: Why it cannot go on; None if it can.
    """

    def __init__(self, name: str, wanted: Wanted) -> None:
        """Begin, switched off."""
        self.name = name
        self.wanted = wanted
        self.since = 0
        self.error: TransportError | None = None
        self.ref: str | None = None
        self.is_sent = False
        # When the relay has to have said something; 0 once it has said all that it had.
        self.deadline_ms = 0
        self._has_begun = False
        self._events: list[FeedEvent] = []
        self._bytes = 0
        self._on_since_ms = 0
        self._failures = 0
        self._held_until_ms = 0

    @property
    def is_on(self) -> bool:
        """Whether what is new comes by itself."""
        return self.ref is not None

    def begin(self, ref: str, since: int, *, now_ms: int, deadline_ms: int) -> None:
        """It was subscribed to, above a seq."""
        assert not self._events
        self.ref, self.is_sent, self._has_begun = ref, False, False
        self.since, self.deadline_ms = since, deadline_ms
        self._on_since_ms = now_ms

    def stop(self) -> None:
        """It is off, through nobody's fault."""
        self.ref = None

    def fail(self, now_ms: int) -> None:
        """The relay has ended it, or says nothing."""
        self.stop()
        if now_ms - self._on_since_ms >= _LASTING_MS:
            self._failures = 0
        if self._failures:
            pause_ms = _PAUSE_MS_MIN * 2 ** min(self._failures - 1, 10)
            self._held_until_ms = now_ms + min(pause_ms, _PAUSE_MS_MAX)
        self._failures += 1

    def pause_ms(self, now_ms: int) -> int:
        """How long the relay is not to be asked again."""
        return max(self._held_until_ms - now_ms, 0)

    def read(self) -> list[FeedEvent]:
        """Take what has come."""
        events, self._events, self._bytes = self._events, [], 0
        return events

    def take(self, frame: RelayFrame) -> bool:
        """Take a frame; whether there is room for more.

        Raises:
            RelayFaultError: It cannot belong to a feed.
            FalseAnswerError: A payload is another one than that of its id, or an event not wanted.
        """
        match frame:
            case FeedStatus() if not self._has_begun:
                self._has_begun = True
                if (head := read_head_seq(frame, "tail")) < self.since:
                    self.error = LogBehindError(head=head, checkpoint=self.since)
            case Events() if self._has_begun:
                for shown in frame.events:
                    self._add(read_shown(shown))
            case EventStatus() if self._has_begun:
                self._add(read_status(frame))
            case EndOfStored() if self._has_begun and self.deadline_ms:
                self.since = read_covered(frame, self.since)
                self.deadline_ms = 0
            case _:
                raise RelayFaultError(f"{type(frame).__name__} does not answer a live feed")
        return len(self._events) < FEED_EVENTS_MAX and self._bytes < FEED_BYTES_MAX

    def _add(self, event: FeedEvent) -> None:
        self.wanted.check(event)
        check_next(event, self.since)
        self._events.append(event)
        self._bytes += event.size
        self.since = event.seq


class Feeds:
    """All feeds that are on."""

    def __init__(
        self,
        outgoing: Outgoing,
        events: list[ClientEvent],
        alarm: Alarm,
        *,
        timeout_ms: int,
    ) -> None:
        """Begin with none.

        Args:
            outgoing: Takes what is to be sent.
            events: Told when there is something to read, or nothing will come any more.
            alarm: Told when a feed is to be given up.
            timeout_ms: How long a relay may say nothing before all that is stored has come.
        """
        self._outgoing = outgoing
        self._events = events
        self._alarm = alarm
        self._timeout_ms = timeout_ms
        self._feeds: dict[str, Feed] = {}

    def get(self, ref: str) -> Feed | None:
        """The feed under a ref."""
        return self._feeds.get(ref)

    def begin(self, feed: Feed, since: int, now_ms: int) -> None:
        """Subscribe to a feed above a seq."""
        ref, deadline_ms = self._outgoing.next_ref(), now_ms + self._timeout_ms
        feed.begin(ref, since, now_ms=now_ms, deadline_ms=deadline_ms)
        self._alarm.at(deadline_ms)
        self._feeds[ref] = feed
        self._outgoing.add(ref, self._frames(feed, ref))

    def end(self, feed: Feed) -> None:
        """Nobody reads it any more, or not now."""
        ref = feed.ref
        if ref is None:
            return
        del self._feeds[ref]
        self._outgoing.drop(ref)
        if feed.is_sent:
            self._outgoing.close(ref)
        feed.stop()

    def disconnect(self) -> None:
        """The connection is gone; what has come can still be read."""
        feeds, self._feeds = self._feeds, {}
        for feed in feeds.values():
            feed.stop()
            self._events.append(FeedMoved(feed.name))

    def tick(self, now_ms: int) -> None:
        """Give up what takes too long."""
        for feed in list(self._feeds.values()):
            if not feed.deadline_ms:
                continue
            if now_ms < feed.deadline_ms:
                self._alarm.at(feed.deadline_ms)
                continue
            self.end(feed)
            feed.fail(now_ms)
            self._events.append(FeedMoved(feed.name))

    def take(self, feed: Feed, frame: RelayFrame, now_ms: int) -> None:
        """Take a frame that names a feed.

        Raises:
            RelayFaultError: It cannot belong to it.
        """
        if not feed.is_sent:
            raise RelayFaultError("an answer to something that was not sent yet")
        if isinstance(frame, Refusal | Closed):
            self._take_end(feed, frame, now_ms)
        else:
            self._take_part(feed, frame, now_ms)
        self._events.append(FeedMoved(feed.name))

    def _take_part(self, feed: Feed, frame: RelayFrame, now_ms: int) -> None:
        try:
            has_room = feed.take(frame)
        except FalseAnswerError as error:
            feed.error = error
        if feed.error is not None or not has_room:
            self.end(feed)
        elif feed.deadline_ms:
            feed.deadline_ms = now_ms + self._timeout_ms

    def _take_end(self, feed: Feed, frame: Refusal | Closed, now_ms: int) -> None:
        if feed.ref is not None:
            del self._feeds[feed.ref]
        feed.fail(now_ms)
        if isinstance(frame, Refusal):
            error = feed_error_of(frame)
            if not error.retryable:
                feed.error = error

    def _frames(self, feed: Feed, ref: str) -> Iterator[ClientFrame]:
        feed.is_sent = True
        yield feed.wanted.changes(ref, "tail", since=feed.since, is_live=True)
