"""One file that others write as well: read without blocking on it, replaced whole or not at all.

- A file is replaced only if it still says what was last read. Where the system can exchange two
  names in one step, that is checked after the fact, and whoever wrote in between gets their file
  back untouched. Elsewhere it is checked right before, and a write within those microseconds is
  lost.
- The new file has the mode and, where that is allowed, the owner of the old one. A symbolic link
  stays one: what it points to is replaced. Other hard links keep the old content.
- When a replacement returns, it is on disk.
- The time, size and inode of a file tell whether it changed. A file that was written a moment
  ago may be written again within the same tick of its clock, so it is read again until it rests.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

# A text beyond this is no document that people edit, and too much to compare while they wait.
FILE_BYTES_MAX = 8 * 2**20

# File systems count time in steps; the coarsest in use count two seconds.
_TICK_NS = 2_000_000_000

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_NEW_MODE = 0o666


class Signature(NamedTuple):
    """What changes when a file does."""

    mtime_ns: int
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it was found.

    Attributes:
        signature: What changes when it does; None if it may change without that, being so new.
        content: What it says.
    """

    signature: Signature | None
    content: bytes


class NotReadableError(OSError):
    """There is something that is not a file, or too much of it."""


class Disk:
    """The files of this computer."""

    def __init__(self, *, size_max: int = FILE_BYTES_MAX) -> None:
        """Read files up to a size."""
        self._size_max = size_max

    def read(self, path: Path, known: Found | None) -> Found | None:
        """The file as it is; `known` itself if it rests since then, None if there is none.

        Raises:
            OSError: It cannot be read, is not a file, or is too large.
        """
        try:
            before = os.stat(path)
            if not stat.S_ISREG(before.st_mode):
                raise NotReadableError("not a regular file")
            if before.st_size > self._size_max:
                raise NotReadableError(f"larger than {self._size_max} bytes")
            if known is not None and known.signature == _signature(before):
                return known
            with path.open("rb") as file:
                content = file.read(self._size_max + 1)
                after = os.fstat(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(content) > self._size_max:
            raise NotReadableError(f"larger than {self._size_max} bytes")
        is_at_rest = time.time_ns() - after.st_mtime_ns > _TICK_NS
        return Found(_signature(after) if is_at_rest else None, content)

    def replace(self, path: Path, content: bytes, expected: bytes | None) -> bool:
        """Make a file say something else; whether it still said what was expected.

        Args:
            path: The file.
            content: What it is to say.
            expected: What it says now; None if there should be none.

        Raises:
            OSError: It cannot be written; it says what it said.
        """
        if len(content) > self._size_max:
            raise NotReadableError(f"more than {self._size_max} bytes")
        target = Path(os.path.realpath(path))
        try:
            draft = _write_draft(target, content, None if expected is None else os.stat(target))
        except FileNotFoundError:
            # The file is gone, or its folder.
            return False
        try:
            if expected is None:
                is_done = _put(draft, target)
            else:
                is_done = _exchange(draft, target, expected)
        finally:
            draft.unlink(missing_ok=True)
        if is_done:
            _sync_folder(target.parent)
        return is_done

    def keep(self, path: Path, content: bytes) -> None:
        """Make a file that nobody else writes say something.

        Raises:
            OSError: It cannot be written.
        """
        draft = _write_draft(path, content, None)
        try:
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)

    def set_aside(self, path: Path, content: bytes) -> Path:
        """Keep what a file said in a new file beside it.

        Raises:
            OSError: It cannot be written.
        """
        number = 1
        while True:
            aside = path.with_name(f"{path.name}.aside-{number}")
            draft = _write_draft(aside, content, os.stat(path))
            try:
                if _put(draft, aside):
                    return aside
            finally:
                draft.unlink(missing_ok=True)
            number += 1


def _signature(found: os.stat_result) -> Signature:
    return Signature(found.st_mtime_ns, found.st_size, found.st_ino)


def _write_draft(target: Path, content: bytes, like: os.stat_result | None) -> Path:
    draft = target.with_name(f".{target.name[:64]}.walstore-{secrets.token_hex(8)}")
    mode = _NEW_MODE if like is None else 0o600
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            if like is not None:
                _liken(file.fileno(), like)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _liken(descriptor: int, like: os.stat_result) -> None:
    if not hasattr(os, "fchmod"):
        return
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
        # Only an administrator gives files away; the mode is kept all the same.
        with suppress(PermissionError):
            os.fchown(descriptor, like.st_uid, like.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def _put(draft: Path, target: Path) -> bool:
    """Give a draft a name that nothing has; whether nothing had it."""
    try:
        os.link(draft, target)
    except FileExistsError:
        return False
    except OSError:
        # Some file systems know no second names.
        return _put_in_two_steps(draft, target)
    return True


def _put_in_two_steps(draft: Path, target: Path) -> bool:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _NEW_MODE))
    except FileExistsError:
        return False
    os.replace(draft, target)
    return True


def _exchange(draft: Path, target: Path, expected: bytes) -> bool:
    """Give a draft the name of a file that says what is expected; whether it did."""
    exchange = _exchanger()
    if exchange is not None and exchange(draft, target):
        if draft.read_bytes() == expected:
            return True
        # Whoever writes it may still be at it, so they get back the very file.
        exchange(draft, target)
        return False
    try:
        if target.read_bytes() != expected:
            return False
    except FileNotFoundError:
        return False
    os.replace(draft, target)
    return True


@cache
def _exchanger() -> Callable[[Path, Path], bool] | None:
    """What exchanges two names in one step, if the system can."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None

    def exchange(left: Path, right: Path) -> bool:
        names = os.fsencode(left), os.fsencode(right)
        return not rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)

    return exchange


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
