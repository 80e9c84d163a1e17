"""A stream archives what comes, once, whatever is stopped, repeated or unreachable."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark_archives import Bench
from tests.test_spark_archive import check, is_the_fold
from walstore.net.backoff import Backoff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from walstore.spark.stream import ArchiveStream
    from walstore.spark.work import Ran

pytest.importorskip("pyspark", reason="the extra spark is not installed")

WAIT_S = 120.0


class Watched:
    """What a stream has done so far."""

    def __init__(self) -> None:
        self.runs: list[Ran] = []
        self._moved = threading.Condition()

    def took(self, ran: Ran) -> None:
        """The stream has archived a batch, or found it empty."""
        with self._moved:
            self.runs.append(ran)
            self._moved.notify_all()

    @property
    def reached(self) -> int:
        """How far the archive is."""
        return max((ran.to for ran in self.runs), default=-1)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        with self._moved:
            assert self._moved.wait_for(condition, WAIT_S), self.runs


def stream_of(spark: SparkSession, bench: Bench, watched: Watched, **options: Any) -> ArchiveStream:
    from walstore.spark.stream import ArchiveStream, StreamOptions

    given = StreamOptions(**{"trigger": "50ms", **options})
    return ArchiveStream(
        spark, bench.job(), given, on_ran=watched.took, backoff=Backoff(1, 2, 1, 2)
    )


def head(bench: Bench) -> int:
    return bench.job().address.status()[2]


def test_what_comes_is_archived_until_it_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    bench, watched = Bench(tmp_path, spark), Watched()
    rng = random.Random(1)
    bench.write(rng, 10)
    stream = stream_of(spark, bench, watched, checkpoint=str(tmp_path / "checkpoint"))
    running = threading.Thread(target=stream.run)
    running.start()
    try:
        for _ in range(3):
            bench.write(rng, 6)
            # Something that is archived comes last, for the rest is not of this table.
            while (last := _last_of_table(bench)) <= watched.reached:
                bench.write(rng, 1)
            watched.until(lambda last=last: watched.reached >= last)  # type: ignore[misc]
    finally:
        stream.stop()
        running.join(WAIT_S)
    assert not running.is_alive()
    assert sum(ran.committed is not None for ran in watched.runs) >= 2
    check(bench)
    # Another one goes on from there, though Spark may hand out its last batch again.
    before = bench.files()
    again = Watched()
    stream_of(
        spark, bench, again, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now"
    ).run()
    assert all(ran.committed is None for ran in again.runs)
    assert bench.files() == before
    assert is_the_fold(bench)


def _last_of_table(bench: Bench) -> int:
    return max(event.seq for page in bench.job().address.pages(0, head(bench)) for event in page)


def test_batches_are_as_large_as_they_may_be(spark: SparkSession, tmp_path: Path) -> None:
    bench, watched = Bench(tmp_path, spark), Watched()
    bench.write(random.Random(2), 30)
    stream_of(spark, bench, watched, trigger="available-now", rows_max=12).run()
    assert [ran.to for ran in watched.runs][-1] == head(bench)
    assert max(ran.events for ran in watched.runs) <= 12
    assert is_the_fold(bench)


def test_what_may_pass_is_waited_out_and_what_does_not_ends_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    from walstore.errors import StorageError

    bench, watched = Bench(tmp_path, spark), Watched()
    bench.write(random.Random(3), 5)
    (tmp_path / "relay.db").rename(tmp_path / "away.db")
    with pytest.raises(StorageError):
        stream_of(spark, bench, watched, trigger="available-now").run()
    assert watched.runs == []


@pytest.mark.parametrize("text", ["", "5", "soon", "-1s", "0s"])
def test_a_trigger_that_is_not_understood_is_named(text: str) -> None:
    from walstore.spark.stream import StreamOptions, TriggerError

    with pytest.raises(TriggerError, match="trigger"):
        StreamOptions(trigger=text)
