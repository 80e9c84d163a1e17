"""Who is told what changed: each subscriber, of every change, once, in order, after the fold.

- Whoever folds delivers at once. A change is told to all before the next one is; what callbacks
  write meanwhile is queued and makes the next round, for everybody. There is no recursion.
- What is held back is made one change for each path, and told at the end, to those who were there
  before; who comes meanwhile is told what is folded from then on.
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

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from walstore.errors import UsageError
from walstore.store.batch import Batch
from walstore.store.change import Change, Elements, ReadState, Splices
from walstore.store.change_stream import ChangeStream, Feed
from walstore.store.paths import PathIndex, Pattern
from walstore.store.references import name_of
from walstore.store.subscription import FAILURES, Listener, Spawn, Subscription
from walstore.store.waiting import BUFFER_DEFAULT, ChangeQueue

# Rounds of callbacks that answer one another before they count as a loop.
ROUNDS_MAX = 100
# Changes of one round before those who answered their own writes count as a loop: two who each
# answer the other twice would double them every round.
ANSWERS_MAX = 10_000

_logger: Final = logging.getLogger("walstore.store")


class HubClosedError(UsageError):
    """There will be no more changes to subscribe to."""

    def __init__(self) -> None:
        super().__init__("the store is closed")


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
        # What is held back, and what watchers have to tell of it.
        self._held: Batch | None = None
        self._held_told: list[tuple[Subscription[Any], Any]] = []
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
        self._queue_held()
        waiting = ChangeQueue(self._read_list, buffer=BUFFER_DEFAULT, is_strict=False)
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
        self._queue_held()
        waiting = ChangeQueue(self._read_list, buffer=buffer, is_strict=overflow == "error")
        feed = Feed(self, waiting)
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
        """Let somebody see all changes from now on before anybody is told; twice is as once."""
        if watcher not in self._watchers:
            self._watchers.append(watcher)

    @property
    def has_listeners(self) -> bool:
        """Whether anybody wants to know of changes."""
        return bool(self._places or self._watchers)

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
            if isinstance(listener, (Subscription, Feed)):
                listener.end()

    # ── delivering ─────────────────────────────────────────────────────────────────────

    def deliver(self, changes: Sequence[Change]) -> None:
        """Tell everybody what was folded just now.

        Called from inside a callback it returns at once, and they are told in the next round.
        """
        if self._is_closed:
            return
        told = [each for watcher in self._watchers for each in watcher(changes)]
        if self._held is None:
            self._enqueue(changes, told)
            self._deliver_queued()
        else:
            self._held.add(changes)
            self._held_told += told

    @property
    def is_closed(self) -> bool:
        """Whether there will be no more changes."""
        return self._is_closed

    @property
    def is_holding(self) -> bool:
        """Whether changes are held back."""
        return self._held is not None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Tell nobody of what is folded within a block before its end."""
        assert self._held is None, "a block within another one is part of it"
        self._held = Batch()
        try:
            yield
        finally:
            self._queue_held()
            self._held = None
            self._deliver_queued()

    def report(self, error: BaseException, subscription: Subscription[Any]) -> None:
        """Take what the callback of a subscription raised and its owner does not handle."""
        if self._on_error is not None:
            try:
                self._on_error(error, subscription)
                return
            except FAILURES as another:
                error = another
        if not subscription.was_logged:
            subscription.was_logged = True
            _logger.error("the callback of %s failed", subscription.name, exc_info=error)
        if self._exception_handler is not None:
            message = f"the callback of {subscription.name} failed"
            try:
                self._exception_handler({"message": message, "exception": error})
            except FAILURES:
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

    def _enqueue(
        self, changes: Iterable[Change], told: Iterable[tuple[Subscription[Any], Any]]
    ) -> None:
        telling = self._telling
        cause = None if telling is None else _Cause(telling, self._told_because)
        for change in changes:
            self.count += 1
            self._queue.append(_Entry(self.count, change, None, cause))
        for subscription, subject in told:
            self._queue.append(_Entry(self.count, subject, subscription, cause))

    def _queue_held(self) -> None:
        """Make one of what was held back up to now: who comes next has seen it."""
        if self._held is not None and not self._is_closed:
            held, told = self._held.merged(), self._held_told
            self._held, self._held_told = Batch(), []
            self._enqueue(held, told)

    def _read_list(self, name: str) -> tuple[Elements, list[Change]]:
        """A list as it is now, and the edits of it that are in there and were not told yet."""
        # What is edited from here on is not in there, so it is not made one with what is.
        self._queue_held()
        untold = [
            entry.subject
            for entry in self._queue
            if entry.only is None
            and (entry.subject.name, entry.subject.key) == (name, None)
            and isinstance(entry.subject.delta, Splices)
        ]
        return self.read.list_value(name), untold

    def _deliver_queued(self) -> None:
        if not self._is_delivering:
            self._deliver_all()

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
