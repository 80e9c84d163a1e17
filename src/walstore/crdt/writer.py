"""Local edits by position: folded at once, and recorded as runs to send.

- Every edit is stamped with clocks above everything that the document has seen.
- Positions are clamped as the format says: at or below 0 is the head, past the end is the end.
- Edits that follow on from one another are recorded as one run, until they are taken.
- Names and values that peers would drop or misread are refused before anything changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from walstore.canon import FORBIDDEN_NAMES, check_value
from walstore.crdt.changes import Change
from walstore.crdt.clock import COUNTER_MAX, Clock, ClockExhaustedError
from walstore.crdt.convert import RUN_SIZE_MAX, joined, lengthened, to_run
from walstore.crdt.crdt import WalCrdt
from walstore.crdt.elements import Ids
from walstore.crdt.ids import element_id
from walstore.crdt.nodes import NodeSequence
from walstore.crdt.ops import Json, fresh
from walstore.crdt.runs import Delete, Drop, Insert, Put, Remove, Run, Set, Values, as_values
from walstore.crdt.sequence import RunSequence
from walstore.errors import NameRefusedError, NotJsonError

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Writer:
    """One replica's hand on a document."""

    __slots__ = ("_crdt", "_runs", "replica")

    def __init__(self, crdt: WalCrdt, replica: str) -> None:
        """Edit `crdt` as a replica that nobody else writes as."""
        self.replica = replica
        self._crdt = crdt
        self._runs: list[Run] = []

    def insert_text(self, list: str, index: int, text: str) -> None:
        """Insert characters before a position of a text.

        Raises:
            NameRefusedError: The name is one that peers would drop.
            NotJsonError: `text` is not text.
            ClockExhaustedError: No clock is left.
        """
        if type(text) is not str:
            raise NotJsonError(f"text cannot be a {type(text).__name__}")
        if text.isascii() or _SURROGATE.search(text) is None:
            self._insert(list, index, text)
        else:
            self.insert(list, index, text)

    def insert(self, list: str, index: int, values: Iterable[object]) -> None:
        """Insert values before a position of a list.

        Raises:
            NameRefusedError: The name is one that peers would drop.
            NotJsonError: A value is not JSON.
            ClockExhaustedError: No clock is left.
        """
        copies = []
        for value in values:
            check_value(value)
            copies.append(fresh(value))
        self._check_room(len(copies))
        index = max(index, 0)
        for part in as_values(copies):
            self._insert(list, index, part)
            index += len(part)

    def remove(self, list: str, index: int, count: int = 1) -> None:
        """Remove elements from a position of a list on; positions outside it are passed over.

        Raises:
            NameRefusedError: The name is one that peers would drop.
            ClockExhaustedError: No clock is left.
        """
        sequence = self._crdt.lists.get(list)
        if sequence is None:
            _check_name(list)
            return
        if index < 0:
            index, count = 0, count + index
        if not isinstance(sequence, RunSequence):
            sequence = self._open(list)
            if isinstance(sequence, NodeSequence):
                ids = sequence.ids()[index : index + max(count, 0)]
                self._check_room(len(ids))
                for id in ids:
                    self._fold({"t": "rmv", "list": list, "id": id, "clock": self._tick()})
                return
        if index + count > sequence.tree.root.live:
            count = sequence.tree.root.live - index
        if count <= 0:
            return
        replica = self.replica
        counter = self._reserve(count)
        for target, target_counter, size in sequence.remove_at(index, count):
            self._record(Remove(list, replica, counter, target, target_counter, size))
            counter += size

    def set(self, register: str, value: object) -> None:
        """Write a register.

        Raises:
            NameRefusedError: The name is one that peers would drop.
            NotJsonError: The value is not JSON.
            ClockExhaustedError: No clock is left.
        """
        _check_name(register)
        check_value(value)
        self._apply(Set(register, self.replica, self._reserve(1), fresh(value)))

    def delete(self, register: str) -> None:
        """Delete a register.

        Raises:
            NameRefusedError: The name is one that peers would drop.
            ClockExhaustedError: No clock is left.
        """
        _check_name(register)
        self._apply(Delete(register, self.replica, self._reserve(1)))

    def put(self, map: str, key: str, value: object) -> None:
        """Write a key of an observed-remove map.

        Raises:
            NameRefusedError: The name or the key is one that peers would drop.
            NotJsonError: The value is not JSON.
            ClockExhaustedError: No clock is left.
        """
        _check_name(map)
        _check_name(key)
        check_value(value)
        self._apply(Put(map, key, self.replica, self._reserve(1), fresh(value)))

    def drop(self, map: str, key: str) -> None:
        """Remove a key of an observed-remove map, as far as this replica has seen it written.

        Raises:
            ClockExhaustedError: No clock is left.
        """
        seen = self._crdt.map_seen(map, key)
        if seen:
            self._apply(Drop(map, key, self.replica, self._reserve(1), seen))

    def insert_after(
        self, list: str, anchor: Ids, values: Iterable[Json], changes: list[Change] | None = None
    ) -> int:
        """Insert values right after an element of a list, which may be removed.

        Args:
            list: The list.
            anchor: The element, which is there; the first one of the range counts.
            values: The values, not empty.
            changes: If given, what changed is appended to it.

        Returns:
            The counter of the first value; the others count up from it.

        Raises:
            ClockExhaustedError: No clock is left.
        """
        copies = [fresh(value) for value in values]
        self._check_room(len(copies))
        first = self._crdt.counter + 1
        replica, counter, _ = anchor
        for part in as_values(copies):
            if not counter:
                # No run can be anchored on a free-form id; the rest of it follows as usual.
                self._insert_verbatim(list, replica, part[0], changes)
                replica, counter, part = self.replica, self._crdt.counter, part[1:]
            if part:
                start = self._reserve(len(part))
                run = Insert(list, self.replica, start, replica, counter, part)
                self._apply(run, changes)
                replica, counter = self.replica, start + len(part) - 1
        return first

    def remove_ids(self, list: str, ids: Ids, changes: list[Change] | None = None) -> None:
        """Remove elements of a list, which are all live.

        Args:
            list: The list.
            ids: The elements.
            changes: If given, what changed is appended to it.

        Raises:
            ClockExhaustedError: No clock is left.
        """
        replica, counter, size = ids
        if counter:
            start = self._reserve(size)
            self._apply(Remove(list, self.replica, start, replica, counter, size), changes)
        else:
            self._fold({"t": "rmv", "list": list, "id": replica, "clock": self._tick()}, changes)

    def withdraw(self, map: str, key: str, clock: tuple[int, str]) -> None:
        """Remove one write of a key of a map; what others have written stays.

        Raises:
            ClockExhaustedError: No clock is left.
        """
        counter, replica = clock
        self._apply(Drop(map, key, self.replica, self._reserve(1), {replica: counter}))

    def recorded(self) -> list[Run]:
        """What was recorded and not taken yet."""
        return list(self._runs)

    def move_to(self, crdt: WalCrdt) -> None:
        """Go on with another fold of the same document; what was recorded stays recorded."""
        self._crdt = crdt

    def take(self) -> list[Run]:
        """Hand over what was recorded and start afresh."""
        runs = self._runs
        self._runs = []
        return runs

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _insert(self, list: str, index: int, values: Values) -> None:
        size = len(values)
        if not size:
            return
        crdt = self._crdt
        counter = crdt.counter + 1
        if counter + size - 1 > COUNTER_MAX:
            raise ClockExhaustedError
        sequence = crdt.lists.get(list)
        if not isinstance(sequence, RunSequence):
            sequence = self._open(list)
            if isinstance(sequence, NodeSequence):
                self._insert_nodes(sequence, list, index, values)
                return
        crdt.counter += size
        replica = self.replica
        after_replica, after_counter = sequence.insert_at(index, values, replica, counter)
        if self._runs and after_counter == counter - 1 and after_replica == replica:
            last = self._runs[-1]
            if (
                isinstance(last, Insert)
                and last.counter + len(last.values) == counter
                and last.list == list
                and len(last.values) < RUN_SIZE_MAX
                and lengthened(last, values)
            ):
                return
        self._runs.append(Insert(list, replica, counter, after_replica, after_counter, values))

    def _insert_nodes(self, sequence: NodeSequence, list: str, index: int, values: Values) -> None:
        """Insert into a list that holds free-form ids, one op at a time."""
        ids = sequence.ids()
        after = ids[min(index, len(ids)) - 1] if index > 0 and ids else ""
        for value in values:
            self._insert_verbatim(list, after, value, None)
            after = element_id(self._crdt.counter, self.replica)

    def _open(self, name: str) -> RunSequence | NodeSequence:
        _check_name(name)
        return self._crdt.sequence(name)

    def _reserve(self, count: int) -> int:
        """Stamp ops in a row: the first counter, above all that the document has seen."""
        self._check_room(count)
        self._crdt.counter += count
        return self._crdt.counter - count + 1

    def _check_room(self, count: int) -> None:
        if self._crdt.counter + count > COUNTER_MAX:
            raise ClockExhaustedError

    def _tick(self) -> Clock:
        return {"c": self._reserve(1), "r": self.replica}

    def _insert_verbatim(
        self, list: str, after: str, value: Json, changes: list[Change] | None
    ) -> None:
        clock = self._tick()
        id = element_id(clock["c"], clock["r"])
        self._fold(
            {"t": "ins", "list": list, "id": id, "after": after, "clock": clock, "value": value},
            changes,
        )

    def _fold(self, op: Any, changes: list[Change] | None = None) -> None:
        self._apply(to_run(op), changes)

    def _apply(self, run: Run, changes: list[Change] | None = None) -> None:
        self._crdt.fold_runs((run,), changes)
        self._record(run)

    def _record(self, run: Run) -> None:
        if not self._runs or not joined(self._runs[-1], run):
            self._runs.append(run)


def _check_name(name: str) -> None:
    if type(name) is not str:
        raise NotJsonError(f"a name cannot be a {type(name).__name__}")
    if name in FORBIDDEN_NAMES:
        raise NameRefusedError(name)
