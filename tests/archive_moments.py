"""A destination whose every step can be interrupted: something happens before it, or after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count

from walstore.archive.destination import Destination, Found, Listed, Stored

Happening = Callable[[], Awaitable[None]]


class Moments:
    """Counts the moments before and after each step, and makes things happen in some of them.

    Attributes:
        names: The steps so far, each of them twice.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._happenings: Mapping[int, Happening] = {}
        self._numbers: Iterator[int] = count()
        self._is_counting = False

    def begin(self, happenings: Mapping[int, Happening]) -> None:
        """Count from here on."""
        self._happenings, self._is_counting = happenings, True

    def end(self) -> None:
        """Let everything else pass."""
        self._is_counting = False

    async def passed(self, name: str) -> None:
        """Let a moment pass, with what happens in it."""
        if not self._is_counting:
            return
        self.names.append(name)
        happening = self._happenings.get(next(self._numbers))
        if happening is not None:
            await happening()


class MomentaryDestination:
    """A real destination, with a moment before and after each of its steps."""

    def __init__(self, inner: Destination, moments: Moments) -> None:
        self._inner, self._moments = inner, moments

    @property
    def name(self) -> str:
        return self._inner.name

    def uri(self, key: str) -> str:
        return self._inner.uri(key)

    async def put(self, key: str, body: bytes) -> Stored:
        async with self._step(f"put {key}"):
            return await self._inner.put(key, body)

    async def get(self, key: str) -> Found | None:
        async with self._step(f"get {key}"):
            return await self._inner.get(key)

    async def put_if(self, key: str, body: bytes, revision: str | None) -> str:
        async with self._step(f"put_if {key}"):
            return await self._inner.put_if(key, body, revision)

    async def list(self, prefix: str) -> AsyncIterator[Listed]:
        async with self._step(f"list {prefix}"):
            listed = [each async for each in self._inner.list(prefix)]
        for each in listed:
            yield each

    async def delete(self, key: str) -> None:
        async with self._step(f"delete {key}"):
            await self._inner.delete(key)

    @asynccontextmanager
    async def _step(self, name: str) -> AsyncIterator[None]:
        await self._moments.passed(name)
        yield
        await self._moments.passed(name)
