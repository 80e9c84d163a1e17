"""Workers are forked from a process that has loaded what they need, and has no thread but one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="the extra spark is not installed")


def test_what_is_loaded_starts_no_thread() -> None:
    if not Path("/proc/self/task").exists():
        pytest.skip("threads are counted as Linux shows them")
    code = (
        "import os; from walstore.spark.daemon import load; load(os.environ);"
        " print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_workers_here_have_everything_when_they_begin(spark: SparkSession) -> None:
    import pyarrow as pa

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        for batch in batches:
            main = sys.modules["__main__"].__spec__
            found = [f"{main and main.name} {'walstore.spark.parts' in sys.modules}"]
            yield pa.RecordBatch.from_arrays([pa.array(found * batch.num_rows)], ["found"])

    (row,) = spark.range(1).mapInArrow(look, "found string").collect()
    assert row.found == "walstore.spark.daemon True"
