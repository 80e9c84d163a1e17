"""A list of a store as a Python list: indexes, slices, `append`, `insert`, `del`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from walstore.store.store import WalStore


class Items(MutableSequence[Any]):
    """A live hand on one list; it shows what the list holds whenever it is asked."""

    def __init__(self, store: WalStore, name: str) -> None:
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

    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            values = list(value)
            self._check_size(index, values)
            self._splice(index, values)
        else:
            self._store.document.splice(self._name, self._place(index), 1, [value])

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            self._splice(index, [])
        else:
            self._store.remove(self._name, self._place(index), 1)

    def clear(self) -> None:
        """Remove everything."""
        self._splice(slice(None), [])

    def insert(self, index: int, value: Any) -> None:
        """Insert a value before an index."""
        size = len(self)
        self._store.insert(self._name, max(index + size, 0) if index < 0 else index, value)

    def extend(self, values: Iterable[Any]) -> None:
        """Append values."""
        self._splice(slice(len(self), None), list(values))

    def __repr__(self) -> str:
        return f"Items({list(self)!r})"

    def _place(self, index: int) -> int:
        size = len(self)
        place = index + size if index < 0 else index
        if not 0 <= place < size:
            raise IndexError(f"{self._name!r} has {size} items, and none at {index}")
        return place

    def _check_size(self, index: slice, values: list[Any]) -> None:
        """Refuse values that do not fit a slice with steps, as a list does."""
        places = range(*index.indices(len(self)))
        if places.step != 1 and len(values) != len(places):
            raise ValueError(f"{len(values)} values do not fit a slice of {len(places)}")

    def _splice(self, index: slice, values: list[Any]) -> None:
        """Replace a slice, or without values remove it."""
        places = range(*index.indices(len(self)))
        document, name = self._store.document, self._name
        if places.step == 1:
            document.splice(name, places.start, len(places), values)
            return
        with self._store.batch():
            for offset, place in sorted(enumerate(places), key=lambda pair: -pair[1]):
                document.splice(name, place, 1, values[offset : offset + 1])
