"""A document as it was at one moment: an immutable value that remembers when that was.

- Hand it back as `base=` with an edited value, and nothing that arrived since is lost.
- Lists are tuples, texts (lists of characters) are strings, objects are read-only mappings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from walstore.canon import CANON_DEPTH_MAX
from walstore.document.bases import ListBase
from walstore.errors import NotJsonError


class View(Mapping[str, Any]):
    """The members of a document at one moment."""

    __slots__ = ("_bases", "_members", "_owner", "version")

    def __init__(
        self,
        members: Mapping[str, Any],
        bases: Mapping[str, ListBase],
        *,
        owner: object,
        version: int,
    ) -> None:
        """Made by `view()`; `version` counts the document's changes."""
        self._members = members
        self._bases = bases
        self._owner = owner
        self.version = version

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"View(version={self.version}, {dict(self._members)!r})"

    def text(self, name: str) -> str:
        """A text, or the strings of a list joined; empty if there is none."""
        value = self._bases[name].value if name in self._bases else ""
        if isinstance(value, str):
            return value
        return "".join([item for item in value if isinstance(item, str)])

    def base_of(self, name: str, owner: object) -> ListBase | None:
        """The base of a list for its document, None if the list was not there.

        Raises:
            ValueError: The view is of another document.
        """
        if owner is not self._owner:
            raise ValueError("the view is of another document")
        return self._bases.get(name)


def frozen(value: Any) -> Any:
    """A JSON value that cannot be changed."""
    if isinstance(value, dict):
        return MappingProxyType({name: frozen(member) for name, member in value.items()})
    if isinstance(value, list):
        return tuple([frozen(item) for item in value])
    return value


def thawed(value: Any, levels_max: int = CANON_DEPTH_MAX) -> Any:
    """The same as ordinary, new JSON containers.

    Raises:
        NotJsonError: It nests deeper than any JSON value here, or without end.
    """
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if not levels_max:
        raise NotJsonError(f"nested deeper than {CANON_DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        return {name: thawed(member, levels_max - 1) for name, member in value.items()}
    return [thawed(item, levels_max - 1) for item in value]
