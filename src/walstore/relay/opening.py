"""Opens the database that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from walstore.relay.config import Settings
from walstore.relay.log import RelayLog
from walstore.relay.sqlite import SqliteLog


@asynccontextmanager
async def opened_log(settings: Settings) -> AsyncIterator[RelayLog]:
    """A log, as long as the block lasts.

    Raises:
        LogError: It cannot be opened.
        UsageError: The address of the database cannot be read.
        ModuleNotFoundError: It needs a package that is not installed.
    """
    if not settings.is_postgres:
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
