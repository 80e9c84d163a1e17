"""The members of a manifest's text: each is what it has to be, or refused by its place.

- A place is spelled as `artifacts[3].formats.jsonl.size_bytes`.
- Everything here raises `ManifestError`, and only that; but for a version that is too new.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_args

from walstore.archive.keys import key_flaw
from walstore.archive.manifest import (
    PARTS_MAX,
    POSITION_MAX,
    VERSION_PARTS,
    VERSION_WHOLE,
    Kind,
    ManifestError,
    Mode,
    NewerManifestError,
)
from walstore.archive.times import time_ms
from walstore.canon import INTEGER_MAX

Members = Mapping[str, Any]

_Value = TypeVar("_Value")

_POSITION = re.compile(r"0|[1-9][0-9]{0,18}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def required(
    members: Members, name: str, read: Callable[[object, str], _Value], where: str = ""
) -> _Value:
    """A member that has to be there."""
    path = f"{where}.{name}" if where else name
    if name not in members:
        raise ManifestError(f"{path} is missing")
    return read(members[name], path)


def optional(
    members: Members, name: str, read: Callable[[object, str], _Value], where: str = ""
) -> _Value | None:
    """A member that may be missing, or null."""
    return None if members.get(name) is None else required(members, name, read, where)


def as_object(value: object, where: str) -> Members:
    """An object."""
    if type(value) is not dict:
        raise ManifestError(f"{where} is not an object")
    return value


def as_array(value: object, where: str) -> list[Any]:
    """An array."""
    if type(value) is not list:
        raise ManifestError(f"{where} is not an array")
    return value


def as_text(value: object, where: str) -> str:
    """A text that is not empty."""
    if type(value) is not str or not value:
        raise ManifestError(f"{where} is not a text, or empty")
    return value


def as_prefix(value: object, where: str) -> str:
    """A text, which may be empty."""
    return "" if value == "" else as_text(value, where)


def as_count(value: object, where: str) -> int:
    """A whole number that is not negative."""
    if type(value) is not int or not 0 <= value <= INTEGER_MAX:
        raise ManifestError(f"{where} is not a whole number from 0 to 2^53 − 1")
    return value


def as_version(value: object, where: str) -> int:
    """A version that is known here; a later one is refused as such."""
    version = as_count(value, where)
    if version > VERSION_PARTS:
        raise NewerManifestError(version)
    if version < VERSION_WHOLE:
        raise ManifestError(f"{where} is {version}")
    return version


def as_parts(value: object, where: str) -> int:
    """How many parts there are, if they are several."""
    parts = as_count(value, where)
    if not 2 <= parts <= PARTS_MAX:
        raise ManifestError(f"{where} is not from 2 to {PARTS_MAX}")
    return parts


def as_position(value: object, where: str) -> int:
    """A position, which is decimal text."""
    text = as_text(value, where)
    if not _POSITION.fullmatch(text) or int(text) > POSITION_MAX:
        raise ManifestError(f"{where} is not a whole number in decimal text")
    return int(text)


def as_time(value: object, where: str) -> int:
    """A time in milliseconds."""
    time = time_ms(as_text(value, where))
    if time is None:
        raise ManifestError(f"{where} is not a time such as 2026-03-01T12:00:00.000Z")
    return time


def as_sha256(value: object, where: str) -> str:
    """A hash in hex."""
    text = as_text(value, where)
    if not _SHA256.fullmatch(text):
        raise ManifestError(f"{where} is not a SHA-256 in lower-case hex")
    return text


def as_key(value: object, where: str) -> str:
    """A key that leads nowhere else."""
    key = as_text(value, where)
    flaw = key_flaw(key)
    if flaw is not None:
        raise ManifestError(f"{where} {flaw}")
    return key


def as_kind(value: object, where: str) -> Kind:
    """What an artifact is."""
    try:
        return Kind(value)
    except ValueError:
        raise ManifestError(f"{where} is neither snapshot nor diff") from None


def as_mode(value: object, where: str) -> Mode:
    """What rows are."""
    if value not in get_args(Mode):
        raise ManifestError(f"{where} is none of {', '.join(get_args(Mode))}")
    return cast(Mode, value)
