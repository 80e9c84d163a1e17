"""Last-writer-wins registers.

- A write or a delete takes effect only if its clock is newer than the stored one.
- A deleted register keeps its clock, so that an older write cannot bring it back.
"""

from __future__ import annotations

from walstore.crdt.ops import Json, fresh
from walstore.crdt.state import Register


class Registers:
    """The registers of one document, by name."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, Register] = {}

    def write(
        self, name: str, counter: int, replica: str, value: Json, *, deleted: bool = False
    ) -> bool:
        """Fold a write, or with `deleted` a delete; whether it is the newest."""
        entry = self.entries.get(name)
        if entry is None:
            self.entries[name] = Register(counter, replica, value, deleted)
            return True
        if (counter, replica) <= (entry.counter, entry.replica):
            return False
        entry.counter = counter
        entry.replica = replica
        entry.value = value
        entry.deleted = deleted
        return True

    def join(self, other: Registers) -> None:
        """Take in every entry of other registers."""
        for name, entry in other.entries.items():
            value = fresh(entry.value)
            self.write(name, entry.counter, entry.replica, value, deleted=entry.deleted)

    def live(self, name: str) -> Register | None:
        """The entry of a register that has a value, or None."""
        entry = self.entries.get(name)
        return None if entry is None or entry.deleted else entry
