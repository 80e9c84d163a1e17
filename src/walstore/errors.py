"""Every exception that walstore raises on purpose.

- The four branches say whose fault it is: the caller's, a peer's, the disk's, the network's.
- A leaf carries what went wrong as fields and builds its own message.
- Input that raises a `PeerError` has changed nothing.
"""

from __future__ import annotations


class WalStoreError(Exception):
    """The root of all of walstore's exceptions."""


class UsageError(WalStoreError):
    """The caller asked for something that cannot be done; nothing has changed."""


class PeerError(WalStoreError):
    """Remote input is not what the format allows: drop it, keep the document."""


class StorageError(WalStoreError):
    """The disk, or a file on it, failed."""


class TransportError(WalStoreError):
    """The network failed.

    Attributes:
        retryable: Whether the same call may succeed later.
    """

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class NotJsonError(UsageError):
    """A value handed to walstore has no canonical JSON text.

    Attributes:
        reason: What is wrong with it, in a few words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a JSON value: {reason}")
        self.reason = reason


class NameRefusedError(UsageError):
    """A register, list or map name that the format forbids to write.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the name {name!r} cannot be used: peers would drop it")
        self.name = name


class MalformedError(PeerError):
    """Received text, an op, a batch or a state is malformed; nothing of it was applied.

    Attributes:
        what: What was being read, e.g. `"op"`.
        reason: What is wrong with it.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"malformed {what}: {reason}")
        self.what = what
        self.reason = reason
