"""From a value to the few edits that lead to it.

- `diff_text` and `diff_items` say by position what a new value changes in an old one.
- `edits_by_id` says it by element id, so that it still holds when the document has moved on.
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
from walstore.reconcile.three_way import BaseIds, EditById, InsertAfter, RemoveIds, edits_by_id

__all__ = [
    "BaseIds",
    "EditById",
    "Hunk",
    "InsertAfter",
    "ItemEdit",
    "RemoveIds",
    "Replaced",
    "apply_to_items",
    "apply_to_text",
    "as_hunks",
    "diff_items",
    "diff_text",
    "edits_by_id",
]
