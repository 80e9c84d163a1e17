"""Where a line breaks into rows: before words, and within what is longer than a row.

- Spaces go with the word before them.
- What is seen as one character does not break, and has a row of its own if it is wider than one.
- A row costs little more than finding its end: an edit of a very long line breaks it anew.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from rich.cells import get_character_cell_size, split_graphemes
from textual.expand_tabs import get_tab_widths

# Texts of which every character fills one cell: Latin, Greek and Cyrillic ones with their
# punctuation.
_is_even = re.compile("[ -~\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027]*").fullmatch

# What joins the characters around it to one, or changes the width of the one before it.
_has_joiner = re.compile("[\u200d\ufe0f]").search

_SPACE = re.compile(r"\s")


def breaks(line: str, *, width: int, tab_width: int) -> list[int]:
    """The columns at which a line breaks."""
    cells = _cells_before(line, tab_width)
    text = line if line.isascii() else _SPACE.sub(" ", line)
    text = text.replace("\t", " ")
    found = []
    start = 0
    while cells[-1] - cells[start] > width:
        start = _next_break(text, cells, start, cells[start] + width)
        if start == len(line):
            # The last character is wider than a row.
            break
        found.append(start)
    return found


def _next_break(text: str, cells: Sequence[int], start: int, room: int) -> int:
    """Where a row ends that has room for so many cells of the line."""
    stop = _column_behind(cells, room)
    if stop == start:
        return _column_behind(cells, cells[start + 1])
    end = stop
    if text[stop] == " ":
        # The word before these spaces does not fit with all of them.
        end = start + len(text[start:stop].rstrip(" "))
    space = text.rfind(" ", start, end)
    # A mark on a space is part of it.
    return stop if space < 0 else _column_behind(cells, cells[space + 1])


def _column_behind(cells: Sequence[int], amount: int) -> int:
    """The last column with no more than so many cells before it."""
    return amount if isinstance(cells, range) else bisect_right(cells, amount) - 1


def _cells_before(line: str, tab_width: int) -> Sequence[int]:
    """How many cells are before each column, and before the end.

    Within what is seen as one character, there are as many as behind it.
    """
    if _is_even(line):
        return range(len(line) + 1)
    if "\t" not in line:
        return [0, *accumulate(_cells_of(line))]
    cells = []
    for part, tab in get_tab_widths(line, tab_width):
        cells += _cells_of(part)
        cells += [tab] * bool(tab)
    return [0, *accumulate(cells)]


def _cells_of(text: str) -> list[int]:
    """How many cells each character adds."""
    if not _has_joiner(text):
        return list(map(get_character_cell_size, text))
    cells = [0] * len(text)
    for start, _, size in split_graphemes(text)[0]:
        cells[start] = size
    return cells
