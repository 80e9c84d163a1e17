"""Presence: who is here is proved, fresh, in its place, and told no more often than agreed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.canon import canonical_bytes
from walstore.crdt import WalCrdt, Writer
from walstore.errors import NotJsonError
from walstore.net import WebSocketTransport
from walstore.net.faults import PresenceRefusedError, TransportClosedError
from walstore.net.following import Peer
from walstore.net.memory_presence import MemoryPresences
from walstore.relay.memory import MemoryLog
from walstore.relay.server import Relay
from walstore.sealed.encryptor import Encryptor, PlainEncryptor, SealContext
from walstore.sealed.keys import ContentKeys
from walstore.sealed.native import NativeEncryptor
from walstore.signed import Identity
from walstore.store.people import AUTHOR_SESSIONS_MAX, PRESENCE_MS_MAX, People, SessionKey
from walstore.store.presence import RENEWAL_MS, Cursor, Person, Presence, PresenceChannel, Timer
from walstore.store.presence_message import (
    AGE_MS_MAX,
    Body,
    Drop,
    checked_body,
    write_message,
)

ADA, BOB, EVE = (Identity.from_seed(bytes([n]) * 32) for n in (1, 2, 3))
KEY = "notes/a"
SINCE_1970_MS = 1_700_000_000_000


class ManualTimer:
    """A timer of a `ManualClock`."""

    def __init__(self, due_ms: int, fn: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.fn = fn
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.wall_shift_ms = SINCE_1970_MS
        self.timers: list[ManualTimer] = []

    def now_ms(self) -> int:
        return self.time_ms

    def wall_ms(self) -> int:
        return self.time_ms + self.wall_shift_ms

    def call_later(self, delay_ms: int, fn: Callable[[], None]) -> Timer:
        timer = ManualTimer(self.time_ms + delay_ms, fn)
        self.timers.append(timer)
        return timer

    def pending(self) -> list[ManualTimer]:
        return [timer for timer in self.timers if not timer.is_cancelled]

    def advance(self, ms: int) -> None:
        end_ms = self.time_ms + ms
        while due := [timer for timer in self.pending() if timer.due_ms <= end_ms]:
            timer = min(due, key=lambda each: each.due_ms)
            self.timers.remove(timer)
            self.time_ms = timer.due_ms
            timer.fn()
        self.time_ms = end_ms


class Recorder:
    """A channel that keeps everything that was said, and on which tests say what they like."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any] | None] = []
        self.others: dict[str, Peer] = {}

    def set_presence(self, document_key: str, payload: Any) -> None:
        self.said.append(payload)

    def peers(self, document_key: str) -> dict[str, Peer]:
        return self.others

    @property
    def last(self) -> dict[str, Any]:
        assert self.said[-1] is not None
        return self.said[-1]


def text_of(content: str) -> WalCrdt:
    crdt = WalCrdt()
    Writer(crdt, "ada").insert_text("body", 0, content)
    return crdt


def present(
    identity: Identity,
    channel: PresenceChannel | None,
    clock: ManualClock,
    *,
    crdt: WalCrdt | None = None,
    session: str = "s",
    encryptor: Encryptor | None = None,
    document_key: str = KEY,
    updates_per_second: int = 10,
) -> Presence:
    shared = WalCrdt() if crdt is None else crdt
    return Presence(
        document_key,
        identity=identity,
        session=session,
        crdt=lambda: shared,
        is_member={ADA.public_key, BOB.public_key}.__contains__,
        encryptor=encryptor,
        channel=channel,
        updates_per_second=updates_per_second,
        clock=clock,
    )


def two(crdt: WalCrdt | None = None) -> tuple[Presence, Presence, ManualClock]:
    exchange, clock = MemoryPresences(), ManualClock()
    return (
        present(ADA, exchange.connect(), clock, crdt=crdt),
        present(BOB, exchange.connect(), clock, crdt=crdt),
        clock,
    )


def keys(byte: int) -> NativeEncryptor:
    content_keys = ContentKeys(1, {1: bytes([byte]) * 32})
    return NativeEncryptor(content_keys, randomness=lambda size: bytes(size))


# ── saying and hearing ─────────────────────────────────────────────────────────────────


def test_others_read_who_and_where_somebody_is() -> None:
    ada, bob, _ = two(text_of("hello"))
    ada.set(cursor=Cursor("body", 2), name="Ada", color="#ff8800", mode={"is": ["typing", 1]})
    bob.look()
    (person,) = bob.others()
    assert (person.author, person.session) == (ADA.public_key, "s")
    assert (person.name, person.color, person.cursor) == ("Ada", "#ff8800", Cursor("body", 2))
    assert person.state["mode"]["is"] == ("typing", 1)
    assert ada.me == person


def test_name_and_colour_stay_and_the_rest_is_replaced() -> None:
    ada, bob, clock = two(text_of("hello"))
    ada.set(cursor=Cursor("body", 2), name="Ada", color="#ff8800", mode="typing")
    clock.advance(1000)
    ada.move(Cursor("body", 3))
    bob.look()
    assert [(p.name, p.cursor, dict(p.state)) for p in bob.others()] == [
        ("Ada", Cursor("body", 3), {"mode": "typing"})
    ]
    clock.advance(1000)
    ada.set()
    bob.look()
    assert [(p.name, p.color, p.cursor, dict(p.state)) for p in bob.others()] == [
        ("Ada", "#ff8800", None, {})
    ]


def test_nobody_is_told_of_who_says_nothing() -> None:
    ada, bob, clock = two()
    clock.advance(100_000)
    bob.look()
    assert bob.others() == []
    assert ada.me is None


def test_without_a_network_there_is_only_me() -> None:
    clock = ManualClock()
    ada = present(ADA, None, clock)
    ada.set(name="Ada")
    ada.look()
    assert ada.others() == []
    assert ada.me is not None
    assert ada.me.name == "Ada"
    ada.close()
    assert clock.pending() == []


def test_who_closes_is_gone_at_once_and_leaves_no_timer() -> None:
    ada, bob, clock = two()
    ada.set(name="Ada")
    bob.look()
    ada.close()
    bob.look()
    assert bob.others() == []
    bob.close()
    assert clock.pending() == []
    ada.close()


@pytest.mark.parametrize(
    "said",
    [
        {"name": "x" * 65},
        {"name": ""},
        {"name": "left\u202eright"},
        {"name": "a\nb"},
        {"color": "red"},
        {"color": "#ff8800;x"},
        {"big": "x" * 2000},
        {"deep": [[[[[[[[1]]]]]]]]},
        {"odd": {1, 2}},
        {"nan": float("nan")},
        {"huge": 10**400},
        {"odd": {"__proto__": 1}},
        {"cursor": Cursor("x" * 300, 0)},
    ],
)
def test_what_others_would_drop_is_refused_and_changes_nothing(said: dict[str, Any]) -> None:
    channel = Recorder()
    ada = present(ADA, channel, ManualClock())
    with pytest.raises(PresenceRefusedError):
        ada.set(**said)
    assert (channel.said, ada.me) == ([], None)


def test_a_name_may_be_an_emoji_of_several_signs() -> None:
    assert checked_body(Body(name="👩\u200d👩\u200d👧")).name == "👩\u200d👩\u200d👧"


# ── places ─────────────────────────────────────────────────────────────────────────────


def test_cursors_stay_beside_their_elements() -> None:
    crdt = text_of("hello world")
    ada, bob, _ = two(crdt)
    ada.set(cursor=Cursor("body", 5))
    bob.look()
    Writer(crdt, "eve").insert_text("body", 0, ">> ")
    assert bob.others()[0].cursor == Cursor("body", 8)
    Writer(crdt, "eve").remove("body", 0, 8)
    assert bob.others()[0].cursor == Cursor("body", 0)


@pytest.mark.parametrize(("position", "origin"), [(5, 0), (0, 5)])
def test_what_is_inserted_at_the_edges_of_a_selection_is_not_selected(
    position: int, origin: int
) -> None:
    crdt = text_of("hello world")
    ada, bob, _ = two(crdt)
    ada.set(cursor=Cursor("body", position, origin))
    bob.look()
    Writer(crdt, "eve").insert_text("body", 5, "!!")
    Writer(crdt, "eve").insert_text("body", 0, ">>")
    cursor = bob.others()[0].cursor
    assert cursor is not None
    assert {cursor.position, cursor.origin} == {2, 7}
    assert (cursor.position > (cursor.origin or 0)) == (position > origin)


def test_a_cursor_in_text_that_has_not_arrived_is_nowhere_yet() -> None:
    exchange, clock = MemoryPresences(), ManualClock()
    ada = present(ADA, exchange.connect(), clock, crdt=text_of("hello"))
    empty = WalCrdt()
    bob = present(BOB, exchange.connect(), clock, crdt=empty)
    ada.set(cursor=Cursor("body", 5), name="Ada")
    bob.look()
    assert [(p.name, p.cursor, p.path) for p in bob.others()] == [("Ada", None, "body")]
    Writer(empty, "ada").insert_text("body", 0, "hello")
    assert bob.others()[0].cursor == Cursor("body", 5)
    ada.move(None)
    clock.advance(1000)
    bob.look()
    assert [(p.name, p.cursor, p.path) for p in bob.others()] == [("Ada", None, None)]


# ── time ───────────────────────────────────────────────────────────────────────────────


def test_who_lives_renews_and_who_does_not_is_let_go() -> None:
    channel, clock = Recorder(), ManualClock()
    ada = present(ADA, channel, clock)
    ada.set(name="Ada")
    clock.advance(10 * RENEWAL_MS)
    assert len(channel.said) == 11
    other = Recorder()
    bob = present(BOB, other, clock)
    other.others = {"1": Peer(None, channel.last)}
    told: list[int] = []
    bob.subscribe(lambda people: told.append(len(people)))
    bob.look()
    clock.advance(PRESENCE_MS_MAX - 1)
    assert len(bob.others()) == 1
    clock.advance(1)
    assert (bob.others(), told) == ([], [1, 0])


def test_the_same_message_again_makes_nobody_stay_longer() -> None:
    sender, channel, clock = Recorder(), Recorder(), ManualClock()
    present(ADA, sender, clock).set(name="Ada")
    message = sender.last
    bob = present(BOB, channel, clock)
    for connection in range(5):
        channel.others = {str(connection): Peer(None, dict(message))}
        bob.look()
        assert len(bob.others()) == (connection < 3)
        clock.advance(PRESENCE_MS_MAX // 3)


def test_who_comes_back_with_the_same_message_is_here_again() -> None:
    sender, channel, clock = Recorder(), Recorder(), ManualClock()
    present(ADA, sender, clock).set(name="Ada")
    bob = present(BOB, channel, clock)
    channel.others = {"1": Peer(None, sender.last)}
    bob.look()
    channel.others = {}
    bob.look()
    assert bob.others() == []
    channel.others = {"2": Peer(None, dict(sender.last))}
    bob.look()
    assert [person.name for person in bob.others()] == ["Ada"]


def test_of_a_session_the_newest_counts_in_whatever_order_it_comes() -> None:
    sender, clock = Recorder(), ManualClock()
    ada = present(ADA, sender, clock)
    for name in ("one", "two", "three"):
        ada.set(name=name)
        clock.advance(1000)
    channel = Recorder()
    bob = present(BOB, channel, clock)
    for message in [sender.said[1], sender.said[2], sender.said[0], sender.said[1]]:
        channel.others = {"1": Peer(None, dict(message or {}))}
        bob.look()
    assert bob.dropped == {Drop.OLD: 2}
    channel.others = {"1": Peer(None, sender.last), "2": Peer(None, dict(sender.said[0] or {}))}
    bob.look()
    assert [person.name for person in bob.others()] == ["three"]


@pytest.mark.parametrize("shift_ms", [AGE_MS_MAX + 1, -AGE_MS_MAX - 1])
def test_what_was_kept_back_is_not_shown(shift_ms: int) -> None:
    sender, channel, clock = Recorder(), Recorder(), ManualClock()
    present(ADA, sender, clock).set(name="Ada")
    channel.others = {"1": Peer(None, sender.last)}
    clock.wall_shift_ms += shift_ms
    bob = present(BOB, channel, clock)
    bob.look()
    assert (bob.others(), bob.dropped) == ([], {Drop.STALE: 1})


def test_what_was_said_by_those_who_left_cannot_be_said_again() -> None:
    sender, channel, clock = Recorder(), Recorder(), ManualClock()
    ada = present(ADA, sender, clock)
    ada.set(name="old")
    clock.advance(1000)
    ada.set(name="new")
    bob = present(BOB, channel, clock)
    channel.others = {"1": Peer(None, sender.last)}
    bob.look()
    for _ in range(20):
        channel.others = {}
        bob.look()
        clock.advance(AGE_MS_MAX // 10)
        channel.others = {"9": Peer(None, dict(sender.said[0] or {}))}
        bob.look()
        assert bob.others() == []


def test_a_clock_that_is_set_back_does_not_silence_its_owner() -> None:
    ada, bob, clock = two()
    ada.set(name="one")
    bob.look()
    clock.wall_shift_ms -= 5_000
    clock.advance(1000)
    ada.set(name="two")
    bob.look()
    assert [person.name for person in bob.others()] == ["two"]


def test_updates_leave_at_most_so_often_and_the_last_one_always() -> None:
    channel, clock = Recorder(), ManualClock()
    ada = present(ADA, channel, clock, updates_per_second=10)
    for number in range(1000):
        ada.set(number=number)
        clock.advance(7)
    assert len(channel.said) <= 7 * 10 + 1
    clock.advance(100)
    assert channel.last["body"]["state"] == {"number": 999}


@given(st.lists(st.integers(0, 400), max_size=60), st.integers(1, 50))
def test_no_second_ever_sees_too_many_updates(pauses_ms: list[int], per_second: int) -> None:
    clock = ManualClock()
    times: list[int] = []

    class Timed(Recorder):
        def set_presence(self, document_key: str, payload: Any) -> None:
            times.append(clock.now_ms())
            super().set_presence(document_key, payload)

    channel = Timed()
    ada = present(ADA, channel, clock, updates_per_second=per_second)
    for number, pause_ms in enumerate(pauses_ms):
        ada.set(number=number)
        clock.advance(pause_ms)
    clock.advance(1000)
    assert all(sum(t <= each < t + 1000 for each in times) <= per_second for t in times)
    if pauses_ms:
        assert channel.last["body"]["state"] == {"number": len(pauses_ms) - 1}


# ── strangers, forgers and noise ───────────────────────────────────────────────────────


def message_of(
    identity: Identity, *, document_key: str = KEY, session: str = "s", said: int = 1
) -> dict[str, Any]:
    return write_message(
        Body(name="Ada"),
        document_key=document_key,
        identity=identity,
        encryptor=PlainEncryptor(),
        session=session,
        at_ms=SINCE_1970_MS,
        count=said,
    )


def dropped(payload: Any, encryptor: Encryptor | None = None) -> dict[Drop, int]:
    channel = Recorder()
    channel.others = {"1": Peer(None, payload)}
    bob = present(BOB, channel, ManualClock(), session="here", encryptor=encryptor)
    bob.look()
    assert bob.others() == []
    return dict(bob.dropped)


def test_only_those_who_may_be_here_are_shown() -> None:
    assert dropped(message_of(EVE)) == {Drop.STRANGER: 1}


def test_a_message_for_another_document_is_forged() -> None:
    assert dropped(message_of(ADA, document_key="notes/b")) == {Drop.FORGED: 1}


@pytest.mark.parametrize(
    "change",
    [
        {"session": "t"},
        {"at": SINCE_1970_MS + 1},
        {"count": 2},
        {"body": {"name": "Eve"}},
        {"author": BOB.public_key},
        {"signature": "A" * 86 + "=="},
        {"signature": None},
    ],
)
def test_an_altered_message_is_forged(change: dict[str, Any]) -> None:
    assert dropped({**message_of(ADA), **change}) == {Drop.FORGED: 1}


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": True},
        {"v": 1.0},
        {"author": "x"},
        {"author": None},
        {"session": ""},
        {"session": "x" * 200},
        {"session": 5},
        {"at": -1},
        {"at": True},
        {"at": 2**60},
        {"count": "1"},
        {"extra": 1},
        {"body": {"name": "x" * 5000}},
        {"body": {"x": float("inf")}},
    ],
)
def test_what_has_another_shape_is_dropped(change: dict[str, Any]) -> None:
    assert dropped({**message_of(ADA), **change}) == {Drop.MALFORMED: 1}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.dictionaries(
        st.sampled_from(["v", "author", "session", "at", "count", "body", "signature", "x"]),
        json_values,
    )
)
def test_noise_changes_nothing_and_raises_nothing(change: dict[str, Any]) -> None:
    payload = {**message_of(ADA), **change}
    channel = Recorder()
    channel.others = {"1": Peer(None, payload), "2": Peer(None, change)}
    bob = present(BOB, channel, ManualClock())
    bob.look()
    is_same = canonical_bytes(message_of(ADA)) == _canonical(payload)
    assert len(bob.others()) == is_same
    assert sum(bob.dropped.values()) == 2 - is_same


def _canonical(value: Any) -> bytes | None:
    try:
        return canonical_bytes(value)
    except NotJsonError:
        return None


@given(st.dictionaries(st.sampled_from(["name", "color", "cursor", "state", "x"]), json_values))
def test_signed_noise_changes_nothing_and_raises_nothing(body: dict[str, Any]) -> None:
    class Raw:
        def seal(self, plain: Any, context: SealContext) -> dict[str, Any]:
            return body

        def open(self, sealed: Any, context: SealContext) -> Any:
            raise AssertionError

    try:
        message = write_message(
            Body(),
            document_key=KEY,
            identity=ADA,
            encryptor=Raw(),
            session="s",
            at_ms=SINCE_1970_MS,
            count=1,
        )
    except NotJsonError:
        return
    channel = Recorder()
    channel.others = {"1": Peer(None, message)}
    bob = present(BOB, channel, ManualClock(), crdt=text_of("hello"))
    bob.look()
    assert len(bob.others()) + sum(bob.dropped.values()) == 1
    for person in bob.others():
        assert person.name is None or person.name.isprintable() or "\u200d" in person.name


def test_a_sealed_presence_shows_nothing_to_whoever_has_no_key() -> None:
    sender, clock = Recorder(), ManualClock()
    present(ADA, sender, clock, encryptor=keys(1)).set(name="Ada", secret="plan")
    assert b"plan" not in canonical_bytes(sender.last)
    assert dropped(sender.last) == {Drop.MALFORMED: 1}
    assert dropped(sender.last, keys(2)) == {Drop.MALFORMED: 1}
    channel = Recorder()
    channel.others = {"1": Peer(None, sender.last)}
    bob = present(BOB, channel, clock, encryptor=keys(1))
    bob.look()
    assert [person.name for person in bob.others()] == ["Ada"]


def test_a_plain_presence_is_not_taken_where_the_document_is_sealed() -> None:
    assert dropped(message_of(ADA), keys(1)) == {Drop.MALFORMED: 1}


def test_what_cannot_be_opened_yet_is_opened_when_the_key_has_come() -> None:
    sender, channel, clock = Recorder(), Recorder(), ManualClock()
    first = ContentKeys(1, {1: bytes(32)})
    both = ContentKeys(2, {1: bytes(32), 2: b"2" * 32})
    ada_keys = NativeEncryptor(both, randomness=lambda size: bytes(size))
    bob_keys = NativeEncryptor(first, randomness=lambda size: bytes(size))
    present(ADA, sender, clock, encryptor=ada_keys).set(name="Ada")
    channel.others = {"1": Peer(None, sender.last)}
    bob = present(BOB, channel, clock, encryptor=bob_keys)
    bob.look()
    assert (bob.others(), bob.dropped) == ([], {Drop.UNREADABLE: 1})
    bob_keys.adopt(both)
    bob.look()
    assert [person.name for person in bob.others()] == ["Ada"]


def test_an_author_with_countless_sessions_takes_nobody_elses_place() -> None:
    channel, clock = Recorder(), ManualClock()
    bob = present(BOB, channel, clock, session="here")
    mine = message_of(BOB, session="elsewhere")
    channel.others = {"bob": Peer(None, mine)}
    bob.look()
    for number in range(3 * AUTHOR_SESSIONS_MAX):
        payload = message_of(ADA, session=str(number), said=number)
        channel.others = {**channel.others, str(number): Peer(None, payload)}
    bob.look()
    authors = [person.author for person in bob.others()]
    assert authors.count(BOB.public_key) == 1
    assert authors.count(ADA.public_key) == AUTHOR_SESSIONS_MAX


def test_ones_own_message_is_not_one_of_the_others() -> None:
    people = People(
        KEY,
        me=SessionKey(ADA.public_key, "s"),
        encryptor=keys(1),
        is_member=lambda key: True,
    )
    people.take({"1": message_of(ADA)}, now_ms=0, wall_ms=SINCE_1970_MS)
    assert people.here(0) == {}
    assert not people.dropped


# ── being told ─────────────────────────────────────────────────────────────────────────


def test_subscribers_are_told_of_news_only() -> None:
    ada, bob, clock = two()
    told: list[list[str | None]] = []
    subscription = bob.subscribe(lambda people: told.append([p.name for p in people]))
    ada.set(name="Ada")
    bob.look()
    bob.look()
    clock.advance(2 * RENEWAL_MS + 1000)
    bob.look()
    ada.set(name="Ida")
    bob.look()
    ada.close()
    bob.look()
    assert told == [["Ada"], ["Ida"], []]
    subscription.close()
    subscription.close()


def test_what_one_subscriber_raises_reaches_nobody_else() -> None:
    ada, bob, _ = two()
    errors: list[Exception] = []
    told: list[int] = []

    def fail(people: list[Person]) -> None:
        raise LookupError("mine")

    bob.subscribe(fail, on_error=errors.append)
    bob.subscribe(lambda people: told.append(len(people)))
    ada.set(name="Ada")
    bob.look()
    assert told == [1]
    assert [str(error) for error in errors] == ["mine"]


def test_a_bound_method_is_held_weakly() -> None:
    ada, bob, _ = two()
    told: list[int] = []

    class Widget:
        def show(self, people: list[Person]) -> None:
            told.append(len(people))

    widget = Widget()
    bob.subscribe(widget.show)
    ada.set(name="Ada")
    bob.look()
    del widget
    gc.collect()
    ada.close()
    bob.look()
    assert told == [1]


def test_a_failing_transport_is_a_fault_and_not_an_error() -> None:
    class Closed(Recorder):
        is_open = False

        def set_presence(self, document_key: str, payload: Any) -> None:
            if not self.is_open:
                raise TransportClosedError
            super().set_presence(document_key, payload)

    channel, clock = Closed(), ManualClock()
    ada = present(ADA, channel, clock)
    ada.set(name="Ada")
    faults = [ada.fault]
    channel.is_open = True
    clock.advance(RENEWAL_MS)
    faults.append(ada.fault)
    assert [type(fault) for fault in faults] == [TransportClosedError, type(None)]
    assert len(channel.said) == 1


async def test_following_looks_whenever_others_say_something() -> None:
    exchange, clock = MemoryPresences(), ManualClock()
    ada = present(ADA, exchange.connect(), clock)
    connection = exchange.connect()
    bob = present(BOB, connection, clock)
    heard: asyncio.Queue[list[Person]] = asyncio.Queue()
    bob.subscribe(heard.put_nowait)
    async with connection.follow(KEY) as follow, asyncio.timeout(10):
        task = asyncio.create_task(bob.follow(follow))
        ada.set(name="Ada")
        assert [person.name for person in await heard.get()] == ["Ada"]
        ada.close()
        assert await heard.get() == []
        task.cancel()


async def test_presence_goes_over_a_relay() -> None:
    crdt, heard = text_of("hello"), asyncio.Queue[list[Person]]()
    async with (
        asyncio.timeout(10),
        Relay.serve(MemoryLog()) as relay,
        WebSocketTransport(relay.url, identity=ADA) as ada_transport,
        WebSocketTransport(relay.url, identity=BOB) as bob_transport,
        bob_transport.follow(KEY, 0) as follow,
    ):
        ada, bob = (
            Presence(
                KEY,
                identity=who,
                session="s",
                crdt=lambda: crdt,
                is_member=lambda key: True,
                encryptor=keys(1),
                channel=transport,
            )
            for who, transport in ((ADA, ada_transport), (BOB, bob_transport))
        )
        bob.subscribe(heard.put_nowait)
        task = asyncio.create_task(bob.follow(follow))
        ada.set(cursor=Cursor("body", 2), name="Ada")
        (person,) = await heard.get()
        assert (person.author, person.name) == (ADA.public_key, "Ada")
        assert person.cursor == Cursor("body", 2)
        ada.close()
        assert await heard.get() == []
        task.cancel()
        bob.close()
