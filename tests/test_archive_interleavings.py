"""Two engines on one archive, interrupted at every step: nothing is lost, nothing doubled.

- Nothing waits for a clock: a case is the same every time.
- In every moment of an engine's life, before and after each step, something happens: the other
  engine commits, or commits a base and drops the epoch that is being read; events arrive; or
  whoever waits for the commit gives up. Of pairs of moments some are tried.

`WALSTORE_ARCHIVE_PAIRS` says how many pairs; there are some ten thousand.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from random import Random

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.archive_moments import MomentaryDestination, Moments
from tests.archive_world import MODES, World, until
from walstore.archive import engine
from walstore.archive.checking import check_archive
from walstore.archive.destination import Destination
from walstore.archive.memory import MemoryDestination
from walstore.archive.reader import Archive

HAPPENINGS = ("arrive", "give up", "other commits", "other drops")
HOUR_MS = 3_600_000

PAIRS = int(os.environ.get("WALSTORE_ARCHIVE_PAIRS", "30"))
SEED = int(os.environ.get("WALSTORE_ARCHIVE_PAIRS_SEED", "0")) or time.time_ns() % 10**6


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """News is read at once: every life has some, and there are hundreds of lives."""
    monkeypatch.setattr(engine, "_REST_MS_MAX", 0)


class Life:
    """One engine that is interrupted, and another one beside it."""

    def __init__(self, mode: str, *, is_mirrored: bool = False, interval_ms: int = HOUR_MS) -> None:
        self.world = World(mode, max_churn_records=4, keep_epochs=1)
        self.moments = Moments()
        self._places: list[Destination] = [self.world.place]
        if is_mirrored:
            self._places.append(MemoryDestination("there"))
        stepped = [MomentaryDestination(each, self.moments) for each in self._places]
        self.engine = self.world.engine(
            *stepped, interval_ms=interval_ms, on_found=self.world.committed.append
        )
        self._other = self.world.engine(*self._places)
        self._scope = anyio.CancelScope()
        self._stopped = anyio.Event()

    async def run(self, happenings: Mapping[int, str]) -> None:
        """Commit some times, while things happen; then see what is in the archive."""
        running = await self._begin(happenings)
        for _ in range(3):
            await self._arrive(2)
            with anyio.CancelScope() as self._scope:
                await self.engine.flush()
        self.moments.end()
        await self._arrive(2)
        self._stopped.set()
        await running
        await self.check()

    async def run_until_stopped(self, at: int) -> bool:
        """Stop the engine in a moment, right after an event; whether that moment came."""
        running = await self._begin({at: "stop"})
        for _ in range(3):
            await self.world.happen(2)
            await until(lambda: running.done() or self.engine.writer.head >= self.world.last)
        is_stopped = self._stopped.is_set()
        self._stopped.set()
        await running
        return is_stopped

    async def _begin(self, happenings: Mapping[int, str]) -> asyncio.Future[None]:
        running = asyncio.ensure_future(self.engine.run(self._stopped))
        await self._arrive(5)
        await until(lambda: self.engine.status.is_ready)
        self.moments.begin({at: self._doing(name) for at, name in happenings.items()})
        return running

    async def check(self) -> None:
        """Check that each place holds what the log folds to."""
        for place in self._places:
            self.world.place = place
            await self.world.check()
            assert (await check_archive(Archive(place, "notes/"))).flaws == []

    async def check_told(self) -> None:
        """Check that somebody was told of everything that is in the archive."""
        manifest = await Archive(self.world.place, "notes/").manifest()
        told = [each.artifact for each in self.world.committed]
        assert all(artifact in told for artifact in manifest.artifacts)

    async def catch_up(self, happenings: Mapping[int, str]) -> None:
        """Go on where the source no longer reaches back to the archive, while things happen."""
        await self.world.happen(6)
        await self.engine.run_once()
        await self.world.happen(6)
        for key in ("notes/a", "notes/b", "notes/c"):
            document = await self.world.document(key)
            await document.pull()
            await document.snapshot()
        await self.world.happen(2)
        await self.world.log.trim(self.world.last - 1)
        self.moments.begin({at: self._doing(name) for at, name in happenings.items()})
        await self.engine.run_once()
        self.moments.end()
        await self.check()

    def _doing(self, name: str) -> Callable[[], Awaitable[None]]:
        return {
            "arrive": self._arrive,
            "give up": self._give_up,
            "stop": self._stop,
            "other commits": self._other_commits,
            "other drops": self._other_drops,
        }[name]

    async def _arrive(self, count: int = 1) -> None:
        await self.world.happen(count)
        await until(lambda: self.engine.status.source_position >= self.world.last)

    async def _give_up(self) -> None:
        self._scope.cancel()
        await checkpoint()

    async def _stop(self) -> None:
        await self._arrive()
        self._stopped.set()
        # Whoever is told to stop has the time to.
        for _ in range(10):
            await checkpoint()

    async def _other_commits(self) -> None:
        await self.world.happen(1)
        await self._other.run_once()

    async def _other_drops(self) -> None:
        await self._other_commits()
        await self._other.flush(is_base_wanted=True)


async def moments_of(mode: str, *, is_mirrored: bool) -> int:
    """How many moments there are if nothing happens in any of them."""
    life = Life(mode, is_mirrored=is_mirrored)
    await life.run({})
    return len(life.moments.names)


@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize(("mode", "is_mirrored"), [("folded", True), ("sealed", False)])
async def test_whatever_happens_in_any_moment_nothing_is_lost(
    mode: str, is_mirrored: bool, happening: str
) -> None:
    count = await moments_of(mode, is_mirrored=is_mirrored)
    assert count > 30
    for at in range(count):
        life = Life(mode, is_mirrored=is_mirrored)
        try:
            await life.run({at: happening})
            await life.check_told()
        except BaseException as error:
            error.add_note(f"{happening}, in the moment {at}: {life.moments.names[at]}")
            raise


@pytest.mark.parametrize("is_mirrored", [False, True])
async def test_whatever_happens_in_any_two_moments_nothing_is_lost(is_mirrored: bool) -> None:
    count = await moments_of("folded", is_mirrored=is_mirrored)
    random = Random(SEED)
    for _ in range(PAIRS // 2):
        happenings = {random.randrange(count + 8): random.choice(HAPPENINGS) for _ in range(2)}
        try:
            await Life("folded", is_mirrored=is_mirrored).run(happenings)
        except BaseException as error:
            error.add_note(f"WALSTORE_ARCHIVE_PAIRS_SEED={SEED}: {happenings}")
            raise


@pytest.mark.parametrize("happening", ["other commits", "other drops"])
async def test_whoever_catches_up_while_another_does_goes_on_from_there(happening: str) -> None:
    life = Life("folded")
    await life.catch_up({})
    assert len(life.moments.names) > 10
    met = 0
    for at in range(len(life.moments.names)):
        life = Life("folded")
        await life.catch_up({at: happening})
        met += life.engine.status.moved
    assert met > 5


@pytest.mark.parametrize("mode", MODES)
async def test_a_stop_in_any_moment_writes_the_rest_and_tells_of_every_commit(mode: str) -> None:
    at = 0
    while await _stops_in(mode, at):
        at += 1
    assert at > 10


async def _stops_in(mode: str, at: int) -> bool:
    life = Life(mode, interval_ms=1)
    is_stopped = await life.run_until_stopped(at)
    await life.check_told()
    # What came after the stop was not read: it is archived by whoever comes next.
    await life.world.engine().run_once()
    await life.world.check()
    return is_stopped
