"""The archive writer of a run: a real engine over a relay's log, which may die at any moment.

What it has written must be what the log folds to, or, if it cannot open that, every element that
was accepted, however often it was stopped halfway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from walstore.archive.authority import Authority
from walstore.archive.engine import Engine
from walstore.archive.folder import Folder
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.memory import MemoryDestination
from walstore.archive.modes import EventTable, FoldedTable, SealedTable
from walstore.archive.policy import Policy
from walstore.archive.reader import Archive, ArchiveNotFoundError, NotReachedError
from walstore.archive.rows import Row
from walstore.archive.source import Source
from walstore.archive.writer import Table, Writer
from walstore.signed import Identity
from walstore.testing.simulator.verdicts import demand

_TABLE = "fleet"


class Archivist:
    """One archive, whoever writes it."""

    def __init__(
        self,
        *,
        prefix: str,
        relay_id: str,
        identity: Identity,
        writers: Collection[str],
        now_ms: Callable[[], int],
        is_folded: bool,
    ) -> None:
        self.place = MemoryDestination("archive")
        self.is_folded = is_folded
        self._prefix, self._relay_id = prefix, relay_id
        self._identity = identity
        keys = frozenset(writers)
        self._authority = Authority(writers={"": keys}, producers={"": keys})
        self._now_ms = now_ms

    def engine(self, source: Source) -> Engine:
        """A process that writes it, from where the last one has stopped."""
        archive = Archive(self.place, self._prefix)
        table: EventTable = SealedTable(source)
        if self.is_folded:
            table = FoldedTable(source, archive, Folder(source, self._authority, self._identity))
        kind = table.kind
        writer = Writer(
            Table(_TABLE, self._prefix, *kind[1:], kind.mode, self._relay_id, parts=1),
            [self.place],
            base_formats=[JsonlFormat()],
            diff_formats=[JsonlFormat()],
            policy=Policy(max_churn_records=20),
            now_ms=self._now_ms,
            keep_epochs=0,
        )
        return Engine(source, table, writer, interval_ms=1000, buffer_bytes_max=2**20)

    async def rows(self) -> list[Row]:
        """What it holds."""
        return [row async for row in Archive(self.place, self._prefix).rows()]

    async def ids(self, document_key: str) -> dict[int, str]:
        """The names of the elements of a document that it holds, by `ts`.

        Raises:
            BrokenPromiseError: It holds one of them twice.
        """
        try:
            rows = [row for row in await self.rows() if row["document"] == document_key]
        except ArchiveNotFoundError:
            return {}
        names: dict[int, str] = {}
        for row in rows:
            ts, name = row["ts"], row["id"]
            if row["kind"] == "element" and isinstance(ts, int):
                demand(ts not in names, f"the archive holds the element at {ts} twice")
                names[ts] = str(name)
        return names

    async def value(self, document_key: str) -> Any:
        """What it says of a document; None if it holds none."""
        try:
            rows = [row for row in await self.rows() if row["document"] == document_key]
        except (ArchiveNotFoundError, NotReachedError):
            return None
        return rows[0]["value"] if rows else None
