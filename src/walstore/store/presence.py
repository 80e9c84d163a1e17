"""Who is at a document right now, and where: mine told to the others, theirs to me.

- Nothing of it is stored. It is signed, sealed where the document is, and gone after
  `PRESENCE_MS_MAX` unless it is renewed; as long as a session lives, it renews.
- Nobody is told of who never calls `set`.
- Cursors are anchored to elements when they are set, and resolved when they are read. A cursor
  whose text has not arrived yet is None until it has.
- At most so many updates leave within a second. The newest counts, and the last one always leaves.
- Without a network there is only me. What is said then is said once there is one, by the transport.
- Subscribers are told that others came, left or say something else. Where cursors are also depends
  on the document: whoever shows them reads `others()` again when the text has changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from walstore.crdt import WalCrdt
from walstore.document.anchors import anchor_at, resolve
from walstore.errors import TransportError, UsageError
from walstore.net.following import Peer
from walstore.sealed.encryptor import Encryptor, PlainEncryptor
from walstore.sealed.outcomes import SealBudgetError
from walstore.signed.identity import Identity
from walstore.store.people import PRESENCE_MS_MAX, People, SessionKey
from walstore.store.presence_message import Anchors, Body, Drop, checked_body, write_message
from walstore.store.references import held

# How often a session says the same again. Two may be lost before the others let go of it.
RENEWAL_MS = PRESENCE_MS_MAX // 3

# Updates that leave within a second: cursors move smoothly, and relays bear several documents.
UPDATES_PER_SECOND = 10

_logger: Final = logging.getLogger("walstore.store")


class Timer(Protocol):
    """Something that will happen, unless it is cancelled."""

    def cancel(self) -> None:
        """Let it not happen."""
        ...


class Clock(Protocol):
    """Time, to be replaced in tests."""

    def now_ms(self) -> int:
        """The time of a clock that never goes back."""
        ...

    def wall_ms(self) -> int:
        """The time in milliseconds since 1970."""
        ...

    def call_later(self, delay_ms: int, fn: Callable[[], None]) -> Timer:
        """Call a function after a while."""
        ...


class LoopClock:
    """The system's time, and the timers of the running event loop."""

    def now_ms(self) -> int:
        """The time of a clock that never goes back."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """The time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: int, fn: Callable[[], None]) -> Timer:
        """Call a function after a while."""
        return asyncio.get_running_loop().call_later(delay_ms / 1000, fn)


class PresenceChannel(Protocol):
    """What carries presences: a `WebSocketTransport`, or a `MemoryPresence` connection."""

    def set_presence(self, document_key: str, payload: Mapping[str, Any] | None) -> None:
        """Tell the others, now and after every reconnect; None to leave."""
        ...

    def peers(self, document_key: str) -> Mapping[str, Peer]:
        """What the others say, by the name of their connection."""
        ...


class PeersWaiter(Protocol):
    """What tells that others came, left or say something else: a `Follow`."""

    async def wait_peers(self) -> None:
        """Return when there is something new since the last time."""
        ...


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a text or list, in positions of now.

    Attributes:
        path: The text or list.
        position: Where the caret is.
        origin: Where the selection began, before or after the caret; None if nothing is selected.
    """

    path: str
    position: int
    origin: int | None = None


@dataclass(frozen=True, slots=True)
class Person:
    """One session of somebody who is here.

    Attributes:
        author: Their public key, in hex; proved.
        session: Which of their sessions.
        name: What they call themselves, None if they do not say. It proves nothing.
        color: Their colour, `#rrggbb`, None if they do not say.
        cursor: Where they are, None if they do not say, or if that has not arrived here yet.
        state: Whatever else they say; it cannot be changed.
        path: The text or list that they say they are in, whether or not that has arrived here;
            None if they are nowhere.
    """

    author: str
    session: str
    name: str | None
    color: str | None
    cursor: Cursor | None
    state: Mapping[str, Any]
    path: str | None = None


class PresenceSubscription:
    """A callback that is told who else is here, until it is closed or its object is gone."""

    def __init__(
        self,
        presence: Presence,
        fn: Callable[[list[Person]], object],
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        """Made by `Presence.subscribe`."""
        self._presence = presence
        self._fn = held(fn)
        self._on_error = on_error

    def call(self, people: list[Person]) -> None:
        """Tell it; what it raises reaches its owner and no one else."""
        fn = self._fn()
        if fn is None:
            self.close()
            return
        try:
            fn(people)
        except Exception as error:
            if self._on_error is None:
                _logger.error("a subscriber to presence failed", exc_info=error)
            else:
                self._on_error(error)

    def close(self) -> None:
        """Tell it nothing more."""
        self._presence.unsubscribe(self)


class Presence:
    """Me and the others at one document."""

    def __init__(
        self,
        document_key: str,
        *,
        identity: Identity,
        session: str,
        crdt: Callable[[], WalCrdt],
        is_member: Callable[[str], bool],
        encryptor: Encryptor | None = None,
        channel: PresenceChannel | None = None,
        updates_per_second: int = UPDATES_PER_SECOND,
        clock: Clock | None = None,
    ) -> None:
        """Begin with nothing said and nobody known.

        Args:
            document_key: The document.
            identity: Who signs.
            session: Names this session; no two of an identity share a name.
            crdt: The document as it is now, to anchor cursors in.
            is_member: Whether an author may be here: a reader or a writer.
            encryptor: Seals and opens; plain if left out.
            channel: Carries presences; without one, there is only me.
            updates_per_second: How many updates may leave within a second.
            clock: The time; the system's if left out.

        Raises:
            UsageError: No update could ever leave.
        """
        if updates_per_second < 1:
            raise UsageError(f"{updates_per_second} updates a second let nothing out")
        self._document_key = document_key
        self._identity = identity
        self._session = session
        self._crdt = crdt
        self._encryptor = PlainEncryptor() if encryptor is None else encryptor
        self._channel = channel
        self._interval_ms = -(-1000 // updates_per_second)
        self._clock = LoopClock() if clock is None else clock
        self._people = People(
            document_key,
            me=SessionKey(identity.public_key, session),
            encryptor=self._encryptor,
            is_member=is_member,
        )
        self._body: Body | None = None
        self._at_ms = self._count = 0
        self._sent_ms: int | None = None
        self._sending: Timer | None = None
        self._expiring: Timer | None = None
        self._told: dict[SessionKey, Body] = {}
        self._subscriptions: list[PresenceSubscription] = []
        self._is_closed = False
        self._fault: Exception | None = None

    # ── me ─────────────────────────────────────────────────────────────────────────────

    def set(
        self,
        *,
        cursor: Cursor | None = None,
        name: str | None = None,
        color: str | None = None,
        **state: Any,
    ) -> None:
        """Say who and where I am, in place of what I said before.

        Args:
            cursor: Where I am, in positions of now; None for nowhere.
            name: What I am called; what I said before if left out.
            color: My colour, `#rrggbb` in lower case; what I said before if left out.
            state: Whatever else, as JSON; small.

        Raises:
            UsageError: Presence is closed.
            PresenceRefusedError: Others would drop it: it is too large, or not what can be said.
        """
        if self._is_closed:
            raise UsageError("the presence is closed")
        before = Body() if self._body is None else self._body
        body = Body(
            before.name if name is None else name,
            before.color if color is None else color,
            None if cursor is None else self._anchored(cursor),
            state,
        )
        self._body = checked_body(body)
        self._announce()

    def move(self, cursor: Cursor | None) -> None:
        """Say where I am, and everything else as before; raises as `set` does."""
        before = Body() if self._body is None else self._body
        self.set(cursor=cursor, **before.state)

    @property
    def me(self) -> Person | None:
        """What I say by now; None if nothing."""
        if self._body is None:
            return None
        return self._person(SessionKey(self._identity.public_key, self._session), self._body)

    @property
    def fault(self) -> Exception | None:
        """Why what was said last could not be handed to the transport, None if it was."""
        return self._fault

    def close(self) -> None:
        """Leave, and be told nothing more; doing it again does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        for timer in (self._sending, self._expiring):
            if timer is not None:
                timer.cancel()
        self._subscriptions.clear()
        if self._sent_ms is not None:
            self._hand_over(None)

    # ── the others ─────────────────────────────────────────────────────────────────────

    def others(self) -> list[Person]:
        """Who else is here, those who have been here longest first, with cursors of now."""
        here = self._people.here(self._clock.now_ms())
        return [self._person(key, body) for key, body in here.items()]

    @property
    def dropped(self) -> Counter[Drop]:
        """How much of what came was not taken, by reason."""
        return self._people.dropped.copy()

    def subscribe(
        self,
        fn: Callable[[list[Person]], object],
        *,
        on_error: Callable[[Exception], object] | None = None,
    ) -> PresenceSubscription:
        """Call a function with the others whenever they came, left or say something else.

        Args:
            fn: The function; a bound method is held weakly.
            on_error: Called with what the function raised; it is logged if left out.

        Raises:
            NotWeakError: A method's object cannot be referenced weakly.
        """
        subscription = PresenceSubscription(self, fn, on_error)
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: PresenceSubscription) -> None:
        """Tell somebody nothing more."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def look(self) -> None:
        """Take what the transport knows of the others by now."""
        if self._is_closed or self._channel is None:
            return
        payloads = {
            connection: peer.payload
            for connection, peer in self._channel.peers(self._document_key).items()
        }
        self._people.take(payloads, now_ms=self._clock.now_ms(), wall_ms=self._clock.wall_ms())
        self._tell()

    async def follow(self, waiter: PeersWaiter) -> None:
        """Look whenever there is something new, until it is cancelled.

        Raises:
            TransportClosedError: The transport was closed.
        """
        while True:
            self.look()
            await waiter.wait_peers()

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _anchored(self, cursor: Cursor) -> Anchors:
        crdt, path = self._crdt(), cursor.path
        at = anchor_at(crdt, path, cursor.position)
        if cursor.origin is None or cursor.origin == cursor.position:
            return Anchors(path, at, at)
        # What others insert at the edges of a selection is not part of it.
        is_forward = cursor.origin < cursor.position
        origin = anchor_at(crdt, path, cursor.origin, "before" if is_forward else "after")
        if not is_forward:
            at = anchor_at(crdt, path, cursor.position, "before")
        return Anchors(path, at, origin)

    def _person(self, key: SessionKey, body: Body) -> Person:
        anchors = body.cursor
        cursor, path = (None, None) if anchors is None else (self._resolved(anchors), anchors.path)
        return Person(key.author, key.session, body.name, body.color, cursor, body.state, path)

    def _resolved(self, anchors: Anchors) -> Cursor | None:
        crdt = self._crdt()
        position = resolve(crdt, anchors.path, anchors.at)
        if position is None or anchors.origin == anchors.at:
            return None if position is None else Cursor(anchors.path, position)
        origin = resolve(crdt, anchors.path, anchors.origin)
        return Cursor(anchors.path, position, None if origin == position else origin)

    def _announce(self) -> None:
        """Send what is said by now, at once or as soon as that is not too often."""
        now_ms = self._clock.now_ms()
        due_ms = now_ms if self._sent_ms is None else self._sent_ms + self._interval_ms
        if due_ms <= now_ms:
            self._send()
        else:
            self._schedule(due_ms - now_ms)

    def _schedule(self, delay_ms: int) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._sending = self._clock.call_later(delay_ms, self._send)

    def _send(self) -> None:
        if self._is_closed or self._body is None or self._channel is None:
            return
        # The clock of a computer may be set back, but nobody may speak before what they said.
        self._at_ms = max(self._at_ms, self._clock.wall_ms())
        self._count += 1
        self._sent_ms = self._clock.now_ms()
        self._schedule(RENEWAL_MS)
        try:
            message = write_message(
                self._body,
                document_key=self._document_key,
                identity=self._identity,
                encryptor=self._encryptor,
                session=self._session,
                at_ms=self._at_ms,
                count=self._count,
            )
        except SealBudgetError as error:
            self._fault = error
        else:
            self._hand_over(message)

    def _hand_over(self, message: dict[str, Any] | None) -> None:
        assert self._channel is not None
        try:
            self._channel.set_presence(self._document_key, message)
            self._fault = None
        except (TransportError, UsageError) as error:
            # It is said again soon; nothing depends on it.
            self._fault = error

    def _tell(self) -> None:
        """Tell subscribers if others came, left or say something else."""
        now_ms = self._clock.now_ms()
        here, before = self._people.here(now_ms), self._told
        if self._expiring is not None:
            self._expiring.cancel()
            self._expiring = None
        expiry_ms = self._people.expiry_ms(now_ms)
        if expiry_ms is not None:
            self._expiring = self._clock.call_later(expiry_ms - now_ms, self._tell)
        if here == before:
            return
        self._told = here
        for subscription in self._subscriptions.copy():
            subscription.call(self.others())
