"""Archives a log on Spark: the same archive as the plain engine writes, byte for byte.

    events ─► by part ─► each part in a task: folded, written ─► messages ─► one commit, here

- A run covers what there is when it begins: from the archive's head to the source's. Nothing else
  is read. A run that is repeated, or finds nothing, changes nothing.
- Tasks store objects; only the driver replaces the manifest. A driver that is killed leaves
  objects that nobody names.
- Policy, manifest, places, formats and sinks are those of `walstore.archive`. Where the source no
  longer reaches back to the head, its engine closes the gap, in the driver.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from walstore.archive.config import Settings, TableSettings
from walstore.archive.delivery import Delivery
from walstore.archive.destination import Destination
from walstore.archive.keys import manifest_key
from walstore.archive.manifest import Manifest
from walstore.archive.manifest_json import write_manifest
from walstore.archive.places import MovedError
from walstore.archive.service import Service
from walstore.archive.sink import CommitEvent
from walstore.archive.wiring import Wiring
from walstore.archive.writer import Committed, Writer
from walstore.document.ports import LogBehindError
from walstore.errors import UsageError
from walstore.net.faults import OtherRelayError
from walstore.signed.identity import Identity
from walstore.spark.address import Address
from walstore.spark.faults import told_in_one_line
from walstore.spark.parts import PartWork
from walstore.spark.running import complete
from walstore.spark.work import Ran, SparkWork

_logger = logging.getLogger("walstore.spark")

# How often somebody else may commit in between before it is taken for a second writer.
MOVED_MAX = 8


class _Opened(NamedTuple):
    """An archive, and what its source holds."""

    writer: Writer
    min_seq: int
    head: int


class ArchiveJob:
    """Archives one table."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        table: TableSettings,
        *,
        now_ms: Callable[[], int],
        directory: Path = Path(),
    ) -> None:
        """Describe it; nothing is read yet.

        Args:
            spark: The session.
            settings: Where from, where to, and how.
            table: What.
            now_ms: The time in milliseconds since 1970.
            directory: What the paths of sinks are relative to.

        Raises:
            UsageError: A folded table has no identity to fold with.
        """
        if table.mode == "folded" and settings.identity is None:
            raise UsageError("source.identity is missing: a folded table signs its states")
        settings = _anywhere(settings)
        self._spark, self._settings, self._table = spark, settings, table
        self._now_ms = now_ms
        self._directory = directory
        identity = None if settings.identity is None else str(settings.identity.resolve())
        self._identity = identity
        self._has_told = False
        self.address = Address(
            database=settings.database,
            relay=settings.relay,
            prefix=table.prefix,
            identity=identity,
        )

    @property
    def table(self) -> TableSettings:
        """What is archived."""
        return self._table

    def run(self, *, to: int | None = None) -> Ran:
        """Archive what there is now, up to a position if one is given.

        Raises:
            MovedError: Somebody else has committed meanwhile; what was done is nobody's.
            LogBehindError: The source ends before the head: it was rolled back.
            OtherRelayError: The archive is one of another relay.
            TaskFailedError: A task has failed.
            StorageError, TransportError: Something could not be read or written.
        """
        writer, min_seq, head = self._open()
        self._tell_found(writer.manifest)
        since = writer.head
        if head < since:
            raise LogBehindError(head=head, checkpoint=since)
        if min_seq > since + 1 or (writer.manifest is not None and not self._table.resumes):
            return self._run_here(since)
        until = self.address.reach(since, head) if to is None or to >= head else to
        if until < since:
            return Ran(None, since, since)
        events = self.events(since, until) if until > since else None
        return self._commit(self._spark, writer, events, since=since, to=until)

    def run_until_done(self, *, rows_max: int | None = None) -> Ran:
        """Archive what there is now; whoever commits in between is given way to, a few times.

        Args:
            rows_max: How many events a commit takes, at most.

        Raises:
            MovedError: Somebody else commits again and again.
        """
        ran = self._persistently(lambda: self.run(to=rows_max))
        while rows_max is not None and (following := self._following(ran, rows_max)) is not None:
            ran = following
        return ran

    def _following(self, ran: Ran, rows_max: int) -> Ran | None:
        found = self._persistently(lambda: self.run(to=ran.to + rows_max))
        return found if found.to > ran.to else None

    def run_batch(self, events: DataFrame, *, after: int | None = None) -> Ran:
        """Archive a micro-batch of a stream; what the archive has already is passed over.

        A batch that does not go on from the archive's head is completed from the source.

        Args:
            events: The micro-batch.
            after: Where the one before it ended, if that is known.

        Raises:
            MovedError: Somebody else commits again and again.
        """
        events = events.persist()
        try:
            with told_in_one_line():
                first, last = events.agg(sql.min("seq"), sql.max("seq")).collect()[0]
            return self._persistently(lambda: self._run_batch(events, first, last, after))
        finally:
            events.unpersist()

    def _run_batch(
        self, events: DataFrame, first: int | None, last: int | None, after: int | None
    ) -> Ran:
        writer, _, _ = self._open()
        since = writer.head
        if first is None or last is None or last <= since:
            return Ran(None, since, since)
        # Between two batches of a stream there is nothing.
        if first > since + 1 and (after is None or after > since):
            return self.run(to=last)
        mine = events.where(sql.col("seq") > since)
        return self._commit(events.sparkSession, writer, mine, since=since, to=last)

    def _persistently(self, run: Callable[[], Ran]) -> Ran:
        for _ in range(MOVED_MAX - 1):
            try:
                return run()
            except MovedError:
                _logger.warning("%s: somebody else writes this archive", self._table.name)
        return run()

    # ── what it takes ──────────────────────────────────────────────────────────────────

    def _open(self) -> _Opened:
        async def opened() -> _Opened:
            async with self.address.opened() as source:
                status = await source.status()
                engine = self._service().make_engine(self._table, source, status.relay_id)
            await engine.writer.open()
            manifest = engine.writer.manifest
            expected = None if manifest is None else manifest.source
            if expected not in (None, status.relay_id):
                raise OtherRelayError(expected or "", status.relay_id)
            return _Opened(engine.writer, status.min_seq, status.head_seq)

        return complete(opened())

    def _run_here(self, since: int) -> Ran:
        """Archive what there is without tasks: the engine knows how to close a gap."""
        _logger.warning("%s: the gap above %d is closed by a new base", self._table.name, since)
        before = self._open().writer.manifest
        complete(self._service().run_once())
        after = self._open().writer.manifest
        if after is None or after == before:
            return Ran(None, since, since)
        events = sum(each.churn or 0 for each in after.artifacts if each.epoch == after.epoch)
        return Ran(self._last_of(after), since, after.head_position, events=events)

    def _last_of(self, manifest: Manifest) -> Committed:
        uri = self._destinations()[0].uri(manifest_key(self._table.key_prefix))
        return Committed(manifest.artifacts[-1], manifest, uri, None)

    def _destinations(self) -> list[Destination]:
        return Wiring(self._settings.credentials).destinations(self._settings.destinations)

    def _service(self) -> Service:
        wiring = Wiring(self._settings.credentials, directory=self._directory)
        return Service(
            replace(self._settings, tables=(self._table,)),
            identity=None if self._identity is None else Identity.load(self._identity),
            destinations=self._destinations(),
            sinks=wiring.sinks(self._settings.events),
            open_source=lambda _: self.address.opened(),
            now_ms=self._now_ms,
        )

    def _commit(
        self,
        spark: SparkSession,
        writer: Writer,
        events: DataFrame | None,
        *,
        since: int,
        to: int,
    ) -> Ran:
        work = SparkWork(spark, self.work(writer.before, since=since, to=to), events)

        async def commit() -> Committed | None:
            committed = await writer.commit_work(work)
            if committed is None or committed.artifact.is_base:
                await work.discard_diff(writer)
            if committed is not None:
                await self._tell(committed)
            return committed

        return work.ran(complete(commit()))

    def _tell_found(self, manifest: Manifest | None) -> None:
        """Tell of the last commit once more: its driver may have died before it told anybody."""
        if manifest is not None and manifest.artifacts and not self._has_told:
            complete(self._tell(self._last_of(manifest)))
        self._has_told = True

    async def _tell(self, committed: Committed) -> None:
        wiring = Wiring(self._settings.credentials, directory=self._directory)
        async with Delivery(wiring.sinks(self._settings.events)) as delivery:
            delivery.offer(
                CommitEvent.of(committed.manifest, committed.artifact, committed.manifest_uri)
            )

    def work(self, manifest: Manifest | None, *, since: int, to: int) -> PartWork:
        """What tasks are told of a window."""
        table = self._table
        return PartWork(
            address=self.address,
            mode=table.mode,
            prefix=table.key_prefix,
            parts=table.parts,
            destinations=self._settings.destinations,
            credentials=self._settings.credentials,
            base_formats=self._settings.base_formats,
            diff_formats=self._settings.diff_formats,
            authority=table.authority,
            identity=self._identity,
            keeps_state=table.keeps_state,
            manifest=write_manifest(manifest) if manifest and manifest.artifacts else b"",
            since=since,
            to=to,
            epoch=0 if manifest is None else manifest.epoch,
        )

    def events(self, since: int, until: int) -> DataFrame:
        """The events in `(since, until]`."""
        reading = self._spark.read.format("walstore").options(**self.address.options())
        return reading.options(since=str(since), until=str(until)).load()


def _anywhere(settings: Settings) -> Settings:
    """The same settings for tasks, which run in other directories than the driver."""
    database = settings.database
    if database is not None and "://" not in database:
        database = os.path.abspath(database)
    return replace(
        settings,
        database=database,
        destinations=tuple(
            each
            if ":" in str(each["url"]).split("/")[0]
            else {**each, "url": os.path.abspath(each["url"])}
            for each in settings.destinations
        ),
    )
