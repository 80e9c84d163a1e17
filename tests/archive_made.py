"""Small archives of documents, made without a relay around them."""

from __future__ import annotations

from tests.archive_sources import LogTransport
from tests.archive_tables import Clock
from tests.rigged import ALICE, BOB, MEMBERS
from walstore.archive.authority import Authority
from walstore.archive.destination import Destination
from walstore.archive.engine import Engine
from walstore.archive.folder import Folder
from walstore.archive.formats import open_format
from walstore.archive.modes import EventTable, FoldedTable, SealedTable
from walstore.archive.policy import Policy
from walstore.archive.reader import Archive
from walstore.archive.writer import Table, Writer
from walstore.document import WalDocument
from walstore.relay.memory import MemoryLog
from walstore.relay.reading import LogSource
from walstore.signed import Identity

ARCHIVE = Identity.from_seed(bytes([9]) * 32)
PREFIX = "notes/"


class Made:
    """Documents of two people, and an archive of them that is written when it is asked for."""

    def __init__(
        self,
        place: Destination,
        *,
        mode: str = "sealed",
        formats: tuple[str, ...] = ("jsonl",),
        parts: int = 1,
    ) -> None:
        """Keep an archive in a place."""
        log = MemoryLog()
        source = LogSource(log, PREFIX)
        self.archive = Archive(place, PREFIX)
        self._transport = LogTransport(log)
        self._documents: dict[tuple[str, str], WalDocument] = {}
        table: EventTable = SealedTable(source)
        if mode == "folded":
            authority = Authority(writers={"": MEMBERS}, producers={"": MEMBERS})
            table = FoldedTable(source, self.archive, Folder(source, authority, ARCHIVE))
        writer = Writer(
            Table("notes", PREFIX, *table.kind[1:], table.kind.mode, log.relay_id, parts),
            [place],
            base_formats=[open_format(each) for each in formats],
            diff_formats=[open_format(each) for each in formats],
            policy=Policy(),
            now_ms=Clock(),
        )
        self.engine = Engine(source, table, writer, interval_ms=1000, buffer_bytes_max=2**20)

    async def write(self, key: str, word: str, who: Identity = ALICE) -> None:
        """Write a word at the beginning of a document, and that it was the last one."""
        if (key, who.public_key) not in self._documents:
            self._documents[key, who.public_key] = await WalDocument(
                key,
                transport=self._transport,
                snapshot_store=self._transport,
                identity=who,
                writers=MEMBERS,
                snapshot_role=MEMBERS,
            ).open()
        document = self._documents[key, who.public_key]
        await document.pull()
        document.insert_text("body", 0, word)
        document.set_field("last", word)
        await document.commit()

    async def grow(self) -> None:
        """A base to 3, and diffs to 5 and to 6."""
        await self.write("notes/a", "one ")
        await self.write("notes/b", "two ", BOB)
        await self.write("notes/a", "three ", BOB)
        await self.engine.run_once()
        await self.write("notes/é", "four ")
        await self.write("notes/a", "five ")
        await self.engine.run_once()
        await self.write("notes/b", "six ", BOB)
        await self.engine.run_once()
