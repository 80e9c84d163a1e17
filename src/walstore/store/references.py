"""Callbacks and owners that are held no longer than they live.

- A bound method is held weakly: it does not keep its object alive. A function is held as it is.
- What is called at the end of an object does not keep anything else alive, either.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from weakref import WeakMethod, ref

from walstore.errors import UsageError


class NotWeakError(UsageError):
    """A method's object, an owner, or a value of a class cannot be referenced weakly.

    Attributes:
        name: What it is.
    """

    def __init__(
        self,
        name: str,
        instead: str = "subscribe a function and close the subscription yourself",
    ) -> None:
        super().__init__(
            f"{name} cannot be referenced weakly: give its class a `__weakref__` slot, or {instead}"
        )
        self.name = name


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
