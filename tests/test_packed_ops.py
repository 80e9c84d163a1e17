"""Packed ops: lossless for every run, small, and closed to everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.make_vectors import runs_from_json
from walstore.crdt.clock import COUNTER_MAX
from walstore.crdt.packed_ops import (
    BATCH_REMOVES_MAX,
    BatchTooLargeError,
    pack_ops,
    unpack_ops,
)
from walstore.crdt.runs import (
    Delete,
    Drop,
    Insert,
    Put,
    Remove,
    Run,
    Set,
    Values,
    Verbatim,
    as_values,
)
from walstore.errors import MalformedError

VECTORS = json.loads((Path(__file__).parent / "vectors" / "packed_ops.json").read_text())

REPLICA = "ab" * 32 + ":0"
OTHER = "cd" * 32 + ":1"

names = st.sampled_from(["body", "title", "", "ünï"])
replicas = st.sampled_from([REPLICA, OTHER, "", "r"])
counters = st.integers(1, 60) | st.integers(1, COUNTER_MAX)
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=2)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)


@st.composite
def inserts(draw: st.DrawFn) -> Insert:
    texts: st.SearchStrategy[Values] = st.text(min_size=1, max_size=4)
    values = draw(texts | st.lists(json_values, min_size=1, max_size=3))
    counter = min(draw(counters), COUNTER_MAX + 1 - len(values))
    after = draw(st.just(0) | counters)
    return Insert(
        draw(names), draw(replicas), counter, draw(replicas) if after else "", after, values
    )


@st.composite
def removes(draw: st.DrawFn) -> Remove:
    size, step = draw(st.integers(1, 5)), draw(st.sampled_from([1, -1]))
    counter, target = (min(draw(counters), COUNTER_MAX + 1 - size) for _ in range(2))
    target = max(target, size)
    return Remove(draw(names), draw(replicas), counter, draw(replicas), target, size, step)


@st.composite
def stretches(draw: st.DrawFn) -> list[Run]:
    """Typing and deleting by one replica in one list, counters without a gap."""
    name, replica = draw(names), draw(replicas)
    runs: list[Run] = []
    counter = draw(counters)
    for run in draw(st.lists(inserts() | removes(), min_size=1, max_size=6)):
        size = len(run.values) if isinstance(run, Insert) else run.size
        if counter + size > COUNTER_MAX:
            break
        run.list, run.replica, run.counter = name, replica, counter
        counter += size
        runs.append(run)
    return runs


def verbatim(counter: int, replica: str, value: object) -> Verbatim:
    """An op of a kind that nobody knows yet."""
    return Verbatim({"t": "later", "clock": {"c": counter, "r": replica}, "value": value})


single_runs: st.SearchStrategy[Run] = st.one_of(
    inserts(),
    removes(),
    st.builds(Set, names, replicas, counters, json_values),
    st.builds(Delete, names, replicas, counters),
    st.builds(Put, names, names, replicas, counters, json_values),
    st.builds(Drop, names, names, replicas, counters, st.dictionaries(replicas, counters)),
    st.builds(verbatim, counters, replicas, json_values),
)
batches = st.lists(stretches() | single_runs.map(lambda run: [run]), max_size=6).map(
    lambda parts: [run for part in parts for run in part]
)


def read_back(run: Run) -> list[Run]:
    """A run as it is read: characters that stand in an array are apart from its other values."""
    if not isinstance(run, Insert) or isinstance(run.values, str):
        return [run]
    parts: list[Run] = []
    counter, after_replica, after_counter = run.counter, run.after_replica, run.after_counter
    for values in as_values(run.values):
        parts.append(Insert(run.list, run.replica, counter, after_replica, after_counter, values))
        counter += len(values)
        after_replica, after_counter = run.replica, counter - 1
    return parts


@given(batches)
def test_any_runs_come_back_as_they_were(runs: list[Run]) -> None:
    packed = pack_ops(runs)
    read = [part for run in runs for part in read_back(run)]
    assert unpack_ops(packed) == read
    assert unpack_ops(json.loads(json.dumps(packed))) == read


def test_characters_in_an_array_are_text() -> None:
    (run,) = unpack_ops([[REPLICA], [0, "body", 0, 1, 0, 0, ["a", "b"]]])
    assert run == Insert("body", REPLICA, 1, "", 0, "ab")


@given(batches)
def test_numbers_stay_within_what_every_peer_reads_exactly(runs: list[Run]) -> None:
    plain = [run for run in runs if isinstance(run, Insert | Remove)]
    for number in _numbers_in(pack_ops(plain)):
        assert abs(number) <= COUNTER_MAX


def _numbers_in(value: object) -> list[int]:
    if isinstance(value, list):
        return [number for entry in value for number in _numbers_in(entry)]
    return [value] if type(value) is int else []


@st.composite
def mutations(draw: st.DrawFn) -> object:
    """A packed batch with a few of its entries exchanged, dropped or repeated."""
    packed: Any = pack_ops(draw(batches))
    for _ in range(draw(st.integers(1, 3))):
        packed = mutate(packed, draw)
    return packed


def mutate(packed: Any, draw: st.DrawFn) -> Any:
    """A copy of parsed JSON with one place in it changed."""
    if isinstance(packed, list) and packed and draw(st.integers(0, 5)):
        index = draw(st.integers(0, len(packed) - 1))
        if draw(st.integers(0, 4)):
            return [*packed[:index], mutate(packed[index], draw), *packed[index + 1 :]]
        return [*packed[:index], *packed[index + draw(st.integers(0, 1)) :], *packed[index:]]
    if type(packed) is int and draw(st.booleans()):
        return packed + draw(st.sampled_from([-1, 1, 2**53, -(2**53), 10**400]))
    return draw(json_values | st.floats() | st.just(True) | st.just("\ud800"))


@given(mutations())
def test_altered_input_is_refused_or_packs_again(packed: object) -> None:
    try:
        runs = unpack_ops(packed)
    except MalformedError:
        return
    assert unpack_ops(pack_ops(runs)) == runs


@given(json_values)
def test_any_other_json_is_refused(value: object) -> None:
    if value != [[]]:
        with pytest.raises(MalformedError):
            unpack_ops([value, value])


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: str(case["name"]))
def test_recorded_batches_are_written_and_read_exactly(case: dict[str, Any]) -> None:
    runs = runs_from_json(case["runs"])
    assert pack_ops(runs) == case["packed"]
    assert unpack_ops(case["packed"]) == runs


@pytest.mark.parametrize("case", VECTORS["malformed"], ids=lambda case: str(case["name"]))
def test_recorded_malformed_batches_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match=r"^malformed packed ops: "):
        unpack_ops(case["packed"])


def test_typing_with_corrections_is_one_row() -> None:
    runs: list[Run] = [
        Insert("body", REPLICA, 1, "", 0, "helo"),
        Remove("body", REPLICA, 5, REPLICA, 4),
        Insert("body", REPLICA, 6, REPLICA, 3, "lo"),
    ]
    assert pack_ops(runs) == [
        [REPLICA],
        [7, "body", 0, 1, "helolo", [4, -1, 2], [0, 0, -1]],
    ]


def test_an_anchor_at_the_head_has_no_replica() -> None:
    (run,) = unpack_ops(pack_ops([Insert("body", REPLICA, 1, "ignored", 0, "x")]))
    assert run == Insert("body", REPLICA, 1, "", 0, "x")


def test_surrogates_stay_apart() -> None:
    halves = "\ud83d\ude00"
    runs: list[Run] = [Insert("body", REPLICA, n, REPLICA, n - 1, halves) for n in (2, 4)]
    packed = json.loads(json.dumps(pack_ops(runs)))
    assert [run.values for run in unpack_ops(packed) if isinstance(run, Insert)] == [
        ["\ud83d", "\ude00"]
    ] * 2


def test_steps_beyond_exact_numbers_are_written_as_rows() -> None:
    runs: list[Run] = [
        Remove("body", REPLICA, 1, OTHER, COUNTER_MAX),
        Remove("body", REPLICA, 2, OTHER, COUNTER_MAX),
    ]
    packed = pack_ops(runs)
    assert [row[0] for row in packed[1:]] == [1, 1]
    assert unpack_ops(packed) == runs


def test_more_removes_than_a_batch_may_hold_are_not_written() -> None:
    half = BATCH_REMOVES_MAX // 2
    runs: list[Run] = [Remove("body", REPLICA, 1, OTHER, 1, half)] * 2
    assert len(unpack_ops(pack_ops(runs))) == 2
    with pytest.raises(BatchTooLargeError) as caught:
        pack_ops([*runs, Remove("body", REPLICA, 9, OTHER, 1)])
    assert caught.value.removes == BATCH_REMOVES_MAX + 1


@pytest.mark.parametrize(
    "row",
    [
        [1, "body", 0, 1, 0, 1, 10**15, 1],
        [1, "body", 0, 1, 0, 1, BATCH_REMOVES_MAX + 1, 1],
        [7, "body", 0, 1, "", [-2 * 10**15], [0]],
        [7, "body", 0, 1, "x", [1, -2 * BATCH_REMOVES_MAX - 1], [0, 0]],
        [7, "body", 0, 1, "x", [10**15], [0]],
    ],
)
def test_a_short_batch_cannot_claim_many_ops(row: list[Any]) -> None:
    with pytest.raises(MalformedError):
        unpack_ops([[REPLICA], row])


def test_counters_end_at_their_limit() -> None:
    last = Insert("body", REPLICA, COUNTER_MAX - 1, REPLICA, 7, "ab")
    assert unpack_ops(pack_ops([last])) == [last]
    for row in (
        [0, "body", 0, COUNTER_MAX, 0, 7, "ab"],
        [1, "body", 0, COUNTER_MAX, 0, 7, 2, 1],
        [1, "body", 0, 1, 0, COUNTER_MAX, 2, 1],
        [1, "body", 0, 1, 0, 1, 2, -1],
        [7, "body", 0, COUNTER_MAX, "ab", [2], [0]],
        [7, "body", 0, COUNTER_MAX, "ab", [1, 1], [0, 0]],
    ):
        with pytest.raises(MalformedError):
            unpack_ops([[REPLICA], row])


_ENTRIES = st.one_of(
    st.sampled_from([0, 1, 2, 7, -1, 5, COUNTER_MAX, COUNTER_MAX + 1]),
    st.sampled_from([0.0, 1.0, True, False, None, "", "x", "xy", "é", "\ud800", [], ["x"]]),
)


@given(
    replicas=st.one_of(st.just(["a"]), st.just([1]), st.just([]), st.just(["a", "b"]), st.none()),
    row=st.sampled_from([[0, "text", 0, 5, 0, 4, "x"], [1, "text", 0, 5, 0, 4]]),
    changes=st.lists(st.tuples(st.integers(0, 6), _ENTRIES), max_size=2),
    cut=st.integers(0, 9),
)
def test_a_keystroke_is_read_as_any_batch_is(
    replicas: Any, row: list[Any], changes: list[tuple[int, Any]], cut: int
) -> None:
    row = [*row]
    for place, entry in changes:
        row[min(place, len(row) - 1)] = entry
    if cut == 0:
        row.append(1)
    elif cut == 1:
        row.pop()

    def outcome(packed: list[Any]) -> Any:
        try:
            return unpack_ops(packed)
        except MalformedError as error:
            return str(error)

    # A second row, a plain one, keeps the first from being read by itself.
    rest = [3, "register", 0, 1]
    alone, beside = outcome([replicas, row]), outcome([replicas, row, rest])
    assert alone == (beside if isinstance(beside, str) else beside[:-1])
