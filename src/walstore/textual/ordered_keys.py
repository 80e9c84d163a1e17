"""Widgets in which keys act in the order in which they were pressed, however fast they come.

Textual takes a key that is bound up to the app and back. Characters that arrive in the same moment
are typed meanwhile, where the cursor still is. Here a widget acts on its own keys at once.
"""

from __future__ import annotations

from textual import events
from textual.widgets import Input, TextArea


async def act_at_once(widget: Input | TextArea, event: events.Key) -> None:
    """Act on a key that a widget has bound, before it hears of the next one."""
    if event.is_printable:
        return
    for binding in widget._bindings.key_to_bindings.get(event.key, ()):
        if await widget.app.run_action(binding.action, widget):
            widget._restart_blink()
            event.stop()
            event.prevent_default()
            return


class OrderedInput(Input):
    """An `Input` in which keys act in the order in which they were pressed."""

    async def _on_key(self, event: events.Key) -> None:
        await act_at_once(self, event)
