"""The editor: title, text, tags and tasks of one document, with everybody who is at it.

- It shows what the store holds and edits nothing else, so it works the same without a network.
- Another document takes the place of the one that is shown; the app stays.
"""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer, Input

from examples.textual_editor.history import HistoryScreen
from examples.textual_editor.mending import MendScreen, needs_mending
from examples.textual_editor.panels import People, Side, Status
from examples.textual_editor.screens import HelpScreen, LeaveScreen, OpenScreen, ShareScreen
from examples.textual_editor.sessions import Desk, Session
from walstore import WalStore, WalStoreError
from walstore.textual import (
    DARK,
    LIGHT,
    CollabTextArea,
    OrderedInput,
    ThriftyScreen,
    author_color,
    bind_input,
)


class EditorScreen(ThriftyScreen):
    """Where one writes."""

    AUTO_FOCUS = "#body"


class EditorApp(App[None]):
    """One document after the other."""

    CSS_PATH = "editor.tcss"
    TITLE = "walstore"
    ENABLE_COMMAND_PALETTE = False
    # Where there is no room for both, the side takes the place of the text.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-wide")]  # noqa: RUF012 - as Textual has it
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help"),
        Binding("f2", "history", "History"),
        Binding("f3", "share", "Share"),
        Binding("f4", "open", "Open"),
        Binding("f5", "follow", "Follow"),
        # Before the text, which selects a line with it otherwise.
        Binding("f6", "mend", "Mend", priority=True),
        Binding("f8", "theme", "Theme"),
        Binding("f9", "side", "Side"),
        Binding("ctrl+q", "quit", "Leave", priority=True),
        # The text has these itself; beside it they do the same.
        Binding("ctrl+z,super+z", "undo", show=False),
        Binding("ctrl+y,super+y", "redo", show=False),
        # At once, so that what is typed after it is typed where it goes.
        Binding("tab", "app.focus_next", show=False, priority=True),
        Binding("shift+tab", "app.focus_previous", show=False, priority=True),
    ]

    def __init__(
        self,
        session: Session,
        store: WalStore,
        *,
        desk: Desk | None = None,
        is_light: bool = False,
    ) -> None:
        """Show a document.

        Args:
            session: What was opened.
            store: The document, open.
            desk: Opens other documents; without one, this is the only one.
            is_light: Whether to begin with the light theme.
        """
        super().__init__()
        self.session = session
        self.store = store
        self._desk = desk
        for theme in (LIGHT, DARK):
            self.register_theme(theme)
        self.theme = LIGHT.name if is_light else DARK.name

    def get_default_screen(self) -> Screen[None]:
        """The screen: with every key of anybody a little of it changes."""
        return EditorScreen(id="_default")

    def compose(self) -> ComposeResult:
        """Lay it out."""
        yield OrderedInput(placeholder="Title", id="title", select_on_focus=False)
        with Horizontal(id="main"):
            yield CollabTextArea(
                self.store,
                "body",
                id="body",
                placeholder="Write here.",
                highlight_cursor_line=False,
            )
            yield Side(self.store, following=lambda: self.body.following)
        yield Status(self.store, is_kept=self.session.file is not None)
        # All keys fit into 80 columns, even while there is something to mend.
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Begin to write."""
        self._begin()

    def _begin(self) -> None:
        """Say who we are, and begin to write."""
        key = self.store.identity.public_key
        self.store.presence.set(name=self.session.name, color=author_color(key))
        people = self.query_one(People)
        people.watch(self.body, "following", people.show)
        bind_input(self.query_one("#title", Input), self.store, "title")
        self.body.focus()

    def on_status_may_write(self, event: Status.MayWrite) -> None:
        """Write no more where nobody takes it, until somebody does again."""
        self.body.read_only = not event.may_write
        self.query_one("#title").disabled = not event.may_write
        self.query_one(Side).disabled = not event.may_write
        self.call_after_refresh(self._refocus)

    @property
    def body(self) -> CollabTextArea:
        """The text."""
        return self.query_one("#body", CollabTextArea)

    def on_collab_text_area_refused(self, event: CollabTextArea.Refused) -> None:
        """Say why something cannot be written."""
        self.notify(str(event.error), severity="error", markup=False)

    def action_help(self) -> None:
        """Show what the keys do."""
        self.push_screen(HelpScreen())

    def action_history(self) -> None:
        """Show how the text came to be."""
        self.push_screen(HistoryScreen(self.store, "body"))

    def action_share(self) -> None:
        """Show who may write."""
        self.push_screen(ShareScreen(self.store, command=self.session.command))

    def action_open(self) -> None:
        """Ask for another document, and show it."""
        self.push_screen(OpenScreen(self.store.key), self._wanted)

    def _wanted(self, wanted: str | None) -> None:
        if wanted is not None and wanted != self.session.wanted:
            self._open(self.session.other(wanted))

    @work(exclusive=True, group="opening")
    async def _open(self, session: Session) -> None:
        """Show another document in place of this one, which stays if that cannot be opened."""
        if self._desk is None:
            self.notify("This is the only document here.", severity="error")
            return
        try:
            store = await self._desk.open(session)
        except WalStoreError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        left, self.store, self.session = self.store, store, session
        while len(self.screen_stack) > 1:
            await self.pop_screen()
        await self.recompose()
        self._begin()
        self._desk.close(left)

    def action_follow(self) -> None:
        """Follow the next one who is in the text, or nobody after the last."""
        sessions = [caret.session for caret in self.body.carets]
        following = self.body.following
        after = sessions.index(following) + 1 if following in sessions else 0
        self.body.following = sessions[after] if after < len(sessions) else None
        if not sessions:
            self.notify("Nobody else is in the text.")

    def action_mend(self) -> None:
        """Show what is wrong, and what can be done about it."""
        self.push_screen(MendScreen(self.store))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to mend what needs it, while nothing else is in front."""
        is_front = len(self.screen_stack) == 1
        return action != "mend" or (is_front and needs_mending(self.store))

    def action_undo(self) -> None:
        """Undo what was edited here last, wherever in the document."""
        self.body.undo()

    def action_redo(self) -> None:
        """Redo what was undone last."""
        self.body.redo()

    def action_side(self) -> None:
        """Show people, tags and tasks, or not."""
        self.query_one("#main").toggle_class("-side")
        self.call_after_refresh(self._refocus)

    def _refocus(self) -> None:
        """Go to where one can write, if that where one was is not shown any more."""
        if self.focused is None or not self.focused.is_on_screen:
            (self.body if self.body.display else self.query_one("#new-tag")).focus()

    def action_theme(self) -> None:
        """Change between light and dark."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    async def action_quit(self) -> None:
        """Leave; not without a word if that is the end of what was written."""
        status = self.store.status
        is_lost = status.unsent and status.state != "live" and self.session.file is None
        if is_lost and not isinstance(self.screen, LeaveScreen):
            self.push_screen(LeaveScreen(), self._left)
        else:
            self.exit()

    def _left(self, answer: str | None) -> None:
        if answer is not None:
            self.exit()
