"""The data source `walstore`: events of a relay's database, a relay or a sealed archive.

    spark.read.format("walstore").option("database", "relay.db").option("prefix", "notes/").load()

    database | relay | archive   where events are; with a relay, `identity` is a key file
                                 or `env:NAME`
    prefix                       what document keys begin with
    since, until                 which events: above a seq, up to a seq
    columns                      which columns, in which order; all if left out
    partitions                   into how many ranges of seq a read is cut, at most
    maxRowsPerBatch              how many events a micro-batch takes, at most
    pushdown                     true to narrow what is read by filters; see `NarrowingReader`

- A read is cut into ranges of seq; a stream's offset is one seq. With `pushdown`, filters on `seq`
  narrow the range that is read, and filters on `document` are applied where it is read.
- A stream begins at `since`. What a relay can no longer replay ends it with an error, not a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from walstore.archive.source import Event
from walstore.errors import UsageError
from walstore.spark.address import Address
from walstore.spark.schema import EVENT_NAMES, events_batch, events_ddl

PARTITIONS = 16

# Fewer events than this are not worth a partition of their own.
RANGE_MIN = 2_000

# Events in one Arrow batch.
BATCH_EVENTS_MAX = 2_000

_SEQ_MAX = 2**53 - 1


@dataclass(frozen=True)
class Range(InputPartition):
    """The events in `(since, until]`, of these documents if they are named."""

    since: int
    until: int
    documents: frozenset[str] | None = None
    starts: tuple[str, ...] = ()

    def wanted(self, events: list[Event]) -> list[Event]:
        """The events that are wanted."""
        if self.documents is None and not self.starts:
            return events
        return [event for event in events if self._takes(event.document)]

    def _takes(self, document: str) -> bool:
        if self.documents is not None and document not in self.documents:
            return False
        return all(document.startswith(start) for start in self.starts)


@dataclass(frozen=True)
class Options:
    """What a data source was told."""

    address: Address
    since: int = 0
    until: int = _SEQ_MAX
    columns: tuple[str, ...] = EVENT_NAMES
    partitions: int = PARTITIONS
    rows_max: int | None = None
    is_narrowed: bool = False

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """The options, checked.

        Raises:
            UsageError: One of them cannot be used.
        """
        options = {name.lower(): value for name, value in given.items()}
        columns = [name.strip() for name in options.get("columns", "").split(",") if name.strip()]
        for name in columns:
            if name not in EVENT_NAMES:
                raise UsageError(f"there is no column {name!r}; there are {', '.join(EVENT_NAMES)}")
        rows_max = _number(options, "maxrowsperbatch", 0)
        return cls(
            Address.read(options),
            since=_number(options, "since", 0),
            until=_number(options, "until", _SEQ_MAX),
            columns=tuple(columns) or EVENT_NAMES,
            partitions=max(_number(options, "partitions", PARTITIONS), 1),
            rows_max=rows_max or None,
            is_narrowed=options.get("pushdown", "false").lower() == "true",
        )

    def ranges(self, since: int, until: int) -> list[Range]:
        """A range, cut into as many as are worth it."""
        count = max(min(self.partitions, (until - since) // RANGE_MIN), 1)
        if self.address.archive is not None:
            # Its rows are in the order of documents: every range would read all of it.
            count = 1
        edges = [since + (until - since) * number // count for number in range(count + 1)]
        found = [Range(left, right) for left, right in pairwise(edges) if left < right]
        # Spark reads something even where there is nothing.
        return found or [Range(since, since)]

    def batches(self, part: Range) -> Iterator[pa.RecordBatch]:
        """The events of a range, as Arrow has them."""
        if part.since >= part.until:
            return
        for page in self.address.pages(part.since, part.until):
            wanted = part.wanted(page)
            for start in range(0, len(wanted), BATCH_EVENTS_MAX):
                yield events_batch(wanted[start : start + BATCH_EVENTS_MAX], self.columns)


class WalstoreDataSource(DataSource):
    """Events, as a table."""

    @classmethod
    def name(cls) -> str:
        """What it is called."""
        return "walstore"

    def schema(self) -> str:
        """The columns that were asked for."""
        return events_ddl(Options.read(self.options).columns)

    def reader(self, schema: StructType) -> EventsReader:
        """Read once."""
        options = Options.read(self.options)
        return NarrowingReader(options) if options.is_narrowed else EventsReader(options)

    def streamReader(self, schema: StructType) -> EventsStreamReader:  # noqa: N802 - Spark's name
        """Read what comes."""
        return EventsStreamReader(Options.read(self.options))


class EventsReader(DataSourceReader):
    """Reads the events that there are."""

    def __init__(self, options: Options) -> None:
        """Read with options."""
        self._options = options
        self._since, self._until = options.since, options.until
        self._documents: frozenset[str] | None = None
        self._starts: list[str] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of seq."""
        _, _, head = self._options.address.status()
        ranges = self._options.ranges(self._since, min(self._until, head))
        starts = tuple(self._starts)
        return [Range(each.since, each.until, self._documents, starts) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a range."""
        assert isinstance(partition, Range)
        return self._options.batches(partition)


class NarrowingReader(EventsReader):
    """Reads only what filters let through.

    Spark keeps what the last filter has left for all later queries of the same DataFrame, and for
    all sides of a union or a join: rows would be missing, and nobody told. So it is only for a
    DataFrame that is filtered once, and has to be asked for.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that narrow what is read; the others are left to Spark."""
        for each in filters:
            if not self._take(each):
                yield each

    def _take(self, given: Filter) -> bool:
        match given:
            case EqualTo(("document",), str(document)):
                self._only({document})
            case In(("document",), documents) if all(type(each) is str for each in documents):
                self._only(documents)
            case StringStartsWith(("document",), str(start)):
                self._starts.append(start)
            case EqualTo(("seq",), int(seq)):
                self._since, self._until = max(self._since, seq - 1), min(self._until, seq)
            case GreaterThan(("seq",), int(seq)):
                self._since = max(self._since, seq)
            case GreaterThanOrEqual(("seq",), int(seq)):
                self._since = max(self._since, seq - 1)
            case LessThan(("seq",), int(seq)):
                self._until = min(self._until, seq - 1)
            case LessThanOrEqual(("seq",), int(seq)):
                self._until = min(self._until, seq)
            case _:
                return False
        return True

    def _only(self, documents: Iterable[str]) -> None:
        known = frozenset(documents)
        self._documents = known if self._documents is None else self._documents & known


class EventsStreamReader(DataSourceStreamReader):
    """Reads the events that come."""

    def __init__(self, options: Options) -> None:
        """Read with options."""
        self._options = options

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream begins."""
        return {"seq": self._options.since}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How much a micro-batch takes."""
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next micro-batch ends."""
        since = int(start["seq"])
        until = max(self._head(), since)
        if isinstance(limit, ReadMaxRows):
            until = min(until, since + limit.max_rows)
        return {"seq": until}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Where the source is."""
        return {"seq": self._head()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Ranges of seq; what is below `since` is not read again, whatever a checkpoint says."""
        until = int(end["seq"])
        since = max(int(start["seq"]), self._options.since)
        return self._options.ranges(min(since, until), until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a range."""
        assert isinstance(partition, Range)
        return self._options.batches(partition)

    def _head(self) -> int:
        _, _, head = self._options.address.status()
        return min(head, self._options.until)


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"the option {name} is {text!r}, and not a number")
    return int(text)
