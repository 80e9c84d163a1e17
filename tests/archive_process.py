"""`walstore archive …` in processes of its own, and documents for it to archive."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from tests.relay_process import START_S_MAX, Forker
from walstore.archive.local import LocalDestination
from walstore.archive.reader import Archive
from walstore.archive.rows import Row
from walstore.document import ALLOW_ANY, WalDocument
from walstore.net.websocket import WebSocketTransport
from walstore.signed import Identity

WRITER = Identity.from_seed(bytes([1]) * 32)
ARCHIVE = Identity.from_seed(bytes([9]) * 32)
WAIT_S = 60.0

CONFIG = """
[source]
relay = "{url}"
identity = "archive.key"

[archive]
mode = "{mode}"

[diff]
interval = "{interval}"

[[destinations]]
url = "out"

[[events]]
type = "jsonl"
path = "events.jsonl"

[http]
port = 0

{tables}
"""


class Answered(NamedTuple):
    """What was answered to a request."""

    status: int
    content: Any
    headers: dict[str, str]


@dataclass
class Running:
    """An archive that runs."""

    forker: Forker
    number: int
    output: IO[str]
    url: str

    async def ask(self, method: str, path: str) -> Answered:
        """Ask it something over HTTP."""
        return await asyncio.to_thread(ask, self.url, method, path)

    async def ready(self) -> None:
        """Wait until it is ready."""

        async def is_ready() -> bool:
            return (await self.ask("GET", "/health/ready")).status == 200

        await until(is_ready)

    async def status(self) -> dict[str, Any]:
        """What it says of its first table."""
        found: dict[str, Any] = (await self.ask("GET", "/status")).content["tables"][0]
        return found

    async def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        os.kill(self.number, by)
        return await self.ended()

    async def ended(self) -> int:
        """Wait until it has ended; its exit code."""
        with self.output:
            await asyncio.wait_for(asyncio.to_thread(self.output.read), WAIT_S)
        return self.forker.kill(self.number)


@dataclass
class World:
    """A directory with a configuration, and whoever starts what is in it."""

    forker: Forker
    directory: Path
    documents: dict[str, WalDocument] = field(default_factory=dict)

    def configure(
        self,
        url: str,
        *tables: str,
        mode: str = "sealed",
        interval: str = "20ms",
        more: str = "",
    ) -> None:
        """Archive the documents of tables, which have their names as prefixes."""
        ARCHIVE.save(self.directory / "archive.key", overwrite=True)
        lines = [f'[[tables]]\ntable = "{each}"\nprefix = "{each}/"\n' for each in tables]
        text = CONFIG.format(url=url, mode=mode, interval=interval, tables="\n".join(lines))
        (self.directory / "archive.toml").write_text(text + more)

    async def run(self, *flags: str) -> Running:
        """Run `walstore archive run`, until it says where it answers."""
        number, output = self.forker.fork(*self._command, *flags)
        line = await asyncio.wait_for(asyncio.to_thread(output.readline), START_S_MAX)
        assert line, f"it did not start:\n{self.forker.errors()}"
        return Running(self.forker, number, output, line.strip())

    async def run_once(self, *flags: str) -> tuple[int, str]:
        """Run `walstore archive run --once`; its exit code, and what it says."""
        return await self.command(*self._command, "--once", *flags)

    async def command(self, *arguments: str) -> tuple[int, str]:
        """Run `walstore …` until it ends; its exit code, and what it says."""
        number, output = self.forker.fork(*arguments)
        with output:
            said = await asyncio.wait_for(asyncio.to_thread(output.read), WAIT_S)
        return self.forker.kill(number), said

    @property
    def _command(self) -> tuple[str, ...]:
        config = str(self.directory / "archive.toml")
        return "archive", "run", "--log-level", "warning", "--config", config

    def archive(self, table: str) -> Archive:
        """The archive of a table."""
        return Archive(LocalDestination(self.directory / "out"), f"{table}/")

    async def rows(self, table: str) -> list[Row]:
        """What is in it."""
        return [row async for row in self.archive(table).rows()]


@asynccontextmanager
async def writing(url: str) -> AsyncIterator[Callable[[str, str], Awaitable[None]]]:
    """Write words to documents at a relay: `await write("notes/a", "word")`."""
    async with WebSocketTransport(url, identity=WRITER) as transport:
        documents: dict[str, WalDocument] = {}

        async def write(key: str, word: str) -> None:
            if key not in documents:
                documents[key] = await WalDocument(
                    key,
                    transport=transport,
                    snapshot_store=transport,
                    identity=WRITER,
                    writers=ALLOW_ANY,
                    snapshot_role=ALLOW_ANY,
                ).open()
            documents[key].insert_text("body", 0, word)
            await documents[key].commit()

        yield write


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(WAIT_S):
        while not await condition():
            await asyncio.sleep(0.01)


def ask(url: str, method: str, path: str) -> Answered:
    """Ask somebody something over HTTP."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=WAIT_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body, headers = response.read(), {k.lower(): v for k, v in response.getheaders()}
        is_json = body and headers.get("content-type") == "application/json"
        return Answered(response.status, json.loads(body) if is_json else body.decode(), headers)
    finally:
        connection.close()
