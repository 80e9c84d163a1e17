"""The editor in a browser: `--serve` runs one for each page, and all are at one document."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from examples.textual_editor.relays import running_relay
from examples.textual_editor.sessions import Session
from tests.browser import find_browser, new_tab, running_browser
from tests.stores import free_port, until
from walstore import Identity

pytest.importorskip("textual_serve", reason="textual-serve is not installed: pip install '.[dev]'")

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 60
_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;?$]*[a-zA-Z]|\][^\x07]*\x07)")


class Served(NamedTuple):
    """Where the editor is, and the relay that all of them are at."""

    port: int
    relay: str
    process: asyncio.subprocess.Process

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    port = free_port()
    with running_relay() as relay:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "examples.textual_editor", "--serve"),
            *("--port", str(port), "--relay", relay),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert b"Ctrl+C" in await process.stdout.readline()
                # It says so just before it listens.
                while not await is_listened_to(port):
                    assert process.returncode is None
            yield Served(port, relay, process)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def is_listened_to(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@asynccontextmanager
async def page(served: Served, origin: str | None = None) -> AsyncIterator[ClientConnection]:
    """What a page does: open a terminal of a size, and take what is drawn."""
    url = f"ws://127.0.0.1:{served.port}/ws?width=90&height=20"
    async with connect(url, origin=origin or served.origin, max_size=None) as socket:  # type: ignore[arg-type]
        await shows(socket, "live")
        # The keys are for an editor only once it is looked at.
        await socket.send(json.dumps(["focus"]))
        yield socket


async def shows(socket: ClientConnection, text: str) -> None:
    """Return once something was drawn; its rows are drawn as a whole."""
    drawn = b""
    async with asyncio.timeout(PATIENCE_S):
        while text.encode() not in _ESCAPES.sub(b"", drawn):
            said = await socket.recv()
            drawn += said if isinstance(said, bytes) else b""


async def send(socket: ClientConnection, text: str) -> None:
    await socket.send(json.dumps(["stdin", text]))


async def test_what_is_typed_in_one_page_shows_in_the_other() -> None:
    async with serving() as served, page(served) as left, page(served) as right:
        await send(left, "\x1b[200~written in a browser\x1b[201~")
        await shows(right, "written in a browser")
        # Another document takes its place; the page stays.
        await send(right, "\x1bOS")
        await shows(right, "Open another document")
        await send(right, "notes/other")
        await shows(right, "notes/other")
        await send(right, "\r")
        await shows(right, "Write here.")
        await send(right, "\x1b[200~elsewhere\x1b[201~")
        await shows(right, "elsewhere")
        await left.send(json.dumps(["resize", {"width": 40, "height": 10}]))
        await shows(left, "written in a browser")


async def test_a_page_from_elsewhere_gets_no_editor() -> None:
    async with serving() as served:
        with pytest.raises(InvalidStatus) as refused:
            async with page(served, "http://elsewhere.example"):
                pass
        assert refused.value.response.status_code == 403


async def test_it_ends_with_its_editors_when_it_is_told_to() -> None:
    async with serving() as served, page(served) as left:
        served.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            async for _ in left:
                pass
            assert await served.process.wait() == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine; install one, or name it in CHROMIUM")
    with running_browser(program) as address:
        yield address


async def test_a_real_browser_writes_and_loads_nothing_from_elsewhere(browser: str) -> None:
    async with serving() as served:
        session = Session("notes/demo", "Ada", Identity.generate(), relay=served.relay)
        async with session.store() as store, new_tab(browser) as tab:
            await tab.open(served.origin + "/")
            await tab.until("document.body?.classList.contains('-first-byte')")
            # It is somebody of its own, whom the others see.
            come = asyncio.Event()
            store.presence.subscribe(lambda _: come.set())
            async with asyncio.timeout(PATIENCE_S):
                while not store.presence.others():
                    come.clear()
                    await come.wait()
            await tab.evaluate("document.querySelector('textarea').focus()")
            await tab.type("grüße 日本")
            await until([store], lambda: store.text("body") == "grüße 日本")
            assert tab.faults == []
            assert {url.partition("/static")[0] for url in tab.requested} <= {
                served.origin,
                served.origin + "/",
            }
