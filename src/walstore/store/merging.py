r"""Two edits of one value made one: what either side added is there, what either removed is gone.

              base
             /    \
         left      right          nobody's edit is lost; where both gave one plain value
             \    /               another one, the left one counts
             merged

- It is for values whose history is not at hand, such as a file that changed while nobody looked.
  Where a view is, the document itself knows better which element is which.
- An edit that both sides made alike is made once.
- Everything here is a value; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from walstore.canon import canonical_text
from walstore.reconcile import Hunk, as_hunks, diff_items, diff_text
from walstore.store.change import ABSENT

# Whether a member of a document is a text, whose characters are merged one by one.
IsText: TypeAlias = Callable[[str], bool]


def merge_text(base: str, *, left: str, right: str) -> str:
    """The text with the edits of both sides."""
    if right in (base, left):
        return left
    if left == base:
        return right
    return "".join(_merged(base, diff_text(base, left), diff_text(base, right)))


def merge_items(base: list[Any], *, left: list[Any], right: list[Any]) -> list[Any]:
    """The list with the edits of both sides."""
    edits = as_hunks(diff_items(base, left)), as_hunks(diff_items(base, right))
    return [item for part in _merged(base, *edits) for item in part]


def merge_members(
    base: Mapping[str, Any],
    *,
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    is_text: IsText | None = None,
) -> dict[str, Any]:
    """The object with the edits of both sides.

    Args:
        base: What both sides started from, as JSON.
        left: What one side made of it.
        right: What the other side made of it.
        is_text: Whether a member is a text; none is if left out.
    """
    merged: dict[str, Any] = {}
    for name in [*left, *[name for name in right if name not in left]]:
        values = base.get(name, ABSENT), left.get(name, ABSENT), right.get(name, ABSENT)
        value = _merge_value(*values, is_text=is_text is not None and is_text(name))
        if value is not ABSENT:
            merged[name] = value
    return merged


def is_same(left: Any, right: Any) -> bool:
    """Whether two values are equal as JSON, or both are not there."""
    if left is ABSENT or right is ABSENT:
        return left is right
    return canonical_text(left) == canonical_text(right)


def _merge_value(base: Any, left: Any, right: Any, *, is_text: bool) -> Any:
    if is_same(left, base):
        return right
    # What one side removed and the other one edited is wanted by somebody.
    if is_same(right, base) or right is ABSENT:
        return left
    if left is ABSENT:
        return right
    if isinstance(left, dict) and isinstance(right, dict):
        return merge_members(base if isinstance(base, dict) else {}, left=left, right=right)
    if isinstance(left, list) and isinstance(right, list):
        return merge_items(base if isinstance(base, list) else [], left=left, right=right)
    if is_text and isinstance(left, str) and isinstance(right, str):
        return merge_text(base if isinstance(base, str) else "", left=left, right=right)
    return left


def _merged(
    base: str | list[Any], left: Sequence[Hunk[Any]], right: Sequence[Hunk[Any]]
) -> list[Any]:
    """The parts of the merged value, in order."""
    mine = {hunk.start: hunk for hunk in left}
    hunks = [*left, *[hunk for hunk in right if not _is_alike(mine.get(hunk.start), hunk)]]
    removed = bytearray(len(base) + 1)
    inserted: dict[int, list[Any]] = {}
    cuts = {0, len(base)}
    for hunk in hunks:
        end = hunk.start + hunk.removed
        removed[hunk.start : end] = b"\1" * hunk.removed
        inserted.setdefault(hunk.start, []).append(hunk.inserted)
        cuts |= {hunk.start, end}
    parts: list[Any] = []
    for start, end in pairwise([*sorted(cuts), len(base)]):
        parts += inserted.get(start, [])
        if not removed[start]:
            parts.append(base[start:end])
    return parts


def _is_alike(mine: Hunk[Any] | None, theirs: Hunk[Any]) -> bool:
    if mine is None or mine.removed != theirs.removed:
        return False
    return is_same(mine.inserted, theirs.inserted)
