"""How a text came to be: any version of it, and who wrote what of that version."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, Protocol

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from examples.textual_editor.panels import people
from walstore import WalStore, WalStoreError
from walstore.textual import BlameArea, author_color, name_of, shown

# A relay counts in milliseconds since 1970; whatever is outside of these is no such time.
_TIME_MS_MIN, _TIME_MS_MAX = 10**12, 10**13


class Moment(Protocol):
    """A version."""

    @property
    def ts(self) -> int:
        """Its place in the log."""
        ...

    @property
    def author(self) -> str:
        """Who has signed it."""
        ...

    @property
    def message(self) -> str | None:
        """What they say of it, if anything."""
        ...


class Stretch(Protocol):
    """A stretch of a text, and who wrote it."""

    @property
    def start(self) -> int:
        """Where it begins."""
        ...

    @property
    def size(self) -> int:
        """How long it is."""
        ...

    @property
    def author(self) -> str:
        """Who wrote it."""
        ...


class Past(Protocol):
    """What can be asked about versions: a store, or the whole history that it loads."""

    def at(self, version: int) -> dict[str, Any]:
        """The document as it was."""
        ...

    def blame(self, name: str, *, at: int | None = None) -> Sequence[Stretch]:
        """Who wrote what of it."""
        ...


class HistoryScreen(ModalScreen[None]):
    """A slider over the versions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f2", "leave", "Back"),
        Binding("left", "step(-1)", "Older", priority=True),
        Binding("right", "step(1)", "Newer", priority=True),
        Binding("home", "step(-1000000)", "Oldest", priority=True),
        Binding("end", "step(1000000)", "Newest", priority=True),
    ]

    def __init__(self, store: WalStore, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._past: Past = store
        self._versions: Sequence[Moment] = store.history()
        self._index = len(self._versions) - 1
        self._note = "looking for older versions …"

    def compose(self) -> ComposeResult:
        """Stack slider and text."""
        yield Static(id="slider", markup=False)
        yield Static(id="moment", markup=False)
        yield Static(id="legend", markup=False)
        yield BlameArea(id="history")
        yield Footer()

    def on_mount(self) -> None:
        """Show the newest version, and look for those from before the store was opened."""
        self._show()
        self._load()

    def on_resize(self) -> None:
        """Draw the slider as wide as there is room."""
        self._show()

    def action_leave(self) -> None:
        """Go back."""
        self.dismiss(None)

    def action_step(self, step: int) -> None:
        """Show an older or a newer version."""
        self._index = min(max(self._index + step, 0), len(self._versions) - 1)
        self._show()

    @work(exclusive=True)
    async def _load(self) -> None:
        try:
            whole = await self._store.load_history()
        except WalStoreError as error:
            self._note = shown(f"older versions cannot be read: {error}")
        else:
            before, self._past, self._versions = self._versions, whole, whole.versions()
            # Whoever has gone back already stays where they are.
            self._index += len(self._versions) - len(before)
            self._note = ""
        self.action_step(0)

    def _show(self) -> None:
        moment = self.query_one("#moment", Static)
        if not self._versions:
            moment.update("  ·  ".join(filter(None, ["Nothing was committed yet.", self._note])))
            return
        version = self._versions[self._index]
        names = {person.author: name_of(person) for person in people(self._store)}
        self.query_one("#slider", Static).update(self._slider())
        said = [
            f"version {self._index + 1} of {len(self._versions)}",
            "by " + names.get(version.author, version.author[:8]),
            time_of(version.ts),
            shown(version.message or ""),
            self._note,
        ]
        moment.update("  ·  ".join(filter(None, said)))
        try:
            written = written_by(self._past, self._path, version.ts)
        except ValueError:
            # The store has let go of it since; what is being loaded has it.
            written = []
        authors = dict.fromkeys([author for _, author in written])
        self.query_one("#legend", Static).update(
            Content("  ").join(
                [
                    Content.styled(f" {names.get(author, author[:8])} ", ground(author))
                    for author in authors
                ]
            )
        )
        self.query_one(BlameArea).show(written)

    def _slider(self) -> str:
        room = max(self.size.width - 8, 2)
        at = room * self._index // max(len(self._versions) - 1, 1)
        return "├" + "─" * at + "●" + "─" * (room - at) + "┤"


def written_by(past: Past, path: str, version: int) -> list[tuple[str, str]]:
    """The stretches of a text at a version, each with its author."""
    value = past.at(version).get(path, ())
    characters = value if isinstance(value, list) else []
    return [
        (_text(characters[each.start : each.start + each.size]), each.author)
        for each in past.blame(path, at=version)
    ]


def _text(characters: list[Any]) -> str:
    """Characters as a text; whatever else others have put there is none."""
    return "".join([each for each in characters if isinstance(each, str)])


def time_of(ts: int) -> str:
    """When a version was stored, by the clock of its relay; empty if it says nothing of that."""
    if not _TIME_MS_MIN < ts < _TIME_MS_MAX:
        return ""
    return datetime.fromtimestamp(ts / 1000).strftime("%Y-%m-%d %H:%M:%S")


def ground(author: str) -> str:
    """What the name of an author stands on: the same as what they wrote."""
    return f"on {author_color(author)} 40%"
