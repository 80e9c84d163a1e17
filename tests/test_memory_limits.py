"""What is too much is refused where it becomes so, and memory shows it: a relay's and a client's.

- A relay is a process, and so is a client; each case has one of its own, whose memory the system
  counts. Four times the limit is the most that anything refused may take: what has come, once as
  bytes and once as text, and what it is cut out of.
- JSON values take more than the text that says them, up to some 120 bytes each. So there is a most
  of them beside the most bytes, and what is read, as it is not too much, takes so much for each.
- A million registers fit no message. They fit a snapshot, and are taken: with so much for each, as
  no text says how many there may be. `WALSTORE_REGISTERS` says how many a snapshot has here.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.measured_reader import Read, Readers, reading
from tests.peak_memory import PeakMemory
from tests.raw_websocket import CONTINUATION, FIN, PING, RSV1, TEXT, framed, raw_websocket
from tests.relay_clients import ANNA, appending, speaking
from tests.relay_process import Forker, forking
from tests.rigged import (
    ALICE,
    KEY,
    JsonElement,
    set_op,
    write_packed,
    write_starfish,
)
from walstore.canon import canonical_bytes
from walstore.crdt.runs import Set
from walstore.signed.author import Domain, sign_bytes, signing_input_of
from walstore.wire.element import has_too_many_values
from walstore.wire.frames import (
    Auth,
    ClientFrame,
    Code,
    Delivered,
    Elements,
    EndOfStored,
    GetSnapshot,
    Hello,
    Ok,
    Pull,
    PullTail,
    RelayFrame,
    SnapshotPiece,
    client_frame,
    read_client_frame,
    relay_frame,
)
from walstore.wire.limits import (
    BATCH_OPS_MAX,
    ELEMENT_BYTES_MAX,
    ELEMENT_VALUES_MAX,
    FRAME_BYTES_MAX,
    FRAME_OF_RELAY_BYTES_MAX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOT_PIECE_SIZE,
    SNAPSHOT_VALUES_MAX,
)

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the most memory anew"
)

TIMES_MAX = 4
# A list of one, or an object: the most that is taken for each value.
VALUE_BYTES_MAX = 120
# What a register takes of who reads it, in a snapshot as in the document: names, rows, clocks.
REGISTER_BYTES_MAX = 512

REGISTERS = int(os.environ.get("WALSTORE_REGISTERS", "200000"))

# Names for databases.
NUMBERS = count()

LOG = "ef" * 16

MILLION = 1_000_000
# More than twice what a batch may have.
OPS = 10_000


def bomb(size: int) -> bytes:
    """What unpacks to so many bytes, a whole number of MiB: a thousandth of it."""
    packer = zlib.compressobj(wbits=-12)
    block = packer.compress(b" " * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)
    return (block * (size // 2**20)).removesuffix(b"\x00\x00\xff\xff")


def in_parts(
    text: bytes, size: int = 2**16, *, is_masked: bool = True, rsv: int = 0
) -> list[bytes]:
    """A message in frames of so many bytes."""
    return [
        framed(
            CONTINUATION if start else TEXT,
            text[start : start + size],
            flags=(FIN if start + size >= len(text) else 0) | (0 if start else rsv),
            is_masked=is_masked,
        )
        for start in range(0, len(text), size)
    ]


# ── a relay ────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    with forking(tmp_path_factory.mktemp("relays")) as forker:
        yield forker


@asynccontextmanager
async def a_relay(forker: Forker) -> AsyncIterator[tuple[str, PeakMemory]]:
    """A relay that has served somebody already, and what it takes from then on."""
    relay = await forker.start("--database", f"{next(NUMBERS)}.db")
    try:
        async with speaking(relay.url, ANNA) as anna:
            await anna.append(ANNA, "notes/before", {"n": 1})
        yield relay.url, PeakMemory(relay.number)
        async with speaking(relay.url, ANNA) as anna:
            await anna.append(ANNA, "notes/after", {"n": 1})
    finally:
        forker.kill(relay.number)


def ops_of(count: int) -> list[dict[str, Any]]:
    """So many writes of one author, as version 1 spells them."""
    return [set_op(ALICE, number, number, f"r{number}") for number in range(1, count + 1)]


def registers_text(count: int) -> bytes:
    """An object of so many members."""
    return b"{%b}" % b",".join([b'"r%d":0' % number for number in range(count)])


def append_text(data: bytes) -> bytes:
    """A request to append something that nobody has signed."""
    return client_frame(appending(ANNA, KEY, {})._replace(data=data))


OVERSIZE: dict[str, Callable[[], list[bytes]]] = {
    "what unpacks to a thousand times the limit": lambda: in_parts(bomb(1000 * 2**20), rsv=RSV1),
    "a byte too much, all at once": lambda: [framed(TEXT, b" " * (FRAME_BYTES_MAX + 1))],
    "a byte too much, in parts": lambda: in_parts(b" " * (FRAME_BYTES_MAX + 1)),
    "ten thousand ops": lambda: in_parts(
        append_text(canonical_bytes(write_starfish(ALICE, ops_of(OPS))["data"]))
    ),
    "a million registers": lambda: in_parts(append_text(registers_text(MILLION))[: 2 * 2**20]),
}


CRUMBS_OF_CLIENT = {
    "a message in parts without content": (
        framed(TEXT, b"", flags=0),
        framed(CONTINUATION, b"", flags=0) * 400_000,
    ),
    "pings whose answers nobody reads": (framed(PING), framed(PING, b"x" * 125) * 120_000),
}


@pytest.mark.parametrize("name", CRUMBS_OF_CLIENT)
async def test_a_relay_holds_little_of_what_is_no_message(forker: Forker, name: str) -> None:
    async with a_relay(forker) as (url, memory), raw_websocket(urlsplit(url).port or 0) as socket:
        with suppress(ConnectionError):
            await socket.say(*CRUMBS_OF_CLIENT[name])
        print(f"{name}: {memory.grown / 2**20:.1f} MiB")
        with suppress(ConnectionError):
            assert await socket.close_code() == 1008
        assert memory.grown <= TIMES_MAX * FRAME_BYTES_MAX


@pytest.mark.parametrize("name", OVERSIZE)
async def test_a_message_that_is_too_large_takes_a_relay_no_more_than_four_of_them(
    forker: Forker, name: str
) -> None:
    frames = OVERSIZE[name]()
    async with a_relay(forker) as (url, memory):
        port = urlsplit(url).port or 0
        async with raw_websocket(port, extensions="permessage-deflate") as socket:
            # It may have heard enough before all is said.
            with suppress(ConnectionError):
                await socket.say(*frames)
            assert await socket.close_code() == 1009
        print(f"{name}: {memory.grown / 2**20:.1f} MiB")
        assert memory.grown <= TIMES_MAX * FRAME_BYTES_MAX


UNREAD: dict[str, Callable[[], bytes]] = {
    "a value of a MiB": lambda: canonical_bytes(
        write_starfish(ALICE, [set_op(ALICE, 1, "x" * ELEMENT_BYTES_MAX)])["data"]
    ),
    "as many values as fit": lambda: b'{"v":[%b[]]}' % (b"[]," * (ELEMENT_BYTES_MAX // 3 - 8)),
}


@pytest.mark.parametrize("name", UNREAD)
async def test_an_element_that_is_too_large_is_refused_by_a_relay_unread(
    forker: Forker, name: str
) -> None:
    frame = appending(ANNA, KEY, {})._replace(data=UNREAD[name]())
    assert len(client_frame(frame)) <= FRAME_BYTES_MAX
    async with a_relay(forker) as (url, memory), speaking(url, ANNA) as anna:
        await anna.say(frame)
        assert (await anna.refusal("append")).code is Code.TOO_LARGE
        print(f"{name}: {memory.grown / 2**20:.1f} MiB")
        assert memory.grown <= TIMES_MAX * FRAME_BYTES_MAX


async def test_a_request_of_half_a_million_values_is_refused_by_a_relay_unread(
    forker: Forker,
) -> None:
    # Whoever has proved nothing may say it, and so may many at once.
    text = f'["REQ","r",[{"12," * (ELEMENT_BYTES_MAX // 3 - 8)}0]]'
    async with a_relay(forker) as (url, memory), speaking(url) as nobody:
        await nobody.say(text)
        assert (await nobody.refusal()).code is Code.MALFORMED
        print(f"half a million values: {memory.grown / 2**20:.1f} MiB")
        assert memory.grown <= TIMES_MAX * FRAME_BYTES_MAX


async def test_what_a_relay_reads_of_the_most_values_takes_so_much_for_each(
    forker: Forker,
) -> None:
    data: dict[str, Any] = {"v": [[1]] * (ELEMENT_VALUES_MAX // 2 - 2)}
    assert not has_too_many_values(canonical_bytes(data))
    async with a_relay(forker) as (url, memory), speaking(url, ANNA) as anna:
        await anna.append(ANNA, KEY, data)
        print(f"the most values: {memory.grown / 2**20:.1f} MiB")
        assert memory.grown <= TIMES_MAX * FRAME_BYTES_MAX + VALUE_BYTES_MAX * ELEMENT_VALUES_MAX


@pytest.fixture(scope="module")
def many_registers() -> bytes:
    """A snapshot of so many, as packed as can be; written and signed as text, as that is quick."""
    rows = b",".join([b'["r%07d",0,%d,0]' % (number, number + 1) for number in range(REGISTERS)])
    who = ALICE.public_key.encode()
    content = b"{%b}" % b",".join(
        [
            b'"producedBy":"%b"' % who,
            b'"state":{"packed":[1,["%b:s"],[%b],[],[],%d],"v":2}' % (who, rows, REGISTERS),
            b'"uptoTs":0,"writerSeq":{}',
        ]
    )
    proof = sign_bytes(signing_input_of(Domain.DOCUMENT, KEY + "__snapshot", content), ALICE)
    signature = proof.author_signature.encode()
    text = b'{"authorPubkey":"%b","authorSignature":"%b",%b' % (who, signature, content[1:])
    assert len(text) < SNAPSHOT_BYTES_MAX
    assert not has_too_many_values(text, SNAPSHOT_VALUES_MAX)
    return text


async def test_a_snapshot_of_many_registers_takes_a_relay_a_few_times_its_text(
    forker: Forker, many_registers: bytes
) -> None:
    async with a_relay(forker) as (url, memory), speaking(url, ALICE) as alice:
        stored = await alice.put(KEY, many_registers, replaces=None)
        assert isinstance(stored, Ok)
        print(f"{REGISTERS} registers: {memory.grown / 2**20:.1f} MiB of a relay")
        assert memory.grown <= 6 * len(many_registers) + TIMES_MAX * FRAME_BYTES_MAX


# ── a client ───────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def readers() -> Iterator[Readers]:
    with reading() as readers:
        yield readers


class HostileRelay:
    """A relay that lets everybody in, and has one answer to whoever asks for a log.

    It is heard once: whoever comes back is not let in, so that a client says that it failed.
    """

    def __init__(
        self, answer: Callable[[str], bytes | list[bytes]], snapshot: bytes | None = None
    ) -> None:
        """Begin.

        Args:
            answer: Makes what is said to a PULL of its ref: a message, or frames as they are sent.
            snapshot: What is said to be stored.
        """
        self._answer, self._snapshot = answer, snapshot
        self.closed: list[tuple[int | None, str | None]] = []

    async def handle(self, socket: ServerConnection) -> None:
        """One connection."""
        if self.closed:
            await socket.close(1013, "once")
            return
        hello = Hello((1,), "ab" * 16, "cd" * 32, {"frame_bytes_max": FRAME_BYTES_MAX}, "hostile")
        await self._say(socket, hello)
        try:
            async for message in socket:
                await self._hear(socket, read_client_frame(str(message).encode()))
        except ConnectionClosed:
            pass
        finally:
            self.closed.append((socket.close_code, socket.close_reason))

    async def _hear(self, socket: ServerConnection, frame: ClientFrame) -> None:
        match frame:
            case Auth():
                await self._say(socket, Ok(frame.ref, {"key": frame.key}))
            case GetSnapshot():
                text = None if self._snapshot is None else self._snapshot.decode()
                await self._show(socket, frame.ref, text)
            case PullTail():
                end = {"ts": 0, "log": LOG, "floor": 0, "head": 0, "more": False}
                await self._say(socket, EndOfStored(frame.ref, end))
            case Pull():
                answer = self._answer(frame.ref) if frame.after <= 1 else b""
                if isinstance(answer, list):
                    # Frames as they are, past the library that would have made better ones.
                    socket.transport.writelines(answer)
                    return
                if answer:
                    await socket.send(answer, text=True)
                last = 2 if answer else frame.after
                end = {"ts": last, "log": LOG, "floor": 0, "head": last, "more": False}
                await self._say(socket, EndOfStored(frame.ref, end))
            case _:
                raise AssertionError(frame)

    async def _show(self, socket: ServerConnection, ref: str, text: str | None) -> None:
        if text is None:
            await self._say(socket, SnapshotPiece(ref, None, None, True, LOG))
            return
        revision = hashlib.sha256(text.encode()).hexdigest()
        for start in range(0, len(text), SNAPSHOT_PIECE_SIZE):
            piece = text[start : start + SNAPSHOT_PIECE_SIZE]
            is_last = start + SNAPSHOT_PIECE_SIZE >= len(text)
            await self._say(socket, SnapshotPiece(ref, revision, piece, is_last, LOG))

    async def _say(self, socket: ServerConnection, frame: RelayFrame) -> None:
        await socket.send(relay_frame(frame), text=True)


async def read_at(readers: Readers, relay: HostileRelay) -> Read:
    """What a client makes of what such a relay says."""
    async with serve(relay.handle, "127.0.0.1", 0, max_size=None, compression="deflate") as server:
        port = next(iter(server.sockets)).getsockname()[1]
        read = await readers.read(f"ws://127.0.0.1:{port}")
    print(f"{read.grown / 2**20:.1f} MiB, {read.failed}, {read.rejected}, {relay.closed}")
    return read


def elements(ref: str, *data: bytes, signature: str = "A" * 86 + "==") -> bytes:
    """A page of elements, of ALICE's by name."""
    rows = [Delivered(ts, ts, ALICE.public_key, signature, each) for ts, each in enumerate(data, 2)]
    return relay_frame(Elements(ref, rows))


def element(ref: str, made: JsonElement) -> bytes:
    """A page of one element that is signed as it should be."""
    return elements(ref, canonical_bytes(made["data"]), signature=made["authorSignature"])


def whole(text: bytes) -> list[bytes]:
    return [framed(TEXT, text, is_masked=False)]


BOMBS: dict[str, Callable[[], list[bytes]]] = {
    "what unpacks to a thousand times the limit": lambda: in_parts(
        bomb(5000 * 2**20), is_masked=False, rsv=RSV1
    ),
    "a byte too much, all at once": lambda: whole(b" " * (FRAME_OF_RELAY_BYTES_MAX + 1)),
    "a byte too much, in parts": lambda: in_parts(
        b" " * (FRAME_OF_RELAY_BYTES_MAX + 1), is_masked=False
    ),
    "a million registers": lambda: whole(elements("1", registers_text(MILLION))),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_message_that_is_too_large_takes_a_client_no_more_than_four_of_them(
    readers: Readers, name: str
) -> None:
    relay = HostileRelay(lambda _: BOMBS[name]())
    read = await read_at(readers, relay)
    assert read.failed
    assert relay.closed[0][0] == 1009
    assert read.grown <= TIMES_MAX * FRAME_OF_RELAY_BYTES_MAX


DENSE: dict[str, Callable[[str], bytes]] = {
    "half a million integers": lambda ref: elements(ref, b'{"v":[%b0]}' % (b"1," * (MILLION // 2))),
    "a MiB of lists": lambda ref: elements(ref, b'{"v":[%b0]}' % (b"[1]," * (2**18 - 8))),
    "one value too many for an element": lambda ref: elements(
        ref, b'{"v":[%b0]}' % (b"1," * (ELEMENT_VALUES_MAX - 2))
    ),
    "five MiB of lists": lambda ref: (
        b'["OK","%b",{"v":[%b0]}]' % (ref.encode(), b"[1]," * (5 * 2**18 - 99))
    ),
}


@pytest.mark.parametrize("name", DENSE)
async def test_a_message_of_more_values_than_any_relay_sends_is_not_read(
    readers: Readers, name: str
) -> None:
    relay = HostileRelay(DENSE[name])
    read = await read_at(readers, relay)
    assert read.failed
    ((code, reason),) = relay.closed
    assert code == 1002
    assert reason is not None
    assert "values in one" in reason
    assert read.grown <= TIMES_MAX * FRAME_OF_RELAY_BYTES_MAX


CRUMBS = {
    "a message in parts without content": (
        framed(TEXT, b"", flags=0, is_masked=False),
        framed(CONTINUATION, b"", flags=0, is_masked=False) * 500_000,
    ),
    "pings whose answers nobody reads": (
        framed(PING, is_masked=False),
        framed(PING, b"x" * 125, is_masked=False) * 240_000,
    ),
}


@pytest.mark.parametrize("name", CRUMBS)
async def test_a_client_holds_little_of_what_is_no_message(readers: Readers, name: str) -> None:
    relay = HostileRelay(lambda _: list(CRUMBS[name]))
    read = await read_at(readers, relay)
    assert read.failed
    assert relay.closed[0][0] == 1008
    assert read.grown <= TIMES_MAX * FRAME_OF_RELAY_BYTES_MAX


REJECTED: dict[str, Callable[[], JsonElement]] = {
    "ten thousand ops": lambda: write_packed(
        ALICE,
        [Set(f"r{number}", f"{ALICE.public_key}:s", number, 0) for number in range(1, OPS + 1)],
    ),
    "a value of a MiB": lambda: write_starfish(ALICE, [set_op(ALICE, 1, "x" * ELEMENT_BYTES_MAX)]),
}


@pytest.mark.parametrize("name", REJECTED)
async def test_an_element_that_is_too_much_is_rejected_by_a_client(
    readers: Readers, name: str
) -> None:
    made = REJECTED[name]()
    read = await read_at(readers, HostileRelay(lambda ref: element(ref, made)))
    assert read.failed is None
    assert read.names == 0
    (reason,) = read.rejected
    assert str({"ten thousand ops": BATCH_OPS_MAX}.get(name, ELEMENT_BYTES_MAX)) in reason
    assert read.grown <= TIMES_MAX * FRAME_OF_RELAY_BYTES_MAX


async def test_what_a_client_reads_of_the_most_values_takes_so_much_for_each(
    readers: Readers,
) -> None:
    # One less than what is refused above.
    value = [[1]] * (ELEMENT_VALUES_MAX // 2 - 8)
    made = write_starfish(ALICE, [set_op(ALICE, 1, value)])
    assert not has_too_many_values(canonical_bytes(made["data"]))
    read = await read_at(readers, HostileRelay(lambda ref: element(ref, made)))
    assert (read.failed, read.rejected, read.names) == (None, [], 1)
    most = TIMES_MAX * FRAME_OF_RELAY_BYTES_MAX + VALUE_BYTES_MAX * ELEMENT_VALUES_MAX
    assert read.grown <= most


async def test_a_snapshot_of_many_registers_takes_a_client_so_much(
    readers: Readers, many_registers: bytes
) -> None:
    read = await read_at(readers, HostileRelay(lambda _: b"", many_registers))
    assert (read.failed, read.names) == (None, REGISTERS)
    print(f"{REGISTERS} registers: {read.grown / 2**20:.1f} MiB of a client")
    most = TIMES_MAX * FRAME_OF_RELAY_BYTES_MAX + REGISTER_BYTES_MAX * REGISTERS
    assert read.grown <= most
