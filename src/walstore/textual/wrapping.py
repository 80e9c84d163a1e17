"""A text as rows of a screen: where its lines break, and which row and cell a place is at.

- An edit costs the lines that it touches and log n: nothing is counted anew for the others.
- Tabs reach to the stops of the whole line, wherever it breaks.
- What is seen as one character is one place: a cell within it is at its beginning.
"""

from __future__ import annotations

from bisect import bisect_right

from rich.cells import cell_len, split_graphemes
from textual.document._document import Location
from textual.document._document_navigator import DocumentNavigator
from textual.document._wrapped_document import WrappedDocument
from textual.expand_tabs import get_tab_widths
from textual.geometry import Offset

from walstore.reconcile.graphemes import CLUSTER_LEN_MAX, Clusters
from walstore.textual.breaking import breaks
from walstore.textual.counts import Counts
from walstore.textual.text_document import TextDocument

_WHOLE: list[int] = []


class Wrapping(WrappedDocument):
    """The rows of a `TextDocument`."""

    document: TextDocument

    def __init__(self, document: TextDocument, width: int = 0, tab_width: int = 4) -> None:
        self._rows = Counts()
        super().__init__(document, width, tab_width)

    # ── breaking ───────────────────────────────────────────────────────────────────────

    def wrap(self, width: int, tab_width: int | None = None) -> None:
        """Break all lines anew; a width of 0 breaks none."""
        self._width = width
        self._tab_width = tab_width or self._tab_width
        self._wrap_offsets = list(map(self._breaks, self.document.lines))
        self._rows = Counts([len(each) + 1 for each in self._wrap_offsets])

    def wrap_range(self, start: Location, old_end: Location, new_end: Location) -> None:
        """Break the lines anew that an edit has touched."""
        top, old_stop = start[0], old_end[0] + 1
        found = list(map(self._breaks, self.document.lines[top : new_end[0] + 1]))
        rows = [len(each) + 1 for each in found]
        # A key-press seldom changes how many rows a line has.
        if old_stop - top != len(rows) or rows != [self._rows[row] for row in range(top, old_stop)]:
            self._rows.splice(top, old_stop, rows)
        self._wrap_offsets[top:old_stop] = found

    def _breaks(self, line: str) -> list[int]:
        width = self._width
        if not width or (len(line) <= width and line.isascii() and "\t" not in line):
            return _WHOLE
        return breaks(line, width=width, tab_width=min(self._tab_width, width))

    @property
    def wrapped(self) -> bool:
        """Whether any line breaks."""
        return self._rows.total != len(self._rows)

    @property
    def height(self) -> int:
        """How many rows there are."""
        return self._rows.total

    @property
    def lines(self) -> list[list[str]]:
        """The sections of all lines."""
        return list(map(self.get_sections, range(self.document.line_count)))

    # ── rows ───────────────────────────────────────────────────────────────────────────

    def line_at(self, y: int) -> tuple[int, int] | None:
        """The line that a row shows and which of its sections; None below the last one."""
        return self._rows.find(y) if 0 <= y < self._rows.total else None

    def row_of(self, line_index: int) -> int:
        """The row at which a line begins, or would begin behind the last one."""
        return self._rows.sum_before(max(line_index, 0))

    def section(self, line_index: int, section: int) -> tuple[int, int]:
        """The columns between which a section of a line is."""
        offsets = self._wrap_offsets[line_index]
        start = offsets[section - 1] if section else 0
        is_last = section == len(offsets)
        return start, len(self.document[line_index]) if is_last else offsets[section]

    def get_sections(self, line_index: int) -> list[str]:
        """The text of the sections of a line."""
        line = self.document[line_index]
        count = len(self._wrap_offsets[line_index]) + 1
        return [line[slice(*self.section(line_index, each))] for each in range(count)]

    def get_tab_widths(self, line_index: int) -> list[int]:
        """The widths of the tabs of a line."""
        line = self.document[line_index]
        return [width for _, width in get_tab_widths(line, self._tab_width) if width]

    # ── cells ──────────────────────────────────────────────────────────────────────────

    def cells(self, line_index: int, start: int, stop: int) -> int:
        """How many cells a stretch of a line fills."""
        line = self.document[line_index]
        stretch = line[start:stop]
        if "\t" not in stretch:
            # Plain text need not be measured, nor remembered for the next time.
            return len(stretch) if stretch.isascii() else cell_len(stretch)
        first = line.count("\t", 0, start)
        tabs = self.get_tab_widths(line_index)[first : first + stretch.count("\t")]
        return cell_len(stretch.replace("\t", "")) + sum(tabs)

    def location_to_offset(self, location: Location) -> Offset:
        """The cell at which a location is shown; the nearest location if there is none such."""
        row, column = self.document.clamp(location)
        section = bisect_right(self._wrap_offsets[row], column)
        start, _ = self.section(row, section)
        return Offset(self.cells(row, start, column), self._rows.sum_before(row) + section)

    def offset_to_location(self, offset: Offset) -> Location:
        """The location that is shown at a cell, or nearest to it."""
        x, y = offset
        row, section = self._rows.find(min(max(y, 0), self._rows.total - 1))
        return row, self.get_target_document_column(row, x, section)

    def get_target_document_column(self, line_index: int, x_offset: int, y_offset: int) -> int:
        """The column of a line that is at a cell of one of its sections."""
        last = len(self._wrap_offsets[line_index])
        section = last if y_offset < 0 else y_offset
        start, stop = self.section(line_index, section)
        column = self._column_at(line_index, start, stop, max(x_offset, 0))
        if section == last or column < stop:
            return column
        # Behind the last character of a section is the beginning of the next one.
        return previous_column(self.document[line_index], stop)

    def _column_at(self, line_index: int, start: int, stop: int, x: int) -> int:
        line = self.document[line_index]
        stretch = line[start:stop]
        if stretch.isascii() and "\t" not in stretch:
            return min(start + x, stop)
        tabs = iter(self.get_tab_widths(line_index)[line.count("\t", 0, start) :])
        for first, _, width in split_graphemes(stretch.replace("\t", " "))[0]:
            x -= next(tabs) if stretch[first] == "\t" else width
            if x < 0:
                return start + first
        return stop


class Navigator(DocumentNavigator):
    """Moves a cursor by what is seen as one character."""

    def get_location_left(self, location: Location) -> Location:
        """The location before another one."""
        row, column = location
        if not column:
            return super().get_location_left(location)
        return row, previous_column(self._document[row], column)

    def get_location_right(self, location: Location) -> Location:
        """The location after another one."""
        row, column = location
        line = self._document[row]
        if column >= len(line):
            return super().get_location_right(location)
        return row, next_column(line, column)


def previous_column(line: str, column: int) -> int:
    """The column before what is seen as one character before a column."""
    clusters, first = _clusters(line, column)
    column -= 1
    while clusters.is_inside(column - first):
        column -= 1
    return max(column, 0)


def next_column(line: str, column: int) -> int:
    """The column after what is seen as one character after a column."""
    clusters, first = _clusters(line, column)
    column += 1
    while clusters.is_inside(column - first):
        column += 1
    return min(column, len(line))


def _clusters(line: str, column: int) -> tuple[Clusters, int]:
    """The clusters around a column; a long line is not looked at as a whole."""
    first = max(column - 2 * CLUSTER_LEN_MAX, 0)
    return Clusters(line[first : column + 2 * CLUSTER_LEN_MAX]), first
