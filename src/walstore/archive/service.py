"""Archives tables until it is told to stop: one engine for each, and what they share.

- A table whose source cannot be reached yet is waited for; one that cannot go on is told, and the
  others go on without it. Whoever archives once is told at once.
- Commits are told to the sinks without waiting for them. The last one of an archive that is gone on
  with is told once more: whoever has committed it may have died before it was told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from random import random
from typing import Protocol

import anyio

from walstore.archive.config import Settings, TableSettings
from walstore.archive.delivery import Delivery
from walstore.archive.destination import Destination, DestinationError
from walstore.archive.engine import Engine
from walstore.archive.folded import Report
from walstore.archive.folder import Folder
from walstore.archive.formats import open_format
from walstore.archive.metrics import Metrics
from walstore.archive.modes import EventTable, FoldedTable, SealedTable
from walstore.archive.policy import size_skew
from walstore.archive.reader import Archive
from walstore.archive.sink import CommitEvent, EventSink
from walstore.archive.source import Source
from walstore.archive.telling import Telling
from walstore.archive.tidying import Tidying
from walstore.archive.times import time_text
from walstore.archive.writer import Committed, Table, Writer
from walstore.canon import Json
from walstore.errors import StorageError, TransportError, UsageError, WalStoreError
from walstore.net.backoff import Backoff
from walstore.signed.identity import Identity

_logger = logging.getLogger("walstore.archive")

SNAPSHOT_S_MAX = 300


class OpenSource(Protocol):
    """Opens the source of the documents with a prefix."""

    def __call__(self, prefix: str) -> AbstractAsyncContextManager[Source]: ...


class NotBegunError(StorageError):
    """A table is not being archived yet, or no longer."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason or "it has not begun yet")


class Keeping:
    """One table that is being archived.

    Attributes:
        settings: What was said of it.
        engine: What archives it; None before its source was reached.
        reason: What it waits for, before that.
        failure: Why it has ended, if it has.
    """

    def __init__(self, service: Service, settings: TableSettings) -> None:
        """Describe it; nothing is read yet."""
        self._service = service
        self.settings = settings
        self.engine: Engine | None = None
        self.reason: str | None = None
        self.failure: WalStoreError | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the table is in the archive, and goes on being."""
        return self.failure is None and self.engine is not None and self.engine.status.is_ready

    async def run(self, stopped: anyio.Event) -> None:
        """Archive the table until it is stopped, or cannot go on."""
        try:
            async with self._service.open_source(self.settings.prefix) as source:
                relay_id = await self._reached(source, stopped)
                if relay_id is not None:
                    await self._begun(source, relay_id).run(stopped)
        except WalStoreError as error:
            self.failure = error
            _logger.error("%s: %s; this table is no longer archived", self.settings.name, error)

    async def run_once(self) -> Committed | None:
        """Archive what there is now."""
        async with self._service.open_source(self.settings.prefix) as source:
            relay_id = (await source.status()).relay_id
            return await self._begun(source, relay_id).run_once()

    def _begun(self, source: Source, relay_id: str) -> Engine:
        self.engine = self._service.make_engine(self.settings, source, relay_id)
        return self.engine

    async def _reached(self, source: Source, stopped: anyio.Event) -> str | None:
        """The database behind a source, once it answers; None if it is stopped before."""
        failures = 0
        while not stopped.is_set():
            try:
                return (await source.status()).relay_id
            except (TransportError, StorageError) as error:
                if isinstance(error, TransportError) and not error.retryable:
                    raise
                if self.reason is None:
                    _logger.warning("%s: %s; it is waited for", self.settings.name, error)
                self.reason = str(error)
                with anyio.move_on_after(Backoff().pause_ms(failures, random()) / 1000):
                    await stopped.wait()
                failures += 1
        return None

    async def snapshot(self) -> Committed:
        """Write a base now.

        Raises:
            StorageError: It could not be written.
        """
        if self.failure is not None:
            raise NotBegunError(str(self.failure))
        if self.engine is None:
            raise NotBegunError(self.reason)
        if not self.engine.is_begun:
            raise NotBegunError(self.engine.status.reason)
        committed = await self.engine.flush(is_base_wanted=True)
        if committed is None:
            raise NotBegunError("nothing was read yet that it could be of")
        return committed

    def shown(self) -> dict[str, Json]:
        """What there is to know of it."""
        shown: dict[str, Json] = {"table": self.settings.name, "ready": self.is_ready}
        engine = self.engine
        if engine is None:
            return {**shown, "reason": self.reason if self.failure is None else str(self.failure)}
        status, manifest = engine.status, engine.writer.manifest
        return {
            **shown,
            "mode": self.settings.mode,
            "epoch": 0 if manifest is None else manifest.epoch,
            "head_position": str(engine.writer.head),
            "source_position": str(status.source_position),
            "buffer_depth": status.buffered_events,
            "buffer_bytes": status.buffered_bytes,
            "churn_records": status.churn,
            "rows": 0 if manifest is None else manifest.rows,
            "last_snapshot_at": _last_base(engine),
            "last_diff_at": None if status.diff_ms is None else time_text(status.diff_ms),
            "reason": status.reason if self.failure is None else str(self.failure),
        }


class Service:
    """Everything that archives the tables of one configuration."""

    def __init__(
        self,
        settings: Settings,
        *,
        identity: Identity | None,
        destinations: list[Destination],
        sinks: list[EventSink],
        open_source: OpenSource,
        now_ms: Callable[[], int],
        metrics: Metrics | None = None,
        on_progress: Callable[[Committed], None] | None = None,
    ) -> None:
        """Describe it; nothing is read yet.

        Args:
            settings: What to do.
            identity: The archive's own; folded tables need one.
            destinations: Where to.
            sinks: Who is told.
            open_source: Where from.
            now_ms: The time in milliseconds since 1970.
            metrics: Who counts.
            on_progress: Told of the last commit of each table, by whomever it was made.

        Raises:
            UsageError: A folded table has no identity to fold with.
        """
        folded = [each.name for each in settings.tables if each.mode == "folded"]
        if identity is None and folded:
            raise UsageError(
                f"source.identity is missing: {', '.join(folded)} is folded, and signs its states;"
                " mode sealed needs none"
            )
        self.settings = settings
        self.open_source = open_source
        self.metrics = Metrics() if metrics is None else metrics
        self.tables = [Keeping(self, each) for each in settings.tables]
        self._identity = identity
        self._destinations = destinations
        self._now_ms = now_ms
        self._on_progress = on_progress
        self._delivery = Delivery(sinks, watcher=Telling(self.metrics))
        self._tidying = Tidying(
            self._archives,
            grace_ms=settings.orphan_grace_ms,
            now_ms=now_ms,
            on_error=self._failed,
        )

    @property
    def is_ready(self) -> bool:
        """Whether all tables are in the archive."""
        return all(each.is_ready for each in self.tables)

    async def run(self, stopped: anyio.Event) -> None:
        """Go on until it is stopped, or no table can go on."""
        self._warn()
        async with self._delivery, anyio.create_task_group() as around:
            around.start_soon(self._tidying.run)
            async with anyio.create_task_group() as group:
                for each in self.tables:
                    group.start_soon(each.run, stopped)
            around.cancel_scope.cancel()

    async def run_once(
        self, on_table: Callable[[str, Committed | None], None] | None = None
    ) -> None:
        """Archive what there is now, table after table.

        Args:
            on_table: Told of each table that is archived, and what was written for it.

        Raises:
            WalStoreError: What went wrong first; all other tables were archived.
        """
        self._warn()
        failures: list[WalStoreError] = []
        async with self._delivery:
            for each in self.tables:
                name = each.settings.name
                try:
                    committed = await each.run_once()
                except WalStoreError as error:
                    _logger.error("%s: %s; it is not archived", name, error)
                    failures.append(error)
                    continue
                if on_table is not None:
                    on_table(name, committed)
        if failures:
            raise failures[0]

    async def snapshot(self) -> dict[str, str | None]:
        """Write a base of each table now; what went wrong, by table, or None."""
        outcomes: dict[str, str | None] = {}
        ends_at = anyio.current_time() + SNAPSHOT_S_MAX
        for each in self.tables:
            try:
                with anyio.fail_after(ends_at - anyio.current_time()):
                    await each.snapshot()
                outcomes[each.settings.name] = None
            except (WalStoreError, TimeoutError) as error:
                outcomes[each.settings.name] = str(error) or "it takes too long"
        return outcomes

    def _warn(self) -> None:
        """Say what was surely not meant."""
        settings = self.settings
        skew = size_skew(
            settings.policy,
            base_format=settings.base_formats[0],
            diff_format=settings.diff_formats[0],
        )
        if skew is not None:
            _logger.warning("snapshot.%s", skew)

    def shown(self) -> dict[str, Json]:
        """What there is to know."""
        return {
            "ready": self.is_ready,
            "tables": [each.shown() for each in self.tables],
            "sinks": {
                name: {"delivered": each.delivered, "queued": each.queued, "dropped": each.dropped}
                for name, each in self._delivery.counts.items()
            },
        }

    def make_engine(self, settings: TableSettings, source: Source, relay_id: str) -> Engine:
        """The engine of a table."""
        archive = Archive(self._destinations[0], settings.key_prefix)
        table = self._event_table(settings, source, archive)
        writer = Writer(
            Table(
                settings.name,
                settings.key_prefix,
                table.kind.key_fields,
                table.kind.columns,
                table.kind.mode,
                relay_id,
                settings.parts,
                settings.prefix,
            ),
            self._destinations,
            base_formats=[open_format(each) for each in self.settings.base_formats],
            diff_formats=[open_format(each) for each in self.settings.diff_formats],
            policy=self.settings.policy,
            now_ms=self._now_ms,
            keep_epochs=self.settings.keep_epochs,
            on_error=self.metrics.destination_failed,
        )
        engine = Engine(
            source,
            table,
            writer,
            interval_ms=self.settings.diff_interval_ms,
            buffer_bytes_max=self.settings.buffer_bytes_max,
            resumes=settings.resumes,
            on_committed=self._committed,
            on_found=self._tell,
            on_error=self._failed,
        )
        self.metrics.watch(settings.name, engine, self._now_ms)
        return engine

    def _archives(self) -> list[Archive]:
        """Every archive that is being written, in each of its places."""
        return [
            Archive(place, each.settings.key_prefix)
            for each in self.tables
            if each.is_ready
            for place in self._destinations
        ]

    def _event_table(self, settings: TableSettings, source: Source, archive: Archive) -> EventTable:
        if settings.mode == "sealed" or self._identity is None:
            return SealedTable(source)
        folder = Folder(
            source, settings.authority, self._identity, keeps_state=settings.keeps_state
        )

        def tell(report: Report) -> None:
            self._report(settings.name, report)

        return FoldedTable(source, archive, folder, on_report=tell)

    def _committed(self, committed: Committed) -> None:
        artifact, manifest = committed.artifact, committed.manifest
        self.metrics.committed(committed)
        self._tell(committed)
        if artifact.is_base:
            self._tidying.soon()
        _logger.info(
            "%s: %s to %d, epoch %d, %d %s%s",
            manifest.table,
            "base" if artifact.is_base else "diff",
            artifact.to_position,
            artifact.epoch,
            artifact.count,
            "rows" if artifact.is_base else "changes",
            "" if committed.trigger is None else f" ({committed.trigger})",
        )

    def _tell(self, committed: Committed) -> None:
        artifact, manifest = committed.artifact, committed.manifest
        self._delivery.offer(CommitEvent.of(manifest, artifact, committed.manifest_uri))
        if self._on_progress is not None:
            self._on_progress(committed)

    def _failed(self, error: WalStoreError) -> None:
        if isinstance(error, DestinationError):
            self.metrics.destination_failed(error.destination)

    def _report(self, table: str, report: Report) -> None:
        if report.rejections:
            self.metrics.rejected(table, len(report.rejections))
        for rejection in report.rejections:
            _logger.warning("%s at %s: %s", report.document, rejection.ts, rejection.reason)
        for problem in report.problems:
            _logger.warning("%s: %s", report.document, problem)
        if report.gaps:
            _logger.warning("%s: %d gaps", report.document, len(report.gaps))


def _last_base(engine: Engine) -> str | None:
    manifest = engine.writer.manifest
    base = None if manifest is None else manifest.newest_base
    return None if base is None else time_text(base.created_ms)
