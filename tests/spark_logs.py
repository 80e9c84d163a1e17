"""Logs of a few documents, as batches that stages take, and stages run without a Spark.

- `Logs` writes documents right on a relay's log, honest ones and others.
- `cut` makes batches of rows that end anywhere, also in the middle of a document.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tests.archive_sources import LogTransport, all_events
from tests.rigged import ALICE, BOB, CAROL, MALLORY, MEMBERS, link_of, signed, spoiled, write_packed
from walstore.archive.authority import Authority
from walstore.archive.folded import COLUMNS as FOLDED
from walstore.archive.folder import Folder
from walstore.archive.source import Event
from walstore.canon import parse
from walstore.crdt.runs import Set
from walstore.document import SnapshotRefusedError, WalDocument
from walstore.relay.log import Removal
from walstore.relay.memory import MemoryLog
from walstore.relay.reading import LogSource
from walstore.signed import Identity
from walstore.spark.schema import events_batch, events_schema, schema_of
from walstore.spark.stages import KEPT

ARCHIVE = Identity.from_seed(bytes([9]) * 32)
BY_KEYS = Authority(writers={"": MEMBERS}, producers={"": MEMBERS})
KEYS = ("a", "b/c", "b/é", "𝒳")

Rows = list[dict[str, Any]]
Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Logs:
    """A relay's log, and documents on it."""

    def __init__(self, log: Any = None) -> None:
        self.log = MemoryLog() if log is None else log
        self.transport = LogTransport(self.log)
        self.source = LogSource(self.log, page_events_max=7)

    def folder(self, authority: Authority = BY_KEYS) -> Folder:
        return Folder(self.source, authority, ARCHIVE)

    async def opened(self, key: str, who: Identity = ALICE, **options: Any) -> WalDocument:
        options = {"writers": MEMBERS, "snapshot_role": MEMBERS, **options}
        document = WalDocument(
            key,
            transport=self.transport,
            snapshot_store=self.transport,
            identity=who,
            on_author_error="skip",
            **options,
        )
        return await document.open()

    async def events(self) -> list[Event]:
        return await all_events(self.source)

    async def happen(self, rng: random.Random, count: int, *, cuts: bool = True) -> None:
        """Many things happen to a few documents, most of them honest."""
        documents: dict[tuple[str, Identity], WalDocument] = {}
        for number in range(count):
            key, who = rng.choice(KEYS), rng.choice([ALICE, BOB, CAROL])
            document = documents.get((key, who))
            if document is None:
                document = documents[key, who] = await self.opened(key, who)
            match rng.randint(0, 11):
                case 0 | 1:
                    await self.harm(key, rng, number)
                case 2:
                    with suppress(SnapshotRefusedError):
                        await document.snapshot()
                case 3 if cuts:
                    await document.pull()
                    with suppress(SnapshotRefusedError):
                        if rng.random() < 0.5:
                            await document.delete_document()
                        else:
                            await document.snapshot(collect={})
                    # Whoever goes on, goes on from there.
                    documents = {each: doc for each, doc in documents.items() if each[0] != key}
                case 4 if rng.random() < 0.3:
                    await self.forget(key)
                case 5 | 6:
                    await document.pull()
                case _:
                    edit(document, rng)
                    await document.commit()

    async def harm(self, key: str, rng: random.Random, number: int) -> None:
        """Somebody appends what no honest writer would."""
        run = Set("x", f"{CAROL.public_key}:h{number}", 1, number)
        bad = spoiled(write_packed(CAROL, [run], session=f"h{number}"))
        match rng.randint(0, 3):
            case 0:
                await self.transport.put_in(key, write_packed(MALLORY, [], session=str(number)))
            case 1:
                await self.transport.put_in(key, bad)
            case 2:
                # What nothing proves is proven by what comes after it.
                data = {**write_packed(CAROL, [run], session=f"h{number}")["data"]}
                first = spoiled(signed(data, CAROL, document_key=key))
                await self.transport.put_in(key, first)
                prev = link_of(first, key)
                more = {**data, "seq": 2, "prev": prev, "body": {"ops": [[]]}}
                await self.transport.put_in(key, signed(more, CAROL, document_key=key))
            case _:
                junk = rng.choice([b"{}", b"[1,", b'{"v":2}'])
                await self.transport.add(key, junk, BOB.public_key, "A" * 86 + "==")

    async def forget(self, key: str) -> None:
        """The relay lets go of what a snapshot covers."""
        stored = await self.log.snapshot(key)
        found: Any = None if stored is None else parse(stored.text)
        if found is not None:
            await self.log.compact([Removal(key, (), found["uptoTs"])])


def edit(document: WalDocument, rng: random.Random) -> None:
    """Somebody edits something."""
    length = document.length("text")
    match rng.randint(0, 6):
        case 0 | 1 | 2:
            words = rng.choice(["one ", "zwei ", "\U0001f642", "w"])
            document.insert_text("text", rng.randint(0, length), words)
        case 3 if length:
            document.remove_text("text", rng.randint(0, length - 1), 1)
        case 4:
            document.put("map", rng.choice("kl"), rng.randint(0, 9))
        case 5:
            document.insert("list", 0, [rng.randint(0, 9), None])
        case _:
            document.set_field(rng.choice(["n", "half \ud800"]), rng.randint(0, 9))


def rows_of(events: Iterable[Event]) -> Rows:
    """Events as rows, by document and seq."""
    rows: Rows = events_batch(events).to_pylist()
    return sorted(rows, key=lambda row: (row["document"], row["seq"]))


def cut(
    rows: Rows, rng: random.Random | None = None, kept: Iterable[dict[str, Any]] = ()
) -> list[pa.RecordBatch]:
    """Rows in batches that end anywhere; before a document's events the row that it had."""
    fields = [*events_schema(), pa.field(KEPT, pa.struct(list(schema_of(FOLDED))))]
    before = [dict.fromkeys(events_schema().names) | {**_kept(row)} for row in kept]
    both = sorted([*before, *rows], key=lambda row: (row["document"], row["seq"]))
    table = pa.Table.from_pylist(both, schema=pa.schema(fields))
    size = len(both) if rng is None else rng.randint(1, 5)
    return table.to_batches(max_chunksize=max(size, 1))


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    return {"document": row["document"], "seq": 0, KEPT: row}


def ran(stage: Stage, batches: Sequence[pa.RecordBatch]) -> Rows:
    """What a stage makes of batches."""
    return [row for batch in stage(iter(batches)) for row in batch.to_pylist()]
