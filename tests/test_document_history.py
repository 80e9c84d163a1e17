"""Who wrote what, and when: versions, documents of the past, and blame."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    MALLORY,
    RiggedLog,
    RiggedSnapshots,
    opened,
    put_in,
    set_op,
    spoiled,
    state_of,
    write_packed,
    write_starfish,
)
from walstore.crdt.runs import Insert, Set
from walstore.document import Blame, NotOpenError, WalDocument
from walstore.signed import Identity

WIRES = ["packed", "starfish"]
POSTURES = ["trust", "trust-retain-tail", "re-derive"]
PEOPLE = (ALICE, BOB, CAROL)


async def commit_text(doc: WalDocument, text: str) -> int:
    await doc.pull()
    doc.set_text("text", text, base=doc.view())
    ts = await doc.commit()
    assert ts is not None
    return ts


async def three_versions(
    wire: str = "packed", store: RiggedSnapshots | None = None
) -> tuple[RiggedLog, WalDocument, WalDocument]:
    log = RiggedLog()
    alice = await opened(log, ALICE, wire=wire, snapshot_store=store)
    bob = await opened(log, BOB, wire=wire)
    await commit_text(alice, "one")
    await commit_text(bob, "one two")
    await commit_text(alice, "zero one two")
    return log, alice, bob


def by(author: Identity, start: int, size: int, ts: int | None) -> Blame:
    return Blame(start, size, author.public_key, ts)


# ── versions ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wire", WIRES)
async def test_each_committed_element_is_a_version(wire: str) -> None:
    log, alice, bob = await three_versions(wire)
    reader = await opened(log, CAROL)
    assert [(each.ts, each.author, each.session) for each in reader.history()] == [
        (1, ALICE.public_key, alice.session),
        (2, BOB.public_key, bob.session),
        (3, ALICE.public_key, alice.session),
    ]
    assert all(version.runs > 0 for version in reader.history())


async def test_a_peer_without_sessions_has_versions_too() -> None:
    log = RiggedLog()
    put_in(log, write_starfish(BOB, [set_op(BOB, 1, "x")]))
    reader = await opened(log, CAROL)
    assert [(each.ts, each.session) for each in reader.history()] == [(1, None)]


async def test_what_waits_is_no_version_yet() -> None:
    log, alice, _ = await three_versions()
    alice.set_field("draft", 1)
    await alice.pull()
    assert [version.ts for version in alice.history()] == [1, 2, 3]
    await alice.commit()
    assert [version.ts for version in alice.history()] == [1, 2, 3]
    await alice.pull()
    assert [version.ts for version in alice.history()] == [1, 2, 3, 4]
    assert alice.history() == (await opened(log, CAROL)).history()


async def test_what_was_rejected_or_repeated_is_no_version() -> None:
    log, _, _ = await three_versions()
    log.replay(0)
    put_in(log, write_starfish(MALLORY, [set_op(MALLORY, 99, "evil")]))
    put_in(log, spoiled(write_packed(BOB, [Set("x", f"{BOB.public_key}:s", 99, "evil")])))
    reader = await opened(log, CAROL, on_author_error="skip")
    assert [version.ts for version in reader.history()] == [1, 2, 3]


async def test_a_closed_document_has_no_history_to_show() -> None:
    doc = await opened(RiggedLog())
    await doc.__aexit__()
    for call in (doc.history, lambda: doc.at(1), lambda: doc.blame("text")):
        with pytest.raises(NotOpenError):
            call()


# ── documents of the past ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wire", WIRES)
async def test_the_document_is_shown_as_it_was(wire: str) -> None:
    log, alice, _ = await three_versions(wire)
    reader = await opened(log, CAROL)
    assert ["".join(reader.at(ts).get("text", "")) for ts in range(5)] == [
        "",
        "one",
        "one two",
        "zero one two",
        "zero one two",
    ]
    # Looking back changes nothing, and what is handed out is the caller's own.
    before = state_of(reader)
    reader.at(2)["text"].clear()
    assert state_of(reader) == before
    alice.set_field("draft", 1)
    assert "draft" not in alice.at(10)


async def test_the_past_begins_where_the_snapshot_ends() -> None:
    store = RiggedSnapshots()
    log, alice, _ = await three_versions(store=store)
    await alice.snapshot()
    await commit_text(alice, "zero one two three")
    for posture in ("trust", "trust-retain-tail"):
        reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
        assert [version.ts for version in reader.history()] == [4]
        assert "".join(reader.at(3)["text"]) == "zero one two"
        assert "".join(reader.at(4)["text"]) == "zero one two three"
        with pytest.raises(ValueError, match="starts at 3"):
            reader.at(2)
    derived = await opened(log, CAROL, snapshot_store=store, posture="re-derive")
    assert [version.ts for version in derived.history()] == [1, 2, 3, 4]
    assert "".join(derived.at(1)["text"]) == "one"


async def test_signing_a_snapshot_does_not_cut_off_the_past_of_those_who_have_it() -> None:
    store = RiggedSnapshots()
    _, alice, _ = await three_versions(store=store)
    await alice.snapshot()
    assert [version.ts for version in alice.history()] == [1, 2, 3]
    assert "".join(alice.at(1)["text"]) == "one"
    assert alice.blame("text")[0] == by(ALICE, 0, 5, 3)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=12))
async def test_every_version_is_what_a_reader_saw_at_that_time(
    script: list[tuple[int, int]],
) -> None:
    log = RiggedLog()
    docs = [await opened(log, who) for who in PEOPLE]
    witness = await opened(log, MALLORY)
    seen: dict[int, dict[str, Any]] = {0: {}}
    for who, number in script:
        doc = docs[who]
        if number % 3 == 0:
            await doc.pull()
        doc.set_field(f"f{number % 2}", number)
        doc.insert("list", number, number)
        doc.remove_at("list", number - 5)
        ts = await doc.commit()
        await witness.pull()
        assert ts is not None
        seen[ts] = witness.materialize()
    reader = await opened(log, CAROL)
    assert {ts: reader.at(ts) for ts in seen} == seen
    assert [version.ts for version in reader.history()] == sorted(seen)[1:]


# ── blame ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wire", WIRES)
async def test_each_stretch_has_its_author_and_its_element(wire: str) -> None:
    log, alice, bob = await three_versions(wire)
    expected = [by(ALICE, 0, 5, 3), by(ALICE, 5, 3, 1), by(BOB, 8, 4, 2)]
    for doc in (await opened(log, CAROL), alice):
        await doc.pull()
        assert doc.blame("text") == expected
    # Inside a stretch, somebody else's edit divides it.
    await commit_text(bob, "zero oXne two")
    await alice.pull()
    assert alice.blame("text") == [
        by(ALICE, 0, 5, 3),
        by(ALICE, 5, 1, 1),
        by(BOB, 6, 1, 4),
        by(ALICE, 7, 2, 1),
        by(BOB, 9, 4, 2),
    ]


async def test_what_is_not_in_the_log_yet_has_an_author_and_no_element() -> None:
    log, alice, _ = await three_versions()
    await alice.pull()
    alice.insert_text("text", 12, "!")
    assert alice.blame("text")[-1] == by(ALICE, 12, 1, None)
    await alice.commit()
    assert alice.blame("text")[-1] == by(ALICE, 12, 1, None)
    await alice.pull()
    assert alice.blame("text")[-1] == by(ALICE, 12, 1, 4)
    assert alice.blame("text") == (await opened(log, CAROL)).blame("text")


async def test_a_list_that_is_not_there_has_nobody_to_blame() -> None:
    log, alice, _ = await three_versions()
    assert alice.blame("nothing") == []
    alice.text("text")
    alice.set_text("text", "")
    assert alice.blame("text") == []
    assert len(log.elements) == 3


@pytest.mark.parametrize("posture", POSTURES)
async def test_what_a_snapshot_covers_has_an_author_and_its_element_only_if_that_was_read(
    posture: str,
) -> None:
    store = RiggedSnapshots()
    log, alice, _ = await three_versions(store=store)
    await alice.snapshot()
    await commit_text(alice, "zero one two three")
    reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
    covered = (3, 1, 2) if posture == "re-derive" else (None, None, None)
    stretches = [
        by(ALICE, 0, 5, covered[0]),
        by(ALICE, 5, 3, covered[1]),
        by(BOB, 8, 4, covered[2]),
        by(ALICE, 12, 6, 4),
    ]
    if posture != "re-derive":
        stretches[:2] = [by(ALICE, 0, 8, None)]
    assert reader.blame("text") == stretches


async def test_the_first_element_with_a_clock_is_to_blame_not_the_one_that_repeats_it() -> None:
    log = RiggedLog()
    replica = f"{BOB.public_key}:s"
    first = Insert("text", replica, 1, "", 0, "abc")
    more = Insert("text", replica, 1, "", 0, "abcdef")
    put_in(log, write_packed(BOB, [first], seq=1))
    put_in(log, write_packed(BOB, [more], seq=2))
    reader = await opened(log, CAROL)
    assert reader.text("text") == "abcdef"
    assert reader.blame("text") == [by(BOB, 0, 3, 1), by(BOB, 3, 3, 2)]


async def test_nobody_can_be_blamed_for_what_they_did_not_sign() -> None:
    """A clock, an id or a signature in Alice's name is not Alice's."""
    log, alice, _ = await three_versions()
    stolen = f"{ALICE.public_key}:{alice.session}"
    put_in(log, write_packed(BOB, [Insert("text", stolen, 99, "", 0, "evil")]))
    put_in(log, spoiled(write_packed(ALICE, [Insert("text", stolen, 99, "", 0, "evil")])))
    op = {"t": "ins", "list": "text", "id": f"99@{stolen}", "after": "", "value": "evil"}
    put_in(log, write_starfish(BOB, [{**op, "clock": {"c": 99, "r": f"{BOB.public_key}:s"}}]))
    reader = await opened(log, CAROL, on_author_error="skip")
    assert reader.blame("text") == [by(ALICE, 0, 5, 3), by(ALICE, 5, 3, 1), by(BOB, 8, 4, 2)]


class Typed(NamedTuple):
    """Somebody types, anywhere."""

    who: int
    place: float
    size: int
    removed: int
    pulls: bool


typing = st.builds(
    Typed,
    st.integers(0, 2),
    st.floats(0, 1, allow_nan=False),
    st.integers(1, 4),
    st.integers(0, 2),
    st.booleans(),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(typing, max_size=15), st.sampled_from(WIRES), st.booleans())
async def test_blame_names_for_every_character_who_wrote_it_and_in_which_element(
    script: list[Typed], wire: str, with_snapshot: bool
) -> None:
    """Each character is unlike all others, so it can be told who typed it, and when it landed."""
    log, store = RiggedLog(), RiggedSnapshots()
    docs = [await opened(log, who, wire=wire, snapshot_store=store) for who in PEOPLE]
    landed: dict[str, tuple[str, int]] = {}
    code = 0x4E00
    for number, (who, place, size, removed, pulls) in enumerate(script):
        doc = docs[who]
        if pulls:
            await doc.pull()
        at = int(place * len(doc.text("text")))
        typed = "".join(map(chr, range(code, code + size)))
        code += size
        doc.remove_text("text", at, removed)
        doc.insert_text("text", at, typed)
        ts = await doc.commit()
        assert ts is not None
        landed |= dict.fromkeys(typed, (PEOPLE[who].public_key, ts))
        if with_snapshot and number == len(script) // 2:
            await doc.snapshot()
    covered = store.document["uptoTs"] if isinstance(store.document, dict) else 0
    for posture in POSTURES:
        reader = await opened(log, CAROL, snapshot_store=store, posture=posture)
        known_from = 0 if posture == "re-derive" else covered
        blamed: list[tuple[str, int | None]] = []
        for start, size, author, ts in reader.blame("text"):
            assert start == len(blamed)
            blamed += [(author, ts)] * size
        assert blamed == [
            (author, ts if ts > known_from else None)
            for author, ts in map(landed.__getitem__, reader.text("text"))
        ]
        # Stretches are as long as they can be.
        pairs = [(each.author, each.ts) for each in reader.blame("text")]
        assert all(left != right for left, right in pairwise(pairs))
