"""A relay that is killed a hundred times under load: nothing that it has acknowledged is lost.

- Eight writers append to a document of their own and to one that they share, several elements at
  a time. When the connection breaks, they send what was not acknowledged again, the same bytes,
  and the last element that was.
- A kill counts if the relay that it ended was busy. Some further kills meet relays that start.
- On PostgreSQL two relays serve one database. One of them is killed, in turns; whoever follows the
  documents on the other one sees all that is stored, once and in order.

`WALSTORE_RELAY_KILLS` says how many kills of each kind; the seed of the delays is printed.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.postgres_cluster import Cluster, binaries, running_cluster
from tests.relay_clients import PATIENCE_S, Speaker, appending, identity, speaking
from tests.relay_process import RELAY, Forker, RelayProcess, forking
from walstore.wire.frames import (
    Append,
    Delivered,
    Elements,
    EndOfStored,
    FollowChanges,
    Ok,
    Pull,
)

KILLS = int(os.environ.get("WALSTORE_RELAY_KILLS", "0"))
SEED = int(os.environ.get("WALSTORE_RELAY_KILLS_SEED", "0")) or time.time_ns() % 10**6

WRITERS = 8
# Elements of one writer that are on their way at once.
WINDOW = 8
SHARED = "kills/shared"

# How long a relay lives once it is busy. Some are killed earlier, and some while they start.
LIFE_S = (0.02, 0.2)
EARLY_KILLS = 0.1
EARLY_LIFE_S = 0.1
STARTS_KILLED = 0.1
START_LIFE_S = 0.03

# A kill of a relay that has little to do shows nothing.
APPENDS_PER_SECOND_MIN = 100
# Kills that do not count, for each one that should.
IDLE_KILLS_MAX = 1.0

# After how many acknowledgements a writer looks whether the relay that it prefers is back.
RETURN_EVERY = 40

BROKEN = (ConnectionClosed, InvalidHandshake, OSError, EOFError)


class Place(NamedTuple):
    """Where an element was acknowledged to be."""

    ts: int
    seq: int


class Relays:
    """The relays that are up, by slot: where to go, and where not."""

    def __init__(self, slots: int) -> None:
        self._urls: list[str | None] = [None] * slots
        self._changed = asyncio.Event()

    def set(self, slot: int, url: str | None) -> None:
        """A relay is up, or is about to be killed."""
        self._urls[slot] = url
        self._changed.set()
        self._changed = asyncio.Event()

    async def find(self, slot: int) -> str:
        """Where the relay of a slot is, or any other; waits until there is one."""
        while True:
            turned = self._urls[slot:] + self._urls[:slot]
            for url in turned:
                if url is not None:
                    return url
            await self._changed.wait()

    def is_better(self, slot: int, url: str) -> bool:
        """Whether the relay of a slot is up, and is not the one that is used."""
        return self._urls[slot] not in (None, url)


class Traffic:
    """How many elements were acknowledged, to everybody."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self._awaited = 0
        self._reached = asyncio.Event()

    def add(self) -> None:
        """One more."""
        self.acknowledged += 1
        if self.acknowledged >= self._awaited:
            self._reached.set()

    async def flowing(self, elements: int) -> None:
        """Wait until so many more were acknowledged."""
        self._awaited = self.acknowledged + elements
        self._reached.clear()
        await self._reached.wait()


class Writer:
    """Somebody who appends as fast as it is acknowledged, and does not let go of anything."""

    def __init__(self, number: int, relays: Relays, traffic: Traffic) -> None:
        self.identity = identity(10 + number)
        self.places: dict[Append, Place] = {}
        self.resent = 0
        self._documents = (f"kills/{number}", SHARED)
        self._relays = relays
        self._traffic = traffic
        self._slot = number
        self._numbers = count(1)
        self._unacknowledged: deque[Append] = deque()
        self._last: Append | None = None

    async def write(self, slots: int) -> None:
        """Append, wherever that is possible, until cancelled."""
        slot = self._slot % slots
        while True:
            url = await self._relays.find(slot)
            with suppress(*BROKEN):
                async with speaking(url, self.identity) as speaker:
                    await self._resend(speaker)
                    await self._append(speaker, slot, url)

    async def settle(self, url: str) -> None:
        """Have everything acknowledged that is not."""
        async with speaking(url, self.identity) as speaker:
            await self._resend(speaker)
            while self._unacknowledged:
                await self._acknowledge(speaker)

    async def _resend(self, speaker: Speaker) -> None:
        if self._last is not None:
            await speaker.say(self._last)
            answer = await speaker.get(Ok, self._last.ref)
            # It was stored before the kill: where it was, and only there.
            assert self._place_of(answer) == self.places[self._last]
        self.resent += len(self._unacknowledged)
        await speaker.say(*self._unacknowledged)

    async def _append(self, speaker: Speaker, slot: int, url: str) -> None:
        for acknowledged in count(1):
            while len(self._unacknowledged) < WINDOW:
                frame = self._next()
                self._unacknowledged.append(frame)
                await speaker.say(frame)
            await self._acknowledge(speaker)
            if acknowledged % RETURN_EVERY == 0 and self._relays.is_better(slot, url):
                return

    async def _acknowledge(self, speaker: Speaker) -> None:
        frame = self._unacknowledged[0]
        answer = await speaker.get(Ok, frame.ref)
        self.places[frame] = self._place_of(answer)
        self._last = self._unacknowledged.popleft()
        self._traffic.add()

    def _next(self) -> Append:
        number = next(self._numbers)
        document = self._documents[number % 2]
        return appending(self.identity, document, {"v": 1, "n": number}, ref=f"a{number}")

    def _place_of(self, answer: Ok) -> Place:
        return Place(answer.result["ts"], answer.result["seq"])


class Follower:
    """Somebody who follows all documents live, and goes on where the last relay has left off."""

    def __init__(self, slot: int, relays: Relays) -> None:
        self.seen: dict[str, list[Delivered]] = {document: [] for document in documents()}
        self.live = 0
        self._slot = slot
        self._relays = relays
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        """Follow, wherever that is possible, until cancelled."""
        while True:
            url = await self._relays.find(self._slot)
            with suppress(*BROKEN):
                async with speaking(url, identity(9)) as speaker:
                    await self._listen(speaker)

    async def _listen(self, speaker: Speaker) -> None:
        live: set[str] = set()
        for document, seen in self.seen.items():
            after = seen[-1].ts if seen else 0
            await speaker.say(Pull(document, document, None, after, 1000, True))
        while True:
            match await speaker.hear():
                case Elements() as frame:
                    self.seen[frame.ref] += frame.elements
                    self.live += len(frame.elements) if frame.ref in live else 0
                    self._changed.set()
                case EndOfStored() as frame:
                    live.add(frame.ref)
                case frame:
                    raise AssertionError(frame)

    async def wait_for(self, last: dict[str, int]) -> None:
        """Wait until it has seen the documents up to a `ts` each."""
        while any(not seen or seen[-1].ts < last[key] for key, seen in self.seen.items()):
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def running(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Have all of it done for the length of a block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
        yield
        for task in tasks:
            task.cancel()


def documents() -> list[str]:
    return [SHARED, *(f"kills/{number}" for number in range(WRITERS))]


class Campaign:
    """Relays that are killed one after the other, and who goes on writing."""

    def __init__(self, forker: Forker, database: str, *, slots: int, kills: int) -> None:
        self._random = random.Random(SEED)
        self._forker = forker
        self._database = database
        self._slots = slots
        self.kills = kills
        self.relays = Relays(slots)
        self.traffic = Traffic()
        self.writers = [Writer(number, self.relays, self.traffic) for number in range(WRITERS)]
        self.idle_kills = self.early_kills = self.starts_killed = 0

    async def start(self, slot: int) -> RelayProcess:
        """Start a relay; some starts are killed, and it is started again."""
        while self._random.random() < STARTS_KILLED:
            number, output = self._forker.fork(*RELAY, "--database", self._database)
            with output:
                await asyncio.sleep(self._random.uniform(0, START_LIFE_S))
                self._forker.kill(number)
            self.starts_killed += 1
        process = await self._forker.start("--database", self._database)
        self.relays.set(slot, process.url)
        return process

    async def kill_all(self) -> RelayProcess:
        """Kill relays, in turns, until enough were killed at work; one that runs is left."""
        running = [await self.start(slot) for slot in range(self._slots)]
        kills = 0
        for turn in count():
            slot = turn % self._slots
            if self._random.random() < EARLY_KILLS:
                # Those who come back are killed off while they resend.
                await asyncio.sleep(self._random.uniform(0, EARLY_LIFE_S))
                self.early_kills += 1
            elif await self._was_busy():
                kills += 1
            else:
                self.idle_kills += 1
                assert self.idle_kills <= self.kills * IDLE_KILLS_MAX, "too little traffic"
            self.relays.set(slot, None)
            self._forker.kill(running[slot].number)
            running[slot] = await self.start(slot)
            if kills == self.kills:
                break
        return running[0]

    async def _was_busy(self) -> bool:
        """Wait until writers are back, and for a while; whether enough was acknowledged in it."""
        async with asyncio.timeout(PATIENCE_S):
            await self.traffic.flowing(WRITERS)
        before, began = self.traffic.acknowledged, time.monotonic()
        await asyncio.sleep(self._random.uniform(*LIFE_S))
        rate = (self.traffic.acknowledged - before) / (time.monotonic() - began)
        return rate >= APPENDS_PER_SECOND_MIN

    def writing(self) -> Iterator[Coroutine[None, None, None]]:
        """What everybody does."""
        return (writer.write(self._slots) for writer in self.writers)


class Stored(NamedTuple):
    """What a relay holds in the end."""

    rows: dict[str, list[Delivered]]
    ids: list[tuple[int, str]]


async def read_all(url: str) -> Stored:
    """Read every document, and the feed over all of them."""
    async with speaking(url, identity(9)) as speaker:
        rows = {document: await _read_document(speaker, document) for document in documents()}
        ids: list[tuple[int, str]] = []
        since, is_more = 0, True
        while is_more:
            ref = speaker.ref()
            await speaker.say(
                FollowChanges(ref, "tail", "", since, None, 10_000, None, None, None, False)
            )
            events, end = await speaker.events(ref)
            ids += [(seq, event["id"]) for seq, event in events]
            since, is_more = end.result["seq"], end.result["more"]
        return Stored(rows, ids)


async def _read_document(speaker: Speaker, document: str) -> list[Delivered]:
    rows: list[Delivered] = []
    is_more = True
    while is_more:
        ref = speaker.ref()
        after = rows[-1].ts if rows else 0
        await speaker.say(Pull(ref, document, None, after, 1000, False))
        while isinstance(frame := await speaker.next_under(ref), Elements):
            rows += frame.elements
        assert isinstance(frame, EndOfStored)
        is_more = frame.result["more"]
    return rows


def check(campaign: Campaign, stored: Stored) -> None:
    """What was acknowledged is there, where it was acknowledged to be, and nothing else."""
    placed = {
        (document, row.author, row.signature, row.data): Place(row.ts, row.seq)
        for document, rows in stored.rows.items()
        for row in rows
    }
    assert len(placed) == sum(len(rows) for rows in stored.rows.values()), "no element twice"
    acknowledged = {
        frame: place for writer in campaign.writers for frame, place in writer.places.items()
    }
    assert len(placed) == len(acknowledged)
    for frame, place in acknowledged.items():
        assert placed[frame.document, frame.author, frame.signature, frame.data] == place
    for rows in stored.rows.values():
        assert all(left.ts < right.ts for left, right in pairwise(rows))
        assert all(left.seq < right.seq for left, right in pairwise(rows))
    assert all(left < right for (left, _), (right, _) in pairwise(stored.ids))
    assert len({id for _, id in stored.ids}) == len(stored.ids) == len(placed)
    assert {seq for seq, _ in stored.ids} == {place.seq for place in placed.values()}


async def settled(campaign: Campaign, url: str) -> Stored:
    """What is stored, once everything that was sent is acknowledged."""
    await asyncio.gather(*(writer.settle(url) for writer in campaign.writers))
    stored = await read_all(url)
    resent = sum(writer.resent for writer in campaign.writers)
    print(
        f"seed {SEED}: {campaign.kills} kills, {campaign.idle_kills} more of idle relays,"
        f" {campaign.early_kills} of new ones, {campaign.starts_killed} of starting ones;"
        f" {campaign.traffic.acknowledged} elements, {resent} sent again"
    )
    assert resent, "kills that met nothing under way"
    return stored


@pytest.fixture
def forker(tmp_path: Path) -> Iterator[Forker]:
    with forking(tmp_path) as forker:
        yield forker


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = binaries()
    if found is None:
        pytest.skip("no PostgreSQL server is installed below /usr/lib/postgresql")
    with running_cluster(found) as cluster:
        yield cluster


async def test_nothing_that_was_acknowledged_is_lost_when_a_relay_on_sqlite_is_killed(
    forker: Forker, tmp_path: Path
) -> None:
    campaign = Campaign(forker, str(tmp_path / "relay.db"), slots=1, kills=KILLS or 100)
    async with running(*campaign.writing()):
        last = await campaign.kill_all()
    check(campaign, await settled(campaign, last.url))


async def test_nothing_is_lost_or_seen_twice_when_one_of_two_relays_on_postgresql_is_killed(
    forker: Forker, cluster: Cluster
) -> None:
    dsn = dict(pair.split("=", 1) for pair in cluster.new_database().split())
    database = f"postgresql://relay@/{dsn['dbname']}?host={quote(dsn['host'], safe='')}"
    campaign = Campaign(forker, database, slots=2, kills=KILLS or 50)
    followers = [Follower(slot, campaign.relays) for slot in range(2)]
    async with running(*(follower.follow() for follower in followers)):
        async with running(*campaign.writing()):
            last = await campaign.kill_all()
        stored = await settled(campaign, last.url)
        async with asyncio.timeout(PATIENCE_S):
            for follower in followers:
                await follower.wait_for({key: rows[-1].ts for key, rows in stored.rows.items()})
    check(campaign, stored)
    for follower in followers:
        assert follower.seen == stored.rows
        assert follower.live > campaign.traffic.acknowledged / 2, "read from the log, not told live"
