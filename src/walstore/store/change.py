"""What changed at a path of a document, as a delta from the value before to the value after.

- A path is a name, or `name/key` for a key of a map. A change of a name replaces all its keys.
- One fold makes one change of a path, however many edits it folded.
- Only what shows is told: a register hides a list or a map of its name, and a list hides a map.
  When a register goes, what it has hidden is told as a whole.
- A list of nothing but characters is a text, and so is an empty one: as in a view, its value is a
  string, and that of any other list a tuple.
- Successive changes of a path can be made one. Its splices then stand apart and ascend, so they
  grow with the places that were edited, not with the edits. Past `SPLICES_MAX` places, or
  `INSERTED_MAX` elements, a delta is not worth its size: the value itself takes its place.
- Everything here is a value; nothing in it can be changed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, pairwise
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, assert_never

from walstore.crdt import ListChanged, MapChanged, RegisterChanged, WalCrdt
from walstore.crdt.runs import is_character
from walstore.document.changed import Changed
from walstore.document.view import frozen

Kind: TypeAlias = Literal["text", "list", "register", "map"]
Origin: TypeAlias = Literal["local", "remote", "undo", "redo"]
Elements: TypeAlias = str | tuple[Any, ...]

# Places of a list that one change tells apart when it stands for several.
SPLICES_MAX = 256
# Elements that a change holds when it stands for several.
INSERTED_MAX = 65_536


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


# What a path has that has no value; None is a value.
ABSENT: Final = Absent.ABSENT


class Splice(NamedTuple):
    """From `position` on, `removed` elements went and `inserted` came."""

    position: int
    removed: int
    inserted: Elements


@dataclass(frozen=True, slots=True)
class Splices:
    """Edits of a text or a list; each counts in the value that the ones before it left."""

    splices: tuple[Splice, ...]


@dataclass(frozen=True, slots=True)
class Assigned:
    """The value is another one, whatever it was."""

    value: Any


@dataclass(frozen=True, slots=True)
class Deleted:
    """There is no value any more."""


Delta: TypeAlias = Splices | Assigned | Deleted


class Change(NamedTuple):
    """What one fold, or several successive ones, changed at a path.

    Attributes:
        path: A name, or `name/key`.
        kind: What is there; for something deleted, what was there.
        delta: What turns the value before into the value after.
        origin: Where it comes from. Of several, it is "remote" if any of them is.
        author: The public key of who made it, in hex; of several, the last of that origin.
        version: The document's count of changes after it.
        ts: Where it stands in the log, None if that is not known.
        key: The key, if the path is that of a key of a map: a name may look like one.
    """

    path: str
    kind: Kind
    delta: Delta
    origin: Origin
    author: str
    version: int
    ts: int | None
    key: str | None = None

    @property
    def name(self) -> str:
        """The name, without the key."""
        return self.path if self.key is None else self.path[: -len(self.key) - 1]


class ReadState(Protocol):
    """A document as it is now; values are frozen, and reading leaves no trace."""

    def kind(self, name: str) -> Kind | None:
        """What a name shows: a register, else a list, "text" if it is one, else a map."""
        ...

    def register(self, name: str) -> Any:
        """The value of a register, or `ABSENT`."""
        ...

    def list_value(self, name: str) -> Elements:
        """A list as it is shown: a text as a string; empty if there is none."""
        ...

    def map_value(self, name: str, key: str) -> Any:
        """The value of a key of a map, or `ABSENT`."""
        ...

    def map_keys(self, name: str) -> Sequence[str]:
        """The keys of a map."""
        ...

    def names(self) -> Sequence[str]:
        """The names of everything that shows."""
        ...


class CrdtState:
    """Reads what a fold holds."""

    def __init__(self, crdt: Callable[[], WalCrdt]) -> None:
        """Read the fold that `crdt` returns: a document may come to have another one."""
        self._crdt = crdt

    def kind(self, name: str) -> Kind | None:
        """What a name shows."""
        crdt = self._crdt()
        if crdt.has_register(name):
            return "register"
        if name in crdt.lists:
            return "text" if crdt.is_text(name) else "list"
        return "map" if crdt.has_map(name) else None

    def register(self, name: str) -> Any:
        """The value of a register, or `ABSENT`."""
        return frozen(self._crdt().get_register(name, ABSENT))

    def list_value(self, name: str) -> Elements:
        """A list as it is shown."""
        crdt = self._crdt()
        if crdt.is_text(name):
            return crdt.text(name)
        return tuple([frozen(value) for value in crdt.list_values(name)])

    def map_value(self, name: str, key: str) -> Any:
        """The value of a key of a map, or `ABSENT`."""
        return frozen(self._crdt().map_value(name, key, ABSENT))

    def map_keys(self, name: str) -> Sequence[str]:
        """The keys of a map."""
        return list(self._crdt().map_items(name))

    def names(self) -> Sequence[str]:
        """The names of everything that shows."""
        return self._crdt().names()


def changes_of(changed: Changed, *, version: int, read: ReadState) -> list[Change]:
    """What a fold changed, path by path, in the order in which the paths were first changed.

    Args:
        changed: The fold.
        version: The document's count of changes after it.
        read: The document right after it.
    """
    made: list[_Made] = []
    splices: dict[str, list[Splice]] = {}
    # Names and keys whose value was read already: it is the one after the whole fold.
    done: set[tuple[str, str | None]] = set()
    revealed = _revealed(changed, read)
    for change in changed.changes:
        match change:
            case ListChanged():
                known = splices.get(change.list)
                if known is not None:
                    known.append(_splice(change))
                    continue
                kind = read.kind(change.list)
                if (kind == "text" or kind == "list") and change.list not in revealed:
                    known = splices[change.list] = [_splice(change)]
                    # Filled in below, when all of them are known.
                    made.append((change.list, None, kind, _NOTHING))
            case RegisterChanged():
                if (change.register, None) not in done:
                    done.add((change.register, None))
                    made += _shown(change.register, read)
            case MapChanged():
                where = change.map, change.key
                if where not in done and change.map not in revealed:
                    done.add(where)
                    if read.kind(change.map) == "map":
                        made.append(_entry(*where, read))
            case _:
                assert_never(change)
    header = changed.origin, changed.author, version, changed.ts
    return [
        Change(
            name if key is None else f"{name}/{key}",
            kind,
            Splices(tuple(splices[name])) if delta is _NOTHING else delta,
            *header,
            key,
        )
        for name, key, kind, delta in made
    ]


def apply_delta(value: Any, delta: Delta) -> Any:
    """The value after a change, from the value before it; either may be `ABSENT`."""
    match delta:
        case Assigned():
            return delta.value
        case Deleted():
            return ABSENT
        case Splices():
            # Where a list begins, something else may have shown before.
            elements: Elements = value if isinstance(value, (str, tuple)) else ""
            for splice in delta.splices:
                end = splice.position + splice.removed
                elements = _joined(elements[: splice.position], splice.inserted, elements[end:])
            return elements
        case _:
            assert_never(delta)


def coalesce(left: Change, right: Change) -> Change | None:
    """One change with the effect of two successive ones of a path.

    Returns:
        The change; None if its delta would be too large. Then `succeed` makes one of the value.
    """
    if not isinstance(right.delta, Splices):
        return succeed(left, right, right.delta)
    match left.delta:
        case Splices():
            splices = _compose(left.delta.splices, right.delta.splices)
            return None if splices is None else succeed(left, right, Splices(splices))
        case Assigned() | Deleted():
            before = apply_delta(ABSENT, left.delta)
            size = len(before) if isinstance(before, (str, tuple)) else 0
            # Each splice copies the value, so a long one is not kept up to date but read again.
            if size + _size(right.delta.splices) > INSERTED_MAX:
                return None
            if len(right.delta.splices) > SPLICES_MAX:
                return None
            return succeed(left, right, Assigned(apply_delta(before, right.delta)))
        case _:
            assert_never(left.delta)


def succeed(left: Change, right: Change, delta: Delta) -> Change:
    """The change that stands for two successive ones of a path, with a given delta."""
    # A UI may pass over what it did itself; what others did is in here as well.
    source = left if left.origin == "remote" != right.origin else right
    return right._replace(delta=delta, origin=source.origin, author=source.author, ts=source.ts)


# ── inside ─────────────────────────────────────────────────────────────────────────────

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

# Stands for splices that are still being gathered; told apart by identity.
_NOTHING: Final = Splices(())

# A name, its key if it is a map, what is there, and what changed it.
_Made: TypeAlias = tuple[str, str | None, Kind, Delta]


def _revealed(changed: Changed, read: ReadState) -> set[str]:
    """The names whose register went, so that what it hid is told as a whole."""
    return {
        change.register
        for change in changed.changes
        if isinstance(change, RegisterChanged) and read.kind(change.register) != "register"
    }


def _shown(name: str, read: ReadState) -> Iterable[_Made]:
    """What shows at a name whose register was written or deleted."""
    kind = read.kind(name)
    match kind:
        case "register":
            yield name, None, kind, Assigned(read.register(name))
        case "text" | "list":
            yield name, None, kind, Assigned(read.list_value(name))
        case "map" | None:
            yield name, None, "register", Deleted()
            for key in read.map_keys(name) if kind else ():
                yield _entry(name, key, read)
        case _:
            assert_never(kind)


def _entry(name: str, key: str, read: ReadState) -> _Made:
    value = read.map_value(name, key)
    return name, key, "map", Deleted() if value is ABSENT else Assigned(value)


def _splice(change: ListChanged) -> Splice:
    inserted = change.inserted
    if not isinstance(inserted, str):
        return Splice(change.position, change.removed, _as_elements(tuple(map(frozen, inserted))))
    if not inserted.isascii() and _SURROGATE.search(inserted):
        # Half a character is no character: a list that holds one is not shown as a text.
        return Splice(change.position, change.removed, tuple(inserted))
    return Splice(change.position, change.removed, inserted)


def _as_elements(values: tuple[Any, ...]) -> Elements:
    return "".join(values) if all(map(is_character, values)) else values


def _joined(*parts: Elements) -> Elements:
    """Elements in a row: a string if all of them are characters."""
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return "".join(texts)
    return _as_elements(tuple([element for part in parts for element in part]))


def _size(splices: Iterable[Splice]) -> int:
    return sum([len(splice.inserted) for splice in splices])


def _compose(left: Sequence[Splice], right: Sequence[Splice]) -> tuple[Splice, ...] | None:
    """The same edits as splices that ascend and do not touch; None if they are too many."""
    # What was composed before is not composed again: a slow consumer's change grows one by one.
    is_composed = all(_end(before) < after.position for before, after in pairwise(left))
    composed = list(left) if is_composed else []
    size = _size(composed)
    for splice in right if is_composed else chain(left, right):
        size += _take_in(composed, splice)
        if len(composed) > SPLICES_MAX or size > INSERTED_MAX:
            return None
    return tuple(composed)


def _take_in(composed: list[Splice], splice: Splice) -> int:
    """Join a splice with those that it touches; by how much what is inserted has grown.

    composed     ....[ins]......[ins]....      they count in the value after all of them
    splice           p ------- p+removed       takes what is kept in between with it
    """
    position, removed, inserted = splice
    end = position + removed
    first = bisect_left(composed, position, key=_end)
    last = first
    while last < len(composed) and composed[last].position <= end:
        last += 1
    touched = composed[first:last]
    # All that is removed and was not inserted here was there before.
    gone = removed
    head: Elements = ""
    tail: Elements = ""
    start = position
    if touched:
        left, right = touched[0], touched[-1]
        start = min(position, left.position)
        head = left.inserted[: max(position - left.position, 0)]
        tail = right.inserted[max(end - right.position, 0) :]
        gone += sum([each.removed - len(each.inserted) for each in touched])
        gone += len(head) + len(tail)
    whole = _joined(head, inserted, tail)
    moved = len(inserted) - removed
    if moved:
        composed[last:] = [
            each._replace(position=each.position + moved) for each in composed[last:]
        ]
    composed[first:last] = [Splice(start, gone, whole)] if gone or whole else []
    return len(whole) - _size(touched)


def _end(splice: Splice) -> int:
    return splice.position + len(splice.inserted)
