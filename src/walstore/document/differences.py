"""What is different between two folds of a document: the changes from one to the other.

- Registers and keys of maps come first, then lists, each kind in code-point order.
- Elements of lists are told apart by their ids: text that was removed and typed again is both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from walstore.canon import canonical_text
from walstore.crdt import Change, ListChanged, MapChanged, RegisterChanged, WalCrdt
from walstore.crdt.runs import is_character
from walstore.document.bases import Edit
from walstore.document.realignment import edits_between, keys_of

_ABSENT = object()


def differences(before: WalCrdt, after: WalCrdt) -> list[Change]:
    """The changes that lead from one fold to another."""
    changes: list[Change] = list(changed_values(before, after))
    for name in sorted({*before.list_names(), *after.list_names()}):
        edits = edits_between(keys_of(before, name), keys_of(after, name))
        changes += changed_list(after, name, edits)
    return changes


def changed_values(before: WalCrdt, after: WalCrdt) -> Iterator[Change]:
    """Which registers and keys of maps are different."""
    for name in sorted({*before.names(), *after.names()}):
        if _differ(before.get_register(name, _ABSENT), after.get_register(name, _ABSENT)):
            yield RegisterChanged(name)
    for name in sorted({*before.map_names(), *after.map_names()}):
        left, right = before.map_items(name), after.map_items(name)
        for key in sorted(left.keys() | right.keys()):
            if _differ(left.get(key, _ABSENT), right.get(key, _ABSENT)):
                yield MapChanged(name, key)


def changed_list(after: WalCrdt, name: str, edits: Sequence[Edit]) -> Iterator[Change]:
    """What is different in a list, from edits whose positions count in what was before."""
    if not edits:
        return
    values, shift = after.list_values(name), 0
    for at, removed, inserted in edits:
        start = at + shift
        new = values[start : start + inserted]
        is_text = bool(new) and all(map(is_character, new))
        yield ListChanged(name, start, removed, "".join(new) if is_text else new)
        shift += inserted - removed


def _differ(left: Any, right: Any) -> bool:
    """Whether two values are different as JSON, or only one of them is there."""
    if left is _ABSENT or right is _ABSENT:
        return left is not right
    return canonical_text(left) != canonical_text(right)
