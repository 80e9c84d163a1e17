"""Long histories of several people, who meet now and then and agree in the end.

- Five people edit one document for a long time; whoever meets somebody hears all that they know.
- Real editing traces are split among people: what was typed by one after the other is typed by
  many, and what was typed at once is. `WALSTORE_TRACES` says where traces are; without any, those
  that are made up are split alone.

`WALSTORE_LONG_EDITS` says for how long: three of thirteen edits are in a list, ten in registers and
a map. `WALSTORE_TRACE_EDITS` says how much of each trace is typed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import pytest

from benchmarks.traces import (
    ConcurrentTrace,
    Edit,
    Trace,
    made_up_concurrent_trace,
    made_up_trace,
    read_trace,
    replay,
)
from walstore.canon import canonical_bytes, parse
from walstore.crdt import WalCrdt, Writer, pack_ops, unpack_ops

EDITS = int(os.environ.get("WALSTORE_LONG_EDITS", "26000"))
LIST_EDITS, ENTRY_EDITS = EDITS * 3 // 13, EDITS * 10 // 13
TRACE_EDITS = int(os.environ.get("WALSTORE_TRACE_EDITS", "8000"))

PEOPLE = 5
NAMES = 8

TRACES = Path(
    os.environ.get("WALSTORE_TRACES", Path(__file__).parent.parent.parent / "shared/traces")
)


class Person:
    """A replica, what it has said, and how much it has heard of others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.crdt = WalCrdt()
        self.writer = Writer(self.crdt, name)
        self.said: list[bytes] = []
        self.heard: dict[str, int] = {}

    def say(self) -> None:
        """Let others know of what was edited."""
        if runs := self.writer.take():
            self.said.append(canonical_bytes(pack_ops(runs)))

    def hear(self, other: Person, upto: int | None = None) -> None:
        """Take in what somebody has said, as far as they had said it then."""
        upto = len(other.said) if upto is None else upto
        for said in other.said[self.heard.get(other.name, 0) : upto]:
            self.crdt.fold_runs(unpack_ops(parse(said)))
        self.heard[other.name] = max(upto, self.heard.get(other.name, 0))


def people(count: int) -> list[Person]:
    return [Person(f"person-{number}") for number in range(count)]


def agreed(everybody: Sequence[Person], chance: random.Random) -> WalCrdt:
    """What all have in the end, who is there from the beginning and who comes last."""
    for here, there in permutations(everybody, 2):
        here.hear(there)
    newcomer = WalCrdt()
    said = [each for person in everybody for each in person.said]
    for each in chance.sample(said, len(said)):
        newcomer.fold_runs(unpack_ops(parse(each)))
    newcomer.check()
    state = newcomer.canonical_state()
    for person in everybody:
        assert person.crdt.canonical_state() == state, person.name
    return newcomer


def edit_list(person: Person, chance: random.Random, number: int) -> None:
    length = person.crdt.list_length("list")
    at = chance.randint(0, length)
    if length and chance.random() < 0.4:
        at = min(at, length - 1)
        person.writer.remove("list", at, chance.randint(1, min(4, length - at)))
    else:
        person.writer.insert(
            "list", at, [f"{number}.{more}" for more in range(chance.randint(1, 3))]
        )


def edit_entry(person: Person, chance: random.Random, number: int) -> None:
    name, is_removal = str(chance.randrange(NAMES)), chance.random() < 0.2
    if chance.random() < 0.5:
        if is_removal:
            person.writer.delete(name)
        else:
            person.writer.set(name, number)
    elif is_removal:
        person.writer.drop("map", name)
    else:
        person.writer.put("map", name, number)


@pytest.mark.parametrize(("edit", "count"), [(edit_list, LIST_EDITS), (edit_entry, ENTRY_EDITS)])
def test_five_people_who_edit_for_long_agree(
    edit: Callable[[Person, random.Random, int], None], count: int
) -> None:
    chance = random.Random(count)
    everybody = people(PEOPLE)
    for number in range(count):
        person = chance.choice(everybody)
        edit(person, chance, number)
        person.say()
        if chance.random() < 0.5:
            here, there = chance.sample(everybody, 2)
            here.hear(there)
    assert agreed(everybody, chance).materialize()


# ── real traces ────────────────────────────────────────────────────────────────────────


def traces() -> list[Path]:
    return sorted(
        path for kind in ("sequential", "concurrent") for path in TRACES.glob(f"{kind}/*.gz")
    )


def type_in(person: Person, edits: Sequence[Edit]) -> None:
    for position, removed, inserted in edits:
        if removed:
            person.writer.remove("text", position, removed)
        if inserted:
            person.writer.insert_text("text", position, inserted)
    person.say()


def type_in_turns(trace: Trace) -> None:
    """Hand the keyboard on: whoever has it has heard everything before."""
    chance = random.Random(trace.name)
    everybody, edits = people(3), trace.edits[:TRACE_EDITS]
    begin = 0
    while begin < len(edits):
        person, end = chance.choice(everybody), begin + chance.randint(1, 100)
        for other in everybody:
            if other is not person:
                person.hear(other)
        type_in(person, edits[begin:end])
        begin = end
    assert agreed(everybody, chance).text("text") == replay(edits)


def type_at_once(trace: ConcurrentTrace) -> None:
    """Type as those did who knew of each other's what the trace says, and nothing else."""
    transactions = trace.transactions[:TRACE_EDITS]
    everybody = people(1 + max(each.agent for each in transactions))
    # What was known after each transaction: how much everybody had said.
    versions: list[list[int]] = []
    for transaction in transactions:
        person = everybody[transaction.agent]
        known = [
            max((versions[parent][agent] for parent in transaction.parents), default=0)
            for agent in range(len(everybody))
        ]
        assert known[transaction.agent] == len(person.said)
        for other, upto in zip(everybody, known, strict=True):
            if other is not person:
                person.hear(other, upto)
        type_in(person, transaction.edits)
        known[transaction.agent] = len(person.said)
        versions.append(known)
    assert agreed(everybody, random.Random(trace.name)).text("text")


def test_traces_that_are_made_up_are_typed_by_several() -> None:
    type_in_turns(made_up_trace(TRACE_EDITS))
    type_at_once(made_up_concurrent_trace(TRACE_EDITS // 4))


@pytest.mark.skipif(not traces(), reason="no editing traces; WALSTORE_TRACES says where they are")
@pytest.mark.parametrize("path", traces(), ids=lambda path: path.name)
def test_real_traces_are_typed_by_several(path: Path) -> None:
    match read_trace(path):
        case Trace() as trace:
            type_in_turns(trace)
        case trace:
            type_at_once(trace)
