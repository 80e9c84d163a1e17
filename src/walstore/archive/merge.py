"""A base and its diffs become rows, read side by side in the order of their keys.

- Nothing is held but the next row or change of each artifact: memory does not grow with the table.
- Of several for one key the one from the latest artifact counts, whatever came before it: so
  replaying what is already in the base changes nothing.
- A TRUNCATE hides everything from the artifacts before it.
- Artifacts that are not in order are refused: a key that is met late would be missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain
from operator import itemgetter

from walstore.archive.rows import Action, Key, Row, RowChange, SortKey, key_of, sort_key
from walstore.errors import PeerError

_Step = tuple[SortKey, int, Row | None]


class OrderError(PeerError):
    """The rows or changes of an artifact are not in the order of their keys.

    Attributes:
        key: The one that comes too late.
    """

    def __init__(self, key: Key) -> None:
        super().__init__(f"the artifact is not in order: {list(key)!r} comes too late")
        self.key = key


def merged(
    base: Iterable[Row], diffs: Sequence[Iterable[RowChange]], key_fields: Sequence[str]
) -> Iterator[Row]:
    """The rows of a base after its diffs, oldest first, in the order of their keys.

    Raises:
        OrderError: An artifact is not in order.
    """
    streams = [_steps_of_base(base, key_fields)]
    for age, diff in enumerate(diffs, start=1):
        changes = iter(diff)
        first = next(changes, None)
        if first is None:
            continue
        if first.action is Action.TRUNCATE:
            streams.clear()
        else:
            changes = chain([first], changes)
        streams.append(_steps_of_diff(changes, age))
    yield from _newest(merge(*streams, key=itemgetter(0, 1)))


def _newest(steps: Iterator[_Step]) -> Iterator[Row]:
    """The last step of each key, as long as it leaves a row."""
    last = next(steps, None)
    for step in steps:
        if last is not None and step[0] != last[0] and last[2] is not None:
            yield last[2]
        last = step
    if last is not None and last[2] is not None:
        yield last[2]


def _steps_of_base(rows: Iterable[Row], key_fields: Sequence[str]) -> Iterator[_Step]:
    before: SortKey | None = None
    for row in rows:
        key = key_of(row, key_fields)
        before = _checked(before, key)
        yield before, 0, row


def _steps_of_diff(changes: Iterable[RowChange], age: int) -> Iterator[_Step]:
    before: SortKey | None = None
    for change in changes:
        if change.action is Action.TRUNCATE:
            raise OrderError(change.key)
        before = _checked(before, change.key)
        yield before, age, change.new


def _checked(before: SortKey | None, key: Key) -> SortKey:
    after = sort_key(key)
    if before is not None and after <= before:
        raise OrderError(key)
    return after
