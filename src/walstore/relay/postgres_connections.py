"""Connections to PostgreSQL that several tasks share, and what its errors mean to a relay.

- A connection serves one task at a time. It is made when it is first needed.
- One on which something went wrong is closed, and the server rolls back; the next task gets a new
  one.
- Nothing waits for ever: connecting, locks, statements and silent networks have their limits.
- A commit is on the server's disk before it is answered, whatever the server's own setting is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from walstore.errors import UsageError
from walstore.relay.log import LogCorruptError, LogError

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

# A statement reads a page or writes a batch; what takes longer is stuck.
STATEMENT_MS_MAX = 30_000

# Compaction goes through whole documents, and nobody waits for it.
COMPACTION_MS_MAX = 600_000

# Other processes hold the head for one commit; a minute of them would be an outage.
LOCK_MS_MAX = 10_000

# A process that stopped in the middle of a commit must not stop the others for longer.
IDLE_IN_TRANSACTION_MS_MAX = 10_000

# What snapshots cover is compared while it is read, and that keeps nobody from anything.
COMPARING_MS_MAX = 600_000

# What the DSN leaves open. Keepalives and the user timeout end connections whose other side is
# gone.
_DEFAULTS: dict[str, str] = {
    "application_name": "walstore-relay",
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

# Every query has its index, in the order that it asks for. A table that was not analysed yet must
# not be read through instead, and compiling a plan takes longer than running any of ours.
_SET = """
SELECT set_config('synchronous_commit', 'on', false),
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('max_parallel_workers_per_gather', '0', false),
       set_config('jit', 'off', false),
       set_config('statement_timeout', %s, false),
       set_config('lock_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', %s, false)
"""

# What the server says of its own files, and of tables that are not as we made them.
_DAMAGE = (
    errors.DataCorrupted,
    errors.IndexCorrupted,
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.DatatypeMismatch,
    # Places are handed out under a lock, so two of the same can only come from damage.
    psycopg.IntegrityError,
)


def complete(dsn: str) -> str:
    """A DSN with our limits wherever it has none of its own.

    Raises:
        UsageError: It cannot be read. The message does not repeat it: it may hold a password.
    """
    try:
        given = conninfo_to_dict(dsn)
        return make_conninfo(dsn, **{k: v for k, v in _DEFAULTS.items() if k not in given})
    except (psycopg.Error, UnicodeError):
        raise UsageError("the address of the PostgreSQL database cannot be read") from None


@contextmanager
def as_log_errors() -> Iterator[None]:
    """Turns what the driver raises into a `LogError`, with the cause kept."""
    try:
        yield
    except _DAMAGE as error:
        raise LogCorruptError(
            f"the PostgreSQL database is damaged: {_first_line(error)}"
        ) from error
    except psycopg.Error as error:
        raise LogError(f"PostgreSQL cannot do it now: {_first_line(error)}") from error
    except UnicodeError as error:
        raise LogError("a text cannot be stored: it is not Unicode") from error


def _first_line(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class Connections:
    """A few connections to one database, each handed to one task at a time."""

    def __init__(
        self,
        conninfo: str,
        *,
        count: int,
        isolation: psycopg.IsolationLevel,
        statement_ms_max: int = STATEMENT_MS_MAX,
        idle_ms_max: int = IDLE_IN_TRANSACTION_MS_MAX,
        is_read_only: bool = False,
    ) -> None:
        """Prepare; nothing is connected yet.

        Args:
            conninfo: Where the database is.
            count: How many connections there are at most.
            isolation: What a transaction sees of others.
            statement_ms_max: How long a statement may take.
            idle_ms_max: How long a transaction may wait for its next one.
            is_read_only: Whether the server is to refuse every change.
        """
        self._conninfo = conninfo
        self._count = count
        self._isolation = isolation
        self._statement_ms_max = statement_ms_max
        self._idle_ms_max = idle_ms_max
        self._is_read_only = is_read_only
        self._places = asyncio.Semaphore(count)
        self._idle: list[Connection] = []
        self._is_closed = False

    @asynccontextmanager
    async def take(self) -> AsyncIterator[Connection]:
        """A connection for the time of a block; the driver's errors become `LogError`."""
        if self._is_closed:
            raise LogError("the log is closed")
        with as_log_errors():
            async with self._places:
                connection = self._idle.pop() if self._idle else await self.connect()
                try:
                    yield connection
                finally:
                    await self._give_back(connection)

    async def connect(self) -> Connection:
        """A new connection, beside those that are shared.

        Raises:
            psycopg.Error: The database cannot be reached.
        """
        connection = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        try:
            limits = (self._statement_ms_max, LOCK_MS_MAX, self._idle_ms_max)
            await connection.execute(_SET, [str(limit) for limit in limits])
            await connection.set_isolation_level(self._isolation)
            # Said only to forbid: an operator who made the database read-only is not overruled.
            await connection.set_read_only(True if self._is_read_only else None)
            if self._is_read_only:
                # Statements outside a transaction are forbidden to change anything, too.
                await connection.execute("SET default_transaction_read_only = on")
        except BaseException:
            await connection.close()
            raise
        return connection

    async def aclose(self) -> None:
        """Refuse further tasks, let those that have begun finish, and disconnect."""
        self._is_closed = True
        for _ in range(self._count):
            await self._places.acquire()
        for _ in range(self._count):
            self._places.release()
        await self._drop_idle()

    async def _give_back(self, connection: Connection) -> None:
        if connection.info.transaction_status is TransactionStatus.IDLE:
            self._idle.append(connection)
            return
        was_lost = connection.broken
        await connection.close()
        if was_lost:
            # What ended this one, a restart perhaps, has ended the others too.
            await self._drop_idle()

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()
