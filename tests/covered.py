"""How many lines and branches of the core its own tests reach: `python -m tests.covered`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent

CORE = ["canon.py", "crdt/*", "wire/*", "signed/*", "document/*"]
TESTS = ["canon", "crdt_*", "packed_*", "wire_*", "signed_*", "document_*", "weaknesses*"]
# What a document does after a roll-back or a refusal shows where somebody goes on with it.
TESTS += ["store_rollback*", "store_refused"]
PERCENT_MIN = 95


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 if too little is reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.covered", description=__doc__)
    parser.add_argument("--missing", action="store_true", help="say what is not reached")
    options = parser.parse_args(arguments)
    tests = [str(path) for name in TESTS for path in sorted(ROOT.glob(f"tests/test_{name}.py"))]
    with TemporaryDirectory() as place:
        # Hypothesis then lets tests take the longer that they take when they are watched.
        environ = {**os.environ, "CI": "1", "COVERAGE_FILE": str(Path(place) / "coverage")}

        def cover(*words: str) -> int:
            command = [sys.executable, "-m", "coverage", *words]
            return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode

        source = ["--branch", "--source=walstore"]
        if cover("run", *source, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests):
            return 1
        include = ",".join(f"src/walstore/{name}" for name in CORE)
        # With a decimal, so that almost enough is not rounded up.
        shown = ["--skip-covered", "--precision=1"]
        shown += ["--show-missing"] if options.missing else []
        found = Path(place) / "covered.json"
        if cover("report", f"--include={include}", f"--fail-under={PERCENT_MIN}", *shown):
            return 1
        if cover("json", f"--include={include}", "-q", "-o", str(found)):
            return 1
        totals = json.loads(found.read_text())["totals"]
        # Lines are more than branches, and hide what is missing of these.
        percent = 100 * totals["covered_branches"] / totals["num_branches"]
        print(f"{percent:.1f} % of {totals['num_branches']} branches")
        return 0 if percent >= PERCENT_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
