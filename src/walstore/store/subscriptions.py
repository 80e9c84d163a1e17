"""Who is told what changed: each subscriber, of every change, once, in order, after the fold.

- Whoever folds delivers at once. A change is told to all before the next one is; what callbacks
  write meanwhile is queued and makes the next round, for everybody. There is no recursion.
- A subscriber is told what was folded after it came, and nothing after it was closed.
- What a subscriber raises goes to its own `on_error`, else to the hub's; neither other subscribers
  nor whoever made the edit notice. `KeyboardInterrupt` and its like wait until all were told.
- A callback that goes on writing in answer to its own writes is closed after `ROUNDS_MAX` rounds,
  or as soon as that makes more than `ANSWERS_MAX` changes in one round.
  An async one may go on for ever, as a task does, but lets others run in between.
- Async callbacks of one subscription run one at a time. What waits is bounded: up to a buffer
  change by change, then one change by path, and past `PATHS_MAX` paths the subscription ends.
  Changes of different paths may then come in another order; those of one path never do.
- Bound methods are held weakly, and so are owners: a subscription ends with them.
- There is no clock, no network and no polling here.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar
from weakref import WeakMethod, ref

from walstore.errors import UsageError
from walstore.store.change import (
    Assigned,
    Change,
    Deleted,
    ReadState,
    Splices,
    coalesce,
    replaced,
    succeed,
)
from walstore.store.paths import PathIndex, Pattern

T = TypeVar("T")
_T_contra = TypeVar("_T_contra", contravariant=True)

# Changes that wait one by one for whoever is slow.
BUFFER_DEFAULT = 1_024
# Paths that may wait for whoever is slow: keys can come and go without end.
PATHS_MAX = 65_536
# Rounds of callbacks that answer one another before they count as a loop.
ROUNDS_MAX = 100
# Changes of one round before those who answered their own writes count as a loop: two who each
# answer the other twice would double them every round.
ANSWERS_MAX = 10_000

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]

_logger: Final = logging.getLogger("walstore.store")

# What a callback may raise without anybody else noticing. A cancelled future that a callback looks
# into is its own trouble, not the cancellation of whoever made the edit.
_FAILURES: Final = (Exception, asyncio.CancelledError)


class HubClosedError(UsageError):
    """There will be no more changes to subscribe to."""

    def __init__(self) -> None:
        super().__init__("the store is closed")


class NotWeakError(UsageError):
    """A method's object, or an owner, cannot be referenced weakly.

    Attributes:
        name: What it is.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} cannot be referenced weakly: give its class a `__weakref__` slot, "
            "or subscribe a function and close the subscription yourself"
        )
        self.name = name


class SlowConsumerError(UsageError):
    """A consumer has fallen too far behind, and what waited for it was let go.

    Attributes:
        waiting: How many changes, or paths, waited.
    """

    def __init__(self, waiting: int) -> None:
        super().__init__(f"too slow: {waiting} changes were waiting; read the document anew")
        self.waiting = waiting


class FeedbackLoopError(UsageError):
    """A callback kept writing in answer to its own writes; its subscription was closed.

    Attributes:
        name: The subscription.
        rounds: How many rounds it took part in a loop.
    """

    def __init__(self, name: str, rounds: int) -> None:
        super().__init__(f"{name} answers its own writes without end, {rounds} rounds by now")
        self.name = name
        self.rounds = rounds


class Waiting(Protocol[T]):
    """What waits for a slow subscriber."""

    def __len__(self) -> int: ...

    def push(self, subject: T) -> None:
        """Take one more; raises `SlowConsumerError` if that is one too many."""
        ...

    def pop(self) -> T:
        """Hand out the next one."""
        ...

    def clear(self) -> None:
        """Let everything go."""
        ...


class ChangeQueue:
    """Changes that wait: one by one up to a buffer, then one by path until all were read."""

    __slots__ = ("_buffer", "_by_path", "_is_strict", "_one_by_one", "_read", "_unread")

    def __init__(self, read: ReadState, *, buffer: int, is_strict: bool) -> None:
        """Hold nothing; a strict queue holds no more than its buffer."""
        self._read = read
        self._buffer = buffer
        self._is_strict = is_strict
        self._one_by_one: deque[Change] = deque()
        self._by_path: OrderedDict[str, Change] = OrderedDict()
        # Paths of lists whose delta became too large: their value is read when they are handed out.
        self._unread: set[str] = set()

    def __len__(self) -> int:
        return len(self._one_by_one) + len(self._by_path)

    def push(self, change: Change) -> None:
        """Take one more.

        Raises:
            SlowConsumerError: Too many wait.
        """
        if not self._by_path and len(self._one_by_one) < self._buffer:
            self._one_by_one.append(change)
            return
        if self._is_strict:
            raise SlowConsumerError(len(self))
        while self._one_by_one:
            self._merge(self._one_by_one.popleft())
        self._merge(change)

    def pop(self) -> Change:
        """Hand out the change that waits longest."""
        if self._one_by_one:
            return self._one_by_one.popleft()
        path, change = self._by_path.popitem(last=False)
        if path not in self._unread:
            return change
        self._unread.remove(path)
        value = self._read.list_value(path)
        kind: Literal["text", "list"] = "text" if isinstance(value, str) else "list"
        return change._replace(kind=kind, delta=Assigned(value))

    def clear(self) -> None:
        """Let everything go."""
        self._one_by_one.clear()
        self._by_path.clear()
        self._unread.clear()

    def _merge(self, change: Change) -> None:
        path = change.path
        for key in replaced(self._by_path, change, attrgetter("kind")):
            del self._by_path[key]
        waiting = self._by_path.get(path)
        if waiting is None:
            if len(self._by_path) >= max(PATHS_MAX, self._buffer):
                raise SlowConsumerError(len(self))
            self._by_path[path] = change
            return
        is_splices = isinstance(change.delta, Splices)
        merged = None if path in self._unread and is_splices else coalesce(waiting, change)
        if merged is None:
            self._unread.add(path)
            self._by_path[path] = succeed(waiting, change, Deleted())
        else:
            self._unread.discard(path)
            self._by_path[path] = merged


class Listener(Protocol[_T_contra]):
    """Somebody who is told."""

    since: int

    def take(self, subject: _T_contra) -> None:
        """Be told of something."""
        ...

    def end(self) -> None:
        """Be told nothing more; what waits may still be handed out."""
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
        hub: Hub,
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
        self.since = hub.count
        self.is_closed = False
        self.was_logged = False
        self._hub = hub
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
            self._hub.drop(self)
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
        except _FAILURES as error:
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
            self._hub.report(error, self)
            return
        try:
            handler(error, subject)
        except _FAILURES as another:
            self._hub.report(another, self)

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
        self._hub.drop_later(self)

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
            self._hub.spawn(work)
        except _FAILURES as error:
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
        except _FAILURES as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            self.fail(error, subject)


class ChangeStream(AsyncIterator[Change]):
    """The changes from its making on, for one reader at its own pace.

    It ends with the hub, after what was waiting; when it is closed; or with nobody left who
    could read it.
    """

    def __init__(self, feed: _Feed) -> None:
        """Made by `Hub.changes`."""
        self._feed = feed
        feed.follow(self)

    async def __anext__(self) -> Change:
        """The next change.

        Raises:
            SlowConsumerError: Too much has happened since the last one; there will be no more.
        """
        return await self._feed.next()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End at once, for whoever waits as well."""
        self._feed.close()


class _Feed:
    """What waits for an iterator, which does not know whether anybody still reads it."""

    def __init__(self, hub: Hub, waiting: Waiting[Change]) -> None:
        self.since = hub.count
        self._hub = hub
        self._waiting = waiting
        self._error: SlowConsumerError | None = None
        self._is_closed = False
        self._news = asyncio.Event()
        self._reader: Callable[[], object] | None = None

    def follow(self, reader: ChangeStream) -> None:
        self._reader = weakly(reader, self._expire)

    def take(self, change: Change) -> None:
        if self._is_closed:
            return
        try:
            self._waiting.push(change)
        except SlowConsumerError as error:
            self._error = error
            self.close()
        self._news.set()

    async def next(self) -> Change:
        while not self._waiting:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.pop()

    def close(self) -> None:
        self._waiting.clear()
        self.end()

    def end(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._hub.drop(self)
        self._news.set()

    def _expire(self) -> None:
        self._is_closed = True
        self._hub.drop_later(self)


class _Cause(NamedTuple):
    """Whose callback made a write, and what that callback was told of."""

    subscription: Subscription[Any]
    before: _Cause | None


class _Entry(NamedTuple):
    """Something to be told: a change to all who want its path, or anything to one subscription."""

    number: int
    subject: Any
    only: Subscription[Any] | None
    cause: _Cause | None


# Sees changes right after the fold, before anybody is told, and may have more to tell to some. It
# reads and writes nothing.
Watcher: TypeAlias = Callable[[Sequence[Change]], Iterable[tuple[Subscription[Any], Any]]]


class Hub:
    """Tells subscribers what changed.

    Attributes:
        read: The document as it is now.
        spawn: Runs a coroutine as a task.
        count: How many changes were delivered, told or not.
    """

    def __init__(
        self,
        read: ReadState,
        spawn: Spawn,
        *,
        on_error: Callable[[BaseException, Subscription[Any]], object] | None = None,
        exception_handler: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        """Begin with nobody.

        Args:
            read: The document as it is now.
            spawn: Runs a coroutine as a task.
            on_error: Given what the callback of a subscription without one of its own raised.
            exception_handler: Given the same if there is no `on_error`, in the form that an event
                loop's `call_exception_handler` takes, after the first one was logged.
        """
        self.read = read
        self.spawn = spawn
        self.count = 0
        self._on_error = on_error
        self._exception_handler = exception_handler
        self._index: PathIndex[Listener[Change]] = PathIndex()
        self._places: dict[object, tuple[Pattern, int] | None] = {}
        # Listeners that the garbage collector ended, still to be taken out.
        self._ended: deque[object] = deque()
        self._watchers: list[Watcher] = []
        self._queue: list[_Entry] = []
        self._is_delivering = False
        self._is_closed = False
        self._telling: Subscription[Any] | None = None
        self._told_because: _Cause | None = None
        self._interrupt: BaseException | None = None

    # ── subscribing ────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        pattern: str | Pattern,
        fn: Callable[[Change], object],
        *,
        owner: object | None = None,
        on_error: Callable[[BaseException, Change], object] | None = None,
    ) -> Subscription[Change]:
        """Call a function with every change of the paths of a pattern from now on.

        Args:
            pattern: The paths.
            fn: The function, sync or async. A bound method is held weakly.
            owner: The subscription ends with it, if the function does not keep it alive.
            on_error: Called with what the function raised and the change that it was told of; a
                bound method is held weakly.

        Raises:
            HubClosedError: There will be no more changes.
            NotWeakError: The owner, or a method's object, cannot be referenced weakly.
        """
        pattern = pattern if isinstance(pattern, Pattern) else Pattern(pattern)
        waiting = ChangeQueue(self.read, buffer=BUFFER_DEFAULT, is_strict=False)
        subscription = Subscription(
            self, fn, waiting, name=name_of(fn, pattern.text), owner=owner, on_error=on_error
        )
        self._add(subscription, pattern)
        return subscription

    def changes(
        self,
        pattern: str | Pattern,
        *,
        buffer: int = BUFFER_DEFAULT,
        overflow: Literal["coalesce", "error"] = "coalesce",
    ) -> ChangeStream:
        """The changes of the paths of a pattern from now on, to be read with `async for`.

        Args:
            pattern: The paths.
            buffer: How many changes wait one by one.
            overflow: What happens to a reader for whom more wait: "coalesce" makes those of a
                path one, "error" ends with a `SlowConsumerError`, as too many paths do in any
                case.

        Raises:
            HubClosedError: There will be no more changes.
            UsageError: The buffer has no room, or there is no such overflow.
        """
        if buffer < 1:
            raise UsageError(f"a buffer of {buffer} changes has no room")
        if overflow not in ("coalesce", "error"):
            raise UsageError(f"overflow is 'coalesce' or 'error', not {overflow!r}")
        pattern = pattern if isinstance(pattern, Pattern) else Pattern(pattern)
        waiting = ChangeQueue(self.read, buffer=buffer, is_strict=overflow == "error")
        feed = _Feed(self, waiting)
        self._add(feed, pattern)
        return ChangeStream(feed)

    def enrol(self, subscription: Subscription[Any]) -> None:
        """Keep a subscription that a watcher tells, until it is closed.

        Raises:
            HubClosedError: There will be no more changes.
        """
        self._check_open()
        self._places[subscription] = None

    def watch(self, watcher: Watcher) -> None:
        """Let somebody see all changes before anybody is told."""
        self._watchers.append(watcher)

    def drop(self, listener: object) -> None:
        """Tell a listener nothing more."""
        place = self._places.pop(listener, None)
        if place is not None:
            self._index.remove(*place)

    def drop_later(self, listener: object) -> None:
        """Take a listener out the next time that anything happens."""
        self._ended.append(listener)

    def close(self) -> None:
        """End all subscriptions; what waits for slow ones can still be told by their tasks."""
        self._is_closed = True
        self._queue.clear()
        for listener in list(self._places):
            if isinstance(listener, (Subscription, _Feed)):
                listener.end()

    # ── delivering ─────────────────────────────────────────────────────────────────────

    def deliver(self, changes: Sequence[Change]) -> None:
        """Tell everybody what was folded just now.

        Called from inside a callback it returns at once, and they are told in the next round.
        """
        if self._is_closed:
            return
        telling = self._telling
        cause = None if telling is None else _Cause(telling, self._told_because)
        for change in changes:
            self.count += 1
            self._queue.append(_Entry(self.count, change, None, cause))
        for watcher in self._watchers:
            for subscription, subject in watcher(changes):
                self._queue.append(_Entry(self.count, subject, subscription, cause))
        if not self._is_delivering:
            self._deliver_all()

    def report(self, error: BaseException, subscription: Subscription[Any]) -> None:
        """Take what the callback of a subscription raised and its owner does not handle."""
        if self._on_error is not None:
            try:
                self._on_error(error, subscription)
                return
            except _FAILURES as another:
                error = another
        if not subscription.was_logged:
            subscription.was_logged = True
            _logger.error("the callback of %s failed", subscription.name, exc_info=error)
        if self._exception_handler is not None:
            message = f"the callback of {subscription.name} failed"
            try:
                self._exception_handler({"message": message, "exception": error})
            except _FAILURES:
                _logger.exception("the handler of exceptions failed")

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _check_open(self) -> None:
        if self._is_closed:
            raise HubClosedError

    def _add(self, listener: Listener[Change], pattern: Pattern) -> None:
        self._check_open()
        self._sweep()
        self._places[listener] = pattern, self._index.add(pattern, listener)

    def _sweep(self) -> None:
        while self._ended:
            self.drop(self._ended.popleft())

    def _deliver_all(self) -> None:
        self._is_delivering = True
        try:
            rounds = 0
            while self._queue:
                rounds += 1
                entries, self._queue = self._queue, []
                if rounds > ROUNDS_MAX or len(entries) > ANSWERS_MAX:
                    self._break_loops(entries, rounds)
                for entry in entries:
                    self._deliver_one(entry)
        finally:
            self._is_delivering = False
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt

    def _deliver_one(self, entry: _Entry) -> None:
        if self._ended:
            self._sweep()
        number, subject, only, cause = entry
        if only is not None:
            self._tell(only, subject, cause)
            return
        for listener in self._index.matching(subject.path):
            # Who came after the fold has seen the change in the document.
            if listener.since < number:
                self._tell(listener, subject, cause)

    def _tell(self, listener: Listener[Any], subject: Any, cause: _Cause | None) -> None:
        if isinstance(listener, Subscription):
            self._telling, self._told_because = listener, cause
        try:
            listener.take(subject)
        except BaseException as interrupt:  # noqa: BLE001 - raised when all were told
            self._interrupt = interrupt
        finally:
            self._telling = self._told_because = None

    def _break_loops(self, entries: Iterable[_Entry], rounds: int) -> None:
        """Close the subscriptions that cause what they are told."""
        loops: dict[Subscription[Any], _Entry] = {}
        for entry in entries:
            for subscription in _looping(entry.cause, rounds):
                loops.setdefault(subscription, entry)
        for subscription, entry in loops.items():
            if not subscription.is_closed:
                # What the owner writes in answer belongs to the loop as well.
                self._telling, self._told_because = subscription, entry.cause
                try:
                    subscription.fail(FeedbackLoopError(subscription.name, rounds), entry.subject)
                except BaseException as interrupt:  # noqa: BLE001 - raised when all were told
                    self._interrupt = interrupt
                finally:
                    self._telling = self._told_because = None
                    subscription.close()


def _looping(cause: _Cause | None, rounds: int) -> list[Subscription[Any]]:
    """Who caused a write more than once; after too many rounds, else all who did."""
    caused: Counter[Subscription[Any]] = Counter()
    while cause is not None:
        caused[cause.subscription] += 1
        cause = cause.before
    repeated = [each for each, times in caused.items() if times > 1]
    return repeated or (list(caused) if rounds > ROUNDS_MAX else [])


# ── references ─────────────────────────────────────────────────────────────────────────


def held(
    fn: Callable[..., object], on_end: Callable[[], object] | None = None
) -> Callable[[], Callable[..., object] | None]:
    """A function to be fetched when it is needed; a bound method lives no longer for it.

    Raises:
        NotWeakError: A method's object cannot be referenced weakly.
    """
    if not inspect.ismethod(fn):
        return lambda: fn
    end = None if on_end is None else _without_cycle(on_end)
    try:
        return WeakMethod(fn, end)
    except TypeError as error:
        raise NotWeakError(repr(fn)) from error


def weakly(owner: object, on_end: Callable[[], object]) -> Callable[[], object]:
    """A weak reference to an owner.

    Raises:
        NotWeakError: It cannot be referenced weakly.
    """
    try:
        return ref(owner, _without_cycle(on_end))
    except TypeError as error:
        raise NotWeakError(f"a {type(owner).__name__}") from error


def is_async(fn: Callable[..., object]) -> bool:
    """Whether a callable is known to return coroutines."""
    call = getattr(fn, "__call__", None)  # noqa: B004 - the method, not whether there is one
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def name_of(fn: Callable[..., object], what: str) -> str:
    """What a subscription is called."""
    return f"{getattr(fn, '__qualname__', type(fn).__name__)} on {what!r}"


def _without_cycle(on_end: Callable[[], object]) -> Callable[[object], None]:
    """A callback for a reference that does not keep the callback's own object alive."""
    method = WeakMethod(on_end)

    def end(_: object) -> None:
        call = method()
        if call is not None:
            call()

    return end


def _nothing() -> None:
    return None


def _is_cancelled() -> bool:
    """Whether the task itself is being cancelled, rather than something that it looked into."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
