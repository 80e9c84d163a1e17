"""A node's disk: real files in a directory of their own, and what is left of them after a crash.

- A process that is killed leaves its files as they are. A power cut leaves what was synced, and of
  the rest any part: sectors are written in any order, and the last ones may be torn.
- What SQLite syncs by itself is known from what it is told to do: it syncs when it copies its log
  into the database, and it begins a log only after the one before is safe.
- A full disk refuses to take more. The disk of a process that is gone takes and gives nothing.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

_SECTOR_BYTES = 512
_LOG_HEADER_BYTES = 32

_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


class Disk:
    """One directory, as long as one process uses it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.is_full = False
        # Whether its process is gone.
        self.is_dead = False
        # What would survive a power cut of each write-ahead log.
        self._synced: dict[str, bytes] = {}

    def sync(self, handle: int) -> None:
        """Make a file survive a power cut."""
        inode = os.fstat(handle).st_ino
        for path in self._logs():
            if path.stat().st_ino == inode:
                self._synced[path.name] = path.read_bytes()

    def _logs(self) -> list[Path]:
        return [path for path in self.directory.iterdir() if path.name.endswith("-wal")]

    def before(self, statement: str) -> None:
        """Let a statement be carried out, or fail.

        Raises:
            sqlite3.OperationalError: There is no room, or no disk any more.
        """
        if self.is_dead:
            raise _failed("disk I/O error", sqlite3.SQLITE_IOERR)
        if self.is_full and statement.lstrip().upper().startswith(_WRITES):
            raise _failed("database or disk is full", sqlite3.SQLITE_FULL)

    def after(self, statement: str) -> None:
        """Note what a statement has made safe."""
        if statement.startswith("PRAGMA wal_checkpoint"):
            self._synced = {path.name: path.read_bytes() for path in self._logs()}

    def survive(self, directory: Path, chance: Random, *, is_power_cut: bool) -> Disk:
        """The disk that the next process finds, in another directory."""
        disk = Disk(directory)
        for path in sorted(self.directory.iterdir()):
            content = path.read_bytes()
            if is_power_cut and path.name.endswith("-wal"):
                content = self._torn(path.name, content, chance)
            (directory / path.name).write_bytes(content)
        return disk

    def remove(self) -> None:
        """Let it go."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _torn(self, name: str, content: bytes, chance: Random) -> bytes:
        """What is left of a write-ahead log."""
        synced = self._synced.get(name, b"")
        if synced[:_LOG_HEADER_BYTES] != content[:_LOG_HEADER_BYTES]:
            # Another log has begun since; SQLite syncs its header before anything else.
            synced = content[:_LOG_HEADER_BYTES]
        end = chance.randint(len(synced), len(content)) if len(content) > len(synced) else None
        torn = bytearray(content[:end])
        if chance.random() < 0.5:
            # Some of the sectors that had the time to be written were not.
            first = -(-len(synced) // _SECTOR_BYTES)
            for sector in range(first, len(torn) // _SECTOR_BYTES):
                if chance.random() < 0.3:
                    start = sector * _SECTOR_BYTES
                    torn[start : start + _SECTOR_BYTES] = bytes(_SECTOR_BYTES)
        return bytes(torn)


class _Connection(sqlite3.Connection):
    """A connection to a database on a disk of ours."""

    disk: Disk

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.disk.before(sql)
        cursor = super().execute(sql, parameters)
        if sql.startswith("PRAGMA wal_checkpoint"):
            # It is done when its answer was read.
            rows = cursor.fetchall()
            self.disk.after(sql)
            return super().execute("SELECT ?, ?, ?", rows[0])
        return cursor

    def executemany(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        self.disk.before(sql)
        return super().executemany(sql, parameters)


def connect_to(disk: Disk | None, *args: Any, **kwargs: Any) -> sqlite3.Connection:
    """A connection to a database, on a disk of ours if there is one."""
    if disk is None:
        plain: sqlite3.Connection = _connect(*args, **kwargs)
        return plain
    connection: _Connection = _connect(*args, factory=_Connection, **kwargs)
    connection.disk = disk
    return connection


_connect = sqlite3.connect


def _failed(message: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error
