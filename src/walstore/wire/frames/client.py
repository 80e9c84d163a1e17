"""The frames that a client sends.

- Reading checks every type and limit, and raises `FrameError` with the code that the client is
  told; nothing else is raised, whatever the text.
- An element's data is neither encoded again nor read: it is cut out by its size, and spliced in.
  Anybody may send a frame, and only who may append has a relay look at what is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import orjson

from walstore.wire.frames.codes import Code, FrameError
from walstore.wire.frames.fields import (
    SCALAR,
    WrongError,
    boolean_of,
    check_size,
    hex_of,
    integer_of,
    object_of,
    options_of,
    read_document,
    read_log,
    read_name,
    read_plain_array,
    read_record_name,
    read_record_text,
    read_ref,
    read_revision,
    ref_of,
    take,
    text_of,
    texts_of,
)
from walstore.wire.limits import (
    CHANGES_MAX,
    FRAME_BYTES_MAX,
    PRESENCE_BYTES_MAX,
    PULL_ELEMENTS_MAX,
    REQUEST_IDS_MAX,
    SNAPSHOT_PIECE_SIZE,
)


class Auth(NamedTuple):
    """Proves that the client holds a key."""

    ref: str
    key: str
    signature: str


class PublishGrant(NamedTuple):
    """Gives roles to a key, or takes them away."""

    ref: str
    grant: dict[str, Any]


class Append(NamedTuple):
    """Appends an element; `data` is its canonical text."""

    ref: str
    document: str
    log: str | None
    author: str
    signature: str
    data: bytes


class Pull(NamedTuple):
    """Asks for the elements above a checkpoint, and, if it is live, for those to come.

    With records, a live one is also told when a record of the document was replaced.
    """

    ref: str
    document: str
    log: str | None
    after: int
    limit: int
    is_live: bool
    with_records: bool = False


class PullTail(NamedTuple):
    """Asks for the newest elements up to a `ts`."""

    ref: str
    document: str
    log: str | None
    upto: int
    last: int


class GetSnapshot(NamedTuple):
    """Asks for the current snapshot, or for another one by its revision."""

    ref: str
    document: str
    log: str | None
    revision: str | None = None


class PutSnapshot(NamedTuple):
    """Carries a piece of a snapshot that is to replace a revision."""

    ref: str
    document: str
    log: str | None
    revision: str | None
    text: str
    is_last: bool


class GetRecord(NamedTuple):
    """Asks for a record of a document."""

    ref: str
    document: str
    name: str


class KeepRecord(NamedTuple):
    """Replaces a revision of a record; None if there must not be any."""

    ref: str
    document: str
    log: str | None
    name: str
    revision: str | None
    text: str


class FollowChanges(NamedTuple):
    """Asks for what was accepted, in the relay's order; None in a filter means any."""

    ref: str
    mode: Literal["bootstrap", "tail"]
    prefix: str
    since: int
    until_seq: int | None
    limit: int
    documents: frozenset[str] | None
    authors: frozenset[str] | None
    kinds: frozenset[str] | None
    is_live: bool


class Request(NamedTuple):
    """Asks for events by id."""

    ref: str
    ids: tuple[str, ...]
    documents: frozenset[str] | None
    authors: frozenset[str] | None
    kinds: frozenset[str] | None


class SetPresence(NamedTuple):
    """Tells the others who is there, and where; None to leave."""

    document: str
    payload: dict[str, Any] | None


class Close(NamedTuple):
    """Ends what a ref names."""

    ref: str


ClientFrame = (
    Auth
    | PublishGrant
    | Append
    | Pull
    | PullTail
    | GetSnapshot
    | PutSnapshot
    | GetRecord
    | KeepRecord
    | FollowChanges
    | Request
    | SetPresence
    | Close
)


def client_frame(frame: ClientFrame) -> bytes:
    """The text of a frame that a client sends."""
    match frame:
        case Append():
            return append_frame(frame)
        case Auth():
            return orjson.dumps(["AUTH", *frame])
        case PublishGrant():
            return orjson.dumps(["GRANT", *frame])
        case Pull():
            options = {"after": frame.after, "limit": frame.limit, "live": frame.is_live}
            if frame.with_records:
                options["records"] = True
            return orjson.dumps(["PULL", frame.ref, frame.document, {**options, **_log(frame.log)}])
        case PullTail():
            options = {"upto": frame.upto, "last": frame.last}
            return orjson.dumps(["PULL", frame.ref, frame.document, {**options, **_log(frame.log)}])
        case GetSnapshot():
            only = {} if frame.revision is None else {"revision": frame.revision}
            return orjson.dumps(
                ["SNAPSHOT", frame.ref, frame.document, {**_log(frame.log), **only}]
            )
        case PutSnapshot():
            return orjson.dumps(["PUT", *frame])
        case GetRecord():
            return orjson.dumps(["RECORD", *frame])
        case KeepRecord():
            return orjson.dumps(["KEEP", *frame])
        case FollowChanges():
            return orjson.dumps(["CHANGES", frame.ref, _changes_filter(frame)])
        case Request():
            wanted = {"ids": frame.ids, **_filters(frame)}
            return orjson.dumps(["REQ", frame.ref, wanted])
        case SetPresence():
            return orjson.dumps(["PRESENCE", *frame])
        case Close():
            return orjson.dumps(["CLOSE", *frame])


def append_frame(frame: Append) -> bytes:
    """The text of an APPEND, with the element's data spliced in."""
    head = orjson.dumps(
        ["APPEND", *frame[:-1], len(frame.data)],
    )
    return b"%b,%b]" % (head[:-1], frame.data)


def _log(log: str | None) -> dict[str, str]:
    return {} if log is None else {"log": log}


def _filters(frame: FollowChanges | Request) -> dict[str, list[str]]:
    filters = {"documents": frame.documents, "authors": frame.authors, "kinds": frame.kinds}
    return {name: sorted(only) for name, only in filters.items() if only is not None}


def _changes_filter(frame: FollowChanges) -> dict[str, Any]:
    return {
        "mode": frame.mode,
        "prefix": frame.prefix,
        "since": frame.since,
        **({} if frame.until_seq is None else {"until_seq": frame.until_seq}),
        "limit": frame.limit,
        "live": frame.is_live,
        **_filters(frame),
    }


def read_client_frame(raw: str | bytes) -> ClientFrame:
    """What a client says.

    Raises:
        FrameError: It is not a frame, or is beyond a limit.
    """
    text = raw.encode(errors="surrogatepass") if isinstance(raw, str) else raw
    verb, members = _read_around_data(text) or read_plain_array(text)
    # A presence has no ref, and a document key must not be taken for one.
    ref = None if verb == "PRESENCE" else ref_of(members)
    reader = _CLIENT_READERS.get(verb)
    if reader is None:
        raise FrameError(Code.UNKNOWN_VERB, f"{verb[:40]!r} is not a verb", ref)
    try:
        return reader(members, text)
    except WrongError as error:
        raise FrameError(error.code, f"{verb}: {error}", ref) from None


# What stands before the data of an APPEND: the verb, five members and the size.
_BEFORE_DATA = re.compile(rb"""\s*+\[\s*+"APPEND"\s*+(?:,%b){6}+,(?=\{)""" % SCALAR, re.DOTALL)


def _read_around_data(text: bytes) -> tuple[str, list[Any]] | None:
    """The verb and members of an APPEND, with where its data begin in the place of these."""
    check_size(text, FRAME_BYTES_MAX * 2)
    before = _BEFORE_DATA.match(text)
    if before is None:
        return None
    try:
        verb, *members = orjson.loads(b"%b]" % before[0][:-1])
    except orjson.JSONDecodeError as error:
        raise FrameError(Code.MALFORMED, "not JSON") from error
    return verb, [*members, before.end()]


def _auth(members: list[Any], _: bytes) -> Auth:
    ref, key, signature = take(members, 3)
    return Auth(
        read_ref(ref), hex_of(key, "the key", 64), text_of(signature, "the signature", 88, 88)
    )


def _grant(members: list[Any], _: bytes) -> PublishGrant:
    ref, grant = take(members, 2)
    return PublishGrant(read_ref(ref), object_of(grant, "the grant"))


def _append(members: list[Any], text: bytes) -> Append:
    ref, document, log, author, signature, size, start = take(members, 7)
    size = integer_of(size, "the size")
    # The data stand last, right before the closing bracket.
    if type(start) is not int or start + size != len(text) - 1 or text[-2:] != b"}]":
        raise WrongError("the size is not that of the data, or these are no object")
    return Append(
        read_ref(ref),
        read_document(document),
        read_log(log),
        hex_of(author, "the author", 64),
        text_of(signature, "the signature", 88, 88),
        text[start:-1],
    )


_PULL = frozenset({"after", "limit", "live", "log", "records", "upto", "last"})


def _pull(members: list[Any], _: bytes) -> Pull | PullTail:
    ref, document, options = take(members, 3)
    options = options_of(options, _PULL)
    ref, document, log = read_ref(ref), read_document(document), read_log(options.get("log"))
    if "upto" in options or "last" in options:
        if options.keys() & {"after", "limit", "live", "records"}:
            raise WrongError("`upto` and `last` stand alone")
        upto = integer_of(options.get("upto"), "`upto`")
        last = integer_of(options.get("last"), "`last`", PULL_ELEMENTS_MAX, 1)
        return PullTail(ref, document, log, upto, last)
    return Pull(
        ref,
        document,
        log,
        integer_of(options.get("after"), "`after`"),
        integer_of(options.get("limit", PULL_ELEMENTS_MAX), "`limit`", PULL_ELEMENTS_MAX, 1),
        boolean_of(options.get("live", False), "`live`"),
        boolean_of(options.get("records", False), "`records`"),
    )


def _get_snapshot(members: list[Any], _: bytes) -> GetSnapshot:
    ref, document, options = take(members, 3)
    options = options_of(options, frozenset({"log", "revision"}))
    log, revision = read_log(options.get("log")), read_revision(options.get("revision"))
    return GetSnapshot(read_ref(ref), read_document(document), log, revision)


def _put_snapshot(members: list[Any], _: bytes) -> PutSnapshot:
    ref, document, log, revision, text, is_last = take(members, 6)
    return PutSnapshot(
        read_ref(ref),
        read_document(document),
        read_log(log),
        read_revision(revision),
        text_of(text, "the text", SNAPSHOT_PIECE_SIZE),
        boolean_of(is_last, "`is_last`"),
    )


def _get_record(members: list[Any], _: bytes) -> GetRecord:
    ref, document, name = take(members, 3)
    return GetRecord(read_ref(ref), read_document(document), read_record_name(name))


def _keep_record(members: list[Any], _: bytes) -> KeepRecord:
    ref, document, log, name, revision, text = take(members, 6)
    return KeepRecord(
        read_ref(ref),
        read_document(document),
        read_log(log),
        read_record_name(name),
        read_revision(revision),
        read_record_text(text),
    )


_CHANGES = frozenset(
    {"mode", "prefix", "since", "until_seq", "limit", "documents", "authors", "kinds", "live"}
)


def _changes(members: list[Any], _: bytes) -> FollowChanges:
    ref, options = take(members, 2)
    options = options_of(options, _CHANGES)
    mode, until_seq = options.get("mode"), options.get("until_seq")
    if mode not in ("bootstrap", "tail"):
        raise WrongError("`mode` is neither bootstrap nor tail")
    is_live = boolean_of(options.get("live", False), "`live`")
    if is_live and (mode == "bootstrap" or until_seq is not None):
        raise WrongError("only a tail without `until_seq` can be live")
    return FollowChanges(
        read_ref(ref),
        mode,
        read_name(options.get("prefix"), "`prefix`"),
        integer_of(options.get("since", 0), "`since`"),
        None if until_seq is None else integer_of(until_seq, "`until_seq`"),
        integer_of(options.get("limit", CHANGES_MAX), "`limit`", CHANGES_MAX, 1),
        texts_of(options.get("documents"), "`documents`"),
        texts_of(options.get("authors"), "`authors`"),
        texts_of(options.get("kinds"), "`kinds`"),
        is_live,
    )


def _request(members: list[Any], _: bytes) -> Request:
    ref, options = take(members, 2)
    options = options_of(options, frozenset({"ids", "documents", "authors", "kinds"}))
    ids = options.get("ids")
    if type(ids) is not list or not 1 <= len(ids) <= REQUEST_IDS_MAX:
        raise WrongError(f"`ids` is not an array of 1 to {REQUEST_IDS_MAX}")
    return Request(
        read_ref(ref),
        tuple(dict.fromkeys(hex_of(each, "an id", 64) for each in ids)),
        texts_of(options.get("documents"), "`documents`"),
        texts_of(options.get("authors"), "`authors`"),
        texts_of(options.get("kinds"), "`kinds`"),
    )


def _set_presence(members: list[Any], text: bytes) -> SetPresence:
    document, payload = take(members, 2)
    if len(text) > PRESENCE_BYTES_MAX:
        raise WrongError(f"more than {PRESENCE_BYTES_MAX} bytes", Code.TOO_LARGE)
    return SetPresence(read_document(document), _payload(payload))


def _payload(value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    payload = object_of(value, "the payload")
    try:
        orjson.dumps([payload])
    except orjson.JSONEncodeError:
        # It is to be passed on: what cannot be written again must not get that far.
        raise WrongError("the payload is nested too deep, or has half a character") from None
    return payload


def _close(members: list[Any], _: bytes) -> Close:
    (ref,) = take(members, 1)
    return Close(read_ref(ref))


_CLIENT_READERS: dict[str, Callable[[list[Any], bytes], ClientFrame]] = {
    "AUTH": _auth,
    "GRANT": _grant,
    "APPEND": _append,
    "PULL": _pull,
    "SNAPSHOT": _get_snapshot,
    "PUT": _put_snapshot,
    "RECORD": _get_record,
    "KEEP": _keep_record,
    "CHANGES": _changes,
    "REQ": _request,
    "PRESENCE": _set_presence,
    "CLOSE": _close,
}
