"""A local file: what one document of one author keeps on disk, in SQLite.

- Every call that returns survives `kill -9`; `sync` makes all before it survive a power cut.
- Calls take microseconds and are meant for the thread of the event loop. `sync` takes milliseconds,
  as do `put_state` and many elements at once: those may be called in another thread.
- One process at a time has the file open, once.
- A damaged file is set aside whole, and its unsent edits are saved first; then the call raises
  `LocalFileDamagedError`. Only a damaged state is not worth that: the elements make another one.
- Where a log was put in the place of another, what the new one lacks is kept: elements among what
  is on its way, whoever can send them, and what has no elements any more as a state of its own.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from walstore.canon import INTEGER_MAX, Json, canonical_bytes, find_flaw, parse
from walstore.document.ports import RawElement
from walstore.errors import MalformedError
from walstore.local.database import Database
from walstore.local.faults import DamageFoundError, NotStorableError
from walstore.local.opening import open_database
from walstore.local.queue import Queue
from walstore.local.rows import (
    Cell,
    LastSealed,
    OutboxBody,
    Pending,
    Start,
    checked,
    element_of,
    element_row,
    to_bytes,
    to_text,
    verified,
)
from walstore.wire.limits import ELEMENT_BYTES_MAX, SNAPSHOT_BYTES_MAX, TS_MAX

# The JSON text of one slot: an undo stack of some thousand steps.
SLOT_BYTES_MAX = 4 * 2**20

_SLOT_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")

# Slots of our own; other names cannot begin so.
_LOG_ID = "\0log_id"
_MARKS = "\0marks"
_EPOCH_FLOOR = "\0epoch_floor"

# The two states: of the log, and of what it has lost.
_STATE, _STRANDED = 1, 2

_ADD_ELEMENT = "INSERT OR IGNORE INTO elements VALUES (?, ?, ?, ?, ?)"
_PUT_STATE = "INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)"
_PUT_SLOT = "INSERT OR REPLACE INTO slots VALUES (?, ?, ?)"

# Compression is worth its time if it saves a quarter; the start of a text tells.
_SAMPLE_BYTES = 2**15
_COMPRESSED_MAX = 0.75


class LocalFile:
    """One local file, open; a context manager that closes it."""

    def __init__(self, database: Database) -> None:
        """Use an open database; `LocalFile.open` is the way to get one."""
        self._database = database
        self._queue = Queue(database)
        self._check_slots()
        self._state_fault: str | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, document_key: str, author: str) -> LocalFile:
        """Open the file of a document and an author, or make it.

        Raises:
            LocalFileInUseError: It is open already, here or elsewhere.
            LocalFileForeignError: It is not a walstore file.
            LocalFileNewerError: It was written by a newer walstore.
            OtherDocumentError: It is another document's.
            OtherAuthorError: It is another author's.
            LocalFileDamagedError: It was damaged and is set aside; open again to start afresh.
            LocalFileError: It cannot be opened: no room, no rights, or a failing disk.
        """
        database = open_database(path, document_key=document_key, author=author)
        try:
            return cls(database)
        except BaseException:
            database.close()
            raise

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._database.path

    def close(self) -> None:
        """Close the file, synced unless the disk fails; closing again does nothing."""
        self._database.close()

    def sync(self) -> None:
        """Make everything that was called before survive a power cut; takes milliseconds.

        The write-ahead log is synced, which keeps other calls from nothing. Once it is long it is
        also copied into the file, which makes them wait for some milliseconds.

        Raises:
            LocalFileError: It is not known to survive one; it is written all the same.
        """
        self._database.sync()

    # ── facts and slots ────────────────────────────────────────────────────────────────

    @property
    def log_id(self) -> str | None:
        """The log that the elements are of, None if that was not said yet."""
        found = self._get(_LOG_ID, None)
        return found if isinstance(found, str) else None

    @log_id.setter
    def log_id(self, log_id: str | None) -> None:
        self._put(_LOG_ID, log_id)

    @property
    def marks(self) -> Json:
        """How far a reader has been, None if that was not said yet."""
        return self._get(_MARKS, None)

    @marks.setter
    def marks(self, marks: Json) -> None:
        self._put(_MARKS, marks)

    @property
    def epoch_floor(self) -> int:
        """The key epoch that no keyring may fall behind; 0 at first."""
        found = self._get(_EPOCH_FLOOR, 0)
        return found if isinstance(found, int) else 0

    def raise_epoch_floor(self, epoch: int) -> None:
        """Let no keyring fall behind an epoch; a lower one than before changes nothing.

        Raises:
            NotStorableError: It is beyond what every peer reads exactly.
        """
        if epoch > INTEGER_MAX:
            raise NotStorableError("a key epoch", f"it exceeds {INTEGER_MAX}")
        if epoch > self.epoch_floor:
            self._put(_EPOCH_FLOOR, epoch)

    def get(self, name: str, default: Json = None) -> Json:
        """The JSON value that was put into a slot.

        Raises:
            NotStorableError: No slot can have that name.
        """
        return self._get(_slot_name(name), default)

    def put(self, name: str, value: Json) -> None:
        """Put a JSON value into a slot, in place of the one before.

        Raises:
            NotStorableError: No slot can have that name, or the value is too large.
            NotJsonError: It is not a JSON value.
        """
        self._put(_slot_name(name), value)

    def names(self, start: str) -> list[str]:
        """The names of the slots that begin so, in their order."""
        # Whatever else a name has in it, it is below `~`.
        rows = self._database.execute(
            "SELECT name FROM slots WHERE name >= ? AND name < ? ORDER BY name",
            (_slot_name(start).encode(), f"{start}~".encode()),
        )
        return [to_text(name) for (name,) in rows]

    def put_all(self, values: Mapping[str, Json], gone: Iterable[str] = ()) -> None:
        """Put JSON values into slots, and empty others, at once; raises as `put` does."""
        rows = [_slot_row(_slot_name(name), value) for name, value in values.items()]
        emptied = [(_slot_name(name).encode(),) for name in gone]
        with self._database.transaction() as transaction:
            transaction.each("DELETE FROM slots WHERE name = ?", emptied)
            transaction.each(_PUT_SLOT, rows)

    # ── elements ───────────────────────────────────────────────────────────────────────

    def add_elements(self, elements: Sequence[RawElement], *, marks: Json = None) -> None:
        """Keep elements of the log; one whose `ts` is there already changes nothing.

        Args:
            elements: The elements.
            marks: How far a reader has been with them, if that is to be kept with them.
        """
        _check_elements(elements)
        with self._database.transaction() as transaction:
            transaction.each(_ADD_ELEMENT, map(element_row, elements))
            if marks is not None:
                transaction.execute(_PUT_SLOT, _slot_row(_MARKS, marks))

    def page(self, after: int, count_max: int) -> list[RawElement]:
        """The first elements above a `ts`, ascending."""
        return self._elements("WHERE ts > ? ORDER BY ts LIMIT ?", after, count_max)

    def tail(self, upto: int, count: int) -> list[RawElement]:
        """The last elements up to a `ts`, ascending."""
        return self._elements("WHERE ts <= ? ORDER BY ts DESC LIMIT ?", upto, count)[::-1]

    def head(self) -> int:
        """The `ts` of the newest element, 0 if there is none."""
        ((ts,),) = self._database.execute("SELECT max(ts) FROM elements")
        return ts or 0

    def drop_elements(self, upto_ts: int, *, but_of: str | None = None) -> None:
        """Let go of the elements up to a `ts`, but not of those of an author."""
        kept = None if but_of is None else to_bytes(but_of)
        self._database.execute(
            "DELETE FROM elements WHERE ts <= ? AND author IS NOT ?", (_bounded(upto_ts), kept)
        )

    def drop_repeats(self) -> None:
        """Let go of elements that are here already under an earlier `ts`, but for the newest."""
        self._database.execute(
            "DELETE FROM elements WHERE ts < (SELECT max(ts) FROM elements)"
            " AND ts NOT IN (SELECT min(ts) FROM elements GROUP BY author, signature)"
        )

    # ── state ──────────────────────────────────────────────────────────────────────────

    @property
    def state_fault(self) -> str | None:
        """Why `state` has given nothing although there is one; None if all is well."""
        return self._state_fault

    def put_state(self, text: bytes, upto_ts: int) -> None:
        """Keep the folded state of all elements up to a `ts`, in place of the one before.

        Raises:
            NotStorableError: It is too large.
        """
        self._database.execute(_PUT_STATE, _state_row(_STATE, text, upto_ts))
        self._state_fault = None

    def state(self) -> tuple[bytes, int] | None:
        """The folded state and the `ts` up to which it was folded.

        None if there is none, or if it is damaged: then `state_fault` says so.
        """
        try:
            return self._read_state(_STATE)
        except DamageFoundError as damage:
            self._state_fault = damage.reason
            return None

    def stranded(self) -> bytes | None:
        """The folded state of what the log has lost; None if there is none."""
        # What it holds may be nowhere else: if it is damaged, so is the file.
        with self._database.call():
            kept = self._read_state(_STRANDED)
        return None if kept is None else kept[0]

    def drop_stranded(self) -> None:
        """Let go of the folded state of what the log had lost."""
        self._database.execute("DELETE FROM state WHERE id = ?", (_STRANDED,))

    def start_over(self, start: Start) -> None:
        """Put another log in the place of the one that was read, all of it at once.

        Edits that were recorded stay, and so do bodies that are on their way: what is put back
        comes before them, and all of them wait again.

        Raises:
            NotStorableError: Something is beyond the limits.
            LocalFileError: Nothing has changed.
        """
        _check_elements(start.elements)
        states = {_STATE: start.state, _STRANDED: start.stranded}
        rows = [_state_row(id, *kept) for id, kept in states.items() if kept is not None]
        slots = {_MARKS: start.marks, **{_slot_name(name): v for name, v in start.slots.items()}}
        bodies = self._queue.before_all(start.bodies)
        with self._database.transaction() as transaction:
            transaction.execute("DELETE FROM elements")
            transaction.each(_ADD_ELEMENT, map(element_row, start.elements))
            transaction.execute("DELETE FROM state")
            transaction.each(_PUT_STATE, rows)
            transaction.each(_PUT_SLOT, [_slot_row(*slot) for slot in slots.items()])
            self._queue.rewrite(transaction, bodies)
        self._queue.look()
        self._state_fault = None

    # ── edits on their way ─────────────────────────────────────────────────────────────

    def record(self, session: str, packed: bytes) -> int:
        """Append an edit that was just made, and return its number.

        Raises:
            NotStorableError: It is too large.
            LocalFileError: It is not recorded.
        """
        return self._queue.record(session, packed)

    def seal(self, session: str, upto: int, bodies: Sequence[OutboxBody]) -> None:
        """Replace what a session has recorded up to a number by the bodies made of it, at once.

        Raises:
            NotStorableError: There are no bodies, or one is beyond the limits.
            LocalFileError: Nothing has changed.
        """
        self._queue.seal(session, upto, bodies)

    def renew(self, bodies: Sequence[OutboxBody]) -> None:
        """Put bodies sealed anew in the place of those with the same session and seq, at once.

        Raises:
            NotStorableError: No such body waits, or one is beyond the limits.
            LocalFileError: Nothing has changed.
        """
        self._queue.renew(bodies)

    def replace(
        self,
        gone: Iterable[str],
        bodies: Sequence[OutboxBody],
        slots: Mapping[str, Json] | None = None,
    ) -> None:
        """Put bodies in the place of those with some links, and values into slots, at once.

        Raises:
            NotStorableError: A body or a value is beyond the limits, or no slot has such a name.
            LocalFileError: Nothing has changed.
        """
        named = {} if slots is None else slots
        rows = [_slot_row(_slot_name(name), value) for name, value in named.items()]
        self._queue.replace(gone, bodies, rows)

    def acknowledged(self, link: str, ts: int | None) -> None:
        """Note the `ts` that a relay gave a body, or with None that the body waits again.

        A link that is not on its way changes nothing.
        """
        self._queue.acknowledged(link, ts)

    def confirmed(self, links: Iterable[str]) -> None:
        """Remove bodies that were read in the log; links that are not on their way are ignored."""
        self._queue.confirmed(links)

    def pending(self) -> Pending:
        """Everything that is on its way into the log, in order."""
        return self._queue.pending()

    def last_sealed(self, session: str) -> LastSealed | None:
        """Where a session stands; None if it has sealed nothing, or nothing of it was left."""
        return self._queue.last_sealed(session)

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _check_slots(self) -> None:
        """Look at all slots: one whose name is damaged would be taken for one that is empty."""
        with self._database.call() as connection:
            for row in connection.execute("SELECT * FROM slots"):
                verified(row, "a slot")

    def _elements(self, condition: str, ts: int, count: int) -> list[RawElement]:
        with self._database.call():
            rows = self._database.execute(
                f"SELECT * FROM elements {condition}", (_bounded(ts), _bounded(count))
            )
            return [element_of(row) for row in rows]

    def _get(self, name: str, default: Json) -> Json:
        with self._database.call():
            rows = self._database.execute("SELECT * FROM slots WHERE name = ?", (name.encode(),))
            if not rows:
                return default
            try:
                return parse(verified(rows[0], "a slot")[1])
            except MalformedError as error:
                raise DamageFoundError("a slot is not JSON") from error

    def _put(self, name: str, value: Any) -> None:
        self._database.execute(_PUT_SLOT, _slot_row(name, value))

    def _read_state(self, id: int) -> tuple[bytes, int] | None:
        rows = self._database.execute("SELECT * FROM state WHERE id = ?", (id,))
        if not rows:
            return None
        _, upto_ts, is_compressed, kept = verified(rows[0], "the state")
        return (zlib.decompress(kept) if is_compressed else kept), upto_ts


def _check_elements(elements: Sequence[RawElement]) -> None:
    for element in elements:
        if not 0 <= element.ts <= TS_MAX or len(element.data) > ELEMENT_BYTES_MAX:
            raise NotStorableError("an element", "it is too large, or its `ts` out of range")


def _slot_row(name: str, value: Any) -> tuple[Cell, ...]:
    text = canonical_bytes(value)
    if len(text) > SLOT_BYTES_MAX:
        raise NotStorableError("a slot", f"{len(text)} bytes exceed {SLOT_BYTES_MAX}")
    # A value that is too deep to be read back must not be written.
    flaw = find_flaw(value)
    if flaw is not None:
        raise NotStorableError("a slot", flaw)
    return checked(name.encode(), text)


def _state_row(id: int, text: bytes, upto_ts: int) -> tuple[Cell, ...]:
    if len(text) > SNAPSHOT_BYTES_MAX or not 0 <= upto_ts <= TS_MAX:
        raise NotStorableError("a state", "it is too large, or its `ts` out of range")
    is_compressed = _is_worth_compressing(text)
    kept = zlib.compress(text, 1) if is_compressed else text
    return checked(id, upto_ts, int(is_compressed), kept)


def _slot_name(name: str) -> str:
    if not _SLOT_NAME.fullmatch(name):
        raise NotStorableError("a slot", "its name is not 1 to 64 of a-z, 0-9, `_`, `.` and `-`")
    return name


def _bounded(number: int) -> int:
    """A number to compare with, as SQLite takes it."""
    return max(-1, min(number, TS_MAX))


def _is_worth_compressing(text: bytes) -> bool:
    sample = text[:_SAMPLE_BYTES]
    return len(zlib.compress(sample, 1)) < len(sample) * _COMPRESSED_MAX
