"""Statements: small JSON objects that one key has signed, and their form as one line of text.

- What is signed is a domain tag and the canonical text of every member but the signature.
- A line is the kind, a dot, and the canonical text in base64 for URLs: it can be mailed, spoken of
  as a link, and put into a QR code as it is.
- Reading believes nothing: one spelling, a bounded size, and `MalformedError` for all else.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from walstore.canon import canonical_bytes, parse_canonical
from walstore.errors import MalformedError, NotJsonError
from walstore.signed.author import verify_bytes
from walstore.signed.encoding import encode_signature
from walstore.signed.identity import Identity

# A line holds a few keys, a document key and an address.
LINE_SIZE_MAX = 8192


def sign_statement(domain: bytes, members: dict[str, Any], identity: Identity) -> dict[str, Any]:
    """The members with the signature of an identity.

    Raises:
        NotJsonError: They have no canonical text.
    """
    signed = domain + canonical_bytes(members)
    return {**members, "signature": encode_signature(identity.sign(signed))}


def is_signed_by(key: object, domain: bytes, members: dict[str, Any]) -> bool:
    """Whether a key signed exactly these members; never raises."""
    rest = {name: member for name, member in members.items() if name != "signature"}
    try:
        signed = domain + canonical_bytes(rest)
    except NotJsonError:
        return False
    return verify_bytes(key, signed, members.get("signature"))


def to_line(kind: str, members: dict[str, Any]) -> str:
    """A statement as one line of text."""
    encoded = urlsafe_b64encode(canonical_bytes(members)).decode("ascii")
    return f"{kind}.{encoded.rstrip('=')}"


def from_line(kind: str, line: str) -> dict[str, Any]:
    """The members of a statement, unchecked.

    Raises:
        MalformedError: The line is not that of a statement of this kind.
    """
    head, dot, encoded = line.strip().partition(".")
    if head != kind or not dot or len(line) > LINE_SIZE_MAX:
        raise MalformedError(kind, f"not a line that begins with `{kind}.`")
    try:
        text = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError as error:
        raise MalformedError(kind, "not base64 for URLs") from error
    members = parse_canonical(text)
    # The decoder skips foreign characters; writing it again shows them.
    if type(members) is not dict or to_line(kind, members) != line.strip():
        raise MalformedError(kind, "not the canonical text of an object")
    return members
