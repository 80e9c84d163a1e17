"""What can be edited in a store: at once, and here; nothing is awaited."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from walstore.crdt import Json
from walstore.document import View
from walstore.store.items import Items
from walstore.store.reading import StoreReading


class StoreEditing(StoreReading):
    """The half of a store that edits."""

    @abstractmethod
    def batch(self, message: str | None = None) -> AbstractContextManager[None]:
        """Make several edits one."""

    def list(self, name: str) -> Items:
        """A list, to read and to edit as one."""
        return Items(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        """Make a name hold a value: a text or list is edited, anything else replaced."""
        document = self.document
        kind = document.kind(name)
        is_empty = kind == "list" and not document.length(name)
        if (kind == "text" or is_empty) and isinstance(value, str):
            document.set_text(name, value)
        elif kind in ("list", "text") and isinstance(value, list | tuple):
            document.set_list(name, value)
        else:
            document.set_field(name, value)

    def __delitem__(self, name: str) -> None:
        """Delete a register, or empty a list, a text or a map.

        Raises:
            KeyError: There is none.
        """
        match self.document.kind(name):
            case "register":
                self.document.delete_field(name)
            case None:
                raise KeyError(name)
            case _:
                self.document.migrate(name)

    def set_text(
        self, name: str, text: str, *, base: View | None = None, caret: int | None = None
    ) -> None:
        """Make a text read as given; what arrived since `base` was shown is kept."""
        self.document.set_text(name, text, base=base, caret=caret)

    def set_list(
        self,
        name: str,
        values: Sequence[Json],
        *,
        base: View | None = None,
        key: str | Callable[[Any], object] | None = None,
    ) -> None:
        """Make a list hold the given values; what arrived since `base` was shown is kept."""
        self.document.set_list(name, values, base=base, key=key)

    def update(self, wanted: Mapping[str, Any], *, base: View | None = None) -> None:
        """Make the whole document read as given; what arrived since `base` is kept."""
        self.document.update(wanted, base=base)

    setText = set_text  # noqa: N815 - the name in the TypeScript package
    setList = set_list  # noqa: N815 - the name in the TypeScript package

    def edit_text(self, name: str, position: int, removed: int, inserted: str) -> None:
        """Replace a stretch of a text: what an editor widget knows of a key-press."""
        self.document.splice(name, position, removed, inserted)

    def insert(self, name: str, index: int, value: Json) -> None:
        """Insert a value before a position of a list."""
        self.document.insert(name, index, value)

    def remove(self, name: str, index: int, count: int = 1) -> None:
        """Remove elements of a list from a position on."""
        self.document.remove_text(name, index, count)

    def put(self, name: str, key: str, value: Json) -> None:
        """Write a key of a map."""
        self.document.put(name, key, value)

    def drop(self, name: str, key: str) -> None:
        """Remove a key of a map; a concurrent write of it stays."""
        self.document.drop(name, key)
