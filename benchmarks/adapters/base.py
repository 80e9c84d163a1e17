"""What a library is asked to do; an adapter overrides what its library can.

- A method that is timed holds the whole loop, so that no adapter pays for an indirection.
- Documents are whatever the library calls one; only its adapter looks inside.
- An operation that is not overridden is reported as absent, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

Edit = tuple[int, int, str]


class AbsentError(Exception):
    """The library cannot do this, or is not compared on it; the message says which."""


class Adapter:
    """A library under measurement. Positions count `unit`: `points`, `utf8` or `utf16`."""

    unit: ClassVar[str] = "points"
    # Such a library makes no edits; its history is the version-1 operations of the trace.
    folds_only: ClassVar[bool] = False
    # Such a library walks to each position: large scattered documents take it too long to make.
    searches: ClassVar[bool] = False

    def edit_each(self, edits: Iterable[Edit]) -> Any:
        """Make a document by local edits, one transaction each."""
        raise AbsentError("no local edits by position")

    def edit_bursts(self, bursts: list[list[Edit]]) -> Any:
        """Make a document by local edits, one call each, one transaction per burst."""
        raise AbsentError("no local edits by position")

    def edit_and_emit(self, edits: list[Edit]) -> tuple[Any, list[bytes]]:
        """Make a document by local edits, each giving the message to send."""
        raise AbsentError("no message per edit")

    def edit_on(self, document: Any, edits: list[Edit]) -> None:
        """Edit an existing document, one transaction each."""
        raise AbsentError("not compared")

    def receive(self, messages: list[bytes]) -> Any:
        """Make a document from messages, applied one by one."""
        raise AbsentError("no way to apply one message")

    def text(self, document: Any) -> str:
        """The text shown."""
        raise NotImplementedError

    def from_ops(self, ops: list[dict[str, Any]]) -> Any:
        """Fold version-1 operations into a new document."""
        raise AbsentError("another format")

    def materialize(self, document: Any) -> dict[str, Any]:
        """The whole document as a plain value."""
        raise AbsentError("another format")

    def history(self, document: Any) -> bytes:
        """Everything a new replica needs to have the document with its history."""
        raise AbsentError("no history")

    def from_history(self, history: bytes) -> Any:
        """The document again."""
        raise AbsentError("no history")

    def snapshot(self, document: Any) -> bytes:
        """What is stored to open the document again; by default its history."""
        return self.history(document)

    def from_snapshot(self, snapshot: bytes) -> Any:
        """The document again."""
        return self.from_history(snapshot)

    def shallow_snapshot(self, document: Any) -> bytes:
        """A snapshot without the history, where the library tells the two apart."""
        raise AbsentError("one kind of snapshot")

    def replica(self, number: int) -> Any:
        """An empty document of one of several replicas."""
        raise AbsentError("not compared")

    def change(self, document: Any, edits: list[Edit]) -> bytes:
        """Edit a document in one transaction and return its message."""
        raise AbsentError("not compared")

    def take_in(self, document: Any, message: bytes) -> None:
        """Apply one message of another replica."""
        raise AbsentError("not compared")

    def from_text(self, text: str) -> Any:
        """A document that shows `text`."""
        raise AbsentError("no edit by whole value")

    def set_text(self, document: Any, text: str) -> None:
        """Make the document show `text` by the edits that lead there."""
        raise AbsentError("no edit by whole value")

    def signed_exchange(self, edits: list[Edit]) -> dict[str, float]:
        """CPU seconds to send these edits signed one by one, and to receive them verified."""
        raise AbsentError("no signatures")

    def cold_replay(self, elements: int) -> dict[str, float]:
        """CPU seconds to read a signed log of this many keystrokes, in several ways."""
        raise AbsentError("no signed log")

    def compiled(self) -> bool:
        """Whether the library runs compiled; only asked of walstore."""
        return True


def in_bytes(text: str, edits: list[Edit]) -> list[Edit]:
    """Edits of a text with their positions and lengths in UTF-8 bytes instead of code points."""
    converted: list[Edit] = []
    for position, deleted, inserted in edits:
        before, after = text[:position], text[position + deleted :]
        removed = text[position : position + deleted]
        converted.append((len(before.encode()), len(removed.encode()), inserted))
        text = before + inserted + after
    return converted
