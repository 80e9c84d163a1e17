"""Callbacks of a store that act on a widget, in the context of the widget's app.

- A store calls from its own tasks, or from within another app's: Textual looks there for the app
  that a widget belongs to.
- A widget that belongs to no app any more is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from textual.app import App
from textual.message_pump import MessagePump
from textual.widget import Widget

P = ParamSpec("P")


def call_in_app(widget: Widget, fn: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a function as if the widget's app did, unless the widget is going or gone."""
    app = _app_of(widget)
    if app is not None and is_alive(widget):
        with app._context():
            fn(*args, **kwargs)


def is_alive(widget: Widget) -> bool:
    """Whether a widget is part of an app: from when it is being mounted until it goes."""
    return widget.is_running and widget.is_attached and not widget._pruning


def _app_of(widget: Widget) -> App[object] | None:
    node: MessagePump | None = widget
    while node is not None and not isinstance(node, App):
        node = node._parent
    return node
