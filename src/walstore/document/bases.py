"""What somebody was shown of a list, and where its elements are by now.

    shown     a b c d e          segments: (0, 2, 0) (3, 2, 4)
    by now    a b X Y d e        "c" was removed, "X" and "Y" arrived

- A base is kept up to date by every change of the list, own or foreign, while anybody holds it.
- So an edit of what was shown can be made in the list of now: only what was shown is removed,
  and what arrived later stays where it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias
from weakref import ref

from walstore.crdt.sequence import RunSequence
from walstore.reconcile import Hunk, apply_to_items, apply_to_text

Shown: TypeAlias = str | tuple[Any, ...]

# More elements than any list has.
_EVERYTHING = 2**62

# Own edits that are taken in before they are made in the value, so that typing copies no text.
_EDITS_MAX = 256

# Of those, as many as are made in the value to read it: each copies it.
_EDITS_READ_MAX = 8

# Changes that are followed one after the other, each by a look at all that was shown. Of more it is
# worked out first what they come to.
_CHANGES_MAX = 4

# First shown position, size, first position by now.
Segment: TypeAlias = tuple[int, int, int]

# Position, how many elements went there, and how many came.
Edit: TypeAlias = tuple[int, int, int]


class ListBase:
    """A list as it was shown at some time."""

    __slots__ = ("__weakref__", "_edits", "_segments", "_value")

    def __init__(self, value: Shown, segments: list[Segment] | None = None) -> None:
        self._value = value
        self._segments = [(0, len(value), 0)] if segments is None else segments
        # Each is an edit of what those before it leave.
        self._edits: list[Hunk[Any]] = []

    @property
    def value(self) -> Shown:
        """What its holder believes the list to be."""
        for hunk in self._edits:
            self._value = _spliced(self._value, hunk)
        self._edits.clear()
        return self._value

    def text_of_all(self, length: int) -> str | None:
        """What was shown, if it is a text and still all of a list of that length.

        None as well if putting it together takes longer than reading the list.
        """
        if self._segments != [(0, length, 0)] or len(self._edits) > _EDITS_READ_MAX:
            return None
        value = self.value
        # What was at its end may be gone.
        return value if isinstance(value, str) and len(value) == length else None

    def is_of(self, value: Shown) -> bool:
        """Whether this very value was shown, and still is all of the list."""
        whole = [(0, len(value), 0)]
        return self._value is value and not self._edits and self._segments == whole

    def for_edits(self) -> ListBase:
        """One that can take edits in: another one if a view may hold this one."""
        return self if self._edits else ListBase(self._value, self._segments)

    def edit(self, position: int, removed: int, inserted: Shown) -> None:
        """Follow an edit of the list that its holder makes: it counts as shown."""
        hunk = self._hunk_within(position, removed, inserted)
        if hunk is not None:
            ((start, size, at),) = self._segments
            self._segments = [(start, size + len(inserted) - removed, at)]
            self._take([hunk])
            return
        hunks = self._hunks(position, removed, inserted)
        self.shift(position, removed, len(inserted))
        if hunks:
            self._segments = _edited_segments(self, hunks, [position] * len(hunks))
            self._take(hunks)

    def _hunk_within(self, position: int, removed: int, inserted: Shown) -> Hunk[Any] | None:
        """What an edit makes of what was shown, if that is in one piece and stays so: typing on."""
        if len(self._segments) != 1:
            return None
        start, size, at = self._segments[0]
        offset = position - at
        if not (0 < offset <= size - removed):
            return None
        return Hunk(start + offset, removed, inserted)

    def _take(self, hunks: list[Hunk[Any]]) -> None:
        last = self._edits[-1] if self._edits else None
        if last is not None and len(hunks) == 1 and _continues(last, hunks[0]):
            self._edits[-1] = Hunk(last.start, 0, last.inserted + hunks[0].inserted)
        else:
            self._edits += reversed(hunks)
        if len(self._edits) > _EDITS_MAX:
            self._value = self.value

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

    def shift_all(self, edits: Sequence[Edit]) -> None:
        """Follow several changes of the list at once; they are ascending and do not overlap."""
        segments: list[Segment] = []
        moved = place = 0
        for start, size, at in self._segments:
            end, kept = at + size, at
            while place < len(edits):
                position, removed, inserted = edits[place]
                if position >= end and position + removed > at:
                    break
                if position > kept:
                    segments.append((start + kept - at, position - kept, kept + moved))
                kept = max(kept, min(position + removed, end))
                if position + removed > end:
                    break
                moved += inserted - removed
                place += 1
            if kept < end:
                segments.append((start + kept - at, end - kept, kept + moved))
        self._segments = segments

    def ranges(self, start: int, count: int) -> Iterator[Segment]:
        """Those of `count` shown elements that are still there."""
        end = start + count
        place = max(bisect_right(self._segments, (start, _EVERYTHING, 0)) - 1, 0)
        while place < len(self._segments) and self._segments[place][0] < end:
            first, size, at = self._segments[place]
            low, high = max(first, start), min(first + size, end)
            if low < high:
                yield low, high - low, at + low - first
            place += 1

    def gap(self, start: int, count: int = 0) -> int:
        """Where to insert what takes the place of `count` shown elements.

        That is where the first of them is, or else after the nearest one that is still there.
        """
        for _, _, at in self.ranges(start, count):
            return at
        place = bisect_left(self._segments, (start, 0, 0)) - 1
        if place < 0:
            return 0
        first, size, at = self._segments[place]
        return at + min(size, start - first)

    def _hunks(self, position: int, removed: int, inserted: Shown) -> list[Hunk[Any]]:
        """What an edit of the list of now, before it is followed, makes of what was shown."""
        if inserted:
            spots = [
                first + min(size, position - at)
                for first, size, at in self._segments
                if at < position
            ]
            return [Hunk(spots[-1] if spots else 0, 0, inserted)]
        hunks: list[Hunk[Any]] = []
        for first, size, at in self._segments:
            low, high = max(position - at, 0), min(position + removed - at, size)
            if low < high:
                hunks.append(Hunk(first + low, high - low, ""))
        return hunks


class Bases:
    """All bases of one document that anybody still holds, by list."""

    __slots__ = ("_is_whole", "_live", "latest")

    def __init__(self) -> None:
        self._live: dict[str, list[ref[ListBase]]] = {}
        # Whether the whole document was shown: then a list that came later was shown as empty.
        self._is_whole = False
        # What was shown last of each list: the base of an edit that names none.
        self.latest: dict[str, ListBase] = {}

    def show(self, name: str, value: Shown) -> ListBase:
        """Note that a list was shown as it is now."""
        latest = self.latest.get(name)
        if latest is not None and latest.is_of(value):
            return latest
        return self.keep(name, ListBase(value))

    def show_whole(self) -> None:
        """Note that the whole document was shown, and with it what is not there."""
        self._is_whole = True

    def last(self, name: str) -> ListBase | None:
        """What was shown last of a list, None if nothing was."""
        base = self.latest.get(name)
        if base is None and self._is_whole:
            return self.keep(name, ListBase("", []))
        return base

    def keep(self, name: str, base: ListBase) -> ListBase:
        """Make a base the latest one of a list and keep it up to date."""
        if base not in (held := self._held(name)):
            self._live[name] = [*map(ref, held), ref(base)]
        self.latest[name] = base
        return base

    def _held(self, name: str) -> list[ListBase]:
        """The bases of a list that anybody still holds."""
        return [base for each in self._live.get(name, ()) if (base := each()) is not None]

    def shift(self, name: str, position: int, removed: int, inserted: int) -> None:
        """Let every base of a list follow a change."""
        for base in self._held(name):
            base.shift(position, removed, inserted)

    def follow(self, name: str, changes: Sequence[Edit]) -> None:
        """Let every base of a list follow changes, each of what those before it leave."""
        if len(changes) > _CHANGES_MAX and self._held(name):
            self.shift_all(name, composed(changes))
            return
        for change in changes:
            self.shift(name, *change)

    def shift_all(self, name: str, edits: Sequence[Edit]) -> None:
        """Let every base of a list follow several changes, ascending and not overlapping."""
        for base in self._held(name):
            base.shift_all(edits)

    def edit(self, name: str, position: int, removed: int, inserted: Shown) -> None:
        """Follow an own edit by position: who makes it counts it among what was shown last."""
        latest = self.last(name)
        if latest is None:
            if name in self._live:
                self.shift(name, position, removed, len(inserted))
            return
        mine = latest.for_edits()
        if mine is not latest:
            self.keep(name, mine)
        for base in self._held(name):
            if base is not mine:
                base.shift(position, removed, len(inserted))
        mine.edit(position, removed, inserted)


def composed(changes: Sequence[Edit]) -> list[Edit]:
    """Changes, each of what those before it leave, as edits of what was there before all of them.

    The edits are ascending and do not overlap.
    """
    # A list of as many elements as can matter has the changes made in it.
    size = max(position for position, _, _ in changes) + sum(gone for _, gone, _ in changes)
    before, after = "before", "after"
    elements = RunSequence()
    if size:
        elements.insert_at(0, " " * size, before, 1)
    counter = size + 1
    for position, removed, inserted in changes:
        elements.remove_at(position, removed)
        if inserted:
            elements.insert_at(position, " " * inserted, after, counter)
            counter += inserted
    edits: list[Edit] = []
    kept = come = 0
    for span in elements.spans():
        if span.replica == after:
            come += span.live
        elif span.live:
            start = span.counter - 1
            if start > kept or come:
                edits.append((kept, start - kept, come))
            kept, come = start + span.live, 0
    if kept < size or come:
        edits.append((kept, size - kept, come))
    return edits


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
    return ListBase(value, _edited_segments(base, hunks, places))


def _edited_segments(
    base: ListBase, hunks: Sequence[Hunk[Any]], places: Sequence[int]
) -> list[Segment]:
    segments: list[Segment] = []
    shown = kept = 0
    for hunk, place in zip(hunks, places, strict=True):
        _extend(segments, base, kept, hunk.start - kept, shown)
        shown += hunk.start - kept
        if hunk.inserted:
            _append(segments, (shown, len(hunk.inserted), place))
        shown += len(hunk.inserted)
        kept = hunk.start + hunk.removed
    _extend(segments, base, kept, _EVERYTHING, shown)
    return segments


def _continues(last: Hunk[Any], hunk: Hunk[Any]) -> bool:
    """Whether an insert goes on where the last one ended."""
    return (
        not last.removed
        and not hunk.removed
        and type(last.inserted) is type(hunk.inserted)
        and hunk.start == last.start + len(last.inserted)
    )


def _spliced(value: Shown, hunk: Hunk[Any]) -> Shown:
    """A shown value with an edit made in it; a text that takes other values becomes a list."""
    if isinstance(value, str) and isinstance(hunk.inserted, str):
        return apply_to_text(value, [hunk])
    return tuple(apply_to_items(tuple(value), [hunk]))


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
