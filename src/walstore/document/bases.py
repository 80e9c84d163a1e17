"""What somebody was shown of a list, and where its elements are by now.

    shown     a b c d e          segments: (0, 2, 0) (3, 2, 4)
    by now    a b X Y d e        "c" was removed, "X" and "Y" arrived

- A base is kept up to date by every change of the list, own or foreign, while anybody holds it.
- So an edit of what was shown can be made in the list of now: only what was shown is removed,
  and what arrived later stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias
from weakref import WeakSet

from walstore.reconcile import Hunk

Shown: TypeAlias = str | tuple[Any, ...]

# More elements than any list has.
_EVERYTHING = 2**62

# First shown position, size, first position by now.
Segment: TypeAlias = tuple[int, int, int]


class ListBase:
    """A list as it was shown at some time."""

    __slots__ = ("__weakref__", "_segments", "value")

    def __init__(self, value: Shown, segments: list[Segment] | None = None) -> None:
        self.value = value
        self._segments = [(0, len(value), 0)] if segments is None else segments

    def shift(self, position: int, removed: int, inserted: int) -> None:
        """Follow a change of the list."""
        segments: list[Segment] = []
        for start, size, at in self._segments:
            before = min(max(position - at, 0), size)
            gone = min(max(position + removed - at, 0), size)
            if before:
                segments.append((start, before, at))
            if gone < size:
                segments.append((start + gone, size - gone, at + gone - removed + inserted))
        self._segments = segments

    def ranges(self, start: int, count: int) -> Iterator[Segment]:
        """Those of `count` shown elements that are still there."""
        end = start + count
        for first, size, at in self._segments:
            low, high = max(first, start), min(first + size, end)
            if low < high:
                yield low, high - low, at + low - first

    def gap(self, start: int) -> int:
        """Where to insert before a shown position: after the nearest one that is still there."""
        place = 0
        for first, size, at in self._segments:
            if first >= start:
                break
            place = at + min(size, start - first)
        return place


class Bases:
    """All bases of one document that anybody still holds, by list."""

    __slots__ = ("_live", "latest")

    def __init__(self) -> None:
        self._live: dict[str, WeakSet[ListBase]] = {}
        # What was shown last of each list: the base of an edit that names none.
        self.latest: dict[str, ListBase] = {}

    def show(self, name: str, value: Shown) -> ListBase:
        """Note that a list was shown as it is now."""
        latest = self.latest.get(name)
        if latest is not None and latest.value is value:
            segments = latest._segments
            if segments == [(0, len(value), 0)]:
                return latest
        return self.keep(name, ListBase(value))

    def keep(self, name: str, base: ListBase) -> ListBase:
        """Make a base the latest one of a list and keep it up to date."""
        self._live.setdefault(name, WeakSet()).add(base)
        self.latest[name] = base
        return base

    def forget(self) -> None:
        """Nothing that was shown is known in the lists of now; an edit of it only adds."""
        for bases in self._live.values():
            for base in bases:
                base.shift(0, _EVERYTHING, 0)
        self.latest.clear()

    def shift(self, name: str, position: int, removed: int, inserted: int) -> None:
        """Let every base of a list follow a change."""
        for base in self._live.get(name, ()):
            base.shift(position, removed, inserted)


def edited_base(
    base: ListBase, hunks: Sequence[Hunk[Any]], places: Sequence[int], value: Shown
) -> ListBase:
    """The base that an edit leaves: what the editor now believes to be shown.

    Args:
        base: The base of the edit, which has followed the edit's own changes.
        hunks: What was edited in it.
        places: Where the insert of each hunk is by now.
        value: The value that was asked for.
    """
    segments: list[Segment] = []
    shown = kept = 0
    for hunk, place in zip(hunks, places, strict=True):
        _extend(segments, base, kept, hunk.start - kept, shown)
        shown += hunk.start - kept
        if hunk.inserted:
            _append(segments, (shown, len(hunk.inserted), place))
        shown += len(hunk.inserted)
        kept = hunk.start + hunk.removed
    _extend(segments, base, kept, len(base.value) - kept, shown)
    return ListBase(value, segments)


def _extend(segments: list[Segment], base: ListBase, start: int, count: int, shown: int) -> None:
    for first, size, at in base.ranges(start, count):
        _append(segments, (shown + first - start, size, at))


def _append(segments: list[Segment], segment: Segment) -> None:
    """Add a segment, as part of the last one if it follows on in both."""
    if segments:
        first, size, at = segments[-1]
        if first + size == segment[0] and at + size == segment[2]:
            segments[-1] = (first, size + segment[1], at)
            return
    segments.append(segment)
