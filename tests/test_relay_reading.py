"""A relay's database is read by others, whether a relay runs on it or not, and left as it is."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import takewhile
from pathlib import Path
from tempfile import gettempdir

import psycopg
import pytest

from tests.postgres_cluster import Cluster, binaries, running_cluster
from walstore.archive.source import Source
from walstore.document.ports import CheckpointTooOldError, LogBehindError
from walstore.net.faults import OtherRelayError, ReplayTooOldError
from walstore.relay.log import LogCorruptError, LogError, RelayLog, Removal
from walstore.relay.memory import MemoryLog
from walstore.relay.postgres import PostgresLog
from walstore.relay.postgres_reading import PostgresReading
from walstore.relay.reading import LogSource, opened_source
from walstore.relay.sqlite import SqliteLog
from walstore.relay.sqlite_reading import SqliteReading
from walstore.testing.relay_log import NOW_MS, element, elements, snapshot

PATIENCE_S = 15.0


def is_source(source: LogSource) -> Source:
    """What the archive asks for, as the type checker sees it."""
    return source


# ── every kind of database ─────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    found = binaries()
    if found is None:
        pytest.skip("no PostgreSQL server is installed below /usr/lib/postgresql")
    with running_cluster(found) as cluster:
        yield cluster


Both = Callable[[str], AbstractAsyncContextManager[tuple[RelayLog, LogSource]]]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Both:
    """A log to write to, and a source that reads the same database."""
    dsn = request.getfixturevalue("cluster").new_schema() if request.param == "postgres" else ""

    @asynccontextmanager
    async def opened(prefix: str) -> AsyncIterator[tuple[RelayLog, LogSource]]:
        if request.param == "memory":
            log = MemoryLog()
            yield log, LogSource(log, prefix, page_events_max=3)
        elif request.param == "sqlite":
            path = tmp_path / "relay.db"
            async with SqliteLog.open(path) as file:
                reading = await SqliteReading.open(path)
                yield file, LogSource(reading, prefix, page_events_max=3)
        else:
            async with (
                await PostgresLog.open(dsn) as server,
                await PostgresReading.open(dsn) as tables,
            ):
                yield server, LogSource(tables, prefix, page_events_max=3)

    return opened


async def all_events(source: LogSource, since: int = 0) -> list[int]:
    seqs: list[int] = []
    while True:
        page = await source.page(since)
        seqs += [event.seq for event in page.events]
        if not page.is_more:
            return seqs
        since = page.last_seq


async def test_events_come_in_pages_of_one_prefix(both: Both) -> None:
    async with both("notes/") as (log, source):
        await log.append(elements(5, "notes/a"), NOW_MS)
        await log.append(elements(2, "other/b"), NOW_MS)
        await log.append(elements(2, "notes/c"), NOW_MS)
        assert await all_events(source) == [1, 2, 3, 4, 5, 8, 9]
        assert await all_events(source, 4) == [5, 8, 9]
        page = await source.page(9)
        assert (list(page.events), page.last_seq, page.is_more) == ([], 9, False)
        assert await source.status() == (log.relay_id, 1, 9)
        assert [key async for key in source.documents()] == ["notes/a", "notes/c"]
        is_source(source)


async def test_a_position_that_was_never_reached_is_told(both: Both) -> None:
    async with both("") as (log, source):
        await log.append(elements(2, "a"), NOW_MS)
        with pytest.raises(LogBehindError) as caught:
            await source.page(3)
        assert (caught.value.head, caught.value.checkpoint) == (2, 3)


async def test_a_position_that_is_too_old_is_told(both: Both) -> None:
    async with both("") as (log, source):
        await log.append(elements(5, "a"), NOW_MS)
        await log.trim(4)
        with pytest.raises(ReplayTooOldError) as caught:
            await source.page(2)
        assert caught.value.min_seq == 4
        assert await all_events(source, 3) == [4, 5]
        assert (await source.status()).min_seq == 4


async def test_a_bootstrap_has_the_texts_of_the_current_snapshots(both: Both) -> None:
    async with both("") as (log, source):
        accepted = await log.append(elements(3, "a"), NOW_MS)
        first = snapshot("one", None, accepted[0].ts, {"w": 1}, "a")
        await log.put_snapshot(first, NOW_MS)
        second = snapshot("two", first.id, accepted[2].ts, {"w": 3}, "a")
        await log.put_snapshot(second, NOW_MS)
        seq, events = await source.bootstrap()
        assert seq == 5
        assert [(event.id, event.payload) async for event in events] == [(second.id, second.text)]
        assert await source.snapshot("a") == second.text
        assert await source.snapshot("b") is None


async def test_the_log_of_one_document_can_be_read_anew(both: Both) -> None:
    async with both("") as (log, source):
        written = elements(7, "a")
        accepted = await log.append(written, NOW_MS)
        after = accepted[1].ts
        found = [each async for each in source.elements("a", after)]
        assert [each.data for each in found] == [each.data for each in written[2:]]
        assert [each.ts for each in found] == [each.ts for each in accepted[2:]]
        last = snapshot("last", None, accepted[6].ts, {}, "a")
        await log.put_snapshot(last, NOW_MS)
        await log.compact([Removal("a", (), accepted[2].ts)])
        with pytest.raises(CheckpointTooOldError) as caught:
            [each async for each in source.elements("a", after)]
        assert caught.value.floor == accepted[2].ts
        compacted = await source.page(0)
        assert [event.payload is None for event in compacted.events] == [True, True, True]


async def test_records_are_read(both: Both) -> None:
    async with both("") as (log, source):
        assert await source.record("a", "roster") is None
        await log.put_record("a", "roster", "{…}".encode(), None)
        assert await source.record("a", "roster") == "{…}"


async def test_waiting_ends_with_the_first_event_of_the_prefix(both: Both) -> None:
    async with both("notes/") as (log, source):
        await log.append(elements(1, "notes/a"), NOW_MS)
        await source.wait(0)
        waiting = asyncio.create_task(source.wait(1))
        await log.append([element("1", "other")], NOW_MS)
        await asyncio.sleep(0)
        assert not waiting.done()
        await log.append([element("1", "notes/b")], NOW_MS)
        async with asyncio.timeout(PATIENCE_S):
            await waiting


async def test_another_database_is_not_gone_on_with(both: Both) -> None:
    async with both("") as (log, _):
        with pytest.raises(OtherRelayError):
            LogSource(log, relay_id="f" * 32)


# ── a file that is left as it is ───────────────────────────────────────────────────────


async def closed_log(path: Path, count: int = 3) -> None:
    async with SqliteLog.open(path) as log:
        await log.append(elements(count, "a"), NOW_MS)


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


async def test_reading_a_file_that_nobody_uses_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    await closed_log(path)
    before = contents(tmp_path)
    async with opened_source(path) as source:
        assert await all_events(source) == [1, 2, 3]
    assert contents(tmp_path) == before


async def test_a_file_is_read_while_a_relay_writes_and_after_it_has_stopped(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    await closed_log(path)
    async with opened_source(path) as source:
        async with SqliteLog.open(path) as log:
            for number in range(4, 30):
                await log.append([element(str(number), "a")], NOW_MS)
                assert (await source.status()).head_seq == number
        assert (await source.status()).head_seq == 29
    # Nothing of the reader's keeps the relay from its file.
    await closed_log(path)


async def test_a_directory_that_cannot_be_written_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    await closed_log(path)
    (tmp_path / "relay.db-lock").unlink()
    script = (
        "import asyncio, os, sys\n"
        "from walstore.relay.reading import opened_source\n"
        "async def main():\n"
        "    async with opened_source(sys.argv[1]) as source:\n"
        "        print(len((await source.page(0)).events))\n"
        "os.setuid(65534) if os.getuid() == 0 else None\n"
        "asyncio.run(main())\n"
    )
    # Whoever runs it as root runs the reader as nobody, who has to get there.
    for each in takewhile(lambda each: each != Path(gettempdir()), tmp_path.parents):
        each.chmod(0o755)
    tmp_path.chmod(0o555)
    path.chmod(0o444)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
        )
    finally:
        tmp_path.chmod(0o755)
    assert (done.stdout.strip(), done.stderr) == ("3", "")
    assert os.listdir(tmp_path) == ["relay.db"]


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LogError):
        async with opened_source(tmp_path / "none.db"):
            pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [b"", b"SQLite format 3\x00", b"junk" * 100])
async def test_what_is_none_of_a_relays_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "relay.db"
    path.write_bytes(text)
    with pytest.raises(LogCorruptError):
        async with opened_source(path):
            pass
    assert contents(tmp_path) == {"relay.db": text}


async def test_another_file_in_its_place_is_noticed(tmp_path: Path) -> None:
    path, other = tmp_path / "relay.db", tmp_path / "other.db"
    await closed_log(path)
    await closed_log(other)
    async with opened_source(path) as source:
        await source.page(0)
        shutil.copy(other, tmp_path / "copy.db")
        os.replace(tmp_path / "copy.db", path)
        with pytest.raises(LogError, match="another relay's by now"):
            await source.page(0)


async def test_an_older_copy_in_its_place_is_a_rollback(tmp_path: Path) -> None:
    path, copy = tmp_path / "relay.db", tmp_path / "copy.db"
    await closed_log(path, 3)
    shutil.copy(path, copy)
    async with SqliteLog.open(path) as log:
        await log.append([element("9", "a")], NOW_MS)
    async with opened_source(path) as source:
        assert (await source.page(3)).last_seq == 4
        os.replace(copy, path)
        with pytest.raises(LogBehindError):
            await source.page(4)


# ── tables that are left as they are ───────────────────────────────────────────────────


async def test_an_empty_database_stays_empty(cluster: Cluster) -> None:
    dsn = cluster.new_schema()
    with pytest.raises(LogError, match="no tables"):
        await PostgresReading.open(dsn)
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        found = await connection.execute(
            "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        )
        assert await found.fetchone() == (0,)


async def test_the_server_refuses_whatever_would_change_something(cluster: Cluster) -> None:
    dsn = cluster.new_schema()
    async with await PostgresLog.open(dsn) as log:
        await log.append(elements(2, "a"), NOW_MS)
        async with await PostgresReading.open(dsn) as reading:
            for change in (
                reading.append([element("9", "a")], NOW_MS),
                reading.trim(2),
                reading.put_setting("x", 1),
            ):
                with pytest.raises(LogError):
                    await change
        assert (await LogSource(log).status()).head_seq == 2


# ── without a relay's packages ─────────────────────────────────────────────────────────


def test_reading_a_database_needs_none_of_a_relays_packages() -> None:
    script = (
        "import sys\n"
        "for name in ('h11', 'prometheus_client', 'websockets', 'psycopg'):\n"
        "    sys.modules[name] = None\n"
        "import walstore.relay.reading\n"
        "from walstore.relay import MemoryLog, RelayLog, SqliteLog\n"
        "try:\n"
        "    from walstore.relay import Relay\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error.name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.partition(".")[0].strip() in ("websockets", "h11", "prometheus_client")


async def test_a_missing_driver_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in list(sys.modules):
        if name.startswith("walstore.relay.postgres"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'walstore\[postgres\]'"):
        async with opened_source("postgresql://nowhere/none"):
            pass
