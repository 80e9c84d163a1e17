"""The keys of an archive's objects.

    <prefix>manifest.json
    <prefix>epoch=3/snapshot-<to><ext>
    <prefix>epoch=3/diff-<from>-<to><ext>
    <prefix>epoch=3/diff-<from>-<to>-part-00002-of-00016<ext>      one of several parts
    <prefix>epoch=3/diff-<from>-<to>-0123456789ab<ext>             if other bytes have its name

- A prefix is taken as it is, and usually ends with a slash.
- In a position `/`, `:` and spaces become `_`; an empty one is `0`, and none at all is `start`.
- Every destination holds every key that `check_key` lets through, and no other.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from walstore.errors import UsageError

# What object stores allow, in UTF-8.
KEY_BYTES_MAX = 1024

# The first segment of a destination's own files, where it has any.
RESERVED = ".walstore"

DIGEST_SIZE = 12

_UNSAFE = re.compile("[/: ]")
_EPOCH = re.compile(r"epoch=([1-9][0-9]{0,14})/", re.ASCII)
_REFUSED = re.compile(r"[\x00-\x1f\x7f\\]")


class KeyRefusedError(UsageError):
    """A key that not every destination can hold, or that would leave its place.

    Attributes:
        key: The key.
        reason: What is wrong with it.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"the key {key[:KEY_BYTES_MAX]!r} {reason}")
        self.key = key
        self.reason = reason


class PartOf(NamedTuple):
    """Which of how many parts, counted from 0."""

    number: int
    parts: int


def manifest_key(prefix: str) -> str:
    """Where the manifest is."""
    return f"{prefix}manifest.json"


def base_key(
    prefix: str, epoch: int, to: int | str, extension: str, part: PartOf | None = None
) -> str:
    """Where a base is, or a part of one."""
    return f"{prefix}epoch={epoch}/snapshot-{escaped(to)}{_part(part)}{extension}"


def diff_key(
    prefix: str,
    epoch: int,
    since: int | str | None,
    to: int | str,
    extension: str,
    part: PartOf | None = None,
) -> str:
    """Where a diff is, or a part of one."""
    name = f"diff-{escaped(since)}-{escaped(to)}{_part(part)}"
    return f"{prefix}epoch={epoch}/{name}{extension}"


def epoch_of(prefix: str, key: str) -> int:
    """The epoch of an object, by its key; 0 if that names none."""
    found = _EPOCH.match(key.removeprefix(prefix))
    return int(found[1]) if found else 0


def other_key(key: str, extension: str, sha256: str) -> str:
    """Where an object goes whose own key is taken by other bytes."""
    return f"{key.removesuffix(extension)}-{sha256[:DIGEST_SIZE]}{extension}"


def escaped(position: int | str | None) -> str:
    """A position as it stands in a key."""
    if position is None:
        return "start"
    return _UNSAFE.sub("_", str(position)) or "0"


def check_key(key: str) -> None:
    """Check that a key names an object, the same one everywhere.

    Raises:
        KeyRefusedError: It does not.
    """
    flaw = key_flaw(key)
    if flaw is not None:
        raise KeyRefusedError(key, flaw)


def check_prefix(prefix: str) -> None:
    """Check that a prefix can begin the keys of an archive.

    Raises:
        KeyRefusedError: It cannot.
    """
    # The longest name is that of a diff's part, between two positions of 19 digits.
    longest = diff_key(prefix, 10**9, 10**18, 10**18, ".jsonl.part", PartOf(10**4, 10**4))
    flaw = key_flaw(other_key(longest, ".jsonl.part", "0" * 64))
    if flaw is not None:
        raise KeyRefusedError(prefix, flaw)


def _part(part: PartOf | None) -> str:
    return "" if part is None else f"-part-{part.number:05}-of-{part.parts:05}"


def key_flaw(key: str) -> str | None:
    """What is wrong with a key, in a few words; None if nothing is."""
    segments = key.split("/")
    if not key:
        return "is empty"
    if ".." in segments or "." in segments:
        return "has a segment of dots alone"
    if "" in segments:
        return "has an empty segment, or begins or ends with a slash"
    if segments[0] == RESERVED:
        return f"begins with {RESERVED}, which is for destinations themselves"
    if _REFUSED.search(key):
        return "has a control character or a backslash"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "is not Unicode text"
    return None if size <= KEY_BYTES_MAX else f"is longer than {KEY_BYTES_MAX} bytes"
