"""Something for each path of which changes are gathered, in the order in which the paths came.

- A name and a key of a map that look alike are two paths.
- A name that shows something else than its map leaves nothing of the map's keys, so that what was
  gathered of them goes. Only they are looked at, however much else there is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeAlias, TypeVar

from walstore.store.change import Change, Splices

T = TypeVar("T")

# A name, and the key if it is a map's.
Place: TypeAlias = tuple[str, str | None]


class Gathered(Generic[T]):
    """What stands for the changes of each path."""

    __slots__ = ("_by_place", "_keys")

    def __init__(self) -> None:
        self._by_place: OrderedDict[Place, T] = OrderedDict()
        # The keys that are there, by the name of their map.
        self._keys: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._by_place)

    def get(self, place: Place) -> T | None:
        """What stands for a path, None if nothing does."""
        return self._by_place.get(place)

    def put(self, place: Place, item: T) -> None:
        """Let something stand for a path, where it stood before if it was there."""
        name, key = place
        if key is not None and place not in self._by_place:
            self._keys.setdefault(name, {})[key] = None
        self._by_place[place] = item

    def pop_first(self) -> tuple[Place, T]:
        """Take the path out that came first."""
        place, item = self._by_place.popitem(last=False)
        name, key = place
        if key is not None:
            keys = self._keys[name]
            del keys[key]
            if not keys:
                del self._keys[name]
        return place, item

    def drop_keys(self, name: str) -> None:
        """Take all keys of a map out."""
        for key in self._keys.pop(name, ()):
            del self._by_place[name, key]

    def clear(self) -> None:
        """Take everything out."""
        self._by_place.clear()
        self._keys.clear()

    def values(self) -> Iterable[T]:
        """What stands for all of them."""
        return self._by_place.values()


def place_of(change: Change) -> Place:
    """What a change is gathered under."""
    return change.name, change.key


def replaces_keys(before: Change | None, change: Change) -> bool:
    """Whether a change leaves nothing of the keys that a map of its name had.

    Args:
        before: What was gathered of the same path last, None if nothing was.
        change: What comes after it.
    """
    is_list = before is not None and before.kind in ("text", "list")
    # A list that goes on being one has hidden all keys already.
    return change.key is None and not (is_list and isinstance(change.delta, Splices))
