"""What waits for a slow subscriber, and how much of it.

- Up to a buffer, change by change; then one change by path, and past `PATHS_MAX` paths none.
- Changes of different paths may then come in another order; those of one path never do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

from walstore.errors import UsageError
from walstore.store.change import (
    Assigned,
    Change,
    Deleted,
    Elements,
    Splices,
    coalesce,
    succeed,
)
from walstore.store.gathered import Gathered, Place, place_of, replaces_keys

T = TypeVar("T")

# A list as it is now, and the edits of it that are in there and that nobody was told of yet.
ReadList: TypeAlias = Callable[[str], tuple[Elements, Sequence[Change]]]

# Changes that wait one by one for whoever is slow.
BUFFER_DEFAULT = 1_024
# Paths that may wait for whoever is slow: keys can come and go without end.
PATHS_MAX = 65_536


class SlowConsumerError(UsageError):
    """A consumer has fallen too far behind, and what waited for it was let go.

    Attributes:
        waiting: How many changes, or paths, waited.
    """

    def __init__(self, waiting: int) -> None:
        super().__init__(f"too slow: {waiting} changes were waiting; read the document anew")
        self.waiting = waiting


class Waiting(Protocol[T]):
    """What waits for a slow subscriber."""

    def __len__(self) -> int: ...

    def push(self, subject: T) -> None:
        """Take one more; raises `SlowConsumerError` if that is one too many."""
        ...

    def pop(self) -> T:
        """Hand out the next one."""
        ...

    def clear(self) -> None:
        """Let everything go."""
        ...


class ChangeQueue:
    """Changes that wait: one by one up to a buffer, then one by path until all were read."""

    __slots__ = (
        "_buffer",
        "_by_path",
        "_is_strict",
        "_one_by_one",
        "_read_list",
        "_unread",
        "_untold",
    )

    def __init__(self, read_list: ReadList, *, buffer: int, is_strict: bool) -> None:
        """Hold nothing; a strict queue holds no more than its buffer."""
        self._read_list = read_list
        self._buffer = buffer
        self._is_strict = is_strict
        self._one_by_one: deque[Change] = deque()
        self._by_path: Gathered[Change] = Gathered()
        # Lists whose delta became too large: their value is read when they are handed out.
        self._unread: set[Place] = set()
        # Changes, by id, that a value had when it was read, and that are still to come.
        self._untold: dict[int, Change] = {}

    def __len__(self) -> int:
        return len(self._one_by_one) + len(self._by_path)

    def push(self, change: Change) -> None:
        """Take one more.

        Raises:
            SlowConsumerError: Too many wait.
        """
        if self._untold.pop(id(change), None) is not None:
            return
        if not self._by_path and len(self._one_by_one) < self._buffer:
            self._one_by_one.append(change)
            return
        if self._is_strict:
            raise SlowConsumerError(len(self))
        while self._one_by_one:
            self._merge(self._one_by_one.popleft())
        self._merge(change)

    def pop(self) -> Change:
        """Hand out the change that waits longest."""
        if self._one_by_one:
            return self._one_by_one.popleft()
        place, change = self._by_path.pop_first()
        if place not in self._unread:
            return change
        self._unread.remove(place)
        value, untold = self._read_list(change.name)
        self._untold |= {id(each): each for each in untold}
        kind: Literal["text", "list"] = "text" if isinstance(value, str) else "list"
        return change._replace(kind=kind, delta=Assigned(value))

    def clear(self) -> None:
        """Let everything go."""
        self._one_by_one.clear()
        self._by_path.clear()
        self._unread.clear()
        self._untold.clear()

    def _merge(self, change: Change) -> None:
        place = place_of(change)
        waiting = self._by_path.get(place)
        if replaces_keys(waiting, change):
            self._by_path.drop_keys(change.name)
        if waiting is None:
            if len(self._by_path) >= max(PATHS_MAX, self._buffer):
                raise SlowConsumerError(len(self))
            self._by_path.put(place, change)
            return
        is_splices = isinstance(change.delta, Splices)
        merged = None if place in self._unread and is_splices else coalesce(waiting, change)
        if merged is None:
            self._unread.add(place)
            self._by_path.put(place, succeed(waiting, change, Deleted()))
        else:
            self._unread.discard(place)
            self._by_path.put(place, merged)
