"""Looking at documents: whole logs, verified, from every kind of place, and nothing is changed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.archive_made import Made
from tests.archive_world import World
from tests.inspected import ADA, BO, EVE, KEY, log_of_two, looking, looking_at, writing
from walstore import ALLOW_ANY, MemoryTransport, WalStore
from walstore.archive.local import LocalDestination
from walstore.archive.reader import Archive
from walstore.cli import inspect_archive
from walstore.cli.inspect_relay import DatabasePlace, database_overview, overview_of
from walstore.cli.main import main
from walstore.document.ports import RawElement
from walstore.inspect.diffs import Stretch, told
from walstore.inspect.lanes import BLOCKS, column, lanes
from walstore.inspect.local_log import opened_local
from walstore.inspect.places import OnlyLookingError
from walstore.inspect.relay_log import LogPlace, opened_relay
from walstore.inspect.subject import UNSENT, VERIFIED, WAITING, Subject
from walstore.inspect.summary import summary_of, text_of
from walstore.relay import MemoryLog, Relay, SqliteLog
from walstore.relay.log import Removal
from walstore.relay.sqlite_reading import SqliteReading


class Said(NamedTuple):
    """What a command has said."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """What `walstore inspect` says where there is no terminal."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))

    def run(*arguments: str | Path) -> Said:
        capsys.readouterr()
        try:
            code = main(["inspect", *map(str, arguments)])
        except SystemExit as left:
            code = int(left.code or 0)
        return Said(code, *capsys.readouterr())

    return run


def texts(document: dict[str, Any]) -> dict[str, Any]:
    """A document with its texts as such."""
    return {name: "".join(value) if name == "body" else value for name, value in document.items()}


# ── a document ─────────────────────────────────────────────────────────────────────────


async def test_every_version_is_there_with_what_it_was_and_who_wrote_it() -> None:
    subject = await looking_at(await log_of_two())
    first, second, third = subject.versions
    assert (first.author, first.message) == (ADA.public_key, "first draft")
    assert second.author == BO.public_key
    assert texts(await subject.at(first.ts)) == {"title": "Picnic", "body": "Meet at the lake."}
    assert texts(await subject.at(third.ts))["body"] == "Meet at the old lake."
    blames = await subject.blame("body", third.ts)
    assert [(each.size, each.author) for each in blames] == [
        (12, ADA.public_key),
        (4, BO.public_key),
        (5, ADA.public_key),
    ]
    assert [subject.verdict(line) for line in subject.lines] == [VERIFIED] * 3


async def test_two_versions_are_compared_stretch_by_stretch() -> None:
    subject = await looking_at(await log_of_two())
    first, _, third = [version.ts for version in subject.versions]
    before, after = await subject.at(first), await subject.at(third)
    found = {
        each.name: list(each.stretches)
        for each in told(await subject.diff(first, third), before, after)
    }
    assert found == {
        "title": [Stretch("gone", "Picnic"), Stretch("new", "A picnic")],
        "body": [
            Stretch("same", "Meet at the "),
            Stretch("new", "old "),
            Stretch("same", "lake."),
        ],
        "tags": [Stretch("new", '"summer"')],
    }
    back = told(await subject.diff(third, first), after, before)
    body = next(each for each in back if each.name == "body")
    assert Stretch("gone", "old ") in body.stretches
    # From the beginning on, everything is new.
    start = told(await subject.diff(subject.start, third), {}, after)
    assert all(stretch.mark == "new" for each in start for stretch in each.stretches)


async def test_what_comes_is_read() -> None:
    log = await log_of_two()
    subject = await looking_at(log)
    assert not await subject.refresh()
    bo = await writing(log, BO)
    bo.set_field("title", "Lake")
    await bo.commit()
    assert await subject.refresh()
    assert len(subject.versions) == 4
    assert (await subject.at(subject.versions[-1].ts))["title"] == "Lake"


async def test_a_forged_element_is_shown_and_does_not_count() -> None:
    log = await log_of_two()
    eve = await writing(log, EVE)
    eve.set_field("title", "Eve was here")
    await eve.commit()
    genuine = log._logs[KEY][-1]
    forged = genuine._replace(ts=genuine.ts + 1, data=genuine.data.replace(b"was", b"is "))
    log._logs[KEY].append(forged)
    # Without a word about who may write, whoever signs counts; the forged one never does.
    subject = await looking_at(log)
    assert [subject.verdict(line) for line in subject.lines][:4] == [VERIFIED] * 4
    assert subject.verdict(subject.lines[-1]) not in (VERIFIED, UNSENT)
    assert (await subject.at(forged.ts))["title"] == "Eve was here"
    # Who names the writers sees that Eve is none of them.
    strict = await looking_at(log, writers=[ADA.public_key, BO.public_key])
    assert len(strict.versions) == 3
    assert strict.verdict(strict.lines[3]) not in (VERIFIED, UNSENT)
    assert (await strict.at(strict.versions[-1].ts))["title"] == "A picnic"


async def test_missing_elements_are_named() -> None:
    log = await log_of_two()
    del log._logs[KEY][0]
    subject = await looking_at(log)
    gap = subject.gaps[0]
    assert (gap.author, gap.expected, gap.got) == (ADA.public_key, 1, 2)
    said = text_of(summary_of(subject))
    assert "elements 1 to 1 are missing" in said
    assert "no gaps" not in said


async def test_a_question_that_nobody_waits_for_keeps_its_turn() -> None:
    subject = await looking_at(await log_of_two())
    began, may_end = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert may_end.wait(20)

    asked = asyncio.create_task(subject._ask(slow))
    assert await asyncio.to_thread(began.wait, 20)
    asked.cancel()
    await asyncio.wait([asked])
    # The thread still reads the log, so nothing may be added to it.
    refreshing = asyncio.create_task(subject.refresh())
    assert await subject_is_busy(subject)
    assert not refreshing.done()
    may_end.set()
    assert await refreshing is False


async def subject_is_busy(subject: Subject) -> bool:
    """Whether somebody has the turn, after everybody has had a chance to take it."""
    for _ in range(5):
        await asyncio.sleep(0)
    return subject._lock.locked()


async def test_nothing_is_ever_written() -> None:
    subject = await looking_at(await log_of_two())
    subject._document.set_field("title", "mine")
    with pytest.raises(OnlyLookingError):
        await subject._document.commit()


async def test_elements_without_a_shape_are_no_lines() -> None:
    log = await log_of_two()
    log._logs[KEY].append(RawElement(9, b"not json", "nobody", "nothing"))
    subject = await looking_at(log)
    assert [line.author for line in subject.lines][-1] == "nobody"
    assert len(subject.versions) == 3


# ── places ─────────────────────────────────────────────────────────────────────────────


async def test_a_local_file_is_read_while_an_app_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "ada.db"
    log = MemoryTransport()
    async with WalStore.open(KEY, identity=ADA, path=path, relay=log) as store:
        store.set_text("body", "Meet at the lake.")
        await store.flush()
        await store.pull()
        before = {each.name: each.stat().st_size for each in tmp_path.iterdir()}
        async with opened_local(path) as place:
            assert place.document == KEY
            subject = await looking(place)
            assert len(subject.versions) == 1
            store.set_text("body", "Meet at the river.")
            await store.flush()
            await store.pull()
            await place.wait()
            assert await subject.refresh()
            assert texts(await subject.at(subject.versions[-1].ts))["body"] == "Meet at the river."
        assert {each.name for each in tmp_path.iterdir()} == set(before)


async def test_what_a_local_file_has_not_sent_is_shown_as_unsent(tmp_path: Path) -> None:
    path = tmp_path / "ada.db"
    async with WalStore.open(KEY, identity=ADA, path=path) as store:
        store.set_text("body", "Alone.")
    async with opened_local(path) as place:
        subject = await looking(place)
    assert [subject.verdict(line) for line in subject.lines] == [UNSENT]
    assert summary_of(subject)["unsent"] == 1
    assert texts(await subject.at(subject.versions[-1].ts)) == {"body": "Alone."}


async def test_a_relay_is_read_live_and_its_database_beside_it(tmp_path: Path) -> None:
    database = tmp_path / "relay.db"
    async with (
        SqliteLog.open(database) as log,
        Relay.serve(log) as relay,
        WalStore.open(KEY, identity=ADA, relay=relay.url, writers=ALLOW_ANY) as store,
        opened_relay(relay.url, KEY, identity=EVE) as place,
    ):
        store.set_text("body", "Meet.")
        await store.flush()
        subject = await looking(place)
        assert [each.author for each in subject.versions] == [ADA.public_key]
        reading = await SqliteReading.open(database)
        beside = await looking(DatabasePlace(reading, "relay.db", KEY))
        store.set_text("body", "Meet at noon.")
        await store.flush()
        while not await subject.refresh():
            await place.wait()
        assert len(subject.versions) == 2
        await beside.place.wait()
        assert await beside.refresh()
        assert len(beside.versions) == 2
        overview = await database_overview(reading, "relay.db")()
        assert [(row.key, row.elements) for row in overview.documents] == [(KEY, 2)]


async def test_a_pruned_log_begins_with_its_snapshot() -> None:
    log = MemoryLog()
    async with Relay.serve(log) as relay:
        async with WalStore.open(KEY, identity=ADA, relay=relay.url) as store:
            store.set_text("body", "Meet.")
            await store.flush()
            await store.pull()
            await store.snapshot()
            await log.compact([Removal(KEY, (), store.checkpoint)])
            store.set_text("body", "Meet at noon.")
            await store.flush()
        async with opened_relay(relay.url, KEY, identity=EVE) as place:
            subject = await looking(place)
            assert subject.start == subject.snapshot[0] > 0
            assert len(subject.versions) == 1
            assert texts(await subject.at(subject.start)) == {"body": "Meet."}
            blames = await subject.blame("body", subject.versions[-1].ts)
            # What only the snapshot vouches for came with no element that is still there.
            assert [each.ts for each in blames if each.ts is None] == [None, None]
            assert "versions start at" in text_of(summary_of(subject))


async def test_a_local_file_that_began_with_a_snapshot_says_so(tmp_path: Path) -> None:
    path = tmp_path / "ada.db"
    log = MemoryLog()
    async with Relay.serve(log) as relay:
        async with WalStore.open(KEY, identity=ADA, relay=relay.url) as first:
            first.set_text("body", "Meet.")
            await first.flush()
            await first.pull()
            await first.snapshot()
            await log.compact([Removal(KEY, (), first.checkpoint)])
        async with WalStore.open(KEY, identity=ADA, relay=relay.url, path=path) as second:
            second.set_text("body", "Meet at noon.")
            await second.flush()
            await second.pull()
    async with opened_local(path) as place:
        subject = await looking(place)
        # Its state is newer than where its elements begin, and nothing older can be folded.
        assert subject.start >= place.floor > 0
        assert not subject.versions
        assert texts(await subject.at(subject.start)) == {"body": "Meet at noon."}
        assert "versions start at" in text_of(summary_of(subject))


async def test_a_sealed_document_is_opened_by_its_members_alone() -> None:
    async with Relay.serve(MemoryLog()) as relay:
        async with WalStore.open(
            KEY, identity=ADA, relay=relay.url, owner=ADA.public_key, is_sealed=True
        ) as store:
            store.set_text("body", "for members")
            await store.flush()
            await store.sharing.settle()
        async with opened_relay(relay.url, KEY, identity=ADA) as place:
            subject = await looking(place, ADA, owner=ADA.public_key)
            assert texts(await subject.at(subject.versions[-1].ts)) == {"body": "for members"}
            assert "roster of" in subject.trust.said
        async with opened_relay(relay.url, KEY, identity=EVE) as place:
            stranger = await looking(place, EVE, owner=ADA.public_key)
            assert (len(stranger.versions), stranger.unreadable) == (0, 1)
            assert stranger.verdict(stranger.lines[0]) == WAITING


# ── lanes ──────────────────────────────────────────────────────────────────────────────


def test_lanes_show_who_wrote_when() -> None:
    ada, bo = lanes(["a", "a", "a", "b"], 4)
    assert (ada.author, ada.elements, ada.bars) == ("a", 3, "███ ")
    assert (bo.author, bo.elements, bo.bars) == ("b", 1, "   █")
    assert lanes([], 10) == []


def test_whatever_was_written_can_be_seen_however_little() -> None:
    busy, quiet = lanes(["a"] * 1000 + ["b"], 3)
    assert busy.bars.strip()
    assert quiet.bars[-1] == BLOCKS[1]


def test_many_authors_share_a_lane() -> None:
    found = lanes([str(number) for number in range(100)], 8)
    assert found[-1].author == ""
    assert sum(lane.elements for lane in found) == 100


def test_the_newest_is_at_the_right_and_the_oldest_at_the_left() -> None:
    assert column(0, 5, 10) == 0
    assert column(4, 5, 10) == 9
    assert column(0, 1, 10) == 9


# ── the command ────────────────────────────────────────────────────────────────────────


async def test_the_command_says_it_where_there_is_no_terminal(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    path = tmp_path / "ada.db"
    async with WalStore.open(KEY, identity=ADA, path=path) as store:
        store.set_text("body", "Alone.\x1b[31m")
    said = await asyncio.to_thread(command, path)
    assert said.code == 0, said.err
    assert KEY in said.out
    assert "1 are not sent yet" in said.out
    told = json.loads((await asyncio.to_thread(command, path, "--json")).out)
    assert told["authors"][0]["author"] == ADA.public_key
    assert told["names"] == [{"name": "body", "kind": "text", "length": 11}]


def test_the_likely_mistakes_are_answered(command: Callable[..., Said], tmp_path: Path) -> None:
    missing = command("nothing-here")
    assert missing.code == 2
    assert "walstore show" in missing.err
    other = tmp_path / "notes.txt"
    other.write_text("no database\n")
    foreign = command(other)
    assert foreign.code in (1, 2)
    assert "notes.txt" in foreign.err
    unreachable = command("ws://127.0.0.1:9")
    assert unreachable.code == 4
    assert "127.0.0.1:9" in unreachable.err
    assert command(other, "--owner", "ada").code == 2
    assert "64 hex digits" in command(other, "--owner", "ada").err


@pytest.mark.parametrize("documents", [5, "all", {"a": 1}, [5, None, {"document": {}}]])
def test_whatever_a_relay_says_of_itself_is_no_defect_here(documents: object) -> None:
    overview = overview_of("ws://relay", {"documents": documents, "retention": [1]})
    assert all(row.elements == 0 for row in overview.documents)


async def test_an_overview_lists_the_documents_of_a_relay(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    database = tmp_path / "relay.db"
    async with SqliteLog.open(database) as log, Relay.serve(log) as relay:
        for key in ("notes/a", "notes/b"):
            async with WalStore.open(key, identity=ADA, relay=relay.url) as store:
                store["title"] = key
                await store.flush()
        asked = await asyncio.to_thread(command, relay.url, "--json")
        documents = json.loads(asked.out)["documents"]
        assert {row["key"] for row in documents} == {"notes/a", "notes/b"}
        live = await asyncio.to_thread(command, relay.url, "--document", "notes/b", "--json")
        assert json.loads(live.out)["names"][0]["name"] == "title"
    assert "2 documents" in (await asyncio.to_thread(command, database)).out
    misspelled = await asyncio.to_thread(command, database, "--document", "notes/c")
    assert misspelled.code == 1
    assert "did you mean notes/" in misspelled.err
    one = await asyncio.to_thread(command, database, "--document", "notes/a", "--json")
    assert json.loads(one.out)["names"][0]["name"] == "title"


async def test_documents_beyond_those_that_are_listed_are_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspect_archive, "DOCUMENTS_MAX", 2)
    world = World("sealed")
    for name in "abcd":
        document = await world.document(f"notes/{name}")
        for number in range(3):
            document.set_field("n", number)
            await document.commit()
    await world.engine().run_once()
    overview = await inspect_archive.archive_overview(Archive(world.place, "notes/"), "here")()
    assert [row.elements for row in overview.documents] == [3, 3]
    assert overview.total == 4


@pytest.mark.parametrize("mode", ["sealed", "folded"])
async def test_an_archive_is_looked_at(
    command: Callable[..., Said], tmp_path: Path, mode: str
) -> None:
    made = Made(LocalDestination(tmp_path / "archive"), mode=mode)
    await made.grow()
    place = (tmp_path / "archive", "--prefix", "notes/")
    listed = await asyncio.to_thread(command, *place)
    assert "3 documents" in listed.out
    one = json.loads(
        (await asyncio.to_thread(command, *place, "--document", "notes/a", "--json")).out
    )
    assert one["versions"] == (3 if mode == "sealed" else 0)
    assert {each["name"] for each in one["names"]} == {"body", "last"}


async def test_a_place_without_snapshots_and_records_has_none() -> None:
    place = LogPlace("memory", MemoryTransport())
    assert await place.read("x") is None
    assert await place.read_record(KEY, "roster") is None
    with pytest.raises(OnlyLookingError):
        await (await looking(place))._looking.write("x", {}, None)
