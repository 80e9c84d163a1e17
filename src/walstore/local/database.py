"""The SQLite connection of a local file: calls that are whole or not at all, and durability.

    call ──► written to `<file>-wal`     survives the end of this process, however it comes
    sync ──► the log is synced           survives a power cut
         ──► and, once it is long, copied into the file and cut to nothing

- The connection holds SQLite's own lock for as long as it is open, so other programs stay out too;
  there is no `-shm` file.
- A call is written to the system before it returns; `sync` alone syncs. It writes a tick, syncs the
  log, then marks the tick beside the file (`guard`). A file that comes back without the marked
  tick has lost its log.
- Calls may come from several threads and take turns. Syncing the log keeps nobody waiting; copying
  it does, for some milliseconds.
- A child that a process forks does not inherit the file: two of them would write over each other.
- Damage that is noticed on the way closes the file and sets it aside (`salvage`).
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakSet

from walstore.local.durable import sync_directory, sync_handle
from walstore.local.faults import (
    SQLITE_ERRORS,
    DamageFoundError,
    LocalFileClosedError,
    LocalFileDamagedError,
    LocalFileError,
    fault_of,
    fault_of_system,
)
from walstore.local.frames import committed_frames
from walstore.local.guard import Guard
from walstore.local.rows import Cell, checked, verified
from walstore.local.salvage import log_kept, log_of, set_aside
from walstore.local.schema import QUEUE_TABLES, Owner, check_tables

# A sync copies a log of this size into the file: about a thousand keystrokes.
CHECKPOINT_BYTES = 4 * 2**20

# A call copies a log of this size itself, for callers that never sync.
LOG_BYTES_MAX = 64 * 2**20

# How many calls there are between two looks at the size of the log.
_CALLS_PER_LOOK = 256

# Checking the structure of a file takes about a millisecond for each megabyte. Beyond this size
# only the tables with unsent edits are checked; rows are checked when they are read, at any size.
CHECK_BYTES_MAX = 256 * 2**20

_TICK = b"\0tick"

_SETTINGS = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    # A log that SQLite copies in passing is written over afterwards, and not cut: see `frames`.
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA cell_size_check = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA temp_store = MEMORY",
)


class Database:
    """One local file, open and guarded."""

    def __init__(self, path: Path, guard: Guard, owner: Owner) -> None:
        """Open a file that was found to be its owner's.

        Raises:
            LocalFileDamagedError: The file is damaged and was set aside.
            LocalFileError: It cannot be opened.
            DamageFoundError: Its log is damaged; nothing was touched yet.
        """
        self.path = path
        self._guard = guard
        self._owner = owner
        self._turn = threading.RLock()
        self._calls = 0
        self._tick = 0
        self._log_handle = -1
        # Whether syncing the log is not enough, because a sync has failed.
        self._must_copy = False
        # Whether there is damage that could not be set aside so far.
        self._is_damaged = False
        claimed = committed_frames(log_of(path))
        try:
            self._connection: sqlite3.Connection | None = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise fault_of(path, error) from error
        try:
            self._start(claimed)
        except BaseException:
            self._give_up()
            raise
        _OPEN.add(self)

    def close(self) -> None:
        """Copy the log into the file and let go of it; closing again does nothing."""
        with self._turn:
            if self._is_damaged:
                self._give_up()
                return
            self._disconnect()
            self._guard.close()

    # ── calls ──────────────────────────────────────────────────────────────────────────

    @contextmanager
    def call(self) -> Iterator[sqlite3.Connection]:
        """Use the connection, with errors for what they mean here.

        Raises:
            LocalFileDamagedError: Damage was noticed, and the file set aside.
            LocalFileError: It failed.
            LocalFileClosedError: The file is not open.
        """
        with self._turn:
            if self._connection is None:
                raise LocalFileClosedError(self.path)
            try:
                yield self._connection
            except DamageFoundError as damage:
                self._set_aside(damage)
            except SQLITE_ERRORS as error:
                fault = fault_of(self.path, error)
                if isinstance(fault, DamageFoundError):
                    self._set_aside(fault)
                raise fault from error
            except OSError as error:
                raise fault_of_system(self.path, error) from error

    def execute(self, statement: str, cells: Sequence[Cell] = ()) -> list[Any]:
        """Run one statement, whole or not at all, and return its rows.

        Raises:
            LocalFileError: It failed.
            LocalFileClosedError: The file is not open.
        """
        with self.call() as connection:
            rows = connection.execute(statement, cells).fetchall()
            self._bound_log()
            return rows

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run several statements, all or none.

        Raises:
            LocalFileError: One failed.
            LocalFileClosedError: The file is not open.
        """
        with self.call() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Transaction(connection)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            self._bound_log()

    # ── durability ─────────────────────────────────────────────────────────────────────

    def sync(self) -> None:
        """Make everything before it survive a power cut.

        Raises:
            LocalFileError: It is not known to.
            LocalFileClosedError: The file is not open.
        """
        if self._must_copy:
            self._copy_log()
        elif self._log_bytes() >= CHECKPOINT_BYTES:
            # Synced first, with nobody waiting, it takes less time to copy.
            self._sync_log()
            self._copy_log()
        tick = self._write_tick()
        self._sync_log()
        with self.call():
            self._guard.set_mark(self._owner.file_id, tick)

    def abandon(self) -> None:
        """Forget the file in a forked child: not even closing may touch what the parent holds."""
        # A connection that is let go of copies and removes the log; this one never is.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._connection = None
        self._turn = threading.RLock()
        os.close(self._log_handle)
        self._guard.close()

    def _start(self, claimed: int) -> None:
        with self.call() as connection:
            for setting in _SETTINGS:
                connection.execute(setting)
            check_tables(connection)
            _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames < claimed:
                raise DamageFoundError("the write-ahead log is damaged", hides_loss=True)
            _check_structure(connection, self.path)
            self._tick = _read_tick(connection)
            if self._guard.mark(self._owner.file_id) > self._tick:
                raise DamageFoundError("its -wal was lost, or all since a backup", hides_loss=True)
            self._copy_log()
            # The log has to be there before it can be opened and synced.
            self._write_tick()
            self._log_handle = os.open(log_of(self.path), os.O_RDWR | getattr(os, "O_BINARY", 0))
            sync_directory(self.path.parent)
        self.sync()

    def _bound_log(self) -> None:
        self._calls += 1
        if self._calls % _CALLS_PER_LOOK:
            return
        try:
            if self._log_bytes() >= LOG_BYTES_MAX:
                self._copy_log()
        except LocalFileDamagedError:
            raise
        except LocalFileError:
            # The call itself is done. Where there is no room to copy, the log grows on.
            pass

    def _log_bytes(self) -> int:
        with self.call():
            return os.fstat(self._log_handle).st_size

    def _copy_log(self) -> None:
        """Copy the log into the file, both synced, and cut it to nothing."""
        with self.call() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._must_copy = False

    def _write_tick(self) -> int:
        with self.call() as connection:
            tick = self._tick + 1
            row = checked(_TICK, b"%d" % tick)
            connection.execute("INSERT OR REPLACE INTO slots VALUES (?, ?, ?)", row)
            self._tick = tick
            return tick

    def _sync_log(self) -> None:
        with self.call():
            handle = os.dup(self._log_handle)
        try:
            sync_handle(handle)
        except OSError as error:
            # The system may take the bytes for written from now on: only a copy is sure.
            self._must_copy = True
            raise fault_of_system(self.path, error) from error
        finally:
            os.close(handle)

    def _set_aside(self, damage: DamageFoundError) -> NoReturn:
        try:
            damaged = set_aside(self.path, self._owner, damage, self._disconnect)
        except BaseException:
            # As long as the file is open, it is where it was: the next call finds the damage again.
            self._is_damaged = True
            if self._connection is None:
                self._give_up()
            raise
        self._give_up()
        raise damaged from damage

    def _give_up(self) -> None:
        """Let go of the file, and leave its log: SQLite would copy what is before a damaged frame
        and remove the log, and nobody would ever miss what is behind.
        """
        try:
            with log_kept(self.path):
                self._disconnect()
        finally:
            self._guard.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        _OPEN.discard(self)
        if self._log_handle >= 0:
            os.close(self._log_handle)
        connection.close()


class Transaction:
    """Statements that take effect together."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, cells: Sequence[Cell] = ()) -> None:
        """Run a statement."""
        self._connection.execute(statement, cells)

    def each(self, statement: str, rows: Iterable[Sequence[Cell]]) -> None:
        """Run a statement once for each row."""
        self._connection.executemany(statement, rows)


def _check_structure(connection: sqlite3.Connection, path: Path) -> None:
    is_small = path.stat().st_size <= CHECK_BYTES_MAX
    for scope in ("",) if is_small else (f"({table})" for table in QUEUE_TABLES):
        (verdict,) = connection.execute(f"PRAGMA quick_check{scope}").fetchone()
        if verdict != "ok":
            # The first line only names the database.
            raise DamageFoundError(verdict.splitlines()[-1])


def _read_tick(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT * FROM slots WHERE name = ?", (_TICK,)).fetchone()
    return 0 if row is None else int(verified(row, "a tick")[1])


# The files that this process has open.
_OPEN: WeakSet[Database] = WeakSet()


def _abandon_all() -> None:
    for database in list(_OPEN):
        database.abandon()
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
