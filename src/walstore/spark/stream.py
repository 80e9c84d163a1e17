"""Archives a log as it grows: micro-batches of a stream, each one commit.

    source ─► micro-batch ─► run_batch ─► the archive, which is also what is remembered

- It begins with what there is, and goes on from the archive's head. What Spark remembers in its
  checkpoint is only where its stream was: a batch that comes again changes nothing, one that
  leaves something out is completed from the source, and an empty one writes nothing.
- What may pass is waited out; a stream that fails again and again without a commit ends.
- Whoever stops it waits for the batch that is being written.
- Over Spark Connect what archives a batch would run in the server, out of reach. So there the job
  is repeated instead, and commits from here, as everywhere.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import random
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from walstore.archive.mirror import DivergedError
from walstore.archive.policy import parse_duration_ms
from walstore.errors import StorageError, TransportError, UsageError, WalStoreError
from walstore.net.backoff import Backoff
from walstore.spark.connect import is_connect
from walstore.spark.faults import TaskFailedError, reason_of
from walstore.spark.job import ArchiveJob
from walstore.spark.work import Ran

_logger = logging.getLogger("walstore.spark")

AVAILABLE_NOW = "available-now"
TRIGGER = "1s"

# How often a stream is started again before somebody has to look at it.
FAILURES_MAX = 8

# How long a stop may go unnoticed.
_LOOK_S = 0.2


class TriggerError(UsageError):
    """A trigger is not understood."""

    def __init__(self, text: str) -> None:
        super().__init__(f"the trigger {text!r} is not a time such as 5s, or {AVAILABLE_NOW}")


class CheckpointError(UsageError):
    """Where nothing is remembered, somebody has said where to remember it."""

    def __init__(self) -> None:
        super().__init__(
            "over Spark Connect there is no checkpoint: the archive says where to go on"
        )


class _StoppedError(Exception):
    """The stream is being stopped: the batch is not begun."""


@dataclass(frozen=True)
class StreamOptions:
    """How a stream runs.

    Attributes:
        checkpoint: Where Spark remembers where its stream is; a directory that is thrown away if
            left out, for the archive says where to go on.
        trigger: How often, such as `5s`; or `available-now`, to end when all is archived.
        rows_max: How many events a micro-batch takes, at most.

    Raises:
        TriggerError: The trigger is not understood.
    """

    checkpoint: str | None = None
    trigger: str = TRIGGER
    rows_max: int | None = None

    def __post_init__(self) -> None:
        if not self.is_once and not parse_duration_ms(self.trigger):
            raise TriggerError(self.trigger)

    @property
    def is_once(self) -> bool:
        """Whether it ends by itself."""
        return self.trigger == AVAILABLE_NOW

    @property
    def pause_s(self) -> float:
        """The time from a batch to the next."""
        return (parse_duration_ms(self.trigger) or 0) / 1000

    def when(self) -> dict[str, Any]:
        """The trigger, as Spark has it."""
        if self.is_once:
            return {"availableNow": True}
        return {"processingTime": f"{parse_duration_ms(self.trigger)} milliseconds"}


class ArchiveStream:
    """Archives one table until it is stopped."""

    def __init__(
        self,
        spark: SparkSession,
        job: ArchiveJob,
        options: StreamOptions | None = None,
        *,
        on_ran: Callable[[Ran], None] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Describe it; nothing is read yet.

        Args:
            spark: The session.
            job: What archives a batch.
            options: How.
            on_ran: Told of each batch that was archived.
            backoff: The pauses between attempts.

        Raises:
            CheckpointError: The session is one of Spark Connect, and there is a checkpoint.
        """
        self._spark, self._job = spark, job
        self._options = StreamOptions() if options is None else options
        if is_connect(spark) and self._options.checkpoint is not None:
            raise CheckpointError
        self._on_ran = on_ran
        self._backoff = Backoff() if backoff is None else backoff
        self._batch = threading.Lock()
        self._stopped = threading.Event()
        self._failure: WalStoreError | None = None
        self._reached: int | None = None
        self._failures = 0

    def stop(self) -> None:
        """Let it end; from any thread, also from within a signal's handler."""
        self._stopped.set()

    def run(self) -> None:
        """Go on until it is stopped, or all is archived if that is what was asked for.

        Raises:
            WalStoreError: It cannot go on, or has failed too often.
        """
        while not self._stopped.is_set():
            try:
                self._run()
                return
            except (StorageError, TransportError) as error:
                self._wait_out(error)

    def _run(self) -> None:
        first = self._job.run_until_done(rows_max=self._options.rows_max)
        self._took(first)
        if self._stopped.is_set():
            return
        if is_connect(self._spark):
            self._repeat()
        else:
            self._follow(first.to)

    def _repeat(self) -> None:
        while not self._options.is_once and not self._stopped.wait(self._options.pause_s):
            self._took(self._job.run_until_done(rows_max=self._options.rows_max))

    def _follow(self, since: int) -> None:
        self._reached, self._failure = None, None
        query = self._start(since)
        try:
            while query.isActive and not self._stopped.is_set():
                self._stopped.wait(_LOOK_S)
        finally:
            # Nothing is begun from here on, and what was begun is waited for.
            with self._batch:
                is_ended = not query.isActive
            query.stop()
        if self._failure is not None:
            raise self._failure
        if is_ended:
            self._raise_of(query)

    def _start(self, since: int) -> StreamingQuery:
        options = {**self._job.address.options(), "since": str(since)}
        if self._options.rows_max is not None:
            options["maxRowsPerBatch"] = str(self._options.rows_max)
        writing = (
            self._spark.readStream.format("walstore")
            .options(**options)
            .load()
            .writeStream.foreachBatch(self._archive)
            .trigger(**self._options.when())
        )
        if self._options.checkpoint is not None:
            writing = writing.option("checkpointLocation", self._options.checkpoint)
        return writing.start()

    def _archive(self, events: DataFrame, number: int) -> None:
        """Archive a micro-batch; Spark calls it in a thread of its own."""
        with self._batch:
            if self._stopped.is_set():
                # Spark would take it for done.
                raise _StoppedError
            try:
                ran = self._job.run_batch(events, after=self._reached)
            except WalStoreError as error:
                self._failure = error
                raise
            self._reached = ran.to
            self._took(ran)

    def _took(self, ran: Ran) -> None:
        if ran.committed is not None:
            self._failures = 0
        if self._on_ran is not None:
            self._on_ran(ran)

    def _raise_of(self, query: StreamingQuery) -> None:
        failed = query.exception()
        if isinstance(failed, StreamingQueryException) and "_StoppedError" not in str(failed):
            raise TaskFailedError(reason_of(failed)) from failed

    def _wait_out(self, error: StorageError | TransportError) -> None:
        """Wait before the next attempt; raise what will not pass."""
        self._failures += 1
        if isinstance(error, TransportError) and not error.retryable:
            raise error
        if isinstance(error, DivergedError) or self._failures > FAILURES_MAX:
            raise error
        _logger.warning("%s: %s; it is tried again", self._job.table.name, error)
        self._stopped.wait(self._backoff.pause_ms(self._failures - 1, random()) / 1000)
