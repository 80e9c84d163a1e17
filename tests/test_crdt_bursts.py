"""Edits that go on where the last one ended are folded together, and nobody can tell."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from walstore.crdt import COUNTER_MAX, ClockExhaustedError, WalCrdt, Writer, to_ops

NAME = "text"

# What somebody may do between two edits, all of which has to see every edit.
LOOKS: tuple[Callable[[WalCrdt, Writer], Any], ...] = (
    lambda document, writer: document.text(NAME),
    lambda document, writer: document.list_length(NAME),
    lambda document, writer: document.list_ids(NAME),
    lambda document, writer: document.materialize(),
    lambda document, writer: document.export_state(),
    lambda document, writer: document.clone().text(NAME),
    lambda document, writer: document.find_element(NAME, "1@me"),
    lambda document, writer: document.has_replica("me"),
    lambda document, writer: document.is_text(NAME),
    lambda document, writer: document.sequence(NAME).values(),
    lambda document, writer: document.export_packed(),
    lambda document, writer: to_ops(writer.recorded()),
    lambda document, writer: to_ops(writer.take()),
    lambda document, writer: document.counter,
)


class Plain:
    """The same edits, each of them folded at once because somebody looks after it."""

    def __init__(self) -> None:
        self.document = WalCrdt()
        self.writer = Writer(self.document, "me")

    def insert(self, name: str, index: int, text: str) -> None:
        self.writer.insert_text(name, index, text)
        assert self.document.lists is not None

    def remove(self, name: str, index: int, count: int) -> None:
        self.writer.remove(name, index, count)
        assert self.document.lists is not None


@pytest.mark.parametrize("seed", range(150))
def test_bursts_are_what_their_edits_are_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    document, plain = WalCrdt(), Plain()
    writer = Writer(document, "me")
    other = Writer(WalCrdt(), "other")
    at = 0
    for _ in range(120):
        length = plain.document.list_length(NAME)
        for _ in range(chance.choice((1, 2, 7))):
            kind = chance.random()
            name = NAME if chance.random() < 0.97 else "elsewhere"
            if kind < 0.5:
                text = chance.choice(("x", "x", "word", "é", "😀", ""))
                writer.insert_text(name, at, text)
                plain.insert(name, at, text)
                at += len(text)
            else:
                count = chance.choice((1, 1, 1, 2))
                at -= 0 if kind > 0.8 else count
                writer.remove(name, at, count)
                plain.remove(name, at, count)
        if chance.random() < 0.4:
            look = chance.choice(LOOKS)
            assert look(document, writer) == look(plain.document, plain.writer)
        if chance.random() < 0.1:
            other.insert_text(NAME, 0, "far")
            for run in other.take():
                for each in (document, plain.document):
                    each.fold_runs((type(run)(*run._fields()),))  # type: ignore[arg-type]
        if chance.random() < 0.1:
            for each_writer in (writer, plain.writer):
                each_writer.set("register", 1)
        if chance.random() < 0.3:
            at = chance.randint(-2, length + 2)
    assert to_ops(writer.take()) == to_ops(plain.writer.take())
    assert document.counter == plain.document.counter
    assert document.canonical_state() == plain.document.canonical_state()
    assert document.export_state() == plain.document.export_state()
    document.check()


def test_two_hands_on_one_document_see_each_other() -> None:
    document = WalCrdt()
    one, two = Writer(document, "one"), Writer(document, "two")
    for index in range(6):
        one.insert_text(NAME, index, "a")
    for index in range(6):
        two.insert_text(NAME, index, "b")
    one.insert_text(NAME, 6, "c")
    assert document.text(NAME) == "bbbbbbcaaaaaa"
    folded = WalCrdt()
    folded.fold([*to_ops(one.take()), *to_ops(two.take())])
    assert folded.text(NAME) == document.text(NAME)


def test_a_burst_ends_where_no_clock_is_left() -> None:
    document = WalCrdt()
    writer = Writer(document, "me")
    document.counter = COUNTER_MAX - 4
    for index in range(4):
        writer.insert_text(NAME, index, "x")
    with pytest.raises(ClockExhaustedError):
        writer.insert_text(NAME, 4, "x")
    with pytest.raises(ClockExhaustedError):
        writer.remove(NAME, 3)
    assert document.text(NAME) == "xxxx"
    document = WalCrdt()
    writer = Writer(document, "me")
    writer.insert_text(NAME, 0, "0123456789")
    document.counter = COUNTER_MAX - 3
    for index in (9, 8, 7):
        writer.remove(NAME, index)
    with pytest.raises(ClockExhaustedError):
        writer.remove(NAME, 6)
    assert document.text(NAME) == "0123456"


def test_a_counter_that_somebody_raises_is_above_the_burst() -> None:
    document = WalCrdt()
    writer = Writer(document, "me")
    for index in range(4):
        writer.insert_text(NAME, index, "x")
    document.counter = 100
    writer.insert_text(NAME, 4, "y")
    assert document.list_ids(NAME) == ["1@me", "2@me", "3@me", "4@me", "101@me"]
    assert document.counter == 101


def test_what_was_noted_is_recorded_before_the_document_is_replaced() -> None:
    document = WalCrdt()
    writer = Writer(document, "me")
    for index in range(5):
        writer.insert_text(NAME, index, "x")
    document.import_state({"v": 1, "regs": {}, "lists": {}})
    assert document.text(NAME) == ""
    assert len(to_ops(writer.take())) == 5
    writer.insert_text(NAME, 5, "y")
    assert document.text(NAME) == "y"


def test_a_hand_that_moves_leaves_nothing_behind() -> None:
    document = WalCrdt()
    writer = Writer(document, "me")
    for index in range(5):
        writer.insert_text(NAME, index, "x")
    copy = document.clone()
    writer.move_to(copy)
    writer.insert_text(NAME, 5, "y")
    assert (document.text(NAME), copy.text(NAME)) == ("xxxxx", "xxxxxy")
