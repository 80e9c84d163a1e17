"""What can be read of a store: values, views, and the versions that were committed.

Everything is read from the document as it is now, and nothing is awaited.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from walstore.crdt import Change as Difference
from walstore.document import View, WalDocument
from walstore.document.history import Blame, Version


class StoreReading(ABC):
    """The half of a store that changes nothing."""

    @property
    @abstractmethod
    def document(self) -> WalDocument:
        """The document underneath."""

    def __getitem__(self, name: str) -> Any:
        """The value of a name: a register's, a text, a list or a map.

        Raises:
            KeyError: There is none.
        """
        document = self.document
        match document.kind(name):
            case "register":
                return document.field(name)
            case "text":
                return document.text(name)
            case "list":
                return document.values(name)
            case "map":
                return document.entries(name)
            case _:
                raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a name, or a default."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.document.kind(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.document.names())

    def text(self, name: str) -> str:
        """A text; empty if there is none."""
        return self.document.text(name)

    def materialize(self) -> dict[str, Any]:
        """The whole document as JSON."""
        return self.document.materialize()

    def view(self) -> View:
        """The document as an immutable value that remembers its version: the base of an edit."""
        return self.document.view()

    # ── history ────────────────────────────────────────────────────────────────────────

    def history(self) -> Sequence[Version]:
        """The committed versions since the state that this session was opened from, or the newest
        of them: see `history_max` of `WalStore.open`. `load_history` knows all.
        """
        return self.document.history()

    def find_version(self, name: str) -> Version | None:
        """The newest version with a name or a message; None if there is none."""
        named = [version for version in self.history() if version.message == name]
        return named[-1] if named else None

    def at(self, version: int) -> dict[str, Any]:
        """The document as it was after the element with a `ts`."""
        return self.document.at(version)

    def diff(self, before: int, after: int) -> Sequence[Difference]:
        """What changed from one version to another, as their `ts` name them.

        Raises:
            ValueError: A version is older than what `history` knows.
        """
        return self.document.diff(before, after)

    def blame(self, name: str, *, at: int | None = None) -> Sequence[Blame]:
        """Who wrote each stretch of a list, and in which element.

        Args:
            name: The list, or a register or a map.
            at: As of the version with this `ts`; as of now if left out.

        Raises:
            ValueError: The version is older than what `history` knows, or was not read yet.
        """
        return self.document.blame(name, at=at)
