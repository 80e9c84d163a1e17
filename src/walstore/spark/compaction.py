"""Signs snapshots of documents with long logs, so that a relay may let go of what they cover.

    events ─► documents whose tail is long ─► each in a task: opened, verified, signed, stored

- The tail of a document is what was written since its newest snapshot.
- A snapshot is made as any reader with the role makes one: the document is read from the relay,
  everything is verified, and what is missing or cannot be read is a refusal. The relay checks the
  role. What it lets go of then is its own policy; see `walstore relay compact`.
- Nothing is signed on the word of a relay: a roster counts if somebody who may own documents has
  signed it, and one that is missing or refused is a refusal, too.
- Nobody here remembers a roster: a relay that serves an older one could have what newer members
  wrote signed away. So with rosters an element of somebody who may not write is a refusal. Those
  whom the roster names as revoked keep nobody from a snapshot.
- One bad document is a line of the report, never the end of the job.
- Keys are where the task runs, in a file or a variable; see `signer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from walstore.archive.authority import KEYRING, ROSTER, Authority, Records
from walstore.document import SnapshotRefusedError, WalDocument
from walstore.document.events import NOT_A_WRITER, Rejection
from walstore.document.ports import SnapshotStore, StoredSnapshot
from walstore.document.quarantine import REJECTIONS_MAX
from walstore.errors import UsageError, WalStoreError
from walstore.net.faults import RelayRefusalError
from walstore.net.websocket import WebSocketTransport
from walstore.signed.identity import Identity
from walstore.spark.address import Address
from walstore.spark.faults import told_in_one_line
from walstore.spark.signer import Signer

TAIL_MIN = 1000

# Documents that a task has open at once, and how long one of them may take.
AT_ONCE_MAX = 8
DOCUMENT_S_MAX = 120.0

_FIELDS: dict[str, pa.DataType] = {
    "document": pa.string(),
    "outcome": pa.string(),
    "upto_ts": pa.int64(),
    "reason": pa.string(),
}
REPORT_SCHEMA = pa.schema(_FIELDS)
REPORT_DDL = "document string, outcome string, upto_ts bigint, reason string"

Outcome = Literal["stored", "refused", "failed"]


class Compacted(NamedTuple):
    """What became of one document.

    Attributes:
        document: Its key.
        outcome: Whether a snapshot is stored now, was refused, or something has failed.
        upto_ts: The last element that the snapshot covers; None if there is none.
        reason: Why not.
    """

    document: str
    outcome: Outcome
    upto_ts: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Compaction:
    """Everything that a task has to know; it can be pickled, and holds no secret.

    Attributes:
        relay: Where documents are, and snapshots go.
        signer: Who signs.
        authority: Who may write, and whose snapshots count.
    """

    relay: str
    signer: Signer
    authority: Authority

    def __post_init__(self) -> None:
        if self.authority.writers == "roster" and not self.authority.owners:
            raise UsageError("rosters are believed if it is known who may own documents: owners")

    def compact(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sign snapshots of the documents that are named; a row for each."""
        for batch in batches:
            documents = [str(each) for each in batch.column("document").to_pylist()]
            found = asyncio.run(self._compact_all(documents))
            rows = [each._asdict() for each in found]
            yield pa.RecordBatch.from_pylist(rows, schema=REPORT_SCHEMA)

    async def _compact_all(self, documents: list[str]) -> list[Compacted]:
        try:
            identity = self.signer.load()
            async with WebSocketTransport(self.relay, identity=identity) as transport:
                places = asyncio.Semaphore(AT_ONCE_MAX)

                async def one(document: str) -> Compacted:
                    async with places:
                        return await self._compact(document, transport, identity)

                return await asyncio.gather(*map(one, documents))
        except (WalStoreError, OSError) as error:
            return [Compacted(each, "failed", reason=str(error)) for each in documents]

    async def _compact(
        self, document: str, transport: WebSocketTransport, identity: Identity
    ) -> Compacted:
        try:
            async with asyncio.timeout(DOCUMENT_S_MAX):
                opened = await self._opened(document, transport, identity)
                snapshot = await opened.snapshot()
        except (SnapshotRefusedError, RelayRefusalError, _NoRoleError, _StrangerError) as error:
            return Compacted(document, "refused", reason=str(error))
        except TimeoutError:
            return Compacted(document, "failed", reason=f"it takes over {DOCUMENT_S_MAX:.0f} s")
        except Exception as error:  # noqa: BLE001 - one document is not the end of the others
            return Compacted(document, "failed", reason=f"{type(error).__name__}: {error}")
        return Compacted(document, "stored", upto_ts=snapshot["uptoTs"])

    async def _opened(
        self, document: str, transport: WebSocketTransport, identity: Identity
    ) -> WalDocument:
        records = Records()
        if self.authority.has_owner(document):
            found = [await transport.read_record(document, each) for each in (ROSTER, KEYRING)]
            records = Records(*[None if each is None else each.text for each in found])
        rules, problems = self.authority.rules(document, identity=identity, records=records)
        if self.authority.writers == "roster" and records.roster is None:
            problems = ["it has no roster"]
        if problems:
            raise _NoRoleError(problems[0])
        if not rules.is_producer(identity.public_key):
            raise _NoRoleError("this key does not hold the snapshot role")
        guarded = _Guarded(transport)
        guarded.document = WalDocument(
            document,
            transport=transport,
            snapshot_store=guarded if self.authority.writers == "roster" else transport,
            identity=identity,
            writers=rules.is_writer,
            snapshot_role=rules.is_producer,
            revoked=rules.revoked,
            encryptor=rules.encryptor,
            on_author_error="skip",
        )
        return await guarded.document.open()


class _NoRoleError(UsageError):
    """Nobody who is believed has said that this key may sign a snapshot."""


class _StrangerError(UsageError):
    """Somebody has written whom the roster does not let."""

    def __init__(self, who: str) -> None:
        super().__init__(
            f"{who} wrote what would be signed away, and may not write by the roster; the relay may"
            " have served an older one"
        )


class _Guarded:
    """Stores no snapshot of a document that somebody has written to who may not by its roster.

    What is signed is read right before it is stored, so only then it is known who has written.
    """

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self.document: WalDocument | None = None

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The stored snapshot."""
        return await self._store.read(snapshot_key)

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace it.

        Raises:
            _StrangerError: Something would be signed away.
        """
        assert self.document is not None
        _check_strangers(self.document.rejected())
        await self._store.write(snapshot_key, document, revision)


def _check_strangers(rejected: Sequence[Rejection]) -> None:
    strangers = {str(each.author) for each in rejected if each.reason == NOT_A_WRITER}
    if strangers:
        raise _StrangerError(f"{min(strangers)[:8]}…")
    # Older ones may have been forgotten for them.
    if len(rejected) >= REJECTIONS_MAX:
        raise _StrangerError("perhaps somebody among very many")


def tails(events: DataFrame) -> DataFrame:
    """How many elements each document has above its newest snapshot: `document, tail`."""
    snapshots = events.where(sql.col("kind") == "snapshot")
    upto = snapshots.groupBy("document").agg(sql.max("ts").alias("upto"))
    elements = events.where(sql.col("kind") == "element").select("document", "ts")
    above = elements.join(upto, "document", "left").where(
        sql.col("ts") > sql.coalesce(sql.col("upto"), sql.lit(0))
    )
    return above.groupBy("document").agg(sql.count("*").alias("tail"))


def compact(
    spark: SparkSession,
    source: Address,
    compaction: Compaction,
    *,
    tail_min: int = TAIL_MIN,
    tasks: int = 8,
) -> list[Compacted]:
    """Sign snapshots of all documents with a long tail; what became of each.

    Args:
        spark: The session.
        source: Where their events are.
        compaction: How.
        tail_min: How long a tail has to be.
        tasks: How many tasks share the work.

    Raises:
        UsageError: No tail can be that short.
        TaskFailedError: The events cannot be read.
        StorageError, TransportError: The source cannot be read.
    """
    if tail_min < 1 or tasks < 1:
        raise UsageError("a tail has at least one element, and somebody has to do the work")
    _, min_seq, _ = source.status()
    options = {
        **source.options(),
        "columns": "document,seq,kind,ts",
        "since": str(max(min_seq - 1, 0)),
    }
    events = spark.read.format("walstore").options(**options).load()
    long = tails(events).where(sql.col("tail") >= tail_min).select("document")
    with told_in_one_line():
        found: list[Any] = (
            long.repartition(tasks).mapInArrow(compaction.compact, REPORT_DDL).collect()
        )
    return sorted(Compacted(*row) for row in found)
