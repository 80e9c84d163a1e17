"""Where an insert goes whose anchor is gone: what a look at every node would find."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import AnyOp
from tests.strategies import COUNTER_MAX, ODD_REPLICAS, REPLICAS, adversarial_history, randoms
from walstore.crdt import WalCrdt, Writer
from walstore.crdt.counters import Counters
from walstore.crdt.nodes import NodeSequence
from walstore.crdt.runs import Insert, Remove

REPLICAS_ASKED = (*REPLICAS[:4], *ODD_REPLICAS[:2])
COUNTERS_ASKED = (*range(1, 13), 2**32, COUNTER_MAX, COUNTER_MAX + 1)


def nearest(sequence: NodeSequence, replica: str, counter: int) -> int:
    """The highest counter below another one whose element has the id of that clock."""
    counters = [
        node.counter
        for node in sequence.nodes.values()
        if node.id == f"{node.counter}@{replica}" and not node.pending and node.counter < counter
    ]
    return max(counters, default=0)


def fold(sequence: NodeSequence, op: AnyOp) -> None:
    counter, replica = op["clock"]["c"], op["clock"]["r"]
    if op["t"] == "ins":
        sequence.insert(op["id"], op["after"], counter, replica, op["value"])
    elif op["t"] == "rmv":
        sequence.remove(op["id"], counter, replica)


def folded(rng: random.Random) -> NodeSequence:
    sequence = NodeSequence()
    for op in adversarial_history(rng, 12):
        fold(sequence, op)
    return sequence


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 20), st.integers(1, 6))))
def test_the_last_below_is_that_of_all_counters_that_were_entered(
    entered: list[tuple[str, int, int]],
) -> None:
    counters = Counters()
    by_replica: dict[str, set[int]] = {"a": set(), "b": set()}
    for replica, counter, size in entered:
        counters.add(replica, counter, size)
        mine = by_replica[replica]
        mine.update(range(counter, counter + size))
        for asked in range(28):
            below = [each for each in mine if each < asked]
            assert counters.last_below(replica, asked) == max(below, default=0)
    assert counters.last_below("c", 20) == 0


@given(randoms())
def test_the_nearest_element_is_the_one_that_a_look_at_every_node_finds(
    rng: random.Random,
) -> None:
    sequence = folded(rng)
    for op in adversarial_history(rng, 12):
        if rng.random() < 0.1:
            sequence.join(folded(rng))
        if rng.random() < 0.1:
            sequence = sequence.copy()
        fold(sequence, op)
        replica = rng.choice(REPLICAS_ASKED)
        for counter in COUNTERS_ASKED:
            assert sequence.last_below(replica, counter) == nearest(sequence, replica, counter)


def test_what_was_removed_before_it_came_is_near_once_it_has_come() -> None:
    crdt = WalCrdt()
    Writer(crdt, "ann").insert_text("body", 0, "abc")
    crdt.comes_upto = lambda replica: 9 if replica == "gone" else COUNTER_MAX
    crdt.fold_runs([Insert("body", "gone", 4, "ann", 1, "g"), Remove("body", "ann", 20, "gone", 7)])
    crdt.fold_runs([Insert("body", "bob", 30, "gone", 11, "X")])
    assert crdt.text("body") == "agXbc"
    crdt.fold_runs([Insert("body", "gone", 7, "ann", 2, "?")])
    crdt.fold_runs([Insert("body", "bob", 40, "gone", 11, "Y")])
    assert crdt.text("body") == "agXbYc"
