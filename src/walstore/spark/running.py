"""Coroutines, also where a loop runs already: a notebook has one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Carry out a coroutine, and return what comes of it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def turn(runner: asyncio.Runner, work: Coroutine[Any, Any, T]) -> T:
    """Carry out one of several coroutines of a runner, and return what comes of it.

    A runner puts its task into words twice, with all that came of it, only to throw them away. For
    a page of events that takes longer than to read it; so nothing comes of the task itself.
    """
    found: list[T] = []

    async def carry_out() -> None:
        found.append(await work)

    runner.run(carry_out())
    return found[0]
