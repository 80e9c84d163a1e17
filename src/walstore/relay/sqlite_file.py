"""The file of a SQLite log: one process owns it, and it is what it was left as, or is refused.

    relay.db        the database          relay.db-lock   who owns it, and how far it had come
    relay.db-wal    its newest changes    relay.db-new    a database that is being made

- The owner holds a lock on the lock file. The kernel lets go of it when the process ends, however
  that happens.
- After each change its number is written into the lock file. A database that is behind that number
  has lost what was answered: its `-wal` file was deleted or damaged, or an old copy was put back.
- A new database is made beside its place and moved there whole. So a file that is empty or cut off
  was not left by us, and is never taken for a new one.
- What is refused is not written to.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import struct
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Literal
from zlib import crc32

from walstore.relay.log import LogCorruptError, LogError, LogInUseError
from walstore.relay.sqlite_rows import STATE_COLUMNS, State, checked
from walstore.relay.sqlite_schema import (
    APPLICATION_ID,
    SQLITE_VERSION_MIN,
    VERSION,
    create,
    expected_schema,
    schema_of,
)

Check = Literal["full", "quick", "none"]

_MAGIC: Final = b"SQLite format 3\x00"
_HEADER_SIZE: Final = 100
_RESTORE: Final = "put a backup in its place, or move the file away to begin a new log"

_CHECKS: Final = {"full": "PRAGMA integrity_check(1)", "quick": "PRAGMA quick_check(1)"}

# What is wrong when SQLite reports one of its primary error codes.
_REASONS: Final = {
    sqlite3.SQLITE_FULL: "the disk is full; nothing was stored",
    sqlite3.SQLITE_READONLY: "the database is read-only; nothing was stored",
    sqlite3.SQLITE_BUSY: "another process has locked the database",
    sqlite3.SQLITE_LOCKED: "another process has locked the database",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
    sqlite3.SQLITE_TOOBIG: "an answer is too large for one read",
}
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Mark:
    """The lock file: whose the database is, and which change was the last to be answered."""

    _FORM: Final = struct.Struct(">QI")

    def __init__(self, database: Path) -> None:
        """Take the database.

        Raises:
            LogError: Another process has it, or the directory cannot be written to.
        """
        self.path = database.with_name(database.name + "-lock")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError as error:
            raise LogError(f"{database.parent}: there is no such directory") from error
        except OSError as error:
            raise LogError(f"{self.path}: {error.strerror}") from error
        if not self._is_ours():
            os.close(self._file)
            raise LogInUseError(
                f"{database}: another relay is running on it; a log belongs to one process"
            )

    def _is_ours(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed it: a lock on what is gone keeps nobody out.
            return os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except OSError:
            return False

    def read(self) -> int:
        """The number of the last change that was noted; 0 if none was.

        Raises:
            LogCorruptError: The lock file is damaged.
        """
        text = os.pread(self._file, self._FORM.size + 1, 0)
        # After a power cut a file may be there, but empty or zero: it says nothing then.
        if not text.strip(b"\x00"):
            return 0
        if len(text) == self._FORM.size:
            generation, expected = self._FORM.unpack(text)
            if crc32(text[:8]) == expected:
                return int(generation)
        raise LogCorruptError(
            f"{self.path} is damaged; remove it if the database beside it is known to be whole"
        )

    def write(self, generation: int) -> None:
        """Note a change that is on disk."""
        number = generation.to_bytes(8, "big")
        # The change counts whether it can be noted or not. A note may lag; it never leads.
        with suppress(OSError):
            os.pwrite(self._file, self._FORM.pack(generation, crc32(number)), 0)

    def close(self) -> None:
        """Let go of the database. A lock file that says nothing is removed."""
        with suppress(OSError):
            if os.fstat(self._file).st_size == 0:
                self.path.unlink()
            os.fsync(self._file)
        os.close(self._file)


def prepare(path: Path, mark: Mark, check: Check) -> State:
    """Make the database if there is none, else see that it is whole, and return its state.

    Raises:
        LogCorruptError: It is damaged or none of ours; nothing was written to it.
        LogError: It cannot be read or made.
    """
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        raise LogError(f"SQLite {sqlite3.sqlite_version} is too old for a relay's log")
    try:
        noted = mark.read()
        if not path.exists():
            _make(path, noted, mark)
        else:
            check_header(path)
        state = _check_content(path, noted, check, mark)
        mark.write(state.generation)
        return state
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        # SQLite quotes what it cannot make sense of, and Python cannot read the quotation.
        raise LogCorruptError(f"{path}: the tables are damaged; {_RESTORE}") from error
    except sqlite3.Error as error:
        raise explained(error, path) from error


def connect(path: Path, *, locked_ms_max: int, is_reader: bool) -> sqlite3.Connection:
    """A connection to a database that is there, to be used by one thread at a time."""
    mode = "ro" if is_reader else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=locked_ms_max / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    # Each commit is synced before it returns; that is what an answer means.
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def explained(error: sqlite3.Error, path: Path) -> LogError:
    """What to raise for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in _DAMAGE or isinstance(error, sqlite3.InternalError):
        return LogCorruptError(f"{path}: the database is damaged ({error}); {_RESTORE}")
    # A text that is no UTF-8 has no code: it comes from Python's side, and only from damage.
    if primary is None and isinstance(error, sqlite3.OperationalError):
        return LogCorruptError(f"{path}: a row is damaged ({error})")
    return LogError(f"{path}: {_REASONS.get(primary or 0, 'the database failed')} ({error})")


def is_locked(error: sqlite3.OperationalError) -> bool:
    """Whether somebody else has locked the database."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _make(path: Path, noted: int, mark: Mark) -> None:
    if noted:
        raise LogCorruptError(
            f"{path} is gone, but {mark.path.name} says that it was in use; put a backup in its"
            f" place, or remove {mark.path.name} to begin a new log"
        )
    draft = path.with_name(path.name + "-new")
    draft.unlink(missing_ok=True)
    create(draft, secrets.token_hex(16))
    os.rename(draft, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def check_header(path: Path) -> None:
    """See that a file is a relay's, of a version that is known, without opening it.

    Raises:
        LogCorruptError: It is not.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_SIZE)
    if len(header) < _HEADER_SIZE:
        raise LogCorruptError(f"{path} is cut off or empty; {_RESTORE}")
    if not header.startswith(_MAGIC):
        raise LogCorruptError(f"{path} is not a SQLite database, or its start is damaged")
    version, application = struct.unpack_from(">4xI", header, 56)[0], header[68:72]
    if int.from_bytes(application, "big") != APPLICATION_ID:
        raise LogCorruptError(f"{path} is not a relay's log; name another file")
    if version > VERSION:
        raise LogCorruptError(
            f"{path} has version {version}, and this walstore reads version {VERSION}: update it"
        )
    if version != VERSION:
        raise LogCorruptError(f"{path} has version {version}, which never was; {_RESTORE}")
    _check_size(path, header)


def _check_size(path: Path, header: bytes) -> None:
    # A move out of the -wal file that was interrupted leaves a part of it; it is made up for.
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        return
    page_size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    if path.stat().st_size < pages * page_size:
        raise LogCorruptError(f"{path} is cut off; {_RESTORE}")


def _check_content(path: Path, noted: int, check: Check, mark: Mark) -> State:
    # A reader's connection: closing it moves nothing from the -wal file into the database.
    with closing(connect(path, locked_ms_max=0, is_reader=True)) as connection:
        if schema_of(connection) != expected_schema():
            raise LogCorruptError(f"{path}: the tables are not a relay's; {_RESTORE}")
        if check != "none":
            ((verdict,),) = connection.execute(_CHECKS[check])
            if verdict != "ok":
                raise LogCorruptError(f"{path}: the database is damaged ({verdict}); {_RESTORE}")
        state = read_state(connection)
    if state.generation < noted:
        raise LogCorruptError(
            f"{path} has lost changes that were answered: it ends at change {state.generation} of"
            f" {noted}. Its -wal file was removed or damaged, or it is an old copy. Put the"
            f" files back, or remove {mark.path.name} to go on without them"
        )
    return state


def read_state(connection: sqlite3.Connection) -> State:
    """The one row of the relay itself.

    Raises:
        LogCorruptError: It is damaged.
    """
    row = connection.execute(f"SELECT {STATE_COLUMNS} FROM state").fetchone()
    if row is None:
        raise LogCorruptError("the relay's own row is missing")
    return State(*checked(row, "the relay's own row"))
