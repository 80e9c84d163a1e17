"""A destination that fails where it is told to, around a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from walstore.archive.destination import (
    ConflictError,
    Destination,
    DestinationError,
    Found,
    Listed,
    Stored,
)

When = Literal["before", "after"]
Fault = Callable[[], BaseException]


class Killed(BaseException):
    """The process is gone: whatever it does from now on does not happen."""


class Faults:
    """Counts the steps of all places that share it, and breaks one of them.

    Attributes:
        steps: The steps so far, by name.
    """

    def __init__(self, at: int | None = None, when: When = "before", fault: Fault = Killed) -> None:
        self.steps: list[str] = []
        self._at, self._when, self._fault = at, when, fault
        self._is_killed = False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        if self._is_killed:
            raise Killed
        number = len(self.steps)
        self.steps.append(name)
        if number == self._at and self._when == "before":
            raise self._broken()
        yield
        if number == self._at and self._when == "after":
            raise self._broken()

    def _broken(self) -> BaseException:
        error = self._fault()
        self._is_killed = isinstance(error, Killed)
        return error


def timed_out() -> BaseException:
    """An answer that does not come, whether or not the step was carried out."""
    return DestinationError("faulty", "timed out")


def conflicting() -> BaseException:
    """A refusal, whether or not the step was carried out: a retry inside met its own write."""
    return ConflictError("faulty", "manifest.json")


class FaultyDestination:
    """A real destination, with faults in front of it and behind it."""

    def __init__(self, inner: Destination, faults: Faults) -> None:
        self._inner, self._faults = inner, faults

    @property
    def name(self) -> str:
        return self._inner.name

    def uri(self, key: str) -> str:
        return self._inner.uri(key)

    async def put(self, key: str, body: bytes) -> Stored:
        with self._faults.step(f"put {key}"):
            return await self._inner.put(key, body)

    async def get(self, key: str) -> Found | None:
        with self._faults.step(f"get {key}"):
            return await self._inner.get(key)

    async def put_if(self, key: str, body: bytes, revision: str | None) -> str:
        with self._faults.step(f"put_if {key}"):
            return await self._inner.put_if(key, body, revision)

    async def list(self, prefix: str) -> AsyncIterator[Listed]:
        with self._faults.step(f"list {prefix}"):
            listed = [each async for each in self._inner.list(prefix)]
        for each in listed:
            yield each

    async def delete(self, key: str) -> None:
        with self._faults.step(f"delete {key}"):
            await self._inner.delete(key)
