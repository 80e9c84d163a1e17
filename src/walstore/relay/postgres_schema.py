"""The tables of a relay's PostgreSQL database.

    walstore_head ──── one row: who we are, the newest seq. Its lock is the order of acceptance.
    walstore_documents one row a document: head, floor and counts
    walstore_events ── one row an element or snapshot, for ever; the payload may go
    walstore_readers, walstore_grants, walstore_records, walstore_settings

- They stand in the first schema of the search path, made there by whoever comes first.
- Every row carries a checksum over the others of its columns.
- Text is compared byte by byte, so that prefixes are exact and no locale has a say.
- Tables that are newer than this code, or none of ours, are refused and left alone.
"""

from __future__ import annotations

import secrets
from typing import Final, LiteralString

from psycopg.errors import UndefinedColumn

from walstore.relay.log import LogCorruptError, LogError
from walstore.relay.postgres_connections import Connection
from walstore.relay.postgres_rows import Head, with_checksum

FORMAT: Final = "walstore-relay-log"
VERSION: Final = 1

# Two processes that start at once make the tables one after the other.
_CREATION_LOCK: Final = 0x77616C73746F7265

_TABLES: tuple[LiteralString, ...] = (
    """
    CREATE TABLE walstore_head (
        is_head  boolean PRIMARY KEY DEFAULT true CHECK (is_head),
        format   text   NOT NULL,
        version  bigint NOT NULL,
        relay_id text   NOT NULL,
        seq      bigint NOT NULL,
        min_seq  bigint NOT NULL,
        checksum bytea  NOT NULL
    )
    """,
    """
    CREATE TABLE walstore_documents (
        document         text COLLATE "C" PRIMARY KEY,
        elements         bigint NOT NULL,
        payload_bytes    bigint NOT NULL,
        head             bigint NOT NULL,
        floor            bigint NOT NULL,
        snapshots        bigint NOT NULL,
        snapshot_upto    bigint NOT NULL,
        last_accepted_ms bigint NOT NULL,
        checksum         bytea  NOT NULL
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE walstore_events (
        seq              bigint  PRIMARY KEY,
        kind             text    COLLATE "C" NOT NULL,
        document         text    COLLATE "C" NOT NULL,
        id               text    COLLATE "C" NOT NULL,
        author           text    COLLATE "C" NOT NULL,
        ts               bigint  NOT NULL,
        previous_ts      bigint  NOT NULL,
        accepted_ms      bigint  NOT NULL,
        signature        text    COLLATE "C" NOT NULL,
        vc               bytea   NOT NULL,
        is_deletion      boolean NOT NULL,
        checksum         bytea   NOT NULL,
        payload          bytea,
        payload_checksum bytea
    )
    """,
    "CREATE UNIQUE INDEX walstore_events_by_id ON walstore_events (id, document)",
    """
    CREATE UNIQUE INDEX walstore_events_by_ts ON walstore_events (document, ts)
    WHERE kind = 'element'
    """,
    """
    CREATE INDEX walstore_events_by_upto ON walstore_events (document, ts, seq)
    WHERE kind = 'snapshot'
    """,
    """
    CREATE TABLE walstore_readers (
        document   text COLLATE "C" NOT NULL,
        key        text COLLATE "C" NOT NULL,
        checkpoint bigint NOT NULL,
        seen_ms    bigint NOT NULL,
        checksum   bytea  NOT NULL,
        PRIMARY KEY (document, key)
    )
    """,
    """
    CREATE TABLE walstore_grants (
        place       bytea  PRIMARY KEY,
        issued_ms   bigint NOT NULL,
        accepted_ms bigint NOT NULL,
        body        bytea  NOT NULL,
        checksum    bytea  NOT NULL
    )
    """,
    """
    CREATE TABLE walstore_records (
        document text  COLLATE "C" NOT NULL,
        name     text  COLLATE "C" NOT NULL,
        revision text  COLLATE "C" NOT NULL,
        body     bytea NOT NULL,
        checksum bytea NOT NULL,
        PRIMARY KEY (document, name)
    )
    """,
    """
    CREATE TABLE walstore_settings (
        name     text  COLLATE "C" PRIMARY KEY,
        value    bytea NOT NULL,
        checksum bytea NOT NULL
    )
    """,
)

_OURS = """
SELECT relname::text FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND starts_with(relname::text, 'walstore_')
"""
_INSERT_HEAD = """
INSERT INTO walstore_head (format, version, relay_id, seq, min_seq, checksum)
VALUES (%s, %s, %s, %s, %s, %s)
"""
_SERVER = "SELECT current_setting('fsync'), current_setting('server_encoding'), current_schema()"


async def prepare(connection: Connection) -> str:
    """Make the tables if there are none, and return the relay's id.

    Raises:
        LogCorruptError: The tables are newer than this code, or none of ours.
        LogError: The server cannot keep what a log promises.
    """
    await _check_server(connection)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATION_LOCK])
        found = {name for (name,) in await (await connection.execute(_OURS)).fetchall()}
        if not found:
            await _create(connection)
        elif "walstore_head" not in found:
            raise LogCorruptError("there are tables named walstore_… that are not a relay's")
        return await _relay_id(connection)


async def find(connection: Connection) -> str:
    """The relay's id of tables that are there.

    Raises:
        LogCorruptError: The tables are newer than this code, or none of ours.
        LogError: There are none.
    """
    found = {name for (name,) in await (await connection.execute(_OURS)).fetchall()}
    if "walstore_head" not in found:
        raise LogError("there are no tables of a relay in the database")
    return await _relay_id(connection)


async def _check_server(connection: Connection) -> None:
    row = await (await connection.execute(_SERVER)).fetchone()
    assert row is not None
    fsync, encoding, schema = row
    if fsync != "on":
        raise LogError("the PostgreSQL server runs with fsync off: it would lose what it answered")
    if encoding != "UTF8":
        raise LogError(f"the database is encoded in {encoding}; a relay needs UTF8")
    if schema is None:
        raise LogError("no schema of the search path exists in the database")


async def _create(connection: Connection) -> None:
    for statement in _TABLES:
        await connection.execute(statement)
    head = Head(secrets.token_hex(16), seq=0, min_seq=1)
    await connection.execute(_INSERT_HEAD, [FORMAT, VERSION, *with_checksum(head)])


async def _relay_id(connection: Connection) -> str:
    try:
        rows = await connection.execute("SELECT format, version, relay_id FROM walstore_head")
    except UndefinedColumn as error:
        raise LogCorruptError("the table walstore_head is not a relay's") from error
    row = await rows.fetchone()
    if row is None or row[0] != FORMAT:
        raise LogCorruptError("the table walstore_head is not a relay's")
    if row[1] != VERSION:
        raise LogCorruptError(
            f"the tables have version {row[1]}, and this walstore reads version {VERSION}"
        )
    return str(row[2])
