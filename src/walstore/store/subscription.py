"""One callback that is told what changed.

- What it raises goes to its own `on_error`, else to whoever tells it; nobody else notices.
- An async callback runs one call at a time; what waits for it meanwhile is bounded.
- A bound method is held weakly, and so is an owner: the subscription ends with them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from walstore.store.references import held, is_async, weakly
from walstore.store.waiting import SlowConsumerError, Waiting

T = TypeVar("T")
_T_contra = TypeVar("_T_contra", contravariant=True)

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]

# What a callback may raise without anybody else noticing. A cancelled future that a callback looks
# into is its own trouble, not the cancellation of whoever made the edit.
FAILURES: Final = (Exception, asyncio.CancelledError)


class Listener(Protocol[_T_contra]):
    """Somebody who is told."""

    since: int

    def take(self, subject: _T_contra) -> None:
        """Be told of something."""
        ...

    def end(self) -> None:
        """Be told nothing more; what waits may still be handed out."""
        ...


class Host(Protocol):
    """Whoever tells a subscription."""

    spawn: Spawn
    count: int

    def drop(self, listener: object) -> None:
        """Tell a listener nothing more."""
        ...

    def drop_later(self, listener: object) -> None:
        """Take a listener out the next time that anything happens."""
        ...

    def report(self, error: BaseException, subscription: Subscription[Any]) -> None:
        """Take what the callback of a subscription raised and its owner does not handle."""
        ...


class Subscription(Generic[T]):
    """A callback that is told, until it is closed or what it belongs to is gone.

    Attributes:
        name: What it is called in errors and logs.
        since: How many changes there were before it came.
        is_closed: Whether it is told nothing more.
        was_logged: Whether an error of it was logged.
    """

    def __init__(
        self,
        host: Host,
        fn: Callable[..., object],
        waiting: Waiting[T],
        *,
        name: str,
        owner: object | None,
        on_error: Callable[[BaseException, T], object] | None,
    ) -> None:
        """Made by `Hub.subscribe`.

        Raises:
            NotWeakError: The owner, or a method's object, cannot be referenced weakly.
        """
        self.name = name
        self.since = host.count
        self.is_closed = False
        self.was_logged = False
        self._host = host
        self._waiting = waiting
        self._is_async = is_async(fn)
        self._is_busy = False
        self._is_expired = False
        self._fn = held(fn, self._expire)
        self._on_error = None if on_error is None else held(on_error)
        self._owner = None if owner is None else weakly(owner, self._expire)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Tell nothing more, not even what waits; a callback that runs already runs on."""
        self._waiting.clear()
        self.end()

    def end(self) -> None:
        """Take nothing more; what waits for an async callback is still told."""
        if not self.is_closed:
            self.is_closed = True
            self._host.drop(self)
        self._let_go()

    def take(self, subject: T) -> None:
        """Call the callback, or let it be called when the call before has ended."""
        if self.is_closed:
            return
        if self._is_async:
            self._wait(subject)
            return
        try:
            result = self._call(subject)
        except FAILURES as error:
            self.fail(error, subject)
        else:
            if inspect.iscoroutine(result):
                # A function that turns out to be async, such as a lambda around one.
                self._is_async = True
                self._work_on(result, subject)

    def fail(self, error: BaseException, subject: T) -> None:
        """Tell the owner of this subscription, and nobody else."""
        handler = None if self._on_error is None else self._on_error()
        if handler is None:
            self._host.report(error, self)
            return
        try:
            handler(error, subject)
        except FAILURES as another:
            self._host.report(another, self)

    def invoke(self, fn: Callable[..., object], subject: T) -> object:
        """Call the callback with what it is to be told."""
        return fn(subject)

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _call(self, subject: T) -> object:
        fn = None if self._is_expired else self._fn()
        return None if fn is None else self.invoke(fn, subject)

    def _expire(self) -> None:
        # The garbage collector calls this at any moment, so everything else is left for later.
        self.is_closed = self._is_expired = True
        self._host.drop_later(self)

    def _let_go(self) -> None:
        """Hold nothing of the subscriber's any more, once nothing will be called."""
        if self.is_closed and not self._is_busy:
            self._waiting.clear()
            self._fn = _nothing
            self._on_error = self._owner = None

    def _wait(self, subject: T) -> None:
        try:
            self._waiting.push(subject)
        except SlowConsumerError as error:
            self.fail(error, subject)
            self.close()
            return
        if not self._is_busy:
            self._work_on(None, subject)

    def _work_on(self, begun: Coroutine[Any, Any, object] | None, subject: T) -> None:
        self._is_busy = True
        work = self._work(begun, subject)
        try:
            self._host.spawn(work)
        except FAILURES as error:
            self._is_busy = False
            work.close()
            if begun is not None:
                begun.close()
            self.fail(error, subject)

    async def _work(self, begun: Coroutine[Any, Any, object] | None, subject: T) -> None:
        try:
            if begun is not None:
                await self._attend(begun, subject)
            while self._waiting:
                following = self._waiting.pop()
                await self._attend(None, following)
                # A callback that never waits for anything must not keep everybody else waiting.
                await asyncio.sleep(0)
        finally:
            self._is_busy = False
            self._let_go()

    async def _attend(self, begun: Coroutine[Any, Any, object] | None, subject: T) -> None:
        try:
            result = self._call(subject) if begun is None else begun
            if inspect.iscoroutine(result):
                await result
        except FAILURES as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            self.fail(error, subject)


def _nothing() -> None:
    return None


def _is_cancelled() -> bool:
    """Whether the task itself is being cancelled, rather than something that it looked into."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
