"""What was rejected because its author is a stranger, until it is known whether that is so.

- Somebody new may be read before the roster that names them: that is no alarm. So it is looked at
  the roster once more, and told only if that does not explain it.
- It counts as rejected from the beginning; only the telling waits. What finds no room to wait is
  told at once.
"""

from __future__ import annotations

from collections.abc import Callable

from walstore.document.events import Event, Rejection

# How many wait at most.
_HELD_MAX = 256


class Strangers:
    """The events that wait for a look at the roster."""

    def __init__(self, is_writer: Callable[[str], bool], tell: Callable[[Event], None]) -> None:
        """Hold nothing yet.

        Args:
            is_writer: Whether somebody is known, as far as was heard.
            tell: Tells of an event.
        """
        self._is_writer = is_writer
        self._tell = tell
        self._held: list[Rejection] = []

    def hold(self, event: Event) -> bool:
        """Keep an event back, if its author is a stranger; whether it is."""
        if not isinstance(event, Rejection) or event.author is None:
            return False
        if self._is_writer(event.author) or len(self._held) >= _HELD_MAX:
            return False
        self._held.append(event)
        return True

    def tell_all(self) -> None:
        """Tell of those who still are strangers, after a look; whoever is none was read anew."""
        held, self._held = self._held, []
        for event in held:
            if event.author is None or not self._is_writer(event.author):
                self._tell(event)
