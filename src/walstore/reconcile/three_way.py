"""Edits of a value that was rendered some time ago, made safe for what has arrived since.

- A hunk speaks of positions in the base, the value that was rendered. Here it becomes edits that
  name elements by id, so they mean the same whatever the document has become by now.
- Only elements of the base are removed. What arrived later is never removed or moved, what was
  removed later stays removed.
- First come all removals in ascending position, then all insertions in the order of the new
  value, each after the base element that it follows there; `None` is the head of the list.
- Each anchor gets one run. Two after the same anchor would show in reverse order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from walstore.reconcile.hunks import Hunk

Id = TypeVar("Id")
Id_co = TypeVar("Id_co", covariant=True)
Ids = TypeVar("Ids")
Ids_co = TypeVar("Ids_co", covariant=True)
V = TypeVar("V", bound=Sized)


class BaseIds(Protocol[Id_co, Ids_co]):
    """The ids of the base's elements; a range comes in the form that its owner removes by."""

    def id_at(self, position: int) -> Id_co:
        """The id of the element at `position`."""

    def ids_of(self, start: int, count: int) -> Ids_co:
        """The ids of the `count` elements from `start` on; `count` is at least 1."""


class RemoveIds(NamedTuple, Generic[Ids]):
    """Remove these elements; some of them may be gone already."""

    ids: Ids


class InsertAfter(NamedTuple, Generic[Id, V]):
    """Insert `values` as one run after the element `anchor`, be it live or removed."""

    anchor: Id | None
    values: V


EditById: TypeAlias = RemoveIds[Ids] | InsertAfter[Id, V]


def edits_by_id(hunks: Iterable[Hunk[V]], base: BaseIds[Id, Ids]) -> list[EditById[Ids, Id, V]]:
    """Say by ids what `hunks` say by positions of the base.

    Args:
        hunks: What the user changed in the base. Edits with `Replaced` among them go through
            `as_hunks` first.
        base: The ids of the elements that the base showed, in its order.
    """
    hunks = list(hunks)
    removals = [RemoveIds(base.ids_of(hunk.start, hunk.removed)) for hunk in hunks if hunk.removed]
    insertions = [
        # The element before a hunk stays, since hunks never touch.
        InsertAfter(base.id_at(hunk.start - 1) if hunk.start else None, hunk.inserted)
        for hunk in hunks
        if len(hunk.inserted)
    ]
    return [*removals, *insertions]
