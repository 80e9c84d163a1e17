"""The few characters in which a new text differs from an old one.

- Positions and counts are code points, as the elements of a text are.
- Small differences are minimal: removed and inserted characters are `len(old) + len(new)` less
  twice their longest common subsequence. Large ones get coarser, never wrong (`alignment`).
- Where one edit can be said in several places, the caret decides, else the last place.
- No hunk splits a grapheme cluster of either text, even if that takes a few characters more.
"""

from __future__ import annotations

from walstore.reconcile.alignment import align_text
from walstore.reconcile.gaps import Gap, trim
from walstore.reconcile.graphemes import keep_clusters_whole
from walstore.reconcile.hunks import Hunk


def diff_text(old: str, new: str, *, caret: int | None = None) -> list[Hunk[str]]:
    """The hunks that turn `old` into `new`; none if they are equal.

    Args:
        old: The text that was shown.
        new: The text after the edit.
        caret: Where in `new` the caret is after the edit. `aaa` → `aaaa` with the caret at 2
            inserted the second `a`. A caret that explains no edit is ignored.
    """
    if old == new:
        return []
    gap = trim(old, new, _before_caret(old, new, caret))
    gaps = keep_clusters_whole(old, new, align_text(old, new, gap))
    return [
        Hunk(start, end - start, new[new_start:new_end]) for start, end, new_start, new_end in gaps
    ]


def _before_caret(old: str, new: str, caret: int | None) -> Gap:
    """All of both texts, or what is before the caret if the rest of `new` is untouched."""
    if caret is None or not 0 <= caret <= len(new) or not old.endswith(new[caret:]):
        return Gap(0, len(old), 0, len(new))
    return Gap(0, len(old) - len(new) + caret, 0, caret)
