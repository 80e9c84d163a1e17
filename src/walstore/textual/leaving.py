"""Has an app left when its process is told to end, as if whoever uses it had left it.

- The terminal is as it was before, and whoever runs the app can close what is open.
- A terminal that is gone takes nothing any more: what is still to be written goes nowhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from textual.app import App

# Not every system has all of them.
_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


async def run_until_told(app: App[Any]) -> int:
    """Run an app until it is left, or until its process is told to end.

    Returns:
        The exit status: what a shell would say of a process that was told so.
    """
    with _leaving_when_told(app):
        await app.run_async()
    return app.return_code or 0


@contextmanager
def _leaving_when_told(app: App[Any]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def leave(number: int) -> None:
        if number == getattr(signal, "SIGHUP", None):
            _forget_terminal()
        app.exit(return_code=128 + number)

    # There may be a system without signals, or a thread that gets none.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in _SIGNALS:
            loop.add_signal_handler(number, leave, number)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def _forget_terminal() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        with suppress(OSError):
            if os.isatty(descriptor):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
