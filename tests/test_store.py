"""The store as an app holds it: reads, edits, items, batches, autocommit, status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counting import calls_of
from tests.stores import ADA, BEN, KEY, store_of, until, until_sent
from walstore.canon import Json
from walstore.document.changed import Changed
from walstore.document.content import KindError
from walstore.document.sealing import ValueTooLargeError
from walstore.errors import NotJsonError, TransportError, UsageError
from walstore.local import LocalFile, LocalFileFullError
from walstore.net import MemoryTransport
from walstore.net.memory import MemorySnapshots
from walstore.relay import MemoryLog, Relay, SqliteLog
from walstore.store import store as store_module
from walstore.store.change import Change, Splice, Splices, changes_of
from walstore.store.items import Items
from walstore.store.status import StoreStatus
from walstore.store.store import StoreClosedError, WalStore
from walstore.store.sync import Syncer

PLACES = ("nothing", "file", "memory", "file and memory", "memory relay", "SQLite relay")


@asynccontextmanager
async def opened(place: str, directory: Path) -> AsyncIterator[WalStore]:
    """A store that keeps its document in one place or another."""
    path = directory / "ada.wal" if "file" in place or "relay" in place else None
    match place:
        case "memory relay":
            async with Relay.serve(MemoryLog()) as relay, store_of(ADA, relay.url, path) as store:
                yield store
        case "SQLite relay":
            async with (
                SqliteLog.open(directory / "relay.db") as log,
                Relay.serve(log) as relay,
                store_of(ADA, relay.url, path) as store,
            ):
                yield store
        case _:
            transport = MemoryTransport() if "memory" in place else None
            async with store_of(ADA, transport, path) as store:
                yield store


# ── reading and editing ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("place", PLACES)
async def test_edits_show_at_once_wherever_the_document_is_kept(place: str, tmp_path: Path) -> None:
    async with opened(place, tmp_path) as store:
        store["title"] = "Plans"
        store.set_text("body", "first")
        store.edit_text("body", 5, 0, " and second")
        store.set_list("todo", [1, {"two": 2}])
        store.put("prefs", "colour", "red")
        assert store["title"] == "Plans"
        assert store["body"] == store.text("body") == "first and second"
        assert store["todo"] == list(store.list("todo")) == [1, {"two": 2}]
        assert store["prefs"] == {"colour": "red"}
        assert sorted(store) == ["body", "prefs", "title", "todo"]
        assert "title" in store
        assert "nothing" not in store
        assert store.get("nothing", 7) == 7
        assert store.view()["body"] == "first and second"
        assert store.materialize()["title"] == "Plans"
        store.drop("prefs", "colour")
        assert store.get("prefs", {}) == {}


@pytest.mark.parametrize("place", PLACES)
async def test_commit_flush_and_pull_work_wherever_the_document_is_kept(
    place: str, tmp_path: Path
) -> None:
    async with opened(place, tmp_path) as store:
        store["title"] = "Plans"
        assert store.status.unsent == 1
        ts = await store.commit()
        await store.flush()
        await store.pull()
        is_online = "memory" in place or "relay" in place
        assert (ts is not None) == is_online
        assert store.status.unsent == (0 if is_online else 1)
        assert store.status.state == ("live" if is_online else "local")


async def test_a_name_that_is_not_there_is_a_key_error() -> None:
    async with store_of(ADA) as store:
        with pytest.raises(KeyError):
            store["title"]
        with pytest.raises(KeyError):
            del store["title"]


async def test_assigning_to_a_name_edits_a_text_or_a_list_and_replaces_a_register() -> None:
    async with store_of(ADA) as store:
        told: list[Change] = []
        store.set_text("body", "one two")
        store.set_list("todo", ["a task", "another"])
        store["title"] = "old"
        store.subscribe("*", told.append)
        store["body"] = "one, two"
        store["todo"] = ["a task", "a third", "another"]
        store["title"] = "new"
        assert told[0].delta == Splices((Splice(3, 0, ","),))
        assert told[1].delta == Splices((Splice(1, 0, ("a third",)),))
        assert store["title"] == "new"


async def test_a_text_that_was_emptied_can_be_assigned_again() -> None:
    async with store_of(ADA) as store:
        store.set_text("body", "words")
        store["body"] = ""
        store["body"] = "others"
        assert store.text("body") == "others"


async def test_deleting_a_name_removes_a_register_and_empties_what_is_none() -> None:
    async with store_of(ADA) as store:
        store["title"] = "old"
        store.set_text("body", "words")
        store.put("prefs", "colour", "red")
        for name in ("title", "body", "prefs"):
            del store[name]
        assert "title" not in store
        assert store.text("body") == ""
        assert store.get("prefs", {}) == {}


async def test_what_arrived_since_a_view_was_shown_is_kept() -> None:
    transport = MemoryTransport()
    async with store_of(ADA, transport) as ada, store_of(BEN, transport) as ben:
        ada.set_text("body", "one three")
        ada.set_list("todo", [1, 3])
        await ada.commit()
        await ben.pull()
        shown = ada.view()
        ben.edit_text("body", 4, 0, "two ")
        ben.insert("todo", 1, 2)
        await ben.commit()
        await ada.pull()
        ada.setText("body", "one three four", base=shown)
        ada.setList("todo", [1, 3, 4], base=shown)
        assert ada.text("body") == "one two three four"
        assert ada["todo"] == [1, 2, 3, 4]
        ada.update({"body": "ONE three", "todo": [3], "new": True}, base=shown)
        assert ada["new"] is True
        assert ada.text("body") == "ONE two three four"
        assert ada["todo"] == [2, 3, 4]


async def test_an_edit_of_another_kind_is_refused_and_changes_nothing() -> None:
    async with store_of(ADA) as store:
        store["title"] = "a register"
        before, told = store.materialize(), list[Change]()
        store.subscribe("**", told.append)
        with pytest.raises(KindError):
            store.set_text("title", "a text")
        with pytest.raises(KindError):
            store.put("title", "key", 1)
        with pytest.raises(KindError):
            store.edit_text("title", 0, 0, "x")
        assert store.materialize() == before
        assert told == []


def _uses() -> list[Callable[[WalStore], object]]:
    return [
        lambda store: store["title"],
        lambda store: store.text("body"),
        lambda store: store.materialize(),
        lambda store: store.view(),
        lambda store: list(store.list("todo")),
        lambda store: store.set_text("body", "x"),
        lambda store: store.document,
        lambda store: asyncio.run(store.commit()),
        lambda store: asyncio.run(store.flush()),
        lambda store: asyncio.run(store.pull()),
    ]


@pytest.mark.parametrize("use", _uses())
def test_a_store_that_is_not_open_says_so(use: Callable[[WalStore], object]) -> None:
    async def open_and_close() -> WalStore:
        async with store_of(ADA) as store:
            pass
        return store

    for store in (store_of(ADA), asyncio.run(open_and_close())):
        with pytest.raises(StoreClosedError):
            use(store)
        assert store.status.state == "closed"


# ── items ──────────────────────────────────────────────────────────────────────────────

_items = st.one_of(st.integers(0, 9), st.sampled_from(["a", "b", "two", None, True]))
_indexes = st.integers(-8, 8)
_slices = st.builds(
    slice,
    st.none() | _indexes,
    st.none() | _indexes,
    st.none() | st.integers(-3, 3).filter(bool),
)
_calls = st.one_of(
    st.tuples(st.just("append"), _items),
    st.tuples(st.just("insert"), _indexes, _items),
    st.tuples(st.just("extend"), st.lists(_items, max_size=4)),
    st.tuples(st.just("pop")),
    st.tuples(st.just("pop"), _indexes),
    st.tuples(st.just("remove"), _items),
    st.tuples(st.just("reverse")),
    st.tuples(st.just("clear")),
    st.tuples(st.just("index"), _items),
    st.tuples(st.just("index"), _items, _indexes),
    st.tuples(st.just("index"), _items, _indexes, _indexes),
    st.tuples(st.just("count"), _items),
    st.tuples(st.just("__getitem__"), _indexes | _slices),
    st.tuples(st.just("__delitem__"), _indexes | _slices),
    st.tuples(st.just("__setitem__"), _indexes, _items),
    st.tuples(st.just("__setitem__"), _slices, st.lists(_items, max_size=4)),
    st.tuples(st.just("__contains__"), _items),
)


def _outcome(target: Any, call: tuple[Any, ...]) -> object:
    name, *arguments = call
    try:
        return getattr(target, name)(*arguments)
    except (IndexError, ValueError) as error:
        return type(error)


@settings(deadline=None, max_examples=100)
@given(st.lists(_items, max_size=6), st.lists(_calls, max_size=12))
def test_items_do_what_a_list_does(start: list[Json], calls: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        async with store_of(ADA) as store:
            items, model = store.list("todo"), list(start)
            items.extend(start)
            for call in calls:
                assert _outcome(items, call) == _outcome(model, call), call
                assert list(items) == model, call
                assert list(reversed(items)) == model[::-1], call
                assert len(items) == len(model)

    asyncio.run(run())


@settings(deadline=None, max_examples=60)
@given(
    st.text(max_size=12),
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 6), st.text(max_size=4)), max_size=8),
)
def test_editing_a_text_does_what_slicing_a_string_does(
    start: str, edits: list[tuple[int, int, str]]
) -> None:
    async def run() -> None:
        async with store_of(ADA) as store:
            store.set_text("body", start)
            model = start
            for position, removed, inserted in edits:
                store.edit_text("body", position, removed, inserted)
                model = model[:position] + inserted + model[position + removed :]
                assert store.text("body") == model

    asyncio.run(run())


@pytest.mark.parametrize(
    "work",
    [
        lambda items: items.index({"id": len(items) - 1}),
        lambda items: items.remove({"id": len(items) - 1}),
        lambda items: list(reversed(items)),
        lambda items: items.reverse(),
    ],
)
async def test_looking_through_a_list_takes_time_in_proportion_to_it(
    work: Callable[[Items], object],
) -> None:
    calls: list[int] = []
    for size in (100, 400):
        async with store_of(ADA) as store:
            items = store.list("todo")
            items.extend([{"id": number} for number in range(size)])
            calls.append(calls_of(partial(work, items)))
    assert calls[1] < 6 * calls[0]


async def test_an_item_that_cannot_be_written_leaves_the_list_as_it_was() -> None:
    async with store_of(ADA) as store:
        items = store.list("todo")
        items.extend([1, 2, 3])
        with pytest.raises(NotJsonError):
            items[0] = object()
        with pytest.raises(NotJsonError):
            items[0:2] = [4, object()]
        with pytest.raises(NotJsonError):
            items[::-1] = [4, 5, object()]
        with pytest.raises(NotJsonError):
            items.extend([4, object()])
        assert list(items) == [1, 2, 3]


async def test_a_slice_is_one_change_and_one_edit_on_file(tmp_path: Path) -> None:
    async with store_of(ADA, path=tmp_path / "ada.wal") as store:
        told: list[Change] = []
        store.subscribe("todo", told.append)
        store.list("todo").extend(range(100))
        store.list("todo")[10:20] = [True]
        assert len(told) == 2
        assert store._file is not None
        assert len(store._file.pending().recorded) == 2


# ── batches and changes ────────────────────────────────────────────────────────────────


async def test_a_batch_is_told_at_its_end_once_for_each_path() -> None:
    async with store_of(ADA) as store:
        told: list[Change] = []
        store.subscribe("**", told.append)
        with store.batch():
            for number, letter in enumerate("word"):
                store.edit_text("body", number, 0, letter)
            with store.batch():
                store["title"] = 1
                store["title"] = 2
            store.put("prefs", "colour", "red")
            assert told == []
            assert store.text("body") == "word"
        assert [change.path for change in told] == ["body", "title", "prefs/colour"]
        assert told[0].delta == Splices((Splice(0, 0, "word"),))
        assert [change.origin for change in told] == ["local"] * 3


async def test_what_a_failing_batch_has_edited_is_told() -> None:
    async with store_of(ADA) as store:
        told: list[Change] = []
        store.subscribe("title", told.append)

        def fail() -> None:
            with store.batch():
                store["title"] = 1
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert len(told) == 1
        store["title"] = 2
        assert len(told) == 2


async def test_a_failing_batch_leaves_no_version_with_its_message() -> None:
    async with store_of(ADA, MemoryTransport()) as store:
        with pytest.raises(ZeroDivisionError), store.batch("all of it"):  # noqa: PT012
            store["title"] = 1
            raise ZeroDivisionError
        await store.flush()
        await store.pull()
        assert [version.message for version in store.history()] == [None]
        assert store["title"] == 1


async def test_who_subscribes_within_a_batch_is_told_of_what_comes_then() -> None:
    async with store_of(ADA) as store:
        before: list[Change] = []
        store.subscribe("body", before.append)
        with store.batch():
            store.set_text("body", "abc")
            shown = store.text("body")
            told: list[Change] = []
            store.subscribe("body", told.append)
            stream = store.changes("body")
            store.edit_text("body", 3, 0, "d")
            store.edit_text("body", 4, 0, "e")
            assert before == told == []
        assert applied(told, shown) == applied(before, "") == store.text("body") == "abcde"
        assert applied([await anext(stream)], shown) == "abcde"


async def test_a_selector_that_is_read_within_a_batch_is_up_to_date() -> None:
    async with store_of(ADA) as store:
        store.set_text("body", "abc")
        told: list[str] = []
        selector = store.select(lambda view: view.text("body"))
        selector.subscribe(told.append)
        assert selector.value == "abc"
        with store.batch():
            store.edit_text("body", 0, 0, "Z")
            assert selector.value == "Zabc"
            store.edit_text("body", 0, 0, "Y")
            assert selector.value == "YZabc"
            assert told == []
        assert told == ["YZabc"]


async def test_a_message_that_is_refused_is_refused_before_anything_is_edited() -> None:
    async with store_of(ADA) as store:
        told: list[Change] = []
        store.subscribe("**", told.append)

        def edit() -> None:
            with store.batch(message="x" * 5000):
                store["title"] = 1

        with pytest.raises(ValueTooLargeError):
            edit()
        assert "title" not in store
        store["title"] = 2
        assert [change.path for change in told] == ["title"]


async def test_what_a_batch_that_cannot_be_sealed_has_edited_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise LocalFileFullError(tmp_path)

    async with store_of(ADA, path=tmp_path / "ada.wal") as store:
        told: list[Change] = []
        store.subscribe("**", told.append)

        def edit() -> None:
            with store.batch(message="too much"):
                store["title"] = 1
                patched.setattr(LocalFile, "seal", full)

        with monkeypatch.context() as patched, pytest.raises(LocalFileFullError):
            edit()
        assert [change.path for change in told] == ["title"]


class Word(StrEnum):
    HELLO = "hello"


async def test_what_cannot_be_inserted_removes_nothing() -> None:
    async with store_of(ADA) as store:
        store.set_text("body", "precious")
        for inserted in (Word.HELLO, [object()]):
            with pytest.raises(NotJsonError):
                store.document.splice("body", 0, 8, inserted)  # type: ignore[arg-type]
        with pytest.raises(NotJsonError):
            store.edit_text("body", 0, 8, Word.HELLO)
        assert store.text("body") == "precious"


def applied(changes: list[Change], shown: str) -> str:
    for change in changes:
        assert isinstance(change.delta, Splices)
        for splice in change.delta.splices:
            end = splice.position + splice.removed
            shown = shown[: splice.position] + str(splice.inserted) + shown[end:]
    return shown


async def test_what_others_edit_during_a_batch_is_told_in_its_place() -> None:
    transport = MemoryTransport()
    async with store_of(ADA, transport) as ada, store_of(BEN, transport) as ben:
        ada.set_text("body", "b")
        await ada.commit()
        await ben.pull()
        shown, told = ben.text("body"), list[Change]()
        ben.subscribe("body", told.append)
        with ben.batch():
            ben.edit_text("body", 1, 0, "d")
            ada.edit_text("body", 0, 0, "a")
            await ada.commit()
            await ben.pull()
            ben.edit_text("body", 2, 0, "c")
        assert shown == "b"
        assert len(told) == 1
        assert applied(told, shown) == ben.text("body") == "abcd"


async def test_a_store_tells_what_others_edited_and_who() -> None:
    transport = MemoryTransport()
    async with store_of(ADA, transport) as ada, store_of(BEN, transport) as ben:
        stream = ben.changes("body")
        ada.set_text("body", "hello")
        await ada.commit()
        change = await anext(stream)
        assert (change.origin, change.author) == ("remote", ADA.public_key)
        assert change.delta == Splices((Splice(0, 0, "hello"),))
        assert change.ts == 1


async def test_a_selection_is_computed_again_when_what_it_read_has_changed() -> None:
    async with store_of(ADA) as store:
        store["title"] = "one"
        runs: list[str] = []

        def title(view: Any) -> str:
            runs.append("run")
            return str(view["title"]).upper()

        selector = store.select(title)
        assert selector.value == "ONE"
        store.set_text("body", "words")
        assert selector.value == "ONE"
        store["title"] = "two"
        assert selector.value == "TWO"
        assert len(runs) == 2


async def test_changes_are_made_up_only_for_those_who_want_to_know_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Changed] = []

    def counted(changed: Changed, **more: Any) -> list[Change]:
        made.append(changed)
        return changes_of(changed, **more)

    monkeypatch.setattr(store_module, "changes_of", counted)
    async with store_of(ADA) as store:
        store["title"] = "nobody looks"
        assert made == []
        told: list[Any] = []
        with store.batch():
            store["title"] = "before"
            subscription = store.subscribe("**", lambda change: told.append(change.delta))
            store["other"] = "after"
        assert [delta.value for delta in told] == ["after"]
        subscription.close()
        made.clear()
        store["title"] = "nobody looks any more"
        assert made == []
        selector = store.select(lambda view: view["title"])
        assert selector.value == "nobody looks any more"
        store["title"] = "selected"
        assert selector.value == "selected"
        assert len(made) == 1


# ── autocommit ─────────────────────────────────────────────────────────────────────────


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self.now + seconds, woken))
        await woken.wait()

    async def pass_ms(self, ms: float) -> None:
        """Let time pass, and everything happen that happens until then."""
        await settle()
        end = self.now + ms / 1000
        while due := [each for each in self._sleepers if each[0] <= end + 1e-9]:
            first = min(due, key=lambda each: each[0])
            self._sleepers.remove(first)
            self.now = max(self.now, first[0])
            first[1].set()
            await settle()
        self.now = end


async def settle() -> None:
    for _ in range(20):
        await checkpoint()


class Recorder:
    """Something to keep in step, which notes when it is asked to, and fails as told."""

    document_key = KEY
    checkpoint = 0

    def __init__(self, clock: Clock) -> None:
        self.sent: list[float] = []
        self.received: list[float] = []
        self.failures: list[Exception | None] = []
        # How many elements there are to receive.
        self.news = 0
        self._clock = clock

    async def send(self) -> None:
        self.sent.append(round(self._clock.now * 1000))
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure

    async def receive(self) -> int:
        self.received.append(round(self._clock.now * 1000))
        news, self.news = self.news, 0
        return news


@asynccontextmanager
async def syncing(
    transport: Any, told: list[object] | None = None, *, rest_ms: int = 100
) -> AsyncIterator[tuple[Syncer, Recorder, Clock]]:
    clock = Clock()
    recorder = Recorder(clock)
    syncer = Syncer(
        recorder,
        transport,
        rest_ms=rest_ms,
        rest_ms_max=1000,
        on_failure=(told if told is not None else []).append,
        sleep=clock.sleep,
        now=lambda: clock.now,
    )
    task = asyncio.create_task(syncer.run())
    await settle()
    try:
        yield syncer, recorder, clock
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_edits_are_sent_once_they_have_rested() -> None:
    async with syncing(MemoryTransport()) as (syncer, recorder, clock):
        syncer.edited()
        await clock.pass_ms(60)
        syncer.edited()
        await clock.pass_ms(60)
        assert recorder.sent == []
        await clock.pass_ms(200)
        assert recorder.sent == [200]
        await clock.pass_ms(5000)
        assert recorder.sent == [200]


async def test_who_never_rests_is_sent_all_the_same() -> None:
    async with syncing(MemoryTransport()) as (syncer, recorder, clock):
        for _ in range(60):
            syncer.edited()
            await clock.pass_ms(50)
        assert recorder.sent[:2] == [1000, 2000]


async def test_edits_rest_for_as_long_as_they_are_told_to() -> None:
    async with syncing(MemoryTransport(), rest_ms=3000) as (syncer, recorder, clock):
        syncer.edited()
        await clock.pass_ms(2900)
        assert recorder.sent == []
        await clock.pass_ms(200)
        assert recorder.sent == [3000]


async def test_a_failed_send_is_tried_again_later_and_later_and_at_once_when_nudged() -> None:
    told: list[object] = []
    lost = TransportError("lost", retryable=True)
    async with syncing(MemoryTransport(), told) as (syncer, recorder, clock):
        recorder.failures = [lost, lost, lost]
        syncer.edited()
        await clock.pass_ms(100 + 500 + 1000)
        assert recorder.sent == [100, 600, 1600]
        await clock.pass_ms(10)
        syncer.nudge()
        await clock.pass_ms(0)
        assert recorder.sent == [100, 600, 1600, 1610]
        assert told == [lost, lost, lost, None]


async def test_a_refusal_stays_shown_while_reading_goes_well() -> None:
    told: list[object] = []
    refusal, transport = TransportError("no role", retryable=False), Rung()
    async with syncing(transport, told) as (syncer, recorder, clock):
        recorder.failures = [refusal]
        syncer.edited()
        await clock.pass_ms(100)
        before = len(recorder.received)
        transport.ring()
        await clock.pass_ms(100)
        assert len(recorder.received) > before
        assert told[-1] is refusal


class Rung(MemoryTransport):
    """A log that rings when it is told to."""

    def ring(self) -> None:
        for follower in self._followers[KEY]:
            follower.ring()


async def test_news_is_read_at_once_and_gathers_only_if_there_is_news_all_the_time() -> None:
    transport = Rung()
    async with syncing(transport) as (_, recorder, clock):

        async def come(count: int, *, every_ms: int) -> list[float]:
            await clock.pass_ms(1000)
            began, recorder.received = round(clock.now * 1000), []
            for _ in range(count):
                recorder.news += 1
                transport.ring()
                await clock.pass_ms(every_ms)
            return [ms - began for ms in recorder.received]

        # Some who type, and many at once.
        for _ in range(3):
            assert await come(20, every_ms=30) == [30 * number for number in range(20)]
            stream = await come(400, every_ms=5)
            assert stream[:9] == [5 * number for number in range(9)]
            pauses = [after - before for before, after in pairwise(stream[9:])]
            assert set(pauses) == {40}
            assert recorder.news <= 8
        # Much at a time, now and then, is no stream either.
        await clock.pass_ms(1000)
        for number in range(20):
            recorder.news, recorder.received = 5, []
            transport.ring()
            await clock.pass_ms(1000)
            assert len(recorder.received) == 1, number
            assert round(clock.now * 1000) - recorder.received[0] == 1000


async def test_a_log_that_cannot_be_followed_is_asked_less_and_less_often() -> None:
    async with syncing(object()) as (_, recorder, clock):
        await clock.pass_ms(60_000)
        assert recorder.received == [0, 2000, 6000, 14_000, 30_000, 60_000]


async def test_edits_are_committed_by_themselves() -> None:
    transport = MemoryTransport()
    async with store_of(ADA, transport, autocommit_ms=0) as store:
        store["title"] = "Plans"
        await until_sent(store)
        assert len(await transport.pull(KEY, 0)) == 1


async def test_without_autocommit_edits_are_sent_when_they_are_committed() -> None:
    transport = MemoryTransport()
    async with store_of(ADA, transport, autocommit_ms=None) as store:
        store["title"] = "Plans"
        await settle()
        assert await transport.pull(KEY, 0) == []
        assert await store.commit() == 1
        store["title"] = "Other plans"
    # Closing leaves nothing behind that can be sent.
    assert len(await transport.pull(KEY, 0)) == 2


async def test_what_fails_is_not_tried_again_without_a_pause() -> None:
    calls: list[str] = []

    class Broken(MemoryTransport):
        async def append(self, *_: Any) -> int:
            calls.append("append")
            raise TransportError("no", retryable=False)

        async def pull(self, *_: Any) -> Any:
            calls.append("pull")
            raise TransportError("no", retryable=True)

    async with store_of(ADA, Broken(), autocommit_ms=0) as store:
        store["title"] = 1
        for _ in range(500):
            await checkpoint()
        assert store.status.reason == "no"
        assert len(calls) < 10


# ── status ─────────────────────────────────────────────────────────────────────────────


async def test_the_status_counts_what_is_unsent_and_tells_every_change_of_it_once() -> None:
    async with store_of(ADA, MemoryTransport(), autocommit_ms=None) as store:
        told: list[StoreStatus] = []
        end = store.on_status(told.append)
        store["title"] = 1
        store["title"] = 2
        assert [status.unsent for status in told] == [1]
        await store.commit()
        assert [status.unsent for status in told] == [1, 0]
        end()
        store["title"] = 3
        assert len(told) == 2


async def test_a_sealed_commit_counts_once() -> None:
    async with store_of(ADA) as store:
        store["title"] = 1
        await store.commit()
        assert store.status.unsent == 1
        store["title"] = 2
        assert store.status.unsent == 2


async def test_a_status_callback_that_fails_is_nobody_elses_matter() -> None:
    handled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: handled.append(context))

    def fail(_: object) -> None:
        raise ZeroDivisionError

    transport = MemoryTransport()
    async with store_of(ADA, transport, autocommit_ms=0, on_event=fail) as store:
        told: list[StoreStatus] = []
        store.on_status(fail)
        store.on_status(told.append)
        store["title"] = 1
        await until_sent(store)
        assert told
        assert {type(context["exception"]) for context in handled} == {ZeroDivisionError}


async def test_a_status_callback_that_edits_leaves_everybody_with_the_newest_status() -> None:
    async with store_of(ADA, MemoryTransport(), autocommit_ms=None) as store:

        def answer(status: StoreStatus) -> None:
            if not status.unsent and "answer" not in store:
                store["answer"] = 1

        told: list[int] = []
        store.on_status(answer)
        store.on_status(lambda status: told.append(status.unsent))
        store["title"] = 1
        await store.commit()
        assert told == [1, 0, store.status.unsent] == [1, 0, 1]


async def test_status_callbacks_that_always_edit_come_to_an_end() -> None:
    async with store_of(ADA, autocommit_ms=None) as store:

        def answer(status: StoreStatus) -> None:
            with store.batch(f"after {status.unsent}"):
                store["answered"] = status.unsent

        end = store.on_status(answer)
        store["title"] = 1
        assert store.status.unsent > 2
        end()


async def test_a_store_is_opened_once() -> None:
    async with store_of(ADA, MemoryTransport()) as store:
        with pytest.raises(UsageError, match="opened once"):
            await store.__aenter__()
        store["title"] = 1
    with pytest.raises(UsageError, match="opened once"):
        await store.__aenter__()


async def test_the_history_of_a_closed_store_is_not_at_hand() -> None:
    with pytest.raises(StoreClosedError):
        await store_of(ADA).load_history()


async def test_what_callbacks_write_while_a_store_closes_is_sent() -> None:
    transport = MemoryTransport()
    async with store_of(ADA, transport) as store:

        async def count(_: Change) -> None:
            await settle()
            store["words"] = len(store.text("note").split())

        store.subscribe("note", count)
        store.set_text("note", "two words")
    async with store_of(ADA, transport) as store:
        assert store["words"] == 2


async def test_a_closed_store_tells_that_it_is_closed() -> None:
    told: list[StoreStatus] = []
    async with store_of(ADA) as store:
        store.on_status(told.append)
    assert told[-1].state == "closed"


async def test_a_store_that_closes_leaves_no_task_behind() -> None:
    before, stuck, is_done = asyncio.all_tasks(), asyncio.Event(), asyncio.Event()

    async def never_done(_: Change) -> None:
        await stuck.wait()

    async def soon_done(_: Change) -> None:
        await settle()
        is_done.set()

    async with store_of(ADA, MemoryTransport()) as store:
        store.subscribe("title", never_done)
        store.subscribe("title", soon_done)
        store["title"] = 1
    assert asyncio.all_tasks() == before
    assert is_done.is_set()


# ── history ────────────────────────────────────────────────────────────────────────────


async def test_committed_versions_can_be_read_and_attributed() -> None:
    transport = MemoryTransport()
    async with store_of(ADA, transport) as ada, store_of(BEN, transport) as ben:
        ada.set_text("body", "one")
        first = await ada.commit()
        await ben.pull()
        ben.edit_text("body", 3, 0, " two")
        await ben.commit()
        await ada.pull()
        assert first is not None
        assert ada.at(first)["body"] == list("one")
        assert len(ada.history()) == 2
        blamed = ada.blame("body")
        assert [part.author for part in blamed] == [ADA.public_key, BEN.public_key]


async def test_a_snapshot_is_what_others_open_from() -> None:
    transport, snapshots = MemoryTransport(), MemorySnapshots()
    async with store_of(ADA, transport, snapshots=snapshots) as ada:
        ada.set_text("body", "words")
        await ada.commit()
        await ada.snapshot()
    async with store_of(BEN, transport, snapshots=snapshots) as ben:
        assert ben.text("body") == "words"
        assert list(ben.history()) == []


async def test_two_stores_of_a_relay_see_each_other_live() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        store_of(ADA, relay.url, autocommit_ms=0) as ada,
        store_of(BEN, relay.url, autocommit_ms=0) as ben,
    ):
        ada.set_text("body", "hello")
        await until([ben], lambda: ben.text("body") == "hello")
        ben.edit_text("body", 5, 0, ", you")
        await until([ada], lambda: ada.text("body") == "hello, you")
        await until_sent(ada, ben)
        assert ada.status.last_ack_ms is not None


@settings(deadline=None, max_examples=100)
@given(
    st.text("abc", min_size=1, max_size=8),
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 8), st.integers(0, 8), st.text("xyz", max_size=2)),
        max_size=6,
    ),
)
def test_a_text_reads_as_it_is_whoever_has_edited_it(
    start: str, edits: list[tuple[bool, int, int, str]]
) -> None:
    async def run() -> None:
        transport = MemoryTransport()
        async with (
            store_of(ADA, transport, autocommit_ms=None) as ada,
            store_of(BEN, transport, autocommit_ms=None) as ben,
        ):
            ada.set_text("body", start)
            for is_ada, position, removed, inserted in [(True, 0, 0, ""), *edits]:
                editor, reader = (ada, ben) if is_ada else (ben, ada)
                editor.edit_text("body", position, removed, inserted)
                await editor.commit()
                await reader.pull()
                assert reader.text("body") == reader.document.crdt.text("body")
                assert editor.text("body") == reader.text("body")

    asyncio.run(run())


async def test_the_whole_history_is_read_from_the_file_without_a_network(tmp_path: Path) -> None:
    log, path = MemoryTransport(), tmp_path / "a.db"
    async with WalStore.open("doc", identity=ADA, path=path, relay=log) as store:
        for text in ("one", "one two", "one two three"):
            store.set_text("body", text)
            await store.flush()
        await store.pull()
    async with WalStore.open("doc", identity=ADA, path=path) as store:
        assert not store.history()
        past = await store.load_history()
        texts = ["".join(past.at(version.ts)["body"]) for version in past.versions()]
        assert texts == ["one", "one two", "one two three"]
        assert [part.ts for part in past.blame("body")] == [each.ts for each in past.versions()]
        assert past.diff(past.versions()[0].ts, past.versions()[1].ts)


async def test_a_name_is_given_to_a_version_and_found_again() -> None:
    async with store_of(ADA, MemoryTransport()) as store:
        store.set_text("body", "draft")
        store.name_version("first draft")
        store.set_text("body", "final")
        await store.flush()
        await store.pull()
        version = store.find_version("first draft")
        assert version is not None
        assert "".join(store.at(version.ts)["body"]) == "draft"
        assert store.find_version("never") is None


async def test_whoever_had_to_read_much_takes_a_snapshot_for_all() -> None:
    log, snapshots = MemoryTransport(), MemorySnapshots()
    async with WalStore.open(KEY, identity=ADA, relay=log, autocommit_ms=None) as store:
        for number in range(12):
            store["count"] = number
            await store.commit()
    for limit, is_taken in ((13, False), (12, True)):
        async with WalStore.open(
            KEY, identity=ADA, relay=log, snapshots=snapshots, snapshot_after=limit
        ) as store:
            await until([store], lambda: store.document.tail_length == 12)
            for _ in range(200):
                await checkpoint()
            assert (await snapshots.read(KEY + "__snapshot") is not None) is is_taken
