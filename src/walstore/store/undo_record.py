"""An undo stack as JSON.

    {"v": 1, "author", "replicas": [text, …], "undo": [moment, …], "redo": [moment, …],
     "aliases": [[name, replica, counter, size, new replica, new counter], …], "taken": [clock, …]}
    moment     [counter, inserted, removed, registers, keys, before, after]
    inserted   [[list, [replica, counter, size], …], …], and removed likewise
    registers  [[name, [clock, text | null] | null, clock], …]
    keys       [[map, key, [clock, text] | null, clock | null, is_put, [clock, …]], …]
    clock      [counter, replica]
    before     [list, anchor, anchor] | null, and after likewise

- A replica is its place in `replicas`: the same few ids stand everywhere.
- What is read is checked whole. Nothing is taken for this author's own that another one inserted,
  so that no record, damaged or made up, can remove what others wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from walstore.canon import parse
from walstore.crdt.clock import COUNTER_MAX
from walstore.crdt.elements import Ids
from walstore.document.anchors import Anchor, read_anchor
from walstore.document.undoing import Aliases, KeyEdit, RegisterEdit, Stamp, Step
from walstore.errors import MalformedError

_WHAT = "undo stack"
_VERSION = 1


class Selection(NamedTuple):
    """A selection that is found again, whatever is edited.

    Attributes:
        name: The list.
        anchor: Where it was begun.
        head: Where the caret is.
    """

    name: str
    anchor: Anchor
    head: Anchor


class Moment:
    """A step, and what was selected before and after it.

    Attributes:
        is_kept: Whether it is on file as it is.
        is_frozen: Whether it is on file so that it cannot be written again alone.
    """

    __slots__ = ("_bytes_about", "after", "before", "is_frozen", "is_kept", "step")

    def __init__(self, step: Step, before: Selection | None, after: Selection | None) -> None:
        self.step = step
        self.before = before
        self.after = after
        self.is_kept = self.is_frozen = False
        self._bytes_about: int | None = None

    def close(self) -> int:
        """About what it takes to keep it, from now on the same: nothing is added any more."""
        if self._bytes_about is None:
            self._bytes_about = self.step.bytes_about
        return self._bytes_about


Stacks: TypeAlias = tuple[list[Moment], list[Moment], Aliases]


def write_record(
    author: str, undo: Sequence[Moment], redo: Sequence[Moment], aliases: Aliases
) -> dict[str, Any]:
    """A stack as JSON."""
    table = _Table()
    return {
        "v": _VERSION,
        "author": author,
        "undo": [_write_moment(moment, table) for moment in undo],
        "redo": [_write_moment(moment, table) for moment in redo],
        "aliases": [
            [name, *_write_ids(ids, table), table.place(clock[1]), clock[0]]
            for name, ids, clock in aliases
        ],
        "taken": [_write_clock(clock, table) for clock in sorted(aliases.taken)],
        "replicas": table.replicas,
    }


def read_record(value: object, author: str) -> Stacks:
    """Read the stack of an author.

    Raises:
        MalformedError: It is not one.
    """
    if not isinstance(value, dict) or value.get("v") is not _VERSION:
        raise MalformedError(_WHAT, "not a record of version 1")
    if value.get("author") != author:
        raise MalformedError(_WHAT, "it is another author's")
    reader = _Reader(value, author)
    undo = [reader.moment(each) for each in reader.items(value.get("undo"))]
    redo = [reader.moment(each) for each in reader.items(value.get("redo"))]
    return undo, redo, reader.aliases(value.get("aliases"), value.get("taken"))


class _Table:
    """The replicas that a record names."""

    __slots__ = ("_places", "replicas")

    def __init__(self) -> None:
        self.replicas: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, replica: str) -> int:
        place = self._places.setdefault(replica, len(self.replicas))
        if place == len(self.replicas):
            self.replicas.append(replica)
        return place


def _write_moment(moment: Moment, table: _Table) -> list[Any]:
    step = moment.step
    return [
        step.counter,
        _write_lists(step.inserted, table),
        _write_lists(step.removed, table),
        [
            [name, _write_before(write.before, table), _write_clock(write.after, table)]
            for name, write in step.registers.items()
        ],
        [[*key, *_write_key(edit, table)] for key, edit in step.keys.items()],
        _write_selection(moment.before),
        _write_selection(moment.after),
    ]


def _write_lists(lists: Mapping[str, Sequence[Ids]], table: _Table) -> list[Any]:
    return [[name, *[_write_ids(ids, table) for ids in ranges]] for name, ranges in lists.items()]


def _write_ids(ids: Ids, table: _Table) -> list[int]:
    return [table.place(ids[0]), ids[1], ids[2]]


def _write_key(edit: KeyEdit, table: _Table) -> list[Any]:
    return [
        _write_before(edit.before, table),
        None if edit.after is None else _write_clock(edit.after, table),
        edit.is_put,
        [_write_clock(clock, table) for clock in sorted(edit.dropped)],
    ]


def _write_before(before: tuple[Stamp, str | None] | None, table: _Table) -> list[Any] | None:
    return None if before is None else [_write_clock(before[0], table), before[1]]


def _write_clock(clock: Stamp, table: _Table) -> list[int]:
    return [clock[0], table.place(clock[1])]


def _write_selection(selection: Selection | None) -> list[Any] | None:
    if selection is None:
        return None
    return [selection.name, selection.anchor.to_json(), selection.head.to_json()]


class _Reader:
    """Reads the parts of one record."""

    __slots__ = ("_author", "_replicas")

    def __init__(self, record: dict[str, Any], author: str) -> None:
        self._author = author
        self._replicas = [self._text(each) for each in self.items(record.get("replicas"))]

    def moment(self, value: object) -> Moment:
        counter, inserted, removed, registers, keys, before, after = self._row(value, 7)
        step = Step(self._number(counter))
        step.inserted = self._lists(inserted)
        step.removed = self._lists(removed)
        for ranges in step.inserted.values():
            for replica, _, _ in ranges:
                self._check_own(replica)
        step.registers = dict(map(self._register, self.items(registers)))
        step.keys = dict(map(self._key, self.items(keys)))
        return Moment(step, self._selection(before), self._selection(after))

    def aliases(self, value: object, taken: object) -> Aliases:
        aliases = Aliases()
        for each in self.items(value):
            name, *ids, new_replica, new_counter = self._row(each, 6)
            old, replica = self._ids(ids), self._replica(new_replica)
            counter = self._number(new_counter)
            self._check_own(replica)
            if counter <= old[1] or counter + old[2] > COUNTER_MAX:
                raise MalformedError(_WHAT, "an alias is older than what it stands for")
            aliases.add(self._text(name), old, (counter, replica))
        aliases.take(map(self._clock, self.items(taken)))
        return aliases

    def items(self, value: object) -> list[Any]:
        if not isinstance(value, list):
            raise MalformedError(_WHAT, "a list is missing")
        return value

    def _lists(self, value: object) -> dict[str, list[Ids]]:
        lists: dict[str, list[Ids]] = {}
        for each in self.items(value):
            name, *ranges = self.items(each) or [None]
            lists[self._text(name)] = [self._ids(ids) for ids in ranges]
        return lists

    def _ids(self, value: object) -> Ids:
        replica, counter, size = self._row(value, 3)
        first, count = self._number(counter), self._number(size)
        is_one = count == 1 if not first else 1 <= count <= COUNTER_MAX - first
        if not is_one:
            raise MalformedError(_WHAT, "a range of ids has no elements, or too many")
        return self._replica(replica), first, count

    def _register(self, value: object) -> tuple[str, RegisterEdit]:
        name, before, after = self._row(value, 3)
        was: tuple[Stamp, str | None] | None = None
        if before is not None:
            clock, text = self._row(before, 2)
            was = self._clock(clock), None if text is None else self._json(text)
        now = self._clock(after)
        self._check_own(now[1])
        return self._text(name), RegisterEdit(was, now)

    def _key(self, value: object) -> tuple[tuple[str, str], KeyEdit]:
        name, key, before, after, is_put, dropped = self._row(value, 6)
        was: tuple[Stamp, str] | None = None
        if before is not None:
            clock, text = self._row(before, 2)
            was = self._clock(clock), self._json(text)
        now = None if after is None else self._clock(after)
        if not isinstance(is_put, bool):
            raise MalformedError(_WHAT, "a mark is missing")
        if is_put:
            self._check_own("" if now is None else now[1])
        clocks = frozenset(map(self._clock, self.items(dropped)))
        return (self._text(name), self._text(key)), KeyEdit(was, now, is_put, clocks)

    def _clock(self, value: object) -> Stamp:
        counter, replica = self._row(value, 2)
        return self._number(counter), self._replica(replica)

    def _selection(self, value: object) -> Selection | None:
        if value is None:
            return None
        name, anchor, head = self._row(value, 3)
        return Selection(self._text(name), read_anchor(anchor), read_anchor(head))

    def _check_own(self, replica: str) -> None:
        if replica.partition(":")[0] != self._author:
            raise MalformedError(_WHAT, "another author's writing is taken for one's own")

    def _row(self, value: object, size: int) -> list[Any]:
        row = self.items(value)
        if len(row) != size:
            raise MalformedError(_WHAT, f"a row has not {size} members")
        return row

    def _replica(self, value: object) -> str:
        place = self._number(value)
        if place >= len(self._replicas):
            raise MalformedError(_WHAT, "a replica is not in the table")
        return self._replicas[place]

    def _number(self, value: object) -> int:
        if type(value) is not int or not 0 <= value <= COUNTER_MAX:
            raise MalformedError(_WHAT, "a number is missing or out of range")
        return value

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            raise MalformedError(_WHAT, "a text is missing")
        return value

    def _json(self, value: object) -> str:
        text = self._text(value)
        parse(text)
        return text
