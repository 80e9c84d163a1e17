"""A local file as a place: read from a copy, so that whoever has it open is not disturbed.

- A copy is taken of the file and of its write-ahead log. If either changes meanwhile, it is taken
  again; each row has a checksum besides, so that a torn copy is never taken for the file.
- What waits to be sent is signed already: it is shown behind the log, and said to be unsent. Edits
  that nobody has signed yet are counted.
- The file is looked at again whenever it has changed, which is asked for twice a second.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from walstore.canon import canonical_text, content_hash, parse
from walstore.document.ports import (
    CheckpointTooOldError,
    RawElement,
    StoredRecord,
    StoredSnapshot,
)
from walstore.errors import MalformedError, StorageError
from walstore.local import LocalFile
from walstore.local.faults import LocalFileDamagedError, fault_of_system
from walstore.local.salvage import log_of
from walstore.local.schema import Owner, check_header, read_owner
from walstore.store.sharing_state import SharingState, load_state
from walstore.store.sharing_steps import KEYRING, ROSTER
from walstore.wire.limits import PULL_ELEMENTS_MAX

# How often a file is looked at, in seconds.
LOOK_S: Final = 0.5

# How often a copy is tried while the file changes.
_COPIES_MAX: Final = 8

Moment = tuple[tuple[int, int], ...]


class LocalBusyError(StorageError):
    """A file is being written all the time."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: it changes while it is copied; try again in a moment")


class LocalLog:
    """The log in a local file, as it was when it was copied last."""

    def __init__(self, path: Path, owner: Owner, workshop: Path) -> None:
        """Made by `opened_local`."""
        self.name = str(path)
        self.document = owner.document_key
        self.keeper: str | None = owner.author
        self.floor = 0
        self.unsent_from: int | None = None
        self.recorded = 0
        self.owner: str | None = None
        self._path = path
        self._identity = owner
        self._copy = workshop / "copy"
        self._moment: Moment = ()
        self._elements: list[RawElement] = []
        self._state: bytes | None = None
        self._sharing: SharingState | None = None

    async def look(self) -> None:
        """Read the file as it is now.

        Raises:
            LocalFileError: It cannot be read.
        """
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        for _ in range(_COPIES_MAX):
            self._moment = _moment(self._path)
            _copy(self._path, self._copy)
            if _moment(self._path) != self._moment:
                continue
            try:
                self._read()
            except LocalFileDamagedError:
                # The copy was set aside; the file itself is as it was.
                if _moment(self._path) == self._moment:
                    raise
                continue
            return
        raise LocalBusyError(self._path)

    def _read(self) -> None:
        key, author = self._identity.document_key, self._identity.author
        with LocalFile.open(self._copy, document_key=key, author=author) as file:
            floor = file.get("floor", 0)
            self.floor = floor if isinstance(floor, int) else 0
            self._elements = list(_elements(file, self.floor))
            state = file.state()
            self._state = None if state is None else state[0]
            self._sharing = load_state(file)
            self.owner = None if self._sharing is None else self._sharing.owner
            self._take_pending(file)

    def _take_pending(self, file: LocalFile) -> None:
        pending = file.pending()
        self.recorded = len(pending.recorded)
        known = {element.signature for element in self._elements}
        head = self._elements[-1].ts if self._elements else self.floor
        waiting = [body for body in pending.bodies if body.signature not in known]
        self.unsent_from = head + 1 if waiting else None
        self._elements += [
            RawElement(head + place, body.canonical, body.author, body.signature)
            for place, body in enumerate(waiting, 1)
        ]

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """A page of elements above a checkpoint.

        Raises:
            CheckpointTooOldError: They were let go of.
        """
        if checkpoint < self.floor:
            raise CheckpointTooOldError(self.floor)
        above = [element for element in self._elements if element.ts > checkpoint]
        return above[:PULL_ELEMENTS_MAX]

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The state that is kept in the file, where elements before it are not."""
        if self._state is None or not self.floor:
            return None
        try:
            document = parse(self._state)
        except MalformedError:
            return None
        return StoredSnapshot(document, content_hash(document))

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        """The roster or the keyring that is kept in the file."""
        text: str | None = None
        if self._sharing is not None and name == ROSTER:
            text = self._sharing.roster
        elif self._sharing is not None and name == KEYRING and self._sharing.keyring is not None:
            text = canonical_text(self._sharing.keyring)
        return None if text is None else StoredRecord(text, "kept")

    async def wait(self) -> None:
        """Return when the file has changed, and was read again."""
        while _moment(self._path) == self._moment:
            await asyncio.sleep(LOOK_S)
        await self.look()


@asynccontextmanager
async def opened_local(path: str | os.PathLike[str]) -> AsyncIterator[LocalLog]:
    """The log in a local file, for as long as the block lasts; the file is not touched.

    Raises:
        LocalFileForeignError: It is not a walstore file.
        LocalFileError: It cannot be read, or is damaged.
    """
    place = Path(os.path.realpath(path))
    check_header(place, marked=None)
    owner = read_owner(place)
    with TemporaryDirectory(prefix="walstore-inspect-") as workshop:
        log = LocalLog(place, owner, Path(workshop))
        await log.look()
        yield log


def _elements(file: LocalFile, floor: int) -> list[RawElement]:
    found: list[RawElement] = []
    checkpoint = floor
    while page := file.page(checkpoint, PULL_ELEMENTS_MAX):
        found += page
        checkpoint = page[-1].ts
    return found


def _moment(path: Path) -> Moment:
    found = []
    for each in (path, log_of(path)):
        try:
            status = each.stat()
        except FileNotFoundError:
            continue
        found.append((status.st_mtime_ns, status.st_size))
    return tuple(found)


def _copy(path: Path, copy: Path) -> None:
    for each in copy.parent.iterdir():
        each.unlink()
    try:
        shutil.copyfile(path, copy)
        if log_of(path).exists():
            shutil.copyfile(log_of(path), log_of(copy))
    except OSError as error:
        raise fault_of_system(path, error) from error
