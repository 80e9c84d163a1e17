"""A copy of the source with something changed in it, and tests that run against the copy.

- The source itself is never touched.
- Tests that end for another reason than a failed assertion have shown nothing: the callers are
  told how the run ended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


class Ending(Enum):
    """How a run of tests ended."""

    PASSED = "passed"
    FAILED = "failed"
    BROKEN = "broken"
    TOO_LONG = "too long"


class Tree:
    """A copy of the source."""

    def __init__(self, place: Path) -> None:
        """Use a directory that holds the copy as `src`."""
        self._place = place

    def read(self, path: str) -> str:
        """The text of a module of the copy."""
        return (self._place / "src" / path).read_text()

    def write(self, path: str, text: str) -> None:
        """Replace a module of the copy."""
        (self._place / "src" / path).write_text(text)

    def run(self, tests: Sequence[str], *, seconds_max: float = 600) -> Ending:
        """Run tests against the copy, up to the first failure."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        try:
            done = self._call(command, seconds_max)
        except subprocess.TimeoutExpired:
            return Ending.TOO_LONG
        endings = {0: Ending.PASSED, 1: Ending.FAILED}
        return endings.get(done.returncode, Ending.BROKEN)

    def check(self) -> None:
        """Make sure that it is the copy that tests would import."""
        say = "import walstore; print(walstore.__file__)"
        done = self._call([sys.executable, "-c", say], 60)
        assert Path(done.stdout.strip()).is_relative_to(self._place), done

    def _call(self, command: Sequence[str], seconds_max: float) -> subprocess.CompletedProcess[str]:
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self._place / "src"), str(ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Hypothesis then draws the same cases each time, and a busy machine fails none.
            "CI": "1",
            # What fails here is no example for the source as it is.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._place / "hypothesis"),
        }
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )


@contextmanager
def copied() -> Iterator[Tree]:
    """A copy of the source, for the length of a block."""
    with TemporaryDirectory(prefix="walstore-mutant-") as place:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.pyd")
        shutil.copytree(SOURCE, Path(place) / "src", ignore=ignored)
        tree = Tree(Path(place).resolve())
        tree.check()
        yield tree
