"""Opens the database that the settings name."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from walstore.relay.config import Settings
from walstore.relay.log import RelayLog
from walstore.relay.sqlite import SqliteLog

_logger = logging.getLogger("walstore.relay")

# A smaller file is looked through before anybody wonders.
_LARGE_BYTES = 128 * 2**20


@asynccontextmanager
async def opened_log(settings: Settings) -> AsyncIterator[RelayLog]:
    """A log, as long as the block lasts.

    Raises:
        LogError: It cannot be opened.
        UsageError: The address of the database cannot be read.
        ModuleNotFoundError: It needs a package that is not installed.
    """
    if not settings.is_postgres:
        _announce_check(settings)
        async with SqliteLog.open(settings.database, check=settings.database_check) as log:
            yield log
        return
    # Its driver is an extra of its own, which most relays do without.
    postgres = import_module("walstore.relay.postgres")
    opened: RelayLog = await postgres.PostgresLog.open(settings.database)
    try:
        yield opened
    finally:
        await opened.aclose()


def _announce_check(settings: Settings) -> None:
    path, check = Path(settings.database), settings.database_check
    try:
        size = path.stat().st_size
    except OSError:
        # There is none, or opening it tells what is wrong.
        return
    if check == "none" or size < _LARGE_BYTES:
        return
    hint = '; with database_check = "quick" that is faster' if check == "full" else ""
    _logger.info("looking through %s before it is used, %d MiB%s", path, size >> 20, hint)
