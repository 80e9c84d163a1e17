"""Capabilities of a Starfish server: who may do what there, and what a signed request covers.

- A capability is signed by its issuer: what is read is believed only if the signature is good.
- One for a `device` or a `member` is for one key; an `audience` one is for a list of keys, or for
  whoever holds it. Only a device may go without paths: it stands in for its issuer.
- What is signed is a domain tag and canonical text, so that no signature passes for another kind.
- A request signature covers method, path, query, host, body, time and nonce; it is good for one
  request to one server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from walstore.canon import canonical_bytes
from walstore.errors import MalformedError, NotJsonError, UsageError
from walstore.signed.author import verify_bytes
from walstore.signed.capability_shape import (
    VERSION,
    encode_base64,
    find_shape_flaw,
    user_id_of,
)
from walstore.signed.encoding import encode_signature
from walstore.signed.identity import Identity
from walstore.signed.path_globs import path_allowed

__all__ = [
    "Capability",
    "CapabilityRefusedError",
    "Kind",
    "Scope",
    "encode_nonce",
    "issue_capability",
    "path_allowed",
    "read_capability",
    "request_signature_input",
]

Kind = Literal["device", "member", "audience"]

CAPABILITY_DOMAIN = b"starfish-capcert-v1\n"
REQUEST_DOMAIN = b"starfish-req-v1\n"

# Servers read no longer `Authorization` header than this.
AUTHORIZATION_BYTES_MAX = 8 * 1024

# How far the clocks of a server and an issuer may be apart.
SKEW_S = 300


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
        return "Cap " + encode_base64(self.canonical)

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
        "v": VERSION,
        "kind": kind,
        "iss": issuer.public_key,
        "issUserId": issuer.user_id,
        "sub": subject,
        "subKem": subject_kem,
        "subUserId": user_id_of(subject) if kind == "member" else None,
        "scope": _without_none({name: _listed(each) for name, each in scope._asdict().items()}),
        "aud": _listed(audience),
        "nbf": not_before_s,
        "exp": expires_s,
        "nonce": encode_nonce(nonce),
    }
    members = _without_none(members)
    flaw = find_shape_flaw(members)
    if flaw is not None:
        raise CapabilityRefusedError(flaw)
    if kind != "device" and not scope.paths:
        raise CapabilityRefusedError("only a device may go without paths")
    signature = issuer.sign(_signing_input(members, CapabilityRefusedError))
    return _capability({**members, "sig": encode_signature(signature)}, CapabilityRefusedError)


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
    flaw = find_shape_flaw(value)
    if flaw is not None:
        raise _malformed(flaw)
    if not verify_bytes(value["iss"], _signing_input(signed, _malformed), value.get("sig")):
        raise _malformed("the issuer did not sign it")
    return _capability(value, _malformed)


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
    return encode_base64(raw)


def _signing_input(members: dict[Any, Any], refusal: Callable[[str], Exception]) -> bytes:
    try:
        return CAPABILITY_DOMAIN + canonical_bytes(members)
    except NotJsonError as error:
        raise refusal(error.reason) from error


def _malformed(reason: str) -> MalformedError:
    return MalformedError("capability", reason)


def _capability(members: dict[str, Any], refusal: Callable[[str], Exception]) -> Capability:
    scope, audience = members["scope"], members.get("aud")
    paths = scope.get("paths")
    capability = Capability(
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
    size = len(capability.authorization)
    if size > AUTHORIZATION_BYTES_MAX:
        raise refusal(f"{size} bytes exceed {AUTHORIZATION_BYTES_MAX}")
    return capability


def _listed(items: Sequence[str] | None) -> list[str] | None:
    return None if items is None else list(items)


def _without_none(members: dict[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in members.items() if member is not None}
