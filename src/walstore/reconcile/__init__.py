"""From a value to the few edits that lead to it.

- `diff_text` and `diff_items` say by position what a new value changes in an old one.
- Nothing here changes a document: the results are plain records for the layer above.
"""

from walstore.reconcile.hunks import (
    Hunk,
    ItemEdit,
    Replaced,
    apply_to_items,
    apply_to_text,
    as_hunks,
)
from walstore.reconcile.items import diff_items
from walstore.reconcile.text import diff_text

__all__ = [
    "Hunk",
    "ItemEdit",
    "Replaced",
    "apply_to_items",
    "apply_to_text",
    "as_hunks",
    "diff_items",
    "diff_text",
]
