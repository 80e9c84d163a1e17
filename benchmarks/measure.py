"""What a measurement needs: inputs, what the library made earlier, and the clock.

- Timed by CPU time around the measured section only.
- What was shown is hashed, so that a wrong result is never reported as a fast one.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from benchmarks.adapters.base import AbsentError, Adapter, Edit

P = ParamSpec("P")
T = TypeVar("T")

REPEATS_MAX = 5
_REPEAT_S_MAX = 1.0


class WrongResultError(Exception):
    """The library did not end with the text that the edits leave: its time means nothing."""


class Job:
    """One library on one workload: its inputs, and a place for what it makes on the way."""

    def __init__(self, adapter: Adapter, inputs: Path, made: Path) -> None:
        self.adapter = adapter
        self.digest = ""
        self._inputs = inputs
        self._made = made

    def lines(self, name: str) -> Iterator[Any]:
        """The entries of a JSON-lines input, one at a time."""
        with (self._inputs / f"{name}.jsonl").open(encoding="utf-8") as file:
            yield from map(json.loads, file)

    def edits(self, name: str = "") -> Iterator[Edit]:
        """The edits of the trace, or of another input, one at a time."""
        for position, deleted, inserted, _ in self.lines(name or f"edits-{self.adapter.unit}"):
            yield position, deleted, inserted

    def bursts(self) -> list[list[Edit]]:
        """The edits of the trace, grouped by burst."""
        bursts: list[list[Edit]] = []
        for position, deleted, inserted, starts in self.lines(f"edits-{self.adapter.unit}"):
            if starts:
                bursts.append([])
            bursts[-1].append((position, deleted, inserted))
        return bursts

    def sizes(self, kind: str) -> list[str]:
        """The sizes that an input comes in, smallest first; it is named `<kind>-<size>`."""
        names = {path.stem.split("-")[1] for path in self._inputs.glob(f"{kind}-*")}
        return sorted(names, key=int)

    def read(self, name: str) -> Any:
        """A JSON input."""
        return json.loads((self._inputs / f"{name}.json").read_bytes())

    def keep(self, name: str, *parts: bytes) -> None:
        """Keep what the library made for a later job."""
        self._made.mkdir(parents=True, exist_ok=True)
        with (self._made / name).open("wb") as file:
            for part in parts:
                file.write(struct.pack("<I", len(part)) + part)

    def kept(self, name: str) -> list[bytes]:
        """What an earlier job of the library kept.

        Raises:
            AbsentError: The library has no such thing.
        """
        path = self._made / name
        if not path.exists():
            raise AbsentError(f"it makes no {name}")
        content, parts, at = path.read_bytes(), [], 0
        while at < len(content):
            (size,) = struct.unpack_from("<I", content, at)
            parts.append(content[at + 4 : at + 4 + size])
            at += 4 + size
        return parts

    def check(self, text: str, *, edits: int | None = None) -> None:
        """Note what was shown, and compare it with what that many edits of the trace leave.

        Raises:
            WrongResultError: It is another text.
        """
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        if edits is not None and self.read("expected").get(str(edits)) != self.digest:
            raise WrongResultError(f"wrong text after {edits} edits")


def timed(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[float, T]:
    """CPU seconds of one call, and what it returned."""
    gc.collect()
    # The inputs are not the library's garbage: the collector need not walk them.
    gc.freeze()
    start = time.process_time()
    result = work(*args, **kwargs)
    return time.process_time() - start, result


def timed_often(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[float, T]:
    """The median CPU seconds of a few calls, for work too short to be timed once."""
    seconds, result = timed(work, *args, **kwargs)
    samples = [seconds]
    while len(samples) < REPEATS_MAX and sum(samples) < _REPEAT_S_MAX:
        seconds, result = timed(work, *args, **kwargs)
        samples.append(seconds)
    return statistics.median(samples), result


def resident_mb() -> float:
    """Resident memory of this process, without its garbage.

    Raises:
        AbsentError: The platform does not say.
    """
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError as error:
        raise AbsentError("resident memory is only read on Linux") from error
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
