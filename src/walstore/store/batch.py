"""The changes of several edits, made one for each path."""

from __future__ import annotations

from collections.abc import Sequence

from walstore.store.change import Change, coalesce, replaced


class Batch:
    """The changes of several edits, merged by path."""

    def __init__(self) -> None:
        self._changes: dict[str, list[Change]] = {}

    def add(self, changes: Sequence[Change]) -> None:
        """Take in what one edit has changed."""
        for change in changes:
            for key in replaced(self._changes, change, lambda waiting: waiting[-1].kind):
                del self._changes[key]
            waiting = self._changes.setdefault(change.path, [])
            merged = coalesce(waiting[-1], change) if waiting else None
            if merged is None:
                waiting.append(change)
            else:
                waiting[-1] = merged

    def merged(self) -> list[Change]:
        """What all of them have changed."""
        return [change for changes in self._changes.values() for change in changes]
