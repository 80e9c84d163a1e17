"""Collects the orphans of archives while they are being written: after each base, and every hour.

- Each place is tidied by its own manifest: one that is behind still needs what it names.
- What cannot be tidied now is tidied the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import anyio

from walstore.archive.destination import DestinationError
from walstore.archive.orphans import collect_orphans
from walstore.archive.reader import Archive, ArchiveNotFoundError
from walstore.errors import WalStoreError

_logger = logging.getLogger("walstore.archive")

EVERY_S = 3600.0


class Tidying:
    """Tidies the archives of one service."""

    def __init__(
        self,
        archives: Callable[[], Iterable[Archive]],
        *,
        grace_ms: int,
        now_ms: Callable[[], int],
        on_error: Callable[[WalStoreError], None],
    ) -> None:
        """Describe it; nothing is removed yet.

        Args:
            archives: What there is to tidy now.
            grace_ms: How old an object that nobody names must be.
            now_ms: The time in milliseconds since 1970.
            on_error: Told of what could not be tidied.
        """
        self._archives = archives
        self._grace_ms = grace_ms
        self._now_ms = now_ms
        self._on_error = on_error
        self._due = anyio.Event()

    def soon(self) -> None:
        """Do it soon: a base was written, so an epoch may be gone."""
        self._due.set()

    async def run(self) -> None:
        """Go on for ever."""
        while True:
            with anyio.move_on_after(EVERY_S):
                await self._due.wait()
            self._due = anyio.Event()
            for archive in self._archives():
                await self._tidy(archive)

    async def _tidy(self, archive: Archive) -> None:
        name = archive.destination.name
        try:
            orphans = await collect_orphans(archive, now_ms=self._now_ms(), grace_ms=self._grace_ms)
        except ArchiveNotFoundError:
            return
        except WalStoreError as error:
            _logger.warning("%s could not be tidied: %s", name, error)
            if isinstance(error, DestinationError):
                self._on_error(error)
            return
        if orphans.objects:
            count = len(orphans.objects)
            _logger.info("%s: %d orphans removed, %d bytes", name, count, orphans.size_bytes)
