"""Records: small texts beside a log, from the frame to the disk and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.relay_clients import (
    ANNA,
    BEN,
    CARL,
    PATIENCE_S,
    revision_of,
    snapshot_text,
    speaking,
)
from tests.test_net_client import DOC, LOG, OTHER_LOG, Wire
from tests.test_relay_session import (
    NOW_MS,
    RELAY_ID,
    code_of,
    new_session,
    proved,
    refusal,
    roles_of,
    said,
)
from walstore.document.ports import OtherLogError, RecordConflictError, StoredRecord
from walstore.errors import TransportError
from walstore.net.events import RecordsChanged
from walstore.net.faults import (
    DocumentKeyRefusedError,
    FalseAnswerError,
    RecordRefusedError,
    RelayFaultError,
    RelayRefusalError,
    TransportClosedError,
)
from walstore.net.memory import MemoryRecords
from walstore.net.websocket import WebSocketTransport
from walstore.relay.log import FeedPage, KeptRecord, LogError, Notice, RelayLog, log_id
from walstore.relay.memory import MemoryLog
from walstore.relay.roles import Roles
from walstore.relay.server import Relay
from walstore.relay.sqlite import SqliteLog
from walstore.signed.grant import sign_grant
from walstore.wire.frames import (
    RECORDS_FEATURE,
    Auth,
    ClientFrame,
    Code,
    EndOfStored,
    FrameError,
    GetRecord,
    Hello,
    KeepRecord,
    Kept,
    Ok,
    PublishGrant,
    Pull,
    Record,
    Refusal,
    RelayFrame,
    client_frame,
    read_client_frame,
    read_relay_frame,
    relay_frame,
)
from walstore.wire.limits import FRAME_BYTES_MAX, RECORD_BYTES_MAX

DOCUMENT = "notes/a"
KEEP = KeepRecord("r", DOCUMENT, None, "roster", None, "{}")
GET = GetRecord("r", DOCUMENT, "roster")
REVISION = sha256(b"{}").hexdigest()
HELLO = {"protocol": [1], "relay": LOG, "challenge": REVISION, "limits": {}, "software": "x"}

# ── frames ─────────────────────────────────────────────────────────────────────────────

names = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=32)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
revisions = st.none() | st.text("0123456789abcdef", min_size=64, max_size=64)
logs = st.text("0123456789abcdef", min_size=32, max_size=32)


@given(
    st.builds(GetRecord, st.just("r"), st.just(DOCUMENT), names)
    | st.builds(
        KeepRecord, st.just("r"), st.just(DOCUMENT), st.none() | logs, names, revisions, texts
    )
)
def test_what_a_client_says_is_read_as_it_was_said(frame: ClientFrame) -> None:
    assert read_client_frame(client_frame(frame)) == frame


@given(
    st.builds(Record, st.just("r"), revisions.filter(bool), texts, logs)
    | st.builds(Record, st.just("r"), st.none(), st.none(), logs)
)
def test_what_a_relay_says_is_read_as_it_was_said(frame: RelayFrame) -> None:
    assert read_relay_frame(relay_frame(frame)) == frame


@pytest.mark.parametrize(
    "members",
    [
        ["RECORD", "r", DOCUMENT],
        ["RECORD", "r", DOCUMENT, ""],
        ["RECORD", "r", DOCUMENT, "Roster"],
        ["RECORD", "r", DOCUMENT, "key-ring"],
        ["RECORD", "r", DOCUMENT, "ä"],
        ["RECORD", "r", DOCUMENT, "x" * 33],
        ["RECORD", "r", DOCUMENT, None],
        ["RECORD", "r", "", "roster"],
        ["KEEP", "r", DOCUMENT, None, "roster", None],
        ["KEEP", "r", DOCUMENT, None, "roster", None, ""],
        ["KEEP", "r", DOCUMENT, None, "roster", None, "a\nb"],
        ["KEEP", "r", DOCUMENT, None, "roster", None, "\x00"],
        ["KEEP", "r", DOCUMENT, None, "roster", None, {}],
        ["KEEP", "r", DOCUMENT, None, "roster", "r1", "x"],
        ["KEEP", "r", DOCUMENT, "log", "roster", None, "x"],
        ["KEEP", "r", DOCUMENT, None, "", None, "x"],
    ],
)
def test_a_frame_that_asks_for_no_record_is_malformed(members: list[Any]) -> None:
    with pytest.raises(FrameError) as wrong:
        read_client_frame(orjson.dumps(members))
    assert (wrong.value.code, wrong.value.ref) == (Code.MALFORMED, "r")


@pytest.mark.parametrize(
    "members",
    [
        ["RECORD", "r", None, "x", {"log": LOG}],
        ["RECORD", "r", REVISION, None, {"log": LOG}],
        ["RECORD", "r", REVISION, "x", {}],
        ["RECORD", "r", REVISION, "", {"log": LOG}],
        ["RECORD", "r", REVISION, "x"],
        ["KEPT", "r", "roster"],
        ["KEPT", "r", "Roster", REVISION],
        ["KEPT", "r", "roster", None],
        ["KEPT", None, "roster", REVISION],
        ["HELLO", {**HELLO, "features": "records"}],
        ["HELLO", {**HELLO, "features": [1]}],
        ["HELLO", {**HELLO, "features": ["x"] * 65}],
    ],
)
def test_an_answer_that_is_no_record_is_malformed(members: list[Any]) -> None:
    with pytest.raises(FrameError):
        read_relay_frame(orjson.dumps(members))


@pytest.mark.parametrize("letter", ["x", "ü", "漢", '"', "\\", "\x7f"])
def test_the_largest_record_fits_a_frame_and_a_larger_one_is_told_so(letter: str) -> None:
    largest = letter * (RECORD_BYTES_MAX // len(letter.encode()))
    frame = client_frame(KEEP._replace(text=largest))
    assert len(frame) <= FRAME_BYTES_MAX
    assert read_client_frame(frame) == KEEP._replace(text=largest)
    with pytest.raises(FrameError) as wrong:
        read_client_frame(client_frame(KEEP._replace(text=largest + letter)))
    assert wrong.value.code is Code.TOO_LARGE


# ── who may ────────────────────────────────────────────────────────────────────────────


def test_who_may_read_a_document_may_read_its_records() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\nread = [ANNA]\nwrite = [BEN]')
    assert said(proved(new_session(roles), ANNA), GET) == [GET]
    assert code_of(said(proved(new_session(roles), BEN), GET)) is Code.RESTRICTED
    assert code_of(said(new_session(roles), GET)) is Code.AUTH_REQUIRED


def test_who_may_give_roles_may_keep_records_and_nobody_else() -> None:
    roles = roles_of(
        '[[grant]]\nprefix = "notes/"\ngrant = [ANNA]\nread = [BEN]\nwrite = "any"\nsnapshot=[BEN]'
    )
    assert said(proved(new_session(roles), ANNA), KEEP) == [KEEP]
    assert said(proved(new_session(roles), ANNA, BEN), KEEP) == [KEEP]
    assert code_of(said(proved(new_session(roles), BEN), KEEP)) is Code.RESTRICTED
    elsewhere = KEEP._replace(document="other/a")
    assert code_of(said(proved(new_session(roles), ANNA), elsewhere)) is Code.RESTRICTED
    assert code_of(said(new_session(roles), KEEP)) is Code.AUTH_REQUIRED


def test_on_a_relay_that_is_open_whoever_writes_keeps_records() -> None:
    assert said(proved(new_session(), CARL), KEEP) == [KEEP]
    assert code_of(said(new_session(), KEEP)) is Code.AUTH_REQUIRED


def test_records_of_snapshots_and_of_another_log_are_refused() -> None:
    session = proved(new_session(), ANNA)
    for frame in (KEEP, GET):
        reserved = frame._replace(document="notes/a__snapshot")
        assert code_of(said(session, reserved)) is Code.INVALID
    here = log_id(RELAY_ID, DOCUMENT)
    assert said(session, KEEP._replace(log=here)) == [KEEP._replace(log=here)]
    found = refusal(said(session, KEEP._replace(log="ab" * 16)))
    assert (found.code, found.details) == (Code.OTHER_LOG, {"log": here})


def test_an_exact_grant_opens_one_document() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [ANNA]')
    grant = sign_grant(
        ANNA, prefix=DOCUMENT, to=BEN.public_key, roles=["read"], at_ms=1, is_exact=True
    )
    session = proved(new_session(roles), BEN)
    (order,) = said(proved(new_session(roles), ANNA), PublishGrant("g", grant))
    roles.add(order.grant)  # type: ignore[union-attr]
    assert session.may_read(DOCUMENT, NOW_MS)
    assert not session.may_read(f"{DOCUMENT}b", NOW_MS)
    assert not session.may_follow(DOCUMENT, NOW_MS)


# ── the client ─────────────────────────────────────────────────────────────────────────


def test_a_record_is_asked_for_and_taken_if_it_has_its_revision() -> None:
    wire = Wire().connect()
    pending = wire.client.get_record(DOC, "roster", wire.now_ms)
    assert wire.hear() == [GetRecord(pending.ref, DOC, "roster")]
    wire.say(Record(pending.ref, REVISION, "{}", LOG))
    assert pending.result() == StoredRecord("{}", REVISION)
    assert wire.client.logs == {DOC: LOG}


def test_that_there_is_no_record_is_an_answer() -> None:
    wire = Wire().connect()
    pending = wire.client.get_record(DOC, "roster", wire.now_ms)
    wire.hear()
    wire.say(Record(pending.ref, None, None, LOG))
    assert pending.result() is None


def test_a_record_under_a_false_revision_is_not_taken() -> None:
    wire = Wire().connect()
    pending = wire.client.get_record(DOC, "roster", wire.now_ms)
    wire.hear()
    wire.say(Record(pending.ref, REVISION, "{ }", LOG))
    with pytest.raises(FalseAnswerError):
        pending.result()


def test_a_record_of_another_log_is_not_taken() -> None:
    wire = Wire({DOC: LOG}).connect()
    pending = wire.client.get_record(DOC, "roster", wire.now_ms)
    wire.hear()
    wire.say(Record(pending.ref, REVISION, "{}", OTHER_LOG))
    with pytest.raises(OtherLogError):
        pending.result()


def test_a_record_is_kept_under_the_known_log_and_its_revision_is_checked() -> None:
    wire = Wire({DOC: LOG}).connect()
    pending = wire.client.keep_record(DOC, "roster", "{}", revision=None, now_ms=wire.now_ms)
    assert wire.client.unacknowledged == 1
    assert wire.hear() == [KeepRecord(pending.ref, DOC, LOG, "roster", None, "{}")]
    wire.say(Ok(pending.ref, {"revision": REVISION}))
    assert pending.result() == REVISION
    other = wire.client.keep_record(DOC, "roster", "[]", revision=REVISION, now_ms=wire.now_ms)
    wire.hear()
    wire.say(Ok(other.ref, {"revision": REVISION}))
    with pytest.raises(FalseAnswerError):
        other.result()


def test_a_conflict_of_records_is_told_from_one_of_snapshots() -> None:
    wire = Wire().connect()
    pending = wire.client.keep_record(DOC, "roster", "{}", revision=None, now_ms=wire.now_ms)
    wire.hear()
    wire.say(Refusal(pending.ref, Code.CONFLICT, "another", {"revision": REVISION}))
    with pytest.raises(RecordConflictError):
        pending.result()
    again = wire.client.keep_record(DOC, "roster", "{}", revision=None, now_ms=wire.now_ms)
    wire.hear()
    wire.say(Refusal(again.ref, Code.STORAGE, "full", {}))
    with pytest.raises(RelayRefusalError):
        again.result()


@pytest.mark.parametrize("verb", ["record", "keep", "grant"])
def test_another_answer_than_was_asked_for_ends_the_connection(verb: str) -> None:
    wire = Wire().connect()
    client, now_ms = wire.client, wire.now_ms
    answers: dict[str, tuple[Any, Any]] = {
        "record": (lambda: client.get_record(DOC, "roster", now_ms), lambda ref: Ok(ref, {})),
        "keep": (
            lambda: client.keep_record(DOC, "roster", "{}", revision=None, now_ms=now_ms),
            lambda ref: Record(ref, None, None, LOG),
        ),
        "grant": (
            lambda: client.publish_grant({"prefix": DOC}, now_ms),
            lambda ref: Record(ref, None, None, LOG),
        ),
    }
    ask, answer = answers[verb]
    pending = ask()
    wire.hear()
    with pytest.raises(RelayFaultError):
        wire.say(answer(pending.ref))


def test_a_record_is_asked_for_and_kept_again_on_the_next_connection() -> None:
    wire = Wire().connect()
    asked = wire.client.get_record(DOC, "roster", wire.now_ms)
    kept = wire.client.keep_record(DOC, "keyring", "{}", revision=None, now_ms=wire.now_ms)
    grant = wire.client.publish_grant({"prefix": DOC}, wire.now_ms)
    before = wire.hear()
    wire.client.lost("gone", wire.now_ms)
    wire.connect()
    assert wire.hear() == before
    wire.say(Record(asked.ref, None, None, LOG))
    wire.say(Ok(kept.ref, {"revision": REVISION}))
    wire.say(Ok(grant.ref, {}))
    assert (asked.result(), kept.result(), grant.result()) == (None, REVISION, None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "{}"),
        ("Roster", "{}"),
        ("x" * 33, "{}"),
        ("roster", ""),
        ("roster", "\n"),
        ("roster", "\ud800"),
        ("roster", "x" * (RECORD_BYTES_MAX + 1)),
    ],
)
def test_what_no_relay_keeps_is_refused_at_the_call(name: str, text: str) -> None:
    wire = Wire().connect()
    with pytest.raises(RecordRefusedError):
        wire.client.keep_record(DOC, name, text, revision=None, now_ms=wire.now_ms)
    assert wire.hear() == []
    if text == "{}":
        with pytest.raises(RecordRefusedError):
            wire.client.get_record(DOC, name, wire.now_ms)


# ── over websockets ────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RelayLog]:
    if request.param == "memory":
        yield MemoryLog()
    else:
        async with SqliteLog.open(tmp_path / "relay.db") as opened:
            yield opened


async def test_a_record_goes_to_the_relay_and_comes_back(log: RelayLog) -> None:
    text = '{"name":"日本 🦉 \\u0000"}'
    async with Relay.serve(log) as relay:
        async with WebSocketTransport(relay.url, identity=ANNA) as anna:
            assert await anna.read_record(DOCUMENT, "roster") is None
            first = await anna.write_record(DOCUMENT, "roster", text, None)
            assert await anna.write_record(DOCUMENT, "roster", text, None) == first
        async with WebSocketTransport(relay.url, identity=BEN) as ben:
            assert await ben.read_record(DOCUMENT, "roster") == StoredRecord(text, first)
            assert await ben.read_record(DOCUMENT, "keyring") is None
            second = await ben.write_record(DOCUMENT, "roster", "{}", first)
            with pytest.raises(RecordConflictError):
                await ben.write_record(DOCUMENT, "roster", "[]", first)
            with pytest.raises(RecordConflictError):
                await ben.write_record(DOCUMENT, "roster", "[]", None)
            assert await ben.read_record(DOCUMENT, "roster") == StoredRecord("{}", second)


async def test_those_who_follow_a_document_and_ask_for_it_are_told_of_its_records(
    log: RelayLog,
) -> None:
    async with (
        Relay.serve(log) as relay,
        speaking(relay.url, BEN) as ben,
        speaking(relay.url, CARL) as carl,
        WebSocketTransport(relay.url, identity=ANNA) as anna,
    ):
        assert RECORDS_FEATURE in ben.hello.features
        await ben.say(Pull("live", DOCUMENT, None, 0, 10, True, with_records=True))
        await ben.get(EndOfStored, "live")
        await ben.say(Pull("other", "notes/b", None, 0, 10, True, with_records=True))
        await ben.get(EndOfStored, "other")
        await carl.follow(DOCUMENT)
        revision = await anna.write_record(DOCUMENT, "roster", "{}", None)
        assert await ben.get(Kept, "live") == Kept("live", "roster", revision)
        with pytest.raises(RecordConflictError):
            await anna.write_record(DOCUMENT, "roster", "[]", None)
        second = await anna.write_record(DOCUMENT, "keyring", "[]", None)
        assert await ben.get(Kept, "live") == Kept("live", "keyring", second)
        # A snapshot is no record, and as good a reason to look.
        text = snapshot_text(CARL, DOCUMENT, upto_ts=0)
        assert isinstance(await carl.put(DOCUMENT, text, replaces=None), Ok)
        assert await ben.get(Kept, "live") == Kept("live", "snapshot", revision_of(text))
        # Who did not ask hears nothing of it, nor does anybody of another document.
        await carl.say(GetRecord("r", DOCUMENT, "roster"))
        await carl.get(Record, "r")
        await ben.say(GetRecord("r", DOCUMENT, "roster"))
        await ben.get(Record, "r")
        assert not any(isinstance(frame, Kept) for frame in [*carl.kept, *ben.kept])


class NoticedLog(MemoryLog):
    """A log that tells what a test lets another process store, and whose feed cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.told: asyncio.Queue[Notice] = asyncio.Queue()

    async def notices(self) -> AsyncIterator[Notice]:
        while True:
            yield await self.told.get()

    async def feed(self, *arguments: Any, **options: Any) -> FeedPage:
        raise LogError("a row is damaged")


async def test_records_of_other_processes_do_not_wait_for_a_feed_that_cannot_be_read() -> None:
    log = NoticedLog()
    async with Relay.serve(log) as relay, speaking(relay.url, BEN) as ben:
        await ben.say(Pull("live", DOCUMENT, None, 0, 10, True, with_records=True))
        await ben.get(EndOfStored, "live")
        for name in ("roster", "keyring", "roster"):
            log.told.put_nowait(Notice(1, (KeptRecord(DOCUMENT, name, REVISION),)))
            assert await ben.get(Kept, "live") == Kept("live", name, REVISION)


async def test_a_follower_waits_for_records(log: RelayLog) -> None:
    async with (
        Relay.serve(log) as relay,
        WebSocketTransport(relay.url, identity=ANNA) as anna,
        WebSocketTransport(relay.url, identity=BEN) as ben,
        ben.follow(DOCUMENT, 0) as followed,
    ):
        assert await ben.pull(DOCUMENT, 0) == []
        for text in ("{}", "[]"):
            stored = await anna.read_record(DOCUMENT, "roster")
            revision = None if stored is None else stored.revision
            await anna.write_record(DOCUMENT, "roster", text, revision)
            async with asyncio.timeout(PATIENCE_S):
                await followed.wait_records()


def test_a_relay_that_cannot_tell_of_records_is_not_asked_to() -> None:
    for features, asked in (((), False), (("records",), True)):
        wire = Wire({DOC: LOG})
        wire.client.connected()
        wire.say(Hello((1,), "e" * 32, "c" * 64, {}, "a relay", features))
        (auth,) = wire.hear()
        assert isinstance(auth, Auth)
        wire.say(Ok(auth.ref, {}))
        wire.client.follow(DOC, 0, wire.now_ms)
        (pull,) = wire.hear()
        assert isinstance(pull, Pull)
        assert pull.with_records is asked
        wire.client.take_events()
        wire.say(Kept(pull.ref, "roster", REVISION))
        assert wire.client.take_events() == [RecordsChanged(DOC)]


async def test_of_writers_at_once_one_wins(log: RelayLog) -> None:
    async with (
        Relay.serve(log) as relay,
        WebSocketTransport(relay.url, identity=ANNA) as anna,
        WebSocketTransport(relay.url, identity=BEN) as ben,
    ):
        base = await anna.write_record(DOCUMENT, "roster", "base", None)
        answers = await asyncio.gather(
            *(
                each.write_record(DOCUMENT, "roster", f"{number}", base)
                for number, each in enumerate([anna, ben] * 4)
            ),
            return_exceptions=True,
        )
        (winner,) = [answer for answer in answers if isinstance(answer, str)]
        stored = await ben.read_record(DOCUMENT, "roster")
        assert stored is not None
        assert stored.revision == winner
        lost = [answer for answer in answers if not isinstance(answer, str)]
        assert all(isinstance(answer, RecordConflictError) for answer in lost)


async def test_the_largest_record_is_kept_over_a_websocket(log: RelayLog) -> None:
    async with Relay.serve(log) as relay, WebSocketTransport(relay.url, identity=ANNA) as anna:
        text = '"' * RECORD_BYTES_MAX
        revision = await anna.write_record(DOCUMENT, "keyring", text, None)
        assert await anna.read_record(DOCUMENT, "keyring") == StoredRecord(text, revision)
        with pytest.raises(RecordRefusedError):
            await anna.write_record(DOCUMENT, "keyring", text + '"', revision)


async def test_a_key_that_is_no_documents_has_no_records() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        WebSocketTransport(relay.url, identity=ANNA) as anna,
    ):
        for key in ("", "a\n", "notes/a__snapshot"):
            with pytest.raises(DocumentKeyRefusedError):
                await anna.read_record(key, "roster")
            with pytest.raises(DocumentKeyRefusedError):
                await anna.write_record(key, "roster", "{}", None)
    with pytest.raises(TransportClosedError):
        await anna.publish_grant({})


async def test_the_relay_names_its_log_and_refuses_another(log: RelayLog) -> None:
    async with Relay.serve(log) as relay:
        logs = {DOCUMENT: "ab" * 16}
        async with WebSocketTransport(relay.url, identity=ANNA, logs=logs) as anna:
            with pytest.raises(OtherLogError):
                await anna.write_record(DOCUMENT, "roster", "{}", None)
            with pytest.raises(OtherLogError):
                await anna.read_record(DOCUMENT, "roster")
        async with WebSocketTransport(relay.url, identity=ANNA) as anna:
            await anna.read_record(DOCUMENT, "roster")
            assert anna.log_of(DOCUMENT) == log_id(log.relay_id, DOCUMENT)


async def test_a_grant_is_published_by_who_may_give_it() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\nread = [ANNA]\ngrant = [ANNA]')
    grant = sign_grant(ANNA, prefix=DOCUMENT, to=BEN.public_key, roles=["read"], at_ms=1)
    async with (
        Relay.serve(MemoryLog(), roles=roles) as relay,
        WebSocketTransport(relay.url, identity=ANNA) as anna,
        WebSocketTransport(relay.url, identity=BEN) as ben,
    ):
        with pytest.raises(RelayRefusalError):
            await ben.read_record(DOCUMENT, "roster")
        await anna.publish_grant(grant)
        assert await ben.read_record(DOCUMENT, "roster") is None
        with pytest.raises(RelayRefusalError):
            await ben.write_record(DOCUMENT, "roster", "{}", None)
        own = sign_grant(BEN, prefix=DOCUMENT, to=CARL.public_key, roles=["read"], at_ms=1)
        with pytest.raises(RelayRefusalError) as refused:
            await ben.publish_grant(own)
        assert refused.value.code is Code.RESTRICTED


async def test_a_relay_that_cannot_store_a_record_says_so(tmp_path: Path) -> None:
    async with (
        SqliteLog.open(tmp_path / "relay.db") as log,
        Relay.serve(log) as relay,
        WebSocketTransport(relay.url, identity=ANNA) as anna,
    ):
        await anna.write_record(DOCUMENT, "roster", "{}", None)
        await log.aclose()
        with pytest.raises(TransportError) as refused:
            await anna.write_record(DOCUMENT, "roster", "[]", REVISION)
        assert refused.value.retryable


async def test_records_survive_the_relay(tmp_path: Path) -> None:
    for expected in (None, StoredRecord("{}", REVISION)):
        async with (
            SqliteLog.open(tmp_path / "relay.db") as log,
            Relay.serve(log) as relay,
            WebSocketTransport(relay.url, identity=ANNA) as anna,
        ):
            assert await anna.read_record(DOCUMENT, "roster") == expected
            await anna.write_record(DOCUMENT, "roster", "{}", None)


async def test_a_raw_client_hears_what_the_protocol_says() -> None:
    async with Relay.serve(MemoryLog()) as relay, speaking(relay.url, ANNA) as anna:
        await anna.say(GET)
        log = log_id(relay.log.relay_id, DOCUMENT)
        assert await anna.get(Record, "r") == Record("r", None, None, log)
        await anna.say(KEEP)
        assert await anna.get(Ok, "r") == Ok("r", {"revision": REVISION})
        await anna.say(KEEP._replace(text="[]"))
        found = await anna.refusal("r")
        assert (found.code, found.details) == (Code.CONFLICT, {"revision": REVISION})
        await anna.say(GET)
        assert await anna.get(Record, "r") == Record("r", REVISION, "{}", log)


# ── in memory ──────────────────────────────────────────────────────────────────────────


async def test_records_in_memory_keep_the_same_promises() -> None:
    records = MemoryRecords()
    assert await records.read_record(DOCUMENT, "roster") is None
    first = await records.write_record(DOCUMENT, "roster", "{}", None)
    assert first == REVISION
    assert await records.write_record(DOCUMENT, "roster", "{}", None) == first
    for stale in (None, "00" * 32):
        with pytest.raises(RecordConflictError):
            await records.write_record(DOCUMENT, "roster", "[]", stale)
    await records.write_record(DOCUMENT, "roster", "[]", first)
    stored = await records.read_record(DOCUMENT, "roster")
    assert stored is not None
    assert stored.text == "[]"


def test_an_open_relay_lets_nobody_give_roles() -> None:
    roles = Roles.open_to_all()
    assert roles.may_keep(DOCUMENT, {ANNA.public_key}, NOW_MS)
    assert not roles.may_keep(DOCUMENT, set(), NOW_MS)
