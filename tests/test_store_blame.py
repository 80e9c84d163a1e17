"""Blame as of any version: what a store would say that had only ever seen the log up to it."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import CAROL, MEMBERS
from tests.rigged import KEY as LOG_KEY
from tests.stores import ADA, BEN, CAM, KEY, store_of
from tests.test_document_keystrokes import Act, acts, as_text, log_of, new_log
from walstore.document import Blame, Body, WalDocument
from walstore.document.entries import Stretch
from walstore.document.ledger import Ledger
from walstore.document.ports import RawElement
from walstore.net import MemorySnapshots, MemoryTransport
from walstore.store.store import WalStore

NAMES = ("body", "tags", "title", "ages")


class ShortLog:
    """The beginning of a log, to be read and never written to."""

    def __init__(self, elements: list[RawElement]) -> None:
        self._elements = elements

    async def append(self, document_key: str, body: Body) -> int:
        raise AssertionError(f"{document_key} is only read")

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        return [element for element in self._elements if element.ts > checkpoint]


class Edit(NamedTuple):
    """What somebody does next."""

    who: int
    kind: str
    place: int
    times: int
    pulls: bool


edits = st.builds(
    Edit,
    st.integers(0, 2),
    st.sampled_from(["type", "type", "type", "erase", "tag", "untag", "title", "age", "unage"]),
    st.integers(0, 9),
    st.integers(1, 4),
    st.booleans(),
)


async def play(store: WalStore, edit: Edit) -> None:
    if edit.pulls:
        await store.pull()
    for number in range(edit.times):
        place = min(edit.place + number, len(store.text("body")))
        match edit.kind:
            case "type":
                store.edit_text("body", place, 0, "abc"[number % 3])
            case "erase":
                store.edit_text("body", place, min(2, len(store.text("body")) - place), "")
            case "tag":
                store.list("tags").append(edit.place)
            case "untag":
                del store.list("tags")[:1]
            case "title":
                store["title"] = edit.place
            case "age":
                store.put("ages", str(edit.place % 3), number)
            case _:
                store.drop("ages", str(edit.place % 3))
        await store.commit()


async def elements_of(log: MemoryTransport) -> list[RawElement]:
    return await log.tail(KEY, 10_000, 10_000_000)


@settings(deadline=None, max_examples=60)
@given(st.lists(edits, max_size=10))
async def test_blame_at_a_version_is_that_of_a_store_that_only_saw_the_log_up_to_it(
    script: list[Edit],
) -> None:
    log = MemoryTransport()
    async with (
        store_of(ADA, log, autocommit_ms=None) as ada,
        store_of(BEN, log, autocommit_ms=None) as ben,
        store_of(CAM, log, autocommit_ms=None) as cam,
    ):
        for edit in script:
            await play((ada, ben, cam)[edit.who], edit)
        await ada.pull()
        past = await ada.load_history()
        elements = await elements_of(log)
        for count, element in enumerate(elements, 1):
            async with store_of(CAM, ShortLog(elements[:count]), autocommit_ms=None) as early:
                for name in NAMES:
                    then = early.blame(name)
                    assert ada.blame(name, at=element.ts) == then
                    assert past.blame(name, at=element.ts) == then
        if elements:
            for name in NAMES:
                assert ada.blame(name, at=elements[-1].ts) == ada.blame(name)


async def read(elements: list[RawElement]) -> WalDocument:
    document = WalDocument(
        LOG_KEY,
        transport=ShortLog(elements),
        identity=CAROL,
        writers=MEMBERS,
        snapshot_role=(),
        on_author_error="skip",
    )
    return await document.open()


@settings(deadline=None, max_examples=60)
@given(st.lists(acts.filter(lambda act: act.flaw not in ("far", "unlinked")), max_size=8))
async def test_so_it_is_with_forged_repeated_and_forked_elements(script: list[Act]) -> None:
    elements = list(map(as_text, log_of(*script)))
    document = await read(elements)
    for count, element in enumerate(elements, 1):
        early = await read(elements[:count])
        for name in ("t", "r"):
            assert document.blame(name, at=element.ts) == early.blame(name)


async def test_whoever_wrote_what_somebody_erased_later_is_named_again() -> None:
    log = MemoryTransport()
    async with store_of(ADA, log) as ada, store_of(BEN, log) as ben:
        ada.set_text("body", "one")
        first = await ada.commit()
        await ben.pull()
        ben.edit_text("body", 0, 2, "tw")
        second = await ben.commit()
        await ada.pull()
        ada.edit_text("body", 0, 3, "")
        await ada.commit()
        await ada.pull()
        assert ada.blame("body") == []
        assert ada.blame("body", at=second) == [
            Blame(0, 2, BEN.public_key, second),
            Blame(2, 1, ADA.public_key, first),
        ]
        assert ada.blame("body", at=first) == [Blame(0, 3, ADA.public_key, first)]
        # A name may have been of another kind, or nothing at all.
        assert ada.blame("title", at=first) == []


async def test_what_is_not_committed_is_in_no_version() -> None:
    async with store_of(ADA, MemoryTransport(), autocommit_ms=None) as ada:
        ada.set_text("body", "one")
        ts = await ada.commit()
        await ada.pull()
        ada.edit_text("body", 3, 0, "!")
        assert ada.blame("body")[-1] == Blame(3, 1, ADA.public_key, None)
        assert ada.blame("body", at=ts) == [Blame(0, 3, ADA.public_key, ts)]


async def test_a_version_that_is_not_here_is_refused() -> None:
    log, snapshots = MemoryTransport(), MemorySnapshots()
    async with store_of(ADA, log, snapshots=snapshots) as ada:
        ada.set_text("body", "one")
        first = await ada.commit()
        await ada.pull()
        assert first is not None
        with pytest.raises(ValueError, match="pull first"):
            ada.blame("body", at=first + 1)
        ada.set_text("body", "one two")
        await ada.commit()
        await ada.snapshot()
    async with store_of(BEN, log, snapshots=snapshots) as ben:
        with pytest.raises(ValueError, match="starts at"):
            ben.blame("body", at=first)
        # What only the snapshot vouches for has an author and no element.
        known = ben.document.current_checkpoint
        assert ben.blame("body", at=known) == [Blame(0, 7, ADA.public_key, None)]


def test_the_order_of_the_log_counts_not_the_one_in_which_it_could_be_read() -> None:
    """What was sealed with a key that came late was folded after what repeats it."""
    script = [Act("alice", "s", "type", 4, ""), Act("alice", "s", "set", 1, "")]
    elements = log_of(*script, Act("alice", "s", "type", 1, "retry"))
    single, gathered = new_log(), new_log()
    single.read(elements)
    gathered.read(list(map(as_text, elements)))
    late = Ledger()
    for entry in reversed(single.ledger.entries):
        late.add(entry)
    alice = f"{single.ledger.entries[0].author}:s"
    assert late.find_origin(alice, 4, 5)[0] == (alice[:-2], 6)
    assert late.upto(6).find_origin(alice, 4, 5)[0] == (alice[:-2], 4)
    assert late.upto(4).find_origin(alice, 5, 6)[0] is None
    # The same with keystrokes that are kept as one.
    (stretch, *others) = gathered.ledger.entries.parts
    assert isinstance(stretch, Stretch)
    mixed = Ledger()
    for entry in gathered.ledger.entries[5:]:
        mixed.add(entry)
    mixed.add_stretch(stretch)
    assert mixed.find_origin(alice, 1, 9) == ((alice[:-2], 1), 2)
    assert mixed.find_origin(alice, 4, 9) == ((alice[:-2], 6), 5)
    assert mixed.upto(6).find_origin(alice, 4, 9) == ((alice[:-2], 4), 5)
    assert len(others) == 2
