"""One document that is followed live: what has come and was not read yet, and who else is there.

               subscribe                 all that is stored has come
    IDLE ───────────────────► LOADING ───────────────────────────────► LIVE
     ▲                           │                                      │
     └───────────────────────────┴──────────────────────────────────────┘
       the relay ended or refused it, the buffer is full, or the connection is gone

- The buffer holds every element of the log from `start` to `end`, without a hole. A reader whose
  checkpoint is in between needs nothing else; every other one asks the relay.
- A full buffer takes no more: the subscription ends, the reader reads the buffer and then pages,
  and is subscribed again where the pages end.
- An idle document is never silent: readers are told to look again, less and less often.
- Of elements that were sent from here, and nobody else's, a reader is told a moment later: it knows
  them, and several take little longer to read than one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from walstore.document.ports import RawElement
from walstore.net.requests import check_end, read_delivered
from walstore.wire.frames import Elements, EndOfStored, Presence
from walstore.wire.limits import PULL_ELEMENTS_MAX

# Unread elements of one document, and their bytes; a reader that is further behind reads pages.
FOLLOW_ELEMENTS_MAX = 4096
FOLLOW_BYTES_MAX = 8 * 2**20

# What one unread element takes besides its data, about.
_ELEMENT_OVERHEAD_BYTES = 512

# Others whose presence is known, per document.
PEERS_MAX = 1024

# How much later readers are told of what was sent from here, and how much of that is known at most.
_OWN_NEWS_MS = 100
_OWN_MAX = 1024

# A subscription that lasted this long had not failed.
_LASTING_MS = 10_000
_AGAIN_MS_MIN = 1_000
_AGAIN_MS_MAX = 30_000


class Phase(Enum):
    """How far a subscription is."""

    IDLE = "not subscribed"
    LOADING = "what is stored is coming"
    LIVE = "what is new comes as it is stored"


class Peer(NamedTuple):
    """Somebody else who is there.

    Attributes:
        key: A key that they have proved, if they have.
        payload: What they say.
    """

    key: str | None
    payload: dict[str, Any]


class Waiting(Enum):
    """What a reader is told instead of elements."""

    FOR_MORE = "what is stored is still coming"


class Following:
    """The state of one followed document."""

    def __init__(self, document: str, checkpoint: int) -> None:
        """Begin above a checkpoint, not subscribed yet."""
        self.document = document
        self.followers = 0
        self.phase = Phase.IDLE
        self.ref: str | None = None
        self.is_sent = False
        self.deadline_ms = 0
        # Where the reader is, as far as it said; a new subscription starts there.
        self.asked = checkpoint
        # The highest `ts` that was acknowledged: less must not be taken for the end of the log.
        self.acknowledged = 0
        # What was acknowledged while live, and has not come yet.
        self._own: set[int] = set()
        # When readers are to be told of what has come; 0 if they were.
        self._news_ms = 0
        self.peers: dict[str, Peer] = {}
        self.size = 0
        self._start = self._end = checkpoint
        self._elements: list[RawElement] = []
        self._failures = 0
        self._live_since_ms = 0
        self._again_ms = 0
        self._held_until_ms = 0

    # ── the subscription ───────────────────────────────────────────────────────────────

    def begin(self, ref: str, after: int, deadline_ms: int) -> None:
        """A subscription above a `ts` was asked for."""
        self.phase, self.ref, self.is_sent = Phase.LOADING, ref, False
        self.deadline_ms = deadline_ms
        if after != self._end:
            self._start = self._end = after
            self._elements, self.size = [], 0

    @property
    def begins_after(self) -> int:
        """Where the subscription that was asked for starts."""
        return self._end

    @property
    def due_ms(self) -> int:
        """When something is to be done about it, unless something happens before; 0 if never."""
        match self.phase:
            case Phase.IDLE:
                return self._again_ms
            case Phase.LOADING:
                return self.deadline_ms
            case Phase.LIVE:
                return self._news_ms

    def suspend(self, now_ms: int) -> None:
        """The subscription is over, through nobody's fault."""
        self.phase, self.ref = Phase.IDLE, None
        self._own.clear()
        self._news_ms = 0
        self._held_until_ms = now_ms
        self._again_ms = now_ms + _AGAIN_MS_MIN

    def forget(self) -> None:
        """Let go of what was not read yet."""
        self._start = self._end = self.asked
        self._elements, self.size = [], 0

    def fail(self, now_ms: int) -> None:
        """The subscription was refused, ended, or not answered."""
        if self.phase is Phase.LIVE and now_ms - self._live_since_ms >= _LASTING_MS:
            self._failures = 0
        self.suspend(now_ms)
        self._again_ms = self._held_until_ms = now_ms + self._pause_ms()

    def may_subscribe(self, now_ms: int) -> bool:
        """Whether the relay may be asked again."""
        return self.phase is Phase.IDLE and now_ms >= self._held_until_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether readers are to look now, because nothing else tells them."""
        if self.phase is Phase.LIVE and 0 < self._news_ms <= now_ms:
            self._news_ms = 0
            return True
        if self.phase is not Phase.IDLE or now_ms < self._again_ms:
            return False
        self._again_ms = now_ms + max(self._pause_ms(), _AGAIN_MS_MIN)
        return True

    def _pause_ms(self) -> int:
        pause_ms = _AGAIN_MS_MIN * 2 ** min(self._failures - 1, 10) if self._failures else 0
        self._failures += 1
        return min(pause_ms, _AGAIN_MS_MAX)

    # ── the buffer ─────────────────────────────────────────────────────────────────────

    def acknowledge(self, ts: int) -> None:
        """An element was stored: a log that ends before it was not read to its end."""
        self.acknowledged = max(self.acknowledged, ts)
        if self.phase is Phase.LIVE and ts > self._end and len(self._own) < _OWN_MAX:
            self._own.add(ts)

    def is_news(self, frame: Elements, now_ms: int) -> bool:
        """Whether readers are to be told at once of what comes; if not, they are told later."""
        times = {element.ts for element in frame.elements}
        is_own = self._own >= times
        self._own -= times
        if is_own and self.followers == 1:
            self._news_ms = self._news_ms or now_ms + _OWN_NEWS_MS
            return False
        self._news_ms = 0
        return True

    def take(self, frame: Elements) -> bool:
        """Take elements that came; whether there was room for all of them.

        Raises:
            RelayFaultError: They do not follow those before.
        """
        for delivered in frame.elements:
            element = read_delivered(delivered, self._end)
            size = len(element.data) + _ELEMENT_OVERHEAD_BYTES
            is_full = len(self._elements) >= FOLLOW_ELEMENTS_MAX
            if is_full or self.size + size > FOLLOW_BYTES_MAX:
                return False
            self._elements.append(element)
            self._end = element.ts
            self.size += size
        return True

    def end_of_stored(self, frame: EndOfStored, now_ms: int) -> None:
        """All that was stored has come.

        Raises:
            RelayFaultError: It ends elsewhere than the elements.
        """
        check_end(frame, self._end)
        self.phase = Phase.LIVE
        self._live_since_ms = now_ms

    def read(self, checkpoint: int) -> Sequence[RawElement] | Waiting | None:
        """The elements above a checkpoint; None if only the relay knows them."""
        if checkpoint < self.asked:
            # Whoever goes back takes the log as it is: what was refused may go well now.
            self._failures = self._held_until_ms = 0
        self.asked = checkpoint
        if not self._start <= checkpoint <= self._end:
            return None
        self._forget(checkpoint)
        if self._elements:
            return self._elements[:PULL_ELEMENTS_MAX]
        if self.phase is Phase.LOADING:
            return Waiting.FOR_MORE
        is_end = self.phase is Phase.LIVE and self._end >= self.acknowledged
        return [] if is_end else None

    def is_beyond(self, head: int) -> bool:
        """Whether what was read is more than the log has ever had."""
        return self._end > head

    def _forget(self, checkpoint: int) -> None:
        count = bisect_right(self._elements, checkpoint, key=_ts)
        gone = self._elements[:count]
        self.size -= sum(len(element.data) + _ELEMENT_OVERHEAD_BYTES for element in gone)
        del self._elements[:count]
        if not self._elements:
            self._news_ms = 0
        self._start = checkpoint

    # ── the others ─────────────────────────────────────────────────────────────────────

    def take_presence(self, frame: Presence) -> bool:
        """Note somebody's presence; whether it is news."""
        if frame.payload is None:
            return self.peers.pop(frame.peer, None) is not None
        if frame.peer not in self.peers and len(self.peers) >= PEERS_MAX:
            return False
        self.peers[frame.peer] = Peer(frame.key, dict(frame.payload))
        return True


def _ts(element: RawElement) -> int:
    return element.ts
