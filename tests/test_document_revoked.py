"""What counts of the revoked, and what becomes of edits that hang on what does not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from tests.bobs_log import BOBS, REVOKED, abc, counts_of, logged, reading, typed
from tests.counting import calls_of
from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    JsonElement,
    RiggedLog,
    RiggedSnapshots,
    counter_of,
    keyed,
    link_of,
    opened,
    put_in,
    signed_snapshot,
    spoiled,
    state_of,
    write_packed,
    write_sealed,
    write_starfish,
)
from tests.rigged import (
    document as document_of,
)
from walstore.crdt import Run, WalCrdt, Writer, to_ops
from walstore.crdt.runs import Insert, Remove, Set
from walstore.crdt.sequence import RunSequence
from walstore.document import SnapshotVerdict, WalDocument
from walstore.document.events import Displaced, Event, Gap, Rejection, Rollback
from walstore.document.faults import (
    ReadOnlyError,
    RollbackDetectedError,
    SnapshotRefusedError,
)
from walstore.document.ledger import Entry, Highs
from walstore.document.log import UNPROVEN_MAX, DocumentLog
from walstore.document.ports import LogBehindError
from walstore.document.revoked import (
    TWINS_WAITING_MAX,
    counted_seq,
    nobody_revoked,
)
from walstore.sealed import ContentKeys
from walstore.sealed.encryptor import PlainEncryptor
from walstore.signed.roster import Counted, Counts
from walstore.wire.element import Element
from walstore.wire.limits import COUNTER_JUMP_MAX

BEN = "be" * 32
COUNTED = {BEN: {"s": 3, "": 7}}


def test_of_the_revoked_so_much_counts_as_was_read() -> None:
    assert counted_seq(COUNTED.get, BEN, "s", 2) == 2
    assert counted_seq(COUNTED.get, BEN, "s", 9) == 3
    assert counted_seq(COUNTED.get, BEN, "t", 9) == 0
    assert counted_seq(COUNTED.get, BEN, None, 9) == 7
    assert counted_seq(COUNTED.get, "anna", "s", 9) == 9
    assert counted_seq(nobody_revoked, BEN, "s", 9) == 9


def revoking() -> DocumentLog:
    """The log of a document of which Ben was revoked."""
    return DocumentLog(
        "k", encryptor=PlainEncryptor(), is_writer=lambda _: True, revoked=COUNTED.get
    )


def with_both() -> tuple[WalCrdt, Writer, Writer]:
    crdt = WalCrdt()
    return crdt, Writer(crdt, f"{BEN}:s"), Writer(crdt, "carl:t")


def test_what_hangs_on_an_element_that_does_not_count_is_kept_near_where_it_was() -> None:
    _, ben, carl = with_both()
    ben.insert_text("body", 0, "ab")
    counted = ben.take()
    ben.insert_text("body", 2, "XY")
    ben.take()
    carl.insert_text("body", 4, "c")
    carl.insert_text("body", 3, "d")
    mine = carl.take()
    crdt = revoking().fold_on(None)
    crdt.fold_runs(counted)
    crdt.fold_runs(mine)
    assert sorted(crdt.text("body")[2:]) == ["c", "d"]
    assert crdt.text("body").startswith("ab")
    assert len(crdt.displaced) == 2
    without = WalCrdt()
    without.fold_runs(counted)
    without.fold_runs(mine)
    assert without.text("body") == "ab"


def test_removing_what_does_not_count_changes_nothing_and_leaves_nothing() -> None:
    _, ben, carl = with_both()
    ben.insert_text("body", 0, "ab")
    counted = ben.take()
    ben.insert_text("body", 2, "XY")
    ben.take()
    carl.remove("body", 1, 2)
    crdt = revoking().fold_on(None)
    crdt.fold_runs(counted)
    crdt.fold_runs(carl.take())
    assert crdt.text("body") == "a"
    # Nothing is waited for, so the list keeps its fast form.
    assert isinstance(crdt.lists["body"], RunSequence)


def test_a_copy_of_a_fold_waits_for_nothing_either() -> None:
    _, ben, carl = with_both()
    ben.insert_text("body", 0, "X")
    ben.take()
    carl.insert_text("body", 1, "c")
    mine = carl.take()
    crdt = revoking().fold_on(None)
    for copy in (crdt.clone(), crdt.collected(), revoking().fold_on(crdt)):
        copy.fold_runs(mine)
        assert copy.text("body") == "c"
    assert crdt.text("body") == ""


# ── an old seq, used again ─────────────────────────────────────────────────────────────


def forged(text: str, *, seq: int, prev: str | None = None, session: str = "s") -> JsonElement:
    """An element that Bob signs after he was revoked."""
    own = f"{BOB.public_key}:{session}"
    return write_packed(
        BOB, [Insert("body", own, 30, BOBS, 3, text)], session=session, seq=seq, prev=prev
    )


def reasons(events: list[Event]) -> list[str]:
    return [event.reason for event in events if isinstance(event, Rejection)]


async def test_a_seq_that_counts_is_of_no_use_to_the_revoked() -> None:
    log = logged(abc())
    revoked: dict[str, Counts] = {}
    events: list[Event] = []
    there = await opened(
        log, CAROL, revoked=revoked.get, on_author_error="skip", on_event=events.append
    )
    revoked[BOB.public_key] = await counts_of(log)
    put_in(log, forged("X", seq=2, prev=link_of(abc()[0])))
    put_in(log, forged("Y", seq=1))
    await there.pull()
    assert (there.text("body"), reasons(events)) == ("abc", [REVOKED, REVOKED])
    new, told = await reading(log, revoked[BOB.public_key])
    assert (new.text("body"), reasons(told)) == ("abc", [REVOKED, REVOKED])


@pytest.mark.parametrize("posture", ["trust", "re-derive"])
@pytest.mark.parametrize("page_size", [1, 1000])
async def test_no_order_of_the_log_lets_the_revoked_write_on(posture: str, page_size: int) -> None:
    elements = abc()
    counts = await counts_of(logged(elements))
    elements.append(forged("X", seq=2, prev=link_of(elements[0])))
    elements.append(forged("Y", seq=3, prev=link_of(elements[3])))
    strange = [element["data"] for element in elements[3:]]
    for order in permutations(elements):
        log = logged(list(order), page_size=page_size)
        document, events = await reading(log, counts, posture=posture)
        assert document.text("body") == "abc"
        # What counts is told of as well where it comes after what it leads up to.
        refused = [event.evidence for event in events if isinstance(event, Rejection)]
        assert [each for each in log.elements if each["data"] in strange] == [
            each for each in log.elements if each in refused and each["data"] in strange
        ]
        assert document.detected_gaps() == []
        assert not any(isinstance(event, Displaced) for event in events)


async def test_which_branch_of_a_forked_session_counts_is_no_matter_of_chance() -> None:
    for number in range(8):
        elements = abc()
        elements.append(forged(str(number), seq=3, prev=link_of(elements[1])))
        (counted,) = (await counts_of(logged(elements))).values()
        assert isinstance(counted, Counted)
        assert counted.link == max(map(link_of, elements[2:]))


async def test_what_the_revoked_wrote_in_several_sessions_counts() -> None:
    elements = abc()
    elements.append(forged("X", seq=1, prev=link_of(elements[2]), session="t"))
    elements.append(forged("Y", seq=1, prev=link_of(elements[2]), session="u"))
    counts = await counts_of(logged(elements))
    # The links of those sessions are enough that no other goes on from.
    assert [isinstance(each, Counted) and each.link is not None for each in counts.values()] == [
        False,
        True,
        True,
    ]
    elements.append(forged("Z", seq=3, prev=link_of(elements[1])))
    document, events = await reading(logged(elements), counts)
    assert sorted(document.text("body")) == sorted("abcXY")
    assert reasons(events) == [REVOKED]


async def test_whoever_starts_from_a_snapshot_takes_no_old_seq_either() -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    counts = await counts_of(logged(elements))
    log = logged(elements[:2])
    await (await opened(log, ALICE, snapshot_store=snapshots)).snapshot()
    put_in(log, forged("X", seq=2, prev=link_of(elements[0])))
    put_in(log, elements[2])
    put_in(log, forged("Y", seq=3, prev=link_of(elements[1])))
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        document, events = await reading(log, counts, snapshot_store=snapshots, posture=posture)
        assert (document.text("body"), reasons(events)) == ("abc", [REVOKED, REVOKED])


async def test_a_snapshot_of_a_fork_is_passed_over() -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    counts = await counts_of(logged(elements))
    fork = logged([*elements[:2], forged("Y", seq=3, prev=link_of(elements[1]))])
    await (await opened(fork, ALICE, snapshot_store=snapshots)).snapshot()
    document, _ = await reading(logged(elements), counts, snapshot_store=snapshots, posture="trust")
    assert document.text("body") == "abc"


async def test_what_counts_waits_for_what_is_withheld_and_is_not_signed_away() -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    counts = await counts_of(logged(elements))
    log = logged([*elements[:2], forged("X", seq=3, prev=link_of(elements[1]))])
    document, events = await reading(log, counts, snapshot_store=snapshots)
    assert (document.text("body"), reasons(events)) == ("", [])
    assert document.detected_gaps() == [Gap(BOB.public_key, 1, 4, "s")]
    assert document.own_snapshot() is None
    with pytest.raises(SnapshotRefusedError):
        await document.snapshot()
    put_in(log, elements[2])
    await document.pull()
    assert (document.text("body"), reasons(events)) == ("abc", [REVOKED])
    assert document.detected_gaps() == []
    assert document.own_snapshot() is not None
    await document.snapshot()


@pytest.mark.parametrize("hidden", [0, 1])
async def test_what_leads_up_to_what_counts_is_not_signed_away_by_who_was_not_shown_it(
    hidden: int,
) -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    counts = await counts_of(logged(elements))
    log = logged([each for place, each in enumerate(elements) if place != hidden])
    document, events = await reading(log, counts, snapshot_store=snapshots)
    assert reasons(events) == []
    assert document.own_snapshot() is None
    with pytest.raises(SnapshotRefusedError, match="who was revoked, that count and are not here"):
        await document.snapshot()
    put_in(log, elements[hidden])
    await document.pull()
    assert (document.text("body"), document.detected_gaps()) == ("abc", [])
    await document.snapshot()


async def test_what_waits_for_what_is_withheld_is_not_forgotten() -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    counts, log = await counts_of(logged(elements)), logged(elements[:2])
    document, _ = await reading(log, counts, snapshot_store=snapshots, history_max=4)
    prev: str | None = None
    for seq in range(1, 40):
        run = Set("r", f"{ALICE.public_key}:k", 100 + seq, seq)
        element = write_packed(ALICE, [run], session="k", seq=seq, prev=prev)
        prev = link_of(element)
        put_in(log, element)
        await document.pull()
    with pytest.raises(SnapshotRefusedError):
        await document.snapshot()
    put_in(log, elements[2])
    await document.pull()
    assert (document.text("body"), document.detected_gaps()) == ("abc", [])
    await document.snapshot()


@pytest.mark.parametrize("page_size", [1, 1000])
@pytest.mark.parametrize("posture", ["trust", "trust-retain-tail", "re-derive"])
async def test_however_many_twins_there_are_what_counts_is_found(
    posture: str, page_size: int
) -> None:
    first, second, third = abc()
    twins = [
        write_packed(
            BOB, [Set("r", BOBS, 20 + each, each)], session="s", seq=2, prev=link_of(first)
        )
        for each in range(TWINS_WAITING_MAX + 1)
    ]
    counts = await counts_of(logged(abc()))
    document, _ = await reading(
        logged([first, *twins, second, third], page_size=page_size), counts, posture=posture
    )
    assert (document.text("body"), document.detected_gaps()) == ("abc", [])
    assert "r" not in document.materialize()
    # So it is for whoever is there when it comes.
    log = logged([first, *twins, second], page_size=page_size)
    document, _ = await reading(log, counts, posture=posture)
    put_in(log, third)
    await document.pull()
    assert (document.text("body"), document.detected_gaps()) == ("abc", [])


@pytest.mark.parametrize("how", ["plainly", "counting it", "counting nobody", "among twins"])
@pytest.mark.parametrize("is_withheld", [False, True])
async def test_a_lie_is_found_out_though_somebody_revoked_wrote_after_it(
    how: str, is_withheld: bool
) -> None:
    log, snapshots = RiggedLog(), RiggedSnapshots()
    alice = await opened(log, ALICE, snapshot_store=snapshots)
    alice.set_field("title", "true")
    await alice.commit()
    await alice.pull()
    elements = abc()
    counts = await counts_of(logged(elements))
    if how == "among twins":
        put_in(log, forged("X", seq=1))
    await alice.pull()
    honest = await alice.snapshot()
    for element in elements:
        put_in(log, element)
    document, events = await reading(log, counts, snapshot_store=snapshots, posture="re-derive")
    # Who signed that had not heard yet that he was revoked.
    verdict = SnapshotVerdict.NONE if how == "among twins" else SnapshotVerdict.VERIFIED
    assert (document.snapshot_verdict, document.text("body")) == (verdict, "abc")
    liar = await opened(RiggedLog(), ALICE)
    liar.set_field("title", "a lie")
    content = {name: honest[name] for name in honest if not name.startswith("author")}
    content["state"]["packed"] = liar.crdt.export_packed()
    if how == "counting it":
        content["writerSeq"][BOBS] = 3
    if how == "counting nobody":
        content["writerSeq"] = {}
        del content["state"]["x"]["sessions"]
    snapshots.document = signed_snapshot(content, ALICE)
    if is_withheld:
        log.elements = log.elements[:-1]
    document, events = await reading(log, counts, snapshot_store=snapshots, posture="re-derive")
    # Of what is withheld nobody knows whether it was there before.
    if is_withheld and how != "plainly":
        assert document.snapshot_verdict is SnapshotVerdict.UNVERIFIABLE
        return
    assert document.materialize()["title"] == "true"
    if how != "among twins":
        assert document.snapshot_verdict is SnapshotVerdict.MISMATCH
        assert "the log folds to another state" in reasons(events)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("posture", ["trust", "trust-retain-tail", "re-derive"])
async def test_however_many_twins_are_above_a_snapshot_what_counts_is_found(
    posture: str, is_cut: bool
) -> None:
    log, snapshots = RiggedLog(), RiggedSnapshots()
    alice = await opened(log, ALICE, snapshot_store=snapshots)
    alice.set_text("note", "one")
    await alice.commit()
    alice.set_text("note", "two")
    await alice.commit()
    await alice.pull()
    await alice.snapshot(collect={"Alice": alice.current_checkpoint} if is_cut else None)
    counts = await counts_of(logged(abc()))
    for each in range(TWINS_WAITING_MAX + 1):
        put_in(log, forged(f"{each}", seq=1))
    for element in abc():
        put_in(log, element)
    document, _ = await reading(log, counts, snapshot_store=snapshots, posture=posture)
    assert (document.text("body"), document.text("note")) == ("abc", "two")
    assert document.detected_gaps() == []
    await document.snapshot()


async def test_what_is_withheld_among_many_twins_is_looked_for_once() -> None:
    first, second, third = abc()
    twins = [forged(f"{each}", seq=2) for each in range(TWINS_WAITING_MAX + 1)]
    counts, log = await counts_of(logged([first, second, third])), logged([first, *twins])
    document, _ = await reading(log, counts)
    put_in(log, third)
    await document.pull()
    asked: list[int] = []
    pull = log.pull

    async def counting(document_key: str, checkpoint: int) -> Any:
        asked.append(checkpoint)
        return await pull(document_key, checkpoint)

    log.pull = counting  # type: ignore[method-assign]
    for _ in range(3):
        await document.pull()
    assert len(asked) == 3
    put_in(log, second)
    await document.pull()
    assert (document.text("body"), document.detected_gaps()) == ("abc", [])


@pytest.mark.parametrize("posture", ["trust", "re-derive"])
@pytest.mark.parametrize("lie", ["link", "seq"])
async def test_nobody_waits_for_what_the_revoked_have_made_up(lie: str, posture: str) -> None:
    first, second, third = abc()
    if lie == "link":
        second = typed("b", 2, seq=2, prev="ab" * 32)
        third = typed("c", 3, seq=3, prev=link_of(second))
    else:
        third = typed("c", 3, seq=4, prev=link_of(second))
    log, snapshots = logged([first, second, third]), RiggedSnapshots()
    counts = await counts_of(log)
    (torn,) = [each.torn for each in counts.values() if isinstance(each, Counted)]
    assert torn is not None
    assert torn.lost == (("ab" * 32,) if lie == "link" else ())
    document, events = await reading(log, counts, snapshot_store=snapshots, posture=posture)
    assert (document.text("body"), reasons(events)) == ("abc", [])
    await document.snapshot()


def passed_over(how: str) -> list[JsonElement]:
    """Elements of Bob's, two of each session; by their links, one seq is passed over."""
    first = typed("a", 1, seq=1, prev=None)
    if how == "none":
        return [first, typed("b", 2, seq=2, prev=None)]
    if how == "rejected":
        false = write_packed(BOB, [Insert("body", "x:s", 2, BOBS, 1, "b")], session="s", seq=2)
        return [first, false, typed("b", 2, seq=3, prev=link_of(first))]
    second = typed("b", 2, seq=2, prev=link_of(first))
    other = f"{BOB.public_key}:t"
    run = Insert("body", other, 3, BOBS, 2, "c")
    third = write_packed(BOB, [run], session="t", seq=1, prev=link_of(second))
    run = Insert("body", other, 4, other, 3, "d")
    return [first, second, third, write_packed(BOB, [run], session="t", seq=2, prev=link_of(first))]


@pytest.mark.parametrize("how", ["none", "rejected", "other session"])
async def test_nobody_waits_for_a_seq_that_the_links_of_the_revoked_pass_over(how: str) -> None:
    log, snapshots = logged(passed_over(how)), RiggedSnapshots()
    revoked: dict[str, Counts] = {}
    owner = await opened(log, ALICE, revoked=revoked.get, on_author_error="skip")
    text = owner.text("body")
    revoked[BOB.public_key] = counts = owner.counted(BOB.public_key)
    assert all(isinstance(each, Counted) and each.torn is not None for each in counts.values())
    await owner.reread()
    newcomer, _ = await reading(log, counts, snapshot_store=snapshots)
    for document in (owner, newcomer):
        assert (document.text("body"), document.detected_gaps()) == (text, [])
        assert not document.is_read_only
    await newcomer.snapshot()


def behind(counter: int, text: str = "mine") -> JsonElement:
    """An element of Alice's that types behind one of Bob's."""
    run = Insert("body", f"{ALICE.public_key}:k", 40, BOBS, counter, text)
    return write_packed(ALICE, [run], session="k", seq=1)


async def test_what_was_too_far_above_everything_hides_nobody_elses_text() -> None:
    first = typed("ab", 1, seq=1, prev=None)
    run = Insert("body", BOBS, COUNTER_JUMP_MAX + 50, BOBS, 2, "X")
    far = write_packed(BOB, [run], session="s", seq=2, prev=link_of(first))
    run = Insert("body", BOBS, 5, BOBS, 2, "c")
    third = write_packed(BOB, [run], session="s", seq=3, prev=link_of(far))
    elements = [first, far, third]
    owner = await opened(logged(elements), ALICE, on_author_error="skip")
    counts = owner.counted(BOB.public_key)
    # Nothing of Bob's that counts has the counter 4.
    document, _ = await reading(logged([*elements, behind(4)]), counts)
    assert document.text("body") == "abminec"


def jump(counter: int, *, seq: int = 1, session: str = "s") -> JsonElement:
    """An element of Bob's far above what others wrote."""
    run = Set("jump", f"{BOB.public_key}:{session}", counter, counter)
    return write_packed(BOB, [run], session=session, seq=seq)


async def jumped_and_typed() -> tuple[RiggedLog, Counts, list[WalDocument], dict[str, Counts]]:
    """A log in which Bob's jumps stand on branches of a session, and others typed above them; what
    counts of him, which is no jump; those who typed, and what they know of it.
    """
    log, revoked = RiggedLog(), dict[str, Counts]()
    for times in (1, 2):
        put_in(log, jump(times * COUNTER_JUMP_MAX - times))
    for element in abc():
        put_in(log, element)
    there = [
        await opened(log, who, revoked=revoked.get, on_author_error="skip", **options)
        for who, options in ((ALICE, {}), (CAROL, {"history_max": 3}))
    ]
    for number in range(8):
        for document in there:
            await document.pull()
            document.insert_text("note", document.length("note"), str(number))
            await document.commit()
    for document in there:
        await document.pull()
    return log, await counts_of(logged(abc())), there, revoked


@pytest.mark.parametrize("page_size", [1, 3, 1000])
async def test_what_others_wrote_above_a_jump_stays_though_the_jump_does_not_count(
    page_size: int,
) -> None:
    log, counts, there, revoked = await jumped_and_typed()
    revoked[BOB.public_key] = counts
    for document in there:
        assert not document.counts_all(BOB.public_key)
        await document.reread()
    log, snapshots = log.served(page_size=page_size), RiggedSnapshots()
    readers = [
        (await reading(log, counts, posture=posture, snapshot_store=snapshots))[0]
        for posture in ("trust", "re-derive")
    ]
    await readers[0].snapshot()
    # Whoever starts from the snapshot has only its word for it.
    log.prune(log.newest_ts)
    readers.append((await reading(log, counts, snapshot_store=snapshots))[0])
    for reader in (*there, *readers):
        assert reader.text("note") == "0011223344556677"
        assert reader.field("jump") is None
    # Alice's clock is above the jumps as before.
    run = Set("title", f"{ALICE.public_key}:k", counter_of(there[0]) + 1, "later")
    put_in(log, write_packed(ALICE, [run], session="k"))
    for reader in readers:
        await reader.pull()
        assert reader.field("title") == "later"


@pytest.mark.parametrize("wire", ["packed", "starfish"])
async def test_who_had_not_heard_of_a_revocation_loses_nothing_and_goes_on(wire: str) -> None:
    log, revoked = RiggedLog(), dict[str, Counts]()
    alice = await opened(log, ALICE, wire=wire, revoked=revoked.get, on_author_error="skip")
    alice.set_field("title", "draft")
    await alice.commit()
    counts = await counts_of(log)
    put_in(log, jump(counter_of(alice) + COUNTER_JUMP_MAX - 1))
    await alice.pull()
    for text in ("one ", "two "):
        alice.insert_text("body", alice.length("body"), text)
        await alice.commit()
        await alice.pull()
    revoked[BOB.public_key] = counts
    await alice.reread()
    alice.insert_text("body", alice.length("body"), "three")
    await alice.commit()
    await alice.pull()
    newcomer, events = await reading(log, counts)
    assert alice.text("body") == newcomer.text("body") == "one two three"
    assert reasons(events) == [REVOKED]
    assert not alice.is_read_only


@pytest.mark.parametrize("page_size", [1, 1000])
async def test_a_jump_that_does_not_count_makes_room_for_what_is_after_it_only(
    page_size: int,
) -> None:
    far = Set("far", f"{ALICE.public_key}:k", 2 * COUNTER_JUMP_MAX - 4, "far")
    unproven = spoiled(write_packed(ALICE, [far], session="k", seq=1))
    near = Set("near", f"{ALICE.public_key}:k", 1, "near")
    proof = write_packed(ALICE, [near], session="k", seq=2, prev=link_of(unproven))
    log = logged([unproven, jump(COUNTER_JUMP_MAX - 1), proof], page_size=page_size)
    document, _ = await reading(log, {})
    assert document.materialize() == {"near": "near"}
    after = logged([jump(COUNTER_JUMP_MAX - 1), unproven, proof], page_size=page_size)
    document, _ = await reading(after, {})
    assert document.materialize() == {"far": "far", "near": "near"}


@pytest.mark.parametrize("wire", ["packed", "starfish"])
async def test_a_snapshot_tells_of_a_jump_that_does_not_count(wire: str) -> None:
    first = write_packed(ALICE, [Set("title", f"{ALICE.public_key}:k", 1, "a")], session="k")
    log, snapshots = logged([first, jump(COUNTER_JUMP_MAX)]), RiggedSnapshots()
    options = {"snapshot_store": snapshots, "wire": wire}
    producer, _ = await reading(log, {}, **options)
    await producer.snapshot()
    # Whoever starts from the snapshot has only its word for it.
    log.prune(log.newest_ts)
    document, _ = await reading(log, {}, **options)
    assert document.snapshot_verdict is SnapshotVerdict.TRUSTED
    # Nobody's own clock follows somebody who was revoked.
    assert document.crdt.counter == producer.crdt.counter == 1
    above = Set("title", f"{ALICE.public_key}:k", 2 * COUNTER_JUMP_MAX, "above")
    put_in(log, write_packed(ALICE, [above], session="k", seq=2, prev=link_of(first)))
    for reader in (producer, document):
        await reader.pull()
        assert reader.field("title") == "above"


async def test_a_snapshot_is_not_called_false_for_what_does_not_count_and_cannot_be_opened() -> (
    None
):
    log, snapshots = RiggedLog(), RiggedSnapshots()
    put_in(log, write_sealed(BOB, [Set("jump", BOBS, 99, 1)], epoch=1))
    title = Set("title", f"{CAROL.public_key}:k", 5, "hers")
    put_in(log, write_sealed(CAROL, [title], epoch=2, session="k"))
    producer, _ = await reading(log, {}, snapshot_store=snapshots, encryptor=keyed(1, 2))
    await producer.snapshot()
    newcomer, _ = await reading(
        log, {}, snapshot_store=snapshots, encryptor=keyed(2), posture="re-derive"
    )
    assert newcomer.snapshot_verdict is SnapshotVerdict.VERIFIED


async def test_what_the_owner_has_read_of_a_torn_session_counts_and_makes_no_snapshot_false() -> (
    None
):
    first = typed("a", 1, seq=1, prev=None)
    again = write_packed(BOB, [Set("title", BOBS, 9, "again")], seq=1, prev="ab" * 32)
    carols = write_packed(CAROL, [Set("t", f"{CAROL.public_key}:k", 5, 1)], session="k")
    log, snapshots = logged([first, carols, again]), RiggedSnapshots()
    counts = await counts_of(log)
    # It could be what the other one goes on from, as far as its seq says.
    put_in(log, write_packed(BOB, [Set("title", BOBS, 99, "later")], seq=1))
    producer, _ = await reading(log, counts, snapshot_store=snapshots)
    await producer.snapshot()
    newcomer, _ = await reading(
        log, counts, snapshot_store=snapshots, posture="trust-retain-tail", retain_tail_n=2
    )
    assert newcomer.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert newcomer.materialize() == {"body": ["a"], "t": 1, "title": "again"}


async def test_what_the_owner_had_not_read_of_a_torn_session_never_counts() -> None:
    first, second, third = abc()
    log, snapshots = logged([first, third]), RiggedSnapshots()
    counts, known = await counts_of(log), dict[str, Counts]()
    # Carol has read it, and signed it, before she knew.
    put_in(log, second)
    options: dict[str, Any] = {"snapshot_store": snapshots, "on_author_error": "skip"}
    carol = await opened(log, CAROL, revoked=known.get, **options)
    await carol.snapshot()
    known[BOB.public_key] = counts
    await carol.reread()
    documents = [carol]
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        documents.append((await reading(log, counts, snapshot_store=snapshots, posture=posture))[0])
        assert documents[-1].snapshot_verdict is SnapshotVerdict.NONE
    await documents[1].snapshot()
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        documents.append((await reading(log, counts, snapshot_store=snapshots, posture=posture))[0])
        assert documents[-1].snapshot_verdict.is_believed
    assert len({state_of(each) for each in documents}) == 1
    # Its text is where nothing of Bob is that counts.
    assert [each.text("body") for each in documents[:1]] == ["ac"]


@pytest.mark.parametrize("posture", ["trust", "re-derive"])
@pytest.mark.parametrize("page_size", [1, 2, 1000])
async def test_nothing_counts_that_leads_up_to_what_the_owner_had_not_read(
    posture: str, page_size: int
) -> None:
    first, second, third = abc()
    run = Insert("body", BOBS, 4, BOBS, 3, "d")
    fourth = write_packed(BOB, [run], session="s", seq=4, prev=link_of(third))
    counts = await counts_of(logged([first, fourth]))
    log = logged([first, second, third, fourth], page_size=page_size)
    document, events = await reading(log, counts, posture=posture)
    assert document.text("body") == "ad"
    assert reasons(events) == [REVOKED, REVOKED]


async def test_what_counts_of_a_session_from_before_a_deletion_is_told_by_its_seqs() -> None:
    log, known = RiggedLog(), dict[str, Counts]()
    options: dict[str, Any] = {"snapshot_store": RiggedSnapshots(), "revoked": known.get}
    bobs = [await opened(log, BOB, session_nonce=session, **options) for session in "st"]
    for bob in bobs:
        bob.set_field("title", "old")
        await bob.commit()
    await (await opened(log, ALICE, **options)).delete_document()
    # Nothing of the other session leads up to this one, and nobody remembers how that ended.
    bobs[0].set_field("title", "new")
    await bobs[0].commit()
    await (await opened(log, ALICE, **options)).snapshot()
    alice = await opened(log, ALICE, **options)
    known[BOB.public_key] = alice.counted(BOB.public_key)
    alice.set_field("done", True)
    await alice.commit()
    await alice.snapshot()
    reader = await opened(log, CAROL, posture="re-derive", **options)
    assert reader.snapshot_verdict is SnapshotVerdict.VERIFIED
    assert reader.materialize() == {"done": True, "title": "new"}


async def test_what_is_no_roll_back_any_more_is_not_raised() -> None:
    log, snapshots, known = logged(abc()), RiggedSnapshots(), dict[str, Counts]()
    carol = await opened(log, CAROL, snapshot_store=snapshots, revoked=known.get)
    alice, _ = await reading(log, {}, snapshot_store=snapshots)
    await alice.delete_document()
    # Carol has read more of Bob than counts, and hears of that after the deletion.
    with pytest.raises(ReadOnlyError):
        await carol.snapshot()
    known[BOB.public_key] = {}
    await carol.reread()
    assert not carol.is_read_only


async def test_the_jumps_of_the_revoked_fill_no_memory() -> None:
    count = UNPROVEN_MAX + 10
    jumps = [jump(counter, seq=counter) for counter in range(1, count + 1)]
    document, _ = await reading(logged(jumps), {})
    assert len(document._log._passed_over) == UNPROVEN_MAX
    assert document._log._counter_before(1) == 10
    assert document._log.counter == count


async def read_late(log: RiggedLog, counts: Counts) -> tuple[WalDocument, WalDocument]:
    """Who had all keys from the start, and who got that of epoch 2 after everything was read."""
    early = keyed(1)
    late, _ = await reading(RiggedLog(log.elements, page_size=1), counts, encryptor=early)
    early.adopt(ContentKeys(2, {epoch: bytes([epoch]) * 32 for epoch in (1, 2)}))
    await late.retry_unreadable()
    whole, _ = await reading(log, counts, encryptor=keyed(1, 2))
    return whole, late


async def test_late_keys_open_what_counts_in_the_order_of_the_log() -> None:
    far = write_sealed(BOB, [Set("far", BOBS, COUNTER_JUMP_MAX + 9, 1)], epoch=2)
    carols = Set("title", f"{CAROL.public_key}:k", 10, "hers")
    # Only with this one is it known that the first one counts, which is too far above everything.
    last = write_sealed(BOB, [Set("last", BOBS, 20, 1)], epoch=1, seq=2, prev=link_of(far))
    log = logged([far, write_sealed(CAROL, [carols], epoch=2, session="k"), last])
    owner = await opened(log, ALICE, encryptor=keyed(1, 2), on_author_error="skip")
    whole, late = await read_late(log, owner.counted(BOB.public_key))
    assert whole.materialize() == late.materialize() == {"last": 1, "title": "hers"}


@pytest.mark.parametrize("epoch", [1, 2])
async def test_a_jump_that_does_not_count_makes_room_once_its_key_is_there(epoch: int) -> None:
    jumped = write_sealed(BOB, [Set("far", BOBS, COUNTER_JUMP_MAX - 9, 1)], epoch=2)
    above = Set("title", f"{CAROL.public_key}:k", COUNTER_JUMP_MAX + 9, "above")
    log = logged([jumped, write_sealed(CAROL, [above], epoch=epoch, session="k")])
    whole, late = await read_late(log, {})
    assert whole.materialize() == late.materialize() == {"title": "above"}


@pytest.mark.parametrize("counter", [2, 4, 9])
async def test_an_honest_snapshot_of_what_was_put_elsewhere_is_not_called_false(
    counter: int,
) -> None:
    elements = abc()
    counts = await counts_of(logged(elements))
    log, snapshots = logged([behind(counter), *elements]), RiggedSnapshots()
    document, _ = await reading(log, counts, snapshot_store=snapshots)
    await document.snapshot()
    again, _ = await reading(log, counts, snapshot_store=snapshots, posture="re-derive")
    assert again.snapshot_verdict == SnapshotVerdict.VERIFIED
    assert again.text("body") == document.text("body")


async def test_a_snapshot_of_a_branch_that_was_left_behind_is_passed_over() -> None:
    elements = abc()
    run = Insert("body", BOBS, 9, BOBS, 3, "FORK")
    fork = write_packed(BOB, [run], session="s", seq=2, prev=link_of(elements[0]))
    log, snapshots = logged([*elements, fork]), RiggedSnapshots()
    owner = await opened(log, ALICE, snapshot_store=snapshots)
    await owner.snapshot()
    counts = await counts_of(logged(elements))
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        document, _ = await reading(log, counts, snapshot_store=snapshots, posture=posture)
        assert document.text("body") == "abc"
    # But what the owner had read counts, on whichever branch it is.
    counts = owner.counted(BOB.public_key)
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        document, _ = await reading(log, counts, snapshot_store=snapshots, posture=posture)
        assert document.text("body") == owner.text("body") == "abcFORK"


@pytest.mark.parametrize("posture", ["trust", "trust-retain-tail", "re-derive"])
@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_snapshot_of_a_branch_that_nobody_goes_on_from_is_passed_over_once_that_is_seen(
    posture: str, is_cut: bool
) -> None:
    first, second, third = abc()
    run = Insert("body", BOBS, 9, BOBS, 1, "FORK")
    fork = write_packed(BOB, [run], session="s", seq=2, prev=link_of(first))
    log, snapshots = logged([first, fork]), RiggedSnapshots()
    producer = await opened(log, ALICE, snapshot_store=snapshots)
    producer.set_text("note", "one")
    producer.set_text("note", "two")
    await producer.commit()
    await producer.pull()
    readers = {"Alice": producer.current_checkpoint}
    await producer.snapshot(collect=readers if is_cut else None)
    # Its last element has a seq that counts; what leads to the end leaves it aside.
    for element in (second, third):
        put_in(log, element)
    counts = await counts_of(logged([first, second, third]))
    document, _ = await reading(log, counts, snapshot_store=snapshots, posture=posture)
    assert (document.text("body"), document.text("note")) == ("abc", "two")
    assert document.snapshot_verdict is SnapshotVerdict.NONE
    await document.snapshot()
    again, _ = await reading(log, counts, snapshot_store=snapshots, posture="re-derive")
    assert again.snapshot_verdict is SnapshotVerdict.VERIFIED
    assert state_of(again) == state_of(document)
    assert ("cuts" in snapshots.writes[-1]["state"]["x"]) == is_cut


async def overreached(*, is_cut: bool) -> tuple[RiggedLog, RiggedSnapshots, Counts]:
    """Somebody who has not heard that Bob was revoked makes a snapshot of all that he has signed.

    He goes on with a session that another one has left behind, from the first of its elements, and
    has the highest counter then.
    """
    own = f"{BOB.public_key}:t"
    first = typed("a", 1, seq=1, prev=None, session="t")
    second = typed("b", 2, seq=2, prev=link_of(first), session="t")
    run = Insert("body", BOBS, 3, own, 2, "c")
    third = write_packed(BOB, [run], session="s", seq=1, prev=link_of(second))
    log, snapshots = logged([first, second, third]), RiggedSnapshots()
    counts = await counts_of(log)
    runs: list[Run] = [
        Insert("body", own, 40, own, 1, "FORK"),
        Remove("body", own, 44, own, 40),
    ]
    put_in(log, write_packed(BOB, runs, session="t", seq=2, prev=link_of(first)))
    producer = await opened(log, ALICE, snapshot_store=snapshots)
    await producer.snapshot(collect={} if is_cut else None)
    return log, snapshots, counts


@pytest.mark.parametrize("posture", ["trust", "trust-retain-tail", "re-derive"])
@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_snapshot_of_more_than_counts_is_replaced_though_nothing_was_written_since(
    posture: str, is_cut: bool
) -> None:
    log, snapshots, counts = await overreached(is_cut=is_cut)
    document, _ = await reading(log, counts, snapshot_store=snapshots, posture=posture)
    assert document.text("body") == "abc"
    await document.snapshot()
    again, _ = await reading(log, counts, snapshot_store=snapshots, posture="re-derive")
    assert again.snapshot_verdict is SnapshotVerdict.VERIFIED
    assert state_of(again) == state_of(document)
    assert ("cuts" in snapshots.writes[-1]["state"]["x"]) == is_cut


class FallenBehind(RiggedLog):
    """A log that ends before what was read of it."""

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        page = await super().pull(document_key, checkpoint)
        if not page:
            raise LogBehindError(head=checkpoint, checkpoint=checkpoint + 9)
        return page


async def test_a_roll_back_is_told_though_the_snapshot_covers_more_than_counts() -> None:
    log, snapshots, counts = await overreached(is_cut=True)
    events: list[Event] = []
    late = document_of(
        FallenBehind(log.elements),
        CAROL,
        revoked={BOB.public_key: counts}.get,
        on_author_error="skip",
        on_event=events.append,
        snapshot_store=snapshots,
    )
    with pytest.raises(RollbackDetectedError):
        await late.open()
    assert late.text("body") == "abc"
    assert [each.head for each in events if isinstance(each, Rollback)] == [4]


async def test_a_gap_of_a_peer_without_sessions_keeps_nobody_from_a_peers_snapshot() -> None:
    runs = [Insert("body", BOBS, 1, "", 0, "a"), Insert("body", BOBS, 2, BOBS, 1, "b")]
    elements = [
        write_starfish(BOB, to_ops([run]), seq=seq) for run, seq in zip(runs, (1, 3), strict=True)
    ]
    log, snapshots = logged(elements), RiggedSnapshots()
    peer = await opened(log, ALICE, snapshot_store=snapshots, wire="starfish", chained=False)
    await peer.snapshot(over_gaps=True)
    document, _ = await reading(log, await counts_of(log), snapshot_store=snapshots)
    assert document.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert document.text("body") == "ab"


async def test_a_barrier_below_which_nothing_counts_can_be_carried_on() -> None:
    log, snapshots = logged(abc()), RiggedSnapshots()
    producer = await opened(log, ALICE, snapshot_store=snapshots)
    await producer.snapshot(collect={})
    document, _ = await reading(log, {}, snapshot_store=snapshots)
    await document.snapshot()
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        again, _ = await reading(log, {}, snapshot_store=snapshots, posture=posture)
        assert again.snapshot_verdict.is_believed
        assert state_of(again) == state_of(document)


async def test_a_deletion_of_more_than_counts_is_kept_at_the_place_of_a_barrier() -> None:
    elements, snapshots, known = abc(), RiggedSnapshots(), dict[str, Counts]()
    log = logged(elements)
    counts = await counts_of(log)
    put_in(log, forged("X", seq=4, prev=link_of(elements[-1])))
    known[BOB.public_key] = counts
    owner = await opened(
        log, ALICE, snapshot_store=snapshots, revoked=known.get, on_author_error="skip"
    )
    await owner.snapshot(collect={})
    other = await opened(log, CAROL, snapshot_store=snapshots)
    await other.delete_document()
    await owner.snapshot()
    document, _ = await reading(log, counts, snapshot_store=snapshots)
    assert document.text("body") == owner.text("body") == ""


async def test_what_was_read_of_the_revoked_counts_though_a_relay_withholds_it() -> None:
    for hidden in ({1, 2, 3}, {2}, {3}, {2, 3}):
        log, snapshots = logged(abc()), RiggedSnapshots()
        producer = await opened(log, CAROL, snapshot_store=snapshots)
        await producer.snapshot()
        withholding = log.served()
        owner = await opened(withholding, ALICE, snapshot_store=snapshots)
        expected = await owner.recount(BOB.public_key)
        withholding.elements = [
            element for element in withholding.elements if element["ts"] not in hidden
        ]
        assert await owner.recount(BOB.public_key) == expected
        document, _ = await reading(log, expected)
        assert document.text("body") == "abc"


async def test_what_was_written_above_others_jumps_counts_however_much_it_is() -> None:
    first = jump(COUNTER_JUMP_MAX)
    log = logged([first, jump(2 * COUNTER_JUMP_MAX, seq=2)])
    snapshots, carol = RiggedSnapshots(), await opened(log, CAROL)
    for at in range(UNPROVEN_MAX + 8):
        carol.insert_text("body", at, "x")
        await carol.commit()
    producer = await opened(log, ALICE, snapshot_store=snapshots)
    await producer.snapshot()
    owner = await opened(log, ALICE, snapshot_store=snapshots)
    (counted,) = (await owner.recount(CAROL.public_key)).values()
    assert isinstance(counted, Counted)
    assert (counted.seq, counted.torn) == (UNPROVEN_MAX + 8, None)


@pytest.mark.parametrize("posture", ["trust", "trust-retain-tail", "re-derive"])
async def test_what_waits_in_a_snapshot_for_somebody_revoked_is_read_in_the_log(
    posture: str,
) -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    # There is no seventh character of his.
    run = Insert("body", BOBS, 10, BOBS, 7, "HERE")
    elements.append(write_packed(BOB, [run], session="s", seq=4, prev=link_of(elements[-1])))
    log = logged(elements)
    await (await opened(log, ALICE, snapshot_store=snapshots)).snapshot()
    # Whoever revokes has read further than the snapshot reaches.
    last = write_packed(
        BOB, [Set("title", BOBS, 20, 1)], session="s", seq=5, prev=link_of(elements[-1])
    )
    put_in(log, last)
    counts = await counts_of(log)
    expected, _ = await reading(log, counts)
    assert expected.text("body") == "abcHERE"
    document, events = await reading(log, counts, snapshot_store=snapshots, posture=posture)
    assert (state_of(document), reasons(events)) == (state_of(expected), [])
    await document.snapshot()
    after, _ = await reading(log, counts, snapshot_store=snapshots, posture=posture)
    assert after.snapshot_verdict.is_believed
    assert state_of(after) == state_of(expected)


async def test_what_never_came_before_a_revocation_is_not_taken_for_lost() -> None:
    elements = abc()
    revoked: dict[str, Counts] = {}
    log = logged(elements[2:])
    document = await opened(log, CAROL, revoked=revoked.get, on_author_error="skip")
    revoked[BOB.public_key] = await counts_of(logged(elements[:1]))
    await document.reread()
    for element in elements[:2]:
        put_in(log, element)
    await document.pull()
    assert (document.text("body"), document.is_read_only) == ("a", False)


async def test_what_waits_for_the_revoked_is_not_forgotten_at_a_place_it_may_leave() -> None:
    elements = abc()
    counts = await counts_of(logged(elements))
    typing = [behind(9)]
    for seq in range(2, 20):
        run = Set("title", f"{ALICE.public_key}:k", 40 + 10 * seq, seq)
        prev = link_of(typing[-1])
        typing.append(write_packed(ALICE, [run], session="k", seq=seq, prev=prev))
    order = [*typing[:12], *elements, *typing[12:]]
    log = logged([])
    document, _ = await reading(log, counts, history_max=2)
    for element in order:
        put_in(log, element)
        await document.pull()
    fresh, _ = await reading(logged(order), counts)
    assert state_of(document) == state_of(fresh)
    assert len(document.history()) < len(fresh.history())


async def judging_again(honest: int) -> int:
    """How much work it is to judge again what was too far, in a log of so many elements."""
    elements: list[JsonElement] = []
    for number in range(1, honest + 1):
        run = Set("title", f"{ALICE.public_key}:k{number}", number, number)
        elements.append(write_packed(ALICE, [run], session=f"k{number}", seq=1))
    for number in range(1, 41):
        run = Set("far", f"{BOB.public_key}:f{number}", 4 * COUNTER_JUMP_MAX, number)
        elements.append(write_packed(BOB, [run], session=f"f{number}", seq=1))
    run = Set("late", BOBS, 1, 1)
    unproven = spoiled(write_packed(BOB, [run], session="s", seq=1))
    run = Set("late", BOBS, 2, 2)
    proof = write_packed(BOB, [run], session="s", seq=2, prev=link_of(unproven))
    log = logged([*elements, unproven])
    document = await opened(log, CAROL, on_author_error="skip")
    put_in(log, proof)
    return calls_of(lambda: document._log.read(log.elements[-1:]))


async def test_what_is_too_far_is_judged_again_in_little_time() -> None:
    assert await judging_again(400) < 4 * await judging_again(40)


async def test_what_could_not_be_taken_leads_up_to_what_counts_as_well() -> None:
    first = abc()[0]
    second = write_packed(BOB, [Set("x", BOBS, 2**40, 1)], session="s", seq=2, prev=link_of(first))
    third = typed("b", 2, seq=3, prev=link_of(second))
    log, snapshots = logged([first, second, third]), RiggedSnapshots()
    counts = (await opened(log, ALICE, on_author_error="skip")).counted(BOB.public_key)
    assert isinstance(counts["s"], Counted)
    document, _ = await reading(log, counts, snapshot_store=snapshots)
    assert (document.text("body"), document.detected_gaps()) == ("ab", [])
    await document.snapshot()


@pytest.mark.parametrize("goes_on_from", [1, 2])
async def test_who_starts_from_a_snapshot_waits_for_nothing_that_is_in_it(
    goes_on_from: int,
) -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    log = logged(elements)
    await (await opened(log, ALICE, snapshot_store=snapshots)).snapshot()
    # Another device of his had read so much.
    prev = link_of(elements[goes_on_from])
    put_in(log, typed("d", 1, seq=1, prev=prev, session="t"))
    counts = await counts_of(log)
    document, _ = await reading(log, counts, snapshot_store=snapshots, posture="trust")
    assert sorted(document.text("body")) == ["a", "b", "c", "d"]
    assert document.own_snapshot() is not None
    await document.snapshot()


async def test_nobody_waits_for_what_counts_by_its_seq_and_is_here() -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    last = typed("d", 1, seq=1, prev=link_of(elements[2]), session="t")
    counts: Counts = {"s": 3, "t": Counted(1, link_of(last), 1)}
    document, _ = await reading(logged([*elements, last]), counts, snapshot_store=snapshots)
    assert sorted(document.text("body")) == ["a", "b", "c", "d"]
    await document.snapshot()


async def test_what_is_withheld_above_a_snapshot_is_missed() -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    await (await opened(logged(elements[:2]), ALICE, snapshot_store=snapshots)).snapshot()
    last = typed("d", 1, seq=1, prev=link_of(elements[2]), session="t")
    counts = await counts_of(logged([*elements, last]))
    log = logged(elements[:2])
    put_in(log, last)
    document, _ = await reading(log, counts, snapshot_store=snapshots, posture="trust")
    assert document.detected_gaps() == [Gap(BOB.public_key, 3, 4, "s")]
    with pytest.raises(SnapshotRefusedError):
        await document.snapshot()


@pytest.mark.parametrize("counter", [2, 30])
@pytest.mark.parametrize("are_named", [True, False])
async def test_what_hangs_on_what_does_not_count_is_kept_at_one_place_in_any_order(
    are_named: bool, counter: int
) -> None:
    """Whether or not its counter is below those that count, and whatever comes first."""
    first = typed("a", 1, seq=1, prev=None)
    run = Insert("body", BOBS, 5, BOBS, 1, "b")
    second = write_packed(BOB, [run], session="s", seq=2, prev=link_of(first))
    counts = await counts_of(logged([first, second])) if are_named else {"s": 2}
    late = Insert("body", BOBS, counter, BOBS, 1, "X")
    uncounted = write_packed(BOB, [late], session="s", seq=3, prev=link_of(second))
    run = Insert("body", f"{ALICE.public_key}:k", 40, BOBS, counter, "mine")
    kept = write_packed(ALICE, [run], session="k", seq=1)
    for order in permutations([first, second, uncounted, kept]):
        snapshots = RiggedSnapshots()
        for page_size, posture in [(1, "trust"), (1000, "trust"), (1000, "re-derive")]:
            log = logged(list(order), page_size=page_size)
            document, events = await reading(log, counts, posture=posture)
            assert document.text("body") == ("amineb" if counter == 2 else "abmine")
            displaced = [event.replica for event in events if isinstance(event, Displaced)]
            if are_named:
                assert displaced == [f"{ALICE.public_key}:k"]
            else:
                # Where no links tell, what comes too early is told as well, and then stands right.
                assert displaced.count(f"{ALICE.public_key}:k") == 1
            assert document.own_snapshot() is not None
        # So it is for whoever starts from a snapshot of it.
        document, _ = await reading(log, counts, snapshot_store=snapshots)
        await document.snapshot()
        again, _ = await reading(log, counts, snapshot_store=snapshots, posture="trust")
        assert state_of(again) == state_of(document)


async def test_what_hangs_on_a_branch_that_does_not_count_is_kept_and_told() -> None:
    first, second = abc()[:2]
    run = Insert("body", BOBS, 5, BOBS, 1, "X")
    twin = write_packed(BOB, [run], session="s", seq=2, prev=link_of(first))
    third = write_packed(
        BOB, [Insert("body", BOBS, 10, BOBS, 2, "c")], session="s", seq=3, prev=link_of(second)
    )
    run = Insert("body", f"{ALICE.public_key}:k", 40, BOBS, 5, "mine")
    log = logged([first, second, twin, third, write_packed(ALICE, [run], session="k", seq=1)])
    counts = await counts_of(logged([first, second, third]))
    document, events = await reading(log, counts)
    assert document.text("body") == "abminec"
    assert any(isinstance(event, Displaced) for event in events)


async def test_what_waits_is_not_taken_for_lost() -> None:
    elements = abc()
    log, revoked = logged(elements[:2]), dict[str, Counts]()
    there = await opened(log, CAROL, revoked=revoked.get)
    revoked[BOB.public_key] = await counts_of(logged(elements))
    # Who knows of the revocation first reads anew what the relay has so far.
    assert not there.counts_all(BOB.public_key)
    await there.reread()
    assert (there.is_read_only, there.text("body")) == (False, "")
    put_in(log, elements[2])
    await there.pull()
    assert (there.text("body"), there.detected_gaps()) == ("abc", [])


async def test_an_element_that_counts_by_its_seq_leads_to_no_other() -> None:
    elements = abc()
    counts: Counts = {"s": named(elements), "t": 1}
    stray = forged("X", seq=2, prev=link_of(elements[0]))
    plain = forged("Y", seq=1, prev=link_of(stray), session="t")
    log = logged([*elements, stray, plain, plain, stray])
    document, events = await reading(log, counts)
    assert document.text("body") == "abcY"
    assert reasons(events) == [REVOKED]


def named(elements: list[JsonElement]) -> Counted:
    return Counted(len(elements), link_of(elements[-1]), 3)


async def test_the_revoked_fill_no_memory_with_what_might_count() -> None:
    elements = abc()
    counts = await counts_of(logged(elements))
    log = logged([forged(f"{number}", seq=2) for number in range(20)])
    document, events = await reading(log, counts)
    assert len(document._log.revocations.unlinked) == TWINS_WAITING_MAX
    assert len(events) == 20 - TWINS_WAITING_MAX


async def test_a_roster_that_names_seqs_alone_lets_each_seq_count_once() -> None:
    log = logged([*abc(), forged("X", seq=2), forged("Y", seq=4)])
    document, events = await reading(log, {"s": 3})
    assert (document.text("body"), reasons(events)) == ("abc", [REVOKED, REVOKED])


async def test_a_peer_without_sessions_does_not_write_on_with_old_seqs_either() -> None:
    def op(counter: int, text: str) -> dict[str, Any]:
        clock = {"c": counter, "r": f"{BOB.public_key}:s"}
        return {"t": "set", "reg": text, "clock": clock, "value": text}

    log = logged([write_starfish(BOB, [op(seq, "ab"[seq - 1])], seq=seq) for seq in (1, 2)])
    counts = await counts_of(log)
    put_in(log, write_starfish(BOB, [op(9, "X")], seq=2))
    document, events = await reading(log, counts)
    assert (document.materialize(), reasons(events)) == ({"a": "a", "b": "b"}, [REVOKED])


async def test_who_has_sessions_does_not_write_on_without_one() -> None:
    log, snapshots = RiggedLog(), RiggedSnapshots()
    bob = await opened(log, BOB, wire="starfish", snapshot_store=snapshots)
    bob.set_field("a", 1)
    await bob.commit()
    counts = await counts_of(log)
    await bob.snapshot()
    clock = {"c": 9, "r": f"{BOB.public_key}:s"}
    put_in(log, write_starfish(BOB, [{"t": "set", "reg": "X", "clock": clock, "value": 1}], seq=1))
    for store in (None, snapshots):
        document, events = await reading(log, counts, snapshot_store=store, posture="trust")
        assert (document.materialize(), reasons(events)) == ({"a": 1}, [REVOKED])
    assert document.snapshot_verdict is SnapshotVerdict.TRUSTED


async def test_links_tell_what_counts_of_version_1_as_well() -> None:
    log = RiggedLog()
    bob = await opened(log, BOB, wire="starfish")
    for text in ("a", "ab", "abc"):
        bob.set_text("body", text)
        await bob.commit()
    counts = await counts_of(log)
    element = bob._outbox._prev
    bob._outbox._seq, bob._outbox._author_seq = 1, 1
    bob.set_text("body", "abcX")
    await bob.commit()
    assert element in {each.link for each in counts.values() if isinstance(each, Counted)}
    document, events = await reading(log, counts)
    assert (document.text("body"), reasons(events)) == ("abc", [REVOKED])


async def test_what_is_in_a_snapshot_that_names_no_links_counts_by_its_seqs() -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    log = logged(elements)
    await (await opened(log, ALICE, snapshot_store=snapshots)).snapshot()
    assert isinstance(snapshots.document, dict)
    content = {name: snapshots.document[name] for name in ("state", "uptoTs", "writerSeq")}
    del content["state"]["x"]["heads"]
    snapshots.document = signed_snapshot({**content, "producedBy": ALICE.public_key}, ALICE)
    put_in(log, forged("X", seq=1, prev=link_of(elements[2]), session="t"))
    owner = await opened(log, ALICE, snapshot_store=snapshots, posture="trust")
    counts = owner.counted(BOB.public_key)
    assert (counts["s"], type(counts["t"])) == (3, Counted)
    put_in(log, forged("Y", seq=2, prev=link_of(elements[0])))
    for store in (None, snapshots):
        document, events = await reading(log, counts, snapshot_store=store, posture="trust")
        assert (document.text("body"), reasons(events)) == ("abcX", [REVOKED])


@pytest.mark.parametrize("how", ["all of it counts", "one more", "a twin", "a forgotten twin"])
async def test_a_snapshot_names_those_alone_of_whom_something_is_left_out(how: str) -> None:
    elements, snapshots = abc(), RiggedSnapshots()
    counts = await counts_of(logged(elements))
    # What leads up to the last one that counts is known to count once that one is there.
    log = logged(elements)
    document, _ = await reading(log, counts, snapshot_store=snapshots, history_max=2)
    if how == "one more":
        put_in(log, forged("d", seq=4))
    elif how != "all of it counts":
        put_in(log, forged("X", seq=2))
    await document.pull()
    if how == "a forgotten twin":
        alice = await opened(log)
        for number in range(12):
            alice.set_field("title", number)
            await alice.commit()
        await document.pull()
        assert not document._log.revocations._unlinked
    extension = (await document.snapshot())["state"]["x"]
    assert ("without" in extension) is (how != "all of it counts")
    assert extension.get("without", [BOB.public_key]) == [BOB.public_key]


async def test_it_is_known_whether_all_that_was_read_counts() -> None:
    elements = abc()
    log = logged(elements)
    revoked: dict[str, Counts] = {}
    there = await opened(log, CAROL, revoked=revoked.get)
    put_in(log, forged("X", seq=2, prev=link_of(elements[0])))
    twice = await opened(log, ALICE, revoked=revoked.get)
    assert there.counts_all(BOB.public_key)
    revoked[BOB.public_key] = await counts_of(logged(elements))
    assert there.counts_all(BOB.public_key)
    assert not twice.counts_all(BOB.public_key)
    with pytest.raises(Exception, match="revoked"):
        await twice.reread()
    assert (twice.text("body"), twice.counts_all(BOB.public_key)) == ("abc", True)


# ── what names an element that comes later, or never ───────────────────────────────────


@pytest.mark.parametrize("named", [5, 6, 8, 999])
async def test_no_op_divides_those_who_read_before_a_revocation_from_those_after(
    named: int,
) -> None:
    carols = f"{CAROL.public_key}:s"
    log, snapshots = RiggedLog(), RiggedSnapshots()
    ops: list[Run] = [
        Insert("body", carols, 1020, BOBS, named, "C"),
        Remove("body", carols, 1021, BOBS, 5),
    ]
    put_in(log, write_packed(CAROL, ops))
    put_in(log, write_packed(BOB, [Insert("body", BOBS, 5, "", 0, "bob")]))
    revoked: dict[str, Counts] = {}
    there = await opened(log, ALICE, revoked=revoked.get, snapshot_store=snapshots)
    await there.snapshot()
    counts = revoked[BOB.public_key] = there.counted(BOB.public_key)
    if not there.counts_all(BOB.public_key):
        await there.reread()
    states = {state_of(there)}
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        new, events = await reading(log, counts, snapshot_store=snapshots, posture=posture)
        assert reasons(events) == []
        states.add(state_of(new))
    states.add(state_of((await reading(log, counts))[0]))
    assert len(states) == 1


# ── snapshots of what counts ───────────────────────────────────────────────────────────


async def assert_starts_from(
    log: RiggedLog, counts: Counts, owner: WalDocument, snapshots: RiggedSnapshots
) -> None:
    """The owner's snapshot is believed, and not written again."""
    await owner.snapshot()
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        document, _ = await reading(log, counts, snapshot_store=snapshots, posture=posture)
        assert document.snapshot_verdict.is_believed
        assert state_of(document) == state_of(owner)
    written = len(snapshots.writes)
    await document.snapshot()
    await owner.snapshot()
    assert len(snapshots.writes) == written


@pytest.mark.parametrize("seq", [1, 2, 3])
@pytest.mark.parametrize("page_size", [1, 1000])
async def test_a_branch_that_does_not_count_keeps_nobody_from_starting_from_a_snapshot(
    seq: int, page_size: int
) -> None:
    elements = abc()
    prev = link_of(elements[seq - 2]) if seq > 1 else None
    log = logged([*elements, forged("branch", seq=seq, prev=prev)], page_size=page_size)
    snapshots, revoked = RiggedSnapshots(), dict[str, Counts]()
    owner = await opened(
        log, ALICE, revoked=revoked.get, snapshot_store=snapshots, on_author_error="skip"
    )
    revoked[BOB.public_key] = counts = owner.counted(BOB.public_key)
    assert not owner.counts_all(BOB.public_key)
    await owner.reread()
    owner.set_field("title", "after")
    await owner.commit()
    await assert_starts_from(log, counts, owner, snapshots)


@pytest.mark.parametrize("history_max", [None, 1])
async def test_a_relay_that_repeats_elements_keeps_nobody_from_starting_from_a_snapshot(
    history_max: int | None,
) -> None:
    log, snapshots = RiggedLog(page_size=1), RiggedSnapshots()
    for _ in range(2):
        bob = await opened(log, BOB)
        for number in range(3):
            bob.set_field("count", number)
            await bob.commit()
            await bob.pull()
    revoked: dict[str, Counts] = {}
    owner = await opened(
        log, ALICE, revoked=revoked.get, snapshot_store=snapshots, history_max=history_max
    )
    revoked[BOB.public_key] = counts = owner.counted(BOB.public_key)
    # The session of these has been gone on from by another one.
    log.replay(0)
    log.replay(2)
    await owner.pull()
    await assert_starts_from(log, counts, owner, snapshots)


# ── what a log has lost ────────────────────────────────────────────────────────────────


async def rejoined(log: RiggedLog, document: WalDocument, kept: int) -> None:
    """Have a log lose its newest elements, and go on with it."""
    elements = document.elements()
    del log.elements[kept:]
    await document.rejoin(log, None, elements=lambda: elements[kept:], keep=lambda _: None)


async def with_bobs_stranded(**options: Any) -> tuple[RiggedLog, JsonElement, WalDocument]:
    """A log that has lost an element of Bob's, the element, and who has read it there."""
    title = Set("title", f"{ALICE.public_key}:k", 1, "title")
    log = logged([write_packed(ALICE, [title], session="k")])
    lost = put_in(log, write_packed(BOB, [Set("x", BOBS, 2, "bob's")], session="s"))
    document = await opened(log, CAROL, on_author_error="skip", **options)
    await rejoined(log, document, 1)
    assert (document.stranded, document.field("x")) == (1, "bob's")
    return log, lost, document


@pytest.mark.parametrize("how", ["revoked", "no writer"])
async def test_what_comes_back_to_a_log_counts_as_it_does_for_others(how: str) -> None:
    revoked, writers = dict[str, Counts](), {each.public_key for each in (ALICE, BOB, CAROL)}
    options: dict[str, Any] = {"revoked": revoked.get, "writers": writers.__contains__}
    log, lost, document = await with_bobs_stranded(**options)
    if how == "revoked":
        revoked[BOB.public_key] = {}
    else:
        writers.discard(BOB.public_key)
    put_in(log, lost)
    await document.pull()
    assert document.stranded == 0
    fresh = await opened(log, ALICE, on_author_error="skip", **options)
    assert document.materialize() == fresh.materialize() == {"title": "title"}


async def test_it_is_known_whether_what_is_stranded_counts() -> None:
    revoked: dict[str, Counts] = {}
    _, lost, document = await with_bobs_stranded(revoked=revoked.get)
    revoked[BOB.public_key] = {"s": Counted(1, link_of(lost), 0)}
    assert document.counts_all(BOB.public_key)
    revoked[BOB.public_key] = {}
    assert not document.counts_all(BOB.public_key)
    await document.reread()
    assert document.materialize() == {"title": "title"}
    assert document.counts_all(BOB.public_key)


async def test_what_is_too_far_above_everything_for_others_is_so_for_who_wrote_it() -> None:
    log = logged([jump(times * COUNTER_JUMP_MAX, seq=times) for times in (1, 2)])
    document = await opened(log, ALICE, on_author_error="skip")
    await rejoined(log, document, 0)
    document.set_field("title", "above what is stranded")
    await document.commit()
    await document.pull()
    fresh = await opened(log, CAROL, on_author_error="skip")
    assert (document.field("title"), fresh.field("title")) == (None, None)
    assert [each.author for each in document.rejected()] == [ALICE.public_key]
    # It is in the log, and is not sent again.
    await document.commit()
    assert (document.unconfirmed, len(log.received)) == (0, 1)


# ── how it is found in time ────────────────────────────────────────────────────────────


def test_the_counters_before_a_place_are_those_of_all_that_is_before_it() -> None:
    parts = [stamped(ts, counter) for ts, counter in ((2, 5), (4, 3), (7, 9))]
    highs = Highs(parts)
    assert [highs.before(ts) for ts in range(1, 10)] == [0, 0, 5, 5, 5, 5, 5, 9, 9]
    highs.enter(7)
    assert [highs.before(ts) for ts in range(5, 9)] == [7, 7, 7, 9]
    assert Highs([]).before(5) == 0
    passing = Highs(parts, [(3, 4), (5, 8)])
    assert [passing.before(ts) for ts in range(1, 10)] == [0, 0, 5, 5, 5, 8, 8, 9, 9]


def stamped(ts: int, counter: int) -> Entry:
    """An element with one op."""
    runs: list[Run] = [Set("x", BOBS, counter, ts)]
    return Entry(Element(ts, b"{}", BOB.public_key, ""), "", None, None, runs)


async def test_who_writes_far_above_everything_has_no_snapshot_called_false() -> None:
    log, store, known = RiggedLog(), RiggedSnapshots(), dict[str, Counts]()
    options: dict[str, Any] = {
        "snapshot_store": store,
        "revoked": known.get,
        "on_author_error": "skip",
    }
    bob, prev = f"{BOB.public_key}:s", None
    for seq in (1, 2, 3):
        run = Set("title", bob, COUNTER_JUMP_MAX + seq, seq)
        element = put_in(log, write_packed(BOB, [run], session="s", seq=seq, prev=prev))
        prev = link_of(element)
    alice = await opened(log, ALICE, **options)
    alice.insert_text("body", 0, "hello")
    await alice.commit()
    await alice.pull()
    assert len(alice.rejected()) == 3
    known[BOB.public_key] = alice.counted(BOB.public_key)
    await alice.reread()
    await alice.snapshot()
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        newcomer = await opened(log, CAROL, posture=posture, **options)
        assert newcomer.snapshot_verdict.is_believed
        assert newcomer.text("body") == "hello"
