"""Archives a log on Spark: the same archive as the plain engine writes, byte for byte.

    events ─► by part ─► each part in a task: folded, written ─► messages ─► one commit, here

- A run covers what there is when it begins: from the archive's head to the source's. Nothing else
  is read. A run that is repeated, or finds nothing, changes nothing.
- Tasks store objects; only the driver replaces the manifest. A driver that is killed leaves
  objects that nobody names.
- Policy, manifest, places and formats are those of `walstore.archive`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from walstore.archive.artifacts import Spot
from walstore.archive.authority import Authority
from walstore.archive.config import Settings, TableSettings
from walstore.archive.destinations import open_destination
from walstore.archive.formats import open_format
from walstore.archive.manifest import Manifest
from walstore.archive.manifest_json import write_manifest
from walstore.archive.plan import Plan
from walstore.archive.work import Measured, Written
from walstore.archive.writer import Committed, Table, Writer
from walstore.canon import parse
from walstore.errors import UsageError
from walstore.net.faults import OtherRelayError, ReplayTooOldError
from walstore.spark.address import Address
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


class ArchiveJob:
    """Archives one table."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        table: TableSettings,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Describe it; nothing is read yet.

        Args:
            spark: The session.
            settings: Where from, where to, and how.
            table: What.
            now_ms: The time in milliseconds since 1970.

        Raises:
            UsageError: A folded table has no identity to fold with.
        """
        if table.mode == "folded" and settings.identity is None:
            raise UsageError("source.identity is missing: a folded table signs its states")
        self._spark, self._settings, self._table = spark, settings, table
        self._now_ms = now_ms
        identity = None if settings.identity is None else str(settings.identity.resolve())
        self._identity = identity
        self.address = Address(
            database=settings.database,
            relay=settings.relay,
            prefix=table.prefix,
            identity=identity,
        )

    def run(self, *, to: int | None = None) -> Ran:
        """Archive what there is now, up to a position if one is given.

        Raises:
            MovedError: Somebody else has committed meanwhile; what was done is nobody's.
            ReplayTooOldError: The source no longer reaches back to the head.
            StorageError, TransportError: Something could not be read or written.
        """
        relay_id, min_seq, head = self.address.status()
        writer = self._opened(relay_id)
        since, until = writer.head, head if to is None else min(to, head)
        if min_seq > since + 1:
            raise ReplayTooOldError(min_seq)
        if until < since or (until == since and writer.manifest is not None):
            return Ran(None, since, since)
        return self._commit(writer, self._events(since, until), since, until)

    def run_batch(self, events: DataFrame) -> Ran:
        """Archive a micro-batch of a stream; what the archive has already is passed over.

        A batch that does not go on from the archive's head is completed from the source.
        """
        bounds = events.agg(sql.min("seq"), sql.max("seq")).collect()[0]
        relay_id, _, _ = self.address.status()
        writer = self._opened(relay_id)
        since = writer.head
        if bounds[1] is None or bounds[1] <= since:
            return Ran(None, since, since)
        if bounds[0] > since + 1:
            return self.run(to=int(bounds[1]))
        return self._commit(writer, events.where(sql.col("seq") > since), since, int(bounds[1]))

    def _opened(self, relay_id: str) -> Writer:
        kind = self._work(None, 0, 0).kind
        writer = Writer(
            Table(
                self._table.name,
                self._table.key_prefix,
                kind.key_fields,
                kind.columns,
                kind.mode,
                relay_id,
                self._table.parts,
            ),
            [open_destination(url, **dict(rest)) for url, rest in self._destinations()],
            base_formats=[open_format(each) for each in self._settings.base_formats],
            diff_formats=[open_format(each) for each in self._settings.diff_formats],
            policy=self._settings.policy,
            now_ms=self._now_ms,
            keep_epochs=self._settings.keep_epochs,
        )
        asyncio.run(writer.open())
        expected = None if writer.manifest is None else writer.manifest.source
        if expected not in (None, relay_id):
            raise OtherRelayError(expected or "", relay_id)
        return writer

    def _commit(self, writer: Writer, events: DataFrame, since: int, to: int) -> Ran:
        work = SparkWork(self._spark, self._work(writer.manifest, since, to), events)
        committed = asyncio.run(writer.commit_work(work))
        if committed is None or committed.artifact.is_base:
            asyncio.run(work.discard_diff(writer))
        return work.ran(committed)

    def _work(self, manifest: Manifest | None, since: int, to: int) -> PartWork:
        table = self._table
        writers = table.writers if isinstance(table.writers, str) else {"": table.writers}
        return PartWork(
            address=self.address,
            mode=table.mode,
            prefix=table.key_prefix,
            parts=table.parts,
            destinations=self._destinations(),
            base_formats=self._settings.base_formats,
            diff_formats=self._settings.diff_formats,
            authority=Authority(
                writers=writers,
                producers={"": table.snapshot_role} if table.snapshot_role else None,
            ),
            identity=self._identity,
            keeps_state=table.keeps_state,
            manifest=b"" if manifest is None else write_manifest(manifest),
            since=since,
            to=to,
            epoch=0 if manifest is None else manifest.epoch,
        )

    def _destinations(self) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
        return tuple(
            (entry["url"], tuple(sorted((k, v) for k, v in entry.items() if k != "url")))
            for entry in self._settings.destinations
        )

    def _events(self, since: int, until: int) -> DataFrame:
        options = {
            name: value
            for name, value in (
                ("database", self.address.database),
                ("relay", self.address.relay),
                ("identity", self.address.identity),
                ("prefix", self.address.prefix),
                ("since", str(since)),
                ("until", str(until)),
            )
            if value
        }
        return self._spark.read.format("walstore").options(**options).load()


class SparkWork:
    """A window that tasks write, part by part."""

    def __init__(self, spark: SparkSession, work: PartWork, events: DataFrame) -> None:
        """Write the events of a window."""
        self._spark, self._work, self._events = spark, work, events
        self._messages: dict[int, str] = {}
        self.since, self.to, self.is_whole = work.since, work.to, False

    async def measure(self, spot: Spot) -> Measured:
        """Fold and store the diff, which tells how large it is."""
        self._messages = _by_part(
            in_parts(self._events, self._work.parts)
            .mapInArrow(self._work.write_diffs, MESSAGE_DDL)
            .collect()
        )
        told = [parse(message) for message in self._messages.values()]
        return Measured(
            changes=_sum(told, "row_count"),
            diff_bytes=_sum(told, "diff_bytes") if _sum(told, "row_count") else 0,
            churn=_sum(told, "churn"),
            net_rows=_sum(told, "net_rows"),
        )

    async def write_diff(self, spot: Spot) -> list[Written]:
        """What was stored; parts without events are stored now."""
        await self._complete()
        return [_written(self._messages[number]) for number in range(self._work.parts)]

    async def write_base(self, spot: Spot, before: Manifest, way: Plan | None) -> list[Written]:
        """Merge what was stored into the archive, part by part."""
        await self._complete()
        rows = sorted(self._messages.items())
        messages = _by_part(
            self._spark.createDataFrame(rows, MESSAGE_DDL)
            .repartition(self._work.parts)
            .mapInArrow(self._work.write_bases, MESSAGE_DDL)
            .collect()
        )
        return [_written(messages[number]) for number in range(self._work.parts)]

    async def _complete(self) -> None:
        for number in range(self._work.parts):
            if number not in self._messages:
                self._messages[number] = await self._work.empty_diff(number)

    async def discard_diff(self, writer: Writer) -> None:
        """Remove a diff that a base has taken in, and that nobody names."""
        for message in self._messages.values():
            for part in read_parts(message).values():
                for destination in writer.destinations:
                    await destination.delete(part.key or "")

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
    bucket = sql.pmod(start.cast("bigint"), sql.lit(parts)).cast("bigint")
    return (
        events.select(*EVENT_NAMES, bucket.alias(BUCKET))
        .repartition(parts, BUCKET)
        .sortWithinPartitions(BUCKET, "document", "seq")
    )


def _by_part(rows: Iterable[Any]) -> dict[int, str]:
    return {int(row["part"]): str(row["message"]) for row in rows}


def _sum(told: Sequence[Any], name: str) -> int:
    return sum(int(each[name]) for each in told)


def _written(message: str) -> Written:
    found: Any = parse(message)
    return Written(read_parts(message), int(found["row_count"]))
