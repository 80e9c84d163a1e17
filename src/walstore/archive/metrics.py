"""What an archive counts, for Prometheus, under `walstore_archive_…` and by table.

- What changes all the time is read from the engines when somebody asks.
- A registry of its own: two services in one process do not mix their numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from walstore.archive.engine import Engine
from walstore.archive.writer import Committed

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        """Start at nothing."""
        self._registry = CollectorRegistry()
        self._written = self._counter("artifacts_written", "Artifacts that were committed", "kind")
        self._diff_bytes = self._gauge("diff_bytes", "The size of the last diff")
        self._churn = self._gauge("churn_records", "Events since the last base")
        self._age = self._gauge("snapshot_age_seconds", "The age of the last base")
        self._depth = self._gauge("buffer_depth", "Events that were read and are not committed")
        self._head = self._gauge("manifest_head_position", "What the archive has reached")
        self._position = self._gauge("source_position", "How far the source was read")
        self._epoch = self._gauge("epoch", "The archive epoch")
        self._since_base = self._gauge("diffs_since_snapshot", "Diffs since the last base")
        self._retries = self._gauge("manifest_cas_retries_total", "Commits by somebody else met")
        self._ready = self._gauge("ready", "Whether the table is in the archive")
        self._rejected = self._counter("rejected_elements", "Elements that were rejected")
        self._destination_errors = Counter(
            "walstore_archive_destination_errors",
            "Failures of destinations",
            ["dest"],
            registry=self._registry,
        )
        self._event_errors = Counter(
            "walstore_archive_event_errors",
            "Failures of sinks",
            ["sink"],
            registry=self._registry,
        )

    def committed(self, committed: Committed) -> None:
        """A commit was made."""
        table, artifact = committed.manifest.table, committed.artifact
        self._written.labels(table, artifact.kind.value).inc()
        if not artifact.is_base:
            first = next(iter(artifact.formats))
            self._diff_bytes.labels(table).set(artifact.size_bytes(first))

    def rejected(self, table: str, count: int) -> None:
        """Elements were rejected."""
        self._rejected.labels(table).inc(count)

    def destination_failed(self, name: str) -> None:
        """A destination has failed."""
        self._destination_errors.labels(name).inc()

    def event_failed(self, sink: str) -> None:
        """An attempt to tell a sink has failed."""
        self._event_errors.labels(sink).inc()

    def watch(self, table: str, engine: Engine, now_ms: Callable[[], int]) -> None:
        """Read what changes all the time from an engine, when somebody asks."""
        status, writer = engine.status, engine.writer

        def age_s() -> float:
            base = None if writer.manifest is None else writer.manifest.newest_base
            return 0 if base is None else max(now_ms() - base.created_ms, 0) / 1000

        def diffs() -> float:
            return 0 if writer.manifest is None else max(len(writer.manifest.chain) - 1, 0)

        def epoch() -> float:
            return 0 if writer.manifest is None else writer.manifest.epoch

        for gauge, read in (
            (self._churn, lambda: status.churn),
            (self._age, age_s),
            (self._depth, lambda: status.buffered_events),
            (self._head, lambda: writer.head),
            (self._position, lambda: status.source_position),
            (self._epoch, epoch),
            (self._since_base, diffs),
            (self._retries, lambda: status.moved),
            (self._ready, lambda: status.is_ready),
        ):
            gauge.labels(table).set_function(read)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        full = f"walstore_archive_{name}"
        return Counter(full, what, ["table", *labels], registry=self._registry)

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(f"walstore_archive_{name}", what, ["table"], registry=self._registry)
