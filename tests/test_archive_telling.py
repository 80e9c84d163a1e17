"""Who is told of what `walstore archive run` has committed, whenever it is killed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.archive_process import WRITER, World, until, writing
from tests.relay_process import Forker, forking
from tests.webhook_server import Server
from walstore.archive.sink import CommitEvent, read_event
from walstore.cli.admin_client import ask_relay
from walstore.document import ALLOW_ANY, WalDocument
from walstore.net.websocket import WebSocketTransport


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    with forking(tmp_path_factory.mktemp("forker")) as forker:
        yield forker


@pytest.fixture
def world(forker: Forker, tmp_path: Path) -> World:
    return World(forker, tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


async def test_a_commit_is_told_by_the_next_if_its_writer_is_killed_before(
    world: World, server: Server
) -> None:
    write_secret(world.directory / "secret", "a secret of both sides")
    hook = f'[[events]]\ntype = "webhook"\nurl = "{server.url}"\nsecret_file = "secret"\n'
    relay = await world.forker.start("--database", str(world.directory / "relay.db"))
    world.configure(relay.url, "notes", more=hook)
    # Nobody is there to hear of it.
    server.answers += [(503, {})] * 1000
    async with writing(relay.url) as write:
        await write("notes/a", "one ")
        archive = await world.run()
        await archive.ready()
        with archive.output:
            world.forker.kill(archive.number)
        head = (await world.archive("notes").manifest()).artifacts[-1]
        server.calls.clear()
        server.answers.clear()

        archive = await world.run()

        async def is_told() -> bool:
            return bool(server.calls)

        await until(is_told)
        again = read_event(server.calls[0][2])
        assert (again.epoch, again.to_position) == (head.epoch, head.to_position)
        assert again.created_ms == head.created_ms

        await write("notes/a", "two ")

        async def is_told_of_the_next() -> bool:
            return len(server.calls) == 2

        await until(is_told_of_the_next)
        assert await archive.stop() == 0
    assert await world.run_once() == (0, "notes\tnothing new\n")
    told = [read_event(body) for _, _, body in server.calls]
    assert [each.to_position for each in told] == [1, 2, 2]
    # Whoever hears of it twice can tell.
    assert told[1].id == told[2].id
    # A file says it once.
    assert [each.to_position for each in _lines(world.directory / "events.jsonl")] == [1, 2]


TOKEN = "a-token-of-the-operator"

RELAY = """
[relay]
admin_token_file = "token"

[retention]
require_archive = true
log_mode = "compact_below_snapshot"
retain_tail_n = 0
replay_window = 1
"""


class Relay:
    """A relay that lets go of what is archived, and documents on it."""

    def __init__(self, url: str, transport: WebSocketTransport) -> None:
        self.url, self._transport = url, transport
        self._documents: dict[str, WalDocument] = {}

    async def write(self, key: str, count: int) -> None:
        """Write to a document, and snapshot it: but for the archive, all of it might go."""
        if key not in self._documents:
            self._documents[key] = await WalDocument(
                key,
                transport=self._transport,
                snapshot_store=self._transport,
                identity=WRITER,
                writers=ALLOW_ANY,
                snapshot_role=ALLOW_ANY,
            ).open()
        document = self._documents[key]
        for _ in range(count):
            document.insert_text("body", 0, "word ")
            await document.commit()
        await document.pull()
        await document.snapshot()

    def ask(self, method: str, path: str) -> dict[str, Any]:
        """Ask it as its operator."""
        return ask_relay(self.url, method=method, path=path, token=TOKEN)

    def compact(self) -> int:
        """Let it let go of what it may; how many elements went."""
        removed: int = self.ask("POST", "/admin/compact")["removed"]["elements"]
        return removed

    def archives(self) -> dict[str, int]:
        """How far the archives have come, by name."""
        found = self.ask("GET", "/admin/archives")["archives"]
        return {each["archive"]: int(each["position"]) for each in found}


@pytest.fixture
async def relay(world: World) -> AsyncIterator[Relay]:
    write_secret(world.directory / "token", TOKEN)
    config = world.directory / "relay.toml"
    config.write_text(RELAY)
    database = str(world.directory / "relay.db")
    started = await world.forker.start("--database", database, "--config", str(config))
    async with WebSocketTransport(started.url, identity=WRITER) as transport:
        yield Relay(started.url, transport)


async def test_a_relay_lets_go_of_what_is_archived_and_of_nothing_else(
    world: World, relay: Relay
) -> None:
    await relay.write("notes/a", 5)
    await relay.write("other/b", 5)
    assert relay.compact() == 0
    world.configure(relay.url, "notes", more='[report]\ntoken_file = "token"\n')
    assert (await world.run_once())[0] == 0
    # Five elements, and the snapshot.
    assert relay.archives() == {"notes": 6}
    assert relay.compact() == 5

    await relay.write("notes/a", 3)
    assert relay.compact() == 0
    archive = await world.run()

    async def has_told() -> bool:
        return relay.archives()["notes"] > 12

    await until(has_told)
    assert await archive.stop() == 0
    assert relay.compact() == 3
    # The other one is in no archive, and whatever is gone is in this one.
    elements = [row for row in await world.rows("notes") if row["kind"] == "element"]
    assert len(elements) == 8
    assert all(row["data"] for row in elements)

    relay.ask("DELETE", "/admin/archives?archive=notes")
    await relay.write("notes/a", 2)
    assert relay.compact() == 0


async def test_the_archive_of_a_database_tells_the_relay_beside_it(
    world: World, relay: Relay
) -> None:
    await relay.write("notes/a", 5)
    more = f'[report]\nrelay = "{relay.url}"\ntoken_file = "token"\nname = "cellar"\n'
    world.configure(relay.url, "notes", more=more)
    config = world.directory / "archive.toml"
    config.write_text(
        config.read_text().replace(f'relay = "{relay.url}"', 'database = "relay.db"', 1)
    )
    assert (await world.run_once())[0] == 0
    assert relay.archives() == {"cellar/notes": 6}
    assert relay.compact() == 5


async def test_a_relay_that_does_not_listen_holds_nothing_up(world: World, relay: Relay) -> None:
    await relay.write("notes/a", 2)
    write_secret(world.directory / "wrong", TOKEN + "?")
    world.configure(relay.url, "notes", more='[report]\ntoken_file = "wrong"\n')
    assert (await world.run_once())[0] == 0
    assert len(await world.rows("notes")) == 3
    assert "does not hear" in world.forker.errors()
    assert relay.archives() == {}


def write_secret(path: Path, text: str) -> None:
    """Write a file that nobody else can read."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)


def _lines(path: Path) -> list[CommitEvent]:
    return [read_event(line) for line in path.read_bytes().splitlines()]
