"""A table of documents: however its events come, it holds what the documents show."""

from __future__ import annotations

import pickle
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archive_sources import Kept, LogTransport, all_events
from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    MALLORY,
    MEMBERS,
    signed,
    spoiled,
    write_packed,
)
from walstore.archive.authority import Authority
from walstore.archive.folded import COLUMNS, KEY_FIELDS
from walstore.archive.folder import Folder
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.rows import Action
from walstore.archive.source import Source
from walstore.archive.states import state_flaw
from walstore.canon import canonical_text
from walstore.crdt.runs import Set
from walstore.document import SnapshotRefusedError, WalDocument
from walstore.document.ports import CheckpointTooOldError, RawElement
from walstore.document.snapshot import make_deletion
from walstore.errors import TransportError
from walstore.net.faults import ReplayTooOldError
from walstore.relay.compaction import compact_all
from walstore.relay.log import Removal
from walstore.relay.memory import MemoryLog
from walstore.relay.reading import LogSource
from walstore.relay.retention import Policy
from walstore.signed import Identity
from walstore.signed.card import Card
from walstore.store.shared import encryptor_of
from walstore.store.sharing import Sharing
from walstore.store.sharing_state import MemorySlots

ARCHIVE = Identity.from_seed(bytes([9]) * 32)
BY_KEYS = Authority(writers={"": MEMBERS}, producers={"": MEMBERS})


class Place:
    """A relay's log, documents on it, and a source of it."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.transport = LogTransport(self.log)
        self.source: Source = LogSource(self.log, page_events_max=7)

    def folder(self, authority: Authority = BY_KEYS, **options: Any) -> Folder:
        return Folder(self.source, authority, ARCHIVE, **options)

    async def opened(self, key: str, who: Identity = ALICE, **options: Any) -> WalDocument:
        options = {"writers": MEMBERS, "snapshot_role": MEMBERS, **options}
        document = WalDocument(
            key,
            transport=self.transport,
            snapshot_store=self.transport,
            identity=who,
            on_author_error="skip",
            **options,
        )
        return await document.open()

    async def table(
        self, ends: Sequence[int] = (), authority: Authority = BY_KEYS, **options: Any
    ) -> Kept:
        """The table that comes of the events in windows that end at some of them."""
        kept, events = Kept(), await all_events(self.source)
        head = (await self.source.status()).head_seq
        for to in [*sorted({end for end in ends if 0 < end < head}), head]:
            some = [event for event in events if event.seq > kept.position]
            await kept.fold(self.folder(authority, **options), some, to)
        return kept


async def set_fields(document: WalDocument, *values: int) -> None:
    for value in values:
        document.set_field("count", value)
        await document.commit()


# ── the law ────────────────────────────────────────────────────────────────────────────


async def happen(place: Place, rng: random.Random) -> None:
    """Many things happen to a few documents, most of them honest."""
    documents: dict[tuple[str, str], WalDocument] = {}
    for number in range(rng.randint(1, 25)):
        key, who = rng.choice(["a", "b/c", "b/d"]), rng.choice([ALICE, BOB])
        document = documents.get((key, who.public_key))
        if document is None:
            document = documents[key, who.public_key] = await place.opened(key, who)
        match rng.randint(0, 9):
            case 0:
                await place.transport.put_in(key, write_packed(MALLORY, [], session=str(number)))
            case 1:
                run = Set("x", f"{CAROL.public_key}:s{number}", 1, number)
                element = write_packed(CAROL, [run], session=f"s{number}")
                await place.transport.put_in(key, spoiled(element))
            case 2:
                with suppress(SnapshotRefusedError):
                    await document.snapshot()
            case 3:
                await document.pull()
                with suppress(SnapshotRefusedError):
                    if rng.random() < 0.5:
                        await document.delete_document()
                    else:
                        await document.snapshot(collect={})
                # Whoever goes on, goes on from there.
                documents = {each: doc for each, doc in documents.items() if each[0] != key}
            case _:
                document.insert_text("text", 0, rng.choice(["one ", "two "]))
                if rng.random() < 0.3:
                    document.remove_text("text", 1, 2)
                await document.commit()


@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False), st.lists(st.integers(1, 30), max_size=8))
async def test_the_table_is_the_same_whatever_the_windows(
    rng: random.Random, ends: list[int]
) -> None:
    place = Place()
    await happen(place, rng)
    whole, parts = await place.table(), await place.table(ends)
    assert parts.text() == whole.text()
    rows = whole.by_document()
    for key in {event.document for event in await all_events(place.source)}:
        document = await place.opened(key, CAROL, posture="re-derive")
        if key not in rows:
            # Deleted, and at most a snapshot of nothing was stored since.
            assert document.materialize() == {}
        else:
            assert not document.is_deleted
            assert canonical_text(rows[key]["value"]) == canonical_text(document.materialize())
            assert rows[key]["ts"] == document.current_checkpoint


async def test_the_table_is_the_same_with_every_event_in_a_window_of_its_own() -> None:
    for seed in range(12):
        place = Place()
        await happen(place, random.Random(seed))
        head = (await place.source.status()).head_seq
        assert (await place.table(range(1, head))).text() == (await place.table()).text()


async def test_rows_can_be_written_in_a_format() -> None:
    place = Place()
    document = await place.opened("a")
    document.set_field("n", 1.5)
    await document.commit()
    # No honest writer writes such a number, and a reader takes it for what every peer reads.
    large = write_packed(ALICE, [Set("large", f"{ALICE.public_key}:x", 9, 2**60)], session="x")
    element = signed({**large["data"]}, ALICE, document_key="a")
    await place.transport.put_in("a", element)
    kept = await place.table()
    rows = list(kept.rows.values())
    written = JsonlFormat().write_base(rows, COLUMNS)
    assert [dict(row) for row in JsonlFormat().read_base(written, COLUMNS)] == rows
    assert rows[0]["value"] == {"large": 2.0**60, "n": 1.5}
    assert [column.name for column in COLUMNS][: len(KEY_FIELDS)] == list(KEY_FIELDS)


# ── what becomes of rows ───────────────────────────────────────────────────────────────


async def test_a_row_says_what_was_read_of_a_document() -> None:
    place = Place()
    alice = await place.opened("a")
    await set_fields(alice, 1, 2)
    bob = await place.opened("a", BOB)
    await set_fields(bob, 3)
    await place.transport.put_in("a", signed({"v": 2}, MALLORY, document_key="a"))
    kept = await place.table()
    row = dict(kept.by_document()["a"])
    state = row.pop("state")
    assert isinstance(state, dict)
    assert state["producedBy"] == ARCHIVE.public_key
    last = (await all_events(place.source))[-1]
    assert row == {
        "document": "a",
        "value": {"count": 3},
        "ts": last.ts,
        "seq": 4,
        "elements": 3,
        "authors": sorted([ALICE.public_key, BOB.public_key]),
        "rejected": 1,
    }
    (report,) = kept.reports
    assert [each.reason for each in report.rejections] == ["its author may not write"]


async def test_a_window_touches_only_what_something_has_happened_to() -> None:
    place = Place()
    for key in ("a", "b"):
        await set_fields(await place.opened(key), 1)
    kept = await place.table()
    await set_fields(await place.opened("b", BOB), 2)
    folded = await place.folder().window(
        await all_events(place.source), kept.by_document(), since=2, to=3
    )
    (change,) = folded.window.changes
    assert (change.action, change.key) == (Action.UPDATE, ("b",))
    assert (folded.window.since, folded.window.to, folded.window.churn) == (2, 3, 1)
    # The same events again are passed over.
    kept.apply(folded.window)
    again = await place.folder().window(
        await all_events(place.source), kept.by_document(), since=3, to=3
    )
    assert (list(again.window.changes), again.window.churn) == ([], 0)


async def test_a_deleted_document_has_no_row_until_it_is_written_again() -> None:
    place = Place()
    alice = await place.opened("a")
    alice.insert_text("text", 0, "gone")
    await alice.commit()
    bob = await place.opened("a", BOB)
    kept = await place.table()
    await alice.pull()
    await alice.delete_document()
    await kept.fold(place.folder(), await all_events(place.source, 1), 2)
    assert kept.rows == {}
    # Bob has not heard of it, and types on after what is gone.
    bob.insert_text("text", 4, "kept")
    await bob.commit()
    await kept.fold(place.folder(), await all_events(place.source, 2), 3)
    row = kept.by_document()["a"]
    assert row["value"] == {"text": list("kept")}
    assert kept.text() == (await place.table()).text()
    assert kept.reports == []


async def test_a_deletion_by_somebody_without_the_role_deletes_nothing() -> None:
    place = Place()
    alice = await place.opened("a")
    await set_fields(alice, 1)
    mallory = await place.opened("a", MALLORY, snapshot_role={MALLORY.public_key})
    await mallory.delete_document()
    kept = await place.table()
    assert kept.by_document()["a"]["value"] == {"count": 1}
    assert [each.rejections[0].reason for each in kept.reports] == [
        "malformed snapshot: its producer does not hold the snapshot role"
    ]


async def test_a_deletion_that_came_behind_newer_edits_keeps_those() -> None:
    """Whoever deleted had not read them; the window before had folded them already."""
    place = Place()
    alice = await place.opened("a")
    await set_fields(alice, 1)
    await alice.pull()
    bob = await place.opened("a", BOB)
    bob.set_field("later", True)
    deleted_upto = alice.current_checkpoint
    await bob.commit()
    kept = await place.table()
    assert kept.by_document()["a"]["value"] == {"count": 1, "later": True}
    seqs = {f"{ALICE.public_key}:{alice.session}": 1}
    deletion = make_deletion(
        document_key="a", upto_ts=deleted_upto, writer_seq={}, seqs=seqs, identity=ALICE
    )
    await place.transport.write("a__snapshot", deletion, None)
    await kept.fold(place.folder(), await all_events(place.source, 2), 3)
    assert kept.by_document()["a"]["value"] == {"later": True}
    assert kept.text() == (await place.table()).text()


async def test_without_a_state_a_document_is_read_anew_each_time() -> None:
    place = Place()
    alice = await place.opened("a")
    await set_fields(alice, 1)
    kept = await place.table(keeps_state=False)
    assert kept.by_document()["a"]["state"] is None
    await set_fields(alice, 2)
    await kept.fold(place.folder(keeps_state=False), await all_events(place.source, 1), 2)
    row = kept.by_document()["a"]
    assert (row["value"], row["elements"], row["state"]) == ({"count": 2}, 2, None)


async def test_a_state_that_somebody_has_changed_is_not_believed() -> None:
    place = Place()
    alice = await place.opened("a")
    await set_fields(alice, 1)
    kept = await place.table()
    (key,) = kept.rows
    state = dict(kept.rows[key]["state"])  # type: ignore[arg-type]
    kept.rows[key] = {**kept.rows[key], "state": {**state, "uptoTs": 0}}
    await set_fields(alice, 2)
    await kept.fold(place.folder(), await all_events(place.source, 1), 2)
    assert kept.text() == (await place.table()).text()


# ── a relay that has let go ────────────────────────────────────────────────────────────


async def pruned(place: Place) -> None:
    """A document of which the relay keeps a snapshot and what came after it."""
    alice = await place.opened("a")
    await set_fields(alice, 1, 2, 3)
    await alice.pull()
    snapshot = await alice.snapshot()
    await set_fields(alice, 4)
    await place.log.compact([Removal("a", (), snapshot["uptoTs"])])


async def test_a_pruned_document_goes_on_from_its_snapshot() -> None:
    place = Place()
    await pruned(place)
    kept = await place.table()
    row = kept.by_document()["a"]
    assert (row["value"], row["elements"]) == ({"count": 4}, 1)
    assert kept.reports == []
    # What was folded before it was let go need not be read again.
    assert (await place.table([1, 2, 3, 4])).by_document()["a"]["value"] == {"count": 4}


async def test_a_document_that_is_pruned_while_it_is_read_goes_on_from_its_newest_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place()
    await pruned(place)
    alice, read, prunings = await place.opened("a"), place.source.elements, [8, 7, 6, 5]

    async def elements(document: str, after: int) -> AsyncIterator[RawElement]:
        # Somebody else writes on, and the relay lets go of it, between any two readings.
        if prunings:
            await set_fields(alice, prunings.pop())
            await alice.pull()
            snapshot = await alice.snapshot()
            await place.log.compact([Removal("a", (), snapshot["uptoTs"])])
        async for element in read(document, after):
            yield element

    monkeypatch.setattr(place.source, "elements", elements)
    kept = await place.table()
    assert prunings == []
    assert kept.by_document()["a"]["value"] == {"count": 8}
    # If it does not end, that is no reason to give up for ever.
    prunings.extend(range(100, 0, -1))
    with pytest.raises(TransportError, match="a is pruned again and again") as told:
        await place.table()
    assert told.value.retryable


async def test_a_pruned_document_without_a_snapshot_to_believe_has_a_row_that_says_so() -> None:
    place = Place()
    await pruned(place)
    nobody = Authority(writers={"": MEMBERS}, producers={"": [MALLORY.public_key]})
    kept = await place.table([], nobody)
    row = kept.by_document()["a"]
    assert (row["value"], row["state"], row["seq"]) == (None, None, 5)
    assert "are gone" in kept.reports[0].problems[-1]
    # As soon as somebody is believed, it is there.
    await set_fields(await place.opened("a", BOB), 5)
    await kept.fold(place.folder(), await all_events(place.source, 5), 6)
    assert kept.by_document()["a"]["value"] == {"count": 5}


async def test_what_was_folded_before_a_document_was_pruned_goes_on() -> None:
    place = Place()
    alice = await place.opened("a")
    await set_fields(alice, 1, 2)
    kept = await place.table()
    await alice.pull()
    await alice.snapshot()
    await set_fields(alice, 3)
    await compact_all(
        place.log,
        Policy.read({"log_mode": "compact_below_snapshot", "retain_tail_n": 0}),
        archived_seq=None,
        now_ms=2**41,
    )
    with pytest.raises(CheckpointTooOldError):
        [each async for each in place.source.elements("a", 0)]
    await kept.fold(place.folder(), await all_events(place.source, 2), 4)
    row = kept.by_document()["a"]
    assert (row["value"], row["elements"]) == ({"count": 3}, 3)


async def test_what_was_folded_before_a_relay_withholds_it_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place()
    alice = await place.opened("a")
    for name in "abcde":
        alice.set_field(name, 1)
        await alice.commit()
    events = await all_events(place.source)
    kept = Kept()
    await kept.fold(place.folder(), events[:3], 3)
    read = place.source.elements
    monkeypatch.setattr(place.source, "elements", lambda document, _: read(document, events[3].ts))
    await kept.fold(place.folder(), events[4:], 5)
    assert kept.by_document()["a"]["value"] == dict.fromkeys("abce", 1)
    assert [(gap.expected, gap.got) for gap in kept.reports[-1].gaps] == [(4, 5)]


WITH_MALLORY = Authority(writers={"": [*MEMBERS, MALLORY.public_key]}, producers={"": MEMBERS})


@pytest.mark.parametrize("shown", [slice(0, 3), slice(2, 6), slice(0, 0)])
async def test_a_log_that_is_read_anew_and_shows_less_takes_nothing_back(
    monkeypatch: pytest.MonkeyPatch, shown: slice
) -> None:
    place = Place()
    bob, alice = await place.opened("a", BOB), await place.opened("a")
    for name in "bcde":
        bob.set_field(name, 1)
        await bob.commit()
    kept = await place.table()
    await set_fields(alice, 1)
    times = [event.ts for event in await all_events(place.source)][shown]
    read = place.source.elements

    async def elements(document: str, after: int) -> AsyncIterator[RawElement]:
        async for element in read(document, after):
            if element.ts in times:
                yield element

    with monkeypatch.context() as patch:
        patch.setattr(place.source, "elements", elements)
        # Others may write than before, so that a window alone is not enough.
        folder = place.folder(WITH_MALLORY)
        (report,) = await kept.fold(folder, await all_events(place.source, 4), 5)
    row = kept.by_document()["a"]
    assert (row["value"], row["elements"]) == ({**dict.fromkeys("bcde", 1), "count": 1}, 5)
    assert report.problems == ["the log lacks what was read of it before"]
    # As soon as all of it is there, it is read by those who may write now.
    await set_fields(alice, 2)
    await kept.fold(place.folder(WITH_MALLORY), await all_events(place.source, 5), 6)
    assert kept.text() == (await place.table([], WITH_MALLORY)).text()


async def test_what_may_not_count_any_longer_is_not_missed_when_a_log_is_read_anew() -> None:
    place = Place()
    for who in (ALICE, BOB):
        document = await place.opened("a", who)
        document.set_field(who.public_key, 1)
        await document.commit()
    kept = await place.table()
    alone = Authority(writers={"": [ALICE.public_key]}, producers={"": MEMBERS})
    await set_fields(await place.opened("a"), 1)
    await kept.fold(place.folder(alone), await all_events(place.source, 2), 3)
    assert kept.by_document()["a"]["value"] == {ALICE.public_key: 1, "count": 1}
    assert kept.text() == (await place.table([], alone)).text()


async def test_a_row_outlasts_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    alice = await place.opened("a")
    await set_fields(alice, 1, 2, 3)
    kept = await place.table()
    before = kept.by_document()["a"]
    await set_fields(alice, 4)
    (event,) = await all_events(place.source, 3)
    read = place.source.elements
    gone = event._replace(payload=None)  # type: ignore[attr-defined]

    async def elements(document: str, after: int) -> AsyncIterator[RawElement]:
        if after < event.ts:
            raise CheckpointTooOldError(event.ts)
        async for element in read(document, after):
            yield element

    with monkeypatch.context() as patch:
        patch.setattr(place.source, "elements", elements)
        (report,) = await kept.fold(place.folder(), [gone], 4)
    row = kept.by_document()["a"]
    assert {**row, "state": None} == {**before, "seq": 4, "state": None}
    assert state_flaw(row) is None
    assert f"elements up to {event.ts} are gone" in report.problems
    # What was missed is read with whatever happens next, were it no element.
    await alice.pull()
    await alice.snapshot()
    await kept.fold(place.folder(), await all_events(place.source, 4), 5)
    row = kept.by_document()["a"]
    assert (row["value"], row["elements"], row["seq"]) == ({"count": 4}, 4, 5)
    await set_fields(alice, 5)
    await kept.fold(place.folder(), await all_events(place.source, 5), 6)
    assert kept.by_document()["a"]["value"] == {"count": 5}
    assert kept.reports == [report]


async def test_a_kept_state_stands_for_what_a_relay_has_let_go_of_since() -> None:
    place = Place()
    nobody = Authority(writers={"": MEMBERS}, producers={"": [MALLORY.public_key]})
    alice = await place.opened("a")
    await set_fields(alice, 1, 2, 3)
    kept = await place.table([], nobody)
    await alice.pull()
    snapshot = await alice.snapshot()
    await set_fields(alice, 4)
    await place.log.compact([Removal("a", (), snapshot["uptoTs"])])
    await place.log.trim(5)
    folded = await place.folder(nobody).anew(["a"], kept.by_document(), since=3, to=5)
    assert folded.reports == []
    kept.apply(folded.window)
    row = kept.by_document()["a"]
    assert (row["value"], row["elements"]) == ({"count": 4}, 4)


async def test_after_a_gap_a_document_that_cannot_be_read_keeps_its_row_until_it_can() -> None:
    place = Place()
    nobody = Authority(writers={"": MEMBERS}, producers={"": [MALLORY.public_key]})
    alice = await place.opened("a")
    await set_fields(alice, 1)
    kept = await place.table([], nobody)
    await set_fields(alice, 2)
    await alice.pull()
    snapshot = await alice.snapshot()
    await place.log.compact([Removal("a", (), snapshot["uptoTs"])])
    folded = await place.folder(nobody).anew(["a"], kept.by_document(), since=1, to=3)
    kept.apply(folded.window)
    row = kept.by_document()["a"]
    assert (row["value"], row["seq"]) == ({"count": 1}, 3)
    assert state_flaw(row) is None
    assert "are gone" in folded.reports[0].problems[0]
    # The events between were in no window, and yet nothing is folded without them.
    await set_fields(alice, 3)
    await kept.fold(place.folder(nobody), await all_events(place.source, 3), 4)
    assert kept.by_document()["a"]["value"] == {"count": 1}
    await set_fields(alice, 4)
    await kept.fold(place.folder(), await all_events(place.source, 4), 5)
    assert kept.by_document()["a"]["value"] == {"count": 4}


async def test_after_a_gap_a_log_that_shows_less_takes_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place()
    alice = await place.opened("a")
    await set_fields(alice, 1, 2, 3)
    kept = await place.table()
    first = (await all_events(place.source))[0]
    read = place.source.elements

    async def elements(document: str, after: int) -> AsyncIterator[RawElement]:
        async for element in read(document, after):
            if element.ts <= first.ts:
                yield element

    monkeypatch.setattr(place.source, "elements", elements)
    for authority in (BY_KEYS, WITH_MALLORY):
        folder = place.folder(authority)
        kept.apply((await folder.anew(["a"], kept.by_document(), since=3, to=3)).window)
        row = kept.by_document()["a"]
        assert (row["value"], row["elements"]) == ({"count": 3}, 3)


async def test_after_a_position_that_is_too_old_documents_are_read_anew() -> None:
    place = Place()
    alice = await place.opened("a")
    other = await place.opened("b")
    await set_fields(alice, 1)
    await set_fields(other, 1)
    kept = await place.table()
    await set_fields(alice, 2, 3)
    await place.log.trim(5)
    with pytest.raises(ReplayTooOldError):
        await place.source.page(kept.position)
    head = (await place.source.status()).head_seq
    documents = [key async for key in place.source.documents()]
    # Something happens while they are read.
    await set_fields(alice, 4)
    folded = await place.folder().anew(documents, kept.by_document(), since=kept.position, to=head)
    # Nothing has happened to the other one.
    assert [change.key for change in folded.window.changes] == [("a",)]
    kept.apply(folded.window)
    assert kept.by_document()["a"]["value"] == {"count": 4}
    # What is read twice counts once.
    await set_fields(alice, 5)
    await kept.fold(place.folder(), await all_events(place.source, head), head + 2)
    row = kept.by_document()["a"]
    assert (row["value"], row["elements"], row["rejected"]) == ({"count": 5}, 5, 0)
    assert kept.reports == []


# ── who may write ──────────────────────────────────────────────────────────────────────


async def test_keys_are_those_of_the_longest_prefix() -> None:
    place = Place()
    for key in ("a", "b/c", "b/d"):
        await set_fields(await place.opened(key, ALICE), 1)
    authority = Authority(
        writers={"": [ALICE.public_key], "b/": [BOB.public_key], "b/d": [ALICE.public_key]},
        producers={},
    )
    rows = (await place.table([], authority)).by_document()
    values = {key: row["value"] for key, row in rows.items()}
    assert values == {"a": {"count": 1}, "b/c": {}, "b/d": {"count": 1}}


async def test_whoever_is_let_in_may_write_where_nothing_else_is_said() -> None:
    place = Place()
    mallory = await place.opened("a", MALLORY, writers={MALLORY.public_key})
    await set_fields(mallory, 1)
    rows = (await place.table([], Authority())).by_document()
    assert rows["a"]["value"] == {"count": 1}


async def test_other_keys_have_touched_documents_read_anew() -> None:
    place = Place()
    alice = await place.opened("a")
    await set_fields(alice, 1)
    before = Authority(writers={"": [BOB.public_key]}, producers={})
    kept = await place.table([], before)
    assert kept.by_document()["a"]["value"] == {}
    await set_fields(alice, 2)
    await kept.fold(place.folder(), await all_events(place.source, 1), 2)
    assert kept.text() == (await place.table()).text()


def test_an_authority_can_be_sent_elsewhere() -> None:
    for authority in (Authority(), BY_KEYS, Authority("roster", owners={"": [ALICE.public_key]})):
        assert pickle.loads(pickle.dumps(authority)) == authority


# ── rosters and keys ───────────────────────────────────────────────────────────────────


class Shared:
    """A document that Alice owns, sealed or not."""

    def __init__(self, place: Place, *, is_sealed: bool) -> None:
        self.place = place
        self.is_sealed = is_sealed
        self.alice = self.sharing(ALICE)

    def sharing(self, who: Identity) -> Sharing:
        return Sharing(
            "a",
            identity=who,
            owner=ALICE.public_key,
            records=self.place.transport,
            slots=MemorySlots(),
            is_sealed=self.is_sealed,
        )

    async def opened(self, who: Identity, sharing: Sharing) -> WalDocument:
        encryptor = encryptor_of(sharing, is_sealed=self.is_sealed)
        document = await self.place.opened(
            "a",
            who,
            writers=sharing.membership.is_writer,
            snapshot_role=sharing.membership.is_producer,
            revoked=sharing.membership.revoked,
            encryptor=encryptor,
        )
        sharing.attach(document, encryptor if self.is_sealed else None)  # type: ignore[arg-type]
        return document


BY_ROSTER = Authority("roster", owners={"": [ALICE.public_key]})
BY_FIRST_ROSTER = Authority("roster")


@pytest.mark.parametrize("authority", [BY_ROSTER, BY_FIRST_ROSTER])
async def test_the_roster_says_who_may_write(authority: Authority) -> None:
    place = Place()
    shared = Shared(place, is_sealed=False)
    await shared.alice.settle()
    alice = await shared.opened(ALICE, shared.alice)
    await set_fields(alice, 1)
    bobs = shared.sharing(BOB)
    bob = await shared.opened(BOB, bobs)
    bob.set_field("bob", 1)
    await bob.commit()
    kept = await place.table([], authority)
    assert kept.by_document()["a"]["value"] == {"count": 1}
    # Now he is invited, and what he wrote counts.
    await shared.alice.invite(Card.of(BOB))
    await set_fields(alice, 2)
    await kept.fold(place.folder(authority), await all_events(place.source, 2), 3)
    assert kept.by_document()["a"]["value"] == {"bob": 1, "count": 2}
    # Now he is revoked, and what he writes afterwards does not.
    await alice.pull()
    await shared.alice.revoke(BOB.public_key)
    bob.set_field("bob", 2)
    await bob.commit()
    head = (await place.source.status()).head_seq
    await kept.fold(place.folder(authority), await all_events(place.source, 3), head)
    row = kept.by_document()["a"]
    assert (row["value"], row["rejected"]) == ({"bob": 1, "count": 2}, 1)
    assert kept.text() == (await place.table([], authority)).text()


async def test_a_roster_that_is_rolled_back_or_forged_leaves_the_former_in_force() -> None:
    place = Place()
    shared = Shared(place, is_sealed=False)
    await shared.alice.settle()
    first = await place.log.record("a", "roster")
    assert first is not None
    alice = await shared.opened(ALICE, shared.alice)
    await shared.alice.invite(Card.of(BOB))
    await set_fields(alice, 1)
    kept = await place.table([], BY_FIRST_ROSTER)
    for text in (first.text, b"junk", b'{"owner":"' + MALLORY.public_key.encode() + b'"}'):
        second = await place.log.record("a", "roster")
        assert second is not None
        await place.log.put_record("a", "roster", text, second.revision)
        bob = await place.opened("a", BOB)
        bob.set_field("bob", kept.position)
        await bob.commit()
        head = kept.position + 1
        reports = await kept.fold(
            place.folder(BY_FIRST_ROSTER), await all_events(place.source, head - 1), head
        )
        assert kept.by_document()["a"]["value"] == {"bob": head - 1, "count": 1}
        assert [each.problems[0][:22] for each in reports] == ["the roster is refused:"]


async def test_an_owner_who_is_not_configured_owns_nothing() -> None:
    place = Place()
    shared = Shared(place, is_sealed=False)
    await shared.alice.settle()
    await set_fields(await shared.opened(ALICE, shared.alice), 1)
    others = Authority("roster", owners={"": [BOB.public_key, CAROL.public_key]})
    kept = await place.table([], others)
    assert kept.by_document()["a"]["value"] == {}
    assert "may own the document" in kept.reports[0].problems[0]


async def test_a_sealed_document_is_read_once_the_archive_was_invited() -> None:
    place = Place()
    shared = Shared(place, is_sealed=True)
    await shared.alice.settle()
    alice = await shared.opened(ALICE, shared.alice)
    await set_fields(alice, 1)
    kept = await place.table([], BY_ROSTER)
    row = kept.by_document()["a"]
    assert (row["value"], row["elements"], row["rejected"]) == ({}, 0, 0)
    assert kept.reports[0].unreadable == 1
    await shared.alice.invite(Card.of(ARCHIVE), ["read"])
    await set_fields(alice, 2)
    await kept.fold(place.folder(BY_ROSTER), await all_events(place.source, 1), 2)
    row = kept.by_document()["a"]
    assert (row["value"], row["elements"]) == ({"count": 2}, 2)
    assert kept.text() == (await place.table([], BY_ROSTER)).text()
    # A new key is followed.
    await shared.alice.rotate()
    await set_fields(alice, 3)
    head = (await place.source.status()).head_seq
    await kept.fold(place.folder(BY_ROSTER), await all_events(place.source, 2), head)
    assert kept.by_document()["a"]["value"] == {"count": 3}


async def test_a_relay_that_hides_the_keyring_takes_no_key_away() -> None:
    place = Place()
    shared = Shared(place, is_sealed=True)
    await shared.alice.settle()
    alice = await shared.opened(ALICE, shared.alice)
    await shared.alice.invite(Card.of(ARCHIVE), ["read"])
    await set_fields(alice, 1)
    kept = await place.table([], BY_ROSTER)
    stored = await place.log.record("a", "keyring")
    assert stored is not None
    await place.log.put_record("a", "keyring", b"{}", stored.revision)
    await set_fields(alice, 2)
    head = (await place.source.status()).head_seq
    reports = await kept.fold(
        place.folder(BY_ROSTER), await all_events(place.source, kept.position), head
    )
    assert kept.by_document()["a"]["value"] == {"count": 2}
    assert "keyring is refused" in reports[0].problems[0]


async def test_plain_elements_in_a_sealed_document_are_rejected() -> None:
    place = Place()
    shared = Shared(place, is_sealed=True)
    await shared.alice.settle()
    await shared.alice.invite(Card.of(ARCHIVE), ["read"])
    plain = await place.opened("a", ALICE)
    await set_fields(plain, 1)
    kept = await place.table([], BY_ROSTER)
    row = kept.by_document()["a"]
    assert (row["value"], row["rejected"]) == ({}, 1)
