"""One connection as the relay sees it: who it is, what it may do, what it has asked for.

- Pure: frames in, replies and orders out. The shell carries out the orders and sends the replies.
- Cheap checks come first: the pace, size and shape, then who asks and for what. What is expensive
  (signatures of elements, the disk) is only ever ordered for those who may ask for it.
- A fault is answered and counted; a peer that keeps at it is dropped, and its keys have to wait.

    receive(text) ──► Reply     send this
                 ├──► Order     carry this out (a checked frame)
                 └──► Drop      close the connection, with this reason
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from typing import NamedTuple

from walstore.errors import MalformedError
from walstore.relay.limits import Limits
from walstore.relay.log import log_id
from walstore.relay.rates import Penalties, TokenBucket
from walstore.relay.roles import Role, Roles
from walstore.relay.uploads import Uploads
from walstore.signed.auth import verify_auth
from walstore.signed.grant import Grant, read_grant
from walstore.wire.element import has_too_many_values
from walstore.wire.frames import (
    PROTOCOL_VERSION,
    RECORDS_FEATURE,
    Append,
    Auth,
    Challenge,
    Close,
    Closed,
    Code,
    FollowChanges,
    FrameError,
    GetRecord,
    GetSnapshot,
    Hello,
    KeepRecord,
    Ok,
    PublishGrant,
    Pull,
    PullTail,
    PutSnapshot,
    Refusal,
    RelayFrame,
    Request,
    SetPresence,
    read_client_frame,
)
from walstore.wire.limits import CHALLENGE_MS_MAX, ELEMENT_BYTES_MAX, ELEMENT_VALUES_MAX

# Snapshots are documents of their own to TypeScript peers; here the suffix is the relay's to use.
RESERVED_SUFFIX = "__snapshot"

# As how many frames one counts that is answered with a refusal: whoever is refused most of what
# they say has less of the relay than others.
REFUSED_FRAMES = 10

# A longer frame counts as one for each so many bytes, unpacked: to read it takes that much longer.
_BYTES_PER_FRAME = 8 * 2**10

# Frames at once of a connection that has proved no key. To come anew gains nothing then.
STRANGER_FRAMES = 200

# What a websocket can carry when it is closed.
_CLOSE_REASON_BYTES_MAX = 123


class Reply(NamedTuple):
    """To be sent."""

    frame: RelayFrame


class Drop(NamedTuple):
    """The connection is to be closed."""

    close_code: int
    reason: str


class PutWhole(NamedTuple):
    """A snapshot whose pieces have all come."""

    ref: str
    document: str
    revision: str | None
    text: bytes


class KeepGrant(NamedTuple):
    """A grant whose signature is good, by a key that may give it."""

    ref: str
    grant: Grant
    text: dict[str, object]


class Unsubscribe(NamedTuple):
    """What a ref names is to end, without a word: it is used for something else."""

    ref: str


Order = (
    Append
    | Pull
    | PullTail
    | GetSnapshot
    | PutWhole
    | GetRecord
    | KeepRecord
    | FollowChanges
    | Request
    | SetPresence
    | KeepGrant
    | Unsubscribe
)


class _RefusedError(Exception):
    def __init__(self, code: Code, message: str, **details: object) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Session:
    """The state of one connection."""

    def __init__(
        self,
        *,
        relay_id: str,
        authority: str,
        roles: Roles,
        limits: Limits,
        penalties: Penalties,
        uploads: Uploads,
        new_challenge: Callable[[], str],
        now_ms: int,
    ) -> None:
        """Begin.

        Args:
            relay_id: Names the relay's database.
            authority: The host and port that clients dial, which their proofs have to name.
            roles: Who may do what.
            limits: How much.
            penalties: Who has to wait.
            uploads: Where snapshots are put together, of all connections.
            new_challenge: Makes 64 random hex digits.
            now_ms: The time.
        """
        self.keys: set[str] = set()
        self._relay_id = relay_id
        self._authority = authority
        self._roles = roles
        self._limits = limits
        self._penalties = penalties
        self._new_challenge = new_challenge
        self._challenge = new_challenge()
        self._challenged_ms = now_ms
        self._subscriptions: set[str] = set()
        self._uploads = uploads
        # The snapshot that is put together, and one that was refused and is still coming.
        self._upload: str | None = None
        self._given_up: str | None = None
        self._faults = 0
        self._frames = TokenBucket(
            per_second=limits.frames_per_second,
            burst=limits.frames_burst,
            now_ms=now_ms,
            tokens=STRANGER_FRAMES,
        )
        self._presences = TokenBucket(
            per_second=limits.presence_per_second, burst=limits.presence_per_second, now_ms=now_ms
        )

    def hello(self, software: str) -> Hello:
        """The first frame."""
        return Hello(
            (PROTOCOL_VERSION,),
            self._relay_id,
            self._challenge,
            self._limits.advertised(),
            software,
            (RECORDS_FEATURE,),
        )

    def pace(self, text: bytes, now_ms: int) -> int:
        """How many milliseconds to wait before a frame is read."""
        return self._frames.borrow(now_ms, frames_in(text))

    def receive(self, text: bytes, now_ms: int) -> list[Reply | Order | Drop]:
        """What is to be done about a frame."""
        try:
            frame = read_client_frame(text)
        except FrameError as error:
            return self.fault(error.ref, error.code, error.reason, now_ms)
        try:
            return self._dispatch(frame, now_ms)
        except _RefusedError as error:
            ref = None if isinstance(frame, SetPresence) else frame.ref
            self._frames.borrow(now_ms, (REFUSED_FRAMES - 1) * frames_in(text))
            return self._refuse(ref, error)

    def fault(
        self, ref: str | None, code: Code, message: str, now_ms: int
    ) -> list[Reply | Order | Drop]:
        """Answer something that no honest client sends, and count it."""
        self._faults += 1
        reply = Reply(Refusal(ref, code, message, {}))
        if self._faults <= self._limits.faults_max:
            return [reply]
        for key in self.keys:
            self._penalties.add(key, now_ms)
        return [reply, Drop(1008, _cut(f"too many faults; the last one: {message}"))]

    def may_read(self, document: str, now_ms: int) -> bool:
        """Whether a document may be shown to this peer."""
        return self._roles.allows(Role.READ, document, self.keys, now_ms)

    def may_follow(self, prefix: str, now_ms: int) -> bool:
        """Whether all documents with a prefix may be shown to this peer."""
        return self._roles.allows_prefix(Role.READ, prefix, self.keys, now_ms)

    def refuse_producer(self, order: PutWhole, author: str, now_ms: int) -> Refusal | None:
        """Why a snapshot is not taken from who has signed it; None if it is."""
        try:
            self._check_author(author)
            # That another of the keys holds the role has let the pieces in; it signs nothing.
            if not self._roles.allows(Role.SNAPSHOT, order.document, {author}, now_ms):
                raise self._restricted(Role.SNAPSHOT)
        except _RefusedError as error:
            return Refusal(order.ref, error.code, str(error), error.details)
        return None

    def ended(self, ref: str) -> None:
        """A subscription is over."""
        self._subscriptions.discard(ref)

    def close(self) -> None:
        """The connection is over: let go of what others could use."""
        self._uploads.forget(self)

    def _dispatch(self, frame: object, now_ms: int) -> list[Reply | Order | Drop]:
        match frame:
            case Append():
                self._check_author(frame.author)
                # The author's own key has to hold the role, not just any that was proved.
                writer = {frame.author}
                self._check_document(frame.document, frame.log, Role.WRITE, writer, now_ms)
                if len(frame.data) > ELEMENT_BYTES_MAX:
                    raise _RefusedError(Code.TOO_LARGE, f"more than {ELEMENT_BYTES_MAX} bytes")
                if has_too_many_values(frame.data):
                    raise _RefusedError(Code.TOO_LARGE, f"more than {ELEMENT_VALUES_MAX} values")
                return [frame]
            case Auth():
                return self._prove(frame, now_ms)
            case Pull() | PullTail() | GetSnapshot():
                self._check_document(frame.document, frame.log, Role.READ, self.keys, now_ms)
                replaced = self._replace(frame.ref)
                if isinstance(frame, Pull) and frame.is_live:
                    self._subscribe(frame.ref)
                return [*replaced, frame]
            case PutSnapshot():
                return self._take_piece(frame, now_ms)
            case GetRecord():
                self._check_document(frame.document, None, Role.READ, self.keys, now_ms)
                return [*self._replace(frame.ref), frame]
            case KeepRecord():
                if not self._roles.may_keep(frame.document, self.keys, now_ms):
                    raise self._restricted(Role.GRANT)
                self._check_key(frame.document, frame.log)
                return [*self._replace(frame.ref), frame]
            case FollowChanges():
                if not self.may_follow(frame.prefix, now_ms):
                    raise self._restricted(Role.READ)
                replaced = self._replace(frame.ref)
                self._subscribe(frame.ref)
                return [*replaced, frame]
            case Request():
                return [*self._replace(frame.ref), frame]
            case SetPresence():
                return self._announce(frame, now_ms)
            case PublishGrant():
                return self._take_grant(frame, now_ms)
            case Close():
                self._give_up(frame.ref)
                if frame.ref == self._given_up:
                    self._given_up = None
                return [*self._replace(frame.ref), Reply(Closed(frame.ref, "closed"))]
            case _:
                raise AssertionError(frame)

    def _prove(self, frame: Auth, now_ms: int) -> list[Reply | Order | Drop]:
        if not 0 <= now_ms - self._challenged_ms <= CHALLENGE_MS_MAX:
            self._challenge, self._challenged_ms = self._new_challenge(), now_ms
            expired = Refusal(frame.ref, Code.AUTH_FAILED, "the challenge has expired", {})
            return [Reply(Challenge(self._challenge)), Reply(expired)]
        if wait_ms := self._penalties.wait_ms(frame.key, now_ms):
            raise _RefusedError(
                Code.RATE_LIMITED, "this key was dropped for its faults", retry_ms=wait_ms
            )
        if frame.key in self.keys:
            # It was shown on this connection already; to verify it again is work for nothing.
            return [Reply(Ok(frame.ref, {"key": frame.key}))]
        if len(self.keys) >= self._limits.keys_max:
            raise _RefusedError(Code.TOO_MANY, "too many keys on one connection")
        if not verify_auth(
            challenge=self._challenge,
            relay=self._authority,
            key=frame.key,
            signature=frame.signature,
        ):
            return self.fault(
                frame.ref,
                Code.AUTH_FAILED,
                f"not a proof of this key for this connection to {self._authority}",
                now_ms,
            )
        if not self.keys:
            self._frames.refill()
        self.keys.add(frame.key)
        return [Reply(Ok(frame.ref, {"key": frame.key}))]

    def _check_document(
        self, document: str, log: str | None, role: Role, keys: Set[str], now_ms: int
    ) -> None:
        if not self._roles.allows(role, document, keys, now_ms):
            raise self._restricted(role)
        self._check_key(document, log)

    def _check_key(self, document: str, log: str | None) -> None:
        if document.endswith(RESERVED_SUFFIX):
            raise _RefusedError(Code.INVALID, f"keys ending in {RESERVED_SUFFIX} are reserved")
        if log is not None and log != (here := log_id(self._relay_id, document)):
            raise _RefusedError(Code.OTHER_LOG, "this relay holds another log", log=here)

    def _check_author(self, author: str) -> None:
        if author not in self.keys:
            code = Code.RESTRICTED if self.keys else Code.AUTH_REQUIRED
            raise _RefusedError(code, "the author's key was not proved: AUTH with it")

    def _restricted(self, role: Role) -> _RefusedError:
        if not self.keys:
            return _RefusedError(Code.AUTH_REQUIRED, f"prove a key that may {role.value}")
        return _RefusedError(Code.RESTRICTED, f"none of the proved keys may {role.value} this")

    def _subscribe(self, ref: str) -> None:
        if len(self._subscriptions) >= self._limits.subscriptions_max:
            raise _RefusedError(Code.TOO_MANY, "too many live subscriptions")
        self._subscriptions.add(ref)

    def _replace(self, ref: str) -> list[Reply | Order | Drop]:
        if ref not in self._subscriptions:
            return []
        self._subscriptions.discard(ref)
        return [Unsubscribe(ref)]

    def _take_piece(self, frame: PutSnapshot, now_ms: int) -> list[Reply | Order | Drop]:
        """Collect the pieces of a snapshot, for those who may put it there at all."""
        if frame.ref == self._given_up:
            # It was refused; what was sent before that was heard is no snapshot.
            if frame.is_last:
                self._given_up = None
            return []
        try:
            self._check_document(frame.document, frame.log, Role.SNAPSHOT, self.keys, now_ms)
            if not self.keys:
                raise self._restricted(Role.SNAPSHOT)
            self._add_piece(frame, now_ms)
        except _RefusedError:
            self._give_up(frame.ref)
            raise
        if not frame.is_last:
            return []
        self._upload = None
        text = self._uploads.take(self)
        if text is None:
            raise _RefusedError(Code.UNAVAILABLE, "too much of this key is stored: send it again")
        return [PutWhole(frame.ref, frame.document, frame.revision, text)]

    def _add_piece(self, frame: PutSnapshot, now_ms: int) -> None:
        if frame.ref != self._upload:
            # One at a time: what others hold in pieces is memory. A key that may not put it there
            # is no other name to do so under: anybody makes many of them.
            may = partial(self._roles.allows, Role.SNAPSHOT, frame.document, now_ms=now_ms)
            self._uploads.begin(self, min([key for key in self.keys if may({key})]))
            self._upload, self._given_up = frame.ref, None
        size = self._uploads.add(self, frame.text.encode())
        if size is None or size > self._limits.snapshot_bytes_max:
            self._given_up = None if frame.is_last else frame.ref
        if size is None:
            raise _RefusedError(Code.UNAVAILABLE, "too many snapshots are coming in: send it again")
        if size > self._limits.snapshot_bytes_max:
            raise _RefusedError(Code.TOO_LARGE, "the snapshot is too large")

    def _give_up(self, ref: str) -> None:
        if ref == self._upload:
            self._uploads.forget(self)
            self._upload = None

    def _announce(self, frame: SetPresence, now_ms: int) -> list[Reply | Order | Drop]:
        if wait_ms := self._presences.take(now_ms):
            raise _RefusedError(Code.RATE_LIMITED, "too many presences", retry_ms=wait_ms)
        self._check_document(frame.document, None, Role.READ, self.keys, now_ms)
        return [frame]

    def _take_grant(self, frame: PublishGrant, now_ms: int) -> list[Reply | Order | Drop]:
        if not self.keys:
            raise _RefusedError(Code.AUTH_REQUIRED, "prove a key first")
        try:
            grant = read_grant(frame.grant)
        except MalformedError as error:
            return self.fault(frame.ref, Code.INVALID, error.reason, now_ms)
        if not self._roles.may_grant(grant, now_ms):
            raise _RefusedError(Code.RESTRICTED, "its issuer may not give these roles")
        return [KeepGrant(frame.ref, grant, frame.grant)]

    def _refuse(self, ref: str | None, error: _RefusedError) -> list[Reply | Order | Drop]:
        return [Reply(Refusal(ref, error.code, str(error), error.details))]


def frames_in(text: bytes) -> int:
    """As how many frames a frame counts."""
    return 1 + len(text) // _BYTES_PER_FRAME


def _cut(reason: str) -> str:
    return reason.encode()[:_CLOSE_REASON_BYTES_MAX].decode(errors="ignore")
