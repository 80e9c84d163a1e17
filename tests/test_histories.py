"""The random histories are what they claim to be."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.oracle import AnyOp, Oracle, canon
from tests.strategies import (
    adversarial_history,
    crowded_history,
    honest_history,
    shuffled,
    shuffled_behind_anchors,
)


def test_honest_histories_obey_the_format() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        ops = (honest_history if seed % 2 else crowded_history)(rng, 20)
        clocks = [(op["clock"]["c"], op["clock"]["r"]) for op in ops]
        assert len(set(clocks)) == len(clocks)
        known: dict[str, AnyOp] = {"": {"list": None, "clock": {"c": 0, "r": ""}}}
        for op in ops:
            if op["t"] == "ins":
                assert op["id"] == f"{op['clock']['c']}@{op['clock']['r']}"
                assert op["clock"]["c"] > known[op["after"]]["clock"]["c"]
                known[op["id"]] = op
            elif op["t"] == "rmv":
                assert known[op["id"]]["list"] == op["list"]
        in_order = Oracle().fold(ops)
        for order in (shuffled, shuffled_behind_anchors):
            reordered = Oracle().fold(order(rng, ops))
            assert reordered.canonical_state() == in_order.canonical_state()
            assert canon(reordered.materialize()) == canon(in_order.materialize())


def test_adversarial_histories_hold_every_shape_that_they_promise() -> None:
    shapes: set[str] = set()
    for seed in range(300):
        shapes |= _shapes(adversarial_history(random.Random(seed)))
    assert shapes >= {
        "unknown anchor",
        "own anchor",
        "cycle",
        "child older than parent",
        "child as old as parent",
        "free-form id",
        "id of another clock",
        "one id twice",
        "one clock twice",
        "remove before insert",
        "remove of the unknown twice",
        "one name for two kinds",
        "anchor in another list",
        "highest counter",
        "empty name",
        "lone surrogate",
        "unknown kind",
    }


def _shapes(ops: Sequence[AnyOp]) -> set[str]:
    shapes: set[str] = set()
    inserts: dict[tuple[str, str], AnyOp] = {}
    removed: set[tuple[str, str]] = set()
    clocks: dict[tuple[int, str], AnyOp] = {}
    names: dict[str, set[str]] = {}
    for op in ops:
        clock = (op["clock"]["c"], op["clock"]["r"])
        if clocks.setdefault(clock, op) != op:
            shapes.add("one clock twice")
        if clock[0] == 2**53 - 1:
            shapes.add("highest counter")
        kind = next(kind for kind in ("reg", "list", "map") if kind in op)
        names.setdefault(op[kind], set()).add(kind)
        if op["t"] not in ("ins", "rmv", "set", "del", "put", "drop"):
            shapes.add("unknown kind")
        if op["t"] == "rmv":
            place = (op["list"], op["id"])
            if place not in inserts and place in removed:
                shapes.add("remove of the unknown twice")
            removed.add(place)
        if op["t"] == "ins":
            place = (op["list"], op["id"])
            if place in removed and place not in inserts:
                shapes.add("remove before insert")
            if inserts.setdefault(place, op) != op:
                shapes.add("one id twice")
            if "@" not in op["id"]:
                shapes.add("free-form id")
            elif op["id"] != f"{clock[0]}@{clock[1]}":
                shapes.add("id of another clock")
    if "" in names:
        shapes.add("empty name")
    if any("\ud800" in name for name in names):
        shapes.add("lone surrogate")
    if any(len(kinds) > 1 for kinds in names.values()):
        shapes.add("one name for two kinds")
    return shapes.union(*(_anchor_shapes(op, inserts) for op in inserts.values()), set())


def _anchor_shapes(op: AnyOp, inserts: dict[tuple[str, str], AnyOp]) -> set[str]:
    if op["after"] == "":
        return set()
    if op["after"] == op["id"]:
        return {"own anchor"}
    anchor = inserts.get((op["list"], op["after"]))
    if anchor is None:
        elsewhere = any(id == op["after"] for _, id in inserts)
        return {"anchor in another list" if elsewhere else "unknown anchor"}
    shapes = set()
    if anchor["after"] == op["id"]:
        shapes.add("cycle")
    clock, above = op["clock"], anchor["clock"]
    if (clock["c"], clock["r"]) == (above["c"], above["r"]):
        shapes.add("child as old as parent")
    if (clock["c"], clock["r"]) < (above["c"], above["r"]):
        shapes.add("child older than parent")
    return shapes
