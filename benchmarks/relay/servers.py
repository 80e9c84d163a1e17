"""The two servers, each in a process of its own, and how a lean client speaks to each.

- What is sent is one typed character: a signed element to the relay, an update to the peer.
- The relay says when an element is durable. The peer says nothing; its database is looked into,
  through a connection of its own.
- Both are told apart here and nowhere else.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks.relay.lean import Connection, framed
from walstore import Identity
from walstore.document import ALLOW_ANY, Body, WalDocument
from walstore.signed.auth import sign_auth
from walstore.wire.frames import (
    Append,
    Auth,
    ClientFrame,
    Elements,
    EndOfStored,
    Hello,
    Ok,
    Pull,
    client_frame,
    read_relay_frame,
)

HERE = Path(__file__).parent
_LETTERS = "abcdefghij klmnopqrst"


class Message(NamedTuple):
    """A message to send: its frame, and what receivers know it by."""

    frame: bytes
    mark: bytes


class Server(Protocol):
    """A server that runs, and how it is spoken to."""

    name: str
    url: str
    process: int

    def join(
        self, document: str, *, writer: int, is_follower: bool, is_compressed: bool = False
    ) -> Connection:
        """A connection that may write to a document, and hears what others write to it."""
        ...

    def typed(self, document: str, *, writer: int, count: int) -> Sequence[Message]:
        """Messages of a writer who types."""
        ...

    def marks(self, message: bytes) -> Sequence[bytes]:
        """What is delivered with a message: the marks of what was sent."""
        ...

    def acknowledges(self, message: bytes, sent: Message) -> bool:
        """Whether a sender is told that its oldest message was taken; by the peer, as an echo."""
        ...

    def stored(self) -> int | None:
        """How much is in the store; None if acknowledgements say so."""
        ...


class WalstoreRelay:
    """`walstore relay` on a new SQLite file."""

    name = "walstore"

    def __init__(self, url: str, process: int) -> None:
        self.url = url
        self.process = process
        self._identities: dict[int, Identity] = {}
        self._seen: dict[bytes, Sequence[bytes]] = {}
        self._joined = 0

    def join(
        self, document: str, *, writer: int, is_follower: bool, is_compressed: bool = False
    ) -> Connection:
        """Prove a key, and follow the document if asked to."""
        connection = Connection(self.url, is_compressed=is_compressed)
        hello = read_relay_frame(connection.receive())
        assert isinstance(hello, Hello)
        identity = self._identity(writer)
        address = self.url.removeprefix("ws://")
        proof = sign_auth(challenge=hello.challenge, relay=address, identity=identity)
        connection.send(_text(Auth("auth", identity.public_key, proof)))
        assert isinstance(read_relay_frame(connection.receive()), Ok)
        if is_follower:
            # Clients choose their refs; that many of them choose alike is nothing to count on.
            self._joined += 1
            connection.send(_text(Pull(f"f{self._joined % 8}", document, None, 0, 1000, True)))
            while not isinstance(read_relay_frame(connection.receive()), EndOfStored):
                pass
        return connection

    def typed(self, document: str, *, writer: int, count: int) -> Sequence[Message]:
        """Signed elements, as a document makes them."""
        identity = self._identity(writer)
        bodies = asyncio.run(_typed(document, identity, count))
        return [
            Message(
                _text(
                    Append(f"{place}", document, None, body.author, body.signature, body.canonical)
                ),
                body.canonical,
            )
            for place, body in enumerate(bodies)
        ]

    def marks(self, message: bytes) -> Sequence[bytes]:
        """The elements; what many get is read once."""
        marks = self._seen.get(message)
        if marks is None:
            frame = read_relay_frame(message)
            rows = frame.elements if isinstance(frame, Elements) else ()
            marks = self._seen[message] = [row.data for row in rows]
        return marks

    def acknowledges(self, message: bytes, sent: Message) -> bool:
        """It says so, in the order of sending."""
        return message.startswith(b'["OK"')

    def stored(self) -> int | None:
        """Nobody has to look."""
        return None

    def _identity(self, writer: int) -> Identity:
        if writer not in self._identities:
            self._identities[writer] = Identity.from_seed(writer.to_bytes(32))
        return self._identities[writer]


class _Kept:
    """A log that takes everything, for the documents that make the messages."""

    def __init__(self) -> None:
        self.bodies: list[Body] = []

    async def append(self, document_key: str, body: Body) -> int:
        self.bodies.append(body)
        return len(self.bodies)

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        return []


async def _typed(document_key: str, identity: Identity, count: int) -> list[Body]:
    kept = _Kept()
    document = WalDocument(
        document_key,
        transport=kept,
        identity=identity,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
    )
    await document.open()
    for number in range(count):
        document.insert_text("text", number, _LETTERS[number % len(_LETTERS)])
        await document.commit()
    return kept.bodies


def _text(frame: ClientFrame) -> bytes:
    return framed(client_frame(frame), is_text=True)


class PycrdtServer:
    """pycrdt-websocket on a new SQLiteYStore."""

    name = "pycrdt-websocket"

    def __init__(self, url: str, process: int, python: str, database: Path) -> None:
        self.url = url
        self.process = process
        self._python = python
        self._database = database
        self._reader: sqlite3.Connection | None = None
        self._updates: list[list[bytes]] = []

    def join(
        self, document: str, *, writer: int, is_follower: bool, is_compressed: bool = False
    ) -> Connection:
        """Enter the room; everybody there hears everything."""
        connection = Connection(self.url, f"/{document}", is_compressed=is_compressed)
        connection.receive()
        return connection

    def typed(self, document: str, *, writer: int, count: int) -> Sequence[Message]:
        """Updates, as the peer's own library makes them."""
        updates = self._updates_of(writer, count)[:count]
        return [Message(framed(update, is_text=False), update) for update in updates]

    def marks(self, message: bytes) -> Sequence[bytes]:
        """The update, as it was sent."""
        return [message]

    def acknowledges(self, message: bytes, sent: Message) -> bool:
        """It comes back, as it goes to everybody in the room."""
        return message == sent.mark

    def stored(self) -> int | None:
        """The rows of its store."""
        try:
            if self._reader is None:
                self._reader = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)
            found = self._reader.execute("SELECT max(rowid) FROM yupdates").fetchone()[0]
        except sqlite3.OperationalError:
            # It is being made, or written to at this very moment.
            return 0
        return int(found or 0)

    def _updates_of(self, writer: int, count: int) -> list[bytes]:
        while len(self._updates) <= writer or len(self._updates[writer]) < count:
            command = [self._python, str(HERE / "pycrdt_updates.py"), str(writer + 64), str(count)]
            made = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            self._updates = [[bytes.fromhex(each) for each in updates] for updates in made]
        return self._updates[writer]


@contextmanager
def running(name: str, python: str) -> Iterator[Server]:
    """A server on an empty database, for the length of a block.

    Args:
        name: Which one.
        python: The interpreter of the environment that the peer is installed in.
    """
    with tempfile.TemporaryDirectory(prefix="walstore-bench-") as folder:
        database = Path(folder) / "database.db"
        if name == WalstoreRelay.name:
            arguments = ["relay", "--port", "0", "--database", str(database)]
            with _process([sys.executable, "-m", "walstore", *arguments]) as (url, process):
                yield WalstoreRelay(url, process)
        else:
            command = [python, str(HERE / "pycrdt_server.py"), str(database)]
            with _process(command) as (url, process):
                yield PycrdtServer(url, process, python, database)


@contextmanager
def _process(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    environment = {name: text for name, text in os.environ.items() if "WALSTORE" not in name}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                errors.seek(0)
                raise RuntimeError(errors.read().decode(errors="replace"))
            yield url, process.pid
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()


def resident_bytes(process: int) -> int:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(process: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
