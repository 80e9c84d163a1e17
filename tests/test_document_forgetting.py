"""A session that lasts: its oldest versions are let go of, and nothing else is different.

What a document shows, signs and accepts is the same whether it keeps all that it has read or only
the newest of it. What it tells of the past begins later.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    KEY,
    RiggedLog,
    RiggedSnapshots,
    keyed,
    link_of,
    opened,
    put_in,
    signed,
    spoiled,
    state_of,
    write_packed,
)
from walstore.crdt import pack_ops
from walstore.crdt.runs import Set
from walstore.document import WalDocument, document
from walstore.document.entries import Part
from walstore.document.events import Event, Gap, Rejection
from walstore.document.faults import RollbackDetectedError
from walstore.document.ledger import Ledger
from walstore.document.opening import SnapshotVerdict
from walstore.document.own_past import OwnPast
from walstore.document.ports import LogBehindError
from walstore.net import MemoryTransport
from walstore.sealed import ContentKeys, SealContext
from walstore.wire.limits import COUNTER_JUMP_MAX

PEOPLE = (ALICE, BOB, CAROL)
WIRES = ["packed", "starfish"]


async def write(doc: WalDocument, value: int, name: str = "count") -> int:
    doc.set_field(name, value)
    ts = await doc.commit()
    assert ts is not None
    return ts


async def edit(doc: WalDocument, rng: random.Random) -> None:
    match rng.randrange(4):
        case 0:
            text = doc.text("text")
            place = rng.randint(0, len(text))
            doc.splice("text", place, rng.randint(0, 3), rng.choice(["a", "bc", ""]))
        case 1:
            doc.set_field(rng.choice("xyz"), rng.random())
        case 2:
            doc.put("map", rng.choice("kl"), rng.randrange(9))
        case _:
            doc.drop("map", rng.choice("kl"))
    if rng.random() < 0.7:
        await doc.commit()
    if rng.random() < 0.6:
        await doc.pull()


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(WIRES), st.integers(1, 5))
async def test_who_keeps_little_sees_signs_and_shows_what_everybody_does(
    rng: random.Random, wire: str, history_max: int
) -> None:
    log, store = RiggedLog(page_size=rng.choice([1, 3, 1000])), RiggedSnapshots()
    options = {"wire": wire, "snapshot_store": store}
    short = await opened(log, ALICE, history_max=history_max, **options)
    docs = [short, await opened(log, BOB, **options)]
    docs.append(await opened(log, CAROL, history_max=rng.randint(1, 3), **options))
    for _ in range(40):
        await edit(rng.choice(docs), rng)
        if rng.random() < 0.05:
            await rng.choice([docs[0], docs[2]]).snapshot()
    for _ in range(2):
        for doc in docs:
            await doc.commit()
            await doc.pull()
    whole = await opened(log, BOB, posture="re-derive", **options)
    assert whole.snapshot_verdict is not SnapshotVerdict.MISMATCH
    assert len({state_of(doc) for doc in [*docs, whole]}) == 1
    assert {doc.unconfirmed for doc in docs} == {0}
    known, all_of = short.history(), whole.history()
    assert known == all_of[len(all_of) - len(known) :]
    assert min(history_max, len(all_of)) <= len(known) == short.history_length <= 2 * history_max
    for version in known:
        assert short.at(version.ts) == whole.at(version.ts)


async def test_what_a_session_holds_does_not_grow_with_what_it_has_read() -> None:
    log = RiggedLog()
    writer, reader = (
        await opened(log, ALICE, history_max=10),
        await opened(log, BOB, history_max=10),
    )
    for number in range(500):
        await write(writer, number)
        for doc in (writer, reader):
            await doc.pull()
            assert doc.history_length <= 20
            assert len(doc._log._known) == len(doc.history()) == doc.history_length
    assert reader.tail_length == 500
    assert reader.field("count") == 499


async def test_large_versions_are_let_go_of_before_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document, "HISTORY_BYTES_MAX", 10_000)
    log = RiggedLog()
    doc = await opened(log, ALICE, history_max=1000)
    for number in range(30):
        doc.set_field("large", f"{number} " + "x" * 1500)
        await doc.commit()
        await doc.pull()
    assert 1 <= doc.history_length <= 7
    doc.set_field("large", "y" * 50_000)
    await doc.commit()
    await doc.pull()
    await doc.pull()
    # The newest one stays, whatever its size.
    assert doc.history_length == 1
    assert doc.at(doc.history()[0].ts) == {"large": "y" * 50_000}


async def test_the_past_begins_with_what_is_kept() -> None:
    log = RiggedLog()
    doc = await opened(log, ALICE, history_max=4)
    times = []
    for number in range(9):
        times.append(await write(doc, number, f"n{number}"))
        await doc.pull()
    known = [version.ts for version in doc.history()]
    assert known == times[-len(known) :]
    before = times[-len(known) - 1]
    # What was let go of last is where it begins, as a snapshot would be.
    assert doc.at(before) == {f"n{number}": number for number in range(9 - len(known))}
    with pytest.raises(ValueError, match=f"starts at {before}"):
        doc.at(before - 1)
    assert doc.blame("n0") == [(0, 1, ALICE.public_key, None)]
    assert doc.blame("n8") == [(0, 1, ALICE.public_key, times[-1])]


async def test_what_was_let_go_of_changes_nothing_when_it_is_delivered_again() -> None:
    log, events = RiggedLog(), list[Event]()
    writer = await opened(log, ALICE)
    reader = await opened(log, BOB, history_max=2, on_event=events.append)
    for number in range(12):
        writer.set_text("text", "x" * number + "y")
        await writer.commit()
        await reader.pull()
    before = state_of(reader)
    for place in range(6):
        log.replay(place)
        await reader.pull()
    assert (state_of(reader), events, reader.detected_gaps()) == (before, [], [])
    assert reader.history_length <= 4


async def test_what_waits_for_a_key_keeps_what_comes_after_it() -> None:
    log, known = RiggedLog(), keyed(1)
    old, new = (
        await opened(log, ALICE, encryptor=keyed(1)),
        await opened(log, BOB, encryptor=keyed(1, 2)),
    )
    reader = await opened(log, CAROL, encryptor=known, history_max=2)
    for number in range(5):
        await write(old, number)
    await write(new, 99, "sealed anew")
    for number in range(9):
        await write(old, number)
        await reader.pull()
    assert (reader.unreadable, reader.history_length) == (1, 9)
    known.adopt(ContentKeys(2, {1: bytes([1]) * 32, 2: bytes([2]) * 32}))
    assert await reader.retry_unreadable() == 1
    await reader.pull()
    assert reader.materialize() == {"count": 8, "sealed anew": 99}
    assert (reader.unreadable, reader.detected_gaps()) == (0, [])
    assert reader.history_length <= 4


async def test_what_waited_for_a_key_is_held_to_what_was_forgotten_before_it() -> None:
    """How far a counter may jump is told by all before it, also by what is not known any more."""
    log, known, session = RiggedLog(), keyed(1), f"{BOB.public_key}:s"

    def put_far(seq: int, counter: int, epoch: int) -> None:
        context = SealContext(KEY, BOB.public_key, seq)
        ops = pack_ops([Set(f"far {seq}", session, counter, seq)])
        body = keyed(*range(1, epoch + 1)).seal({"ops": ops}, context)
        data = {"v": 2, "author": BOB.public_key, "session": "s", "seq": seq, "body": body}
        put_in(log, signed(data, BOB))

    reader = await opened(log, CAROL, encryptor=known, history_max=1)
    put_far(1, COUNTER_JUMP_MAX - 10, 1)
    writer = await opened(log, ALICE, encryptor=keyed(1))
    for number in range(5):
        await write(writer, number)
        await reader.pull()
    assert reader.history_length <= 2
    put_far(2, 2 * COUNTER_JUMP_MAX - 20, 2)
    await write(writer, 5)
    await reader.pull()
    await write(writer, 6)
    await reader.pull()
    known.adopt(ContentKeys(2, {1: bytes([1]) * 32, 2: bytes([2]) * 32}))
    assert await reader.retry_unreadable() == 1
    assert reader.materialize() == {"count": 6, "far 1": 1, "far 2": 2}


class HonestLog(RiggedLog):
    """A log that says so when it ends before what was read of it."""

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        if checkpoint > self.newest_ts:
            raise LogBehindError(head=self.newest_ts, checkpoint=checkpoint)
        return await super().pull(document_key, checkpoint)

    def end_at(self, count: int) -> None:
        del self.elements[count:]
        self.newest_ts = self.elements[-1]["ts"]


async def test_what_a_log_has_lost_is_not_let_go_of() -> None:
    log = HonestLog()
    writer, doc = await opened(log, BOB), await opened(log, ALICE, history_max=2)
    for number in range(4):
        await write(writer, number)
    await doc.pull()
    lost = [element.signature for element in doc.elements()][-2:]
    log.end_at(2)
    with pytest.raises(RollbackDetectedError):
        await doc.pull()
    doc.accept_rollback()
    for number in range(20):
        await write(doc, number)
        await doc.pull()
    assert set(lost) <= {element.signature for element in doc.elements()}


async def test_versions_after_a_roll_back_below_what_was_forgotten_can_be_looked_at() -> None:
    log = HonestLog()
    writer, doc = await opened(log, ALICE), await opened(log, BOB, history_max=1)
    for number in range(20):
        await write(writer, number, f"n{number}")
        await doc.pull()
    log.end_at(5)
    with pytest.raises(RollbackDetectedError):
        await doc.pull()
    doc.accept_rollback()
    ts = await write(doc, 1, "after")
    await doc.pull()
    assert ts == 6
    assert ts in [version.ts for version in doc.history()]
    assert doc.at(ts)["after"] == 1
    assert doc.blame("after", at=ts) == [(0, 1, BOB.public_key, ts)]


async def test_as_many_versions_as_were_asked_for_are_known_whatever_is_kept_together() -> None:
    log = MemoryTransport()
    writer, reader = await opened(log, ALICE), await opened(log, BOB, history_max=100)
    await write(writer, 0)
    for number in range(200):
        writer.insert_text("text", number, "x")
        await writer.commit()
    await reader.pull()
    for number in range(5):
        await write(writer, number)
        await reader.pull()
    assert reader.history_length >= 100


async def test_who_comes_with_a_clock_that_was_forgotten_did_not_stamp_it() -> None:
    log, events = RiggedLog(), list[Event]()
    replica = f"{BOB.public_key}:s"
    first = put_in(log, write_packed(BOB, [Set("x", replica, 1, "first")]))
    doc = await opened(log, CAROL, history_max=1, on_event=events.append)
    writer = await opened(log, ALICE)
    for number in range(4):
        await write(writer, number)
        await doc.pull()
    # Another content under the same clock, and the same once more.
    again = write_packed(BOB, [Set("x", replica, 1, "second")], seq=2, prev=link_of(first))
    put_in(log, again)
    log.replay(0)
    await doc.pull()
    assert doc.field("x") == "first"
    assert doc.blame("x") == [(0, 1, BOB.public_key, None)]
    assert events == []


async def test_own_elements_that_are_nowhere_else_are_kept_within_a_limit() -> None:
    log = RiggedLog()
    doc = await opened(log, ALICE, history_max=1)
    doc._own_past = OwnPast(bytes_max=3000)
    for number in range(30):
        await write(doc, number)
        await doc.pull()
    own = doc.elements()
    assert 3000 < sum(len(element.data) for element in own) < 4000
    assert [element.ts for element in own] == list(range(31 - len(own), 31))
    kept = await opened(log, ALICE, history_max=1, is_kept=lambda: True)
    await write(kept, 31)
    await kept.pull()
    assert len(kept.elements()) == kept.history_length


async def test_a_snapshot_that_was_started_from_stays_as_it_is() -> None:
    log, store = RiggedLog(), RiggedSnapshots()
    writer = await opened(log, ALICE, snapshot_store=store)
    await write(writer, 1)
    await writer.snapshot()
    reader = await opened(log, BOB, snapshot_store=store, history_max=1)
    snapshot = reader._base
    assert snapshot is not None
    for number in range(2, 9):
        await write(writer, number)
        await reader.pull()
    assert reader.history_length <= 2
    assert snapshot.crdt.materialize() == {"count": 1}


async def test_keystrokes_are_counted_and_let_go_of_whether_they_come_alone_or_in_a_row() -> None:
    log = MemoryTransport()
    writer = await opened(log, ALICE)
    readers = [await opened(log, BOB, history_max=20) for _ in range(2)]
    for number in range(2000):
        writer.insert_text("text", number, "x")
        await writer.commit()
        if number == 1000:
            # Somebody else in between ends a stretch of them.
            await write(readers[0], number)
            await writer.pull()
        for reader in readers[: 2 if number % 100 == 0 else 1]:
            await reader.pull()
    for reader in readers:
        await reader.pull()
        assert reader.text("text") == "x" * 2000
        assert reader.history_length == len(reader.history()) < 1000
        texts = [len(element.data) for element in reader.elements()]
        assert reader._log.ledger.text_bytes == sum(texts[-reader.history_length :])
        assert reader.tail_length == 2001


async def test_what_is_in_the_way_is_not_looked_for_with_every_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    oldest_beyond = Ledger.oldest_beyond

    def counted(ledger: Ledger, count_max: int, bytes_max: int) -> list[Part]:
        looks.append(ledger.count)
        return oldest_beyond(ledger, count_max, bytes_max)

    monkeypatch.setattr(Ledger, "oldest_beyond", counted)
    log = RiggedLog()
    for encryptor in (keyed(1, 2), keyed(1)):
        await write(await opened(log, ALICE, encryptor=encryptor), 1)
    writer = await opened(log, BOB, encryptor=keyed(1))
    reader = await opened(log, CAROL, encryptor=keyed(1), history_max=40)
    for number in range(300):
        await write(writer, number)
        await reader.pull()
    assert reader.history_length == 301
    # Far fewer times than it has pulled.
    assert 2 <= len(looks) <= 30


async def test_what_was_in_the_way_is_no_reason_to_keep_large_versions_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document, "HISTORY_BYTES_MAX", 20_000)
    log, known = RiggedLog(), keyed(1)
    reader = await opened(log, CAROL, encryptor=known, history_max=400)
    await write(await opened(log, ALICE, encryptor=keyed(1, 2)), 1)
    writer = await opened(log, BOB, encryptor=keyed(1))
    for number in range(60):
        if number == 12:
            known.adopt(ContentKeys(2, {1: bytes([1]) * 32, 2: bytes([2]) * 32}))
            assert await reader.retry_unreadable() == 1
        writer.set_field("large", str(number) + "y" * 2000)
        await writer.commit()
        await reader.pull()
    assert reader._log.ledger.text_bytes < 30_000


async def test_what_nothing_proves_is_given_up_with_what_it_was_among() -> None:
    """If it is vouched for after all, it is missed, and read by whoever reads the log anew."""
    log, events = RiggedLog(), list[Event]()
    replica = f"{BOB.public_key}:s"
    first = put_in(log, spoiled(write_packed(BOB, [Set("first", replica, 1, 1)])))
    writer = await opened(log, ALICE, on_author_error="skip")
    options = {"on_author_error": "skip", "on_event": events.append}
    reader = await opened(log, CAROL, history_max=2, **options)
    for number in range(9):
        await write(writer, number)
        await reader.pull()
    assert [type(event) for event in events] == [Rejection]
    # Nothing keeps a state from being kept any more.
    assert reader.own_snapshot() is not None
    put_in(log, write_packed(BOB, [Set("second", replica, 50, 2)], seq=2, prev=link_of(first)))
    await reader.pull()
    assert reader.materialize() == {"count": 8, "second": 2}
    assert reader.detected_gaps() == [Gap(BOB.public_key, 1, 2, "s")]
    late = await opened(log, CAROL, **options)
    assert late.materialize() == {"count": 8, "first": 1, "second": 2}
    assert late.detected_gaps() == []
