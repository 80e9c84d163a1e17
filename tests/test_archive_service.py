"""`walstore archive run`, a real process at a real relay: what it answers and what it outlasts."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.archive_process import World, until, writing
from tests.relay_process import Forker, forking
from walstore.archive.checking import check_archive
from walstore.archive.sink import read_event
from walstore.cli.main import FAILED, NO_NETWORK, main

METRICS = (
    'artifacts_written_total{kind="snapshot",table="notes"} 1.0',
    'diff_bytes{table="notes"}',
    'churn_records{table="notes"}',
    'snapshot_age_seconds{table="notes"}',
    'buffer_depth{table="notes"} 0.0',
    'manifest_head_position{table="notes"} 3.0',
    'source_position{table="notes"} 3.0',
    'manifest_cas_retries_total{table="notes"} 0.0',
    'diffs_since_snapshot{table="notes"} 1.0',
    'epoch{table="notes"} 1.0',
    'ready{table="notes"} 1.0',
)


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    with forking(tmp_path_factory.mktemp("forker")) as forker:
        yield forker


@pytest.fixture
def world(forker: Forker, tmp_path: Path) -> World:
    return World(forker, tmp_path)


async def start_relay(world: World, *flags: str, name: str = "relay.db") -> tuple[int, str]:
    relay = await world.forker.start("--database", str(world.directory / name), *flags)
    return relay.number, relay.url


# ── while it runs ──────────────────────────────────────────────────────────────────────────


async def test_it_tells_how_it_is_and_writes_bases_when_asked(world: World) -> None:
    _, url = await start_relay(world)
    world.configure(url, "notes")
    async with writing(url) as write:
        await write("notes/a", "one ")
        await write("notes/b", "two ")
        archive = await world.run()
        assert (await archive.ask("GET", "/health/live")).status == 200
        await archive.ready()
        await write("notes/a", "three ")

        async def has_written() -> bool:
            return bool((await archive.status())["head_position"] == "3")

        await until(has_written)
    status = await archive.status()
    assert status["last_snapshot_at"] < status["last_diff_at"]
    assert {
        name: status[name] for name in ("table", "mode", "epoch", "source_position", "rows")
    } == {
        "table": "notes",
        "mode": "sealed",
        "epoch": 1,
        "source_position": "3",
        "rows": 3,
    }
    assert (status["buffer_depth"], status["churn_records"], status["reason"]) == (0, 1, None)
    metrics = (await archive.ask("GET", "/metrics")).content
    for name in METRICS:
        assert f"walstore_archive_{name}" in metrics
    for name in ("destination_errors", "event_errors"):
        assert f"# TYPE walstore_archive_{name}_total counter" in metrics

    told = await archive.ask("POST", "/snapshot")
    assert (told.status, told.content) == (200, {"notes": {"written": True}})
    assert (await archive.status())["epoch"] == 2
    assert await archive.stop() == 0
    events = [
        read_event(line) for line in (world.directory / "events.jsonl").read_bytes().splitlines()
    ]
    assert [(each.kind.value, each.epoch, each.to_position) for each in events] == [
        ("snapshot", 1, 2),
        ("diff", 1, 3),
        ("snapshot", 2, 3),
    ]
    assert all(Path(urlsplit(each.manifest_uri).path).exists() for each in events)


async def test_what_is_not_understood_is_refused_and_the_next_one_answered(world: World) -> None:
    _, url = await start_relay(world)
    world.configure(url, "notes")
    archive = await world.run()
    for method, path, status, allow in (
        ("GET", "/snapshot", 405, "POST"),
        ("POST", "/status", 405, "GET"),
        ("DELETE", "/metrics", 405, "GET"),
        ("GET", "/nowhere", 404, None),
        ("HEAD", "/health/live", 200, None),
        ("GET", "/health/live?verbose=1", 200, None),
    ):
        answered = await archive.ask(method, path)
        assert (answered.status, answered.headers.get("allow")) == (status, allow)
    port = urlsplit(archive.url).port
    for sent, begins in (
        (b"\x00\xff\x16\x03\x01 nonsense\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 100_000, b"HTTP/1.1 431"),
        (
            b"POST /snapshot HTTP/1.1\r\nhost: a\r\ncontent-length: 9000000\r\n\r\n"
            + b"y" * 90_000,
            b"HTTP/1.1 413",
        ),
        (b"GET /status HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await reader.readline()).startswith(begins)
        writer.close()
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
    assert (await archive.ask("GET", "/status")).status == 200
    for each in silent:
        each.close()
    assert await archive.stop() == 0
    assert "Traceback" not in world.forker.errors()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
async def test_the_signal_to_end_writes_what_is_left(world: World, by: signal.Signals) -> None:
    _, url = await start_relay(world)
    world.configure(url, "notes", interval="1h")
    async with writing(url) as write:
        await write("notes/a", "one ")
        archive = await world.run()
        # The first base does not wait for the interval.
        await archive.ready()
        await write("notes/a", "two ")

        async def has_read() -> bool:
            return bool((await archive.status())["source_position"] == "2")

        await until(has_read)
    assert (await archive.status())["head_position"] == "1"
    assert await archive.stop(by) == 0
    assert [row["seq"] for row in await world.rows("notes")] == [1, 2]


async def test_an_empty_relay_is_archived_too(world: World) -> None:
    _, url = await start_relay(world)
    world.configure(url, "notes", mode="folded")
    archive = await world.run()
    await archive.ready()
    assert (await archive.ask("POST", "/snapshot")).status == 200
    assert await archive.stop() == 0
    assert await world.rows("notes") == []


async def test_what_is_left_of_killed_writers_is_removed_once_it_is_old(world: World) -> None:
    _, url = await start_relay(world)
    world.configure(url, "notes")
    archive = await world.run()
    await archive.ready()
    old, young = [world.directory / f"out/notes/epoch=1/diff-1-{to}.jsonl" for to in (2, 3)]
    for each in (old, young):
        each.write_text("{}\n")
    os.utime(old, (1, 1))
    assert (await archive.ask("POST", "/snapshot")).status == 200

    async def is_gone() -> bool:
        return not old.exists()

    await until(is_gone)
    assert young.exists()
    assert await archive.stop() == 0


# ── what it waits for ──────────────────────────────────────────────────────────────────────


async def test_a_relay_that_is_down_is_waited_for(world: World) -> None:
    number, url = await start_relay(world)
    async with writing(url) as write:
        await write("notes/a", "one ")
    world.forker.kill(number)
    world.configure(url, "notes")
    archive = await world.run()

    async def has_tried() -> bool:
        waiting = (await archive.ask("GET", "/health/ready")).content["waiting"]
        return "offline" in waiting["notes"]

    await until(has_tried)
    assert (await archive.ask("GET", "/health/live")).status == 200
    assert (await archive.ask("GET", "/health/ready")).status == 503
    told = await archive.ask("POST", "/snapshot")
    assert (told.status, told.content["notes"]["written"]) == (500, False)
    assert "offline" in told.content["notes"]["error"]

    _, again = await start_relay(world, "--port", str(urlsplit(url).port))
    assert again == url
    await archive.ready()
    assert (await archive.ask("POST", "/snapshot")).status == 200
    assert await archive.stop() == 0
    assert len(await world.rows("notes")) == 1


async def test_it_can_be_ended_while_it_waits_for_the_relay(world: World) -> None:
    number, url = await start_relay(world)
    world.forker.kill(number)
    world.configure(url, "notes")
    archive = await world.run()
    assert (await archive.ask("GET", "/health/ready")).status == 503
    assert await archive.stop() == 0


@pytest.mark.parametrize("is_readable", [True, False])
async def test_a_destination_that_fails_is_waited_for_and_counted(
    world: World, is_readable: bool
) -> None:
    _, url = await start_relay(world)
    world.configure(url, "notes")
    if is_readable:
        (world.directory / "out").write_text("a file, where a directory should be")
    else:
        (world.directory / "out").mkdir()
        (world.directory / "out/notes").symlink_to("notes")
    async with writing(url) as write:
        await write("notes/a", "one ")
    archive = await world.run()

    async def is_counted() -> bool:
        metrics = (await archive.ask("GET", "/metrics")).content
        return "walstore_archive_destination_errors_total{" in metrics

    await until(is_counted)
    assert (await archive.ask("GET", "/health/ready")).status == 503
    assert "out" in (await archive.status())["reason"]
    told = await archive.ask("POST", "/snapshot")
    assert (told.status, told.content["notes"]["written"]) == (500, False)
    (world.directory / "out").rename(world.directory / "away")
    await archive.ready()
    assert await archive.stop() == 0
    assert len(await world.rows("notes")) == 1


async def test_once_does_not_wait(world: World) -> None:
    number, url = await start_relay(world)
    world.forker.kill(number)
    world.configure(url, "notes")
    assert await world.run_once() == (NO_NETWORK, "")
    assert world.forker.errors().splitlines()[-1].startswith("walstore archive: offline: ")


# ── what ends it ───────────────────────────────────────────────────────────────────────────


async def test_a_table_that_cannot_go_on_does_not_hold_up_the_others(world: World) -> None:
    _, there = await start_relay(world, name="there.db")
    _, here = await start_relay(world, name="here.db")
    for url in (there, here):
        async with writing(url) as write:
            await write("notes/a", "one ")
            await write("tasks/a", "one ")
    world.configure(there, "notes")
    assert (await world.run_once())[0] == 0
    world.configure(here, "notes", "tasks")
    archive = await world.run()

    async def is_archived() -> bool:
        tables = (await archive.ask("GET", "/status")).content["tables"]
        return [bool(each["ready"]) for each in tables] == [False, True] and bool(
            tables[0]["reason"]
        )

    await until(is_archived)
    ready = await archive.ask("GET", "/health/ready")
    assert ready.status == 503
    assert list(ready.content["waiting"]) == ["notes"]
    assert "source" in ready.content["waiting"]["notes"]
    told = await archive.ask("POST", "/snapshot")
    assert told.status == 207
    assert {name: each["written"] for name, each in told.content.items()} == {
        "notes": False,
        "tasks": True,
    }
    async with writing(here) as write:
        await write("tasks/a", "two ")

        async def has_written() -> bool:
            return len(await world.rows("tasks")) == 2

        await until(has_written)
    assert await archive.stop() == 1
    assert len(await world.rows("notes")) == 1


async def test_once_archives_all_tables_but_the_one_that_cannot_be(world: World) -> None:
    _, url = await start_relay(world)
    async with writing(url) as write:
        await write("tasks/a", "one ")
    world.configure(url, "notes", "tasks")
    (world.directory / "out/notes").mkdir(parents=True)
    (world.directory / "out/notes/manifest.json").write_text("nonsense")
    code, said = await world.run_once()
    assert code == 1
    assert said.startswith("tasks\t")
    assert len(await world.rows("tasks")) == 1
    assert "notes: malformed manifest" in world.forker.errors()


async def test_a_sink_that_cannot_be_told_is_said_and_counted(world: World) -> None:
    _, url = await start_relay(world)
    world.configure(url, "notes")
    (world.directory / "events.jsonl").write_text("somebody's diary")
    archive = await world.run()
    await archive.ready()

    async def is_counted() -> bool:
        metrics = (await archive.ask("GET", "/metrics")).content
        return 'walstore_archive_event_errors_total{sink="jsonl"} 1.0' in metrics

    await until(is_counted)
    assert (await archive.ask("GET", "/status")).content["sinks"]["jsonl"]["dropped"] == 1
    assert await archive.stop() == 0
    assert "does not end with a line of events" in world.forker.errors()
    assert (world.directory / "events.jsonl").read_text() == "somebody's diary"


async def test_it_ends_by_itself_when_no_table_can_go_on(world: World) -> None:
    _, there = await start_relay(world, name="there.db")
    _, here = await start_relay(world, name="here.db")
    world.configure(there, "notes")
    assert (await world.run_once())[0] == 0
    world.configure(here, "notes")
    assert await (await world.run()).ended() == 1
    assert "use another archive.key_prefix" in world.forker.errors()


async def test_a_relay_that_was_rolled_back_is_said_to_be(world: World) -> None:
    number, url = await start_relay(world)
    async with writing(url) as write:
        await write("notes/a", "one ")
        world.forker.kill(number)
    shutil.copytree(world.directory, world.directory / "copy")
    number, url = await start_relay(world)
    async with writing(url) as write:
        await write("notes/a", "two ")
    world.configure(url, "notes")
    assert (await world.run_once())[0] == 0
    world.forker.kill(number)
    for each in (world.directory / "copy").glob("relay.db*"):
        shutil.copy(each, world.directory)
    _, url = await start_relay(world)
    world.configure(url, "notes")
    assert await (await world.run()).ended() == 1
    assert "the log was rolled back: it ends at 1, before 2" in world.forker.errors()
    assert [row["seq"] for row in await world.rows("notes")] == [1, 2]


@pytest.mark.parametrize("mode", ["sealed", "folded"])
async def test_two_at_once_lose_nothing_and_double_nothing(world: World, mode: str) -> None:
    _, url = await start_relay(world)
    # What one of them reads is often dropped by the other.
    more = "[snapshot]\nmax_churn_records = 5\n[retention]\nkeep_epochs = 1\n"
    world.configure(url, "notes", mode=mode, interval="5ms", more=more)
    async with writing(url) as write:
        await write("notes/a", "0 ")
        both = [await world.run(), await world.run()]
        for each in both:
            await each.ready()
        for number in range(1, 120):
            await write(f"notes/{number % 7}", f"{number} ")
        last = [await each.stop() for each in both]
    assert last == [0, 0]
    assert (await world.run_once())[0] == 0
    rows = await world.rows("notes")
    if mode == "sealed":
        assert sorted(int(str(row["seq"])) for row in rows) == list(range(1, 121))
    else:
        shown = [(row["document"], row["elements"], row["rejected"], row["value"]) for row in rows]
        assert sum(int(str(row["elements"])) for row in rows) == 120, shown
        assert {row["rejected"] for row in rows} == {0}
    checked = await check_archive(world.archive("notes"))
    assert checked.flaws == []


# ── what it says at the start ──────────────────────────────────────────────────────────────


async def test_sizes_that_cannot_be_compared_are_warned_of(world: World) -> None:
    _, url = await start_relay(world)
    more = '[snapshot]\nmax_diff_fraction = 0.5\n[formats]\nsnapshot = ["protobuf"]\n'
    world.configure(url, "notes", more=more)
    assert (await world.run_once())[0] == 0
    assert "warning snapshot.max_diff_fraction compares diffs in jsonl" in world.forker.errors()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--set", "archive.moed=folded"), "archive.moed is unknown"),
        (("--set", "snapshot.max_interval=5 minutes"), "snapshot.max_interval is '5 minutes'"),
        (("--set", "source.identity=nowhere.key"), "nowhere.key"),
        (("--config", "nowhere.toml"), "nowhere.toml: cannot be read"),
        (("--set", "archive.mode=folded"), "source.identity is missing"),
        (("--set", "source.relay=http://here"), "http://here"),
        (("--set", "report.relay=ws://far.example"), "report.token_file is missing"),
        (
            ("--set", "report.relay=ws://far.example", "--set", "report.token_file=token"),
            "ws://far.example would carry the admin token in the clear",
        ),
        (("--set", "report.token_file=nowhere"), "report.token_file cannot be used"),
    ],
)
def test_a_mistake_is_named_in_one_line(
    tmp_path: Path,
    flags: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in os.environ if each.startswith("WALSTORE")]:
        monkeypatch.delenv(name)
    config = tmp_path / "archive.toml"
    config.write_text(
        '[source]\nrelay = "ws://127.0.0.1:1"\n[archive]\ntable = "notes"\nmode = "sealed"\n'
        '[[destinations]]\nurl = "out"\n'
    )
    assert main(["archive", "run", "--once", "--config", str(config), *flags]) in (1, 2)
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith("walstore archive: ")
    assert message in line
    assert shown.out == ""


async def test_a_port_that_is_taken_is_named(world: World) -> None:
    world.configure("ws://127.0.0.1:1", "notes")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        number, output = world.forker.fork(
            "archive",
            "run",
            "--config",
            str(world.directory / "archive.toml"),
            "--set",
            f"http.port={port}",
        )
        with output:
            assert await asyncio.to_thread(output.read) == ""
        assert world.forker.kill(number) in (FAILED, NO_NETWORK)
    assert f"port {port}" in world.forker.errors().splitlines()[-1]
