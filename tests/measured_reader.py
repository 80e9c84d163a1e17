"""Readers in processes of their own, who say what became of a document and what it took of memory.

    test ── url ──► process ── fork ──► reader ── websocket ──► a relay made by the test
         ◄───────── one line ──────────

Run as `python -m tests.measured_reader`. Each line on its input is the address of a relay; a child
opens the document there, and answers with a line.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.peak_memory import PeakMemory
from tests.rigged import CAROL, document
from walstore.document import Event, Rejection
from walstore.errors import PeerError, TransportError
from walstore.net import WebSocketTransport
from walstore.net.backoff import Backoff

ROOT = Path(__file__).parent.parent

# Whoever loses this relay is back soon, and hears no more of what the test has to say.
_SOON = Backoff(quick_ms_min=0, quick_ms_max=1, pause_ms_min=1, pause_ms_max=5)


class Read(NamedTuple):
    """What became of it.

    Attributes:
        failed: The name of the error with which the document did not open; None if it did.
        rejected: Why elements were rejected.
        names: How many registers the document has.
        grown: The most memory that it took beyond what the process had before, in bytes.
    """

    failed: str | None
    rejected: list[str]
    names: int
    grown: int


class Readers:
    """The process that makes them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def read(self, url: str) -> Read:
        """Have one read what a relay has of the document."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{url}\n")
        self._process.stdin.flush()
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line, "the reader has ended; its error stream says why"
        return Read(*json.loads(line))


@contextmanager
def reading() -> Iterator[Readers]:
    """Start it for the time of a block."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.measured_reader"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Readers(process)


# ── in the process ─────────────────────────────────────────────────────────────────────


async def _read(url: str) -> Read:
    events: list[Event] = []
    async with WebSocketTransport(
        url, identity=CAROL, compression=True, backoff=_SOON, request_timeout_ms=60_000
    ) as relay:
        doc = document(
            relay,
            CAROL,
            snapshot_store=relay,
            on_author_error="skip",
            on_event=events.append,
        )
        failed: str | None = None
        memory = PeakMemory(os.getpid())
        try:
            await doc.open()
        except (TransportError, PeerError) as error:
            failed = type(error).__name__
        grown = memory.grown
        rejected = [event.reason for event in events if isinstance(event, Rejection)]
        return Read(failed, rejected, len(doc.names()) if failed is None else 0, grown)


def _answer(url: str) -> None:
    number = os.fork()
    if number:
        assert os.waitpid(number, 0)[1] == 0
        return
    answered: Any = asyncio.run(_read(url))
    print(json.dumps(answered), flush=True)
    os._exit(0)


if __name__ == "__main__":
    gc.freeze()
    for line in sys.stdin:
        _answer(line.strip())
