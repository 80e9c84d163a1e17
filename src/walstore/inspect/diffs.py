"""What is different between two versions, as stretches that a person can read.

- A text or list is told as stretches that stayed, went and came; what stayed and is long is cut in
  the middle. Anything else is told as the value before and the value after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from walstore.canon import canonical_text
from walstore.crdt import Change, ListChanged, MapChanged, RegisterChanged

# What is shown of something that did not change, on either side of what did; and of a value.
CONTEXT_SIZE = 40
VALUE_SIZE_MAX = 2000

Mark = Literal["same", "gone", "new"]


class Stretch(NamedTuple):
    """A part of something, and what became of it."""

    mark: Mark
    text: str


class Difference(NamedTuple):
    """One name, or one key of a map, that is different."""

    name: str
    stretches: Sequence[Stretch]


def told(
    changes: Sequence[Change], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[Difference]:
    """Changes in words, given the document before and after them."""
    lists: dict[str, list[ListChanged]] = {}
    found: list[Difference] = []
    for change in changes:
        match change:
            case ListChanged():
                lists.setdefault(change.list, []).append(change)
            case RegisterChanged():
                name = change.register
                found.append(Difference(name, _values(before, after, name)))
            case MapChanged():
                left, right = _entries(before, change.map), _entries(after, change.map)
                found.append(
                    Difference(f"{change.map} · {change.key}", _values(left, right, change.key))
                )
    for name, edits in lists.items():
        found.append(Difference(name, _edited(before.get(name, []), edits)))
    return found


def value_text(value: object) -> str:
    """A value as it is shown: a text as such, anything else as JSON; the beginning of it."""
    text = as_text(value)
    return _cut_end(canonical_text(value) if text is None else text)


def as_text(value: object) -> str | None:
    """A list of characters as a text; None if it is something else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(type(e) is str and len(e) == 1 for e in value):
        return "".join(value)
    return None


def _values(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> list[Stretch]:
    found: list[Stretch] = []
    if name in before:
        found.append(Stretch("gone", value_text(before[name])))
    if name in after:
        found.append(Stretch("new", value_text(after[name])))
    return found


def _entries(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _edited(before: object, edits: Sequence[ListChanged]) -> list[Stretch]:
    """A list with what went and what came, in the order of the positions."""
    values = list(before) if isinstance(before, list) else []
    parts: list[tuple[Mark, list[Any]]] = []
    done, shift = 0, 0
    for edit in edits:
        at = edit.position - shift
        parts += [("same", values[done:at]), ("gone", values[at : at + edit.removed])]
        parts.append(("new", list(edit.inserted)))
        done = at + edit.removed
        shift += len(edit.inserted) - edit.removed
    parts.append(("same", values[done:]))
    parts = [(mark, part) for mark, part in parts if part]
    is_text = all(as_text(part) is not None for _, part in parts)
    between = "" if is_text else ", "
    found = []
    for place, (mark, part) in enumerate(parts):
        is_first, is_last = place == 0, place == len(parts) - 1
        text = (
            _around(part, between, is_first=is_first, is_last=is_last)
            if mark == "same"
            else _cut_end(_joined(part, between))
        )
        found.append(Stretch(mark, text if is_last else text + between))
    return found


def _around(values: Sequence[Any], between: str, *, is_first: bool, is_last: bool) -> str:
    """What did not change, as far as it is near what did."""
    head = [] if is_first else values[:CONTEXT_SIZE]
    tail = [] if is_last else values[-CONTEXT_SIZE:]
    if len(values) <= len(head) + len(tail):
        return _joined(values, between)
    return f"{_joined(head, between)}…{_joined(tail, between)}"


def _joined(values: Sequence[Any], between: str) -> str:
    return between.join(values if not between else map(canonical_text, values))


def _cut_end(text: str) -> str:
    return text if len(text) <= VALUE_SIZE_MAX else f"{text[:VALUE_SIZE_MAX]}…"
