"""Taking turns: one task after the other, in the order in which they asked.

- Whoever finds nobody before them goes on at once, without giving way to other tasks.
- A turn is handed over, never up for grabs; who is cancelled while they wait passes it on.
"""

from __future__ import annotations

from collections import deque

import anyio


class Turns:
    """An asynchronous context manager that one task at a time is inside of."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[anyio.Event] = deque()

    async def __aenter__(self) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        turn = anyio.Event()
        self._waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self._pass_on()
            else:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._is_taken = False
