"""How far long work has come, on standard error, when a person is watching."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType

_INTERVAL_S = 0.1
_WIDTH = 24

# How often work is looked at that does not say by itself how far it is.
_LOOK_S = 0.5


class Progress:
    """A line that is written over, again and again; nothing at all if nobody watches.

    Attributes:
        is_watched: Whether anybody watches.
    """

    def __init__(self, what: str) -> None:
        """Name what is counted, such as `objects`."""
        self._what = what
        self.is_watched = sys.stderr.isatty()
        self._shown_at = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown_at:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def show(self, done: int, total: int | None = None) -> None:
        """Show how many there are by now, of how many if that is known."""
        now = time.monotonic()
        if not self.is_watched or now - self._shown_at < _INTERVAL_S:
            return
        self._shown_at = now
        line = f"{done:,} {self._what}"
        if total:
            filled = "█" * (_WIDTH * min(done, total) // total)
            line = f"{filled:░<{_WIDTH}} {done:,} of {total:,} {self._what}"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


@asynccontextmanager
async def watched(what: str, count: Callable[[], int]) -> AsyncIterator[None]:
    """Show now and then how much there is, for as long as a block lasts."""
    with Progress(what) as progress:
        if not progress.is_watched:
            yield
            return

        async def look() -> None:
            while True:
                await asyncio.sleep(_LOOK_S)
                progress.show(count())

        looking = asyncio.create_task(look())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait([looking])
