"""What an edit did, and how to undo it while others go on editing.

    edit ──► runs ──► capture ──► Step          Step ──► invert ──► ordinary edits ──► runs ──► …

- A step is what one or more edits of this session did, as ids: what they inserted, what they
  removed, and of registers and keys of maps what was there before and the clock of what is now.
- Undoing a step is an edit like any other. What the step inserted is removed, wherever it is by
  now. What it removed is inserted again, right after its own tombstone, so that it is back in its
  place among all others. A register or key is set back if it still holds what the step wrote.
- What others have written is never removed, and what they have overwritten stays so.
- What was inserted again has new ids. `Aliases` remembers them: to undo an older step is to
  remove, or to bring back, what now stands for its elements.
- Undoing is an edit, and has a step: undoing that one is redoing.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from walstore.canon import parse
from walstore.crdt import Run, WalCrdt, element_id
from walstore.crdt.elements import (
    Found,
    Ids,
    find_copy,
    find_rows,
    first_id,
    ids_of,
    last_id,
    minus,
    united,
)
from walstore.crdt.nodes import NodeSequence
from walstore.crdt.runs import Drop, Insert, Put, Remove, Verbatim
from walstore.crdt.sequence import RunSequence
from walstore.document.content import Befores, Content
from walstore.errors import UsageError
from walstore.wire.envelope import counters_of

# Counter and replica.
Stamp: TypeAlias = tuple[int, str]

# Ranges of elements that were inserted again, and writes; past this the oldest are forgotten, and
# what stands for them is left alone.
ALIASES_MAX = 32_768

# What an entry of a step takes beside its names and values: counters, sizes and punctuation.
_ENTRY_BYTES = 64


class RegisterEdit(NamedTuple):
    """What became of a register.

    Attributes:
        before: The clock of what was there before, and the canonical text of the value or None if
            it was deleted; None if nobody had written it.
        after: The clock of the last write or delete.
    """

    before: tuple[Stamp, str | None] | None
    after: Stamp


class KeyEdit(NamedTuple):
    """What became of a key of a map.

    Attributes:
        before: The clock and the canonical text of what the key showed before, if anything.
        after: The clock of what it shows now, None if nothing.
        is_put: Whether that is what the step wrote.
        dropped: The clocks of the writes that the step has dropped, shown or hidden.
    """

    before: tuple[Stamp, str] | None
    after: Stamp | None
    is_put: bool
    dropped: frozenset[Stamp]


class Caret(NamedTuple):
    """Where an edit ended: in a list, after an element, or at the head."""

    list: str
    id: str


class Step:
    """What one or more edits did.

    Attributes:
        counter: The highest counter that they were stamped with.
        inserted: The elements that were inserted, by list.
        removed: The elements that were removed, by list.
        registers: What became of registers.
        keys: What became of keys of maps.
        caret: Where the last edit ended, if that can be said.
    """

    __slots__ = ("_start", "caret", "counter", "inserted", "keys", "registers", "removed")

    def __init__(self, counter: int = 0) -> None:
        self.counter = counter
        self.inserted: dict[str, list[Ids]] = {}
        self.removed: dict[str, list[Ids]] = {}
        self.registers: dict[str, RegisterEdit] = {}
        self.keys: dict[tuple[str, str], KeyEdit] = {}
        self.caret: Caret | None = None
        # What the first edit was anchored on, if all it did was to insert there.
        self._start: Caret | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was done."""
        return not (self.inserted or self.removed or self.registers or self.keys)

    @property
    def bytes_about(self) -> int:
        """What it takes to keep it, about."""
        size = 0
        for lists in (self.inserted, self.removed):
            size += sum(len(name) + _ENTRY_BYTES * len(ids) for name, ids in lists.items())
        for name, write in self.registers.items():
            text = "" if write.before is None else write.before[1] or ""
            size += len(name) + len(text) + _ENTRY_BYTES
        for (name, key), edit in self.keys.items():
            text = "" if edit.before is None else edit.before[1]
            size += len(name) + len(key) + len(text) + _ENTRY_BYTES * (1 + len(edit.dropped))
        return size

    def continues(self, earlier: Step) -> bool:
        """Whether this is typing, or deleting, on from where an earlier step ended."""
        caret = earlier.caret
        if caret is None or self.caret is None or self.registers or self.keys:
            return False
        if self._start is not None:
            return self._start == caret
        if self.inserted or self.caret.list != caret.list:
            return False
        # Delete leaves the caret where it is, backspace takes away what is before it.
        return self.caret == caret or _holds(self.removed.get(caret.list, ()), caret.id)

    def join(self, later: Step) -> None:
        """Take in what was done afterwards."""
        for own, more in ((self.inserted, later.inserted), (self.removed, later.removed)):
            for name, ranges in more.items():
                for each in ranges:
                    add_ids(own.setdefault(name, []), each)
        for name, write in later.registers.items():
            known = self.registers.get(name)
            self.registers[name] = write if known is None else known._replace(after=write.after)
        for key, edit in later.keys.items():
            self.keys[key] = edit if key not in self.keys else _joined(self.keys[key], edit)
        self.counter = max(self.counter, later.counter)
        self.caret = later.caret


class Aliases:
    """Which elements were inserted again, and writes made again, and as which; by their names.

    Attributes:
        taken: The clocks of writes of keys that were dropped by own edits, and are hidden, or have
            another clock, since that was undone.
    """

    __slots__ = ("_by_replica", "_count", "taken")

    def __init__(self) -> None:
        self.taken: set[Stamp] = set()
        # Of each replica, ascending: first counter, size, new replica, new first counter.
        self._by_replica: dict[tuple[str, str], list[tuple[int, int, str, int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, Ids, Stamp]]:
        """What is known: the list, the elements, and the clock of the first that replaces them."""
        for (name, replica), entries in self._by_replica.items():
            for counter, size, new_replica, new_counter in entries:
                yield name, (replica, counter, size), (new_counter, new_replica)

    def add(self, name: str, ids: Ids, clock: Stamp) -> None:
        """Remember that elements were inserted again, with counters from a clock on."""
        replica, counter, size = ids
        entries = self._by_replica.setdefault((name, replica), [])
        insort(entries, (counter, size, clock[1], clock[0]))
        self._count += 1
        if self._count > ALIASES_MAX:
            self._forget()

    def newest(self, name: str, ids: Iterable[Ids]) -> list[Ids]:
        """What stands for elements by now: themselves, or what they were inserted again as."""
        waiting, found = list(ids), list[Ids]()
        while waiting:
            replica, counter, size = waiting.pop()
            entries = self._by_replica.get((name, replica), ())
            place = bisect_right(entries, counter, key=lambda entry: entry[0]) - 1
            if place >= 0 and counter < entries[place][0] + entries[place][1]:
                start, length, new_replica, new_counter = entries[place]
                known = min(size, start + length - counter)
                waiting.append((new_replica, new_counter + counter - start, known))
            else:
                following = entries[place + 1][0] if place + 1 < len(entries) else counter + size
                known = min(size, following - counter)
                found.append((replica, counter, known))
            if known < size:
                waiting.append((replica, counter + known, size - known))
        return united(found)

    def newest_id(self, name: str, id: str) -> str:
        """What stands for one element by now."""
        (ids,) = self.newest(name, [ids_of(id)])
        return first_id(ids)

    def newest_clock(self, name: str, clock: Stamp | None) -> Stamp | None:
        """What stands for one write by now."""
        if clock is None:
            return None
        ((replica, counter, _),) = self.newest(name, [(clock[1], clock[0], 1)])
        return counter, replica

    def take(self, clocks: Iterable[Stamp]) -> None:
        """Remember that own edits have dropped writes of a key."""
        self.taken.update(clocks)
        if len(self.taken) > ALIASES_MAX:
            self.taken = set(sorted(self.taken)[ALIASES_MAX // 4 :])

    def clear(self) -> None:
        """Forget everything."""
        self.taken.clear()
        self._by_replica.clear()
        self._count = 0

    def _forget(self) -> None:
        """Let go of a quarter: those that were inserted again first."""
        ages = sorted(clock for _, _, clock in self)
        oldest = ages[len(ages) // 4]
        kept = [each for each in self if each[2] > oldest]
        self._by_replica.clear()
        self._count = 0
        for name, ids, clock in kept:
            self.add(name, ids, clock)


def capture(crdt: WalCrdt, runs: Sequence[Run], befores: Befores) -> Step:
    """What an edit did.

    Args:
        crdt: The document after the edit.
        runs: The edit.
        befores: What was there before of the registers and keys that it wrote.
    """
    if len(runs) == 1 and isinstance(runs[0], Insert):
        return _typed(runs[0])
    step = Step(max([counters_of(run)[1] for run in runs], default=0))
    dropped: dict[tuple[str, str], set[Stamp]] = {}
    puts: dict[tuple[str, str], Stamp] = {}
    for run in runs:
        if isinstance(run, Insert):
            own = (run.replica, run.counter, len(run.values))
            add_ids(step.inserted.setdefault(run.list, []), own)
        elif isinstance(run, Remove):
            first = run.target_counter if run.step > 0 else run.target_counter - run.size + 1
            gone = (run.target_replica, first, run.size)
            add_ids(step.removed.setdefault(run.list, []), gone)
        elif isinstance(run, Verbatim):
            _capture_verbatim(step, run)
        elif isinstance(run, Drop):
            seen = {(counter, replica) for replica, counter in run.seen.items()}
            dropped.setdefault((run.map, run.key), set()).update(seen)
        elif isinstance(run, Put):
            puts[run.map, run.key] = (run.counter, run.replica)
    if runs:
        _capture_caret(step, crdt, runs)
    for name, before in befores.registers.items():
        clock = crdt.register_clock(name)
        if clock is not None:
            step.registers[name] = RegisterEdit(before, clock)
    for key, was in befores.keys.items():
        after = crdt.map_clock(*key)
        if after != (None if was is None else was[0]):
            is_put = after is not None and after == puts.get(key)
            step.keys[key] = KeyEdit(was, after, is_put, frozenset(dropped.get(key, ())))
    return step


def invert(content: Content, step: Step, aliases: Aliases, *, author: str) -> int:
    """Undo what a step did, as edits of a document.

    Args:
        content: The document.
        step: The step.
        aliases: What was inserted again before; what is inserted again now is added.
        author: Who made the edits of the step; elements of others are not removed.

    Returns:
        How many elements and values could not be brought back: they were let go for good, or
        cannot be written here.
    """
    for name, ids in step.inserted.items():
        _take_away(content, name, aliases.newest(name, ids), author)
    lost = 0
    for name, ids in step.removed.items():
        gone = minus(ids, step.inserted.get(name, ()))
        lost += _bring_back(content, name, gone, aliases, author=author, since=step.counter)
    for name, write in step.registers.items():
        if content.crdt.register_clock(name) == aliases.newest_clock(name, write.after):
            lost += not _set_back(content, name, write.before, aliases)
    for (name, key), edit in step.keys.items():
        if content.crdt.map_clock(name, key) == aliases.newest_clock(name, edit.after):
            lost += not _put_back(content, name, key, edit, aliases)
    return lost


def add_ids(ranges: list[Ids], ids: Ids) -> None:
    """Add ids to ranges, as part of the last one if they follow on, or go before it."""
    if ranges:
        replica, counter, size = ranges[-1]
        if replica == ids[0] and counter and ids[1] == counter + size:
            ranges[-1] = replica, counter, size + ids[2]
            return
        if replica == ids[0] and ids[1] and ids[1] + ids[2] == counter:
            ranges[-1] = replica, ids[1], size + ids[2]
            return
    ranges.append(ids)


def _typed(run: Insert) -> Step:
    """What the commonest edit of all did."""
    name, replica, size = run.list, run.replica, len(run.values)
    step = Step(run.counter + size - 1)
    step.inserted[name] = [(replica, run.counter, size)]
    step.caret = Caret(name, element_id(step.counter, replica))
    step._start = _after(run)
    return step


def _after(run: Insert) -> Caret:
    id = element_id(run.after_counter, run.after_replica) if run.after_counter else ""
    return Caret(run.list, id)


def _capture_verbatim(step: Step, run: Verbatim) -> None:
    op = run.op
    if op["t"] in ("ins", "rmv"):
        lists = step.inserted if op["t"] == "ins" else step.removed
        add_ids(lists.setdefault(op["list"], []), ids_of(op["id"]))


def _capture_caret(step: Step, crdt: WalCrdt, runs: Sequence[Run]) -> None:
    """Note where an edit of one list starts and ends."""
    names = step.inserted.keys() | step.removed.keys()
    last = runs[-1]
    if len(names) != 1 or not isinstance(last, Insert | Remove):
        return
    if isinstance(last, Insert):
        own = (last.replica, last.counter, len(last.values))
        step.caret = Caret(last.list, last_id(own))
        first = runs[0]
        if not step.removed and isinstance(first, Insert):
            step._start = _after(first)
        return
    found = crdt.find_element(last.list, element_id(last.target_counter, last.target_replica))
    if found is not None:
        position = found[0]
        step.caret = Caret(last.list, crdt.id_at(last.list, position - 1) if position else "")


def _joined(earlier: KeyEdit, later: KeyEdit) -> KeyEdit:
    dropped = earlier.dropped | later.dropped
    return KeyEdit(earlier.before, later.after, later.is_put, dropped)


def _holds(ranges: Iterable[Ids], id: str) -> bool:
    replica, counter, _ = ids_of(id)
    return any(
        replica == other and start <= counter < start + size for other, start, size in ranges
    )


def _take_away(content: Content, name: str, ids: Sequence[Ids], author: str) -> None:
    """Remove those elements that are still there."""
    own = [each for each in ids if each[0].partition(":")[0] == author]
    if name in content.crdt.lists:
        for row in find_rows(content.crdt.sequence(name), own, live=True):
            for found in row:
                content.remove_ids(name, found.ids)


def _bring_back(
    content: Content,
    name: str,
    ids: Sequence[Ids],
    aliases: Aliases,
    *,
    author: str,
    since: int,
) -> int:
    """Insert removed elements again; how many there is nothing left of."""
    waiting = aliases.newest(name, ids)
    lost = sum(size for _, _, size in waiting)
    while waiting and name in content.crdt.lists:
        sequence = content.crdt.sequence(name)
        # What was brought back already is there.
        lost -= sum(_size(row) for row in find_rows(sequence, waiting, live=True))
        gone = find_rows(sequence, waiting, live=False)
        missing, waiting = _without_copies(
            sequence, name, [found for row in gone for found in row], aliases, author, since
        )
        for row in find_rows(sequence, missing, live=False):
            lost -= _insert_row(content, name, row, aliases)
    return lost


def _without_copies(
    sequence: RunSequence | NodeSequence,
    name: str,
    gone: list[Found],
    aliases: Aliases,
    author: str,
    since: int,
) -> tuple[list[Ids], list[Ids]]:
    """Removed elements in order, less those that an earlier process has brought back.

    It may have died before it could note that.

    Returns:
        What is still to be brought back, and what stands for the rest.
    """
    missing: list[Ids] = []
    copies: list[Ids] = []
    waiting = deque(gone)
    while waiting:
        # Nothing is anchored on an element within a span.
        missing += _shift(waiting, len(waiting[0].values) - 1)
        replica, counter, _ = waiting[0].ids
        anchor = (replica, counter, 1)
        copy = find_copy(sequence, waiting, anchor, author=author, since=since)
        if copy is None:
            missing += _shift(waiting, 1)
        else:
            _alias(aliases, name, _shift(waiting, copy[2]), copy)
            copies.append(copy)
    return missing, copies


def _shift(waiting: deque[Found], size: int) -> list[Ids]:
    """Take the first elements away, and return their ids."""
    ids: list[Ids] = []
    while size:
        found = waiting.popleft()
        replica, counter, length = found.ids
        here = min(size, length)
        ids.append((replica, counter, here))
        size -= here
        if here < length:
            rest = (replica, counter + here, length - here)
            waiting.appendleft(Found(rest, found.values[here:]))
    return ids


def _insert_row(content: Content, name: str, row: Sequence[Found], aliases: Aliases) -> int:
    """Insert neighbours again after the first of them; how many that were."""
    values: list[Any] = []
    for found in row:
        if found.values == [None] and found.ids[1] <= content.crdt.horizon:
            # A removed element that was let go may keep its place, but not its value.
            return 0
        values.extend(found.values)
    try:
        first = content.insert_after(name, row[0].ids, values)
    except UsageError:
        return 0
    ids = [found.ids for found in row]
    _alias(aliases, name, ids, (content.replica, first, len(values)))
    return len(values)


def _size(row: Sequence[Found]) -> int:
    return sum(found.ids[2] for found in row)


def _alias(aliases: Aliases, name: str, ids: Iterable[Ids], copy: Ids) -> None:
    replica, counter, _ = copy
    for each in ids:
        aliases.add(name, each, (counter, replica))
        counter += each[2]


def _set_back(
    content: Content, name: str, before: tuple[Stamp, str | None] | None, aliases: Aliases
) -> bool:
    """Give a register the value before; whether that could be done."""
    try:
        if before is None or before[1] is None:
            content.delete_field(name)
        else:
            content.set_back(name, parse(before[1]))
    except UsageError:
        return False
    if before is not None:
        _alias_write(aliases, name, before[0], content.crdt.register_clock(name))
    return True


def _put_back(content: Content, name: str, key: str, edit: KeyEdit, aliases: Aliases) -> bool:
    """Make a key show what it showed before; whether that could be done."""
    written = content.crdt.map_clock(name, key)
    if edit.is_put and written is not None:
        content.withdraw(name, key, written)
    aliases.take(edit.dropped)
    if edit.before is None:
        return True
    clock, text = edit.before
    shown = content.crdt.map_clock(name, key)
    if edit.is_put and shown is not None and shown >= clock:
        # What was there is there again, or something newer of somebody else.
        return True
    is_replaced = edit.after is None or edit.after[1] == clock[1]
    if not is_replaced and clock not in aliases.taken:
        # Whoever took it away, it was not this author.
        return True
    try:
        content.put(name, key, parse(text))
    except UsageError:
        return False
    _alias_write(aliases, name, clock, content.crdt.map_clock(name, key))
    return True


def _alias_write(aliases: Aliases, name: str, old: Stamp, new: Stamp | None) -> None:
    newest = aliases.newest_clock(name, old)
    if new is not None and newest is not None and new > newest:
        aliases.add(name, (newest[1], newest[0], 1), new)
