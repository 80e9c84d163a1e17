"""The command `python -m benchmarks.store`: measures, prints a table, and holds it to its targets.

- Each case starts from a copy of one file, so none sees what another has typed.
- It returns 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.store import workloads
from walstore.store.store import WalStore

_KEYS = 2_000
_KEYS_QUICK = 300


class Result(NamedTuple):
    """A figure in milliseconds, what it has to be at most, and what it should be."""

    case: str
    ms: float
    ms_max: float
    ms_aim: float

    @property
    def is_met(self) -> bool:
        """Whether it is within its bound."""
        return self.ms <= self.ms_max


_TYPINGS: dict[str, Callable[[WalStore, int], None]] = {
    "edit_text, typing on": workloads.type_on,
    "edit_text, all over the text": workloads.type_around,
    "edit_text, replacing": workloads.overwrite,
    "set_text": workloads.set_whole,
    "text, then set_text": workloads.read_and_set_whole,
}


def main() -> int:
    """Measure, print, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer key-presses")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    results = asyncio.run(_measure(_KEYS_QUICK if options.quick else _KEYS))
    print(f"a text of {workloads.SIZE:,} characters, one subscriber, local file on\n")
    for result in results:
        verdict = "" if result.is_met else "  missed"
        print(
            f"{result.case:<38}{result.ms:9.3f} ms   at most {result.ms_max:g}, "
            f"aim {result.ms_aim:g}{verdict}"
        )
    if options.json:
        content = [result._asdict() for result in results]
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return int(not all(result.is_met for result in results))


async def _measure(keys: int) -> list[Result]:
    with TemporaryDirectory() as directory:
        origin = Path(directory, "origin.wal")
        await workloads.write_past(origin)
        results = []
        for number, (case, typing) in enumerate(_TYPINGS.items()):
            path = _copy(origin, Path(directory, f"{number}.wal"))
            ms = await workloads.key_ms(path, typing, keys)
            results.append(Result(f"{case}, CPU", ms, 0.3, 0.1))
        path = _copy(origin, Path(directory, "opening.wal"))
        opening, edit = await workloads.opening_ms(path)
        results.append(Result("open and read the text", opening, 50, 10))
        results.append(Result("first edit", edit, 10, 1))
        return results


def _copy(source: Path, target: Path) -> Path:
    """A copy of a file that is closed, and so is all there is of it."""
    shutil.copy(source, target)
    return target


if __name__ == "__main__":
    raise SystemExit(main())
