"""A request that waits for its answer.

- It can be written again at any time: after a reconnect the same is asked under the same ref, byte
  for byte, and what had come of the old answer is forgotten.
- It takes only frames that can answer it; anything else is a `RelayFaultError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from walstore.errors import TransportError
from walstore.net.faults import TooLargeError, error_of
from walstore.wire.frames import ClientFrame, Refusal, RelayFrame

Answer = TypeVar("Answer")


class Pending(Generic[Answer]):
    """A request and what has become of it.

    Attributes:
        ref: Its name on the wire.
        document: What it is about.
        size: How many bytes it holds until it is answered.
        is_write: Whether something is to be stored.
        is_sent: Whether all of it was sent on this connection.
        begun_ms: When its first frame was sent; None if it was not.
        deadline_ms: When it is given up.
        log: The log that an answer named; None if none did.
        error: Why there will be no answer; None if there is one, or may be.
    """

    is_write = False

    def __init__(self, ref: str, document: str, size: int = 0) -> None:
        self.ref = ref
        self.document = document
        self.size = size
        self.is_sent = False
        self.begun_ms: int | None = None
        self.deadline_ms = 0
        self.log: str | None = None
        self._answer: tuple[Answer] | None = None
        self.error: TransportError | None = None

    @property
    def is_answering(self) -> bool:
        """Whether the relay goes on answering until it is told to stop."""
        return False

    @property
    def is_settled(self) -> bool:
        """Whether there is an answer, or will never be one."""
        return self._answer is not None or self.error is not None

    def result(self) -> Answer:
        """The answer.

        Raises:
            TransportError: There is none.
        """
        if self.error is not None:
            raise self.error
        assert self._answer is not None
        return self._answer[0]

    def fail(self, error: TransportError) -> None:
        """There will be no answer."""
        self.error = error

    def settle(self, answer: Answer) -> None:
        """This is the answer."""
        self._answer = (answer,)

    def refuse(self, refusal: Refusal, log: str | None) -> None:
        """The relay does not do it."""
        self.fail(error_of(refusal, self.document, log))

    def too_large(self, frame_bytes: int, frame_bytes_max: int) -> TransportError:
        """What it fails with if one of its frames is larger than this relay takes."""
        return TooLargeError(frame_bytes, frame_bytes_max)

    def restart(self) -> None:
        """Forget what was sent and what was answered, to be asked again."""
        self.is_sent = False
        self.begun_ms = None

    def frames(self, log: str | None) -> Iterator[ClientFrame]:
        """What to send, one frame after the other."""
        raise NotImplementedError

    def take(self, frame: RelayFrame) -> None:
        """Take a frame of the answer.

        Raises:
            RelayFaultError: It cannot be one.
        """
        raise NotImplementedError
