"""What a document looks like inside: as few spans as can be, and runs as long as they hold."""

from __future__ import annotations

import pytest

from walstore.crdt import WalCrdt, Writer
from walstore.crdt.runs import Remove
from walstore.crdt.sequence import RunSequence


def edited() -> tuple[WalCrdt, Writer]:
    crdt = WalCrdt()
    writer = Writer(crdt, "ada")
    writer.insert_text("body", 0, "abcdefgh")
    return crdt, writer


def spans_of(crdt: WalCrdt) -> list[tuple[int, bool]]:
    """How many elements each span has, and whether they are there."""
    sequence = crdt.lists["body"]
    assert isinstance(sequence, RunSequence)
    return [(len(span.values), bool(span.live)) for span in sequence.tree.spans()]


@pytest.mark.parametrize("places", [(2, 2, 2), (4, 3, 2), (3, 2, 2), (3, 3, 2)])
def test_removed_neighbours_are_one_span_in_whatever_order_they_were_removed(
    places: tuple[int, ...],
) -> None:
    crdt, writer = edited()
    for place in places:
        writer.remove("body", place)
    assert spans_of(crdt) == [(2, True), (3, False), (3, True)]
    crdt.check()


@pytest.mark.parametrize("place", [0, 3, 7])
def test_what_somebody_else_removes_leaves_runs(place: int) -> None:
    crdt, writer = edited()
    there = WalCrdt()
    there.fold_runs(writer.take())
    writer.remove("body", place)
    there.fold_runs(writer.take())
    assert spans_of(there) == spans_of(crdt)


def test_a_replica_is_known_by_any_write_to_a_map() -> None:
    crdt, writer = edited()
    assert not crdt.has_replica("bob")
    other = Writer(crdt, "bob")
    other.put("map", "key", 1)
    assert crdt.has_replica("bob")
    writer.drop("map", "key")
    assert crdt.has_replica("bob")
    assert not crdt.has_replica("carol")


def test_a_remove_of_what_was_let_go_of_leaves_nothing_behind() -> None:
    crdt, writer = edited()
    writer.remove("body", 2, 3)
    removes = [run for run in writer.take() if isinstance(run, Remove)]
    without = crdt.collected()
    before = without.canonical_state()
    without.fold_runs(removes)
    assert without.canonical_state() == before
    assert isinstance(without.lists["body"], RunSequence)
