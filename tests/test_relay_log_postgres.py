"""The relay's log in PostgreSQL: the contract, and what several processes and a lost server do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from tests.postgres_cluster import Cluster, binaries, running_cluster
from tests.postgres_proxy import Cut, Proxy
from tests.postgres_writer import written
from tests.relay_clients import ANNA, BEN, CARL, appending, revision_of, snapshot_text, speaking
from walstore.errors import UsageError
from walstore.net.websocket import WebSocketTransport
from walstore.relay.log import (
    Accepted,
    Conflict,
    Event,
    Filter,
    KeptRecord,
    LogCorruptError,
    LogError,
    NewElement,
    Notice,
    RelayLog,
    Removal,
    Row,
)
from walstore.relay.postgres import PostgresLog
from walstore.relay.server import Relay
from walstore.testing.relay_log import NOW_MS, RelayLogContract, element, elements, snapshot
from walstore.wire.frames import Elements, EndOfStored, Kept, Ok, Pull, Refusal

_WAIT_S_MAX = 30.0

_REVISION = "0" * 64

# What announces no record, although it looks like it.
_NO_RECORDS: list[Any] = [
    [],
    {},
    ["", "notes/a", "roster"],
    ["", "notes/a", "roster", None],
    ["", "notes/a", "roster", _REVISION.replace("0", "x")],
    ["", "notes/a", "Roster", _REVISION],
    ["", "", "roster", _REVISION],
    ["", "notes/\ud800", "roster", _REVISION],
    ["", ["notes/a"], "roster", _REVISION],
]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    found = binaries()
    if found is None:
        pytest.skip("no PostgreSQL server is installed below /usr/lib/postgresql")
    with running_cluster(found) as cluster:
        yield cluster


@pytest.fixture
def dsn(cluster: Cluster) -> str:
    return cluster.new_schema()


@pytest.fixture
async def log(dsn: str) -> AsyncIterator[PostgresLog]:
    async with await PostgresLog.open(dsn) as log:
        yield log


@pytest.fixture
async def other(log: PostgresLog, dsn: str) -> AsyncIterator[PostgresLog]:
    """The same log, as another process has it open."""
    async with await PostgresLog.open(dsn) as other:
        yield other


class TestPostgresLog(RelayLogContract):
    @pytest.fixture
    async def log(self, dsn: str) -> AsyncIterator[RelayLog]:
        async with await PostgresLog.open(dsn) as log:
            yield log


# ── several processes ──────────────────────────────────────────────────────────────────


async def test_a_log_is_the_same_for_all_who_open_it(dsn: str) -> None:
    opened = await asyncio.gather(*(PostgresLog.open(dsn) for _ in range(6)))
    assert len({log.relay_id for log in opened}) == 1
    places = [await log.append([element(f"{n}")], NOW_MS) for n, log in enumerate(opened)]
    assert [place.seq for (place,) in places] == [1, 2, 3, 4, 5, 6]
    for log in opened:
        assert len(await _rows(log)) == 6
        await log.aclose()


async def test_a_log_goes_on_where_it_was_closed(dsn: str) -> None:
    async with await PostgresLog.open(dsn) as log:
        relay_id, first = log.relay_id, await log.append(elements(3), NOW_MS)
    async with await PostgresLog.open(dsn) as log:
        assert log.relay_id == relay_id
        (place,) = await log.append([element("next")], 0)
    assert place == Accepted(first[-1].ts + 1, first[-1].seq + 1, True, first[-1].ts)


async def test_a_reader_of_concurrent_appends_meets_every_seq_once(
    log: PostgresLog, other: PostgresLog, dsn: str
) -> None:
    async def write(own: PostgresLog, name: str) -> list[Accepted]:
        answers: list[Accepted] = []
        for number in range(60):
            document = "shared" if number % 2 else f"only/{name}"
            batch = [element(f"{name}-{number}-{n}", document) for n in range(3)]
            answers += await own.append(batch, NOW_MS)
        return answers

    async def follow(reader: PostgresLog) -> list[int]:
        seen: list[int] = []
        while len(seen) < 360:
            page = await reader.feed(
                seen[-1] if seen else 0, None, Filter(), count_max=50, bytes_max=2**20
            )
            seen += [event.seq for event in page.events]
            assert page.last_seq == (seen[-1] if seen else 0)
        return seen

    async with await PostgresLog.open(dsn) as reader:
        left, right, *seen = await asyncio.gather(
            write(log, "left"), write(other, "right"), follow(reader), follow(other)
        )
    assert seen == [list(range(1, 361))] * 2
    assert sorted(place.seq for place in [*left, *right]) == list(range(1, 361))
    rows = await _rows(log, "shared")
    assert len(rows) == 180
    _assert_rising([row.ts for row in rows])
    _assert_rising([row.seq for row in rows])


async def test_an_element_that_two_processes_race_to_append_is_stored_once(
    log: PostgresLog, other: PostgresLog
) -> None:
    for number in range(30):
        batch = [element(f"{number}-{n}") for n in range(4)]
        mine, theirs = await asyncio.gather(
            log.append(batch, NOW_MS), other.append(batch[::-1], NOW_MS)
        )
        assert [place[:2] for place in mine] == [place[:2] for place in theirs[::-1]]
        assert sum(place.is_new for place in [*mine, *theirs]) == 4
    assert len(await _rows(log)) == 120


async def test_one_of_two_racing_snapshots_wins(log: PostgresLog, other: PostgresLog) -> None:
    (place,) = await log.append([element("1")], NOW_MS)
    answers = await asyncio.gather(
        log.put_snapshot(snapshot("left", None, place.ts), NOW_MS),
        other.put_snapshot(snapshot("right", None, place.ts), NOW_MS),
    )
    (winner,) = [answer for answer in answers if isinstance(answer, Accepted)]
    assert winner.seq == 2
    assert len(await log.snapshots("notes/a")) == 1


async def test_compaction_and_appends_do_not_get_in_each_others_way(
    log: PostgresLog, other: PostgresLog
) -> None:
    places = await log.append([e for n in range(5) for e in elements(40, f"doc/{n}")], NOW_MS)
    ts_max = max(place.ts for place in places)

    async def compact(own: PostgresLog) -> int:
        counts = [
            await own.compact([Removal(f"doc/{n}", (), below) for n in range(5)])
            for below in range(NOW_MS, ts_max + 1, 4)
        ]
        return sum(count.elements for count in counts)

    async def write(own: PostgresLog, name: str) -> None:
        for number in range(30):
            batch = [element(f"{name}-{number}", f"doc/{n}") for n in (4, 2, 0, 3, 1)]
            await own.append(batch, NOW_MS)

    removed, removed_too, *_ = await asyncio.gather(
        compact(log), compact(other), write(log, "left"), write(other, "right")
    )
    floor = max(range(NOW_MS, ts_max + 1, 4))
    assert removed + removed_too == 5 * (floor - NOW_MS + 1)
    for status in await log.documents("doc/", count_max=10):
        rows = await _rows(log, status.document, floor)
        assert (status.floor, status.elements, status.head) == (floor, len(rows), rows[-1].ts)
        assert len(rows) == 40 + 60 - (floor - NOW_MS + 1)


async def test_two_relays_can_share_a_database(cluster: Cluster) -> None:
    async with (
        await PostgresLog.open(cluster.new_schema()) as one,
        await PostgresLog.open(cluster.new_schema()) as two,
        asyncio.timeout(_WAIT_S_MAX),
        aclosing(two.notices()) as notices,
    ):
        assert one.relay_id != two.relay_id
        assert await anext(notices) == Notice(0)
        await one.append(elements(3), NOW_MS)
        assert await _rows(two) == []
        await two.append(elements(1), NOW_MS)
        assert await anext(notices) == Notice(1)


# ── notices ────────────────────────────────────────────────────────────────────────────


async def test_every_commit_of_another_process_is_noticed(
    log: PostgresLog, other: PostgresLog
) -> None:
    async with asyncio.timeout(_WAIT_S_MAX), aclosing(log.notices()) as notices:
        assert await anext(notices) == Notice(0)
        for number in range(5):
            (place,) = await other.append([element(f"{number}")], NOW_MS)
            assert await anext(notices) == Notice(place.seq)
        put = await other.put_snapshot(snapshot("s", None, NOW_MS), NOW_MS)
        assert isinstance(put, Accepted)
        assert await anext(notices) == Notice(put.seq)


async def test_a_follower_of_notices_sees_everything_of_two_writers(
    log: PostgresLog, other: PostgresLog, dsn: str
) -> None:
    async def write(own: PostgresLog, name: str) -> None:
        for number in range(40):
            await own.append([element(f"{name}-{number}")], NOW_MS)

    async def follow(reader: PostgresLog) -> list[int]:
        seen: list[int] = []
        told = 0
        async with aclosing(reader.notices()) as notices:
            async for notice in notices:
                # What was read may be ahead of what was told, but that never goes back.
                assert notice.seq >= told
                told, since = notice.seq, seen[-1] if seen else 0
                page = await reader.feed(since, None, Filter(), count_max=99, bytes_max=2**20)
                seen += [event.seq for event in page.events]
                if len(seen) >= 80:
                    break
        return seen

    async with asyncio.timeout(_WAIT_S_MAX), await PostgresLog.open(dsn) as reader:
        seen, *_ = await asyncio.gather(follow(reader), write(log, "l"), write(other, "r"))
    assert seen == list(range(1, 81))


async def test_what_happened_while_the_listener_was_cut_off_is_noticed(
    log: PostgresLog, other: PostgresLog, dsn: str
) -> None:
    async with asyncio.timeout(_WAIT_S_MAX), aclosing(log.notices()) as notices:
        await anext(notices)
        for number in range(3):
            (place,) = await other.append([element(f"{number}")], NOW_MS)
            assert await anext(notices) == Notice(place.seq)
            assert _terminate(dsn, "query LIKE 'LISTEN%' OR query LIKE '%FROM walstore_head'") >= 1
            (place,) = await other.append([element(f"{number} unheard")], NOW_MS)
            while (await anext(notices)).seq < place.seq:
                pass


async def test_a_connection_that_comes_back_tells_the_head_even_without_news(
    log: PostgresLog, dsn: str
) -> None:
    await log.append([element("1")], NOW_MS)
    async with asyncio.timeout(_WAIT_S_MAX), aclosing(log.notices()) as notices:
        assert await anext(notices) == Notice(1)
        assert _terminate(dsn, "query LIKE 'LISTEN%' OR query LIKE '%FROM walstore_head'") >= 1
        assert await anext(notices) == Notice(1)


async def test_announcements_of_strangers_are_not_believed(log: PostgresLog, dsn: str) -> None:
    async with asyncio.timeout(_WAIT_S_MAX), aclosing(log.notices()) as notices:
        await anext(notices)
        with psycopg.connect(dsn, autocommit=True) as connection:
            for payload in (
                "",
                "x",
                "-1",
                "9" * 7_000,
                "²",
                "[" * 7_000,
                *map(json.dumps, _NO_RECORDS),
            ):
                connection.execute(
                    "SELECT pg_notify(%s, %s)", [f"walstore_{log.relay_id}", payload]
                )
        await log.append([element("1")], NOW_MS)
        assert await anext(notices) == Notice(1)


async def test_a_record_that_another_process_replaces_is_noticed(
    log: PostgresLog, other: PostgresLog
) -> None:
    document = "notes/" + "é" * 506
    async with asyncio.timeout(_WAIT_S_MAX), aclosing(log.notices()) as notices:
        assert await anext(notices) == Notice(0)
        first = await other.put_record(document, "roster", b"{}", None)
        assert isinstance(first, str)
        assert await anext(notices) == Notice(0, (KeptRecord(document, "roster", first),))
        # What changes nothing is no news, and of what this process did it has told itself.
        assert await other.put_record(document, "roster", b"{}", None) == first
        assert isinstance(await other.put_record(document, "roster", b"[]", None), Conflict)
        assert isinstance(await log.put_record(document, "roster", b"[]", first), str)
        second = await other.put_record(document, "keyring", b"{}", None)
        assert isinstance(second, str)
        assert await anext(notices) == Notice(0, (KeptRecord(document, "keyring", second),))


async def test_who_follows_at_one_relay_is_told_of_what_is_kept_through_another(
    log: PostgresLog, other: PostgresLog
) -> None:
    async with (
        Relay.serve(log) as here,
        Relay.serve(other) as there,
        speaking(here.url, BEN) as ben,
        speaking(there.url, CARL) as carl,
        WebSocketTransport(there.url, identity=ANNA) as anna,
    ):
        await ben.say(Pull("live", "notes/a", None, 0, 10, True, with_records=True))
        await ben.get(EndOfStored, "live")
        # Once this has come, the relay is known to listen.
        await carl.append(CARL, "notes/a", {"n": 1})
        await ben.get(Elements, "live")
        revision = await anna.write_record("notes/a", "roster", "{}", None)
        assert await ben.get(Kept, "live") == Kept("live", "roster", revision)
        text = snapshot_text(CARL, "notes/a", upto_ts=0)
        assert isinstance(await carl.put("notes/a", text, replaces=None), Ok)
        assert await ben.get(Kept, "live") == Kept("live", "snapshot", revision_of(text))


async def test_what_another_relay_stores_is_handed_out_though_the_first_read_of_it_fails(
    log: PostgresLog, other: PostgresLog, dsn: str
) -> None:
    async with (
        Relay.serve(log) as here,
        Relay.serve(other) as there,
        speaking(here.url, BEN) as ben,
        speaking(there.url, CARL) as carl,
    ):
        await ben.follow("notes/a")
        await carl.append(CARL, "notes/a", {"n": 1})
        await ben.elements(1)
        # All connections but those that listen, here and there.
        _terminate(dsn, "query NOT LIKE 'LISTEN%' AND query <> 'SELECT seq FROM walstore_head'")
        await carl.say(appending(CARL, "notes/a", {"n": 2}, ref="lost"))
        assert isinstance(await carl.outcome("lost"), Refusal)
        await carl.append(CARL, "notes/a", {"n": 2})
        assert [element.data for element in await ben.elements(1)] == [b'{"n":2}']


async def test_notices_end_when_the_log_is_closed(dsn: str) -> None:
    log = await PostgresLog.open(dsn)
    notices = log.notices()
    await anext(notices)
    waiting = asyncio.ensure_future(anext(notices, None))
    await log.aclose()
    async with asyncio.timeout(_WAIT_S_MAX):
        assert await waiting is None
        assert [notice async for notice in log.notices()] == []


# ── a server that fails ────────────────────────────────────────────────────────────────


async def test_a_backend_that_is_terminated_stores_nothing_and_the_next_call_works(
    log: PostgresLog, dsn: str
) -> None:
    await log.append(elements(2), NOW_MS)
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT 1 FROM walstore_head FOR UPDATE")
        appending = asyncio.ensure_future(log.append([element("lost")], NOW_MS))
        await _blocked(dsn)
        _terminate(dsn, "wait_event_type = 'Lock'")
        with pytest.raises(LogError):
            await appending
    assert len(await _rows(log)) == 2
    (place,) = await log.append([element("lost")], NOW_MS)
    assert place.is_new
    assert len(await _rows(log)) == 3


async def test_idle_connections_that_were_terminated_fail_once_at_most(
    log: PostgresLog, dsn: str
) -> None:
    await asyncio.gather(log.append(elements(2), NOW_MS), *(_rows(log) for _ in range(8)))
    _terminate(dsn, "true")
    with pytest.raises(LogError):
        await _rows(log)
    for _ in range(8):
        assert len(await _rows(log)) == 2
    with pytest.raises(LogError):
        await log.append([element("x")], NOW_MS)
    await log.append([element("x")], NOW_MS)


async def test_a_backend_killed_in_the_middle_brings_nothing_into_disorder(
    log: PostgresLog, dsn: str
) -> None:
    await log.append(elements(2), NOW_MS)
    with suppress(psycopg.OperationalError), psycopg.connect(dsn) as holder:
        holder.execute("SELECT 1 FROM walstore_head FOR UPDATE")
        appending = asyncio.ensure_future(log.append([element("lost")], NOW_MS))
        os.kill(await _blocked(dsn), signal.SIGKILL)
        with pytest.raises(LogError):
            await appending
    place = await _append_until_it_works(log, [element("lost")])
    assert place == Accepted(NOW_MS + 2, 3, True, NOW_MS + 1)
    assert len(await _rows(log)) == 3


async def test_a_server_that_loses_power_keeps_what_was_answered(
    log: PostgresLog, cluster: Cluster
) -> None:
    answers: list[Accepted] = []

    async def write() -> None:
        number = 0
        while not is_over.is_set():
            try:
                answers.extend(await log.append([element(f"{number}")], NOW_MS))
                number += 1
            except LogError:
                await asyncio.sleep(0.01)

    is_over = asyncio.Event()
    writing = asyncio.create_task(write())
    for count in (10, 30):
        while len(answers) < count:
            await asyncio.sleep(0)
        await asyncio.to_thread(cluster.stop, "immediate")
        await asyncio.to_thread(cluster.start)
    before = len(answers)
    async with asyncio.timeout(_WAIT_S_MAX):
        while len(answers) < before + 10:
            await asyncio.sleep(0)
    is_over.set()
    await writing
    rows = await _rows(log)
    assert [(row.ts, row.seq) for row in rows] == [(place.ts, place.seq) for place in answers]
    _assert_rising([row.seq for row in rows])


@pytest.fixture
async def proxy(cluster: Cluster) -> AsyncIterator[Proxy]:
    with tempfile.TemporaryDirectory(prefix="walpx-") as directory:
        async with Proxy(cluster.directory, Path(directory)).running() as proxy:
            yield proxy


async def test_a_commit_whose_answer_was_lost_is_found_again(
    proxy: Proxy, cluster: Cluster, dsn: str
) -> None:
    async with await PostgresLog.open(_through(proxy, cluster, dsn)) as log:
        await log.append(elements(2), NOW_MS)
        proxy.cut = Cut.AFTER_COMMIT
        answers = await log.append([element("x"), elements(2)[0], element("y")], NOW_MS)
        assert proxy.cut is Cut.NEVER
        assert [answer.is_new for answer in answers] == [True, False, True]
        assert [answer.seq for answer in answers] == [3, 1, 4]
        proxy.cut = Cut.AFTER_COMMIT
        put = await log.put_snapshot(snapshot("s", None, NOW_MS), NOW_MS)
        assert put == Accepted(NOW_MS, 5, True, 0)
        assert len(await _rows(log)) == 4


async def test_a_commit_that_never_arrived_is_an_error_and_changed_nothing(
    proxy: Proxy, cluster: Cluster, dsn: str
) -> None:
    async with await PostgresLog.open(_through(proxy, cluster, dsn)) as log:
        await log.append(elements(2), NOW_MS)
        proxy.cut = Cut.BEFORE_COMMIT
        with pytest.raises(LogError):
            await log.append([element("x")], NOW_MS)
        assert proxy.cut is Cut.NEVER
        assert len(await _rows(log)) == 2
        (place,) = await log.append([element("x")], NOW_MS)
        assert (place.seq, place.is_new) == (3, True)


async def test_an_outcome_that_cannot_be_found_out_is_an_error_and_the_place_is_kept(
    proxy: Proxy, cluster: Cluster, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("walstore.relay.postgres._SETTLE_S_MAX", 0.3)
    async with await PostgresLog.open(_through(proxy, cluster, dsn)) as log:
        proxy.cut, proxy.is_final = Cut.AFTER_COMMIT, True
        with pytest.raises(LogError, match="outcome is unknown"):
            await log.append([element("x")], NOW_MS)
        proxy.is_open = True
        (place,) = await log.append([element("x")], NOW_MS)
        assert place == Accepted(NOW_MS, 1, False, 0)


async def test_a_writer_that_is_killed_loses_nothing_that_it_was_answered(
    log: PostgresLog, dsn: str
) -> None:
    answered: dict[str, tuple[int, int]] = {}
    for round_ in range(4):
        answered |= await asyncio.to_thread(_write_and_kill, dsn, f"w{round_}", 20 + 7 * round_)
    events = await _feed(log)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    stored = {event.id: (event.ts, event.seq) for event in events}
    assert len(stored) == len(events)
    assert answered.items() <= stored.items()
    for number in range(3):
        rows = await _rows(log, f"doc/{number}")
        _assert_rising([row.ts for row in rows])
        _assert_rising([row.seq for row in rows])


def _write_and_kill(dsn: str, name: str, count: int) -> dict[str, tuple[int, int]]:
    """Lets a process write until this many were answered; gives what it said before its death."""
    command = [sys.executable, "-m", "tests.postgres_writer", dsn, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(count)]
        process.kill()
        lines += process.stdout.readlines()
    # The last line may be cut.
    said = [tuple(map(int, line.split())) for line in lines if line.endswith("\n")]
    assert len(said) >= count
    return {written(name, number).id: (ts, seq) for number, ts, seq in said}


async def test_a_server_that_cannot_be_reached_is_an_error() -> None:
    with pytest.raises(LogError):
        await PostgresLog.open("host=/nonexistent dbname=x")


async def test_a_dsn_that_cannot_be_read_is_the_callers_fault_and_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        await PostgresLog.open("host=x hunter2 password")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__
    with pytest.raises(UsageError):
        await PostgresLog.open("host=\ud800")


# ── a server that refuses ──────────────────────────────────────────────────────────────


async def test_a_full_disk_refuses_appends_and_serves_reads(log: PostgresLog, dsn: str) -> None:
    await log.append(elements(2), NOW_MS)
    for table in ("walstore_events", "walstore_documents", "walstore_head"):
        _trigger(dsn, table, "true", "53100")
        with pytest.raises(LogError, match="refused"):
            await log.append([element("x"), element("y", "notes/b")], NOW_MS)
        with pytest.raises(LogError):
            await log.put_snapshot(snapshot("s", None, NOW_MS), NOW_MS)
        assert len(await _rows(log)) == 2
        assert await log.snapshot("notes/a") is None
        _execute(dsn, f"DROP TRIGGER refuse ON {table}")
    (place,) = await log.append([element("x")], NOW_MS)
    assert place.seq == 3


async def test_a_compaction_that_fails_removes_nothing(log: PostgresLog, dsn: str) -> None:
    places = await log.append(elements(4), NOW_MS)
    _trigger(dsn, "walstore_documents", "true", "53100")
    with pytest.raises(LogError):
        await log.compact([Removal("notes/a", (), places[2].ts)])
    assert len(await _rows(log)) == 4


async def test_a_read_only_database_refuses_appends_and_serves_reads(cluster: Cluster) -> None:
    dsn = cluster.new_database()
    async with await PostgresLog.open(dsn) as log:
        await log.append(elements(2), NOW_MS)
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
    async with await PostgresLog.open(dsn) as log:
        with pytest.raises(LogError, match="read-only"):
            await log.append([element("x")], NOW_MS)
        with pytest.raises(LogError, match="read-only"):
            await log.put_setting("a", 1)
        assert len(await _rows(log)) == 2


async def test_a_log_that_is_locked_for_too_long_refuses_appends_and_serves_reads(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("walstore.relay.postgres_connections.LOCK_MS_MAX", 100)
    async with await PostgresLog.open(dsn) as log:
        await log.append(elements(2), NOW_MS)
        with psycopg.connect(dsn) as holder:
            holder.execute("SELECT 1 FROM walstore_head FOR UPDATE")
            with pytest.raises(LogError, match="lock timeout"):
                await log.append([element("x")], NOW_MS)
            assert len(await _rows(log)) == 2
            assert len(await _feed(log)) == 2
        await log.append([element("x")], NOW_MS)


async def test_a_statement_that_takes_too_long_is_given_up(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await PostgresLog.open(dsn):
        pass
    _execute(
        dsn,
        "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$",
    )
    _execute(
        dsn,
        "CREATE TRIGGER dawdle BEFORE INSERT ON walstore_settings FOR EACH ROW"
        " EXECUTE FUNCTION dawdle()",
    )
    monkeypatch.setattr("walstore.relay.postgres.COMPACTION_MS_MAX", 100)
    async with await PostgresLog.open(dsn) as log:
        with pytest.raises(LogError, match="statement timeout"):
            await log.put_setting("a", 1)
        assert await log.settings() == {}


async def test_commits_are_synchronous_whatever_the_database_says(cluster: Cluster) -> None:
    dsn = cluster.new_database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
    async with await PostgresLog.open(dsn) as log:
        for table in ("walstore_events", "walstore_settings"):
            _trigger(dsn, table, "current_setting('synchronous_commit') <> 'on'", "22000")
        await log.append(elements(2), NOW_MS)
        await log.put_setting("a", 1)


async def test_a_server_without_fsync_is_refused(cluster: Cluster, dsn: str) -> None:
    _execute(cluster.dsn, "ALTER SYSTEM SET fsync = off")
    try:
        await _reload(cluster, "off")
        with pytest.raises(LogError, match="fsync"):
            await PostgresLog.open(dsn)
    finally:
        _execute(cluster.dsn, "ALTER SYSTEM RESET fsync")
        await _reload(cluster, "on")
    async with await PostgresLog.open(dsn):
        pass


async def test_a_database_in_another_encoding_is_refused(cluster: Cluster) -> None:
    _execute(
        cluster.dsn,
        "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'",
    )
    with pytest.raises(LogError, match="LATIN1"):
        await PostgresLog.open(cluster.dsn_of("latin"))


# ── tables that are not what they should be ────────────────────────────────────────────


async def test_tables_of_a_newer_version_are_refused_and_left_alone(dsn: str) -> None:
    async with await PostgresLog.open(dsn) as log:
        await log.append(elements(2), NOW_MS)
    _execute(dsn, "UPDATE walstore_head SET version = 2")
    with pytest.raises(LogCorruptError, match="version 2"):
        await PostgresLog.open(dsn)
    _execute(dsn, "UPDATE walstore_head SET version = 1")
    async with await PostgresLog.open(dsn) as log:
        assert len(await _rows(log)) == 2


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE walstore_head (x integer)",
        "CREATE TABLE walstore_events (x integer)",
        "CREATE TABLE walstore_head (format text, version bigint, relay_id text)",
        "CREATE TABLE walstore_head AS SELECT 'x' AS format, 1 AS version, 'y' AS relay_id",
        "CREATE TABLE walstore_head (format integer, version text, relay_id text)",
    ],
)
async def test_tables_that_are_none_of_ours_are_refused_and_left_alone(
    dsn: str, table: LiteralString
) -> None:
    _execute(dsn, table)
    with pytest.raises(LogCorruptError, match="not a relay's"):
        await PostgresLog.open(dsn)
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        )
        assert found.fetchone() == (1,)


async def test_a_table_that_is_missing_is_damage(log: PostgresLog, dsn: str) -> None:
    _execute(dsn, "DROP TABLE walstore_events")
    with pytest.raises(LogCorruptError):
        await log.append([element("x")], NOW_MS)
    with pytest.raises(LogCorruptError):
        await _rows(log)


async def test_a_database_that_was_replaced_is_not_written_to(log: PostgresLog, dsn: str) -> None:
    await log.append([element("1")], NOW_MS)
    tables = ("head", "documents", "events", "readers", "grants", "records", "settings")
    _execute(dsn, "DROP TABLE " + ", ".join(f"walstore_{table}" for table in tables))
    async with await PostgresLog.open(dsn) as other:
        assert other.relay_id != log.relay_id
        with pytest.raises(LogCorruptError, match="another relay"):
            await log.append([element("x")], NOW_MS)
        assert await _rows(other) == []


@pytest.mark.parametrize(
    "change",
    [
        "payload = set_byte(payload, 3, 0)",
        "(payload, payload_checksum) ="
        " (SELECT payload, payload_checksum FROM walstore_events WHERE seq = 1)",
        "payload = NULL",
        "payload = ''",
        "author = 'somebody'",
        "signature = ''",
        "seq = 77",
        "ts = ts + 1000000",
        "previous_ts = 0",
        "is_deletion = true",
        "checksum = payload_checksum",
    ],
)
async def test_a_damaged_element_is_named_and_others_are_read(
    log: PostgresLog, dsn: str, change: str
) -> None:
    places = await log.append([*elements(3), *elements(2, "notes/b")], NOW_MS)
    _execute(dsn, f"UPDATE walstore_events SET {change} WHERE seq = 2")
    # Rows that are read by their place are told from a missing one; others say what they hold.
    ts = places[1].ts
    named = f"'notes/a' is damaged at ts ({ts}|{ts + 1_000_000})"
    with pytest.raises(LogCorruptError, match=named):
        await _rows(log)
    with pytest.raises(LogCorruptError, match=named):
        await _feed(log)
    with pytest.raises(LogCorruptError, match=named):
        await log.find([elements(3)[1].id], Filter())
    assert len(await _rows(log, "notes/b")) == 2
    page = await log.page("notes/a", 0, count_max=1, bytes_max=2**20)
    assert [row.ts for row in page.rows] == [places[0].ts]


@pytest.mark.parametrize("index", [0, 1, 2])
async def test_an_element_that_is_missing_is_noticed(
    log: PostgresLog, dsn: str, index: int
) -> None:
    places = await log.append(elements(3), NOW_MS)
    _execute(dsn, f"DELETE FROM walstore_events WHERE seq = {places[index].seq}")
    with pytest.raises(LogCorruptError, match=f"ts {places[index].ts}: that element is missing"):
        await _rows(log)


async def test_a_damaged_snapshot_is_named(log: PostgresLog, dsn: str) -> None:
    (place,) = await log.append([element("1")], NOW_MS)
    new = snapshot("s", None, place.ts, {"a": 1})
    await log.put_snapshot(new, NOW_MS)
    for change in ("payload = set_byte(payload, 3, 0)", "vc = '{\"a\":2}'"):
        _execute(dsn, f"UPDATE walstore_events SET {change} WHERE kind = 'snapshot'")
        for read in (log.snapshot("notes/a"), log.find([new.id], Filter())):
            with pytest.raises(LogCorruptError, match=f"'notes/a' is damaged at ts {place.ts}"):
                await read


async def test_what_lies_beyond_a_part_of_a_bootstrap_is_not_loaded(
    log: PostgresLog, dsn: str
) -> None:
    await _put_in_each(log, 4)
    _execute(dsn, "UPDATE walstore_events SET vc = '{}' WHERE seq IN (1, 4)")
    part = await log.bootstrap(Filter("notes/"), since=1, count_max=1)
    assert ([event.seq for event in part.events], part.is_more) == ([2], True)
    with pytest.raises(LogCorruptError):
        await log.bootstrap(Filter("notes/"))


async def test_the_event_loop_reads_nothing_of_what_snapshots_cover(log: PostgresLog) -> None:
    await _put_in_each(log, 3)
    called: set[str] = set()
    # It is told of the calls in this thread only.
    sys.setprofile(lambda frame, _event, _argument: called.add(frame.f_code.co_name))
    try:
        found = await log.bootstrap(Filter("notes/"))
    finally:
        sys.setprofile(None)
    assert len(found.events) == 3
    assert "read_head" in called
    assert called.isdisjoint({"read_bare_event", "undominated", "dominates"})


async def test_the_event_loop_reads_nothing_of_what_a_great_many_sessions_have_written(
    log: PostgresLog,
) -> None:
    await _put_beside_each_other(log, "notes/a", count=2)
    stored = await log.snapshot("notes/a")
    assert stored is not None
    called: set[str] = set()
    sys.setprofile(lambda frame, _event, _argument: called.add(frame.f_code.co_name))
    try:
        assert len(await log.snapshots("notes/a")) == 2
        assert await log.snapshot("notes/a") == stored
        assert len(await log.find([stored.revision], Filter())) == 1
        assert len((await log.feed(0, None, Filter(), count_max=9, bytes_max=2**30)).events) == 2
        newer = snapshot("newer", stored.revision, 0)
        assert isinstance(await log.put_snapshot(newer, NOW_MS), Accepted)
    finally:
        sys.setprofile(None)
    assert "read_head" in called
    assert "_read_vc" not in called


async def test_nobody_waits_while_it_is_compared_what_snapshots_cover(log: PostgresLog) -> None:
    await log.append([element("1", "other")], NOW_MS)
    await _put_beside_each_other(log, "notes/a", count=16)
    tasks = [asyncio.create_task(log.bootstrap(Filter())) for _ in range(5)]
    await asyncio.sleep(0)
    page = await log.page("other", 0, count_max=1, bytes_max=1)
    assert len(page.rows) == 1
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert len((await log.bootstrap(Filter())).events) == 16


async def test_comparing_may_take_longer_than_a_commit_may_stand_still(log: PostgresLog) -> None:
    async with log._comparing.take() as connection:
        shown = await connection.execute("SHOW idle_in_transaction_session_timeout")
        assert await shown.fetchone() == ("10min",)


async def test_what_snapshots_cover_is_held_of_few_documents_at_a_time(log: PostgresLog) -> None:
    peaks = []
    for count in (2, 8):
        documents = [f"notes/{count}/{number}" for number in range(count)]
        await _put_beside_each_other(log, *documents, count=16, sessions=2_000)
        tracemalloc.start()
        assert len((await log.bootstrap(Filter(f"notes/{count}/"))).events) == 16 * count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


async def test_what_a_line_of_snapshots_covers_is_not_held_together(log: PostgresLog) -> None:
    many = {f"writer {number:05}": 1 for number in range(5_000)}
    revision, peaks = None, []
    for number in range(1, 65):
        new = snapshot(str(number), revision, 0, {**many, "~": number})
        assert isinstance(await log.put_snapshot(new, NOW_MS), Accepted)
        revision = new.id
        if number in (16, 64):
            tracemalloc.start()
            assert len(await log.snapshots("notes/a")) == number
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


async def _put_beside_each_other(
    log: PostgresLog, *documents: str, count: int, sessions: int = 20_000
) -> None:
    """Snapshots of many sessions that nothing dominates, of each document in its turn."""
    many = {f"writer {number:05}": 1 for number in range(sessions)}
    revisions: dict[str, str] = {}
    for number in range(count):
        for document in documents:
            vc = {**many, f"~{number}": 1}
            new = snapshot(str(number), revisions.get(document), 0, vc, document)
            assert isinstance(await log.put_snapshot(new, NOW_MS), Accepted)
            revisions[document] = new.id


async def _put_in_each(log: PostgresLog, count: int) -> None:
    for number in range(count):
        new = snapshot("s", None, 0, {"a": 1}, document=f"notes/{number}")
        await log.put_snapshot(new, NOW_MS)


async def test_damage_of_what_places_are_made_from_stops_appends(
    log: PostgresLog, dsn: str
) -> None:
    await log.append(elements(3), NOW_MS)
    for table, column in (("head", "seq"), ("head", "min_seq"), ("documents", "head")):
        _execute(dsn, f"UPDATE walstore_{table} SET {column} = {column} - 1")
        with pytest.raises(LogCorruptError):
            await log.append([element("x")], NOW_MS)
        _execute(dsn, f"UPDATE walstore_{table} SET {column} = {column} + 1")
    (place,) = await log.append([element("x")], NOW_MS)
    assert (place.ts, place.seq) == (NOW_MS + 3, 4)


async def test_damaged_readers_grants_and_settings_are_not_believed(
    log: PostgresLog, dsn: str
) -> None:
    grant = {"v": 1, "prefix": "", "to": "t", "roles": ["read"], "by": "b", "at": 1}
    await log.put_grant(grant, NOW_MS)
    await log.put_setting("a", 1)
    _execute(dsn, "UPDATE walstore_settings SET value = '2'")
    _execute(dsn, "UPDATE walstore_grants SET body = replace(body::text, '72', '73')::bytea")
    with pytest.raises(LogCorruptError):
        await log.settings()
    with pytest.raises(LogCorruptError):
        await log.grants()


# ── odd callers ────────────────────────────────────────────────────────────────────────


async def test_a_filter_that_no_key_can_pass_finds_nothing(log: PostgresLog) -> None:
    new = elements(2)
    await log.append(new, NOW_MS)
    for wanted in (
        Filter(prefix="notes\0"),
        Filter(prefix="\0"),
        Filter(documents=frozenset({"notes/a\0"})),
        Filter(authors=frozenset({"\0"})),
        Filter(kinds=frozenset({"\0"})),
    ):
        page = await log.feed(0, None, wanted, count_max=9, bytes_max=2**20)
        assert (list(page.events), page.last_seq) == ([], 2)
        assert await log.find([new[0].id, "\0"], wanted) == []
        assert list((await log.bootstrap(wanted)).events) == []
    assert len(await log.find([new[0].id, "\0"], Filter())) == 1
    assert await log.documents("notes\0", count_max=9) == []


async def test_text_that_cannot_be_stored_is_an_error_and_stores_nothing(log: PostgresLog) -> None:
    for document in ("a\0b", "\ud800"):
        batch = [element("1"), element("2")._replace(document=document)]
        with pytest.raises(LogError):
            await log.append(batch, NOW_MS)
    assert await _feed(log) == []
    (place,) = await log.append([element("1")], NOW_MS)
    assert place.seq == 1


async def test_a_batch_of_the_largest_elements_is_one_step(log: PostgresLog, dsn: str) -> None:
    data = os.urandom(2**20)
    batch = [element(f"{n}", data=data) for n in range(40)]
    _trigger(dsn, "walstore_events", "NEW.seq = 40", "53100")
    with pytest.raises(LogError):
        await log.append(batch, NOW_MS)
    assert await _feed(log) == []
    _execute(dsn, "DROP TRIGGER refuse ON walstore_events")
    assert [place.seq for place in await log.append(batch, NOW_MS)] == list(range(1, 41))
    assert all(event.payload == data for event in await _feed(log))


async def test_an_append_that_is_cancelled_leaves_a_log_that_works(
    log: PostgresLog, dsn: str
) -> None:
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT 1 FROM walstore_head FOR UPDATE")
        appending = asyncio.ensure_future(log.append([element("x")], NOW_MS))
        await _blocked(dsn)
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
    (place,) = await log.append([element("y")], NOW_MS)
    assert (place.seq, len(await _rows(log))) == (1, 1)


async def test_closing_waits_for_what_was_begun_and_refuses_the_rest(dsn: str) -> None:
    log = await PostgresLog.open(dsn)
    begun = [asyncio.ensure_future(log.append([element(f"{n}")], NOW_MS)) for n in range(5)]
    await asyncio.sleep(0)
    await log.aclose()
    assert all(append.done() for append in begun)
    assert [place.seq for (place,) in await asyncio.gather(*begun)] == [1, 2, 3, 4, 5]
    for call in (log.append([element("x")], NOW_MS), _rows(log), log.put_setting("a", 1)):
        with pytest.raises(LogError, match="closed"):
            await call
    await log.aclose()
    left = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'walstore-relay'"
    )
    async with asyncio.timeout(_WAIT_S_MAX):
        with psycopg.connect(dsn, autocommit=True) as connection:
            while connection.execute(left).fetchone() != (0,):
                await asyncio.sleep(0)


# ── in one line ────────────────────────────────────────────────────────────────────────


async def _rows(log: RelayLog, document: str = "notes/a", after: int = 0) -> Sequence[Row]:
    return (await log.page(document, after, count_max=10_000, bytes_max=2**30)).rows


async def _feed(log: RelayLog) -> list[Event]:
    page = await log.feed(0, None, Filter(), count_max=10_000, bytes_max=2**30)
    return list(page.events)


async def _append_until_it_works(log: RelayLog, new: list[NewElement]) -> Accepted:
    async with asyncio.timeout(_WAIT_S_MAX):
        while True:
            try:
                (place,) = await log.append(new, NOW_MS)
                return place
            except LogError:
                await asyncio.sleep(0.01)


def _assert_rising(numbers: Sequence[int]) -> None:
    assert all(left < right for left, right in pairwise(numbers))


def _through(proxy: Proxy, cluster: Cluster, dsn: str) -> str:
    return dsn.replace(str(cluster.directory), str(proxy.directory))


def _execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def _trigger(dsn: str, table: str, condition: str, code: str) -> None:
    """Makes the server refuse every new row of a table with an error of its own."""
    _execute(
        dsn,
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF {condition} THEN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END IF;"
        " RETURN NEW; END $$",
    )
    _execute(
        dsn,
        f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW"
        " EXECUTE FUNCTION refuse()",
    )


def _terminate(dsn: str, condition: str) -> int:
    """Ends the connections of a database that a condition picks, and returns how many."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            f" AND application_name = 'walstore-relay' AND ({condition})".encode()
        )
        return len(ended.fetchall())


async def _blocked(dsn: str) -> int:
    """The process of the server in which a log waits for a lock."""
    waiting = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'walstore-relay' AND wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(_WAIT_S_MAX):
        with psycopg.connect(dsn, autocommit=True) as connection:
            while (row := connection.execute(waiting).fetchone()) is None:
                await asyncio.sleep(0)
    return int(row[0])


async def _reload(cluster: Cluster, fsync: str) -> None:
    _execute(cluster.dsn, "SELECT pg_reload_conf()")
    async with asyncio.timeout(_WAIT_S_MAX):
        while True:
            with psycopg.connect(cluster.dsn) as connection:
                if connection.execute("SHOW fsync").fetchone() == (fsync,):
                    return
            await asyncio.sleep(0)
