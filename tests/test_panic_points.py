"""Whoever makes, prunes or archives a snapshot dies before or after each step: nothing is lost.

    writers ─► snapshot ─► relay's log ─► archive ─► manifest ─► relay: compaction
       └ files              └ SQLite       └ a place               └ policy, archived position

- Stores with files edit one document. One of them publishes a snapshot, an archive takes in what
  there is and says so to the relay, and the relay prunes; every other round before the archive has
  come. If it may, what was not archived is gone then.
- All that they have of one another are ports. A run without faults says by name which points their
  calls have; in every other run somebody dies at one of them, and is started again at once.
- What the log has ever taken is noted beside it. At once, and again when the rest of the scenario
  is over, snapshot and tail, and the archive, are the fold of that; in the end all stores are, too.

`WALSTORE_PANIC_SEEDS` says how many scenarios; `WALSTORE_PANIC_SEED` the first of them, which is
folded by its archive if it is odd, and else sealed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from tests.archive_sources import LogTransport
from tests.archive_tables import Clock
from tests.panic_ports import Fate, Panic, Party, Point, Port
from tests.put_back import quiet
from tests.stores import KEY, PEOPLE
from walstore.archive.authority import Authority
from walstore.archive.checking import check_archive
from walstore.archive.engine import Engine
from walstore.archive.folder import Folder
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.keys import manifest_key
from walstore.archive.manifest import Manifest
from walstore.archive.manifest_json import read_manifest
from walstore.archive.memory import MemoryDestination
from walstore.archive.modes import EventTable, FoldedTable, SealedTable
from walstore.archive.policy import Policy as BasePolicy
from walstore.archive.reader import Archive, ArchiveNotFoundError, NotReachedError
from walstore.archive.reporting import Progress
from walstore.archive.sealed import raw_element
from walstore.archive.writer import Table, Writer
from walstore.canon import parse
from walstore.document import SnapshotVerdict, WalDocument
from walstore.document.events import Event
from walstore.document.ports import RawElement
from walstore.errors import TransportError
from walstore.relay.keeper import Keeper
from walstore.relay.log import Filter
from walstore.relay.metrics import Metrics
from walstore.relay.reading import LogSource
from walstore.relay.retention import LogMode, Policy, SnapshotMode
from walstore.relay.sqlite import SqliteLog
from walstore.signed import Identity
from walstore.store.store import WalStore
from walstore.testing.simulator.edits import Hand
from walstore.testing.simulator.tokens import Tokens

SEEDS = int(os.environ.get("WALSTORE_PANIC_SEEDS", "2"))
SEED = int(os.environ.get("WALSTORE_PANIC_SEED", "1"))
ROUNDS = 3
POINTS_MIN = 20
# What every scenario has to have done, for its points to be worth anything.
STEPS = {
    "transport: after append",
    "snapshot store: after write",
    "relay: after put_snapshot",
    "destination: after put_if base",
    "destination: after put_if manifest",
    "destination: after delete base",
    "compaction: after put_setting",
    "compaction: after compact snapshots",
    "compaction: after compact elements",
    "compaction: after trim",
}
PREFIX = "stores/"
STRANGER = Identity.from_seed(bytes([29]) * 32)
WRITERS = frozenset(who.public_key for who in PEOPLE)


class Wire(LogTransport):
    """What a relay is to its clients; of news they are told when the scenario says so."""

    async def tail(self, document_key: str, upto: int, count: int) -> list[RawElement]:
        rows = await self.log.tail(document_key, upto, count)
        return [RawElement(row.ts, row.data, row.author, row.signature) for row in rows]

    @asynccontextmanager
    async def follow(self, document_key: str, checkpoint: int) -> AsyncIterator[None]:
        await anyio.sleep_forever()
        yield


class Taken:
    """Everything that the log has ever taken, as a log that nothing was pruned of."""

    def __init__(self) -> None:
        # Their names and themselves, by their place in the relay's order.
        self.elements: dict[int, tuple[str, RawElement]] = {}

    def note(self, call: str, args: Sequence[Any], answer: Any) -> None:
        if call == "append":
            for new, place in zip(args[0], answer, strict=True):
                if place.is_new:
                    raw = RawElement(place.ts, new.data, new.author, new.signature)
                    self.elements[place.seq] = new.id, raw

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        return [raw for _, raw in self.elements.values() if raw.ts > checkpoint]

    def upto(self, seq: int) -> Taken:
        """What it had taken by then."""
        taken = Taken()
        taken.elements = {at: each for at, each in self.elements.items() if at <= seq}
        return taken


async def read(transport: Any, snapshots: Any = None, **options: Any) -> WalDocument:
    """The document as a newcomer has it."""
    document = WalDocument(
        KEY,
        transport=transport,
        snapshot_store=snapshots,
        identity=STRANGER,
        writers=WRITERS,
        snapshot_role=WRITERS,
        **options,
    )
    return await document.open()


class World:
    """One scenario: writers, a relay and an archive, of whom one may die."""

    def __init__(self, seed: int, directory: Path, doom: Point | None = None) -> None:
        self.seed, self.fate = seed, Fate(doom)
        self.is_folded = bool(seed % 2)
        chance = Random(f"{seed} policy")
        self.policy = Policy(
            snapshot_mode=SnapshotMode.CURRENT_ONLY,
            log_mode=LogMode.COMPACT_BELOW_SNAPSHOT,
            retain_tail_n=chance.randrange(2),
            # Who keeps the elements themselves has to have them before they go.
            require_archive=not self.is_folded or seed % 4 == 3,
            replay_window=chance.randrange(1, 6),
        )
        self.tokens, self.taken = Tokens(), Taken()
        self.manifests: list[Manifest] = []
        self.place = MemoryDestination("here")
        self.relay = Party("relay", directory, self.fate)
        self.archive = Party("archive", directory, self.fate)
        self.writers = [Party(name, directory, self.fate) for name in ("ada", "ben")]
        self.stores: dict[str, WalStore] = {}
        self.events: list[Event] = []
        self.hands = {writer.name: Hand(self.tokens, writer.name) for writer in self.writers}
        self.served: Any = Port(self.relay, "relay", lambda: self.log, self.taken.note)
        self.wire = Wire(self.served)

    # ── who is there ───────────────────────────────────────────────────────────────────

    async def start(self, party: Party) -> None:
        """Start a process from what is on its disk, unless it is up."""
        if party.is_up:
            return
        if party is self.relay:
            opened = SqliteLog.open(party.disk / "relay.sqlite")
            self.log = await party.stack.enter_async_context(opened)
            compacted: Any = Port(party, "compaction", lambda: self.log)
            self.keeper = Keeper(compacted, self.policy, metrics=Metrics(), now_ms=Clock())
        elif party is self.archive:
            self.engine = self._engine(party)
        else:
            who = PEOPLE[self.writers.index(party)]
            wire: Any = Port(party, "transport", lambda: self.wire)
            snapshots: Any = Port(party, "snapshot store", lambda: self.wire)
            options = {"snapshots": snapshots, "on_event": self.events.append}
            store = quiet(who, wire, party.disk / "doc.wal", **options)
            self.stores[party.name] = await party.stack.enter_async_context(store)
        party.is_up = True

    def _engine(self, party: Party) -> Engine:
        real = LogSource(self.served, PREFIX, page_events_max=5)
        source: Any = Port(party, "source", lambda: real)
        place: Any = Port(party, "destination", lambda: self.place, self._note_manifest)
        table: EventTable = SealedTable(source)
        if self.is_folded:
            authority = Authority(writers={"": WRITERS}, producers={"": WRITERS})
            table = FoldedTable(source, Archive(place, PREFIX), Folder(source, authority, STRANGER))
        writer = Writer(
            Table("doc", PREFIX, *table.kind[1:], table.kind.mode, self.log.relay_id),
            [place],
            base_formats=[JsonlFormat()],
            diff_formats=[JsonlFormat()],
            policy=BasePolicy(max_churn_records=4),
            now_ms=Clock(),
            keep_epochs=1,
        )
        return Engine(source, table, writer, interval_ms=1, buffer_bytes_max=2**20)

    def _note_manifest(self, call: str, args: Sequence[Any], answer: object) -> None:
        if call == "put_if" and args[0] == manifest_key(PREFIX):
            self.manifests.append(read_manifest(args[1]))

    async def insist(self, step: Callable[[], Awaitable[object]]) -> None:
        """Do something; if somebody dies over it, it is done once more after a new start."""
        parties = [self.relay, self.archive, *self.writers]
        try:
            await step()
        except (Panic, TransportError):
            if not any(party.is_dead for party in parties):
                raise
        for party in parties:
            if party.is_dead:
                await party.bury()
                await self.start(party)
                await self.check()
                await step()

    # ── what they do ───────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Everything once, and then the checks."""
        async with AsyncExitStack() as stack:
            for party in (self.relay, self.archive, *self.writers):
                stack.push_async_callback(party.bury)
                await self.insist(partial(self.start, party))
            for number in range(ROUNDS):
                await self._round(number, Random(f"{self.seed} {number}"))
            for writer in self.writers:
                await self.insist(partial(self._pull, writer.name))
            await self.check()
            self._check_writers(await read(self.taken))

    async def _round(self, number: int, chance: Random) -> None:
        # Whoever is away for a while may come back to a log that was pruned.
        count = 2 if number in (0, ROUNDS - 1) else 1
        there = chance.sample(self.writers, count)
        for writer in there:
            await self._write(writer.name, number, chance)
        for writer in there:
            await self.insist(partial(self._pull, writer.name))
        await self.insist(lambda: self.stores[there[0].name].snapshot())
        # Above it there is a tail from here on.
        await self._write(there[-1].name, number, chance)
        steps = [self._archive, self._prune]
        for step in steps if number % 2 else reversed(steps):
            await self.insist(step)

    async def _write(self, name: str, number: int, chance: Random) -> None:
        document, hand = self.stores[name].document, self.hands[name]
        for _ in range(3):
            hand.edit(document, chance)
        # Whatever else was drawn, there is something to send.
        document.set_field("round", number)
        unsent = list(hand.unsent)
        await self.insist(lambda: self.stores[name].flush())
        hand.acknowledged(unsent)

    async def _pull(self, name: str) -> None:
        await self.stores[name].pull()

    async def _archive(self) -> None:
        await self.engine.run_once()
        said = Progress("it", PREFIX, self.engine.writer.head, self.log.relay_id)
        await self.keeper.report(parse(said.text))

    async def _prune(self) -> None:
        await self.keeper.compact()

    # ── what has to hold ───────────────────────────────────────────────────────────────

    async def check(self) -> None:
        """Check what the relay and the archive hold, at any moment when nobody is at it."""
        truth = (await read(self.taken)).crdt.canonical_state()
        wire = Wire(self.log)
        for posture in ("trust", "trust-retain-tail"):
            newcomer = await read(wire, wire, posture=posture)
            assert newcomer.crdt.canonical_state() == truth, f"snapshot and tail, {posture}"
        ids = {seq: id for seq, (id, _) in self.taken.elements.items()}
        known = await self.log.find(list(ids.values()), Filter())
        assert {event.seq: event.id for event in known} == ids
        assert len(set(ids.values())) == len(ids)
        # The snapshot stands for what it says, as whoever has the whole log finds out.
        judge = await read(self.taken, wire, posture="re-derive")
        assert judge.crdt.canonical_state() == truth
        if await wire.read(f"{KEY}__snapshot") is not None:
            assert judge.snapshot_verdict is SnapshotVerdict.VERIFIED
        await self._check_archive()

    def _check_writers(self, truth: WalDocument) -> None:
        for store in self.stores.values():
            store.document.crdt.check()
            assert store.document.crdt.canonical_state() == truth.crdt.canonical_state()
            assert not store.status.unsent
        # Nobody has done anything wrong, and nothing was missing.
        assert not self.events
        assert not list(self.tokens.faults(truth.materialize()))

    async def _check_archive(self) -> None:
        archive = Archive(self.place, PREFIX)
        try:
            head = (await archive.manifest()).head_position
            rows = [row async for row in archive.rows()]
        except (ArchiveNotFoundError, NotReachedError):
            return
        taken = self.taken.upto(head)
        if self.is_folded:
            (row,) = rows
            assert row["value"] == (await read(taken)).materialize()
            _, newest = taken.elements[max(taken.elements)]
            assert (row["ts"], row["rejected"]) == (newest.ts, 0)
        else:
            rows = [row for row in rows if row["kind"] == "element"]
            assert {row["seq"]: (row["id"], raw_element(row)) for row in rows} == taken.elements
            assert len(rows) == len(taken.elements)
        assert (await check_archive(archive)).flaws == []
        for before, after in pairwise(self.manifests):
            added = [each for each in after.artifacts if each not in before.artifacts]
            assert len(added) == 1
            assert added[0].from_position in (None, before.head_position)
            assert after.epoch == before.epoch + added[0].is_base


@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
async def test_whoever_dies_at_any_point_snapshot_and_tail_are_the_whole_fold(
    seed: int, tmp_path: Path
) -> None:
    world = World(seed, tmp_path)
    await world.run()
    assert world.fate.passed.keys() >= STEPS
    assert len(world.fate.passed) >= POINTS_MIN
    panics = 0
    for name, count in world.fate.passed.items():
        point = Point(name, Random(f"{seed} {name}").randrange(count) + 1)
        directory = tmp_path / str(panics)
        world = World(seed, directory, point)
        try:
            await world.run()
            assert world.fate.has_struck
        except BaseException as error:
            error.add_note(f"WALSTORE_PANIC_SEED={seed} WALSTORE_PANIC_SEEDS=1: {point}")
            raise
        panics += 1
        shutil.rmtree(directory)
    print(f"{panics} panics at {panics} named points")
