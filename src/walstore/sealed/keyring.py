"""Reading a keyring: which content keys it gives, and whether they can be trusted.

- A keyring is not signed as a whole: its entries and bindings are, and only trusted adders count.
- A key epoch gives a reader its key only if exactly one entry is addressed to the reader, the
  entry holds, the key is bound to the scope, and it is the key that was seen there before. Other
  epochs are skipped; the current one must hold.
- A keyring whose current epoch is below one seen before, or below a sound one in itself, is
  refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from walstore.sealed.entry import Trust, UnfitError, Verifier, check_binding, open_entry
from walstore.sealed.keys import ContentKeys, key_id
from walstore.sealed.outcomes import KeyringRefusedError, KeyringRollbackError
from walstore.sealed.shape import addressed_to, numbered_epochs, read_binding, read_members
from walstore.sealed.wrap import Recipient


def open_keyring(
    keyring: object,
    *,
    recipient: Recipient,
    trusted_adders: Collection[str],
    verify: Verifier,
    scope: str,
    epoch_min: int,
    key_ids: Mapping[int, str] = MappingProxyType({}),
    trust_unbound: bool = False,
) -> ContentKeys:
    """The content keys that a keyring holds for a reader.

    Args:
        keyring: The keyring as it was received.
        recipient: The reader.
        trusted_adders: The Ed25519 keys of those who may give out keys.
        verify: `walstore.signed.verify_bytes`.
        scope: The document key or collection path that the keyring must be bound to.
        epoch_min: The highest current key epoch seen so far, 0 if none; kept by the caller.
        key_ids: The key ids seen so far by key epoch; kept by the caller.
        trust_unbound: Whether to take key epochs without a binding. Another implementation writes
            none. A binding that is there must hold all the same.

    Raises:
        KeyringRollbackError: The current key epoch is below `epoch_min`, or was set back.
        KeyringRefusedError: It is malformed or the current key epoch gives no key.
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    members = read_members(keyring)
    current = members["currentEpoch"]
    if current < epoch_min:
        raise KeyringRollbackError(epoch=current, epoch_min=epoch_min)
    reader = _Reader(recipient, Trust(trusted_adders, verify), scope, key_ids, trust_unbound)
    keys: dict[int, bytes] = {}
    skipped: dict[int, str] = {}
    for number, epoch in numbered_epochs(members):
        try:
            keys[number] = reader.open_epoch(number, epoch)
        except UnfitError as error:
            skipped[number] = str(error)
    _check_current(current, keys, skipped)
    return ContentKeys(current, keys, skipped)


class _Reader(NamedTuple):
    """Everything that decides whether a key epoch gives its key."""

    recipient: Recipient
    trust: Trust
    scope: str
    key_ids: Mapping[int, str]
    trust_unbound: bool

    def open_epoch(self, number: int, epoch: dict[str, Any]) -> bytes:
        entry = _only_entry(self.recipient.kem_public_key, epoch)
        content_key = open_entry(entry, epoch=number, recipient=self.recipient, trust=self.trust)
        if self.key_ids.get(number, key_id(content_key)) != key_id(content_key):
            raise UnfitError("its key is another one than before")
        binding = read_binding(epoch)
        if binding is not None or not self.trust_unbound:
            check_binding(binding, content_key, scope=self.scope, epoch=number, trust=self.trust)
        return content_key


def _check_current(current: int, keys: dict[int, bytes], skipped: dict[int, str]) -> None:
    if current not in keys:
        reason = skipped.get(current, "it is missing")
        raise KeyringRefusedError(f"the current key epoch {current} gives no key: {reason}")
    # Rotating raises the current epoch in the same step, so a sound epoch above it shows that
    # somebody set it back.
    if max(keys) > current:
        raise KeyringRollbackError(epoch=current, epoch_min=max(keys))


def _only_entry(recipient: str, epoch: dict[str, Any]) -> dict[str, Any]:
    entries = addressed_to(recipient, epoch)
    if len(entries) != 1:
        # Of two entries a relay could choose which one the reader takes.
        raise UnfitError(f"it has {len(entries)} entries for the reader instead of one")
    return entries[0]
