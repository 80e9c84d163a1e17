"""The past of a document, read from its local file: its versions, who wrote what, what it said.

- Everything is folded anew from the signed elements, and checked on the way. Where the file begins
  with a state, because the log did, the past begins there.
- What is not sent yet is part of the past as well: `+1` is the first of it.
- Nothing is written: neither to the file nor anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from walstore.cli.documents import KnownDocument
from walstore.cli.identities import find_identity
from walstore.cli.left_behind import tell_left_behind
from walstore.cli.past_source import PastSource
from walstore.cli.restoring import restore_key
from walstore.cli.values import plain_values
from walstore.cli.waiting import in_turn
from walstore.crdt import WalCrdt
from walstore.document import WalDocument
from walstore.document.events import Event
from walstore.document.history import Blame, Version
from walstore.document.journal import LeftBody
from walstore.document.opening import SnapshotVerdict
from walstore.document.ports import RawElement
from walstore.document.sealing import Sealed
from walstore.errors import UsageError
from walstore.local import LocalFile
from walstore.signed.identity import Identity
from walstore.store.refused import Edit, edits_of

# Versions to go back: more than any document has, and fewer than Python reads.
_STEPS = re.compile("[0-9]{1,15}")


class NoVersionError(UsageError):
    """A document has no such version, as far as is known here."""

    def __init__(self, document: str, text: str, first: str | None) -> None:
        known = "" if first is None else f", the oldest here is {first}"
        super().__init__(
            f"{document} has no version {text!r}{known}; `walstore log {document}` lists them"
        )


class BeforeStateError(UsageError):
    """A version is known, and what the document said then is not."""

    def __init__(self, document: str, ts: int) -> None:
        super().__init__(
            f"what {document} said at {ts} is not known here: its log began with a snapshot when"
            " you joined, and of the time since only what there is now is kept"
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
        older: Sequence[RawElement],
        unsent: Sequence[Sealed],
        events: Sequence[Event],
    ) -> None:
        """Made by `opened_past`."""
        self.events = events
        self._name = name
        self._whole = whole
        self._committed = committed
        self._unsent = unsent
        self._elements = {each.ts: each for each in [*older, *committed.elements()]}
        versions = [*map(self._older, older), *map(_committed, committed.history())]
        self._count = len(versions)
        self.versions = [*versions, *_unsent(unsent)]

    def _older(self, element: RawElement) -> PastVersion:
        message = self._opened(element).message
        return PastVersion(str(element.ts), element.ts, element.author, message)

    def _opened(self, element: RawElement) -> Sealed:
        left = LeftBody(element.data, element.author, element.signature, "", "", True)
        return self._committed.read_body(left)

    @property
    def is_whole(self) -> bool:
        """Whether it goes back to the beginning."""
        return is_whole(self._committed)

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
        if _STEPS.fullmatch(steps) and int(steps) < len(labels):
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
            try:
                return plain_values(self._committed.at(ts))
            except ValueError as error:
                raise BeforeStateError(self._name, ts) from error
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
        return edits_of(self._opened(element).runs)

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
    if file is None:
        tell_left_behind(document)
        await restore_key(document, identity, None)

    async def open_file() -> LocalFile:
        return LocalFile.open(path, document_key=document.key, author=identity.public_key)

    with await in_turn(path, open_file) as local:
        yield await read_past(document, identity, local)


async def read_past(document: KnownDocument, identity: Identity, local: LocalFile) -> Past:
    """The past of a document whose local file is open."""
    source = await PastSource.of(document, identity, local)
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
        older=[] if is_whole(committed) else await source.older(_start(committed)),
        unsent=[committed.read_body(each) for each in left],
        events=source.events,
    )


def _start(document: WalDocument) -> int:
    """The `ts` up to which nothing can be folded any more."""
    versions = document.history()
    return versions[0].ts - 1 if versions else document.current_checkpoint


def is_whole(document: WalDocument) -> bool:
    """Whether a document was read from the beginning of its log."""
    return document.snapshot_verdict is SnapshotVerdict.NONE


def _committed(version: Version) -> PastVersion:
    return PastVersion(str(version.ts), version.ts, version.author, version.message)


def _unsent(bodies: Sequence[Sealed]) -> list[PastVersion]:
    return [
        PastVersion(f"+{at}", None, sealed.body.author, sealed.message)
        for at, sealed in enumerate(bodies, start=1)
    ]
