"""Moments in a pile, which knows about how much it takes to keep them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from walstore.store.undo_record import Moment


class Pile:
    """Moments, the newest on top.

    The one on top may still grow: it is counted once another one lies on it.
    """

    __slots__ = ("_moments", "bytes_about")

    def __init__(self, moments: Iterable[Moment] = ()) -> None:
        """Take moments, the oldest first."""
        self._moments: deque[Moment] = deque()
        self.bytes_about = 0
        for moment in moments:
            self.append(moment)

    def __len__(self) -> int:
        return len(self._moments)

    def __iter__(self) -> Iterator[Moment]:
        """The moments, the oldest first."""
        return iter(self._moments)

    def unfrozen(self) -> list[Moment]:
        """The newest moments that can still be written alone, the oldest first."""
        found: list[Moment] = []
        for moment in reversed(self._moments):
            if moment.is_frozen:
                break
            found.append(moment)
        return found[::-1]

    @property
    def top(self) -> Moment | None:
        """The newest moment, None if there is none."""
        return self._moments[-1] if self._moments else None

    def append(self, moment: Moment) -> None:
        """Put a moment on top."""
        if self._moments:
            self.bytes_about += self._moments[-1].close()
        self._moments.append(moment)

    def pop(self) -> Moment:
        """Take the moment on top."""
        moment = self._moments.pop()
        if self._moments:
            self.bytes_about -= self._moments[-1].close()
        return moment

    def drop_oldest(self) -> None:
        """Let go of the oldest moment."""
        moment = self._moments.popleft()
        if self._moments:
            self.bytes_about -= moment.close()

    def clear(self) -> None:
        """Let go of all moments."""
        self._moments.clear()
        self.bytes_about = 0
