"""Blocking calls in a thread, one at a time, so that one that hangs takes no more than itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

_Result = TypeVar("_Result")


class ThreadBusyError(Exception):
    """The call before has not ended yet."""

    def __init__(self) -> None:
        super().__init__("the call before has not ended yet")


class OneThread:
    """Runs blocking calls; whoever stops waiting for one leaves it behind."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._is_busy = False

    async def run(self, call: Callable[[], _Result]) -> _Result:
        """Run a call, and return what it returns.

        Raises:
            ThreadBusyError: One that was left behind has not ended yet.
        """
        if self._is_busy:
            raise ThreadBusyError
        has_begun = False

        def work() -> _Result:
            nonlocal has_begun
            has_begun = True
            try:
                return call()
            finally:
                self._is_busy = False

        self._is_busy = True
        try:
            # Not among the threads that others share: this one may never come back.
            return await to_thread.run_sync(
                work, abandon_on_cancel=True, limiter=CapacityLimiter(1)
            )
        finally:
            if not has_begun:
                self._is_busy = False
