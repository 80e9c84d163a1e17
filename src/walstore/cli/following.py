"""Keeps a document in step with its relay for as long as it is wanted.

- The connection stays; the local file is opened for each exchange and closed again, so that other
  commands have their turn.
- An exchange is due when the relay has news, when the connection is back, or when another command
  has written to the local file; and now and then, because a write right after an exchange looks
  like one of its own. What fails is tried again then.
- Who tells it to stop waits for no relay: an exchange has a moment to come to its end, and none
  once it is told again.
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
from walstore.cli.exchange import exchange, tell_exchanged
from walstore.cli.faults import NotVerifiedError
from walstore.cli.identities import find_identity
from walstore.cli.opened import opened
from walstore.cli.output import note
from walstore.cli.waiting import in_turn
from walstore.errors import TransportError, WalStoreError
from walstore.local import LocalFile
from walstore.net.status import State, TransportStatus

# How often the local file is looked at. A look is two system calls.
_LOOK_S = 0.25

# How long nothing may happen before there is an exchange all the same.
_REST_S_MAX = 10.0

# How long an exchange may go on after it was told to stop: most are done by then.
_GRACE_S = 2.0

_Signature: TypeAlias = list[tuple[int, int] | None]


async def follow(document: KnownDocument, *, is_json: bool) -> int:
    """Exchange whenever something is new, until told to stop; the exit code.

    Raises:
        NotVerifiedError: The relay has lost something, or does not give the owner's word.
    """
    stopped = asyncio.Event()
    following = asyncio.create_task(_follow(document, stopped, is_json=is_json))
    _stop_on_signal(following, stopped)
    try:
        await following
    except asyncio.CancelledError:
        if not stopped.is_set():
            raise
    return 0


async def _follow(document: KnownDocument, stopped: asyncio.Event, *, is_json: bool) -> None:
    assert document.relay is not None
    identity = find_identity(document.identity).identity
    logs = await _known_logs(document, identity.public_key)
    due = asyncio.Event()
    due.set()
    async with AsyncExitStack() as stack:
        transport = await stack.enter_async_context(
            net.WebSocketTransport(document.relay, identity=identity, logs=logs)
        )
        stack.callback(transport.on_status(_Connection(document, due)).close)
        # What is there already is read by the first exchange.
        followed = await stack.enter_async_context(transport.follow(document.key, 0))
        watch, exchanges = _Watch(document.file, due), _Exchanges(document, transport, is_json)
        for work in (_ring(followed.wait, due), _ring(followed.wait_records, due), watch.run()):
            stack.callback(asyncio.create_task(work).cancel)
        while not stopped.is_set():
            await _first_of(stopped, due)
            due.clear()
            if not stopped.is_set() and transport.status.state is State.LIVE:
                with watch.paused():
                    await exchanges.make()


def _stop_on_signal(following: asyncio.Task[None], stopped: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.call_later(0 if stopped.is_set() else _GRACE_S, following.cancel)
        stopped.set()

    for each in (signal.SIGINT, signal.SIGTERM):
        # Where there are no such handlers, Ctrl-C ends it as it ends every program.
        with suppress(NotImplementedError):
            loop.add_signal_handler(each, stop)


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


class _Exchanges:
    """Exchanges one after the other; what goes wrong again and again is said once."""

    def __init__(
        self, document: KnownDocument, transport: net.WebSocketTransport, is_json: bool
    ) -> None:
        self._document = document
        self._transport = transport
        self._is_json = is_json
        self._said = ""
        # How far what was received is told: also what comes with an exchange that fails is told.
        self._told: int | None = None

    async def make(self) -> None:
        """Make one; what fails and may pass is tried again the next time."""
        said = ""
        try:
            async with opened(self._document, relay=self._transport) as store:
                self._told = store.opened_at if self._told is None else self._told
                exchanged = await exchange(self._document, store, since=self._told)
                self._told = store.document.current_checkpoint
        except NotVerifiedError:
            raise
        except WalStoreError as error:
            said = str(error)
            if said != self._said:
                note(f"{self._document.name}: {said}")
        else:
            if exchanged.sent or exchanged.received:
                tell_exchanged(self._document, exchanged, is_json=self._is_json)
        self._said = said


async def _known_logs(document: KnownDocument, author: str) -> dict[str, str]:
    """The log that the document was read from so far: another one in its place is refused."""
    if not document.file.exists():
        return {}

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


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of them is set, but not for ever."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=_REST_S_MAX, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
