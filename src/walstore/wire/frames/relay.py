"""The frames that a relay sends.

- Reading checks every type, and raises `FrameError`; nothing else is raised, whatever the text.
- Elements and snapshots are not encoded again: they are spliced in, and cut out by their sizes.
  What is the same for all subscribers is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from walstore.wire.element import has_too_many_values
from walstore.wire.frames.codes import Code, FrameError
from walstore.wire.frames.fields import (
    WrongError,
    boolean_of,
    hex_of,
    integer_of,
    object_of,
    read_array,
    read_document,
    read_record_name,
    read_record_text,
    read_ref,
    read_revision,
    ref_of,
    take,
    text_of,
)
from walstore.wire.limits import ELEMENT_VALUES_MAX, FRAME_BYTES_MAX, SNAPSHOT_PIECE_SIZE

# What a relay can do beside what all of them can; a newer one may know more than anybody asks.
_FEATURES_MAX = 64

_ROW_WRONG = "a row is not ts, seq, author, signature and size"


class Hello(NamedTuple):
    """The first frame of a connection."""

    protocol: tuple[int, ...]
    relay: str
    challenge: str
    limits: Mapping[str, int]
    software: str
    features: tuple[str, ...] = ()


class Challenge(NamedTuple):
    """A new challenge: the one before has expired."""

    challenge: str


class Ok(NamedTuple):
    """A request was carried out."""

    ref: str
    result: Mapping[str, Any]


class Refusal(NamedTuple):
    """A request was not carried out."""

    ref: str | None
    code: Code
    message: str
    details: Mapping[str, Any]


class Delivered(NamedTuple):
    """An element as a relay hands it out; `data` is the text that was signed."""

    ts: int
    seq: int
    author: str
    signature: str
    data: bytes


class Elements(NamedTuple):
    """Elements of a log, ascending."""

    ref: str
    elements: Sequence[Delivered]


class EndOfStored(NamedTuple):
    """All that was stored has been sent."""

    ref: str
    result: Mapping[str, Any]


class SnapshotPiece(NamedTuple):
    """A piece of the current snapshot's text; None if there is no snapshot."""

    ref: str
    revision: str | None
    text: str | None
    is_last: bool
    log: str


class Record(NamedTuple):
    """A record of a document; None if there is none."""

    ref: str
    revision: str | None
    text: str | None
    log: str


class Kept(NamedTuple):
    """A record of a document that is followed was replaced."""

    ref: str
    name: str
    revision: str


class FeedStatus(NamedTuple):
    """Where a changes feed starts."""

    ref: str
    status: Mapping[str, Any]


class Shown(NamedTuple):
    """An event as a relay shows it.

    Attributes:
        seq: Its place in the relay's order.
        event: What is known of it.
        payload: The element's data or the snapshot's text; None if it has to be fetched.
    """

    seq: int
    event: Mapping[str, Any]
    payload: bytes | None


class Events(NamedTuple):
    """Accepted elements and snapshots, in the relay's order."""

    ref: str
    events: Sequence[Shown]


class EventStatus(NamedTuple):
    """An event that is known, and whose payload is gone."""

    ref: str
    status: Mapping[str, Any]


class Presence(NamedTuple):
    """Somebody's presence; None if they left."""

    document: str
    peer: str
    key: str | None
    payload: Mapping[str, Any] | None


class Closed(NamedTuple):
    """Nothing more will come under this ref."""

    ref: str
    reason: str


RelayFrame = (
    Hello
    | Challenge
    | Ok
    | Refusal
    | Elements
    | EndOfStored
    | SnapshotPiece
    | Record
    | Kept
    | FeedStatus
    | Events
    | EventStatus
    | Presence
    | Closed
)


def relay_frame(frame: RelayFrame) -> bytes:
    """The text of a frame that a relay sends."""
    match frame:
        case Elements():
            return elements_frame(frame.ref, frame.elements)
        case Hello():
            return orjson.dumps(["HELLO", frame._asdict()])
        case Challenge():
            return orjson.dumps(["AUTH", *frame])
        case Ok():
            return orjson.dumps(["OK", *frame])
        case Refusal():
            return orjson.dumps(["ERR", *frame])
        case EndOfStored():
            return orjson.dumps(["EOSE", *frame])
        case SnapshotPiece():
            text = [frame.ref, frame.revision, frame.text, frame.is_last, {"log": frame.log}]
            return orjson.dumps(["SNAPSHOT", *text])
        case Record():
            record = [frame.ref, frame.revision, frame.text, {"log": frame.log}]
            return orjson.dumps(["RECORD", *record])
        case Kept():
            return orjson.dumps(["KEPT", *frame])
        case FeedStatus():
            return orjson.dumps(["STATUS", *frame])
        case Events():
            return events_frame(frame.ref, frame.events)
        case EventStatus():
            return orjson.dumps(["EVENT-STATUS", *frame])
        case Presence():
            return orjson.dumps(["PRESENCE", *frame])
        case Closed():
            return orjson.dumps(["CLOSED", *frame])


def elements_frame(ref: str, elements: Sequence[Delivered]) -> bytes:
    """The text of an ELEMENTS frame."""
    return elements_body(elements).around(ref)


class ElementsBody(NamedTuple):
    """An ELEMENTS frame without its ref: written once, sent to many."""

    text: bytes

    def around(self, ref: str) -> bytes:
        """The whole frame for one subscriber."""
        return b'["ELEMENTS",%b,%b' % (orjson.dumps(ref), self.text)


def elements_body(elements: Sequence[Delivered]) -> ElementsBody:
    """Everything of an ELEMENTS frame that does not depend on who gets it."""
    rows = orjson.dumps([(*each[:-1], len(each.data)) for each in elements])
    return ElementsBody(b"%b]" % b",".join([rows, *(each.data for each in elements)]))


def events_frame(ref: str, events: Sequence[Shown]) -> bytes:
    """The text of an EVENTS frame."""
    payloads = [each.payload for each in events if each.payload is not None]
    rows = orjson.dumps(
        [(seq, event, None if payload is None else len(payload)) for seq, event, payload in events]
    )
    return b'["EVENTS",%b,%b]' % (orjson.dumps(ref), b",".join([rows, *payloads]))


def read_relay_frame(raw: str | bytes) -> RelayFrame:
    """What a relay says.

    Raises:
        FrameError: It is not a frame.
    """
    text = raw.encode(errors="surrogatepass") if isinstance(raw, str) else raw
    verb, members = read_array(text)
    reader = _RELAY_READERS.get(verb)
    if reader is None:
        raise FrameError(Code.UNKNOWN_VERB, f"{verb[:40]!r} is not a verb", ref_of(members))
    try:
        return reader(members, text)
    except WrongError as error:
        raise FrameError(error.code, f"{verb}: {error}", ref_of(members)) from None


def _hello(members: list[Any], _: bytes) -> Hello:
    (value,) = take(members, 1)
    hello = object_of(value, "the hello")
    protocol, limits = hello.get("protocol"), hello.get("limits")
    if type(protocol) is not list or not all(type(each) is int for each in protocol):
        raise WrongError("`protocol` is not an array of versions")
    limits = object_of(limits, "`limits`")
    features = hello.get("features", [])
    if type(features) is not list or len(features) > _FEATURES_MAX:
        raise WrongError("`features` is not a short array")
    return Hello(
        tuple(protocol),
        hex_of(hello.get("relay"), "`relay`", 32),
        hex_of(hello.get("challenge"), "`challenge`", 64),
        {name: integer_of(limit, "a limit") for name, limit in limits.items()},
        text_of(hello.get("software"), "`software`", 200),
        tuple([text_of(feature, "a feature", 64) for feature in features]),
    )


def _challenge(members: list[Any], _: bytes) -> Challenge:
    (challenge,) = take(members, 1)
    return Challenge(hex_of(challenge, "the challenge", 64))


def _ok(members: list[Any], _: bytes) -> Ok:
    ref, result = take(members, 2)
    return Ok(read_ref(ref), object_of(result, "the result"))


def _refusal(members: list[Any], _: bytes) -> Refusal:
    ref, code, message, details = take(members, 4)
    try:
        known = Code(text_of(code, "the code", 64))
    except ValueError:
        # A newer relay may know more reasons; they are reasons all the same.
        known = Code.INVALID
    return Refusal(
        None if ref is None else read_ref(ref),
        known,
        text_of(message, "the message", 2000),
        object_of(details, "the details"),
    )


def _elements(members: list[Any], text: bytes) -> Elements:
    ref, rows = _rows_of(members)
    data = _cut_out(members, text, [_size_of(row) for row in rows])
    return Elements(ref, [_delivered(row, each) for row, each in zip(rows, data, strict=True)])


def _rows_of(members: list[Any]) -> tuple[str, list[Any]]:
    if len(members) < 2 or type(members[1]) is not list:
        raise WrongError("the rows are not an array")
    return read_ref(members[0]), members[1]


def _cut_out(members: list[Any], text: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The objects that stand behind the rows, byte for byte."""
    if len(members) != len(sizes) + 2:
        raise WrongError("not as many rows as data")
    end, objects = len(text) - 1, list[bytes]()
    for size in reversed(sizes):
        start = end - size
        if text[start - 1 : start + 1] != b",{" or text[end - 1 : end] != b"}":
            raise WrongError("the sizes are not those of the data")
        if has_too_many_values(data := text[start:end]):
            raise WrongError(f"more than {ELEMENT_VALUES_MAX} values in one", Code.TOO_LARGE)
        objects.append(data)
        end = start - 1
    # Where the first data begin, right after the rows, shows that the sizes are the data's.
    if sizes and text[end - 1 : end] != b"]":
        raise WrongError("the sizes are not those of the data")
    return objects[::-1]


def _size_of(row: object) -> int:
    if type(row) is not list or len(row) != 5:
        raise WrongError(_ROW_WRONG)
    return integer_of(row[4], "a size", FRAME_BYTES_MAX, 2)


def _delivered(row: list[Any], data: bytes) -> Delivered:
    ts, seq, author, signature, _ = row
    if type(author) is not str or type(signature) is not str:
        raise WrongError(_ROW_WRONG)
    return Delivered(integer_of(ts, "a `ts`"), integer_of(seq, "a `seq`"), author, signature, data)


def _end_of_stored(members: list[Any], _: bytes) -> EndOfStored:
    ref, result = take(members, 2)
    return EndOfStored(read_ref(ref), object_of(result, "the result"))


def _snapshot_piece(members: list[Any], _: bytes) -> SnapshotPiece:
    ref, revision, text, is_last, options = take(members, 5)
    return SnapshotPiece(
        read_ref(ref),
        read_revision(revision),
        None if text is None else text_of(text, "the text", SNAPSHOT_PIECE_SIZE),
        boolean_of(is_last, "`is_last`"),
        hex_of(object_of(options, "the options").get("log"), "the log", 32),
    )


def _record(members: list[Any], _: bytes) -> Record:
    ref, revision, text, options = take(members, 4)
    if (revision is None) is not (text is None):
        raise WrongError("a record that is there and is not")
    return Record(
        read_ref(ref),
        read_revision(revision),
        None if text is None else read_record_text(text),
        hex_of(object_of(options, "the options").get("log"), "the log", 32),
    )


def _kept(members: list[Any], _: bytes) -> Kept:
    ref, name, revision = take(members, 3)
    return Kept(read_ref(ref), read_record_name(name), hex_of(revision, "the revision", 64))


def _feed_status(members: list[Any], _: bytes) -> FeedStatus:
    ref, status = take(members, 2)
    return FeedStatus(read_ref(ref), object_of(status, "the status"))


def _events(members: list[Any], text: bytes) -> Events:
    ref, rows = _rows_of(members)
    read = [_read_event(row) for row in rows]
    payloads = iter(_cut_out(members, text, [size for _, size in read if size is not None]))
    return Events(
        ref,
        [each if size is None else each._replace(payload=next(payloads)) for each, size in read],
    )


def _read_event(row: object) -> tuple[Shown, int | None]:
    match row:
        case [seq, dict(event), size]:
            shown = Shown(integer_of(seq, "a `seq`"), event, None)
            return shown, None if size is None else integer_of(size, "a size", FRAME_BYTES_MAX, 2)
        case _:
            raise WrongError("a row is not a seq, an event and a size")


def _event_status(members: list[Any], _: bytes) -> EventStatus:
    ref, status = take(members, 2)
    return EventStatus(read_ref(ref), object_of(status, "the status"))


def _presence(members: list[Any], _: bytes) -> Presence:
    document, peer, key, payload = take(members, 4)
    return Presence(
        read_document(document),
        text_of(peer, "the peer", 64, 1),
        None if key is None else hex_of(key, "the key", 64),
        None if payload is None else object_of(payload, "the payload"),
    )


def _closed(members: list[Any], _: bytes) -> Closed:
    ref, reason = take(members, 2)
    return Closed(read_ref(ref), text_of(reason, "the reason", 2000))


_RELAY_READERS: dict[str, Callable[[list[Any], bytes], RelayFrame]] = {
    "HELLO": _hello,
    "AUTH": _challenge,
    "OK": _ok,
    "ERR": _refusal,
    "ELEMENTS": _elements,
    "EOSE": _end_of_stored,
    "SNAPSHOT": _snapshot_piece,
    "RECORD": _record,
    "KEPT": _kept,
    "STATUS": _feed_status,
    "EVENTS": _events,
    "EVENT-STATUS": _event_status,
    "PRESENCE": _presence,
    "CLOSED": _closed,
}
