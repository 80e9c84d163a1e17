"""AES-256-GCM, the one primitive that PyNaCl does not offer on every machine.

- The package `cryptography` is imported here and nowhere else, and only when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walstore.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

IV_BYTES = 12
TAG_BYTES = 16


class StarfishExtraMissingError(UsageError, ImportError):
    """The extra that keyrings and Starfish sealing need is not installed."""

    def __init__(self) -> None:
        super().__init__('keyrings need AES-256-GCM: pip install "walstore[starfish]"')


def gcm_seal(key: bytes, iv: bytes, plain: bytes, aad: bytes | None) -> bytes:
    """Cipher text and tag.

    Raises:
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    return _cipher(key).encrypt(iv, plain, aad)


def gcm_open(key: bytes, iv: bytes, sealed: bytes, aad: bytes | None) -> bytes | None:
    """The plain text, or None if any part of the input is not what was sealed.

    Raises:
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(iv, sealed, aad)
    except InvalidTag:
        return None


def _cipher(key: bytes) -> AESGCM:
    # Imported on first use, so that whoever seals nothing this way need not have it installed.
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise StarfishExtraMissingError from error
    return AESGCM(key)
