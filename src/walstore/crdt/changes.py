"""What a fold changed, as deltas that turn the value before into the value after.

- Deltas are in order: each one's positions count in the value that the ones before it left.
- A text's delta holds its inserted characters as one string, a list's as a list.
- Values in a delta are the document's own: read them, do not change them.
"""

from __future__ import annotations

from typing import TypeAlias

from walstore.crdt.runs import Record, Values


class RegisterChanged(Record):
    """A register got another value, or was deleted."""

    __slots__ = ("register",)
    __match_args__ = ("register",)

    def __init__(self, register: str) -> None:
        self.register = register


class ListChanged(Record):
    """In a list, from `position` on, `removed` elements went and `inserted` came."""

    __slots__ = ("inserted", "list", "position", "removed")
    __match_args__ = ("list", "position", "removed", "inserted")

    def __init__(self, list: str, position: int, removed: int, inserted: Values) -> None:
        self.list = list
        self.position = position
        self.removed = removed
        self.inserted = inserted


class MapChanged(Record):
    """A key of a map got another value, or went."""

    __slots__ = ("key", "map")
    __match_args__ = ("map", "key")

    def __init__(self, map: str, key: str) -> None:
        self.map = map
        self.key = key


Change: TypeAlias = RegisterChanged | ListChanged | MapChanged
