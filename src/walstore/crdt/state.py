"""Placeholder until the packed state lands."""

from __future__ import annotations

from typing import Any

from walstore.crdt.ops import Json
from walstore.crdt.runs import Record


class Register(Record):
    """A register's newest write."""

    __slots__ = ("counter", "deleted", "replica", "value")

    def __init__(self, counter: int, replica: str, value: Json, deleted: bool) -> None:
        self.counter = counter
        self.replica = replica
        self.value = value
        self.deleted = deleted


class MapEntry(Record):
    """A key's puts and what was dropped of it."""

    __slots__ = ("puts", "seen")

    def __init__(self, puts: dict[str, tuple[int, Any]], seen: dict[str, int]) -> None:
        self.puts = puts
        self.seen = seen
