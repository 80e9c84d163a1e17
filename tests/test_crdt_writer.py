"""Local edits: a writer beside a plain Python list, and what it records for the others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.delivery import Step, deliver, differences, through_json
from tests.oracle import AnyOp, Oracle, canon
from tests.strategies import (
    CHARACTERS,
    COUNTER_MAX,
    VALUES,
    adversarial_histories,
    histories,
    honest_histories,
    randoms,
)
from walstore.crdt import (
    ClockExhaustedError,
    WalCrdt,
    Writer,
    pack_ops,
    to_ops,
    unpack_ops,
)
from walstore.errors import NameRefusedError, NotJsonError

# What a law costs depends on what else the machine does; only its outcome counts.
law = settings(deadline=None)


def seen_by_all(crdt: WalCrdt) -> tuple[str, str]:
    return crdt.canonical_state(), canon(crdt.materialize())


def folded(ops: Sequence[AnyOp]) -> WalCrdt:
    return deliver([Step("fold", list(ops), "keep")])


class Model:
    """A writer beside a plain list that is edited in the same way."""

    def __init__(self, ops: Sequence[AnyOp], replica: str = "writer") -> None:
        self.crdt = folded(ops)
        self.writer = Writer(self.crdt, replica)
        self.values: list[Any] = self.crdt.list_values("body")

    def edit(self, rng: random.Random) -> None:
        position = rng.randint(0, len(self.values))
        match rng.randrange(3):
            case 0:
                text = "".join(rng.choices(CHARACTERS[:12], k=rng.randint(1, 5)))
                self.writer.insert_text("body", position, text)
                self.values[position:position] = text
            case 1:
                values = rng.choices(VALUES, k=rng.randint(1, 3))
                self.writer.insert("body", position, values)
                self.values[position:position] = values
            case _:
                count = rng.randint(0, min(4, len(self.values) - position))
                self.writer.remove("body", position, count)
                del self.values[position : position + count]


def small_counters(ops: Sequence[AnyOp]) -> list[AnyOp]:
    """The ops that leave a clock room to tick."""
    return [op for op in ops if op["clock"]["c"] < 2**53 - 2**20]


@law
@given(st.just([]) | histories().map(small_counters), randoms(), st.integers(1, 30))
def test_edits_at_positions_do_what_they_do_to_a_plain_list(
    ops: list[AnyOp], rng: random.Random, edits: int
) -> None:
    model = Model(ops)
    for _ in range(edits):
        model.edit(rng)
        model.crdt.check()
        assert canon(model.crdt.list_values("body")) == canon(model.values)
        assert len(model.crdt.list_ids("body")) == len(model.values)


@law
@given(honest_histories().map(small_counters), randoms(), st.integers(0, 15), st.booleans())
def test_recorded_edits_replay_to_the_same_document(
    ops: list[AnyOp], rng: random.Random, edits: int, one_take: bool
) -> None:
    model = Model(ops)
    runs = []
    for number in range(edits):
        model.edit(rng)
        _edit_names(rng, model.writer, number)
        if not one_take:
            runs.extend(model.writer.take())
    runs.extend(model.writer.take())
    assert model.writer.take() == []
    recorded = through_json(to_ops(runs))
    assert differences(model.crdt, Oracle().fold([*ops, *recorded])) == {}
    remote = deliver([Step("fold", ops, "keep"), Step("packed", recorded, "keep")])
    assert seen_by_all(remote) == seen_by_all(model.crdt)
    _check_stamps(recorded, start=max([op["clock"]["c"] for op in ops], default=0))


def _edit_names(rng: random.Random, writer: Writer, number: int) -> None:
    name, key = rng.choice(("body", "title")), rng.choice(("k", "l"))
    match rng.randrange(5):
        case 0:
            writer.set(name, number)
        case 1:
            writer.delete(name)
        case 2:
            writer.put(name, key, [number])
        case 3:
            writer.drop(name, key)


def _check_stamps(ops: Sequence[AnyOp], *, start: int) -> None:
    """Each op ticks the clock once, from above everything seen."""
    assert [op["clock"]["c"] for op in ops] == list(range(start + 1, start + 1 + len(ops)))


@law
@given(honest_histories().map(small_counters), randoms(), st.integers(1, 8))
def test_writers_that_exchange_what_they_recorded_agree(
    ops: list[AnyOp], rng: random.Random, rounds: int
) -> None:
    left, right = Model(ops, "left"), Model(ops, "right")
    for _ in range(rounds):
        for model in (left, right):
            model.edit(rng)
        from_left, from_right = left.writer.take(), right.writer.take()
        left.crdt.fold_runs(unpack_ops(through_json(pack_ops(from_right))))
        right.crdt.fold_runs(unpack_ops(through_json(pack_ops(from_left))))
        for model in (left, right):
            model.crdt.check()
            model.values = model.crdt.list_values("body")
        assert seen_by_all(left.crdt) == seen_by_all(right.crdt)


# ── positions and ids ─────────────────────────────────────────────────────────────────


@law
@given(histories())
def test_positions_and_ids_find_one_another(ops: list[AnyOp]) -> None:
    crdt = folded(ops)
    for name in [*crdt.list_names(), "no such list"]:
        ids = crdt.list_ids(name)
        assert crdt.list_length(name) == len(ids)
        assert [crdt.id_at(name, position) for position in range(len(ids))] == ids
        assert [crdt.position_of(name, id) for id in ids] == list(range(len(ids)))
        for position in (-1, len(ids)):
            with pytest.raises(IndexError):
                crdt.id_at(name, position)


@law
@given(histories())
def test_a_removed_element_keeps_its_place(ops: list[AnyOp]) -> None:
    crdt, oracle = folded(ops), Oracle().fold(ops)
    for name in oracle.list_names():
        walked = oracle.walk(name)
        live_before = 0
        for node in walked:
            assert crdt.find_element(name, node["id"]) == (live_before, not node["deleted"])
            if node["deleted"]:
                assert crdt.position_of(name, node["id"]) is None
            live_before += not node["deleted"]
        unreachable = set(oracle.lists[name]) - {node["id"] for node in walked}
        for id in [*unreachable, "no such id", ""]:
            assert crdt.find_element(name, id) is None


# ── what a writer refuses ─────────────────────────────────────────────────────────────


def test_removing_from_a_list_that_is_not_there_leaves_no_trace() -> None:
    crdt = WalCrdt()
    writer = Writer(crdt, "writer")
    writer.remove("body", 0, 3)
    writer.insert_text("body", 0, "")
    writer.insert("body", 0, [])
    assert crdt.materialize() == {}
    assert writer.take() == []


@pytest.mark.parametrize(
    ("position", "expected"), [(-5, "xab"), (0, "xab"), (1, "axb"), (2, "abx"), (9, "abx")]
)
def test_positions_outside_the_list_are_clamped(position: int, expected: str) -> None:
    crdt = WalCrdt()
    writer = Writer(crdt, "writer")
    writer.insert_text("body", 0, "ab")
    writer.insert_text("body", position, "x")
    assert crdt.text("body") == expected


@pytest.mark.parametrize("name", ["__proto__", "constructor", "prototype", "__class__", "__dict__"])
def test_names_that_peers_would_drop_are_refused(name: str) -> None:
    crdt = WalCrdt()
    writer = Writer(crdt, "writer")
    with pytest.raises(NameRefusedError):
        writer.insert_text(name, 0, "x")
    with pytest.raises(NameRefusedError):
        writer.insert(name, 0, [1])
    with pytest.raises(NameRefusedError):
        writer.remove(name, 0)
    with pytest.raises(NameRefusedError):
        writer.set(name, 1)
    with pytest.raises(NameRefusedError):
        writer.delete(name)
    with pytest.raises(NameRefusedError):
        writer.put(name, "k", 1)
    with pytest.raises(NameRefusedError):
        writer.put("map", name, 1)
    assert crdt.materialize() == {}
    assert writer.take() == []


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**53, b"x", {1: 2}, {"a": {1}}, [float("nan")], {"__proto__": 1}],
    ids=repr,
)
def test_values_that_are_not_json_are_refused_whole(value: Any) -> None:
    crdt = WalCrdt()
    writer = Writer(crdt, "writer")
    with pytest.raises(NotJsonError):
        writer.insert("body", 0, ["a", 1, value])
    with pytest.raises(NotJsonError):
        writer.set("title", value)
    with pytest.raises(NotJsonError):
        writer.put("todo", "k", value)
    assert (crdt.materialize(), crdt.counter, writer.take()) == ({}, 0, [])


@law
@given(adversarial_histories(), st.integers(0, 3), randoms())
def test_a_clock_without_room_refuses_the_whole_edit(
    ops: list[AnyOp], room: int, rng: random.Random
) -> None:
    crdt = folded(small_counters(ops))
    late: AnyOp = {"t": "none", "clock": {"c": COUNTER_MAX - room, "r": "a"}}
    crdt.apply(late)
    writer = Writer(crdt, "writer")
    before = canon(crdt.export_state())
    # Characters and values are recorded as separate runs; neither may go in without the other.
    values: list[Any] = [*"ab", 1, 2] if rng.random() < 0.5 else [1, "a"]
    if len(values) > room:
        with pytest.raises(ClockExhaustedError):
            writer.insert("body", 0, values)
        assert (canon(crdt.export_state()), writer.take()) == (before, [])
    count = crdt.list_length("body")
    if count > room:
        with pytest.raises(ClockExhaustedError):
            writer.remove("body", 0, count)
        assert (canon(crdt.export_state()), writer.take()) == (before, [])
    crdt.check()
