"""The shape of a capability: what every server checks before it believes a word of it.

- Everything comes from outside; nothing here raises, whatever the members are.
- One spelling each: lower-case hex for keys, padded base64 for nonces.
"""

from __future__ import annotations

import hashlib
from binascii import a2b_base64, b2a_base64
from typing import Any

from walstore.canon import INTEGER_MAX
from walstore.signed.encoding import decode_hex, decode_public_key

VERSION = 1

NONCE_BYTES = 16

# Servers refuse longer lists of keys in one capability.
AUDIENCE_MAX = 64

_KINDS = frozenset({"device", "member", "audience"})
_OPS = frozenset({"read", "write", "list"})


def find_shape_flaw(members: dict[Any, Any]) -> str | None:
    """What is wrong with the members of a capability, but for the signature."""
    if type(members.get("v")) is not int or members["v"] != VERSION:
        return f"`v` is not {VERSION}"
    if not _is_one_of(members.get("kind"), _KINDS):
        return "`kind` is unknown"
    if not _is_nonce(members.get("nonce")):
        return f"`nonce` is not {NONCE_BYTES} bytes in base64"
    return (
        _issuer_flaw(members)
        or (_audience_flaw if members["kind"] == "audience" else _subject_flaw)(members)
        or _scope_flaw(members.get("scope"))
        or _window_flaw(members.get("nbf"), members.get("exp"))
    )


def _issuer_flaw(members: dict[Any, Any]) -> str | None:
    if decode_public_key(members.get("iss")) is None:
        return "`iss` is not a public key"
    if members.get("issUserId") != user_id_of(members["iss"]):
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
    if is_named and members.get("subUserId") != user_id_of(members["sub"]):
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
    return len(raw) == NONCE_BYTES and encode_base64(raw) == text


def user_id_of(public_key: object) -> str | None:
    """The short name of a public key, or None if it is none."""
    raw = decode_hex(public_key)
    return None if raw is None else hashlib.sha256(raw).hexdigest()[:32]


def encode_base64(raw: bytes) -> str:
    """Padded standard base64."""
    return b2a_base64(raw, newline=False).decode("ascii")
