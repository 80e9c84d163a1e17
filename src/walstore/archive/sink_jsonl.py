"""Commits told to a file: one JSON object on each line.

- A line is on the disk when `publish` returns. One that is told again, as after a restart, is not
  written again if it stands near the end.
- A line that a killed process has left unfinished is finished if only its end is missing, and is
  else cut off before the next one is written: it was never said to be there. A file that ends with
  anything else is not ours, and is left alone.
- The file is opened for each line and locked meanwhile, so it may be moved away at any time and
  several processes may write to it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from walstore.archive.one_thread import OneThread, ThreadBusyError
from walstore.archive.sink import CommitEvent, SinkError, read_event
from walstore.errors import MalformedError
from walstore.local.durable import sync_directory, sync_handle

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        os.lseek(handle, 2**30, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX)


# How every line begins: the members are in the order of their names.
_BEGINNING = b'{"created_at":"'

# How far back the last line is looked for.
_LINE_BYTES_MAX = 2**20

_BINARY = getattr(os, "O_BINARY", 0)


class JsonlSink:
    """Appends events to a file."""

    def __init__(self, path: str | os.PathLike[str], *, name: str = "jsonl") -> None:
        """Tell a file, which is made if it is not there."""
        self._path = Path(path)
        self._name = name
        self._thread = OneThread()

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        return self._name

    async def publish(self, event: CommitEvent) -> None:
        """Append a line durably; raises as `EventSink.publish` does."""
        try:
            await self._thread.run(lambda: self._append(event.text + b"\n"))
        except (OSError, ThreadBusyError) as error:
            raise SinkError(self._name, str(error), retryable=True) from error

    async def aclose(self) -> None:
        """There is nothing to let go of."""

    def _append(self, line: bytes) -> None:
        is_new = not self._path.exists()
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | _BINARY, 0o644)
        try:
            _lock(handle)
            self._append_to(handle, line)
            sync_handle(handle)
        finally:
            os.close(handle)
        if is_new:
            sync_directory(self._path.parent)

    def _append_to(self, handle: int, line: bytes) -> None:
        size = os.lseek(handle, 0, os.SEEK_END)
        tail = _tail(handle, size)
        rest = self._rest(tail)
        if _is_event(rest):
            _write(handle, size, b"\n")
            size, tail, rest = size + 1, tail + b"\n", b""
        if b"\n" + line in b"\n" + tail:
            return
        os.ftruncate(handle, size - len(rest))
        _write(handle, size - len(rest), line)

    def _rest(self, tail: bytes) -> bytes:
        """What stands behind the last whole line."""
        rest = tail[tail.rfind(b"\n") + 1 :]
        if not (rest.startswith(_BEGINNING) or _BEGINNING.startswith(rest)):
            reason = f"{self._path} does not end with a line of events"
            raise SinkError(self._name, reason, retryable=False)
        return rest


def _tail(handle: int, size: int) -> bytes:
    start = max(0, size - _LINE_BYTES_MAX)
    os.lseek(handle, start, os.SEEK_SET)
    return os.read(handle, size - start)


def _write(handle: int, end: int, line: bytes) -> None:
    """Write at the end of a file, all or nothing."""
    os.lseek(handle, end, os.SEEK_SET)
    try:
        written = os.write(handle, line)
        if written < len(line):
            raise OSError(f"only {written} of {len(line)} bytes were written")
    except OSError:
        os.ftruncate(handle, end)
        raise


def _is_event(text: bytes) -> bool:
    try:
        read_event(text)
    except MalformedError:
        return False
    return True
