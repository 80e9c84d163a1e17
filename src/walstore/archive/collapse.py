"""Many changes of a window become one for each key, in the order of the keys.

- The last one of a key counts, with the row that was there before the first one.
- An update that changes the key is a deletion of the old row and an insertion of the new one.
- A truncation forgets what came before it in the window, and stands first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from walstore.archive.rows import Action, Key, Row, RowChange, SortKey, key_of, sort_key

_TRUNCATE = RowChange(Action.TRUNCATE, ())


def collapsed(changes: Iterable[RowChange], key_fields: Sequence[str]) -> list[RowChange]:
    """At most one change per key, sorted, after a TRUNCATE if there was one."""
    latest: dict[SortKey, RowChange] = {}
    is_truncated = False
    for change in changes:
        if change.action is Action.TRUNCATE:
            is_truncated = True
            latest.clear()
            continue
        for step in _by_key(change, key_fields):
            place = sort_key(step.key)
            latest[place] = _joined(latest.get(place), step)
    by_key = [latest[place] for place in sorted(latest)]
    return [_TRUNCATE, *by_key] if is_truncated else by_key


def _by_key(change: RowChange, key_fields: Sequence[str]) -> list[RowChange]:
    if change.action is not Action.UPDATE or change.old is None:
        return [change]
    old_key = key_of(change.old, key_fields)
    if sort_key(old_key) == sort_key(change.key):
        return [change]
    return [
        RowChange(Action.DELETE, old_key, change.old),
        RowChange(Action.INSERT, change.key, None, change.new),
    ]


def _joined(earlier: RowChange | None, later: RowChange) -> RowChange:
    old = later.old if earlier is None else earlier.old
    return RowChange(_action(earlier, later), later.key, old, later.new)


def _action(earlier: RowChange | None, later: RowChange) -> Action:
    """What a window did to a row as a whole; a deletion stays one, also of what it inserted."""
    if earlier is None or later.action is Action.DELETE:
        return later.action
    return Action.INSERT if earlier.action is Action.INSERT else Action.UPDATE


def change_of(key: Key, old: Row | None, new: Row | None) -> RowChange:
    """What became of a row, by what was and what is there."""
    if new is None:
        return RowChange(Action.DELETE, key, old)
    return RowChange(Action.INSERT if old is None else Action.UPDATE, key, old, new)
