"""A window that tasks write, part by part: what the writer of an archive commits.

- What is measured is written: the diff is stored first, as only that tells how large it is. Where
  it becomes a base, tasks merge it into the archive, and the diff, which nobody names, is removed.
- What begins an archive is a base in any case, and is stored as one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from walstore.archive.artifacts import Spot
from walstore.archive.destination import DestinationError
from walstore.archive.manifest import Manifest
from walstore.archive.plan import Plan
from walstore.archive.work import Measured, Written
from walstore.archive.writer import Committed, Writer
from walstore.canon import parse
from walstore.spark.faults import told_in_one_line
from walstore.spark.parts import BUCKET, MESSAGE_DDL, PartWork, read_parts
from walstore.spark.schema import EVENT_NAMES

_logger = logging.getLogger("walstore.spark")


@dataclass(frozen=True)
class Ran:
    """What a run has done.

    Attributes:
        committed: What was added to the archive; None if there was nothing to add.
        since: Where it began.
        to: Where it ended.
        events: How many events it has read.
        rejected: How many elements were rejected.
        rejections: Some of them: document, `ts` and reason.
        problems: What else was wrong: document and what.
    """

    committed: Committed | None
    since: int
    to: int
    events: int = 0
    rejected: int = 0
    rejections: tuple[tuple[str, int | None, str], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()


class SparkWork:
    """A window, and the tasks that write it."""

    def __init__(self, spark: SparkSession, work: PartWork, events: DataFrame | None) -> None:
        """Write the events of a window; None if it is known to have none."""
        self._spark, self._work, self._events = spark, work, events
        self._messages: dict[int, str] = {}
        self.since, self.to, self.is_whole = work.since, work.to, False

    async def measure(self, spot: Spot) -> Measured:
        """Fold and store the diff, which tells how large it is."""
        if self._events is not None:
            with told_in_one_line():
                found = in_parts(self._events, self._work.parts).mapInArrow(
                    self._work.write_events, MESSAGE_DDL
                )
                self._messages = _by_part(found.collect())
        told = [parse(message) for message in self._messages.values()]
        changes = _sum(told, "row_count")
        return Measured(
            changes=changes,
            diff_bytes=_sum(told, "diff_bytes") + self._empty_bytes() if changes else 0,
            churn=_sum(told, "churn"),
            net_rows=_sum(told, "net_rows"),
        )

    def _empty_bytes(self) -> int:
        """What the parts in which nothing has happened take."""
        return self._work.empty_bytes() * (self._work.parts - len(self._messages))

    async def write_diff(self, spot: Spot) -> list[Written]:
        """What was stored; parts without events are stored now."""
        return await self._stored()

    async def _stored(self) -> list[Written]:
        for number in range(self._work.parts):
            if number not in self._messages:
                self._messages[number] = await self._work.write_empty(number)
        return [_written(self._messages[number]) for number in range(self._work.parts)]

    async def write_base(self, spot: Spot, before: Manifest, way: Plan | None) -> list[Written]:
        """Merge what was stored into the archive, part by part; the first one is there already."""
        if self._work.is_first:
            return await self._stored()
        rows = [(number, self._messages.get(number, "")) for number in range(self._work.parts)]
        with told_in_one_line():
            found = (
                self._spark.createDataFrame(rows, MESSAGE_DDL)
                .repartitionById(self._work.parts, sql.col("part").cast("int"))
                .mapInArrow(self._work.write_bases, MESSAGE_DDL)
            )
            messages = _by_part(found.collect())
        return [_written(messages[number]) for number in range(self._work.parts)]

    async def discard_diff(self, writer: Writer) -> None:
        """Remove a diff that a base has taken in, and that nobody names."""
        if self._work.is_first:
            return
        for message in self._messages.values():
            for part in read_parts(message).values():
                try:
                    await writer.destinations[0].delete(part.key or "")
                except DestinationError as error:
                    _logger.warning("%s stays, and nobody names it: %s", part.key, error)

    def ran(self, committed: Committed | None) -> Ran:
        """What came of it."""
        told: list[Any] = [parse(message) for _, message in sorted(self._messages.items())]
        return Ran(
            committed,
            self.since,
            self.to,
            events=_sum(told, "churn"),
            rejected=_sum(told, "rejected"),
            rejections=tuple((a, b, c) for each in told for a, b, c in each["rejections"]),
            problems=tuple((a, b) for each in told for a, b in each["problems"]),
        )


def in_parts(events: DataFrame, parts: int) -> DataFrame:
    """Events by part, document and seq, each part in one partition."""
    # The first four bytes of the hash, as `walstore.archive.buckets` has it.
    start = sql.conv(sql.substring(sql.sha2(sql.col("document").cast("binary"), 256), 1, 8), 16, 10)
    bucket = sql.pmod(start.cast("bigint"), sql.lit(parts)).cast("int")
    return (
        events.select(*EVENT_NAMES, bucket.alias(BUCKET))
        # By the number itself: its hash would put several parts into one partition.
        .repartitionById(parts, BUCKET)
        .sortWithinPartitions(BUCKET, "document", "seq")
    )


def _by_part(rows: Iterable[Any]) -> dict[int, str]:
    return {int(row["part"]): str(row["message"]) for row in rows}


def _sum(told: Sequence[Any], name: str) -> int:
    return sum(int(each[name]) for each in told)


def _written(message: str) -> Written:
    found: Any = parse(message)
    return Written(read_parts(message), int(found["row_count"]))
