"""What the changes feed of a relay shows: elements and snapshots in the order of acceptance.

- An event is read strictly: what an honest relay never shows is a `RelayFaultError`.
- What was not asked for is a `FalseAnswerError`: whoever reads one prefix may hold the keys of
  others, and would write down in one place what is sealed in another.
- The payload is what was signed, byte for byte. That it is the one that the event is named after
  is checked here; who signed it, and whether they may, is for whoever folds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, NamedTuple, cast

from walstore.errors import MalformedError
from walstore.net.faults import FalseAnswerError, FeedRefusedError, RelayFaultError
from walstore.signed.author import Domain, SigningFrame
from walstore.signed.chain import link
from walstore.wire.frames import (
    ClientFrame,
    EventStatus,
    FollowChanges,
    FrameError,
    Request,
    Shown,
    client_frame,
    read_client_frame,
)
from walstore.wire.frames.fields import (
    WrongError,
    boolean_of,
    hex_of,
    integer_of,
    object_of,
    read_document,
    text_of,
)
from walstore.wire.limits import CHANGES_MAX

Kind = Literal["element", "snapshot"]

# The key of a producer, in whichever form it is written.
_AUTHOR_SIZE_MAX = 256
_SIGNATURE_SIZE = 88

# What an event takes besides its payload, about.
EVENT_OVERHEAD_BYTES = 1024


class FeedEvent(NamedTuple):
    """An element or a snapshot that a relay has accepted.

    Attributes:
        seq: Its place in the relay's order: the `since` to go on with.
        id: The link of the element, or the revision of the snapshot.
        kind: Which of the two it is.
        document: The key of the document.
        author: Who signed it, as the relay says.
        ts: The element's `ts`, or the last one that the snapshot covers.
        accepted_ms: When it was accepted, in milliseconds since 1970.
        signature: The element's signature; empty for a snapshot, which carries its own, and for
            what was compacted.
        vc: What the snapshot covers, by writer; empty for an element.
        is_deletion: Whether it is a snapshot that says that the document is deleted.
        payload: The element's data, or the snapshot's text, as it was signed. None if it was
            compacted, or is a large snapshot: `snapshot_by_revision` fetches that.
        is_compacted: Whether the relay has let the payload go.
    """

    seq: int
    id: str
    kind: Kind
    document: str
    author: str
    ts: int
    accepted_ms: int
    signature: str
    vc: Mapping[str, int]
    is_deletion: bool
    payload: bytes | None
    is_compacted: bool

    @property
    def size(self) -> int:
        """What it takes to hold it, about."""
        return len(self.payload or b"") + sum(map(len, self.vc)) + EVENT_OVERHEAD_BYTES


class Wanted(NamedTuple):
    """Which events are wanted; None means any."""

    prefix: str = ""
    documents: frozenset[str] | None = None
    authors: frozenset[str] | None = None
    kinds: frozenset[str] | None = None

    def changes(
        self,
        ref: str,
        mode: Literal["bootstrap", "tail"],
        *,
        since: int,
        until_seq: int | None = None,
        limit: int = CHANGES_MAX,
        is_live: bool = False,
    ) -> FollowChanges:
        """The frame that asks for them in order."""
        return FollowChanges(ref, mode, self.prefix, since, until_seq, limit, *self[1:], is_live)

    def request(self, ref: str, ids: tuple[str, ...]) -> Request:
        """The frame that asks for some of them by id."""
        return Request(ref, ids, *self[1:])

    def check(self, event: FeedEvent) -> None:
        """Whether an event is one of them.

        Raises:
            FalseAnswerError: It is not.
        """
        found = zip((event.document, event.author, event.kind), self[1:], strict=True)
        is_asked = all(asked is None or each in asked for each, asked in found)
        if not (is_asked and event.document.startswith(self.prefix)):
            raise FalseAnswerError("what was asked for")


def check_asked(frame: ClientFrame) -> None:
    """Whether a relay could read what is to be asked.

    Raises:
        FeedRefusedError: It could not.
    """
    try:
        read_client_frame(client_frame(frame))
    except (FrameError, TypeError) as error:
        raise FeedRefusedError(getattr(error, "reason", str(error))) from error


def read_shown(shown: Shown) -> FeedEvent:
    """An event whose payload is there, or can be fetched.

    Raises:
        RelayFaultError: It is none.
        FalseAnswerError: Its payload is another one than that of its id.
    """
    try:
        event = _read(shown.seq, shown.event, shown.payload)
        if event.kind == "element":
            if event.payload is None:
                raise RelayFaultError("an element without its data")
            signature = text_of(
                shown.event.get("signature"), "the signature", _SIGNATURE_SIZE, _SIGNATURE_SIZE
            )
            event = event._replace(signature=signature)
    except WrongError as error:
        raise RelayFaultError(str(error)) from None
    if event.payload is not None and _name_of(event, event.payload) != event.id:
        raise FalseAnswerError
    return event


def read_status(frame: EventStatus) -> FeedEvent:
    """An event whose payload is gone.

    Raises:
        RelayFaultError: It is none.
    """
    try:
        seq = integer_of(frame.status.get("seq"), "a `seq`")
        if frame.status.get("status") != "payload_compacted":
            raise RelayFaultError("an event of an unknown status")
        return _read(seq, frame.status, None)._replace(is_compacted=True)
    except WrongError as error:
        raise RelayFaultError(str(error)) from None


def _read(seq: int, shown: Mapping[str, Any], payload: bytes | None) -> FeedEvent:
    kind = shown.get("kind")
    if kind not in ("element", "snapshot"):
        raise WrongError("an event that is neither an element nor a snapshot")
    is_snapshot = kind == "snapshot"
    return FeedEvent(
        seq=integer_of(seq, "a `seq`", smallest=1),
        id=hex_of(shown.get("id"), "the id", 64),
        kind=cast("Kind", kind),
        document=read_document(shown.get("document")),
        author=text_of(shown.get("author"), "the author", _AUTHOR_SIZE_MAX, 1),
        ts=integer_of(shown.get("upto_ts" if is_snapshot else "ts"), "the `ts`"),
        accepted_ms=integer_of(shown.get("accepted_ms"), "`accepted_ms`"),
        signature="",
        vc=_read_clock(shown.get("vc")) if is_snapshot else {},
        is_deletion=is_snapshot and boolean_of(shown.get("deleted"), "`deleted`"),
        payload=payload,
        is_compacted=False,
    )


def _read_clock(value: object) -> dict[str, int]:
    clock = object_of(value, "`vc`")
    return {writer: integer_of(seq, "a count in `vc`") for writer, seq in clock.items()}


def _name_of(event: FeedEvent, payload: bytes) -> str:
    if event.kind == "snapshot":
        return sha256(payload).hexdigest()
    signed = _signing_frame(event.document).around(payload)
    try:
        return link(signed, author_pubkey=event.author, author_signature=event.signature)
    except MalformedError:
        return ""


@lru_cache(maxsize=256)
def _signing_frame(document: str) -> SigningFrame:
    return SigningFrame(Domain.APPEND, document)
