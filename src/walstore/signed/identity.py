"""Who someone is: an Ed25519 key that signs and an X25519 key that content keys are wrapped for.

- The private parts never appear in `repr`, in an exception or in an attribute with a public name.
- Both keys may be independent, as Starfish keeps them. Where only a signing seed is given, the
  other private key is HMAC-SHA256(seed, "walstore-kem-v1"): one seed then restores the whole
  identity, and neither key tells anything about the other.
- A saved identity holds both private keys and both public ones; the latter show damage on load.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from nacl.bindings import (
    crypto_scalarmult,
    crypto_scalarmult_base,
    crypto_sign,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import CryptoError

from walstore.canon import canonical_bytes, parse
from walstore.errors import MalformedError, PeerError, UsageError
from walstore.signed.encoding import KEY_BYTES, SIGNATURE_BYTES, decode_hex
from walstore.signed.keyfile import KeyfileCorruptError, read_keyfile, write_keyfile

_KEM_DOMAIN = b"walstore-kem-v1"
_VERSION = 1


class SeedError(UsageError):
    """A private key is not 32 bytes, nor 64 lower-case hex digits."""

    def __init__(self) -> None:
        super().__init__("a private key is 32 bytes or 64 lower-case hex digits")


class KeyAgreementError(PeerError):
    """A public X25519 key is not 32 bytes or gives no secret, being of small order."""

    def __init__(self) -> None:
        super().__init__("no secret can be agreed on with this public key")


class Identity:
    """One author's keys.

    Attributes:
        public_key: The Ed25519 key that others verify with, 64 lower-case hex digits.
        kem_public_key: The X25519 key that others wrap content keys for, in the same form.
        user_id: The short name of the public key, 32 hex digits.
    """

    __slots__ = ("_kem_private", "_seed", "_signing", "kem_public_key", "public_key", "user_id")

    def __init__(self, seed: bytes, kem_private: bytes) -> None:
        if len(seed) != KEY_BYTES or len(kem_private) != KEY_BYTES:
            raise SeedError
        public, self._signing = crypto_sign_seed_keypair(seed)
        self._seed = seed
        self._kem_private = kem_private
        self.public_key = public.hex()
        self.kem_public_key = crypto_scalarmult_base(kem_private).hex()
        self.user_id = hashlib.sha256(public).hexdigest()[:32]

    @classmethod
    def generate(cls) -> Identity:
        """A new identity from the system's randomness."""
        return cls.from_seed(os.urandom(KEY_BYTES))

    @classmethod
    def from_seed(
        cls, seed: str | bytes, *, kem_private_key: str | bytes | None = None
    ) -> Identity:
        """The identity of a seed; the key for wrapping is derived unless one is given.

        Raises:
            SeedError: Either key is not 32 bytes, nor their hex form.
        """
        raw = _private_bytes(seed)
        if kem_private_key is None:
            return cls(raw, hmac.digest(raw, _KEM_DOMAIN, "sha256"))
        return cls(raw, _private_bytes(kem_private_key))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Identity:
        """Read a saved identity.

        Raises:
            KeyfileMissingError: There is no such file.
            KeyfileExposedError: Others than its owner have rights on it.
            KeyfileCorruptError: It is not what was saved.
            KeyfileError: It cannot be read.
        """
        file = Path(path)
        return _decode(read_keyfile(file), file)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the identity to a file that only its owner can read, whole or not at all.

        Raises:
            KeyfileExistsError: The file exists and `overwrite` is false.
            KeyfileError: It cannot be written.
        """
        write_keyfile(Path(path), _encode(self, self._seed, self._kem_private), overwrite=overwrite)

    def sign(self, signed: bytes) -> bytes:
        """The 64-byte Ed25519 signature of these bytes; the same bytes give the same signature."""
        return crypto_sign(signed, self._signing)[:SIGNATURE_BYTES]

    def agree(self, public_key: bytes) -> bytes:
        """The X25519 secret shared with the owner of a public key.

        Raises:
            KeyAgreementError: The key has the wrong size or the secret would be all zero.
        """
        if len(public_key) != KEY_BYTES:
            raise KeyAgreementError
        try:
            return crypto_scalarmult(self._kem_private, public_key)
        except CryptoError as error:
            raise KeyAgreementError from error

    def __repr__(self) -> str:
        return f"Identity(public_key={self.public_key!r})"


def _private_bytes(key: str | bytes) -> bytes:
    raw = key if isinstance(key, bytes) else decode_hex(key)
    if raw is None:
        raise SeedError
    return raw


def _encode(identity: Identity, seed: bytes, kem_private: bytes) -> bytes:
    members = {
        "v": _VERSION,
        "seed": seed.hex(),
        "publicKey": identity.public_key,
        "kemPrivateKey": kem_private.hex(),
        "kemPublicKey": identity.kem_public_key,
    }
    return canonical_bytes(members) + b"\n"


def _decode(content: bytes, path: Path) -> Identity:
    try:
        members = parse(content)
    except MalformedError as error:
        raise KeyfileCorruptError(path, "not JSON") from error
    if not isinstance(members, dict) or members.get("v") != _VERSION:
        raise KeyfileCorruptError(path, f"not an identity of version {_VERSION}")
    seed, kem_private = decode_hex(members.get("seed")), decode_hex(members.get("kemPrivateKey"))
    if seed is None or kem_private is None:
        raise KeyfileCorruptError(path, "a private key is missing or misspelled")
    identity = Identity(seed, kem_private)
    public = (identity.public_key, identity.kem_public_key)
    if public != (members.get("publicKey"), members.get("kemPublicKey")):
        raise KeyfileCorruptError(path, "the private and public keys do not belong together")
    return identity
