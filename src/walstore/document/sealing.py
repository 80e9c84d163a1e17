"""From recorded runs to signed bodies: a commit, cut to the limits, sealed once and for all.

- A body is made once and sent until it is acknowledged, byte for byte the same each time.
- A commit that is too large for one element becomes several, in order.
- The header of each names the one before it, so the bodies of a session form one chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from walstore.canon import canonical_bytes, plain_bytes
from walstore.crdt import Run
from walstore.crdt.runs import Insert, Remove
from walstore.document.entries import Entry
from walstore.document.ports import Body
from walstore.errors import NotJsonError, UsageError
from walstore.sealed.encryptor import Encryptor, PlainEncryptor, SealContext
from walstore.signed.author import Domain, SigningFrame
from walstore.signed.chain import link_decoded
from walstore.signed.encoding import encode_signature
from walstore.signed.identity import Identity
from walstore.wire.element import Element, has_too_many_values
from walstore.wire.envelope import (
    Header,
    Profile,
    inner_packed,
    inner_starfish,
    outer_packed,
    outer_starfish,
)
from walstore.wire.keystrokes import write_keystroke
from walstore.wire.limits import (
    BATCH_OPS_MAX,
    BATCH_REMOVES_MAX,
    ELEMENT_BYTES_MAX,
    ELEMENT_VALUES_MAX,
    MESSAGE_SIZE_MAX,
    STARFISH_ELEMENT_BYTES_MAX,
)

# What a seal may grow by when it is made anew: a key epoch with more digits.
_RENEWAL_BYTES = 64

# A header alone takes some hundred bytes: in less than this, nothing can be said.
_BYTES_MIN = 1024


# Values in one value, beside which a header still fits.
_VALUES_MAX = ELEMENT_VALUES_MAX - 2**10


class ValueTooLargeError(UsageError):
    """A value, or what is said of it, that fits no element; nobody could store it."""

    def __init__(self, size: int, limit: int, unit: str = "bytes", *, what: str = "value") -> None:
        super().__init__(f"a {what} of {size} {unit} is too large; there is room for {limit}")
        self.size = size
        self.limit = limit


class Sealed(NamedTuple):
    """A body ready to send, with what it was made of."""

    body: Body
    link: str
    header: Header | None
    author_seq: int | None
    runs: list[Run]
    epoch: object
    message: str | None = None

    def entry(self) -> Entry:
        """The entry of the element that it becomes, which has no place in the log yet."""
        body = self.body
        element = Element(0, body.canonical, body.author, body.signature)
        return Entry(element, self.link, self.header, self.author_seq, self.runs, self.message)

    @property
    def is_opened(self) -> bool:
        """Whether it is known what is in it; not of one that an earlier process has left, and
        whose key is not at hand.
        """
        return bool(self.runs) or self.message is not None

    @property
    def is_divisible(self) -> bool:
        """Whether it can be made several smaller ones."""
        return _is_divisible(self.runs)


class Sealer:
    """Makes the bodies of one session."""

    __slots__ = (
        "_bytes_max",
        "_document_key",
        "_encryptor",
        "_format_bytes_max",
        "_frame",
        "_identity",
        "_is_chained",
        "_is_plain",
        "_key",
        "_profile",
        "_session",
    )

    @property
    def session(self) -> str:
        """The session that it seals for."""
        return self._session

    def __init__(
        self,
        document_key: str,
        *,
        identity: Identity,
        session: str,
        encryptor: Encryptor,
        profile: Profile,
        is_chained: bool,
    ) -> None:
        """Write as one session of an identity; only `starfish` can do without the chain."""
        self._document_key = document_key
        self._frame = SigningFrame(Domain.APPEND, document_key)
        self._identity = identity
        self._key = bytes.fromhex(identity.public_key)
        self._session = session
        self._encryptor = encryptor
        self._profile = profile
        self._is_chained = is_chained
        # Whether elements are packed, and not sealed.
        self._is_plain = profile is Profile.PACKED and type(encryptor) is PlainEncryptor
        # The largest element that this profile writes, to whatever relay.
        self._format_bytes_max = (
            STARFISH_ELEMENT_BYTES_MAX
            if profile is Profile.STARFISH
            else ELEMENT_BYTES_MAX - _RENEWAL_BYTES
        )
        self._bytes_max = self._format_bytes_max

    def for_session(self, session: str) -> Sealer:
        """The same for another session."""
        other = copy(self)
        other._session = session
        return other

    def limit(self, bytes_max: int) -> bool:
        """Make no larger elements from now on; whether that is less than before."""
        bytes_max = max(bytes_max - _RENEWAL_BYTES, _BYTES_MIN)
        is_less = bytes_max < self._bytes_max
        self._bytes_max = min(bytes_max, self._bytes_max)
        return is_less

    @property
    def bytes_max(self) -> int:
        """The largest element that is made, if what is in it can be divided."""
        return self._bytes_max

    @property
    def epoch(self) -> object:
        """The key epoch that the next seal will use; None if nothing is sealed."""
        return getattr(self._encryptor, "current_epoch", None)

    def check_value(self, value: object) -> None:
        """Refuse a value that no element could hold.

        Raises:
            ValueTooLargeError: It is too large.
        """
        # Room for the envelope, and for what sealing and base64 add to it.
        _check_size(value, self._format_bytes_max // 2)

    def check_name(self, name: str) -> None:
        """Refuse a name, or a key of a map, that no element could hold beside a value.

        Raises:
            ValueTooLargeError: It is too large.
        """
        _check_size(name, self._format_bytes_max // 16)

    def check_message(self, message: str) -> None:
        """Refuse a message that readers would not take.

        Raises:
            NotJsonError: It is not text.
            ValueTooLargeError: It is too long.
        """
        if not isinstance(message, str):
            raise NotJsonError(f"a message cannot be a {type(message).__name__}")
        if len(message) > MESSAGE_SIZE_MAX:
            raise ValueTooLargeError(len(message), MESSAGE_SIZE_MAX, "characters", what="message")

    def seal(
        self,
        runs: list[Run],
        *,
        seq: int,
        author_seq: int,
        prev: str | None,
        seen: Mapping[str, int],
        session: str | None = None,
        message: str | None = None,
    ) -> list[Sealed]:
        """Make the bodies of a commit.

        Args:
            runs: What to commit; empty only with a message.
            seq: The session's seq of the first body.
            author_seq: The author's seq of the first body, for version 1.
            prev: The link to the author's newest element.
            seen: What is new since of others.
            session: Whose edits they are, if not this session's.
            message: What the author says of them; it goes with the last body.
        """
        writer = self._session if session is None else session
        waiting: list[list[Run]] = [runs]
        bodies: list[Sealed] = []
        while waiting:
            part, sealed = waiting.pop(), None
            is_divisible = _is_divisible(part)
            if not is_divisible or _fits(part, self._profile):
                header = Header(writer, seq, prev, seen) if self._is_chained else None
                note = None if waiting else message
                sealed = self._seal_one(part, header, author_seq, note)
            if sealed is None or (is_divisible and self._is_too_large(sealed)):
                left, right = _halves(part)
                waiting += [right, left]
                continue
            bodies.append(sealed)
            seq, author_seq, prev, seen = seq + 1, author_seq + 1, sealed.link, {}
        return bodies

    def renew(self, sealed: Sealed, prev: str | None) -> Sealed:
        """Make a body anew under the key epoch of now, after another one."""
        header = None if sealed.header is None else sealed.header._replace(prev=prev)
        return self._seal_one(sealed.runs, header, sealed.author_seq or 0, sealed.message)

    def _is_too_large(self, sealed: Sealed) -> bool:
        text = sealed.body.canonical
        return len(text) > self.bytes_max or has_too_many_values(text)

    def _seal_one(
        self, runs: list[Run], header: Header | None, author_seq: int, message: str | None
    ) -> Sealed:
        author, epoch = self._identity.public_key, self.epoch
        canonical: bytes | None = None
        if self._is_plain and len(runs) == 1 and header is not None and message is None:
            canonical = write_keystroke(runs[0], author, header)
        if canonical is None:
            canonical = self._sealed_text(runs, header, author_seq, message)
        signed = self._frame.around(canonical)
        signature = self._identity.sign(signed)
        name = link_decoded(signed, key=self._key, signature=signature)
        body = Body(canonical, author, encode_signature(signature))
        counted = author_seq if self._profile is Profile.STARFISH else None
        return Sealed(body, name, header, counted, runs, epoch, message)

    def _sealed_text(
        self, runs: list[Run], header: Header | None, author_seq: int, message: str | None
    ) -> bytes:
        """The text of an element, sealed if it has to be."""
        author = self._identity.public_key
        context = SealContext(self._document_key, author, header.seq if header else 0)
        data: dict[str, Any]
        if self._profile is Profile.STARFISH:
            inner = inner_starfish(author, author_seq, runs, message)
            sealed = self._encryptor.seal(inner, context)
            data = outer_starfish(sealed, header)
        else:
            assert header is not None, "packed elements are always chained"
            inner = inner_packed(f"{author}:{header.session}", runs, message)
            sealed = self._encryptor.seal(inner, context)
            data = outer_packed(sealed, author, header)
        is_plain = sealed is inner and _is_plain(runs)
        return plain_bytes(data) if is_plain else canonical_bytes(data)


def _check_size(value: object, limit: int) -> None:
    if isinstance(value, str) and len(value) * 6 < limit:
        return
    text = canonical_bytes(value)
    if len(text) > limit:
        raise ValueTooLargeError(len(text), limit)
    if has_too_many_values(text, _VALUES_MAX):
        raise ValueTooLargeError(_VALUES_MAX + 1, _VALUES_MAX, "values")


def _is_plain(runs: Sequence[Run]) -> bool:
    """Whether nothing but text and counters is in runs, as in whatever is typed."""
    for run in runs:
        if not isinstance(run, Remove) and not (
            isinstance(run, Insert) and isinstance(run.values, str)
        ):
            return False
    return True


def _fits(runs: Sequence[Run], profile: Profile) -> bool:
    """Whether an element may hold so many ops, whatever their size."""
    if profile is Profile.STARFISH:
        return sum(map(_ops_in, runs)) <= BATCH_OPS_MAX
    removes = sum(run.size for run in runs if isinstance(run, Remove))
    return len(runs) <= BATCH_OPS_MAX and removes <= BATCH_REMOVES_MAX


def _ops_in(run: Run) -> int:
    """How many ops of version 1 a run stands for."""
    if isinstance(run, Insert):
        return len(run.values)
    return run.size if isinstance(run, Remove) else 1


def _is_divisible(runs: Sequence[Run]) -> bool:
    return len(runs) > 1 or (bool(runs) and _ops_in(runs[0]) > 1)


def _halves(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    half = len(runs) // 2
    if half:
        return runs[:half], runs[half:]
    run = runs[0]
    if isinstance(run, Insert):
        half = len(run.values) // 2
        left = Insert(
            run.list,
            run.replica,
            run.counter,
            run.after_replica,
            run.after_counter,
            run.values[:half],
        )
        end = run.counter + half
        right = Insert(run.list, run.replica, end, run.replica, end - 1, run.values[half:])
        return [left], [right]
    assert isinstance(run, Remove)
    half = run.size // 2
    target = run.target_counter + half * run.step
    first = Remove(
        run.list, run.replica, run.counter, run.target_replica, run.target_counter, half, run.step
    )
    rest = Remove(
        run.list,
        run.replica,
        run.counter + half,
        run.target_replica,
        target,
        run.size - half,
        run.step,
    )
    return [first], [rest]
