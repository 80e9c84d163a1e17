"""The changes of several edits, made one for each path."""

from __future__ import annotations

from collections.abc import Sequence

from walstore.store.change import Change, coalesce
from walstore.store.gathered import Gathered, place_of, replaces_keys


class Batch:
    """The changes of several edits, merged by path."""

    def __init__(self) -> None:
        self._changes: Gathered[list[Change]] = Gathered()

    def add(self, changes: Sequence[Change]) -> None:
        """Take in what one edit has changed."""
        for change in changes:
            place = place_of(change)
            waiting = self._changes.get(place) or []
            before = waiting[-1] if waiting else None
            if replaces_keys(before, change):
                self._changes.drop_keys(change.name)
            merged = None if before is None else coalesce(before, change)
            if merged is None:
                waiting.append(change)
            else:
                waiting[-1] = merged
            self._changes.put(place, waiting)

    def merged(self) -> list[Change]:
        """What all of them have changed."""
        return [change for changes in self._changes.values() for change in changes]
