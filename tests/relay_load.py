"""Clients of a relay in processes of their own: honest ones who are timed, and others who are not.

    test ── ["measure", {…}] ──► process ── websockets ──► relay, a third process
         ◄──── {"result"} ──────

Run as `python -m tests.relay_load KIND`. Each line on its input is a call, `[name, arguments]`, and
is answered with a line.

- Elements are sent when they are due, not when the one before was answered; their time counts
  from there until a follower has them. So a relay that makes everybody wait does not look quick.
- `deaf` follow and read nothing, `forger` sends what was never signed as fast as it can, and comes
  back as soon as it is dropped. `idle` follow and have nothing to do.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from tests.relay_clients import Speaker, appending, identity, narrow_socket, speaking
from walstore.net.dialling import address_of
from walstore.signed.auth import sign_auth
from walstore.wire.frames import (
    Auth,
    Elements,
    Hello,
    Ok,
    Pull,
    Refusal,
    client_frame,
    read_relay_frame,
)

ROOT = Path(__file__).parent.parent
DOCUMENT = "load/notes"

# A call that takes this much longer than it says has failed.
PATIENCE_S = 60.0

# Handshakes under way at once, of those who come in large numbers.
_OPENING_MAX = 25

# After so many frames a forger comes anew: what a relay takes at once is full again then.
_FORGED_PER_CONNECTION = 5_000


class Load:
    """Such a process, as a context manager.

    Args:
        kind: Which clients.
        url: Their relay.
    """

    def __init__(self, kind: str, url: str) -> None:
        self._kind, self._url = kind, url

    async def __aenter__(self) -> Load:
        """Start it."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.relay_load",
            self._kind,
            self._url,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            await self._process.wait()

    async def call(self, name: str, *, within_s: float = 0, **arguments: Any) -> Any:
        """Have it do something that takes so long; what it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        async with asyncio.timeout(within_s + PATIENCE_S):
            line = await self._process.stdout.readline()
        assert line, "the process has ended; its error stream says why"
        return json.loads(line)["result"]


# ── in the process ─────────────────────────────────────────────────────────────────────


class _Honest:
    """Writers, and a follower who sees what they write."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url, self._stack = url, stack
        self._numbers = count()
        self._writers: list[Speaker] = []
        self._due: dict[str, float] = {}
        self._latencies_s: list[float] = []
        self._wanted = 0
        self._has_all = asyncio.Event()

    async def open(self, writers: int) -> None:
        """Connect."""
        self._writers = await _opened(
            self._stack, [speaking(self._url, identity(1 + n % 8)) for n in range(writers)]
        )
        follower = await self._stack.enter_async_context(speaking(self._url, identity(9)))
        await follower.follow(DOCUMENT)
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        hearing = [tasks.create_task(self._see(follower))]
        hearing += [tasks.create_task(self._hear(writer)) for writer in self._writers]
        self._stack.callback(lambda: [task.cancel() for task in hearing])

    async def measure(self, elements: int, per_second: float, size: int) -> dict[str, Any]:
        """Write so many elements at a pace, or as fast as possible if it is 0."""
        frames: Iterable[tuple[str, int, str]] = (self._next(size) for _ in range(elements))
        if not per_second:
            # Signing takes time, which at a pace is what there is between two of them.
            frames = list(frames)
        self._latencies_s, loop = [], asyncio.get_running_loop()
        self._wanted = elements
        self._has_all.clear()
        began = loop.time()
        for number, (signature, author, frame) in enumerate(frames):
            due = began + number / per_second if per_second else began
            if (early_s := due - loop.time()) > 0:
                await asyncio.sleep(early_s)
            self._due[signature] = due
            await self._writers[author].socket.send(frame)
        await self._has_all.wait()
        found = sorted(self._latencies_s)
        return {
            "per_second": elements / (loop.time() - began),
            "p50_ms": 1000 * found[len(found) // 2],
            "p99_ms": 1000 * found[len(found) * 99 // 100],
        }

    def _next(self, size: int) -> tuple[str, int, str]:
        number = next(self._numbers)
        author = number % len(self._writers)
        data = {"n": number, "t": "x" * size}
        made = appending(identity(1 + author % 8), DOCUMENT, data, ref=f"{number}")
        return made.signature, author, client_frame(made).decode()

    async def _hear(self, writer: Speaker) -> None:
        while True:
            heard = read_relay_frame(await writer.socket.recv())
            assert isinstance(heard, Ok), heard

    async def _see(self, follower: Speaker) -> None:
        loop = asyncio.get_running_loop()
        while True:
            heard = read_relay_frame(await follower.socket.recv())
            if isinstance(heard, Elements):
                now = loop.time()
                for element in heard.elements:
                    # What somebody else wrote is not timed.
                    if (due := self._due.pop(element.signature, None)) is not None:
                        self._latencies_s.append(now - due)
            if len(self._latencies_s) == self._wanted:
                self._has_all.set()


class _Deaf:
    """Those who follow, and never read what they get."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._port = urlsplit(url).port or 0
        self._sockets: list[ClientConnection] = []

    async def begin(self, connections: int) -> None:
        """Connect, from the beginning of the log on."""
        for _ in range(connections):
            socket = await connect(
                self._url,
                sock=narrow_socket(self._port),
                compression=None,
                max_queue=1,
                proxy=None,
                ping_interval=None,
                close_timeout=0,
            )
            hello = read_relay_frame(await socket.recv())
            assert isinstance(hello, Hello)
            speaker = Speaker(socket, hello, address_of(self._url))
            await speaker.prove(identity(100))
            await speaker.say(Pull("live", DOCUMENT, None, 0, 1000, True))
            self._sockets.append(socket)

    async def end(self) -> None:
        """Leave."""
        for socket in self._sockets:
            socket.transport.abort()
        await asyncio.gather(*(socket.wait_closed() for socket in self._sockets))
        self._sockets = []


class _Forger:
    """One key that appends what it has not signed."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._counted: Counter[str] = Counter()
        self._flood: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Flood the relay from now on."""
        self._flood = asyncio.create_task(self._go_on())

    async def end(self) -> dict[str, int]:
        """Stop; what was done since it began, and what was answered."""
        assert self._flood is not None
        self._flood.cancel()
        await asyncio.gather(self._flood, return_exceptions=True)
        counted, self._counted = self._counted, Counter()
        return dict(counted)

    async def _go_on(self) -> None:
        while True:
            with suppress(OSError, WebSocketException):
                async with connect(self._url, proxy=None, close_timeout=0) as socket:
                    self._counted["connections"] += 1
                    await self._attack(socket)

    async def _attack(self, socket: ClientConnection) -> None:
        hello, author = read_relay_frame(await socket.recv()), identity(200)
        assert isinstance(hello, Hello)
        relay = address_of(self._url)
        proof = sign_auth(challenge=hello.challenge, relay=relay, identity=author)
        await socket.send(client_frame(Auth("a", author.public_key, proof)).decode())
        bad = appending(author, DOCUMENT, {"n": 1})._replace(data=b'{"n":2}')
        text = client_frame(bad).decode()
        hearing = asyncio.create_task(self._hear(socket))
        try:
            for _ in range(_FORGED_PER_CONNECTION):
                await socket.send(text)
                self._counted["sent"] += 1
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, socket: ClientConnection) -> None:
        while True:
            heard = read_relay_frame(await socket.recv())
            if isinstance(heard, Refusal):
                self._counted[heard.code] += 1


class _Idle:
    """Those who follow a document of their own, and have nothing to do."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url, self._stack = url, stack

    async def open(self, connections: int) -> None:
        """Connect as a client of ours does, which offers compression."""
        ways = [
            speaking(self._url, identity(1 + n % 8), compression="deflate", ping_interval=10)
            for n in range(connections)
        ]
        speakers = await _opened(self._stack, ways)
        for number, speaker in enumerate(speakers):
            await speaker.follow(f"idle/{number}")

    async def close(self) -> None:
        """Leave."""
        await self._stack.aclose()


async def _opened(stack: AsyncExitStack, ways: list[Any]) -> list[Any]:
    """Enter all of them, some at a time."""
    opening = asyncio.Semaphore(_OPENING_MAX)

    async def enter(way: Any) -> Any:
        async with opening:
            return await stack.enter_async_context(way)

    return list(await asyncio.gather(*map(enter, ways)))


@asynccontextmanager
async def lines() -> AsyncIterator[asyncio.StreamReader]:
    """What is asked of this process, line by line."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        yield reader
    finally:
        transport.close()


_KINDS = {"honest": _Honest, "deaf": _Deaf, "forger": _Forger, "idle": _Idle}


async def _answer_all(kind: str, url: str) -> None:
    async with AsyncExitStack() as stack, lines() as asked:
        clients = _KINDS[kind](url, stack)
        while line := await asked.readline():
            name, arguments = json.loads(line)
            result = await getattr(clients, name)(**arguments)
            print(json.dumps({"result": result}), flush=True)


def _stand_back(kind: str) -> None:
    """Leave the machine to the others: those who abuse a relay bring their own."""
    if kind != "honest":
        os.nice(10)


def _allow_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    _stand_back(sys.argv[1])
    _allow_connections()
    asyncio.run(_answer_all(sys.argv[1], sys.argv[2]))
