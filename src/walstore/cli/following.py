"""Keeps a document in step with its relay for as long as it is wanted.

- The connection stays; the local file is opened for each exchange and closed again, so that other
  commands have their turn.
- An exchange is due when the relay has news, when the connection is back, or when another command
  has written to the local file; and now and then, because a write right after an exchange looks
  like one of its own. What fails is tried again then.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from walstore import net
from walstore.cli.documents import KnownDocument
from walstore.cli.exchange import Exchanged, RefusedError, exchange
from walstore.cli.identities import find_identity
from walstore.cli.opened import opened
from walstore.cli.output import note, put_json
from walstore.cli.waiting import in_turn
from walstore.errors import TransportError
from walstore.local import LocalFile
from walstore.net.status import State, TransportStatus

# How often the local file is looked at. A look is two system calls.
_LOOK_S = 0.25

# How long nothing may happen before there is an exchange all the same.
_REST_S_MAX = 10.0

_Signature: TypeAlias = list[tuple[int, int] | None]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def follow(document: KnownDocument, *, is_json: bool) -> int:
    """Exchange whenever something is new, until told to stop; the exit code."""
    assert document.relay is not None
    identity = find_identity(document.identity).identity
    logs = await _known_logs(document, identity.public_key)
    due, stopped = asyncio.Event(), asyncio.Event()
    due.set()
    loop = asyncio.get_running_loop()
    for each in _SIGNALS:
        loop.add_signal_handler(each, stopped.set)
    async with AsyncExitStack() as stack:
        transport = await stack.enter_async_context(
            net.WebSocketTransport(document.relay, identity=identity, logs=logs)
        )
        stack.callback(transport.on_status(_Connection(document, due)).close)
        # What is there already is read by the first exchange.
        followed = await stack.enter_async_context(transport.follow(document.key, 0))
        for wait in (followed.wait, followed.wait_records):
            _keep_running(stack, _ring(wait, due))
        watch = _Watch(document.file, due)
        _keep_running(stack, watch.run())
        ending = asyncio.create_task(stopped.wait())
        while not stopped.is_set():
            await _first_of(ending, due)
            due.clear()
            if not stopped.is_set() and transport.status.state is State.LIVE:
                with watch.paused():
                    await _exchange(document, transport, is_json=is_json)
    return 0


class _Connection:
    """Says how it stands with the relay, and lets an exchange follow when it is back."""

    def __init__(self, document: KnownDocument, due: asyncio.Event) -> None:
        self._document = document
        self._due = due
        self._told: State | None = None

    def __call__(self, status: TransportStatus) -> None:
        if status.state is self._told or status.state is State.CONNECTING:
            return
        self._told = status.state
        if status.state is State.LIVE:
            note(f"{self._document.name}: live with {self._document.relay}; Ctrl-C ends it")
            self._due.set()
        elif status.state is not State.CLOSED:
            note(f"{self._document.name}: {status.state}: {status.reason}; trying again")


async def _exchange(
    document: KnownDocument, transport: net.WebSocketTransport, *, is_json: bool
) -> None:
    try:
        async with opened(document, relay=transport) as store:
            exchanged = await exchange(document, store)
    except (TransportError, RefusedError) as error:
        note(f"{document.name}: {error}")
        return
    _tell(document, exchanged, is_json=is_json)


def _tell(document: KnownDocument, exchanged: Exchanged, *, is_json: bool) -> None:
    if not exchanged.sent and not exchanged.received:
        return
    if is_json:
        put_json({"name": document.name, **exchanged._asdict()})
    note(f"{document.name}: sent {exchanged.sent}, received {exchanged.received}")


async def _known_logs(document: KnownDocument, author: str) -> dict[str, str]:
    """The log that the document was read from so far: another one in its place is refused."""

    async def open_file() -> LocalFile:
        return LocalFile.open(document.file, document_key=document.key, author=author)

    with await in_turn(document.file, open_file) as local:
        log_id = local.log_id
    return {} if log_id is None else {document.key: log_id}


async def _ring(wait: Callable[[], Awaitable[None]], due: asyncio.Event) -> None:
    with suppress(TransportError):
        while True:
            await wait()
            due.set()


class _Watch:
    """Notices what other commands write: SQLite writes to one of two files."""

    def __init__(self, file: Path, due: asyncio.Event) -> None:
        self._file = file
        self._due = due
        self._seen: _Signature | None = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take what is written in a block for one's own."""
        self._seen = None
        try:
            yield
        finally:
            self._seen = _signature(self._file)

    async def run(self) -> None:
        """Look, again and again."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._seen is not None and _signature(self._file) != self._seen:
                self._due.set()


def _signature(file: Path) -> _Signature:
    return [_stat(each) for each in (file, file.with_name(f"{file.name}-wal"))]


def _stat(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


async def _first_of(ending: asyncio.Task[bool], due: asyncio.Event) -> None:
    waiting = asyncio.create_task(due.wait())
    try:
        both = {ending, waiting}
        await asyncio.wait(both, timeout=_REST_S_MAX, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


def _keep_running(stack: AsyncExitStack, work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    stack.callback(task.cancel)
