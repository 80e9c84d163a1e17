"""What a client has to say on its connection, in order, and not written before it is sent.

- Each request has a ref, and refs count up, so that an answer that comes too late can be told
  from one to something that was never asked.
- What is no longer wanted is taken out.
- A frame that is larger than the relay takes is not sent: it would only end the connection.
- Of a document's presence only the newest counts. Relays bear so many a second; the rest waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from walstore.net.alarm import Alarm
from walstore.wire.frames import ClientFrame, Close, client_frame
from walstore.wire.limits import FRAME_BYTES_MAX

# Presences that are sent within a second; relays refuse more than about twice as many.
_PRESENCES_PER_SECOND = 30


class Outgoing:
    """The frames that wait to be sent."""

    def __init__(self, alarm: Alarm) -> None:
        """Begin with nothing; the alarm is told when what waits may be sent."""
        self._alarm = alarm
        # What the relay takes in one frame, as it has said in its hello.
        self.frame_bytes_max = FRAME_BYTES_MAX
        # What else it can do.
        self.features: tuple[str, ...] = ()
        self._refs = 0
        self._frames: dict[str, Iterator[ClientFrame]] = {}
        self._closing: dict[str, None] = {}
        self._presences: dict[str, bytes] = {}
        self._window_ms = 0
        self._window_count = 0

    def __bool__(self) -> bool:
        return bool(self._frames or self._closing or self._presences)

    def next_ref(self) -> str:
        """A name for a request."""
        self._refs += 1
        return str(self._refs)

    def was_used(self, ref: str) -> bool:
        """Whether a request ever had this name."""
        is_number = ref.isascii() and ref.isdigit() and ref[0] != "0" and len(ref) <= 16
        return is_number and int(ref) <= self._refs

    def add(self, ref: str, frames: Iterator[ClientFrame]) -> None:
        """Send the frames of a request."""
        self._frames[ref] = frames

    def drop(self, ref: str) -> bool:
        """Send nothing more of a request; whether anything was left of it."""
        return self._frames.pop(ref, None) is not None

    def close(self, ref: str) -> None:
        """Tell that a request is no longer wanted."""
        self._closing[ref] = None

    def announce(self, document: str, presence: bytes) -> None:
        """Send a presence, in place of one that was not sent yet."""
        self._presences[document] = presence

    def clear(self) -> None:
        """The connection is gone, and all of this with it."""
        self._frames.clear()
        self._closing.clear()
        self._presences.clear()

    def take(
        self,
        now_ms: int,
        on_begun: Callable[[str, int], None],
        on_too_large: Callable[[str, int], None],
    ) -> bytes | None:
        """The next frame, or None if there is none now.

        Args:
            now_ms: The time.
            on_begun: Told the ref of a request whose frame it is.
            on_too_large: Told the ref of a request that has a frame of so many bytes, too many.
        """
        while self._frames:
            ref, frames = next(iter(self._frames.items()))
            frame = next(frames, None)
            if frame is None:
                del self._frames[ref]
                continue
            written = client_frame(frame)
            if len(written) > self.frame_bytes_max:
                del self._frames[ref]
                on_too_large(ref, len(written))
                continue
            on_begun(ref, now_ms)
            return written
        if self._closing:
            ref = next(iter(self._closing))
            del self._closing[ref]
            return client_frame(Close(ref))
        return self._take_presence(now_ms)

    def _take_presence(self, now_ms: int) -> bytes | None:
        if not self._presences:
            return None
        if now_ms - self._window_ms >= 1000:
            self._window_ms, self._window_count = now_ms, 0
        if self._window_count >= _PRESENCES_PER_SECOND:
            self._alarm.at(self._window_ms + 1000)
            return None
        self._window_count += 1
        document = next(iter(self._presences))
        return self._presences.pop(document)
