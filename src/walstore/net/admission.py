"""How a client is let in: it answers the relay's challenge, and every later one."""

from __future__ import annotations

from walstore.net.faults import NotAdmittedError, RelayFaultError
from walstore.net.outgoing import Outgoing
from walstore.signed.auth import sign_auth
from walstore.signed.identity import Identity
from walstore.wire.frames import PROTOCOL_VERSION, Auth, Hello, Ok, Refusal, RelayFrame
from walstore.wire.limits import FRAME_BYTES_MAX

# Challenges that a relay may set before it takes an answer to one.
_CHALLENGES_MAX = 4

# Not even a proof fits into less: a relay that says so does not mean it.
_FRAME_BYTES_MIN = 1024


class Admission:
    """The handshake of one connection.

    Attributes:
        is_greeted: Whether the relay has said hello.
        database: What the relay calls its database; empty until it has said hello.
        ref: The proof that was not answered yet; None if there is none.
    """

    def __init__(self, identity: Identity, relay: str, outgoing: Outgoing) -> None:
        """Begin a connection.

        Args:
            identity: Whose key is proved.
            relay: The host and port that were dialled.
            outgoing: Takes the proofs.
        """
        self.is_greeted = False
        self.database = ""
        self.ref: str | None = None
        self._identity = identity
        self._relay = relay
        self._outgoing = outgoing
        self._challenges = 0

    def greet(self, frame: RelayFrame) -> None:
        """Take the first frame.

        Raises:
            NotAdmittedError: The relay speaks another version, or turns the client away.
            RelayFaultError: It is no hello.
        """
        match frame:
            case Hello() if PROTOCOL_VERSION in frame.protocol:
                self.is_greeted = True
                self.database = frame.relay
                self._outgoing.frame_bytes_max = _frame_bytes_max(frame)
                self._outgoing.features = frame.features
                self.prove(frame.challenge)
            case Hello():
                raise NotAdmittedError(f"it does not speak version {PROTOCOL_VERSION}")
            case Refusal():
                raise NotAdmittedError(frame.message, retryable=frame.code.retryable)
            case _:
                raise RelayFaultError("it speaks before its hello")

    def prove(self, challenge: str) -> None:
        """Answer a challenge; the answer to the one before no longer counts.

        Raises:
            RelayFaultError: There have been too many.
        """
        self._challenges += 1
        if self._challenges > _CHALLENGES_MAX:
            raise RelayFaultError("challenges without end")
        ref = self.ref = self._outgoing.next_ref()
        signature = sign_auth(challenge=challenge, relay=self._relay, identity=self._identity)
        self._outgoing.add(ref, iter([Auth(ref, self._identity.public_key, signature)]))

    def take(self, frame: RelayFrame) -> None:
        """Take what the relay says to a proof.

        Raises:
            NotAdmittedError: It refuses it.
            RelayFaultError: That is no answer.
        """
        match frame:
            case Ok():
                self.ref = None
                self._challenges = 0
            case Refusal():
                raise NotAdmittedError(frame.message, retryable=frame.code.retryable)
            case _:
                raise RelayFaultError("a proof is answered with something else")


def _frame_bytes_max(hello: Hello) -> int:
    """What a relay takes in one frame; never more than any does."""
    said = hello.limits.get("frame_bytes_max", FRAME_BYTES_MAX)
    return min(said, FRAME_BYTES_MAX) if said >= _FRAME_BYTES_MIN else FRAME_BYTES_MAX
