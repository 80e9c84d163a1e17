"""What a task writes, without a Spark around it: the parts that the plain engine writes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rigged import ALICE, BOB
from tests.spark_archives import ARCHIVE, Bench
from walstore.archive.artifacts import MissingObjectError
from walstore.archive.buckets import bucket_of_first
from walstore.archive.manifest import Part
from walstore.archive.manifest_json import write_manifest
from walstore.archive.wiring import Wiring
from walstore.archive.writer import Committed
from walstore.canon import parse

pa = pytest.importorskip("pyarrow", reason="the extra spark is not installed")
pytest.importorskip("pyspark", reason="the extra spark is not installed")

from walstore.spark import parts as parts_module  # noqa: E402
from walstore.spark.job import ArchiveJob  # noqa: E402
from walstore.spark.parts import BUCKET, MESSAGE_SCHEMA, PartWork, read_parts  # noqa: E402
from walstore.spark.schema import events_batch  # noqa: E402


def work_of(bench: Bench, *, since: int = 0, to: int | None = None, **members: Any) -> PartWork:
    # What tasks are told needs no session.
    no_session: Any = None
    job = ArchiveJob(no_session, bench.settings, bench.settings.tables[0], now_ms=bench.clock)
    work = job.work(None, since=since, to=job.address.status()[2] if to is None else to)
    return replace(work, **members)


def batches(work: PartWork, *, rows_max: int = 1000) -> Iterator[Any]:
    """The events of a window as a sorted shuffle hands them out."""
    found = [e for page in work.address.pages(work.since, work.to) for e in page]
    found.sort(key=lambda e: (bucket_of_first(e.document, work.parts), e.document, e.seq))
    for start in range(0, len(found), rows_max):
        some = found[start : start + rows_max]
        numbers = [bucket_of_first(each.document, work.parts) for each in some]
        batch = events_batch(some)
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(numbers, pa.int64())], [*batch.schema.names, BUCKET]
        )


def messages(found: Iterator[Any]) -> dict[int, str]:
    return {row["part"]: row["message"] for batch in found for row in batch.to_pylist()}


def stored(bench: Bench) -> set[str]:
    return {name for name in bench.files() if "manifest" not in name}


@pytest.mark.parametrize("mode", ["folded", "sealed"])
@pytest.mark.parametrize("rows_max", [1, 7, 1000])
def test_parts_are_the_plain_engine_s_however_batches_are_cut(
    tmp_path: Path, mode: str, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "CHUNK_EVENTS", rows_max)
    bench = Bench(tmp_path, mode=mode, snapshot={"max_churn_records": 10**6})
    rng = random.Random(rows_max)
    bench.write(rng, 30)
    committed = bench.run_plain()
    assert committed is not None
    head = committed.manifest.head_position
    bench.write(rng, 20)
    work = work_of(
        bench,
        since=head,
        manifest=write_manifest(committed.manifest),
        epoch=committed.manifest.epoch,
    )
    told = messages(work.write_events(batches(work, rows_max=rows_max)))
    for number in set(range(work.parts)) - told.keys():
        told[number] = asyncio.run(work.write_empty(number))
    mine = {part.key: part.sha256 for each in told.values() for part in read_parts(each).values()}
    again = bench.run_plain()
    assert again is not None
    expected = [part for each in again.artifact.formats.values() for part in each]
    assert {part.key: part.sha256 for part in expected} == mine
    if mode == "folded":
        assert sum(_number(each, "churn") for each in told.values()) == again.artifact.churn


def _number(message: str, name: str) -> int:
    found: Any = parse(message)
    return int(found[name])


@pytest.mark.parametrize("writers", ["any", "roster", [BOB.public_key]])
def test_tasks_believe_whom_the_plain_engine_believes(tmp_path: Path, writers: Any) -> None:
    bench = Bench(tmp_path, writers=writers, archive={"owners": [ALICE.public_key]})
    bench.write(random.Random(3), 5)
    authority = work_of(bench).authority
    assert authority == bench.settings.tables[0].authority
    assert authority.owners == {"": (ALICE.public_key,)}


def test_a_task_that_is_tried_again_stores_nothing_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(random.Random(1), 30)
    work = work_of(bench)
    told = messages(work.write_events(batches(work)))
    before = bench.files()
    assert messages(work.write_events(batches(work))) == told
    assert bench.files() == before


def keys_of(committed: Committed) -> dict[str, list[Part]]:
    return {name: list(parts) for name, parts in committed.artifact.formats.items()}


def test_what_begins_an_archive_is_a_base_and_was_no_diff(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(random.Random(2), 40)
    work = work_of(bench)
    told = messages(work.write_events(batches(work)))
    assert 0 < len(told) < work.parts
    for number in set(range(work.parts)) - told.keys():
        told[number] = asyncio.run(work.write_empty(number))
    mine = stored(bench)
    with bench.beside():
        committed = bench.run_plain()
        assert mine == stored(bench)
    assert committed is not None
    for name, parts in keys_of(committed).items():
        assert [read_parts(told[number])[name] for number in range(work.parts)] == parts
    assert sum(_number(each, "churn") for each in told.values()) == committed.artifact.churn


def begun(bench: Bench, rng: random.Random) -> PartWork:
    """A window that goes on from an archive."""
    bench.write(rng, 40)
    committed = bench.run_plain()
    assert committed is not None
    bench.write(rng, 2)
    manifest = committed.manifest
    head, text = manifest.head_position, write_manifest(manifest)
    return work_of(bench, since=head, manifest=text, epoch=manifest.epoch)


def test_bases_take_in_diffs_and_parts_in_which_nothing_has_happened(tmp_path: Path) -> None:
    bench = Bench(tmp_path, snapshot={"max_churn_records": 1})
    work = begun(bench, random.Random(2))
    told = messages(work.write_events(batches(work)))
    assert 0 < len(told) < work.parts
    rows = [{"part": each, "message": told.get(each, "")} for each in range(work.parts)]
    given = iter([pa.RecordBatch.from_pylist(rows, schema=MESSAGE_SCHEMA)])
    found = messages(work.write_bases(given))
    committed = bench.run_plain()
    assert committed is not None
    assert committed.artifact.is_base
    for name, parts in keys_of(committed).items():
        assert [read_parts(found[number])[name] for number in range(work.parts)] == parts


def test_a_diff_that_is_gone_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    work = begun(bench, random.Random(3))
    told = messages(work.write_events(batches(work)))
    number, message = next(iter(told.items()))
    (place,) = Wiring({}).destinations(work.destinations)
    for part in read_parts(message).values():
        asyncio.run(place.delete(part.key or ""))
    given = pa.RecordBatch.from_pylist(
        [{"part": number, "message": message}], schema=MESSAGE_SCHEMA
    )
    with pytest.raises(MissingObjectError):
        list(work.write_bases(iter([given])))


def test_what_was_rejected_is_counted_and_told_as_far_as_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "TOLD_MAX", 2)
    bench = Bench(tmp_path, parts=1)
    bench.write(random.Random(4), 80)
    work = work_of(bench)
    (message,) = messages(work.write_events(batches(work))).values()
    found: Any = parse(message)
    assert found["rejected"] > len(found["rejections"]) == 2
    assert ARCHIVE.public_key not in message


def test_without_events_there_is_nothing_to_do(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(random.Random(0), 0)
    work = work_of(bench)
    assert list(work.write_events(iter([]))) == []
    assert list(work.write_bases(iter([]))) == []
    assert stored(bench) == set()
