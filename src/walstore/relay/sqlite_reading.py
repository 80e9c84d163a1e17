"""Reads a relay's SQLite file without being a relay, also while one is writing to it.

- Nothing is made, changed or locked: not the database, not the files beside it.
- Every read is one moment of the file. It opens the file anew, so that one that was put in its
  place is noticed; another relay's is an error.
- While there is a `-wal` file, SQLite reads through it. Without one nobody has the database open,
  and it is read as it lies there. A read during which somebody opens it is done again.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from walstore.relay import sqlite_reads as reads
from walstore.relay.log import (
    Bootstrap,
    DocumentStatus,
    Event,
    FeedPage,
    Filter,
    LogError,
    Notice,
    Page,
    StoredRecord,
    StoredSnapshot,
)
from walstore.relay.sqlite_file import check_header, connect, explained, read_state
from walstore.relay.sqlite_schema import expected_schema, schema_of

Answer = TypeVar("Answer")
Values = ParamSpec("Values")

LOCKED_MS_MAX: Final = 2_000

# How often a file is looked at while nothing happens, in seconds.
LOOK_S: Final = 0.25

# A relay that starts and stops all the time is not one to wait for.
_ATTEMPTS_MAX: Final = 8


class SqliteReading:
    """The reading half of a `SqliteLog`, for other processes than the relay's."""

    def __init__(self, path: Path, relay_id: str) -> None:
        """Read a file that was looked at; see `open`."""
        self._path = path
        self.relay_id = relay_id

    @classmethod
    async def open(cls, path: str | os.PathLike[str]) -> SqliteReading:
        """Look at a file.

        Raises:
            LogCorruptError: It is damaged, or none of a relay's.
            LogError: There is none, or it cannot be read.
        """
        reading = cls(Path(path), "")
        reading.relay_id = await reading._read(_relay_id)
        return reading

    async def page(self, document: str, after: int, *, count_max: int, bytes_max: int) -> Page:
        """Elements above a `ts`, at least one if there is any, until a limit is passed."""
        return await self._read(reads.page, document, after, count_max, bytes_max)

    async def snapshot(self, document: str) -> StoredSnapshot | None:
        """The current snapshot: the one with the highest `upto_ts`, of several the newest."""
        return await self._read(reads.snapshot, document)

    async def find(self, ids: Sequence[str], wanted: Filter) -> list[Event]:
        """The events with these ids that pass a filter, by seq."""
        return await self._read(reads.find, ids, wanted)

    async def feed(
        self, since: int, until: int | None, wanted: Filter, *, count_max: int, bytes_max: int
    ) -> FeedPage:
        """Events above a seq and up to another one; compacted ones too, without their payload."""
        return await self._read(reads.feed, since, until, wanted, count_max, bytes_max)

    async def bootstrap(self, wanted: Filter) -> Bootstrap:
        """The snapshots that no other one of their document dominates, in one consistent read."""
        return await self._read(reads.bootstrap, wanted)

    async def documents_after(self, document: str, *, count_max: int) -> list[DocumentStatus]:
        """What there is of the documents above a key, by key."""
        return await self._read(reads.documents_after, document, count_max)

    async def record(self, document: str, name: str) -> StoredRecord | None:
        """A record of a document."""
        return await self._read(reads.record, document, name)

    async def notices(self) -> AsyncIterator[Notice]:
        """The newest seq, now and whenever there is a newer one."""
        told = -1
        while True:
            head = await self._read(_head_seq)
            if head > told:
                told = head
                yield Notice(head)
            await asyncio.sleep(LOOK_S)

    async def aclose(self) -> None:
        """Nothing is open between two reads."""

    async def _read(
        self,
        look: Callable[Concatenate[sqlite3.Connection, Values], Answer],
        *values: Values.args,
        **named: Values.kwargs,
    ) -> Answer:
        return await asyncio.to_thread(
            self._seen, lambda connection: look(connection, *values, **named)
        )

    def _seen(self, look: Callable[[sqlite3.Connection], Answer]) -> Answer:
        try:
            for _ in range(_ATTEMPTS_MAX):
                before = _condition(self._path)
                try:
                    answer = self._look(look, is_still=before[0] is None)
                except sqlite3.Error:
                    if _condition(self._path) == before:
                        raise
                    continue
                if before[0] is not None or _condition(self._path) == before:
                    return answer
        except sqlite3.Error as error:
            raise explained(error, self._path) from error
        except OSError as error:
            raise LogError(f"{self._path}: {error.strerror}") from error
        raise LogError(f"{self._path}: somebody keeps opening and closing it")

    def _look(self, look: Callable[[sqlite3.Connection], Answer], *, is_still: bool) -> Answer:
        check_header(self._path)
        opened = _still(self._path) if is_still else _moving(self._path)
        with closing(opened) as connection:
            connection.execute("BEGIN")
            if self.relay_id and _relay_id(connection) != self.relay_id:
                raise LogError(f"{self._path} is another relay's by now")
            return look(connection)


def _condition(path: Path) -> tuple[int | None, int, int, int]:
    """What tells whether somebody has opened or changed a file: its log, and its own marks."""
    status = os.stat(path)
    try:
        log: int | None = os.stat(path.with_name(path.name + "-wal")).st_ino
    except FileNotFoundError:
        log = None
    return log, status.st_ino, status.st_mtime_ns, status.st_size


def _moving(path: Path) -> sqlite3.Connection:
    return connect(path, locked_ms_max=LOCKED_MS_MAX, is_reader=True)


def _still(path: Path) -> sqlite3.Connection:
    # SQLite would make a -wal file, and leave it, to read a database that has none.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro&immutable=1",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )


def _relay_id(connection: sqlite3.Connection) -> str:
    if schema_of(connection) != expected_schema():
        raise LogError("the tables are not a relay's")
    return read_state(connection).relay_id


def _head_seq(connection: sqlite3.Connection) -> int:
    return read_state(connection).head_seq
