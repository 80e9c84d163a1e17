"""Values computed from a document, computed again only when what they were computed from changed.

- A selector's function reads the document through a mapping that notes what is read: names, keys
  of maps, and everything if it iterates or counts the names. Only that is followed.
- A fold makes a selector out of date before anybody is told of the fold, so whoever reads `value`
  never sees an old one. It is computed when it is read, and not before.
- Subscribers are told after the fold, and only of a value that differs as JSON from the last one
  that they were told; what is no JSON is compared with `==`.
- Selectors may read one another. One that reads itself is refused.
- A selector that is subscribed to lives as long as its subscriptions, any other as long as
  somebody holds it; with an owner, or the bound method of an object, never longer than that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Any, Generic, Self, TypeVar, cast
from weakref import ref

from walstore.canon import canonical_text
from walstore.document.view import thawed
from walstore.errors import NotJsonError, UsageError
from walstore.store.change import ABSENT, Change, ReadState
from walstore.store.paths import PathIndex, Pattern
from walstore.store.references import held, name_of, weakly
from walstore.store.subscription import Subscription
from walstore.store.subscriptions import Hub

V = TypeVar("V")

_EVERYTHING = Pattern("**")


class SelectorError(UsageError):
    """A selector was used in a way that has no answer.

    Attributes:
        name: The selector.
        reason: What is wrong.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the selector {name} {reason}")
        self.name = name
        self.reason = reason


class Selection(Subscription["Selector[Any]"]):
    """A callback that is told the value of a selector when it differs."""

    def __init__(
        self,
        selector: Selector[Any],
        fn: Callable[[Any], object],
        *,
        owner: object | None,
        on_error: Callable[[BaseException, Selector[Any]], object] | None,
    ) -> None:
        """Made by `Selector.subscribe`."""
        hub = selector.tracker.hub
        name = name_of(fn, selector.name)
        super().__init__(hub, fn, _Latest(), name=name, owner=owner, on_error=on_error)
        self._selector = selector
        self._told = selector.value

    def invoke(self, fn: Callable[..., object], subject: Selector[Any]) -> object:
        """Call the callback with the value, unless it knows it."""
        if subject.is_closed:
            return None
        value = subject.value
        if is_same(value, self._told):
            return None
        self._told = value
        return fn(value)

    def end(self) -> None:
        """Take nothing more."""
        super().end()
        self._selector.forget(self)


class Selector(Generic[V]):
    """A value computed from a document.

    Attributes:
        tracker: Follows what it reads.
        name: What it is called in errors and logs.
        is_closed: Whether it has no value any more.
    """

    def __init__(
        self,
        fn: Callable[[SelectorView], V],
        tracker: Tracker,
        *,
        owner: object | None = None,
    ) -> None:
        """Made by `select`."""
        self.tracker = tracker
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self.is_closed = False
        self._fn = held(fn, self._expire)
        self._owner = None if owner is None else weakly(owner, self._expire)
        self._mark = _Mark()
        self._mark.selector = ref(self, tracker.finder(self._mark))
        self._value: V | None = None
        self._has_failed = False
        self._is_computing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def value(self) -> V:
        """What the function makes of the document as it is now: read it, do not change it.

        Raises:
            SelectorError: It is closed, or reads itself.
            Exception: Whatever the function raises; it is tried again each time.
        """
        if self.is_closed:
            raise SelectorError(self.name, "is closed")
        if self._is_computing:
            raise SelectorError(self.name, "reads itself")
        try:
            if self._mark.is_outdated or self._has_failed:
                self._compute()
        finally:
            # Who reads this selector in another one reads what this one has read.
            self.tracker.note(self._mark.tickets)
        return cast("V", self._value)

    def subscribe(
        self,
        fn: Callable[[V], object],
        *,
        owner: object | None = None,
        on_error: Callable[[BaseException, Selector[Any]], object] | None = None,
    ) -> Subscription[Any]:
        """Call a function with the value whenever it differs from what it is now, or was last.

        Args:
            fn: The function, sync or async. A bound method is held weakly.
            owner: The subscription ends with it, if the function does not keep it alive.
            on_error: Called with what the function, or the selector's, raised, and the selector.

        Raises:
            HubClosedError: There will be no more changes.
            NotWeakError: The owner, or a method's object, cannot be referenced weakly.
            SelectorError: It is closed.
            Exception: Whatever the selector's function raises now.
        """
        selection = Selection(self, fn, owner=owner, on_error=on_error)
        self.tracker.hub.enrol(selection)
        self._mark.selections[selection] = None
        return selection

    def close(self) -> None:
        """Follow nothing more, and tell nobody any more."""
        self.is_closed = True
        for selection in list(self._mark.selections):
            selection.close()
        self.tracker.unfollow(self._mark, keep=())
        self._value = None

    def forget(self, selection: Selection) -> None:
        """A subscription has ended."""
        self._mark.selections.pop(selection, None)

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _compute(self) -> None:
        fn = self._fn()
        if fn is None:
            raise SelectorError(self.name, "is closed")
        self._is_computing = self._has_failed = True
        # A change puts it out of date again even while it is computed, or if that fails.
        self._mark.is_outdated = False
        try:
            with self.tracker.following(self._mark) as view:
                self._value = cast("V", _settled(fn(view)))
            self._has_failed = False
        finally:
            self._is_computing = False

    def _expire(self) -> None:
        # The garbage collector calls this at any moment, so everything else is left for later.
        self.is_closed = True
        self.tracker.end_later(self._mark)


def select(
    fn: Callable[[SelectorView], V], tracker: Tracker, *, owner: object | None = None
) -> Selector[V]:
    """A value that is computed from a document.

    Args:
        fn: Computes it from what it reads in the view it is given, and from nothing else. A bound
            method is held weakly.
        tracker: Follows what it reads.
        owner: The selector is closed with it, if the function does not keep it alive.

    Raises:
        NotWeakError: The owner, or a method's object, cannot be referenced weakly.
    """
    return Selector(fn, tracker, owner=owner)


class Tracker:
    """Knows which selectors have read what, for one document.

    Attributes:
        hub: Tells those who subscribed.
    """

    def __init__(self, hub: Hub) -> None:
        """Follow what a hub delivers."""
        self.hub = hub
        self._index: PathIndex[_Mark] = PathIndex()
        # Marks of selectors that are gone, still to be taken out.
        self._ended: deque[_Mark] = deque()
        # What is being computed, the innermost last.
        self._computing: list[tuple[_Mark, set[Pattern]]] = []

    @contextmanager
    def following(self, mark: _Mark) -> Iterator[SelectorView]:
        """A view whose reader is out of date when anything that it reads changes."""
        self._sweep()
        # As long as nothing was selected, changes need not be made up for it.
        self.hub.watch(self._outdate)
        noted: set[Pattern] = set()
        self._computing.append((mark, noted))
        view = SelectorView(self.hub.read, self.note)
        try:
            yield view
        finally:
            view.end()
            self._computing.pop()
            self.unfollow(mark, keep=noted)

    def note(self, patterns: Iterable[Pattern]) -> None:
        """Whoever is computed now has read this; it is followed at once."""
        if not self._computing:
            return
        mark, noted = self._computing[-1]
        for pattern in list(patterns):
            noted.add(pattern)
            if pattern not in mark.tickets:
                mark.tickets[pattern] = self._index.add(pattern, mark)

    def unfollow(self, mark: _Mark, *, keep: Iterable[Pattern]) -> None:
        """Follow only some of what was read."""
        kept = set(keep)
        for pattern in [each for each in mark.tickets if each not in kept]:
            self._index.remove(pattern, mark.tickets.pop(pattern))

    def end_later(self, mark: _Mark) -> None:
        """Take a mark out the next time that anything happens."""
        self._ended.append(mark)

    def finder(self, mark: _Mark) -> Callable[[object], None]:
        """What is to be called when the selector of a mark is gone."""
        return lambda _: self.end_later(mark)

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _outdate(self, changes: Sequence[Change]) -> list[tuple[Selection, Selector[Any]]]:
        """Note what is out of date; the subscriptions that have to look."""
        self._sweep()
        told: list[tuple[Selection, Selector[Any]]] = []
        for change in changes:
            for mark in self._index.matching(change.path):
                if not mark.is_outdated:
                    mark.is_outdated = True
                    selector = mark.selector()
                    if selector is not None:
                        told += [(selection, selector) for selection in mark.selections]
        return told

    def _sweep(self) -> None:
        while self._ended:
            mark = self._ended.popleft()
            self.unfollow(mark, keep=())
            for selection in list(mark.selections):
                selection.close()


class _Mark:
    """What a selector has read, and whether that has changed; it may outlive the selector."""

    __slots__ = ("is_outdated", "selections", "selector", "tickets")

    def __init__(self) -> None:
        self.is_outdated = True
        self.selections: dict[Selection, None] = {}
        self.selector: Callable[[], Selector[Any] | None] = _nobody
        self.tickets: dict[Pattern, int] = {}


class _Latest:
    """A selector that waits for a slow subscriber: the value is read when it is told."""

    __slots__ = ("_selector",)

    def __init__(self) -> None:
        self._selector: Selector[Any] | None = None

    def __len__(self) -> int:
        return self._selector is not None

    def push(self, subject: Selector[Any]) -> None:
        self._selector = subject

    def pop(self) -> Selector[Any]:
        selector, self._selector = self._selector, None
        assert selector is not None
        return selector

    def clear(self) -> None:
        self._selector = None


# ── reading ────────────────────────────────────────────────────────────────────────────


class SelectorView(Mapping[str, Any]):
    """A document as it is now, for one computation; notes what is read."""

    __slots__ = ("_is_over", "_note", "_read")

    def __init__(self, read: ReadState, note: Callable[[Iterable[Pattern]], None]) -> None:
        """Read a document."""
        self._read = read
        self._note = note
        self._is_over = False

    def __getitem__(self, name: str) -> Any:
        value = self._member(name)
        if value is ABSENT:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        self.noted(_EVERYTHING)
        return iter(self._read.names())

    def __len__(self) -> int:
        self.noted(_EVERYTHING)
        return len(self._read.names())

    def text(self, name: str) -> str:
        """A text, or the strings of a list joined; empty if there is none."""
        value = self._member(name)
        if isinstance(value, tuple) and self._read.kind(name) == "list":
            return "".join([item for item in value if isinstance(item, str)])
        return value if isinstance(value, str) and self._read.kind(name) == "text" else ""

    def noted(self, *patterns: Pattern) -> None:
        """Note what is read.

        Raises:
            UsageError: The computation is over.
        """
        if self._is_over:
            raise UsageError("a selector's view can only be read by its function, while it runs")
        self._note(patterns)

    def end(self) -> None:
        """The computation is over."""
        self._is_over = True

    def _member(self, name: object) -> Any:
        if not isinstance(name, str):
            return ABSENT
        kind = self._read.kind(name)
        self.noted(Pattern.exact(name))
        match kind:
            case "register":
                return self._read.register(name)
            case "text" | "list":
                return self._read.list_value(name)
            case "map":
                return _MapView(self, self._read, name)
            case None:
                # A map begins with its first key.
                self.noted(Pattern.under(name))
                return ABSENT


class _MapView(Mapping[str, Any]):
    """A map as it is now, for one computation."""

    __slots__ = ("_name", "_read", "_view")

    def __init__(self, view: SelectorView, read: ReadState, name: str) -> None:
        self._view = view
        self._read = read
        self._name = name

    def __getitem__(self, key: str) -> Any:
        if not isinstance(key, str):
            raise KeyError(key)
        self._view.noted(Pattern.exact(f"{self._name}/{key}"))
        value = self._read.map_value(self._name, key)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        self._view.noted(Pattern.under(self._name))
        return iter(self._read.map_keys(self._name))

    def __len__(self) -> int:
        self._view.noted(Pattern.under(self._name))
        return len(self._read.map_keys(self._name))

    def __repr__(self) -> str:
        return repr(dict(self))


def is_same(left: object, right: object) -> bool:
    """Whether two selected values are equal as JSON: 1 and 1.0 are, 1 and true are not."""
    if left is right:
        return True
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    try:
        return canonical_text(thawed(left)) == canonical_text(thawed(right))
    except NotJsonError:
        return bool(left == right)


def _settled(value: Any) -> Any:
    """What a function returned, without what can be read only while it runs."""
    if isinstance(value, (SelectorView, _MapView)):
        return MappingProxyType({name: _settled(member) for name, member in value.items()})
    if type(value) is dict:
        return {name: _settled(member) for name, member in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)([_settled(item) for item in value])
    return value


def _nobody() -> None:
    return None
