"""What holds of every store, whatever is edited, and whenever what others edit arrives.

- Deltas, one by one or coalesced, turn the first view into the last one, at every path.
- Who was offline converges once it is live, and nothing is left to send, or running.
- Calls that race with one another drop nothing, and keep each author's order.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replaying import replay
from tests.replaying import shown as shown_by_path
from tests.stores import CAM, KEY, PEOPLE, check_log, free_port, store_of, until
from walstore.document.content import KindError
from walstore.document.faults import SnapshotRefusedError
from walstore.document.ports import Body, RawElement, SnapshotConflictError, StoredSnapshot
from walstore.errors import TransportError
from walstore.net import MemorySnapshots, MemoryTransport
from walstore.relay import MemoryLog, Relay
from walstore.store.change import INSERTED_MAX, Change, CrdtState, Splices
from walstore.store.change_stream import ChangeStream
from walstore.store.store import WalStore
from walstore.store.waiting import BUFFER_DEFAULT

RACES = int(os.environ.get("WALSTORE_STORE_RACES", "200"))
SEED = int(os.environ.get("WALSTORE_STORE_RACES_SEED", "0")) or time.time_ns() % 10**6


# ── deltas ─────────────────────────────────────────────────────────────────────────────


class Step(NamedTuple):
    """Something that one of the stores does: what, where, and with what."""

    store: int
    what: str
    name: str
    position: int
    size: int
    value: Any


# One name is used for everything, so that replicas disagree about what it is.
NAMES = ("body", "todo", "prefs", "any")
VALUES: tuple[Any, ...] = ("a", "é", "😀", "two", 1, None, {"a": [1]}, ["x"])
EDITS = ("type", "type", "insert", "remove", "set", "delete", "put", "drop", "empty", "list")

steps = st.builds(
    Step,
    st.integers(0, 2),
    st.sampled_from((*EDITS, "batch", "commit", "commit", "pull", "pull", "read")),
    st.sampled_from(NAMES),
    st.integers(0, 12),
    st.integers(1, 4),
    st.sampled_from(VALUES),
)


class PagedTransport:
    """A log that hands out a few elements at a time, and rings for nobody."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._log = MemoryTransport()
        self._sizes = sizes
        self._pulls = 0

    async def append(self, document_key: str, body: Body) -> int:
        return await self._log.append(document_key, body)

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        self._pulls += 1
        page = await self._log.pull(document_key, checkpoint)
        return page[: self._sizes[self._pulls % len(self._sizes)]]


def shown(store: WalStore) -> dict[str, Any]:
    """What a store shows, by path."""
    return shown_by_path(CrdtState(lambda: store.document.crdt))


class Reader:
    """Reads a stream of changes when it is told to, and replays what it reads."""

    def __init__(self, store: WalStore, *, buffer: int) -> None:
        self.values = shown(store)
        self._allowed = asyncio.Semaphore(0)
        self._task = asyncio.create_task(self._run(store.changes("**", buffer=buffer)))

    async def _run(self, stream: ChangeStream) -> None:
        while True:
            await self._allowed.acquire()
            try:
                change = await anext(stream)
            except StopAsyncIteration:
                return
            replay(self.values, change)

    async def read(self, count: int) -> None:
        """Allow some more changes to be read, and let that happen."""
        for _ in range(count):
            self._allowed.release()
            await checkpoint()
            await checkpoint()

    async def read_all(self) -> None:
        """Read what is left, after the store was closed."""
        while not self._task.done():
            await self.read(1)
        await self._task


class Answers:
    """Somebody who edits what others edit, while others are still being told."""

    def __init__(self, store: WalStore) -> None:
        self.left = 5
        self._store = store
        store.subscribe("*", self.answer)

    def answer(self, change: Change) -> None:
        """Write in answer."""
        if change.origin == "remote" and self.left:
            self.left -= 1
            with suppress(KindError):
                self._store.edit_text(change.path, 1, 2, "answer")


def edit(store: WalStore, step: Step) -> None:
    """Make one edit; a name that is something else by now is left alone."""
    _, what, name, position, size, value = step
    key = "abc"[position % 3]
    match what:
        case "type":
            store.edit_text(name, position, 0, "xyzw"[:size])
        case "insert":
            store.insert(name, position, value)
        case "remove":
            store.remove(name, position, size)
        case "set":
            store.document.set_field(name, value)
        case "delete":
            store.document.delete_field(name)
        case "put":
            store.put(name, key, value)
        case "drop":
            store.drop(name, key)
        case "empty":
            store.document.migrate(name)
        case "list":
            store.set_list(name, [value] * size)


def check_texts(store: WalStore) -> None:
    """What a store reads is what its document holds, however it was put together."""
    crdt = store.document.crdt
    for name in crdt.list_names():
        assert store.text(name) == crdt.text(name)


async def take(store: WalStore, reader: Reader, step: Step) -> None:
    match step.what:
        case "commit":
            await store.commit()
        case "pull":
            await store.pull()
        case "read":
            await reader.read(step.size)
        case "batch":
            with store.batch(), suppress(KindError):
                for what in ("put", "type", "empty", "set", "delete", "insert")[: step.size + 1]:
                    with suppress(KindError):
                        edit(store, step._replace(what=what))
        case _:
            with suppress(KindError):
                edit(store, step)


async def converge(stores: Sequence[WalStore]) -> None:
    """Send and read until there is nothing more, which includes what is written in answer."""
    news = 1
    while news:
        news = sum([await store.commit() is not None for store in stores])
        news += sum([await store.pull() for store in stores])


async def replayed(
    taken: Sequence[Step], sizes: Sequence[int], buffer: int
) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """What each store shows in the end, and what its changes made of what it showed at first."""
    results: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    transport = PagedTransport(sizes)
    half = len(taken) // 4
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(store_of(who, transport, autocommit_ms=None))
            for who in PEOPLE
        ]
        idle = [Reader(store, buffer=buffer) for store in stores]
        for step in taken[:half]:
            await take(stores[step.store], idle[step.store], step)
        # From here on: whoever comes later has seen what was before.
        answers = Answers(stores[1])
        told = [shown(store) for store in stores]
        for store, values in zip(stores, told, strict=True):
            store.subscribe("**", partial(replay, values))
        late = [Reader(store, buffer=buffer) for store in stores]
        await checkpoint()
        for step in taken[half:]:
            await take(stores[step.store], late[step.store], step)
            check_texts(stores[step.store])
        await converge(stores)
        last = [shown(store) for store in stores]
        materialized = [store.materialize() for store in stores]
    for who in range(3):
        await idle[who].read_all()
        await late[who].read_all()
        results.append(("one by one", told[who], last[who]))
        results.append(("coalesced from the start", idle[who].values, last[who]))
        results.append(("coalesced later", late[who].values, last[who]))
        results.append(("another store", materialized[who], materialized[0]))
    assert answers.left >= 0
    return results


@settings(deadline=None, max_examples=200)
@given(
    st.lists(steps, min_size=1, max_size=50),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_replaying_the_deltas_on_the_first_view_gives_the_last_view(
    taken: list[Step], sizes: list[int], buffer: int
) -> None:
    for what, replayed_values, last in asyncio.run(replayed(taken, sizes, buffer)):
        assert replayed_values == last, what


async def test_who_writes_in_answer_to_an_element_counts_in_what_came_with_it() -> None:
    transport = MemoryTransport()
    async with (
        store_of(PEOPLE[0], transport, autocommit_ms=None) as ada,
        store_of(PEOPLE[1], Unfollowed(transport), autocommit_ms=None) as ben,
    ):
        for removed, word in ((0, "two three"), (1, "one t")):
            ada.edit_text("body", 0, removed, word)
            await ada.commit()
        values, answers = shown(ben), Answers(ben)
        ben.subscribe("**", partial(replay, values))
        assert await ben.pull() == 2
        assert answers.left == 3
        assert values == shown(ben)


# ── offline, then live ─────────────────────────────────────────────────────────────────


class Unfollowed:
    """A log that cannot be followed."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.append = transport.append
        self.pull = transport.pull


def edit_at_random(store: WalStore, chance: random.Random) -> None:
    length = len(store.text("body"))
    match chance.randrange(5):
        case 0:
            store.edit_text("body", chance.randrange(length + 1), chance.randrange(3), "word ")
        case 1:
            store.list("todo").insert(chance.randrange(9), chance.randrange(100))
        case 2 if len(store.list("todo")):
            store.remove("todo", chance.randrange(len(store.list("todo"))))
        case 3:
            store.put("prefs", chance.choice("abcdef"), chance.randrange(100))
        case _:
            store["title"] = chance.randrange(100)


async def test_three_who_edit_offline_converge_when_they_are_live(tmp_path: Path) -> None:
    port, before = free_port(), asyncio.all_tasks()
    url = f"ws://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(store_of(who, url, tmp_path / f"{number}.wal"))
            for number, who in enumerate(PEOPLE)
        ]
        for number, store in enumerate(stores):
            chance = random.Random(number)
            for _ in range(1000):
                edit_at_random(store, chance)
            assert store.status.unsent > 0
        async with Relay.serve(MemoryLog(), port=port):
            await until(stores, lambda: all(_is_settled(store) for store in stores))
            views = [store.materialize() for store in stores]
            assert views[0] == views[1] == views[2]
            assert [store.status.unsent for store in stores] == [0, 0, 0]
    assert asyncio.all_tasks() == before
    for number, who in enumerate(PEOPLE):
        async with store_of(who, None, tmp_path / f"{number}.wal") as store:
            assert store.materialize() == views[0]
            assert store.status.unsent == 0
    assert asyncio.all_tasks() == before


def _is_settled(store: WalStore) -> bool:
    """Whether a store has nothing on its way, and has heard of everybody."""
    sessions = {(author, session) for author, session, _ in store.document._log.tracker.sessions()}
    everybody = {who.public_key for who in PEOPLE}
    return (
        store.document.unconfirmed == 0
        and store.status.unsent == 0
        and {author for author, _ in sessions} == everybody
    )


# ── slow and stuck ─────────────────────────────────────────────────────────────────────


async def test_what_waits_for_a_stuck_subscriber_is_bounded() -> None:
    before, stuck = asyncio.all_tasks(), asyncio.Event()

    async def never_done(change: Change) -> None:
        await stuck.wait()

    async with store_of(PEOPLE[0], None) as store:
        subscription = store.subscribe("**", never_done)
        stream = store.changes("**", buffer=8)
        chance = random.Random(1)
        for _ in range(5_000):
            edit_at_random(store, chance)
            if len(store.text("body")) > 200:
                store.set_text("body", "")
        assert len(subscription._waiting) <= BUFFER_DEFAULT
        # A text, a list, a register and six keys.
        assert len(stream._feed._waiting) <= 9
        held = [stream._feed._waiting.pop() for _ in range(len(stream._feed._waiting))]
        assert sum(_size(change) for change in held) <= INSERTED_MAX
    assert asyncio.all_tasks() == before


def _size(change: Change) -> int:
    if not isinstance(change.delta, Splices):
        return 1
    return sum(len(splice.inserted) for splice in change.delta.splices)


# ── races ──────────────────────────────────────────────────────────────────────────────


class LostError(TransportError):
    """The connection is gone."""

    def __init__(self) -> None:
        super().__init__("lost", retryable=True)


class FlakyFollow(NamedTuple):
    """Waits for news, until the connection breaks."""

    news: Callable[[], Awaitable[None]]
    turns: Callable[[], Awaitable[None]]

    async def wait(self) -> None:
        await self.news()
        await self.turns()


class FlakyTransport:
    """A log and its snapshots, whose calls take any number of turns, fail at times, and lose
    answers; and connections to it that break.
    """

    def __init__(self, chance: random.Random) -> None:
        self.log = MemoryTransport()
        self.snapshots = MemorySnapshots()
        self.is_sound = False
        self._chance = chance

    async def append(self, document_key: str, body: Body) -> int:
        await self._wait()
        ts = await self.log.append(document_key, body)
        await self._wait()
        return ts

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        await self._wait()
        page = await self.log.pull(document_key, checkpoint)
        await self._wait()
        return page[: self._chance.randint(1, 4)]

    @asynccontextmanager
    async def follow(self, document_key: str, checkpoint: int) -> AsyncIterator[Any]:
        await self._wait()
        async with self.log.follow(document_key, checkpoint) as followed:
            yield FlakyFollow(followed.wait, self._wait)

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        await self._wait()
        stored = await self.snapshots.read(snapshot_key)
        await self._wait()
        return stored

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        await self._wait()
        await self.snapshots.write(snapshot_key, document, revision)
        await self._wait()

    async def _wait(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await checkpoint()
        if not self.is_sound and self._chance.random() < 0.1:
            raise LostError


async def race(seed: int, directory: Path) -> int:
    """Let two stores do everything at once, closing and reopening, and look what became of it.

    Returns:
        How many edits there were.
    """
    chance = random.Random(seed)
    transport = FlakyTransport(chance)
    made: list[list[str]] = [[], []]

    async def use(number: int) -> None:
        for _ in range(3):
            async with (
                store_of(
                    PEOPLE[number],
                    transport,
                    directory / f"{seed}-{number}.wal",
                    snapshots=transport,
                    autocommit_ms=chance.choice((0, 1, None)),
                    snapshot_after=chance.choice((1, 5, None)),
                ) as store,
                asyncio.TaskGroup() as tasks,
            ):
                tasks.create_task(edit_all(store, number))
                tasks.create_task(repeat(store.commit))
                tasks.create_task(repeat(store.pull))
                tasks.create_task(repeat(store.flush))
                tasks.create_task(repeat(store.snapshot))

    async def edit_all(store: WalStore, number: int) -> None:
        for _ in range(chance.randint(1, 12)):
            made[number].append(f"{number}:{len(made[number])}")
            store.list("said").append(made[number][-1])
            for _ in range(chance.randrange(4)):
                await checkpoint()

    async def repeat(call: Callable[[], Any]) -> None:
        for _ in range(chance.randint(1, 6)):
            # Somebody else was faster, or something of a log that is not sound was not read yet.
            with suppress(LostError, SnapshotConflictError, SnapshotRefusedError):
                await call()
            await checkpoint()

    await asyncio.gather(use(0), use(1))
    transport.is_sound = True
    said = []
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(
                store_of(
                    who,
                    transport,
                    directory / f"{seed}-{number}.wal",
                    snapshots=transport,
                    autocommit_ms=None,
                )
            )
            for number, who in enumerate(PEOPLE[:2])
        ]
        for store in stores * 2:
            await store.commit()
            await store.pull()
        said = [list(store.list("said")) for store in stores]
        assert [store.status.unsent for store in stores] == [0, 0]
        assert [store.document.unconfirmed for store in stores] == [0, 0]
        assert all(store.status.gaps == () for store in stores)
    assert said[0] == said[1]
    for number in (0, 1):
        assert [each for each in said[0] if each.startswith(f"{number}:")] == made[number]
    check_log(await whole_log(transport.log))
    # Who has just come, and begins with a snapshot, sees what they do.
    async with store_of(CAM, transport, snapshots=transport) as newcomer:
        await newcomer.pull()
        assert list(newcomer.list("said")) == said[0]
    return len(said[0])


async def whole_log(log: MemoryTransport) -> list[RawElement]:
    elements: list[RawElement] = []
    while page := await log.pull(KEY, elements[-1].ts if elements else 0):
        elements += page
    return elements


async def test_edits_that_race_with_everything_else_are_neither_dropped_nor_reordered(
    tmp_path: Path,
) -> None:
    print(f"WALSTORE_STORE_RACES_SEED={SEED}")
    edits = 0
    for seed in range(SEED, SEED + RACES):
        try:
            edits += await race(seed, tmp_path)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    print(f"{edits} edits in {RACES} races")
