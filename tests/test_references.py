"""Documents that name tests, and say of how much is tested: what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.torture_parts import PARTS

ROOT = Path(__file__).parent.parent
DOCUMENTS = ["THREAT_MODEL.md", "docs/reliability.md"]

_NAMED = re.compile(r"`(test_\w+\.py)(?:::(test_\w+))?`")
_VARIABLE = re.compile(r"WALSTORE_[A-Z_]+")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_test_that_a_document_names_is_there(document: str) -> None:
    named = _NAMED.findall((ROOT / document).read_text())
    assert len(named) > 20
    for file, test in named:
        source = (ROOT / "tests" / file).read_text()
        assert f"def {test}" in source, f"{file}::{test}"


def test_no_threat_is_answered_without_a_test() -> None:
    """A row of a table of what somebody cannot do ends with a test."""
    rows = [line for line in threats() if line.startswith("| ") and "---" not in line]
    assert len(rows) > 40
    for line in rows:
        assert _NAMED.search(line) or line.startswith(("| it cannot", "| they cannot")), line


def threats() -> list[str]:
    text = (ROOT / "THREAT_MODEL.md").read_text()
    return text.partition("## What each can do")[2].partition("## What leaks")[0].splitlines()


def test_every_promise_has_a_row_and_a_run() -> None:
    text = (ROOT / "docs/reliability.md").read_text()
    goals = {f"G{number}" for number in range(1, 17)}
    assert goals <= set(re.findall(r"^\| (G\d+) \|", text, re.M))
    assert {part.goal for part in PARTS} == goals


def test_every_size_of_a_run_is_one_that_a_test_reads() -> None:
    files = [*(ROOT / "tests").glob("test_*.py"), ROOT / "tests/conftest.py"]
    sources = "".join(path.read_text() for path in files)
    read = set(_VARIABLE.findall(sources))
    assert {part.variable for part in PARTS if part.variable is not None} <= read
    for part in PARTS:
        for word in part.command:
            assert not word.startswith("tests/") or (ROOT / word).exists(), word
