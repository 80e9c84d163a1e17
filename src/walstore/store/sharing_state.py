"""What sharing keeps on this device: the newest roster and keyring, and what they must not undo.

- Everything stands in one slot, so that it changes in one step.
- What is kept is public: keys are wrapped, and the identity alone opens them.
- What is read back is checked again where it counts; a slot of another shape is an error, because
  to start afresh would forget what a relay must not roll back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from walstore.canon import Json
from walstore.errors import StorageError

SLOT = "sharing"

_VERSION = 1


class Slots(Protocol):
    """JSON values by name, on disk when a call returns; a `LocalFile` has them."""

    def get(self, name: str, default: Json = None) -> Json:
        """The value of a slot."""
        ...

    def put(self, name: str, value: Json) -> None:
        """Replace the value of a slot."""
        ...


class MemorySlots:
    """Slots that are gone with the process."""

    def __init__(self) -> None:
        self._values: dict[str, Json] = {}

    def get(self, name: str, default: Json = None) -> Json:
        """The value of a slot."""
        return self._values.get(name, default)

    def put(self, name: str, value: Json) -> None:
        """Replace the value of a slot."""
        self._values[name] = value


class SharingStateError(StorageError):
    """What was kept about sharing is not what was written."""

    def __init__(self) -> None:
        super().__init__("what was kept about sharing is damaged")


@dataclass(frozen=True, slots=True)
class SharingState:
    """What is kept.

    Attributes:
        owner: The key that was pinned.
        roster: The text of the newest roster; None if none was seen.
        keyring: The newest keyring; None if none was seen.
        epoch_min: The highest current key epoch seen.
        key_ids: The key ids seen by key epoch.
        granted: The roles that the relay has acknowledged, by key.
        is_snapshot_due: Whether a snapshot has to be sealed anew.
        strangers: Whose elements were passed over by the state on file, as far as there is room.
        followed: The version of the roster that the document was read with; 0 if it was not yet.
        is_handed_out: Whether a relay had the keyring: until then nobody was sent anything that is
            sealed with its keys.
        former: Keyrings that were given up for that of another device before they were handed out:
            what is here may be sealed with their keys.
    """

    owner: str
    roster: str | None = None
    keyring: dict[str, Any] | None = None
    epoch_min: int = 0
    key_ids: Mapping[int, str] = field(default_factory=dict)
    granted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_snapshot_due: bool = False
    strangers: tuple[str, ...] = ()
    followed: int = 0
    is_handed_out: bool = False
    former: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The value of the slot."""
        return {
            "v": _VERSION,
            "owner": self.owner,
            "roster": self.roster,
            "keyring": self.keyring,
            "epoch_min": self.epoch_min,
            "key_ids": {str(epoch): name for epoch, name in self.key_ids.items()},
            "granted": {key: list(roles) for key, roles in self.granted.items()},
            "is_snapshot_due": self.is_snapshot_due,
            "strangers": list(self.strangers),
            "followed": self.followed,
            "is_handed_out": self.is_handed_out,
            "former": list(self.former),
        }

    def with_grant(self, key: str, roles: tuple[str, ...]) -> SharingState:
        """The same after the relay has acknowledged the roles of a key."""
        return replace(self, granted={**self.granted, key: roles})

    def giving_up_keyring(self) -> SharingState:
        """The same before there was a keyring; what the one there is has sealed can be opened."""
        given_up = () if self.keyring is None else (self.keyring,)
        return replace(self, keyring=None, epoch_min=0, key_ids={}, former=self.former + given_up)

    def without_grant(self, key: str) -> SharingState:
        """The same with the roles of a key to be told to the relay once more."""
        return replace(
            self, granted={each: self.granted[each] for each in self.granted.keys() - {key}}
        )


def load_state(slots: Slots) -> SharingState | None:
    """What was kept; None if nothing was.

    Raises:
        SharingStateError: It is not what was written.
    """
    value = slots.get(SLOT)
    if value is None:
        return None
    try:
        return _read(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SharingStateError from error


def _read(value: Any) -> SharingState:
    if value["v"] != _VERSION:
        raise ValueError("a state of another version")
    return SharingState(
        owner=_of(str, value["owner"]),
        roster=None if value["roster"] is None else _of(str, value["roster"]),
        keyring=None if value["keyring"] is None else _of(dict, value["keyring"]),
        epoch_min=_of(int, value["epoch_min"]),
        key_ids={int(epoch): _of(str, name) for epoch, name in value["key_ids"].items()},
        granted={key: tuple(roles) for key, roles in value["granted"].items()},
        is_snapshot_due=_of(bool, value["is_snapshot_due"]),
        strangers=tuple(_of(str, key) for key in value.get("strangers", [])),
        followed=_of(int, value.get("followed", 0)),
        is_handed_out=_of(bool, value.get("is_handed_out", True)),
        former=tuple(_of(dict, each) for each in value.get("former", [])),
    )


def _of(kind: Any, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"not a {kind.__name__}")
    return value
