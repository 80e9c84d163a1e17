"""The client's side of the relay protocol, without a socket: every relay is hostile."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.canon import canonical_bytes
from walstore.document.ports import (
    Body,
    CheckpointTooOldError,
    ElementRefusedError,
    LogBehindError,
    OtherLogError,
    RawElement,
    SnapshotConflictError,
)
from walstore.errors import NotJsonError, TransportError
from walstore.net import following as following_module
from walstore.net.backoff import Backoff
from walstore.net.client import RelayClient
from walstore.net.events import Admitted, Loaded, Moved, PeersChanged, Settled
from walstore.net.faults import (
    BusyError,
    ElementTooLargeError,
    FalseAnswerError,
    NoAnswerError,
    NotAdmittedError,
    OfflineError,
    PresenceRefusedError,
    RelayFaultError,
    RelayRefusalError,
    TooLargeError,
    TransportClosedError,
)
from walstore.net.following import FOLLOW_BYTES_MAX, FOLLOW_ELEMENTS_MAX, PEERS_MAX, Waiting
from walstore.net.ledger import PENDING_BYTES_MAX, PENDING_MAX
from walstore.net.pending import Pending
from walstore.net.status import State
from walstore.signed import Identity
from walstore.signed.auth import auth_input, verify_auth
from walstore.wire.frames import (
    Append,
    Auth,
    Challenge,
    ClientFrame,
    Close,
    Closed,
    Code,
    Delivered,
    Elements,
    EndOfStored,
    GetSnapshot,
    Hello,
    Ok,
    Presence,
    Pull,
    PullTail,
    PutSnapshot,
    Refusal,
    RelayFrame,
    SetPresence,
    SnapshotPiece,
    client_frame,
    read_client_frame,
    relay_frame,
)
from walstore.wire.limits import (
    ELEMENT_BYTES_MAX,
    PRESENCE_BYTES_MAX,
    PULL_ELEMENTS_MAX,
    SNAPSHOT_PIECE_SIZE,
    SNAPSHOT_VALUES_MAX,
    TS_MAX,
)

ALICE = Identity.from_seed(b"\x01" * 32)
BOB = Identity.from_seed(b"\x02" * 32)
RELAY = "relay.example:443"
DOC = "notes/a"
LOG, OTHER_LOG = "a" * 32, "b" * 32
CHALLENGE, CHALLENGE_2 = "c" * 64, "d" * 64
TIMEOUT_MS = 10_000
SIGNATURE = "A" * 86 + "=="


class Wire:
    """A client, and the relay's end of its connection in the hands of the test."""

    def __init__(self, logs: dict[str, str] | None = None) -> None:
        self.now_ms = 1_000
        self.client = RelayClient(
            ALICE, relay=RELAY, logs=logs or {}, request_timeout_ms=TIMEOUT_MS
        )

    def connect(self) -> Wire:
        """Up to where requests are sent."""
        self.client.connected()
        self.say(hello())
        (auth,) = self.hear()
        assert isinstance(auth, Auth)
        self.say(Ok(auth.ref, {}))
        assert self.client.state is State.LIVE
        return self

    @property
    def state(self) -> str:
        return self.client.state

    def due_ms(self) -> int | None:
        return self.client.due_ms

    def say(self, *frames: RelayFrame) -> None:
        for frame in frames:
            self.client.receive(relay_frame(frame).decode(), self.now_ms)

    def hear(self) -> list[ClientFrame]:
        return [read_client_frame(text) for text in self.hear_texts()]

    def hear_texts(self) -> list[bytes]:
        texts = []
        while (text := self.client.take_outgoing(self.now_ms)) is not None:
            texts.append(text)
        return texts

    def append(self, n: int = 1, document: str = DOC) -> Pending[int]:
        return self.client.append(document, body(n), self.now_ms)

    def follow(self, checkpoint: int = 0) -> Pull:
        self.client.follow(DOC, checkpoint, self.now_ms)
        (pull,) = self.hear()
        assert isinstance(pull, Pull)
        assert pull.is_live
        return pull

    def followed(self, checkpoint: int = 0) -> str:
        """Follow, to where only what is new is still to come."""
        pull = self.follow(checkpoint)
        self.say(EndOfStored(pull.ref, end(checkpoint)))
        self.client.take_events()
        return pull.ref

    def buffered(self, checkpoint: int) -> list[int] | Waiting | None:
        found = self.client.buffered(DOC, checkpoint)
        return found if found is None or isinstance(found, Waiting) else [e.ts for e in found]


def hello(protocol: tuple[int, ...] = (1,)) -> Hello:
    return Hello(protocol, "e" * 32, CHALLENGE, {"frame_bytes_max": 1}, "a relay")


def body(n: int = 1, size: int = 0) -> Body:
    data: dict[str, Any] = {"n": n, "fill": "x" * size}
    return Body(canonical_bytes(data), ALICE.public_key, SIGNATURE)


def end(ts: int, log: str = LOG, *, more: bool = False, head: int | None = None) -> dict[str, Any]:
    head = ts if head is None else head
    return {"ts": ts, "log": log, "floor": 0, "head": head, "more": more}


def placed(ts: float, log: str = LOG) -> dict[str, Any]:
    return {"ts": ts, "seq": ts, "log": log}


def elements(ref: str, *stamps: int, size: int = 2) -> Elements:
    data = b'{"f":"%b"}' % (b"x" * size)
    return Elements(ref, [Delivered(ts, ts, ALICE.public_key, SIGNATURE, data) for ts in stamps])


# ── the handshake ──────────────────────────────────────────────────────────────────────


def test_the_answer_to_a_challenge_holds_for_this_relay_alone() -> None:
    wire = Wire()
    wire.client.connected()
    assert wire.hear() == []
    wire.say(hello())
    (auth,) = wire.hear()
    assert isinstance(auth, Auth)
    assert auth.key == ALICE.public_key
    good = {"challenge": CHALLENGE, "relay": RELAY, "key": auth.key}
    assert verify_auth(auth.signature, **good)
    assert not verify_auth(auth.signature, **{**good, "relay": "other.example:443"})
    assert not verify_auth(auth.signature, **{**good, "challenge": CHALLENGE_2})
    assert not verify_auth(auth.signature, **{**good, "key": BOB.public_key})
    assert not verify_auth(auth.signature, **{**good, "relay": "\ud800"})
    assert wire.client.state is State.CONNECTING


def test_the_signed_bytes_of_a_proof_are_these() -> None:
    text = b'{"challenge":"c1","key":"k1","relay":"r1:1"}'
    signed = auth_input(challenge="c1", relay="r1:1", key="k1")
    assert signed == b"walstore-auth-v1\n" + text


def test_a_new_challenge_is_answered_and_the_old_answer_no_longer_counts() -> None:
    wire = Wire()
    wire.client.connected()
    wire.say(hello())
    (old,) = wire.hear()
    wire.say(Challenge(CHALLENGE_2))
    (new,) = wire.hear()
    assert isinstance(old, Auth)
    assert isinstance(new, Auth)
    assert verify_auth(new.signature, challenge=CHALLENGE_2, relay=RELAY, key=ALICE.public_key)
    wire.say(Refusal(old.ref, Code.AUTH_FAILED, "the challenge has expired", {}))
    assert wire.state == "connecting"
    wire.say(Ok(new.ref, {}))
    assert wire.state == "live"


def test_challenges_without_end_are_a_fault() -> None:
    wire = Wire()
    wire.client.connected()
    wire.say(hello())
    with pytest.raises(RelayFaultError, match="challenges"):
        wire.say(*[Challenge(CHALLENGE_2)] * 10)


@pytest.mark.parametrize(
    ("frame", "retryable"),
    [
        (hello((2, 3)), False),
        (hello(()), False),
        (Refusal(None, Code.UNAVAILABLE, "too many connections", {}), True),
        (Refusal(None, Code.RESTRICTED, "not you", {}), False),
    ],
)
def test_a_relay_that_does_not_let_the_client_in_is_told_apart_from_a_fault(
    frame: RelayFrame, retryable: bool
) -> None:
    wire = Wire()
    wire.client.connected()
    with pytest.raises(NotAdmittedError) as caught:
        wire.say(frame)
    assert caught.value.retryable is retryable


def test_a_refused_proof_says_why() -> None:
    wire = Wire()
    wire.client.connected()
    wire.say(hello())
    (auth,) = wire.hear()
    assert isinstance(auth, Auth)
    with pytest.raises(NotAdmittedError, match="no such key"):
        wire.say(Refusal(auth.ref, Code.AUTH_FAILED, "no such key", {}))


def test_what_is_asked_before_the_relay_has_let_the_client_in_waits() -> None:
    wire = Wire()
    pending = wire.append()
    wire.client.follow(DOC, 7, wire.now_ms)
    wire.client.set_presence(DOC, {"name": "Zoë"})
    wire.client.connected()
    wire.say(hello())
    (auth,) = wire.hear()
    assert isinstance(auth, Auth)
    wire.say(Ok(auth.ref, {}))
    append, pull, presence = wire.hear()
    assert append == Append(pending.ref, DOC, None, ALICE.public_key, SIGNATURE, body().canonical)
    assert isinstance(pull, Pull)
    assert (pull.after, pull.is_live) == (7, True)
    assert presence == SetPresence(DOC, {"name": "Zoë"})


# ── requests ───────────────────────────────────────────────────────────────────────────


def test_answers_are_matched_by_their_refs_in_any_order() -> None:
    wire = Wire().connect()
    first, second = wire.append(1), wire.append(2)
    wire.hear()
    wire.now_ms += 30
    wire.say(Ok(second.ref, placed(9)), Ok(first.ref, placed(8)))
    assert (first.result(), second.result()) == (8, 9)
    assert wire.client.take_events() == [Admitted(), Settled(second.ref), Settled(first.ref)]
    assert wire.client.unacknowledged == 0
    assert (wire.client.last_ack_ms, wire.client.lag_ms) == (wire.now_ms, 30)


REFUSALS: list[tuple[Code, dict[str, Any], type[TransportError], bool]] = [
    (Code.MALFORMED, {}, RelayRefusalError, False),
    (Code.UNKNOWN_VERB, {}, RelayRefusalError, False),
    (Code.TOO_LARGE, {}, RelayRefusalError, False),
    (Code.INVALID, {}, RelayRefusalError, False),
    (Code.AUTH_REQUIRED, {}, RelayRefusalError, False),
    (Code.AUTH_FAILED, {}, RelayRefusalError, False),
    (Code.RESTRICTED, {}, RelayRefusalError, False),
    (Code.OTHER_LOG, {"log": OTHER_LOG}, OtherLogError, False),
    (Code.CHECKPOINT_TOO_OLD, {"floor": 41}, CheckpointTooOldError, False),
    (Code.CONFLICT, {}, SnapshotConflictError, True),
    (Code.RATE_LIMITED, {"retry_ms": 250}, RelayRefusalError, True),
    (Code.TOO_MANY, {}, RelayRefusalError, False),
    (Code.STORAGE, {}, RelayRefusalError, True),
    (Code.UNAVAILABLE, {}, RelayRefusalError, True),
]


@pytest.mark.parametrize(("code", "details", "kind", "retryable"), REFUSALS)
def test_each_refusal_is_an_error_of_its_own(
    code: Code, details: dict[str, Any], kind: type[TransportError], retryable: bool
) -> None:
    wire = Wire({DOC: LOG}).connect()
    pending = wire.client.page(DOC, 3, wire.now_ms)
    wire.hear()
    wire.say(Refusal(pending.ref, code, "because", details))
    with pytest.raises(kind) as caught:
        pending.result()
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    match caught.value:
        case CheckpointTooOldError(floor=floor):
            assert floor == 41
        case OtherLogError() as error:
            assert (error.document_key, error.expected, error.found) == (DOC, LOG, OTHER_LOG)
        case RelayRefusalError() as error:
            assert error.code is code
            assert error.retry_ms == details.get("retry_ms", 0)
        case _:
            pass


def test_a_request_that_the_relay_ends_may_be_tried_again() -> None:
    wire = Wire().connect()
    pending = wire.append()
    wire.hear()
    wire.say(Closed(pending.ref, "shutting down"))
    with pytest.raises(RelayRefusalError, match="shutting down") as caught:
        pending.result()
    assert caught.value.retryable


def test_every_code_has_its_error() -> None:
    assert {row[0] for row in REFUSALS} == set(Code)


@pytest.mark.parametrize("floor", [-1, 1.5, True, "7", None, 2**60, [1]])
def test_a_refusal_with_senseless_details_is_still_that_refusal(floor: object) -> None:
    wire = Wire().connect()
    pending = wire.client.page(DOC, 3, wire.now_ms)
    wire.hear()
    details = {"floor": floor, "retry_ms": floor, "log": floor}
    wire.say(Refusal(pending.ref, Code.CHECKPOINT_TOO_OLD, "because", details))
    with pytest.raises(CheckpointTooOldError) as caught:
        pending.result()
    assert caught.value.floor == 0


def test_pages_and_tails_ask_for_what_they_are_to_bring() -> None:
    wire = Wire().connect()
    page = wire.client.page(DOC, 3, wire.now_ms)
    tail = wire.client.tail(DOC, upto=9, count=2, now_ms=wire.now_ms)
    assert wire.hear() == [
        Pull(page.ref, DOC, None, 3, PULL_ELEMENTS_MAX, is_live=False),
        PullTail(tail.ref, DOC, None, 9, 2),
    ]
    wire.say(elements(page.ref, 4, 5), elements(page.ref, 7), EndOfStored(page.ref, end(7)))
    wire.say(elements(tail.ref, 8, 9), EndOfStored(tail.ref, end(9)))
    assert [element.ts for element in page.result()] == [4, 5, 7]
    assert [element.ts for element in tail.result()] == [8, 9]


def test_a_snapshot_comes_in_pieces() -> None:
    wire = Wire().connect()
    pending = wire.client.get_snapshot(DOC, wire.now_ms)
    assert wire.hear() == [GetSnapshot(pending.ref, DOC, None)]
    text = '{"é":"🦉"}'
    revision = sha256(text.encode()).hexdigest()
    wire.say(SnapshotPiece(pending.ref, revision, text[:3], False, LOG))
    assert not pending.is_settled
    wire.say(SnapshotPiece(pending.ref, revision, text[3:], True, LOG))
    assert pending.result() == (revision, text.encode())


def test_a_snapshot_that_is_not_there_is_an_answer() -> None:
    wire = Wire().connect()
    pending = wire.client.get_snapshot(DOC, wire.now_ms)
    wire.hear()
    wire.say(SnapshotPiece(pending.ref, None, None, True, LOG))
    assert pending.result() is None


def test_a_snapshot_without_its_own_revision_is_a_false_answer() -> None:
    wire = Wire().connect()
    pending = wire.client.get_snapshot(DOC, wire.now_ms)
    wire.hear()
    wire.say(SnapshotPiece(pending.ref, "0" * 64, "{}", True, LOG))
    with pytest.raises(FalseAnswerError):
        pending.result()


def test_a_snapshot_is_put_in_pieces_that_make_up_the_whole() -> None:
    wire = Wire({DOC: LOG}).connect()
    text = ("é" * (SNAPSHOT_PIECE_SIZE * 2 + 1)).encode()
    pending = wire.client.put_snapshot(DOC, text, "1" * 64, wire.now_ms)
    pieces = [frame for frame in wire.hear() if isinstance(frame, PutSnapshot)]
    assert "".join(piece.text for piece in pieces).encode() == text
    assert [piece.is_last for piece in pieces] == [False, False, True]
    assert {(piece.ref, piece.log, piece.revision) for piece in pieces} == {
        (pending.ref, LOG, "1" * 64)
    }
    wire.say(Ok(pending.ref, {"revision": sha256(text).hexdigest(), "seq": 1}))
    pending.result()


def test_a_snapshot_that_was_stored_as_something_else_is_a_false_answer() -> None:
    wire = Wire().connect()
    pending = wire.client.put_snapshot(DOC, b"{}", None, wire.now_ms)
    wire.hear()
    wire.say(Ok(pending.ref, {"revision": "0" * 64, "seq": 1}))
    with pytest.raises(FalseAnswerError):
        pending.result()


def test_a_snapshot_that_is_given_up_half_way_is_taken_back() -> None:
    wire = Wire().connect()
    text = b"x" * (SNAPSHOT_PIECE_SIZE * 3)
    pending = wire.client.put_snapshot(DOC, text, None, wire.now_ms)
    assert wire.client.take_outgoing(wire.now_ms) is not None
    wire.client.forget(pending)
    assert wire.hear() == [Close(pending.ref)]
    assert wire.client.unacknowledged == 0


def test_what_takes_too_long_fails_and_its_late_answer_is_ignored() -> None:
    wire = Wire().connect()
    pending = wire.append()
    wire.hear()
    wire.now_ms += TIMEOUT_MS - 1
    wire.client.tick(wire.now_ms)
    assert not pending.is_settled
    wire.now_ms += 2
    wire.client.tick(wire.now_ms)
    with pytest.raises(NoAnswerError) as caught:
        pending.result()
    assert caught.value.retryable
    wire.say(Ok(pending.ref, placed(1)))
    assert wire.client.ignored == 1


def test_an_answer_that_keeps_coming_is_waited_for() -> None:
    wire = Wire().connect()
    pending = wire.client.page(DOC, 0, wire.now_ms)
    wire.hear()
    for ts in range(1, 10):
        wire.now_ms += TIMEOUT_MS - 1
        wire.client.tick(wire.now_ms)
        wire.say(elements(pending.ref, ts))
    wire.say(EndOfStored(pending.ref, end(9)))
    assert len(pending.result()) == 9


def test_pending_requests_are_bounded_in_number() -> None:
    wire = Wire().connect()
    for n in range(PENDING_MAX):
        wire.append(n)
    with pytest.raises(BusyError) as caught:
        wire.append()
    assert caught.value.retryable
    assert wire.client.unacknowledged == PENDING_MAX
    (first, *_) = wire.hear()
    assert isinstance(first, Append)
    wire.say(Ok(first.ref, placed(1)))
    wire.append()


def test_pending_requests_are_bounded_in_bytes() -> None:
    wire = Wire().connect()
    large = body(size=1_000_000)
    for _ in range(PENDING_BYTES_MAX // len(large.canonical)):
        wire.client.append(DOC, large, wire.now_ms)
    with pytest.raises(BusyError):
        wire.client.append(DOC, large, wire.now_ms)


def test_an_element_beyond_the_limit_is_not_sent() -> None:
    wire = Wire().connect()
    with pytest.raises(TooLargeError) as caught:
        wire.client.append(DOC, body(size=ELEMENT_BYTES_MAX), wire.now_ms)
    assert not caught.value.retryable
    assert wire.hear() == []


def test_a_snapshot_of_more_values_than_a_relay_takes_is_not_sent() -> None:
    wire = Wire({DOC: LOG}).connect()
    most = b"[" + b"0," * (SNAPSHOT_VALUES_MAX - 2) + b"0]"
    with pytest.raises(TooLargeError, match="values") as caught:
        wire.client.put_snapshot(DOC, most.replace(b"]", b",0]"), None, wire.now_ms)
    assert not caught.value.retryable
    assert wire.hear() == []
    assert not wire.client.put_snapshot(DOC, most, None, wire.now_ms).is_settled


def small_hello(frame_bytes_max: int) -> Hello:
    return hello()._replace(limits={"frame_bytes_max": frame_bytes_max})


def test_what_is_larger_than_this_relay_takes_is_refused_and_the_connection_stays() -> None:
    wire = Wire({DOC: LOG})
    # It is asked before anybody has said how much is too much.
    large = wire.client.append(DOC, body(size=5_000), wire.now_ms)
    small = wire.client.append(DOC, body(size=10), wire.now_ms)
    wire.client.connected()
    wire.say(small_hello(4_096))
    (auth,) = wire.hear()
    assert isinstance(auth, Auth)
    wire.say(Ok(auth.ref, {}))
    (sent,) = wire.hear()
    assert isinstance(sent, Append)
    assert sent.ref == small.ref
    with pytest.raises(ElementTooLargeError) as caught:
        large.result()
    assert wire.client.has_events
    assert wire.client.take_events()
    around, bytes_max = len(client_frame(sent)) - len(sent.data), caught.value.bytes_max
    assert bytes_max is not None
    # Numbers of more digits, and a ref of as many, take no more room than this.
    assert abs(bytes_max - (4_096 - around)) <= 8
    assert wire.client.unacknowledged == 1
    # Up to the last byte that it says, it takes all.
    fits = body(size=10)
    extra = bytes_max - len(fits.canonical)
    pending = wire.client.append(DOC, body(size=10 + extra), wire.now_ms)
    wire.hear()
    assert not pending.is_settled


def test_a_record_that_is_larger_than_this_relay_takes_is_refused() -> None:
    wire = Wire({DOC: LOG})
    wire.client.connected()
    wire.say(small_hello(4_096))
    (auth,) = wire.hear()
    assert isinstance(auth, Auth)
    wire.say(Ok(auth.ref, {}))
    pending = wire.client.keep_record(DOC, "roster", "x" * 5_000, revision=None, now_ms=wire.now_ms)
    assert wire.hear() == []
    with pytest.raises(TooLargeError):
        pending.result()


def test_a_snapshot_that_was_sent_in_part_is_taken_back() -> None:
    wire = Wire({DOC: LOG}).connect()
    text = b"x" * (SNAPSHOT_PIECE_SIZE + 10)
    pending = wire.client.put_snapshot(DOC, text, None, wire.now_ms)
    assert wire.client.take_outgoing(wire.now_ms) is not None
    wire.client._outgoing.frame_bytes_max = 20
    assert any(isinstance(frame, Close) for frame in wire.hear())
    with pytest.raises(TooLargeError):
        pending.result()


@pytest.mark.parametrize("code", list(Code))
def test_only_what_is_wrong_with_the_element_or_its_author_is_refused_for_good(code: Code) -> None:
    wire = Wire({DOC: LOG}).connect()
    pending = wire.append(1)
    wire.hear()
    wire.say(Refusal(pending.ref, code, "no", {}))
    with pytest.raises(TransportError) as caught:
        pending.result()
    for_good = {Code.MALFORMED, Code.TOO_LARGE, Code.INVALID, Code.RESTRICTED}
    assert isinstance(caught.value, ElementRefusedError) is (code in for_good)
    is_of_author = getattr(caught.value, "is_of_author", False)
    assert is_of_author is (code is Code.RESTRICTED)


# ── connections that end ───────────────────────────────────────────────────────────────


def test_after_a_reconnect_pending_appends_are_sent_again_byte_for_byte_in_order() -> None:
    wire = Wire({DOC: LOG}).connect()
    pending = [wire.append(n) for n in range(3)]
    sent = wire.hear_texts()
    wire.say(Ok(pending[1].ref, placed(5)))
    wire.client.lost("gone", wire.now_ms)
    assert wire.client.state is State.CONNECTING
    wire.connect()
    assert wire.hear_texts() == [sent[0], sent[2]]
    wire.say(Ok(pending[0].ref, placed(4)), Ok(pending[2].ref, placed(6)))
    assert [each.result() for each in pending] == [4, 5, 6]


def test_an_answer_that_was_cut_off_is_read_again_from_its_start() -> None:
    wire = Wire().connect()
    page, snapshot = wire.client.page(DOC, 0, 0), wire.client.get_snapshot(DOC, wire.now_ms)
    page.deadline_ms = 10**9
    wire.hear()
    revision = sha256(b"{}").hexdigest()
    wire.say(elements(page.ref, 1, 2), SnapshotPiece(snapshot.ref, revision, "{", False, LOG))
    wire.client.lost("gone", wire.now_ms)
    wire.connect()
    wire.hear()
    wire.say(elements(page.ref, 1, 2, 3), EndOfStored(page.ref, end(3)))
    wire.say(SnapshotPiece(snapshot.ref, revision, "{}", True, LOG))
    assert [element.ts for element in page.result()] == [1, 2, 3]
    assert snapshot.result() == (revision, b"{}")


def test_when_the_attempt_after_a_loss_fails_too_everything_that_waits_may_be_tried_again() -> None:
    wire = Wire().connect()
    pending = wire.append()
    wire.hear()
    wire.client.lost("reset by peer", wire.now_ms)
    late = wire.append(2)
    assert not pending.is_settled
    wire.client.lost("refused", wire.now_ms)
    for each in (pending, late):
        with pytest.raises(OfflineError, match="refused") as caught:
            each.result()
        assert caught.value.retryable
    with pytest.raises(OfflineError):
        wire.append(3)
    assert wire.client.state is State.OFFLINE
    wire.connect()
    assert wire.hear() == []


def test_a_first_attempt_that_fails_is_offline_at_once() -> None:
    wire = Wire()
    pending = wire.append()
    wire.client.lost("refused", wire.now_ms)
    with pytest.raises(OfflineError):
        pending.result()


def test_a_client_that_is_not_let_in_does_not_try_again_by_itself() -> None:
    wire = Wire()
    pending = wire.append()
    wire.client.refused("not you", wire.now_ms)
    with pytest.raises(NotAdmittedError, match="not you") as caught:
        pending.result()
    assert not caught.value.retryable
    with pytest.raises(NotAdmittedError):
        wire.append()


def test_a_closed_client_takes_nothing() -> None:
    wire = Wire().connect()
    pending = wire.append()
    wire.client.close("done", wire.now_ms)
    with pytest.raises(TransportClosedError):
        pending.result()
    with pytest.raises(TransportClosedError):
        wire.append()
    wire.client.lost("gone", wire.now_ms)
    wire.client.connected()
    wire.say(hello())
    assert (wire.state, wire.hear()) == ("closed", [])


# ── logs that share a name ─────────────────────────────────────────────────────────────


def test_the_log_is_learnt_from_the_first_answer_and_named_from_then_on() -> None:
    wire = Wire().connect()
    page = wire.client.page(DOC, 0, wire.now_ms)
    wire.hear()
    wire.say(EndOfStored(page.ref, end(0)))
    assert wire.client.logs == {DOC: LOG}
    wire.append()
    wire.client.page(DOC, 0, wire.now_ms)
    wire.client.tail(DOC, upto=1, count=1, now_ms=wire.now_ms)
    wire.client.get_snapshot(DOC, wire.now_ms)
    wire.client.put_snapshot(DOC, b"{}", None, wire.now_ms)
    wire.client.follow(DOC, 0, wire.now_ms)
    frames = wire.hear()
    assert len(frames) == 6
    assert {getattr(frame, "log", None) for frame in frames} == {LOG}


def test_an_append_that_did_not_know_its_log_names_it_when_it_is_sent_again() -> None:
    wire = Wire().connect()
    page, _ = wire.client.page(DOC, 0, wire.now_ms), wire.append()
    wire.hear()
    wire.say(EndOfStored(page.ref, end(0)))
    wire.client.lost("gone", wire.now_ms)
    wire.connect()
    (again,) = wire.hear()
    assert isinstance(again, Append)
    assert again.log == LOG


def test_the_log_is_learnt_from_an_acknowledgement_too() -> None:
    wire = Wire().connect()
    pending = wire.append()
    wire.hear()
    wire.say(Ok(pending.ref, placed(1)))
    assert wire.client.logs == {DOC: LOG}
    wire.append(2)
    (append,) = wire.hear()
    assert isinstance(append, Append)
    assert append.log == LOG


@pytest.mark.parametrize("kind", ["append", "page", "tail", "snapshot"])
def test_an_answer_from_another_log_is_refused(kind: str) -> None:
    wire = Wire({DOC: LOG}).connect()
    pending: Pending[Any]
    match kind:
        case "append":
            pending = wire.append()
            answer: RelayFrame = Ok(pending.ref, placed(1, OTHER_LOG))
        case "page":
            # That it ends earlier is no wonder, and not what is told.
            pending = wire.client.page(DOC, 7, wire.now_ms)
            answer = EndOfStored(pending.ref, end(7, OTHER_LOG, head=0))
        case "tail":
            pending = wire.client.tail(DOC, upto=9, count=1, now_ms=wire.now_ms)
            answer = EndOfStored(pending.ref, end(9, OTHER_LOG))
        case _:
            pending = wire.client.get_snapshot(DOC, wire.now_ms)
            answer = SnapshotPiece(pending.ref, None, None, True, OTHER_LOG)
    wire.hear()
    wire.say(answer)
    with pytest.raises(OtherLogError):
        pending.result()
    assert wire.client.logs == {DOC: LOG}


def test_nothing_of_a_live_log_is_handed_out_before_it_is_known_which_one_it_is() -> None:
    wire = Wire().connect()
    pull = wire.follow()
    wire.say(elements(pull.ref, 1, 2))
    assert wire.buffered(0) is Waiting.FOR_MORE
    wire.say(EndOfStored(pull.ref, end(2)))
    assert wire.buffered(0) == [1, 2]


def test_a_live_log_that_turns_out_to_be_another_one_is_dropped() -> None:
    wire = Wire({DOC: LOG}).connect()
    pull = wire.follow()
    wire.say(elements(pull.ref, 1, 2), EndOfStored(pull.ref, end(2, OTHER_LOG)))
    assert wire.buffered(0) is None
    assert wire.hear() == [Close(pull.ref)]


@pytest.mark.parametrize("head", [0, 6])
def test_a_log_that_ends_before_the_checkpoint_was_rolled_back(head: int) -> None:
    wire = Wire({DOC: LOG}).connect()
    page = wire.client.page(DOC, 7, wire.now_ms)
    wire.hear()
    wire.say(EndOfStored(page.ref, end(7, head=head)))
    with pytest.raises(LogBehindError) as caught:
        page.result()
    assert (caught.value.head, caught.value.checkpoint) == (head, 7)
    assert not caught.value.retryable


def test_a_live_log_that_was_rolled_back_is_told_by_the_page_that_its_reader_asks_for() -> None:
    wire = Wire({DOC: LOG}).connect()
    pull = wire.follow(7)
    wire.client.take_events()
    wire.say(EndOfStored(pull.ref, end(7, head=6)))
    assert wire.hear() == [Close(pull.ref)]
    # The reader is to look, at once.
    assert wire.client.due_ms == wire.now_ms
    wire.client.tick(wire.now_ms)
    assert wire.client.take_events() == [Loaded(DOC), Moved(DOC)]
    assert wire.buffered(7) is None
    page = wire.client.page(DOC, 7, wire.now_ms)
    wire.hear()
    wire.say(EndOfStored(page.ref, end(7, head=6)))
    assert isinstance(page.error, LogBehindError)
    # From where the log ends, everything goes on.
    page = wire.client.page(DOC, 6, wire.now_ms)
    wire.hear()
    wire.say(EndOfStored(page.ref, end(6)))
    (again,) = wire.hear()
    assert isinstance(again, Pull)
    assert (again.after, again.is_live) == (6, True)
    wire.say(EndOfStored(again.ref, end(6)), elements(again.ref, 7))
    assert wire.buffered(6) == [7]


# ── time ───────────────────────────────────────────────────────────────────────────────


def test_a_client_that_waits_for_nothing_needs_no_clock() -> None:
    wire = Wire().connect()
    assert wire.due_ms() is None
    wire.followed(5)
    wire.client.set_presence(DOC, {"at": 1})
    wire.hear()
    append = wire.append()
    wire.hear()
    assert wire.due_ms() == wire.now_ms + TIMEOUT_MS
    wire.say(Ok(append.ref, placed(9)))
    # What was waited for is looked at once more, and that is all.
    wire.now_ms += TIMEOUT_MS
    wire.client.tick(wire.now_ms)
    assert wire.due_ms() is None
    wire.client.lost("gone", wire.now_ms)
    wire.client.lost("still gone", wire.now_ms)
    wire.now_ms += TIMEOUT_MS
    wire.client.tick(wire.now_ms)
    assert wire.due_ms() is None


def test_the_nearest_of_several_moments_is_due() -> None:
    wire = Wire().connect()
    start = wire.now_ms
    wire.append(1)
    wire.hear()
    wire.now_ms += 100
    pull = wire.follow()
    wire.now_ms += 100
    late = wire.append(2)
    assert wire.client.due_ms == start + TIMEOUT_MS
    for moment in (0, 100, 200):
        wire.now_ms = start + TIMEOUT_MS + moment
        wire.client.tick(wire.now_ms)
    assert isinstance(late.error, NoAnswerError)
    assert Close(pull.ref) in wire.hear()


def test_a_refused_subscription_is_looked_at_at_once() -> None:
    wire = Wire().connect()
    pull = wire.follow()
    wire.client.take_events()
    wire.say(Refusal(pull.ref, Code.RESTRICTED, "not you", {}))
    assert wire.client.due_ms == wire.now_ms
    wire.client.tick(wire.now_ms)
    assert Moved(DOC) in wire.client.take_events()
    assert wire.client.due_ms == wire.now_ms + 1_000


# ── following ──────────────────────────────────────────────────────────────────────────


def test_live_elements_are_read_without_asking() -> None:
    wire = Wire().connect()
    ref = wire.followed(5)
    assert wire.buffered(5) == []
    wire.say(elements(ref, 6, 7))
    assert wire.client.take_events() == [Moved(DOC), Loaded(DOC)]
    assert wire.buffered(5) == [6, 7]
    assert wire.buffered(6) == [7]
    assert wire.buffered(7) == []
    assert wire.hear() == []


def is_told(wire: Wire) -> bool:
    """Whether a reader was told to look; it may read before that."""
    return any(type(event) is Moved for event in wire.client.take_events())


def store_own(wire: Wire, ref: str, ts: int) -> None:
    """What a relay says when something was stored that was sent from here."""
    append = wire.append(ts)
    wire.hear()
    wire.say(Ok(append.ref, placed(ts)), elements(ref, ts))


def test_of_what_was_sent_from_here_a_reader_is_told_once_in_a_while() -> None:
    wire = Wire().connect()
    ref = wire.followed(5)
    start = wire.now_ms
    for ts in (6, 7, 8):
        store_own(wire, ref, ts)
        wire.now_ms += 10
        assert not is_told(wire)
    # Whoever asks has it at once.
    assert wire.buffered(5) == [6, 7, 8]
    assert wire.client.due_ms == start + 100
    wire.now_ms = start + 100
    wire.client.tick(wire.now_ms)
    assert is_told(wire)
    wire.client.tick(wire.now_ms)
    assert not is_told(wire)


def test_what_was_sent_from_here_and_was_read_already_is_no_news() -> None:
    wire = Wire().connect()
    ref = wire.followed(5)
    store_own(wire, ref, 6)
    assert wire.buffered(6) == []
    wire.client.take_events()
    wire.now_ms += 1_000
    wire.client.tick(wire.now_ms)
    assert not is_told(wire)


def test_of_what_others_wrote_a_reader_is_told_at_once() -> None:
    wire = Wire().connect()
    ref = wire.followed(5)
    store_own(wire, ref, 6)
    assert not is_told(wire)
    wire.say(elements(ref, 7))
    assert is_told(wire)
    append = wire.append(8)
    wire.hear()
    # In one frame with what somebody else wrote.
    wire.say(Ok(append.ref, placed(9)), elements(ref, 8, 9))
    assert is_told(wire)
    # A relay that hands it out before it says that it was stored.
    append = wire.append(10)
    wire.hear()
    wire.say(elements(ref, 10), Ok(append.ref, placed(10)))
    assert is_told(wire)


def test_what_was_acknowledged_before_it_was_live_is_not_waited_for() -> None:
    wire = Wire().connect()
    pull = wire.follow(5)
    append = wire.append(6)
    wire.hear()
    wire.say(Ok(append.ref, placed(6)), elements(pull.ref, 6))
    assert is_told(wire)
    wire.say(EndOfStored(pull.ref, end(6)))
    wire.client.take_events()
    store_own(wire, pull.ref, 7)
    assert not is_told(wire)


def test_of_two_readers_one_does_not_know_what_the_other_has_sent() -> None:
    wire = Wire().connect()
    ref = wire.followed(5)
    wire.client.follow(DOC, 5, wire.now_ms)
    store_own(wire, ref, 6)
    assert is_told(wire)


def test_a_connection_that_is_lost_leaves_no_news_untold() -> None:
    wire = Wire().connect()
    ref = wire.followed(5)
    store_own(wire, ref, 6)
    wire.client.lost("gone", wire.now_ms)
    wire.client.take_events()
    wire.connect()
    (pull,) = [frame for frame in wire.hear() if isinstance(frame, Pull)]
    wire.say(elements(pull.ref, 6), EndOfStored(pull.ref, end(6)))
    assert is_told(wire)


def test_who_is_elsewhere_than_the_buffer_has_to_ask() -> None:
    wire = Wire().connect()
    ref = wire.followed(5)
    wire.say(elements(ref, 6, 7))
    assert wire.buffered(4) is None
    assert wire.buffered(8) is None
    assert wire.buffered(6) == [7]
    assert wire.buffered(5) is None
    assert wire.client.buffered("notes/b", 0) is None


def test_the_end_is_not_told_before_all_that_is_stored_has_come() -> None:
    wire = Wire({DOC: LOG}).connect()
    pull = wire.follow()
    assert wire.buffered(0) is Waiting.FOR_MORE
    wire.say(elements(pull.ref, 1, 2))
    assert wire.buffered(0) == [1, 2]
    assert wire.buffered(2) is Waiting.FOR_MORE
    wire.say(EndOfStored(pull.ref, end(2)))
    assert wire.buffered(2) == []


def test_what_was_acknowledged_is_read_even_if_it_has_not_come_yet() -> None:
    wire = Wire().connect()
    ref = wire.followed()
    pending = wire.append()
    wire.hear()
    wire.say(Ok(pending.ref, placed(3)))
    assert wire.buffered(0) is None
    wire.say(elements(ref, 3))
    assert wire.buffered(0) == [3]
    assert wire.buffered(3) == []


def test_a_subscription_is_resumed_where_its_reader_is() -> None:
    wire = Wire().connect()
    ref = wire.followed()
    wire.say(elements(ref, 1, 2, 3))
    assert wire.buffered(2) == [3]
    wire.client.lost("gone", wire.now_ms)
    assert wire.buffered(2) == [3]
    wire.connect()
    (pull,) = wire.hear()
    assert isinstance(pull, Pull)
    assert (pull.after, pull.log, pull.is_live) == (2, LOG, True)
    wire.say(elements(pull.ref, 3, 4))
    assert wire.buffered(2) == [3, 4]


@pytest.mark.parametrize("size", [2, FOLLOW_BYTES_MAX // 100])
def test_a_full_buffer_takes_no_more_and_leaves_no_hole(size: int) -> None:
    wire = Wire().connect()
    ref = wire.followed()
    ts = 0
    while not any(isinstance(frame, Close) for frame in wire.hear()):
        wire.say(elements(ref, ts + 1, ts + 2, size=size))
        ts += 2
        assert ts <= FOLLOW_ELEMENTS_MAX + 2
    wire.say(elements(ref, ts + 1, ts + 2, size=size))
    checkpoint, seen = 0, list[int]()
    while page := wire.buffered(checkpoint):
        assert isinstance(page, list)
        seen += page
        checkpoint = page[-1]
    assert page is None
    assert seen == list(range(1, len(seen) + 1))
    assert 0 < len(seen) <= min(FOLLOW_ELEMENTS_MAX, FOLLOW_BYTES_MAX // size)
    # The rest is read from the relay; where that ends, the document is followed again.
    rest = wire.client.page(DOC, checkpoint, wire.now_ms)
    wire.hear()
    wire.say(elements(rest.ref, ts + 1, ts + 2), EndOfStored(rest.ref, end(ts + 2)))
    (pull,) = wire.hear()
    assert isinstance(pull, Pull)
    assert (pull.after, pull.is_live) == (ts + 2, True)


def test_a_page_that_is_not_the_last_one_does_not_resume_the_subscription() -> None:
    wire = Wire().connect()
    ref = wire.followed()
    wire.say(Closed(ref, "too slow"))
    page = wire.client.page(DOC, 0, wire.now_ms)
    wire.hear()
    wire.say(elements(page.ref, 1), EndOfStored(page.ref, end(1, more=True)))
    assert wire.hear() == []


def test_a_relay_that_keeps_ending_a_subscription_is_asked_less_and_less_often() -> None:
    wire = Wire().connect()
    wire.client.follow(DOC, 0, wire.now_ms)
    asked: list[int] = []
    until_ms = wire.now_ms + 300_000
    while wire.now_ms < until_ms:
        for frame in wire.hear():
            if isinstance(frame, Pull) and frame.is_live:
                asked.append(wire.now_ms)
                wire.say(Refusal(frame.ref, Code.TOO_MANY, "too many", {}))
            elif isinstance(frame, Pull):
                wire.say(EndOfStored(frame.ref, end(0)))
        wire.client.tick(wire.now_ms)
        if Moved(DOC) in wire.client.take_events() and wire.buffered(0) is None:
            wire.client.page(DOC, 0, wire.now_ms)
        wire.now_ms += 500
    pauses = [right - left for left, right in pairwise(asked)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 30_000
    assert 8 <= len(asked) <= 20


def test_a_reader_that_goes_back_is_told_at_once_what_is_new() -> None:
    wire = Wire({DOC: LOG}).connect()
    wire.client.follow(DOC, 9, wire.now_ms)
    for ended in (True, True, False):
        live = [frame for frame in wire.hear() if isinstance(frame, Pull) and frame.is_live]
        assert len(live) == ended
        for pull in live:
            wire.say(Refusal(pull.ref, Code.TOO_MANY, "too many", {}))
        assert wire.buffered(9) is None
        page = wire.client.page(DOC, 9, wire.now_ms)
        wire.hear()
        wire.say(EndOfStored(page.ref, end(9)))
    assert wire.buffered(4) is None
    page = wire.client.page(DOC, 4, wire.now_ms)
    wire.hear()
    wire.say(EndOfStored(page.ref, end(4)))
    (again,) = wire.hear()
    assert isinstance(again, Pull)
    assert (again.after, again.is_live) == (4, True)


def test_a_subscription_that_is_not_answered_is_given_up_and_tried_again() -> None:
    wire = Wire({DOC: LOG}).connect()
    pull = wire.follow()
    assert wire.buffered(0) is Waiting.FOR_MORE
    wire.now_ms += TIMEOUT_MS
    wire.client.tick(wire.now_ms)
    assert Loaded(DOC) in wire.client.take_events()
    assert wire.buffered(0) is None
    assert wire.hear() == [Close(pull.ref)]
    wire.say(elements(pull.ref, 1), Closed(pull.ref, "closed"))
    assert wire.client.ignored == 2


def test_several_followers_share_one_subscription_until_the_last_has_left() -> None:
    wire = Wire().connect()
    ref = wire.followed()
    wire.client.follow(DOC, 0, wire.now_ms)
    assert wire.hear() == []
    wire.client.unfollow(DOC)
    assert wire.hear() == []
    wire.client.unfollow(DOC)
    assert wire.hear() == [Close(ref)]
    wire.say(elements(ref, 1), Closed(ref, "closed"))
    assert wire.client.ignored == 2
    assert wire.client.documents == frozenset()


# ── presence ───────────────────────────────────────────────────────────────────────────


def test_others_come_and_go() -> None:
    wire = Wire().connect()
    wire.followed()
    wire.say(Presence(DOC, "p1", BOB.public_key, {"name": "Bob"}))
    assert wire.client.take_events() == [PeersChanged(DOC)]
    assert wire.client.peers(DOC)["p1"] == (BOB.public_key, {"name": "Bob"})
    wire.say(Presence(DOC, "p1", BOB.public_key, None))
    assert wire.client.peers(DOC) == {}
    wire.say(Presence(DOC, "p2", None, {}))
    wire.client.take_events()
    wire.client.lost("gone", wire.now_ms)
    assert wire.client.peers(DOC) == {}
    assert PeersChanged(DOC) in wire.client.take_events()


def test_the_presences_that_are_kept_are_bounded() -> None:
    wire = Wire().connect()
    wire.followed()
    for n in range(PEERS_MAX + 10):
        wire.say(Presence(DOC, f"p{n}", None, {}))
    assert len(wire.client.peers(DOC)) == PEERS_MAX
    assert wire.client.ignored == 10
    wire.say(Presence(DOC, "p1", None, {"text": "x" * PRESENCE_BYTES_MAX * 2}))
    assert wire.client.peers(DOC)["p1"].payload == {}


def test_presence_is_told_again_after_a_reconnect_until_it_is_taken_back() -> None:
    wire = Wire().connect()
    wire.client.set_presence(DOC, {"at": 1})
    wire.client.set_presence(DOC, {"at": 2})
    assert wire.hear() == [SetPresence(DOC, {"at": 2})]
    wire.client.lost("gone", wire.now_ms)
    wire.connect()
    assert wire.hear() == [SetPresence(DOC, {"at": 2})]
    wire.client.set_presence(DOC, None)
    assert wire.hear() == [SetPresence(DOC, None)]
    wire.client.lost("gone", wire.now_ms)
    wire.connect()
    assert wire.hear() == []


def test_presences_that_come_too_fast_wait_and_the_newest_is_sent() -> None:
    wire = Wire().connect()
    sent: list[ClientFrame] = []
    for n in range(500):
        wire.client.set_presence(DOC, {"at": n})
        sent += wire.hear()
    assert len(sent) < 60
    wire.now_ms += 1_000
    assert wire.hear() == [SetPresence(DOC, {"at": 499})]


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"text": "x" * PRESENCE_BYTES_MAX}, PresenceRefusedError),
        ({"text": "\ud800"}, PresenceRefusedError),
        ({"set": {1, 2}}, NotJsonError),
        ({"nan": float("nan")}, NotJsonError),
    ],
)
def test_a_presence_that_no_relay_would_take_is_refused(
    payload: dict[str, Any], error: type[Exception]
) -> None:
    wire = Wire().connect()
    wire.client.set_presence(DOC, {"at": 1})
    with pytest.raises(error):
        wire.client.set_presence(DOC, payload)
    assert wire.hear() == [SetPresence(DOC, {"at": 1})]


# ── hostile relays ─────────────────────────────────────────────────────────────────────


class Asked:
    """A connection with one request of each kind in flight; their refs by name."""

    def __init__(self) -> None:
        self.wire = Wire({DOC: LOG}).connect()
        client, now_ms = self.wire.client, self.wire.now_ms
        self.append = self.wire.append().ref
        self.page = client.page(DOC, 10, now_ms).ref
        self.tail = client.tail(DOC, upto=50, count=3, now_ms=now_ms).ref
        self.get = client.get_snapshot(DOC, now_ms).ref
        self.put = client.put_snapshot(DOC, b"{}", None, now_ms).ref
        client.follow(DOC, 10, now_ms)
        pull = self.wire.hear()[-1]
        assert isinstance(pull, Pull)
        self.live = pull.ref
        self.next = str(int(self.live) + 1)


FAULTS: dict[str, Callable[[Asked], Sequence[RelayFrame]]] = {
    "a second hello": lambda asked: [hello()],
    "an answer to nothing": lambda asked: [Ok(asked.next, placed(1))],
    "elements of nothing": lambda asked: [elements("x", 1)],
    "a refusal of nothing": lambda asked: [Refusal("0", Code.INVALID, "", {})],
    "a ref in other digits": lambda asked: [Ok("١", {})],
    "a ref with a zero": lambda asked: [Ok("0" + asked.append, {"ts": 1})],
    "an append without ts": lambda asked: [Ok(asked.append, {})],
    "an append at 0": lambda asked: [Ok(asked.append, placed(0))],
    "an append below 0": lambda asked: [Ok(asked.append, placed(-1))],
    "an append at true": lambda asked: [Ok(asked.append, placed(True))],
    "an append at 1.5": lambda asked: [Ok(asked.append, placed(1.5))],
    "an append beyond all ts": lambda asked: [Ok(asked.append, placed(TS_MAX + 1))],
    "an append without log": lambda asked: [Ok(asked.append, {"ts": 1, "seq": 1})],
    "an append with a strange log": lambda asked: [Ok(asked.append, placed(1, "A" * 32))],
    "an append with elements": lambda asked: [elements(asked.append, 1)],
    "an append that ends": lambda asked: [EndOfStored(asked.append, end(1))],
    "a page at its checkpoint": lambda asked: [elements(asked.page, 10)],
    "a page below it": lambda asked: [elements(asked.page, 9)],
    "a page that repeats": lambda asked: [elements(asked.page, 11, 11)],
    "a page that goes back": lambda asked: [elements(asked.page, 12), elements(asked.page, 11)],
    "a page that ends elsewhere": lambda asked: [EndOfStored(asked.page, end(11))],
    "a page that ends before its elements": lambda asked: [
        elements(asked.page, 12),
        EndOfStored(asked.page, end(10)),
    ],
    "an empty page with more": lambda asked: [EndOfStored(asked.page, end(10, more=True))],
    "a page without log": lambda asked: [EndOfStored(asked.page, {"ts": 10})],
    "a page with a strange log": lambda asked: [EndOfStored(asked.page, end(10, "A" * 32))],
    "a page without head": lambda asked: [EndOfStored(asked.page, {"ts": 10, "log": LOG})],
    "a page with a strange head": lambda asked: [EndOfStored(asked.page, end(10, head=-1))],
    "a page whose head is below its elements": lambda asked: [
        elements(asked.page, 12),
        EndOfStored(asked.page, end(12, head=11)),
    ],
    "a page that is acknowledged": lambda asked: [Ok(asked.page, {})],
    "a page without end": lambda asked: [elements(asked.page, *range(11, 1_100))],
    "a page of too many bytes": lambda asked: [
        elements(asked.page, ts, size=900_000) for ts in (11, 12, 13)
    ],
    "a tail beyond its end": lambda asked: [
        elements(asked.tail, 51),
        EndOfStored(asked.tail, end(51)),
    ],
    "a tail of too many": lambda asked: [elements(asked.tail, 1, 2, 3, 4)],
    "a snapshot that is acknowledged": lambda asked: [Ok(asked.get, {})],
    "a snapshot without text": lambda asked: [SnapshotPiece(asked.get, "0" * 64, None, True, LOG)],
    "a snapshot without revision": lambda asked: [SnapshotPiece(asked.get, None, "{}", True, LOG)],
    "pieces of two snapshots": lambda asked: [
        SnapshotPiece(asked.get, "0" * 64, "{", False, LOG),
        SnapshotPiece(asked.get, "1" * 64, "}", True, LOG),
    ],
    "a snapshot that vanishes": lambda asked: [
        SnapshotPiece(asked.get, "0" * 64, "{", False, LOG),
        SnapshotPiece(asked.get, None, None, True, LOG),
    ],
    "an empty piece": lambda asked: [SnapshotPiece(asked.get, "0" * 64, "", False, LOG)],
    "a put with a snapshot": lambda asked: [SnapshotPiece(asked.put, None, None, True, LOG)],
    "live elements at the checkpoint": lambda asked: [elements(asked.live, 10)],
    "live elements that go back": lambda asked: [elements(asked.live, 12, 11)],
    "a live log that ends elsewhere": lambda asked: [EndOfStored(asked.live, end(11))],
    "a live log that ends twice": lambda asked: [EndOfStored(asked.live, end(10))] * 2,
    "a live log without head": lambda asked: [EndOfStored(asked.live, {"ts": 10, "log": LOG})],
    "a live log that is acknowledged": lambda asked: [Ok(asked.live, {})],
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_an_honest_relay_never_says_is_a_fault(name: str) -> None:
    asked = Asked()
    with pytest.raises(RelayFaultError):
        asked.wire.say(*FAULTS[name](asked))


def test_an_answer_to_what_was_not_sent_yet_is_a_fault() -> None:
    wire = Wire().connect()
    append, page = wire.append(), wire.client.page(DOC, 0, wire.now_ms)
    wire.client.follow(DOC, 0, wire.now_ms)
    live = str(int(page.ref) + 1)
    for frame in (
        Ok(append.ref, placed(1)),
        EndOfStored(page.ref, end(0)),
        EndOfStored(live, end(0)),
        Refusal(append.ref, Code.INVALID, "because", {}),
    ):
        with pytest.raises(RelayFaultError, match="not sent yet"):
            wire.say(frame)


def test_an_acknowledgement_before_the_last_piece_was_sent_is_a_fault() -> None:
    wire = Wire().connect()
    text = b"x" * (SNAPSHOT_PIECE_SIZE * 2)
    pending = wire.client.put_snapshot(DOC, text, None, wire.now_ms)
    assert wire.client.take_outgoing(wire.now_ms) is not None
    with pytest.raises(RelayFaultError):
        wire.say(Ok(pending.ref, {"revision": sha256(text).hexdigest(), "seq": 1}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "[1]",
        '["OK"]',
        '["OK",1,{}]',
        '["WHAT","1"]',
        '["ELEMENTS","1",[],{}]',
        '["ELEMENTS","1",[[1,1,"a","b",1000]],{}]',
        '["ELEMENTS","1",[[1,1,"a","b",-5]],{}]',
        '["EOSE","1",null]',
        '["HELLO",{}]',
        "[" * 100_000,
        "9" * 10_000,
        '["OK","\\ud800",{}]',
        "\ud800",
        b'["OK","1",{}]',
    ],
    ids=repr,
)
def test_garbage_is_a_fault_before_and_after_the_hello(text: str | bytes) -> None:
    fresh = Wire()
    fresh.client.connected()
    for wire in (fresh, Wire().connect()):
        with pytest.raises(RelayFaultError):
            wire.client.receive(text, wire.now_ms)


def test_anything_before_the_hello_is_a_fault() -> None:
    for frame in (Ok("1", {}), Challenge(CHALLENGE), Closed("1", ""), Presence(DOC, "p", None, {})):
        wire = Wire()
        wire.client.connected()
        with pytest.raises(RelayFaultError):
            wire.say(frame)


def test_what_nobody_waits_for_is_ignored_and_counted() -> None:
    wire = Wire().connect()
    pending = wire.append()
    wire.hear()
    wire.client.forget(pending)
    wire.say(
        Ok(pending.ref, placed(1)),
        Presence("notes/other", "p", None, {"name": "Bob"}),
        Refusal(None, Code.RATE_LIMITED, "slowly", {}),
        Closed(pending.ref, "closed"),
    )
    assert wire.client.ignored == 4
    assert wire.client.take_events() == [Admitted(), Settled(pending.ref)]


REF = st.sampled_from([str(n) for n in range(12)] + ["x"])
STAMP = st.one_of(st.integers(0, 30), st.sampled_from([-1, TS_MAX, TS_MAX + 1, True, 1.5, "7"]))
LOGS = st.sampled_from([LOG, OTHER_LOG, "x", None])
TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def _delivered(stamps: list[Any]) -> list[list[Any]]:
    return [[ts, ts, ALICE.public_key, SIGNATURE, 2] for ts in stamps]


FRAMES = st.one_of(
    st.builds(
        lambda ref, ts, log: ["OK", ref, {"ts": ts, "log": log, "revision": "0" * 64}],
        REF,
        STAMP,
        LOGS,
    ),
    st.builds(
        lambda ref, stamps: ["ELEMENTS", ref, _delivered(stamps), *[{}] * len(stamps)],
        REF,
        st.lists(STAMP, max_size=3),
    ),
    st.builds(
        lambda ref, ts, head, log, more: [
            "EOSE",
            ref,
            {"ts": ts, "head": head, "log": log, "more": more},
        ],
        REF,
        STAMP,
        STAMP,
        LOGS,
        st.booleans(),
    ),
    st.builds(
        lambda ref, revision, text, last, log: [
            "SNAPSHOT",
            ref,
            revision,
            text,
            last,
            {"log": log},
        ],
        REF,
        st.sampled_from(["0" * 64, "1" * 64, None]),
        TEXT | st.none(),
        st.booleans(),
        LOGS,
    ),
    st.builds(lambda ref, reason: ["CLOSED", ref, reason], REF, TEXT),
    st.builds(
        lambda ref, code, details: ["ERR", ref, code, "message", details],
        REF | st.none(),
        st.sampled_from([*Code, "newer"]),
        st.dictionaries(st.sampled_from(["floor", "log", "retry_ms"]), JSON, max_size=3),
    ),
    st.builds(
        lambda peer, payload: ["PRESENCE", DOC, peer, None, payload],
        st.sampled_from("abc"),
        st.none() | st.just({"at": 1}),
    ),
    st.just(["AUTH", CHALLENGE_2]),
    st.lists(JSON, max_size=4),
    st.builds(
        lambda verb, rest: [verb, *rest],
        st.sampled_from(["HELLO", "AUTH", "OK", "ERR", "ELEMENTS", "EOSE", "EVENTS", "STATUS"]),
        st.lists(JSON, max_size=4),
    ),
)

STEPS = st.lists(
    st.one_of(
        FRAMES,
        st.sampled_from(["append", "page", "tail", "get", "put", "send", "tick", "pull", "follow"]),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_a_relay_says_nothing_but_the_documented_errors_is_raised(
    steps: list[Any],
) -> None:
    wire = Wire().connect()
    client, asked = wire.client, list[Pending[Any]]()
    follows = 0
    for step in steps:
        wire.now_ms += 400
        match step:
            case "append":
                asked.append(wire.append())
            case "page":
                asked.append(client.page(DOC, 3, wire.now_ms))
            case "tail":
                asked.append(client.tail(DOC, upto=20, count=2, now_ms=wire.now_ms))
            case "get":
                asked.append(client.get_snapshot(DOC, wire.now_ms))
            case "put":
                asked.append(client.put_snapshot(DOC, b"{}", None, wire.now_ms))
            case "send":
                wire.hear()
            case "tick":
                client.tick(wire.now_ms)
            case "follow":
                client.follow(DOC, 3, wire.now_ms)
                follows += 1
            case "pull":
                client.buffered(DOC, 3)
            case frame:
                try:
                    client.receive(json.dumps(frame), wire.now_ms)
                except (RelayFaultError, NotAdmittedError):
                    client.lost("fault", wire.now_ms)
                    wire.connect()
        assert len(client.take_events()) <= 2 * len(asked) + 8
    for _ in range(follows):
        client.unfollow(DOC)
    client.close("done", wire.now_ms)
    assert all(pending.is_settled for pending in asked)
    assert client.unacknowledged == 0


@settings(max_examples=100, deadline=None)
@given(st.text() | st.binary(), st.booleans())
def test_arbitrary_text_is_a_fault(text: str | bytes, is_greeted: bool) -> None:
    wire = Wire().connect() if is_greeted else Wire()
    wire.client.connected() if not is_greeted else None
    with pytest.raises(RelayFaultError):
        wire.client.receive(text, wire.now_ms)


def test_a_relay_that_sends_and_sends_fills_nothing_without_end() -> None:
    wire = Wire().connect()
    documents = [f"notes/{n}" for n in range(16)]
    for document in documents:
        wire.client.follow(document, 0, wire.now_ms)
    pulls = [frame for frame in wire.hear() if isinstance(frame, Pull)]
    for ts in range(1, 20):
        for pull in pulls:
            wire.say(elements(pull.ref, ts, size=500_000))
    held = wire.client._subscriptions.buffered_bytes
    assert held <= 64 * 2**20 + 1_000_000
    assert len(wire.hear_texts()) <= len(documents)


# ── an honest relay ────────────────────────────────────────────────────────────────────


class HonestRelay:
    """A relay that keeps the protocol, and answers when the test lets it."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.live: dict[str, int] = {}
        self.to_client: deque[RelayFrame] = deque()

    def connect(self) -> None:
        self.live.clear()
        self.to_client.clear()

    def store(self) -> int:
        ts = (self.log[-1] if self.log else 0) + 1 + len(self.log) % 3
        self.log.append(ts)
        return ts

    def push(self) -> None:
        """Send live subscribers what they lack, a page each."""
        for ref, cursor in self.live.items():
            page = [ts for ts in self.log if ts > cursor][:4]
            if page:
                self.to_client.append(elements(ref, *page))
                self.live[ref] = page[-1]

    def take(self, frame: ClientFrame) -> None:
        match frame:
            case Append():
                self.to_client.append(Ok(frame.ref, placed(self.store())))
            case Pull():
                page = [ts for ts in self.log if ts > frame.after]
                some = page if frame.is_live else page[:3]
                if some:
                    self.to_client.append(elements(frame.ref, *some))
                last = some[-1] if some else frame.after
                more = len(page) > len(some)
                self.to_client.append(EndOfStored(frame.ref, end(last, more=more)))
                if frame.is_live:
                    self.live[frame.ref] = last
            case Close():
                self.live.pop(frame.ref, None)
                self.to_client.append(Closed(frame.ref, "closed"))
            case _:
                raise AssertionError(frame)


ACTIONS = st.lists(
    st.sampled_from(["store", "append", "push", "send", "deliver", "pull", "lose", "drop", "tick"]),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(ACTIONS, st.integers(1, 5))
def test_whatever_happens_a_reader_sees_every_element_once_and_in_order(
    actions: list[str], room: int
) -> None:
    relay, wire, seen = HonestRelay(), Wire(), list[int]()
    wire.connect()
    wire.client.follow(DOC, 0, wire.now_ms)
    pages: list[Pending[list[RawElement]]] = []

    def pull() -> bool:
        """One step of a reader; whether it has reached the end."""
        if pages:
            if not pages[0].is_settled:
                return False
            page: Sequence[RawElement] | Waiting | None = pages.pop().result()
        else:
            page = wire.client.buffered(DOC, seen[-1] if seen else 0)
        match page:
            case None:
                pages.append(wire.client.page(DOC, seen[-1] if seen else 0, wire.now_ms))
                return False
            case Waiting():
                return False
            case _:
                seen.extend(element.ts for element in page)
                return not page

    def act(action: str) -> None:
        wire.now_ms += 100
        match action:
            case "store":
                relay.store()
            case "append":
                wire.append()
            case "push":
                relay.push()
            case "send":
                for frame in wire.hear():
                    relay.take(frame)
            case "deliver":
                if relay.to_client:
                    wire.say(relay.to_client.popleft())
            case "pull":
                pull()
            case "lose":
                wire.client.lost("gone", wire.now_ms)
                relay.connect()
                wire.connect()
            case "drop":
                # The relay ends a subscription, as it does with slow readers.
                for ref in list(relay.live):
                    del relay.live[ref]
                    relay.to_client.append(Closed(ref, "too slow"))
            case _:
                wire.client.tick(wire.now_ms)

    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.setattr(following_module, "FOLLOW_ELEMENTS_MAX", room)
        for action in actions:
            act(action)
            assert seen == relay.log[: len(seen)]
        # In the end, with nothing in the way, the reader has everything.
        for _ in range(2_000):
            for action in ("send", "deliver", "push", "tick"):
                act(action)
            if pull() and seen == relay.log:
                break
        assert seen == relay.log
        # And is told of what comes then, without asking.
        for _ in range(600):
            for action in ("send", "deliver", "pull", "tick"):
                act(action)
        wire.client.take_events()
        relay.store()
        act("push")
        act("deliver")
        assert Moved(DOC) in wire.client.take_events()
        assert wire.buffered(seen[-1] if seen else 0) == relay.log[-1:]


# ── when to try again ──────────────────────────────────────────────────────────────────


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_pauses_grow_to_a_limit_and_are_never_none(failures: int, chance: float) -> None:
    backoff = Backoff()
    pause_ms = backoff.pause_ms(failures, chance)
    if failures == 0:
        assert 100 <= pause_ms <= 1_000
    else:
        full_ms = min(1_000 * 2 ** min(failures - 1, 20), 30_000)
        assert full_ms / 2 - 1 <= pause_ms <= full_ms


def test_a_thousand_clients_do_not_come_back_at_once() -> None:
    pauses = [Backoff().pause_ms(0, n / 1000) for n in range(1000)]
    busiest = max(sum(start <= each < start + 50 for each in pauses) for start in range(100, 1000))
    assert busiest <= 60
