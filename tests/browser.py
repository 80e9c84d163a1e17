"""A real, headless Chromium, driven through its own debugging protocol.

- `CHROMIUM` in the environment names the program; otherwise the usual names are looked for.
- Each `Tab` is a context of its own: nothing is shared with the others, nothing is kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ADDRESS = re.compile(rb"DevTools listening on (ws://\S+)")
_WAIT_MS = 15_000


def find_browser() -> str | None:
    """The program, or None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def running_browser(program: str) -> Iterator[str]:
    """Run a browser for the length of a block; yields where it can be told what to do."""
    # Its helpers may still write there when it ends; what they leave is the system's to clean up.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            program,
            "--headless=new",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            # As root there is no sandbox; the pages are our own.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "about:blank",
        ]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := _ADDRESS.search(line):
                    yield found[1].decode()
                    return
            raise RuntimeError("the browser did not start")
        finally:
            process.terminate()
            process.wait(10)
            if process.stderr is not None:
                process.stderr.close()


class Tab:
    """One page in the browser, and what has happened in it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: str | None = None
        self.requested: list[str] = []
        self.faults: list[str] = []

    async def open(self, url: str) -> None:
        """Go to a page."""
        await self._send("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; promises are waited for."""
        answer = await self._send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _WAIT_MS / 1000
        while not await self.evaluate(f"Boolean({condition})"):
            if loop.time() > end:
                shown = await self.evaluate("document.body.innerText")
                raise AssertionError(f"never true: {condition}\n{shown}\n{self.faults}")

    async def text(self, selector: str) -> str:
        """What an element shows."""
        found = json.dumps(selector)
        return str(await self.evaluate(f"document.querySelector({found}).innerText"))

    async def type(self, text: str) -> None:
        """Type into what has the focus."""
        for character in text:
            await self._send("Input.insertText", text=character)

    async def prefer(self, scheme: str) -> None:
        """Prefer the light or the dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self._send("Emulation.setEmulatedMedia", features=features)

    async def resize(self, width: int, height: int) -> None:
        """Give the page a size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self._send("Emulation.setDeviceMetricsOverride", **size)

    async def picture(self) -> bytes:
        """What it looks like, as PNG."""
        answer = await self._send("Page.captureScreenshot", captureBeyondViewport=True)
        return b64decode(answer["data"])

    async def start(self) -> None:
        """Make the page."""
        context = await self._send("Target.createBrowserContext", disposeOnDetach=True)
        target = await self._send(
            "Target.createTarget", url="about:blank", browserContextId=context["browserContextId"]
        )
        attached = await self._send(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._send(f"{domain}.enable")

    async def listen(self) -> None:
        """Take what the browser says, until cancelled."""
        async for message in self._socket:
            said = json.loads(message)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            else:
                self._note(said["method"], said.get("params", {}))

    def _note(self, method: str, said: dict[str, Any]) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.requested.append(said["request"]["url"])
            case "Runtime.exceptionThrown":
                self.faults.append(json.dumps(said["exceptionDetails"]))
            case "Log.entryAdded" if said["entry"]["level"] == "error":
                # An answer with an error's status is logged too; pages handle those themselves.
                if said["entry"]["source"] != "network":
                    self.faults.append(said["entry"]["text"])

    async def _send(self, method: str, **arguments: Any) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        session = {} if self._session is None else {"sessionId": self._session}
        command = {"id": number, "method": method, "params": arguments, **session}
        await self._socket.send(json.dumps(command))
        async with asyncio.timeout(_WAIT_MS / 1000):
            said = await answer
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']}")
        result: dict[str, Any] = said["result"]
        return result


@asynccontextmanager
async def new_tab(browser: str) -> AsyncIterator[Tab]:
    """A tab for the length of a block."""
    async with connect(browser, max_size=None, compression=None) as socket:
        tab = Tab(socket)
        listening = asyncio.create_task(tab.listen())
        try:
            await tab.start()
            yield tab
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
