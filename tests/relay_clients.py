"""Clients that say exactly what a test wants said to a relay, and hear everything it answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from walstore.canon import canonical_bytes, parse
from walstore.signed import Identity
from walstore.signed.auth import sign_auth
from walstore.signed.author import sign_append, sign_document
from walstore.wire.frames import (
    Append,
    Auth,
    ClientFrame,
    Delivered,
    Elements,
    EndOfStored,
    Events,
    EventStatus,
    FeedStatus,
    GetSnapshot,
    Hello,
    Ok,
    Pull,
    PutSnapshot,
    Refusal,
    RelayFrame,
    Shown,
    SnapshotPiece,
    client_frame,
    read_relay_frame,
)
from walstore.wire.limits import EVENTS_PER_FRAME_MAX, SNAPSHOT_PIECE_SIZE

# Nothing on one machine takes longer; a test that waits for this has failed.
PATIENCE_S = 15.0

Frame = TypeVar("Frame", bound=RelayFrame)


def identity(number: int) -> Identity:
    """The same one for the same number."""
    return Identity.from_seed(bytes([number]) * 32)


ANNA, BEN, CARL = identity(1), identity(2), identity(3)


def appending(
    author: Identity,
    document: str,
    data: dict[str, Any],
    *,
    ref: str = "append",
    log: str | None = None,
) -> Append:
    """An element that is signed as it should be."""
    proof = sign_append(document, data, author)
    return Append(
        ref, document, log, author.public_key, proof.author_signature, canonical_bytes(data)
    )


def snapshot_text(
    author: Identity,
    document: str,
    *,
    upto_ts: int,
    state: Any = None,
    writer_seq: dict[str, int] | None = None,
) -> bytes:
    """A snapshot that is signed as it should be."""
    content = {
        "state": {} if state is None else state,
        "uptoTs": upto_ts,
        "writerSeq": {author.public_key: 1} if writer_seq is None else writer_seq,
        "producedBy": author.public_key,
    }
    proof = sign_document(f"{document}__snapshot", content, author)
    signed = {
        "authorPubkey": proof.author_pubkey,
        "authorSignature": proof.author_signature,
    }
    return canonical_bytes(content | signed)


def revision_of(text: bytes) -> str:
    """What a snapshot is called."""
    return sha256(text).hexdigest()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something in this process has come true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


class Speaker:
    """One connection to a relay."""

    def __init__(self, socket: ClientConnection, hello: Hello, address: str) -> None:
        """Begin after the hello; `kept` holds what nobody has asked for yet."""
        self.socket = socket
        self.hello = hello
        self.address = address
        self.requests = 0
        self.kept: list[RelayFrame] = []

    # ── saying ─────────────────────────────────────────────────────────────────────────

    def ref(self) -> str:
        """A ref that was not used yet."""
        self.requests += 1
        return f"r{self.requests}"

    async def say(self, *frames: ClientFrame | str) -> None:
        """Send frames, or text that is none."""
        for frame in frames:
            text = frame if isinstance(frame, str) else client_frame(frame).decode()
            await self.socket.send(text)

    async def prove(self, *identities: Identity) -> None:
        """Prove keys."""
        for each in identities:
            ref = self.ref()
            await self.say(Auth(ref, each.public_key, self.answer_to_challenge(each)))
            await self.get(Ok, ref)

    def answer_to_challenge(self, author: Identity) -> str:
        """The proof that this connection asks for."""
        return sign_auth(challenge=self.hello.challenge, relay=self.address, identity=author)

    async def append(self, author: Identity, document: str, data: dict[str, Any]) -> Ok:
        """Append an element and wait until it is stored."""
        ref = self.ref()
        await self.say(appending(author, document, data, ref=ref))
        return await self.get(Ok, ref)

    async def follow(self, document: str, *, after: int = 0, ref: str = "live") -> EndOfStored:
        """Follow a document live; what is stored is kept for `elements`."""
        await self.say(Pull(ref, document, None, after, 1000, True))
        return await self.get(EndOfStored, ref)

    async def put(
        self, document: str, text: bytes, *, replaces: str | None, log: str | None = None
    ) -> Ok | Refusal:
        """Put a snapshot, in as many pieces as it takes."""
        ref, whole = self.ref(), text.decode()
        starts = range(0, len(whole), SNAPSHOT_PIECE_SIZE)
        for start in starts:
            piece = whole[start : start + SNAPSHOT_PIECE_SIZE]
            is_last = start == starts[-1]
            await self.say(PutSnapshot(ref, document, log, replaces, piece, is_last))
        return await self.outcome(ref)

    async def snapshot(self, document: str, revision: str | None = None) -> bytes | None:
        """The current snapshot, or the one with a revision."""
        ref = self.ref()
        await self.say(GetSnapshot(ref, document, None, revision))
        pieces: list[str] = []
        while True:
            piece = await self.get(SnapshotPiece, ref)
            if piece.text is None:
                return None
            pieces.append(piece.text)
            if piece.is_last:
                return "".join(pieces).encode()

    # ── hearing ────────────────────────────────────────────────────────────────────────

    async def hear(self) -> RelayFrame:
        """The next frame, whatever it is."""
        if self.kept:
            return self.kept.pop(0)
        return await self._read()

    async def get(self, kind: type[Frame], ref: str | None = None) -> Frame:
        """The next frame of a kind, and under a ref if one is given; others are kept."""
        for place, frame in enumerate(self.kept):
            if _is_wanted(frame, kind, ref):
                found = self.kept.pop(place)
                assert isinstance(found, kind)
                return found
        while True:
            frame = await self._read()
            if _is_wanted(frame, kind, ref):
                assert isinstance(frame, kind)
                return frame
            assert not (isinstance(frame, Refusal) and frame.ref == ref and ref), frame
            self.kept.append(frame)

    async def next_under(self, ref: str) -> RelayFrame:
        """The next frame under a ref."""
        for place, frame in enumerate(self.kept):
            if frame[0] == ref:
                return self.kept.pop(place)
        while (frame := await self._read())[0] != ref:
            self.kept.append(frame)
        return frame

    async def outcome(self, ref: str) -> Ok | Refusal:
        """What became of a request."""
        while True:
            for place, frame in enumerate(self.kept):
                if isinstance(frame, Ok | Refusal) and frame.ref == ref:
                    del self.kept[place]
                    return frame
            self.kept.append(await self._read())

    async def refusal(self, ref: str | None = None) -> Refusal:
        """The next refusal, under a ref if one is given."""
        while True:
            for place, frame in enumerate(self.kept):
                if isinstance(frame, Refusal) and ref in (None, frame.ref):
                    del self.kept[place]
                    return frame
            self.kept.append(await self._read())

    async def elements(self, count: int, *, ref: str = "live") -> list[Delivered]:
        """So many elements under a ref; more would fail."""
        found: list[Delivered] = []
        while len(found) < count:
            found += (await self.get(Elements, ref)).elements
        assert len(found) == count
        return found

    async def events(self, ref: str) -> tuple[list[tuple[int, Any]], EndOfStored]:
        """What a feed or a request shows until its end, in order; statuses among it."""
        found: list[tuple[int, Any]] = []
        while True:
            match await self.next_under(ref):
                case Events() as frame:
                    assert 0 < len(frame.events) <= EVENTS_PER_FRAME_MAX
                    found += [(each.seq, _with_payload(each)) for each in frame.events]
                case EventStatus() as frame:
                    found.append((frame.status["seq"], frame.status))
                case EndOfStored() as frame:
                    return found, frame
                case FeedStatus():
                    assert not found
                case frame:
                    raise AssertionError(frame)

    async def silence(self) -> list[RelayFrame]:
        """What was said up to now and nobody has asked for yet."""
        await self.say('["CLOSE","is anything left?"]')
        while True:
            frame = await self._read()
            if frame[0] == "is anything left?":
                kept, self.kept = self.kept, []
                return kept
            self.kept.append(frame)

    async def closed(self) -> tuple[int | None, str | None]:
        """How the relay closed the connection."""
        try:
            while True:
                self.kept.append(await self._read())
        except ConnectionClosed:
            return self.socket.close_code, self.socket.close_reason

    async def _read(self) -> RelayFrame:
        async with asyncio.timeout(PATIENCE_S):
            return read_relay_frame(await self.socket.recv())


def _with_payload(shown: Shown) -> dict[str, Any]:
    name = "data" if shown.event["kind"] == "element" else "snapshot"
    return {**shown.event, name: None if shown.payload is None else parse(shown.payload)}


def _is_wanted(frame: RelayFrame, kind: Any, ref: str | None) -> bool:
    return isinstance(frame, kind) and (ref is None or frame[0] == ref)


@asynccontextmanager
async def speaking(url: str, *identities: Identity, **options: Any) -> AsyncIterator[Speaker]:
    """Connect, hear the hello, and prove some keys."""
    options = {"compression": None, "proxy": None, "close_timeout": 1} | options
    async with connect(url, **options) as client:
        async with asyncio.timeout(PATIENCE_S):
            hello = read_relay_frame(await client.recv())
        assert isinstance(hello, Hello)
        speaker = Speaker(client, hello, url.removeprefix("ws://").removesuffix("/"))
        await speaker.prove(*identities)
        yield speaker


def narrow_socket(port: int) -> socket.socket:
    """A connection whose receiver holds next to nothing that was not read."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.connect(("127.0.0.1", port))
    narrow.setblocking(False)
    return narrow
