"""The engine: from a relay's log to an archive, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import product
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.archive_faults import Faults, FaultyDestination, Killed, timed_out
from tests.archive_tables import Clock
from tests.archive_world import ARCHIVE, MODES, World, until
from tests.rigged import ALICE, BOB
from walstore.archive import modes
from walstore.archive.authority import Authority
from walstore.archive.checking import check_archive
from walstore.archive.destination import Destination, Found
from walstore.archive.engine import Engine
from walstore.archive.folded import integer_of
from walstore.archive.folder import Folder
from walstore.archive.memory import MemoryDestination
from walstore.archive.modes import FoldedTable
from walstore.archive.policy import Policy
from walstore.archive.reader import Archive
from walstore.archive.rows import Window
from walstore.archive.service import Keeping, NotBegunError
from walstore.archive.source import Event, FalseBeginningError, Page, Status
from walstore.document.ports import LogBehindError
from walstore.net.faults import OtherRelayError, ReplayTooOldError
from walstore.relay.memory import MemoryLog
from walstore.relay.reading import LogSource, LogStatus

MANIFEST = "notes/manifest.json"


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


@pytest.mark.parametrize("is_begun_empty", [True, False])
@pytest.mark.parametrize("flushed", list(product([False, True], repeat=4)))
async def test_whenever_it_is_written_a_deleted_document_is_the_same(
    flushed: Sequence[bool], is_begun_empty: bool
) -> None:
    world = World("folded", max_churn_records=1000)
    engine = world.engine()
    if not is_begun_empty:
        (await world.document("notes/z")).set_field("count", 1)
        await (await world.document("notes/z")).commit()
    await engine.run_once()
    alice, bob = await world.document("notes/a"), await world.document("notes/a", BOB)

    async def begin() -> None:
        alice.insert_text("body", 0, "gone")
        await alice.commit()
        await bob.pull()

    async def go_on() -> None:
        # Bob has not heard of the deletion, and types on after what is gone.
        bob.insert_text("body", len(bob.text("body")), "kept")
        await bob.commit()

    for step, is_flushed in zip((begin, alice.delete_document, go_on, go_on), flushed, strict=True):
        await step()
        while await engine._read():
            pass
        if is_flushed:
            await engine.flush()
    await engine.flush()
    rows = {row["document"]: row for row in await world.rows()}
    assert rows["notes/a"]["value"] == {"body": list("keptkept")}
    assert rows["notes/a"]["elements"] == 2


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


async def test_what_comes_while_it_rests_is_read_together(world: World) -> None:
    engine, stopped, reads = world.engine(interval_ms=400), anyio.Event(), 0
    page = engine._source.page

    async def counted(since: int) -> Page:
        nonlocal reads
        reads += 1
        return await page(since)

    engine._source.page = counted  # type: ignore[method-assign]
    running = asyncio.ensure_future(engine.run(stopped))
    await until(lambda: engine.status.is_ready)
    before = reads
    for _ in range(40):
        await world.happen(1)
        await anyio.lowlevel.checkpoint()
    await until(lambda: engine.status.source_position >= world.last)
    # There are five events in a page.
    assert reads - before <= 12
    stopped.set()
    await running
    await world.check()


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


class CountingDestination(MemoryDestination):
    """Counts the artifacts that are read."""

    read = 0

    async def get(self, key: str) -> Found | None:
        self.read += key != MANIFEST
        return await super().get(key)


@pytest.mark.parametrize("names_max", [modes.NAMES_KEPT_MAX, 4])
async def test_a_new_document_is_looked_for_in_the_archive_once(
    monkeypatch: pytest.MonkeyPatch, names_max: int
) -> None:
    monkeypatch.setattr(modes, "ROWS_KEPT_MAX", 2)
    monkeypatch.setattr(modes, "NAMES_KEPT_MAX", names_max)
    world = World("folded")
    # To write a base reads everything.
    world.policy = Policy(max_chain_fraction=0, max_chain_diffs=0)
    world.place = place = CountingDestination("here")
    engine, reads = world.engine(), list[int]()
    await engine.run_once()
    for number in range(20):
        await world.edit(f"notes/{number}")
        place.read = 0
        await read_all_and_flush(engine)
        reads.append(place.read)
    # Each of the two parts is read once, unless there are too many to remember. What is put is
    # looked at, too.
    assert (len([each for each in reads if each > 2]) <= 2) is (names_max > 4)
    # What has a row, and is not at hand, is read.
    for key in ("notes/0", "notes/20", "notes/7", "notes/20"):
        await world.edit(key)
        await read_all_and_flush(engine)
    await world.check()


async def read_all_and_flush(engine: Engine) -> None:
    while await engine._read():
        pass
    await engine.flush()


@pytest.mark.parametrize("resumes", [True, False])
async def test_a_sealed_archive_remembers_that_it_has_missed_something(resumes: bool) -> None:
    world = World("sealed")
    await world.happen(20)
    await world.log.trim(9)
    # It comes late. The relay still has all elements, and no feed that says where they were.
    await world.engine().run_once()
    assert min(integer_of(row, "seq") for row in await world.rows()) > 8
    for _ in range(2):
        await world.happen(3)
        committed = await world.engine(resumes=resumes).run_once()
        assert committed is not None
        assert committed.manifest.gap_upto == 8
    assert (
        "events up to 8 may be missing"
        in (await check_archive(Archive(world.place, "notes/"))).notes
    )


async def test_an_archive_that_has_missed_nothing_says_so(world: World) -> None:
    await world.happen(20)
    await world.engine().run_once()
    await world.log.trim(world.last + 1)
    await world.happen(5)
    committed = await world.engine(resumes=False).run_once()
    assert committed is not None
    assert committed.manifest.gap_upto == 0
    await world.check()


async def test_a_start_anew_holds_no_more_than_the_buffer_takes() -> None:
    world = World("sealed")
    await world.happen(30)
    await world.engine().run_once()
    await world.happen(30)
    engine = world.engine(resumes=False, buffer_bytes_max=1)
    table, held = engine._table, list[int]()
    window, catch_up = table.window, table.catch_up

    async def windowed(events: Sequence[Event], **options: Any) -> Window:
        held.append(len(events))
        return await window(events, **options)

    async def caught_up(**options: Any) -> Window:
        found = await catch_up(**options)
        held.append(len(found.changes))
        return found

    table.window, table.catch_up = windowed, caught_up  # type: ignore[method-assign]
    await engine.run_once()
    assert max(held) <= 5
    await world.check()


async def test_what_was_read_before_a_gap_is_written_though_the_source_has_let_go_of_it(
    world: World,
) -> None:
    await world.happen(10)
    engine = world.engine()
    await engine.run_once()
    await world.happen(10)
    while await engine._read():
        pass
    buffered = {event.seq for event in engine._buffer}
    assert buffered
    await world.happen(10)
    for key in ("notes/a", "notes/b", "notes/c"):
        document = await world.document(key)
        await document.pull()
        await document.snapshot()
    await world.log.trim(world.last - 1)
    while await engine._read():
        pass
    await engine.flush()
    if world.mode == "folded":
        await world.check()
    else:
        assert buffered <= {row["seq"] for row in await world.rows()}


@pytest.mark.parametrize("is_trimmed_meanwhile", [False, True])
async def test_a_start_anew_takes_what_the_source_still_has(
    world: World, is_trimmed_meanwhile: bool
) -> None:
    await world.happen(20)
    await world.engine().run_once()
    await world.log.trim(10)
    engine = world.engine(resumes=False)
    status = engine._source.status

    async def trimmed() -> Status:
        found = await status()
        if is_trimmed_meanwhile:
            await world.log.trim(15)
        return found

    engine._source.status = trimmed  # type: ignore[method-assign]
    committed = await engine.run_once()
    assert committed is not None
    assert (committed.artifact.is_base, committed.manifest.epoch) == (True, 2)
    await world.check()


async def test_a_start_anew_takes_what_counts_otherwise_though_nothing_has_happened() -> None:
    world = World("folded")
    for who in (ALICE, BOB):
        document = await world.document(f"notes/{who.public_key[:4]}", who)
        document.set_field("count", 1)
        await document.commit()
    await world.engine().run_once()
    engine = world.engine(resumes=False)
    table = engine._table
    assert isinstance(table, FoldedTable)
    only = {"": frozenset({ALICE.public_key})}
    table._folder = Folder(engine._source, Authority(writers=only, producers=only), ARCHIVE)
    committed = await engine.run_once()
    assert committed is not None
    assert committed.artifact.is_base
    values = {row["document"]: row["value"] for row in await world.rows()}
    assert values[f"notes/{ALICE.public_key[:4]}"] == {"count": 1}
    assert values.get(f"notes/{BOB.public_key[:4]}", {}) == {}


async def test_a_head_between_what_was_read_here_is_gone_on_from(world: World) -> None:
    await world.edit("notes/a")
    engine, other = world.engine(), world.engine()
    await engine.run_once()
    await world.edit("other/d")
    await read_all(other)
    await world.edit("other/e")
    await world.edit("notes/b")
    while await engine._read():
        pass
    # The other one's base ends before the first event that was read here, and after its beginning.
    await other.flush(is_base_wanted=True)
    committed = await engine.flush()
    assert committed is not None
    assert (committed.artifact.from_position, committed.artifact.to_position) == (2, 4)
    await world.check()


async def read_all(engine: Engine) -> None:
    await engine._begin()
    while await engine._read():
        pass


def forget_always(engine: Engine, *, head_seq: int | None) -> None:
    """Let a source say each time that it has let go of more; it ends where it does, or there."""
    source = engine._source
    bootstrap, status = source.bootstrap, source.status

    async def page(since: int) -> Page:
        raise ReplayTooOldError(since + 2)

    async def false_bootstrap() -> tuple[int, AsyncIterator[Event]]:
        head, events = await bootstrap()
        return head_seq or head, events

    async def false_status() -> Status:
        found = await status()
        return LogStatus(found.relay_id, found.min_seq, head_seq or found.head_seq)

    source.page = page  # type: ignore[method-assign]
    source.bootstrap = false_bootstrap  # type: ignore[method-assign]
    source.status = false_status  # type: ignore[method-assign]


async def test_a_source_that_begins_after_its_end_is_not_believed(world: World) -> None:
    await world.happen(5)
    engine = world.engine()
    forget_always(engine, head_seq=None)
    with pytest.raises(FalseBeginningError, match="begins at 7, and ends at 5"):
        await engine.run_once()
    assert engine.writer.head <= 5


@pytest.mark.parametrize("is_once", [True, False])
async def test_a_source_that_lets_go_of_more_each_time_is_given_up(
    world: World, is_once: bool
) -> None:
    await world.happen(5)
    engine = world.engine()
    forget_always(engine, head_seq=1000)
    with pytest.raises(ReplayTooOldError):
        await (engine.run_once() if is_once else engine.run(anyio.Event()))
    assert world.committed == []


async def test_a_source_that_never_has_what_follows_is_given_up(world: World) -> None:
    await world.happen(5)
    engine = world.engine()
    page = engine._source.page

    async def gone(since: int) -> Page:
        # Only who closes a gap is answered, as it begins below the head.
        if since == engine.status.source_position:
            raise ReplayTooOldError(1)
        return await page(since)

    await engine.run_once()
    engine._source.page = gone  # type: ignore[method-assign]
    async with asyncio.timeout(20):
        with pytest.raises(ReplayTooOldError):
            await engine.run_once()
    assert len(world.committed) < 20


async def test_who_is_sent_back_reads_again_though_nothing_more_happens(world: World) -> None:
    await world.edit("notes/a")
    engine = world.engine()
    following = asyncio.ensure_future(engine._follow())
    await until(lambda: engine.status.is_ready)
    older = await world.place.get(MANIFEST)
    assert older is not None
    await world.edit("notes/b")
    await until(lambda: engine.status.buffered_events == 1)
    await engine.flush()
    # Whoever looks after the archive puts an older manifest back.
    await world.place.put(MANIFEST, older.body)
    await engine.flush(is_base_wanted=True)
    assert engine.writer.head == 1
    await until(lambda: engine.status.buffered_events == 1)
    await engine.flush()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert engine.writer.head == 2
    await world.check()


class Interrupted(FaultyDestination):
    """A place where something happens right before an artifact is stored, once."""

    def __init__(self, inner: Destination, happen: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner, Faults())
        self._happen: Callable[[], Awaitable[object]] | None = happen

    async def put_if(self, key: str, body: bytes, revision: str | None) -> str:
        if "epoch=" in key and self._happen is not None:
            happen, self._happen = self._happen, None
            await happen()
        return await super().put_if(key, body, revision)


async def test_a_first_base_that_fails_once_is_of_all_that_was_read(world: World) -> None:
    async def fail() -> None:
        raise timed_out()

    # The first event is none of the table's.
    await world.edit("other/d")
    await world.happen(10)
    engine, stopped = world.engine(Interrupted(world.place, fail)), anyio.Event()
    running = asyncio.ensure_future(engine.run(stopped))
    await until(lambda: engine.status.is_ready)
    stopped.set()
    await running
    assert len(world.committed) == 1
    assert world.committed[0].artifact.to_position >= world.last
    await world.check()


async def test_who_meets_the_beginning_of_another_one_writes_what_it_has_read(
    world: World,
) -> None:
    await world.edit("other/d")
    await world.happen(10)
    other = world.engine(clock=Clock(7))
    await read_all(other)
    await world.engine(Interrupted(world.place, other.flush)).run_once()
    assert len(world.committed) == 1
    assert world.committed[0].artifact.to_position >= world.last
    await world.check()


async def test_one_run_whose_manifest_is_moved_away_meanwhile_reads_everything_anew(
    world: World,
) -> None:
    async def move_away() -> None:
        await world.place.delete(MANIFEST)

    await world.happen(10)
    await world.engine().run_once()
    await world.happen(10)
    committed = await world.engine(Interrupted(world.place, move_away)).run_once()
    assert committed is not None
    assert (committed.artifact.is_base, committed.manifest.first_epoch) == (True, 2)
    assert len(world.committed) == 2
    await world.check()


async def test_who_is_overtaken_at_the_start_is_ready_though_nothing_happens(
    world: World,
) -> None:
    async def commit() -> None:
        await world.edit("notes/b")
        await world.engine(clock=Clock(7)).run_once()

    await world.edit("notes/a")
    engine, stopped = world.engine(Interrupted(world.place, commit)), anyio.Event()
    running = asyncio.ensure_future(engine.run(stopped))
    await until(lambda: engine.status.is_ready)
    assert engine.status.moved == 1
    stopped.set()
    await running
    await world.check()


async def test_nothing_is_written_of_what_was_not_read(world: World) -> None:
    await world.happen(3)
    engine = world.engine()
    await engine._begin()
    assert await engine.flush(is_base_wanted=True) is None
    nothing: Any = None
    keeping = Keeping(nothing, nothing)
    keeping.engine = engine
    with pytest.raises(NotBegunError, match="nothing was read yet"):
        await keeping.snapshot()
    assert [each async for each in world.place.list("")] == []


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
