"""A disk that fails when it is told to: `faulty_disk.c`, made, loaded into a process and told.

- A process with `environment_with_disk` has calls that can fail; `Disk` is how it has them fail.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("faulty_disk.c")

# Kinds of calls, in the order of `faulty_disk.c`. To create is to open what is not there yet.
KINDS: Final = ("write", "sync", "rename", "open", "create", "read", "truncate", "unlink")


def reason_to_skip() -> str | None:
    """Why there can be no such disk here; None if there can."""
    if sys.platform != "linux":
        return "calls are replaced in the way of Linux"
    return None if shutil.which("cc") else "there is no C compiler `cc`"


def environment_with_disk(directory: Path) -> dict[str, str]:
    """The environment of a process whose calls can fail; what it needs is made in a directory."""
    library = directory / "faulty_disk.so"
    flags = ["-O1", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", "-Wall"]
    subprocess.run(["cc", *flags, "-o", library, _SOURCE], check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}


class Disk:
    """The disk of this process, below one directory."""

    def __init__(self, directory: Path) -> None:
        """Watch a directory; the process was started with `environment_with_disk`."""
        self._library = ctypes.CDLL(None)
        self._library.disk_calls.restype = ctypes.c_long
        self._library.disk_failures.restype = ctypes.c_long
        self._directory = os.fsencode(directory.resolve())
        self.watch()

    def watch(self) -> None:
        """Begin to watch: what is there is synced."""
        self._library.disk_watch(self._directory)

    def fail(self, kinds: tuple[str, ...], index: int, error: int, *, is_lasting: bool) -> None:
        """Have a call of some kinds fail, or all of them from there on; count anew."""
        mask = sum(1 << KINDS.index(kind) for kind in kinds)
        self._library.disk_fail(mask, ctypes.c_long(index), error, is_lasting)

    def heal(self) -> None:
        """Have nothing fail any more; count anew."""
        self.fail((), 0, 0, is_lasting=False)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have nothing fail or count for a while."""
        self._library.disk_pause(True)
        try:
            yield
        finally:
            self._library.disk_pause(False)

    def calls(self) -> dict[str, int]:
        """How many calls of each kind there were."""
        return {kind: self._library.disk_calls(at) for at, kind in enumerate(KINDS)}

    def failures(self) -> int:
        """How many calls have failed."""
        return int(self._library.disk_failures())

    def is_unsynced(self, path: Path) -> bool:
        """Whether a file was written to, or a directory got names, since it was synced."""
        return bool(self._library.disk_is_unsynced(os.fsencode(path)))
