"""Random op histories, from a seed for speed and from Hypothesis for small counter-examples.

- An honest history is what several replicas write that follow the format: every clock once, ids
  that are the clock's, anchors and targets that the writer knew, `seen` that it had seen.
- An adversarial history is whatever still has the shape of ops: collisions, cycles, orphans,
  free-form ids, extreme counters and names.
- Each generator takes a `random.Random`; Hypothesis hands in one whose choices it can shrink.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.oracle import AnyOp

COUNTER_MAX = 2**53 - 1

# Prefixes of one another, text that reads as an id, and every class of character whose order
# differs between UTF-16 units and code points.
REPLICAS = (
    "a",
    "a:0",
    "ab",
    "b" * 64 + ":0",
    "b" * 64 + ":1",
    "é",
    "1@a",
    "\uffff",
    "😀",
    "\ud800",
)
ODD_REPLICAS = ("", "@", "\udfff", "__proto__", "\x00")

NAMES = ("body", "title", "todo")
ODD_NAMES = (
    "",
    "0",
    "10",
    "constructor",
    "toString",
    "__proto__",
    "😀",
    "\uffff",
    "\ud800",
    "\x00",
)

# Text that looks like `<counter>@<replica>` and is not, or not in its only spelling.
ODD_IDS = (
    "x",
    "@",
    "1@",
    "@a",
    "1",
    "01@a",
    "+1@a",
    "-1@a",
    "0@a",
    " 1@a",
    "1 @a",
    "1_0@a",
    "1.0@a",
    "1e0@a",
    "１@a",
    "²@a",
    f"{COUNTER_MAX}@a",
    f"{COUNTER_MAX + 1}@a",
    "9" * 5000 + "@a",
    "__proto__",
    "😀",
    "\ud800",
)

# Two halves of one character are two elements as long as they are apart.
CHARACTERS = 'abcdefgh \n\x00"é\u2028\uffff😀\ud83d\ude00'
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e21,
    -1e-7,
    COUNTER_MAX,
    "",
    "ab",
    "\ud83d",
    "\ude00",
    [],
    {},
    [1, ["x", None]],
    {"b": [1.0], "a": {"😀": 0, "\uffff": 1}},
)
# What an honest writer must not write, and a reader takes all the same.
ODD_VALUES: tuple[Any, ...] = (2**60, -(2**53), {"__proto__": 1, "constructor": {}})
KEYS = ("k", "l", "", "0", "😀", "\ud800")
ODD_KEYS = ("k", "l", "", "__proto__")

T = TypeVar("T")


class _Replica:
    """One honest writer: what it knows, and what it may therefore write."""

    def __init__(self, name: str, counter: int) -> None:
        self.name = name
        self.counter = counter
        self.log: list[AnyOp] = []
        self._known: set[tuple[int, str]] = set()
        self._ids: dict[str, list[str]] = {}
        self._removed: set[tuple[str, str]] = set()
        self._seen: dict[tuple[str, str], dict[str, int]] = {}

    def write(self, op: AnyOp) -> str:
        """Stamp an op, learn it, and return the id that it would give to an element."""
        clock = {"c": self.counter + 1, "r": self.name}
        element_id = f"{clock['c']}@{clock['r']}"
        op["clock"] = clock
        if op["t"] == "ins":
            op["id"] = element_id
        self.learn(op)
        return element_id

    def learn(self, op: AnyOp) -> None:
        """Follow an op, own or foreign; one that is known changes nothing."""
        clock = (op["clock"]["c"], op["clock"]["r"])
        if clock in self._known:
            return
        self._known.add(clock)
        self.log.append(op)
        self.counter = max(self.counter, clock[0])
        match op["t"]:
            case "ins":
                self._ids.setdefault(op["list"], []).append(op["id"])
            case "rmv":
                self._removed.add((op["list"], op["id"]))
            case "put":
                seen = self._seen.setdefault((op["map"], op["key"]), {})
                seen[clock[1]] = max(clock[0], seen.get(clock[1], 0))

    def ids(self, name: str) -> list[str]:
        """The elements of a list, live or not, in the order in which they were learnt."""
        return self._ids.get(name, [])

    def is_removed(self, name: str, element_id: str) -> bool:
        """Whether this replica knows that an element was removed."""
        return (name, element_id) in self._removed

    def seen(self, name: str, key: str) -> dict[str, int]:
        """The writes of a key that a drop would cover."""
        return dict(self._seen.get((name, key), {}))


def honest_history(rng: random.Random, edits: int = 12) -> list[AnyOp]:
    """What two to four replicas write while they now and then read one another.

    The ops come in an order in which each follows what its writer knew. Any other order of all of
    them, with any repetition, must fold to the same document.
    """
    start = rng.choice((0, 0, 0, 2**31 - 3, COUNTER_MAX - 20 * edits))
    names = rng.sample(REPLICAS, rng.randint(2, 4))
    replicas = [_Replica(name, start) for name in names]
    ops: list[AnyOp] = []
    for _ in range(edits):
        replica = rng.choice(replicas)
        if rng.random() < 0.25:
            _read(rng, replica, rng.choice(replicas))
        before = len(replica.log)
        _HONEST_EDITS[rng.randrange(len(_HONEST_EDITS))](rng, replica)
        ops.extend(replica.log[before:])
    return ops


def crowded_history(rng: random.Random, edits: int = 40) -> list[AnyOp]:
    """What replicas write that all insert at a few places of one list and hardly read.

    Many elements with one anchor and nearby clocks make a reader look far for the right place.
    """
    replicas = [_Replica(name, 0) for name in rng.sample(REPLICAS, rng.randint(2, 5))]
    ops: list[AnyOp] = []
    for _ in range(edits):
        replica = rng.choice(replicas)
        if rng.random() < 0.05:
            _read(rng, replica, rng.choice(replicas))
        before = len(replica.log)
        ids = replica.ids("body")
        if ids and rng.random() < 0.2:
            _remove_elements(rng, replica, "body")
        else:
            after = rng.choice(["", *ids[:2]])
            value = rng.choice(CHARACTERS)
            replica.write({"t": "ins", "list": "body", "after": after, "value": value})
        ops.extend(replica.log[before:])
    return ops


def _read(rng: random.Random, reader: _Replica, source: _Replica) -> None:
    """Learn a prefix of what another replica knows; a prefix is closed under causes."""
    size = len(source.log)
    for op in source.log[: size if rng.random() < 0.5 else rng.randint(0, size)]:
        reader.learn(op)


def _type_text(rng: random.Random, replica: _Replica) -> None:
    name = rng.choice(NAMES)
    after = _anchor(rng, replica, name)
    for _ in range(rng.randint(1, 8)):
        value = rng.choice(CHARACTERS)
        after = replica.write({"t": "ins", "list": name, "after": after, "value": value})


def _insert_values(rng: random.Random, replica: _Replica) -> None:
    name = rng.choice(NAMES)
    after = _anchor(rng, replica, name)
    for _ in range(rng.randint(1, 3)):
        op = {"t": "ins", "list": name, "after": after, "value": rng.choice(VALUES)}
        element_id = replica.write(op)
        # The others pile up at one anchor, newest first, as inserts at one position do.
        after = rng.choice((after, element_id))


def _anchor(rng: random.Random, replica: _Replica, name: str) -> str:
    ids = replica.ids(name)
    if not ids or rng.random() < 0.15:
        return ""
    # Mostly the newest, as someone who goes on typing does.
    return ids[-1] if rng.random() < 0.5 else rng.choice(ids)


def _remove_somewhere(rng: random.Random, replica: _Replica) -> None:
    _remove_elements(rng, replica, rng.choice(NAMES))


def _remove_elements(rng: random.Random, replica: _Replica, name: str) -> None:
    ids = replica.ids(name)
    if not ids:
        return
    first, step = rng.randrange(len(ids)), rng.choice((1, -1))
    size = rng.randint(1, 6)
    end = min(first + size, len(ids)) if step > 0 else max(first - size, -1)
    for element_id in [ids[index] for index in range(first, end, step)]:
        if not replica.is_removed(name, element_id):
            replica.write({"t": "rmv", "list": name, "id": element_id})


def _set_register(rng: random.Random, replica: _Replica) -> None:
    replica.write({"t": "set", "reg": rng.choice(NAMES), "value": rng.choice(VALUES)})


def _delete_register(rng: random.Random, replica: _Replica) -> None:
    replica.write({"t": "del", "reg": rng.choice(NAMES)})


def _put_key(rng: random.Random, replica: _Replica) -> None:
    name, key = rng.choice(NAMES), rng.choice(KEYS)
    replica.write({"t": "put", "map": name, "key": key, "value": rng.choice(VALUES)})


def _drop_key(rng: random.Random, replica: _Replica) -> None:
    name, key = rng.choice(NAMES), rng.choice(KEYS[:2])
    seen = replica.seen(name, key)
    if seen:
        replica.write({"t": "drop", "map": name, "key": key, "seen": seen})


# What is listed more often happens more often.
_HONEST_EDITS: tuple[Callable[[random.Random, _Replica], None], ...] = (
    _type_text,
    _type_text,
    _type_text,
    _remove_somewhere,
    _remove_somewhere,
    _insert_values,
    _set_register,
    _delete_register,
    _put_key,
    _put_key,
    _drop_key,
)


def adversarial_op(rng: random.Random) -> AnyOp:
    """One op with the shape of an op and no other virtue; few names, so that they collide."""
    kind = rng.choice(
        ("ins", "ins", "ins", "ins", "rmv", "rmv", "set", "del", "put", "drop", "inc")
    )
    clock = {"c": _counter(rng), "r": _replica(rng)}
    match kind:
        case "set":
            return {"t": kind, "reg": _name(rng), "clock": clock, "value": _value(rng)}
        case "del":
            return {"t": kind, "reg": _name(rng), "clock": clock}
        case "ins":
            # Half of the ids are the clock's own, so that runs form and then meet the others.
            own = f"{clock['c']}@{clock['r']}"
            return {
                "t": kind,
                "list": _name(rng),
                "id": own if rng.random() < 0.5 else _element_id(rng),
                "after": "" if rng.random() < 0.3 else _element_id(rng),
                "clock": clock,
                "value": _value(rng),
            }
        case "rmv":
            return {"t": kind, "list": _name(rng), "id": _element_id(rng), "clock": clock}
        case "put":
            entry = {"map": _name(rng), "key": rng.choice(ODD_KEYS)}
            return {"t": kind, **entry, "clock": clock, "value": _value(rng)}
        case "drop":
            entry = {"map": _name(rng), "key": rng.choice(ODD_KEYS)}
            seen = {_replica(rng): _counter(rng) for _ in range(rng.randint(0, 3))}
            return {"t": kind, **entry, "clock": clock, "seen": seen}
        case _:
            return {"t": kind, "reg": _name(rng), "clock": clock, "value": 1}


def adversarial_history(rng: random.Random, size: int = 30) -> list[AnyOp]:
    """Up to `size` ops that no honest set of replicas would write."""
    if rng.random() < 0.5:
        return with_ring(rng, [adversarial_op(rng) for _ in range(rng.randint(1, size))])
    ops = honest_history(rng, edits=max(1, size // 3))
    if rng.random() < 0.5:
        rng.shuffle(ops)
    return with_ring(rng, mutated(rng, ops))


def with_ring(rng: random.Random, ops: Sequence[AnyOp]) -> list[AnyOp]:
    """Now and then, mix in elements that hang on one another in a ring."""
    mixed = list(ops)
    if rng.random() < 0.8:
        return mixed
    name, size = _name(rng), rng.randint(1, 4)
    clocks = [{"c": _counter(rng), "r": _replica(rng)} for _ in range(size)]
    ids = [f"{clock['c']}@{clock['r']}" for clock in clocks]
    for place, clock in enumerate(clocks):
        ring = {"id": ids[place], "after": ids[place - 1], "clock": clock, "value": "o"}
        mixed.insert(rng.randint(0, len(mixed)), {"t": "ins", "list": name, **ring})
    return mixed


def mutated(rng: random.Random, ops: Sequence[AnyOp]) -> list[AnyOp]:
    """Spoil an honest history: one op in five is changed, left out, repeated or followed up."""
    spoilt: list[AnyOp] = []
    for op in ops:
        spoilt.append(op)
        if rng.random() < 0.8:
            continue
        match rng.randrange(5):
            case 0:
                spoilt.pop()
            case 1:
                spoilt.append(rng.choice(ops))
            case 2:
                spoilt.append(adversarial_op(rng))
            case _:
                spoilt[-1] = _spoilt(rng, op, rng.choice(ops))
    return spoilt


def _spoilt(rng: random.Random, op: AnyOp, other: AnyOp) -> AnyOp:
    """The op with one of its members taken from another op, or from nowhere."""
    member = rng.choice([member for member in op if member != "t"])
    if member in other and rng.random() < 0.7:
        return {**op, member: other[member]}
    match member:
        case "clock":
            # Older or newer than everything it must be newer or older than.
            return {**op, "clock": {"c": _counter(rng), "r": op["clock"]["r"]}}
        case "id" | "after":
            own_id = op.get("id", "x")
            return {**op, member: rng.choice((own_id, other.get("id", own_id), _element_id(rng)))}
        case "value":
            return {**op, "value": _value(rng)}
        case "seen":
            return {**op, "seen": {op["clock"]["r"]: _counter(rng)}}
        case _:
            return {**op, member: _name(rng)}


def adversarial_state(rng: random.Random, size: int = 20) -> dict[str, Any]:
    """A version-1 state of any registers and nodes, as no fold would leave it."""
    registers: dict[str, Any] = {}
    lists: dict[str, list[Any]] = {}
    for op in (adversarial_op(rng) for _ in range(rng.randint(0, size))):
        if "reg" in op:
            entry = {"clock": op["clock"], "value": op.get("value"), "deleted": _flag(rng)}
            registers[op["reg"]] = entry
        elif "list" in op:
            nodes = lists.setdefault(op["list"], [])
            if all(node["id"] != op["id"] for node in nodes):
                nodes.append(_node(rng, op))
    return {"v": 1, "regs": registers, "lists": lists}


def _node(rng: random.Random, op: AnyOp) -> dict[str, Any]:
    return {
        "id": op["id"],
        "after": op.get("after", ""),
        "clock": op["clock"],
        "value": op.get("value"),
        "deleted": _flag(rng),
        "pending": _flag(rng),
    }


def _flag(rng: random.Random) -> bool:
    return rng.random() < 0.3


def _counter(rng: random.Random) -> int:
    if rng.random() < 0.85:
        return rng.randint(1, 9)
    return rng.choice((10, 11, 2**31, 2**32, 2**52, COUNTER_MAX - 1, COUNTER_MAX))


def _replica(rng: random.Random) -> str:
    if rng.random() < 0.8:
        return rng.choice(REPLICAS[:3])
    return rng.choice(REPLICAS + ODD_REPLICAS)


def _name(rng: random.Random) -> str:
    return rng.choice(NAMES[:2]) if rng.random() < 0.85 else rng.choice(ODD_NAMES)


def _element_id(rng: random.Random) -> str:
    if rng.random() < 0.85:
        return f"{_counter(rng)}@{_replica(rng)}"
    return rng.choice(ODD_IDS)


def _value(rng: random.Random) -> Any:
    return rng.choice(CHARACTERS) if rng.random() < 0.6 else rng.choice(VALUES + ODD_VALUES)


def shuffled(rng: random.Random, ops: Sequence[AnyOp]) -> list[AnyOp]:
    """All the ops in any order, some of them more than once."""
    delivered = list(ops)
    if ops:
        delivered.extend(rng.choices(ops, k=rng.randint(0, len(ops) // 2)))
    rng.shuffle(delivered)
    return delivered


def shuffled_behind_anchors(rng: random.Random, ops: Sequence[AnyOp]) -> list[AnyOp]:
    """All the ops once, in any order in which an element precedes what hangs on or removes it."""
    waiting: dict[tuple[str, str], list[AnyOp]] = {}
    ready: list[AnyOp] = []
    for op in ops:
        needed = {"ins": op.get("after"), "rmv": op.get("id")}.get(op["t"])
        (waiting.setdefault((op["list"], needed), []) if needed else ready).append(op)
    delivered: list[AnyOp] = []
    while ready:
        place = rng.randrange(len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        op = ready.pop()
        delivered.append(op)
        if op["t"] == "ins":
            ready.extend(waiting.pop((op["list"], op["id"]), ()))
    return delivered


def split(rng: random.Random, items: Sequence[T]) -> list[list[T]]:
    """Cut a sequence into batches, the empty ones included."""
    cuts = sorted(rng.choices(range(len(items) + 1), k=rng.randint(0, 6)))
    edges = zip([0, *cuts], [*cuts, len(items)], strict=True)
    return [list(items[start:end]) for start, end in edges]


def randoms() -> st.SearchStrategy[random.Random]:
    """Random numbers that Hypothesis records and shrinks."""
    return st.randoms(use_true_random=False)


def honest_histories(edits: int = 12) -> st.SearchStrategy[list[AnyOp]]:
    """Honest histories of up to `edits` edits."""
    return st.builds(honest_history, randoms(), st.integers(0, edits)) | st.builds(
        crowded_history, randoms(), st.integers(0, 2 * edits)
    )


def adversarial_histories(size: int = 30) -> st.SearchStrategy[list[AnyOp]]:
    """Adversarial histories: single ops that Hypothesis can leave out, or spoilt honest ones."""
    loose = st.lists(st.builds(adversarial_op, randoms()), max_size=size)
    spoilt = st.builds(mutated, randoms(), honest_histories(max(1, size // 3)))
    return st.builds(with_ring, randoms(), loose | spoilt)


def histories() -> st.SearchStrategy[list[AnyOp]]:
    """Histories of either sort."""
    return honest_histories() | adversarial_histories()


def adversarial_states() -> st.SearchStrategy[dict[str, Any]]:
    """Version-1 states that no fold would leave."""
    return st.builds(adversarial_state, randoms())
