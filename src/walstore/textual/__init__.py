"""Textual widgets that are bound to a store.

- `CollabTextArea` is a text that is edited together.
- `BlameArea` is a text that is only read, and who wrote what of it.
- `ThriftyScreen` is a screen for apps that are drawn with every key: an app returns one from
  `get_default_screen`.
- `OrderedInput` is an `Input` in which keys act in their order, however fast they come.
- The `bind_` functions tie ordinary widgets to paths.
- `run_until_told` runs an app, and leaves it in order when its process is told to end.
- `DARK` and `LIGHT` are themes in which authors' colours can be read.
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
from walstore.textual.blame_area import BlameArea
from walstore.textual.carets import RemoteCaret, author_color, color_of, name_of, session_of
from walstore.textual.leaving import run_until_told
from walstore.textual.ordered_keys import OrderedInput
from walstore.textual.text_area import CollabTextArea, NotTextError
from walstore.textual.text_document import shown
from walstore.textual.themes import DARK, LIGHT
from walstore.textual.thrifty_screen import ThriftyScreen

__all__ = [
    "DARK",
    "LIGHT",
    "Binding",
    "BlameArea",
    "CollabTextArea",
    "Cursor",
    "NotTextError",
    "OrderedInput",
    "Person",
    "RemoteCaret",
    "ThriftyScreen",
    "author_color",
    "bind_input",
    "bind_list",
    "bind_options",
    "bind_table",
    "bind_toggle",
    "color_of",
    "name_of",
    "run_until_told",
    "session_of",
    "shown",
]
