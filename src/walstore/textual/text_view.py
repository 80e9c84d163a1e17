"""A `TextArea` that draws what others do, and for which an edit costs the lines that it touches.

- Rows are drawn by what they show, and kept: a row that shows the same is not drawn again, and one
  that shows something else is never taken for it.
- Only rows that may have changed are drawn. The screen is laid out anew only if it depends on the
  size of the text.
- What is in view stays where it is while others edit: the row that the cursor is on, or the first
  one if the cursor is out of view.
- Keys act in the order in which they were pressed, however fast they come.
- It knows no store. What is edited in it is for whoever derives from it to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.document._document import Location, Selection
from textual.geometry import Offset, Region, Size
from textual.reactive import Reactive, reactive
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import TextArea

from walstore.textual.carets import (
    RemoteCaret,
    carets_in,
    flags_in,
    is_in,
    selection_mark,
    selections_in,
)
from walstore.textual.rendering import Mark, Row, render_row
from walstore.textual.text_document import TextDocument
from walstore.textual.wrapping import Navigator, Wrapping, next_column

# Characters that are looked through for a bracket's partner: a screen full of long lines.
_BRACKET_SEARCH_MAX = 4096


class Held(NamedTuple):
    """What stays where it is on the screen.

    Attributes:
        position: A place in the text; None for the cursor.
        row: The row of the screen that it is on.
    """

    position: int | None
    row: int

    def moved(self, position: int, removed: int, inserted: str) -> Held:
        """The same after an edit."""
        if self.position is None:
            return self
        return Held(moved(self.position, position, removed, inserted), self.row)


class _Look(NamedTuple):
    """What all rows have in common while they are drawn."""

    base: Style
    ground: Color
    width: int
    gutter_width: int


class TextView(TextArea):
    """A text, and where others are in it.

    Attributes:
        carets: Where the others are.
        is_settling: Whether the cursor is being moved by what others edit.
    """

    document: TextDocument
    wrapped_document: Wrapping

    # As in a `TextArea`, but what has to be drawn again is known better.
    selection: Reactive[Selection] = reactive(
        Selection(), init=False, always_update=True, repaint=False
    )

    def __init__(self, **options: Any) -> None:
        """Show an empty text; the options are those of a `TextArea`, but for text and language."""
        self.carets: tuple[RemoteCaret, ...] = ()
        self.is_settling = False
        self._look: _Look | None = None
        self._is_styled = False
        super().__init__(**options)

    def _set_document(self, text: str, language: str | None) -> None:
        """Show a text; there is nothing here that knows languages."""
        self._highlight_query = None
        self.document = TextDocument(text)
        self.wrapped_document = Wrapping(self.document, tab_width=self.indent_width)
        self.navigator = Navigator(self.wrapped_document)
        self._rewrap_and_refresh_virtual_size()

    async def _on_key(self, event: events.Key) -> None:
        """Act on a key at once, so that what is typed after it does not come before it.

        Textual takes a key that is bound up to the app and back. Characters that arrive in the
        same moment are typed meanwhile, where the cursor still is.
        """
        if event.is_printable:
            return
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                self._restart_blink()
                event.stop()
                event.prevent_default()
                return

    # ── editing ────────────────────────────────────────────────────────────────────────

    def splice(self, position: int, removed: int, inserted: str) -> None:
        """Put a text in the place of code points, within `drawing`.

        Raises:
            IndexError: There are not so many code points.
        """
        replaced = self.document.splice(position, removed, inserted)
        height = self.wrapped_document.height
        self.wrapped_document.wrap_range(*replaced)
        self._draw_lines(replaced.start[0], replaced.new_end[0])
        if self.wrapped_document.height != height:
            self._draw_below(replaced.start[0])

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Edit the text for the length of a block, then draw what depends on all of it."""
        gutter_width, is_empty = self.gutter_width, not self.document.size
        yield
        if self.gutter_width != gutter_width:
            self.wrapped_document.wrap(self.wrap_width, self.indent_width)
            self.refresh()
        if is_empty != (not self.document.size):
            # The placeholder comes or goes.
            self.refresh()

    # ── the view ───────────────────────────────────────────────────────────────────────

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Move the cursor for the length of a block without scrolling to it."""
        self.is_settling = True
        try:
            yield
        finally:
            self.is_settling = False

    def held(self) -> Held:
        """The cursor if it is in view, else what is in the first row."""
        top = self.scroll_offset.y
        row = self._cursor_offset[1] - top
        if 0 <= row < self.scrollable_content_region.height:
            return Held(None, row)
        line = self.wrapped_document.line_at(top)
        if line is None:
            return Held(None, 0)
        column, _ = self.wrapped_document.section(*line)
        return Held(self.document.position((line[0], column)), 0)

    def hold(self, held: Held) -> None:
        """Scroll to where it is on the same row of the screen."""
        location = (
            self.cursor_location if held.position is None else self.document.location(held.position)
        )
        y = self.wrapped_document.location_to_offset(location).y - held.row
        if y != self.scroll_offset.y:
            self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Scroll to the cursor, unless it was moved by what others edit."""
        if self.is_settling:
            self._cursor_offset = self.wrapped_document.location_to_offset(self.cursor_location)
            return Offset(0, 0)
        return super().scroll_cursor_visible(center, animate)

    def _refresh_size(self) -> None:
        """Make room for the text, without laying out the whole screen for a line more."""
        styles = self.styles
        if not self.is_mounted or styles.is_auto_height or styles.is_auto_width:
            super()._refresh_size()
            return
        size = Size(0, self.wrapped_document.height)
        if not self.soft_wrap:
            width, height = self.document.get_size(self.indent_width)
            # The cursor may rest behind the end of a line.
            size = Size(width + self.gutter_width + 1, height)
        if size != self.virtual_size:
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)

    def _watch_selection(self, previous_selection: Selection, selection: Selection) -> None:
        brackets = self._bracket_lines()
        super()._watch_selection(previous_selection, selection)
        for line in {*brackets, *self._bracket_lines()}:
            self._draw_lines(line, line)
        for start, end in (previous_selection, selection):
            self._draw_lines(min(start, end)[0], max(start, end)[0])

    def _yield_character_locations(self, start: Location) -> Iterable[tuple[str, Location]]:
        return islice(super()._yield_character_locations(start), _BRACKET_SEARCH_MAX)

    def _yield_character_locations_reverse(self, start: Location) -> Iterable[tuple[str, Location]]:
        return islice(super()._yield_character_locations_reverse(start), _BRACKET_SEARCH_MAX)

    # ── drawing ────────────────────────────────────────────────────────────────────────

    def draw_carets(self, carets: tuple[RemoteCaret, ...]) -> None:
        """Draw where the others are, in place of where they were."""
        for caret in {*carets, *self.carets}:
            self._draw_lines(*sorted((caret.start[0], caret.end[0])))
        self.carets = carets

    def notify_style_update(self) -> None:
        """Take new styles over when something is drawn next."""
        self._is_styled = False
        super().notify_style_update()

    def _set_theme(self, theme: str) -> None:
        self._is_styled = False
        super()._set_theme(theme)

    def _draw_lines(self, first: int, last: int) -> None:
        """Draw lines of the text again, as far as they are in view."""
        top = self.scroll_offset.y
        start = max(self.wrapped_document.row_of(first), top)
        stop = min(self.wrapped_document.row_of(last + 1), top + self.size.height)
        if start < stop:
            self.refresh_lines(start, stop - start)

    def _draw_below(self, line: int) -> None:
        """Draw everything from a line on again: it has moved, or is empty now."""
        top = self.scroll_offset.y
        start = max(self.wrapped_document.row_of(line), top)
        self.refresh_lines(start, max(top + self.size.height - start, 1))

    def _bracket_lines(self) -> set[int]:
        match = self._matching_bracket_location
        return set() if match is None else {match[0]}

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw rows."""
        if not self._is_styled:
            self._theme.apply_css(self)
            self._is_styled = True
        self._look = None
        # What a `TextArea` does first takes longer than to draw a row, and was done.
        return super(TextArea, self).render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Draw a row."""
        if self.placeholder and not self.document.size:
            return super().render_line(y)
        if self._look is None:
            self._look = self._looked()
        row = self._row(y + self.scroll_offset.y, self._look)
        if row is None:
            return Strip.blank(self.size.width, self._look.base)
        strip = self._line_cache.get(row)
        if strip is None:
            strip = self._line_cache[row] = render_row(row)
        return strip

    def _looked(self) -> _Look:
        base = self._theme.base_style or self.rich_style
        ground = self.background_colors[1] if base.bgcolor is None else _color(base.bgcolor)
        gutter_width = self.gutter_width
        width = self.scrollable_content_region.width - gutter_width
        return _Look(base, ground, width, gutter_width)

    def _row(self, y: int, look: _Look) -> Row | None:
        wrapping = self.wrapped_document
        shown = wrapping.line_at(y)
        if shown is None:
            return None
        row, section = shown
        start, stop = wrapping.section(row, section)
        line = self.document[row]
        is_last = stop == len(line)
        tabs = wrapping.get_tab_widths(row)[line.count("\t", 0, start) :] if "\t" in line else ()
        is_cursor_row = row == self.cursor_location[0] and self._has_cursor
        theme = self._theme
        line_style = theme.cursor_line_style if self.highlight_cursor_line else None
        return Row(
            text=line[start:stop] + " " * is_last,
            start=start,
            tabs=tuple(tabs),
            marks=tuple(self._marks(row, line, look, line_style if is_cursor_row else None)),
            flags=tuple(flags_in(self.carets, row, start=start, stop=stop + is_last)),
            gutter=self._gutter(row, section, look, is_cursor_row=is_cursor_row),
            base=look.base,
            blank=line_style if is_cursor_row else None,
            width=look.width,
            scroll_x=0 if self.soft_wrap else self.scroll_offset.x,
        )

    def _marks(self, row: int, line: str, look: _Look, line_style: Style | None) -> Iterator[Mark]:
        """What is marked in a line, from the ground up."""
        theme, (start, end) = self._theme, self.selection
        if line_style:
            yield Mark(0, len(line) + 1, line_style)
        yield from selections_in(self.carets, line, row, look.ground)
        if is_in(start, end, row) and theme.selection_style:
            yield selection_mark(start, end, line, row, theme.selection_style)
        if start == end:
            yield from self._brackets(row)
        yield from carets_in(self.carets, line, row)
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
        self, row: int, section: int, look: _Look, *, is_cursor_row: bool
    ) -> tuple[Segment, ...]:
        if not self.show_line_numbers:
            return ()
        is_lit = is_cursor_row and self.highlight_cursor_line
        theme = self._theme
        number = "" if section else str(row + self.line_number_start)
        style = theme.cursor_line_gutter_style if is_lit else theme.gutter_style
        return (Segment(f"{number:>{look.gutter_width - 2}}  ", style),)


def moved(place: int, position: int, removed: int, inserted: str) -> int:
    """A place after an edit: what is inserted at it goes before it."""
    if place >= position + removed:
        return place + len(inserted) - removed
    return min(place, position + len(inserted))


def _color(color: RichColor) -> Color:
    return Color.from_rich_color(color)
