"""Transforms and analytics on a real session: what the stages say, out of many partitions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from tests.rigged import ALICE, BOB
from tests.spark_logs import ARCHIVE, BY_KEYS, Logs, Rows, cut, ran, rows_of
from walstore.archive.folded import COLUMNS as FOLDED
from walstore.archive.source import Event
from walstore.canon import canonical_text
from walstore.errors import UsageError
from walstore.relay.sqlite import SqliteLog
from walstore.spark import analytics, transforms
from walstore.spark.address import Address
from walstore.spark.conflict_stage import CONFLICTS, ConflictStage
from walstore.spark.fold_stage import NOTICES, FoldStage
from walstore.spark.history_stage import BLAME, OPS, HistoryStage
from walstore.spark.notebook import plot_history, readable
from walstore.spark.schema import ddl_of, events_ddl
from walstore.spark.stages import VERIFIED, VerifyStage
from walstore.spark.trust import Trust

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000


class World:
    """A relay's database that many things have happened to, and its events."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.key = directory / "archive.key"
        ARCHIVE.save(self.key)
        self.database = str(directory / "relay.db")
        self.events = asyncio.run(self._write())
        self.address = Address(database=self.database)
        reading = spark.read.format("walstore").option("database", self.database)
        self.frame = reading.load().cache()
        self.trust = Trust(BY_KEYS, str(self.key))

    async def _write(self) -> list[Event]:
        async with SqliteLog.open(self.database) as log:
            logs = Logs(log)
            await logs.happen(random.Random(7), 60)
            return await logs.events()

    def stage(self, run: Callable[..., Any]) -> list[str]:
        """What a stage says of all events, to be compared."""
        return told(ran(run, cut(rows_of(self.events))))


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(spark, tmp_path_factory.mktemp("world"))
    yield world
    world.frame.unpersist()


def told(rows: Rows) -> list[str]:
    return sorted(canonical_text(row) for row in rows)


def rows_in(frame: DataFrame) -> Rows:
    return [row.asDict() for row in frame.collect()]


def test_a_filter_takes_nothing_from_what_is_read_later(spark: SparkSession, world: World) -> None:
    events = spark.read.format("walstore").option("database", world.database).load()
    count = len(world.events)
    assert events.where("seq > 5 and document <> 'a'").count() < count
    assert events.count() == count
    both = events.where("seq <= 5").union(events.where("seq > 5"))
    assert sorted(row["seq"] for row in rows_in(both)) == [event.seq for event in world.events]


# ── transforms ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("chained", [True, False])
def test_events_are_verified(world: World, chained: bool) -> None:
    verified = transforms.verify(world.frame, chained=chained)
    assert told(rows_in(verified)) == world.stage(VerifyStage(is_chained=chained).run)
    verdicts = {row["verdict"] for row in rows_in(analytics.soundness(verified))}
    assert verdicts >= {"signed", "rejected"}


def test_documents_are_folded_and_what_was_noticed_is_told(world: World) -> None:
    options: dict[str, Any] = {"authority": BY_KEYS, "identity": world.key}
    folded = transforms.fold(world.frame, **options)
    assert told(rows_in(folded)) == world.stage(FoldStage(world.trust).rows)
    notices = transforms.notices(world.frame, **options)
    assert told(rows_in(notices)) == world.stage(FoldStage(world.trust).notices)
    rejected = rows_in(transforms.rejections(world.frame, **options))
    expected = [row for row in rows_in(notices) if row.pop("kind") == "rejected"]
    assert expected
    assert told(rejected) == told(expected)


def test_a_fold_goes_on_from_the_one_before(world: World) -> None:
    options: dict[str, Any] = {"authority": BY_KEYS, "identity": world.key}
    middle = len(world.events) // 2
    before = transforms.fold(world.frame.where(f"seq <= {middle}"), **options)
    later = world.frame.where(f"seq > {middle} and document <> 'a'")
    after = transforms.fold(later, previous=before, source=world.address, **options)
    stage = FoldStage(Trust(BY_KEYS, str(world.key), world.address), has_previous=True)
    kept = ran(FoldStage(world.trust).rows, cut(rows_of(world.events[:middle])))
    some = [event for event in world.events[middle:] if event.document != "a"]
    expected = ran(stage.rows, cut(rows_of(some), kept=kept))
    assert told(rows_in(after)) == told(expected)
    # Nothing has happened to this one, and it is there as it was.
    assert [row for row in kept if row["document"] == "a"] == expected[:1]


def test_documents_are_shown_as_of_a_position_or_a_time(world: World) -> None:
    place = len(world.events) // 2
    event = world.events[place]
    by_seq = transforms.materialize(world.frame, seq=event.seq, authority=BY_KEYS)
    by_time = transforms.materialize(world.frame, at_ms=event.accepted_ms, authority=BY_KEYS)
    upto = rows_of(world.events[: place + 1])
    expected = ran(FoldStage(Trust(BY_KEYS)).rows, cut(upto))
    for row in expected:
        del row["state"]
    assert told(rows_in(by_seq)) == told(rows_in(by_time)) == told(expected)
    with pytest.raises(UsageError, match="not both"):
        transforms.materialize(world.frame, seq=1, at_ms=1)


def test_ops_blame_and_conflicts_are_those_of_the_documents(world: World) -> None:
    trust = Trust(BY_KEYS)
    ops = transforms.explode_ops(world.frame, authority=BY_KEYS)
    assert told(rows_in(ops)) == world.stage(HistoryStage(trust).ops)
    blame = analytics.blame(world.frame, authority=BY_KEYS)
    assert told(rows_in(blame)) == world.stage(HistoryStage(trust).blame)
    conflicts = analytics.conflicts(world.frame, authority=BY_KEYS)
    assert told(rows_in(conflicts)) == world.stage(ConflictStage(trust).run)


def test_what_comes_out_has_the_columns_that_were_promised(world: World) -> None:
    made = {
        VERIFIED: transforms.verify(world.frame),
        FOLDED: transforms.fold(world.frame),
        NOTICES: transforms.notices(world.frame),
        OPS: transforms.explode_ops(world.frame),
        BLAME: analytics.blame(world.frame),
        CONFLICTS: analytics.conflicts(world.frame),
    }
    for columns, frame in made.items():
        given = ", ".join(f"{name} {kind}" for name, kind in frame.dtypes)
        assert given == ddl_of(columns)


# ── analytics ──────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def ops(spark: SparkSession) -> DataFrame:
    """Two people, two hours, one document; what both have removed has gone once."""

    async def write() -> Rows:
        logs = Logs()
        alice, bob = await logs.opened("a"), await logs.opened("a", BOB)
        alice.insert_text("text", 0, "Hello")
        await alice.commit()
        await bob.pull()
        for document in (alice, bob):
            document.remove_text("text", 0, 2)
            await document.commit()
        bob.insert_text("text", 3, "!")
        bob.set_field("n", 1)
        await bob.commit()
        return rows_of(await logs.events())

    rows = asyncio.run(write())
    for hour, row in zip((0, 0, 1, 1), rows, strict=True):
        row["accepted_ms"] = hour * HOUR_MS + row["seq"]
    frame = spark.createDataFrame(rows, schema=events_ddl())
    return transforms.explode_ops(frame).cache()


def test_activity_is_by_author_and_hour(ops: DataFrame) -> None:
    rows = {(row["author"], row["time"].hour): row for row in rows_in(analytics.activity(ops))}
    first, second = rows[ALICE.public_key, 0], rows[BOB.public_key, 1]
    assert len(rows) == 2
    assert (first["edits"], first["ops"], first["inserted"], first["removed"]) == (2, 2, 5, 2)
    assert (second["edits"], second["ops"], second["inserted"], second["removed"]) == (2, 3, 1, 2)
    assert first["documents"] == second["documents"] == 1


def test_growth_is_the_exact_size(ops: DataFrame) -> None:
    rows = sorted(rows_in(analytics.growth(ops)), key=lambda row: row["time"])
    assert [(row["size"], row["inserted"], row["removed"]) for row in rows] == [
        (3, 5, 2),
        (4, 1, 2),
    ]
    (day,) = rows_in(analytics.growth(ops, unit="day"))
    assert (day["size"], day["edits"]) == (4, 4)


def test_a_history_is_drawn_with_names(ops: DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra notebook is not installed")
    names = {ALICE.public_key: "Ada"}
    figure = plot_history(ops, tmp_path / "history.png", names=names, unit="hour")
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")
    bars, lines = figure.axes
    shown = [text.get_text() for text in bars.get_legend().get_texts()]
    assert shown == ["Ada", f"{BOB.public_key[:8]}…"]
    assert [patch.get_height() for patch in bars.patches] == [5, 1]
    assert [list(line.get_ydata())[-1] for line in lines.lines] == [4]
    who = {row["author"] for row in rows_in(readable(analytics.activity(ops), names))}
    assert who == set(shown)
