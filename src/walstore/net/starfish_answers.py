"""What the answers of a Starfish server mean: every status, every body, none of them believed.

- An answer is what the format says, or a `TransportError`; absence is only what is said to be so.
- A server that is busy, broken or out of its mind may recover: `retryable`. One that understood
  and refused will refuse again.
- What a server says about an error is shown cut and cleaned: it may end up in a terminal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from walstore.canon import parse
from walstore.document.ports import ElementRefusedError, StoredSnapshot
from walstore.errors import MalformedError, TransportError
from walstore.wire.limits import TS_MAX

# What is shown of an error that a server reports, in characters.
REASON_SIZE_MAX = 200

# Too early, too many, too slow: said by servers that would answer later.
_BUSY = frozenset({408, 425, 429})


class Answer(NamedTuple):
    """A status and the whole body that came with it."""

    status: int
    body: bytes


class StarfishStatusError(TransportError):
    """A server answered with something else than success.

    Attributes:
        status: The HTTP status.
        reason: What the server says about it; empty if it says nothing.
    """

    def __init__(self, status: int, reason: str, *, retryable: bool) -> None:
        explained = f"{status} {reason}" if reason else str(status)
        super().__init__(f"the server answered {explained}", retryable=retryable)
        self.status = status
        self.reason = reason


class StarfishRefusedError(StarfishStatusError):
    """The server does not know who calls, or does not allow it: 401 or 403."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason, retryable=False)


class StarfishForbiddenError(StarfishRefusedError, ElementRefusedError):
    """The server knows who calls, and does not allow it: 403."""

    is_of_author = True

    def __init__(self, reason: str) -> None:
        super().__init__(403, reason)


class StarfishMalformedError(StarfishStatusError, ElementRefusedError):
    """The server cannot read what was sent: 400."""

    def __init__(self, reason: str) -> None:
        super().__init__(400, reason, retryable=False)


class StarfishTooLargeError(StarfishStatusError, ElementRefusedError):
    """What was sent is larger than the server takes: 413."""

    def __init__(self, reason: str) -> None:
        super().__init__(413, reason, retryable=False)


class StarfishAnswerError(TransportError):
    """A server answered with something that the format does not know.

    Attributes:
        reason: What is wrong with the answer.
    """

    def __init__(self, reason: str, *, retryable: bool = True) -> None:
        super().__init__(f"the server's answer makes no sense: {reason}", retryable=retryable)
        self.reason = reason


def error_of(answer: Answer) -> TransportError:
    """The error that an answer other than 200 is."""
    status, reason = answer.status, reason_of(answer)
    if status == 400:
        return StarfishMalformedError(reason)
    if status == 401:
        return StarfishRefusedError(status, reason)
    if status == 403:
        return StarfishForbiddenError(reason)
    if status == 413:
        return StarfishTooLargeError(reason)
    return StarfishStatusError(status, reason, retryable=status >= 500 or status in _BUSY)


def says(answer: Answer, status: int, reason: str) -> bool:
    """Whether an answer is this very error."""
    return answer.status == status and reason_of(answer) == reason


def reason_of(answer: Answer) -> str:
    """What a server says about an error, fit to be shown."""
    try:
        reason = _object(answer.body).get("error")
    except StarfishAnswerError:
        return ""
    if not isinstance(reason, str):
        return ""
    shown = reason[:REASON_SIZE_MAX]
    return "".join(character if character.isprintable() else "?" for character in shown)


def read_ts(body: bytes) -> int:
    """The `ts` of an appended element.

    Raises:
        StarfishAnswerError: There is none.
    """
    ts = _object(body).get("timestamp")
    if type(ts) is not int or not 0 <= ts <= TS_MAX:
        raise StarfishAnswerError("`timestamp` is not an integer from 0 to 2^53 - 1")
    return ts


def read_hash(body: bytes) -> str:
    """The hash of a stored document.

    Raises:
        StarfishAnswerError: There is none.
    """
    digest = _text(_object(body), "hash")
    if not digest:
        raise StarfishAnswerError("`hash` is empty")
    return digest


def read_items(body: bytes, field: str) -> list[object]:
    """The elements of a log, as JSON values.

    Raises:
        StarfishAnswerError: There is no list of them.
    """
    data = _object(body).get("data")
    items = data.get(field) if isinstance(data, dict) else None
    if not isinstance(items, list):
        raise StarfishAnswerError(f"`data` has no list `{field}`")
    return items


def read_document(body: bytes) -> StoredSnapshot | None:
    """A stored document and its hash; None if the server says that there is none.

    Raises:
        StarfishAnswerError: It is neither.
    """
    members = _object(body)
    revision, document = _text(members, "hash"), members.get("data")
    if not isinstance(document, dict):
        raise StarfishAnswerError("`data` is not an object")
    if revision:
        return StoredSnapshot(document, revision)
    if document:
        raise StarfishAnswerError("a document without a hash")
    return None


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = parse(body)
    except MalformedError as error:
        raise StarfishAnswerError(error.reason) from error
    if not isinstance(value, dict):
        raise StarfishAnswerError("not an object")
    return value


def _text(members: dict[str, Any], name: str) -> str:
    text = members.get(name)
    if type(text) is not str:
        raise StarfishAnswerError(f"`{name}` is not text")
    return text
