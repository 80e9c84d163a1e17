"""An archive in a directory of a local disk.

    <root>/<key>                an object, as a file
    <root>/.walstore/lock       held while names change
    <root>/.walstore/tmp-…      what is being written, locked by who writes it

- An object is written to a file of its own, synced, and then given its name; the directory is
  synced before anybody is told.
- All names change under one lock of the system's, so `put_if` holds between processes too. It goes
  when its holder does, however that dies; what that had been writing is removed by the next one.
- A revision is the SHA-256 of the bytes.
- The locks are `flock`: a network file system has to honour them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar

from anyio import to_thread

from walstore.archive.destination import ConflictError, DestinationError, Found, Listed, Stored
from walstore.archive.keys import RESERVED, check_key, key_flaw
from walstore.local.durable import sync_directory, sync_handle

# How long others may take to give a file its name. A process that was stopped in the middle of it
# must not stop all others for ever.
LOCK_MS_MAX = 30_000

# How many objects are listed at once before others have their turn.
_LIST_COUNT_MAX = 1000

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class LocalDestination:
    """A directory that holds objects as files."""

    def __init__(self, root: Path | str, *, name: str | None = None) -> None:
        """Name a directory; it is made when something is written."""
        self._root = Path(root).absolute()
        self._own = self._root / RESERVED
        self._name = name or str(self._root)
        self._is_ready = False
        # Directories whose names a power cut may take, as syncing them has failed; each with what
        # tells that failure from a later one. Calls are made in several threads.
        self._unsynced: dict[Path, object] = {}
        self._unsynced_lock = Lock()

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        return self._name

    def uri(self, key: str) -> str:
        """Where an object is, or would be."""
        return self._path(key).as_uri()

    async def put(self, key: str, body: bytes) -> Stored:
        """Store an object durably, in place of one that is there."""
        path = self._path(key)
        await self._run(self._put, path, body, _anything)
        return Stored(path.as_uri(), len(body))

    async def get(self, key: str) -> Found | None:
        """An object; None if there definitely is none."""
        return await self._run(_found, self._path(key))

    async def put_if(self, key: str, body: bytes, revision: str | None) -> str:
        """Replace a revision durably, and return the new one; None if there must not be any."""

        def check(path: Path) -> None:
            if _holds(path) if revision is None else _revision_at(path) != revision:
                raise ConflictError(self._name, key)

        def put(path: Path) -> str:
            self._put(path, body, check)
            return _revision(body)

        return await self._run(put, self._path(key))

    async def list(self, prefix: str) -> AsyncIterator[Listed]:
        """The objects whose keys begin with a prefix, by key."""
        found = self._walk(self._root, "", prefix)
        while page := await self._run(_take, found):
            for listed in page:
                yield listed

    async def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        await self._run(self._delete, self._path(key))

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._root.joinpath(*key.split("/"))

    async def _run(
        self,
        call: Callable[_Given, _Result],
        *args: _Given.args,
        **kwargs: _Given.kwargs,
    ) -> _Result:
        """Make a call that may block, in a thread."""
        try:
            # Whoever gives up waiting must not leave a thread behind that changes names later.
            return await to_thread.run_sync(lambda: self._settled(call, *args, **kwargs))
        except OSError as error:
            raise DestinationError(self._name, _said(error)) from error

    def _settled(
        self,
        call: Callable[_Given, _Result],
        *args: _Given.args,
        **kwargs: _Given.kwargs,
    ) -> _Result:
        """Make a call, once all names are durable: it would take what it finds for that."""
        with self._unsynced_lock:
            unsynced = list(self._unsynced.items())
        for directory, failure in unsynced:
            # One that was empty may have been removed since.
            with suppress(FileNotFoundError):
                self._sync_names(directory)
            self._note_synced(directory, failure)
        return call(*args, **kwargs)

    def _note_synced(self, directory: Path, failure: object) -> None:
        """Note that names are durable, unless another one could not be synced meanwhile."""
        with self._unsynced_lock:
            if self._unsynced.get(directory) is failure:
                del self._unsynced[directory]

    # ── writing ────────────────────────────────────────────────────────────────────────

    def _put(self, path: Path, body: bytes, check: Callable[[Path], None]) -> None:
        """Write an object, and give it its name if a check has nothing against it."""
        self._make_ready()
        with self._temporary() as (temporary, handle):
            _write(handle, body)
            sync_handle(handle)
            with self._lock():
                check(path)
                self._make_directories(path.parent)
                os.replace(temporary, path)
                self._sync_names(path.parent)

    def _delete(self, path: Path) -> None:
        if not _holds(path):
            return
        self._make_ready()
        with self._lock():
            path.unlink(missing_ok=True)
            self._sync_names(self._without_empty(path.parent))

    def _without_empty(self, directory: Path) -> Path:
        """Remove a directory that is empty now, and those above it; the one that is left."""
        with suppress(OSError):
            while directory != self._root:
                directory.rmdir()
                directory = directory.parent
        return directory

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep everybody else from changing names."""
        with _opened(self._own / "lock", os.O_RDWR | os.O_CREAT) as handle:
            _wait_for_lock(handle)
            yield

    @contextmanager
    def _temporary(self) -> Iterator[tuple[Path, int]]:
        """A file without a name of its own yet; it is gone afterwards, unless it got one."""
        path = self._own / f"tmp-{secrets.token_hex(16)}"
        # Under the lock, so that nobody finds the file before it is locked.
        with self._lock():
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield path, handle
        finally:
            # What cannot be removed now is removed by the next one, once its lock is free.
            with suppress(OSError):
                path.unlink()
            os.close(handle)

    def _make_ready(self) -> None:
        """Make the directory, and remove what the dead have left, once."""
        if self._is_ready and self._own.is_dir():
            return
        self._make_directories(self._own)
        with self._lock():
            for path in self._own.glob("tmp-*"):
                _remove_if_abandoned(path)
        self._is_ready = True

    def _make_directories(self, directory: Path) -> None:
        """Make a directory and those above it, durably."""
        if directory.is_dir():
            return
        self._make_directories(directory.parent)
        directory.mkdir(exist_ok=True)
        self._sync_names(directory.parent)

    def _sync_names(self, directory: Path) -> None:
        """Make the names in a directory durable; if that fails, the next call tries it first."""
        try:
            sync_directory(directory)
        except FileNotFoundError:
            raise
        except OSError:
            with self._unsynced_lock:
                self._unsynced[directory] = object()
            raise

    # ── listing ────────────────────────────────────────────────────────────────────────

    def _walk(self, directory: Path, above: str, prefix: str) -> Iterator[Listed]:
        """The objects in a directory and below it, by key."""
        for key, entry in _sorted_entries(directory, above):
            if entry.is_dir(follow_symlinks=False):
                is_own = key == f"{RESERVED}/"
                if not is_own and (key.startswith(prefix) or prefix.startswith(key)):
                    yield from self._walk(directory / entry.name, key, prefix)
            elif key.startswith(prefix) and key_flaw(key) is None and entry.is_file():
                # Between the two somebody may have removed it.
                with suppress(FileNotFoundError):
                    found = entry.stat()
                    yield Listed(key, found.st_size, found.st_mtime_ns // 10**6)


def _sorted_entries(directory: Path, above: str) -> list[tuple[str, os.DirEntry[str]]]:
    """What is in a directory by key; those of directories end with a slash, and sort with it."""
    try:
        with os.scandir(directory) as entries:
            found = {above + _segment(entry): entry for entry in entries}
    except FileNotFoundError:
        return []
    return sorted(found.items())


def _segment(entry: os.DirEntry[str]) -> str:
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _take(found: Iterator[Listed]) -> list[Listed]:
    return list(islice(found, _LIST_COUNT_MAX))


def _wait_for_lock(handle: int) -> None:
    deadline = time.monotonic() + LOCK_MS_MAX / 1000
    pause = 0.0005
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock") from None
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _anything(path: Path) -> None:
    """Have nothing against what is there."""


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _found(path: Path) -> Found | None:
    body = _read(path)
    return None if body is None else Found(body, _revision(body))


def _holds(path: Path) -> bool:
    try:
        return not stat.S_ISDIR(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _revision_at(path: Path) -> str | None:
    body = _read(path)
    return None if body is None else _revision(body)


def _revision(body: bytes) -> str:
    return sha256(body).hexdigest()


def _write(handle: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _remove_if_abandoned(path: Path) -> None:
    """Remove a temporary file whose writer is dead: only then is its lock free."""
    with suppress(FileNotFoundError, BlockingIOError), _opened(path, os.O_WRONLY) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    handle = os.open(path, flags, 0o666)
    try:
        yield handle
    finally:
        os.close(handle)


def _said(error: OSError) -> str:
    return error.strerror or str(error)
