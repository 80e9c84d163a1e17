"""The laws of the fold, against the oracle and among themselves."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.delivery import (
    PASSAGES,
    WAYS,
    Step,
    deliver,
    delivered_ops,
    differences,
    keeps_arrival,
    random_delivery,
    through_json,
)
from tests.fuzz import run
from tests.oracle import AnyOp, Oracle, canon
from tests.strategies import (
    adversarial_histories,
    adversarial_states,
    crowded_history,
    histories,
    honest_histories,
    honest_history,
    randoms,
    shuffled,
    shuffled_behind_anchors,
    split,
)
from walstore.crdt import (
    Change,
    ListChanged,
    MapChanged,
    RegisterChanged,
    WalCrdt,
    pack_ops,
    to_ops,
    to_runs,
    unpack_ops,
)

# What a law costs depends on what else the machine does; only its outcome counts.
law = settings(deadline=None)

History: TypeAlias = Callable[[random.Random, int], list[AnyOp]]
Order: TypeAlias = Callable[[random.Random, Sequence[AnyOp]], list[AnyOp]]


def in_order(_: random.Random, ops: Sequence[AnyOp]) -> list[AnyOp]:
    return list(ops)


def folded(ops: Sequence[AnyOp]) -> WalCrdt:
    crdt = WalCrdt()
    crdt.fold(ops)
    crdt.check()
    return crdt


def joined(left: WalCrdt, right: WalCrdt) -> WalCrdt:
    both = left.clone()
    both.join(right)
    both.check()
    return both


def seen_by_all(crdt: WalCrdt) -> tuple[str, str]:
    return crdt.canonical_state(), canon(crdt.materialize())


# ── the fold ──────────────────────────────────────────────────────────────────────────


@law
@given(histories(), randoms())
def test_any_delivery_in_one_order_equals_the_oracle(ops: list[AnyOp], rng: random.Random) -> None:
    steps = random_delivery(rng, ops)
    arrival = keeps_arrival(steps)
    assert differences(deliver(steps), Oracle().fold(ops), arrival=arrival) == {}


@law
@given(adversarial_histories(), randoms())
def test_every_step_of_a_hostile_delivery_equals_the_oracle(
    ops: list[AnyOp], rng: random.Random
) -> None:
    steps = random_delivery(rng, ops)
    for end in range(len(steps)):
        seen = steps[: end + 1]
        expected = Oracle().fold(delivered_ops(seen))
        assert differences(deliver(seen), expected, arrival=keeps_arrival(seen)) == {}


@law
@given(histories())
def test_reading_between_ops_changes_nothing(ops: list[AnyOp]) -> None:
    crdt, oracle = WalCrdt(), Oracle()
    for op in ops:
        crdt.apply(op)
        oracle.apply(op)
        crdt.check()
        assert differences(crdt, oracle) == {}


@law
@given(honest_histories(), randoms())
def test_honest_ops_fold_alike_in_any_order_with_any_repetition(
    ops: list[AnyOp], rng: random.Random
) -> None:
    crdt = deliver(random_delivery(rng, shuffled(rng, ops)))
    assert seen_by_all(crdt) == seen_by_all(folded(ops))


@law
@given(histories())
def test_folding_everything_again_changes_nothing(ops: list[AnyOp]) -> None:
    crdt = folded(ops)
    once = canon(crdt.export_state()), canon(crdt.materialize())
    crdt.fold(ops)
    crdt.check()
    assert (canon(crdt.export_state()), canon(crdt.materialize())) == once


@pytest.mark.parametrize("order", [in_order, shuffled, shuffled_behind_anchors])
@pytest.mark.parametrize("history", [honest_history, crowded_history])
def test_a_long_history_equals_the_oracle(history: History, order: Order) -> None:
    rng = random.Random("long")
    ops = order(rng, history(rng, 2500))
    steps = random_delivery(rng, ops)
    arrival = keeps_arrival(steps)
    assert differences(deliver(steps), Oracle().fold(ops), arrival=arrival) == {}


def test_a_chain_as_long_as_a_document_is_walked_without_recursion() -> None:
    size = 100_000
    ops: list[AnyOp] = [
        {
            "t": "ins",
            "list": "body",
            "id": f"{counter}@a",
            "after": f"{counter - 1}@a" if counter > 1 else "",
            "clock": {"c": counter, "r": "a"},
            "value": "x",
        }
        for counter in range(1, size + 1)
    ]
    for order in (ops, ops[::-1]):
        took_s = float("inf")
        for _ in range(3):
            begun_s = time.process_time()
            assert folded(order).text("body") == "x" * size
            took_s = min(took_s, time.process_time() - begun_s)
            if took_s < 2:
                break
        # What is quadratic takes minutes.
        assert took_s < 2


def test_the_fuzzer_finds_no_difference() -> None:
    lines: list[str] = []
    assert run("test", range(300), lines.append), "\n".join(lines)


# ── what a fold reports ───────────────────────────────────────────────────────────────


def shown_parts(crdt: WalCrdt) -> tuple[dict[str, list[Any]], dict[Any, str], dict[Any, str]]:
    """The lists, the registers and the keys of maps, each apart from the others."""
    lists = {name: crdt.list_values(name) for name in crdt.list_names()}
    registers = {
        name: canon(entry["value"])
        for name, entry in crdt.export_state()["regs"].items()
        if not entry["deleted"]
    }
    maps = {
        (name, key): canon(value)
        for name in crdt.map_names()
        for key, value in crdt.map_items(name).items()
    }
    return lists, registers, maps


def changed_names(before: dict[Any, str], after: dict[Any, str]) -> set[Any]:
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


@law
@given(histories(), randoms())
def test_the_reported_changes_lead_from_the_old_document_to_the_new(
    ops: list[AnyOp], rng: random.Random
) -> None:
    crdt = WalCrdt()
    for batch in split(rng, ops):
        lists, registers, maps = shown_parts(crdt)
        changes: list[Change] = []
        crdt.fold(batch, changes)
        lists_after, registers_after, maps_after = shown_parts(crdt)
        for change in changes:
            if isinstance(change, ListChanged):
                values = lists.setdefault(change.list, [])
                end = change.position + change.removed
                assert 0 <= change.position <= end <= len(values)
                values[change.position : end] = change.inserted
        shown = {name: values for name, values in lists_after.items() if values}
        assert canon({name: values for name, values in lists.items() if values}) == canon(shown)
        reported = {change.register for change in changes if isinstance(change, RegisterChanged)}
        assert reported >= changed_names(registers, registers_after)
        dropped = {(c.map, c.key) for c in changes if isinstance(c, MapChanged)}
        assert dropped >= changed_names(maps, maps_after)


@law
@given(histories())
def test_what_is_known_already_reports_no_change(ops: list[AnyOp]) -> None:
    crdt = folded(ops)
    changes: list[Change] = []
    crdt.fold(ops, changes)
    assert changes == []


# ── joining documents ─────────────────────────────────────────────────────────────────


def some_of(rng: random.Random, ops: Sequence[AnyOp]) -> list[AnyOp]:
    return [op for op in shuffled(rng, ops) if rng.random() < 0.6]


@law
@given(honest_histories(), randoms())
def test_a_join_equals_the_fold_of_all_ops(ops: list[AnyOp], rng: random.Random) -> None:
    left = some_of(rng, ops)
    # Between them the two sides hold everything, so that no remove waits for its insert.
    right = [op for op in ops if op not in left or rng.random() < 0.3]
    both = joined(folded(left), folded(right))
    assert seen_by_all(both) == seen_by_all(folded(ops))


@law
@given(honest_histories(), randoms())
def test_joining_is_commutative_associative_and_idempotent(
    ops: list[AnyOp], rng: random.Random
) -> None:
    a, b, c = (folded(some_of(rng, ops)) for _ in range(3))
    assert seen_by_all(joined(a, b)) == seen_by_all(joined(b, a))
    assert seen_by_all(joined(joined(a, b), c)) == seen_by_all(joined(a, joined(b, c)))
    assert seen_by_all(joined(joined(a, b), b)) == seen_by_all(joined(a, b))
    assert seen_by_all(joined(a, a)) == seen_by_all(a)


def test_placeholders_left_by_different_removes_join_alike() -> None:
    """A remove of an element that neither side has seen leaves its own clock behind."""
    removes: list[AnyOp] = [
        {"t": "rmv", "list": "body", "id": "1@x", "clock": {"c": counter, "r": replica}}
        for counter, replica in ((3, "y"), (2, "z"), (2, "y"))
    ]
    a, b, c = (folded([op]) for op in removes)
    assert seen_by_all(joined(a, b)) == seen_by_all(joined(b, a))
    assert seen_by_all(joined(joined(a, b), c)) == seen_by_all(joined(a, joined(b, c)))


@law
@given(histories(), histories())
def test_a_join_moves_the_counter_past_both(left: list[AnyOp], right: list[AnyOp]) -> None:
    both = joined(folded(left), folded(right))
    assert both.counter == Oracle().fold([*left, *right]).counter


@law
@given(honest_histories(), randoms())
def test_a_join_leaves_the_other_document_as_it_was(ops: list[AnyOp], rng: random.Random) -> None:
    left, right = folded(some_of(rng, ops)), folded(some_of(rng, ops))
    before = canon(right.export_state()), canon(right.materialize())
    left.join(right)
    left.fold(ops)
    right.check()
    assert (canon(right.export_state()), canon(right.materialize())) == before


# ── other spellings of the same ops and states ────────────────────────────────────────


@law
@given(histories())
def test_runs_and_packed_runs_lose_nothing(ops: list[AnyOp]) -> None:
    runs = to_runs(ops)
    assert canon(to_ops(runs)) == canon(ops)
    assert canon(to_ops(unpack_ops(through_json(pack_ops(runs))))) == canon(ops)


@law
@given(histories(), st.sampled_from(sorted(PASSAGES)), histories())
def test_a_document_goes_on_after_any_passage_as_if_it_had_not_passed(
    ops: list[AnyOp], passage: str, more: list[AnyOp]
) -> None:
    steps = [Step("fold", ops, passage), Step("fold", more, "keep")]
    expected = Oracle().fold([*ops, *more])
    assert differences(deliver(steps), expected, arrival=keeps_arrival(steps)) == {}


@law
@given(adversarial_states(), adversarial_histories())
def test_a_document_goes_on_from_any_state_as_the_oracle_does(
    state: dict[str, Any], ops: list[AnyOp]
) -> None:
    crdt = WalCrdt()
    crdt.import_state(state)
    crdt.check()
    oracle = Oracle().import_state(through_json(state))
    assert differences(crdt, oracle) == {}
    crdt.fold(ops)
    crdt.check()
    assert differences(crdt, oracle.fold(ops)) == {}


@law
@given(histories(), randoms())
def test_the_counter_is_the_highest_that_was_seen(ops: list[AnyOp], rng: random.Random) -> None:
    crdt = folded(ops)
    assert crdt.counter == Oracle().fold(ops).counter
    assert crdt.clone().counter == crdt.counter
    state = crdt.export_state()
    fresh = WalCrdt()
    fresh.import_state(state)
    clocks = [entry["clock"]["c"] for entry in state["regs"].values()]
    clocks += [node["clock"]["c"] for nodes in state["lists"].values() for node in nodes]
    assert max(clocks, default=0) <= fresh.counter <= crdt.counter


@law
@given(histories(), histories())
def test_a_clone_and_its_origin_go_separate_ways(ops: list[AnyOp], more: list[AnyOp]) -> None:
    crdt = folded(ops)
    clone = crdt.clone()
    clone.fold(more)
    assert differences(crdt, Oracle().fold(ops)) == {}
    untouched = crdt.clone()
    crdt.fold(more)
    crdt.check()
    assert differences(untouched, Oracle().fold(ops)) == {}
    assert differences(clone, Oracle().fold([*ops, *more])) == {}


def scribble(value: Any) -> None:
    """Change every container inside a JSON value."""
    if isinstance(value, dict):
        for member in list(value.values()):
            scribble(member)
        value["scribble"] = 1
    elif isinstance(value, list):
        for member in value:
            scribble(member)
        value.append("scribble")


@law
@given(histories(), st.sampled_from(sorted(WAYS)))
def test_nobody_else_holds_a_part_of_the_document(ops: list[AnyOp], way: str) -> None:
    ours: list[AnyOp] = through_json(ops)
    crdt = deliver([Step(way, ours, "keep")])
    scribble(ours)
    scribble(crdt.materialize())
    scribble(crdt.export_state())
    scribble(crdt.export_packed())
    for name in crdt.list_names():
        scribble(crdt.list_values(name))
    for name in crdt.materialize():
        scribble(crdt.get_register(name))
    assert differences(crdt, Oracle().fold(ops)) == {}


@law
@given(histories(), st.booleans())
def test_an_imported_state_stays_the_caller_s_own(ops: list[AnyOp], packed: bool) -> None:
    crdt, source = WalCrdt(), folded(ops)
    state: Any = source.export_packed() if packed else source.export_state()
    (crdt.import_packed if packed else crdt.import_state)(state)
    scribble(state)
    assert differences(crdt, Oracle().fold(ops), arrival=not packed) == {}
