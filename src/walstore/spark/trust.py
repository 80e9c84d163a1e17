"""Who is believed, as a task is told: rules, where a key is, and where records are.

- It can be pickled, and holds no secret: the key is read where it is needed.
- Without an address, everything that a document is made of has to be among its events. Records,
  rosters and keyrings are not events: rules that need them need an address.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from walstore.archive.authority import Authority
from walstore.archive.folder import Folder
from walstore.archive.source import Event, Source
from walstore.document.ports import CheckpointTooOldError, RawElement
from walstore.errors import UsageError
from walstore.signed.identity import Identity
from walstore.spark.address import Address
from walstore.spark.events import RowEvent
from walstore.spark.signer import Signer


@dataclass(frozen=True)
class Trust:
    """Who is believed, and by whom.

    Attributes:
        authority: Who may write.
        identity: Where the reader's key is, a file or `env:NAME`: it opens what is sealed for it,
            and signs the states that a fold goes on from. None for somebody whom nobody knows.
        address: Where rosters and keyrings are, and what is to be read anew.
    """

    authority: Authority = field(default_factory=Authority)
    identity: str | None = None
    address: Address | None = None

    @classmethod
    def of(cls, authority: Authority, identity: str | Path | None, source: Address | None) -> Trust:
        """The same, with a file named so that it is found wherever a task runs.

        Raises:
            UsageError: The authority needs records, and there is no address to have them from.
        """
        signer = None if identity is None else Signer.at(str(identity))
        if signer is not None and signer.file is not None:
            signer = Signer(file=str(Path(signer.file).resolve()))
        return cls(authority, None if signer is None else signer.place, source)

    def __post_init__(self) -> None:
        if self.authority.writers == "roster" and self.address is None:
            raise UsageError("rosters are no events: say where they are, source=Address(…)")

    @contextmanager
    def opened(self) -> Iterator[Believer]:
        """The one who believes, as long as the block lasts."""
        place = self.identity
        identity = Identity.generate() if place is None else Signer.at(place).load()
        with asyncio.Runner() as runner:
            opening = self._source()
            source = runner.run(opening.__aenter__())
            try:
                folder = Folder(source, self.authority, identity, self.identity is not None)
                yield Believer(runner, folder, source)
            finally:
                runner.run(opening.__aexit__(None, None, None))

    @asynccontextmanager
    async def _source(self) -> AsyncIterator[Source]:
        if self.address is None:
            yield AtHand()
        else:
            async with self.address.opened() as source:
                yield source


class Believer(NamedTuple):
    """Somebody who reads documents.

    Attributes:
        runner: Runs what waits for the source.
        folder: Folds, by the rules.
        source: Where documents can be read anew.
    """

    runner: asyncio.Runner
    folder: Folder
    source: Source

    def hold(self, events: Sequence[RowEvent]) -> None:
        """Turn to the events of a document."""
        if isinstance(self.source, AtHand):
            self.source.events = events


class AtHandStatus(NamedTuple):
    """What is at hand."""

    relay_id: str
    min_seq: int
    head_seq: int


class AtHandPage(NamedTuple):
    """All of it, at once."""

    events: Sequence[Event]
    last_seq: int
    is_more: bool = False


class AtHand:
    """The events of one document, as a source of what there is to be read anew.

    Attributes:
        events: The events, by seq.
    """

    prefix = ""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.events: Sequence[RowEvent] = ()

    async def status(self) -> AtHandStatus:
        """What there is."""
        seqs = [event.seq for event in self.events] or [0]
        return AtHandStatus("", seqs[0], seqs[-1])

    async def page(self, since: int) -> AtHandPage:
        """All events above a position."""
        status = await self.status()
        return AtHandPage([each for each in self.events if each.seq > since], status.head_seq)

    async def wait(self, since: int) -> None:
        """Return at once: nothing is added."""

    async def bootstrap(self) -> tuple[int, AsyncIterator[Event]]:
        """The newest snapshot."""
        status = await self.status()
        return status.head_seq, _each(
            [each for each in self.events if each.kind == "snapshot"][-1:]
        )

    async def documents(self) -> AsyncIterator[str]:
        """The document, if there is one."""
        for event in self.events[:1]:
            yield event.document

    async def snapshots(self, documents: Collection[str], upto: int) -> AsyncIterator[Event]:
        """The snapshots up to a position."""
        for event in self.events:
            if event.kind == "snapshot" and event.document in documents and event.seq <= upto:
                yield event

    async def snapshot(self, document: str) -> bytes | None:
        """The text of the newest snapshot."""
        texts = [each.payload for each in self.events if each.kind == "snapshot"]
        return texts[-1] if texts else None

    async def elements(self, document: str, after: int) -> AsyncIterator[RawElement]:
        """The elements above a `ts`.

        Raises:
            CheckpointTooOldError: Some of them are there without their data.
        """
        elements = [each for each in self.events if each.kind == "element"]
        floor = max([each.ts for each in elements if each.payload is None], default=0)
        if after < floor:
            raise CheckpointTooOldError(floor)
        for each in elements:
            if each.payload is not None and each.ts > after:
                yield RawElement(each.ts, each.payload, each.author, each.signature)

    async def record(self, document: str, name: str) -> str | None:
        """None: records are no events."""
        return None


async def _each(events: Sequence[RowEvent]) -> AsyncIterator[Event]:
    for event in events:
        yield event
