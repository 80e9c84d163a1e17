"""Which part of an artifact a row is in.

- Rows of one document are in one part, the same one in every artifact of an archive: whoever
  changes a few documents reads a few parts.
- The rule is the same in every process, language and year: the SHA-256 of the first key field.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from walstore.archive.rows import Action, Key, RowChange
from walstore.canon import Json, canonical_bytes

_PREFIX_SIZE = 4


def bucket_of(key: Key, parts: int) -> int:
    """The part of a key; of several parts, counted from 0."""
    return bucket_of_first(key[0] if key else None, parts)


def bucket_of_first(value: Json, parts: int) -> int:
    """The part of every key that begins with a value."""
    if parts == 1:
        return 0
    text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else None
    digest = sha256(canonical_bytes(value) if text is None else text).digest()
    return int.from_bytes(digest[:_PREFIX_SIZE]) % parts


def by_bucket(changes: Iterable[RowChange], parts: int) -> list[list[RowChange]]:
    """Changes by part, in the order given; a TRUNCATE is in every one of them."""
    buckets: list[list[RowChange]] = [[] for _ in range(parts)]
    for change in changes:
        if change.action is Action.TRUNCATE:
            for bucket in buckets:
                bucket.append(change)
        else:
            buckets[bucket_of(change.key, parts)].append(change)
    return buckets
