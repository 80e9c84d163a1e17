"""Whether anybody hears what a widget says.

A message passes every ancestor of the widget that posts it, one after the other, and each takes a
turn of the event loop for it. What no class of any of them handles need not be said.
"""

from __future__ import annotations

from textual.message import Message
from textual.widget import Widget


def is_heard(widget: Widget, kind: type[Message]) -> bool:
    """Whether the widget or one of its ancestors handles a kind of message."""
    return any(_hears(type(node), kind) for node in widget.ancestors_with_self)


def _hears(hearer: type, kind: type[Message]) -> bool:
    names = {kind.handler_name, f"_{kind.handler_name}"}
    for each in hearer.__mro__:
        members = vars(each)
        if not names.isdisjoint(members):
            return True
        if any(issubclass(kind, heard) for heard in members.get("_decorated_handlers", ())):
            return True
    return False
