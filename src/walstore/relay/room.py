"""Who follows a document live: who gets what, and nobody twice or too late.

- A subscription is at a cursor. While it catches up it reads pages from the log; it is live once
  it has read everything that the room knows of, and from then on elements are handed to it.
- An element is handed out only to those who have all before it. Who has not, reads it from the log:
  so there is no hole at the hand-over, nor after a slow peer was left behind.
- Presence is passed on and forgotten with its peer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from walstore.wire.frames import Delivered

Peer = TypeVar("Peer", bound=Hashable)


class Subscription(Generic[Peer]):
    """One peer's place in a document."""

    __slots__ = ("cursor", "document", "is_live", "peer", "ref", "was_live", "with_records")

    def __init__(
        self, peer: Peer, ref: str, document: str, cursor: int, *, with_records: bool = False
    ) -> None:
        """Begin above a cursor, with everything still to be read."""
        self.peer = peer
        self.ref = ref
        self.document = document
        self.cursor = cursor
        self.is_live = False
        self.was_live = False
        # Whether it is told of records.
        self.with_records = with_records

    def fall_behind(self, cursor: int) -> None:
        """Go back to reading from the log, above a cursor."""
        self.is_live = False
        self.cursor = cursor


class Due(NamedTuple, Generic[Peer]):
    """Who is to get the elements that were stored.

    Attributes:
        all: Those who get every one of them.
        some: Those who have the first ones, with the rest.
        behind: Those who lack something before them, and have to read.
    """

    all: list[Subscription[Peer]]
    some: list[tuple[Subscription[Peer], Sequence[Delivered]]]
    behind: list[Subscription[Peer]]


class Room(Generic[Peer]):
    """The live side of one document."""

    __slots__ = ("_presences", "head", "subscriptions")

    def __init__(self) -> None:
        self.head = 0
        # In the order in which they began: so everybody is told in the same order each time.
        self.subscriptions: dict[Subscription[Peer], None] = {}
        self._presences: dict[Peer, Mapping[str, Any]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nobody is here."""
        return not self.subscriptions and not self._presences

    def caught_up(self, subscription: Subscription[Peer]) -> bool:
        """Whether a subscription that has read to the end has nothing left to read, and is live."""
        # What a peer claims to have is its own affair: the head is what was really stored.
        subscription.is_live = subscription.cursor >= self.head
        return subscription.is_live

    def stored(self, elements: Sequence[Delivered], previous_ts: int | None) -> Due[Peer]:
        """Hand out elements that were stored, ascending and right after one another.

        Args:
            elements: The elements.
            previous_ts: The `ts` right before the first one; None if what comes here is known to
                be all there is, in order.
        """
        due: Due[Peer] = Due([], [], [])
        first, last = elements[0].ts, elements[-1].ts
        self.head = max(self.head, last)
        for subscription in self.subscriptions:
            if not subscription.is_live:
                continue
            cursor = subscription.cursor
            if cursor >= last:
                continue
            if previous_ts is not None and cursor < previous_ts:
                subscription.is_live = False
                due.behind.append(subscription)
                continue
            subscription.cursor = last
            if cursor < first:
                due.all.append(subscription)
            else:
                rest = [element for element in elements if element.ts > cursor]
                due.some.append((subscription, rest))
        return due

    def lacking(self, ts: int) -> list[Subscription[Peer]]:
        """Who has not got something that is no longer there to be handed out; they have to read."""
        self.head = max(self.head, ts)
        behind = [each for each in self.subscriptions if each.is_live and each.cursor < ts]
        for subscription in behind:
            subscription.is_live = False
        return behind

    def announce(self, peer: Peer, payload: Mapping[str, Any] | None) -> bool:
        """Note somebody's presence; whether it is news."""
        if payload is None:
            return self._presences.pop(peer, None) is not None
        self._presences[peer] = payload
        return True

    def presences(self) -> Iterator[tuple[Peer, Mapping[str, Any]]]:
        """Who is here."""
        yield from self._presences.items()
