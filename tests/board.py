"""A document with a hub, for tests: edits are folded, and delivered, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from walstore.crdt import Change as Folded
from walstore.crdt import WalCrdt, Writer
from walstore.document.changed import Changed
from walstore.store.change import Change, CrdtState, changes_of
from walstore.store.selectors import Tracker
from walstore.store.subscriptions import Hub


class Board:
    """What a store has of its document."""

    def __init__(self) -> None:
        self._writer = Writer(WalCrdt(), "ada")
        self.crdt = WalCrdt()
        self.version = 0
        self.state = CrdtState(lambda: self.crdt)
        self.tasks: set[asyncio.Task[None]] = set()
        self.unhandled: list[BaseException] = []
        self.hub = Hub(
            self.state,
            self._spawn,
            exception_handler=lambda context: self.unhandled.append(context["exception"]),
        )
        self.tracker = Tracker(self.hub)

    def edit(self, *edits: Callable[[Writer], object]) -> list[Change]:
        """Make edits as one fold, and deliver what changed."""
        for edit in edits:
            edit(self._writer)
        folded: list[Folded] = []
        self.crdt.fold_runs(self._writer.take(), folded)
        self.version += len(folded)
        changed = Changed("local", "ada", None, folded)
        changes = changes_of(changed, version=self.version, read=self.state)
        self.hub.deliver(changes)
        return changes

    def set(self, name: str, value: Any) -> list[Change]:
        """Write a register."""
        return self.edit(lambda writer: writer.set(name, value))

    def put(self, name: str, key: str, value: Any) -> list[Change]:
        """Write a key of a map."""
        return self.edit(lambda writer: writer.put(name, key, value))

    def type(self, name: str, position: int, text: str) -> list[Change]:
        """Insert into a text."""
        return self.edit(lambda writer: writer.insert_text(name, position, text))

    def remove(self, name: str, position: int, count: int = 1) -> list[Change]:
        """Remove from a text or a list."""
        return self.edit(lambda writer: writer.remove(name, position, count))

    def drop(self, name: str, key: str) -> list[Change]:
        """Remove a key of a map."""
        return self.edit(lambda writer: writer.drop(name, key))

    def register(self, name: str) -> Any:
        """The value of a register, None if it has none."""
        return self.crdt.get_register(name)

    async def settle(self) -> None:
        """Let all async callbacks run to their end."""
        while self.tasks:
            await asyncio.gather(*self.tasks)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> object:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


def paths(changes: list[Change]) -> list[str]:
    """Where changes were made."""
    return [change.path for change in changes]
