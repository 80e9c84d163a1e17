"""Bases: what was shown is found again, however the list has changed since."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from walstore.document.bases import Edit, ListBase, composed


@st.composite
def edits(draw: st.DrawFn, length: int) -> list[Edit]:
    """Inserts and removes at ascending positions of a list, none inside another."""
    made: list[Edit] = []
    position = 0
    for skip, removed, inserted in draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=6)
    ):
        position += skip
        if position + removed > length:
            break
        made.append((position, removed, 0) if removed else (position, 0, inserted))
        position += removed
    return made


@st.composite
def bases_and_edits(draw: st.DrawFn) -> tuple[list[Edit], list[Edit]]:
    """Edits since a list of twelve was shown, and further ones made at once."""
    since = draw(edits(12))
    length = 12 + sum(inserted - removed for _, removed, inserted in since)
    return since, draw(edits(length))


def shown(made: list[Edit]) -> ListBase:
    """The base of a list of twelve that has followed edits one after the other."""
    base = ListBase("abcdefghijkl")
    moved = 0
    for position, removed, inserted in made:
        base.shift(position + moved, removed, inserted)
        moved += inserted - removed
    return base


def places(base: ListBase) -> dict[int, int]:
    """Where each shown element is by now."""
    return {
        first + offset: at + offset
        for first, size, at in base.ranges(0, 12)
        for offset in range(size)
    }


@given(bases_and_edits())
def test_following_edits_at_once_is_following_them_one_by_one(
    drawn: tuple[list[Edit], list[Edit]],
) -> None:
    since, at_once = drawn
    together, one_by_one = shown(since), shown(since)
    together.shift_all(at_once)
    moved = 0
    for position, removed, inserted in at_once:
        one_by_one.shift(position + moved, removed, inserted)
        moved += inserted - removed
    assert places(together) == places(one_by_one)


changes_in_a_row = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=12
)


@given(edits(12), changes_in_a_row)
def test_what_changes_come_to_is_followed_as_they_are(since: list[Edit], drawn: list[Edit]) -> None:
    together, one_by_one = shown(since), shown(since)
    length = 12 + sum(inserted - removed for _, removed, inserted in since)
    changes: list[Edit] = []
    for place, gone, inserted in drawn:
        position = min(place, length)
        removed = min(gone, length - position)
        changes.append((position, removed, inserted))
        one_by_one.shift(position, removed, inserted)
        length += inserted - removed
    together.shift_all(composed(changes))
    assert places(together) == places(one_by_one)


@given(bases_and_edits(), st.integers(0, 12))
def test_a_gap_is_right_behind_the_nearest_element_that_is_still_there(
    drawn: tuple[list[Edit], list[Edit]], start: int
) -> None:
    base = shown(drawn[0])
    before = [place for element, place in places(base).items() if element < start]
    assert base.gap(start) == (before[-1] + 1 if before else 0)


own_edits = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3), st.sampled_from(["", "x", "yz"])), max_size=12
)


@given(edits(12), own_edits)
def test_what_its_holder_edits_counts_as_shown(since: list[Edit], own: list[Any]) -> None:
    base = shown(since)
    # What is in the list by now, and what is shown: characters, told apart by their numbers.
    numbers = count(12)
    now: list[tuple[int, str]] = list(enumerate("abcdefghijkl"))
    seen = list(now)
    moved = 0
    for position, removed, inserted in since:
        others = [(next(numbers), "?") for _ in range(inserted)]
        now[position + moved : position + moved + removed] = others
        moved += inserted - removed
    for position, removed, text in own:
        place = min(position, len(now))
        gone = now[place : place + removed]
        if gone:
            base.edit(place, len(gone), "")
            del now[place : place + len(gone)]
            seen = [each for each in seen if each not in gone]
        if text:
            base.edit(place, 0, text)
            before = [each for each in now[:place] if each in seen]
            spot = seen.index(before[-1]) + 1 if before else 0
            typed = [(next(numbers), character) for character in text]
            seen[spot:spot], now[place:place] = typed, typed
    assert base.value == "".join([character for _, character in seen])
    assert [place for _, size, at in base.ranges(0, 99) for place in range(at, at + size)] == [
        now.index(each) for each in seen if each in now
    ]
