"""A `TextArea` bound to a text of a store: what is typed is edited there, what others edit shows.

    key ── edit() ── store.edit_text(path, position, removed, inserted)
                        └── Change ── _changed() ── document, rows, carets, screen
    relay ── fold ──────────┘

- The text on the screen changes by what the store tells, own edits like others': there is one
  way, so there are no echoes. An edit that the store refuses changes nothing.
- Edits are deltas, in and out. The text is compared as a whole only if something else was shown.
- The selection is anchored to the elements that it was made at. The row that the cursor is on,
  or the first one in view if the cursor is not, stays where it is on the screen.
- Undo and redo are the store's: others' edits are no part of them.
- A key costs the lines that it touches and log n, not the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.document._document import EditResult, Location, Selection
from textual.document._edit import Edit
from textual.geometry import Offset, Region, Size, Spacing
from textual.message import Message
from textual.reactive import Reactive, reactive
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import TextArea

from walstore.document.anchors import HEAD, Anchor, anchor_at, resolve
from walstore.errors import UsageError, WalStoreError
from walstore.reconcile.gaps import Gap, trim
from walstore.store.change import Change, Splice, Splices
from walstore.store.presence import Cursor, Person
from walstore.store.store import WalStore
from walstore.textual.app_context import call_in_app
from walstore.textual.carets import (
    Closable,
    Presences,
    RemoteCaret,
    carets_in,
    flags_in,
    is_in,
    remote_carets,
    selection_mark,
    selections_in,
)
from walstore.textual.rendering import Mark, Row, render_row
from walstore.textual.text_document import TextDocument
from walstore.textual.wrapping import Navigator, Wrapping, next_column

# Characters that are looked through for a bracket's partner: a screen full of long lines.
_BRACKET_SEARCH_MAX = 4096

_NEWLINES = re.compile("\r\n?")
_HALVES = re.compile("[\ud800-\udfff]")


class NotTextError(UsageError):
    """Something else than a text has the name of one.

    Attributes:
        path: The name.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r} is no text")
        self.path = path


class _Held(NamedTuple):
    """What stays where it is on the screen.

    Attributes:
        position: A place in the text; None for the cursor.
        row: The row of the screen that it is on.
    """

    position: int | None
    row: int


class _Look(NamedTuple):
    """What all rows have in common while they are drawn."""

    base: Style
    ground: Color
    width: int
    gutter_width: int


class CollabTextArea(TextArea):
    """A text of a store, to be edited together.

    Attributes:
        following: The session of somebody whose caret is kept in view, as `RemoteCaret` names it;
            None for nobody. Whoever edits or moves their own cursor follows nobody any more.
    """

    document: TextDocument
    wrapped_document: Wrapping

    following: Reactive[str | None] = reactive(None, init=False, repaint=False)

    # As in a `TextArea`, but what has to be drawn again is known better.
    selection: Reactive[Selection] = reactive(
        Selection(), init=False, always_update=True, repaint=False
    )

    @dataclass
    class Refused(Message):
        """The store did not take an edit, so it does not show either."""

        text_area: CollabTextArea
        error: WalStoreError

        @property
        def control(self) -> CollabTextArea:
            """The text area."""
            return self.text_area

    @dataclass
    class CaretsMoved(Message):
        """Others came, left or moved within the text."""

        text_area: CollabTextArea
        carets: tuple[RemoteCaret, ...]

        @property
        def control(self) -> CollabTextArea:
            """The text area."""
            return self.text_area

    def __init__(
        self, store: WalStore, path: str, *, presence: Presences | None = None, **options: Any
    ) -> None:
        """Show a text of a store.

        Args:
            store: The store; it is open as long as the widget is mounted.
            path: The name of the text.
            presence: Tells where the others are, and is told where we are; the store's own, if
                it has one, if left out.
            options: What a `TextArea` takes, but for a text and a language.
        """
        self.store = store
        self.path = path
        self._presence = presence
        self._subscriptions: list[Closable] = []
        self._is_text = True
        self._read_version = -1
        self._anchors = HEAD, HEAD
        self._carets: tuple[RemoteCaret, ...] = ()
        # Whose change is being shown: an edit made here, an undo or redo of one, or any other.
        self._is_editing = self._is_rewinding = self._is_settling = False
        self._look: _Look | None = None
        self._is_styled = False
        super().__init__(**options)

    # ── lifetime ───────────────────────────────────────────────────────────────────────

    def on_mount(self) -> None:
        """Be bound to the text."""
        self._subscriptions = [self.store.subscribe(self.path, self._changed)]
        if self._presence is None:
            self._presence = getattr(self.store, "presence", None)
        if self._presence is not None:
            self._subscriptions.append(self._presence.subscribe(self._people_changed))
        self._catch_up()
        self._find_carets()

    def on_unmount(self) -> None:
        """Be bound no more."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions = []
        self._say(None)

    def _set_document(self, text: str, language: str | None) -> None:
        """Show a text; there is nothing here that knows languages."""
        self._highlight_query = None
        self.document = TextDocument(text)
        self.wrapped_document = Wrapping(self.document, tab_width=self.indent_width)
        self.navigator = Navigator(self.wrapped_document)
        self._rewrap_and_refresh_virtual_size()

    # ── editing ────────────────────────────────────────────────────────────────────────

    def edit(self, edit: Edit) -> EditResult:
        """Edit the text in the store, which then shows.

        Returns:
            Where the edit ends and what it replaced; the cursor and nothing if it was refused.
        """
        document = self.document
        inserted = _cleaned(edit.text)
        start, stop = document.position(edit.top), document.position(edit.bottom)
        replaced = document.get_text_range(edit.top, edit.bottom)
        if not self._write(start, stop - start, inserted):
            return EditResult(self.cursor_location, "")
        end = document.location(start + len(inserted))
        if not edit.maintain_selection_offset:
            self.selection = Selection.cursor(end)
        self.record_cursor_width()
        self.update_suggestion()
        return EditResult(end, replaced)

    def load_text(self, text: str) -> None:
        """Make the text read as given: only what differs is edited, and the cursor stays."""
        with self._refusable():
            self.store.set_text(self.path, _cleaned(text))

    def undo(self) -> None:
        """Undo what was edited here last."""
        self._rewind("undo")

    def redo(self) -> None:
        """Redo what was undone last."""
        self._rewind("redo")

    def _write(self, position: int, removed: int, inserted: str) -> bool:
        """Edit the text in the store; whether it was taken."""
        try:
            if not self._is_text:
                raise NotTextError(self.path)
            self._is_editing = True
            self.store.edit_text(self.path, position, removed, inserted)
        except WalStoreError as error:
            self.post_message(self.Refused(self, error))
            return False
        finally:
            self._is_editing = False
        return True

    def _rewind(self, action: str) -> None:
        rewind = getattr(self.store, action, None)
        if rewind is None or self.read_only:
            return
        with self._refusable():
            self._is_rewinding = True
            try:
                rewind()
            finally:
                self._is_rewinding = False

    @contextmanager
    def _refusable(self) -> Iterator[None]:
        try:
            yield
        except WalStoreError as error:
            self.post_message(self.Refused(self, error))

    # ── what the store tells ───────────────────────────────────────────────────────────

    def _changed(self, change: Change) -> None:
        """Show what was edited, here or elsewhere."""
        if change.version > self._read_version:
            call_in_app(self, self._take, change)

    def _take(self, change: Change) -> None:
        if not self._is_text or change.kind != "text" or not isinstance(change.delta, Splices):
            self._catch_up()
            return
        try:
            self._show(change.delta.splices)
        except IndexError:
            self._catch_up()
        else:
            if self.document.size != self.store.document.length(self.path):
                self._catch_up()

    def _catch_up(self) -> None:
        """Show what the store holds, whatever was shown; something that is no text as none."""
        document = self.store.document
        self._is_text = document.kind(self.path) in (None, "text")
        self._read_version = document.version
        wanted = self.store.text(self.path) if self._is_text else ""
        before = self.document.text
        if wanted != before:
            self._show([_difference(before, wanted)])

    def _show(self, splices: Iterable[Splice]) -> None:
        """Take edits in, and draw what has changed.

        Raises:
            IndexError: They are edits of another text than the one that is shown.
        """
        held, gutter_width = self._held(), self.gutter_width
        document, height = self.document, self.wrapped_document.height
        start, end = map(document.position, self.selection)
        edited = end
        for splice in splices:
            inserted = splice.inserted
            assert isinstance(inserted, str)
            replaced = document.splice(splice.position, splice.removed, inserted)
            self.wrapped_document.wrap_range(*replaced)
            self._draw_lines(replaced.start[0], replaced.new_end[0])
            start, end = _moved(start, splice), _moved(end, splice)
            held = held._replace(position=held.position and _moved(held.position, splice))
            edited = splice.position + len(inserted)
        if self.gutter_width != gutter_width:
            self.wrapped_document.wrap(self.wrap_width, self.indent_width)
        if self._is_rewinding:
            start = end = edited
        if self.wrapped_document.height != height:
            self.refresh()
        self._settle(start, end, held)
        self.post_message(self.Changed(self))

    def _settle(self, start: int, end: int, held: _Held) -> None:
        """Put the selection, the view and the others' carets where they belong by now."""
        is_own = self._is_editing or self._is_rewinding
        if not is_own:
            start, end = (
                self._resolved(self._anchors[0], start),
                self._resolved(self._anchors[1], end),
            )
        locate = self.document.location
        selection = Selection(locate(start), locate(end))
        if is_own:
            self._refresh_size()
            self.selection = selection
        else:
            self._is_settling = True
            try:
                self.selection = selection
                self._refresh_size()
            finally:
                self._is_settling = False
            self._hold(held)
        self._find_carets()

    def _resolved(self, anchor: Anchor, otherwise: int) -> int:
        position = resolve(self.store.document.crdt, self.path, anchor) if self._is_text else None
        return otherwise if position is None else position

    # ── the view ───────────────────────────────────────────────────────────────────────

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

    def _held(self) -> _Held:
        """The cursor if it is in view, else what is in the first row."""
        top = self.scroll_offset.y
        row = self._cursor_offset[1] - top
        if 0 <= row < self.scrollable_content_region.height:
            return _Held(None, row)
        line = self.wrapped_document.line_at(top)
        if line is None:
            return _Held(None, 0)
        column, _ = self.wrapped_document.section(*line)
        return _Held(self.document.position((line[0], column)), 0)

    def _hold(self, held: _Held) -> None:
        location = (
            self.cursor_location if held.position is None else self.document.location(held.position)
        )
        y = self.wrapped_document.location_to_offset(location).y - held.row
        if y != self.scroll_offset.y:
            self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Scroll to the cursor, unless it was moved by what others edit."""
        if self._is_settling:
            self._cursor_offset = self.wrapped_document.location_to_offset(self.cursor_location)
            return Offset(0, 0)
        return super().scroll_cursor_visible(center, animate)

    def _watch_selection(self, previous_selection: Selection, selection: Selection) -> None:
        brackets = self._bracket_lines()
        super()._watch_selection(previous_selection, selection)
        for line in {*brackets, *self._bracket_lines()}:
            self._draw_lines(line, line)
        for start, end in (previous_selection, selection):
            self._draw_lines(min(start, end)[0], max(start, end)[0])
        if not self._is_settling and self.is_mounted:
            self._anchor(selection)
            self.following = None

    def _anchor(self, selection: Selection) -> None:
        """Tie the selection to what it is at, so that it stays there; and say where it is."""
        start, end = map(self.document.position, selection)
        # What others insert at the edges of a selection is not part of it.
        crdt, path = self.store.document.crdt, self.path
        self._anchors = (
            anchor_at(crdt, path, start, "before" if start < end else "after"),
            anchor_at(crdt, path, end, "before" if end < start else "after"),
        )
        self._say(Cursor(path, end, None if start == end else start))

    def _yield_character_locations(self, start: Location) -> Iterable[tuple[str, Location]]:
        return islice(super()._yield_character_locations(start), _BRACKET_SEARCH_MAX)

    def _yield_character_locations_reverse(self, start: Location) -> Iterable[tuple[str, Location]]:
        return islice(super()._yield_character_locations_reverse(start), _BRACKET_SEARCH_MAX)

    # ── the others ─────────────────────────────────────────────────────────────────────

    @property
    def carets(self) -> tuple[RemoteCaret, ...]:
        """Where the others are."""
        return self._carets

    def _say(self, cursor: Cursor | None) -> None:
        """Tell the others where we are; they need not know it."""
        if self._presence is not None:
            with suppress(WalStoreError):
                self._presence.move(cursor)

    def _people_changed(self, _: list[Person]) -> None:
        call_in_app(self, self._find_carets)

    def _find_carets(self) -> None:
        presence = self._presence
        if presence is None or not self._is_text:
            return
        carets = remote_carets(presence.others(), self.path, self.document)
        if carets == self._carets:
            return
        for caret in {*carets, *self._carets}:
            top, bottom = sorted((caret.start[0], caret.end[0]))
            self._draw_lines(top, bottom)
        self._carets = carets
        self.post_message(self.CaretsMoved(self, carets))
        self._watch_following(self.following)

    def _watch_following(self, following: str | None) -> None:
        """Scroll to whom we follow."""
        for caret in self._carets:
            if caret.session == following:
                x, y = self.wrapped_document.location_to_offset(caret.end)
                spacing = Spacing(right=self.gutter_width)
                self.scroll_to_region(
                    Region(x, y, 3, 1), spacing=spacing, animate=False, force=True, immediate=True
                )

    # ── drawing ────────────────────────────────────────────────────────────────────────

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
            flags=tuple(flags_in(self._carets, row, start=start, stop=stop + is_last)),
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
        yield from selections_in(self._carets, line, row, look.ground)
        if is_in(start, end, row) and theme.selection_style:
            yield selection_mark(start, end, line, row, theme.selection_style)
        if start == end:
            yield from self._brackets(row)
        yield from carets_in(self._carets, line, row)
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


def _cleaned(text: str) -> str:
    """A text as it may be edited in: its lines end as lines do here, and all of it is text."""
    return _HALVES.sub("\ufffd", _NEWLINES.sub("\n", text))


def _moved(position: int, splice: Splice) -> int:
    """A position after an edit made here: what is inserted at it goes before it."""
    stop = splice.position + splice.removed
    if position >= stop:
        return position + len(splice.inserted) - splice.removed
    return min(position, splice.position + len(splice.inserted))


def _difference(before: str, after: str) -> Splice:
    """The one edit that leads from a text to another."""
    gap = trim(before, after, Gap(0, len(before), 0, len(after)))
    removed = gap.old_end - gap.old_start
    return Splice(gap.old_start, removed, after[gap.new_start : gap.new_end])


def _color(color: RichColor) -> Color:
    return Color.from_rich_color(color)
