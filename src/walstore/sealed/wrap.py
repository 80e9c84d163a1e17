"""Wrapping a content key for one recipient.

- A fresh X25519 key agrees with the recipient's key; HKDF-SHA256 turns the secret into a key;
  AES-256-GCM wraps the content key under it: `iv ‖ wrapped ‖ tag`.
- A public key of small order would make the secret known to all, and is refused.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple, Protocol

from nacl.bindings import crypto_scalarmult, crypto_scalarmult_base
from nacl.exceptions import CryptoError

from walstore.errors import PeerError, UsageError
from walstore.sealed.aes_gcm import IV_BYTES, TAG_BYTES, gcm_open, gcm_seal
from walstore.sealed.encoding import KEY_BYTES, decode_key

WRAPPED_BYTES = IV_BYTES + KEY_BYTES + TAG_BYTES

_LABEL = b"starfish-wrap"


class Recipient(Protocol):
    """Someone whom content keys are wrapped for; an `Identity` is one."""

    @property
    def kem_public_key(self) -> str:
        """The X25519 key, 64 lower-case hex digits."""
        ...

    def agree(self, public_key: bytes) -> bytes:
        """The X25519 secret shared with the owner of a public key; a `PeerError` if none."""
        ...


class RecipientKeyError(UsageError):
    """A recipient's public key is not 64 lower-case hex digits or of small order.

    Attributes:
        recipient: The key.
    """

    def __init__(self, recipient: str) -> None:
        super().__init__(f"nothing can be wrapped for the key {recipient!r}")
        self.recipient = recipient


class Wrapped(NamedTuple):
    """A content key for one recipient: the ephemeral public key and `iv ‖ wrapped ‖ tag`."""

    ephemeral: bytes
    ct: bytes


def wrap(content_key: bytes, recipient: str, *, ephemeral_private: bytes, iv: bytes) -> Wrapped:
    """Wrap a content key; the ephemeral key and the iv must never be used again.

    Raises:
        RecipientKeyError: The recipient's key is unusable.
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    public = decode_key(recipient)
    if public is None:
        raise RecipientKeyError(recipient)
    try:
        shared = crypto_scalarmult(ephemeral_private, public)
    except CryptoError as error:
        raise RecipientKeyError(recipient) from error
    ct = iv + gcm_seal(_wrapping_key(shared), iv, content_key, None)
    return Wrapped(crypto_scalarmult_base(ephemeral_private), ct)


def unwrap(recipient: Recipient, ephemeral: bytes, ct: bytes) -> bytes | None:
    """The content key, or None if it was not wrapped for this recipient or was altered.

    Raises:
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    if len(ct) != WRAPPED_BYTES:
        return None
    try:
        shared = recipient.agree(ephemeral)
    except PeerError:
        return None
    return gcm_open(_wrapping_key(shared), ct[:IV_BYTES], ct[IV_BYTES:], None)


def _wrapping_key(shared: bytes) -> bytes:
    # HKDF-SHA256 (RFC 5869) for exactly one block of output.
    extracted = hmac.digest(_LABEL, shared, "sha256")
    return hmac.digest(extracted, _LABEL + b"\x01", "sha256")
