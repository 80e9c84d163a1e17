"""An event loop whose time is counted, not waited for, and that has no threads.

- When nothing is ready, its clock jumps to the next timer. A loop in which nothing is ready and
  nothing is timed will never go on: that is a `StalledError`, not a wait.
- Work for threads is done at once, in the loop's own.
- What runs next depends on nothing but what ran before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from walstore.testing.simulator.interposing import NODE, Node

if TYPE_CHECKING:
    from walstore.testing.simulator.pipes import Network


class StalledError(Exception):
    """Everybody waits for somebody, and no time is left to pass."""

    def __init__(self) -> None:
        super().__init__("everybody waits, and nothing is timed: a deadlock")


class _NoSockets:
    """Stands where a loop waits for sockets."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StalledError
        self._loop.advance(timeout)
        return []


# What is due so soon is due now, as for any loop.
_TICK_S = 1e-9


class _Counted:
    """What sets hold in the order of its making, and not of its place in memory."""

    _number: int

    def __new__(cls, *_: Any, loop: VirtualLoop, **__: Any) -> Any:
        made: Any = super().__new__(cls)
        made._number = next(loop.numbers)
        return made

    def __hash__(self) -> int:
        return self._number


class _Task(_Counted, asyncio.Task[Any]):
    """A task with a place of its own among others."""


class _Future(_Counted, asyncio.Future[Any]):
    """The same for whatever else is waited for."""


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop in virtual time, which begins at 0."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _NoSockets(self)
        self._now_s = 0.0
        self._clock_resolution = _TICK_S
        self.numbers = count(1)
        self.network: Network | None = None
        # All tasks, in the order in which they were begun, and whose they are.
        self.tasks: dict[asyncio.Task[Any], Node | None] = {}
        self.set_task_factory(self._new_task)

    def _new_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        task = _Task(work, loop=self, **options)
        self.tasks[task] = NODE.get(None)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)

    def create_future(self) -> asyncio.Future[Any]:
        """Something to wait for."""
        return _Future(loop=self)

    def time(self) -> float:
        """The seconds since the beginning."""
        return self._now_s

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Call something later, and let time pass until then, however little."""
        late = max(when, self._now_s + _TICK_S)
        return super().call_at(late, callback, *args, context=context)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += max(seconds, 0.0)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do something that a thread would do, in the next round."""
        done = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - handed to whoever waits for it
                done.set_exception(error)

        self.call_soon(work)
        return done

    async def create_server(self, *args: Any, **_: Any) -> Any:
        """Listen within the fleet."""
        assert self.network is not None
        factory, _, port = args
        return self.network.listen(factory, port)

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """Connect within the fleet."""
        assert self.network is not None
        return await self.network.connect(args[0], options["port"])

    # What the base class leaves to loops with sockets.

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody needs to be woken."""
