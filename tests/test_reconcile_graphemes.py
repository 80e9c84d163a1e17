"""No hunk of `diff_text` splits what a reader sees as one character."""

from __future__ import annotations

from itertools import accumulate, chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_reconcile_text import check_laws
from walstore.reconcile import Hunk, diff_text
from walstore.reconcile.graphemes import Clusters

law = settings(deadline=None)

# Each is one cluster, and stays one next to any other of them.
CLUSTERS = [
    "a",
    "b",
    " ",
    "\n",
    "\r\n",
    "é",
    "e\u0301",  # a combining accent
    "a\u0308\u0323",  # two of them
    "漢",
    "か\u3099",  # a combining voiced sound mark
    "ｶ\uff9e",  # a half-width one
    "각",
    "\u1100\u1161\u11a8",  # the same syllable in parts
    "\u1112\u1161",
    "กำ",  # Thai AM is a letter by category
    "க்",
    "नि",
    "क\u094dषि",  # two consonants joined by a virama
    "\u0600\u0661",  # a sign that is written before digits
    "👍",
    "👍🏽",
    "❤\ufe0f",
    "👨\u200d👩\u200d👧\u200d👦",
    "👩🏽\u200d🚀",
    "🏳\ufe0f\u200d🌈",
    "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # the flag of Scotland
    "🇫🇷",
    "🇩🇪",
    "🇫🇩",
    "1\ufe0f\u20e3",  # a keycap
]

texts = st.lists(st.sampled_from(CLUSTERS), max_size=12)


def borders(clusters: list[str]) -> set[int]:
    return {0, *accumulate(map(len, clusters))}


def check_borders(old: list[str], new: list[str], hunks: list[Hunk[str]]) -> None:
    in_old, in_new, shift = borders(old), borders(new), 0
    for start, removed, inserted in hunks:
        assert start in in_old
        assert start + removed in in_old
        assert start + shift in in_new
        assert start + shift + len(inserted) in in_new
        shift += len(inserted) - removed


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_cluster_is_known_as_one(cluster: str) -> None:
    text = Clusters("x" + cluster + "x")
    assert not text.is_inside(1)
    assert all(text.is_inside(position) for position in range(2, 1 + len(cluster)))
    assert not text.is_inside(1 + len(cluster)) or cluster.startswith("\u0600")


@law
@given(texts)
def test_clusters_next_to_each_other_are_told_apart(clusters: list[str]) -> None:
    text = "".join(clusters)
    known = Clusters(text)
    outside = {at for at in range(len(text) + 1) if not known.is_inside(at)}
    assert outside == borders(clusters)


@law
@given(texts, texts)
def test_no_hunk_splits_a_cluster(old: list[str], new: list[str]) -> None:
    hunks = diff_text("".join(old), "".join(new))
    check_laws("".join(old), "".join(new), hunks)
    check_borders(old, new, hunks)


@law
@given(texts, st.data())
def test_no_hunk_of_one_edit_splits_a_cluster(old: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(old)))
    end = data.draw(st.integers(start, len(old)))
    typed = data.draw(texts)
    new = old[:start] + typed + old[end:]
    caret = data.draw(st.none() | st.just(len("".join(old[:start] + typed))))
    hunks = diff_text("".join(old), "".join(new), caret=caret)
    check_laws("".join(old), "".join(new), hunks)
    check_borders(old, new, hunks)


@pytest.mark.parametrize(
    ("old", "new", "hunk"),
    [
        ("xe\u0301y", "xey", Hunk(1, 2, "e")),
        ("xey", "xe\u0301y", Hunk(1, 1, "e\u0301")),
        ("👍🏽", "👍🏿", Hunk(0, 2, "👍🏿")),
        ("🇫🇷", "🇫🇮", Hunk(0, 2, "🇫🇮")),
        ("a\nb", "a\r\nb", Hunk(1, 1, "\r\n")),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👦", Hunk(0, 5, "👨\u200d👩\u200d👦")),
        ("한", "하", Hunk(0, 1, "하")),
    ],
)
def test_a_changed_part_changes_the_whole_cluster(old: str, new: str, hunk: Hunk[str]) -> None:
    assert diff_text(old, new) == [hunk]


def test_an_insertion_slides_rather_than_taking_clusters_apart() -> None:
    couple, parent = "👨\u200d👩", "👨\u200d👦"
    # What both begin with ends inside a cluster.
    assert diff_text(couple, parent + couple) == [Hunk(0, 0, parent)]
    assert diff_text(parent + couple, couple) == [Hunk(0, 3, "")]


def test_a_flag_inserted_before_flags_is_all_that_changes() -> None:
    flags = "🇫🇷🇩🇪" * 10
    assert diff_text(flags, "🇮🇹" + flags) == [Hunk(0, 0, "🇮🇹")]


def test_half_a_flag_regroups_the_row() -> None:
    hunks = diff_text("🇫🇷🇩🇪x", "🇮🇫🇷🇩🇪x")
    assert hunks == [Hunk(0, 4, "🇮🇫🇷🇩🇪")]


def test_the_halves_of_a_surrogate_pair_stay_together() -> None:
    assert diff_text("a\ud83d\ude00b", "a\ud83d\ude01b") == [Hunk(1, 2, "\ud83d\ude01")]


def test_plain_text_beside_clusters_is_edited_alone() -> None:
    assert diff_text("👍🏽 cat 🇫🇷", "👍🏽 cut 🇫🇷") == [Hunk(4, 1, "u")]
    assert diff_text("naïve Straße", "naïve Straßen") == [Hunk(12, 0, "n")]


def test_when_very_many_borders_have_to_move_the_rest_becomes_one_hunk() -> None:
    marks = "\u0301" * 20
    old = [[*f"{line:040}", "e" + marks, "\n"] for line in range(1_200)]
    new = [[*line[:-2], "e" + marks[1:] + "\u0302", "\n"] for line in old]
    old_clusters, new_clusters = list(chain(*old)), list(chain(*new))
    hunks = diff_text("".join(old_clusters), "".join(new_clusters))
    check_laws("".join(old_clusters), "".join(new_clusters), hunks)
    check_borders(old_clusters, new_clusters, hunks)
    assert 100 < len(hunks) < 1_200
