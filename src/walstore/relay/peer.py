"""One websocket connection: what is sent to it, and what is done when it does not read.

- Sending never waits: it succeeds, or the peer is behind. Whoever sends decides what that means.
- A message that many peers get is written once, and compressed for so many of them that nobody
  else waits for it: each connection compresses for itself. One that is large is not
  compressed at all.
- A peer with more unsent bytes than the limit is dropped, with a reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN

from walstore.relay.limits import Limits
from walstore.relay.metrics import Metrics
from walstore.relay.room import Subscription
from walstore.relay.session import Drop, Reply, Session
from walstore.wire.frames import RelayFrame, relay_frame

_logger = logging.getLogger("walstore.relay")


# What is compressed of one message for all who get it: some 30 ms, in which nobody else is served.
# It is enough for a keystroke to a thousand peers. What snapshots cover may be eight times as much.
_COMPRESSED_BYTES_MAX = 512 * 1024


class Broadcast:
    """A message for many peers: for each ref, the text and the websocket frame are made once."""

    __slots__ = ("_compressed_bytes", "_frames", "_text_for", "_texts")

    def __init__(self, text_for: Callable[[str], bytes]) -> None:
        self._text_for = text_for
        self._texts: dict[str, bytes] = {}
        self._frames: dict[str, bytes] = {}
        self._compressed_bytes = 0

    def text(self, ref: str) -> bytes:
        """The message."""
        text = self._texts.get(ref)
        if text is None:
            text = self._texts[ref] = self._text_for(ref)
        return text

    def take_time(self, ref: str) -> bool:
        """Take the time to compress the message for one more peer; False if there is none left."""
        self._compressed_bytes += len(self.text(ref))
        return self._compressed_bytes <= _COMPRESSED_BYTES_MAX

    def frame(self, ref: str) -> bytes:
        """The message as it goes over the wire, uncompressed and, as servers send it, unmasked."""
        frame = self._frames.get(ref)
        if frame is None:
            whole = Frame(Opcode.TEXT, self.text(ref))
            frame = self._frames[ref] = whole.serialize(mask=False)
        return frame


class Peer:
    """A connection, its session and its subscriptions."""

    def __init__(
        self,
        name: str,
        socket: ServerConnection,
        session: Session,
        limits: Limits,
        *,
        connected_ms: int,
        metrics: Metrics,
    ) -> None:
        self.name = name
        self.connected_ms = connected_ms
        self.session = session
        self.subscriptions: dict[str, Subscription[Peer]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.present_in: set[str] = set()
        # Held by what reads pages for this peer: however much it has asked for, one of them is
        # read, held and sent at a time, and others' pages come in between.
        self.turn = asyncio.Lock()
        # Held by a bootstrap until it is sent: what is still to be sent of one is a long list.
        self.bootstrap_turn = asyncio.Lock()
        self.in_flight = 0
        self.delivered = 0
        self._socket = socket
        self._is_compressed = bool(socket.protocol.extensions)
        self._limits = limits
        self._metrics = metrics
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.dropped: Drop | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether something can be sent."""
        return (
            self._socket.protocol.state is OPEN
            and self.dropped is None
            # A connection that broke while nothing was read from it is not noticed by the protocol.
            and not self._socket.transport.is_closing()
        )

    @property
    def pending_bytes(self) -> int:
        """What was sent and the peer has not read."""
        return self._socket.transport.get_write_buffer_size()

    @property
    def key(self) -> str | None:
        """A key that it has proved; None if it has proved none."""
        return min(self.session.keys, default=None)

    @property
    def address(self) -> str:
        """Where it comes from."""
        address = self._socket.remote_address
        return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)

    def answer(self, outcome: Reply | Drop) -> None:
        """Do what the session says."""
        match outcome:
            case Reply():
                self.send(outcome.frame)
            case Drop():
                self.drop(outcome)

    def send(self, frame: RelayFrame) -> None:
        """Send a frame; a peer that lets too many pile up is dropped."""
        self.send_text(relay_frame(frame))

    def send_text(self, text: bytes) -> None:
        """Send a frame that is written already."""
        if not self.is_open:
            return
        if self.pending_bytes > self._limits.pending_bytes_max:
            self.drop(Drop(1008, "too slow: too much of what was asked for is not read"))
            return
        if self._is_compressed and len(text) > _COMPRESSED_BYTES_MAX:
            self._send_as_it_is(Frame(Opcode.TEXT, text).serialize(mask=False))
        else:
            self._socket.protocol.send_text(text)
            self._socket.send_data()

    def _send_as_it_is(self, frame: bytes) -> None:
        # Nothing is ever sent in fragments here, so a whole frame may go in between; that it
        # is not compressed is allowed for each message by itself (RFC 7692, section 6).
        self._socket.transport.write(frame)

    def tell(self, frame: RelayFrame) -> None:
        """Send what is soon told again; a peer that is behind does without."""
        if self.pending_bytes <= self._limits.lag_bytes_max:
            self.send(frame)

    def push(self, ref: str, message: Broadcast) -> bool:
        """Send what many get; False if the peer is behind and has to catch up later."""
        if not self.is_open:
            return True
        if self.pending_bytes > self._limits.lag_bytes_max:
            return False
        self.delivered += 1
        if self._is_compressed and message.take_time(ref):
            self._socket.protocol.send_text(message.text(ref))
            self._socket.send_data()
        else:
            self._send_as_it_is(message.frame(ref))
        return True

    async def drained(self) -> None:
        """Wait until the peer has read most of what was sent; a peer that stalls is dropped."""
        while self.is_open:
            unread = self.pending_bytes
            try:
                async with asyncio.timeout(self._limits.stall_ms_max / 1000):
                    await self._socket.drain()
                return
            except TimeoutError:
                # Slow is not stalled: whoever reads at all is waited for.
                if self.pending_bytes >= unread:
                    self.drop(Drop(1008, "too slow: nothing was read for too long"))
            except OSError:
                # The connection broke; whoever reads from it is told.
                return

    def drop(self, drop: Drop) -> None:
        """Close the connection; it is not waited for."""
        if self.dropped is None:
            self.dropped = drop
            self._metrics.dropped(drop.close_code)
            self._closing = asyncio.create_task(self._close(drop))

    async def _close(self, drop: Drop) -> None:
        """Say why, as long as there is hope that the peer reads it; then cut it off."""
        try:
            async with asyncio.timeout(self._limits.close_ms_max / 1000):
                await self._socket.close(drop.close_code, drop.reason)
        except TimeoutError:
            self._socket.transport.abort()

    async def ended(self) -> None:
        """Wait until nothing of it is running any more."""
        for task in self.tasks.values():
            task.cancel()
        closing = [] if self._closing is None else [self._closing]
        await asyncio.gather(*self.tasks.values(), *closing, return_exceptions=True)

    def start(self, ref: str, work: Coroutine[None, None, None]) -> None:
        """Do something under a ref, in place of what was done under it before."""
        self.stop(ref)
        task = self.tasks[ref] = asyncio.create_task(work)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        """Nobody is left to wait for what will not come: a bug of ours ends the connection."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("a subscription failed", exc_info=error)
            self.drop(Drop(1011, "the relay failed"))

    def stop(self, ref: str) -> None:
        """End what is done under a ref, unless it is what is running now."""
        task = self.tasks.pop(ref, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def begun(self) -> None:
        """An append is on its way to the disk."""
        self.in_flight += 1
        if self.in_flight >= self._limits.in_flight_max:
            self._has_room.clear()

    def done(self) -> None:
        """An append was answered."""
        self.in_flight -= 1
        self._has_room.set()

    async def room(self) -> None:
        """Wait until another append may be taken."""
        await self._has_room.wait()
