"""Capabilities of a Starfish server: who may do what there, and what a signed request covers.

- A capability is signed by its issuer: what is read is believed only if the signature is good.
- One for a `device` or a `member` is for one key; an `audience` one is for a list of keys, or for
  whoever holds it. Only a device may go without paths: it stands in for its issuer.
- What is signed is a domain tag and canonical text, so that no signature passes for another kind.
- A request signature covers method, path, query, host, body, time and nonce; it is good for one
  request to one server.
- In a path glob, `*` stays within a segment and `**` does not; what is denied stays denied,
  whatever else is allowed, and so does everything below it.
"""

from __future__ import annotations

import hashlib
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from walstore.canon import INTEGER_MAX, canonical_bytes
from walstore.errors import MalformedError, NotJsonError, UsageError
from walstore.signed.author import verify_bytes
from walstore.signed.encoding import decode_hex, decode_public_key, encode_signature
from walstore.signed.identity import Identity

Kind = Literal["device", "member", "audience"]

CAPABILITY_DOMAIN = b"starfish-capcert-v1\n"
REQUEST_DOMAIN = b"starfish-req-v1\n"

NONCE_BYTES = 16

# Servers read no longer `Authorization` header than this.
AUTHORIZATION_BYTES_MAX = 8 * 1024

# Servers refuse longer lists of keys in one capability.
AUDIENCE_MAX = 64

# How far the clocks of a server and an issuer may be apart.
SKEW_S = 300

_VERSION = 1
_KINDS = frozenset({"device", "member", "audience"})
_OPS = frozenset({"read", "write", "list"})
_GLOB_PARTS = re.compile(r"\*\*|\*|[^*]+")


class CapabilityRefusedError(UsageError):
    """A capability cannot be issued so: no server would accept it.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the capability cannot be issued: {reason}")
        self.reason = reason


class Scope(NamedTuple):
    """What a capability allows.

    Attributes:
        ops: Out of `read`, `write` and `list`.
        collections: Names of collections, as the server's operator gave them.
        paths: Globs of storage paths, `!` in front of those denied; None if all are allowed.
    """

    ops: Sequence[str]
    collections: Sequence[str]
    paths: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Capability:
    """A capability whose signature was verified.

    Attributes:
        kind: `device`, `member` or `audience`.
        issuer: The public key that signed it.
        subject: The public key that it is for; None for an audience.
        audience: The public keys that it is for; None if it is for any, or for one subject.
        scope: What it allows.
        not_before_s: When it begins to hold, in seconds since 1970.
        expires_s: When it ends.
        nonce: Names it in revocations.
        canonical: Its text.
    """

    kind: Kind
    issuer: str
    subject: str | None
    audience: tuple[str, ...] | None
    scope: Scope
    not_before_s: int
    expires_s: int
    nonce: str
    canonical: bytes

    @property
    def authorization(self) -> str:
        """The value of the `Authorization` header."""
        return "Cap " + _encode_base64(self.canonical)

    def is_current(self, *, now_s: int) -> bool:
        """Whether it holds at a time, as far as clocks can be trusted."""
        return self.not_before_s - SKEW_S <= now_s <= self.expires_s + SKEW_S

    def is_for(self, public_key: str) -> bool:
        """Whether the holder of a key may use it."""
        if self.kind == "audience":
            return self.audience is None or public_key in self.audience
        return public_key == self.subject


def issue_capability(
    issuer: Identity,
    *,
    scope: Scope,
    not_before_s: int,
    expires_s: int,
    nonce: bytes,
    kind: Kind = "device",
    subject: str | None = None,
    subject_kem: str | None = None,
    audience: Sequence[str] | None = None,
) -> Capability:
    """Sign a capability.

    Args:
        issuer: Whose data it opens.
        scope: What it allows; for a member or an audience, with paths.
        not_before_s: When it begins to hold, in seconds since 1970.
        expires_s: When it ends.
        nonce: 16 random bytes, to revoke it by.
        kind: Whom it is for.
        subject: The public key of a device or member; the issuer's own if left out for a device.
        subject_kem: The key that content keys are wrapped for; goes with `subject`.
        audience: The public keys that may use it; any may, if left out for an audience.

    Raises:
        CapabilityRefusedError: No server would accept it.
    """
    if kind == "device" and subject is None and subject_kem is None:
        subject, subject_kem = issuer.public_key, issuer.kem_public_key
    members: dict[str, Any] = {
        "v": _VERSION,
        "kind": kind,
        "iss": issuer.public_key,
        "issUserId": issuer.user_id,
        "sub": subject,
        "subKem": subject_kem,
        "subUserId": _user_id(subject) if kind == "member" else None,
        "scope": _without_none(scope._asdict()),
        "aud": None if audience is None else list(audience),
        "nbf": not_before_s,
        "exp": expires_s,
        "nonce": encode_nonce(nonce),
    }
    members = _without_none(members)
    if kind != "device" and not scope.paths:
        raise CapabilityRefusedError("only a device may go without paths")
    signature = issuer.sign(_signing_input(members, CapabilityRefusedError))
    members["sig"] = encode_signature(signature)
    flaw = _flaw(members)
    if flaw is not None:
        raise CapabilityRefusedError(flaw)
    return _capability(members)


def read_capability(value: object) -> Capability:
    """Check the shape and the signature of a capability that came from outside.

    Whether it holds now, and for whom, is for `is_current` and `is_for` to say.

    Args:
        value: The JSON value.

    Raises:
        MalformedError: It is not a capability, or its issuer did not sign it.
    """
    if not isinstance(value, dict):
        raise _malformed("not an object")
    signed = {name: member for name, member in value.items() if name != "sig"}
    signing_input = _signing_input(signed, _malformed)
    flaw = _flaw(value)
    if flaw is not None:
        raise _malformed(flaw)
    if not verify_bytes(value["iss"], signing_input, value.get("sig")):
        raise _malformed("the issuer did not sign it")
    return _capability(value)


def request_signature_input(
    *, method: str, path: str, body: bytes, host: str, ts_ms: int, nonce: str
) -> bytes:
    """The exact bytes to sign for a request.

    Args:
        method: In capitals.
        path: Path and query as they are sent.
        body: The body as it is sent; empty if there is none.
        host: Host and port as in the URL, without a port that is the default.
        ts_ms: The time, in milliseconds since 1970.
        nonce: As `encode_nonce` spells it.
    """
    members = {
        "b": hashlib.sha256(body).hexdigest(),
        "h": host,
        "m": method,
        "nonce": nonce,
        "p": path,
        "ts": ts_ms,
    }
    return REQUEST_DOMAIN + canonical_bytes(members)


def encode_nonce(raw: bytes) -> str:
    """The nonce of a capability or a request as text."""
    return _encode_base64(raw)


def path_allowed(path: str, globs: Sequence[str] | None) -> bool:
    """Whether the globs of a scope allow a storage path; all is allowed if there are none.

    Args:
        path: The storage path, decoded.
        globs: With `{identity}` already replaced.
    """
    if not globs:
        return True
    # Servers skip empty segments and dots, so these must not lead past what is denied.
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    target = "/".join(segments)
    denied = [glob.removeprefix("!") for glob in globs if glob.startswith("!")]
    if any(_matches(glob, target) or _matches(f"{glob}/**", target) for glob in denied):
        return False
    return any(_matches(glob, target) for glob in globs if not glob.startswith("!"))


def _matches(glob: str, target: str) -> bool:
    # All places of the target that the glob so far can lead to. There are no more of them than
    # characters, so no glob makes this slow.
    places = {0}
    for part in _GLOB_PARTS.findall(glob):
        if part == "**":
            places = set(range(min(places), len(target) + 1))
        elif part == "*":
            places = set(_within_segment(target, places))
        else:
            places = {at + len(part) for at in places if target.startswith(part, at)}
        if not places:
            return False
    return len(target) in places


def _within_segment(target: str, places: Iterable[int]) -> Iterable[int]:
    """The places up to the end of each segment that one of the places is in."""
    end = -1
    for place in sorted(places):
        if place > end:
            slash = target.find("/", place)
            end = len(target) if slash < 0 else slash
            yield from range(place, end + 1)


def _signing_input(members: dict[Any, Any], refuse: Any) -> bytes:
    try:
        return CAPABILITY_DOMAIN + canonical_bytes(members)
    except NotJsonError as error:
        raise refuse(error.reason) from error


def _malformed(reason: str) -> MalformedError:
    return MalformedError("capability", reason)


def _capability(members: dict[str, Any]) -> Capability:
    scope, audience = members["scope"], members.get("aud")
    paths = scope.get("paths")
    return Capability(
        kind=cast("Kind", members["kind"]),
        issuer=members["iss"],
        subject=members.get("sub"),
        audience=None if audience is None else tuple(audience),
        scope=Scope(
            tuple(scope["ops"]),
            tuple(scope["collections"]),
            None if paths is None else tuple(paths),
        ),
        not_before_s=members["nbf"],
        expires_s=members["exp"],
        nonce=members["nonce"],
        canonical=canonical_bytes(members),
    )


def _flaw(members: dict[Any, Any]) -> str | None:
    """What is wrong with the members of a capability, but for the signature."""
    if type(members.get("v")) is not int or members["v"] != _VERSION:
        return f"`v` is not {_VERSION}"
    if not _is_one_of(members.get("kind"), _KINDS):
        return "`kind` is unknown"
    if not _is_nonce(members.get("nonce")):
        return f"`nonce` is not {NONCE_BYTES} bytes in base64"
    return (
        _issuer_flaw(members)
        or (_audience_flaw if members["kind"] == "audience" else _subject_flaw)(members)
        or _scope_flaw(members.get("scope"))
        or _window_flaw(members.get("nbf"), members.get("exp"))
        or _size_flaw(members)
    )


def _issuer_flaw(members: dict[Any, Any]) -> str | None:
    if decode_public_key(members.get("iss")) is None:
        return "`iss` is not a public key"
    if members.get("issUserId") != _user_id(members["iss"]):
        return "`issUserId` is not that of `iss`"
    return None


def _subject_flaw(members: dict[Any, Any]) -> str | None:
    if decode_public_key(members.get("sub")) is None:
        return "`sub` is not a public key"
    if decode_hex(members.get("subKem")) is None:
        return "`subKem` is not a public key"
    if "aud" in members:
        return "only an audience has `aud`"
    # A member is known by this id; a device by that of its issuer.
    is_named = members["kind"] == "member" or "subUserId" in members
    if is_named and members.get("subUserId") != _user_id(members["sub"]):
        return "`subUserId` is not that of `sub`"
    return None


def _audience_flaw(members: dict[Any, Any]) -> str | None:
    if not members.keys().isdisjoint({"sub", "subKem", "subUserId"}):
        return "an audience has no subject"
    if "aud" not in members:
        return None
    keys = members["aud"]
    if not isinstance(keys, list) or not 1 <= len(keys) <= AUDIENCE_MAX:
        return f"`aud` is not a list of 1 to {AUDIENCE_MAX} keys"
    if any(decode_hex(key) is None for key in keys) or len(set(keys)) < len(keys):
        return "`aud` holds something else than public keys, or one twice"
    return None


def _scope_flaw(scope: object) -> str | None:
    if not isinstance(scope, dict):
        return "`scope` is not an object"
    ops = scope.get("ops")
    if not isinstance(ops, list) or not all(_is_one_of(op, _OPS) for op in ops):
        return "`ops` is not a list of operations"
    if not _is_list_of_text(scope.get("collections")):
        return "`collections` is not a list of names"
    if "paths" in scope and not _is_list_of_text(scope["paths"]):
        return "`paths` is not a list of globs"
    return None


def _window_flaw(not_before: object, expires: object) -> str | None:
    if type(not_before) is not int or type(expires) is not int:
        return "`nbf` and `exp` are not integers"
    if not -INTEGER_MAX <= not_before < expires <= INTEGER_MAX:
        return "`exp` is not after `nbf`"
    return None


def _size_flaw(members: dict[Any, Any]) -> str | None:
    size = len(_encode_base64(canonical_bytes(members))) + len("Cap ")
    return (
        f"{size} bytes exceed {AUTHORIZATION_BYTES_MAX}" if size > AUTHORIZATION_BYTES_MAX else None
    )


def _is_one_of(value: object, names: frozenset[str]) -> bool:
    return type(value) is str and value in names


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is str for item in value)


def _is_nonce(text: object) -> bool:
    if type(text) is not str or len(text) > 2 * NONCE_BYTES:
        return False
    try:
        raw = a2b_base64(text)
    except ValueError:
        return False
    # The decoder skips foreign characters and ignores stray low bits; encoding again shows both.
    return len(raw) == NONCE_BYTES and encode_nonce(raw) == text


def _user_id(public_key: str | None) -> str | None:
    raw = decode_hex(public_key)
    return None if raw is None else hashlib.sha256(raw).hexdigest()[:32]


def _without_none(members: dict[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in members.items() if member is not None}


def _encode_base64(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).decode("ascii")
