"""What is in a document, as a command line names it and prints it.

- A place is a name, or `name/key` for a key of a map. A name that has a slash itself comes first.
- Text is printed as it is; every other value as JSON.
"""

from __future__ import annotations

from typing import Any

from walstore.crdt.runs import is_character
from walstore.errors import WalStoreError
from walstore.store.store import WalStore


class NothingThereError(WalStoreError):
    """A document has nothing of that name."""

    def __init__(self, document: str, place: str, names: list[str]) -> None:
        has = f"it has: {', '.join(names)}" if names else "it is empty"
        super().__init__(
            f"{document} has nothing called {place!r}; {has}. `walstore set {document} {place} …`"
            " puts something there"
        )


def value_at(store: WalStore, document: str, place: str) -> Any:
    """The value at a place.

    Raises:
        NothingThereError: There is none.
    """
    if place in store:
        return store[place]
    name, _, key = place.partition("/")
    if key and store.document.kind(name) == "map" and key in (entries := store[name]):
        return entries[key]
    raise NothingThereError(document, place, list(store))


def all_values(store: WalStore) -> dict[str, Any]:
    """Everything in a document, by name, texts as text."""
    return {name: store[name] for name in store}


def plain_values(materialized: dict[str, Any]) -> dict[str, Any]:
    """The same for a version: lists of nothing but characters are texts."""
    return {name: _joined(value) for name, value in sorted(materialized.items())}


def _joined(value: Any) -> Any:
    is_text = isinstance(value, list) and value and all(map(is_character, value))
    return "".join(value) if is_text else value
