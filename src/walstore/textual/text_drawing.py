"""A `TextArea` that draws its own rows, each no oftener than it has to.

    lines touched ── stale rows ── those that show something else ── the screen
                  (any number of)  (once, when a frame is drawn)

- A row is drawn by what it shows, and kept: one that shows the same is not drawn again, wherever on
  the screen it is by now, and one that shows something else is never taken for it.
- Whatever may have changed is compared with what is on the screen, row by row, once in a frame.
  Only what differs is written to the terminal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.color import Color
from textual.document._document import Selection
from textual.geometry import Region
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widgets import TextArea

from walstore.textual.carets import (
    RemoteCaret,
    carets_in,
    flags_in,
    is_in,
    selection_mark,
    selections_in,
)
from walstore.textual.finished_rows import ROWS_MAX, FinishedRows
from walstore.textual.rendering import Mark, Row, render_row
from walstore.textual.steady_scrollbar import SteadyScrollBar
from walstore.textual.text_document import TextDocument
from walstore.textual.wrapping import Wrapping, next_column


class Look(NamedTuple):
    """What all rows have in common while they are drawn."""

    base: Style
    ground: Color
    width: int
    gutter_width: int
    blank: Strip
    top: int
    left: int
    carets: tuple[RemoteCaret, ...]
    selection: Selection
    cursor_row: int | None
    cursor_line: Style | None


class TextDrawing(TextArea):
    """A text, and where others are in it, on the screen."""

    document: TextDocument
    wrapped_document: Wrapping

    def __init__(self, **options: Any) -> None:
        """Draw nothing yet; the options are those of a `TextArea`."""
        self._carets: tuple[RemoteCaret, ...] = ()
        self._look: Look | None = None
        self._is_styled = False
        # Rows of the screen that may show something else by now, and what all of them show.
        self._stale: set[int] = set()
        # Whether the screen is to be asked for a frame.
        self._is_due = False
        self._drawn: dict[int, Row | None] = {}
        # Whether what is drawn will be on the screen.
        self._is_shown = False
        super().__init__(**options)
        self._line_cache: LRUCache[Any, Strip] = LRUCache(ROWS_MAX)
        self._styles_cache = FinishedRows()

    # ── what is drawn again ────────────────────────────────────────────────────────────

    @property
    def carets(self) -> tuple[RemoteCaret, ...]:
        """Where the others are."""
        return self._carets

    def draw_carets(self, carets: tuple[RemoteCaret, ...]) -> None:
        """Draw where the others are, in place of where they were."""
        for caret in {*carets} ^ {*self._carets}:
            self.draw_lines(*sorted((caret.start[0], caret.end[0])))
        self._carets = carets

    def draw_lines(self, first: int, last: int) -> None:
        """Draw lines of the text again, as far as they are in view."""
        wrapping = self.wrapped_document
        self._draw_rows(wrapping.row_of(first), wrapping.row_of(last + 1))

    def draw_below(self, line: int) -> None:
        """Draw everything from a line on again: it has moved, or is empty now."""
        self._draw_rows(self.wrapped_document.row_of(line), self.scroll_offset.y + self.size.height)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Draw what is elsewhere now; while others edit above, everything may be where it was."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = new_value
        if round(old_value) != round(new_value):
            top = self.scroll_offset.y
            self._draw_rows(top, top + self.size.height)

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        """The scroll bar, made when it is first needed."""
        if self._vertical_scrollbar is None:
            thickness = self.scrollbar_size_vertical
            bar = SteadyScrollBar(vertical=True, name="vertical", thickness=thickness)
            bar.display = False
            self._vertical_scrollbar = bar
            self.app._start_widget(self, bar)
        return self._vertical_scrollbar

    def _draw_rows(self, start: int, stop: int) -> None:
        top = self.scroll_offset.y
        rows = range(max(start - top, 0), min(stop - top, self.size.height))
        if rows:
            self._stale.update(rows)
            self.ask_for_frame()

    def ask_for_frame(self) -> None:
        """Have a frame drawn before long."""
        self._is_due = True
        self.check_idle()

    def _check_refresh(self) -> None:
        """Ask the screen for a frame; all that was to be done for now is done."""
        if self._is_due and self.is_mounted:
            self._is_due = False
            self._repaint_required = True
        super()._check_refresh()

    def _exchange_repaint_regions(self) -> Collection[Region]:
        """What a frame has to show anew: rows that show something else than on the screen."""
        self.before_frame()
        if self._stale:
            self._take_over()
            width = self.scrollable_content_region.width
            for rows in _runs(filter(self._is_changed, sorted(self._stale))):
                self._set_dirty(Region(0, rows.start, width, len(rows)))
            self._stale.clear()
        # It is this one, whoever asks for it meanwhile.
        self._is_due = False
        return super()._exchange_repaint_regions()

    def before_frame(self) -> None:
        """Do what is done once, however much has changed since the last frame."""

    def _is_changed(self, y: int) -> bool:
        return y not in self._drawn or self._drawn[y] != self._row(y)

    # ── rows ───────────────────────────────────────────────────────────────────────────

    def notify_style_update(self) -> None:
        """Take new styles over when something is drawn next."""
        self._is_styled = False
        super().notify_style_update()

    def _set_theme(self, theme: str) -> None:
        self._is_styled = False
        super()._set_theme(theme)

    def _restyle(self) -> None:
        if not self._is_styled:
            self._theme.apply_css(self)
            self._is_styled = True

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw rows that will be on the screen."""
        self._take_over()
        self._is_shown = True
        # What a `TextArea` does first takes longer than to draw a row, and was done.
        strips = super(TextArea, self).render_lines(crop)
        self._is_shown = False
        return strips

    def render_line(self, y: int) -> Strip:
        """Draw a row."""
        if not self._is_shown:
            # It is asked for alone.
            self._take_over()
        if self.placeholder and not self.document.size:
            self._drawn.clear()
            return super().render_line(y)
        row = self._row(y)
        if self._is_shown:
            self._drawn[y] = row
        if row is None:
            return self._looked.blank
        strip = self._line_cache.get(row)
        if strip is None:
            strip = self._line_cache[row] = render_row(row)
        return strip

    def _take_over(self) -> None:
        """Take over what has changed since the last frame."""
        self.before_frame()
        self._restyle()
        self._look = None

    @property
    def _looked(self) -> Look:
        if self._look is None:
            self._look = self._look_around()
        return self._look

    def _look_around(self) -> Look:
        base = self._theme.base_style or self.rich_style
        ground = self.background_colors[1] if base.bgcolor is None else _color(base.bgcolor)
        gutter_width = self.gutter_width
        selection, (left, top) = self.selection, self.scroll_offset
        return Look(
            base,
            ground,
            width=self.scrollable_content_region.width - gutter_width,
            gutter_width=gutter_width,
            blank=Strip.blank(self.size.width, base),
            top=top,
            left=0 if self.soft_wrap else left,
            carets=self._carets,
            selection=selection,
            cursor_row=selection.end[0] if self._has_cursor else None,
            cursor_line=self._theme.cursor_line_style if self.highlight_cursor_line else None,
        )

    def _row(self, y: int) -> Row | None:
        """What a row of the screen shows; None below the text."""
        wrapping, look = self.wrapped_document, self._looked
        shown = wrapping.line_at(y + look.top)
        if shown is None:
            return None
        row, section = shown
        start, stop = wrapping.section(row, section)
        line = self.document[row]
        is_last = stop == len(line)
        tabs = wrapping.get_tab_widths(row)[line.count("\t", 0, start) :] if "\t" in line else ()
        is_cursor_row = row == look.cursor_row
        line_style = look.cursor_line if is_cursor_row else None
        return Row(
            text=line[start:stop] + " " * is_last,
            start=start,
            tabs=tuple(tabs),
            marks=tuple(self._marks(row, line, look, line_style)),
            flags=tuple(flags_in(look.carets, row, start=start, stop=stop + is_last)),
            gutter=self._gutter(row, section, look, is_cursor_row=is_cursor_row),
            base=look.base,
            blank=line_style,
            width=look.width,
            scroll_x=look.left,
        )

    def _marks(self, row: int, line: str, look: Look, line_style: Style | None) -> Iterator[Mark]:
        """What is marked in a line, from the ground up."""
        theme, (start, end) = self._theme, look.selection
        if line_style:
            yield Mark(0, len(line) + 1, line_style)
        yield from selections_in(look.carets, line, row, look.ground)
        if is_in(start, end, row) and theme.selection_style:
            yield selection_mark(start, end, line, row, theme.selection_style)
        if start == end:
            yield from self._brackets(row)
        yield from carets_in(look.carets, line, row)
        if end[0] == row and self._draw_cursor and theme.cursor_style:
            column = end[1]
            stop = next_column(line, column) if column < len(line) else column + 1
            yield Mark(column, stop, theme.cursor_style)

    def _brackets(self, row: int) -> Iterator[Mark]:
        style, match = self._theme.bracket_matching_style, self._matching_bracket_location
        if match is None or style is None or not self.match_cursor_bracket or not self._has_cursor:
            return
        for bracket_row, column in (self.cursor_location, match):
            if bracket_row == row:
                yield Mark(column, column + 1, style)

    def _gutter(
        self, row: int, section: int, look: Look, *, is_cursor_row: bool
    ) -> tuple[Segment, ...]:
        if not self.show_line_numbers:
            return ()
        is_lit = is_cursor_row and self.highlight_cursor_line
        theme = self._theme
        number = "" if section else str(row + self.line_number_start)
        style = theme.cursor_line_gutter_style if is_lit else theme.gutter_style
        return (Segment(f"{number:>{look.gutter_width - 2}}  ", style),)


def _runs(rows: Iterable[int]) -> Iterator[range]:
    """Numbers that ascend, as stretches without a hole."""
    for _, run in groupby(enumerate(rows), lambda each: each[1] - each[0]):
        numbers = [row for _, row in run]
        yield range(numbers[0], numbers[-1] + 1)


def _color(color: RichColor) -> Color:
    return Color.from_rich_color(color)
