"""Snapshots of very many values are checked by a process of their own, one at a time.

- Nothing else runs in Python while such a text is parsed: a relay would stand still for seconds.
- What it takes, up to a GiB, is given back when the process ends, or when its peer is gone.
- Everything else is checked in a thread, which is sooner done than a process is started.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from contextlib import suppress

import orjson

from walstore.errors import MalformedError
from walstore.relay.checking import check_snapshot
from walstore.relay.log import NewSnapshot
from walstore.relay.session import PutWhole
from walstore.wire.element import has_too_many_values

# The most values that may come take some ten seconds; what takes far longer is given up.
_CHECK_S_MAX = 120

# What goes to the process at a time; others are heard in between.
_BLOCK_BYTES = 2**18

# How much others come first.
_NICENESS = 5

_MAIN = "from walstore.relay.checking_apart import main; main()"


class UncheckedError(Exception):
    """A snapshot that could not be checked, through no fault of its own.

    Why is in its cause, and for the operator: it may name what is on the relay's machine.
    """

    def __init__(self) -> None:
        super().__init__("the snapshot could not be checked: send it again")


class SnapshotChecks:
    """Checks snapshots, and holds nobody up meanwhile."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def check(self, order: PutWhole) -> NewSnapshot:
        """A snapshot that may be stored.

        Raises:
            MalformedError: It is not one; the reason is for its sender.
            UncheckedError: The process that was to check it has ended, or took too long.
        """
        if not await asyncio.to_thread(has_too_many_values, order.text) or _is_frozen():
            return await asyncio.to_thread(check_snapshot, order)
        async with self._turn:
            try:
                async with asyncio.timeout(_CHECK_S_MAX):
                    said = await _ask(order)
            except (TimeoutError, OSError) as error:
                raise UncheckedError from error
        return await asyncio.to_thread(_read_verdict, said, order)


def main() -> None:
    """Check what is read, and say what came of it; for the process."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    # Nothing here ends up in a circle; to look for them takes longer than all else.
    gc.disable()
    document, _, text = sys.stdin.buffer.read().partition(b"\n")
    verdict: list[object]
    try:
        checked = check_snapshot(PutWhole("", orjson.loads(document), None, text))
        verdict = [checked.id, checked.author, checked.upto_ts, checked.vc, checked.is_deletion]
    except MalformedError as error:
        verdict = [error.reason]
    sys.stdout.buffer.write(orjson.dumps(verdict))
    sys.stdout.flush()
    # To take all of it apart again would take as long as to read it.
    os._exit(0)


async def _ask(order: PutWhole) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        # Nothing that lies where the relay was started is taken for a module.
        "-P",
        "-c",
        _MAIN,
        stdin=PIPE,
        stdout=PIPE,
        # A relay that is interrupted answers first what it was asked.
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        return await _exchange(process, order)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _exchange(process: Process, order: PutWhole) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    for block in _blocks(order):
        process.stdin.write(block)
        await process.stdin.drain()
    process.stdin.close()
    said = await process.stdout.read()
    if await process.wait():
        raise OSError(f"its process ended with {process.returncode}")
    return said


def _blocks(order: PutWhole) -> Iterator[bytes]:
    yield orjson.dumps(order.document) + b"\n"
    for start in range(0, len(order.text), _BLOCK_BYTES):
        yield order.text[start : start + _BLOCK_BYTES]


def _read_verdict(said: bytes, order: PutWhole) -> NewSnapshot:
    verdict = orjson.loads(said)
    if len(verdict) == 1:
        raise MalformedError("snapshot", verdict[0])
    revision, author, upto_ts, vc, is_deletion = verdict
    return NewSnapshot(
        order.document, order.revision, revision, author, upto_ts, vc, is_deletion, order.text
    )


def _is_frozen() -> bool:
    """Whether there is no interpreter to start: a program that was packed into one file."""
    return bool(getattr(sys, "frozen", False)) or not sys.executable
