"""What a client can ask of a relay, and what it takes for an answer.

- How much of an answer is held is bounded by what was asked for.
- Answers are ascending, end where they say, and name the log that they are from.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from walstore.document.ports import (
    Body,
    LogBehindError,
    RawElement,
    RecordConflictError,
    SnapshotConflictError,
    StoredRecord,
)
from walstore.errors import TransportError
from walstore.net.faults import (
    ElementTooLargeError,
    FalseAnswerError,
    RelayFaultError,
    append_error_of,
)
from walstore.net.pending import Pending
from walstore.wire.frames import (
    Append,
    ClientFrame,
    Delivered,
    Elements,
    EndOfStored,
    GetRecord,
    GetSnapshot,
    KeepRecord,
    Ok,
    PublishGrant,
    Pull,
    PullTail,
    PutSnapshot,
    Record,
    Refusal,
    RelayFrame,
    SnapshotPiece,
)
from walstore.wire.limits import (
    FRAME_BYTES_MAX,
    PULL_BYTES_MAX,
    PULL_ELEMENTS_MAX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOT_PIECE_SIZE,
    TS_MAX,
)

# One page, and one element that made it pass its size.
_PAGE_BYTES_MAX = PULL_BYTES_MAX + FRAME_BYTES_MAX

# The newest elements are asked for by their number alone.
_TAIL_BYTES_MAX = SNAPSHOT_BYTES_MAX


class PendingAppend(Pending[int]):
    """An element on its way; the answer is its `ts`."""

    is_write = True

    def __init__(self, ref: str, document: str, body: Body) -> None:
        super().__init__(ref, document, len(body.canonical))
        self._body = body

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        body = self._body
        self.is_sent = True
        yield Append(self.ref, self.document, log, body.author, body.signature, body.canonical)

    def refuse(self, refusal: Refusal, log: str | None) -> None:
        self.fail(append_error_of(refusal, self.document, log))

    def too_large(self, frame_bytes: int, frame_bytes_max: int) -> TransportError:
        around = frame_bytes - self.size
        return ElementTooLargeError(self.size, max(frame_bytes_max - around, 0))

    def take(self, frame: RelayFrame) -> None:
        if not isinstance(frame, Ok):
            raise _wrong(frame, "an append")
        self.log = read_log_of(frame)
        self.settle(read_ts(frame.result.get("ts")))


class _PendingElements(Pending[list[RawElement]]):
    """Elements that were asked for, ascending."""

    _count_max = PULL_ELEMENTS_MAX
    _bytes_max = _PAGE_BYTES_MAX

    def __init__(self, ref: str, document: str, after: int) -> None:
        super().__init__(ref, document)
        self.is_more = False
        self._after = after
        self._elements: list[RawElement] = []
        self._bytes = 0

    @property
    def last_ts(self) -> int:
        """The `ts` of the newest element that came."""
        return self._elements[-1].ts if self._elements else self._after

    def restart(self) -> None:
        super().restart()
        self._elements, self._bytes = [], 0

    def take(self, frame: RelayFrame) -> None:
        match frame:
            case Elements():
                self._add(frame)
            case EndOfStored():
                self.log = read_log_of(frame)
                self._end(frame)
                self.settle(self._elements)
            case _:
                raise _wrong(frame, "a pull")

    def _add(self, frame: Elements) -> None:
        for delivered in frame.elements:
            self._elements.append(read_delivered(delivered, self.last_ts))
            self._bytes += len(delivered.data)
        if len(self._elements) > self._count_max or self._bytes > self._bytes_max:
            raise RelayFaultError("more elements than were asked for")

    def _end(self, frame: EndOfStored) -> None:
        raise NotImplementedError


class PendingPage(_PendingElements):
    """The first elements above a checkpoint; the answer is empty only if there are none."""

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        self.is_sent = True
        yield Pull(self.ref, self.document, log, self._after, PULL_ELEMENTS_MAX, is_live=False)

    def _end(self, frame: EndOfStored) -> None:
        check_end(frame, self.last_ts)
        if (head := read_head(frame)) < self.last_ts:
            self._fell_behind(head)
        self.is_more = frame.result.get("more") is True
        if self.is_more and not self._elements:
            # An empty page would be taken for the end of the log.
            raise RelayFaultError("a page without elements, and more to come")

    def _fell_behind(self, head: int) -> None:
        if self._elements:
            raise RelayFaultError("a log that ends before its elements")
        self.fail(LogBehindError(head=head, checkpoint=self._after))


class PendingTail(_PendingElements):
    """The newest elements up to a `ts`."""

    _bytes_max = _TAIL_BYTES_MAX

    def __init__(self, ref: str, document: str, upto: int, count: int) -> None:
        super().__init__(ref, document, after=0)
        self._upto = upto
        self._count_max = count

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        self.is_sent = True
        yield PullTail(self.ref, self.document, log, self._upto, self._count_max)

    def _end(self, frame: EndOfStored) -> None:
        if self.last_ts > self._upto:
            raise RelayFaultError("elements beyond those that were asked for")


class PendingSnapshot(Pending[tuple[str, bytes] | None]):
    """A snapshot that is read, the current one or another; its revision and text, or None."""

    def __init__(self, ref: str, document: str, wanted: str | None = None) -> None:
        super().__init__(ref, document)
        self._wanted = wanted
        self._revision: str | None = None
        self._pieces: list[bytes] = []
        self._bytes = 0

    def restart(self) -> None:
        super().restart()
        self._revision, self._pieces, self._bytes = None, [], 0

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        self.is_sent = True
        yield GetSnapshot(self.ref, self.document, log, self._wanted)

    def take(self, frame: RelayFrame) -> None:
        if not isinstance(frame, SnapshotPiece):
            raise _wrong(frame, "a snapshot")
        self.log = frame.log
        if frame.revision is None or frame.text is None:
            self._take_absence(frame)
        else:
            self._take_piece(frame, frame.revision, frame.text.encode())

    def _take_absence(self, frame: SnapshotPiece) -> None:
        if frame.revision is not None or frame.text is not None or self._pieces:
            raise RelayFaultError("a snapshot that is there and is not")
        self.settle(None)

    def _take_piece(self, frame: SnapshotPiece, revision: str, piece: bytes) -> None:
        if self._pieces and revision != self._revision:
            raise RelayFaultError("pieces of two snapshots")
        if self._wanted not in (None, revision):
            raise RelayFaultError("another snapshot than was asked for")
        if not piece:
            raise RelayFaultError("an empty piece of a snapshot")
        self._revision = revision
        self._pieces.append(piece)
        self._bytes += len(piece)
        if self._bytes > SNAPSHOT_BYTES_MAX:
            raise RelayFaultError("a snapshot without end")
        if frame.is_last:
            text = b"".join(self._pieces)
            if sha256(text).hexdigest() == revision:
                self.settle((revision, text))
            else:
                self.fail(FalseAnswerError())


class PendingPut(Pending[None]):
    """A snapshot on its way."""

    is_write = True

    def __init__(self, ref: str, document: str, text: bytes, revision: str | None) -> None:
        super().__init__(ref, document, len(text))
        self._text = text.decode()
        self._id = sha256(text).hexdigest()
        self._revision = revision

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        for start in range(0, len(self._text), SNAPSHOT_PIECE_SIZE):
            piece = self._text[start : start + SNAPSHOT_PIECE_SIZE]
            self.is_sent = start + SNAPSHOT_PIECE_SIZE >= len(self._text)
            yield PutSnapshot(self.ref, self.document, log, self._revision, piece, self.is_sent)

    def take(self, frame: RelayFrame) -> None:
        if not isinstance(frame, Ok):
            raise _wrong(frame, "a snapshot that was put")
        if frame.result.get("revision") == self._id:
            self.settle(None)
        else:
            self.fail(FalseAnswerError())


class PendingRecord(Pending[StoredRecord | None]):
    """A record that is read."""

    def __init__(self, ref: str, document: str, name: str) -> None:
        super().__init__(ref, document)
        self._name = name

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        self.is_sent = True
        yield GetRecord(self.ref, self.document, self._name)

    def take(self, frame: RelayFrame) -> None:
        if not isinstance(frame, Record):
            raise _wrong(frame, "a record")
        self.log = frame.log
        if frame.text is None or frame.revision is None:
            self.settle(None)
        elif sha256(frame.text.encode()).hexdigest() == frame.revision:
            self.settle(StoredRecord(frame.text, frame.revision))
        else:
            self.fail(FalseAnswerError())


class PendingKeep(Pending[str]):
    """A record on its way; the answer is its revision."""

    is_write = True

    def __init__(self, ref: str, document: str, name: str, text: str, revision: str | None) -> None:
        self._text = text.encode()
        super().__init__(ref, document, len(self._text))
        self._name = name
        self._revision = revision

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        self.is_sent = True
        text = self._text.decode()
        yield KeepRecord(self.ref, self.document, log, self._name, self._revision, text)

    def fail(self, error: TransportError) -> None:
        # A relay has one code for both conflicts.
        is_conflict = isinstance(error, SnapshotConflictError)
        super().fail(RecordConflictError() if is_conflict else error)

    def take(self, frame: RelayFrame) -> None:
        if not isinstance(frame, Ok):
            raise _wrong(frame, "a record that was kept")
        new = sha256(self._text).hexdigest()
        if frame.result.get("revision") == new:
            self.settle(new)
        else:
            self.fail(FalseAnswerError())


class PendingGrant(Pending[None]):
    """A grant on its way."""

    is_write = True

    def __init__(self, ref: str, document: str, grant: dict[str, Any]) -> None:
        super().__init__(ref, document)
        self._grant = grant

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        self.is_sent = True
        yield PublishGrant(self.ref, self._grant)

    def take(self, frame: RelayFrame) -> None:
        if not isinstance(frame, Ok):
            raise _wrong(frame, "a grant")
        self.settle(None)


def read_ts(value: object) -> int:
    """A `ts` that an answer names.

    Raises:
        RelayFaultError: It is none.
    """
    if type(value) is not int or not 0 < value <= TS_MAX:
        raise RelayFaultError("not a `ts`")
    return value


def read_delivered(delivered: Delivered, after: int) -> RawElement:
    """An element that has to come after a `ts`; whether it is good is for the document to say.

    Raises:
        RelayFaultError: It does not.
    """
    ts = read_ts(delivered.ts)
    if ts <= after:
        raise RelayFaultError("a `ts` that does not increase")
    return RawElement(ts, delivered.data, delivered.author, delivered.signature)


def check_end(frame: EndOfStored, last_ts: int) -> None:
    """Whether the end of a pull is where the elements ended.

    Raises:
        RelayFaultError: It is not.
    """
    if frame.result.get("ts") != last_ts:
        raise RelayFaultError("a pull that ends elsewhere than its elements")


def read_head(frame: EndOfStored) -> int:
    """Where the log ends that a pull was answered from.

    Raises:
        RelayFaultError: It is not told.
    """
    head = frame.result.get("head")
    if type(head) is not int or not 0 <= head <= TS_MAX:
        raise RelayFaultError("it is not told where the log ends")
    return head


def read_log_of(frame: EndOfStored | Ok) -> str:
    """The log that an append or a pull was answered from.

    Raises:
        RelayFaultError: It is not named.
    """
    log = frame.result.get("log")
    if type(log) is not str or len(log) != 32 or log.strip("0123456789abcdef"):
        raise RelayFaultError("no log is named")
    return log


def _wrong(frame: RelayFrame, what: str) -> RelayFaultError:
    return RelayFaultError(f"{type(frame).__name__} does not answer {what}")
