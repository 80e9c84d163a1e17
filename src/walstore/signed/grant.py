"""Signed grants: a key that may give roles gives them to another one, or takes them back.

- A grant names one prefix of document keys, or exactly one document, and one key; an empty list
  of roles revokes.
- What is signed is a domain tag and the canonical text of every other member.
- One spelling each: roles are sorted and unique, keys are lower-case hex, nothing else is inside.
- Reading yields a `Grant` whose signature is good. Whether its issuer holds the role `grant` is
  for whoever keeps the roles to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from walstore.canon import INTEGER_MAX, canonical_bytes
from walstore.errors import MalformedError, UsageError
from walstore.signed.author import verify_bytes
from walstore.signed.encoding import decode_public_key, encode_signature
from walstore.signed.identity import Identity

# A prefix is the beginning of a document key, and never longer than one.
PREFIX_SIZE_MAX = 512

_DOMAIN = b"walstore-grant-v1\n"
_VERSION = 1
_REQUIRED = frozenset({"v", "prefix", "to", "roles", "by", "at", "signature"})
_OPTIONAL = frozenset({"exact", "expires"})


class Role(StrEnum):
    """What somebody may do with a document."""

    READ = "read"
    WRITE = "write"
    SNAPSHOT = "snapshot"
    GRANT = "grant"


_NAMES = frozenset(role.value for role in Role)


class GrantError(UsageError):
    """A grant cannot be made like this.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a grant: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Grant:
    """Roles that one key gives to another; its signature was checked.

    Attributes:
        prefix: The documents whose keys begin with exactly this text, or are it.
        to: Who gets the roles.
        roles: The roles, sorted; none to take them back.
        by: Who gives them, and has signed.
        at_ms: When; of several by one key for one prefix and one key, the newest counts.
        expires_ms: From when on it no longer holds; None for never.
        is_exact: Whether it is for the one document whose key is the prefix.
    """

    prefix: str
    to: str
    roles: tuple[Role, ...]
    by: str
    at_ms: int
    expires_ms: int | None
    is_exact: bool = False

    def covers(self, text: str, *, is_prefix: bool) -> bool:
        """Whether it is for a document, or for all with a prefix, that begin with its prefix."""
        return not self.is_exact or (text == self.prefix and not is_prefix)


def sign_grant(
    identity: Identity,
    *,
    prefix: str,
    to: str,
    roles: Iterable[str],
    at_ms: int,
    expires_ms: int | None = None,
    is_exact: bool = False,
) -> dict[str, Any]:
    """A grant as it is published.

    Args:
        identity: Who gives the roles.
        prefix: For which documents.
        to: The public key that gets them.
        roles: Which; none to take them back.
        at_ms: The time, in milliseconds since 1970.
        expires_ms: When it ends.
        is_exact: Whether it is for the one document whose key is the prefix.

    Raises:
        GrantError: An argument is not what a grant can hold.
    """
    members: dict[str, Any] = {
        "v": _VERSION,
        "prefix": prefix,
        "to": to,
        "roles": sorted({str(role) for role in roles}),
        "by": identity.public_key,
        "at": at_ms,
        **({} if expires_ms is None else {"expires": expires_ms}),
        **({"exact": True} if is_exact else {}),
    }
    if flaw := _find_flaw(members):
        raise GrantError(flaw)
    return {**members, "signature": encode_signature(identity.sign(_signed(members)))}


def read_grant(value: object) -> Grant:
    """The grant that a received JSON value is.

    Raises:
        MalformedError: It is not a grant, or its signature is not that of its issuer.
    """
    if type(value) is not dict:
        raise MalformedError("grant", "not an object")
    members = cast(dict[str, Any], value)
    if not _REQUIRED <= members.keys() <= _REQUIRED | _OPTIONAL:
        raise MalformedError("grant", "a member is missing, or is not one of a grant")
    if flaw := _find_flaw(members):
        raise MalformedError("grant", flaw)
    rest = {name: member for name, member in members.items() if name != "signature"}
    if not verify_bytes(members["by"], _signed(rest), members["signature"]):
        raise MalformedError("grant", "the signature is not that of its issuer")
    return _grant_of(members)


def _grant_of(members: dict[str, Any]) -> Grant:
    return Grant(
        prefix=members["prefix"],
        to=members["to"],
        roles=tuple(Role(name) for name in members["roles"]),
        by=members["by"],
        at_ms=members["at"],
        expires_ms=members.get("expires"),
        is_exact="exact" in members,
    )


def _signed(members: dict[str, Any]) -> bytes:
    return _DOMAIN + canonical_bytes(members)


def _find_flaw(members: dict[str, Any]) -> str | None:
    if type(members["v"]) is not int or members["v"] != _VERSION:
        return f"`v` is not {_VERSION}"
    if not _is_prefix(members["prefix"]):
        return f"`prefix` is not printable text of at most {PREFIX_SIZE_MAX} characters"
    for name in ("to", "by"):
        if decode_public_key(members[name]) is None:
            return f"`{name}` is not a public key"
    if not _is_list_of_roles(members["roles"]):
        return "`roles` is not a sorted list of known roles, each once"
    if members.get("exact", True) is not True:
        return "`exact` is not true"
    return _time_flaw(members)


def _time_flaw(members: dict[str, Any]) -> str | None:
    if not _is_time(members["at"]):
        return "`at` is not a time in milliseconds"
    if "expires" not in members:
        return None
    if not _is_time(members["expires"]) or members["expires"] <= members["at"]:
        return "`expires` is not a time in milliseconds after `at`"
    return None


def _is_prefix(value: object) -> bool:
    return type(value) is str and len(value) <= PREFIX_SIZE_MAX and value.isprintable()


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX


def _is_list_of_roles(value: object) -> bool:
    if type(value) is not list or len(value) > len(_NAMES):
        return False
    if not all(type(name) is str and name in _NAMES for name in value):
        return False
    return value == sorted(set(value))
