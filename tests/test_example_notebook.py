"""The notebook over an archive runs from its first cell to its last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_notebook_reads_checks_and_counts_an_archive(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "examples.archive_notebook", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    lines = made.stdout.splitlines()
    assert "4 elements, every signature good: True" in lines
    assert "Ada  ████████████ 2" in lines
    assert "a reader who begins now gets 4 rows" in lines
    assert (tmp_path / "archive").is_dir()
    cells = (ROOT / "examples" / "archive_notebook.py").read_text().count("\n# %%")
    assert cells >= 5
