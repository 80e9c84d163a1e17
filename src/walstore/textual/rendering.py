"""One row of a text on the screen: what it says, and what is marked in it.

- A row depends on what it is given and on nothing else, so rows can be kept and shown again.
- Later marks are drawn over earlier ones. Columns count the code points of the whole line.
- A flag stands where the row is empty. It never covers text: it is cut, or left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip


class Mark(NamedTuple):
    """A style from one column of a line to another."""

    start: int
    end: int
    style: Style


class Flag(NamedTuple):
    """A word beside a text, with who it is about."""

    text: str
    style: Style


class Row(NamedTuple):
    """What a row shows.

    Attributes:
        text: Its text; the last row of a line has a space more, for a cursor to rest on.
        start: The column of the line at which it begins.
        tabs: The widths of its tabs.
        marks: What is marked in the line.
        flags: What stands behind it.
        gutter: What stands before it.
        base: The style of everything.
        blank: The style of what is behind the text.
        width: How many cells there are for text and flags.
        scroll_x: How many cells of the text are out of view, to the left.
    """

    text: str
    start: int
    tabs: tuple[int, ...]
    marks: tuple[Mark, ...]
    flags: tuple[Flag, ...]
    gutter: tuple[Segment, ...]
    base: Style
    blank: Style | None
    width: int
    scroll_x: int


def render_row(row: Row) -> Strip:
    """The row as cells."""
    text = Strip(_segments(row))
    size = text.cell_length
    text = text.crop(row.scroll_x, row.scroll_x + row.width)
    # One cell stays free between a text, or where its cursor rests, and what is said of it.
    flags = _flags(row.flags, row.width - max(size - row.scroll_x, 0) - 1)
    if flags:
        text = text.extend_cell_length(max(size - row.scroll_x, 0) + 1, row.blank)
        text = Strip([*text, *flags])
    text = text.extend_cell_length(row.width, row.blank)
    return Strip([*row.gutter, *text]).apply_style(row.base)


def _segments(row: Row) -> list[Segment]:
    size = len(row.text)
    marks = [
        Mark(max(mark.start - row.start, 0), min(mark.end - row.start, size), mark.style)
        for mark in row.marks
    ]
    marks = [mark for mark in marks if mark.start < mark.end]
    cuts = {0, size, *[mark.start for mark in marks], *[mark.end for mark in marks]}
    tabs = iter(row.tabs)
    segments = []
    for start, end in pairwise(sorted(cuts)):
        styles = [mark.style for mark in marks if mark.start <= start and end <= mark.end]
        piece = row.text[start:end]
        if "\t" in piece:
            parts = piece.split("\t")
            piece = "".join([part + " " * next(tabs) for part in parts[:-1]]) + parts[-1]
        segments.append(Segment(piece, Style.combine(styles) if styles else None))
    return segments


def _flags(flags: Sequence[Flag], room: int) -> list[Segment]:
    segments = []
    for flag in flags:
        size = min(cell_len(flag.text), room)
        if size < 3:
            break
        segments.append(Segment(set_cell_size(flag.text, size), flag.style))
        room -= size
    return segments
