"""Processes that write to a directory, race for it, and are killed in the middle.

The first argument is the directory; each line on the input is a command:

    try <key> <revision or -> <body>     put_if; answers `won <revision>`, `lost` or `failed <why>`
    stop <where>                         from now on say `here` at a point of a write, and wait
    count <key>                          count up in an object, in a process of its own that says
                                         its `pid`, `will` and `did`; `ended` when it was killed

A point is `written` (the bytes are there, without a name), `locked` (it is about to get its name)
or `named` (it has its name, which is not synced).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from types import ModuleType
from typing import Any

import anyio

from walstore.archive import local
from walstore.archive.destination import ConflictError, DestinationError
from walstore.archive.local import LocalDestination


def tell(*words: object) -> None:
    """Write a line at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def stop_at(where: str) -> None:
    """Wait for a line at a point of each write."""
    if where == "written":
        _stop_at_call(local, "sync_handle", is_before=True)
    else:
        _stop_at_call(os, "replace", is_before=where == "locked")


def _stop_at_call(module: ModuleType, name: str, *, is_before: bool) -> None:
    call: Callable[..., Any] = getattr(module, name)

    def stopped(*args: Any) -> None:
        if not is_before:
            call(*args)
        tell("here")
        sys.stdin.readline()
        if is_before:
            call(*args)

    setattr(module, name, stopped)


async def try_once(root: LocalDestination, key: str, revision: str, body: str) -> None:
    """Replace a revision, and tell how it went."""
    expected = None if revision == "-" else revision
    try:
        tell("won", await root.put_if(key, body.encode(), expected))
    except ConflictError:
        tell("lost")
    except DestinationError as error:
        tell("failed", error)


async def count(root: LocalDestination, key: str) -> None:
    """Count up in an object; each body is long, and says its number all over."""
    while True:
        found = await root.get(key)
        number = 0 if found is None else int(found.body.split()[0])
        body = f"{number + 1} ".encode() * 20_000
        tell("will", number + 1)
        try:
            await root.put_if(key, body, None if found is None else found.revision)
        except ConflictError:
            continue
        tell("did", number + 1)


def fork(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in a process of its own, and tell when it has ended."""
    pid = os.fork()
    if not pid:
        tell("pid", os.getpid())
        anyio.run(call)
    os.waitpid(pid, 0)
    tell("ended")


def main(directory: str) -> None:
    """Do what the input says."""
    root = LocalDestination(directory)
    tell("ready")
    for line in iter(sys.stdin.readline, ""):
        match line.split():
            case ["try", key, revision, body]:
                anyio.run(try_once, root, key, revision, body)
            case ["stop", where]:
                stop_at(where)
            case ["count", key]:
                fork(partial(count, root, key))


if __name__ == "__main__":
    main(sys.argv[1])
