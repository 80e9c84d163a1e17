"""Processes that die where they are told to: before or after a call of a port.

- A call of a port has a point right before it and, if it changes anything, one right after that is
  done: after any other call all is as it was before.
- What the dead had on disk at that moment is all that is left of them. Whatever they do from then
  on does not happen; to all others they are a connection that is lost.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from walstore.errors import TransportError

CHANGING = {"append", "write", "put_snapshot", "put_if", "delete", "put_setting", "compact", "trim"}


class Panic(BaseException):
    """A process is gone."""

    def __init__(self, party: Party) -> None:
        super().__init__(f"{party.name} is gone")
        self.party = party


class Point(NamedTuple):
    """Where somebody dies: a name, and the how manieth time that it is passed."""

    name: str
    nth: int


class Fate:
    """Counts how often each point is passed, and kills whoever passes the one that is told."""

    def __init__(self, doom: Point | None) -> None:
        self.passed: Counter[str] = Counter()
        self.has_struck = False
        self._doom = doom

    def passes(self, name: str, party: Party) -> None:
        self.passed[name] += 1
        if not self.has_struck and Point(name, self.passed[name]) == self._doom:
            self.has_struck = True
            party.die()
            raise Panic(party)


class Party:
    """A process: what it has in memory, on a stack, and the directory that it leaves behind."""

    def __init__(self, name: str, directory: Path, fate: Fate) -> None:
        self.name, self.disk = name, directory / name
        self.disk.mkdir(parents=True)
        self.is_up = self.is_dead = False
        self.stack = AsyncExitStack()
        self._fate = fate

    def die(self) -> None:
        """Leave the files as they are: what is closed later is closed in the old directory."""
        self.is_dead = True
        self.disk = shutil.copytree(self.disk, self.disk.with_name(f"{self.name} again"))

    async def bury(self) -> None:
        """Let go of everything in memory."""
        with suppress(Panic):
            await self.stack.aclose()
        self.is_up = self.is_dead = False

    @contextmanager
    def step(self, port: str, call: str) -> Iterator[None]:
        """A call that this process makes."""
        if self.is_dead:
            raise Panic(self)
        self._fate.passes(f"{port}: before {call}", self)
        try:
            yield
        except Panic as panic:
            if panic.party is self:
                raise
            raise TransportError(str(panic), retryable=True) from None
        if call.split()[0] in CHANGING:
            self._fate.passes(f"{port}: after {call}", self)


class Port:
    """A real port, as one process has it; what calls have done is noted, whoever dies then."""

    def __init__(
        self,
        party: Party,
        name: str,
        real: Callable[[], object],
        note: Callable[[str, Sequence[Any], Any], None] = lambda *_: None,
    ) -> None:
        self._party, self._name, self._real, self._note = party, name, real, note

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real(), name)

        async def call(*args: Any, **named: Any) -> Any:
            with self._party.step(self._name, _named(name, args)):
                answer = await real(*args, **named)
                self._note(name, args, answer)
            return answer

        async def iterate(*args: Any) -> AsyncIterator[Any]:
            with self._party.step(self._name, _named(name, args)):
                found = [each async for each in real(*args)]
            for each in found:
                yield each

        if inspect.isasyncgenfunction(real):
            return iterate
        return call if inspect.iscoroutinefunction(real) else real


def _named(call: str, args: Sequence[Any]) -> str:
    """What a call does, in words that are the same for every document, epoch and position."""
    match call, args:
        case "compact", [[removal]]:
            return f"compact {'elements' if removal.below_ts else 'snapshots'}"
        case (("get" | "put_if" | "delete"), [str(key), *_]):
            kind = re.split("[-.]", key.rpartition("/")[2])[0]
            return f"{call} {'base' if kind == 'snapshot' else kind}"
    return call
