"""What somebody says of themselves, as it travels: signed, sealed where the document is, small.

    {"v": 1, "author", "session", "at", "count", "body", "signature"}
    body: {"name"?, "color"?, "cursor"?: {"path", "at", "from"}, "state"?}

- What is signed is a domain tag and the canonical text of all other members and the document's
  key. So a relay can neither forge it nor show it under another document.
- `at` is the sender's time and `count` counts what the session has said: both only grow, so that
  an older message is known as such, and one that was kept back for long as well.
- The body is sealed as elements are, for a place that no element has.
- Whatever is received is read to a verified type or to the reason why not; nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from walstore.canon import INTEGER_MAX, canonical_bytes, check_value
from walstore.document.anchors import Anchor, read_anchor
from walstore.document.view import frozen, thawed
from walstore.errors import MalformedError, NotJsonError, PeerError
from walstore.net.faults import PresenceRefusedError
from walstore.sealed.encryptor import Encryptor, SealContext
from walstore.sealed.outcomes import UnreadableError
from walstore.signed.author import sign_bytes, verify_bytes
from walstore.signed.encoding import decode_public_key
from walstore.signed.identity import Identity
from walstore.wire.envelope import is_session
from walstore.wire.limits import PRESENCE_BYTES_MAX

# What somebody may say, before it is sealed: with seal, signature and an ordinary document key it
# still fits what relays pass on.
BODY_BYTES_MAX = 1536

# A name is shown beside a cursor.
NAME_SIZE_MAX = 64

# The path of a text, as a cursor names it.
PATH_SIZE_MAX = 256

# How many containers the state may nest: what shows it may go through it by recursion.
STATE_DEPTH_MAX = 8

# How far the sender's time may be from the receiver's. An older message is one that was kept back.
AGE_MS_MAX = 600_000

_DOMAIN = b"walstore-presence-v1\n"
_VERSION = 1
_MEMBERS = frozenset({"v", "author", "session", "at", "count", "body", "signature"})
_BODY_MEMBERS = frozenset({"name", "color", "cursor", "state"})
_CURSOR_MEMBERS = frozenset({"path", "at", "from"})

# A colour ends up in style sheets, so there is one spelling.
_COLOR = re.compile("#[0-9a-f]{6}")

# Joiners make one sign of several: emoji families, and letters of many scripts.
_JOINERS = str.maketrans("", "", "\u200c\u200d")


class Drop(StrEnum):
    """Why something that came was not taken."""

    MALFORMED = "it is not a presence"
    STRANGER = "its author is nobody who may be here"
    OLD = "something newer was said"
    STALE = "it was said long ago, or its time is to come"
    FORGED = "its author has not signed it for this document"
    UNREADABLE = "there is no key for its seal"
    CROWDED = "too many are here"


class Anchors(NamedTuple):
    """A cursor as it travels: anchored to elements, so that it stays where it is.

    Attributes:
        path: The text or list.
        at: Where the caret is.
        origin: Where the selection began; the same place if nothing is selected.
    """

    path: str
    at: Anchor
    origin: Anchor


@dataclass(frozen=True, slots=True)
class Body:
    """What somebody says of themselves.

    Attributes:
        name: What they are called, None if they do not say.
        color: Their colour, `#rrggbb` in lower case, None if they do not say.
        cursor: Where they are.
        state: Whatever else; frozen.
    """

    name: str | None = None
    color: str | None = None
    cursor: Anchors | None = None
    state: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


class Header(NamedTuple):
    """A message whose shape is right; nothing of it is proved.

    Attributes:
        author: Who is said to have signed it.
        session: Which of their sessions.
        at_ms: When, by their clock, in milliseconds since 1970.
        said: How much the session had said by then.
        members: The message.
    """

    author: str
    session: str
    at_ms: int
    said: int
    members: dict[str, Any]

    @property
    def mark(self) -> tuple[int, int]:
        """What grows with every message of a session."""
        return self.at_ms, self.said


# ── writing ────────────────────────────────────────────────────────────────────────────


def checked_body(body: Body) -> Body:
    """What is to be said as others will read it.

    Raises:
        PresenceRefusedError: A receiver would drop it.
    """
    try:
        plain = _body_json(body)
        read = _read_body(plain)
        size = len(canonical_bytes(plain))
    except (NotJsonError, MalformedError) as error:
        raise PresenceRefusedError(error.reason) from error
    if size > BODY_BYTES_MAX:
        raise PresenceRefusedError(f"{size} bytes exceed {BODY_BYTES_MAX}")
    return read


def write_message(
    body: Body,
    *,
    document_key: str,
    identity: Identity,
    encryptor: Encryptor,
    session: str,
    at_ms: int,
    count: int,
) -> dict[str, Any]:
    """A message as it is sent.

    Raises:
        SealBudgetError: The content key is used up.
    """
    context = _context(document_key, identity.public_key, count)
    members: dict[str, Any] = {
        "v": _VERSION,
        "author": identity.public_key,
        "session": session,
        "at": at_ms,
        "count": count,
        "body": encryptor.seal(_body_json(body), context),
    }
    proof = sign_bytes(_signed(members, document_key), identity)
    return {**members, "signature": proof.author_signature}


# ── reading ────────────────────────────────────────────────────────────────────────────


def read_header(value: object) -> Header | Drop:
    """The header of what came, or why it is none; never raises."""
    if type(value) is not dict or value.keys() != _MEMBERS:
        return Drop.MALFORMED
    members: dict[str, Any] = value
    author, session = members["author"], members["session"]
    if type(members["v"]) is not int or members["v"] != _VERSION:
        return Drop.MALFORMED
    if decode_public_key(author) is None or not is_session(session):
        return Drop.MALFORMED
    if not _is_count(members["at"]) or not _is_count(members["count"]):
        return Drop.MALFORMED
    return Header(author, session, members["at"], members["count"], members)


def read_body(header: Header, document_key: str, encryptor: Encryptor) -> Body | Drop:
    """What was said, if its author has signed it for this document; never raises."""
    members = header.members
    try:
        if len(canonical_bytes(members)) > PRESENCE_BYTES_MAX:
            return Drop.MALFORMED
        rest = {name: member for name, member in members.items() if name != "signature"}
        signed = _signed(rest, document_key)
    except NotJsonError:
        return Drop.MALFORMED
    if not verify_bytes(header.author, signed, members["signature"]):
        return Drop.FORGED
    context = _context(document_key, header.author, header.said)
    try:
        return _read_body(encryptor.open(members["body"], context))
    except UnreadableError:
        return Drop.UNREADABLE
    except (PeerError, NotJsonError):
        return Drop.MALFORMED


# ── inside ─────────────────────────────────────────────────────────────────────────────


def _signed(members: dict[str, Any], document_key: str) -> bytes:
    return _DOMAIN + canonical_bytes({**members, "document": document_key})


def _context(document_key: str, author: str, count: int) -> SealContext:
    # Document keys have no line breaks, so nothing of a log was ever sealed for this place.
    return SealContext(f"{document_key}\npresence", author, count)


def _body_json(body: Body) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    if body.name is not None:
        plain["name"] = body.name
    if body.color is not None:
        plain["color"] = body.color
    if body.cursor is not None:
        path, at, origin = body.cursor
        plain["cursor"] = {"path": path, "at": at.to_json(), "from": origin.to_json()}
    if body.state:
        plain["state"] = thawed(body.state)
    return plain


def _read_body(plain: dict[str, Any]) -> Body:
    if not plain.keys() <= _BODY_MEMBERS:
        raise MalformedError("presence", "it says something unknown")
    name, color, state = plain.get("name"), plain.get("color"), plain.get("state", {})
    if name is not None and not _is_name(name):
        raise MalformedError(
            "presence", f"a name is printable text of at most {NAME_SIZE_MAX} characters"
        )
    if color is not None and not (type(color) is str and _COLOR.fullmatch(color)):
        raise MalformedError("presence", "a colour is `#rrggbb`, in lower case")
    if type(state) is not dict:
        raise MalformedError("presence", "the state is not an object")
    check_value(state, depth_max=STATE_DEPTH_MAX)
    return Body(name, color, _read_cursor(plain.get("cursor")), frozen(state))


def _read_cursor(value: object) -> Anchors | None:
    if value is None:
        return None
    if type(value) is not dict or value.keys() != _CURSOR_MEMBERS:
        raise MalformedError("presence", "the cursor is none")
    path = value["path"]
    if type(path) is not str or len(path) > PATH_SIZE_MAX:
        raise MalformedError("presence", f"a path has at most {PATH_SIZE_MAX} characters")
    return Anchors(path, read_anchor(value["at"]), read_anchor(value["from"]))


def _is_name(value: object) -> bool:
    if type(value) is not str or not 0 < len(value) <= NAME_SIZE_MAX:
        return False
    return value.translate(_JOINERS).isprintable()


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX
