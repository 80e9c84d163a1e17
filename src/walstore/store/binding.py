"""An attribute of some object and a path of a document that show the same, as long as both live.

        document ── changed ──► the attribute is set
                 ◄── edited ──  `binding.edit(value)`, called by whatever notices

- The object is held weakly, and the binding ends with it. Nobody has to keep the binding.
- What the object was shown is the base of what it edits: what arrived meanwhile stays, and the
  object is shown the merged value right away.
- No echo: while a value is being set, what the object reports is not taken for an edit; and what it
  has edited is not set once more.
- A path with a `/` is a key of a map, unless something has that very name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias
from weakref import ref

from walstore.document.view import View, thawed
from walstore.store.change import ABSENT
from walstore.store.merging import is_same
from walstore.store.references import NotWeakError, held

# Gets the object and the value. A bound method gets the value alone, and is held weakly.
Setter: TypeAlias = Callable[..., object]


class Closable(Protocol):
    """What `subscribe` returns."""

    def close(self) -> None:
        """Tell nothing more."""
        ...


class BindableStore(Protocol):
    """What a binding needs of a store."""

    def view(self) -> View:
        """The document as it is now."""
        ...

    def batch(self) -> AbstractContextManager[None]:
        """Make several edits one."""
        ...

    def __setitem__(self, name: str, value: Any) -> None:
        """Make a name hold a value."""
        ...

    def set_text(self, name: str, text: str, *, base: View | None = None) -> None:
        """Make a text read as given; what arrived since `base` is kept."""
        ...

    def set_list(self, name: str, values: Sequence[Any], *, base: View | None = None) -> None:
        """Make a list hold the given values; what arrived since `base` is kept."""
        ...

    def put(self, name: str, key: str, value: Any) -> None:
        """Write a key of a map."""
        ...

    def subscribe(
        self, pattern: str, fn: Callable[[Any], object], *, owner: object | None = None
    ) -> Closable:
        """Call a function with every change of some paths, until the owner is gone."""
        ...


def bind(
    store: BindableStore,
    target: object,
    setter: str | Setter,
    path: str,
    *,
    as_text: bool = False,
    default: Any = None,
    show: Callable[[Any], Any] | None = None,
    listen: Callable[[Callable[[Any], None]], Callable[[], object]] | None = None,
) -> Binding:
    """Show what stands at a path, now and after every change.

    Args:
        store: The document.
        target: The object that shows it.
        setter: The name of its attribute, or a function that gets the object and the value and
            does not itself keep the object alive.
        path: What is shown: a name, or `name/key`.
        as_text: Whether the name is a text, even if there is nothing yet.
        default: What is shown if there is nothing.
        show: Makes of the value what is to be set; values are immutable, lists are tuples.
        listen: Given `edit`, has the object call it with every new value; returns what ends that.

    Raises:
        NotWeakError: The object cannot be referenced weakly.
    """
    link = _Link(store, target, setter, path, as_text=as_text, default=default, show=show)
    link.follow(target)
    return Binding(link, None if listen is None else listen(link.edit))


class Binding:
    """A hand on what keeps an object and a path the same; letting go of it ends nothing."""

    def __init__(self, link: _Link, unlisten: Callable[[], object] | None) -> None:
        """Made by `bind`."""
        # What ends listening may keep the object alive, so it is here and not with the link, which
        # the store holds.
        self._unlisten = unlisten
        self._link = link

    @property
    def value(self) -> Any:
        """What stands at the path now."""
        return self._link.value

    def edit(self, value: Any) -> None:
        """Take an edit of what is shown over.

        Raises:
            UsageError: The document does not take it; what it holds is shown again.
        """
        self._link.edit(value)

    def close(self) -> None:
        """Show and take nothing more; doing it again does nothing."""
        self._link.close()
        unlisten, self._unlisten = self._unlisten, None
        if unlisten is not None:
            unlisten()


class _Link:
    """What shows and takes edits; it does not keep the object alive."""

    def __init__(
        self,
        store: BindableStore,
        target: object,
        setter: str | Setter,
        path: str,
        *,
        as_text: bool,
        default: Any,
        show: Callable[[Any], Any] | None,
    ) -> None:
        try:
            self._target = ref(target)
        except TypeError as error:
            raise NotWeakError(f"a {type(target).__name__}") from error
        self._store = store
        self._set = _weak_setter(setter)
        self._path = path
        self._as_text = as_text
        self._default = default
        self._convert = show
        self._view = store.view()
        self._shown: Any = _NEVER
        self._is_showing = False
        self._subscriptions: list[Closable] = []

    def follow(self, target: object) -> None:
        """Show the value from now on."""
        # Stars in a name match that name as well, and whatever else they match changes nothing. A
        # name that is written anew replaces all its keys, which are not told one by one.
        self._subscriptions = [
            self._store.subscribe(path, lambda change: self.refresh(), owner=target)
            for path in dict.fromkeys((self._path, self._path.partition("/")[0]))
        ]
        self.refresh()

    @property
    def value(self) -> Any:
        return self._read(self._store.view())

    def refresh(self) -> None:
        """Show what stands at the path, if it is not what is shown."""
        target = self._target()
        if target is None or not self._subscriptions:
            return
        view = self._store.view()
        value = self._read(view)
        if self._shown is _NEVER or not _is_same(value, self._shown):
            self._is_showing = True
            try:
                self._set(target, value if self._convert is None else self._convert(value))
            finally:
                self._is_showing = False
        self._view, self._shown = view, value

    def edit(self, value: Any) -> None:
        is_over = not self._subscriptions or self._target() is None
        if is_over or self._is_showing:
            return
        try:
            if _is_same(value, self._shown):
                return
            base, self._shown = self._view, value
            with self._store.batch():
                self._write(value, base)
        except BaseException:
            # The object shows something that the document does not hold.
            self._shown = _NEVER
            self.refresh()
            raise
        self.refresh()

    def close(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            subscription.close()

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _place(self, view: View) -> tuple[str, str | None]:
        """The name, and the key if the path is one of a map."""
        name, slash, key = self._path.partition("/")
        return (name, key) if slash and self._path not in view else (self._path, None)

    def _read(self, view: View) -> Any:
        name, key = self._place(view)
        value = view.get(name, ABSENT)
        if key is not None:
            value = value.get(key, ABSENT) if isinstance(value, Mapping) else ABSENT
        if value is not ABSENT:
            return value
        return "" if self._as_text and self._default is None else self._default

    def _write(self, value: Any, base: View) -> None:
        name, key = self._place(base)
        plain = thawed(value)
        is_text = self._as_text or (name in base and base.text(name) == base[name])
        if key is not None:
            self._store.put(name, key, plain)
        elif is_text and isinstance(plain, str):
            self._store.set_text(name, plain, base=base)
        elif isinstance(plain, list):
            self._store.set_list(name, plain, base=base)
        else:
            self._store[name] = plain


_NEVER = object()


def _is_same(left: Any, right: Any) -> bool:
    return is_same(thawed(left), thawed(right))


def _weak_setter(setter: str | Setter) -> Callable[[object, Any], object]:
    if isinstance(setter, str):
        return lambda target, value: setattr(target, setter, value)
    if not inspect.ismethod(setter):
        return setter
    method = held(setter)

    def call(target: object, value: Any) -> None:
        found = method()
        if found is not None:
            found(value)

    return call
