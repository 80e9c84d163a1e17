"""The errors of a document, each saying what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from walstore.document.events import Gap, Rejection
from walstore.document.ports import ElementRefusedError
from walstore.errors import PeerError, UsageError
from walstore.wire.limits import SESSION_SIZE_MAX


class NotOpenError(UsageError):
    """The document is used before `open()`."""

    def __init__(self) -> None:
        super().__init__("the document is not open; await open() first")


class SessionUsedError(UsageError):
    """The session nonce was used before by this author in this document."""

    def __init__(self, session: str) -> None:
        super().__init__(
            f"the session nonce {session!r} was used before; leave it out for a new one"
        )
        self.session = session


class SessionNameError(UsageError):
    """Nothing that peers would read can be written in a session that is called so."""

    def __init__(self, session: str) -> None:
        super().__init__(
            f"the session nonce {session!r} is not 1 to {SESSION_SIZE_MAX} characters of ASCII that"
            " can be shown; leave it out for a new one"
        )
        self.session = session


class ReadOnlyError(UsageError):
    """The log was rolled back; writing now would reuse clocks. See `accept_rollback()`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the document is read-only: {reason}; see accept_rollback()")
        self.reason = reason


class NoSnapshotStoreError(UsageError):
    """The document was made without a snapshot store."""

    def __init__(self) -> None:
        super().__init__(
            "no snapshot_store was given, so snapshots can be neither read nor written"
        )


class StillRefusedError(ElementRefusedError):
    """What is first in the queue was refused for good, and everything behind it waits.

    Attributes:
        reason: Why, in words.
    """

    def __init__(self, reason: str, *, is_of_author: bool) -> None:
        super().__init__(reason, retryable=False)
        self.reason = reason
        self.is_of_author = is_of_author


class UnopenedError(UsageError):
    """Something waits whose key is not at hand: it cannot be made anew, and must not be lost."""

    def __init__(self) -> None:
        super().__init__("an edit that waits cannot be opened yet; fetch its key first")


class RejectedElementsError(PeerError):
    """Elements were rejected. All others were folded, and the log goes on.

    Attributes:
        rejections: What was rejected, and why.
    """

    def __init__(self, rejections: Sequence[Rejection]) -> None:
        first = rejections[0]
        more = f" and {len(rejections) - 1} more" if len(rejections) > 1 else ""
        super().__init__(f"rejected the element at ts {first.ts}: {first.reason}{more}")
        self.rejections = list(rejections)


class SequenceGapError(PeerError):
    """Elements are missing, and `strict_sequence` was asked for.

    Attributes:
        gaps: What is missing.
    """

    def __init__(self, gaps: Sequence[Gap]) -> None:
        first = gaps[0]
        super().__init__(
            f"elements {first.expected} to {first.got - 1} of {first.author[:8]}… are missing"
        )
        self.gaps = list(gaps)


class RollbackDetectedError(PeerError):
    """The log no longer holds what this reader has seen in it before.

    Attributes:
        reason: What is missing.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the log was rolled back: {reason}")
        self.reason = reason


class SnapshotMismatchError(PeerError):
    """A role-signed snapshot is not what the log says.

    Under `re-derive` the document shows the log's own fold, otherwise what the snapshot says.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the snapshot is false: {reason}")
        self.reason = reason


class SnapshotRefusedError(UsageError):
    """No snapshot can be signed: something before it is missing or cannot be read.

    Attributes:
        reasons: Each thing that stands in the way.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("cannot sign a snapshot over " + "; ".join(reasons))
        self.reasons = list(reasons)
