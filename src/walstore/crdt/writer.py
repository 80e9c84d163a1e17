"""Local edits by position: folded at once, and recorded as runs to send.

- Every edit is stamped with clocks above everything that the document has seen.
- Positions are clamped as the format says: at or below 0 is the head, past the end is the end.
- Edits that follow on from one another are recorded as one run, until they are taken.
- Of a burst of them, the first two are folded at once. Those that go on typing or deleting are
  noted, and folded as one when anybody looks at the lists or takes what was recorded.
- Names and values that peers would drop or misread are refused before anything changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from walstore.canon import FORBIDDEN_NAMES, check_value
from walstore.crdt.changes import Change
from walstore.crdt.clock import COUNTER_MAX, Clock, ClockExhaustedError
from walstore.crdt.convert import RUN_SIZE_MAX, joined, lengthened, to_run
from walstore.crdt.crdt import Hand, WalCrdt
from walstore.crdt.elements import Ids
from walstore.crdt.ids import element_id
from walstore.crdt.nodes import NodeSequence
from walstore.crdt.ops import Json, fresh
from walstore.crdt.runs import Delete, Drop, Insert, Put, Remove, Run, Set, Values, as_values
from walstore.crdt.sequence import RunSequence
from walstore.errors import NameRefusedError, NotJsonError

# Elements that were removed, as `(replica, counter, size)` in document order.
Removed: TypeAlias = list[tuple[str, int, int]]

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Writer(Hand):
    """One replica's hand on a document."""

    __slots__ = (
        "_at",
        "_crdt",
        "_erased",
        "_is_forward",
        "_last",
        "_list",
        "_rest",
        "_runs",
        "_typed",
        "replica",
    )

    def __init__(self, crdt: WalCrdt, replica: str) -> None:
        """Edit `crdt` as a replica that nobody else writes as."""
        self.replica = replica
        self._crdt = crdt
        self._runs: list[Run] = []
        # The burst: its list, the place where it goes on, its last counter, or -1 if there is none;
        # how many elements follow the place if it deletes, -1 if it types.
        self._list = ""
        self._at = 0
        self._last = -1
        self._rest = -1
        # What of it is not folded: the text, or how many elements, and whether forwards.
        self._typed: list[str] = []
        self._erased = 0
        self._is_forward = False

    def insert_text(self, list: str, index: int, text: str) -> None:
        """Insert characters before a position of a text.

        Raises:
            NameRefusedError: The name is one that peers would drop.
            NotJsonError: `text` is not text.
            ClockExhaustedError: No clock is left.
        """
        if type(text) is not str:
            raise NotJsonError(f"text cannot be a {type(text).__name__}")
        if not text.isascii() and _SURROGATE.search(text) is not None:
            self.insert(list, index, text)
            return
        if index == self._at and self._rest < 0:
            crdt = self._crdt
            counter, size = crdt.counter, len(text)
            if counter == self._last and list == self._list and size <= COUNTER_MAX - counter:
                self._typed.append(text)
                self._at = index + size
                self._last = crdt.counter = counter + size
                return
        self._insert(list, index, text)

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
        crdt = self._crdt
        if (
            self._rest >= 0
            and count == 1
            and crdt.counter == self._last < COUNTER_MAX
            and list == self._list
            and self._goes_on(index)
        ):
            self._erased += 1
            self._last += 1
            crdt.counter += 1
            return
        if crdt.hand is not None:
            crdt.hand.settle()
        sequence = crdt.folded.get(list)
        if sequence is None:
            _check_name(list)
            return
        if index < 0:
            index, count = 0, count + index
        if not isinstance(sequence, RunSequence):
            sequence = self._open(list)
            if isinstance(sequence, NodeSequence):
                ids = [node.id for node in sequence.live()[index : index + max(count, 0)]]
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
        goes_on = False
        for target, target_counter, size in sequence.remove_at(index, count):
            goes_on = self._record(Remove(list, replica, counter, target, target_counter, size))
            counter += size
        if goes_on and count == 1:
            self._begin(list, index, sequence.tree.root.live - index)

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
        self.settle()
        return list(self._runs)

    def move_to(self, crdt: WalCrdt) -> None:
        """Go on with another fold of the same document; what was recorded stays recorded."""
        self.settle()
        self._crdt = crdt

    def take(self) -> list[Run]:
        """Hand over what was recorded and start afresh."""
        if self._last >= 0:
            self.settle()
        runs = self._runs
        self._runs = []
        return runs

    def settle(self) -> None:
        """Fold what was noted of a burst, and end the burst."""
        if self._last < 0:
            return
        crdt, name, at, counter = self._crdt, self._list, self._at, self._last
        self._last = self._rest = -1
        crdt.hand = None
        if self._typed:
            text = "".join(self._typed)
            self._typed = []
            highest = crdt.counter
            crdt.counter = counter - len(text)
            self._insert(name, at - len(text), text)
            crdt.counter = highest
            self._last = self._rest = -1
            crdt.hand = None
        elif self._erased:
            count, self._erased = self._erased, 0
            sequence = crdt.folded[name]
            assert isinstance(sequence, RunSequence)
            for run in self._removes(name, counter - count + 1, sequence.remove_at(at, count)):
                self._record(run)

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _insert(self, list: str, index: int, values: Values) -> None:
        size = len(values)
        if not size:
            return
        crdt = self._crdt
        if crdt.hand is not None:
            crdt.hand.settle()
        counter = crdt.counter + 1
        if counter + size - 1 > COUNTER_MAX:
            raise ClockExhaustedError
        sequence = crdt.folded.get(list)
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
                if index + size <= sequence.tree.root.live:
                    self._begin(list, index + size, -1)
                return
        self._runs.append(Insert(list, replica, counter, after_replica, after_counter, values))

    def _begin(self, list: str, at: int, rest: int) -> None:
        """Note where the edits that follow may go on."""
        self._list = list
        self._at = at
        self._rest = rest
        self._last = self._crdt.counter
        self._crdt.hand = self

    def _removes(self, list: str, counter: int, removed: Removed) -> Iterator[Remove]:
        """What a burst of deleting is recorded as: backwards, the last element went first."""
        if not self._is_forward:
            removed.reverse()
        for target, target_counter, size in removed:
            run = Remove(list, self.replica, counter, target, target_counter, size)
            if not self._is_forward and size > 1:
                run.target_counter += size - 1
                run.step = -1
            yield run
            counter += size

    def _goes_on(self, index: int) -> bool:
        """Whether deleting one element goes on where the burst is, the same way."""
        if index == self._at - 1 and index >= 0 and not (self._erased and self._is_forward):
            self._at = index
            self._is_forward = False
            return True
        if index == self._at and self._rest > 0 and (self._is_forward or not self._erased):
            self._rest -= 1
            self._is_forward = True
            return True
        return False

    def _insert_nodes(self, sequence: NodeSequence, list: str, index: int, values: Values) -> None:
        """Insert into a list that holds free-form ids, one op at a time."""
        live = sequence.live()
        after = live[min(index, len(live)) - 1].id if index > 0 and live else ""
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

    def _record(self, run: Run) -> bool:
        """Record a run; whether it goes on from what was recorded last."""
        if self._runs and joined(self._runs[-1], run):
            return True
        self._runs.append(run)
        return False


def _check_name(name: str) -> None:
    if type(name) is not str:
        raise NotJsonError(f"a name cannot be a {type(name).__name__}")
    if name in FORBIDDEN_NAMES:
        raise NameRefusedError(name)
