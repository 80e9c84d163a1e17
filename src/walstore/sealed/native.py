"""Sealing as walstore does it: XChaCha20-Poly1305, tied to the place that it was sealed for.

    {"_sealed": base64(nonce ‖ cipher text ‖ tag), "_epoch": n}

- The nonce has 24 random bytes, the tag 16; members beside these two are ignored.
- The key is HMAC-SHA256(content key, "walstore-seal-v1"), so that one keyring can serve both this
  and Starfish sealing without one key ever meeting two ciphers.
- The additional data is the canonical text of
  `["walstore-seal-v1", document key, author, writer seq, key epoch]`. Sealed data that is moved
  to another document, author, place in the sequence or epoch is rejected.
- The plain text is the JSON text of an object in UTF-8, in any spelling.
- `_epoch` is always there: data that is read later must not depend on what is current then.
"""

from __future__ import annotations

import hmac
from contextlib import suppress
from typing import Any

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_ABYTES as TAG_BYTES,
)
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES as NONCE_BYTES,
)
from nacl.exceptions import CryptoError

from walstore.canon import Json, canonical_bytes
from walstore.sealed.encoding import decode_base64, encode_base64
from walstore.sealed.encryptor import KeyedEncryptor, SealContext, read_object, write_object
from walstore.sealed.keys import is_epoch
from walstore.sealed.outcomes import SealRejectedError
from walstore.sealed.randomness import draw

_DOMAIN = "walstore-seal-v1"


class NativeEncryptor(KeyedEncryptor):
    """Encryption `delegated` between walstore readers."""

    __slots__ = ()

    def seal(self, plain: dict[str, Any] | bytes, context: SealContext) -> dict[str, Json]:
        """The sealed wrapper of an object, given as such or as its JSON text in UTF-8.

        Raises:
            NotJsonError: The object has no canonical text.
            SealBudgetError: The content key is used up.
        """
        text, epoch = write_object(plain), self.current_epoch
        self._budget.spend(self._keys)
        nonce = draw(self._randomness, NONCE_BYTES)
        sealed = crypto_aead_xchacha20poly1305_ietf_encrypt(
            text, _aad(context, epoch), nonce, _sealing_key(self._keys.key(epoch))
        )
        return {"_sealed": encode_base64(nonce + sealed), "_epoch": epoch}

    def open(self, sealed: object, context: SealContext) -> dict[str, Json]:
        """The object in a sealed wrapper.

        Raises:
            UnreadableError: The key is not at hand; try again when a keyring arrives.
            SealRejectedError: It was altered or moved, is not sealed, or holds no JSON object.
        """
        if not isinstance(sealed, dict):
            raise SealRejectedError
        body, epoch = decode_base64(sealed.get("_sealed")), sealed.get("_epoch")
        if body is None or len(body) < NONCE_BYTES + TAG_BYTES or not is_epoch(epoch):
            raise SealRejectedError
        return read_object(self._open(epoch, body, context))

    def _open(self, epoch: int, body: bytes, context: SealContext) -> bytes:
        nonce, sealed, aad = body[:NONCE_BYTES], body[NONCE_BYTES:], _aad(context, epoch)
        for content_key in self._keys.opening(epoch):
            with suppress(CryptoError):
                return crypto_aead_xchacha20poly1305_ietf_decrypt(
                    sealed, aad, nonce, _sealing_key(content_key)
                )
        raise SealRejectedError


def _sealing_key(content_key: bytes) -> bytes:
    return hmac.digest(content_key, _DOMAIN.encode(), "sha256")


def _aad(context: SealContext, epoch: int) -> bytes:
    return canonical_bytes([_DOMAIN, context.document_key, context.author, context.seq, epoch])
