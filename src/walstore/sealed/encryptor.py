"""The seam between documents and encryption: seal before signing, open after verifying.

- An encryptor turns a JSON object into the JSON object that is stored, and back.
- `PlainEncryptor` is encryption `none`; the two delegated ones seal with the keys of a keyring.
- The signature is over what is stored, so it MUST be verified before anything is opened.
- A document that is sealed never takes plain data, and a plain one never takes sealed data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from walstore.canon import Json, canonical_bytes, parse
from walstore.errors import MalformedError
from walstore.sealed.budget import SealBudget
from walstore.sealed.keys import ContentKeys
from walstore.sealed.outcomes import SealRejectedError
from walstore.sealed.randomness import Randomness


class SealContext(NamedTuple):
    """Where sealed data belongs; native sealing does not open it anywhere else.

    Attributes:
        document_key: The key that the data is stored under.
        author: The key of its author.
        seq: The writer seq of an element, the `uptoTs` of a snapshot.
    """

    document_key: str
    author: str
    seq: int


class Encryptor(Protocol):
    """Seals and opens the payloads of one document."""

    def seal(self, plain: dict[str, Any] | bytes, context: SealContext) -> dict[str, Json]:
        """What to store for an object, given as such or as its JSON text in UTF-8.

        Raises:
            SealBudgetError: The content key is used up.
        """
        ...

    def open(self, sealed: object, context: SealContext) -> dict[str, Json]:
        """The object that was sealed.

        Raises:
            UnreadableError: The key is not at hand; try again when a keyring arrives.
            SealRejectedError: It was altered, is not sealed, or holds no JSON object.
        """
        ...


class PlainEncryptor:
    """Encryption `none`: what is stored is what was written."""

    __slots__ = ()

    def seal(self, plain: dict[str, Any] | bytes, context: SealContext) -> dict[str, Json]:
        """The object itself.

        Raises:
            SealRejectedError: The bytes are not the JSON text of an object.
        """
        return read_object(plain) if isinstance(plain, bytes) else plain

    def open(self, sealed: object, context: SealContext) -> dict[str, Json]:
        """The object itself.

        Raises:
            SealRejectedError: It is not an object, or it is sealed.
        """
        if not isinstance(sealed, dict) or "_encrypted" in sealed or "_sealed" in sealed:
            raise SealRejectedError
        return sealed


class KeyedEncryptor:
    """What the delegated encryptors share: keys that only move forward, nonces, a budget."""

    __slots__ = ("_budget", "_keys", "_randomness")

    def __init__(
        self, keys: ContentKeys, *, randomness: Randomness, budget: SealBudget | None = None
    ) -> None:
        self._keys = keys
        self._randomness = randomness
        self._budget = SealBudget() if budget is None else budget

    @property
    def current_epoch(self) -> int:
        """The key epoch that the next seal will use."""
        return self._keys.current_epoch

    @property
    def rotation_due(self) -> bool:
        """Whether the current content key has sealed so much that it should be replaced."""
        return self._budget.rotation_due(self._keys)

    @property
    def seal_counts(self) -> dict[str, int]:
        """The seals so far by key id, to be stored together with what was sealed."""
        return self._budget.counts

    def adopt(self, keys: ContentKeys) -> None:
        """Use the keys of a newer keyring from now on; what was readable stays readable.

        Raises:
            KeyringRollbackError: The keys are older than those in use; nothing has changed.
            KeyringRefusedError: A key epoch has another key than before; nothing has changed.
        """
        self._keys = self._keys.updated(keys)


def is_outdated(sealed: Mapping[str, Any], keys: object) -> bool:
    """Whether something is sealed in a key epoch that is over: who comes late gets no key for it.

    Args:
        sealed: What was sealed.
        keys: An encryptor or content keys; whatever has no current key epoch has no former one.
    """
    current = getattr(keys, "current_epoch", None)
    return current is not None and sealed.get("_epoch", current) != current


def write_object(plain: dict[str, Any] | bytes) -> bytes:
    """The JSON text to seal.

    Raises:
        NotJsonError: The object has no canonical text.
    """
    return plain if isinstance(plain, bytes) else canonical_bytes(plain)


def read_object(plain: bytes) -> dict[str, Json]:
    """The JSON object that a text holds.

    Raises:
        SealRejectedError: It holds anything else.
    """
    try:
        value = parse(plain)
    except MalformedError as error:
        raise SealRejectedError from error
    if not isinstance(value, dict):
        raise SealRejectedError
    return value
