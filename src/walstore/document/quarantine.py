"""What authors signed and readers cannot take: the newest of it.

- What stands in the way of a snapshot has a place of its own: whoever may not write can sign as
  much as they like, and must not have it forgotten.
- What counts after all, once something came late, is in nobody's way any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from walstore.document.events import Rejection
from walstore.document.log import Reading

# Rejected elements that are kept as evidence, of those who may write and of others; past this the
# oldest are let go.
REJECTIONS_MAX = 1024


class Quarantine:
    """The rejections that still stand."""

    def __init__(self, may_hinder: Callable[[str], bool]) -> None:
        """Begin with none.

        Args:
            may_hinder: Whether what is wrong with an author's elements has to be settled.
        """
        self._may_hinder = may_hinder
        self._hindering: deque[Rejection] = deque(maxlen=REJECTIONS_MAX)
        self._others: deque[Rejection] = deque(maxlen=REJECTIONS_MAX)

    def note(self, reading: Reading) -> None:
        """Take in what came of a page."""
        for event in reading.events:
            if isinstance(event, Rejection) and event.proven:
                is_hindering = event.author is not None and self._may_hinder(event.author)
                (self._hindering if is_hindering else self._others).append(event)
        if self._hindering or self._others:
            self._release({part.ts for part in reading.folded.parts})

    @property
    def hindering(self) -> list[Rejection]:
        """Those that stand in the way of a snapshot, the oldest first."""
        return list(self._hindering)

    def restore(self, hindering: Iterable[Rejection]) -> None:
        """Take in what stood in the way when the elements were read, which is not done again."""
        self._hindering.extend(hindering)

    def clear(self) -> None:
        """Begin anew."""
        self._hindering.clear()
        self._others.clear()

    def __iter__(self) -> Iterator[Rejection]:
        return iter(sorted([*self._hindering, *self._others], key=lambda each: each.ts or 0))

    def _release(self, folded: set[int]) -> None:
        """Forget those whose elements were folded after all."""
        for kept in (self._hindering, self._others):
            if any(each.ts in folded for each in kept):
                left = [each for each in kept if each.ts not in folded]
                kept.clear()
                kept.extend(left)
