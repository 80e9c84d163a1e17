"""Lamport clocks: who wrote what after what, without a common time.

- A clock is `{"c": counter, "r": replica}`; the counter decides, then the replica by code point.
- Two clocks are equal only if both parts are: a replica never uses a counter twice.
- Counters are integers from 1 to 2^53 − 1, the largest that every peer reads exactly.
"""

from __future__ import annotations

from typing import Final, TypedDict

from walstore.errors import UsageError

COUNTER_MAX: Final = 2**53 - 1

# An author key, a colon and a session nonce of up to 128 characters. An id repeats its replica, and
# a few bytes can name tens of thousands of ids.
REPLICA_SIZE_MAX: Final = 64 + 1 + 128


class Clock(TypedDict):
    """A Lamport counter `c`, ties broken by the replica id `r`."""

    c: int
    r: str


class ClockExhaustedError(UsageError):
    """The document's counter has reached its limit; no further edit can be stamped."""

    def __init__(self) -> None:
        super().__init__("the document's clock is exhausted: no counter is left below 2^53")


def compare_clocks(a: Clock, b: Clock) -> int:
    """Order two clocks.

    Returns:
        A negative number if `a` is older, a positive one if `a` is newer, 0 if they are equal.
    """
    # Python orders text by code point, lone surrogates by their own value, as the format asks.
    left, right = (a["c"], a["r"]), (b["c"], b["r"])
    return (left > right) - (left < right)


def clock_greater(a: Clock, b: Clock) -> bool:
    """Whether `a` is strictly newer than `b`."""
    return compare_clocks(a, b) > 0


def derive_replica_id(author_pubkey: str, session_nonce: str) -> str:
    """The replica id of one session of an author; a nonce must never be used twice."""
    return f"{author_pubkey}:{session_nonce}"


class LamportClock:
    """The counter of one replica: ticks for own ops, follows everyone else's."""

    __slots__ = ("_counter", "replica_id")

    def __init__(self, replica_id: str, start: int = 0) -> None:
        self.replica_id = replica_id
        self._counter = start

    @property
    def value(self) -> int:
        """The highest counter stamped or observed so far."""
        return self._counter

    def tick(self) -> Clock:
        """Stamp one op.

        Raises:
            ClockExhaustedError: No counter is left.
        """
        if self._counter >= COUNTER_MAX:
            raise ClockExhaustedError
        self._counter += 1
        return {"c": self._counter, "r": self.replica_id}

    def observe(self, clock: Clock) -> None:
        """Follow a clock seen in a folded op or an adopted state."""
        self._counter = max(self._counter, clock["c"])
