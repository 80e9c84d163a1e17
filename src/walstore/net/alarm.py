"""When a client has to be told the time again: not before somebody in it waits for that.

- Whoever waits for a moment says so, every time that it moves nearer. A moment that has moved away
  is looked at once too often, which does no harm.
- When nobody waits, there is no moment, and nothing has to wake up.
"""

from __future__ import annotations


class Alarm:
    """The nearest moment that anybody waits for.

    Attributes:
        due_ms: That moment; None if nobody waits.
    """

    def __init__(self) -> None:
        self.due_ms: int | None = None

    def at(self, due_ms: int) -> None:
        """Wait for a moment."""
        if self.due_ms is None or due_ms < self.due_ms:
            self.due_ms = due_ms

    def clear(self) -> None:
        """All are about to say anew what they wait for."""
        self.due_ms = None
