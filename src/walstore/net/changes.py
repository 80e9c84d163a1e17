"""What a client asks of the changes feed, page by page, and of events by their ids.

- A page is as long as was asked for, or shorter: an answer that grows too large is cut off where
  it is, and the next page begins there. So nobody holds more than fits, however slowly it is read.
- Pages ascend. They say up to where they cover the feed, events that nobody wanted included.
- A relay that has accepted less than was read of it before was rolled back, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeGuard

from walstore.document.ports import LogBehindError
from walstore.net.faults import FalseAnswerError, RelayFaultError, feed_error_of
from walstore.net.feed import FeedEvent, Wanted, read_shown, read_status
from walstore.net.pending import Pending
from walstore.wire.frames import (
    ClientFrame,
    EndOfStored,
    Events,
    EventStatus,
    FeedStatus,
    Refusal,
    RelayFrame,
)
from walstore.wire.limits import TS_MAX

Mode = Literal["bootstrap", "tail"]

# Events of one page, and what they may take.
PAGE_EVENTS_MAX = 1000
PAGE_BYTES_MAX = 4 * 2**20

# Events that are asked for by id at a time: each may be as large as a message.
FIND_IDS_MAX = 32


class FeedPage(NamedTuple):
    """Events in the relay's order.

    Attributes:
        events: The events that were wanted.
        last_seq: Up to where the page covers the feed.
        is_more: Whether there are more above.
        snapshot_seq: The newest seq that the relay had when the page was read.
        relay: The database that it is from.
    """

    events: list[FeedEvent]
    last_seq: int
    is_more: bool
    snapshot_seq: int
    relay: str


class PendingChanges(Pending[FeedPage]):
    """A page of the feed, or of the snapshots that are current."""

    def __init__(
        self,
        ref: str,
        wanted: Wanted,
        *,
        mode: Mode,
        since: int,
        until_seq: int | None,
        limit: int,
    ) -> None:
        super().__init__(ref, "")
        self.relay = ""
        self._wanted = wanted
        self._mode: Mode = mode
        self._since = since
        self._until_seq = until_seq
        self._limit = limit
        self._head: int | None = None
        self._events: list[FeedEvent] = []
        self._bytes = 0
        self._has_ended = False

    @property
    def is_answering(self) -> bool:
        """Whether the relay goes on answering until it is told to stop."""
        return self.is_sent and not self._has_ended

    def restart(self) -> None:
        super().restart()
        self._head, self._events, self._bytes = None, [], 0
        self._has_ended = False

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        self.is_sent = True
        yield self._wanted.changes(
            self.ref,
            self._mode,
            since=self._since,
            until_seq=self._until_seq,
            limit=self._limit,
        )

    def refuse(self, refusal: Refusal, log: str | None) -> None:
        self._has_ended = True
        self.fail(feed_error_of(refusal))

    def take(self, frame: RelayFrame) -> None:
        try:
            self._take(frame)
        except FalseAnswerError as error:
            self.fail(error)

    def _take(self, frame: RelayFrame) -> None:
        match frame:
            case FeedStatus() if self._head is None:
                self._begin(frame)
            case Events() if self._head is not None:
                for shown in frame.events:
                    self._add(read_shown(shown))
                self._cut(self._head)
            case EventStatus() if self._head is not None:
                self._add(read_status(frame))
                self._cut(self._head)
            case EndOfStored() if self._head is not None:
                self._end(frame, self._head)
            case _:
                raise RelayFaultError(f"{type(frame).__name__} does not answer a feed")

    def _begin(self, frame: FeedStatus) -> None:
        self._head = read_head_seq(frame, self._mode)
        if self._head < self._since:
            self.fail(LogBehindError(head=self._head, checkpoint=self._since))

    def _add(self, event: FeedEvent) -> None:
        self._wanted.check(event)
        check_next(event, self._last)
        if self._until_seq is not None and event.seq > self._until_seq:
            raise RelayFaultError("events beyond those that were asked for")
        if len(self._events) == self._limit:
            raise RelayFaultError("more events than were asked for")
        self._events.append(event)
        self._bytes += event.size

    @property
    def _last(self) -> int:
        return self._events[-1].seq if self._events else self._since

    def _cut(self, head: int) -> None:
        if self._bytes > PAGE_BYTES_MAX:
            self._finish(self._last, is_more=True, head=head)

    def _end(self, frame: EndOfStored, head: int) -> None:
        self._has_ended = True
        last = read_covered(frame, self._last)
        is_more = frame.result.get("more") is True
        if is_more and not self._events:
            # Whoever goes on from here would ask for the same again.
            raise RelayFaultError("a page without events, and more to come")
        self._finish(last, is_more=is_more, head=head)

    def _finish(self, last: int, *, is_more: bool, head: int) -> None:
        self.settle(FeedPage(self._events, last, is_more, head, self.relay))


class PendingFind(Pending[list[FeedEvent]]):
    """Events that are asked for by their ids; those that nobody knows are left out."""

    def __init__(self, ref: str, wanted: Wanted, ids: tuple[str, ...]) -> None:
        super().__init__(ref, "")
        self._wanted = wanted
        self._ids = ids
        self._events: dict[str, FeedEvent] = {}

    def restart(self) -> None:
        super().restart()
        self._events = {}

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        self.is_sent = True
        yield self._wanted.request(self.ref, self._ids)

    def take(self, frame: RelayFrame) -> None:
        try:
            match frame:
                case Events():
                    for shown in frame.events:
                        self._add(read_shown(shown))
                case EventStatus():
                    self._add(read_status(frame))
                case EndOfStored():
                    self.settle(sorted(self._events.values(), key=lambda event: event.seq))
                case _:
                    raise RelayFaultError(f"{type(frame).__name__} does not answer a request")
        except FalseAnswerError as error:
            self.fail(error)

    def _add(self, event: FeedEvent) -> None:
        self._wanted.check(event)
        if event.id not in self._ids or event.id in self._events:
            raise RelayFaultError("another event than was asked for")
        self._events[event.id] = event


def read_head_seq(frame: FeedStatus, mode: Mode) -> int:
    """The newest seq of the relay that a feed begins with.

    Raises:
        RelayFaultError: It is not told.
    """
    head = frame.status.get("snapshot_seq")
    if frame.status.get("mode") != mode or not _is_seq(head):
        raise RelayFaultError("a feed that does not say where it begins")
    return head


def read_covered(frame: EndOfStored, last: int) -> int:
    """Up to where a feed is covered that has shown an event at a seq.

    Raises:
        RelayFaultError: It is not told.
    """
    covered = frame.result.get("seq")
    if not _is_seq(covered) or covered < last:
        raise RelayFaultError("a feed that ends elsewhere than its events")
    return covered


def check_next(event: FeedEvent, last: int) -> None:
    """Whether an event may follow one at a seq.

    Raises:
        RelayFaultError: It may not.
    """
    if event.seq <= last:
        raise RelayFaultError("a `seq` that does not increase")


def _is_seq(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= TS_MAX
