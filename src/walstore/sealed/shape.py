"""The shape of a keyring, which is remote input until a reader has checked it.

    {"v": 1, "currentEpoch": 2, "epochs": {"1": {"wrappedKeys": [entry, …], "createdAt": seconds,
                                                 "x": {"binding": …}}, "2": …}}

- Members that nobody here knows are carried along.
- Nothing is changed in place: a change makes a new keyring that shares the rest.
"""

from __future__ import annotations

from typing import Any

from walstore.canon import Json
from walstore.sealed.keys import EPOCH_MAX, is_epoch
from walstore.sealed.outcomes import KeyringRefusedError

VERSION = 1


def read_members(keyring: object) -> dict[str, Any]:
    """The members of a keyring of the right version and shape.

    Raises:
        KeyringRefusedError: It has another.
    """
    if not isinstance(keyring, dict) or keyring.get("v") != VERSION:
        raise KeyringRefusedError(f"it is not a keyring of version {VERSION}")
    if not is_epoch(keyring.get("currentEpoch")) or not isinstance(keyring.get("epochs"), dict):
        raise KeyringRefusedError("it is malformed")
    return keyring


def numbered_epochs(members: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The epochs whose name is a key epoch in plain decimal and whose shape is right."""
    return [
        (int(name), epoch)
        for name, epoch in members["epochs"].items()
        if _is_epoch_name(name) and _is_epoch_shape(epoch)
    ]


def read_epoch(members: dict[str, Any], number: int) -> dict[str, Any]:
    """One key epoch.

    Raises:
        KeyringRefusedError: It is missing or malformed.
    """
    epoch = members["epochs"].get(str(number))
    if not isinstance(epoch, dict) or not _is_epoch_shape(epoch):
        raise KeyringRefusedError(f"key epoch {number} is missing or malformed")
    return epoch


def with_epoch(members: dict[str, Any], number: int, epoch: dict[str, Any]) -> dict[str, Any]:
    """The keyring with one key epoch put in."""
    return {**members, "epochs": {**members["epochs"], str(number): epoch}}


def addressed_to(recipient: str, epoch: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries for one recipient."""
    return [
        entry
        for entry in epoch["wrappedKeys"]
        if isinstance(entry, dict) and entry.get("subKem") == recipient
    ]


def read_binding(epoch: dict[str, Any]) -> object:
    """The binding of a key epoch, unchecked; None if there is none."""
    extension = epoch.get("x")
    return extension.get("binding") if isinstance(extension, dict) else None


def with_binding(epoch: dict[str, Any], binding: dict[str, Json]) -> dict[str, Any]:
    """The extension member of a key epoch, with a binding put in."""
    extension = epoch.get("x")
    return {**(extension if isinstance(extension, dict) else {}), "binding": binding}


def _is_epoch_name(name: str) -> bool:
    # The length is looked at first, because turning a huge decimal into a number is refused.
    return (
        len(name) <= len(str(EPOCH_MAX))
        and name.isdecimal()
        and is_epoch(int(name))
        and str(int(name)) == name
    )


def _is_epoch_shape(epoch: object) -> bool:
    return isinstance(epoch, dict) and isinstance(epoch.get("wrappedKeys"), list)
