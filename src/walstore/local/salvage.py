"""What becomes of a damaged file: its unsent edits are saved, and the file is moved aside.

    <file>, <file>-wal ──► <file>.damaged-1, <file>.damaged-1-wal
                       └─► <file>.unsent-1.jsonl                      what could still be read

- Nothing is deleted. Closing the file copies what is good of its log into it; the log is kept as it
  was, also where there is no room to set anything aside. The unsent edits are durable before the
  file is moved, so whoever is interrupted finds the damage again; at worst the edits are saved
  twice, and resent twice.
- Reading happens in a copy. If its first page is no good, it gets the one that every file has.
- Rows are read from both ends up to the damage, then one by one in between; what does not match
  its checksum is counted as lost.
- An acknowledgement that cannot be read is forgotten: what is sent again does no harm.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from walstore.local.durable import sync_directory, sync_file
from walstore.local.faults import (
    SQLITE_ERRORS,
    DamageFoundError,
    LocalFileDamagedError,
    LocalFileError,
    LocalFileFailedError,
    LocalFileFullError,
    failure_of,
    fault_of,
    fault_of_system,
)
from walstore.local.rows import (
    LastSealed,
    Pending,
    acknowledged_of,
    body_of,
    recorded_of,
    session_of,
)
from walstore.local.schema import PAGE_BYTES, Owner, first_page
from walstore.local.unsent import Unsent, write_unsent

# How many rows between the two ends of the damage are asked for one by one.
_PROBES_MAX = 2**16

_T = TypeVar("_T")


class _Found(NamedTuple):
    """What was read of a damaged file, and how many rows were not; None if nobody knows."""

    pending: Pending
    sessions: dict[str, LastSealed]
    lost: int | None


def log_of(path: Path) -> Path:
    """The write-ahead log of a file."""
    return path.with_name(path.name + "-wal")


@contextmanager
def log_kept(path: Path) -> Iterator[None]:
    """Keep the log of a file whose connection is closed in a block, which would remove it."""
    # A system that moves no open files raises; there the log goes as it always did.
    with suppress(OSError):
        log_of(path).replace(_kept_log_of(path))
    try:
        yield
    finally:
        # Where that fails, whoever opens the file next does it.
        with suppress(LocalFileError):
            put_log_back(path)


def put_log_back(path: Path) -> None:
    """Put the log back that was kept, also by a process that died in between.

    Raises:
        LocalFileError: It cannot be put back now.
    """
    try:
        with suppress(FileNotFoundError):
            _kept_log_of(path).replace(log_of(path))
            sync_directory(path.parent)
    except OSError as error:
        raise fault_of_system(path, error) from error


def _kept_log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal.kept")


def set_aside(
    path: Path, owner: Owner, damage: DamageFoundError, release: Callable[[], None]
) -> LocalFileDamagedError:
    """Save the unsent edits of a damaged file, move it aside, and say what was done.

    Args:
        path: The file.
        owner: Whose file it is, or should be.
        damage: What was noticed.
        release: Closes the file; it may change the file and remove its log.

    Raises:
        LocalFileError: There is no room, or no right to write. Nothing was moved, or all but the
            log, of which there is a copy then.
    """
    try:
        return _set_aside(path, owner, damage, release)
    except SQLITE_ERRORS as error:
        raise failure_of(path, error) from error
    except OSError as error:
        raise fault_of_system(path, error) from error


def _set_aside(
    path: Path, owner: Owner, damage: DamageFoundError, release: Callable[[], None]
) -> LocalFileDamagedError:
    number = _free_number(path)
    damaged = path.with_name(f"{path.name}.damaged-{number}")
    unsent = path.with_name(f"{path.name}.unsent-{number}.jsonl")
    log = log_of(path)
    with _workshop(path) as workshop:
        found = _find(path, workshop)
        saved = found.pending.size
        if saved:
            draft = workshop / unsent.name
            write_unsent(
                draft,
                Unsent(owner.document_key, owner.author, found.pending, found.sessions, 0),
            )
            draft.replace(unsent)
            sync_directory(path.parent)
        if log.exists():
            _copy(log, log_of(damaged))
    release()
    is_there = path.exists()
    if is_there:
        path.replace(damaged)
    # After the file: without its log it would say that edits wait which have been sent.
    if log.exists():
        log.replace(log_of(damaged))
    sync_directory(path.parent)
    return LocalFileDamagedError(
        path,
        damage.reason,
        damaged=damaged if is_there else None,
        unsent=unsent if saved else None,
        saved=saved,
        lost=None if damage.hides_loss else found.lost,
    )


def _free_number(path: Path) -> int:
    names = {file.name for file in path.parent.iterdir()}
    for number in count(1):
        damaged = f"{path.name}.damaged-{number}"
        # What was brought back from a file of unsent edits keeps its number.
        edits = {f"{path.name}.{kind}-{number}.jsonl" for kind in ("unsent", "restored")}
        if names.isdisjoint({damaged, damaged + "-wal", *edits}):
            break
    return number


@contextmanager
def _workshop(path: Path) -> Iterator[Path]:
    """A directory for copies, gone afterwards; only its owner may look into it."""
    directory = tempfile.mkdtemp(prefix=f"{path.name}.salvage-", dir=path.parent)
    try:
        yield Path(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        shutil.copyfile(source, target)
        sync_file(target)
    except BaseException:
        # Half a copy takes room, and is of no use.
        target.unlink()
        raise


def _find(path: Path, workshop: Path) -> _Found:
    """Read what is unsent, if need be behind another first page."""
    as_it_is = _read_copy(path, workshop / "as-it-is", is_mended=False)
    if as_it_is.lost == 0:
        return as_it_is
    mended = _read_copy(path, workshop / "mended", is_mended=True)
    return max(as_it_is, mended, key=lambda found: (found.pending.size, found.lost is not None))


def _read_copy(path: Path, copy: Path, *, is_mended: bool) -> _Found:
    if not path.exists():
        return _Found(Pending([], []), {}, None)
    _copy(path, copy)
    if is_mended:
        with copy.open("rb+") as file:
            file.write(first_page(max(copy.stat().st_size // PAGE_BYTES, 1)))
    if log_of(path).exists():
        _copy(log_of(path), log_of(copy))
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        return _read_queue(connection)


def _read_queue(connection: sqlite3.Connection) -> _Found:
    recorded, recorded_lost = _read_table(connection, "recorded", "number", recorded_of)
    bodies, bodies_lost = _read_table(connection, "bodies", "place", body_of)
    sessions, _ = _read_table(connection, "sessions", "place", session_of)
    acknowledged, _ = _read_table(connection, "acknowledged", "place", acknowledged_of)
    times = dict(acknowledged)
    lost = None if recorded_lost is None or bodies_lost is None else recorded_lost + bodies_lost
    return _Found(
        Pending(recorded, [body._replace(acknowledged=times.get(at)) for at, body in bodies]),
        {session: last for _, session, last in sessions},
        lost,
    )


def _read_table(
    connection: sqlite3.Connection, table: str, key: str, value_of: Callable[[Sequence[Any]], _T]
) -> tuple[list[_T], int | None]:
    """The readable values of a table in order, and how many are not; None if nobody knows."""
    rows: dict[int, Sequence[Any]] = {}
    is_whole = _scan(connection, f"SELECT * FROM {table} ORDER BY {key}", rows)
    if not is_whole:
        ahead = max(rows, default=0)
        behind: dict[int, Sequence[Any]] = {}
        _scan(connection, f"SELECT * FROM {table} ORDER BY {key} DESC", behind)
        first_behind = min(behind, default=ahead)
        rows |= behind
        for place in range(ahead + 1, min(first_behind, ahead + _PROBES_MAX)):
            _scan(connection, f"SELECT * FROM {table} WHERE {key} = {place}", rows)
    values: list[_T] = []
    for place in sorted(rows):
        with suppress(DamageFoundError):
            values.append(value_of(rows[place]))
    return values, len(rows) - len(values) if is_whole else None


def _scan(connection: sqlite3.Connection, query: str, rows: dict[int, Sequence[Any]]) -> bool:
    """Add the rows of a query up to the first that cannot be read; tell whether there is none."""
    try:
        for row in connection.execute(query):
            if type(row[0]) is not int:
                return False
            rows[row[0]] = row
    except SQLITE_ERRORS as error:
        # What a full or failing disk keeps from being read is not lost: the next one reads it.
        if isinstance(fault_of(Path(), error), LocalFileFailedError | LocalFileFullError):
            raise
        return False
    return True
