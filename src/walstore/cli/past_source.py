"""Reads a document from its local file as its readers would, and writes nothing.

- Everything is folded anew from signed elements. Only where the log elsewhere began with a
  snapshot, there is a state to begin from, and nothing before it can be folded any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from walstore.cli.documents import KnownDocument
from walstore.crdt import Run
from walstore.document import WalDocument
from walstore.document.events import Event
from walstore.document.journal import Leftover, RefusedBodies
from walstore.document.ports import CheckpointTooOldError, RawElement
from walstore.document.sealing import Sealed
from walstore.local import LocalFile
from walstore.sealed.encryptor import Encryptor
from walstore.signed.author import Domain, SigningFrame, verify_bytes
from walstore.signed.identity import Identity
from walstore.store.journal import FileJournal
from walstore.store.membership import Membership
from walstore.store.replica import Replica
from walstore.store.shared import encryptor_of, share
from walstore.store.shelf import Shelf
from walstore.wire.limits import TS_MAX

# Elements before a state that are listed; what is older is for the relay to tell.
_OLDER_MAX = 10_000


class PastSource(NamedTuple):
    """Where the past is read from, and who is believed.

    Attributes:
        events: What was noticed while it was read.
    """

    document: KnownDocument
    identity: Identity
    local: LocalFile
    membership: Membership
    encryptor: Encryptor
    events: list[Event]

    @classmethod
    async def of(cls, document: KnownDocument, identity: Identity, local: LocalFile) -> PastSource:
        """The source of a document whose local file is open."""
        sharing = await share(
            document.key,
            identity=identity,
            owner=document.owner,
            is_sealed=document.is_sealed,
            file=local,
            transport=None,
            relay=None,
        )
        encryptor = encryptor_of(sharing, is_sealed=document.is_sealed)
        return cls(document, identity, local, sharing.membership, encryptor, [])

    async def read(self, journal: ReadingJournal | None) -> WalDocument:
        """The document as the log says, with a journal also what is not in the log yet."""
        try:
            return await self._read(journal, from_state=False)
        except CheckpointTooOldError:
            # The log elsewhere began with a snapshot, too.
            return await self._read(journal, from_state=True)

    async def _read(self, journal: ReadingJournal | None, *, from_state: bool) -> WalDocument:
        replica = Replica(file=self.local, transport=None, snapshots=None)
        document = WalDocument(
            self.document.key,
            transport=replica,
            snapshot_store=replica if from_state else None,
            identity=self.identity,
            writers=self.membership.is_writer,
            snapshot_role=[self.identity.public_key],
            encryptor=self.encryptor,
            revoked=self.membership.revoked,
            posture="re-derive",
            on_author_error="skip",
            # What is read twice is told once.
            on_event=None if journal is not None else self.events.append,
            journal=journal,
        )
        return await document.open(posture="trust" if from_state else None, is_own_state=from_state)

    async def older(self, than: int) -> list[RawElement]:
        """Elements up to a `ts` that are here and cannot be folded any more, oldest first."""
        replica = Replica(file=self.local, transport=None, snapshots=None)
        frame = SigningFrame(Domain.APPEND, self.document.key)
        return [
            raw
            for raw in await replica.tail(self.document.key, min(than, TS_MAX), _OLDER_MAX)
            if isinstance(raw, RawElement)
            and self.membership.is_writer(raw.author)
            and verify_bytes(raw.author, frame.around(raw.data), raw.signature)
        ]

    def journal(self) -> ReadingJournal:
        """What is not in the log yet."""
        own = self.identity.public_key
        shelf = Shelf(self.local, document_key=self.document.key, author=own)
        return ReadingJournal(
            FileJournal(
                self.local,
                document_key=self.document.key,
                author=own,
                # Nothing is ever recorded under it.
                session=os.urandom(16).hex(),
                encryptor=self.encryptor,
                shelf=shelf,
                confirm=self.local.confirmed,
            )
        )


class ReadingJournal:
    """A journal that shows what was left, and keeps nothing."""

    def __init__(self, journal: FileJournal) -> None:
        self._journal = journal

    def leftover(self) -> Leftover:
        """What earlier processes have left."""
        return self._journal.leftover()

    def record(self, runs: Sequence[Run]) -> None:
        """Keep nothing."""

    def seal(self, session: str, bodies: Sequence[Sealed]) -> None:
        """Keep nothing."""

    def renew(self, bodies: Sequence[Sealed]) -> None:
        """Keep nothing."""

    def replace(self, gone: Sequence[str], bodies: Sequence[Sealed]) -> None:
        """Keep nothing."""

    def set_aside(
        self, refused: RefusedBodies, gone: Sequence[str], bodies: Sequence[Sealed], session: str
    ) -> None:
        """Keep nothing."""

    def acknowledge(self, link: str, ts: int | None) -> None:
        """Keep nothing."""

    def confirm(self, links: Iterable[str]) -> None:
        """Keep nothing."""

    def drop_stranded(self) -> None:
        """Keep nothing."""
