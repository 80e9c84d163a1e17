"""The members of a frame: each reader returns a value of its type, or raises `WrongError`."""

from __future__ import annotations

import re
from typing import Any

import orjson

from walstore.canon import parse
from walstore.errors import MalformedError
from walstore.wire.element import has_too_many_values
from walstore.wire.frames.codes import Code, FrameError
from walstore.wire.limits import (
    DOCUMENT_KEY_SIZE_MAX,
    FRAME_BRACKETS_MAX,
    FRAME_OF_RELAY_BYTES_MAX,
    FRAME_VALUES_MAX,
    RECORD_BYTES_MAX,
    RECORD_NAME_SIZE_MAX,
    REF_SIZE_MAX,
    REQUEST_IDS_MAX,
    TS_MAX,
)

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")

# A member that is no container, and a frame that is made of such alone. Nothing is tried twice.
SCALAR = rb"""\s*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s",\[\]{}]++)\s*+"""
_FLAT = re.compile(rb"\s*+\[(?:%b,)*+%b\]\s*+" % (SCALAR, SCALAR), re.DOTALL)


class WrongError(Exception):
    """A member is not what it should be."""

    def __init__(self, reason: str, code: Code = Code.MALFORMED) -> None:
        super().__init__(reason)
        self.code = code


def read_array(text: bytes) -> tuple[str, list[Any]]:
    """The verb and the members of a frame that may hold elements."""
    check_size(text)
    if has_too_many_values(text, FRAME_VALUES_MAX):
        raise FrameError(Code.TOO_LARGE, f"more than {FRAME_VALUES_MAX} values in one frame")
    return _verb_and_members(_load(text))


def read_plain_array(text: bytes) -> tuple[str, list[Any]]:
    """The same of a frame without elements: few containers, and no half characters."""
    check_size(text)
    # A text, of a snapshot say, may hold as many as it likes.
    if text.count(b"[") + text.count(b"{") > FRAME_BRACKETS_MAX and not _FLAT.fullmatch(text):
        raise FrameError(Code.MALFORMED, "too many brackets in one frame")
    if has_too_many_values(text, FRAME_BRACKETS_MAX):
        raise FrameError(Code.MALFORMED, "too many values in one frame")
    try:
        return _verb_and_members(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise FrameError(Code.MALFORMED, "not JSON") from error


def check_size(text: bytes, bytes_max: int = FRAME_OF_RELAY_BYTES_MAX) -> None:
    if len(text) > bytes_max:
        raise FrameError(Code.TOO_LARGE, f"{len(text)} bytes in one frame")


def _verb_and_members(value: Any) -> tuple[str, list[Any]]:
    if type(value) is not list or not value or type(value[0]) is not str:
        raise FrameError(Code.MALFORMED, "not an array that begins with a verb")
    return value[0], value[1:]


def _load(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # Elements may hold lone surrogates, whose escapes orjson does not read.
        if not _SURROGATE_ESCAPE.search(text):
            raise FrameError(Code.MALFORMED, "not JSON") from error
    try:
        return parse(text)
    except MalformedError as error:
        raise FrameError(Code.MALFORMED, "not JSON") from error


def ref_of(members: list[Any]) -> str | None:
    ref = members[0] if members else None
    is_ref = type(ref) is str and 1 <= len(ref) <= REF_SIZE_MAX and _is_encodable(ref)
    return ref if is_ref else None


def take(members: list[Any], count: int) -> list[Any]:
    if len(members) != count:
        raise WrongError(f"{count} members expected, not {len(members)}")
    return members


def text_of(value: object, what: str, size_max: int, size_min: int = 0) -> str:
    if type(value) is not str:
        raise WrongError(f"{what} is not text")
    if not size_min <= len(value) <= size_max:
        raise WrongError(f"{what} is not {size_min} to {size_max} characters long")
    if not _is_encodable(value):
        raise WrongError(f"{what} has half a character")
    return value


def _is_encodable(text: str) -> bool:
    return text.isascii() or _SURROGATE.search(text) is None


def read_ref(value: object) -> str:
    return text_of(value, "the ref", REF_SIZE_MAX, 1)


def read_document(value: object) -> str:
    return read_name(value, "the document key", 1)


def read_name(value: object, what: str, size_min: int = 0) -> str:
    name = text_of(value, what, DOCUMENT_KEY_SIZE_MAX, size_min)
    if not name.isprintable():
        raise WrongError(f"{what} has characters that cannot be shown")
    return name


def hex_of(value: object, what: str, size: int) -> str:
    text = text_of(value, what, size, size)
    if text.strip("0123456789abcdef"):
        raise WrongError(f"{what} is not lower-case hex")
    return text


def read_log(value: object) -> str | None:
    return None if value is None else hex_of(value, "the log", 32)


def read_revision(value: object) -> str | None:
    return None if value is None else hex_of(value, "the revision", 64)


def read_record_name(value: object) -> str:
    name = text_of(value, "the name", RECORD_NAME_SIZE_MAX, 1)
    if name.strip("abcdefghijklmnopqrstuvwxyz"):
        raise WrongError("the name is not of the letters a to z")
    return name


def read_record_text(value: object) -> str:
    # It has at least as many bytes as characters, so that what is far too large is not encoded.
    if type(value) is str and len(value) > RECORD_BYTES_MAX:
        raise WrongError(f"more than {RECORD_BYTES_MAX} bytes", Code.TOO_LARGE)
    text = text_of(value, "the text", RECORD_BYTES_MAX, 1)
    if len(text.encode()) > RECORD_BYTES_MAX:
        raise WrongError(f"more than {RECORD_BYTES_MAX} bytes", Code.TOO_LARGE)
    # Each would take six bytes in a frame; JSON has none but between its members.
    if _CONTROL.search(text):
        raise WrongError("the text has control characters")
    return text


def integer_of(value: object, what: str, largest: int = TS_MAX, smallest: int = 0) -> int:
    if type(value) is not int or not smallest <= value <= largest:
        raise WrongError(f"{what} is not an integer from {smallest} to {largest}")
    return value


def boolean_of(value: object, what: str) -> bool:
    if type(value) is not bool:
        raise WrongError(f"{what} is not true or false")
    return value


def object_of(value: object, what: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise WrongError(f"{what} is not an object")
    return value


def options_of(value: object, known: frozenset[str]) -> dict[str, Any]:
    options = object_of(value, "the options")
    if unknown := options.keys() - known:
        raise WrongError(f"{min(unknown)[:40]!r} is not an option")
    return options


def texts_of(value: object, what: str) -> frozenset[str] | None:
    if value is None:
        return None
    if type(value) is not list or len(value) > REQUEST_IDS_MAX:
        raise WrongError(f"{what} is not an array of at most {REQUEST_IDS_MAX}")
    return frozenset(read_name(each, what) for each in value)
