"""Keys and signatures as text: one spelling each, everything else is refused.

- A public key is 64 lower-case hex digits; a signature is padded standard base64, 88 characters.
- Two spellings of one key would be two identities, so no leniency is possible here.
- A small-order key fits one signature to every message; its 14 encodings are not keys.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from functools import lru_cache

KEY_BYTES = 32
SIGNATURE_BYTES = 64
SIGNATURE_CHARS = 88

_ORDER_EIGHT = (
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03",
)

SMALL_ORDER_KEYS = frozenset(
    bytes.fromhex(text)
    for text in (
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "00" * 32,
        "00" * 31 + "80",
        _ORDER_EIGHT[0] + "05",
        _ORDER_EIGHT[0] + "85",
        _ORDER_EIGHT[1] + "7a",
        _ORDER_EIGHT[1] + "fa",
        "01" + "00" * 30 + "80",
        "ec" + "ff" * 31,
        "ed" + "ff" * 30 + "7f",
        "ed" + "ff" * 31,
        "ee" + "ff" * 30 + "7f",
        "ee" + "ff" * 31,
    )
)


def decode_hex(text: object) -> bytes | None:
    """The 32 bytes that 64 lower-case hex digits spell, or None for anything else."""
    if type(text) is not str or len(text) != 2 * KEY_BYTES:
        return None
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    # fromhex also reads upper case and skips white space.
    return raw if raw.hex() == text else None


def decode_public_key(text: object) -> bytes | None:
    """The raw Ed25519 key, or None if the text is not one spelling of a usable key."""
    # The same few keys come over and over again.
    return _decoded_key(text) if type(text) is str and len(text) == 2 * KEY_BYTES else None


@lru_cache(maxsize=256)
def _decoded_key(text: str) -> bytes | None:
    raw = decode_hex(text)
    return None if raw in SMALL_ORDER_KEYS else raw


def decode_signature(text: object) -> bytes | None:
    """The raw Ed25519 signature, or None if the text is not its only base64 spelling."""
    if type(text) is not str or len(text) != SIGNATURE_CHARS:
        return None
    try:
        raw = a2b_base64(text)
    except ValueError:
        return None
    # The decoder skips foreign characters and ignores stray low bits; encoding again shows both.
    return raw if len(raw) == SIGNATURE_BYTES and encode_signature(raw) == text else None


def encode_signature(raw: bytes) -> str:
    """A raw signature as text."""
    return b2a_base64(raw, newline=False).decode("ascii")
