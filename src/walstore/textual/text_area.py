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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from textual.document._document import EditResult, Selection
from textual.document._edit import Edit
from textual.geometry import Region, Spacing
from textual.message import Message
from textual.reactive import Reactive, reactive

from walstore.document.anchors import HEAD, Anchor, anchor_at, resolve
from walstore.errors import UsageError, WalStoreError
from walstore.store.change import Change, Splice, Splices
from walstore.store.presence import Cursor, Person
from walstore.store.store import WalStore
from walstore.store.undo import Undone
from walstore.textual.app_context import call_in_app
from walstore.textual.carets import Closable, Presences, RemoteCaret, remote_carets, session_of
from walstore.textual.text_view import Held, TextView, difference, moved

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


class CollabTextArea(TextView):
    """A text of a store, to be edited together.

    Attributes:
        following: The session of somebody whose caret is kept in view, as `RemoteCaret` names it;
            None for nobody. Whoever edits or moves their own cursor follows nobody any more.
    """

    following: Reactive[str | None] = reactive(None, init=False, repaint=False)

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

    ASIDES = (*TextView.ASIDES, CaretsMoved)

    def __init__(
        self, store: WalStore, path: str, *, presence: Presences | None = None, **options: Any
    ) -> None:
        """Show a text of a store.

        Args:
            store: The store; it is open as long as the widget is mounted.
            path: The name of the text.
            presence: Tells where the others are, and is told where we are; the store's own if
                left out.
            options: What a `TextArea` takes, but for a text and a language.
        """
        self.store = store
        self.path = path
        self._presence = presence
        self._subscriptions: list[Closable] = []
        self._has_size = False
        self._is_text = True
        self._read_version = -1
        # What was told while there is more to come: a page of the log is folded as a whole.
        self._coming: list[Splice] = []
        # Whether something is shown that was not told yet, and may be told with something else.
        self._is_ahead = False
        self._anchors = HEAD, HEAD
        self._last_places: dict[str, tuple[str, Anchor]] = {}
        # Whether the others may be elsewhere by now: they are looked for once in a frame.
        self._are_carets_old = False
        # Whose change is being shown: an edit made here, an undo or redo of one, or any other.
        self._is_editing = self._is_rewinding = False
        # Where the cursor goes with the edit that is being made.
        self._caret: int | None = None
        super().__init__(**options)

    # ── lifetime ───────────────────────────────────────────────────────────────────────

    def on_mount(self) -> None:
        """Be bound to the text."""
        self._subscriptions = [self.store.subscribe(self.path, self._changed)]
        if self._presence is None:
            self._presence = self.store.presence
        self._subscriptions.append(self._presence.subscribe(self._people_changed))
        self._catch_up()
        self._expect_carets()

    def on_unmount(self) -> None:
        """Be bound no more."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions = []
        self._are_carets_old = False
        self._say(None)

    def on_resize(self) -> None:
        """Keep in view whom we follow, or else where we write: everything is wrapped anew."""
        if self._has_size:
            self.call_after_refresh(self._look_again)
        self._has_size = True

    def _look_again(self) -> None:
        if self.following is not None:
            self._watch_following(self.following)
        elif self.has_focus:
            self.scroll_cursor_visible()

    # ── editing ────────────────────────────────────────────────────────────────────────

    def edit(self, edit: Edit) -> EditResult:
        """Edit the text in the store, which then shows.

        Returns:
            Where the edit ends and what it replaced; the cursor and nothing if it was refused.
        """
        document = self.document
        inserted = _cleaned(edit.text)
        start, stop = document.position(edit.top), document.position(edit.bottom)
        if self._coming:
            # An answer to what is being told, which has not all been shown yet.
            missed = self._catch_up()
            start, stop = moved(start, *missed), moved(stop, *missed)
        replaced = document.get_text_range(document.location(start), document.location(stop))
        end = start + len(inserted)
        self._caret = None if edit.maintain_selection_offset else end
        if not self._write(start, stop - start, inserted):
            return EditResult(self.cursor_location, "")
        self._tell_selection()
        self.record_cursor_width()
        self.update_suggestion()
        return EditResult(document.location(end), replaced)

    def load_text(self, text: str) -> None:
        """Make the text read as given: only what differs is edited, and the cursor stays."""
        with self._refusable():
            self.store.set_text(self.path, _cleaned(text))

    def undo(self) -> None:
        """Undo what was edited here last."""
        self._rewind(self.store.undo)

    def redo(self) -> None:
        """Redo what was undone last."""
        self._rewind(self.store.redo)

    def _write(self, position: int, removed: int, inserted: str) -> bool:
        """Edit the text in the store; whether it was taken."""
        try:
            if not self._is_text:
                raise NotTextError(self.path)
            self._is_editing = True
            self.store.edit_text(self.path, position, removed, inserted)
            if self.document.size != self.store.document.length(self.path):
                # It is told later, because it is part of a batch or an answer to something.
                self._catch_up()
                self._is_ahead = True
        except WalStoreError as error:
            self.post_message(self.Refused(self, error))
            return False
        finally:
            self._is_editing, self._caret = False, None
        return True

    def _rewind(self, rewind: Callable[[], Undone | None]) -> None:
        if self.read_only:
            return
        with self._refusable():
            self._is_rewinding = True
            try:
                undone = rewind()
            finally:
                self._is_rewinding = False
            selected = None if undone is None else undone.selection
            if selected is not None and selected.name == self.path:
                locate = self.document.location
                self.selection = Selection(locate(selected.anchor), locate(selected.head))

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
        is_odd = self._is_ahead or not self._is_text or change.kind != "text"
        self._is_ahead = False
        if is_odd or not isinstance(change.delta, Splices):
            self._catch_up()
            return
        is_first = not self._coming
        self._coming += change.delta.splices
        size = self.document.size + sum(map(_growth, self._coming))
        if size == self.store.document.length(self.path):
            self._show_coming()
        elif is_first:
            self.call_later(self._expect_nothing)

    def _show_coming(self) -> None:
        splices, self._coming = self._coming, []
        try:
            self._show(splices)
        except IndexError:
            self._catch_up()

    def _expect_nothing(self) -> None:
        """All was told; if that does not make what the store holds, look at it."""
        if self._coming:
            self._catch_up()

    def _catch_up(self) -> tuple[int, int, str]:
        """Show what the store holds, whatever was shown; something that is no text as none.

        Returns:
            The edit that was missing, as a `Splice`.
        """
        document = self.store.document
        self._is_text = document.kind(self.path) in (None, "text")
        self._read_version = document.version
        self._coming = []
        wanted = self.store.text(self.path) if self._is_text else ""
        before = self.document.text
        missed = difference(before, wanted)
        if wanted != before:
            self._show([Splice(*missed)])
        return missed

    def _show(self, splices: Iterable[Splice]) -> None:
        """Take edits in, and draw what has changed.

        Raises:
            IndexError: They are edits of another text than the one that is shown.
        """
        held = self.held()
        start, end = map(self.document.position, self.selection)
        edited = end
        with self.drawing():
            for position, removed, inserted in splices:
                assert isinstance(inserted, str)
                self.splice(position, removed, inserted)
                edited = position + len(inserted)
                start = moved(start, position, removed, inserted)
                end = moved(end, position, removed, inserted)
                held = held.moved(position, removed, inserted)
        if self._is_rewinding or self._caret is not None:
            start = end = edited if self._caret is None else self._caret
        self._settle(start, end, held)
        self.post_message(self.Changed(self))

    def _settle(self, start: int, end: int, held: Held) -> None:
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
            with self.settling():
                self.selection = selection
                self._refresh_size()
            self.hold(held)
        # What is told from here on, while the store still tells it, is an answer of others.
        self._is_editing, self._caret = False, None
        self._expect_carets()

    def _resolved(self, anchor: Anchor, otherwise: int) -> int:
        position = resolve(self.store.document.crdt, self.path, anchor) if self._is_text else None
        return otherwise if position is None else position

    # ── the view ───────────────────────────────────────────────────────────────────────

    def _watch_selection(self, previous_selection: Selection, selection: Selection) -> None:
        super()._watch_selection(previous_selection, selection)
        if not self.is_settling and self.is_mounted:
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
        if not (self._is_editing or self._is_rewinding):
            # What is typed elsewhere is a step of its own.
            self.store.undo_boundary()
            self._tell_selection()

    def _tell_selection(self) -> None:
        """Let undo come back to what is selected now."""
        start, end = map(self.document.position, self.selection)
        self.store.selected(self.path, start, end)

    # ── the others ─────────────────────────────────────────────────────────────────────

    def _say(self, cursor: Cursor | None) -> None:
        """Tell the others where we are; they need not know it."""
        if self._presence is not None:
            with suppress(WalStoreError):
                self._presence.move(cursor)

    @property
    def carets(self) -> tuple[RemoteCaret, ...]:
        """Where the others are by now."""
        self.before_frame()
        return super().carets

    def before_frame(self) -> None:
        """Find the others, if they may be elsewhere than they were."""
        if self._are_carets_old:
            self._are_carets_old = False
            if self._presence is not None:
                self._show_people(self._presence.others())

    def _people_changed(self, _: list[Person]) -> None:
        call_in_app(self, self._expect_carets)

    def _expect_carets(self) -> None:
        """Have the others found with the next frame; at once if somebody is followed."""
        self._are_carets_old = True
        if self.following is None:
            self.ask_for_frame()
        else:
            self.before_frame()

    def _show_people(self, others: list[Person]) -> None:
        if not self._is_text:
            others = []
        here = set(map(session_of, others))
        self._last_places = {
            session: place for session, place in self._last_places.items() if session in here
        }
        people = list(map(self._located, others))
        carets = remote_carets(people, self.path, self.document)
        if carets != self.carets:
            self.draw_carets(carets)
            self.post_message(self.CaretsMoved(self, carets))
            self._watch_following(self.following)

    def _located(self, person: Person) -> Person:
        """Somebody at the last place that is known, while what they type has not arrived yet."""
        crdt, session = self.store.document.crdt, session_of(person)
        cursor = person.cursor
        if cursor is not None:
            self._last_places[session] = cursor.path, anchor_at(crdt, cursor.path, cursor.position)
            return person
        path, anchor = self._last_places.get(session, ("", HEAD))
        if path != person.path:
            # They are elsewhere, or nowhere: where they were is nobody's place any more.
            self._last_places.pop(session, None)
            return person
        position = resolve(crdt, path, anchor) if path == self.path else None
        return person if position is None else replace(person, cursor=Cursor(path, position))

    def _watch_following(self, following: str | None) -> None:
        """Scroll to whom we follow."""
        for caret in self.carets:
            if caret.session == following:
                x, y = self.wrapped_document.location_to_offset(caret.end)
                spacing = Spacing(right=self.gutter_width)
                self.scroll_to_region(
                    Region(x, y, 3, 1), spacing=spacing, animate=False, force=True, immediate=True
                )


def _cleaned(text: str) -> str:
    """A text as it may be edited in: its lines end as lines do here, and all of it is text."""
    return _HALVES.sub("\ufffd", _NEWLINES.sub("\n", text))


def _growth(splice: Splice) -> int:
    return len(splice.inserted) - splice.removed
