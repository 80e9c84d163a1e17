"""What a local file looks like: its header, its tables, whose it is, and how it is made.

- A file is made beside its place and put there whole, so a file in its place is never half-made.
- The header says what the file is before SQLite opens it, because SQLite may write when it does.
- Whose file it is stands in pages that never change again, so it can be read without the
  write-ahead log, and without writing. How many pages there are is known with the log alone: who
  copies it writes the first page, which counts them, before the others.
- The tables never move: their root pages are the same in every file of one version.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from walstore.local.durable import sync_directory, sync_file
from walstore.local.faults import (
    SQLITE_ERRORS,
    DamageFoundError,
    LocalFileFailedError,
    LocalFileForeignError,
    LocalFileNewerError,
    failure_of,
    fault_of,
    fault_of_system,
)
from walstore.local.guard import FILE_ID_BYTES
from walstore.local.rows import checked, to_bytes, to_text, verified

# "WALl", at byte 68 of the file.
APPLICATION_ID = 0x57414C6C
SCHEMA_VERSION = 1

# What a keystroke costs in the write-ahead log, and a good size for everything else.
PAGE_BYTES = 4096

HEADER_BYTES = 100

# The second page says whose file it is.
_OWNER_END = 2 * PAGE_BYTES

# The start of a file that says so whatever the key is, and be it far longer than relays take.
_OWNER_BYTES_MAX = 2**20

# The page size, and that the file has a write-ahead log, or none.
_SHAPE = PAGE_BYTES.to_bytes(2) + b"\2\2"
_SHAPE_ALONE = PAGE_BYTES.to_bytes(2) + b"\1\1"
_SQLITE = b"SQLite format 3\0"

_TABLES = {
    "identity": "id INTEGER PRIMARY KEY, document_key BLOB, author BLOB, file_id BLOB, crc INTEGER",
    "slots": "name BLOB PRIMARY KEY, value BLOB, crc INTEGER",
    "elements": "ts INTEGER PRIMARY KEY, data BLOB, author BLOB, signature BLOB, crc INTEGER",
    "state": "id INTEGER PRIMARY KEY, upto_ts INTEGER, is_compressed INTEGER, text BLOB, "
    "crc INTEGER",
    "recorded": "number INTEGER PRIMARY KEY, session BLOB, packed BLOB, crc INTEGER",
    "bodies": "place INTEGER PRIMARY KEY, canonical BLOB, author BLOB, signature BLOB, link BLOB, "
    "session BLOB, seq INTEGER, header BLOB, epoch BLOB, crc INTEGER",
    "acknowledged": "place INTEGER PRIMARY KEY, ts INTEGER, crc INTEGER",
    "sessions": "place INTEGER PRIMARY KEY, session BLOB, seq INTEGER, link BLOB, crc INTEGER",
}
_WITHOUT_ROWID = frozenset({"slots"})

# What has not been sent yet, and where its sessions stand: small, and checked at every opening.
QUEUE_TABLES = ("recorded", "bodies", "acknowledged", "sessions", "slots")


class Owner(NamedTuple):
    """Whose file it is, and which of that owner's files."""

    document_key: str
    author: str
    file_id: bytes


def create(path: Path, *, document_key: str, author: str) -> None:
    """Put a new file into place, durable when this returns.

    Raises:
        LocalFileError: It cannot be written; there is no file in the place.
    """
    draft = path.with_name(path.name + ".new")
    owner = Owner(document_key, author, secrets.token_bytes(FILE_ID_BYTES))
    try:
        # SQLite gives the files that it makes beside this one the same permissions.
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            _fill(connection, owner)
        # SQLite does not say that it failed to set the journal's mode.
        if _read_start(draft, HEADER_BYTES)[16:20] != _SHAPE:
            raise LocalFileFailedError(path, "it could not be given a write-ahead log")
        sync_file(draft)
        draft.replace(path)
        sync_directory(path.parent)
    except sqlite3.Error as error:
        raise failure_of(path, error) from error
    except OSError as error:
        raise fault_of_system(path, error) from error


def first_page(pages: int) -> bytes:
    """The first page of a file of some pages: the header, and where the tables are."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _fill(connection, Owner("", "", b""))
        page = connection.serialize()[:PAGE_BYTES]
    return _with_header(page, _SHAPE, pages)


def check_header(path: Path, *, marked: bytes | None) -> None:
    """Tell from its first pages whether a file is one of ours, without writing anything.

    Args:
        path: The file.
        marked: The id of the file that was last in this place, if known. Whatever holds it is
            ours, however little else is left of it.

    Raises:
        LocalFileForeignError: It is not one of ours.
        LocalFileNewerError: Its schema is newer than this code.
        DamageFoundError: It is one of ours, and no longer begins as one.
        LocalFileError: It cannot be read.
    """
    start = _read_start(path, _OWNER_END)
    version = int.from_bytes(start[60:64])
    is_sqlite = start.startswith(_SQLITE)
    has_our_id = int.from_bytes(start[68:72]) == APPLICATION_ID
    if is_sqlite and has_our_id:
        if version > SCHEMA_VERSION:
            raise LocalFileNewerError(path, version)
        if version < SCHEMA_VERSION or start[16:20] != _SHAPE:
            raise DamageFoundError("the header is damaged")
    elif len(start) < HEADER_BYTES and _SQLITE.startswith(start[: len(_SQLITE)]):
        raise DamageFoundError("the file was cut short", hides_loss=True)
    elif has_our_id or (marked is not None and marked in start):
        raise DamageFoundError("the header is damaged")
    else:
        raise LocalFileForeignError(path)


def read_owner(path: Path) -> Owner:
    """Whose file it is, without writing anything.

    Raises:
        DamageFoundError: That is not there.
        LocalFileError: The file cannot be read.
    """
    start = _read_start(path, _OWNER_BYTES_MAX)
    pages = len(start) // PAGE_BYTES
    # A file that seems cut short may be whole with its log: here it has the pages that it has.
    alone = _with_header(start[: pages * PAGE_BYTES], _SHAPE_ALONE, pages)
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(alone)
            rows = connection.execute("SELECT * FROM identity").fetchall()
    except SQLITE_ERRORS as error:
        raise fault_of(path, error) from error
    if len(rows) != 1:
        raise DamageFoundError("it is not known whose file this is")
    _, document_key, author, file_id = verified(rows[0], "whose file this is")
    return Owner(to_text(document_key), to_text(author), file_id)


def check_tables(connection: sqlite3.Connection) -> None:
    """Compare the tables with what they were made as.

    Raises:
        DamageFoundError: They are not what they were.
    """
    # SQLite may put tables of its own beside them: `ANALYZE` does. Nobody else can name one so.
    found = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'sqlite_*'"
    )
    if dict(found.fetchall()) != {name: _sql(name) for name in _TABLES}:
        raise DamageFoundError("the tables are not what they were made as")


def _read_start(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise fault_of_system(path, error) from error


def _with_header(start: bytes, shape: bytes, pages: int) -> bytes:
    return start[:16] + shape + start[20:28] + pages.to_bytes(4) + start[32:]


def _fill(connection: sqlite3.Connection, owner: Owner) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("BEGIN")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for name in _TABLES:
        connection.execute(_sql(name))
    connection.execute(
        "INSERT INTO identity VALUES (?, ?, ?, ?, ?)",
        checked(1, to_bytes(owner.document_key), to_bytes(owner.author), owner.file_id),
    )
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")


def _sql(name: str) -> str:
    # Spelled as SQLite keeps it.
    suffix = " WITHOUT ROWID" if name in _WITHOUT_ROWID else ""
    return f"CREATE TABLE {name} ({_TABLES[name]}){suffix}"
