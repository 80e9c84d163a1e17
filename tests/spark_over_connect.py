"""What Spark Connect is used for, in a process of its own: `ADDRESS DIRECTORY`.

- A process that has spoken to a server has no other session any more.
"""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.rigged import MEMBERS
from tests.spark_archives import Bench
from tests.test_spark_archive import archived, both, check, is_the_fold
from tests.test_spark_stream import WAIT_S, Watched, stream_of
from walstore.archive.authority import Authority
from walstore.canon import canonical_text
from walstore.spark.address import Address
from walstore.spark.connect import is_connect
from walstore.spark.session import spark_session
from walstore.spark.stream import CheckpointError, StreamOptions
from walstore.spark.transforms import fold, verify


def main(address: str, directory: Path) -> None:
    """Carry out everything."""
    spark = spark_session(address)
    try:
        assert is_connect(spark)
        bench = Bench(directory, spark)
        rng = random.Random(5)
        archives(bench, rng)
        rows(spark, bench)
        streams(spark, bench, rng)
        check(bench)
        assert is_the_fold(bench)
    finally:
        spark.stop()


def archives(bench: Bench, rng: random.Random) -> None:
    """A base and a diff, the same as the plain engine's."""
    for count in (25, 8):
        bench.write(rng, count)
        bench.now_ms += 1000
        assert both(bench).committed is not None


def rows(spark: SparkSession, bench: Bench) -> None:
    """Events, and what is made of them."""
    database = str(bench.directory / "relay.db")
    reading = spark.read.format("walstore").option("database", database)
    events = reading.option("prefix", "notes/").load()
    assert {row.verdict for row in verify(events).collect()} >= {"signed", "rejected"}
    team = Authority(writers={"": sorted(MEMBERS)}, producers={"": sorted(MEMBERS)})
    folded = fold(events, authority=team, source=Address(database=database))
    found = {row.document: row.value for row in folded.collect()}
    assert found == {key: canonical_text(row["value"]) for key, row in archived(bench).items()}


def streams(spark: SparkSession, bench: Bench, rng: random.Random) -> None:
    """What comes is archived until it is stopped."""
    watched = Watched()
    with pytest.raises(CheckpointError):
        stream_of(spark, bench, watched, checkpoint=str(bench.directory / "checkpoint"))
    stream = stream_of(spark, bench, watched)
    running = threading.Thread(target=stream.run)
    running.start()
    try:
        for _ in range(2):
            bench.write(rng, 6)
            head = bench.job().address.status()[2]
            watched.until(lambda head=head: watched.reached >= head)  # type: ignore[misc]
    finally:
        stream.stop()
        running.join(WAIT_S)
    assert not running.is_alive()
    assert StreamOptions(trigger="2s").pause_s == 2.0


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
