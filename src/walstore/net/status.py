"""How a transport stands with its relay, to be shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Whether there is a connection, and whether there will be one."""

    CONNECTING = "connecting"
    LIVE = "live"
    OFFLINE = "offline"
    REFUSED = "refused"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class TransportStatus:
    """A moment of a transport.

    Attributes:
        state: `connecting` until the first attempt has come to something, and right after a
            connection was lost; `offline` while attempts fail; `refused` while the relay does not
            let this client in.
        reason: Why, in words.
        pending: How many elements and snapshots are not known to be stored.
        last_ack_ms: When something was last acknowledged, in milliseconds since 1970.
        lag_ms: How long the last acknowledgement, or the last ping, took.
        documents: The documents that are followed.
    """

    state: State
    reason: str
    pending: int
    last_ack_ms: int | None
    lag_ms: int | None
    documents: frozenset[str]


class StatusSubscription:
    """Somebody who is told every new status, until it is closed."""

    def __init__(
        self,
        callback: Callable[[TransportStatus], None],
        on_close: Callable[[StatusSubscription, None], object],
    ) -> None:
        """Call a function.

        Args:
            callback: The function.
            on_close: Takes the subscription out of where it is kept.
        """
        self._callback = callback
        self._on_close = on_close
        self._is_closed = False

    def call(self, status: TransportStatus) -> None:
        """Tell a status, unless nobody wants to know it any more."""
        if not self._is_closed:
            self._callback(status)

    def close(self) -> None:
        """Call no more."""
        self._is_closed = True
        self._on_close(self, None)
