"""Bytes as text inside sealed data and keyrings: one spelling each, everything else is refused."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64

KEY_BYTES = 32


def decode_key(text: object) -> bytes | None:
    """The 32 bytes that 64 lower-case hex digits spell, or None for anything else."""
    if type(text) is not str or len(text) != 2 * KEY_BYTES:
        return None
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    # fromhex also reads upper case and skips white space.
    return raw if raw.hex() == text else None


def decode_base64(text: object) -> bytes | None:
    """The bytes that padded standard base64 spells, or None if the text is not canonical."""
    if type(text) is not str:
        return None
    try:
        raw = a2b_base64(text)
    except ValueError:
        return None
    # The decoder skips foreign characters and ignores stray low bits; encoding again shows both.
    return raw if encode_base64(raw) == text else None


def encode_base64(raw: bytes) -> str:
    """Padded standard base64."""
    return b2a_base64(raw, newline=False).decode("ascii")
