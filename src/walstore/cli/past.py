"""The past of a document, read from its local file: its versions, who wrote what, what it said.

- Everything is folded anew from the signed elements, and checked on the way. Where the file begins
  with a state, because the log did, the past begins there.
- What is not sent yet is part of the past as well: `+1` is the first of it.
- Nothing is written: neither to the file nor anywhere else.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from walstore.cli.documents import KnownDocument
from walstore.cli.identities import find_identity
from walstore.cli.values import plain_values
from walstore.cli.waiting import in_turn
from walstore.crdt import Run, WalCrdt
from walstore.document import WalDocument
from walstore.document.events import Event
from walstore.document.history import Blame, Version
from walstore.document.journal import LeftBody, Leftover, RefusedBodies
from walstore.document.opening import SnapshotVerdict
from walstore.document.ports import CheckpointTooOldError, RawElement
from walstore.document.sealing import Sealed
from walstore.errors import UsageError
from walstore.local import LocalFile
from walstore.sealed.encryptor import Encryptor
from walstore.signed.identity import Identity
from walstore.store.journal import FileJournal
from walstore.store.membership import Membership
from walstore.store.refused import Edit, edits_of
from walstore.store.replica import Replica
from walstore.store.shared import encryptor_of, share
from walstore.store.shelf import Shelf


class NoVersionError(UsageError):
    """A document has no such version, as far as is known here."""

    def __init__(self, document: str, text: str, first: str | None) -> None:
        known = "" if first is None else f", the oldest here is {first}"
        super().__init__(
            f"{document} has no version {text!r}{known}; `walstore log {document}` lists them"
        )


class PastVersion(NamedTuple):
    """A version of a document.

    Attributes:
        label: What to call it.
        ts: Its place in the log; None as long as it is unsent.
        author: Who signed it.
        message: What its author says of it, if anything.
    """

    label: str
    ts: int | None
    author: str
    message: str | None


class Past:
    """The past of one document, as it was when it was read.

    Attributes:
        versions: Its versions, oldest first.
        events: What was noticed while it was read: gaps, forks, what was rejected.
    """

    def __init__(
        self,
        name: str,
        *,
        whole: WalDocument,
        committed: WalDocument,
        unsent: Sequence[Sealed],
        events: Sequence[Event],
    ) -> None:
        """Made by `opened_past`."""
        self.events = events
        self._name = name
        self._whole = whole
        self._committed = committed
        self._unsent = unsent
        versions = [*map(_committed, committed.history())]
        self._count = len(versions)
        self.versions = [*versions, *_unsent(unsent)]

    @cached_property
    def _elements(self) -> dict[int, RawElement]:
        return {element.ts: element for element in self._committed.elements()}

    @property
    def is_whole(self) -> bool:
        """Whether it goes back to the beginning."""
        return self._committed.snapshot_verdict is SnapshotVerdict.NONE

    @property
    def document(self) -> WalDocument:
        """The document as it is now, unsent edits and all; it is for reading."""
        return self._whole

    def find(self, text: str) -> int | None:
        """The number of the version that is meant, from 0; None for now.

        Raises:
            NoVersionError: There is none.
        """
        labels = [version.label for version in self.versions]
        if text == "now":
            return None
        if text in labels:
            return labels.index(text)
        steps = text[1:] if text.startswith("~") else ""
        if steps.isdecimal() and int(steps) < len(labels):
            return len(labels) - 1 - int(steps)
        named = [at for at, version in enumerate(self.versions) if version.message == text]
        if named:
            return named[-1]
        raise NoVersionError(self._name, text, labels[0] if labels else None)

    async def at(self, version: int | None) -> dict[str, Any]:
        """What the document said after a version."""
        if version is None:
            return plain_values(self._whole.materialize())
        ts = self.versions[version].ts
        if ts is not None:
            return plain_values(self._committed.at(ts))
        crdt = WalCrdt()
        crdt.import_packed(self._committed.crdt.export_packed())
        for sealed in self._unsent[: version + 1 - self._count]:
            crdt.fold_runs(sealed.runs)
        return plain_values(crdt.materialize())

    def edits(self, version: int) -> Sequence[Edit]:
        """What a version did."""
        ts = self.versions[version].ts
        if ts is None:
            return edits_of(self._unsent[version - self._count].runs)
        element = self._elements.get(ts)
        if element is None:
            return ()
        left = LeftBody(element.data, element.author, element.signature, "", "", True)
        return edits_of(self._committed.read_body(left).runs)

    def blame(self, name: str, version: int | None) -> Sequence[Blame]:
        """Who wrote each stretch of something, as of a version that was sent, or of now."""
        at = None if version is None else self.versions[version].ts
        return self._whole.blame(name, at=at)


@asynccontextmanager
async def opened_past(document: KnownDocument, file: Path | None = None) -> AsyncIterator[Past]:
    """The past of a document, for the time of a block.

    Raises:
        BusyFileError: Another program has it open.
        WalStoreError: It cannot be read.
    """
    identity = find_identity(document.identity).identity
    path = document.file if file is None else file

    async def open_file() -> LocalFile:
        return LocalFile.open(path, document_key=document.key, author=identity.public_key)

    with await in_turn(path, open_file) as local:
        yield await read_past(document, identity, local)


async def read_past(document: KnownDocument, identity: Identity, local: LocalFile) -> Past:
    """The past of a document whose local file is open."""
    source = await _Source.of(document, identity, local)
    committed = await source.read(journal=None)
    bodies = local.pending().bodies
    left = [
        LeftBody(each.canonical, each.author, each.signature, each.link, each.epoch, False)
        for each in bodies
        if each.author == identity.public_key
    ]
    return Past(
        document.name,
        whole=await source.read(journal=source.journal()),
        committed=committed,
        unsent=[committed.read_body(each) for each in left],
        events=source.events,
    )


class _Source(NamedTuple):
    """Where the past is read from, and who is believed."""

    document: KnownDocument
    identity: Identity
    local: LocalFile
    membership: Membership
    encryptor: Encryptor
    events: list[Event]

    @classmethod
    async def of(cls, document: KnownDocument, identity: Identity, local: LocalFile) -> _Source:
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

    def journal(self) -> ReadingJournal:
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


def _committed(version: Version) -> PastVersion:
    return PastVersion(str(version.ts), version.ts, version.author, version.message)


def _unsent(bodies: Sequence[Sealed]) -> list[PastVersion]:
    return [
        PastVersion(f"+{at}", None, sealed.body.author, sealed.message)
        for at, sealed in enumerate(bodies, start=1)
    ]
