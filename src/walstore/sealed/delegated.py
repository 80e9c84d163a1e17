"""Encryption `delegated` for a log that both walstore and Starfish peers write.

- It seals in one way and opens both: which one a wrapper is, its members say.
- Both ways use the same keys and spend the same budget.
"""

from __future__ import annotations

from typing import Any, Literal

from walstore.canon import Json
from walstore.sealed.budget import SealBudget
from walstore.sealed.encryptor import KeyedEncryptor, SealContext
from walstore.sealed.keys import ContentKeys
from walstore.sealed.native import NativeEncryptor
from walstore.sealed.randomness import Randomness
from walstore.sealed.starfish import StarfishEncryptor


class DelegatedEncryptor:
    """Seals for the readers of one keyring, natively or as Starfish peers do."""

    __slots__ = ("_native", "_sealing", "_starfish")

    def __init__(
        self,
        keys: ContentKeys,
        *,
        randomness: Randomness,
        budget: SealBudget | None = None,
        seals: Literal["native", "starfish"] = "native",
    ) -> None:
        """Use the keys of a keyring; `seals` is how to seal."""
        shared = SealBudget() if budget is None else budget
        self._native = NativeEncryptor(keys, randomness=randomness, budget=shared)
        self._starfish = StarfishEncryptor(keys, randomness=randomness, budget=shared)
        self._sealing: KeyedEncryptor = self._native if seals == "native" else self._starfish

    @property
    def current_epoch(self) -> int:
        """The key epoch that the next seal will use."""
        return self._native.current_epoch

    @property
    def rotation_due(self) -> bool:
        """Whether the current content key has sealed so much that it should be replaced."""
        return self._native.rotation_due

    @property
    def seal_counts(self) -> dict[str, int]:
        """The seals so far by key id, to be stored together with what was sealed."""
        return self._native.seal_counts

    def adopt(self, keys: ContentKeys) -> None:
        """Use the keys of a newer keyring from now on; what was readable stays readable.

        Raises:
            KeyringRollbackError: The keys are older than those in use; nothing has changed.
            KeyringRefusedError: A key epoch has another key than before; nothing has changed.
        """
        self._native.adopt(keys)
        self._starfish.adopt(keys)

    def seal(self, plain: dict[str, Any] | bytes, context: SealContext) -> dict[str, Json]:
        """The sealed wrapper of an object, given as such or as its JSON text in UTF-8.

        Raises:
            NotJsonError: The object has no canonical text.
            SealBudgetError: The content key is used up.
            StarfishExtraMissingError: The Starfish way needs `cryptography`.
        """
        if self._sealing is self._native:
            return self._native.seal(plain, context)
        return self._starfish.seal(plain, context)

    def open(self, sealed: object, context: SealContext) -> dict[str, Json]:
        """The object in a sealed wrapper of either kind.

        Raises:
            UnreadableError: The key is not at hand; try again when a keyring arrives.
            SealRejectedError: It was altered or moved, is not sealed, or holds no JSON object.
            StarfishExtraMissingError: The Starfish way needs `cryptography`.
        """
        if isinstance(sealed, dict) and "_encrypted" in sealed:
            return self._starfish.open(sealed, context)
        return self._native.open(sealed, context)
