"""A destination in the memory of this process: for tests, and for trying things out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from time import time_ns

from walstore.archive.destination import ConflictError, Found, Listed, Stored
from walstore.archive.keys import check_key


class MemoryDestination:
    """Objects in a dictionary."""

    def __init__(self, name: str | None = None, *, now_ms: Callable[[], int] | None = None) -> None:
        """Make an empty one.

        Args:
            name: What messages and metrics call it, if not `memory:`.
            now_ms: The time in milliseconds since 1970; the system's if left out.
        """
        self._name = "memory:" if name is None else name
        self._now_ms = _system_ms if now_ms is None else now_ms
        self._objects: dict[str, tuple[bytes, int]] = {}

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        return self._name

    def uri(self, key: str) -> str:
        """Where an object is, or would be."""
        check_key(key)
        return f"memory:///{key}"

    async def put(self, key: str, body: bytes) -> Stored:
        """Store an object; see `Destination.put`."""
        uri = self.uri(key)
        self._objects[key] = bytes(body), self._now_ms()
        return Stored(uri, len(body))

    async def get(self, key: str) -> Found | None:
        """An object; see `Destination.get`."""
        check_key(key)
        stored = self._objects.get(key)
        return None if stored is None else Found(stored[0], _revision(stored[0]))

    async def put_if(self, key: str, body: bytes, revision: str | None) -> str:
        """Replace a revision; see `Destination.put_if`."""
        there = await self.get(key)
        if revision != (None if there is None else there.revision):
            raise ConflictError(self._name, key)
        await self.put(key, body)
        return _revision(body)

    async def list(self, prefix: str) -> AsyncIterator[Listed]:
        """The objects below a prefix; see `Destination.list`."""
        for key in sorted(self._objects, key=str.encode):
            if key.startswith(prefix) and key in self._objects:
                body, modified_ms = self._objects[key]
                yield Listed(key, len(body), modified_ms)

    async def delete(self, key: str) -> None:
        """Remove an object; see `Destination.delete`."""
        check_key(key)
        self._objects.pop(key, None)


def _revision(body: bytes) -> str:
    return sha256(body).hexdigest()


def _system_ms() -> int:
    return time_ns() // 1_000_000
