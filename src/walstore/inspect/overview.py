"""What there is at a relay, in its database or in an archive: documents, and what is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from walstore.inspect.summary import time_of


class DocumentRow(NamedTuple):
    """One document.

    Attributes:
        key: The document.
        elements: How many elements are there.
        bytes: How large they are.
        head: The `ts` of the newest element, there or gone.
        floor: Elements up to this `ts` may be gone; 0 if none is.
        snapshots: How many snapshots are there.
    """

    key: str
    elements: int
    bytes: int
    head: int
    floor: int
    snapshots: int


class Overview(NamedTuple):
    """A moment of a relay, a database or an archive.

    Attributes:
        place: What it is.
        documents: The documents, by key or the newest first; maybe not all.
        total: How many there are.
        facts: Whatever else there is to say, a line each.
    """

    place: str
    documents: Sequence[DocumentRow]
    total: int
    facts: Sequence[str]

    @property
    def counted(self) -> str:
        """How many documents there are, in words."""
        return f"{self.total:,} {'document' if self.total == 1 else 'documents'}"

    def as_json(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "place": self.place,
            "total": self.total,
            "documents": [row._asdict() for row in self.documents],
            "facts": list(self.facts),
        }

    def as_text(self) -> str:
        """The same for people."""
        lines = [f"{self.place}: {self.counted}", *(f"  {each}" for each in self.facts)]
        width = max((len(row.key) for row in self.documents), default=0)
        lines += [
            f"  {row.key:<{width}}  {row.elements:>8,} elements  {row.bytes:>12,} bytes"
            f"  {row.snapshots:>3} snapshots  {time_of(row.head) or row.head}"
            + (f"  gone up to {time_of(row.floor) or row.floor}" if row.floor else "")
            for row in self.documents
        ]
        if self.total > len(self.documents):
            lines.append(f"  … and {self.total - len(self.documents):,} more")
        return "\n".join(lines) + "\n"


Look: TypeAlias = Callable[[], Awaitable[Overview]]
