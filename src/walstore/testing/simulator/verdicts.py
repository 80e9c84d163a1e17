"""What a run came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from walstore.document.events import Event, Rejection


class BrokenPromiseError(AssertionError):
    """Something happened in a run that must not happen."""


class Outcome(NamedTuple):
    """One run.

    Attributes:
        level: What kind of fleet it was.
        seed: Its seed.
        digest: Names exactly what happened.
        counts: How often what happened.
        fault: What was wrong; None if nothing was.
        lines: What happened, if it was asked for.
        world: How bad the world was, in words.
        steps: The numbers of the steps that were taken.
    """

    level: str
    seed: int
    digest: str
    counts: Counter[str]
    fault: str | None
    lines: list[str]
    world: str
    steps: tuple[int, ...]

    @property
    def is_attacked(self) -> bool:
        """Whether somebody did harm, and not only meant to."""
        return any(what.startswith("attack ") for what in self.counts)


def demand(is_so: bool, what: str) -> None:
    """Hold a run to a promise.

    Raises:
        BrokenPromiseError: It is not so.
    """
    if not is_so:
        raise BrokenPromiseError(what)


def rejected_in(events: Iterable[Event]) -> set[int]:
    """The `ts` of what somebody was told was rejected."""
    rejections = [event for event in events if isinstance(event, Rejection)]
    return {event.ts for event in rejections if event.ts is not None}
