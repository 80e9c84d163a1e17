"""What one who does not play along costs the others: as time, and as memory of the relay.

- A relay, honest clients and those who abuse it are three processes. Honest clients are timed with
  the abuse and without it, in turns, so that whatever else the machine does hits both; each turn's
  99th percentile counts, and of those the median.
- Sizes are small here, and times are compared with room for a machine that is busy with other
  tests. `WALSTORE_ABUSE_S` says how many seconds of abuse there are; from a minute on, those who
  are honest may wait at most twice as long as without it.
- `WALSTORE_IDLE_S` says for how many seconds idle connections are watched, `WALSTORE_IDLE` how many
  there are.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.archive_process import ask, until
from tests.relay_load import Load
from tests.relay_process import Forker, RelayProcess, forking
from walstore.relay.limits import Limits
from walstore.relay.sqlite import CACHE_KIB

ABUSE_S = float(os.environ.get("WALSTORE_ABUSE_S", "3"))
IS_RELEASE = ABUSE_S >= 60
IDLE_S = float(os.environ.get("WALSTORE_IDLE_S", "2"))
IDLE = int(os.environ.get("WALSTORE_IDLE", "0")) or min(2_000, max(200, round(IDLE_S)))

# One turn; there are as many with the abuse as without.
TURN_S = 10.0 if IS_RELEASE else 0.5
TURNS = max(3, round(ABUSE_S / TURN_S))

# What is written: so much a second, if the machine can do twice as much; in a release it has to.
PER_SECOND = 1_000 if IS_RELEASE else 200
SIZE = 1_000

# How much longer than without the abuse the slowest of a hundred may take. Of a small run it is
# said beside what a busy machine does to anybody, now and then.
FACTOR_MAX, EXTRA_MS = (2.0, 2.0) if IS_RELEASE else (4.0, 60.0)

# How much of a processor the abuse may take.
BUSY_MAX = 0.35

# And of its time whenever a forger has come and was found out: two milliseconds are needed. Two
# turns without any abuse differ, too, by what the machine makes of them.
FORGER_S_MAX, EXTRA_S = 0.010, 0.2

# What a relay may take of memory beside what it holds for peers: threads, caches, fragments.
MEMORY_BESIDE = 48 * 2**20
IDLE_BYTES_MAX = 64 * 2**10
# No leak. The database's cache fills with what is written at first, and is no leak. Of half an hour
# half a megabyte was measured; a short run ends while threads and fragments still settle.
GROWTH_PER_HOUR_MAX = 0.01
GROWTH_BESIDE = 2**20 if IDLE_S >= 3600 else 8 * 2**20
CACHE = CACHE_KIB * 2**10

# Those who do not read, and what one of them may take: a page of elements, as read and as written.
DEAF = 20
DEAF_BYTES_MAX = 4 * 2**20


def memory_of(relay: RelayProcess) -> int:
    """How much memory a process has, in bytes."""
    pages = int(Path(f"/proc/{relay.number}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def busy_s_of(relay: RelayProcess) -> float:
    """For how long a process has used a processor."""
    fields = Path(f"/proc/{relay.number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def status_of(relay: RelayProcess) -> dict[str, Any]:
    """What a relay says of itself."""
    answered = await asyncio.to_thread(ask, relay.url, "GET", "/status")
    status: dict[str, Any] = answered.content
    return status


async def refused_as_invalid(relay: RelayProcess) -> int:
    """How many elements were looked into, and were not what their author had signed."""
    answered = await asyncio.to_thread(ask, relay.url, "GET", "/metrics")
    (line,) = [
        line
        for line in answered.content.splitlines()
        if line.startswith('walstore_relay_appends_total{result="invalid"}')
    ]
    return int(float(line.split()[-1]))


@pytest.fixture
def forker(tmp_path: Path) -> Iterator[Forker]:
    with forking(tmp_path) as forker:
        yield forker


@asynccontextmanager
async def serving_honest(forker: Forker) -> AsyncIterator[tuple[RelayProcess, Load, float]]:
    """A relay, its honest clients, and how much a second they are going to write."""
    relay = await forker.start("--database", "relay.db")
    async with Load("honest", relay.url) as honest:
        await honest.call("open", writers=8)
        await honest.call("measure", elements=PER_SECOND, per_second=0, size=SIZE)
        fastest = await honest.call("measure", elements=PER_SECOND, per_second=0, size=SIZE)
        per_second = min(PER_SECOND, fastest["per_second"] / 2)
        assert per_second == PER_SECOND or not IS_RELEASE, (
            f"a release is timed at {PER_SECOND} a second, with as much room: {fastest}"
        )
        yield relay, honest, per_second


class Turns:
    """Honest clients, timed in turns."""

    def __init__(self, relay: RelayProcess, honest: Load, per_second: float) -> None:
        self._relay, self._honest, self._per_second = relay, honest, per_second
        self._with: list[dict[str, float]] = []
        self._without: list[dict[str, float]] = []

    async def take(
        self, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]
    ) -> None:
        """Take all of them; the abuse begins before every second one, and ends after it."""
        for _ in range(TURNS):
            self._without.append(await self._turn())
            await begin()
            self._with.append(await self._turn())
            await end()

    async def _turn(self) -> dict[str, float]:
        elements = max(10, round(self._per_second * TURN_S))
        began, busy_s = time.monotonic(), busy_s_of(self._relay)
        found: dict[str, float] = await self._honest.call(
            "measure",
            within_s=TURN_S,
            elements=elements,
            per_second=self._per_second,
            size=SIZE,
        )
        found["busy_s"] = busy_s_of(self._relay) - busy_s
        found["busy"] = found["busy_s"] / (time.monotonic() - began)
        return found

    @property
    def extra_s(self) -> float:
        """For how long a processor was used for the abuse."""
        beside, without = (
            sum(turn["busy_s"] for turn in turns) for turns in (self._with, self._without)
        )
        return max(0.0, beside - without)

    def check(self, what: str) -> None:
        """Nobody has waited much longer for it."""
        without, beside = (
            {name: median(turn[name] for turn in turns) for name in ("p99_ms", "busy")}
            for turns in (self._without, self._with)
        )
        seconds = round(TURNS * TURN_S)
        print(
            f"{what}: {seconds} seconds of abuse, {self._per_second:.0f} elements a second;"
            f" p99 {beside['p99_ms']:.1f} ms, {without['p99_ms']:.1f} ms without;"
            f" the relay {beside['busy']:.0%} busy, {without['busy']:.0%} without"
        )
        assert beside["p99_ms"] <= without["p99_ms"] * FACTOR_MAX + EXTRA_MS
        assert beside["busy"] <= without["busy"] + BUSY_MAX


async def test_who_does_not_read_costs_others_no_time_and_the_relay_little_memory(
    forker: Forker,
) -> None:
    async with (
        serving_honest(forker) as (relay, honest, per_second),
        Load("deaf", relay.url) as deaf,
    ):
        before = memory_of(relay)
        # More than what the system holds for somebody who does not read.
        await honest.call("measure", elements=160, per_second=0, size=60_000)
        most_pending = most_memory = 0

        async def are_stuck() -> bool:
            pending = [each["pending_bytes"] for each in (await status_of(relay))["connections"]]
            return len([each for each in pending if each]) == DEAF

        async def begin() -> None:
            # To be let in and to be sent the first page is every newcomer's right.
            await deaf.call("begin", connections=DEAF)
            await until(are_stuck)

        async def end() -> None:
            nonlocal most_pending, most_memory
            pending = [each["pending_bytes"] for each in (await status_of(relay))["connections"]]
            most_pending = max(most_pending, *pending)
            most_memory = max(most_memory, memory_of(relay))
            await deaf.call("end")

        turns = Turns(relay, honest, per_second)
        await turns.take(begin, end)
        turns.check("who does not read")
        limits = Limits()
        print(f"{most_pending / 2**20:.1f} MiB pending, {(most_memory - before) / 2**20:.0f} more")
        assert limits.lag_bytes_max < most_pending <= limits.pending_bytes_max
        assert most_memory - before <= DEAF * DEAF_BYTES_MAX + MEMORY_BESIDE


async def test_who_forges_is_stopped_before_it_costs_others_time(forker: Forker) -> None:
    async with (
        serving_honest(forker) as (relay, honest, per_second),
        Load("forger", relay.url) as forger,
    ):
        counted: dict[str, int] = {}

        async def begin() -> None:
            await forger.call("begin")

        async def end() -> None:
            for name, times in (await forger.call("end")).items():
                counted[name] = counted.get(name, 0) + times

        turns = Turns(relay, honest, per_second)
        await turns.take(begin, end)
        looked_into = await refused_as_invalid(relay)
        print(f"{counted['sent']} forged, {looked_into} looked into, {counted}")
        turns.check("who forges")
        limits = Limits()
        penalties = 1 + TURNS * 2 * TURN_S * 1000 / limits.penalty_ms
        assert counted["sent"] > 20 * limits.faults_max, "too little of it"
        assert 0 < looked_into <= penalties * (limits.faults_max + limits.in_flight_max)
        each_ms = 1000 * turns.extra_s / counted["connections"]
        print(f"{each_ms:.1f} ms of the relay's processor for each time that the forger came")
        assert turns.extra_s <= EXTRA_S + counted["connections"] * FORGER_S_MAX


async def test_who_is_idle_costs_little_memory(forker: Forker) -> None:
    relay = await forker.start("--database", "relay.db")
    async with (
        Load("idle", relay.url) as first,
        Load("idle", relay.url) as idle,
        Load("honest", relay.url) as honest,
    ):
        # What the first ones need is there for all: caches, threads, pages of the heap.
        await first.call("open", connections=20)
        await first.call("close")
        before = memory_of(relay)
        await idle.call("open", within_s=IDLE / 20, connections=IDLE)
        each = (memory_of(relay) - before) / IDLE
        assert (await status_of(relay))["connections_total"] == IDLE
        print(f"{IDLE} idle connections of {each / 1024:.1f} KiB", end=", ")
        assert each <= IDLE_BYTES_MAX
        active = IDLE // 10
        await honest.call("open", writers=active)
        elements = max(10, round(active * IDLE_S / 2))
        halves, began = [], time.monotonic()
        for _ in range(2):
            await honest.call(
                "measure",
                within_s=IDLE_S,
                elements=elements,
                per_second=active,
                size=SIZE,
            )
            halves.append(memory_of(relay))
        watched_s, (first_half, second_half) = time.monotonic() - began, halves
        print(
            f"watched for {watched_s:.0f} seconds beside {active} that write:"
            f" {first_half / 2**20:.1f} MiB half-way, {second_half / 2**20:.1f} MiB in the end"
        )
        assert (await status_of(relay))["connections_total"] == IDLE + active + 1
        grown = first_half * GROWTH_PER_HOUR_MAX * watched_s / 3600
        cached = max(0, CACHE - elements * SIZE)
        assert second_half - first_half <= grown + cached + GROWTH_BESIDE
