"""How a store stands, for a UI to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from walstore.document.events import Fork, Gap, Rejection

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
        gaps: Elements that are missing.
        forks: Clocks that were used twice, with both elements.
        rejected: What authors signed and readers cannot take, and why.
        unreadable: How many elements wait for a key.
        is_read_only: Whether edits are refused, because the log lost something.
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
