"""What an archive needs of the place that it is written to.

- An object is there whole or not at all, also for other processes and after a crash.
- `put_if` is the only way to replace the manifest: of several that try at once, one succeeds.
- A failed call may have been carried out all the same; whoever tries again looks first.

The suite in `walstore.testing` checks all of it, for each implementation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from walstore.errors import StorageError


class DestinationError(StorageError):
    """A destination cannot be read or written now.

    Attributes:
        destination: Its name.
        reason: What it said.
    """

    def __init__(self, destination: str, reason: str) -> None:
        super().__init__(f"{destination}: {reason}")
        self.destination = destination
        self.reason = reason


class ConflictError(DestinationError):
    """An object is not, or no longer, what a caller has seen."""

    def __init__(self, destination: str, key: str) -> None:
        super().__init__(destination, f"{key} was written by somebody else")
        self.key = key


class Stored(NamedTuple):
    """An object that is durable: where it is, and how large."""

    uri: str
    size_bytes: int


class Found(NamedTuple):
    """An object that was read, and the revision that a replacement has to name."""

    body: bytes
    revision: str


class Listed(NamedTuple):
    """An object that is there."""

    key: str
    size_bytes: int
    modified_ms: int


class Destination(Protocol):
    """A place for objects under keys such as `notes/epoch=1/snapshot-42.jsonl`."""

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        ...

    def uri(self, key: str) -> str:
        """Where an object is, or would be."""
        ...

    async def put(self, key: str, body: bytes) -> Stored:
        """Store an object durably, in place of one that is there.

        Raises:
            DestinationError: It is not known to be stored.
        """
        ...

    async def get(self, key: str) -> Found | None:
        """An object; None if there definitely is none.

        Raises:
            DestinationError: It cannot be read now.
        """
        ...

    async def put_if(self, key: str, body: bytes, revision: str | None) -> str:
        """Replace a revision durably, and return the new one; None if there must not be any.

        Raises:
            ConflictError: Another revision is there, or none. Nothing has changed.
            DestinationError: It is not known to be stored.
        """
        ...

    def list(self, prefix: str) -> AsyncIterator[Listed]:
        """The objects whose keys begin with a prefix, by key.

        Raises:
            DestinationError: They cannot be listed now.
        """
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error.

        Raises:
            DestinationError: It is not known to be gone.
        """
        ...
