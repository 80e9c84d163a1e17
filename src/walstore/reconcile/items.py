"""The few items in which a new list differs from an old one.

- Items are equal when their canonical texts are: 1 and 1.0 are, 1 and True are not.
- What stays is a longest common subsequence, so a moved item is removed and inserted again.
  Past the limits of `alignment` the result gets coarser, never wrong.
- With a key, items are the same when their keys are; new content is a `Replaced`, not a removal
  and an insertion. A key that a side has twice identifies nothing; such items, and those
  without a key, are compared by content.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from typing import TypeVar, overload

from walstore.canon import INTEGER_MAX, canonical_text
from walstore.reconcile.alignment import align_tokens
from walstore.reconcile.gaps import Gap
from walstore.reconcile.hunks import Hunk, ItemEdit, Replaced

T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")


@overload
def diff_items(old: Sequence[T], new: Sequence[T], *, key: None = None) -> list[Hunk[list[T]]]: ...


@overload
def diff_items(
    old: Sequence[T], new: Sequence[T], *, key: str | Callable[[T], object]
) -> list[ItemEdit[T]]: ...


def diff_items(
    old: Sequence[T], new: Sequence[T], *, key: str | Callable[[T], object] | None = None
) -> list[ItemEdit[T]] | list[Hunk[list[T]]]:
    """The edits that turn `old` into `new`; none if they are equal.

    Args:
        old: The items that were shown.
        new: The items after the edit.
        key: The name of the member, or a function of an item, that identifies it; None as its
            value means that the item has no key.

    Raises:
        NotJsonError: An item or a key is not a JSON value.
    """
    old_contents, new_contents = [_token(item) for item in old], [_token(item) for item in new]
    if key is None:
        return [_hunk(gap, new) for gap in align_tokens(old_contents, new_contents)]
    old_keys, new_keys = (
        [_key_token(item, key) for item in old],
        [_key_token(item, key) for item in new],
    )
    known = _once(old_keys) & _once(new_keys)
    gaps = align_tokens(
        _identities(old_keys, old_contents, known), _identities(new_keys, new_contents, known)
    )
    return list(_edits(gaps, old_contents, new_contents, new))


def _edits(
    gaps: Sequence[Gap], old: Sequence[Hashable], new: Sequence[Hashable], items: Sequence[T]
) -> Iterator[ItemEdit[T]]:
    """The gaps as hunks, and what changed in the items between them."""
    old_at, new_at = 0, 0
    for gap in [*gaps, Gap(len(old), len(old), len(new), len(new))]:
        for start in range(old_at, gap.old_start):
            new_start = new_at + start - old_at
            if old[start] != new[new_start]:
                yield Replaced(start, items[new_start])
        if gap.old_start < gap.old_end or gap.new_start < gap.new_end:
            yield _hunk(gap, items)
        old_at, new_at = gap.old_end, gap.new_end


def _hunk(gap: Gap, items: Sequence[T]) -> Hunk[list[T]]:
    inserted = list(items[gap.new_start : gap.new_end])
    return Hunk(gap.old_start, gap.old_end - gap.old_start, inserted)


def _identities(
    keys: Sequence[Hashable], contents: Sequence[Hashable], known: Set[Hashable]
) -> list[Hashable]:
    # A pair never equals the token of a content.
    return [
        ("key", key) if key in known else content
        for key, content in zip(keys, contents, strict=True)
    ]


def _once(keys: Sequence[Hashable]) -> set[Hashable]:
    return {key for key, count in Counter(keys).items() if count == 1 and key is not None}


def _key_token(item: T, key: str | Callable[[T], object]) -> Hashable:
    if isinstance(key, str):
        return _token(item.get(key)) if isinstance(item, Mapping) else None
    return _token(key(item))


def _token(item: object) -> Hashable:
    """What equals the token of another item exactly if the items are equal."""
    # Subclasses are left to `canonical_text`, which refuses them.
    if type(item) is str:
        return item if item.isascii() else _with_pairs_joined(item)
    # Numbers are equal and hash alike whatever their type, which is what canonical texts do.
    if (type(item) is int or type(item) is float) and -INTEGER_MAX <= item <= INTEGER_MAX:
        return item
    if item is None:
        return None
    # In a tuple, so that a canonical text never equals a string item.
    return (canonical_text(item),)


def _with_pairs_joined(text: str) -> str:
    """The text with each two halves of a surrogate pair as the one character that they mean."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
