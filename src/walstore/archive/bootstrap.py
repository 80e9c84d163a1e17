"""Documents whose relay has let go of their past, begun from an archive and then read live.

    relay:    ────────────── gone ──────────────┤ floor ├── kept ──►  live
    archive:  ├── elements, or a state ──────────────┤

- `ArchivedTransport` is a relay with a sealed archive behind it: where the relay says that elements
  are gone and no snapshot stands for them, they are read from the archive, and the rest live.
- `ArchivedSnapshots` does the same with a folded archive, whose states are signed snapshots. They
  are believed if whoever folded them holds the snapshot role.
- The archive is believed in nothing but what can be checked: it has to be of the same relay, reach
  what the relay still has, know of no events that it has missed, and have what the snapshots by the
  role in it stood for; each element proves itself, there and once more in the document. If anything
  is wrong the relay's own answer stands, and nothing of the archive was used.
- Gaps are for the document to tell: it knows who may write. Here anybody could leave one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from anyio.to_thread import run_sync

from walstore.archive.artifacts import MissingObjectError
from walstore.archive.buckets import bucket_of
from walstore.archive.plan import plan
from walstore.archive.reader import Archive, NotReachedError
from walstore.archive.rows import Row
from walstore.archive.sealed import raw_element
from walstore.archive.verification import DocumentVerifier, is_seq
from walstore.canon import parse
from walstore.document.ports import (
    CheckpointTooOldError,
    RawElement,
    SnapshotStore,
    StoredSnapshot,
)
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.errors import StorageError, WalStoreError
from walstore.net.backoff import Backoff
from walstore.net.websocket import WebSocketTransport
from walstore.signed.author import verify_document
from walstore.signed.identity import Identity
from walstore.wire.envelope import read_header

_logger = logging.getLogger("walstore.archive")

Keys = Collection[str] | Callable[[str], bool]

# Elements that are handed out at once.
PAGE_ELEMENTS_MAX = 1000

# How often an archive may move on while it is read.
_READS_MAX = 3

_SIGNED = ("state", "uptoTs", "writerSeq", "producedBy")


class NoPastError(StorageError):
    """An archive cannot stand for what a relay has let go of.

    Attributes:
        document: Of which document.
        reason: Why not.
    """

    def __init__(self, document: str, reason: str) -> None:
        super().__init__(f"the archive has not all of {document!r}: {reason}")
        self.document = document
        self.reason = reason


async def archived_elements(
    archive: Archive,
    document: str,
    *,
    floor: int,
    relay_id: str | None = None,
    is_producer: Callable[[str], bool] | None = None,
    may_lack: bool = False,
) -> list[RawElement]:
    """All elements of a document that a sealed archive holds, checked, in order.

    Args:
        archive: The archive.
        document: The key of the document.
        floor: The `ts` that they have to reach.
        relay_id: The relay that they have to be from; None if any will do.
        is_producer: Whose snapshots tell what has to be there; nobody's, if left out.
        may_lack: Whether an archive will do that has missed events, of whichever document.

    Raises:
        NoPastError: Some are missing or are not what they say, or it is another archive.
        WalStoreError: The archive cannot be read.
    """
    rows = await _rows_of(archive, document, "sealed", relay_id, may_lack=may_lack)
    elements = await run_sync(_checked, document, rows, is_producer or _is_nobody)
    if not elements:
        raise NoPastError(document, "it has no element of it")
    if elements[-1].ts < floor:
        raise NoPastError(document, f"it ends at {elements[-1].ts}, the relay begins at {floor}")
    return elements


async def archived_state(
    archive: Archive, document: str, *, relay_id: str | None = None
) -> Mapping[str, Any] | None:
    """The signed state of a document in a folded archive; None if it holds none.

    Raises:
        NoPastError: It is another archive.
        WalStoreError: The archive cannot be read.
    """
    for row in await _rows_of(archive, document, "folded", relay_id):
        state = row.get("state")
        return state if isinstance(state, dict) else None
    return None


async def _rows_of(
    archive: Archive, document: str, mode: str, relay_id: str | None, *, may_lack: bool = False
) -> Iterable[Row]:
    for attempt in range(_READS_MAX):
        manifest = await archive.manifest()
        if manifest.mode != mode:
            raise NoPastError(document, f"it is {manifest.mode}, not {mode}")
        if relay_id is not None and manifest.source not in (None, relay_id):
            raise NoPastError(document, "it is of another relay")
        if manifest.gap_upto and not may_lack:
            raise NoPastError(document, f"events up to {manifest.gap_upto} may be missing in it")
        way = plan(manifest)
        if way is None:
            raise NotReachedError(None)
        try:
            rows = await archive.part_rows(manifest, way, bucket_of((document,), manifest.parts))
        except MissingObjectError:
            # An epoch may be dropped while it is read; the next manifest knows.
            if attempt + 1 == _READS_MAX:
                raise
            continue
        return _only(rows, document)
    raise NotReachedError(None)


def _only(rows: Iterator[Row], document: str) -> Iterator[Row]:
    return (row for row in rows if row.get("document") == document)


def _checked(
    document: str, rows: Iterable[Row], is_producer: Callable[[str], bool]
) -> list[RawElement]:
    verifier = DocumentVerifier(document)
    elements: list[RawElement] = []
    highest: dict[str, int] = {}
    covered: list[object] = []
    for row in rows:
        seq = row.get("seq")
        if not is_seq(seq):
            raise NoPastError(document, "a row has no seq")
        _raise_if_flawed(document, verifier, verifier.take(row, seq))
        if row.get("kind") == "snapshot":
            # One whose text is gone proves nothing of what is said of it.
            if row.get("data") is not None and is_producer(str(row.get("author"))):
                covered.append(row.get("vc"))
            continue
        raw = raw_element(row)
        if raw is None:
            raise NoPastError(document, f"the relay had let go of {row.get('ts')} before")
        _count(highest, raw)
        elements.append(raw)
    _raise_if_flawed(document, verifier, verifier.end())
    if not all(_is_covered(highest, each) for each in covered):
        raise NoPastError(document, "elements are missing")
    return elements


def _raise_if_flawed(document: str, verifier: DocumentVerifier, judged: Iterable[Any]) -> None:
    for each in judged:
        if each.reasons:
            raise NoPastError(document, f"seq {each.seq}: {each.reasons[0]}")


def _count(highest: dict[str, int], raw: RawElement) -> None:
    """Note how far an author has counted, and a session of theirs."""
    data = parse(raw.data)
    if not isinstance(data, dict):
        return
    header, seq = read_header(data), data.get("seq")
    names = [raw.author]
    if header is not None:
        names.append(f"{raw.author}:{header[0]}")
        seq = header[1]
    # A peer without sessions counts by author.
    if type(seq) is int:
        for name in names:
            highest[name] = max(highest.get(name, 0), seq)


def _is_covered(highest: Mapping[str, int], counts: object) -> bool:
    """Whether everything is there that a snapshot stood for.

    Whoever began to archive late has the snapshots of what was gone by then, and not the elements.
    """
    return isinstance(counts, Mapping) and all(
        type(count) is int and highest.get(name, 0) >= count for name, count in counts.items()
    )


def _is_nobody(key: str) -> bool:
    return False


class _Held(NamedTuple):
    """Elements of a document that are being handed out."""

    document: str
    elements: Sequence[RawElement]


class ArchivedTransport(WebSocketTransport):
    """A relay with a sealed archive behind it; use it like a `WebSocketTransport`.

    Nothing of the archive is read before the relay says that elements are gone.
    """

    def __init__(
        self,
        url: str,
        *,
        identity: Identity,
        archive: Archive,
        snapshot_role: Keys | None,
        logs: Mapping[str, str] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Prepare; `async with` connects.

        Args:
            url: Where the relay is.
            identity: Who this is.
            archive: A sealed archive of it.
            snapshot_role: The keys whose snapshots are preferred to the archive; None if the whole
                log is wanted, as the posture `re-derive` does.
            logs: The logs by document key, as an earlier session has known them.
            backoff: The pauses before reconnecting.

        Raises:
            RelayUrlError: It is not the URL of a relay.
        """
        super().__init__(url, identity=identity, logs=logs, backoff=backoff)
        self._archive = archive
        self._role = None if snapshot_role is None else _membership(snapshot_role)
        self._held = _Held("", ())

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[RawElement]:
        """One page of elements above a checkpoint, of the relay's or else of the archive's.

        Raises:
            CheckpointTooOldError: Elements above it are gone, and the archive has not all of them,
                or a snapshot stands for them.
            TransportError: As with any relay.
        """
        try:
            page = await super().pull(document_key, checkpoint)
        except CheckpointTooOldError as error:
            return await self._past(document_key, checkpoint, error)
        if self._held.document == document_key:
            self._held = _Held("", ())
        return page

    async def _past(
        self, document_key: str, checkpoint: int, gone: CheckpointTooOldError
    ) -> Sequence[RawElement]:
        held = self._held
        if held.document != document_key or held.elements[-1].ts < gone.floor:
            if self._role is not None and await self._stands(document_key, gone.floor):
                raise gone
            try:
                elements = await archived_elements(
                    self._archive,
                    document_key,
                    floor=gone.floor,
                    relay_id=self.relay_id,
                    is_producer=self._role,
                )
            except WalStoreError as error:
                _logger.warning("%s; the relay's answer stands", error)
                raise gone from error
            held = self._held = _Held(document_key, elements)
        above = [each for each in held.elements if each.ts > checkpoint]
        return above[:PAGE_ELEMENTS_MAX]

    async def _stands(self, document_key: str, floor: int) -> bool:
        """Whether a snapshot stands for what is gone."""
        assert self._role is not None
        stored = await self.read(document_key + SNAPSHOT_SUFFIX)
        return stored is not None and is_by(stored, document_key, self._role, floor)


class ArchivedSnapshots:
    """A store of snapshots with a folded archive behind it.

    The archive's state is given where the store has none by a key with the role.
    """

    def __init__(
        self,
        snapshots: SnapshotStore,
        archive: Archive,
        *,
        snapshot_role: Keys,
        relay_id: Callable[[], str | None] | None = None,
    ) -> None:
        """Look into a store first, and into an archive then.

        Args:
            snapshots: The store, such as a relay.
            archive: A folded archive, whose rows carry their states.
            snapshot_role: The keys whose snapshots count, with the archive's own among them.
            relay_id: Tells which relay the archive has to be of; any, if left out.
        """
        self._snapshots = snapshots
        self._archive = archive
        self._role = _membership(snapshot_role)
        self._relay_id = relay_id
        # What the store holds itself, where something else was given: a replacement names that.
        self._revisions: dict[str, str | None] = {}

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The stored snapshot, or else the archive's.

        Raises:
            TransportError: It is not known whether there is a stored one.
        """
        stored = await self._snapshots.read(snapshot_key)
        document = snapshot_key.removesuffix(SNAPSHOT_SUFFIX)
        self._revisions.pop(snapshot_key, None)
        if stored is not None and is_by(stored, document, self._role, 0):
            return stored
        relay_id = None if self._relay_id is None else self._relay_id()
        try:
            state = await archived_state(self._archive, document, relay_id=relay_id)
        except WalStoreError as error:
            _logger.warning("%s; the relay's answer stands", error)
            return stored
        given = None if state is None else StoredSnapshot(dict(state), "archive")
        if given is None or not is_by(given, document, self._role, 0):
            return stored
        self._revisions[snapshot_key] = None if stored is None else stored.revision
        return given

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace the revision that was read, in the store; raises as that does."""
        await self._snapshots.write(
            snapshot_key, document, self._revisions.get(snapshot_key, revision)
        )


def is_by(
    stored: StoredSnapshot, document: str, is_producer: Callable[[str], bool], floor: int
) -> bool:
    """Whether a snapshot is signed by somebody with the role, and reaches a `ts`."""
    content = stored.document
    if not isinstance(content, dict):
        return False
    author, upto = content.get("producedBy"), content.get("uptoTs")
    if not isinstance(author, str) or type(upto) is not int or upto < floor:
        return False
    signed = {name: content.get(name) for name in _SIGNED}
    signer, proof = content.get("authorPubkey"), content.get("authorSignature")
    is_signed = verify_document(document + SNAPSHOT_SUFFIX, signed, signer, proof)
    return signer == author and is_signed and is_producer(author)


def _membership(keys: Keys) -> Callable[[str], bool]:
    return keys if callable(keys) else frozenset(keys).__contains__
