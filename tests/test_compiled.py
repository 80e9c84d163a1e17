"""Both builds are the same source, and each says which one it is.

`make test` runs the core's tests a second time with the compiled build in front, and says so in
`WALSTORE_EXPECT_COMPILED`: then it is an error if the interpreted one answers.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import walstore

ROOT = Path(__file__).resolve().parent.parent
EXPECTED = os.environ.get("WALSTORE_EXPECT_COMPILED", "") not in ("", "0")

HOT = ["walstore.canon"] + [
    f"walstore.{package}.{path.stem}"
    for package in ("crdt", "reconcile")
    for path in sorted((ROOT / "src/walstore" / package).glob("*.py"))
    if path.name != "__init__.py"
]


def test_the_build_that_is_meant_is_the_one_that_runs() -> None:
    assert walstore.compiled is EXPECTED


@pytest.mark.parametrize("name", HOT)
def test_hot_modules_are_all_of_one_build(name: str) -> None:
    file = str(import_module(name).__file__)
    assert file.endswith(tuple(EXTENSION_SUFFIXES)) is EXPECTED


def test_entries_of_both_builds_are_equal_by_value_and_have_no_hash() -> None:
    runs = import_module("walstore.crdt.runs")
    first = runs.Remove("note", "ada", 3, "ada", 1)
    assert first == runs.Remove("note", "ada", 3, "ada", 1, 1, 1)
    assert first != runs.Remove("note", "ada", 3, "ada", 2)
    assert first != "a remove"
    assert repr(runs.Verbatim({"t": "?"})) == "Verbatim(op={'t': '?'})"
    with pytest.raises(TypeError):
        hash(first)
