"""The editor: title, text, tags and tasks of one document, with everybody who is at it.

- It shows what the store holds and edits nothing else, so it works the same without a network.
- It ends with the next session to open, or with None.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Footer, Input

from examples.textual_editor.panels import People, Side, Status
from examples.textual_editor.screens import HelpScreen, HistoryScreen, OpenScreen, ShareScreen
from examples.textual_editor.sessions import Session
from walstore import WalStore
from walstore.textual import CollabTextArea, author_color, bind_input


class EditorApp(App[Session]):
    """One document."""

    CSS_PATH = "editor.tcss"
    TITLE = "walstore"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help"),
        Binding("f2", "history", "History"),
        Binding("f3", "share", "Share"),
        Binding("f4", "open", "Open"),
        Binding("f5", "follow", "Follow"),
        Binding("f8", "theme", "Light/dark"),
        Binding("ctrl+q", "quit", "Leave", priority=True),
    ]

    def __init__(self, session: Session, store: WalStore, *, is_light: bool = False) -> None:
        super().__init__()
        self.session = session
        self.store = store
        self.theme = "textual-light" if is_light else "textual-dark"

    def compose(self) -> ComposeResult:
        """Lay it out."""
        yield Input(placeholder="Title", id="title")
        with Horizontal(id="main"):
            yield CollabTextArea(
                self.store,
                "body",
                id="body",
                placeholder="Write here.",
                highlight_cursor_line=False,
            )
            yield Side(self.store, following=lambda: self.body.following)
        yield Status(self.store)
        yield Footer()

    def on_mount(self) -> None:
        """Say who we are, and begin to write."""
        key = self.store.identity.public_key
        self.store.presence.set(name=self.session.name, color=author_color(key))
        self.query_one(People).show()
        bind_input(self.query_one("#title", Input), self.store, "title")
        self.body.focus()

    @property
    def body(self) -> CollabTextArea:
        """The text."""
        return self.query_one("#body", CollabTextArea)

    def on_collab_text_area_refused(self, event: CollabTextArea.Refused) -> None:
        """Say why something cannot be written."""
        self.notify(str(event.error), severity="error", markup=False)

    def on_collab_text_area_carets_moved(self) -> None:
        """Show whom we follow, or not any more."""
        self.query_one(People).show()

    def action_help(self) -> None:
        """Show what the keys do."""
        self.push_screen(HelpScreen())

    def action_history(self) -> None:
        """Show how the text came to be."""
        self.push_screen(HistoryScreen(self.store, "body"))

    def action_share(self) -> None:
        """Show who may write."""
        self.push_screen(
            ShareScreen(self.store, command=self.session.command, card=self.store.card)
        )

    def action_open(self) -> None:
        """Ask for another document, and end with it."""
        self.push_screen(OpenScreen(), self._open)

    def _open(self, wanted: str | None) -> None:
        if wanted is not None:
            self.exit(self.session.other(wanted))

    def action_follow(self) -> None:
        """Follow the next one who is in the text, or nobody after the last."""
        sessions = [caret.session for caret in self.body.carets]
        following = self.body.following
        after = sessions.index(following) + 1 if following in sessions else 0
        self.body.following = sessions[after] if after < len(sessions) else None
        self.query_one(People).show()

    def action_theme(self) -> None:
        """Change between light and dark."""
        is_dark = self.theme == "textual-dark"
        self.theme = "textual-light" if is_dark else "textual-dark"
