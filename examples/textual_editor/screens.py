"""The screens over the editor: help, history, sharing, and another document."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, OptionList, Static

from walstore import WalStore, WalStoreError
from walstore.textual import Person, author_color, name_of, shown

# Versions that are looked through for who wrote what.
STEPS_MAX = 50

HELP = """\
[b]Writing together[/b]
Everybody who has the document open sees what you type.
Without a network you go on writing; it is sent once there is one.

[b]ctrl+z[/b] undo   [b]ctrl+y[/b] redo   only what you wrote yourself
[b]tab[/b] goes on to the next of title, text, tags and tasks
[b]enter[/b] ticks a task, [b]delete[/b] removes a tag or a task

[b]F1[/b] help       [b]F2[/b] history     [b]F3[/b] share
[b]F4[/b] open       [b]F5[/b] follow      [b]F8[/b] light or dark
[b]ctrl+q[/b] leave   [b]escape[/b] closes this

The line at the bottom says whether the others can see you,
and how much of what you wrote they cannot have yet."""


class Dialog(ModalScreen[str | None]):
    """Something small over the editor."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Close")]

    def __init__(self) -> None:
        super().__init__(classes="dialog")

    def action_leave(self) -> None:
        """Go back."""
        self.dismiss(None)


class HelpScreen(Dialog):
    """What the keys do."""

    def compose(self) -> ComposeResult:
        """Show it."""
        with Vertical():
            yield Static(HELP)


class OpenScreen(Dialog):
    """Asks for another document."""

    def compose(self) -> ComposeResult:
        """Ask."""
        with Vertical():
            yield Label("Open another document: its key, or an invitation")
            yield Input(placeholder="notes/holidays")
            yield Label("enter opens it, escape closes")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Open it."""
        self.dismiss(event.value.strip() or None)


class ShareScreen(Dialog):
    """Who may write, and how somebody new may."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("delete", "revoke", "Revoke")]

    def __init__(self, store: WalStore, *, command: str, card: str) -> None:
        super().__init__()
        self._store = store
        self._command = command
        self._card = card
        self._keys: list[str] = []

    def compose(self) -> ComposeResult:
        """Show it."""
        with Vertical():
            try:
                sharing = self._store.sharing
            except WalStoreError:
                yield Label("Everybody who knows the key of this document may write:")
                yield Static(self._command, markup=False, classes="lines")
                yield Label("Start with --owned to decide who may.")
                yield Label("Your card, for whoever is to invite you:")
                yield Static(self._card, markup=False, classes="lines")
                return
            yield Label("Members; delete revokes" if sharing.is_owner else "Members")
            yield OptionList(id="members", classes="lines")
            if sharing.is_owner:
                yield Input(placeholder="the card of somebody to invite")
            yield Static("", id="invitation", markup=False, classes="lines")

    def on_mount(self) -> None:
        """Show the members."""
        self._show_members()

    def _show_members(self) -> None:
        for widget in self.query("#members").results(OptionList):
            members = self._store.sharing.members()
            self._keys = [member.public_key for member in members]
            widget.set_options(
                [
                    Content.styled("  ", f"on {author_color(member.public_key)}")
                    + " "
                    + member.public_key[:16]
                    + (" owner" if member.is_owner else "")
                    + (" revoked" if member.is_revoked else "")
                    for member in members
                ]
            )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Invite somebody."""
        self._invite(event.value.strip())

    @work(exclusive=True)
    async def _invite(self, card: str) -> None:
        line = self.query_one("#invitation", Static)
        try:
            invitation = await self._store.sharing.invite(card)
        except WalStoreError as error:
            line.update(shown(str(error)))
            return
        line.update(f"Hand this to them:\n{invitation.line}")
        self.app.copy_to_clipboard(invitation.line)
        self._show_members()

    def action_revoke(self) -> None:
        """End the membership of whoever is highlighted."""
        highlighted = self.query_one("#members", OptionList).highlighted
        if highlighted is not None:
            self._revoke(self._keys[highlighted])

    @work(exclusive=True)
    async def _revoke(self, key: str) -> None:
        try:
            await self._store.sharing.revoke(key)
        except WalStoreError as error:
            self.query_one("#invitation", Static).update(shown(str(error)))
        self._show_members()


class HistoryScreen(ModalScreen[None]):
    """Any version of the text, and who wrote what of it."""

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
        self._versions = list(store.history())
        self._index = len(self._versions) - 1

    def compose(self) -> ComposeResult:
        """Stack slider and text."""
        yield Static(id="slider", markup=False)
        yield Static(id="moment", markup=False)
        yield Static(id="legend", markup=False)
        with VerticalScroll():
            yield Static(id="history", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Show the newest version."""
        self._show()

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

    def _show(self) -> None:
        if not self._versions:
            self.query_one("#moment", Static).update("Nothing was committed yet.")
            return
        version = self._versions[self._index]
        names = {person.author: name_of(person) for person in people(self._store)}
        self.query_one("#slider", Static).update(self._slider())
        self.query_one("#moment", Static).update(
            f"version {self._index + 1} of {len(self._versions)}, by "
            + names.get(version.author, version.author[:8])
        )
        written = written_by(self._store, self._path, self._index)
        authors = dict.fromkeys(author for _, author in written)
        self.query_one("#legend", Static).update(
            Content("   ").join(
                [
                    Content.styled(f" {names.get(author, author[:8]) or 'older'} ", ground(author))
                    for author in authors
                ]
            )
        )
        self.query_one("#history", Static).update(
            Content("").join(
                [Content.styled(shown_lines(text), ground(author)) for text, author in written]
            )
        )

    def _slider(self) -> str:
        room = max(self.size.width - 8, 2)
        at = room * self._index // max(len(self._versions) - 1, 1)
        return "├" + "─" * at + "●" + "─" * (room - at) + "┤"


def written_by(store: WalStore, path: str, index: int) -> list[tuple[str, str]]:
    """The stretches of a text at a version, each with its author; "" for what is older.

    The newest version is told apart exactly, older ones by what differs from version to version.
    """
    versions = store.history()
    if index == len(versions) - 1 and not store.status.unsent:
        text = store.text(path)
        return [
            (text[each.start : each.start + each.size], each.author) for each in store.blame(path)
        ]
    first = max(index - STEPS_MAX, 0)
    texts = [text_at(store, path, version.ts) for version in versions[first : index + 1]]
    authors = ["" if first else versions[0].author] * len(texts[0])
    for version, (before, after) in zip(versions[first + 1 :], pairwise(texts), strict=False):
        start, old_end, new_end = stretch(before, after)
        authors[start:old_end] = [version.author] * (new_end - start)
    runs = groupby(zip(texts[-1], authors, strict=True), key=lambda pair: pair[1])
    return [("".join([character for character, _ in run]), author) for author, run in runs]


def text_at(store: WalStore, path: str, version: int) -> str:
    """A text as it was; empty if there was none."""
    value = store.at(version).get(path, ())
    characters = value if isinstance(value, list) else []
    return "".join([each for each in characters if isinstance(each, str)])


def stretch(before: str, after: str) -> tuple[int, int, int]:
    """Where two texts differ: from where, and to where in each."""
    shorter = min(len(before), len(after))
    start = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    rest = shorter - start
    same = next((i for i in range(rest) if before[-1 - i] != after[-1 - i]), rest)
    return start, len(before) - same, len(after) - same


def ground(author: str) -> str:
    """What the text of an author stands on: enough of their colour, in light and in dark."""
    return f"on {author_color(author)} 40%" if author else "$text-muted"


def people(store: WalStore) -> list[Person]:
    """Everybody who is here."""
    me = store.presence.me
    return [*([] if me is None else [me]), *store.presence.others()]


def shown_lines(text: str) -> str:
    """A text as it may be shown, with its lines."""
    return "\n".join(map(shown, text.split("\n")))
