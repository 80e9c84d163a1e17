"""What a peer may cost below the level of messages, where nobody else counts.

- A ping is answered by the library at once, whether the answers before it were read or not: who
  sends them without end would have them pile up, and its pace is nobody's.
- A message may come in any parts, also empty ones, and each takes far more memory than its six
  bytes: so many are taken, and one more for so many bytes of the message.
- Whoever goes beyond is told so, and the connection ends.
"""

from __future__ import annotations

from typing import Any

from websockets.asyncio.connection import Connection
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Event

# Pings and pongs in so many seconds. Clients ping every ten, and a test suite some in a row.
_CONTROLS_MAX = 256
_WINDOW_S = 10.0

# Parts of one message, and for how many bytes there may be one more. Some libraries cut messages
# small, into tens of bytes; a part takes a few times as much.
_PARTS_MAX = 1024
_BYTES_PER_PART = 64


class BoundedConnection(Connection):
    """A websocket that ends where its peer sends pings without end, or a message in crumbs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._controls = 0
        self._since = self.loop.time()
        self._parts = self._size = 0
        self._is_over = False

    def process_event(self, event: Event) -> None:
        """Take a frame, unless it is one too many."""
        if isinstance(event, Frame):
            if not self._is_over and (reason := self._find_fault(event)) is not None:
                self._is_over = True
                self.protocol.fail(CloseCode.POLICY_VIOLATION, reason)
                self.send_data()
            if self._is_over:
                # What has come together with it is not looked at any more.
                return
        super().process_event(event)

    def _find_fault(self, frame: Frame) -> str | None:
        if frame.opcode in (Opcode.PING, Opcode.PONG):
            return None if self._may_ping() else "too many pings"
        if frame.opcode is not Opcode.CONT:
            self._parts = self._size = 0
        self._parts += 1
        self._size += len(frame.data)
        are_crumbs = self._parts > _PARTS_MAX + self._size // _BYTES_PER_PART
        return "a message in too many parts" if are_crumbs else None

    def _may_ping(self) -> bool:
        now = self.loop.time()
        if now - self._since >= _WINDOW_S:
            self._since, self._controls = now, 0
        self._controls += 1
        return self._controls <= _CONTROLS_MAX
