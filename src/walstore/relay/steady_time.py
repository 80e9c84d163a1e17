"""The time that a relay stamps elements with: the system's, but for jumps ahead that do not last.

- A `ts` that is far ahead is refused by all readers until its day has come, and so is everything
  that is appended to the same document later: `ts` always increases.
- How far the system's time went ahead is measured by the clock that never jumps. A small step is
  followed, and so is every step back, which no `ts` follows.
- A large step ahead is followed once it has lasted: the machine may have slept, or was only then
  told what day it is. Meanwhile time goes on as it did before. It lasts as long as it is seen: one
  that nobody has looked at for a while may have ended and begun again, so it begins anew, and so
  it does where another large step follows. A relay looks every so often, also if nobody writes.
- What the time is at the start is believed: a relay may have been off for months.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from walstore.wire.limits import TS_AHEAD_MS_MAX

_logger = logging.getLogger("walstore.relay")

# What is followed at once. A reader whose clock is behind by as much again still takes it.
STEP_MS_MAX = TS_AHEAD_MS_MAX // 2

# How long a larger step has to last.
LASTING_MS = 3_600_000

# For how long nobody may have looked at it. A relay looks ten times as often.
UNSEEN_MS_MAX = 300_000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class SteadyTime:
    """Tells the time, in milliseconds since 1970."""

    def __init__(
        self, now_ms: Callable[[], int], monotonic_ms: Callable[[], int] = _monotonic_ms
    ) -> None:
        """Begin with what the time is now.

        Args:
            now_ms: The system's time.
            monotonic_ms: A clock that never jumps, from whenever it began.
        """
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        # What the clock that never jumps is behind by; when a large step was first seen, when last,
        # and what that clock was behind by then.
        self._offset_ms = now_ms() - monotonic_ms()
        self._stepped_at_ms: int | None = None
        self._seen_at_ms = 0
        self._seen_offset_ms = 0

    def __call__(self) -> int:
        """The time now."""
        at_ms = self._monotonic_ms()
        offset_ms = self._now_ms() - at_ms
        if offset_ms <= self._offset_ms + STEP_MS_MAX or self._has_lasted(at_ms, offset_ms):
            self._offset_ms, self._stepped_at_ms = offset_ms, None
        return at_ms + self._offset_ms

    def _has_lasted(self, at_ms: int, offset_ms: int) -> bool:
        is_other = abs(offset_ms - self._seen_offset_ms) > STEP_MS_MAX
        if self._stepped_at_ms is None or is_other or at_ms - self._seen_at_ms > UNSEEN_MS_MAX:
            self._stepped_at_ms = at_ms
            hours = (offset_ms - self._offset_ms) // 3_600_000
            _logger.error("the clock jumped ahead by %d h; it is not followed for an hour", hours)
        self._seen_at_ms, self._seen_offset_ms = at_ms, offset_ms
        return at_ms - self._stepped_at_ms >= LASTING_MS
