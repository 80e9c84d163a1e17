"""An archive of a relay by its address: the plain engine's, positions and all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.relay_process import forking
from tests.spark_archives import Bench
from tests.test_spark_archive import both, check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="the extra spark is not installed")


def test_it_ends_where_the_plain_engine_ends(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path, spark)
    rng = random.Random(11)
    reached: list[tuple[int, int]] = []
    with forking(tmp_path) as forker:
        for count, others in ((25, 5), (0, 4), (8, 3)):
            bench.write(rng, count)
            # The relay's newest events are of documents that the table has nothing of.
            bench.write(rng, others, keys=["other/x"])
            relay = asyncio.run(forker.start("--database", "relay.db"))
            bench.settings = bench.configured(
                source={"relay": relay.url, "prefix": "notes/", "identity": "archive.key"}
            )
            ran = both(bench)
            reached.append((ran.to, bench.job().address.status()[2]))
            forker.kill(relay.number)
            bench.now_ms += 1000
    assert all(to < head for to, head in reached)
    assert [to for to, _ in reached] == sorted(to for to, _ in reached)
    assert reached[0][0] == reached[1][0] < reached[2][0]
    check(bench)


class Seqs:
    """A source that has nothing but seqs, and counts how often it is asked."""

    def __init__(self, seqs: Sequence[int]) -> None:
        self._seqs = sorted(seqs)
        self.asked = 0

    async def page(self, since: int) -> Any:
        """The next one."""
        self.asked += 1
        above = [SimpleNamespace(seq=seq) for seq in self._seqs if seq > since]
        return SimpleNamespace(events=above[:1])


@given(st.sets(st.integers(1, 5000), max_size=40), st.integers(0, 5000), st.integers(0, 5000))
def test_the_newest_event_is_found_in_a_few_steps(seqs: set[int], since: int, head: int) -> None:
    from walstore.spark.address import newest_seq

    source: Any = Seqs(list(seqs))
    found = asyncio.run(newest_seq(source, since, head))
    assert found == max((seq for seq in seqs if since < seq <= head), default=since)
    assert source.asked <= 14
