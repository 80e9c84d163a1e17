"""Functions from events to what they mean: verified, folded, as of a position, op by op.

    events ─► verify                      each event, with a verdict
           ─► fold, materialize           one row for each document
           ─► notices, rejections         what was not right
           ─► explode_ops                 one row for each run of ops

- They take a DataFrame of events (`walstore.spark.schema`) and give one, with a schema of its own;
  nothing is read or written here, and nothing runs before somebody asks for rows.
- Documents are brought together once, sorted within their partitions, and told apart as they
  stream by. So many small documents cost no more than few large ones.
- Bad input becomes rows with reasons. It never fails a job, and is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from walstore.archive.authority import Authority
from walstore.archive.folded import COLUMNS as FOLDED
from walstore.archive.rows import Column
from walstore.errors import UsageError
from walstore.spark.address import Address
from walstore.spark.fold_stage import NOTICES, FoldStage
from walstore.spark.history_stage import OPS, HistoryStage
from walstore.spark.schema import EVENT_NAMES, ddl_of
from walstore.spark.stages import KEPT, VERIFIED, VerifyStage
from walstore.spark.trust import Trust

Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ANYBODY = Authority()


def verify(events: DataFrame, *, chained: bool = True) -> DataFrame:
    """Events with a `verdict` and, where it is "rejected", a `reason`.

    The verdict is "signed" if the signature of its author or producer proves an event, "linked" if
    a later element of the same author does, "gone" if the relay had let go of its bytes.

    Args:
        events: The events; for chains, all of a document, or its newest.
        chained: Whether elements prove those that they are linked to: one signature check for a
            whole session, and documents are brought together. If not, each event is checked for
            itself, where it is.
    """
    stage = VerifyStage(is_chained=chained).run
    given = by_document(events) if chained else events.select(*EVENT_NAMES)
    return closed(given, stage, VERIFIED)


def fold(
    events: DataFrame,
    *,
    authority: Authority = ANYBODY,
    identity: str | Path | None = None,
    previous: DataFrame | None = None,
    source: Address | None = None,
) -> DataFrame:
    """Documents as they read after the events: the rows of a folded archive.

    Args:
        events: All events of the documents; with `previous`, those since are enough.
        authority: Who may write.
        identity: Where the key is that signs the states, a file or `env:NAME`; without one none
            are kept.
        previous: What was folded before, by the same identity. Documents without new events keep
            their rows.
        source: Where the events are from: for rosters and keyrings, and to read a document anew
            where a part of its log does not tell.
    """
    trust = Trust.of(authority, identity, source)
    stage = FoldStage(trust, has_previous=previous is not None)
    return closed(by_document(_with_kept(events, previous)), stage.rows, FOLDED)


def materialize(
    events: DataFrame,
    *,
    seq: int | None = None,
    at_ms: int | None = None,
    authority: Authority = ANYBODY,
    identity: str | Path | None = None,
    source: Address | None = None,
) -> DataFrame:
    """Documents as they were: one row each, without the state.

    Args:
        events: All events of the documents.
        seq: Up to this position; the newest if left out.
        at_ms: Up to this time of the relay, in milliseconds since 1970.
        authority: Who may write.
        identity: Where a key is that opens what is sealed for it, a file or `env:NAME`.
        source: Where rosters and keyrings are.

    Raises:
        UsageError: Both a position and a time are given.
    """
    if seq is not None and at_ms is not None:
        raise UsageError("say either a position or a time, not both")
    given = events if seq is None else events.where(sql.col("seq") <= seq)
    stage = FoldStage(Trust.of(authority, identity, source), until_ms=at_ms)
    folded = closed(by_document(given), stage.rows, FOLDED)
    return folded.select(*(column.name for column in FOLDED if column.name != "state"))


def notices(
    events: DataFrame,
    *,
    authority: Authority = ANYBODY,
    identity: str | Path | None = None,
    previous: DataFrame | None = None,
    source: Address | None = None,
) -> DataFrame:
    """What was noticed while folding: arguments as for `fold`.

    The kind is "rejected", "missing" for elements that others count on, "forked" for a clock that
    was used twice, "sealed" for what waits for a key, or "problem" for a whole document.
    """
    trust = Trust.of(authority, identity, source)
    stage = FoldStage(trust, has_previous=previous is not None)
    return closed(by_document(_with_kept(events, previous)), stage.notices, NOTICES)


def rejections(
    events: DataFrame,
    *,
    authority: Authority = ANYBODY,
    identity: str | Path | None = None,
    previous: DataFrame | None = None,
    source: Address | None = None,
) -> DataFrame:
    """The elements that were not folded, with the reason: arguments as for `fold`."""
    told = notices(events, authority=authority, identity=identity, previous=previous, source=source)
    return told.where(sql.col("kind") == "rejected").select(
        "document", "seq", "ts", "author", "reason"
    )


def explode_ops(
    events: DataFrame,
    *,
    authority: Authority = ANYBODY,
    identity: str | Path | None = None,
    source: Address | None = None,
) -> DataFrame:
    """One row for each run of ops that counts: who, when, what, and by how much lists grew.

    The kind is "set" or "delete" of a register, "insert" or "remove" of a list or text, "put" or
    "drop" of a map; "sealed" for an element that no key opens; "base" for what a snapshot stands
    for where the beginning of a log is gone.

    Args:
        events: All events of the documents.
        authority: Who may write.
        identity: Where a key is that opens what is sealed for it, a file or `env:NAME`.
        source: Where rosters and keyrings are.
    """
    stage = HistoryStage(Trust.of(authority, identity, source))
    return closed(by_document(events), stage.ops, OPS)


def by_document(events: DataFrame) -> DataFrame:
    """Events with those of one document together, by seq."""
    names = [*EVENT_NAMES, *(name for name in events.columns if name == KEPT)]
    return (
        events.select(*names)
        .repartition("document")
        .sortWithinPartitions("document", "seq", "ts", "id")
    )


def closed(given: DataFrame, stage: Stage, columns: Sequence[Column]) -> DataFrame:
    """What a stage makes of a DataFrame, with the columns that it promises."""
    return given.mapInArrow(stage, ddl_of(columns)).select(*(column.name for column in columns))


def _with_kept(events: DataFrame, previous: DataFrame | None) -> DataFrame:
    """Events, and before those of a document the row that it had."""
    if previous is None:
        return events.select(*EVENT_NAMES)
    names = [column.name for column in FOLDED]
    kept = previous.select(
        "document", sql.lit(0).cast("bigint").alias("seq"), sql.struct(*names).alias(KEPT)
    )
    return events.select(*EVENT_NAMES).unionByName(kept, allowMissingColumns=True)
