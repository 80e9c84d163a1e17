"""What happened in a run, line by line, and the digest that names it.

Two runs are the same run if, and only if, their digests are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha256


class Trace:
    """The lines of one run."""

    def __init__(self, now_s: Callable[[], float], *, is_kept: bool = False) -> None:
        self._now_s = now_s
        self._is_kept = is_kept
        self._hash = sha256()
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def __call__(self, who: str, what: str, details: object = "") -> None:
        """Note that something happened; `what` is counted."""
        self.counts[what] += 1
        line = f"{self._now_s() * 1000:10.1f} {who:8} {what} {details}"
        self._hash.update(line.encode())
        if self._is_kept:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """Names the run."""
        return self._hash.hexdigest()
