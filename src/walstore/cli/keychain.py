"""The keychain of the operating system, through the package `keyring`, for those who have it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from walstore.errors import StorageError, UsageError

_SERVICE = "walstore"


class KeychainMissingError(UsageError, ImportError):
    """The package `keyring` is not installed."""

    def __init__(self) -> None:
        super().__init__("the keychain needs keyring: pip install 'walstore[keychain]'")


class KeychainError(StorageError):
    """The keychain does not give or take a secret."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"the keychain does not have the identity {name}: {reason}; unlock it and try again,"
            " or keep the identity in a file: walstore keygen NAME"
        )


def keep_secret(name: str, secret: str) -> None:
    """Put a secret into the keychain.

    Raises:
        KeychainMissingError: There is no package for it.
        KeychainError: It does not take it.
    """
    keyring, failures = _keyring()
    try:
        keyring.set_password(_SERVICE, name, secret)
    except failures as error:
        raise KeychainError(name, str(error) or type(error).__name__) from error


def find_secret(name: str) -> str:
    """A secret out of the keychain.

    Raises:
        KeychainMissingError: There is no package for it.
        KeychainError: It is not there, or is not given.
    """
    keyring, failures = _keyring()
    try:
        secret = keyring.get_password(_SERVICE, name)
    except failures as error:
        raise KeychainError(name, str(error) or type(error).__name__) from error
    if not isinstance(secret, str):
        raise KeychainError(name, "there is nothing under that name")
    return secret


def _keyring() -> tuple[Any, type[Exception]]:
    try:
        keyring, errors = import_module("keyring"), import_module("keyring.errors")
    except ModuleNotFoundError as error:
        raise KeychainMissingError from error
    failures: type[Exception] = errors.KeyringError
    return keyring, failures
