"""What a relay counts, for Prometheus.

- A registry of its own: two relays in one process do not mix their numbers.
- Labels are from closed sets; no key, document or reason that a peer chose is ever one.
- What changes all the time is read when somebody asks, not kept up to date.
"""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from walstore.relay.log import Removed
from walstore.wire.frames import Code

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

STORED = "stored"

_LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

_DROP_REASONS = {1003: "binary", 1008: "policy", 1009: "too-large", 1012: "restart", 1013: "full"}


class Gauges(NamedTuple):
    """What is read when somebody asks.

    Attributes:
        connections: Open websockets.
        pending_bytes: What was sent to all of them and is not read yet.
        head_seq: The newest seq.
        documents: How many documents there are.
    """

    connections: int
    pending_bytes: int
    head_seq: int
    documents: int


class Metrics:
    """The counters of one relay."""

    def __init__(self) -> None:
        """Start at nothing."""
        self._registry = CollectorRegistry()
        self._appends = self._counter("appends", "Appends that were answered", "result")
        # Looking a label up costs more than counting; the results are few.
        self._results = {code: self._appends.labels(code) for code in (STORED, *Code)}
        self._latency = Histogram(
            "walstore_relay_append_seconds",
            "From an append's arrival to its being on disk",
            buckets=_LATENCY_BUCKETS_S,
            registry=self._registry,
        )
        self._batches = Histogram(
            "walstore_relay_batch_elements",
            "Elements that were synced together",
            buckets=_BATCH_BUCKETS,
            registry=self._registry,
        )
        self._deliveries = self._counter("deliveries", "Elements sent to live subscribers")
        self._dropped = self._counter("dropped_peers", "Connections that were closed", "reason")
        self._compacted = self._counter("compacted", "Payloads that were removed", "kind")
        self._compacted_bytes = self._counter("compacted_bytes", "Bytes that were removed")
        self._connections = self._gauge("connections", "Open websockets")
        self._pending = self._gauge("pending_bytes", "Bytes that peers have not read yet")
        self._head = self._gauge("head_seq", "The newest relay seq")
        self._documents = self._gauge("documents", "Documents that are kept")

    def answered(self, result: str, *, seconds: float | None = None) -> None:
        """An append was answered: `STORED` after so many seconds, or refused with a code."""
        self._results[result].inc()
        if seconds is not None:
            self._latency.observe(seconds)

    def synced(self, elements: int) -> None:
        """So many elements became durable in one step."""
        self._batches.observe(elements)

    def delivered(self, elements: int) -> None:
        """So many elements were sent to live subscribers."""
        self._deliveries.inc(elements)

    def dropped(self, close_code: int) -> None:
        """A connection was closed by the relay."""
        self._dropped.labels(_DROP_REASONS.get(close_code, "other")).inc()

    def compacted(self, removed: Removed) -> None:
        """A compaction is done."""
        self._compacted.labels("element").inc(removed.elements)
        self._compacted.labels("snapshot").inc(removed.snapshots)
        self._compacted_bytes.inc(removed.payload_bytes)

    def text(self, gauges: Gauges) -> bytes:
        """Everything, in Prometheus' text format."""
        self._connections.set(gauges.connections)
        self._pending.set(gauges.pending_bytes)
        self._head.set(gauges.head_seq)
        self._documents.set(gauges.documents)
        return generate_latest(self._registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"walstore_relay_{name}", help_text, labels, registry=self._registry)

    def _gauge(self, name: str, help_text: str) -> Gauge:
        return Gauge(f"walstore_relay_{name}", help_text, registry=self._registry)
