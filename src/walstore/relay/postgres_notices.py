"""Hears what other processes accept in the same database, over a connection of its own.

- Every commit sends its seq, in its own transaction, so it is heard in the order of acceptance.
- Each time that the connection stands, the newest seq is read after listening has begun, and told.
  Nothing can fall between the two, nor be missed while the connection was lost.
- A listener that is slower than the commits hears the newest seq, not each one.
- Records that others replace are announced as well. One that is missed while the connection was
  lost is found by those who look without being told, as they do now and then.
- A quiet connection is tried now and then: a network can end without a word.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress

import psycopg
from psycopg import sql

from walstore.relay.log import KeptRecord, Notice
from walstore.relay.postgres_connections import Connection
from walstore.wire.frames.fields import WrongError, hex_of, read_document, read_record_name

# How long nothing may be heard before the connection is tried.
_QUIET_S_MAX = 15.0

# The pause before connecting again doubles from the first of these to the second.
_PAUSE_S_MIN = 0.05
_PAUSE_S_MAX = 5.0

# The decimal digits of the largest seq that a column can hold.
_SEQ_SIZE_MAX = 19

# Records that wait to be told of. More than that are replaced at once by nobody honest.
_RECORDS_MAX = 1024

_HEAD = "SELECT seq FROM walstore_head"


def channel(relay_id: str) -> str:
    """Where the commits of one relay are announced; several may share a database."""
    return f"walstore_{relay_id}"


class Listener:
    """Follows one channel, for one reader."""

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], relay_id: str, origin: str
    ) -> None:
        """Begin to listen; `aclose` ends it.

        Args:
            connect: Makes a connection.
            relay_id: Whose commits are heard.
            origin: Whose records are not.
        """
        self._connect = connect
        self._origin = origin
        self._listen = sql.SQL("LISTEN {}").format(sql.Identifier(channel(relay_id)))
        self._seq: int | None = None
        self._records: dict[KeptRecord, None] = {}
        self._pause_s = _PAUSE_S_MIN
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._follow())
        # Whoever waits is woken by the end, too.
        self._task.add_done_callback(lambda _: self._changed.set())

    async def notices(self) -> AsyncIterator[Notice]:
        """The newest seq, each time that there is one, and what records were replaced, until the
        listener is closed.
        """
        while True:
            await self._changed.wait()
            if self._task.done():
                return
            self._changed.clear()
            if self._seq is not None:
                records, self._records = tuple(self._records), {}
                yield Notice(self._seq, records)

    async def aclose(self) -> None:
        """Stop listening."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _follow(self) -> None:
        while True:
            try:
                async with await self._connect() as connection:
                    await self._hear(connection)
            except (psycopg.Error, OSError):
                # Half of the pause is chance, so that many processes do not come back at once.
                await asyncio.sleep(self._pause_s * (0.5 + random.random() / 2))
                self._pause_s = min(self._pause_s * 2, _PAUSE_S_MAX)

    async def _hear(self, connection: Connection) -> None:
        await connection.execute(self._listen)
        self._tell(await _head_seq(connection))
        self._pause_s = _PAUSE_S_MIN
        while True:
            async with aclosing(connection.notifies(timeout=_QUIET_S_MAX)) as notifies:
                async for notify in notifies:
                    self._take(notify.payload)
            self._tell_newer(await _head_seq(connection))

    def _take(self, payload: str) -> None:
        kept = read_kept(payload, self._origin)
        if kept is None:
            self._tell_newer(_seq_of(payload))
        elif len(self._records) < _RECORDS_MAX:
            self._records[kept] = None
            self._changed.set()

    def _tell_newer(self, seq: int) -> None:
        if self._seq is None or seq > self._seq:
            self._tell(seq)

    def _tell(self, seq: int) -> None:
        self._seq = seq
        self._changed.set()


async def _head_seq(connection: Connection) -> int:
    row = await (await connection.execute(_HEAD)).fetchone()
    return int(row[0]) if row is not None else 0


def _seq_of(payload: str) -> int:
    """The seq of an announcement; 0, which is news to nobody, if it is none of ours."""
    return int(payload) if payload.isdecimal() and len(payload) <= _SEQ_SIZE_MAX else 0


def write_kept(kept: KeptRecord, origin: str) -> str:
    """Announces a record; a document key of any length leaves room in a payload."""
    return json.dumps([origin, *kept], ensure_ascii=False)


def read_kept(payload: str, origin: str) -> KeptRecord | None:
    """The record that others than `origin` announce; None if it is none of ours."""
    try:
        by, document, name, revision = json.loads(payload)
        kept = KeptRecord(
            read_document(document), read_record_name(name), hex_of(revision, "the revision", 64)
        )
    except (ValueError, TypeError, RecursionError, WrongError):
        return None
    return None if by == origin else kept
