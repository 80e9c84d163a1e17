"""How a store stands, for a UI to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from walstore.document.events import Fork, Gap, Rejection
from walstore.store.refused import Refused

# The gaps that a status lists; somebody who lies about what they have seen can name very many.
GAPS_MAX = 64

State = Literal["local", "connecting", "live", "offline", "refused", "closed"]


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A moment of a store.

    Attributes:
        state: `local` if it has no relay; else how its connection stands.
        reason: Why, in words; empty if all is well.
        unsent: How many edits or commits are not acknowledged yet.
        last_ack_ms: When something was last acknowledged, in milliseconds since 1970.
        lag_ms: How long that took.
        gaps: Elements that are missing, as far as there is room.
        forks: Clocks that were used twice, with both elements.
        rejected: What authors signed and readers cannot take, and why.
        unreadable: How many elements wait for a key.
        is_read_only: Whether edits are refused, because the log lost something.
        rollback: What it lost, in words, until `accept_rollback` was called; None if all is well.
        stranded: How many elements of others are shown here that the log has lost, until their
            authors send them again.
        refused: The element that the log does not take, and for good; everything behind it waits
            until it is set aside. None if there is none.
        may_write: Whether the owner of a shared document lets this identity write, as far as that
            is known; what it edits otherwise is not sent.
    """

    state: State
    reason: str
    unsent: int
    last_ack_ms: int | None
    lag_ms: int | None
    gaps: tuple[Gap, ...]
    forks: tuple[Fork, ...]
    rejected: tuple[Rejection, ...]
    unreadable: int
    is_read_only: bool
    rollback: str | None = None
    stranded: int = 0
    refused: Refused | None = None
    may_write: bool = True
