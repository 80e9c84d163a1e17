"""Why a frame was not taken, or a request not carried out."""

from __future__ import annotations

from enum import StrEnum

from walstore.errors import PeerError


class Code(StrEnum):
    """Why something was not done."""

    MALFORMED = "malformed"
    UNKNOWN_VERB = "unknown-verb"
    TOO_LARGE = "too-large"
    INVALID = "invalid"
    AUTH_REQUIRED = "auth-required"
    AUTH_FAILED = "auth-failed"
    RESTRICTED = "restricted"
    OTHER_LOG = "other-log"
    CHECKPOINT_TOO_OLD = "checkpoint-too-old"
    CONFLICT = "conflict"
    RATE_LIMITED = "rate-limited"
    TOO_MANY = "too-many"
    STORAGE = "storage"
    UNAVAILABLE = "unavailable"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self in (Code.RATE_LIMITED, Code.STORAGE, Code.UNAVAILABLE)


class FrameError(PeerError):
    """A frame that cannot be taken.

    Attributes:
        code: What the sender is told.
        reason: The same in words.
        ref: The request that it belongs to, if that much could be read.
    """

    def __init__(self, code: Code, reason: str, ref: str | None = None) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.ref = ref
