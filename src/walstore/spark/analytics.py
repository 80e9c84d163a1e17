"""Questions that the logs of many documents answer: who works when, and on what, and how it grows.

- `activity` and `growth` are made of ops (`explode_ops`), `soundness` of verified events; `blame`
  and `conflicts` ask the documents themselves, and take events.
- Times are the relay's, in UTC; nobody signs them.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from walstore.archive.authority import Authority
from walstore.spark.address import Address
from walstore.spark.conflict_stage import CONFLICTS, ConflictStage
from walstore.spark.history_stage import BLAME, HistoryStage
from walstore.spark.transforms import ANYBODY, by_document, closed
from walstore.spark.trust import Trust

# What counts as a unit of time, as Spark's `date_trunc` has it.
HOUR = "hour"


def activity(ops: DataFrame, *, unit: str = HOUR) -> DataFrame:
    """What each author has done in each hour, or other unit of time.

    Columns: author, time, documents, edits (elements), ops, inserted and removed (characters and
    other elements of lists).
    """
    done = ops.where(sql.col("kind") != "base")
    return (
        done.groupBy("author", _time(unit))
        .agg(
            sql.count_distinct("document").alias("documents"),
            sql.count_distinct("document", "id").alias("edits"),
            sql.count_if(sql.col("kind") != "sealed").alias("ops"),
            _sizes("insert").alias("inserted"),
            _sizes("remove").alias("removed"),
        )
        .select("author", "time", "documents", "edits", "ops", "inserted", "removed")
    )


def growth(ops: DataFrame, *, unit: str = HOUR) -> DataFrame:
    """How large each document was at the end of each hour in which somebody wrote to it.

    Columns: document, time, edits, inserted, removed, size. The size is exact: what two have
    removed at once has gone once.
    """
    before = (
        Window.partitionBy("document")
        .orderBy("time")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        ops.groupBy("document", _time(unit))
        .agg(
            sql.count_distinct("id").alias("edits"),
            _sizes("insert").alias("inserted"),
            _sizes("remove").alias("removed"),
            sql.sum("growth").alias("grown"),
        )
        .withColumn("size", sql.sum("grown").over(before))
        .select("document", "time", "edits", "inserted", "removed", "size")
    )


def soundness(verified: DataFrame) -> DataFrame:
    """How many events of each author have which verdict, and why.

    Columns: author, kind, verdict, reason, events, documents.
    """
    return (
        verified.groupBy("author", "kind", "verdict", "reason")
        .agg(sql.count("*").alias("events"), sql.count_distinct("document").alias("documents"))
        .select("author", "kind", "verdict", "reason", "events", "documents")
    )


def conflicts(
    events: DataFrame,
    *,
    authority: Authority = ANYBODY,
    identity: str | Path | None = None,
    source: Address | None = None,
) -> DataFrame:
    """Edits of different authors that were made at the same time: neither had seen the other's.

    One row for each element and each session of which it had not seen the newest elements, with the
    names that both have written. What tells is what writers have signed; see `conflict_stage`.

    Args:
        events: All events of the documents.
        authority: Who may write.
        identity: Where a key is that opens what is sealed for it, a file or `env:NAME`.
        source: Where rosters and keyrings are.
    """
    stage = ConflictStage(Trust.of(authority, identity, source))
    return closed(by_document(events), stage.run, CONFLICTS)


def blame(
    events: DataFrame,
    *,
    authority: Authority = ANYBODY,
    identity: str | Path | None = None,
    source: Address | None = None,
) -> DataFrame:
    """Who wrote what the documents hold now: each stretch, key and register, with its element.

    Arguments as for `conflicts`. What only a snapshot vouches for has an author and no element.
    """
    stage = HistoryStage(Trust.of(authority, identity, source))
    return closed(by_document(events), stage.blame, BLAME)


def _time(unit: str) -> Column:
    return sql.date_trunc(unit, sql.timestamp_millis(sql.col("accepted_ms"))).alias("time")


def _sizes(kind: str) -> Column:
    size = sql.when(sql.col("kind") == kind, sql.col("size"))
    return sql.coalesce(sql.sum(size), sql.lit(0)).alias(kind)
