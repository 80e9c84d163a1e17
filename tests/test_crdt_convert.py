"""Version-1 ops become runs in short ways and in a long one: all say the same.

Most ops are inserts of characters, one after the other, and are read without a detour. Here one of
a few good ones is altered in one member: what is no op is refused, and any other comes back as it
was, whichever way it took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, cast

import pytest

from walstore.crdt.clock import COUNTER_MAX
from walstore.crdt.convert import RUN_SIZE_MAX, plain_inserts, to_ops, to_runs
from walstore.crdt.ops import Op
from walstore.crdt.runs import Insert, Remove
from walstore.errors import MalformedError

MISSING = object()
ME = "ada:s"

# What each member may be instead; of a clock's members, in the clock.
INSTEAD: dict[str, list[Any]] = {
    "t": ["new", 5, None, MISSING],
    "list": ["other", "", 5, None, MISSING],
    "id": ["9@bob:t", "2@ada:t", "free", "", 7, None, MISSING],
    "after": ["", "9@bob:t", "1@ada:s", "free", 5, None, MISSING],
    "value": ["ab", "", "\ud800", "\udfff", "\ud7ff", "\ue000", 5, [1], {"a": []}, None, MISSING],
    "clock": [None, [], "1@ada:s", MISSING],
    "c": [0, -1, 1.5, "2", True, None, COUNTER_MAX, COUNTER_MAX + 1, 2.0, 7, MISSING],
    "r": ["bob:t", "", 5, None, MISSING],
    "x": [1],
}


def insert(counter: int, after: int, value: Any, name: str = "body") -> dict[str, Any]:
    """An insert of mine after another one of mine, or at the head."""
    return {
        "t": "ins",
        "list": name,
        "id": f"{counter}@{ME}",
        "after": f"{after}@{ME}" if after else "",
        "value": value,
        "clock": {"c": counter, "r": ME},
    }


def remove(counter: int, target: int) -> dict[str, Any]:
    return {
        "t": "rmv",
        "list": "body",
        "id": f"{target}@{ME}",
        "clock": {"c": counter, "r": ME},
    }


def typed(text: str, start: int = 1) -> list[dict[str, Any]]:
    """Characters, each after the one before."""
    return [insert(at, at - 1, value) for at, value in enumerate(text, start)]


def at_the_head(text: str) -> list[dict[str, Any]]:
    """Characters, each before the one before."""
    return [insert(at, 0, value) for at, value in enumerate(text, 1)]


def scattered(text: str) -> list[dict[str, Any]]:
    """Characters that hang on one another, but not in a row."""
    return [insert(at, at // 2 if at > 2 else 0, value) for at, value in enumerate(text, 1)]


def altered(ops: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The ops, with one member of one of them altered."""
    for place in range(len(ops)):
        for member, values in INSTEAD.items():
            for value in values:
                others = deepcopy(ops)
                op = others[place]
                fields = op["clock"] if member in ("c", "r", "x") else op
                if value is MISSING:
                    del fields[member]
                else:
                    fields[member] = value
                yield others


def is_good(op: dict[str, Any]) -> bool:
    """Whether the format allows an op that was an insert once."""
    clock = op.get("clock")
    if not isinstance(clock, dict) or clock.keys() != {"c", "r"} or not isinstance(clock["r"], str):
        return False
    counter = clock["c"]
    if type(counter) not in (int, float) or counter != int(counter):
        return False
    if not 1 <= counter <= COUNTER_MAX or not isinstance(op.get("t"), str):
        return False
    if op["t"] != "ins":
        return True
    texts = [op.get(member) for member in ("list", "id", "after")]
    return all(isinstance(text, str) for text in texts) and op["id"] != "" and "value" in op


SHAPES: list[Callable[[str], list[dict[str, Any]]]] = [typed, at_the_head, scattered]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_no_op_is_refused_and_any_other_comes_back_as_it_was(
    shape: Callable[[str], list[dict[str, Any]]],
) -> None:
    good = bad = 0
    for ops in altered(shape("wxyz")):
        if all(map(is_good, ops)):
            assert to_ops(to_runs(ops)) == ops
            good += 1
        else:
            with pytest.raises(MalformedError):
                to_runs(ops)
            bad += 1
    assert min(good, bad) > 50


@pytest.mark.parametrize("shape", [at_the_head, scattered])
def test_columns_hold_plain_inserts_alone_and_all_they_say(
    shape: Callable[[str], list[dict[str, Any]]],
) -> None:
    columns = plain_inserts("body", shape("wxyz"))
    assert columns is not None
    for ops in altered(shape("wxyz")):
        columns = plain_inserts("body", ops)
        if columns is None:
            continue
        assert all(map(is_good, ops))
        rows = zip(
            columns.replicas,
            columns.counters,
            columns.after_replicas,
            columns.after_counters,
            columns.values,
            strict=True,
        )
        assert to_ops([Insert("body", *row) for row in rows]) == ops


def test_columns_hold_no_typing_and_no_single_op() -> None:
    assert plain_inserts("body", typed("wxyz")) is None
    assert plain_inserts("body", at_the_head("w")) is None
    assert plain_inserts("body", []) is None
    assert plain_inserts("other", at_the_head("wxyz")) is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_typing_ends_where_counters_do(count: int) -> None:
    ops = typed("wxyz"[:count], COUNTER_MAX - 1)
    ops[0]["after"] = ""
    if count > 2:
        with pytest.raises(MalformedError):
            to_runs(ops)
    else:
        assert to_ops(to_runs(ops)) == ops


def test_what_follows_on_is_one_run() -> None:
    (run,) = to_runs(typed("wxyz"))
    assert isinstance(run, Insert)
    assert run.values == "wxyz"
    assert len(to_runs(at_the_head("wxyz"))) == 4
    values = [insert(at, at - 1, at) for at in range(1, 5)]
    assert [cast("Insert", run).values for run in to_runs(values)] == [[1, 2, 3, 4]]
    # Characters and other values are two kinds.
    mixed = [*typed("wx"), insert(3, 2, 5), insert(4, 3, "yz"), insert(5, 4, "y")]
    assert [cast("Insert", run).values for run in to_runs(mixed)] == ["wx", [5, "yz"], "y"]


def test_a_run_of_values_has_a_limit() -> None:
    ops = [insert(at, at - 1, at) for at in range(1, RUN_SIZE_MAX + 3)]
    runs = to_runs(ops)
    assert [len(cast("Insert", run).values) for run in runs] == [RUN_SIZE_MAX, 2]
    assert to_ops(runs) == ops


@pytest.mark.parametrize(
    ("targets", "sizes"),
    [
        ((1, 2, 3), [3]),
        ((3, 2, 1), [3]),
        ((1, 2, 1), [2, 1]),
        ((2, 1, 2), [2, 1]),
        ((1, 3, 4), [1, 2]),
        ((4, 2, 1), [1, 2]),
        ((2, 2, 2), [1, 1, 1]),
    ],
)
def test_removes_of_neighbours_are_one_run(targets: tuple[int, ...], sizes: list[int]) -> None:
    ops = [remove(counter, target) for counter, target in enumerate(targets, 10)]
    runs = to_runs(ops)
    assert [cast("Remove", run).size for run in runs] == sizes
    assert to_ops(runs) == ops


@pytest.mark.parametrize("member", ["list", "r", "c", "id"])
def test_removes_that_differ_otherwise_are_not(member: str) -> None:
    ops = [remove(10, 1), remove(11, 2)]
    match member:
        case "list":
            ops[1]["list"] = "other"
        case "id":
            ops[1]["id"] = "2@bob:t"
        case "r":
            ops[1]["clock"]["r"] = "bob:t"
        case _:
            ops[1]["clock"]["c"] = 12
    assert len(to_runs(ops)) == 2
    assert to_ops(to_runs(ops)) == cast("list[Op]", ops)
