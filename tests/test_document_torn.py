"""Somebody revoked whose elements are no unbroken chain: what the owner had read counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bobs_log import BOBS, abc, counts_of, logged, reading, typed
from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    RiggedLog,
    RiggedSnapshots,
    keyed,
    link_of,
    opened,
    put_in,
    state_of,
    write_packed,
)
from walstore.crdt.runs import Insert, Set
from walstore.document import SnapshotVerdict, WalDocument
from walstore.document.ports import CheckpointTooOldError
from walstore.signed.roster import Counted, Counts
from walstore.wire.limits import COUNTER_JUMP_MAX

POSTURES = ("trust", "trust-retain-tail", "re-derive")


async def readers(
    log: RiggedLog, counts: Counts, snapshots: RiggedSnapshots | None = None
) -> list[WalDocument]:
    """Who reads a log in every posture, element by element and at once."""
    return [
        (await reading(paged, counts, posture=posture, snapshot_store=snapshots))[0]
        for posture in POSTURES
        for paged in (RiggedLog(log.elements, page_size=size) for size in (1, 1000))
    ]


def assert_agree(documents: list[WalDocument]) -> None:
    """All hold the same."""
    assert len({state_of(each) for each in documents}) == 1


async def test_what_a_snapshot_hides_of_a_torn_chain_is_found_by_the_owner() -> None:
    first = typed("a", 1, seq=1, prev="ab" * 32)
    second = typed("b", 2, seq=2, prev=link_of(first))
    log, snapshots = logged([first, second]), RiggedSnapshots()
    await (await opened(log, ALICE, snapshot_store=snapshots)).snapshot()
    owner = await opened(log, ALICE, snapshot_store=snapshots)
    counts = await owner.recount(BOB.public_key)
    (counted,) = counts.values()
    assert isinstance(counted, Counted)
    assert counted.torn is not None
    assert counted.torn.lost == ("ab" * 32,)
    documents = await readers(log, counts)
    assert documents[0].text("body") == "ab"
    # Nobody waits for what there is not.
    await (await reading(log, counts, snapshot_store=snapshots))[0].snapshot()
    assert_agree([*documents, *await readers(log, counts, snapshots)])


async def test_where_the_log_is_gone_a_snapshot_has_to_do() -> None:
    log, snapshots = logged(abc()), RiggedSnapshots()
    await (await opened(log, ALICE, snapshot_store=snapshots)).snapshot()
    owner = await opened(log, ALICE, snapshot_store=snapshots)
    whole = await owner.recount(BOB.public_key)

    class Pruned(RiggedLog):
        async def pull(self, document_key: str, checkpoint: int) -> Any:
            if checkpoint < 3:
                raise CheckpointTooOldError(3)
            return await super().pull(document_key, checkpoint)

    pruned = await opened(Pruned(log.elements), ALICE, snapshot_store=snapshots)
    assert await pruned.recount(BOB.public_key) == pruned.counted(BOB.public_key) == whole


async def test_what_came_after_a_rejected_element_that_goes_on_from_it_counts() -> None:
    before = typed("t", 1, seq=1, prev=None, session="t")
    far = write_packed(
        BOB, [Insert("body", BOBS, COUNTER_JUMP_MAX + 9, "", 0, "X")], prev=link_of(before)
    )
    lie = write_packed(BOB, [Set("x", BOBS, 2, 1)], seq=2, prev="ab" * 32)
    log = logged([far, before, lie])
    counts = await counts_of_skipping(log)
    documents = await readers(log, counts)
    assert {each.text("body") for each in documents} == {"t"}
    assert_agree(documents)


async def counts_of_skipping(log: RiggedLog) -> Counts:
    """What counts of Bob, where something of his is rejected."""
    owner = await opened(log, ALICE, on_author_error="skip")
    return await owner.recount(BOB.public_key)


@pytest.mark.parametrize("is_named_first", [False, True])
async def test_an_element_that_is_rejected_at_its_place_counts_where_a_relay_repeats_it(
    is_named_first: bool,
) -> None:
    top = COUNTER_JUMP_MAX + 9
    far = write_packed(BOB, [Insert("body", BOBS, top, "", 0, "X")])
    run = Insert("body", BOBS, 5, BOBS, top, "b")
    second = write_packed(BOB, [run], seq=2, prev=link_of(far))
    counts = await counts_of_skipping(logged([far, second]))
    high = Set("high", f"{ALICE.public_key}:k", COUNTER_JUMP_MAX - 9, 1)
    alices = write_packed(ALICE, [high], session="k")
    elements = [far, second, alices, far] if is_named_first else [far, alices, far, second]
    log = logged(elements)
    live_log, known = RiggedLog(page_size=1), {BOB.public_key: counts}
    there = await opened(live_log, CAROL, revoked=known.get, on_author_error="skip")
    for element in elements:
        put_in(live_log, element)
        await there.pull()
    documents = [there, *await readers(log, counts)]
    assert there.text("body") == "Xb"
    assert_agree(documents)


async def test_a_fork_below_what_a_snapshot_counts_is_seen_in_the_next_one() -> None:
    first, second, _ = abc()
    log, snapshots = logged([first, second]), RiggedSnapshots()
    await (await opened(log, ALICE, snapshot_store=snapshots)).snapshot()
    alice = await opened(log, ALICE, snapshot_store=snapshots)
    run = Insert("body", BOBS, 9, BOBS, 2, "FORK")
    put_in(log, write_packed(BOB, [run], seq=1))
    # What is delivered again is no fork.
    log.replay(0)
    await alice.pull()
    assert alice.text("body") == "abFORK"
    await alice.snapshot()
    assert len(snapshots.writes[-1]["state"]["x"]["heads"][BOB.public_key]) == 2
    counts = await counts_of(logged([first, second]))
    for each in await readers(log, counts, snapshots):
        assert (each.text("body"), each.snapshot_verdict) == ("ab", SnapshotVerdict.NONE)


async def test_who_has_a_fork_in_what_they_start_from_reads_anew_once_it_does_not_count() -> None:
    first, second, third = abc()
    run = Insert("body", BOBS, 9, BOBS, 1, "FORK")
    fork = write_packed(BOB, [run], seq=2, prev=link_of(first))
    log, snapshots, known = logged([first, fork]), RiggedSnapshots(), dict[str, Counts]()
    options: dict[str, Any] = {"snapshot_store": snapshots, "revoked": known.get}
    await (await opened(log, ALICE, **options)).snapshot()
    carol = await opened(log, CAROL, on_author_error="skip", **options)
    counts = await counts_of(logged([first, second, third]))
    known[BOB.public_key] = counts
    assert not carol.counts_all(BOB.public_key)
    # What leads to the end has not come yet: it may lead to this.
    late, _ = await reading(log, counts, snapshot_store=snapshots)
    for element in (second, third):
        put_in(log, element)
    await carol.reread()
    await late.pull()
    assert_agree([carol, late, *await readers(log, counts, snapshots)])
    assert late.text("body") == "abc"
    # Nothing is read anew again and again.
    base = late._base
    await late.pull()
    assert late._base is base


async def test_what_comes_again_behind_a_barrier_is_no_end_of_a_chain() -> None:
    first, second, third = abc()
    log, snapshots, known = logged([first, second]), RiggedSnapshots(), dict[str, Counts]()
    options: dict[str, Any] = {"snapshot_store": snapshots, "revoked": known.get}
    options["on_author_error"] = "skip"
    alice = await opened(log, ALICE, **options)
    alice.set_text("note", "one")
    alice.set_text("note", "two")
    await alice.commit()
    await alice.pull()
    await alice.snapshot(collect={"Alice": alice.current_checkpoint})
    put_in(log, third)
    # It goes on from the third, with a seq that the barrier counts: nobody folds it.
    put_in(log, write_packed(BOB, [Set("x", BOBS, 9, 1)], seq=1, prev=link_of(third)))
    await alice.pull()
    counts = await alice.recount(BOB.public_key)
    known[BOB.public_key] = counts
    await alice.reread()
    documents = [alice, *await readers(log, counts, snapshots)]
    assert alice.materialize() == {"body": [*"abc"], "note": [*"two"]}
    assert_agree(documents)


async def test_a_snapshot_that_is_passed_over_is_replaced_with_what_it_has_let_go_of() -> None:
    first, second, third = abc()
    log, snapshots, known = logged([first, second]), RiggedSnapshots(), dict[str, Counts]()
    counts = await counts_of(log)
    options: dict[str, Any] = {"snapshot_store": snapshots, "on_author_error": "skip"}
    alice = await opened(log, ALICE, revoked=known.get, **options)
    put_in(log, third)
    # Carol has not heard of the revocation.
    carol = await opened(log, CAROL, **options)
    carol.set_text("note", "one")
    carol.set_text("note", "two")
    await carol.commit()
    await carol.pull()
    await carol.snapshot(collect={"Carol": carol.current_checkpoint})
    known[BOB.public_key] = counts
    await alice.pull()
    await alice.snapshot()
    assert snapshots.writes[-1]["producedBy"] == ALICE.public_key
    assert "cuts" in snapshots.writes[-1]["state"]["x"]
    documents = await readers(log, counts, snapshots)
    assert documents[0].materialize() == {"body": [*"ab"], "note": [*"two"]}
    assert {each.snapshot_verdict.is_believed for each in documents} == {True}
    assert_agree([alice, *documents])


async def test_who_cannot_open_all_of_a_log_starts_from_a_snapshot_that_is_passed_over() -> None:
    log, snapshots, known = RiggedLog(), RiggedSnapshots(), dict[str, Counts]()
    options: dict[str, Any] = {"snapshot_store": snapshots, "revoked": known.get}
    options["on_author_error"] = "skip"
    alice = await opened(log, ALICE, encryptor=keyed(1, 2), **options)
    old = await opened(log, ALICE, encryptor=keyed(1), **options)
    old.set_text("note", "one")
    old.set_text("note", "two")
    await old.commit()
    bob = await opened(log, BOB, encryptor=keyed(1), **options)
    await alice.pull()
    counts = await alice.recount(BOB.public_key)
    bob.set_field("late", 1)
    await bob.commit()
    await alice.pull()
    await alice.snapshot(collect={"Alice": alice.current_checkpoint})
    known[BOB.public_key] = {**counts, "s": 0}
    newcomer = await opened(log, CAROL, encryptor=keyed(2), **options)
    assert newcomer.text("note") == "two"
    whole = await opened(log, CAROL, encryptor=keyed(1, 2), **options)
    assert whole.materialize() == {"note": [*"two"]}


async def test_an_edit_that_was_made_before_a_deletion_stands_where_the_log_has_it() -> None:
    bobs = typed("abc", 1, seq=1, prev=None)
    log, snapshots = logged([bobs]), RiggedSnapshots()
    alice, carol = [
        await opened(log, who, snapshot_store=snapshots, on_author_error="skip")
        for who in (ALICE, CAROL)
    ]
    carol.insert_text("body", 2, "mine")
    await alice.delete_document()
    await carol.adopt_barrier()
    # An element that Bob's deleted text stood after, though its clock was used before.
    run = Insert("body", BOBS, 1, "", 0, "X")
    put_in(log, write_packed(BOB, [run], seq=2, prev=link_of(bobs)))
    alice.insert_text("body", 0, "y")
    await alice.commit()
    for each in (carol, alice):
        await each.pull()
        await each.commit()
        await each.pull()
    await alice.pull()
    late = await opened(log, ALICE, snapshot_store=snapshots, on_author_error="skip")
    assert_agree([alice, carol, late])


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_what_was_rejected_before_a_barrier_is_passed_over_above_it_by_all(
    is_deleted: bool,
) -> None:
    far = write_packed(BOB, [Set("far", BOBS, COUNTER_JUMP_MAX + 9, 1)])
    log, snapshots = logged([far]), RiggedSnapshots()
    counts = await counts_of_skipping(log)
    options: dict[str, Any] = {"snapshot_store": snapshots, "on_author_error": "skip"}
    options["revoked"] = {BOB.public_key: counts}.get
    alice = await opened(log, ALICE, **options)
    for text in ("one", "two"):
        alice.set_text("note", text)
    await alice.commit()
    await alice.pull()
    readers_upto = {"Alice": alice.current_checkpoint}
    await (alice.delete_document() if is_deleted else alice.snapshot(collect=readers_upto))
    # By now its counter is in reach.
    high = Set("high", f"{ALICE.public_key}:k", COUNTER_JUMP_MAX - 9, 1)
    put_in(log, write_packed(ALICE, [high], session="k"))
    log.replay(0)
    await alice.pull()
    await alice.snapshot()
    documents = [alice, *await readers(log, counts, snapshots)]
    assert alice.field("far") is None
    assert SnapshotVerdict.VERIFIED in {each.snapshot_verdict for each in documents}
    assert SnapshotVerdict.MISMATCH not in {each.snapshot_verdict for each in documents}
    assert_agree(documents)
