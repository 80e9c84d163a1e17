"""What it takes to write a window: how large it is, its diff, and a base that takes it in.

- `WindowWork` does it here, part after part. Others may do it elsewhere, many parts at once; the
  bytes are the same, and committing them is the writer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from anyio.to_thread import run_sync

from walstore.archive.artifacts import Encoded, Spot, encode_base, encode_diff, put_part
from walstore.archive.buckets import by_bucket
from walstore.archive.format import Format
from walstore.archive.manifest import Manifest, Part
from walstore.archive.merge import merged
from walstore.archive.plan import Plan
from walstore.archive.reader import Archive
from walstore.archive.rows import Action, Column, RowChange, Window


class Written(NamedTuple):
    """A part of an artifact that is stored, and how many rows or changes it has."""

    formats: dict[str, Part]
    row_count: int


class Measured(NamedTuple):
    """How large a window is.

    Attributes:
        changes: How many rows have changed.
        diff_bytes: The size of its diff, in the first format of diffs.
        churn: How many events it stands for.
        net_rows: How many rows the table gains.
    """

    changes: int
    diff_bytes: int
    churn: int
    net_rows: int


class Work(Protocol):
    """A window that can be written."""

    @property
    def since(self) -> int:
        """The position before it."""
        ...

    @property
    def to(self) -> int:
        """The position that it reaches."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole table, and needs nothing of what is there."""
        ...

    async def measure(self, spot: Spot) -> Measured:
        """How large it is, given where its diff would be."""
        ...

    async def write_diff(self, spot: Spot) -> list[Written]:
        """Store its diff, part after part; it was measured before."""
        ...

    async def write_base(self, spot: Spot, before: Manifest, way: Plan | None) -> list[Written]:
        """Store a base: what a plan leads to, if there is one, and the window on top."""
        ...


class Formats(NamedTuple):
    """What artifacts are written as."""

    base: tuple[Format, ...]
    diff: tuple[Format, ...]


class WindowWork:
    """A window whose changes are at hand."""

    def __init__(
        self,
        window: Window,
        *,
        archive: Archive,
        formats: Formats,
        key_fields: Sequence[str],
        columns: Sequence[Column],
        parts: int,
    ) -> None:
        """Describe it; nothing is written yet."""
        self._window = window
        self._archive = archive
        self._formats = formats
        self._key_fields, self._columns = key_fields, columns
        self._buckets = by_bucket(window.changes, parts)
        self._diff: list[list[Encoded]] = []

    @property
    def since(self) -> int:
        """The position before it."""
        return self._window.since

    @property
    def to(self) -> int:
        """The position that it reaches."""
        return self._window.to

    @property
    def is_whole(self) -> bool:
        """Whether it begins with a TRUNCATE."""
        changes = self._window.changes
        return bool(changes) and changes[0].action is Action.TRUNCATE

    async def measure(self, spot: Spot) -> Measured:
        """Encode the diff, and see how large it is."""
        changes = self._window.changes
        self._diff = await run_sync(self._encode_diff)
        size = sum(len(part[0].body) for part in self._diff) if changes else 0
        return Measured(len(changes), size, self._window.churn, net_rows(changes))

    async def write_diff(self, spot: Spot) -> list[Written]:
        """Store what was encoded."""
        return [
            Written(
                await put_part(self._archive.destination, spot, number, part), part[0].row_count
            )
            for number, part in enumerate(self._diff)
        ]

    async def write_base(self, spot: Spot, before: Manifest, way: Plan | None) -> list[Written]:
        """Merge and store one part at a time: what is held is a part, not the table."""
        written = []
        for number, changes in enumerate(self._buckets):
            old = iter(()) if way is None else await self._archive.part_rows(before, way, number)
            rows = merged(old, [changes], self._key_fields)
            encoded = await run_sync(encode_base, rows, self._formats.base, self._columns)
            parts = await put_part(self._archive.destination, spot, number, encoded)
            written.append(Written(parts, encoded[0].row_count))
        return written

    def _encode_diff(self) -> list[list[Encoded]]:
        return [encode_diff(each, self._formats.diff, self._columns) for each in self._buckets]


def net_rows(changes: Sequence[RowChange]) -> int:
    """How many rows a table gains."""
    actions = [each.action for each in changes]
    return actions.count(Action.INSERT) - actions.count(Action.DELETE)
