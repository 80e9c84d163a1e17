"""Spark writes the archive that the plain engine writes, whatever happens to it."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import threading
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark_archives import Bench
from walstore.archive.checking import check_archive
from walstore.archive.local import LocalDestination
from walstore.archive.places import MovedError
from walstore.archive.reader import Archive
from walstore.archive.writer import OtherTableError
from walstore.document.ports import LogBehindError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from walstore.spark.work import Ran

JSONL = {"formats": {"snapshot": ["jsonl"], "diff": ["jsonl"]}}
PARQUET = {"formats": {"snapshot": ["parquet", "jsonl"], "diff": ["parquet"]}}
TWO = ("out", "second")


def check(bench: Bench, *names: str) -> None:
    """The archive in each place is sound, unless it keeps what hostile writers wrote."""
    if bench.settings.tables[0].mode == "sealed":
        return
    for name in names or ("out",):
        archive = Archive(LocalDestination(bench.directory / name), "notes/")
        checked = asyncio.run(check_archive(archive))
        assert checked.is_sound, checked.flaws


def both(bench: Bench, *names: str) -> Ran:
    """Archive what there is, both ways; they agree."""
    ran = bench.run_spark()
    with bench.beside(*names):
        bench.run_plain()
        expected = bench.files(*names)
    assert bench.files(*names) == expected
    return ran


# ── the law ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("seed", "sections"),
    [
        (1, {"mode": "folded", **JSONL}),
        (2, {"mode": "folded", **PARQUET, "destinations": TWO}),
        (3, {"mode": "sealed", **JSONL, "destinations": TWO}),
        (4, {"mode": "sealed", **PARQUET}),
        (5, {"mode": "folded", "parts": 1, **JSONL, "archive": {"state": False}}),
        (6, {"mode": "sealed", "parts": 1, **JSONL}),
    ],
)
def test_the_archive_is_the_plain_engine_s_byte_for_byte(
    spark: SparkSession, tmp_path: Path, seed: int, sections: dict[str, Any]
) -> None:
    # A base, diffs, a base by policy, and what retention lets go of.
    policy = {"max_churn_records": 30, "max_interval": "1h", "quiet_bases": True}
    more = {"snapshot": policy, "retention": {"keep_epochs": 2}}
    bench = Bench(tmp_path, spark, **sections, **more)
    rng = random.Random(seed)
    names = sections.get("destinations", ("out",))
    kinds: list[str] = []
    rejected = 0
    for count in (25, 8, 20, 1, 0, 6):
        if count:
            bench.write(rng, count)
        else:
            bench.now_ms += 3_600_000
        bench.now_ms += 1000
        ran = both(bench, *names)
        rejected += ran.rejected
        kinds.append("none" if ran.committed is None else ran.committed.artifact.kind.value)
    assert kinds.count("diff") >= 2
    assert kinds.count("snapshot") >= 2
    assert (rejected > 0) == (sections["mode"] == "folded")
    check(bench, *names)


def test_an_empty_relay_has_an_archive_too(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path, spark)
    bench.write(random.Random(0), 0)
    both(bench)


def test_what_was_rejected_is_told(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path, spark)
    bench.write(random.Random(7), 60)
    ran = bench.run_spark()
    assert ran.rejected >= len(ran.rejections) > 0
    documents = {document for document, _, _ in ran.rejections}
    assert documents <= {"notes/a", "notes/b c", "notes/é", "notes/𝒳"}
    assert all(reason for _, _, reason in ran.rejections)


def test_each_part_has_a_task_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as sql

    from walstore.spark.parts import BUCKET
    from walstore.spark.work import in_parts

    bench = Bench(tmp_path, spark)
    bench.write(random.Random(3), 40, keys=[f"notes/{number}" for number in range(12)])
    job = bench.job()
    placed = in_parts(job.events(0, job.address.status()[2]), 4)
    found = placed.select(sql.spark_partition_id().alias("task"), BUCKET).distinct().collect()
    assert sorted((row.task, row[BUCKET]) for row in found) == [(each, each) for each in range(4)]


# ── once more ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["folded", "sealed"])
def test_a_run_that_is_repeated_changes_nothing(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    bench = Bench(tmp_path, spark, mode=mode)
    bench.write(random.Random(1), 20)
    first = bench.run_spark()
    before = bench.files()
    bench.now_ms += 1000
    again = bench.run_spark()
    assert first.committed is not None
    assert again.committed is None
    assert (again.since, again.to) == (first.to, first.to)
    assert bench.files() == before


def test_a_task_that_dies_after_writing_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path, spark)
    bench.write(random.Random(2), 30)
    both(bench)
    bench.write(random.Random(3), 10)
    bench.now_ms += 1000

    died = tmp_path / "died"

    def write_and_die(work: Any, batches: Any) -> Any:
        messages = list(work.write_events(batches))
        if messages and not died.exists():
            died.touch()
            # As a machine does that goes: what it has written is there, and nobody was told.
            os._exit(1)
        yield from messages

    job = bench.job()
    from walstore.spark.parts import MESSAGE_DDL
    from walstore.spark.work import in_parts

    opened = job._open()
    work = job.work(opened.writer.manifest, since=opened.writer.head, to=opened.head)
    events = in_parts(job.events(work.since, work.to), work.parts)
    rows = events.mapInArrow(lambda each: write_and_die(work, each), MESSAGE_DDL).collect()
    assert died.exists()
    assert len(rows) == len({row["part"] for row in rows}) > 0
    # What was left is what the next run finds, and takes for its own.
    both(bench)
    check(bench)


def test_the_last_commit_is_told_again_for_its_driver_may_have_died(
    spark: SparkSession, tmp_path: Path
) -> None:
    said = tmp_path / "said.jsonl"
    bench = Bench(tmp_path, spark, events=[{"type": "jsonl", "path": str(said)}])
    bench.write(random.Random(2), 10)
    job = bench.job()
    job.run()
    first = said.read_text()
    assert first.count("\n") == 1
    # As if it had been killed in between.
    said.unlink()
    assert job.run().committed is None
    assert not said.exists()
    assert bench.job().run().committed is None
    assert said.read_text() == first


# ── somebody else ──────────────────────────────────────────────────────────────────────


def test_somebody_who_commits_in_between_is_noticed_and_nothing_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from walstore.spark.work import SparkWork

    bench = Bench(tmp_path, spark)
    bench.write(random.Random(4), 20)
    bench.run_spark()
    bench.write(random.Random(5), 10)
    written = SparkWork.write_diff

    async def commit_first(self: SparkWork, spot: Any) -> Any:
        found = await written(self, spot)
        others = threading.Thread(target=bench.run_plain)
        others.start()
        others.join()
        bench.now_ms += 1
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SparkWork, "write_diff", commit_first)
        with pytest.raises(MovedError):
            bench.run_spark()
    check(bench)
    # Whoever persists goes on from there.
    bench.write(random.Random(6), 5)
    ran = bench.job().run_until_done()
    assert ran.committed is not None
    check(bench)
    assert is_the_fold(bench)


def test_the_archive_of_another_relay_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path, spark)
    bench.write(random.Random(1), 5)
    bench.run_spark()
    before = bench.files()
    for path in tmp_path.glob("relay.db*"):
        path.unlink()
    bench.write(random.Random(1), 9)
    with pytest.raises(OtherTableError, match="source"):
        bench.run_spark()
    assert bench.files() == before


def test_a_relay_that_was_rolled_back_is_said_to_be(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path, spark)
    bench.write(random.Random(1), 5)
    copy = (tmp_path / "relay.db").read_bytes()
    bench.write(random.Random(2), 9)
    bench.run_spark()
    for name in ("relay.db-wal", "relay.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "relay.db").write_bytes(copy)
    with pytest.raises(LogBehindError):
        bench.run_spark()


@pytest.mark.parametrize("mode", ["folded", "sealed"])
def test_a_gap_is_closed_as_the_plain_engine_closes_it(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    bench = Bench(tmp_path, spark, mode=mode)
    bench.write(random.Random(1), 20)
    both(bench)
    bench.write(random.Random(2), 20)
    bench.trim(30)
    ran = both(bench)
    assert ran.committed is not None
    # A base closes it, and what is left is read on from there.
    assert ran.committed.manifest.epoch == 2
    assert ran.to == bench.job()._open().head
    check(bench)
    assert bench.run_spark().committed is None


# ── batches of a stream ────────────────────────────────────────────────────────────────


def test_batches_that_come_again_or_leave_something_out_lose_and_double_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, spark)
    bench.write(random.Random(8), 30)
    job = bench.job()
    first = job.run_batch(job.events(0, 10))
    assert (first.since, first.to) == (0, _last(job, 0, 10))
    before = bench.files()
    bench.now_ms += 1000
    # Again, and nothing at all.
    assert job.run_batch(job.events(0, 10)).committed is None
    assert job.run_batch(job.events(first.to, first.to)).committed is None
    assert bench.files() == before
    # What lies between is read from the source.
    ran = job.run_batch(job.events(20, 30))
    reached = _last(job, 20, 30)
    assert (ran.since, ran.to) == (first.to, reached)
    # It overlaps with what is there.
    bench.write(random.Random(9), 10)
    ran = job.run_batch(job.events(15, 40))
    assert (ran.since, ran.to) == (reached, _last(job, 15, 40))
    bench.run_spark()
    check(bench)
    assert is_the_fold(bench)


def _last(job: Any, since: int, until: int) -> int:
    return max(int(row["seq"]) for row in job.events(since, until).collect())


def is_the_fold(bench: Bench) -> bool:
    """Whether the archive has the rows that one has that is written at once."""
    found = archived(bench)
    with bench.beside():
        bench.run_plain()
        return archived(bench) == found


def archived(bench: Bench) -> dict[Any, Any]:
    """The rows of the archive, by document."""

    async def read() -> dict[Any, Any]:
        archive = Archive(LocalDestination(bench.directory / "out"), "notes/")
        return {row["document"]: row async for row in archive.rows()}

    return asyncio.run(read())


def test_no_secret_is_sent_to_tasks(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path, spark)
    sent = pickle.dumps(bench.job().work(None, since=0, to=5))
    seed = bytes([9]) * 32
    for secret in (seed, seed.hex().encode(), b64encode(seed), urlsafe_b64encode(seed)):
        assert secret.rstrip(b"=") not in sent
    assert b"archive.key" in sent
