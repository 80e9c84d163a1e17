"""Whom a keyring is for: bringing its current key epoch in line with a list of recipients.

- Somebody too many means a new key epoch; somebody missing is added to the current one. Where
  nothing has to change, nothing does, so it may be done again at any time.
- Only what the adder signed counts. What somebody else put in, an entry twice or for a stranger,
  would lock readers out or cause needless rotations, and is thrown out.
- A keyring that outgrows its place lets go of its oldest key epochs; a snapshot that is sealed
  under the current one stands for what they sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walstore.canon import Json, canonical_text
from walstore.errors import NotJsonError
from walstore.sealed.entry import Adder, Verifier, entry_signing_input
from walstore.sealed.keys import ContentKeys
from walstore.sealed.membership import add_recipient, rotate_keyring
from walstore.sealed.randomness import Randomness
from walstore.sealed.shape import numbered_epochs, read_epoch, read_members, with_epoch


def settle_keyring(
    keyring: object,
    keys: ContentKeys,
    recipients: Sequence[str],
    *,
    scope: str,
    adder: Adder,
    verify: Verifier,
    now_s: int,
    randomness: Randomness,
    is_rotating: bool = False,
) -> dict[str, Json]:
    """The keyring whose current key epoch is for exactly these recipients.

    Args:
        keyring: The keyring to continue.
        keys: What it gave when it was opened.
        recipients: The X25519 keys of all who may read from now on.
        scope: As for `create_keyring`.
        adder: As for `create_keyring`.
        verify: `walstore.signed.verify_bytes`.
        now_s: As for `create_keyring`.
        randomness: As for `create_keyring`.
        is_rotating: Whether there is to be a new key epoch in any case.

    Raises:
        RecipientsError: There is no recipient, or one appears twice.
        RecipientKeyError: A recipient's key is unusable.
        KeyringMovedError: The keys are those of another key epoch.
        KeyringRefusedError: The keyring is malformed or has no key epoch left.
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    members, number = read_members(keyring), keys.current_epoch
    epoch = read_epoch(members, number)
    entries = _sound_entries(epoch, number, adder, verify)
    if is_rotating or not set(recipients).issuperset(entries):
        return rotate_keyring(
            keyring,
            keys,
            recipients,
            scope=scope,
            adder=adder,
            now_s=now_s,
            randomness=randomness,
        )
    settled = with_epoch(members, number, {**epoch, "wrappedKeys": list(entries.values())})
    for recipient in recipients:
        if recipient not in entries:
            settled = add_recipient(
                settled, keys, recipient, adder=adder, now_s=now_s, randomness=randomness
            )
    return settled


def merge_epochs(
    newer: dict[str, Any], older: dict[str, Any] | None, keys: ContentKeys
) -> dict[str, Any]:
    """A keyring, with those key epochs of an older one that it gives no key for.

    Args:
        newer: A keyring that was opened.
        older: One of before, or None.
        keys: What the newer one gave.
    """
    merged = newer
    for number, epoch in numbered_epochs(older) if older is not None else ():
        if number not in keys.key_ids and number < keys.current_epoch:
            merged = with_epoch(merged, number, epoch)
    return merged


def fit_keyring(keyring: dict[str, Any], bytes_max: int) -> str:
    """The text of a keyring, without its oldest key epochs as far as there is no room for them."""
    current = keyring["currentEpoch"]
    old = sorted(number for number, _ in numbered_epochs(keyring) if number != current)
    while len((text := canonical_text(keyring)).encode()) > bytes_max and old:
        epochs = {**keyring["epochs"]}
        del epochs[str(old.pop(0))]
        keyring = {**keyring, "epochs": epochs}
    return text


def _sound_entries(
    epoch: dict[str, Any], number: int, adder: Adder, verify: Verifier
) -> dict[str, Any]:
    """The entries that the adder signed, one for each recipient."""
    entries: dict[str, Any] = {}
    for entry in epoch["wrappedKeys"]:
        recipient = entry.get("subKem") if isinstance(entry, dict) else None
        if isinstance(recipient, str) and _is_sound(entry, number, adder, verify):
            entries.setdefault(recipient, entry)
    return entries


def _is_sound(entry: dict[str, Any], number: int, adder: Adder, verify: Verifier) -> bool:
    if entry.get("addedBy") != adder.public_key:
        return False
    try:
        signed = entry_signing_input(entry, number)
    except NotJsonError:
        return False
    return verify(adder.public_key, signed, entry.get("addedSig", ""))
