"""Removes of what has not come: exact, in whatever order, and cheap, however many ids they name."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given

from tests.oracle import Oracle
from tests.strategies import randoms
from walstore.crdt import Run, WalCrdt, Writer, to_ops
from walstore.crdt.nodes import NodeSequence
from walstore.crdt.packed_state import StateTooLargeError
from walstore.crdt.placeholders import Awaited, normal
from walstore.crdt.runs import Insert, Remove
from walstore.errors import MalformedError

MANY = 2**16


def random_runs(rng: random.Random) -> list[Run]:
    """Inserts and removes of a few ids, that overlap in every way."""
    runs: list[Run] = []
    clocks = {"a": 1, "b": 1, "c": 30}
    for _ in range(rng.randint(1, 10)):
        replica = rng.choice("abc")
        size = rng.randint(1, 5)
        counter = clocks[replica]
        clocks[replica] += size
        if rng.random() < 0.4:
            after = rng.randint(0, 12)
            anchor = rng.choice("ab") if after else ""
            runs.append(Insert("l", replica, counter, anchor, after, "vwxyz"[:size]))
        else:
            first, step = rng.randint(1, 12), rng.choice((1, -1))
            target = first if step == 1 else first + size - 1
            runs.append(Remove("l", replica, counter, rng.choice("ab"), target, size, step))
    rng.shuffle(runs)
    return runs


def folded(runs: list[Run]) -> WalCrdt:
    crdt = WalCrdt()
    for run in runs:
        crdt.fold_runs([run])
    return crdt


@given(randoms())
def test_removes_of_what_has_not_come_are_those_of_the_format(rng: random.Random) -> None:
    runs = random_runs(rng)
    crdt, oracle = folded(runs), Oracle().fold(to_ops(runs))
    assert crdt.export_state() == oracle.export_state()
    assert crdt.materialize() == oracle.materialize()
    assert crdt.canonical_state() == oracle.canonical_state()
    assert crdt.list_ids("l") == oracle.list_ids("l")


@given(randoms())
def test_every_passage_keeps_what_is_awaited(rng: random.Random) -> None:
    runs = random_runs(rng)
    crdt, later = folded(runs), random_runs(rng)
    packed, plain, joined = WalCrdt(), WalCrdt(), WalCrdt()
    packed.import_packed(json.loads(json.dumps(crdt.export_packed())))
    plain.import_state(crdt.export_state())
    joined.join(crdt)
    joined.join(crdt)
    assert packed.export_packed() == crdt.export_packed()
    for other in (packed, plain, joined, crdt.clone()):
        assert other.canonical_state() == crdt.canonical_state()
        assert other.is_same(crdt)
    for other in (packed, plain, joined):
        other.fold_runs(later)
    assert packed.canonical_state() == plain.canonical_state() == joined.canonical_state()


@given(randoms())
def test_the_normal_form_does_not_depend_on_the_cuts(rng: random.Random) -> None:
    clocks = [(first, rng.randint(1, 3) + first * rng.choice((1, -1)) % 7) for first in range(1, 9)]
    ones = [Awaited("a", first, 1, "b", counter, 1, 0) for first, counter in clocks]
    whole = normal(ones)
    cut = [part for each in whole for part in cut_up(rng, each)]
    rng.shuffle(cut)
    assert [each.fields() for each in normal(cut)] == [each.fields() for each in whole]


def cut_up(rng: random.Random, awaited: Awaited) -> list[Awaited]:
    at = rng.randint(awaited.first, awaited.end)
    bounds = ((awaited.first, at), (at, awaited.end))
    return [awaited.part(first, end) for first, end in bounds if first < end]


@pytest.mark.parametrize("step", [1, -1])
def test_many_ids_that_nobody_wrote_cost_next_to_nothing(step: int) -> None:
    crdt = WalCrdt()
    tracemalloc.start()
    for number in range(4):
        first = 1 + number * MANY
        target = first if step == 1 else first + MANY - 1
        crdt.fold_runs([Remove("l", "b", first, "x" * 193, target, MANY, step)], [])
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 100_000
    assert len(json.dumps(crdt.export_packed())) < 1000
    clone = WalCrdt()
    clone.import_packed(crdt.export_packed())
    assert clone.is_same(crdt)


def test_what_is_spelled_out_is_held_as_ranges_too() -> None:
    crdt, again = WalCrdt(), WalCrdt()
    crdt.fold_runs([Remove("l", "b", 1, "x", 1, 1000), Remove("l", "b", 1001, "x", 3000, 1000, -1)])
    again.import_state(crdt.export_state())
    sequence = again.sequence("l")
    assert isinstance(sequence, NodeSequence)
    assert len(list(sequence.awaited)) == 2
    assert again.export_state() == crdt.export_state()


def test_what_was_awaited_comes_removed_and_the_list_is_regular_again() -> None:
    crdt = WalCrdt()
    writer = Writer(WalCrdt(), "a")
    writer.insert_text("l", 0, "hello")
    crdt.fold_runs([Remove("l", "b", 9, "a", 2, 2)])
    crdt.fold_runs(writer.take())
    assert crdt.text("l") == "hlo"
    assert not isinstance(crdt.sequence("l"), NodeSequence)


@pytest.mark.parametrize(
    "awaited",
    [
        [],
        [["x", "b", [0, 1, 1]]],
        [["x", "b", [1, 0, 1]]],
        [["x", "b", [1, 1, 0]]],
        [["x", "b", [2**53 - 1, 3, 1]]],
        [["x", "b", [1, 4, 1]]],
        [["x", "b", [1, 1]]],
        [["x", "b", [1.0, 1, 1]]],
        [["x" * 194, "b", [1, 1, 1]]],
        [["x", "b", [1, 1, 1]], ["x", "a", [1, 1, 1]]],
        [["x", "a", [1, 1, 1]], ["x", "b", [1, 1, 1]]],
        [["x", "b", [1, 1, 1, 2, 1, 2]]],
        [["x", "b", [1, 3, 1, 2, 1, 5]]],
        [["x", "b", [1, 1, 100]]],
        [["n", "b", [7, 1, 1]]],
    ],
)
def test_what_is_awaited_is_read_with_care(awaited: list[Any]) -> None:
    clock = {"c": 7, "r": "n"}
    node = {"id": "7@n", "after": "z", "clock": clock, "value": "v", "deleted": False}
    crdt = WalCrdt()
    with pytest.raises(MalformedError):
        crdt.import_packed([1, [], [], [["l", [node], awaited]], [], 99])
    assert crdt.names() == []


@given(randoms())
def test_of_two_placeholders_the_older_clock_stays(rng: random.Random) -> None:
    left, right = random_runs(rng), random_runs(rng)
    one, other = folded(left), folded(right)
    one.join(folded(right))
    other.join(folded(left))
    for crdt in (one, other):
        (again := WalCrdt()).import_state(crdt.export_state())
        assert again.is_same(crdt)
    expected: dict[str, tuple[int, str]] = {}
    for nodes in (folded(runs).export_state()["lists"].get("l", []) for runs in (left, right)):
        for node in nodes:
            if node["pending"]:
                clock = node["clock"]["c"], node["clock"]["r"]
                expected[node["id"]] = min(clock, expected.get(node["id"], clock))
    for crdt in (one, other):
        for node in crdt.export_state()["lists"].get("l", []):
            if node["pending"]:
                assert expected[node["id"]] == (node["clock"]["c"], node["clock"]["r"])


def test_a_state_may_await_more_than_anybody_could_spell_out() -> None:
    crdt, joined = WalCrdt(), WalCrdt()
    crdt.import_packed([1, [], [], [["l", [], [["x", "b", [1, 2**50, 2**50]]]]], [], 2**52])
    joined.fold_runs([Insert("l", "x", 7, "", 0, "v"), Remove("l", "a", 1, "x", 5, 2)])
    joined.join(crdt)
    joined.join(crdt.clone())
    crdt.join(joined)
    assert crdt.is_same(joined)
    assert crdt.text("l") == ""
    with pytest.raises(StateTooLargeError):
        crdt.export_state()
