"""The tables of a relay's SQLite database.

    state ───── one row: who we are, the newest seq, how many changes were made
    documents ─ one row a document: head, floor and counts
    events ──── one row an element or snapshot, for ever, in the relay's order
    payloads ── what the events carry, until it is compacted
    readers, grants, records, settings

- Payloads stand apart, so that compacting them frees whole pages, and rows are read without them.
- An element has its payload if it is above its document's floor; a snapshot says so itself.
- Every row carries a checksum over the others of its columns. What is looked up by a key has an
  index apart from its table, so that a damaged key shows when the two are compared.
- Text is compared byte by byte, so that prefixes are exact.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from walstore.relay.log import LogError
from walstore.relay.sqlite_rows import State, sealed

# "wals": what tells our files from others' (bytes 68 to 71 of the file).
APPLICATION_ID: Final = 0x77616C73

# What tells our files of different layouts apart (bytes 60 to 63 of the file).
VERSION: Final = 1

# What says that a database has a write-ahead log (bytes 18 and 19 of the file).
_HAS_LOG: Final = b"\2\2"

# Strict tables.
SQLITE_VERSION_MIN: Final = (3, 37, 0)

TABLES: Final = (
    """
    CREATE TABLE state (
        one        INTEGER PRIMARY KEY CHECK (one = 1),
        relay_id   TEXT    NOT NULL,
        head_seq   INTEGER NOT NULL,
        min_seq    INTEGER NOT NULL,
        documents  INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        checksum   INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE documents (
        number           INTEGER PRIMARY KEY,
        key              TEXT    NOT NULL UNIQUE,
        head             INTEGER NOT NULL,
        floor            INTEGER NOT NULL,
        elements         INTEGER NOT NULL,
        snapshots        INTEGER NOT NULL,
        payload_bytes    INTEGER NOT NULL,
        snapshot_upto    INTEGER NOT NULL,
        accepted         INTEGER NOT NULL,
        last_accepted_ms INTEGER NOT NULL,
        checksum         INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE events (
        seq         INTEGER PRIMARY KEY,
        document    INTEGER NOT NULL,
        kind        INTEGER NOT NULL,
        id          TEXT    NOT NULL,
        author      TEXT    NOT NULL,
        ts          INTEGER NOT NULL,
        previous_ts INTEGER NOT NULL,
        accepted_ms INTEGER NOT NULL,
        signature   TEXT    NOT NULL,
        size        INTEGER NOT NULL,
        vc          TEXT    NOT NULL,
        is_deletion INTEGER NOT NULL,
        is_removed  INTEGER NOT NULL,
        checksum    INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX events_by_id ON events (id, document)",
    "CREATE INDEX events_by_ts ON events (document, kind, ts)",
    """
    CREATE INDEX snapshots_there ON events (document, ts) WHERE kind = 1 AND is_removed = 0
    """,
    """
    CREATE TABLE payloads (
        seq      INTEGER PRIMARY KEY,
        checksum INTEGER NOT NULL,
        payload  BLOB    NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE readers (
        document   TEXT    NOT NULL,
        key        TEXT    NOT NULL,
        checkpoint INTEGER NOT NULL,
        seen_ms    INTEGER NOT NULL,
        checksum   INTEGER NOT NULL,
        PRIMARY KEY (document, key)
    ) STRICT
    """,
    """
    CREATE TABLE grants (
        by_key   TEXT    NOT NULL,
        to_key   TEXT    NOT NULL,
        prefix   TEXT    NOT NULL,
        at       INTEGER NOT NULL,
        text     TEXT    NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (by_key, to_key, prefix)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE records (
        document TEXT    NOT NULL,
        name     TEXT    NOT NULL,
        text     TEXT    NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (document, name)
    ) STRICT
    """,
    """
    CREATE TABLE settings (
        name     TEXT    NOT NULL PRIMARY KEY,
        text     TEXT    NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)


def create(path: Path, relay_id: str) -> None:
    """Make an empty database in a new file, on disk when this returns.

    Raises:
        LogError: It could not be given a write-ahead log.
        OSError: It cannot be read.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # Only an empty file can be told to give pages back.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("BEGIN")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        _make_tables(connection)
        state = State(relay_id, head_seq=0, min_seq=1, documents=0, generation=1)
        connection.execute("INSERT INTO state VALUES (1, ?, ?, ?, ?, ?, ?)", sealed(tuple(state)))
        connection.execute("COMMIT")
        # Last, so that everything above stands in the file itself.
        connection.execute("PRAGMA journal_mode = WAL")
    # SQLite does not say that it failed to set that.
    with path.open("rb") as file:
        if file.read(20)[18:] != _HAS_LOG:
            raise LogError(f"{path}: it could not be given a write-ahead log")


def expected_schema() -> set[str]:
    """What `sqlite_schema` holds of our tables."""
    with closing(sqlite3.connect(":memory:")) as connection:
        _make_tables(connection)
        return schema_of(connection)


def schema_of(connection: sqlite3.Connection) -> set[str]:
    """What `sqlite_schema` holds, but for what SQLite itself put there: `ANALYZE` does, too."""
    found = connection.execute("SELECT sql FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'")
    return {sql for (sql,) in found}


def _make_tables(connection: sqlite3.Connection) -> None:
    for table in TABLES:
        connection.execute(table)
