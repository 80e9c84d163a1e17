"""How fast is too fast: so much per second, so much at once, and a pause for who goes too far."""

from __future__ import annotations

import math


class TokenBucket:
    """Tokens that fill up with time and are taken one by one."""

    __slots__ = ("_burst", "_filled_ms", "_per_ms", "_tokens")

    def __init__(
        self, *, per_second: float, burst: float, now_ms: int, tokens: float | None = None
    ) -> None:
        """Start with some tokens; full if it is not said."""
        self._per_ms = per_second / 1000
        self._burst = burst
        self._tokens = burst if tokens is None else min(tokens, burst)
        self._filled_ms = now_ms

    def take(self, now_ms: int) -> int:
        """Take a token; 0, or in how many milliseconds there will be one."""
        self._fill(now_ms)
        if self._tokens >= 1:
            self._tokens -= 1
            return 0
        return max(1, int((1 - self._tokens) / self._per_ms))

    def borrow(self, now_ms: int, tokens: int = 1) -> int:
        """Take tokens that may not be there yet; in how many milliseconds they will be."""
        self._fill(now_ms)
        self._tokens -= tokens
        return max(0, math.ceil(-self._tokens / self._per_ms))

    def refill(self) -> None:
        """Make it full."""
        self._tokens = self._burst

    def _fill(self, now_ms: int) -> None:
        if now_ms > self._filled_ms:
            filled = self._tokens + (now_ms - self._filled_ms) * self._per_ms
            self._tokens = min(self._burst, filled)
        # A clock that jumps back costs the time that it jumped, and no more.
        self._filled_ms = now_ms


class Penalties:
    """Keys that were dropped for their faults, and have to wait before they are let in again."""

    __slots__ = ("_pause_ms", "_size_max", "_until")

    def __init__(self, *, pause_ms: int, size_max: int = 10_000) -> None:
        """Remember at most so many keys; past that the oldest are let off."""
        self._pause_ms = pause_ms
        self._size_max = size_max
        self._until: dict[str, int] = {}

    def add(self, key: str, now_ms: int) -> None:
        """Let a key wait from now on."""
        self._until.pop(key, None)
        if len(self._until) >= self._size_max:
            del self._until[next(iter(self._until))]
        self._until[key] = now_ms + self._pause_ms

    def wait_ms(self, key: str, now_ms: int) -> int:
        """How long a key still has to wait; 0 if it has not."""
        until = self._until.get(key, 0)
        if 0 < until <= now_ms:
            del self._until[key]
        # Nobody waits longer than the pause, whatever the clock does.
        return max(0, min(until - now_ms, self._pause_ms))
