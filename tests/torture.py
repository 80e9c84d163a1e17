"""Everything that is tested in small on every change, in the sizes of a release: `make torture`.

- Each part proves one promise of `docs/reliability.md` and says how much it did. A part that did
  less than it should, or skipped something, fails: an idle run proves nothing.
- `TORTURE="G1 G9"` picks promises; `SCALE=0.01` makes every size smaller, to try the parts
  themselves.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.torture_parts import PARTS, Part

ROOT = Path(__file__).parent.parent

# What `make compiled` makes.
COMPILED = ROOT / ".cache" / "compiled" / "lib"

# Nothing that takes longer is still going to end.
HOURS_MAX = 12


class Outcome(NamedTuple):
    """What became of a part."""

    part: Part
    size: int
    seconds: float
    fault: str | None


def run(part: Part, scale: float) -> Outcome:
    """Run one part, and look at what it has to say."""
    size = max(1, round(part.size * scale)) if part.size else 0
    words = [word.format(size=size) for word in part.command]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, **settings_of(part, size)},
        capture_output=True,
        text=True,
        timeout=HOURS_MAX * 3600,
        check=False,
    )
    took_s = time.monotonic() - began
    return Outcome(part, size, took_s, fault_of(part, size, done.returncode, done.stdout))


def settings_of(part: Part, size: int, compiled: Path = COMPILED) -> dict[str, str]:
    """What a part finds in its environment."""
    settings = {} if part.variable is None else {part.variable: str(size)}
    if part.is_compiled and compiled.is_dir():
        settings["PYTHONPATH"] = str(compiled)
    return settings


def fault_of(part: Part, size: int, returned: int, said: str) -> str | None:
    """Why a run proves nothing, or shows a fault; None if all is well."""
    if returned:
        return "\n".join(said.splitlines()[-60:])
    if part.command[0] == "pytest":
        if re.search(r"\d+ passed", said) is None:
            return "no test was run"
        if not part.may_skip and re.search(r"\d+ skipped", said):
            return "a test was skipped"
    if part.traffic is not None:
        pattern, least = part.traffic
        counted = sum(int(found) for found in re.findall(pattern, said))
        if counted < size * least:
            return f"it was idle: {counted} of {pattern!r}, for a size of {size}"
    return None


def row(outcome: Outcome) -> str:
    """An outcome as a row of a table."""
    size = f"{outcome.size:,}" if outcome.size else "all"
    verdict = "passed" if outcome.fault is None else "FAILED"
    part = outcome.part
    return f"| {part.goal} | {part.what} | {size} | {verdict} | {outcome.seconds:,.0f} s |"


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run from the command line; 1 if a part failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("goals", nargs="*", help="out of G1 to G16")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--list", action="store_true", help="only say what would be done")
    options = parser.parse_args(arguments)
    goals = {goal.upper() for goal in options.goals}
    chosen = [part for part in PARTS if not goals or part.goal in goals]
    if options.list:
        for part in chosen:
            print(f"{part.goal}: {part.what} ({part.size or 'all'}): {' '.join(part.command)}")
        return 0
    print("| promise | what | size | outcome | time |\n|---|---|---|---|---|", flush=True)
    outcomes = []
    for part in chosen:
        outcomes.append(run(part, options.scale))
        print(row(outcomes[-1]), flush=True)
    for outcome in outcomes:
        if outcome.fault is not None:
            print(f"\n{outcome.part.goal}, {outcome.part.what}:\n{outcome.fault}")
    return 1 if not outcomes or any(outcome.fault is not None for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
