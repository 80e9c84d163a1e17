"""Anchors stay where they are while anybody edits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.crdt import WalCrdt, Writer
from walstore.document.anchors import END, HEAD, Anchor, Side, anchor_at, read_anchor, resolve
from walstore.errors import MalformedError

SIDES: tuple[Side, ...] = ("before", "after")


def typed(text: str, name: str = "body") -> tuple[WalCrdt, Writer]:
    crdt = WalCrdt()
    writer = Writer(crdt, "me:1")
    writer.insert_text(name, 0, text)
    return crdt, writer


def knotted(text: str) -> tuple[WalCrdt, Writer]:
    """The same as a list that holds a free-form id, which no run can say."""
    crdt, writer = typed(text)
    clock = {"c": crdt.counter + 1, "r": "peer"}
    insert: Any = {
        "t": "ins", "list": "body", "id": "free", "after": "", "clock": clock, "value": "_"
    }  # fmt: skip
    crdt.apply(insert)
    return crdt, writer


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("build", [typed, knotted])
def test_an_anchor_resolves_to_the_position_it_was_taken_at(build: Any, side: Side) -> None:
    crdt, _ = build("hello")
    for position in range(crdt.list_length("body") + 1):
        assert resolve(crdt, "body", anchor_at(crdt, "body", position, side)) == position


def test_what_is_inserted_at_an_anchor_goes_to_its_side() -> None:
    crdt, writer = typed("ab")
    after, before = anchor_at(crdt, "body", 1, "after"), anchor_at(crdt, "body", 1, "before")
    writer.insert_text("body", 1, "xyz")
    assert resolve(crdt, "body", after) == 1
    assert resolve(crdt, "body", before) == 4


def test_the_ends_of_a_list_stay_its_ends() -> None:
    crdt, writer = typed("ab")
    head, end = anchor_at(crdt, "body", 0, "after"), anchor_at(crdt, "body", 2, "before")
    writer.insert_text("body", 0, ">")
    writer.insert_text("body", 3, "<")
    assert (head, end) == (HEAD, END)
    assert resolve(crdt, "body", head) == 0
    assert resolve(crdt, "body", end) == 4


def test_positions_outside_a_list_are_its_ends() -> None:
    crdt, _ = typed("ab")
    assert anchor_at(crdt, "body", -5) == HEAD
    assert anchor_at(crdt, "body", 99, "before") == END
    assert anchor_at(crdt, "nothing", 3) == HEAD
    assert resolve(crdt, "nothing", END) == 0


@pytest.mark.parametrize("build", [typed, knotted])
def test_an_anchor_on_a_removed_element_slides_to_what_is_left(build: Any) -> None:
    crdt, writer = build("abcde")
    shift = crdt.list_length("body") - 5
    anchors = [anchor_at(crdt, "body", 3 + shift, side) for side in SIDES]
    writer.remove("body", 1 + shift, 3)
    assert [resolve(crdt, "body", anchor) for anchor in anchors] == [1 + shift] * 2


def test_an_anchor_on_what_was_let_go_stays_by_its_neighbour() -> None:
    crdt, writer = typed("abcde")
    anchor = anchor_at(crdt, "body", 4)
    writer.remove("body", 2, 2)
    assert resolve(crdt.collected(), "body", anchor) == 2
    writer.remove("body", 0, 3)
    assert resolve(crdt.collected(), "body", anchor) == 0


def test_an_anchor_on_an_element_that_has_not_arrived_has_no_position() -> None:
    crdt, _ = typed("ab")
    assert resolve(crdt, "body", Anchor("99@peer:1", "after")) is None
    assert resolve(crdt, "nothing", Anchor("99@peer:1", "after")) is None


@given(st.data())
def test_an_anchor_stays_between_the_survivors_it_was_between(data: st.DataObject) -> None:
    crdt, writer = typed("abcdefgh")
    other = Writer(crdt, "you:1")
    position = data.draw(st.integers(0, 8), label="position")
    side = data.draw(st.sampled_from(SIDES), label="side")
    left, right = crdt.list_ids("body")[:position], crdt.list_ids("body")[position:]
    anchor = anchor_at(crdt, "body", position, side)
    for _ in range(data.draw(st.integers(1, 8), label="edits")):
        hand = data.draw(st.sampled_from([writer, other]))
        at = data.draw(st.integers(0, crdt.list_length("body")))
        if data.draw(st.booleans()):
            hand.insert_text("body", at, data.draw(st.text("XYZ", min_size=1, max_size=3)))
        else:
            hand.remove("body", at, data.draw(st.integers(1, 4)))
    now = resolve(crdt, "body", anchor)
    assert now is not None
    ids = crdt.list_ids("body")
    assert all(ids.index(id) < now for id in left if id in ids)
    assert all(ids.index(id) >= now for id in right if id in ids)
    if anchor.id in ids:
        assert ids[now - 1 if side == "after" else now] == anchor.id


@given(st.sampled_from(SIDES), st.text(max_size=20))
def test_an_anchor_goes_through_json(side: Side, id: str) -> None:
    assert read_anchor(Anchor(id, side).to_json()) == Anchor(id, side)


@pytest.mark.parametrize(
    "value",
    [None, "ab", [], ["1@me"], ["1@me", "left"], [1, "after"], ["x" * 257, "after"], [["1"], {}]],
)
def test_what_is_no_anchor_is_refused(value: object) -> None:
    with pytest.raises(MalformedError):
        read_anchor(value)


@given(st.text(max_size=30) | st.just("9" * 200 + "@me"))
def test_no_id_from_outside_breaks_anything(id: str) -> None:
    crdt, _ = typed("ab")
    position = resolve(crdt, "body", read_anchor([id, "after"]))
    assert position is None or 0 <= position <= 2
