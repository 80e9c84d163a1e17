"""The changes feed, and events by id.

- `bootstrap` is one consistent read, or the part of one that was asked for. `tail` reads pages
  above a seq, and, if it is live, goes on whenever something was accepted: there is one way to
  read, so there is no hole in between.
- What was compacted is told as such, at its place; it is never passed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from walstore.relay.log import Event, FeedPage, Filter, LogError, RelayLog
from walstore.relay.peer import Peer
from walstore.relay.refusals import replay_too_old, revoked, unavailable
from walstore.relay.splitting import split
from walstore.wire.element import has_too_many_values
from walstore.wire.frames import (
    Closed,
    EndOfStored,
    Events,
    EventStatus,
    FeedStatus,
    FollowChanges,
    Refusal,
    Request,
    Shown,
)
from walstore.wire.limits import EVENTS_PER_FRAME_MAX, PULL_BYTES_MAX

_logger = logging.getLogger("walstore.relay")

# Snapshots beyond this, or of more values than an element may have, are not sent along; they are
# fetched by their revision.
_INLINE_BYTES_MAX = 2**20

_PAGE_EVENTS_MAX = 4 * EVENTS_PER_FRAME_MAX

# Seqs that are looked at for one page, wanted or not: others wait for so long to be read for.
_PAGE_SEQS_MAX = 2**14

# Events that are held together: each of them may have a payload that is sent along.
_STEP = 16


class Feeds:
    """Those who read what was accepted, in the relay's order."""

    def __init__(self, log: RelayLog, *, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self._waiting: dict[asyncio.Event, None] = {}

    def wake(self) -> None:
        """Something was accepted."""
        for woken in self._waiting:
            woken.set()

    def follow(self, peer: Peer, frame: FollowChanges) -> None:
        """Send the feed that a peer asks for."""
        peer.start(frame.ref, self._send_feed(peer, frame))

    async def request(self, peer: Peer, frame: Request) -> None:
        """Send events by id: those that are there, then those whose payload is gone."""
        wanted, last = Filter("", frame.documents, frame.authors, frame.kinds), 0
        gone: list[str] = []
        for start in range(0, len(frame.ids), _STEP):
            async with peer.turn:
                events = await self._readable(peer, frame.ids[start : start + _STEP], wanted)
                gone += [each.id for each in events if each.payload is None]
                last = max(last, *(event.seq for event in events), 0)
                there = [each for each in events if each.payload is not None]
                await self._send(peer, frame.ref, there)
        gone.sort()
        # What they covered may be some MiB each: they are read once more, and not held till then.
        for start in range(0, len(gone), _STEP):
            async with peer.turn:
                events = await self._readable(peer, gone[start : start + _STEP], wanted)
                some = [each for each in events if each.payload is None]
                await self._send(peer, frame.ref, sorted(some, key=lambda each: each.id))
        peer.send(EndOfStored(frame.ref, {"seq": last, "more": False}))

    async def _readable(self, peer: Peer, ids: Sequence[str], wanted: Filter) -> list[Event]:
        """The events that a peer may read; what others have there is not even loaded."""
        known = await self._log.find(ids, wanted, payload_bytes_max=0)
        # What may not be read is not known either.
        documents = {each.document for each in known if self._may_read(peer, each)}
        if not documents:
            return []
        wanted = wanted._replace(documents=frozenset(documents))
        found = await self._log.find(ids, wanted, payload_bytes_max=_INLINE_BYTES_MAX)
        return [_without_large(each) for each in found if self._may_read(peer, each)]

    def _may_read(self, peer: Peer, event: Event) -> bool:
        return peer.session.may_read(event.document, self._now_ms())

    async def _send_feed(self, peer: Peer, frame: FollowChanges) -> None:
        try:
            if frame.mode == "bootstrap":
                async with peer.bootstrap_turn:
                    await self._bootstrap(peer, frame)
            else:
                await self._tail(peer, frame)
        except LogError as error:
            _logger.error("%s", error)
            self._end_with(peer, unavailable(frame.ref, error))
        peer.stop(frame.ref)
        peer.session.ended(frame.ref)

    def _end_with(self, peer: Peer, refusal: Refusal) -> None:
        """End a feed from this side, and say why."""
        assert refusal.ref is not None
        peer.send(refusal)
        peer.send(Closed(refusal.ref, refusal.message))

    async def _bootstrap(self, peer: Peer, frame: FollowChanges) -> None:
        found = await self._log.bootstrap(
            _filter(frame), since=frame.since, until=frame.until_seq, count_max=frame.limit
        )
        self._send_status(peer, frame, found.snapshot_seq, found.min_seq)
        ids = [event.id for event in found.events]
        for start in range(0, len(ids), _STEP):
            async with peer.turn:
                some = await self._log.find(
                    ids[start : start + _STEP],
                    _filter(frame),
                    payload_bytes_max=_INLINE_BYTES_MAX,
                )
                if self._is_revoked(peer, frame):
                    return
                await self._send(peer, frame.ref, [_without_large(each) for each in some])
        end = found.snapshot_seq if frame.until_seq is None else frame.until_seq
        last = found.events[-1].seq if found.is_more else end
        peer.send(EndOfStored(frame.ref, {"seq": last, "more": found.is_more}))

    async def _tail(self, peer: Peer, frame: FollowChanges) -> None:
        woken = asyncio.Event()
        self._waiting[woken] = None
        try:
            since = await self._replay(peer, frame)
            # What a limit has cut off comes now; it does not wait for something else to come.
            woken.set()
            while since is not None and frame.is_live and peer.is_open:
                await woken.wait()
                woken.clear()
                since = await self._go_on(peer, frame, since)
        finally:
            del self._waiting[woken]

    async def _replay(self, peer: Peer, frame: FollowChanges) -> int | None:
        """Send what is stored, up to the limit; where it ends, or None if that is all."""
        since, left = frame.since, frame.limit
        while peer.is_open:
            async with peer.turn:
                page = await self._page(frame, since, frame.until_seq, left)
                if self._is_over(peer, frame, since, page):
                    return None
                if left == frame.limit and since == frame.since:
                    self._send_status(peer, frame, page.head_seq, page.min_seq)
                await self._send(peer, frame.ref, page.events)
            since, left = page.last_seq, left - len(page.events)
            is_cut = page.is_more and left <= 0
            if is_cut or not page.is_more:
                peer.send(EndOfStored(frame.ref, {"seq": since, "more": is_cut}))
                return since
        return None

    async def _go_on(self, peer: Peer, frame: FollowChanges, since: int) -> int | None:
        """Send what was accepted since; up to where, or None if the feed is over."""
        while peer.is_open:
            async with peer.turn:
                page = await self._page(frame, since, None, _PAGE_EVENTS_MAX)
                if self._is_over(peer, frame, since, page):
                    return None
                await self._send(peer, frame.ref, page.events)
            since = page.last_seq
            if not page.is_more:
                return since
        return None

    async def _page(
        self, frame: FollowChanges, since: int, until: int | None, count_max: int
    ) -> FeedPage:
        page = await self._log.feed(
            since,
            until,
            _filter(frame),
            count_max=min(count_max, _PAGE_EVENTS_MAX),
            bytes_max=PULL_BYTES_MAX,
            seqs_max=_PAGE_SEQS_MAX,
        )
        # What is not sent along is not held while the rest is sent.
        return page._replace(events=[_without_large(event) for event in page.events])

    def _is_over(self, peer: Peer, frame: FollowChanges, since: int, page: FeedPage) -> bool:
        """Whether nothing of a page may be sent; the peer is told why."""
        if self._is_revoked(peer, frame):
            return True
        if since + 1 < page.min_seq:
            self._end_with(peer, replay_too_old(frame.ref, page.min_seq))
            return True
        return False

    def _is_revoked(self, peer: Peer, frame: FollowChanges) -> bool:
        """Whether what was read may no longer be sent; the peer is told."""
        if peer.session.may_follow(frame.prefix, self._now_ms()):
            return False
        self._end_with(peer, revoked(frame.ref))
        return True

    def _send_status(self, peer: Peer, frame: FollowChanges, seq: int, min_seq: int) -> None:
        status = {"mode": frame.mode, "snapshot_seq": seq, "min_seq": min_seq}
        peer.send(FeedStatus(frame.ref, status))

    async def _send(self, peer: Peer, ref: str, events: Sequence[Event]) -> None:
        """Send events in order, as fast as they are read; the payload of some may be gone."""
        for is_gone, some in groupby(events, key=lambda event: event.payload is None):
            if is_gone:
                for event in some:
                    peer.send(EventStatus(ref, _status(event)))
                    # What a snapshot covered may be more than a MiB.
                    await peer.drained()
            else:
                await self._send_whole(peer, ref, list(some))

    async def _send_whole(self, peer: Peer, ref: str, events: Sequence[Event]) -> None:
        for some in split(events, _size_of, EVENTS_PER_FRAME_MAX):
            rows = [_shown(event) for event in some]
            peer.send(Events(ref, rows))
            await peer.drained()


def _filter(frame: FollowChanges) -> Filter:
    return Filter(frame.prefix, frame.documents, frame.authors, frame.kinds)


def _without_large(event: Event) -> Event:
    # Elements have a limit of their own, which is lower.
    if event.kind == "element" or event.payload is None:
        return event
    is_large = len(event.payload) > _INLINE_BYTES_MAX or has_too_many_values(event.payload)
    return event._replace(payload=b"") if is_large else event


def _size_of(event: Event) -> int:
    return sum(map(len, event.vc)) + len(event.payload or b"")


def _shown(event: Event) -> Shown:
    """An event in the protocol's spelling; its payload stands apart, as it was signed."""
    assert event.payload is not None
    shown = _metadata(event)
    if event.kind == "element":
        return Shown(event.seq, shown | {"signature": event.signature}, event.payload)
    # No snapshot is empty: one that seems to be was too large to be read.
    return Shown(event.seq, shown, event.payload or None)


def _status(event: Event) -> dict[str, Any]:
    return _metadata(event) | {"seq": event.seq, "status": "payload_compacted"}


def _metadata(event: Event) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": event.id,
        "kind": event.kind,
        "document": event.document,
        "accepted_ms": event.accepted_ms,
        "author": event.author,
    }
    if event.kind == "element":
        return shown | {"ts": event.ts}
    return shown | {"upto_ts": event.ts, "vc": dict(event.vc), "deleted": event.is_deletion}
