"""The laws of `diff_text`: right, ordered, minimal when small, and where the caret says."""

from __future__ import annotations

import random
from string import ascii_uppercase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.reconcile import Hunk, apply_to_text, diff_text

law = settings(deadline=None)

few_letters = st.text("ab\n", max_size=40)
any_text = st.text(max_size=40)


def lcs_length(old: str, new: str) -> int:
    """The textbook table, one row at a time."""
    row = [0] * (len(new) + 1)
    for left in old:
        above = row
        row = [0]
        for at, right in enumerate(new):
            row.append(above[at] + 1 if left == right else max(above[at + 1], row[at]))
    return row[-1]


def size(hunks: list[Hunk[str]]) -> int:
    return sum(hunk.removed + len(hunk.inserted) for hunk in hunks)


def check_laws(old: str, new: str, hunks: list[Hunk[str]]) -> None:
    assert apply_to_text(old, hunks) == new
    end = -1
    for start, removed, inserted in hunks:
        assert start > end, "hunks are in order and do not touch"
        assert removed or inserted, "no hunk is empty"
        end = start + removed
    assert end <= len(old)


def edited(text: str, edits: int, chance: random.Random, letters: str = "#%") -> str:
    """The text with so many substitutions, insertions and removals at random places."""
    characters = list(text)
    for _ in range(edits):
        at = chance.randrange(len(characters))
        characters[at : at + chance.randrange(2)] = chance.choices(letters, k=chance.randrange(2))
    return "".join(characters)


@law
@given(any_text, any_text)
def test_the_hunks_lead_from_old_to_new(old: str, new: str) -> None:
    check_laws(old, new, diff_text(old, new))


@law
@given(few_letters, few_letters)
def test_small_differences_are_minimal(old: str, new: str) -> None:
    hunks = diff_text(old, new)
    check_laws(old, new, hunks)
    assert size(hunks) == len(old) + len(new) - 2 * lcs_length(old, new)


@law
@given(any_text)
def test_equal_texts_give_no_hunk(text: str) -> None:
    assert diff_text(text, text) == []


@law
@given(few_letters, few_letters)
def test_what_one_way_removes_the_other_inserts(old: str, new: str) -> None:
    there, back = diff_text(old, new), diff_text(new, old)
    assert sum(h.removed for h in there) == sum(len(h.inserted) for h in back)
    assert sum(len(h.inserted) for h in there) == sum(h.removed for h in back)


@settings(law, max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    letters=st.sampled_from(["ab", "abc\n", "abcdefghijklmnop \n", "漢字かな\n", "e\u0301a"]),
    length=st.integers(4_500, 12_000),
    edits=st.integers(1, 40),
)
def test_large_texts_keep_the_laws(seed: int, letters: str, length: int, edits: int) -> None:
    chance = random.Random(seed)
    old = "".join(chance.choices(letters, k=length))
    new = edited(old, edits, chance)
    hunks = diff_text(old, new)
    check_laws(old, new, hunks)
    # No longer minimal by promise, but close; borders move to the end of their clusters.
    assert size(hunks) <= 12 * edits


@settings(law, max_examples=10)
@given(seed=st.integers(0, 2**32), length=st.integers(5_000, 9_000))
def test_large_texts_with_nothing_in_common_but_letters_keep_the_laws(
    seed: int, length: int
) -> None:
    chance = random.Random(seed)
    old = "".join(chance.choices("abcdefgh \n", k=length))
    new = "".join(chance.choices("abcdefgh \n", k=length))
    check_laws(old, new, diff_text(old, new))


def test_one_substitution_is_one_removed_and_one_inserted() -> None:
    assert diff_text("the cat", "the cut") == [Hunk(5, 1, "u")]


def test_one_insert_into_5000_equal_characters_is_one_character() -> None:
    [hunk] = diff_text("a" * 5_000, "a" * 5_001)
    assert (hunk.removed, hunk.inserted) == (0, "a")


def test_clearing_and_filling_are_one_hunk() -> None:
    assert diff_text("some text", "") == [Hunk(0, 9, "")]
    assert diff_text("", "some text") == [Hunk(0, 0, "some text")]


def test_a_change_in_a_long_single_line_is_found() -> None:
    old = "".join(random.Random(1).choices("abcdefgh", k=30_000))
    new = old[:10_000] + "#" + old[10_001:20_000] + "##" + old[20_000:]
    assert diff_text(old, new) == [Hunk(10_000, 1, "#"), Hunk(20_000, 0, "##")]


@pytest.mark.parametrize("separator", ["\n", " ", ""])
def test_rewritten_paragraphs_leave_what_is_between_them(separator: str) -> None:
    chance = random.Random(3)
    old = ["".join(chance.choices("abcdefgh", k=60)) for _ in range(600)]
    new = list(old)
    for paragraph in (50, 300, 550):
        new[paragraph : paragraph + 8] = ["".join(chance.choices("abcdefgh", k=500))]
    hunks = diff_text(separator.join(old), separator.join(new))
    check_laws(separator.join(old), separator.join(new), hunks)
    assert size(hunks) <= 3 * (8 * 61 + 500)


def test_lines_are_kept_beside_a_large_rewritten_block() -> None:
    chance = random.Random(5)
    lines = ["".join(chance.choices("abcdefgh", k=60)) for _ in range(300)]
    blocks = ["".join(chance.choices(ascii_uppercase, k=200_000)) for _ in range(2)]
    old = "\n".join([blocks[0], *lines])
    new = "\n".join([blocks[1], *lines[:299], "the end"])
    hunks = diff_text(old, new)
    check_laws(old, new, hunks)
    assert size(hunks) <= 400_000 + 2 * 61


@pytest.mark.parametrize("behind", ["", "\n", "\nmore", "\nmore\n"])
def test_an_equal_last_line_may_lack_its_end(behind: str) -> None:
    chance = random.Random(4)
    old, new = ("".join(chance.choices("abcdefgh\n", k=5_000)) for _ in "on")
    old, new = old + "\nthe last line of both\n" + behind, new + "\nthe last line of both"
    check_laws(old, new, diff_text(old, new))
    check_laws(new, old, diff_text(new, old))


def test_edits_among_very_many_equal_lines_are_followed() -> None:
    # Far too large to compare, and no line is unique.
    line = "0,0,0,0,0,0,0,0,0\n"
    old = line * 40_000
    new = "".join(line if at % 4_000 else "1" + line[1:] for at in range(40_000))
    hunks = diff_text(old, new)
    check_laws(old, new, hunks)
    assert size(hunks) <= 10 * 2 * len(line)


def test_edits_in_a_long_periodic_text_are_followed() -> None:
    old = "ab" * 100_000
    new = "".join("ab" * 9_999 + "#b" for _ in range(10))
    hunks = diff_text(old, new)
    check_laws(old, new, hunks)
    assert size(hunks) == 20


@pytest.mark.parametrize(("removed", "inserted"), [(1, "#"), (0, "#"), (1, "")])
def test_single_edits_all_over_a_long_text_are_one_hunk_each(removed: int, inserted: str) -> None:
    chance = random.Random(1)
    old = "".join(chance.choices("etaoinshrdlu  ,.\n", k=20_000))
    places = [100 + 300 * number for number in range(60)]
    parts, end = [], 0
    for place in places:
        # A mark of its own, so that there is one place only where the edit can be.
        old = f"{old[:place]}~{old[place + 1 :]}"
        parts += [old[end:place], inserted]
        end = place + removed
    new = "".join([*parts, old[end:]])
    hunks = diff_text(old, new)
    assert hunks == [Hunk(place, removed, inserted) for place in places]


def test_every_line_indented_keeps_every_line() -> None:
    chance = random.Random(2)
    lines = ["".join(chance.choices("abcdefgh ", k=40)) for _ in range(1_000)]
    old, new = "\n".join(lines), "\n".join("    " + line for line in lines)
    hunks = diff_text(old, new)
    check_laws(old, new, hunks)
    assert size(hunks) == 4_000


@law
@given(st.integers(1, 20), st.integers(1, 5), st.data())
def test_the_caret_says_which_of_equal_letters_was_typed(
    length: int, typed: int, data: st.DataObject
) -> None:
    caret = data.draw(st.integers(typed, length + typed))
    hunks = diff_text("a" * length, "a" * (length + typed), caret=caret)
    assert hunks == [Hunk(caret - typed, 0, "a" * typed)]


@law
@given(st.integers(1, 20), st.integers(1, 5), st.data())
def test_the_caret_says_which_of_equal_letters_was_removed(
    length: int, removed: int, data: st.DataObject
) -> None:
    caret = data.draw(st.integers(0, length))
    hunks = diff_text("a" * (length + removed), "a" * length, caret=caret)
    assert hunks == [Hunk(caret, removed, "")]


@law
@given(before=few_letters, selected=few_letters, typed=few_letters, after=few_letters)
def test_with_a_caret_nothing_behind_it_changes(
    before: str, selected: str, typed: str, after: str
) -> None:
    old, new = before + selected + after, before + typed + after
    hunks = diff_text(old, new, caret=len(before + typed))
    check_laws(old, new, hunks)
    assert size(hunks) == len(old) + len(new) - 2 * lcs_length(old, new)
    assert all(hunk.start + hunk.removed <= len(before + selected) for hunk in hunks)


@law
@given(few_letters, few_letters, st.integers(-5, 50))
def test_any_caret_gives_a_right_and_minimal_result(old: str, new: str, caret: int) -> None:
    hunks = diff_text(old, new, caret=caret)
    check_laws(old, new, hunks)
    assert size(hunks) == size(diff_text(old, new))


@pytest.mark.parametrize("caret", [-1, 0, 5, 99])
def test_a_caret_that_explains_no_edit_is_ignored(caret: int) -> None:
    assert diff_text("aaa", "aaaa", caret=caret) == diff_text("aaa", "aaaa")


def test_lone_surrogates_are_characters_like_others() -> None:
    old, new = "a\ud800b", "a\udfffb\ud83d"
    check_laws(old, new, diff_text(old, new))
