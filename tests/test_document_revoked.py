"""What counts of the revoked, and what becomes of edits that hang on what does not."""

from __future__ import annotations

from walstore.crdt import WalCrdt, Writer
from walstore.crdt.sequence import RunSequence
from walstore.document.revoked import counted_seq, new_fold, nobody_revoked

BEN = "be" * 32
COUNTED = {BEN: {"s": 3, "": 7}}


def test_of_the_revoked_so_much_counts_as_was_read() -> None:
    assert counted_seq(COUNTED.get, BEN, "s", 2) == 2
    assert counted_seq(COUNTED.get, BEN, "s", 9) == 3
    assert counted_seq(COUNTED.get, BEN, "t", 9) == 0
    assert counted_seq(COUNTED.get, BEN, None, 9) == 7
    assert counted_seq(COUNTED.get, "anna", "s", 9) == 9
    assert counted_seq(nobody_revoked, BEN, "s", 9) == 9


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
    crdt = new_fold(COUNTED.get, None)
    crdt.fold_runs(counted)
    crdt.fold_runs(mine)
    assert sorted(crdt.text("body")[2:]) == ["c", "d"]
    assert crdt.text("body").startswith("ab")
    assert len(crdt.displaced) == 2
    without = new_fold(nobody_revoked, None)
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
    crdt = new_fold(COUNTED.get, None)
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
    crdt = new_fold(COUNTED.get, None)
    for copy in (crdt.clone(), crdt.collected(), new_fold(COUNTED.get, crdt)):
        copy.fold_runs(mine)
        assert copy.text("body") == "c"
    assert crdt.text("body") == ""
