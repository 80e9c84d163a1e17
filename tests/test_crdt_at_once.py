"""Many ops at once are laid out; the outcome is that of folding them one after the other.

Lists that were laid out, or opened from a packed state, make their parts when they are touched:
whatever is done to them afterwards, they stay what a list is that was folded op by op.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from walstore.crdt import Change, ListChanged, WalCrdt, Writer, to_runs
from walstore.crdt.convert import to_run
from walstore.crdt.crdt import BUILD_RUNS_MIN
from walstore.crdt.runs import Insert, Remove, Run
from walstore.crdt.tree import SPAN_SIZE_MAX
from walstore.errors import MalformedError

NAME = "text"
REPLICAS = ("", "a", "ab", "b" * 64 + ":0", "é", "\uffff", "😀")
SEEDS = range(60)

Ops = list[Any]


def insert(replica: str, counter: int, after: str, value: Any) -> dict[str, Any]:
    clock = {"c": counter, "r": replica}
    id = f"{counter}@{replica}"
    return {"t": "ins", "list": NAME, "id": id, "after": after, "clock": clock, "value": value}


def plain_inserts(chance: random.Random) -> Ops:
    """Characters of some replicas at the head and after one another, some of them typed on."""
    replicas = chance.sample(REPLICAS, chance.choice((1, 2, 4)))
    counters = dict.fromkeys(replicas, 0)
    ops: Ops = []
    while len(ops) < 2 * BUILD_RUNS_MIN:
        anchor = chance.choice(ops[-8:]) if ops and chance.random() < 0.9 else None
        replica = chance.choice(replicas)
        for _ in range(chance.choice((1, 1, 5))):
            above = 0 if anchor is None else anchor["clock"]["c"]
            counters[replica] = max(counters[replica], above) + chance.choice((1, 1, 2))
            after = "" if anchor is None else anchor["id"]
            anchor = insert(replica, counters[replica], after, chance.choice("abé😀"))
            ops.append(anchor)
    return ops


def in_some_order(chance: random.Random, ops: Ops) -> Ops:
    return chance.choice((ops, ops[::-1], chance.sample(ops, len(ops))))


def folded(fold: Callable[[WalCrdt], None]) -> tuple[Any, ...]:
    """Everything that can be seen of a document, and how folding into it ended."""
    document = WalCrdt()
    ending = ""
    try:
        fold(document)
    except MalformedError as error:
        ending = str(error)
    shown = (document.materialize(), document.text(NAME), document.is_text(NAME))
    document.check()
    # Exported in the order of arrival.
    exported = document.export_state()
    return ending, document.counter, shown, exported, document.canonical_state()


def fold_each(document: WalCrdt, ops: Ops) -> None:
    runs = [to_run(op) for op in ops]
    for run in runs:
        document.fold_runs((run,))


def assert_same(ops: Ops) -> None:
    assert folded(lambda document: document.fold(ops)) == folded(
        lambda document: fold_each(document, ops)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_inserts_of_characters_are_laid_out_as_they_would_be_folded(seed: int) -> None:
    chance = random.Random(seed)
    assert_same(in_some_order(chance, plain_inserts(chance)))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_laid_out_is_told_as_it_would_be_shown(seed: int) -> None:
    chance = random.Random(seed)
    document, changes = WalCrdt(), list[Change]()
    document.fold(in_some_order(chance, plain_inserts(chance)), changes)
    shown: list[Any] = []
    for change in changes:
        assert isinstance(change, ListChanged)
        shown[change.position : change.position + change.removed] = change.inserted
    assert shown == document.list_values(NAME)


def test_what_shows_nothing_is_told_as_nothing() -> None:
    document, changes = WalCrdt(), list[Change]()
    document.fold([insert("a", 1, "", "x"), insert("a", 2, "1@a", "y")])
    document.fold([insert("a", 3, "9@nobody", "z")], changes)
    assert changes == []
    document.fold([insert("nobody", 9, "", "n")], changes)
    assert changes == [ListChanged(NAME, 0, 0, ["n", "z"])]


def altered(op: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {**op, **members}


ODD: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "it stands twice": lambda op, other: op,
    "its id was taken": lambda op, other: altered(other, value="z", after=""),
    "its anchor is unknown": lambda op, other: altered(op, after="77777@nobody"),
    "its anchor is unknown, of no name": lambda op, other: altered(op, after="77777@"),
    "its anchor is itself": lambda op, other: altered(op, after=op["id"]),
    "its anchor may be newer": lambda op, other: altered(op, after=other["id"]),
    "its anchor is free-form": lambda op, other: altered(op, after="x"),
    "its anchor is no text": lambda op, other: altered(op, after=None),
    "its anchor cannot be hashed": lambda op, other: altered(op, after=["a"]),
    "its id is free-form": lambda op, other: altered(op, id="x"),
    "its id is no text": lambda op, other: altered(op, id=7),
    "its clock is no object": lambda op, other: altered(op, clock=[1, "a"]),
    "its clock has another member": lambda op, other: altered(op, clock={**op["clock"], "x": 1}),
    "its counter is a float": lambda op, other: altered(
        op, clock={**op["clock"], "c": float(op["clock"]["c"])}
    ),
    "its counter is true": lambda op, other: altered(op, id="True@a", clock={"c": True, "r": "a"}),
    "its counter is 0": lambda op, other: altered(op, id="0@a", clock={"c": 0, "r": "a"}),
    "its counter is too high": lambda op, other: altered(
        op, id=f"{2**53}@a", clock={"c": 2**53, "r": "a"}
    ),
    "its counter is the highest": lambda op, other: insert("a", 2**53 - 1, op["id"], "x"),
    "its replica is no text": lambda op, other: altered(op, id="9@5", clock={"c": 9, "r": 5}),
    "its value is two characters": lambda op, other: altered(op, value="ab"),
    "its value is empty": lambda op, other: altered(op, value=""),
    "its value is half a character": lambda op, other: altered(op, value="\ud83d"),
    "its value is a list": lambda op, other: altered(op, value=[1]),
    "its value is no JSON": lambda op, other: altered(op, value={1}),
    "its value is missing": lambda op, other: {k: v for k, v in op.items() if k != "value"},
    "its list is another": lambda op, other: altered(op, list="other"),
    "its list is ignored": lambda op, other: altered(op, list="__proto__"),
    "its list is no text": lambda op, other: altered(op, list=["text"]),
    "its kind is unknown": lambda op, other: altered(op, t="new"),
    "its kind is no text": lambda op, other: altered(op, t=1),
    "it has another member": lambda op, other: altered(op, more=1),
    "it is a remove": lambda op, other: {
        "t": "rmv",
        "list": NAME,
        "id": other["id"],
        "clock": {"c": 5000, "r": "a"},
    },
    "it is no object": lambda op, other: "op",
    "it is nothing": lambda op, other: None,
}


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_op_among_plain_ones_has_the_outcome_that_it_has_alone(odd: str) -> None:
    for seed in range(8):
        chance = random.Random(seed)
        ops = plain_inserts(chance)
        places = [0, len(ops) - 1, chance.randrange(len(ops))]
        changed = ODD[odd](chance.choice(ops), chance.choice(ops))
        for place in places:
            assert_same([*ops[:place], changed, *ops[place + 1 :]])
            assert_same([*ops[:place], changed, *ops[place:]])


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_op_in_a_chain_has_the_outcome_that_it_has_alone(odd: str) -> None:
    ops: Ops = []
    for counter in range(1, 2 * BUILD_RUNS_MIN):
        ops.append(insert("a", counter, ops[-1]["id"] if ops else "", "x"))
    for place in (1, 70, len(ops) - 1):
        changed = ODD[odd](ops[place], ops[place // 2])
        assert_same([*ops[:place], changed, *ops[place + 1 :]])
        assert_same([*ops[:place], changed, *ops[place:]])


def test_into_a_list_that_is_there_characters_are_folded_one_by_one() -> None:
    chance = random.Random(1)
    ops = plain_inserts(chance)

    def twice(document: WalCrdt) -> None:
        document.fold(ops[:100])
        document.fold(ops[80:])

    assert folded(twice) == folded(lambda document: fold_each(document, [*ops[:100], *ops[80:]]))


def written(chance: random.Random, edits: int, values: Callable[[], list[Any]]) -> list[Run]:
    """What some replicas wrote that hear of each other now and then."""
    replicas = chance.sample(REPLICAS, chance.choice((1, 2, 3)))
    writers = [(document := WalCrdt(), Writer(document, replica)) for replica in replicas]
    sent: list[list[Run]] = []
    heard = [0] * len(writers)
    for _ in range(edits):
        number = chance.randrange(len(writers))
        document, writer = writers[number]
        if chance.random() < 0.3:
            for runs in sent[heard[number] :]:
                document.fold_runs(runs)
            heard[number] = len(sent)
        place = chance.randint(0, document.list_length(NAME))
        if chance.random() < 0.4:
            writer.remove(NAME, place, chance.choice((1, 3)))
        else:
            writer.insert(NAME, place, values())
        sent.append(to_runs_again(writer.take()))
    return [run for runs in sent for run in runs]


def to_runs_again(runs: list[Run]) -> list[Run]:
    """Copies: a run that is folded belongs to the document."""
    return [type(run)(*run._fields()) for run in runs]  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_histories_are_laid_out_as_they_would_be_folded(seed: int) -> None:
    chance = random.Random(f"histories {seed}")
    choices: list[list[Any]] = [["x"], ["w", "o", "r", "d"], [{"a": [1]}], ["x", None]]
    del choices[chance.choice((2, 4)) :]
    runs = written(chance, 3 * BUILD_RUNS_MIN, lambda: list(chance.choice(choices)))
    if chance.random() < 0.3:
        chance.shuffle(runs)
    if chance.random() < 0.2:
        del runs[chance.randrange(len(runs))]

    def each(document: WalCrdt) -> None:
        for run in to_runs_again(runs):
            document.fold_runs((run,))

    assert folded(lambda document: document.fold_runs(to_runs_again(runs))) == folded(each)


def test_who_removes_what_comes_later_leaves_the_order_of_arrival() -> None:
    inserts = [insert("a", 2 * number, "", "x") for number in range(1, 2 * BUILD_RUNS_MIN)]
    gone = [inserts[3], inserts[40], inserts[41]]
    removes = [
        {"t": "rmv", "list": NAME, "id": op["id"], "clock": {"c": 1000 + number, "r": "b"}}
        for number, op in enumerate(gone)
    ]
    for place in (0, 2, 3, 4, 30, len(inserts)):
        assert_same([*inserts[:place], *removes, *inserts[place:]])
        # A replica whose counters fall: what came last is not the highest.
        assert_same([*inserts[place:], *removes, *inserts[:place]])


def test_a_chain_that_is_longer_than_a_span_is_laid_out_in_parts() -> None:
    text = "0123456789" * (SPAN_SIZE_MAX // 4)
    runs: list[Run] = [Insert(NAME, "a", 1, "", 0, text)]
    runs += [
        Insert(NAME, "b", len(text) + n, "a", 50 * n, "x") for n in range(1, BUILD_RUNS_MIN + 1)
    ]
    runs.append(Remove(NAME, "b", 2 * len(text), "a", 10, len(text) - 20))

    def each(document: WalCrdt) -> None:
        for run in to_runs_again(runs):
            document.fold_runs((run,))

    assert folded(lambda document: document.fold_runs(to_runs_again(runs))) == folded(each)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_list_that_was_laid_out_is_edited_like_one_that_was_folded(seed: int) -> None:
    chance = random.Random(f"edits {seed}")
    runs = written(chance, 3 * BUILD_RUNS_MIN, lambda: list("word"[: chance.randint(1, 4)]))
    folded_each = WalCrdt()
    for run in to_runs_again(runs):
        folded_each.fold_runs((run,))
    at_once = WalCrdt()
    at_once.fold_runs(to_runs_again(runs))
    opened = WalCrdt()
    opened.import_packed(folded_each.export_packed(), lazy=True)
    joined = WalCrdt()
    joined.join(at_once)
    documents = (folded_each, at_once, opened, joined, at_once.clone())
    hands = [Writer(document, "hand") for document in documents]
    other = WalCrdt()
    other.fold_runs(to_runs_again(runs))
    far = Writer(other, "far")
    for _ in range(40):
        size = folded_each.list_length(NAME)
        place, count = chance.randint(0, size), chance.randint(0, 6)
        far.insert_text(NAME, chance.randint(0, other.list_length(NAME)), "far"[: count % 4])
        far.remove(NAME, chance.randint(0, size), count // 3)
        received = far.take()
        for hand, document in zip(hands, documents, strict=True):
            hand.remove(NAME, place, count)
            hand.insert_text(NAME, place, "hand"[: count % 5])
            document.fold_runs(to_runs_again(received))
        assert len({document.text(NAME) for document in documents}) == 1
        if size:
            id = folded_each.list_ids(NAME)[place % folded_each.list_length(NAME)]
            assert len({document.find_element(NAME, id) for document in documents}) == 1
    for document in documents:
        document.check()
        assert document.canonical_state() == folded_each.canonical_state()
        assert document.list_values(NAME) == list(folded_each.text(NAME))


def test_ops_become_the_same_runs_whatever_they_come_in() -> None:
    ops = plain_inserts(random.Random(3))
    assert to_runs(ops) == to_runs(iter(ops)) == to_runs(tuple(ops))


def test_what_is_removed_before_all_of_it_is_here_is_told_once() -> None:
    crdt = WalCrdt()
    crdt.fold_runs([Insert(NAME, "a", 1, "", 0, ["x", "y"])])
    changes: list[Change] = []
    crdt.fold_runs([Remove(NAME, "b", 9, "a", 1, 3, 1)], changes)
    assert changes == [ListChanged(NAME, 0, 2, [])]
    crdt.fold_runs([Insert(NAME, "a", 3, "a", 2, ["z"])], changes)
    assert (crdt.materialize().get(NAME), len(changes)) == ([], 1)
