"""What becomes of work that is under way when its store is closed."""

from __future__ import annotations

from walstore.net.faults import TransportClosedError


class ClosedMeanwhileError(TransportClosedError):
    """The store was closed before all was done; whoever opens it next goes on from there."""

    def __init__(self) -> None:
        super().__init__("the store was closed meanwhile")
