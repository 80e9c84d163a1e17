"""Content keys: what data is sealed with, one for each key epoch.

- A key epoch is an integer from 1 to 2^32 − 1; sealing always uses the current one.
- The id of a content key is the SHA-256 of the key. It may be stored and shown; the key may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import TypeGuard

from walstore.errors import UsageError
from walstore.sealed.encoding import KEY_BYTES
from walstore.sealed.outcomes import KeyringRefusedError, KeyringRollbackError, UnreadableError

# Sealed bytes carry the key epoch in four bytes.
EPOCH_MAX = 2**32 - 1


def is_epoch(value: object) -> TypeGuard[int]:
    """Whether the value is a key epoch."""
    return type(value) is int and 1 <= value <= EPOCH_MAX


def key_id(content_key: bytes) -> str:
    """The public name of a content key."""
    return sha256(content_key).hexdigest()


class ContentKeys:
    """The content keys that a reader holds.

    Attributes:
        current_epoch: The key epoch to seal in. Persist it: it is the `epoch_min` of next time.
        key_ids: The id of each key by key epoch. Persist them: they pin the keyring next time.
        skipped: Why other key epochs of the keyring gave no key.
        former: Keys that were given up for others, with their key epochs: they seal no more, and
            open what they have sealed.
    """

    __slots__ = ("_keys", "current_epoch", "former", "key_ids", "skipped")

    def __init__(
        self,
        current_epoch: int,
        keys: Mapping[int, bytes],
        skipped: Mapping[int, str] = MappingProxyType({}),
        former: Iterable[tuple[int, bytes]] = (),
    ) -> None:
        sound = all(is_epoch(epoch) and len(key) == KEY_BYTES for epoch, key in keys.items())
        if not sound or current_epoch not in keys:
            raise UsageError("content keys are 32 bytes each, and the current epoch has one")
        self._keys = dict(keys)
        self.current_epoch = current_epoch
        self.key_ids: Mapping[int, str] = MappingProxyType(
            {epoch: key_id(key) for epoch, key in keys.items()}
        )
        self.skipped = skipped
        self.former = frozenset(former)

    def key(self, epoch: int) -> bytes:
        """The content key of a key epoch.

        Raises:
            UnreadableError: It is not at hand.
        """
        try:
            return self._keys[epoch]
        except KeyError:
            raise UnreadableError(epoch) from None

    def opening(self, epoch: int) -> list[bytes]:
        """The content keys that something of a key epoch may be sealed with, the likely one first.

        Raises:
            UnreadableError: None is at hand.
        """
        return [self.key(epoch), *(key for of, key in self.former if of == epoch)]

    def after(self, former: ContentKeys) -> ContentKeys:
        """These keys, in the place of others that were never handed out."""
        given_up = self.former | former.former | former._keys.items()
        return ContentKeys(self.current_epoch, self._keys, self.skipped, given_up)

    def updated(self, newer: ContentKeys) -> ContentKeys:
        """These keys and newer ones; keys that only this object has stay readable.

        Raises:
            KeyringRollbackError: The other keys are older.
            KeyringRefusedError: A key epoch has two different keys.
        """
        if newer.current_epoch < self.current_epoch:
            raise KeyringRollbackError(epoch=newer.current_epoch, epoch_min=self.current_epoch)
        for epoch, key in newer._keys.items():
            known = self._keys.get(epoch, key)
            if known != key and (epoch, known) not in newer.former:
                raise KeyringRefusedError(f"key epoch {epoch} has another key than before")
        keys = {**self._keys, **newer._keys}
        return ContentKeys(newer.current_epoch, keys, newer.skipped, self.former | newer.former)

    def __repr__(self) -> str:
        return f"ContentKeys(current_epoch={self.current_epoch}, epochs={sorted(self._keys)})"
