"""A relay as a source of events, over its changes feed.

- A page is as many events as fit, asked for when the page before was taken.
- A snapshot that is too large for the feed is fetched by its revision. One that the relay has let
  go meanwhile comes without its text, like anything that was compacted.
- Waiting is done by the feed itself: it outlasts lost connections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from typing import NamedTuple

from walstore.canon import canonical_bytes
from walstore.document.ports import LogBehindError, RawElement
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.net.faults import OtherRelayError, ReplayTooOldError
from walstore.net.feed import FeedEvent
from walstore.net.websocket import WebSocketTransport

# Events of one page, and what they may take, about.
PAGE_EVENTS_MAX = 1000
PAGE_BYTES_MAX = 8 * 2**20


class FeedPage(NamedTuple):
    """A page of a feed."""

    events: list[FeedEvent]
    last_seq: int
    is_more: bool


class FeedStatus(NamedTuple):
    """What a relay holds."""

    relay_id: str
    min_seq: int
    head_seq: int


class FeedSource:
    """The events of the documents with one prefix, over a transport that somebody else opens."""

    def __init__(
        self,
        transport: WebSocketTransport,
        prefix: str = "",
        *,
        relay_id: str | None = None,
        page_events_max: int = PAGE_EVENTS_MAX,
        page_bytes_max: int = PAGE_BYTES_MAX,
    ) -> None:
        """Read over a transport.

        Args:
            transport: The relay.
            prefix: What the document keys begin with.
            relay_id: The database that positions are of; None if any will do at first.
            page_events_max: How many events make a page.
            page_bytes_max: After how many bytes a page ends.
        """
        self.prefix = prefix
        self._transport = transport
        self._relay_id = relay_id
        self._page_events_max = page_events_max
        self._page_bytes_max = page_bytes_max

    async def status(self) -> FeedStatus:
        """What there is now; raises as a `Source` does."""
        # Nothing is called so: only where the feed stands is asked.
        head, events = await self._transport.bootstrap(self.prefix, documents=())
        await events.aclose()
        relay_id = self._checked_id()
        try:
            await self._read(0, limit=1)
        except ReplayTooOldError as error:
            return FeedStatus(relay_id, error.min_seq, head)
        return FeedStatus(relay_id, min(1, head), head)

    async def page(self, since: int) -> FeedPage:
        """Events above a position; raises as a `Source` does."""
        return await self._read(since, limit=self._page_events_max)

    async def _read(self, since: int, *, limit: int) -> FeedPage:
        events: list[FeedEvent] = []
        size = 0
        feed = self._transport.changes(
            self.prefix, since=since, limit=limit, relay_id=self._relay_id
        )
        async with aclosing(feed):
            async for shown in feed:
                events.append(await self._whole(shown))
                size += events[-1].size
                if size >= self._page_bytes_max:
                    break
        self._checked_id()
        is_more = len(events) == limit or size >= self._page_bytes_max
        return FeedPage(events, events[-1].seq if events else since, is_more)

    def _checked_id(self) -> str:
        """The database, which stays the same from the first time on."""
        found = self._transport.relay_id or ""
        if self._relay_id not in (None, found):
            raise OtherRelayError(self._relay_id or "", found)
        self._relay_id = found
        return found

    async def _whole(self, event: FeedEvent) -> FeedEvent:
        if event.kind == "element" or event.payload is not None or event.is_compacted:
            return event
        text = await self._transport.snapshot_by_revision(event.document, event.id)
        return event._replace(payload=text, is_compacted=text is None)

    async def wait(self, since: int) -> None:
        """Return when there is an event above a position; raises as a `Source` does."""
        feed = self._transport.changes(
            self.prefix, since=since, live=True, limit=1, relay_id=self._relay_id
        )
        async with aclosing(feed):
            async for _ in feed:
                return

    async def bootstrap(self) -> tuple[int, AsyncIterator[FeedEvent]]:
        """The current snapshots, and the position that they are current at."""
        head, events = await self._transport.bootstrap(self.prefix)
        self._checked_id()
        return head, self._all_whole(events)

    async def _all_whole(self, events: AsyncIterator[FeedEvent]) -> AsyncIterator[FeedEvent]:
        async for event in events:
            yield await self._whole(event)

    async def documents(self) -> AsyncIterator[str]:
        """The keys of the documents that have a snapshot: a feed shows no others."""
        _, events = await self._transport.bootstrap(self.prefix)
        last = ""
        async for event in events:
            if event.document != last:
                last = event.document
                yield last

    async def snapshots(self, documents: Collection[str], upto: int) -> AsyncIterator[FeedEvent]:
        """The snapshots of some documents that were stored up to a position, in order."""
        since = 0
        try:
            await self._read(0, limit=1)
        except ReplayTooOldError as error:
            since = error.min_seq - 1
            _, current = await self._transport.bootstrap(self.prefix, documents=documents)
            async with aclosing(current):
                async for event in current:
                    if event.seq <= min(since, upto):
                        yield await self._whole(event)
        feed = self._transport.changes(
            self.prefix,
            since=since,
            until_seq=upto,
            documents=documents,
            kinds=["snapshot"],
            relay_id=self._relay_id,
        )
        async with aclosing(feed):
            async for event in feed:
                yield await self._whole(event)

    async def snapshot(self, document: str) -> bytes | None:
        """The text of a document's current snapshot; None if there is none."""
        stored = await self._transport.read(document + SNAPSHOT_SUFFIX)
        return None if stored is None else canonical_bytes(stored.document)

    async def elements(self, document: str, after: int) -> AsyncIterator[RawElement]:
        """The elements of a document above a `ts`; raises as a `Source` does."""
        while page := await self._transport.pull(document, after):
            for element in page:
                yield element
            if page[-1].ts <= after:
                raise LogBehindError(head=page[-1].ts, checkpoint=after)
            after = page[-1].ts

    async def record(self, document: str, name: str) -> str | None:
        """The text of a record of a document; None if there is none."""
        stored = await self._transport.read_record(document, name)
        return None if stored is None else stored.text
