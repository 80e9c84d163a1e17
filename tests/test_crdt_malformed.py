"""Input that the format does not allow: refused with one error, and nothing of it remains."""

from __future__ import annotations

import random
import reprlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.delivery import deliver, differences, random_delivery, through_json
from tests.oracle import AnyOp, Oracle, canon
from tests.strategies import histories, randoms
from walstore.crdt import COUNTER_MAX, WalCrdt, pack_ops, to_runs, unpack_ops
from walstore.errors import MalformedError

# What a law costs depends on what else the machine does; only its outcome counts.
law = settings(deadline=None)

CLOCK = {"c": 7, "r": "a"}
VALID_OPS: dict[str, AnyOp] = {
    "set": {"t": "set", "reg": "title", "clock": CLOCK, "value": 1},
    "del": {"t": "del", "reg": "title", "clock": CLOCK},
    "ins": {"t": "ins", "list": "body", "id": "7@a", "after": "", "clock": CLOCK, "value": "x"},
    "rmv": {"t": "rmv", "list": "body", "id": "2@b", "clock": CLOCK},
    "put": {"t": "put", "map": "todo", "key": "k", "clock": CLOCK, "value": 1},
    "drop": {"t": "drop", "map": "todo", "key": "k", "clock": CLOCK, "seen": {"b": 4}},
    "inc": {"t": "inc", "clock": CLOCK},
}
FREE_FORM = {**VALID_OPS["ins"], "id": "free"}
NOT_TEXT: tuple[Any, ...] = (None, True, 5, [], {}, b"x")
NOT_COUNTERS: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    "1",
    [1],
    2**53,
    float(2**53),
    10**400,
    float("nan"),
    float("inf"),
)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


NOT_VALUES: tuple[Any, ...] = (
    float("nan"),
    float("-inf"),
    b"x",
    {1: 2},
    {"a": [float("nan")]},
    [{1}],
    1j,
    10**400,
    nested(200),
    nested(100_000),
    endless(),
)
NOT_CLOCKS: tuple[Any, ...] = (
    *(None, [], "7@a", {}, {"c": 1}, {"r": "a"}, {**CLOCK, "x": 1}),
    *({"c": wrong, "r": "a"} for wrong in NOT_COUNTERS),
    *({"c": 7, "r": wrong} for wrong in NOT_TEXT),
)

# What is wrong, in words, and the wrong thing.
Case: TypeAlias = tuple[str, Any]


def labelled(cases: Iterable[Case]) -> list[Any]:
    return [pytest.param(case, id=label) for label, case in cases]


def loose(*wrongs: Any) -> Iterator[Case]:
    for wrong in wrongs:
        yield reprlib.repr(wrong), wrong


def replaced(entry: dict[str, Any], member: str, wrongs: Iterable[Any]) -> Iterator[Case]:
    for wrong in wrongs:
        yield f"{member} {reprlib.repr(wrong)}", {**entry, member: wrong}


def lacking(entry: dict[str, Any], members: Iterable[str]) -> Iterator[Case]:
    for member in sorted(members):
        rest = {name: value for name, value in entry.items() if name != member}
        yield f"no {member}", rest


def malformed_ops() -> Iterator[Case]:
    yield from loose(None, 1, "ins", [], {}, [VALID_OPS["set"]])
    yield from replaced(VALID_OPS["set"], "t", NOT_TEXT)
    for op in [*VALID_OPS.values(), FREE_FORM]:
        for label, wrong in malformed_variants(op):
            yield f"{op['t']} {label}", wrong


def malformed_variants(op: AnyOp) -> Iterator[Case]:
    yield from lacking(op, op)
    for member in sorted({"reg", "list", "map", "key", "id", "after"} & set(op)):
        yield from replaced(op, member, NOT_TEXT)
    if "id" in op:
        yield from replaced(op, "id", [""])
    if "value" in op:
        yield from replaced(op, "value", NOT_VALUES)
    if "seen" in op:
        yield from replaced(op, "seen", (None, [], "b", {1: 1}))
        yield from replaced(op, "seen", ({"a": 1, "b": wrong} for wrong in NOT_COUNTERS))
    yield from replaced(op, "clock", NOT_CLOCKS)


def document() -> WalCrdt:
    """A document with something of everything, held as runs and as single elements."""
    crdt = WalCrdt()
    crdt.fold(
        [
            {"t": "set", "reg": "title", "clock": {"c": 1, "r": "b"}, "value": [1]},
            {
                "t": "ins",
                "list": "body",
                "id": "2@b",
                "after": "",
                "clock": {"c": 2, "r": "b"},
                "value": "b",
            },
            {"t": "rmv", "list": "other", "id": "9@x", "clock": {"c": 3, "r": "b"}},
            {"t": "put", "map": "todo", "key": "k", "clock": {"c": 4, "r": "b"}, "value": {}},
        ]
    )
    return crdt


def everything(crdt: WalCrdt) -> tuple[str, str, int]:
    crdt.check()
    return canon(crdt.export_state()), canon(crdt.materialize()), crdt.counter


@pytest.mark.parametrize("kind", VALID_OPS)
def test_what_the_malformed_ops_are_made_of_is_well_formed(kind: str) -> None:
    crdt = document()
    crdt.apply(VALID_OPS[kind])
    assert crdt.counter == 7
    assert (everything(crdt)[:2] == everything(document())[:2]) == (kind == "inc")


@pytest.mark.parametrize("op", labelled(malformed_ops()))
def test_a_malformed_op_changes_nothing(op: Any) -> None:
    crdt = document()
    with pytest.raises(MalformedError):
        crdt.apply(op)
    with pytest.raises(MalformedError):
        crdt.fold([VALID_OPS["set"], VALID_OPS["ins"], op, VALID_OPS["put"]])
    with pytest.raises(MalformedError):
        to_runs([VALID_OPS["ins"], op])
    assert everything(crdt) == everything(document())


def test_a_whole_number_is_an_integer_however_it_is_spelled() -> None:
    spelled, plain = document(), document()
    ops: list[AnyOp] = [{**op, "clock": {"c": 7.0, "r": "a"}} for op in VALID_OPS.values()]
    spelled.fold(ops)
    plain.fold(VALID_OPS.values())
    assert everything(spelled) == everything(plain)
    assert type(spelled.counter) is int


def test_unknown_members_are_ignored() -> None:
    extended, plain = document(), document()
    ops: list[AnyOp] = [{**op, "x": [1], "after_all": None} for op in VALID_OPS.values()]
    extended.fold(ops)
    plain.fold(VALID_OPS.values())
    assert everything(extended) == everything(plain)


def test_the_name_that_peers_cannot_hold_is_ignored() -> None:
    crdt = document()
    before = everything(crdt)[:2]
    name = "__proto__"
    ops: list[AnyOp] = [
        {**op, "reg": name, "list": name, "map": name} for op in [*VALID_OPS.values(), FREE_FORM]
    ]
    crdt.fold(ops)
    assert everything(crdt)[:2] == before
    assert crdt.counter == 7
    assert name not in crdt.list_names()
    state = crdt.export_state()
    state["regs"][name] = state["regs"]["title"]
    state["lists"][name] = state["lists"]["body"]
    crdt.import_state(state)
    assert everything(crdt)[:2] == before


# ── states ────────────────────────────────────────────────────────────────────────────

REGISTER = {"clock": CLOCK, "value": 1, "deleted": False}
NODE = {"id": "7@a", "after": "", "clock": CLOCK, "value": 1, "deleted": False, "pending": False}
KEY = {"puts": {"a": [7, 1]}, "seen": {"a": 6}}


def state_of(
    register: Any = REGISTER, node: Any = NODE, key: Any = KEY, **members: Any
) -> dict[str, Any]:
    return {
        "v": 1,
        "regs": {"first": REGISTER, "title": register},
        "lists": {"first": [NODE], "body": [{**NODE, "id": "8@a"}, node]},
        "x": {"maps": {"todo": {"k": key}}},
        **members,
    }


def malformed_states() -> Iterator[Case]:
    yield from loose(None, 1, [], "state", {})
    whole = state_of()
    yield from replaced(whole, "v", (None, True, 0, 2, "1"))
    yield from replaced(whole, "regs", (None, [], {"r": None}, {1: REGISTER}))
    yield from replaced(whole, "lists", (None, [], {"l": None}, {"l": {}}, {1: []}))
    yield from replaced(whole, "x", ({"maps": None}, {"maps": []}))
    yield from replaced(whole, "x", ({"maps": {"m": 1}}, {"maps": {1: {}}}))
    for label, wrong in malformed_registers():
        yield f"register {label}", state_of(register=wrong)
    for label, wrong in malformed_nodes():
        yield f"node {label}", state_of(node=wrong)
    for label, wrong in malformed_keys():
        yield f"key {label}", state_of(key=wrong)


def malformed_registers() -> Iterator[Case]:
    yield from malformed_entries(REGISTER)
    yield from lacking(REGISTER, REGISTER)


def malformed_nodes() -> Iterator[Case]:
    yield from malformed_entries(NODE)
    yield from lacking(NODE, set(NODE) - {"pending"})
    yield from replaced(NODE, "id", ("", *NOT_TEXT))
    yield from replaced(NODE, "after", NOT_TEXT)
    yield from replaced(NODE, "pending", (None, 0, "no"))


def malformed_entries(entry: dict[str, Any]) -> Iterator[Case]:
    yield from loose(None, 1, [])
    yield from replaced(entry, "deleted", (None, 0, "no"))
    yield from replaced(entry, "value", NOT_VALUES)
    yield from replaced(entry, "clock", NOT_CLOCKS)


def malformed_keys() -> Iterator[Case]:
    yield from loose(None, 1, [])
    yield from lacking(KEY, KEY)
    yield from replaced(KEY, "puts", (None, [], {"a": 7}, {1: [7, 1]}))
    yield from replaced(KEY, "puts", ({"a": put} for put in ([], [7], [7, 1, 1])))
    yield from replaced(KEY, "puts", ({"a": [wrong, 1]} for wrong in NOT_COUNTERS))
    yield from replaced(KEY, "puts", ({"a": [7, wrong]} for wrong in NOT_VALUES))
    yield from replaced(KEY, "seen", ({"a": wrong} for wrong in NOT_COUNTERS))
    yield from replaced(KEY, "seen", (None, [], {1: 1}))


def test_what_the_malformed_states_are_made_of_is_well_formed() -> None:
    crdt = document()
    crdt.import_state(state_of())
    assert everything(crdt)[0] == canon(state_of())
    without_pending = {name: value for name, value in NODE.items() if name != "pending"}
    crdt.import_state(state_of(node=without_pending))
    assert everything(crdt)[0] == canon(state_of())


@pytest.mark.parametrize("state", labelled(malformed_states()))
def test_a_malformed_state_is_refused_whole(state: Any) -> None:
    crdt = document()
    with pytest.raises(MalformedError):
        crdt.import_state(state)
    assert everything(crdt) == everything(document())


@law
@given(histories(), histories())
def test_an_import_replaces_everything(ops: list[AnyOp], others: list[AnyOp]) -> None:
    crdt = WalCrdt()
    crdt.fold(ops)
    source = WalCrdt()
    source.fold(others)
    crdt.import_state(source.export_state())
    crdt.check()
    assert differences(crdt, Oracle().fold(others)) == {}
    crdt.import_packed(source.export_packed())
    crdt.check()
    assert differences(crdt, Oracle().fold(others), arrival=False) == {}


# ── random damage ─────────────────────────────────────────────────────────────────────

JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 9, 1.0, 1.5, 2**53 - 1, 2**53, 2**64, 1e300, "", "x", "1@a", "ab",
    "\ud83d", "__proto__", [], {}, [0], [[]], {"c": 1, "r": "a"},
)  # fmt: skip


def damaged(rng: random.Random, value: Any) -> Any:
    """A copy of a JSON value with one to three of its parts replaced, left out or repeated."""
    value = through_json(value)
    for _ in range(rng.randint(1, 3)):
        places = list(containers(value))
        if places:
            damage(rng, rng.choice(places))
    return value


def containers(value: Any) -> Iterator[Any]:
    """Every container in a JSON value that has something to damage."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list) and value:
            yield value
            stack.extend(value.values() if isinstance(value, dict) else value)


def damage(rng: random.Random, container: Any) -> None:
    places = sorted(container) if isinstance(container, dict) else range(len(container))
    place = rng.choice(places)
    match rng.randrange(5):
        case 0:
            del container[place]
        case 1 if isinstance(container, list):
            container.insert(place, container[rng.choice(places)])
        case 2:
            container[place] = container[rng.choice(places)]
        case 3 if type(container[place]) is int:
            container[place] += rng.choice((-1, 1, 100))
        case _:
            container[place] = rng.choice(JUNK)


@law
@given(histories(), randoms())
def test_damaged_ops_are_refused_whole_or_fold_as_the_oracle_does(
    ops: list[AnyOp], rng: random.Random
) -> None:
    hostile = damaged(rng, ops)
    crdt = document()
    try:
        crdt.fold(hostile)
    except MalformedError:
        assert everything(crdt) == everything(document())
    else:
        crdt = deliver(random_delivery(rng, hostile))
        assert differences(crdt, Oracle().fold(hostile), arrival=False) == {}


def check_refused_or_sound(crdt: WalCrdt, take: Callable[[], None]) -> None:
    """Either nothing has changed, or what came in is a document like any other."""
    before = everything(crdt)
    try:
        take()
    except MalformedError:
        assert everything(crdt) == before
        return
    crdt.check()
    again = WalCrdt()
    again.import_state(through_json(crdt.export_state()))
    assert everything(again)[:2] == everything(crdt)[:2]
    packed = WalCrdt()
    packed.import_packed(through_json(crdt.export_packed()))
    assert packed.canonical_state() == crdt.canonical_state()
    joined = document()
    joined.join(crdt)
    joined.check()


@law
@given(histories(), randoms())
def test_damaged_packed_ops_are_refused_whole_or_fold(ops: list[AnyOp], rng: random.Random) -> None:
    hostile = damaged(rng, pack_ops(to_runs(ops)))
    crdt = document()
    check_refused_or_sound(crdt, lambda: crdt.fold_runs(unpack_ops(hostile)))


@law
@given(histories(), randoms(), st.booleans())
def test_damaged_states_are_refused_whole_or_taken(
    ops: list[AnyOp], rng: random.Random, packed: bool
) -> None:
    source = WalCrdt()
    source.fold(ops)
    hostile = damaged(rng, source.export_packed() if packed else source.export_state())
    crdt = document()
    take = crdt.import_packed if packed else crdt.import_state
    check_refused_or_sound(crdt, lambda: take(hostile))


def test_counters_end_where_they_do_for_ops_in_a_row() -> None:
    def typed(counter: float, after: str) -> AnyOp:
        clock = {"c": counter, "r": "r"}
        id = f"{int(counter)}@r"
        return {"t": "ins", "list": "l", "id": id, "after": after, "clock": clock, "value": "x"}

    last = COUNTER_MAX
    ops = [typed(last - 1, ""), typed(last, f"{last - 1}@r"), typed(float(last + 1), f"{last}@r")]
    crdt = WalCrdt()
    with pytest.raises(MalformedError):
        crdt.fold(ops)
    assert crdt.names() == []
    crdt.fold(ops[:2])
    assert crdt.counter == COUNTER_MAX
