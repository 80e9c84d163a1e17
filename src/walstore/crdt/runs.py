"""Operations as walstore holds them: one entry for a whole run of version-1 ops.

- An `Insert` is a chain: its first value follows the anchor, each further one the value before
  it, and the counters count up by one. Typing a word is one `Insert`.
- A `Remove` tombstones ids of one replica whose counters count up (`step` 1, forward delete)
  or down (`step` −1, backspace), while its own counters count up.
- A counter of 0 in an anchor means the head of the list.
- What cannot be said this way (free-form ids, unknown kinds) travels as `Verbatim`.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, ClassVar, TypeAlias

from walstore.crdt.ops import Json

# Characters are kept joined; anything else as a list of JSON values.
Values: TypeAlias = str | list[Any]


def is_character(value: object) -> bool:
    """Whether a value is text of one code point.

    A lone surrogate is none: joined with its other half it would become one character.
    """
    return isinstance(value, str) and len(value) == 1 and not "\ud800" <= value <= "\udfff"


def as_values(values: list[Any]) -> list[Values]:
    """Split values into stretches of characters, joined, and of other values."""
    return [
        "".join(group) if joined else list(group) for joined, group in groupby(values, is_character)
    ]


class Record:
    """Value semantics for the entries below, which are plain slots for the sake of speed.

    Being equal by value and open to change, they have no hash.
    """

    __slots__: tuple[str, ...] = ()
    # The fields as the constructor takes them: a compiled class has no `__slots__` to read.
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def _fields(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self.__match_args__])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._fields() == other._fields()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.__match_args__])
        return f"{type(self).__name__}({fields})"


class Insert(Record):
    """Insert `values` after an anchor; value `i` has the id `<counter + i>@<replica>`."""

    __slots__ = ("after_counter", "after_replica", "counter", "list", "replica", "values")
    __match_args__ = ("list", "replica", "counter", "after_replica", "after_counter", "values")

    def __init__(
        self,
        list: str,
        replica: str,
        counter: int,
        after_replica: str,
        after_counter: int,
        values: Values,
    ) -> None:
        self.list = list
        self.replica = replica
        self.counter = counter
        self.after_replica = after_replica
        self.after_counter = after_counter
        self.values = values


class InsertColumns:
    """Inserts of one list in the order in which they came, as one column for each field."""

    __slots__ = ("after_counters", "after_replicas", "counters", "replicas", "values")

    def __init__(
        self,
        replicas: list[str],
        counters: list[int],
        after_replicas: list[str],
        after_counters: list[int],
        values: list[Values],
    ) -> None:
        self.replicas = replicas
        self.counters = counters
        self.after_replicas = after_replicas
        self.after_counters = after_counters
        self.values = values

    @staticmethod
    def of(inserts: list[Insert]) -> InsertColumns:
        """The columns of inserts that are all of one list."""
        return InsertColumns(
            [insert.replica for insert in inserts],
            [insert.counter for insert in inserts],
            [insert.after_replica for insert in inserts],
            [insert.after_counter for insert in inserts],
            [insert.values for insert in inserts],
        )


class Remove(Record):
    """Tombstone `size` ids `<target_counter + i·step>@<target_replica>`."""

    __slots__ = ("counter", "list", "replica", "size", "step", "target_counter", "target_replica")
    __match_args__ = (
        "list",
        "replica",
        "counter",
        "target_replica",
        "target_counter",
        "size",
        "step",
    )

    def __init__(
        self,
        list: str,
        replica: str,
        counter: int,
        target_replica: str,
        target_counter: int,
        size: int = 1,
        step: int = 1,
    ) -> None:
        self.list = list
        self.replica = replica
        self.counter = counter
        self.target_replica = target_replica
        self.target_counter = target_counter
        self.size = size
        self.step = step

    @property
    def first_target(self) -> int:
        """The lowest of the counters that it names; the others follow it."""
        return self.target_counter if self.step > 0 else self.target_counter - self.size + 1


class Set(Record):
    """Write a register."""

    __slots__ = ("counter", "register", "replica", "value")
    __match_args__ = ("register", "replica", "counter", "value")

    def __init__(self, register: str, replica: str, counter: int, value: Json) -> None:
        self.register = register
        self.replica = replica
        self.counter = counter
        self.value = value


class Delete(Record):
    """Tombstone a register."""

    __slots__ = ("counter", "register", "replica")
    __match_args__ = ("register", "replica", "counter")

    def __init__(self, register: str, replica: str, counter: int) -> None:
        self.register = register
        self.replica = replica
        self.counter = counter


class Put(Record):
    """Write a key of an observed-remove map."""

    __slots__ = ("counter", "key", "map", "replica", "value")
    __match_args__ = ("map", "key", "replica", "counter", "value")

    def __init__(self, map: str, key: str, replica: str, counter: int, value: Json) -> None:
        self.map = map
        self.key = key
        self.replica = replica
        self.counter = counter
        self.value = value


class Drop(Record):
    """Remove what the dropping replica had seen of a key: the highest counter by replica."""

    __slots__ = ("counter", "key", "map", "replica", "seen")
    __match_args__ = ("map", "key", "replica", "counter", "seen")

    def __init__(
        self, map: str, key: str, replica: str, counter: int, seen: dict[str, int]
    ) -> None:
        self.map = map
        self.key = key
        self.replica = replica
        self.counter = counter
        self.seen = seen


class Verbatim(Record):
    """A version-1 op that no run can say: a free-form id or anchor, or an unknown kind."""

    __slots__ = ("op",)
    __match_args__ = ("op",)

    def __init__(self, op: dict[str, Any]) -> None:
        self.op = op


Run: TypeAlias = Insert | Remove | Set | Delete | Put | Drop | Verbatim
