"""Commits told to a function of the application."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import cast

from walstore.archive.one_thread import OneThread, ThreadBusyError
from walstore.archive.sink import CommitEvent, SinkError


class CallbackSink:
    """Calls a function. One that is no coroutine function runs in a thread, as it may block."""

    def __init__(
        self,
        function: Callable[[CommitEvent], Awaitable[None]] | Callable[[CommitEvent], None],
        *,
        name: str = "callback",
    ) -> None:
        """Tell a function; if it raises, it is called again later."""
        self._function = function
        self._name = name
        self._thread = OneThread()

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        return self._name

    async def publish(self, event: CommitEvent) -> None:
        """Call the function; raises what it raises, and as `EventSink.publish` does."""
        if inspect.iscoroutinefunction(self._function):
            await self._function(event)
            return
        call = cast(Callable[[CommitEvent], None], self._function)
        try:
            await self._thread.run(lambda: call(event))
        except ThreadBusyError as error:
            raise SinkError(self._name, str(error), retryable=True) from error

    async def aclose(self) -> None:
        """There is nothing to let go of."""
