"""Observed-remove maps: a write that the remover had not seen wins over the remove.

- A `put` is known by its clock. Of one replica only the newest put of a key matters, since that
  replica had seen its own earlier ones.
- A `drop` names what its replica had seen of the key: the highest counter by replica. It removes
  those puts and everything before them, whether they have arrived yet or not.
- A key is live while any put of it is; among several the newest clock gives the value.
- Counters and clocks only grow, so folding commutes and may be repeated.
"""

from __future__ import annotations

from typing import Any

from walstore.crdt.ops import Json, fresh
from walstore.crdt.state import MapEntry


class ObservedRemoveMap:
    """One map, by key."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, MapEntry] = {}

    def put(self, key: str, counter: int, replica: str, value: Json) -> bool:
        """Fold a write; whether it is new and not dropped."""
        entry = self._entry(key)
        known = entry.puts.get(replica)
        if counter <= entry.seen.get(replica, 0) or (known is not None and counter <= known[0]):
            return False
        entry.puts[replica] = (counter, value)
        return True

    def drop(self, key: str, seen: dict[str, int]) -> bool:
        """Fold a remove; whether it took anything away."""
        entry = self._entry(key)
        dropped = False
        for replica, counter in seen.items():
            if counter > entry.seen.get(replica, 0):
                entry.seen[replica] = counter
                put = entry.puts.get(replica)
                if put is not None and put[0] <= counter:
                    del entry.puts[replica]
                    dropped = True
        return dropped

    def join(self, other: ObservedRemoveMap) -> None:
        """Take in every write and remove of another map."""
        for key, entry in other.entries.items():
            self.drop(key, entry.seen)
            for replica, (counter, value) in entry.puts.items():
                self.put(key, counter, replica, fresh(value))

    def has_replica(self, replica: str) -> bool:
        """Whether any write is of a replica, dropped or not."""
        return any(
            replica in entry.puts or replica in entry.seen for entry in self.entries.values()
        )

    def seen(self, key: str) -> dict[str, int]:
        """What a drop of the key has to name: the highest counter of its puts by replica."""
        entry = self.entries.get(key)
        return {} if entry is None else {replica: put[0] for replica, put in entry.puts.items()}

    def items(self) -> dict[str, Any]:
        """The live keys in code-point order with their values, which are the map's own."""
        live = sorted((key, entry) for key, entry in self.entries.items() if entry.puts)
        return {key: winner(entry) for key, entry in live}

    def value(self, key: str, default: Any) -> Any:
        """The value of a key, which is the map's own, or a default."""
        entry = self.entries.get(key)
        return winner(entry) if entry is not None and entry.puts else default

    def _entry(self, key: str) -> MapEntry:
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = MapEntry({}, {})
        return entry


def winner(entry: MapEntry) -> Any:
    """The value of a live key."""
    counter_and_replica = max((put[0], replica) for replica, put in entry.puts.items())
    return entry.puts[counter_and_replica[1]][1]
