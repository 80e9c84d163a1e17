"""A table of events, and whether anybody can tell that it was tampered with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archive_sources import Kept, LogTransport, all_events
from tests.rigged import (
    ALICE,
    BOB,
    MALLORY,
    MEMBERS,
    link_of,
    signed,
    spoiled,
    write_packed,
)
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.rows import Row
from walstore.archive.sealed import COLUMNS, KEY_FIELDS, raw_element, sealed_row, sealed_window
from walstore.archive.verification import Verification, verify_rows
from walstore.canon import canonical_bytes, parse
from walstore.document import WalDocument
from walstore.document.folding import Folded, FoldRules, fold
from walstore.errors import MalformedError
from walstore.relay.log import Event, Removal
from walstore.relay.memory import MemoryLog
from walstore.relay.reading import LogSource
from walstore.signed import Identity


class Place:
    """A relay's log with documents on it."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.transport = LogTransport(self.log)
        self.source = LogSource(self.log, page_events_max=5)

    async def opened(self, key: str, who: Identity = ALICE) -> WalDocument:
        document = WalDocument(
            key,
            transport=self.transport,
            snapshot_store=self.transport,
            identity=who,
            writers=MEMBERS,
            snapshot_role=MEMBERS,
            on_author_error="skip",
        )
        return await document.open()

    async def rows(self) -> list[Row]:
        """The rows in the order of their keys."""
        kept, head = Kept(), (await self.source.status()).head_seq
        kept.apply(sealed_window(await all_events(self.source), since=0, to=head))
        return list(kept.rows.values())


async def written() -> Place:
    """Two documents by two authors, typed, edited, snapshotted and deleted."""
    place = Place()
    for key in ("a", "b"):
        alice = await place.opened(key)
        for place_in_text, character in enumerate("typed"):
            alice.insert_text("text", place_in_text, character)
            await alice.commit()
        bob = await place.opened(key, BOB)
        bob.set_field("title", {"é": [1.5, None, "😀\ud800"]})
        await bob.commit()
        await alice.pull()
        await alice.snapshot()
        bob.put("map", "key", 1)
        await bob.commit()
    await alice.pull()
    await alice.delete_document()
    return place


# ── rows ───────────────────────────────────────────────────────────────────────────────


async def test_every_event_is_a_row_with_its_exact_bytes() -> None:
    place = await written()
    events = await all_events(place.source)
    head = events[-1].seq
    rows = await place.rows()
    assert [(row["document"], row["seq"]) for row in rows] == sorted(
        (event.document, event.seq) for event in events
    )
    by_seq = {row["seq"]: row for row in rows}
    for event in events:
        data = by_seq[event.seq]["data"]
        assert isinstance(data, str)
        assert data.encode() == event.payload
    assert by_seq[head]["deleted"] is True
    body = JsonlFormat().write_base(rows, COLUMNS)
    assert list(JsonlFormat().read_base(body, COLUMNS)) == rows
    assert [column.name for column in COLUMNS][:2] == list(KEY_FIELDS)


async def test_windows_of_any_size_give_the_same_rows() -> None:
    place = await written()
    events = await all_events(place.source)
    for size in (1, 3, 7):
        kept = Kept()
        for end in [*range(size, len(events), size), len(events)]:
            kept.apply(sealed_window(events, since=kept.position, to=end))
        assert [kept.rows[key] for key in sorted(kept.rows)] == sorted(
            await place.rows(), key=lambda row: canonical_bytes([row["document"], row["seq"]])
        )


async def test_what_the_relay_had_let_go_of_is_there_without_its_bytes() -> None:
    place = await written()
    floor = (await all_events(place.source))[2].ts
    await place.log.compact([Removal("a", (), floor)])
    rows = await place.rows()
    assert [row["data"] is None for row in rows[:4]] == [True, True, True, False]
    verification = verify_rows(rows)
    assert (verification.is_sound, verification.unverifiable) == (True, 3)


def test_bytes_that_are_no_text_are_left_out() -> None:
    event = Event(1, "f" * 64, "element", "a", "k", 1, 1, "s", {}, False, b"\xff\xfe")
    assert sealed_row(event)["data"] is None


async def test_a_document_can_be_folded_from_its_rows() -> None:
    place = await written()
    rows = [row for row in await place.rows() if row["document"] == "a"]
    assert folded(rows).value == (await place.opened("a", BOB)).materialize()


def folded(rows: Sequence[Row]) -> Folded:
    document = str(rows[0]["document"]) if rows else ""
    rules = FoldRules(document, is_writer=MEMBERS.__contains__, is_producer=MEMBERS.__contains__)
    elements = [element for row in rows if (element := raw_element(row)) is not None]
    snapshots = [parse(str(row["data"])) for row in rows if row["kind"] == "snapshot"]
    answer = fold(rules, elements, identity=None, snapshots=snapshots)
    assert isinstance(answer, Folded)
    return answer


# ── verification ───────────────────────────────────────────────────────────────────────


async def test_what_a_relay_has_checked_is_sound() -> None:
    place = await written()
    rows = await place.rows()
    assert verify_rows(rows) == Verification(len(rows), 2, 0, [], [])
    assert verify_rows([]) == Verification(0, 0, 0, [], [])


def flipped(row: Row, bit: int) -> Row | None:
    """A row of whose canonical text one bit was turned; None if it is no row any more."""
    text = bytearray(canonical_bytes(dict(row)))
    text[bit // 8 % len(text)] ^= 1 << bit % 8
    try:
        value = parse(bytes(text))
    except MalformedError:
        return None
    return value if isinstance(value, dict) else None


@pytest.fixture(scope="module")
def intact() -> list[Row]:
    async def made() -> list[Row]:
        return await (await written()).rows()

    return asyncio.run(made())


@settings(deadline=None, max_examples=1500)
@given(st.integers(0), st.integers(0))
def test_any_bit_that_is_turned_is_told_or_harms_nobody(
    intact: list[Row], number: int, bit: int
) -> None:
    place = number % len(intact)
    bad = flipped(intact[place], bit)
    if bad is None:
        return
    rows = [*intact[:place], bad, *intact[place + 1 :]]
    verification = verify_rows(rows)
    if not verification.is_sound:
        return
    # Nobody has told, so whoever folds the document must not notice either.
    assert bad["document"] == intact[place]["document"]
    for key in ("a", "b"):
        before = folded([row for row in intact if row["document"] == key])
        after = folded([row for row in rows if row.get("document") == key])
        assert after.value == before.value
        assert (after.rejected, after.is_deleted) == (before.rejected, before.is_deleted)


async def test_every_bit_of_one_element_and_one_snapshot() -> None:
    place = Place()
    alice = await place.opened("a")
    alice.set_field("n", 1)
    await alice.commit()
    await alice.snapshot()
    rows = await place.rows()
    untold: set[str] = set()
    for number, row in enumerate(rows):
        for bit in range(8 * len(canonical_bytes(dict(row)))):
            bad = flipped(row, bit)
            if bad is None:
                continue
            changed = [*rows[:number], bad, *rows[number + 1 :]]
            if verify_rows(changed).is_sound:
                untold |= {name for name in row if bad.get(name) != row[name]}
    # A relay's own time and order, which nobody has signed, as long as the order holds.
    assert untold <= {"accepted_ms", "seq", "ts"}


def change(rows: list[Row], number: int, **members: Any) -> list[Row]:
    return [*rows[:number], {**rows[number], **members}, *rows[number + 1 :]]


async def test_each_lie_is_told_with_its_row_and_reason() -> None:
    rows = await (await written()).rows()
    element, snapshot = rows[1], rows[6]
    assert (element["kind"], snapshot["kind"]) == ("element", "snapshot")
    data = str(element["data"])
    lies: list[tuple[int, dict[str, Any], str]] = [
        (1, {"id": "f" * 64}, "its id is another one's"),
        (1, {"author": BOB.public_key}, "its id is another one's"),
        (1, {"signature": "x"}, "its key or signature is not in the strict form"),
        (1, {"data": data.replace("typed", "tyqed") + " "}, "its bytes are not those that were"),
        (1, {"data": "{"}, "unexpected end"),
        (1, {"data": "[]"}, "`data` is not an object"),
        (1, {"data": 7}, "its bytes are not text"),
        (6, {"data": "\ud800"}, "its bytes are not text"),
        (1, {"ts": rows[0]["ts"]}, "its ts does not rise"),
        (1, {"ts": None}, "it has no ts"),
        (1, {"seq": rows[0]["seq"]}, "its seq is used twice"),
        (1, {"seq": None}, "it has no document or no seq"),
        (1, {"document": None}, "it has no document or no seq"),
        (1, {"kind": "row"}, "it is neither"),
        (1, {"vc": {"x": 1}}, "what stands beside it"),
        (1, {"deleted": True}, "what stands beside it"),
        (1, {"more": 1}, "it has a member that is no column"),
        (1, {"accepted_ms": "yesterday"}, "what stands beside it"),
        (6, {"id": "f" * 64}, "its id is another one's"),
        (6, {"data": "null"}, "its id is another one's"),
        (6, {"author": BOB.public_key}, "what stands beside it"),
        (6, {"ts": 1}, "what stands beside it"),
        (6, {"vc": {}}, "what stands beside it"),
        (6, {"deleted": True}, "what stands beside it"),
    ]
    for number, members, reason in lies:
        reasons = [flaw.reason for flaw in verify_rows(change(rows, number, **members)).flaws]
        assert any(reason in each for each in reasons), (members, reasons)


async def test_an_element_moved_to_another_document_is_told() -> None:
    rows = await (await written()).rows()
    moved = {**rows[0], "document": "b"}
    flaws = verify_rows([*rows[1:9], moved, *rows[9:]]).flaws
    assert "its id is another one's" in {flaw.reason for flaw in flaws}


async def test_documents_that_come_twice_are_told() -> None:
    rows = await (await written()).rows()
    flaws = verify_rows([rows[0], rows[-1], *rows[1:-1]]).flaws
    assert "its document comes too late" in {flaw.reason for flaw in flaws}


async def test_elements_that_are_missing_are_told_and_no_flaw() -> None:
    rows = await (await written()).rows()
    verification = verify_rows([*rows[:2], *rows[3:]])
    assert verification.is_sound
    (missing,) = verification.missing
    assert (missing.document, missing.author) == ("a", ALICE.public_key)
    assert (missing.first, missing.end) == (3, 4)


async def test_an_element_is_proven_by_a_later_one_however_far_away() -> None:
    place = Place()
    first = spoiled(signed(write_packed(ALICE, [], session="x")["data"], ALICE, document_key="a"))
    await place.transport.put_in("a", first)
    alice = await place.opened("a", BOB)
    for number in range(600):
        alice.set_field("n", number)
        await alice.commit()
    rows = await place.rows()
    (flaw,) = verify_rows(rows).flaws
    assert (flaw.document, flaw.seq) == ("a", 1)
    assert flaw.reason == "nothing proves that its author has signed it"
    second = write_packed(ALICE, [], session="y", prev=link_of(first, "a"))
    await place.transport.put_in("a", signed(second["data"], ALICE, document_key="a"))
    assert verify_rows(await place.rows()).is_sound


async def test_strangers_and_what_they_write_are_in_it_too() -> None:
    """Whoever folds decides who may write; an archive of events keeps all of it."""
    place = Place()
    element = signed({"v": 2, "junk": True}, MALLORY, document_key="a")
    await place.transport.put_in("a", element)
    assert verify_rows(await place.rows()).is_sound


async def test_a_random_order_of_events_is_still_in_order() -> None:
    place = await written()
    events = await all_events(place.source)
    head = events[-1].seq
    shuffled = list(events)
    random.Random(1).shuffle(shuffled)
    assert sealed_window(shuffled, since=0, to=head) == sealed_window(events, since=0, to=head)
