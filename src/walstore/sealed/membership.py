"""Changing who can read: making, extending, rotating and binding keyrings.

- Adding a recipient adds an entry to the current key epoch; rotating makes a new epoch for those
  who stay. Old epochs are kept, so that old elements stay readable.
- Whoever changes a keyring has opened it: the keys show that it is not an old or a foreign one.
- The functions return new keyrings and leave the given one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walstore.canon import Json
from walstore.errors import UsageError
from walstore.sealed.aes_gcm import IV_BYTES
from walstore.sealed.encoding import KEY_BYTES
from walstore.sealed.entry import Adder, make_binding, make_entry
from walstore.sealed.keys import EPOCH_MAX, ContentKeys
from walstore.sealed.outcomes import KeyringRefusedError
from walstore.sealed.randomness import Randomness, draw
from walstore.sealed.shape import (
    VERSION,
    addressed_to,
    read_binding,
    read_epoch,
    read_members,
    with_binding,
    with_epoch,
)


class RecipientsError(UsageError):
    """The recipients of a key epoch are not a set with at least one member.

    Attributes:
        reason: What is wrong.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"these recipients cannot be given a content key: {reason}")
        self.reason = reason


class KeyringMovedError(UsageError):
    """The keyring to change is not the one that the keys were read from; open it again.

    Attributes:
        epoch: The current key epoch of the keyring.
        keys_epoch: The current key epoch of the keys.
    """

    def __init__(self, *, epoch: int, keys_epoch: int) -> None:
        super().__init__(f"the keyring is at key epoch {epoch}, the keys are at {keys_epoch}")
        self.epoch = epoch
        self.keys_epoch = keys_epoch


def create_keyring(
    recipients: Sequence[str], *, scope: str, adder: Adder, now_s: int, randomness: Randomness
) -> dict[str, Json]:
    """A keyring with a new content key in key epoch 1.

    Args:
        recipients: The X25519 keys of all who may read.
        scope: The document key or collection path that it is for.
        adder: Who vouches for it.
        now_s: The unix time.
        randomness: Gives the content key, then an ephemeral key and an iv for each recipient.

    Raises:
        RecipientsError: There is no recipient, or one appears twice.
        RecipientKeyError: A recipient's key is unusable.
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    epoch = _make_epoch(
        recipients, epoch=1, scope=scope, adder=adder, now_s=now_s, randomness=randomness
    )
    return {"v": VERSION, "currentEpoch": 1, "epochs": {"1": epoch}}


def add_recipient(
    keyring: object,
    keys: ContentKeys,
    recipient: str,
    *,
    adder: Adder,
    now_s: int,
    randomness: Randomness,
) -> dict[str, Json]:
    """The keyring with one more recipient, who can read from the current key epoch on.

    Raises:
        RecipientsError: The recipient is in the current key epoch already.
        RecipientKeyError: The recipient's key is unusable.
        KeyringMovedError: The keys are those of another key epoch.
        KeyringRefusedError: The keyring is malformed.
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    members, number = read_members(keyring), keys.current_epoch
    _check_same_epoch(members, keys)
    epoch = read_epoch(members, number)
    if addressed_to(recipient, epoch):
        raise RecipientsError(f"{recipient} is in the current key epoch already")
    entry = _entry_for(
        recipient, keys.key(number), epoch=number, adder=adder, now_s=now_s, randomness=randomness
    )
    return with_epoch(members, number, {**epoch, "wrappedKeys": [*epoch["wrappedKeys"], entry]})


def rotate_keyring(
    keyring: object,
    keys: ContentKeys,
    recipients: Sequence[str],
    *,
    scope: str,
    adder: Adder,
    now_s: int,
    randomness: Randomness,
) -> dict[str, Json]:
    """The keyring with a new content key, in a new key epoch, for those who stay.

    Args:
        keyring: The keyring to continue.
        keys: What it gave when it was opened: whoever rotates has checked what is rotated.
        recipients: The X25519 keys of all who may read from now on.
        scope: As for `create_keyring`.
        adder: As for `create_keyring`.
        now_s: As for `create_keyring`.
        randomness: As for `create_keyring`.

    Raises:
        RecipientsError: There is no recipient, or one appears twice.
        RecipientKeyError: A recipient's key is unusable.
        KeyringMovedError: The keys are those of another key epoch.
        KeyringRefusedError: The keyring is malformed or has no key epoch left.
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    members, number = read_members(keyring), keys.current_epoch + 1
    _check_same_epoch(members, keys)
    if number > EPOCH_MAX or str(number) in members["epochs"]:
        raise KeyringRefusedError(f"there is no room for key epoch {number}")
    epoch = _make_epoch(
        recipients, epoch=number, scope=scope, adder=adder, now_s=now_s, randomness=randomness
    )
    return {**with_epoch(members, number, epoch), "currentEpoch": number}


def bind_keyring(
    keyring: object, keys: ContentKeys, *, scope: str, adder: Adder
) -> dict[str, Json]:
    """The keyring with a binding for each key epoch that has none and whose key is at hand.

    This takes in a keyring that another implementation made or rotated, once it was opened with
    `trust_unbound` and found to be the right one.

    Raises:
        KeyringMovedError: The keys are those of another key epoch.
        KeyringRefusedError: The keyring is malformed.
    """
    members = read_members(keyring)
    _check_same_epoch(members, keys)
    for number in keys.key_ids:
        epoch = read_epoch(members, number)
        if read_binding(epoch) is None:
            binding = make_binding(keys.key(number), scope=scope, epoch=number, adder=adder)
            members = with_epoch(members, number, {**epoch, "x": with_binding(epoch, binding)})
    return members


def _check_same_epoch(members: dict[str, Any], keys: ContentKeys) -> None:
    if members["currentEpoch"] != keys.current_epoch:
        raise KeyringMovedError(epoch=members["currentEpoch"], keys_epoch=keys.current_epoch)


def _make_epoch(
    recipients: Sequence[str],
    *,
    epoch: int,
    scope: str,
    adder: Adder,
    now_s: int,
    randomness: Randomness,
) -> dict[str, Json]:
    if not recipients:
        raise RecipientsError("there are none")
    if len(set(recipients)) != len(recipients):
        raise RecipientsError("one appears twice")
    content_key = draw(randomness, KEY_BYTES)
    entries = [
        _entry_for(
            recipient, content_key, epoch=epoch, adder=adder, now_s=now_s, randomness=randomness
        )
        for recipient in recipients
    ]
    binding = make_binding(content_key, scope=scope, epoch=epoch, adder=adder)
    return {"wrappedKeys": entries, "createdAt": now_s, "x": {"binding": binding}}


def _entry_for(
    recipient: str,
    content_key: bytes,
    *,
    epoch: int,
    adder: Adder,
    now_s: int,
    randomness: Randomness,
) -> dict[str, Json]:
    return make_entry(
        content_key,
        recipient,
        epoch=epoch,
        adder=adder,
        added_at_s=now_s,
        ephemeral_private=draw(randomness, KEY_BYTES),
        iv=draw(randomness, IV_BYTES),
    )
