"""What a hostile element may cost: time in proportion to its size, whatever the lists are like."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from tests.counting import steps_of
from tests.strategies import adversarial_history, randoms
from walstore import compiled
from walstore.crdt import Change, ListChanged, Run, WalCrdt, Writer, to_runs
from walstore.crdt.nodes import NodeSequence
from walstore.crdt.runs import Insert
from walstore.document.bases import Bases

counted = pytest.mark.skipif(compiled, reason="the steps of compiled code cannot be counted")


def irregular(size: int) -> WalCrdt:
    """A text with an element that waits for its anchor."""
    crdt = WalCrdt()
    Writer(crdt, "a").insert_text("l", 0, "x" * size)
    crdt.fold_runs([Insert("l", "b", 1, "nobody", 7, "?")], [])
    assert isinstance(crdt.sequence("l"), NodeSequence)
    return crdt


def grows_as(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """How much more work four times as much is."""
    return steps_of(work(4 * size)) / steps_of(work(size))


@counted
def test_many_runs_of_an_irregular_list_are_compared_once() -> None:
    def folding(size: int) -> Callable[[], object]:
        crdt = irregular(10)
        runs: list[Run] = [Insert("l", "c", 100 + n, "", 0, "y") for n in range(size)]
        return lambda: crdt.fold_runs(runs, [])

    assert grows_as(folding, 100) < 6


@counted
def test_a_keystroke_in_an_irregular_list_walks_no_tree() -> None:
    crdt = irregular(1000)
    writer = Writer(crdt, "c")
    writer.insert_text("l", 500, "y")
    assert steps_of(lambda: writer.insert_text("l", 501, "z")) < 1500
    assert crdt.text("l") == "x" * 500 + "yz" + "x" * 500


@counted
def test_equal_counters_are_no_detour() -> None:
    def folding(size: int) -> Callable[[], object]:
        crdt = WalCrdt()
        crdt.fold_runs([Insert("l", f"{10**6 - n}", 7, "", 0, "x") for n in range(size)])
        crdt.sequence("l")
        later: list[Run] = [Insert("l", f"{10**5 - n}", 7, "", 0, "x") for n in range(size)]
        return lambda: crdt.fold_runs(iter(later))

    assert grows_as(folding, 200) < 8


@counted
def test_inserts_after_what_was_let_go_look_at_their_own_replica() -> None:
    def folding(size: int) -> Callable[[], object]:
        crdt = WalCrdt()
        writer = Writer(crdt, "a")
        writer.insert_text("l", 0, "x" * 2 * size)
        for position in range(size):
            writer.remove("l", position, 1)
        collected = crdt.collected()
        runs: list[Run] = [
            Insert("l", "m", crdt.counter + 1 + 2 * n, "a", 2 * n + 1, "m") for n in range(size)
        ]
        return lambda: collected.fold_runs(runs, [])

    assert grows_as(folding, 100) < 8


@counted
def test_inserts_that_move_in_an_irregular_list_do_not_look_at_every_node() -> None:
    def folding(size: int) -> Callable[[], object]:
        crdt = irregular(size).collected()
        runs: list[Run] = [
            Insert("l", "m", crdt.counter + 1 + 2 * n, "gone", n + 1, "m") for n in range(size)
        ]

        def fold() -> None:
            crdt.fold_runs(runs, [])
            assert len(crdt.displaced) == size

        return fold

    assert grows_as(folding, 100) < 6


@counted
def test_scattered_changes_are_followed_at_once() -> None:
    def following(size: int) -> Callable[[], object]:
        bases = Bases()
        base = bases.show("l", "x" * 3 * size)
        changes = [(3 * n % (2 * size), n % 2, 1) for n in range(size)]

        def follow() -> None:
            bases.follow("l", changes)
            assert base in bases.latest.values()

        return follow

    assert grows_as(following, 200) < 8


@given(randoms())
def test_the_changes_of_many_runs_lead_from_what_was_shown_to_what_is(rng: random.Random) -> None:
    history = adversarial_history(rng, 12)
    runs = [run for run in to_runs(history) if getattr(run, "list", "l") != "__proto__"]
    crdt = WalCrdt()
    crdt.fold_runs(runs[: len(runs) // 2])
    shown: dict[str, list[Any]] = {name: crdt.list_values(name) for name in crdt.list_names()}
    changes: list[Change] = []
    crdt.fold_runs(runs[len(runs) // 2 :], changes)
    for change in changes:
        if isinstance(change, ListChanged):
            values = shown.setdefault(change.list, [])
            end = change.position + change.removed
            assert end <= len(values)
            values[change.position : end] = change.inserted
    for name in crdt.list_names():
        assert shown.pop(name, []) == crdt.list_values(name)
    assert not any(shown.values())


def test_what_stays_in_an_irregular_list_is_not_told_as_changed() -> None:
    crdt = irregular(6)
    changes: list[Change] = []
    runs: list[Run] = [Insert("l", "c", 100, "", 0, "y"), Insert("l", "c", 101, "a", 6, "z")]
    crdt.fold_runs(runs, changes)
    assert changes == [ListChanged("l", 0, 0, ["y"]), ListChanged("l", 7, 0, ["z"])]
