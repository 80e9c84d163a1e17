"""How opening sealed data or a keyring can fail.

- *Unreadable* means that the key is not at hand: keep the element and try again when a keyring
  arrives. *Rejected* means that no key will ever open it to something usable.
- A rejection never says why, so that whoever feeds us altered data learns nothing from the answer.
"""

from __future__ import annotations

from walstore.errors import PeerError, UsageError


class UnreadableError(PeerError):
    """There is no content key for the key epoch that the data was sealed in.

    Attributes:
        epoch: The key epoch.
    """

    def __init__(self, epoch: int) -> None:
        super().__init__(f"no content key for key epoch {epoch}: unreadable until one arrives")
        self.epoch = epoch


class SealRejectedError(PeerError):
    """The data is not sealed, was altered, or does not hold a JSON object."""

    def __init__(self) -> None:
        super().__init__("the sealed data is rejected")


class KeyringRefusedError(PeerError):
    """A keyring is malformed, or gives this reader no trustworthy key for its current epoch.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the keyring is refused: {reason}")
        self.reason = reason


class KeyringRollbackError(KeyringRefusedError):
    """A keyring is older than one that was seen before.

    Attributes:
        epoch: Its current key epoch.
        epoch_min: The lowest one that is acceptable.
    """

    def __init__(self, *, epoch: int, epoch_min: int) -> None:
        super().__init__(f"its current key epoch is {epoch}, but {epoch_min} was seen before")
        self.epoch = epoch
        self.epoch_min = epoch_min


class SealBudgetError(UsageError):
    """A content key has sealed as often as it safely can; rotate the keyring.

    Attributes:
        epoch: The key epoch of the exhausted key.
    """

    def __init__(self, epoch: int) -> None:
        super().__init__(f"the content key of key epoch {epoch} is used up; rotate the keyring")
        self.epoch = epoch
