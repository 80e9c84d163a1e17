"""Cards: what somebody hands out in order to be invited.

- A card names the two public keys of an identity, and its owner has signed it: whoever is given
  a card cannot be made to wrap a content key for somebody else's second key.
- It holds no secret. What it does not tell is whose it is: that has to come from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from nacl.bindings import crypto_scalarmult
from nacl.exceptions import CryptoError

from walstore.errors import MalformedError
from walstore.signed.encoding import decode_hex, decode_public_key
from walstore.signed.identity import Identity
from walstore.signed.statement import from_line, is_signed_by, sign_statement, to_line

_KIND = "walstore-card"
_DOMAIN = b"walstore-card-v1\n"
_VERSION = 1
_MEMBERS = {"v", "key", "kem", "signature"}

# Any private key tells whether a public one gives a secret.
_PROBE = bytes([0x40]) * 32


@dataclass(frozen=True, slots=True)
class Card:
    """The public keys of somebody who is to be invited; its signature was checked.

    Attributes:
        public_key: The Ed25519 key.
        kem_public_key: The X25519 key that content keys are wrapped for.
        line: The card as one line of text.
    """

    public_key: str
    kem_public_key: str
    line: str

    @classmethod
    def of(cls, identity: Identity) -> Card:
        """The card of an identity."""
        members = {"v": _VERSION, "key": identity.public_key, "kem": identity.kem_public_key}
        line = to_line(_KIND, sign_statement(_DOMAIN, members, identity))
        return cls(identity.public_key, identity.kem_public_key, line)

    @classmethod
    def read(cls, line: str) -> Card:
        """The card that a line of text is.

        Raises:
            MalformedError: It is none, or is not signed by the key that it names.
        """
        members = from_line(_KIND, line)
        if members.keys() != _MEMBERS or members["v"] is True or members["v"] != _VERSION:
            raise MalformedError("card", f"not a card of version {_VERSION}")
        key, kem = members["key"], members["kem"]
        if decode_public_key(key) is None or not is_kem_key(kem):
            raise MalformedError("card", "a key is not one that can be used")
        if not is_signed_by(key, _DOMAIN, members):
            raise MalformedError("card", "the signature is not that of its key")
        return cls(key, kem, to_line(_KIND, members))

    def __str__(self) -> str:
        return self.line


def is_kem_key(value: object) -> bool:
    """Whether a value is an X25519 key that a secret can be agreed on with."""
    raw = decode_hex(value)
    if raw is None:
        return False
    try:
        crypto_scalarmult(_PROBE, raw)
    except CryptoError:
        return False
    return True
