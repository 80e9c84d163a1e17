"""The inspector as an app: one document, or the documents of a relay to choose from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from walstore.inspect.overview import Look
from walstore.inspect.subject import Subject
from walstore.textual.inspector.document import DocumentScreen
from walstore.textual.inspector.documents import DocumentsScreen
from walstore.textual.themes import DARK, LIGHT

Opener = Callable[[str], AbstractAsyncContextManager[Subject]]


class InspectorApp(App[None]):
    """Looks, and changes nothing."""

    TITLE = "walstore inspect"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("t", "theme", "Theme"),
    ]

    def __init__(
        self,
        *,
        subject: Subject | None = None,
        look: Look | None = None,
        opener: Opener | None = None,
        is_light: bool = False,
    ) -> None:
        """Show a document, or what there is.

        Args:
            subject: The document, open.
            look: Looks at what there is, in place of one document.
            opener: Opens one of them, by its key.
            is_light: Whether to begin with the light theme.
        """
        super().__init__()
        self._subject = subject
        self._look = look
        self._opener = opener
        for theme in (LIGHT, DARK):
            self.register_theme(theme)
        self.theme = LIGHT.name if is_light else DARK.name

    def on_mount(self) -> None:
        """Show what was asked for."""
        if self._subject is not None:
            self.push_screen(DocumentScreen(self._subject))
        elif self._look is not None and self._opener is not None:
            self.push_screen(DocumentsScreen(self._look, self._opener))

    def action_theme(self) -> None:
        """Change between light and dark."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name
