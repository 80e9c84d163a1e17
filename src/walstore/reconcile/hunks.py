"""What a diff says: plain records of edits against positions of the old value.

- A `Hunk` takes `removed` elements away at `start` and puts `inserted` in their place.
- A `Replaced` gives one element new content; the element keeps its identity.
- Edits are ascending and disjoint. Two hunks never touch: what would touch is one hunk.
- A hunk that only inserts may start where a `Replaced` does; it comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
V = TypeVar("V")


class Hunk(NamedTuple, Generic[V]):
    """At position `start` of the old value, `removed` elements give way to `inserted`."""

    start: int
    removed: int
    inserted: V


class Replaced(NamedTuple, Generic[T]):
    """The element at position `start` of the old value is still the same one, now as `item`."""

    start: int
    item: T


ItemEdit: TypeAlias = Hunk[list[T]] | Replaced[T]


def apply_to_text(old: str, hunks: Iterable[Hunk[str]]) -> str:
    """The text that `hunks` make of `old`."""
    parts, kept_to = [], 0
    for start, removed, inserted in hunks:
        parts += [old[kept_to:start], inserted]
        kept_to = start + removed
    return "".join([*parts, old[kept_to:]])


def apply_to_items(old: Sequence[T], edits: Iterable[ItemEdit[T]]) -> list[T]:
    """The items that `edits` make of `old`."""
    items: list[T] = []
    kept_to = 0
    for start, removed, inserted in as_hunks(edits):
        items += [*old[kept_to:start], *inserted]
        kept_to = start + removed
    return [*items, *old[kept_to:]]


def as_hunks(edits: Iterable[ItemEdit[T]]) -> list[Hunk[list[T]]]:
    """The edits with each `Replaced` as a removal and an insertion, and what touches as one."""
    hunks: list[Hunk[list[T]]] = []
    for edit in edits:
        hunk = edit if isinstance(edit, Hunk) else Hunk(edit.start, 1, [edit.item])
        if hunks and hunks[-1].start + hunks[-1].removed == hunk.start:
            start, removed, inserted = hunks.pop()
            # A list of its own, since the hunks that were handed in stay as they are.
            hunk = Hunk(start, removed + hunk.removed, [*inserted, *hunk.inserted])
        hunks.append(hunk)
    return hunks
