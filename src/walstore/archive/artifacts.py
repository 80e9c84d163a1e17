"""Artifacts as objects: how they are written, and how they are found and checked again.

- An object is never replaced by other bytes. Whoever finds its key taken by the same bytes puts
  them there again: that is a retry, and what was left a while ago is young once more, so that
  nobody collects it as an orphan. If they are other bytes, the object goes beside them.
- What is read has the size, the hash and the number of rows that the manifest says, a change the
  row of its own key, and a part no row of another one, or it is refused.
- An object is found by what its key says below the prefix, so that an archive can be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar

from anyio.to_thread import run_sync

from walstore.archive.buckets import bucket_of
from walstore.archive.destination import ConflictError, Destination
from walstore.archive.format import Format
from walstore.archive.keys import PartOf, base_key, diff_key, other_key
from walstore.archive.manifest import Artifact, Part
from walstore.archive.rows import Action, Column, Key, Row, RowChange, key_of, sort_key
from walstore.errors import MalformedError, StorageError

_EPOCH = "epoch="

# What is larger is hashed in a thread: a part of a base may take a second.
_HASHED_HERE_BYTES_MAX = 2**20

_Item = TypeVar("_Item")


class MissingObjectError(StorageError):
    """An object that the manifest names is not there.

    Attributes:
        key: Its key.
    """

    def __init__(self, destination: str, key: str) -> None:
        super().__init__(f"{destination}: {key} is missing, though the manifest names it")
        self.key = key


class DamagedObjectError(MalformedError):
    """An object is not what the manifest says.

    Attributes:
        key: Its key.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"artifact {key}", reason)
        self.key = key


class NoFormatError(StorageError):
    """An artifact is there in none of the formats that can be read here."""

    def __init__(self, artifact: Artifact, known: Iterable[str]) -> None:
        there = ", ".join(sorted(artifact.formats))
        super().__init__(
            f"the {artifact.kind.value} to {artifact.to_position} is there as {there};"
            f" what can be read here is {', '.join(known) or 'nothing'}"
        )


class Spot(NamedTuple):
    """Where an artifact belongs.

    Attributes:
        prefix: The archive's.
        epoch: The archive epoch.
        since: Where a diff begins; None for a base.
        to: The position that it reaches.
        parts: How many parts it has.
    """

    prefix: str
    epoch: int
    since: int | None
    to: int
    parts: int

    def key(self, number: int, extension: str) -> str:
        """The key of one of its parts."""
        part = None if self.parts == 1 else PartOf(number, self.parts)
        if self.since is None:
            return base_key(self.prefix, self.epoch, self.to, extension, part)
        return diff_key(self.prefix, self.epoch, self.since, self.to, extension, part)


class Encoded(NamedTuple):
    """A part of an artifact in one format, and how many rows or changes are in it."""

    format_id: str
    extension: str
    body: bytes
    row_count: int


def encode_base(
    rows: Iterable[Row], formats: Sequence[Format], columns: Sequence[Column]
) -> list[Encoded]:
    """A part of a base, in each format."""
    # One format takes the rows as they come; several cannot share an iterator.
    source = _Counting(rows if len(formats) == 1 else list(rows))
    return [
        Encoded(each.id, each.extension, each.write_base(source, columns), source.count)
        for each in formats
    ]


def encode_diff(
    changes: Sequence[RowChange], formats: Sequence[Format], columns: Sequence[Column]
) -> list[Encoded]:
    """A part of a diff, in each format."""
    return [
        Encoded(each.id, each.extension, each.write_diff(changes, columns), len(changes))
        for each in formats
    ]


async def put_part(
    destination: Destination, spot: Spot, number: int, encoded: Sequence[Encoded]
) -> dict[str, Part]:
    """Store a part in all its formats; what the manifest says of it.

    Raises:
        DestinationError: It is not known to be stored.
    """
    stored: dict[str, Part] = {}
    for each in encoded:
        digest = await _hash_of(each.body)
        own = spot.key(number, each.extension)
        beside = other_key(own, each.extension, digest)
        # Once more, as it may be collected while it is looked at; nobody else has that key.
        key = await _put_under(destination, (own, beside, beside), each.body)
        count = each.row_count if spot.parts > 1 else None
        uri = destination.uri(key)
        stored[each.format_id] = Part(uri, len(each.body), key, digest, count)
    return stored


async def read_object(destination: Destination, prefix: str, part: Part) -> bytes:
    """The bytes of an object, as they were written.

    Raises:
        MissingObjectError: It is not there.
        DamagedObjectError: Other bytes are.
        DestinationError: It cannot be read now.
    """
    key = key_of_part(prefix, part)
    found = await destination.get(key)
    if found is None:
        raise MissingObjectError(destination.name, key)
    if len(found.body) != part.size_bytes:
        raise DamagedObjectError(key, f"it has {len(found.body)} bytes, not {part.size_bytes}")
    if part.sha256 is not None and await _hash_of(found.body) != part.sha256:
        raise DamagedObjectError(key, "its hash is another one")
    return found.body


async def _hash_of(body: bytes) -> str:
    """The hash of an object, in hex."""
    if len(body) <= _HASHED_HERE_BYTES_MAX:
        return _hash(body)
    return await run_sync(_hash, body)


def _hash(body: bytes) -> str:
    return sha256(body).hexdigest()


def key_of_part(prefix: str, part: Part) -> str:
    """The key of an object in this archive, wherever it was written first."""
    name = part.uri if part.key is None else part.key
    below = name.rpartition(_EPOCH)
    if not below[1]:
        raise DamagedObjectError(name, "its key is not one of an archive")
    return f"{prefix}{_EPOCH}{below[2]}"


def checked_count(items: Iterable[_Item], key: str, expected: int | None) -> Iterator[_Item]:
    """Items, and an error at their end if they are not as many as was said.

    Raises:
        DamagedObjectError: They are more, or fewer.
    """
    count = 0
    for item in items:
        count += 1
        yield item
    if expected is not None and count != expected:
        raise DamagedObjectError(key, f"it has {count} rows or changes, not {expected}")


def checked_rows(
    rows: Iterable[Row], key: str, key_fields: Sequence[str], part: PartOf
) -> Iterator[Row]:
    """Rows, and an error at the first one that belongs into another part.

    Raises:
        DamagedObjectError: There is one.
    """
    for row in rows:
        _check_part(key_of(row, key_fields), key, part)
        yield row


def checked_changes(
    changes: Iterable[RowChange], key: str, key_fields: Sequence[str], part: PartOf
) -> Iterator[RowChange]:
    """Changes, and an error at the first one that has the row of another key or part.

    Raises:
        DamagedObjectError: There is one.
    """
    for change in changes:
        row = change.new
        if row is not None and sort_key(key_of(row, key_fields)) != sort_key(change.key):
            raise DamagedObjectError(key, f"{list(change.key)!r} has the row of another key")
        # A TRUNCATE is in every part.
        if change.action is not Action.TRUNCATE:
            _check_part(change.key, key, part)
        yield change


def _check_part(row_key: Key, key: str, part: PartOf) -> None:
    # A second row in another part would be found by nobody who looks for the first.
    number = bucket_of(row_key, part.parts)
    if number != part.number:
        raise DamagedObjectError(key, f"{list(row_key)!r} belongs into part {number}")


async def _put_under(destination: Destination, keys: Sequence[str], body: bytes) -> str:
    """Store an object under the first key that no other bytes have taken."""
    for key in keys:
        if await _put_once(destination, key, body):
            return key
    raise DamagedObjectError(keys[-1], "other bytes are under the key that is named after them")


async def _put_once(destination: Destination, key: str, body: bytes) -> bool:
    """Whether an object is there now; False if other bytes are."""
    try:
        await destination.put_if(key, body, None)
    except ConflictError:
        found = await destination.get(key)
        if found is None or found.body != body:
            return False
        try:
            await destination.put_if(key, body, found.revision)
        except ConflictError:
            # It was collected as an orphan meanwhile, and somebody else may have taken the key.
            return False
    return True


class _Counting(Iterable[Row]):
    """Rows, and how many there were the last time."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Row]:
        self.count = 0
        for row in self._rows:
            self.count += 1
            yield row
