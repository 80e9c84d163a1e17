"""A copy of a document's local file, to be looked at: whatever is done to it is done to nothing.

- The copy is taken while nobody else has the file, so it is whole.
- A file that turns out to be damaged is set aside as a copy; the one in its place stays there.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from walstore.cli.waiting import in_turn
from walstore.errors import StorageError
from walstore.local.guard import Guard

# The file, what SQLite has not copied into it yet, and the mark of what is known to be durable.
_PARTS = ("", "-wal", ".lock")


@asynccontextmanager
async def copied(file: Path) -> AsyncIterator[Path]:
    """A copy of a local file, for the time of a block.

    Raises:
        BusyFileError: Another program has it open.
        StorageError: It cannot be copied.
    """
    with tempfile.TemporaryDirectory(prefix="walstore-") as directory:
        copy = Path(directory) / file.name
        await in_turn(file, lambda: asyncio.to_thread(_copy, file, copy))
        yield copy


def _copy(file: Path, copy: Path) -> None:
    if not file.exists():
        raise StorageError(f"{file}: there is no such file")
    guard = Guard.acquire(file)
    try:
        for part in _PARTS:
            source = file.with_name(file.name + part)
            if source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + part))
    except OSError as error:
        raise StorageError(f"{file}: it cannot be copied: {error}") from error
    finally:
        guard.close()
