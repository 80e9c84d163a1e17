"""What became of a list in another fold of the same log, element by element.

- An element is the same if it has the same id and the same value: equal characters are not the
  same ones, and whoever used a clock twice has given one id to two of them.
- As many elements as possible are found again in their order; a few that changed places count as
  removed and inserted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, TypeAlias

from walstore.canon import canonical_text
from walstore.crdt import WalCrdt
from walstore.document.bases import Edit

Key: TypeAlias = tuple[str, str]


def keys_of(crdt: WalCrdt, name: str) -> list[Key]:
    """What tells the elements of a list apart."""
    ids, values = crdt.list_ids(name), crdt.list_values(name)
    return list(zip(ids, map(_named, values), strict=True))


def edits_between(before: Sequence[Key], after: Sequence[Key]) -> list[Edit]:
    """What leads from one list to another, ascending."""
    places = {key: place for place, key in enumerate(after)}
    edits: list[Edit] = []
    last_source = last_target = -1
    for source, target in [*_in_order(before, places), (len(before), len(after))]:
        removed, inserted = source - last_source - 1, target - last_target - 1
        if removed or inserted:
            edits.append((last_source + 1, removed, inserted))
        last_source, last_target = source, target
    return edits


def _in_order(before: Sequence[Key], places: dict[Key, int]) -> list[tuple[int, int]]:
    """The longest row of elements that are in the same order in both lists."""
    # By length: the lowest place that a row of that length can end at, and its last pair.
    ends: list[int] = []
    rows: list[int] = []
    pairs: list[tuple[int, int]] = []
    previous: list[int] = []
    for source, key in enumerate(before):
        target = places.get(key)
        if target is None:
            continue
        length = len(ends) if not ends or target > ends[-1] else bisect_left(ends, target)
        ends[length : length + 1] = [target]
        rows[length : length + 1] = [len(pairs)]
        previous.append(rows[length - 1] if length else -1)
        pairs.append((source, target))
    found: list[tuple[int, int]] = []
    at = rows[-1] if rows else -1
    while at >= 0:
        found.append(pairs[at])
        at = previous[at]
    found.reverse()
    return found


def _named(value: Any) -> str:
    if isinstance(value, str) and len(value) == 1:
        return value
    return " " + canonical_text(value)
