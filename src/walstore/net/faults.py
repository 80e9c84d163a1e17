"""What can go wrong between a client and a relay, each as an error of its own.

- A relay that breaks the protocol is a `RelayFaultError`; it ends the connection, and what waits
  for an answer is asked again on the next one.
- What a relay refuses is told by its code: some of it may succeed later, most of it may not.
- What is not known to be stored is always an error that may be tried again: sending the same
  once more is safe.
"""

from __future__ import annotations

from walstore.document.ports import (
    CheckpointTooOldError,
    ElementRefusedError,
    OtherLogError,
    SnapshotConflictError,
)
from walstore.errors import PeerError, TransportError, UsageError
from walstore.wire.frames import Code, Refusal
from walstore.wire.limits import TS_MAX


class RelayFaultError(PeerError):
    """A relay said something that the protocol does not allow; the connection ends.

    Attributes:
        reason: What it was.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the relay broke the protocol: {reason}")
        self.reason = reason


class NotAdmittedError(TransportError):
    """A relay does not let this client in: it speaks another version, or refuses its key.

    Attributes:
        reason: What it says.
    """

    def __init__(self, reason: str, *, retryable: bool = False) -> None:
        super().__init__(f"not admitted by the relay: {reason}", retryable=retryable)
        self.reason = reason


class RelayRefusalError(TransportError):
    """A relay did not do what it was asked.

    Attributes:
        code: Why.
        reason: The same in the relay's words.
        retry_ms: How long to wait, if the relay says so; otherwise 0.
    """

    def __init__(self, code: Code, reason: str, retry_ms: int = 0) -> None:
        super().__init__(f"refused by the relay: {code}: {reason}", retryable=code.retryable)
        self.code = code
        self.reason = reason
        self.retry_ms = retry_ms


class AppendRefusedError(RelayRefusalError, ElementRefusedError):
    """A relay does not take an element: it is too large or malformed, or its author may not write.

    Attributes:
        is_of_author: Whether the author may not write at all.
    """

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(code, reason)
        self.is_of_author = code is Code.RESTRICTED


class OtherRelayError(TransportError):
    """Another database answers than the one that the changes feed was read from before.

    Attributes:
        expected: The database that was read before.
        found: The one that answers now.
    """

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"another relay is here: {found}, not {expected}", retryable=False)
        self.expected = expected
        self.found = found


class ReplayTooOldError(TransportError):
    """Events above a seq can no longer be replayed: start from a bootstrap.

    Attributes:
        min_seq: The lowest seq that still can.
    """

    def __init__(self, min_seq: int) -> None:
        super().__init__(f"the changes feed begins at {min_seq}", retryable=False)
        self.min_seq = min_seq


class OfflineError(TransportError):
    """There is no connection, and the last attempt to make one failed.

    Attributes:
        reason: Why it failed.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"offline: {reason}", retryable=True)
        self.reason = reason


class NoAnswerError(TransportError):
    """The relay did not answer in time; whether it did what it was asked is not known."""

    def __init__(self) -> None:
        super().__init__("the relay did not answer in time", retryable=True)


class FalseAnswerError(TransportError):
    """An answer is not the one to its question, or contradicts itself.

    Such as a snapshot or an element that is not the one that it names, or that nobody asked for.
    """

    def __init__(self, what: str = "what it is called") -> None:
        super().__init__(f"the relay's answer is not {what}", retryable=True)


class BusyError(TransportError):
    """As much as may wait for answers is waiting already."""

    def __init__(self) -> None:
        super().__init__("too much waits for the relay already", retryable=True)


class TransportClosedError(TransportError):
    """The transport was closed, or not opened yet."""

    def __init__(self, reason: str = "the transport is not open") -> None:
        super().__init__(reason, retryable=False)


class TooLargeError(TransportError):
    """Larger than any relay takes: it was not sent."""

    def __init__(self, size: int, size_max: int, what: str = "", unit: str = "bytes") -> None:
        message = f"{what}{size} {unit} exceed the {size_max} that a relay takes"
        super().__init__(message, retryable=False)


class ElementTooLargeError(TooLargeError, ElementRefusedError):
    """An element that is larger than this relay takes: it was not sent.

    Attributes:
        bytes_max: The largest element that it takes.
    """

    def __init__(self, size: int, bytes_max: int) -> None:
        super().__init__(size, bytes_max, "an element: ")
        self.bytes_max = bytes_max


class DocumentKeyRefusedError(UsageError):
    """A document key that cannot be used with a relay.

    Attributes:
        key: The key.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key[:80]!r}: {reason}")
        self.key = key


class PresenceRefusedError(UsageError):
    """A presence that relays do not pass on.

    Attributes:
        reason: Why not.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the presence cannot be sent: {reason}")
        self.reason = reason


class FeedRefusedError(UsageError):
    """A wish that no changes feed can fulfil.

    Attributes:
        reason: Why not.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"this cannot be asked of a changes feed: {reason}")
        self.reason = reason


class RecordRefusedError(UsageError):
    """A record that no relay keeps.

    Attributes:
        reason: Why not.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the record cannot be kept: {reason}")
        self.reason = reason


def error_of(refusal: Refusal, document_key: str, log: str | None) -> TransportError:
    """What a refused call raises.

    Args:
        refusal: What the relay said.
        document_key: What the call was about.
        log: The log that it named.
    """
    details = refusal.details
    match refusal.code:
        case Code.CHECKPOINT_TOO_OLD:
            return CheckpointTooOldError(_count(details.get("floor")))
        case Code.CONFLICT:
            return SnapshotConflictError()
        case Code.OTHER_LOG if log is not None:
            found = details.get("log")
            return OtherLogError(document_key, log, found[:64] if type(found) is str else None)
        case _:
            retry_ms = _count(details.get("retry_ms"))
            return RelayRefusalError(refusal.code, refusal.message, retry_ms)


# A relay that has looked at an element and refuses it so will refuse it again. What it says of
# the connection, of the log or of itself is not about the element.
_REFUSED_FOR_GOOD = frozenset({Code.MALFORMED, Code.TOO_LARGE, Code.INVALID, Code.RESTRICTED})


def append_error_of(refusal: Refusal, document_key: str, log: str | None) -> TransportError:
    """What an append raises that was refused."""
    if refusal.code in _REFUSED_FOR_GOOD:
        return AppendRefusedError(refusal.code, refusal.message)
    return error_of(refusal, document_key, log)


def feed_error_of(refusal: Refusal) -> TransportError:
    """What a changes feed raises that was refused."""
    if refusal.code is Code.CHECKPOINT_TOO_OLD:
        return ReplayTooOldError(_count(refusal.details.get("min_seq")))
    return error_of(refusal, "", None)


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value <= TS_MAX else 0
