"""One process at a time: the lock beside a local file, and the mark in it of what was synced.

- The lock is the system's, on `<file>.lock`. It goes when its holder does, however that dies, and
  keeps out this process as it does others. The file itself stays; removing it would let two in.
- On Linux and macOS it is `flock`, on Windows a locked byte far beyond the content.
- The mark names a local file and the last tick of it that a sync made durable. A local file that
  does not hold that tick has lost something: its write-ahead log, or everything since a backup.
- A mark that cannot be read says nothing.
"""

from __future__ import annotations

import os
import struct
import sys
from io import FileIO
from pathlib import Path
from zlib import crc32

from walstore.local.faults import LocalFileInUseError, fault_of_system

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        os.lseek(handle, 2**30, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


FILE_ID_BYTES = 8

_MAGIC = b"walmark1"
_MARK = struct.Struct(f">8s{FILE_ID_BYTES}sQL")


class Guard:
    """The lock of one local file, held until it is closed."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: Path, file: FileIO) -> None:
        self._path = path
        self._file = file

    @classmethod
    def acquire(cls, path: Path) -> Guard:
        """Take the lock of a local file.

        Raises:
            LocalFileInUseError: Somebody holds it.
            LocalFileError: The file of the lock cannot be made or opened.
        """
        beside = path.with_name(path.name + ".lock")
        try:
            file = FileIO(os.open(beside, os.O_RDWR | os.O_CREAT | _BINARY, 0o600), "r+")
        except OSError as error:
            raise fault_of_system(path, error) from error
        try:
            _lock(file.fileno())
        except OSError as error:
            file.close()
            raise LocalFileInUseError(path) from error
        return cls(path, file)

    def close(self) -> None:
        """Let go of the lock."""
        self._file.close()

    @property
    def marked(self) -> bytes | None:
        """The id of the local file that was marked last, None if none was.

        Raises:
            LocalFileError: It cannot be read.
        """
        found = self._read()
        return None if found is None else found[0]

    def mark(self, file_id: bytes) -> int:
        """The tick that is known to be durable in a local file, 0 if none is.

        Raises:
            LocalFileError: It cannot be read.
        """
        found = self._read()
        return found[1] if found is not None and found[0] == file_id else 0

    def set_mark(self, file_id: bytes, tick: int) -> None:
        """Note that a tick of a local file is durable."""
        self._file.seek(0)
        self._file.write(_MARK.pack(_MAGIC, file_id, tick, _mark_crc(file_id, tick)))

    def _read(self) -> tuple[bytes, int] | None:
        try:
            self._file.seek(0)
            raw = self._file.read(_MARK.size)
        except OSError as error:
            raise fault_of_system(self._path, error) from error
        if raw is None or len(raw) != _MARK.size:
            return None
        magic, file_id, tick, crc = _MARK.unpack(raw)
        return (file_id, tick) if magic == _MAGIC and crc == _mark_crc(file_id, tick) else None


_BINARY = getattr(os, "O_BINARY", 0)


def _mark_crc(file_id: bytes, tick: int) -> int:
    return crc32(b"%b%d" % (file_id, tick))
