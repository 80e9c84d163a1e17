"""Documents that are followed live: catching up from the log, then handed out as they are stored.

`room` decides who gets what; here it is read, sent, and ended when somebody may no longer read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from walstore.relay.committer import Stored
from walstore.relay.log import Event, LogError, Page, RelayLog, Row, log_id
from walstore.relay.metrics import Metrics
from walstore.relay.peer import Broadcast, Peer
from walstore.relay.readers import Readers
from walstore.relay.refusals import revoked, too_old, unavailable
from walstore.relay.room import Room, Subscription
from walstore.relay.splitting import split
from walstore.wire.frames import (
    Closed,
    Code,
    Delivered,
    Elements,
    EndOfStored,
    Kept,
    Presence,
    Pull,
    PullTail,
    Refusal,
    elements_body,
    relay_frame,
)
from walstore.wire.limits import PULL_BYTES_MAX, PULL_ELEMENTS_MAX

_logger = logging.getLogger("walstore.relay")

# Elements of a tail that are looked at together.
_TAIL_STEP = 32


class Following:
    """Everything that is read of logs: once, or live."""

    def __init__(
        self,
        log: RelayLog,
        readers: Readers,
        *,
        now_ms: Callable[[], int],
        presences_max: int,
        metrics: Metrics,
    ) -> None:
        """Begin with nobody here.

        Args:
            log: What is read.
            readers: Told how far peers have read.
            now_ms: The time.
            presences_max: In how many documents one peer may be present.
            metrics: Where it is counted.
        """
        self._log = log
        self._readers = readers
        self._now_ms = now_ms
        self._presences_max = presences_max
        self._metrics = metrics
        self._rooms: dict[str, Room[Peer]] = {}

    # ── once ───────────────────────────────────────────────────────────────────────────

    async def pull(self, peer: Peer, frame: Pull) -> None:
        """Send one page above a checkpoint."""
        page = await self._log.page(
            frame.document, frame.after, count_max=frame.limit, bytes_max=PULL_BYTES_MAX
        )
        if page.floor > frame.after:
            peer.send(too_old(frame.ref, page.floor))
            return
        if self._is_revoked(peer, frame):
            return
        self._send_rows(peer, frame.ref, page.rows)
        last = page.rows[-1].ts if page.rows else frame.after
        self._readers.note(peer, frame.document, frame.after)
        self._send_end(peer, frame.ref, frame.document, last, page)
        await peer.drained()

    async def pull_tail(self, peer: Peer, frame: PullTail) -> None:
        """Send the newest elements up to a `ts`, of those that there are when it is asked for."""
        cursor, upto = await self._ends_of_tail(frame)
        last, is_more, page = frame.upto, True, Page((), False, 0, 0)
        while is_more and peer.is_open:
            page = await self._log.page(
                frame.document, cursor, count_max=PULL_ELEMENTS_MAX, bytes_max=PULL_BYTES_MAX
            )
            if self._is_revoked(peer, frame):
                return
            rows = [row for row in page.rows if row.ts <= upto]
            self._send_rows(peer, frame.ref, rows)
            await peer.drained()
            if rows:
                last = cursor = rows[-1].ts
            is_more = page.is_more and len(rows) == len(page.rows)
            if page.floor > cursor:
                # It was compacted just now; the rest is above.
                cursor, is_more = page.floor, page.floor < upto
        end = page._replace(is_more=False, floor=0)
        self._send_end(peer, frame.ref, frame.document, last, end)

    async def _ends_of_tail(self, frame: PullTail) -> tuple[int, int]:
        """Above which `ts` a tail begins, and up to which one it goes.

        A thousand large elements are not held at a time, nor is what comes later a part of it.
        """
        cursor, upto, left = frame.upto, 0, frame.last
        while left:
            rows = await self._log.tail(frame.document, cursor, min(left, _TAIL_STEP))
            if not rows:
                break
            upto = upto or rows[-1].ts
            cursor, left = rows[0].ts - 1, left - len(rows)
        return cursor, upto

    def _is_revoked(self, peer: Peer, frame: Pull | PullTail) -> bool:
        """Whether what was read may no longer be sent; the peer is told."""
        if peer.session.may_read(frame.document, self._now_ms()):
            return False
        peer.send(revoked(frame.ref))
        return True

    def _send_rows(self, peer: Peer, ref: str, rows: Sequence[Row]) -> None:
        for some in split(rows, lambda row: len(row.data)):
            peer.send(Elements(ref, [Delivered(*row) for row in some]))

    def _send_end(self, peer: Peer, ref: str, document: str, last: int, page: Page) -> None:
        end = {
            "ts": last,
            "log": log_id(self._log.relay_id, document),
            "floor": page.floor,
            "head": page.head,
            "more": page.is_more,
        }
        peer.send(EndOfStored(ref, end))

    # ── live ───────────────────────────────────────────────────────────────────────────

    def subscribe(self, peer: Peer, frame: Pull) -> None:
        """Send everything above a checkpoint, and what is yet to come."""
        room = self._rooms.setdefault(frame.document, Room())
        subscription = Subscription(
            peer, frame.ref, frame.document, frame.after, with_records=frame.with_records
        )
        room.subscriptions[subscription] = None
        peer.subscriptions[frame.ref] = subscription
        self._catch_up(subscription)

    def unsubscribe(self, peer: Peer, ref: str) -> None:
        """Send no more."""
        peer.stop(ref)
        subscription = peer.subscriptions.pop(ref, None)
        if subscription is not None:
            self._readers.note(peer, subscription.document, subscription.cursor)
            self._rooms[subscription.document].subscriptions.pop(subscription, None)
            self._leave(subscription.document)

    def forget(self, peer: Peer) -> None:
        """A peer is gone."""
        for ref in list(peer.subscriptions):
            self.unsubscribe(peer, ref)
        for document in list(peer.present_in):
            self.announce(peer, document, None)

    def recheck(self, peers: Iterable[Peer]) -> None:
        """End the subscriptions and the presence of those who may no longer read."""
        now_ms = self._now_ms()
        for peer in peers:
            for document in list(peer.present_in):
                if not peer.session.may_read(document, now_ms):
                    self.announce(peer, document, None)
            for subscription in list(peer.subscriptions.values()):
                if not peer.session.may_read(subscription.document, now_ms):
                    self._end_with(subscription, revoked(subscription.ref))

    def _leave(self, document: str) -> None:
        if self._rooms[document].is_empty:
            del self._rooms[document]

    def _end_with(self, subscription: Subscription[Peer], refusal: Refusal) -> None:
        """End a subscription from this side, and say why."""
        subscription.peer.send(refusal)
        subscription.peer.send(Closed(subscription.ref, refusal.message))
        subscription.peer.session.ended(subscription.ref)
        self.unsubscribe(subscription.peer, subscription.ref)

    # ── catching up ────────────────────────────────────────────────────────────────────

    def _catch_up(self, subscription: Subscription[Peer]) -> None:
        peer, ref = subscription.peer, subscription.ref
        if peer.subscriptions.get(ref) is subscription:
            peer.start(ref, self._read_on(subscription))

    async def _read_on(self, subscription: Subscription[Peer]) -> None:
        """Send a subscription what is stored, page by page, until it is live."""
        peer, ref, document = subscription.peer, subscription.ref, subscription.document
        room = self._rooms[document]
        try:
            while peer.is_open:
                async with peer.turn:
                    await peer.drained()
                    page = await self._log.page(
                        document,
                        subscription.cursor,
                        count_max=PULL_ELEMENTS_MAX,
                        bytes_max=PULL_BYTES_MAX,
                    )
                    if page.floor > subscription.cursor:
                        self._end_with(subscription, too_old(ref, page.floor))
                        return
                    self._send_rows(peer, ref, page.rows)
                if page.rows:
                    subscription.cursor = page.rows[-1].ts
                if not page.is_more and room.caught_up(subscription):
                    self._went_live(subscription, page)
                    peer.stop(ref)
                    return
        except LogError as error:
            _logger.error("%s", error)
            self._end_with(subscription, unavailable(ref, error))

    def _went_live(self, subscription: Subscription[Peer], page: Page) -> None:
        if subscription.was_live:
            return
        subscription.was_live = True
        peer, document = subscription.peer, subscription.document
        self._send_end(peer, subscription.ref, document, subscription.cursor, page)
        for other, payload in self._rooms[document].presences():
            if other is not peer:
                peer.tell(Presence(document, other.name, other.key, payload))

    def resume_all(self) -> None:
        """Let every subscription read on from the log: something may have been missed."""
        for room in self._rooms.values():
            for subscription in list(room.subscriptions):
                if subscription.is_live:
                    subscription.is_live = False
                    self._catch_up(subscription)

    # ── handing out ────────────────────────────────────────────────────────────────────

    def stored(self, stored: Sequence[Stored]) -> None:
        """Hand out what this process has just made durable."""
        by_document: dict[str, list[Stored]] = {}
        for each in stored:
            if each.element.document in self._rooms:
                by_document.setdefault(each.element.document, []).append(each)
        for document, own in by_document.items():
            elements = [
                Delivered(
                    each.accepted.ts,
                    each.accepted.seq,
                    each.element.author,
                    each.element.signature,
                    each.element.data,
                )
                for each in own
            ]
            self._hand_out(document, elements, own[0].accepted.previous_ts)

    def noticed(self, events: Sequence[Event]) -> None:
        """Hand out what another process has stored: all there is, in the relay's order."""
        by_document: dict[str, list[Delivered]] = {}
        for event in events:
            if event.document not in self._rooms:
                continue
            if event.kind == "snapshot":
                self.kept(event.document, "snapshot", event.id)
                continue
            if event.payload is None:
                # Whoever lacks it is told so by the log, and not left with a hole.
                for subscription in self._rooms[event.document].lacking(event.ts):
                    self._catch_up(subscription)
                continue
            element = Delivered(event.ts, event.seq, event.author, event.signature, event.payload)
            by_document.setdefault(event.document, []).append(element)
        for document, elements in by_document.items():
            self._hand_out(document, elements, None)

    def _hand_out(
        self, document: str, elements: Sequence[Delivered], previous_ts: int | None
    ) -> None:
        for some in split(elements, lambda element: len(element.data)):
            self._hand_out_frame(document, some, previous_ts)
            previous_ts = some[-1].ts

    def _hand_out_frame(
        self, document: str, elements: Sequence[Delivered], previous_ts: int | None
    ) -> None:
        due = self._rooms[document].stored(elements, previous_ts)
        if due.all:
            self._metrics.delivered(len(due.all) * len(elements))
            message = Broadcast(elements_body(elements).around)
            for subscription in due.all:
                if not subscription.peer.push(subscription.ref, message):
                    subscription.fall_behind(elements[0].ts - 1)
                    due.behind.append(subscription)
        for subscription, rest in due.some:
            if not subscription.peer.push(subscription.ref, Broadcast(elements_body(rest).around)):
                subscription.fall_behind(rest[0].ts - 1)
                due.behind.append(subscription)
        for subscription in due.behind:
            self._catch_up(subscription)

    def kept(self, document: str, name: str, revision: str) -> None:
        """Tell those who follow a document, and asked for it, that a record was replaced."""
        if (room := self._rooms.get(document)) is not None:
            for subscription in list(room.subscriptions):
                if subscription.with_records:
                    subscription.peer.send(Kept(subscription.ref, name, revision))

    # ── presence ───────────────────────────────────────────────────────────────────────

    def announce(self, peer: Peer, document: str, payload: Mapping[str, Any] | None) -> None:
        """Tell a document's live subscribers who is there, or who left."""
        if payload is None:
            peer.present_in.discard(document)
        elif document not in peer.present_in and len(peer.present_in) >= self._presences_max:
            peer.send(Refusal(None, Code.TOO_MANY, "present in too many documents", {}))
            return
        else:
            peer.present_in.add(document)
        room = self._rooms.setdefault(document, Room())
        if room.announce(peer, payload):
            text = relay_frame(Presence(document, peer.name, peer.key, payload))
            message = Broadcast(lambda _: text)
            for other in dict.fromkeys(each.peer for each in room.subscriptions):
                if other is peer:
                    continue
                if payload is None:
                    # It is short, and nobody would tell it again.
                    other.send_text(text)
                else:
                    # It is soon told again: who is behind does without.
                    other.push("", message)
        self._leave(document)
