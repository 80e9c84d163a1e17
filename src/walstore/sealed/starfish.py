"""Sealing as Starfish does it: AES-256-GCM under the content key of the key epoch.

    {"_encrypted": base64(iv ‖ cipher text ‖ tag), "_epoch": n}        additional data: "n" in ASCII
    n as 4 bytes, big-endian ‖ iv ‖ cipher text ‖ tag                  "starfish-blob:n:context"

- A missing `_epoch` means the current key epoch.
- The additional data names neither the document nor the author. Only the author signature ties
  a wrapper to its document, so it MUST be verified before opening; the seal context is not used.
"""

from __future__ import annotations

from typing import Any

from walstore.canon import Json
from walstore.errors import UsageError
from walstore.sealed.aes_gcm import IV_BYTES, TAG_BYTES, gcm_open, gcm_seal
from walstore.sealed.encoding import decode_base64, encode_base64
from walstore.sealed.encryptor import KeyedEncryptor, SealContext, read_object, write_object
from walstore.sealed.keys import is_epoch
from walstore.sealed.outcomes import SealRejectedError
from walstore.sealed.randomness import draw

_EPOCH_BYTES = 4


class StarfishEncryptor(KeyedEncryptor):
    """Encryption `delegated`, byte for byte as Starfish peers write and read it."""

    __slots__ = ()

    def seal(self, plain: dict[str, Any] | bytes, context: SealContext) -> dict[str, Json]:
        """The sealed wrapper of an object, given as such or as its JSON text in UTF-8.

        Raises:
            NotJsonError: The object has no canonical text.
            SealBudgetError: The content key is used up.
            StarfishExtraMissingError: `cryptography` is not installed.
        """
        epoch = self.current_epoch
        body = self._seal(write_object(plain), str(epoch).encode())
        return {"_encrypted": encode_base64(body), "_epoch": epoch}

    def open(self, sealed: object, context: SealContext) -> dict[str, Json]:
        """The object in a sealed wrapper.

        Raises:
            UnreadableError: The key is not at hand; try again when a keyring arrives.
            SealRejectedError: It was altered, is not sealed, or holds no JSON object.
            StarfishExtraMissingError: `cryptography` is not installed.
        """
        if not isinstance(sealed, dict):
            raise SealRejectedError
        body = decode_base64(sealed.get("_encrypted"))
        epoch = sealed.get("_epoch", self.current_epoch)
        if body is None or not is_epoch(epoch):
            raise SealRejectedError
        return read_object(self._open(epoch, body, str(epoch).encode()))

    def seal_bytes(self, plain: bytes, context: str = "") -> bytes:
        """Seal bytes, such as a file, that only the same context will open.

        Raises:
            SealBudgetError: The content key is used up.
            StarfishExtraMissingError: `cryptography` is not installed.
        """
        epoch = self.current_epoch
        body = self._seal(plain, _bytes_aad(epoch, context))
        return epoch.to_bytes(_EPOCH_BYTES, "big") + body

    def open_bytes(self, sealed: bytes, context: str = "") -> bytes:
        """The bytes that were sealed.

        Raises:
            UnreadableError: The key is not at hand; try again when a keyring arrives.
            SealRejectedError: They were altered, or sealed for another context.
            StarfishExtraMissingError: `cryptography` is not installed.
        """
        epoch = int.from_bytes(sealed[:_EPOCH_BYTES], "big")
        if not is_epoch(epoch):
            raise SealRejectedError
        return self._open(epoch, sealed[_EPOCH_BYTES:], _bytes_aad(epoch, context))

    def _seal(self, plain: bytes, aad: bytes) -> bytes:
        self._budget.spend(self._keys)
        iv = draw(self._randomness, IV_BYTES)
        return iv + gcm_seal(self._keys.key(self.current_epoch), iv, plain, aad)

    def _open(self, epoch: int, body: bytes, aad: bytes) -> bytes:
        if len(body) < IV_BYTES + TAG_BYTES:
            raise SealRejectedError
        plain = gcm_open(self._keys.key(epoch), body[:IV_BYTES], body[IV_BYTES:], aad)
        if plain is None:
            raise SealRejectedError
        return plain


def _bytes_aad(epoch: int, context: str) -> bytes:
    try:
        return f"starfish-blob:{epoch}:{context}".encode()
    except UnicodeEncodeError as error:
        raise UsageError("the context of sealed bytes must be valid Unicode") from error
