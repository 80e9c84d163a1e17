"""Making files and names survive a power cut."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform == "darwin":
    import fcntl

    def sync_handle(handle: int) -> None:
        """Make what was written through any handle of a file survive a power cut."""
        # A plain fsync leaves the bytes in the cache of the drive there.
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
else:

    def sync_handle(handle: int) -> None:
        """Make what was written through any handle of a file survive a power cut."""
        os.fsync(handle)


def sync_file(path: Path) -> None:
    """Make the content of a file survive a power cut."""
    with path.open("rb+") as file:
        sync_handle(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power cut; Windows has no such call."""
    if os.name != "posix":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
