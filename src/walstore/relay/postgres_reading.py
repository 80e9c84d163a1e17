"""Reads a relay's PostgreSQL tables without being a relay.

- Nothing is made or changed: the connections that read are told so, and the server sees to it.
- A role that may only select is enough.
"""

from __future__ import annotations

from typing import Self

from walstore.relay.postgres import PostgresLog
from walstore.relay.postgres_schema import find


class PostgresReading(PostgresLog):
    """The reading half of a `PostgresLog`; what would change something is refused by the server."""

    @classmethod
    async def open(cls, dsn: str) -> Self:
        """Look at a database.

        Args:
            dsn: A libpq connection string or URI.

        Raises:
            LogCorruptError: The tables are newer than this code, or none of a relay's.
            LogError: The database cannot be reached, or holds no relay's tables.
            UsageError: The connection string cannot be read.
        """
        log = cls(dsn)
        # Whatever is called, only those that read are ever connected.
        log._writer = log._keeper = log._readers
        try:
            async with log._readers.take() as connection, connection.transaction():
                log._relay_id = await find(connection)
        except BaseException:
            await log.aclose()
            raise
        return log
