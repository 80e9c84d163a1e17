"""The ways in which ops reach a document, and what is compared when they have.

- A delivery is a list of steps: some ops, the call that takes them, and what is done with the
  document afterwards. None of that may show in the result.
- Whatever a peer or a disk would hand back has been through JSON text.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle import AnyOp, Oracle, canon
from tests.strategies import split
from walstore.crdt import WalCrdt, pack_ops, to_runs, unpack_ops


@dataclass(frozen=True)
class Step:
    """One batch: how it is taken, and through what the document goes afterwards."""

    way: str
    ops: list[AnyOp]
    then: str


def _apply_each(crdt: WalCrdt, ops: list[AnyOp]) -> None:
    for op in ops:
        crdt.apply(op)


def _fold_packed(crdt: WalCrdt, ops: list[AnyOp]) -> None:
    crdt.fold_runs(unpack_ops(through_json(pack_ops(to_runs(ops)))))


def _reimport(crdt: WalCrdt) -> WalCrdt:
    fresh = WalCrdt()
    fresh.import_state(through_json(crdt.export_state()))
    return fresh


def _reimport_packed(crdt: WalCrdt) -> WalCrdt:
    fresh = WalCrdt()
    fresh.import_packed(through_json(crdt.export_packed()))
    return fresh


def _join_itself(crdt: WalCrdt) -> WalCrdt:
    crdt.join(crdt.clone())
    return crdt


def _join_into_nothing(crdt: WalCrdt) -> WalCrdt:
    fresh = WalCrdt()
    fresh.join(crdt)
    return fresh


WAYS: dict[str, Callable[[WalCrdt, list[AnyOp]], None]] = {
    "apply": _apply_each,
    "fold": lambda crdt, ops: crdt.fold(ops),
    "runs": lambda crdt, ops: crdt.fold_runs(to_runs(ops)),
    "packed": _fold_packed,
}
PASSAGES: dict[str, Callable[[WalCrdt], WalCrdt]] = {
    "keep": lambda crdt: crdt,
    "state": _reimport,
    "packed state": _reimport_packed,
    "clone": lambda crdt: crdt.clone(),
    "join itself": _join_itself,
    "join into nothing": _join_into_nothing,
}

# The others keep what a document holds, not the order in which it heard of it.
ARRIVAL_KEPT = frozenset({"keep", "state", "clone", "join itself"})


def through_json(value: Any) -> Any:
    """What a reader gets of a value that was written as JSON text."""
    return json.loads(json.dumps(value))


def random_delivery(rng: random.Random, ops: Sequence[AnyOp]) -> list[Step]:
    """Cut ops into batches and choose how each of them arrives; the order stays the same."""
    ways, passages = sorted(WAYS), sorted(PASSAGES)
    return [
        Step(rng.choice(ways), batch, "keep" if rng.random() < 0.6 else rng.choice(passages))
        for batch in split(rng, ops)
    ]


def deliver(steps: Sequence[Step]) -> WalCrdt:
    """A document that took the steps; its invariants are checked at the end."""
    crdt = WalCrdt()
    for step in steps:
        WAYS[step.way](crdt, step.ops)
        crdt = PASSAGES[step.then](crdt)
    crdt.check()
    return crdt


def delivered_ops(steps: Sequence[Step]) -> list[AnyOp]:
    """All ops of a delivery in their order."""
    return [op for step in steps for op in step.ops]


def keeps_arrival(steps: Sequence[Step]) -> bool:
    """Whether the document still knows the order of arrival after a delivery."""
    return all(step.then in ARRIVAL_KEPT for step in steps)


def observe(document: WalCrdt | Oracle) -> dict[str, Any]:
    """Everything that is promised to be equal, as text."""
    names = document.list_names()
    return {
        "canonical state": document.canonical_state(),
        "document": canon(document.materialize()),
        "export": canon(document.export_state()),
        "ids": {name: document.list_ids(name) for name in names},
        "values": {name: canon(document.list_values(name)) for name in names},
        "texts": {name: document.text(name) for name in names},
    }


def differences(
    real: WalCrdt, expected: Oracle, *, arrival: bool = True
) -> dict[str, tuple[Any, Any]]:
    """What the real document shows, and what it ought to, wherever the two are not equal.

    Args:
        real: The document under test.
        expected: What it should be.
        arrival: Whether the nodes must be exported in order of arrival.
    """
    shown, ought = observe(real), observe(expected)
    if not arrival:
        del ought["export"]
    return {what: (shown[what], ought[what]) for what in ought if shown[what] != ought[what]}
