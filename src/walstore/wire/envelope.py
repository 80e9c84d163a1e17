"""One commit as the data of an element, in both profiles; every reader reads both.

    starfish   {"v":1, "author", "seq", "ops":[op, …], "x":{"session", "seq", "prev", "seen"}}
    packed     {"v":2, "author", "session", "seq", "prev", "seen", "body":{"ops": packed}}
    with a message, beside the ops: "x":{"message"}

- What stands outside the seal is the header: which session of the author this is, the how-manieth
  element of that session, the link to the author's previous element, and what the author had
  seen of others. It is under the signature, so a chain can be checked without keys. A peer that
  writes no `x` has no header; its `seq` counts the author's commits.
- In a sealed `starfish` element the wrapper takes the place of the other members beside `x`; in
  a sealed `packed` element it is the `body`.
- A message is sealed with the ops. One that is malformed is none: peers who do not know messages
  take the element all the same.
- In packed ops the empty replica id stands for the author's own, `<author>:<session>`.
- An envelope is checked whole: one flaw and nothing of it is used.
- What a session can be called is one rule for writers, readers and relays, which are shown counts
  by session: a name that only some of them took would end the snapshots of its document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeGuard, cast

from walstore.crdt import pack_ops, to_ops, to_runs, unpack_ops
from walstore.crdt.clock import COUNTER_MAX, REPLICA_SIZE_MAX
from walstore.crdt.runs import Drop, Insert, Remove, Run, Verbatim
from walstore.errors import MalformedError
from walstore.wire.limits import (
    BATCH_OPS_MAX,
    BATCH_REMOVES_MAX,
    ID_SIZE_MAX,
    MESSAGE_SIZE_MAX,
    SEEN_SESSIONS_MAX,
    SESSION_SIZE_MAX,
)

_WHAT = "envelope"


class Profile(Enum):
    """How a document writes its elements."""

    STARFISH = "starfish"
    PACKED = "packed"


class Header(NamedTuple):
    """What stands outside the seal.

    Attributes:
        session: The session nonce.
        seq: Counts the session's elements from 1.
        prev: The link to the author's newest element that the session had seen, or None.
        seen: By replica of another session, the highest seq that this session had folded; only
            what is new since the author's previous element.
    """

    session: str
    seq: int
    prev: str | None
    seen: Mapping[str, int]


class Envelope(NamedTuple):
    """One commit, opened and checked.

    Attributes:
        author: The author key.
        author_seq: The author's own count in version 1; None in version 2.
        header: The header; None if a peer wrote none.
        runs: The ops.
        message: What the author says of them, if anything.
    """

    author: str
    author_seq: int | None
    header: Header | None
    runs: list[Run]
    message: str | None = None


def is_session(value: object) -> TypeGuard[str]:
    """Whether something can name a session: 1 to 128 characters of ASCII that can be shown.

    Databases and peers refuse some of the characters that cannot be shown, and which others can is
    not the same in every version of Unicode.
    """
    if type(value) is not str or not 0 < len(value) <= SESSION_SIZE_MAX:
        return False
    return value.isascii() and value.isprintable()


def is_counted_writer(name: str) -> bool:
    """Whether something can name a writer in counts: an author, or a replica `author:session`."""
    author, colon, session = name.partition(":")
    return is_session(author) and (not colon or is_session(session))


def read_header(data: Mapping[str, Any]) -> Header | None:
    """What an element says outside the seal.

    Raises:
        MalformedError: It has a header, and that is malformed.
    """
    fields = data if data.get("v") == 2 else data.get("x")
    if not isinstance(fields, dict) or "session" not in fields:
        return None
    session, prev, seen = fields["session"], fields.get("prev"), fields.get("seen", {})
    if not is_session(session):
        raise MalformedError(_WHAT, "the session is not a short text of ASCII that can be shown")
    if prev is not None and not (isinstance(prev, str) and len(prev) == 64):
        raise MalformedError(_WHAT, "`prev` is not a link")
    if not isinstance(seen, dict) or len(seen) > SEEN_SESSIONS_MAX:
        raise MalformedError(_WHAT, "`seen` is not a short object")
    if not all(isinstance(key, str) and _is_count(count) for key, count in seen.items()):
        raise MalformedError(_WHAT, "`seen` does not count by replica")
    return Header(session, _read_seq(fields), prev, seen)


def inner_starfish(
    author: str, author_seq: int, runs: Sequence[Run], message: str | None = None
) -> dict[str, Any]:
    """The version-1 envelope, the part that is sealed."""
    envelope = {"v": 1, "author": author, "seq": author_seq, "ops": to_ops(runs)}
    return envelope if message is None else {**envelope, "x": {"message": message}}


def inner_packed(
    own_replica: str, runs: Sequence[Run], message: str | None = None
) -> dict[str, Any]:
    """The version-2 body, the part that is sealed."""
    packed = pack_ops(runs)
    packed[0] = ["" if replica == own_replica else replica for replica in packed[0]]
    return {"ops": packed} if message is None else {"ops": packed, "x": {"message": message}}


def outer_starfish(sealed: Mapping[str, Any], header: Header | None) -> dict[str, Any]:
    """Version-1 data from the sealed or plain envelope."""
    if header is None:
        return dict(sealed)
    # Where nothing is sealed, the message and the header stand in one member.
    return {**sealed, "x": {**sealed.get("x", {}), **_header_fields(header)}}


def outer_packed(sealed: Mapping[str, Any], author: str, header: Header) -> dict[str, Any]:
    """Version-2 data from the sealed or plain body."""
    return {"v": 2, "author": author, **_header_fields(header), "body": sealed}


def read_starfish(inner: Mapping[str, Any], author: str, header: Header | None) -> Envelope:
    """Check an opened version-1 envelope.

    Raises:
        MalformedError: It is not one of this author, or an op is not the author's own.
    """
    if inner.get("v") != 1 or isinstance(inner.get("v"), bool):
        raise MalformedError(_WHAT, "`v` is not 1")
    if inner.get("author") != author:
        raise MalformedError(_WHAT, "`author` is not the one who signed")
    author_seq = _read_seq(inner)
    ops = inner.get("ops")
    if not isinstance(ops, list):
        raise MalformedError(_WHAT, "`ops` is not an array")
    if len(ops) > BATCH_OPS_MAX:
        raise MalformedError(_WHAT, f"more than {BATCH_OPS_MAX} ops")
    runs = to_runs(ops)
    _check_authorship(runs, author + ":")
    return Envelope(author, author_seq, header, runs, _read_message(inner))


def read_packed(inner: Mapping[str, Any], author: str, header: Header) -> Envelope:
    """Check an opened version-2 body.

    Raises:
        MalformedError: It is not a body, or an op is not of the author's session.
    """
    packed = inner.get("ops")
    if not isinstance(packed, list) or not packed or not isinstance(packed[0], list):
        raise MalformedError(_WHAT, "`ops` is not a packed batch")
    if len(packed) > BATCH_OPS_MAX + 1:
        raise MalformedError(_WHAT, f"more than {BATCH_OPS_MAX} rows")
    own = f"{author}:{header.session}"
    table = [own if replica == "" else replica for replica in packed[0]]
    runs = unpack_ops([table, *packed[1:]])
    if len(runs) > BATCH_OPS_MAX:
        raise MalformedError(_WHAT, f"more than {BATCH_OPS_MAX} runs")
    if sum(run.size for run in runs if run.__class__ is Remove) > BATCH_REMOVES_MAX:
        raise MalformedError(_WHAT, f"more than {BATCH_REMOVES_MAX} removes")
    for run in runs:
        if replica_of(run) != own:
            raise MalformedError(_WHAT, "a clock is not of the author's session")
    _check_drops(runs)
    _check_ids(runs)
    return Envelope(author, None, header, runs, _read_message(inner))


def replica_of(run: Run) -> str:
    """The replica that stamped a run."""
    if isinstance(run, Verbatim):
        return cast("str", run.op["clock"]["r"])
    return run.replica


def counters_of(run: Run) -> tuple[int, int]:
    """The first and the last counter of a run."""
    if isinstance(run, Verbatim):
        counter = cast("int", run.op["clock"]["c"])
        return counter, counter
    if isinstance(run, Insert):
        return run.counter, run.counter + len(run.values) - 1
    if isinstance(run, Remove):
        return run.counter, run.counter + run.size - 1
    return run.counter, run.counter


def _header_fields(header: Header) -> dict[str, Any]:
    fields: dict[str, Any] = {"session": header.session, "seq": header.seq}
    if header.prev is not None:
        fields["prev"] = header.prev
    if header.seen:
        fields["seen"] = dict(header.seen)
    return fields


def _read_message(inner: Mapping[str, Any]) -> str | None:
    extension = inner.get("x")
    message = extension.get("message") if isinstance(extension, dict) else None
    is_message = isinstance(message, str) and 0 < len(message) <= MESSAGE_SIZE_MAX
    return message if is_message else None


def _check_authorship(runs: Sequence[Run], prefix: str) -> None:
    """Nobody stamps ops with another author's clocks, or claims the ids of other clocks."""
    size_max = len(prefix) + SESSION_SIZE_MAX
    for run in runs:
        replica = replica_of(run)
        if not replica.startswith(prefix):
            raise MalformedError(_WHAT, "a clock is not the author's")
        # Whoever removes an element has to name its replica, and that has to fit.
        if len(replica) > size_max:
            raise MalformedError(_WHAT, "a clock's session is not a short text")
        if _names_too_much(run):
            raise MalformedError(_WHAT, "an id or a replica is not a short text")
    _check_drops(runs)
    _check_ids(runs)


def _check_drops(runs: Sequence[Run]) -> None:
    """Nobody drops what they cannot have seen: writes to come would be lost without a word."""
    for run in runs:
        if isinstance(run, Drop) and max(run.seen.values(), default=0) >= run.counter:
            raise MalformedError(_WHAT, "a drop has seen a write that is not older than itself")


def _names_too_much(run: Run) -> bool:
    """Whether a run names a replica whose name is longer than any can be."""
    if isinstance(run, Insert):
        return len(run.after_replica) > REPLICA_SIZE_MAX
    if isinstance(run, Remove):
        return len(run.target_replica) > REPLICA_SIZE_MAX
    return isinstance(run, Drop) and max(map(len, run.seen), default=0) > REPLICA_SIZE_MAX


def _check_ids(runs: Sequence[Run]) -> None:
    for run in runs:
        if not isinstance(run, Verbatim) or run.op["t"] not in ("ins", "rmv"):
            continue
        op, clock = run.op, run.op["clock"]
        if op["t"] == "ins" and op["id"] != f"{clock['c']}@{clock['r']}":
            raise MalformedError(_WHAT, "an inserted id is not that of its clock")
        if max(len(op["id"]), len(op.get("after", ""))) > ID_SIZE_MAX:
            raise MalformedError(_WHAT, "an id or a replica is not a short text")


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= COUNTER_MAX


def _read_seq(fields: Mapping[str, Any]) -> int:
    seq = fields.get("seq")
    if isinstance(seq, float) and seq.is_integer():
        seq = int(seq)
    if not _is_count(seq):
        raise MalformedError(_WHAT, "`seq` is not an integer from 1 to 2^53 - 1")
    return cast("int", seq)
