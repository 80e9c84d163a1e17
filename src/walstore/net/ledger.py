"""The requests of a client that wait for answers, over as many connections as it takes.

- They are bounded in number and in bytes; beyond that, asking is refused.
- Each has its time. What is large is given more, and so is an answer that keeps coming.
- On a new connection all of them are asked again, in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from walstore.document.ports import OtherLogError
from walstore.errors import TransportError
from walstore.net.alarm import Alarm
from walstore.net.events import ClientEvent, Settled
from walstore.net.faults import (
    BusyError,
    NoAnswerError,
    RelayFaultError,
    RelayRefusalError,
)
from walstore.net.logs import KnownLogs
from walstore.net.outgoing import Outgoing
from walstore.net.pending import Pending
from walstore.wire.frames import Closed, Code, Refusal, RelayFrame
from walstore.wire.limits import SNAPSHOT_BYTES_MAX

# Requests that wait for answers, and the bytes that they hold: a few seconds of hard work.
PENDING_MAX = 1024
PENDING_BYTES_MAX = SNAPSHOT_BYTES_MAX + 16 * 2**20

# What is large is given more time: a millisecond for each of these.
_BYTES_PER_MS = 64

AnyPending = TypeVar("AnyPending", bound=Pending[Any])


class Ledger:
    """Everything that was asked and is not answered.

    Attributes:
        writes: How many elements and snapshots are not known to be stored.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        logs: KnownLogs,
        events: list[ClientEvent],
        alarm: Alarm,
        *,
        timeout_ms: int,
    ) -> None:
        """Begin with nothing.

        Args:
            outgoing: Takes what is to be sent.
            logs: The logs that requests name.
            events: Told when a request is settled.
            alarm: Told when a request is to be given up.
            timeout_ms: How long an answer may take.
        """
        self._outgoing = outgoing
        self._logs = logs
        self._events = events
        self._alarm = alarm
        self._timeout_ms = timeout_ms
        self._pending: dict[str, Pending[Any]] = {}
        self._bytes = 0
        self.writes = 0

    def get(self, ref: str) -> Pending[Any] | None:
        """What waits under a ref."""
        return self._pending.get(ref)

    def add(self, pending: AnyPending, now_ms: int) -> AnyPending:
        """Let a request wait for its answer.

        Raises:
            BusyError: Too much waits already.
        """
        size = self._bytes + pending.size
        if len(self._pending) >= PENDING_MAX or size > PENDING_BYTES_MAX:
            raise BusyError
        pending.deadline_ms = now_ms + self._timeout_ms + pending.size // _BYTES_PER_MS
        self._alarm.at(pending.deadline_ms)
        self._pending[pending.ref] = pending
        self._bytes = size
        self.writes += pending.is_write
        return pending

    def send(self, pending: Pending[Any]) -> None:
        """Send a request, naming the log as far as it is known by now."""
        self._outgoing.add(pending.ref, pending.frames(self._logs.of(pending.document)))

    def send_all(self) -> None:
        """Send everything on a new connection."""
        for pending in self._pending.values():
            self.send(pending)

    def begun(self, ref: str, now_ms: int) -> None:
        """A frame of a request is on its way."""
        pending = self._pending.get(ref)
        if pending is not None and pending.begun_ms is None:
            pending.begun_ms = now_ms

    def too_large(self, ref: str, frame_bytes: int) -> None:
        """A frame of a request is larger than the relay takes, and was not sent."""
        pending = self._pending.get(ref)
        if pending is not None:
            if pending.begun_ms is not None:
                # Its first frames were sent, and the relay keeps them for the rest to come.
                self._outgoing.close(ref)
            self._fail(pending, pending.too_large(frame_bytes, self._outgoing.frame_bytes_max))

    def disconnect(self) -> None:
        """What was sent, and what had come of the answers, is gone."""
        for pending in self._pending.values():
            pending.restart()

    def take(self, pending: Pending[Any], frame: RelayFrame, now_ms: int) -> None:
        """Take a frame that names a request.

        Raises:
            RelayFaultError: It cannot answer it.
        """
        match frame:
            case Refusal() if pending.begun_ms is not None:
                pending.refuse(frame, self._logs.of(pending.document))
                self._outgoing.drop(pending.ref)
                self._remove(pending)
            case Closed() if pending.begun_ms is not None:
                self._fail(pending, RelayRefusalError(Code.UNAVAILABLE, frame.reason))
            case _ if not pending.is_sent:
                raise RelayFaultError("an answer to something that was not sent yet")
            case _:
                pending.take(frame)
                pending.deadline_ms = max(pending.deadline_ms, now_ms + self._timeout_ms)
                self._check_log(pending)
                if pending.is_settled:
                    if pending.is_answering:
                        self._outgoing.close(pending.ref)
                    self._remove(pending)

    def tick(self, now_ms: int) -> None:
        """Give up what takes too long."""
        for pending in list(self._pending.values()):
            if now_ms >= pending.deadline_ms:
                self._abandon(pending)
                self._fail(pending, NoAnswerError())
            else:
                self._alarm.at(pending.deadline_ms)

    def fail_all(self, new_error: Callable[[], TransportError]) -> None:
        """Nothing of this will be answered."""
        for pending in list(self._pending.values()):
            self._fail(pending, new_error())

    def forget(self, pending: Pending[Any]) -> None:
        """Nobody waits for this answer any more."""
        if pending.ref in self._pending:
            self._abandon(pending)
            self._remove(pending)

    def _abandon(self, pending: Pending[Any]) -> None:
        is_begun = pending.begun_ms is not None
        # What was sent in part, a relay would keep for the rest to come.
        is_in_part = self._outgoing.drop(pending.ref) and is_begun and not pending.is_sent
        if is_in_part or pending.is_answering:
            self._outgoing.close(pending.ref)

    def _check_log(self, pending: Pending[Any]) -> None:
        if pending.log is not None and not self._logs.is_same(pending.document, pending.log):
            known = self._logs.of(pending.document) or ""
            pending.fail(OtherLogError(pending.document, known, pending.log))

    def _fail(self, pending: Pending[Any], error: TransportError) -> None:
        self._outgoing.drop(pending.ref)
        pending.fail(error)
        self._remove(pending)

    def _remove(self, pending: Pending[Any]) -> None:
        del self._pending[pending.ref]
        self._bytes -= pending.size
        self.writes -= pending.is_write
        self._events.append(Settled(pending.ref))
