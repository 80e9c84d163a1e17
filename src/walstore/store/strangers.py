"""What was rejected because its author is a stranger, until it is known whether that is so.

- Somebody new may be read before the roster that names them: that is no alarm. So it is looked at
  the roster once more, and told only if that does not explain it.
- It counts as rejected from the beginning; only the telling waits. What finds no room to wait is
  told at once, and so is what nobody proves to have signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from walstore.document.events import NOT_A_WRITER, Event, Rejection

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
        """Keep an event back, if its author was a stranger; whether it is."""
        if not isinstance(event, Rejection) or not event.proven or event.reason != NOT_A_WRITER:
            return False
        if len(self._held) >= _HELD_MAX:
            return False
        self._held.append(event)
        return True

    def tell_all(self, rejected: Iterable[Rejection]) -> None:
        """Tell of those who still are strangers, after a look.

        Args:
            rejected: What is rejected by now: whoever turned out to be known was read anew.
        """
        held, self._held = self._held, []
        places = {(event.ts, event.author) for event in rejected}
        for event in held:
            is_known = event.author is not None and self._is_writer(event.author)
            if not is_known or (event.ts, event.author) in places:
                self._tell(event)
