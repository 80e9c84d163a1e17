"""Everything that a log says about a document, from its beginning, to be looked at.

A store opens from the state that it has kept, and knows what came since. Whoever wants to see more
has the log read once more: from the file, if all of it is there, else from the relay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walstore.crdt import Change as Difference
from walstore.document import WalDocument
from walstore.document.history import Blame, Version


class WholeHistory:
    """A document's past, as far as its log goes back. It stays as it was when it was read."""

    def __init__(self, document: WalDocument) -> None:
        """Made by `WalStore.load_history`."""
        self._document = document

    def versions(self) -> Sequence[Version]:
        """The committed versions, oldest first."""
        return self._document.history()

    def at(self, version: int) -> dict[str, Any]:
        """The document as it was after the element with a `ts`."""
        return self._document.at(version)

    def diff(self, before: int, after: int) -> Sequence[Difference]:
        """What changed from one version to another.

        Raises:
            ValueError: There is no such version.
        """
        return self._document.diff(before, after)

    def blame(self, name: str, *, at: int | None = None) -> Sequence[Blame]:
        """Who wrote each stretch of a text or list, and in which element.

        Args:
            name: The text or list.
            at: As of the version with this `ts`; as of the newest if left out.

        Raises:
            ValueError: There is no such version.
        """
        return self._document.blame(name, at=at)
