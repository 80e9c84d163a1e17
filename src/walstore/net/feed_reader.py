"""Reads a changes feed to its end, or for ever, as fast as its reader takes it.

    pages ──► the end ──► live ──► the connection is lost, the reader is slow, … ──► pages ──► …

- Every event comes once and in order, over as many connections as it takes.
- A page is asked for when the one before it was taken; what is live is buffered up to a limit.
- Who follows live waits out whatever may pass. Who does not is told, and goes on later from the
  last seq that it was given.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from walstore.errors import TransportError
from walstore.net.backoff import Backoff
from walstore.net.changes import PAGE_EVENTS_MAX, FeedPage, Mode
from walstore.net.client import RelayClient
from walstore.net.faults import OfflineError, OtherRelayError
from walstore.net.feed import FeedEvent
from walstore.net.feeds import Feed
from walstore.net.follow import Bell
from walstore.net.keeper import Timing
from walstore.net.pending import Pending


class Line(NamedTuple):
    """What a reader needs of a transport.

    Attributes:
        client: Says what to send, and takes what comes.
        timing: Time and chance.
        backoff: The pauses before what failed is tried again.
        admitted: Rings when there is a connection.
        answer: Waits for what was asked.
        act: Has what the client says carried out.
        check: Raises if nothing will come any more.
    """

    client: RelayClient
    timing: Timing
    backoff: Backoff
    admitted: Bell
    answer: Callable[[Pending[FeedPage]], Awaitable[FeedPage]]
    act: Callable[[], None]
    check: Callable[[], None]


class FeedReader:
    """One reading of a feed.

    Attributes:
        feed: What is followed live.
        moved: Rings when something has come of it.
    """

    def __init__(
        self,
        line: Line,
        feed: Feed,
        *,
        since: int,
        until_seq: int | None = None,
        limit: int | None = None,
        is_live: bool = False,
        relay: str | None = None,
    ) -> None:
        """Begin above a seq.

        Args:
            line: The way to the relay.
            feed: What is wanted, switched off.
            since: Where to begin.
            until_seq: Where to end; None at the end.
            limit: How many events there may be; None for all.
            is_live: Whether to go on at the end, with what is yet to come.
            relay: The database that `since` is of; None if that is not known.
        """
        self.feed = feed
        self.moved = Bell()
        self._line = line
        self._since = since
        self._until_seq = until_seq
        self._left = limit
        self._is_live = is_live
        self._relay = relay
        self._is_over = False
        self._failures = 0

    async def events(self) -> AsyncGenerator[FeedEvent, None]:
        """All events, one by one; raises as `read` does."""
        try:
            while events := await self.read():
                for event in events:
                    yield event
        finally:
            self._line.client.switch_off(self.feed)
            self._line.act()

    async def snapshots(self, first: FeedPage) -> AsyncGenerator[FeedEvent, None]:
        """The snapshots of a page and of those that follow it, one by one; raises as `read` does.

        What has replaced one of them since the first page is left out: the tail will show it.
        """
        page = first
        while True:
            for event in page.events:
                yield event
            if not page.is_more:
                return
            page = await self.page("bootstrap", page.last_seq, first.snapshot_seq)

    async def read(self) -> list[FeedEvent]:
        """The next events; none if that was all.

        Raises:
            ReplayTooOldError: They can no longer be replayed.
            LogBehindError: The relay was rolled back.
            OtherRelayError: Another database answers than before.
            TransportError: They cannot be read now, and the feed is not live; or not at all.
        """
        while not self._is_over and self._left != 0:
            events = await self._read_some()
            if self._left is not None:
                events = events[: self._left]
                self._left -= len(events)
            if events:
                return events
        return []

    async def _read_some(self) -> list[FeedEvent]:
        heard = self.moved.count
        if events := self.feed.read():
            return events
        if self.feed.error is not None:
            raise self.feed.error
        if self.feed.is_on:
            await self.moved.after(heard)
            self._line.check()
            return []
        self._since = max(self._since, self.feed.since)
        return await self._read_page()

    async def _read_page(self) -> list[FeedEvent]:
        line, heard = self._line, self._line.admitted.count
        try:
            if pause_ms := self.feed.pause_ms(line.timing.now_ms()):
                await line.timing.sleep(pause_ms / 1000)
            page = await self.page("tail", self._since, self._until_seq)
        except TransportError as error:
            if not (self._is_live and error.retryable):
                raise
            await self._wait_out(error, heard)
            return []
        self._failures = 0
        self._since = page.last_seq
        if not page.is_more:
            self._is_over = not self._is_live
            if self._is_live:
                now_ms = line.timing.now_ms()
                line.client.switch_on(self.feed, page.last_seq, relay=page.relay, now_ms=now_ms)
                line.act()
        return page.events

    async def page(self, mode: Mode, since: int, until_seq: int | None) -> FeedPage:
        """One page, from the same database as those before."""
        limit = PAGE_EVENTS_MAX if self._left is None else min(self._left, PAGE_EVENTS_MAX)
        self._line.check()
        page = await self._line.answer(
            self._line.client.changes(
                self.feed.wanted,
                mode=mode,
                since=since,
                until_seq=until_seq,
                limit=limit,
                now_ms=self._line.timing.now_ms(),
            )
        )
        if self._relay not in (None, page.relay):
            raise OtherRelayError(self._relay or "", page.relay)
        self._relay = page.relay
        return page

    async def _wait_out(self, error: TransportError, heard: int) -> None:
        """Wait until it makes sense to try again."""
        if isinstance(error, OfflineError):
            await self._line.admitted.after(heard)
        else:
            self._failures += 1
            pause_ms = self._line.backoff.pause_ms(self._failures, self._line.timing.chance())
            await self._line.timing.sleep(pause_ms / 1000)
        self._line.check()
