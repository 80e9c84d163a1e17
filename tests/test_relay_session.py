"""One connection: who it is, what it may do, and when enough is enough."""

from __future__ import annotations

import tomllib
from itertools import count
from typing import Any

import pytest

from tests.relay_clients import ANNA, BEN, CARL, appending
from walstore.relay.limits import Limits
from walstore.relay.log import log_id
from walstore.relay.rates import Penalties, TokenBucket
from walstore.relay.roles import Roles
from walstore.relay.session import (
    REFUSED_FRAMES,
    STRANGER_FRAMES,
    Drop,
    KeepGrant,
    Order,
    PutWhole,
    Reply,
    Session,
    Unsubscribe,
    frames_in,
)
from walstore.relay.uploads import Uploads
from walstore.signed import Identity
from walstore.signed.auth import sign_auth
from walstore.signed.grant import sign_grant
from walstore.wire.frames import (
    Append,
    Auth,
    Challenge,
    ClientFrame,
    Close,
    Closed,
    Code,
    FollowChanges,
    GetSnapshot,
    Ok,
    PublishGrant,
    Pull,
    PullTail,
    PutSnapshot,
    Refusal,
    Request,
    SetPresence,
    client_frame,
)
from walstore.wire.limits import CHALLENGE_MS_MAX, ELEMENT_BYTES_MAX, ELEMENT_VALUES_MAX

NOW_MS = 1_700_000_000_000
RELAY_ID = "0f" * 16
AUTHORITY = "relay.example:443"
TAIL = FollowChanges("feed", "tail", "notes/", 0, None, 100, None, None, None, True)


def roles_of(text: str) -> Roles:
    for name, who in {"ANNA": ANNA, "BEN": BEN, "CARL": CARL}.items():
        text = text.replace(name, f'"{who.public_key}"')
    return Roles.from_table(tomllib.loads(text), source="roles.toml")


def new_session(
    roles: Roles | None = None,
    *,
    limits: Limits | None = None,
    penalties: Penalties | None = None,
    uploads: Uploads | None = None,
    first_challenge: int = 1,
) -> Session:
    numbers = count(first_challenge)
    return Session(
        relay_id=RELAY_ID,
        authority=AUTHORITY,
        roles=Roles.open_to_all() if roles is None else roles,
        limits=Limits() if limits is None else limits,
        penalties=Penalties(pause_ms=60_000) if penalties is None else penalties,
        uploads=Uploads(bytes_max=2**20) if uploads is None else uploads,
        new_challenge=lambda: f"{next(numbers):064x}",
        now_ms=NOW_MS,
    )


def said(
    session: Session, frame: ClientFrame | str, now_ms: int = NOW_MS
) -> list[Reply | Order | Drop]:
    text = frame.encode() if isinstance(frame, str) else client_frame(frame)
    return session.receive(text, now_ms)


def auth(
    who: Identity,
    *,
    challenge: str = f"{1:064x}",
    relay: str = AUTHORITY,
    key: str | None = None,
    ref: str = "auth",
) -> Auth:
    signature = sign_auth(challenge=challenge, relay=relay, identity=who)
    return Auth(ref, who.public_key if key is None else key, signature)


def proved(session: Session, *identities: Identity) -> Session:
    for each in identities:
        assert said(session, auth(each)) == [Reply(Ok("auth", {"key": each.public_key}))]
    return session


def refusal(outcomes: list[Reply | Order | Drop]) -> Refusal:
    (outcome,) = outcomes
    assert isinstance(outcome, Reply)
    assert isinstance(outcome.frame, Refusal)
    return outcome.frame


def code_of(outcomes: list[Reply | Order | Drop]) -> Code:
    return refusal(outcomes).code


# ── hello ──────────────────────────────────────────────────────────────────────────────


def test_the_hello_says_what_a_client_needs_to_know() -> None:
    hello = new_session(limits=Limits(subscriptions_max=7)).hello("walstore/1")
    assert hello.protocol == (1,)
    assert (hello.relay, hello.challenge) == (RELAY_ID, f"{1:064x}")
    assert hello.limits["subscriptions_max"] == 7
    assert hello.limits["frame_bytes_max"] == Limits().frame_bytes_max
    assert hello.software == "walstore/1"


# ── proofs ─────────────────────────────────────────────────────────────────────────────


def test_several_keys_may_be_proved_on_one_connection() -> None:
    session = proved(new_session(), ANNA, BEN, ANNA)
    assert session.keys == {ANNA.public_key, BEN.public_key}


@pytest.mark.parametrize(
    "proof",
    [
        auth(ANNA, challenge=f"{2:064x}"),
        auth(ANNA, relay="evil.example:443"),
        auth(ANNA, relay="relay.example"),
        auth(ANNA, key=BEN.public_key),
        Auth("auth", ANNA.public_key, "A" * 86 + "=="),
        Auth("auth", "00" * 32, "A" * 86 + "=="),
    ],
)
def test_a_proof_for_something_else_proves_nothing(proof: Auth) -> None:
    session = new_session()
    assert code_of(said(session, proof)) is Code.AUTH_FAILED
    assert session.keys == set()


def test_a_proof_from_another_connection_cannot_be_replayed() -> None:
    other = auth(ANNA, challenge=f"{1:064x}")
    assert code_of(said(new_session(first_challenge=2), other)) is Code.AUTH_FAILED


@pytest.mark.parametrize("late_ms", [CHALLENGE_MS_MAX + 1, -1])
def test_an_expired_challenge_is_refused_and_replaced(late_ms: int) -> None:
    session, now_ms = new_session(), NOW_MS + late_ms
    challenge, expired = said(session, auth(ANNA), now_ms)
    assert challenge == Reply(Challenge(f"{2:064x}"))
    assert code_of([expired]) is Code.AUTH_FAILED
    assert session.keys == set()
    assert code_of(said(session, auth(ANNA), now_ms)) is Code.AUTH_FAILED
    assert said(session, auth(ANNA, challenge=f"{2:064x}"), now_ms) == [
        Reply(Ok("auth", {"key": ANNA.public_key}))
    ]


def test_a_challenge_holds_for_ten_minutes() -> None:
    session = new_session()
    said(session, auth(ANNA), NOW_MS + CHALLENGE_MS_MAX)
    assert session.keys == {ANNA.public_key}


def test_what_was_proved_stays_proved_when_the_challenge_expires() -> None:
    session = proved(new_session(), ANNA)
    said(session, auth(BEN), NOW_MS + CHALLENGE_MS_MAX + 1)
    assert session.keys == {ANNA.public_key}


def test_one_connection_proves_only_so_many_keys() -> None:
    session = proved(new_session(limits=Limits(keys_max=2)), ANNA, BEN)
    assert code_of(said(session, auth(CARL))) is Code.TOO_MANY
    proved(session, ANNA)


def test_a_key_is_verified_once_however_often_it_is_proved() -> None:
    session = proved(new_session(limits=Limits(faults_max=0)), ANNA)
    answer = Reply(Ok("auth", {"key": ANNA.public_key}))
    # It would not pass, if anybody looked.
    unsigned = Auth("auth", ANNA.public_key, "A" * 86 + "==")
    assert [said(session, unsigned) for _ in range(50)] == [[answer]] * 50
    assert session.keys == {ANNA.public_key}


def test_who_is_dropped_for_faults_has_to_wait() -> None:
    penalties = Penalties(pause_ms=60_000)
    session = proved(new_session(limits=Limits(faults_max=2), penalties=penalties), ANNA)
    for _ in range(2):
        assert code_of(said(session, "junk")) is Code.MALFORMED
    reply, drop = said(session, "junk")
    assert isinstance(reply, Reply)
    assert isinstance(drop, Drop)
    assert drop.close_code == 1008
    waiting = refusal(said(new_session(penalties=penalties), auth(ANNA), NOW_MS + 59_999))
    assert (waiting.code, waiting.details) == (Code.RATE_LIMITED, {"retry_ms": 1})
    proved(new_session(penalties=penalties), BEN)
    again = new_session(penalties=penalties)
    said(again, auth(ANNA), NOW_MS + 60_000)
    assert again.keys == {ANNA.public_key}


def test_a_failed_proof_is_a_fault_and_keeps_nobody_elses_key_out() -> None:
    penalties = Penalties(pause_ms=60_000)
    session = new_session(limits=Limits(faults_max=3), penalties=penalties)
    outcomes = [said(session, auth(BEN, key=ANNA.public_key)) for _ in range(4)]
    assert isinstance(outcomes[-1][-1], Drop)
    proved(new_session(penalties=penalties), ANNA)


@pytest.mark.parametrize("verb", ["漢" * 60, "😀" * 60, "é" * 60, "x" * 60])
def test_the_reason_of_a_drop_fits_what_a_websocket_can_carry(verb: str) -> None:
    session = new_session(limits=Limits(faults_max=0))
    drop = said(session, f'["{verb}"]')[-1]
    assert isinstance(drop, Drop)
    assert len(drop.reason.encode()) <= 123


# ── roles ──────────────────────────────────────────────────────────────────────────────

PULL = Pull("r", "notes/a", None, 0, 10, False)
NEEDS_READ = [
    PULL,
    PULL._replace(is_live=True),
    PullTail("r", "notes/a", None, 5, 5),
    GetSnapshot("r", "notes/a", None),
    TAIL._replace(ref="r"),
]


@pytest.mark.parametrize("frame", [*NEEDS_READ, appending(ANNA, "notes/a", {}, ref="r")])
def test_who_has_proved_nothing_is_asked_to(frame: ClientFrame) -> None:
    found = refusal(said(new_session(), frame))
    assert (found.ref, found.code) == ("r", Code.AUTH_REQUIRED)


@pytest.mark.parametrize("frame", NEEDS_READ)
def test_who_does_not_hold_the_role_is_refused(frame: ClientFrame) -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\nread = [ANNA]')
    assert code_of(said(proved(new_session(roles), BEN), frame)) is Code.RESTRICTED
    assert said(proved(new_session(roles), ANNA), frame) == [frame]
    assert said(proved(new_session(roles), BEN, ANNA), frame) == [frame]


def test_a_role_for_one_document_is_not_one_for_its_prefix() -> None:
    roles = roles_of('[[grant]]\nkey = "notes/a"\nread = [ANNA]')
    session = proved(new_session(roles), ANNA)
    assert said(session, PULL) == [PULL]
    assert code_of(said(session, PULL._replace(document="notes/ab"))) is Code.RESTRICTED
    assert code_of(said(session, TAIL)) is Code.RESTRICTED
    assert code_of(said(session, TAIL._replace(prefix="notes/a"))) is Code.RESTRICTED


def test_anybody_may_read_what_is_open_without_a_key() -> None:
    roles = roles_of('[[grant]]\nprefix = "open/"\nread = "any"')
    frame = PULL._replace(document="open/a")
    assert said(new_session(roles), frame) == [frame]
    assert code_of(said(new_session(roles), PULL)) is Code.AUTH_REQUIRED


def test_only_writers_append_and_only_under_their_own_key() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\nread = [ANNA, BEN]\nwrite = [ANNA]')
    by_anna, by_ben = (appending(each, "notes/a", {"n": 1}) for each in (ANNA, BEN))
    assert said(proved(new_session(roles), ANNA), by_anna) == [by_anna]
    assert code_of(said(proved(new_session(roles), ANNA), by_ben)) is Code.RESTRICTED
    assert code_of(said(proved(new_session(roles), BEN), by_ben)) is Code.RESTRICTED


def test_a_writer_does_not_lend_the_role_to_the_other_keys_of_a_connection() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\nwrite = [ANNA]')
    session = proved(new_session(roles), ANNA, BEN)
    assert code_of(said(session, appending(BEN, "notes/a", {"n": 1}))) is Code.RESTRICTED


def test_a_snapshot_is_taken_from_who_holds_the_role_and_nobody_else() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\nsnapshot = [ANNA]\nwrite = [BEN]')
    piece = PutSnapshot("r", "notes/a", None, None, "{}", True)
    assert code_of(said(new_session(roles), piece)) is Code.AUTH_REQUIRED
    assert code_of(said(proved(new_session(roles), BEN), piece)) is Code.RESTRICTED
    session = proved(new_session(roles), ANNA, BEN)
    (order,) = said(session, piece)
    assert isinstance(order, PutWhole)
    assert session.refuse_producer(order, ANNA.public_key, NOW_MS) is None
    for other in (BEN, CARL):
        found = session.refuse_producer(order, other.public_key, NOW_MS)
        assert found is not None
        assert (found.ref, found.code) == ("r", Code.RESTRICTED)


@pytest.mark.parametrize(
    "frame",
    [
        PULL._replace(document="notes/a__snapshot"),
        appending(ANNA, "notes/a__snapshot", {}),
        PutSnapshot("r", "notes/a__snapshot", None, None, "{}", True),
        GetSnapshot("r", "notes/a__snapshot", None),
        SetPresence("notes/a__snapshot", {}),
    ],
)
def test_keys_of_snapshots_are_reserved(frame: ClientFrame) -> None:
    assert code_of(said(proved(new_session(), ANNA), frame)) is Code.INVALID


@pytest.mark.parametrize(
    "frame",
    [
        PULL,
        PULL._replace(is_live=True),
        PullTail("r", "notes/a", None, 5, 5),
        GetSnapshot("r", "notes/a", None),
        appending(ANNA, "notes/a", {"n": 1}),
    ],
)
def test_another_log_under_the_same_key_is_not_mistaken_for_it(frame: Any) -> None:
    here = log_id(RELAY_ID, "notes/a")
    session = proved(new_session(), ANNA)
    known = frame._replace(log=here)
    assert said(session, known)[-1] == known
    found = refusal(said(session, frame._replace(log="ab" * 16)))
    assert (found.code, found.details) == (Code.OTHER_LOG, {"log": here})
    of_another = log_id(RELAY_ID, "notes/b")
    assert code_of(said(session, frame._replace(log=of_another))) is Code.OTHER_LOG


def test_an_element_that_is_too_large_is_not_looked_into() -> None:
    session = proved(new_session(), ANNA)
    largest = appending(ANNA, "notes/a", {"t": "x" * (ELEMENT_BYTES_MAX - 8)})
    assert len(largest.data) == ELEMENT_BYTES_MAX
    assert said(session, largest) == [largest]
    too_large = appending(ANNA, "notes/a", {"t": "x" * (ELEMENT_BYTES_MAX - 7)})
    assert code_of(said(session, too_large)) is Code.TOO_LARGE


def test_an_element_of_too_many_values_is_not_looked_into() -> None:
    session = proved(new_session(), ANNA)
    many = appending(ANNA, "notes/a", {"t": [1] * (ELEMENT_VALUES_MAX - 3), "u": "[,{" * 1000})
    assert said(session, many) == [many]
    too_many = appending(ANNA, "notes/a", {"t": [1] * ELEMENT_VALUES_MAX})
    assert code_of(said(session, too_many)) is Code.TOO_LARGE


# ── grants ─────────────────────────────────────────────────────────────────────────────


def granting(by: Identity, to: Identity, *roles: str, prefix: str = "notes/") -> dict[str, Any]:
    return sign_grant(by, prefix=prefix, to=to.public_key, roles=roles, at_ms=NOW_MS)


def test_a_grant_is_kept_if_its_issuer_may_give_it_whoever_brings_it() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [ANNA]')
    grant = granting(ANNA, BEN, "read")
    assert code_of(said(new_session(roles), PublishGrant("g", grant))) is Code.AUTH_REQUIRED
    session = proved(new_session(roles), CARL)
    (order,) = said(session, PublishGrant("g", grant))
    assert isinstance(order, KeepGrant)
    assert (order.ref, order.text, order.grant.to) == ("g", grant, BEN.public_key)


def test_a_grant_that_is_not_its_issuers_to_give_is_refused() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [ANNA]')
    session = proved(new_session(roles), BEN)
    for grant in (granting(BEN, BEN, "read"), granting(ANNA, BEN, "read", prefix="other/")):
        assert code_of(said(session, PublishGrant("g", grant))) is Code.RESTRICTED


@pytest.mark.parametrize(
    "change",
    [{"roles": ["write"]}, {"to": CARL.public_key}, {"prefix": ""}, {"v": 2}, {"extra": [[[]]]}],
)
def test_a_grant_that_was_tampered_with_is_a_fault(change: dict[str, Any]) -> None:
    roles = roles_of('[[grant]]\nprefix = ""\ngrant = [ANNA]')
    session = proved(new_session(roles, limits=Limits(faults_max=1)), BEN)
    grant = granting(ANNA, BEN, "read") | change
    assert code_of(said(session, PublishGrant("g", grant))) is Code.INVALID
    assert isinstance(said(session, PublishGrant("g", grant))[-1], Drop)


def test_what_was_revoked_is_seen_at_once() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [ANNA]')
    session = proved(new_session(roles), BEN)
    assert code_of(said(session, PULL)) is Code.RESTRICTED
    (order,) = said(session, PublishGrant("g", granting(ANNA, BEN, "read")))
    assert isinstance(order, KeepGrant)
    roles.add(order.grant)
    assert said(session, PULL) == [PULL]
    later = sign_grant(ANNA, prefix="notes/", to=BEN.public_key, roles=[], at_ms=NOW_MS + 1)
    (order,) = said(session, PublishGrant("g", later))
    assert isinstance(order, KeepGrant)
    roles.add(order.grant)
    assert not session.may_read("notes/a", NOW_MS + 1)
    assert not session.may_follow("notes/", NOW_MS + 1)


# ── refs and subscriptions ─────────────────────────────────────────────────────────────

LIVE = Pull("live", "notes/a", None, 0, 10, True)


@pytest.mark.parametrize(
    "frame",
    [
        LIVE,
        LIVE._replace(document="notes/b"),
        PULL._replace(ref="live"),
        GetSnapshot("live", "notes/a", None),
        TAIL._replace(ref="live"),
        Request("live", ("ab" * 32,), None, None, None),
    ],
)
@pytest.mark.parametrize("former", [LIVE, TAIL._replace(ref="live")])
def test_a_ref_that_is_used_again_replaces_what_it_named(
    former: ClientFrame, frame: ClientFrame
) -> None:
    session = proved(new_session(), ANNA)
    assert said(session, former) == [former]
    assert said(session, frame) == [Unsubscribe("live"), frame]


def test_closing_ends_what_is_open_and_answers_anyhow() -> None:
    session = proved(new_session(), ANNA)
    said(session, LIVE)
    closed = Reply(Closed("live", "closed"))
    assert said(session, Close("live")) == [Unsubscribe("live"), closed]
    assert said(session, Close("live")) == [closed]
    assert said(new_session(), Close("never")) == [Reply(Closed("never", "closed"))]


def test_there_are_only_so_many_subscriptions() -> None:
    session = proved(new_session(limits=Limits(subscriptions_max=2)), ANNA)
    said(session, LIVE)
    said(session, TAIL)
    third = LIVE._replace(ref="third")
    assert code_of(said(session, third)) is Code.TOO_MANY
    assert said(session, LIVE) == [Unsubscribe("live"), LIVE]
    assert said(session, PULL) == [PULL]
    session.ended("feed")
    assert said(session, third) == [third]


def test_a_refused_request_leaves_what_its_ref_names_alone() -> None:
    roles = roles_of('[[grant]]\nkey = "notes/a"\nread = [ANNA]')
    session = proved(new_session(roles), ANNA)
    said(session, LIVE)
    assert code_of(said(session, LIVE._replace(document="secret"))) is Code.RESTRICTED
    assert said(session, Close("live"))[0] == Unsubscribe("live")


# ── snapshots in pieces ────────────────────────────────────────────────────────────────


def piece(text: str, *, is_last: bool = False, ref: str = "put", document: str = "d") -> Any:
    return PutSnapshot(ref, document, None, None, text, is_last)


def test_the_pieces_of_a_snapshot_are_put_together() -> None:
    session = proved(new_session(), ANNA)
    assert said(session, piece('{"a":')) == []
    assert said(session, appending(ANNA, "d", {})) != []
    assert said(session, piece('"é😀"')) == []
    assert said(session, piece("}", is_last=True)) == [
        PutWhole("put", "d", None, '{"a":"é😀"}'.encode())
    ]
    assert said(session, piece("{}", is_last=True)) == [PutWhole("put", "d", None, b"{}")]


def test_one_snapshot_is_taken_at_a_time() -> None:
    session = proved(new_session(), ANNA)
    said(session, piece("first", ref="1"))
    said(session, piece("second", ref="2"))
    assert said(session, piece("!", is_last=True, ref="1")) == [PutWhole("1", "d", None, b"!")]


def test_closing_its_ref_gives_up_a_snapshot() -> None:
    session = proved(new_session(), ANNA)
    said(session, piece("half"))
    said(session, Close("put"))
    assert said(session, piece("{}", is_last=True)) == [PutWhole("put", "d", None, b"{}")]


def test_a_snapshot_that_grows_too_large_is_given_up() -> None:
    session = proved(new_session(limits=Limits(snapshot_bytes_max=10)), ANNA)
    assert said(session, piece("12345")) == []
    assert code_of(said(session, piece("678901"))) is Code.TOO_LARGE
    # The rest was under way already: it is neither a snapshot nor a fault.
    assert said(session, piece("2")) == []
    assert said(session, piece("3", is_last=True)) == []
    assert said(session, piece("67890", is_last=True)) == [PutWhole("put", "d", None, b"67890")]


def test_a_snapshot_that_made_room_is_refused_once_and_can_be_sent_again() -> None:
    uploads = Uploads(bytes_max=10)
    left, right = (proved(new_session(uploads=uploads), ANNA) for _ in range(2))
    assert said(left, piece("123456", ref="1")) == []
    assert said(right, piece("12345")) == []
    refused = refusal(said(left, piece("67", ref="1")))
    assert (refused.ref, refused.code, refused.code.retryable) == ("1", Code.UNAVAILABLE, True)
    # The rest was under way already: it is neither a snapshot nor a fault.
    assert said(left, piece("89", ref="1")) == []
    assert said(left, piece("0", is_last=True, ref="1")) == []
    assert said(right, piece("67", is_last=True)) == [PutWhole("put", "d", None, b"1234567")]
    uploads.done(right)
    assert said(left, piece("12345", ref="1")) == []
    assert said(left, piece("67890", is_last=True, ref="1")) == [
        PutWhole("1", "d", None, b"1234567890")
    ]


def test_keys_that_may_not_put_a_snapshot_hide_nobody_who_holds_much() -> None:
    roles, uploads = (
        roles_of('[[grant]]\nprefix = ""\nsnapshot = [ANNA, BEN]\n'),
        Uploads(bytes_max=10),
    )
    anna = proved(new_session(roles, uploads=uploads), ANNA)
    assert said(anna, piece("1234")) == []
    for number in range(3):
        others = [Identity.from_seed(bytes([number, each] * 16)) for each in range(8)]
        ben = proved(new_session(roles, uploads=uploads), BEN, *others)
        said(ben, piece("123", ref=str(number)))
    assert said(anna, piece("5", is_last=True)) == [PutWhole("put", "d", None, b"12345")]


def test_a_key_that_has_much_being_stored_is_told_to_send_the_next_one_again() -> None:
    uploads = Uploads(bytes_max=10)
    left, right = (proved(new_session(uploads=uploads), ANNA) for _ in range(2))
    assert said(left, piece("1234", is_last=True)) == [PutWhole("put", "d", None, b"1234")]
    refused = refusal(said(right, piece("5678", is_last=True)))
    assert (refused.ref, refused.code, refused.code.retryable) == ("put", Code.UNAVAILABLE, True)
    uploads.done(left)
    assert said(right, piece("5678", is_last=True)) == [PutWhole("put", "d", None, b"5678")]


def test_another_snapshot_may_follow_one_that_made_room() -> None:
    uploads = Uploads(bytes_max=10)
    left, right = (proved(new_session(uploads=uploads), ANNA) for _ in range(2))
    said(left, piece("123456", ref="1"))
    said(right, piece("12345"))
    assert code_of(said(left, piece("67", ref="1"))) is Code.UNAVAILABLE
    assert said(left, piece("{}", is_last=True, ref="2")) == [PutWhole("2", "d", None, b"{}")]


def test_closing_its_ref_ends_one_that_made_room() -> None:
    uploads = Uploads(bytes_max=10)
    left, right = (proved(new_session(uploads=uploads), ANNA) for _ in range(2))
    said(left, piece("123456"))
    said(right, piece("12345"))
    assert code_of(said(left, piece("67"))) is Code.UNAVAILABLE
    said(left, Close("put"))
    assert said(left, piece("{}", is_last=True)) == [PutWhole("put", "d", None, b"{}")]


def test_what_a_closed_connection_has_sent_of_a_snapshot_takes_no_room() -> None:
    uploads = Uploads(bytes_max=10)
    left, right, third = (proved(new_session(uploads=uploads), ANNA) for _ in range(3))
    said(left, piece("12"))
    said(right, piece("1234567"))
    right.close()
    said(third, piece("12345678"))
    assert said(left, piece("!", is_last=True)) == [PutWhole("put", "d", None, b"12!")]


def test_pieces_are_counted_in_bytes() -> None:
    session = proved(new_session(limits=Limits(snapshot_bytes_max=10)), ANNA)
    assert code_of(said(session, piece("éééééé"))) is Code.TOO_LARGE


# ── how fast ───────────────────────────────────────────────────────────────────────────

ASKED = client_frame(PULL)


def test_frames_are_read_no_faster_than_the_pace() -> None:
    session = new_session(limits=Limits(frames_per_second=100, frames_burst=5))
    now_ms, waited = NOW_MS, []
    for _ in range(25):
        wait_ms = session.pace(ASKED, now_ms)
        waited.append(wait_ms)
        now_ms += wait_ms
    assert waited[:5] == [0] * 5
    # After the burst, each frame takes its hundredth of a second.
    assert sum(waited) == 20 * 10


def test_who_is_refused_has_a_tenth_of_the_pace() -> None:
    def waited_ms(session: Session) -> int:
        now_ms = NOW_MS
        for _ in range(11):
            now_ms += session.pace(ASKED, now_ms)
            said(session, PULL, now_ms)
        return now_ms - NOW_MS

    limits = Limits(frames_per_second=1000, frames_burst=1)
    assert waited_ms(new_session(limits=limits)) == 10 * REFUSED_FRAMES
    assert waited_ms(proved(new_session(limits=limits), ANNA)) == 10


def test_a_long_frame_counts_as_several() -> None:
    size = 2**20 - 100
    long = appending(ANNA, "notes/a", {"a": "x" * size})
    limits = Limits(frames_per_second=1000, frames_burst=1)

    def waited_ms(session: Session) -> int:
        session.pace(client_frame(long), NOW_MS)
        said(session, long)
        return session.pace(ASKED, NOW_MS)

    as_frames = frames_in(client_frame(long))
    assert as_frames > 100
    assert waited_ms(new_session(limits=limits)) == as_frames * REFUSED_FRAMES
    assert waited_ms(proved(new_session(limits=limits), ANNA)) == as_frames


def test_who_has_proved_no_key_says_little_at_once() -> None:
    def at_once(session: Session) -> int:
        return next(number for number in count() if session.pace(ASKED, NOW_MS))

    assert at_once(new_session()) == STRANGER_FRAMES
    assert at_once(proved(new_session(), ANNA)) == Limits().frames_burst
    # Another key is no reason for more.
    session = proved(new_session(), ANNA)
    at_once(session)
    assert at_once(proved(session, BEN)) == 0


def test_the_pace_recovers_but_never_beyond_the_burst() -> None:
    session = new_session(limits=Limits(frames_per_second=100, frames_burst=5))
    while not session.pace(ASKED, NOW_MS):
        pass
    assert [session.pace(ASKED, NOW_MS + 3_600_000) for _ in range(6)] == [0, 0, 0, 0, 0, 10]


def test_a_clock_that_jumps_back_stops_nobody_for_long() -> None:
    bucket = TokenBucket(per_second=100, burst=1, now_ms=NOW_MS)
    assert bucket.borrow(NOW_MS) == 0
    assert bucket.borrow(NOW_MS - 3_600_000) == 10
    assert bucket.borrow(NOW_MS - 3_600_000 + 20) == 0


def test_presences_are_refused_beyond_their_rate_and_without_a_ref() -> None:
    session = proved(new_session(limits=Limits(presence_per_second=2)), ANNA)
    here = SetPresence("notes/a", {"name": "Anna"})
    assert said(session, here) == [here]
    assert said(session, here) == [here]
    found = refusal(said(session, here))
    assert (found.ref, found.code) == (None, Code.RATE_LIMITED)
    assert found.details["retry_ms"] == 500
    assert said(session, here, NOW_MS + 500) == [here]


def test_presence_is_for_those_who_may_read() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\nread = [ANNA]')
    here = SetPresence("notes/a", {})
    assert code_of(said(new_session(roles), here)) is Code.AUTH_REQUIRED
    assert code_of(said(proved(new_session(roles), BEN), here)) is Code.RESTRICTED


# ── faults ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", Code.MALFORMED),
        ("[]", Code.MALFORMED),
        ('["NO","r"]', Code.UNKNOWN_VERB),
        ('["PULL","r","d",{}]', Code.MALFORMED),
        ('["PRESENCE","d",{"x":"%s"}]' % ("x" * 5000), Code.TOO_LARGE),
    ],
)
def test_faults_are_answered_then_counted_then_end_it(text: str, code: Code) -> None:
    session = new_session(limits=Limits(faults_max=3))
    for _ in range(3):
        assert code_of(said(session, text)) is code
    reply, drop = said(session, text)
    assert code_of([reply]) is code
    assert isinstance(drop, Drop)


def test_being_refused_is_no_fault() -> None:
    session = new_session(limits=Limits(faults_max=0))
    for _ in range(50):
        assert code_of(said(session, PULL)) is Code.AUTH_REQUIRED


def test_only_what_was_checked_is_ever_ordered() -> None:
    session = new_session()
    for frame in (PULL, LIVE, TAIL, appending(ANNA, "d", {}), piece("{}", is_last=True)):
        assert all(isinstance(outcome, Reply) for outcome in said(session, frame))
    assert not isinstance(said(session, appending(ANNA, "d", {}))[0], Append)
