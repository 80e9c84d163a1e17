"""What a document needs from outside: a log, a place for snapshots, and one for records.

- Adapters keep these promises; the suites in `walstore.testing` check them.
- A failure of the network is a `TransportError`. Absence is an answer, never an error, and an
  error is never taken for absence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from walstore.canon import parse
from walstore.errors import TransportError


class Body(NamedTuple):
    """What is appended: an element without its `ts`.

    `canonical` is the text that was signed; sent as it is, nothing is encoded twice.
    """

    canonical: bytes
    author: str
    signature: str

    @property
    def data(self) -> dict[str, Any]:
        """What the text says."""
        return cast("dict[str, Any]", parse(self.canonical))


class RawElement(NamedTuple):
    """A pulled element whose data is at hand as text, to be parsed once and not written again."""

    ts: int
    data: bytes
    author: str
    signature: str


class CheckpointTooOldError(TransportError):
    """The log was pruned: elements above the checkpoint are gone, a snapshot stands for them.

    Attributes:
        floor: Elements up to this `ts` may be gone; from here on the log can be read.
    """

    def __init__(self, floor: int) -> None:
        super().__init__(f"the log is pruned up to {floor}", retryable=False)
        self.floor = floor


class LogBehindError(TransportError):
    """The log ends before the checkpoint: elements that were read in it are gone.

    It is what a log does that was replaced by an older copy of itself, or emptied.

    Attributes:
        head: Where it ends: the `ts` of the newest element that it ever had; 0 if it had none.
        checkpoint: What was asked for.
        reason: What is missing, of the log.
    """

    def __init__(self, *, head: int, checkpoint: int) -> None:
        self._describe(f"it ends at {head}, before {checkpoint}", head, checkpoint)

    def _describe(self, reason: str, head: int, checkpoint: int) -> None:
        TransportError.__init__(self, f"the log was rolled back: {reason}", retryable=False)
        self.reason = reason
        self.head = head
        self.checkpoint = checkpoint


class LogReplacedError(LogBehindError):
    """The log no longer holds an element that was read in it, although it goes on beyond it.

    It is what a log does that was replaced by an older copy of itself, and then written to.
    """

    def __init__(self, *, head: int, checkpoint: int) -> None:
        self._describe(f"it no longer holds the element at {checkpoint}", head, checkpoint)


class OtherLogError(TransportError):
    """A relay holds another log under this key than the one that was read before.

    Attributes:
        document_key: The key that they share.
        expected: The log that was read before.
        found: The log that the relay holds; None if it does not say.
    """

    def __init__(self, document_key: str, expected: str, found: str | None) -> None:
        super().__init__(
            f"{document_key!r} is another log here: {found}, not {expected}", retryable=False
        )
        self.document_key = document_key
        self.expected = expected
        self.found = found


class ElementRefusedError(TransportError):
    """An element was not stored, and the same one never will be.

    Attributes:
        is_of_author: Whether nothing of this author's is taken, whatever it is.
        bytes_max: The largest element that is taken, if the size is what is wrong; else None.
    """

    is_of_author: bool = False
    bytes_max: int | None = None


class Transport(Protocol):
    """One log per document key."""

    async def append(self, document_key: str, body: Body) -> int:
        """Append an element durably and return its `ts`, greater than all before it.

        Appending the same element again returns the same `ts`, or another one; never an error.

        Raises:
            ElementRefusedError: It is not stored, and sending it again is of no use.
            TransportError: It is not known to be stored; the same body may be sent again.
        """
        ...

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """Elements with `ts` above the checkpoint, ascending.

        They come as `RawElement`, or as JSON values in the format's spelling.

        There may be more than one page of them: an empty page says that there are no more.
        Elements that are gone are never left out: then the call fails. So it does, wherever that
        can be told, if the log never reached the checkpoint.

        Raises:
            CheckpointTooOldError: Elements above the checkpoint are gone.
            LogBehindError: Elements up to the checkpoint are gone, which were read before.
            TransportError: The log cannot be read now.
        """
        ...


def pulling_elsewhere(transport: Transport) -> Callable[[str, int], Awaitable[Sequence[object]]]:
    """How a log is pulled as everybody else is given it, where some of it is kept here as well."""
    pull: Callable[[str, int], Awaitable[Sequence[object]]]
    pull = getattr(transport, "pull_elsewhere", transport.pull)
    return pull


class StoredSnapshot(NamedTuple):
    """A snapshot document and the revision that a replacement has to name."""

    document: object
    revision: str


class SnapshotConflictError(TransportError):
    """Somebody else has written the snapshot since it was read."""

    def __init__(self) -> None:
        super().__init__("the snapshot was replaced by somebody else", retryable=True)


class SnapshotStore(Protocol):
    """One snapshot document per key, replaced by compare and swap."""

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The stored snapshot, or None if there definitely is none.

        Raises:
            TransportError: It is not known whether there is one.
        """
        ...

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace the revision that was read; None if there was none.

        Raises:
            SnapshotConflictError: The stored revision is another one.
            TransportError: It is not known to be stored.
        """
        ...


class StoredRecord(NamedTuple):
    """The text of a record and the revision that a replacement has to name."""

    text: str
    revision: str


class RecordConflictError(TransportError):
    """Somebody else has written the record since it was read."""

    def __init__(self) -> None:
        super().__init__("the record was replaced by somebody else", retryable=True)


class RecordStore(Protocol):
    """Small texts beside a log, by name, replaced by compare and swap.

    A name is 1 to 32 of the letters a to z, a text at most `RECORD_BYTES_MAX` bytes of UTF-8
    without control characters.
    """

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        """The stored record, or None if there definitely is none.

        Raises:
            TransportError: It is not known whether there is one.
        """
        ...

    async def write_record(
        self, document_key: str, name: str, text: str, revision: str | None
    ) -> str:
        """Replace the revision that was read, None if there was none; the new revision.

        Writing the same text again is never a conflict.

        Raises:
            RecordConflictError: The stored revision is another one.
            TransportError: It is not known to be stored.
        """
        ...


class GrantStore(Protocol):
    """Where signed grants of roles are published; a relay's part of who may do what."""

    async def publish_grant(self, grant: Mapping[str, Any]) -> None:
        """Have a signed grant count from now on.

        Raises:
            TransportError: It is not known to count, or is refused.
        """
        ...
