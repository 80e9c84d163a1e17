"""The engine: from a relay's log to an archive, whatever fails on the way."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import anyio
import pytest

from tests.archive_faults import Faults, FaultyDestination, Killed, timed_out
from tests.archive_sources import LogTransport
from tests.archive_tables import Clock
from tests.rigged import ALICE, BOB, MEMBERS
from walstore.archive.authority import Authority
from walstore.archive.destination import Destination
from walstore.archive.engine import Engine
from walstore.archive.folder import Folder
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.memory import MemoryDestination
from walstore.archive.modes import EventTable, FoldedTable, SealedTable
from walstore.archive.policy import Policy
from walstore.archive.reader import Archive
from walstore.archive.rows import Row
from walstore.archive.writer import Committed, Table, Writer
from walstore.document import WalDocument
from walstore.document.ports import LogBehindError
from walstore.net.backoff import Backoff
from walstore.net.faults import OtherRelayError
from walstore.relay.memory import MemoryLog
from walstore.relay.reading import LogSource
from walstore.signed import Identity

ARCHIVE = Identity.from_seed(bytes([9]) * 32)
AT_ONCE = Backoff(quick_ms_min=0, quick_ms_max=1, pause_ms_min=1, pause_ms_max=2)
MODES = ["sealed", "folded"]


class World:
    """A relay's log, documents on it, and an archive of them."""

    def __init__(self, mode: str, seed: int = 1) -> None:
        self.mode, self.random = mode, Random(seed)
        self.log = MemoryLog()
        self.transport = LogTransport(self.log)
        self.place: Destination = MemoryDestination("here")
        self.committed: list[Committed] = []
        # The last event of the table.
        self.last = 0
        self._documents: dict[tuple[str, str], WalDocument] = {}

    async def document(self, key: str, who: Identity = ALICE) -> WalDocument:
        if (key, who.public_key) not in self._documents:
            self._documents[key, who.public_key] = await WalDocument(
                key,
                transport=self.transport,
                snapshot_store=self.transport,
                identity=who,
                writers=MEMBERS,
                snapshot_role=MEMBERS,
            ).open()
        return self._documents[key, who.public_key]

    async def happen(self, count: int) -> None:
        for number in range(count):
            key = self.random.choice(["notes/a", "notes/b", "notes/c", "other/d"])
            document = await self.document(key, self.random.choice([ALICE, BOB]))
            await document.pull()
            text = document.text("body")
            document.insert_text("body", self.random.randint(0, len(text)), f"{number} ")
            await document.commit()
            if key.startswith("notes/"):
                self.last = (await LogSource(self.log).status()).head_seq

    def engine(self, place: Destination | None = None, **options: Any) -> Engine:
        source = LogSource(self.log, "notes/", page_events_max=5)
        archive = Archive(self.place if place is None else place, "notes/")
        table: EventTable = SealedTable(source)
        if self.mode == "folded":
            table = FoldedTable(source, archive, Folder(source, BY_KEYS, ARCHIVE))
        writer = Writer(
            Table("notes", "notes/", *table.kind[1:], table.kind.mode, self.log.relay_id, parts=2),
            [archive.destination],
            base_formats=[JsonlFormat()],
            diff_formats=[JsonlFormat()],
            policy=Policy(max_churn_records=30),
            now_ms=Clock(),
        )
        settings: dict[str, Any] = {"interval_ms": 5, "buffer_bytes_max": 2**20, **options}
        return Engine(
            source, table, writer, on_committed=self.committed.append, backoff=AT_ONCE, **settings
        )

    async def rows(self) -> list[Row]:
        return [row async for row in Archive(self.place, "notes/").rows()]

    async def check(self) -> None:
        """Check that the archive is what the log folds to, as a reader of each sees it."""
        rows = await self.rows()
        if self.mode == "sealed":
            assert sorted((row["document"], row["ts"]) for row in rows) == [
                (key, element.ts)
                for key in ("notes/a", "notes/b", "notes/c")
                for element in await self.transport.pull(key, 0)
            ]
            return
        documents = {key for key, _ in self._documents if key.startswith("notes/")}
        assert sorted(str(row["document"]) for row in rows) == sorted(documents)
        for row in rows:
            document = await self.document(str(row["document"]))
            await document.pull()
            assert row["value"] == document.materialize()


BY_KEYS = Authority(writers={"": MEMBERS}, producers={"": MEMBERS})


@pytest.fixture(params=MODES)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


async def test_what_there_is_becomes_a_base_and_what_follows_diffs(world: World) -> None:
    await world.happen(20)
    await world.engine().run_once()
    await world.check()
    for _ in range(4):
        await world.happen(10)
        await world.engine().run_once()
        await world.check()
    kinds = [each.artifact.is_base for each in world.committed]
    assert kinds[0]
    assert set(kinds) == {True, False}
    churn = [each.artifact.churn for each in world.committed]
    heads = [each.manifest.head_position for each in world.committed]
    assert sum(filter(None, churn)) <= heads[-1]


async def test_a_run_that_finds_nothing_new_writes_nothing(world: World) -> None:
    await world.happen(20)
    await world.engine().run_once()
    await (await world.document("other/d")).commit()
    assert await world.engine().run_once() is None
    assert len(world.committed) == 1


async def test_an_archive_of_one_log_is_the_same_bytes_however_it_was_read(world: World) -> None:
    await world.happen(40)
    bodies = []
    for buffer_bytes_max in (2**20, 2**30):
        world.place = MemoryDestination("here")
        await world.engine(buffer_bytes_max=buffer_bytes_max).run_once()
        keys = [each.key async for each in world.place.list("")]
        found = [await world.place.get(key) for key in keys]
        bodies.append([(key, each.body) for key, each in zip(keys, found, strict=True) if each])
    assert bodies[0] == bodies[1]


async def test_a_full_buffer_is_written_before_more_is_read(world: World) -> None:
    await world.happen(60)
    engine = world.engine(buffer_bytes_max=15_000)
    await engine.run_once()
    assert len(world.committed) > 2
    await world.check()


async def test_it_goes_on_until_it_is_stopped_and_then_writes_the_rest(world: World) -> None:
    await world.happen(10)
    stopped = anyio.Event()
    engine = world.engine()
    running = asyncio.ensure_future(engine.run(stopped))
    await until(lambda: engine.status.is_ready)
    await world.happen(10)
    await until(lambda: len(world.committed) > 1)
    await world.happen(3)
    await until(lambda: engine.status.source_position >= world.last)
    stopped.set()
    await running
    await world.check()


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_kill_at_any_step_loses_nothing_and_doubles_nothing(
    world: World, when: Any
) -> None:
    point = 0
    while True:
        await world.happen(6)
        faults = Faults(at=point, when=when)
        place = FaultyDestination(world.place, faults)
        try:
            await world.engine(place, buffer_bytes_max=4000).run_once()
        except Killed:
            point += 1
        else:
            break
    assert point > 3
    await world.check()


class Outage(FaultyDestination):
    """A place that cannot be written for as long as it is down."""

    is_down = True

    async def put_if(self, key: str, body: bytes, revision: str | None) -> str:
        if self.is_down:
            raise timed_out()
        return await super().put_if(key, body, revision)


async def test_a_full_buffer_does_not_grow_while_it_cannot_be_written(world: World) -> None:
    await world.happen(60)
    place = Outage(world.place, Faults())
    errors: list[Exception] = []
    engine = world.engine(place, buffer_bytes_max=2000, on_error=errors.append)
    stopped = anyio.Event()
    running = asyncio.ensure_future(engine.run(stopped))
    await until(lambda: len(errors) > 20)
    # A page, and not one for each time that it was tried.
    assert 0 < engine.status.buffered_events <= 5
    place.is_down = False
    await until(lambda: engine.writer.head >= world.last)
    stopped.set()
    await running
    await world.check()


async def test_a_place_that_fails_for_a_while_is_waited_for(world: World) -> None:
    await world.happen(10)
    faults = Faults(at=1, fault=timed_out)
    engine = world.engine(FaultyDestination(world.place, faults))
    stopped = anyio.Event()
    running = asyncio.ensure_future(engine.run(stopped))
    await until(lambda: engine.status.is_ready)
    stopped.set()
    await running
    await world.check()


async def test_two_engines_on_one_archive_lose_nothing_and_double_nothing(world: World) -> None:
    stopped = anyio.Event()
    engines = [world.engine(), world.engine()]
    running = [asyncio.ensure_future(each.run(stopped)) for each in engines]
    for _ in range(10):
        await world.happen(5)
        await asyncio.sleep(0)
    await until(lambda: max(each.writer.head for each in engines) >= world.last)
    stopped.set()
    await asyncio.gather(*running)
    await world.check()


async def test_a_source_that_does_not_reach_back_is_caught_up_with(world: World) -> None:
    await world.happen(15)
    await world.engine().run_once()
    before = len(world.committed)
    await world.happen(15)
    for key in ("notes/a", "notes/b", "notes/c"):
        document = await world.document(key)
        await document.pull()
        await document.snapshot()
    await world.happen(5)
    await world.log.trim(world.last - 2)
    await world.engine().run_once()
    assert world.committed[before].artifact.is_base
    if world.mode == "folded":
        await world.check()
    else:
        documents = {row["document"] for row in await world.rows() if row["kind"] == "snapshot"}
        assert documents == {"notes/a", "notes/b", "notes/c"}


async def test_a_relay_that_was_rolled_back_ends_it(world: World) -> None:
    await world.happen(15)
    await world.engine().run_once()
    log = MemoryLog()
    log._relay_id = world.log.relay_id
    world.log = log
    with pytest.raises(LogBehindError):
        await world.engine().run(anyio.Event())


async def test_another_relay_ends_it(world: World) -> None:
    await world.happen(15)
    await world.engine().run_once()
    expected = world.log.relay_id
    with pytest.raises(OtherRelayError):
        LogSource(MemoryLog(), relay_id=expected)
