"""What a session tells, counts and cuts while its edits are on their way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rigged import ALICE, BOB, RiggedLog, opened
from tests.stores import ADA, store_of
from tests.test_document_refused import PickyLog, refuse_next
from walstore.canon import canonical_bytes
from walstore.crdt import Run, WalCrdt
from walstore.crdt.runs import Insert, Remove, Set
from walstore.document import WalDocument
from walstore.document.opening import is_covered
from walstore.document.outbox import Outbox
from walstore.document.sealing import Sealer, ValueTooLargeError
from walstore.document.snapshot import Snapshot
from walstore.net import MemoryTransport
from walstore.sealed.encryptor import PlainEncryptor
from walstore.wire.envelope import Profile
from walstore.wire.limits import BATCH_OPS_MAX, ELEMENT_VALUES_MAX, SEEN_SESSIONS_MAX

KEY = "spaces/s1/doc"


def sealer(profile: Profile = Profile.PACKED) -> Sealer:
    return Sealer(
        KEY,
        identity=ALICE,
        session="s",
        encryptor=PlainEncryptor(),
        profile=profile,
        is_chained=True,
    )


def sealed_with(outbox: Outbox, doc: WalDocument, value: int) -> dict[str, int]:
    """What the next element tells of what was seen."""
    outbox.record([Set("x", "r", value, value)])
    outbox.seal(doc._log)
    header = outbox.waiting()[-1].header
    assert header is not None
    return dict(header.seen)


# What was seen is told.


async def test_what_was_seen_of_others_is_told_once() -> None:
    doc, outbox = await opened(RiggedLog()), Outbox(sealer())
    outbox.note("bob:b", 2)
    outbox.note("bob:b", 1)
    assert sealed_with(outbox, doc, 1) == {"bob:b": 2}
    assert sealed_with(outbox, doc, 2) == {}
    outbox.note("bob:b", 3)
    assert sealed_with(outbox, doc, 3) == {"bob:b": 3}


async def test_what_was_seen_takes_an_eighth_of_an_element_and_the_next_one_tells_the_rest() -> (
    None
):
    doc, small = await opened(RiggedLog()), sealer()
    small.limit(4_096)
    outbox, names = Outbox(small), [f"{number:060}:s" for number in range(9)]
    for name in names:
        outbox.note(name, 1)
    told = [sealed_with(outbox, doc, value) for value in (1, 2, 3)]
    count = small.bytes_max // 8 // len(canonical_bytes([names[0], 1]))
    assert 4 < count < len(names)
    assert [len(seen) for seen in told] == [count, len(names) - count, 0]
    assert [*told[0], *told[1]] == names


async def test_of_very_many_sessions_so_many_are_told_at_a_time() -> None:
    doc, outbox = await opened(RiggedLog()), Outbox(sealer())
    for number in range(SEEN_SESSIONS_MAX + 1):
        outbox.note(f"bob:{number}", 1)
    assert len(sealed_with(outbox, doc, 1)) == SEEN_SESSIONS_MAX
    assert sealed_with(outbox, doc, 2) == {f"bob:{SEEN_SESSIONS_MAX}": 1}


async def test_what_was_told_by_what_is_set_aside_is_told_again() -> None:
    log = PickyLog()
    alice, bob = await opened(log), await opened(log, BOB)
    bob.set_field("y", 1)
    await bob.commit()
    await alice.pull()
    alice.set_field("x", 1)
    await refuse_next(log, alice)
    alice.set_field("z", 1)
    await alice.set_aside()
    (waiting,) = alice._outbox.waiting()
    assert waiting.header is not None
    assert waiting.header.seen == {f"{BOB.public_key}:{bob.session}": 1}
    alice.set_field("z", 2)
    alice.seal()
    header = alice._outbox.waiting()[-1].header
    assert header is not None
    assert (header.seen, header.seq, header.prev) == ({}, 2, waiting.link)


# Elements are counted.


async def test_what_was_acknowledged_and_thrown_away_waits_again_after_a_restart(
    tmp_path: Path,
) -> None:
    transport, path = MemoryTransport(), tmp_path / "ada.wal"
    async with store_of(ADA, transport, path, autocommit_ms=None) as store:
        store["title"] = "Plans"
        await store.commit()
        transport._logs.clear()
        await store.document.pull()
        assert store.document.unconfirmed == 1
        # The process ends here.
        assert store._file is not None
        store._file.close()
        async with store_of(ADA, None, path) as again:
            assert (again["title"], again.status.unsent) == ("Plans", 1)


async def test_version_1_counts_and_links_on_from_what_an_earlier_process_has_left(
    tmp_path: Path,
) -> None:
    transport, path = MemoryTransport(), tmp_path / "ada.wal"
    async with store_of(ADA, None, path, wire="starfish") as store:
        store["title"] = "Plans"
        await store.commit()
    async with store_of(ADA, transport, path, wire="starfish", autocommit_ms=None) as store:
        store["title"] = "Picnic"
        await store.commit()
        await store.pull()
        first, second = store.document._log.ledger.entries
        assert (first.author_seq, second.author_seq) == (1, 2)
        assert second.header is not None
        assert second.header.prev == first.link


# Commits are cut.

ONE: dict[str, tuple[list[Run], bool]] = {
    "nothing": ([], False),
    "a register": ([Set("x", "r", 1, "value")], False),
    "two registers": ([Set("x", "r", 1, 1), Set("y", "r", 2, 1)], True),
    "a character": ([Insert("t", "r", 1, "", 0, "a")], False),
    "two characters": ([Insert("t", "r", 1, "", 0, "ab")], True),
    "a value": ([Insert("t", "r", 1, "", 0, [1])], False),
    "a removed element": ([Remove("t", "r", 2, "r", 1, 1, 1)], False),
    "two removed elements": ([Remove("t", "r", 3, "r", 1, 2, 1)], True),
}


@pytest.mark.parametrize("name", sorted(ONE))
@pytest.mark.parametrize("profile", list(Profile))
def test_what_is_more_than_one_op_can_be_divided_and_one_op_is_one_element(
    profile: Profile, name: str
) -> None:
    runs, is_divisible = ONE[name]
    fields: dict[str, Any] = {"seq": 1, "author_seq": 1, "prev": None, "seen": {}, "message": "m"}
    tight, ample = sealer(profile), sealer(profile)
    # In less than its smallest an element may not even hold its message.
    tight._bytes_max = 1
    (sealed,) = ample.seal(runs, **fields)
    assert sealed.is_divisible is is_divisible
    bodies = tight.seal(runs, **fields)
    assert len(bodies) == (2 if is_divisible else 1)
    assert [body.message for body in bodies] == [*([None] * (len(bodies) - 1)), "m"]


def test_a_value_may_have_so_many_values_that_a_header_fits_beside_it() -> None:
    with pytest.raises(ValueTooLargeError) as caught:
        sealer().check_value([0] * ELEMENT_VALUES_MAX)
    assert caught.value.limit == ELEMENT_VALUES_MAX - 1024


def test_no_more_ops_of_version_1_are_written_out_than_an_element_may_hold() -> None:
    runs: list[Run] = [Insert("t", "r", 1, "", 0, "x" * (BATCH_OPS_MAX - 2))]
    runs += [Remove("t", "r", BATCH_OPS_MAX, "r", 1, 1, 1), Set("x", "r", BATCH_OPS_MAX + 1, 1)]
    roomy = sealer(Profile.STARFISH)
    roomy._bytes_max = 2**30
    fields: dict[str, Any] = {"seq": 1, "author_seq": 1, "prev": None, "seen": {}}
    assert len(roomy.seal(runs, **fields)) == 1
    more = Set("y", "r", BATCH_OPS_MAX + 2, 1)
    assert len(roomy.seal([*runs, more], **fields)) == 2


# A snapshot covers what was sent.


def covering(writers: dict[str, int], seqs: dict[str, int] | None, *, holds_it: bool) -> Snapshot:
    crdt = WalCrdt()
    if holds_it:
        crdt.fold_runs([Set("x", f"{ALICE.public_key}:s", 2, "mine")])
    return Snapshot(crdt, 9, writers, {}, seqs, {}, (), BOB.public_key, {})


ME, SESSION = ALICE.public_key, f"{ALICE.public_key}:s"


@pytest.mark.parametrize(
    ("profile", "snapshot", "is_there"),
    [
        (Profile.PACKED, covering({}, {SESSION: 2}, holds_it=False), True),
        (Profile.PACKED, covering({}, {SESSION: 1}, holds_it=True), False),
        (Profile.PACKED, covering({}, {}, holds_it=True), False),
        (Profile.PACKED, covering({}, None, holds_it=True), True),
        (Profile.PACKED, covering({}, None, holds_it=False), False),
        (Profile.STARFISH, covering({ME: 2}, {SESSION: 1}, holds_it=True), False),
        (Profile.STARFISH, covering({ME: 1}, None, holds_it=True), False),
        (Profile.STARFISH, covering({ME: 2}, None, holds_it=True), True),
        (Profile.STARFISH, covering({ME: 2}, None, holds_it=False), False),
        (Profile.STARFISH, covering({}, None, holds_it=True), False),
    ],
    ids=range(10),
)
def test_a_snapshot_covers_an_own_element_by_its_counts_and_where_it_has_none_by_what_it_holds(
    profile: Profile, snapshot: Snapshot, is_there: bool
) -> None:
    run = Set("x", SESSION, 2, "mine")
    (sealed,) = sealer(profile).seal([run], seq=2, author_seq=2, prev=None, seen={})
    assert is_covered(sealed, snapshot) is is_there
