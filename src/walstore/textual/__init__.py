"""Textual widgets that are bound to a store.

- `CollabTextArea` is a text that is edited together.
- The `bind_` functions tie ordinary widgets to paths.
- `author_color` and `name_of` are what to show of somebody who is here, `Cursor` is where they are.
"""

from walstore.store.presence import Cursor, Person
from walstore.textual.bindings import (
    Binding,
    bind_input,
    bind_list,
    bind_options,
    bind_table,
    bind_toggle,
)
from walstore.textual.carets import RemoteCaret, author_color, color_of, name_of, session_of
from walstore.textual.text_area import CollabTextArea, NotTextError
from walstore.textual.text_document import shown

__all__ = [
    "Binding",
    "CollabTextArea",
    "Cursor",
    "NotTextError",
    "Person",
    "RemoteCaret",
    "author_color",
    "bind_input",
    "bind_list",
    "bind_options",
    "bind_table",
    "bind_toggle",
    "color_of",
    "name_of",
    "session_of",
    "shown",
]
