"""Core work takes no more instructions than it is committed to, on however busy a machine."""

from __future__ import annotations

import sys

import pytest

import walstore
from benchmarks import operations

pytestmark = pytest.mark.skipif(
    walstore.compiled or sys.implementation.name != "cpython",
    reason="instructions are counted of CPython's bytecode, and compiled modules have none",
)


@pytest.mark.parametrize("name", operations.WORKLOADS)
def test_core_work_takes_no_more_instructions_than_committed(name: str) -> None:
    committed = operations.committed()
    if not committed:
        pytest.skip(f"nothing was counted on Python {operations.VERSION}: see docs/performance.md")
    found = operations.instructions(operations.WORKLOADS[name])
    assert found <= operations.SLACK * committed[name], (
        f"{name}: {found:,} instructions, committed to {committed[name]:,}; if that is meant: "
        "python -m benchmarks.operations --accept"
    )


def test_the_same_work_counts_the_same_every_time() -> None:
    counts = {operations.instructions(operations.WORKLOADS["typing"]) for _ in range(3)}
    assert len(counts) == 1


def test_more_work_is_counted_as_more() -> None:
    def twice(count: operations.Counted) -> None:
        operations.typing(count)
        operations.typing(count)

    assert operations.instructions(twice) == 2 * operations.instructions(operations.typing)


def test_every_committed_figure_is_of_a_workload_that_is_there() -> None:
    committed = operations.committed()
    assert not committed or set(committed) == set(operations.WORKLOADS)
