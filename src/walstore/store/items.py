"""A list of a store as a Python list: indexes, slices, `append`, `insert`, `del`.

Whatever is read shows the whole list, as the base of what is edited next. So one read takes time in
proportion to the list, and nothing here reads it item by item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from walstore.store.editing import StoreEditing


class Items(MutableSequence[Any]):
    """A live hand on one list; it shows what the list holds whenever it is asked."""

    def __init__(self, store: StoreEditing, name: str) -> None:
        self._store = store
        self._name = name

    def __len__(self) -> int:
        return self._store.document.length(self._name)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._store.document.values(self._name)[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._store.document.values(self._name))

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._store.document.values(self._name))

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Where a value stands first.

        Raises:
            ValueError: It does not.
        """
        values = self._store.document.values(self._name)
        return values.index(value, start, len(values) if stop is None else stop)

    def reverse(self) -> None:
        """Turn the list round, as one edit."""
        self[::-1] = list(self)

    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            self._assign(index, list(value))
        else:
            self._store.document.splice(self._name, self._place(index), 1, [value])

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            self._remove(index)
        else:
            self._store.remove(self._name, self._place(index), 1)

    def clear(self) -> None:
        """Remove everything."""
        self._remove(slice(None))

    def insert(self, index: int, value: Any) -> None:
        """Insert a value before an index."""
        size = len(self)
        self._store.insert(self._name, max(index + size, 0) if index < 0 else index, value)

    def extend(self, values: Iterable[Any]) -> None:
        """Append values."""
        self._assign(slice(len(self), None), list(values))

    def __repr__(self) -> str:
        return f"Items({list(self)!r})"

    def _place(self, index: int) -> int:
        size = len(self)
        place = index + size if index < 0 else index
        if not 0 <= place < size:
            raise IndexError(f"{self._name!r} has {size} items, and none at {index}")
        return place

    def _assign(self, index: slice, values: list[Any]) -> None:
        places = range(*index.indices(len(self)))
        if places.step == 1:
            self._store.document.splice(self._name, places.start, len(places), values)
            return
        # All of it or nothing, so it is not done place by place; a list refuses what does not fit.
        wanted = self._store.document.values(self._name)
        wanted[index] = values
        self._store.set_list(self._name, wanted)

    def _remove(self, index: slice) -> None:
        places = range(*index.indices(len(self)))
        if places.step == 1:
            self._store.remove(self._name, places.start, len(places))
            return
        with self._store.batch():
            for place in sorted(places, reverse=True):
                self._store.remove(self._name, place)
