"""Sealed documents: keyrings, content keys by key epoch, and the encryptors that use them."""

from walstore.sealed.aes_gcm import StarfishExtraMissingError
from walstore.sealed.budget import SEALS_BEFORE_ROTATION, SEALS_MAX, SealBudget
from walstore.sealed.delegated import DelegatedEncryptor
from walstore.sealed.encryptor import Encryptor, KeyedEncryptor, PlainEncryptor, SealContext
from walstore.sealed.entry import Adder, Verifier, make_entry
from walstore.sealed.keyring import open_keyring
from walstore.sealed.keys import ContentKeys, key_id
from walstore.sealed.membership import (
    KeyringMovedError,
    RecipientsError,
    add_recipient,
    bind_keyring,
    create_keyring,
    rotate_keyring,
)
from walstore.sealed.native import NativeEncryptor
from walstore.sealed.outcomes import (
    KeyringRefusedError,
    KeyringRollbackError,
    SealBudgetError,
    SealRejectedError,
    UnreadableError,
)
from walstore.sealed.randomness import Randomness, RandomnessError
from walstore.sealed.starfish import StarfishEncryptor
from walstore.sealed.wrap import Recipient, RecipientKeyError

__all__ = [
    "SEALS_BEFORE_ROTATION",
    "SEALS_MAX",
    "Adder",
    "ContentKeys",
    "DelegatedEncryptor",
    "Encryptor",
    "KeyedEncryptor",
    "KeyringMovedError",
    "KeyringRefusedError",
    "KeyringRollbackError",
    "NativeEncryptor",
    "PlainEncryptor",
    "Randomness",
    "RandomnessError",
    "Recipient",
    "RecipientKeyError",
    "RecipientsError",
    "SealBudget",
    "SealBudgetError",
    "SealContext",
    "SealRejectedError",
    "StarfishEncryptor",
    "StarfishExtraMissingError",
    "UnreadableError",
    "Verifier",
    "add_recipient",
    "bind_keyring",
    "create_keyring",
    "key_id",
    "make_entry",
    "open_keyring",
    "rotate_keyring",
]
