"""However a log is cut into parts, it folds to the same, and to what a document shows of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.folding_logs import (
    ARCHIVE,
    RULES,
    Item,
    Script,
    at_once,
    fold_items,
    in_parts,
    raw,
)
from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    KEY,
    MALLORY,
    MEMBERS,
    RiggedLog,
    RiggedSnapshots,
    keyed,
    link_of,
    opened,
    put_in,
    spoiled,
    state_of,
    write_packed,
    write_starfish,
)
from walstore.canon import canonical_text
from walstore.crdt import to_ops
from walstore.crdt.packed_state import StateTooLargeError
from walstore.crdt.runs import Insert, Set
from walstore.document import WalDocument
from walstore.document.folding import Folded, FoldRules, ReadAgain, fold
from walstore.document.ports import RawElement
from walstore.document.snapshot import Snapshot, read_snapshot
from walstore.sealed.encryptor import PlainEncryptor
from walstore.sealed.keys import ContentKeys
from walstore.signed.roster import Counted, Counts
from walstore.wire.limits import COUNTER_JUMP_MAX

untimed = settings(deadline=None)
ends = st.lists(st.integers(0, 60), max_size=6)


async def write(rng: random.Random, *, harm: float, **options: Any) -> Script:
    script = Script(rng, **options)
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.5 or not harm:
            await script.edit()
        elif kind < 0.8:
            script.harm()
        elif kind < 0.9:
            script.lose()
        else:
            script.cut()
    return script


def kept(folded: Folded) -> Snapshot:
    return read_snapshot(
        folded.state,
        document_key=KEY,
        is_producer=ARCHIVE.public_key.__eq__,
        encryptor=PlainEncryptor(),
    )


def hold_against(folded: Folded, doc: WalDocument) -> None:
    assert canonical_text(folded.value) == canonical_text(doc.materialize())
    assert kept(folded).crdt.canonical_state() == state_of(doc)
    assert set(folded.gaps) == set(doc.detected_gaps())
    assert folded.unreadable == doc.unreadable
    assert folded.is_deleted == doc.is_deleted
    assert folded.upto_ts == doc.current_checkpoint


def hold_together(parts: Folded, whole: Folded) -> None:
    assert canonical_text(parts.value) == canonical_text(whole.value)
    assert canonical_text(parts.state) == canonical_text(whole.state)
    counts = ("upto_ts", "elements", "authors", "rejected", "unreadable", "gaps", "is_deleted")
    for name in counts:
        assert getattr(parts, name) == getattr(whole, name), name


# ── the law ────────────────────────────────────────────────────────────────────────────


@untimed
@given(st.randoms(use_true_random=False), ends)
async def test_an_honest_log_folds_to_the_same_in_any_parts(
    rng: random.Random, cuts: list[int]
) -> None:
    script = await write(rng, harm=0)
    items = script.items
    whole = at_once(items)
    hold_together(in_parts(items, [end for end in cuts if 0 < end < len(items)]), whole)
    hold_against(whole, await script.opened())
    assert (whole.elements, whole.rejected) == (len(items), 0)


@settings(deadline=None, max_examples=300)
@example(random.Random(98), [])
@example(random.Random(1803), [1, 2, 4, 5, 6, 8])
@given(st.randoms(use_true_random=False), ends)
async def test_a_hostile_log_folds_to_the_same_in_any_parts(
    rng: random.Random, cuts: list[int]
) -> None:
    script = await write(rng, harm=1)
    items = script.items
    whole = at_once(items)
    hold_together(in_parts(items, [end for end in cuts if 0 < end < len(items)]), whole)
    hold_against(whole, await script.opened(rng.choice([1, 2, 1000])))


async def test_long_logs_fold_to_the_same_across_the_pages_of_a_log() -> None:
    """Elements are proven in batches of hundreds; where a batch ends must not show."""
    rng = random.Random(5)
    script = Script(rng)
    for step in range(700):
        await script.edit()
        if step % 90 == 0:
            script.harm()
    items = script.items
    assert len(items) > 1000
    whole = at_once(items)
    hold_together(in_parts(items, [511, 512, 513, 900]), whole)
    hold_against(whole, await script.opened(64))


def test_the_order_of_arrival_is_not_kept() -> None:
    """A state loses it, so a list that turns irregular later must not show it either."""
    log = RiggedLog()
    for author, counter, anchor in ((ALICE, 5, 0), (BOB, 3, 0), (ALICE, 9, 99)):
        replica = f"{author.public_key}:s{counter}"
        run = Insert("list", replica, counter, replica if anchor else "", anchor, "x")
        put_in(log, write_packed(author, [run], session=f"s{counter}"))
    items = [raw(each) for each in log.elements]
    hold_together(in_parts(items, [2]), at_once(items))


@settings(deadline=None, max_examples=40)
@given(st.randoms(use_true_random=False), ends, st.integers(0, 40))
async def test_a_sealed_log_folds_to_the_same_whenever_the_key_arrives(
    rng: random.Random, cuts: list[int], arrival: int
) -> None:
    encryptor = keyed(1)
    script = Script(rng, encryptor=encryptor)
    await script.edit()
    encryptor.adopt(ContentKeys(2, {1: bytes([1]) * 32, 2: bytes([2]) * 32}))
    for _ in range(rng.randint(1, 6)):
        await script.edit()
    items = script.items
    before = replace(RULES, encryptor=keyed(1), keys_id="1")
    after = replace(RULES, encryptor=keyed(1, 2), keys_id="1 2")
    whole = at_once(items, after)
    hold_against(whole, await script.opened())
    newer = [item for item in items if isinstance(item, RawElement) and b'"_epoch":2' in item.data]
    assert at_once(items, before).unreadable == len(newer)
    folded: Folded | None = None
    start = 0
    for end in [*sorted(end for end in cuts if end < len(items)), len(items)]:
        rules = before if end < min(arrival, len(items)) else after
        previous = None if folded is None else folded.state
        part = fold_items(items[start:end], rules, previous=previous)
        folded = at_once(items[:end], rules) if isinstance(part, ReadAgain) else part
        start = end
    assert folded is not None
    hold_together(folded, whole)


# ── what a part alone does not tell ────────────────────────────────────────────────────


def state_after(items: Sequence[Item], rules: FoldRules = RULES) -> dict[str, Any]:
    state = at_once(items, rules).state
    assert state is not None
    return state


async def log_of(*values: int) -> RiggedLog:
    log = RiggedLog()
    alice = await opened(log, ALICE)
    for value in values:
        alice.set_field("count", value)
        await alice.commit()
    return log


async def test_whoever_vouches_for_what_was_kept_aside_has_the_log_read_again() -> None:
    log = RiggedLog()
    first = spoiled(write_packed(ALICE, [Set("a", f"{ALICE.public_key}:s", 1, "proven")]))
    put_in(log, first)
    put_in(log, write_packed(ALICE, [], session="t", prev=link_of(first)))
    items = [raw(each) for each in log.elements]
    before = at_once(items[:1])
    assert (before.value, before.rejected) == ({}, 1)
    assert isinstance(fold_items(items[1:], previous=before.state), ReadAgain)
    whole = at_once(items)
    assert (whole.value, whole.elements, whole.rejected) == ({"a": "proven"}, 2, 0)
    # Whoever cannot read again goes on without it.
    rest = fold_items(items[1:], previous=before.state, is_final=True)
    assert isinstance(rest, Folded)
    assert (rest.value, rest.elements, rest.rejected) == ({}, 1, 1)


async def test_an_element_that_somebody_links_to_beforehand_is_not_proven_by_that() -> None:
    """Readers that page differently would have to disagree."""
    log = RiggedLog()
    first = spoiled(write_packed(ALICE, [Set("a", f"{ALICE.public_key}:s", 1, "unproven")]))
    put_in(log, write_packed(ALICE, [], session="t", prev=link_of(first)))
    put_in(log, first)
    assert at_once([raw(each) for each in log.elements]).value == {}
    for page_size in (1, 2):
        reader = await opened(
            RiggedLog(log.elements, page_size=page_size), BOB, on_author_error="skip"
        )
        assert reader.materialize() == {}


async def test_other_rules_have_the_log_read_again() -> None:
    items = [raw(each) for each in (await log_of(1, 2)).elements]
    state = state_after(items[:1], replace(RULES, writers_id="roster 1"))
    same = fold_items(items[1:], replace(RULES, writers_id="roster 1"), previous=state)
    assert isinstance(same, Folded)
    others = fold_items(items[1:], replace(RULES, writers_id="roster 2"), previous=state)
    assert others == ReadAgain("others may write than before")


async def test_other_keys_matter_only_where_something_waits_for_one() -> None:
    items = [raw(each) for each in (await log_of(1, 2)).elements]
    state = state_after(items[:1], replace(RULES, keys_id="1"))
    assert isinstance(fold_items(items[1:], replace(RULES, keys_id="2"), previous=state), Folded)


async def test_a_state_is_believed_under_no_other_key_and_for_no_other_document() -> None:
    items = [raw(each) for each in (await log_of(1, 2)).elements]
    state = state_after(items[:1])
    for previous, identity, rules in (
        (state, MALLORY, RULES),
        (state, None, RULES),
        ({**state, "uptoTs": 7}, ARCHIVE, RULES),
        (state, ARCHIVE, replace(RULES, document_key="another")),
    ):
        answer = fold_items(items[1:], rules, previous=previous, identity=identity)
        assert isinstance(answer, ReadAgain)


async def test_a_state_is_believed_where_it_ends_and_nowhere_else() -> None:
    elements = [raw(each) for each in (await log_of(1, 2)).elements]

    def go_on(kept_seq: int, said_seq: int, *, is_final: bool = False) -> Folded | ReadAgain:
        before = fold(RULES, elements[:1], identity=ARCHIVE, relay_seq=kept_seq)
        assert isinstance(before, Folded)
        return fold(
            RULES,
            elements[1:],
            identity=ARCHIVE,
            previous=before.state,
            previous_seq=said_seq,
            is_final=is_final,
        )

    for is_final in (False, True):
        assert go_on(5, 6, is_final=is_final) == ReadAgain("the kept state is that of 5, not of 6")
    # Former versions did not say where it ends.
    for kept_seq, said_seq in ((5, 5), (0, 6)):
        gone_on = go_on(kept_seq, said_seq)
        assert isinstance(gone_on, Folded)
        assert gone_on.value == {"count": 2}


async def test_what_a_part_lacks_is_told_from_what_was_missing_before() -> None:
    items = [raw(each) for each in (await log_of(1, 2, 3, 4, 5, 6)).elements]
    whole, holed = at_once(items), at_once([items[0], items[3]])
    assert [(gap.expected, gap.got) for gap in holed.opened] == [(2, 4)]
    assert whole.is_fuller_than(holed)
    assert not holed.is_fuller_than(whole)
    assert not at_once(items[3:]).is_fuller_than(holed)
    more = fold_items([items[5]], previous=holed.state)
    assert isinstance(more, Folded)
    assert [(gap.expected, gap.got) for gap in more.gaps] == [(2, 4), (5, 6)]
    assert [(gap.expected, gap.got) for gap in more.opened] == [(5, 6)]


async def test_a_published_snapshot_of_the_folder_is_no_kept_state() -> None:
    log = await log_of(1, 2)
    writers = MEMBERS | {ARCHIVE.public_key}
    archive = await opened(log, ARCHIVE, writers=writers)
    snapshot = archive.own_snapshot()
    answer = fold_items([raw(log.elements[1])], previous=snapshot)
    assert isinstance(answer, ReadAgain)


async def test_a_deletion_before_what_is_folded_already_has_the_log_read_again() -> None:
    rng = random.Random(0)
    script = Script(rng)
    while not any(place < len(script.log.elements) for place, _ in script.snapshots):
        await script.edit()
        script.cut()
        await script.edit()
    items = script.items
    place = next(at for at, item in enumerate(items) if isinstance(item, dict))
    assert isinstance(items[place], dict)
    late = [item for item in items if item is not items[place]][: place + 2]
    answer = fold_items([items[place]], previous=state_after(late))
    assert answer == ReadAgain("something was let go before what is folded already")


# ── snapshots ──────────────────────────────────────────────────────────────────────────


async def with_snapshot(*values: int) -> tuple[list[RawElement], dict[str, Any]]:
    log, store = RiggedLog(), RiggedSnapshots()
    alice = await opened(log, ALICE, snapshot_store=store)
    snapshot: dict[str, Any] = {}
    for value in values:
        alice.set_field("count", value)
        await alice.commit()
        if value == 2:
            snapshot = await alice.snapshot()
    return [raw(each) for each in log.elements], snapshot


async def test_what_is_gone_is_taken_from_a_snapshot_of_somebody_with_the_role() -> None:
    elements, snapshot = await with_snapshot(1, 2, 3)
    folded = fold(RULES, elements[2:], identity=ARCHIVE, snapshots=[snapshot], gone_upto=2)
    assert isinstance(folded, Folded)
    assert (folded.value, folded.elements, folded.gaps) == ({"count": 3}, 1, [])
    nothing = fold(RULES, elements[2:], identity=ARCHIVE, gone_upto=2, is_final=True)
    assert nothing == ReadAgain("elements up to 2 are gone")
    stranger = replace(RULES, is_producer=lambda key: False)
    refused = fold(stranger, elements[2:], identity=ARCHIVE, snapshots=[snapshot], gone_upto=2)
    assert isinstance(refused, ReadAgain)


async def test_a_snapshot_that_is_not_needed_is_not_believed() -> None:
    elements, snapshot = await with_snapshot(1, 2, 3)
    folded = fold(RULES, elements, identity=ARCHIVE, snapshots=[snapshot])
    assert isinstance(folded, Folded)
    assert folded.elements == 3
    # What a part lacks was folded before: nothing is gone.
    state = state_after(list(elements[:2]))
    rest = fold(RULES, elements[2:], identity=ARCHIVE, previous=state, gone_upto=2)
    assert isinstance(rest, Folded)
    assert rest.state == folded.state


async def test_a_forged_snapshot_is_reported_and_changes_nothing() -> None:
    elements, snapshot = await with_snapshot(1, 2, 3)
    forged = {**snapshot, "uptoTs": 3}
    folded = fold(RULES, elements, identity=ARCHIVE, snapshots=[forged, "junk", None])
    assert isinstance(folded, Folded)
    assert [each.evidence for each in folded.rejections] == [forged, "junk", None]
    assert (folded.value, folded.rejected) == ({"count": 3}, 0)


async def test_a_deleted_document_goes_on_from_its_deletion() -> None:
    rng = random.Random(1)
    script = Script(rng)
    await script.edit()
    while not (script.snapshots and script.snapshots[-1][1]["state"] is None):
        await script.edit()
        script.cut()
    deleted = [item for item in script.items if isinstance(item, dict)][-1]
    upto = deleted["uptoTs"]
    covered = [item for item in script.items if isinstance(item, dict) or item.ts <= upto]
    assert at_once(covered).is_deleted
    await script.edit()
    after = [item for item in script.items if isinstance(item, RawElement) and item.ts > upto]
    # Nothing is left of it but the deletion: that is enough to go on.
    again = at_once([deleted, *after])
    hold_together(again, at_once(script.items))
    hold_against(again, await script.opened())
    assert not again.is_deleted


# ── what is told ───────────────────────────────────────────────────────────────────────


async def test_what_is_rejected_is_told_with_its_reason_and_stops_nothing() -> None:
    log = await log_of(1)
    put_in(log, write_packed(MALLORY, [], session="m"))
    log.add({"v": 3}, ALICE.public_key, "no signature")
    log.add("no object", ALICE.public_key, "A" * 88, ts=9)
    log.add({}, ALICE.public_key, "A" * 88, ts=9)
    folded = at_once([raw(each) for each in log.elements])
    assert folded.value == {"count": 1}
    assert (folded.elements, folded.rejected) == (1, 4)
    assert [each.reason for each in folded.rejections] == [
        "its author may not write",
        "its key or signature is not in the strict form",
        "`data` is not an object",
        "`ts` does not increase",
    ]


async def test_an_author_who_was_revoked_counts_as_far_as_was_read() -> None:
    items = [raw(each) for each in (await log_of(1, 2, 3)).elements]
    name = next(iter(kept(at_once(items)).seqs or {})).partition(":")[2]
    rules = replace(RULES, revoked={ALICE.public_key: {name: 2}}.get, writers_id="2")
    folded = at_once(items, rules)
    assert (folded.value, folded.elements, folded.rejected) == ({"count": 2}, 2, 1)
    hold_together(in_parts(items, [1, 2], rules), folded)


async def test_what_counts_of_the_revoked_is_the_same_however_the_log_is_cut() -> None:
    replica = f"{BOB.public_key}:s"
    elements: list[Any] = []
    for seq in (1, 2, 3):
        prev = link_of(elements[-1]) if elements else None
        elements.append(write_packed(BOB, [Set("x", replica, seq, seq)], seq=seq, prev=prev))
    counts = {"s": Counted(3, link_of(elements[-1]), 0)}
    forged = write_packed(BOB, [Set("x", replica, 9, "X")], seq=2, prev=link_of(elements[0]))
    rules = replace(RULES, revoked={BOB.public_key: counts}.get, writers_id="2")
    for order in permutations([*elements, forged]):
        log = RiggedLog()
        for element in order:
            put_in(log, element)
        items = [raw(each) for each in log.elements]
        whole = at_once(items, rules)
        assert (whole.value, whole.elements, whole.rejected) == ({"x": 3}, 3, 1)
        for cuts in ([1], [2], [3], [1, 2], [1, 2, 3]):
            hold_together(in_parts(items, cuts, rules), whole)


@pytest.mark.parametrize("end", ["cut", "deletion", "branch"])
async def test_what_somebody_let_go_who_had_not_heard_of_a_revocation_is_let_go_of_all_the_same(
    end: str,
) -> None:
    log, store, own = RiggedLog(), RiggedSnapshots(), f"{BOB.public_key}:t"
    first = put_in(log, write_packed(BOB, [Insert("body", own, 1, "", 0, "a")], session="t", seq=1))
    run = Insert("body", own, 2, own, 1, "b")
    second = put_in(log, write_packed(BOB, [run], session="t", seq=2, prev=link_of(first)))
    run = Insert("body", f"{BOB.public_key}:s", 3, own, 2, "c")
    put_in(log, write_packed(BOB, [run], seq=1, prev=link_of(second)))
    alice = await opened(log, ALICE, snapshot_store=store)
    counts = await alice.recount(BOB.public_key)
    seq = 2 if end == "branch" else 3
    run = Insert("body", own, 40, own, 1, "FORK")
    put_in(log, write_packed(BOB, [run], session="t", seq=seq, prev=link_of(first)))
    alice.set_text("body", alice.text("body") + "!?")
    alice.set_text("body", alice.text("body").replace("!", ""))
    await alice.commit()
    await alice.pull()
    await (alice.delete_document() if end == "deletion" else alice.snapshot(collect={}))
    # This is after what was let go.
    late = f"{CAROL.public_key}:k"
    run = Insert("body", late, 9, f"{ALICE.public_key}:{alice.session}", 4, "L")
    items: list[Item] = [*map(raw, log.elements), store.writes[-1]]
    items.append(raw(put_in(log, write_packed(CAROL, [run], session="k")) | {"ts": 6}))
    revoked = {BOB.public_key: counts}.get
    rules = replace(RULES, revoked=revoked, writers_id="2")
    whole = at_once(items, rules)
    reader = await opened(log, BOB, snapshot_store=store, revoked=revoked, on_author_error="skip")
    assert "FORK" not in reader.text("body")
    hold_against(whole, reader)
    for cuts in ([3], [4], [5], [6], [1, 2, 3, 4, 5, 6]):
        hold_together(in_parts(items, cuts, rules), whole)


async def test_what_was_written_above_a_jump_of_the_revoked_is_the_same_however_it_is_cut() -> None:
    log, highest = RiggedLog(), 0
    for number in range(1, 4):
        highest += COUNTER_JUMP_MAX - 1
        run = Set("x", f"{BOB.public_key}:s", highest, "jump")
        put_in(log, write_packed(BOB, [run], seq=number))
        run = Set("x", f"{ALICE.public_key}:a{number}", highest + 5, number)
        put_in(log, write_packed(ALICE, [run], session=f"a{number}"))
    # This one is above the last jump, and others may still write above it.
    put_in(log, write_packed(BOB, [Set("x", f"{BOB.public_key}:t", highest + 9, "X")], session="t"))
    rules = replace(RULES, revoked={BOB.public_key: {}}.get, writers_id="2")
    items = [raw(each) for each in log.elements]
    whole = at_once(items, rules)
    assert (whole.value, whole.elements, whole.rejected) == ({"x": 3}, 3, 4)
    for cuts in ([1], [2], [4], [6], [1, 3, 5], [1, 2, 3, 4, 5, 6]):
        hold_together(in_parts(items, cuts, rules), whole)


async def test_what_waits_for_the_revoked_without_links_is_the_same_however_it_is_cut() -> None:
    bob, carol = f"{BOB.public_key}:s", f"{CAROL.public_key}:k"
    typed = [
        [Insert("body", bob, 1, "", 0, "a")],
        [Insert("other", bob, 3, "", 0, "o"), Insert("body", bob, 4, bob, 1, "b")],
    ]
    # What it names is in another list, so it never comes.
    behind = write_packed(CAROL, [Insert("body", carol, 5, bob, 3, "X")], session="k")
    elements = [write_starfish(BOB, to_ops(runs), seq=seq) for seq, runs in enumerate(typed, 1)]
    counts: Counts = {"": 2, "s": Counted(0, None, 4)}
    rules = replace(RULES, revoked={BOB.public_key: counts}.get, writers_id="2")
    for order in permutations([*elements, behind]):
        log = RiggedLog()
        for element in order:
            put_in(log, element)
        items = [raw(each) for each in log.elements]
        whole = at_once(items, rules)
        assert sorted(whole.value["body"]) == ["X", "a", "b"]
        for cuts in ([1], [2], [1, 2]):
            hold_together(in_parts(items, cuts, rules), whole)


async def test_without_an_identity_there_is_a_value_and_no_state() -> None:
    items = [raw(each) for each in (await log_of(1)).elements]
    folded = fold_items(items, identity=None)
    assert isinstance(folded, Folded)
    assert (folded.value, folded.state) == ({"count": 1}, None)


async def test_a_state_that_no_reader_would_take_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("walstore.crdt.packed_state.STATE_PIECES_MAX", 0)
    log = RiggedLog()
    alice = await opened(log, ALICE)
    alice.insert_text("text", 0, "long")
    await alice.commit()
    with pytest.raises(StateTooLargeError):
        alice.crdt.export_packed()
    folded = at_once([raw(each) for each in log.elements])
    assert (folded.value, folded.state) == ({"text": list("long")}, None)


def test_nothing_folds_to_nothing() -> None:
    folded = at_once([])
    assert (folded.value, folded.upto_ts, folded.elements, folded.authors) == ({}, 0, 0, [])
