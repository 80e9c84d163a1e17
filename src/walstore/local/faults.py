"""The errors of a local file, each saying what to do next.

- Those on the `StorageError` branch are about the disk; nothing is half-written when one is raised.
- A damaged file is set aside before the error is raised, so that opening again starts afresh.
"""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from walstore.errors import StorageError, UsageError


class LocalFileError(StorageError):
    """A local file cannot be used.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class LocalFileInUseError(LocalFileError):
    """Another process, or this one, has the file open; one at a time may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "the file is open already; close it there first")


class LocalFileForeignError(LocalFileError):
    """The file is not one of walstore's; nothing was written to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "this is not a walstore file; choose another path")


class LocalFileNewerError(LocalFileError):
    """The file was written by a newer walstore; nothing was written to it.

    Attributes:
        version: The version of the file's schema.
    """

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(path, f"schema version {version} needs a newer walstore; upgrade it")
        self.version = version


class OtherDocumentError(LocalFileError):
    """The file is that of another document; nothing was written to it.

    Attributes:
        document_key: The document whose file it is.
    """

    def __init__(self, path: Path, document_key: str) -> None:
        super().__init__(
            path, f"this is the file of the document {document_key!r}; choose another path"
        )
        self.document_key = document_key


class OtherAuthorError(LocalFileError):
    """The file is that of another author; nothing was written to it.

    Attributes:
        author: The author whose file it is.
    """

    def __init__(self, path: Path, author: str) -> None:
        super().__init__(
            path,
            f"this is the file of the author {author[:8]}…; open it with that identity, or "
            "choose another path",
        )
        self.author = author


class LocalFileFullError(LocalFileError):
    """The disk is full: the call did nothing, and works again when there is room."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "the disk is full; make room and call again")


class LocalFileReadOnlyError(LocalFileError):
    """The file, or its directory, cannot be written to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "the file or its directory is read-only; check its permissions")


class LocalFileNowhereError(LocalFileError):
    """The directory of the file is not there; it is not made by itself."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "there is no such directory; make it first")


class LocalFileFailedError(LocalFileError):
    """The system failed to read or write; the call did nothing and may be made again.

    Attributes:
        reason: What the system says.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, f"the disk failed: {reason}")
        self.reason = reason


class LocalFileDamagedError(LocalFileError):
    """The file was damaged and is set aside; opening again starts afresh.

    Attributes:
        reason: What is wrong with it.
        damaged: Where the file is now; None if there was only its write-ahead log.
        unsent: The edits that were not sent yet, for `read_unsent`; None if none was found.
        saved: How many edits and bodies are in there.
        lost: How many more there were; None if that cannot be told.
    """

    def __init__(
        self,
        path: Path,
        reason: str,
        *,
        damaged: Path | None,
        unsent: Path | None,
        saved: int,
        lost: int | None,
    ) -> None:
        kept = f"{saved} unsent edits are in {unsent}" if unsent else "no unsent edits were found"
        more = "an unknown number is lost" if lost is None else f"{lost} are lost"
        super().__init__(
            path,
            f"damaged ({reason}); set aside as {damaged or 'its -wal alone'}; {kept}, {more}; "
            "open again to start afresh",
        )
        self.reason = reason
        self.damaged = damaged
        self.unsent = unsent
        self.saved = saved
        self.lost = lost


class UnsentFileError(LocalFileError):
    """This is not a file of unsent edits."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "this is not a file of unsent edits")


class LocalFileClosedError(UsageError):
    """The file is used after it was closed, or in a child of the process that opened it."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is not open here; open it first")
        self.path = path


class NotStorableError(UsageError):
    """A value beyond what a local file holds; nothing was written.

    Attributes:
        what: What the value is.
        reason: What is wrong with it.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"cannot store {what}: {reason}")
        self.what = what
        self.reason = reason


class DamageFoundError(Exception):
    """The file is not what was written: a signal inside this package, never seen outside of it.

    Attributes:
        reason: What is wrong with it.
        hides_loss: Whether edits may be gone without a trace in what can still be read.
    """

    def __init__(self, reason: str, *, hides_loss: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hides_loss = hides_loss


# A page that is not there: the file was cut short. Any other failed read may succeed later.
_DAMAGED_IO = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})

_FAILED = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM})


# What calls of SQLite raise. Damaged names and messages of SQLite about them are no Unicode.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


def fault_of(
    path: Path, error: sqlite3.Error | UnicodeDecodeError
) -> LocalFileError | DamageFoundError:
    """What an error of SQLite means for a file that is ours."""
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    code = extended & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LocalFileInUseError(path)
    if code == sqlite3.SQLITE_FULL:
        return LocalFileFullError(path)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return LocalFileReadOnlyError(path)
    if code in _FAILED and extended not in _DAMAGED_IO:
        return LocalFileFailedError(path, str(error))
    return DamageFoundError(str(error))


def failure_of(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> LocalFileError:
    """What an error of SQLite means for a file that was just written: it cannot be damaged."""
    fault = fault_of(path, error)
    if isinstance(fault, DamageFoundError):
        return LocalFileFailedError(path, str(error))
    return fault


def fault_of_system(path: Path, error: OSError) -> LocalFileError:
    """What an error of the operating system means for a file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LocalFileFullError(path)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return LocalFileReadOnlyError(path)
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not path.parent.is_dir():
        return LocalFileNowhereError(path)
    return LocalFileFailedError(path, error.strerror or str(error))
