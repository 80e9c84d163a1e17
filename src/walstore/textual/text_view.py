"""A `TextArea` that shows what others do, and for which an edit costs the lines that it touches.

- Only lines that may have changed are drawn. The screen is laid out anew only if it depends on the
  size of the text.
- What is in view stays where it is while others edit: the row that the cursor is on, or the first
  one if the cursor is out of view.
- Keys act in the order in which they were pressed, however fast they come.
- That the text or the selection has changed is said only if somebody hears it.
- It knows no store. What is edited in it is for whoever derives from it to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from textual import events
from textual.document._document import Location, Selection
from textual.geometry import Offset, Size
from textual.message import Message
from textual.reactive import Reactive, reactive
from textual.widget import Widget
from textual.widgets import TextArea

from walstore.reconcile.gaps import Gap, trim
from walstore.textual.hearing import is_heard
from walstore.textual.ordered_keys import act_at_once
from walstore.textual.text_document import TextDocument
from walstore.textual.text_drawing import TextDrawing
from walstore.textual.wrapping import Navigator, Wrapping

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


class TextView(TextDrawing):
    """A text, and where others are in it.

    Attributes:
        is_settling: Whether the cursor is being moved by what others edit.
    """

    # As in a `TextArea`, but what has to be drawn again is known better.
    selection: Reactive[Selection] = reactive(
        Selection(), init=False, always_update=True, repaint=False
    )

    # What is said with every key.
    ASIDES: ClassVar[tuple[type[Message], ...]] = (TextArea.Changed, TextArea.SelectionChanged)

    def __init__(self, **options: Any) -> None:
        """Show an empty text; the options are those of a `TextArea`, but for text and language."""
        self.is_settling = False
        self._heard: dict[type[Message], bool] = {}
        super().__init__(**options)

    def _set_document(self, text: str, language: str | None) -> None:
        """Show a text; there is nothing here that knows languages."""
        self._highlight_query = None
        self.document = TextDocument(text)
        self.wrapped_document = Wrapping(self.document, tab_width=self.indent_width)
        self.navigator = Navigator(self.wrapped_document)
        self._rewrap_and_refresh_virtual_size()

    def _rewrap_and_refresh_virtual_size(self) -> None:
        """Wrap all of it anew, for another width, and draw it: no row need be what it was."""
        super()._rewrap_and_refresh_virtual_size()
        self.refresh()

    def check_message_enabled(self, message: Message) -> bool:
        """Whether a message is to be posted: not what nobody would hear."""
        kind = type(message)
        if kind in self.ASIDES and self.is_mounted:
            if kind not in self._heard:
                self._heard[kind] = is_heard(self, kind)
            if not self._heard[kind]:
                return False
        return super().check_message_enabled(message)

    async def _on_key(self, event: events.Key) -> None:
        await act_at_once(self, event)

    # ── editing ────────────────────────────────────────────────────────────────────────

    def splice(self, position: int, removed: int, inserted: str) -> None:
        """Put a text in the place of code points, within `drawing`.

        Raises:
            IndexError: There are not so many code points.
        """
        replaced = self.document.splice(position, removed, inserted)
        height = self.wrapped_document.height
        self.wrapped_document.wrap_range(*replaced)
        self.draw_lines(replaced.start[0], replaced.new_end[0])
        if self.wrapped_document.height != height:
            self.draw_below(replaced.start[0])

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
            self.draw_lines(line, line)
        for start, end in {previous_selection, selection}:
            self.draw_lines(min(start, end)[0], max(start, end)[0])

    def _yield_character_locations(self, start: Location) -> Iterable[tuple[str, Location]]:
        return islice(super()._yield_character_locations(start), _BRACKET_SEARCH_MAX)

    def _yield_character_locations_reverse(self, start: Location) -> Iterable[tuple[str, Location]]:
        return islice(super()._yield_character_locations_reverse(start), _BRACKET_SEARCH_MAX)

    def _bracket_lines(self) -> set[int]:
        match = self._matching_bracket_location
        return set() if match is None else {match[0]}


def moved(place: int, position: int, removed: int, inserted: str) -> int:
    """A place after an edit: what is inserted at it goes before it."""
    if place >= position + removed:
        return place + len(inserted) - removed
    return min(place, position + len(inserted))


def difference(before: str, after: str) -> tuple[int, int, str]:
    """The one edit that leads from a text to another, as a `Splice`."""
    gap = trim(before, after, Gap(0, len(before), 0, len(after)))
    return gap.old_start, gap.old_end - gap.old_start, after[gap.new_start : gap.new_end]
