"""A relay, a document, the others who type in it, and the editor: each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.editor.screen import YARDSTICK, Case
from benchmarks.relay.servers import WalstoreRelay, running
from examples.textual_editor.sessions import Session
from walstore import Identity

_DOCUMENT = "benchmarks/editor"
_LINE = "{:05} words of a line that somebody wrote"

# Where the others are: lines from the one that is typed in. All of them are in view but one, who
# types so far above that everything in view moves.
_PEER_LINES = (-3, 4, -40, -6, 7)


class Setting(NamedTuple):
    """What is measured.

    Attributes:
        lines: The size of the text.
        peers: How many others type meanwhile.
        width: Columns of the screen.
        height: Rows of the screen.
    """

    lines: int
    peers: int
    width: int = 80
    height: int = 24

    def __str__(self) -> str:
        return f"{self.lines:,} lines and {self.peers} peers"


class Figure(NamedTuple):
    """What one kind of event costs, in milliseconds of CPU time."""

    p50: float
    p95: float
    samples: int


class Measured(NamedTuple):
    """What everything costs in a setting.

    Attributes:
        figures: By the kind of event.
        busy: How much longer the same work took than when it was quickest: 1 on a quiet machine.
    """

    figures: dict[str, Figure]
    busy: float


def measured(setting: Setting, *, rounds: int, watched_s: float) -> Measured:
    """What everything costs in a setting."""
    line = setting.lines // 2
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="walstore-bench-"))
        server = stack.enter_context(running(WalstoreRelay.name, sys.executable))
        asyncio.run(_write(server.url, setting.lines))
        for number, away in enumerate(_PEER_LINES[: setting.peers]):
            stack.enter_context(_peer(server.url, line + away, f"Peer {number + 1}"))
        case = Case(
            url=server.url,
            document=_DOCUMENT,
            file=str(Path(folder, "note.walstore")),
            peers=setting.peers,
            width=setting.width,
            height=setting.height,
            line=line,
            rounds=rounds,
            watched_s=watched_s,
        )
        command = [sys.executable, "-m", "benchmarks.editor.screen", json.dumps(case._asdict())]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    samples: dict[str, list[float]] = json.loads(output)
    yardsticks = samples.pop(YARDSTICK)
    figures = {kind: _figure(spent) for kind, spent in samples.items() if spent}
    return Measured(figures, median(yardsticks) / min(yardsticks))


async def _write(url: str, lines: int) -> None:
    session = Session(_DOCUMENT, "Writer", Identity.generate(), relay=url)
    async with session.store() as store:
        store.set_text("body", "\n".join(map(_LINE.format, range(lines))))
        await store.flush()


@contextmanager
def _peer(url: str, line: int, name: str) -> Iterator[None]:
    arguments = [url, _DOCUMENT, str(line), name]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.editor.peer", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{name} could not join")
        yield
    finally:
        process.communicate()


def _figure(samples: list[float]) -> Figure:
    cuts = quantiles(samples, n=20, method="inclusive")
    return Figure(cuts[9], cuts[18], len(samples))
