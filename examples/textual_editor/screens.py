"""The dialogs over the editor: help, sharing, another document, and leaving."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, OptionList, Static

from examples.textual_editor.panels import people
from walstore import WalStore, WalStoreError
from walstore.textual import OrderedInput, author_color, name_of, shown

HELP = """\
[b]Writing together[/b]
Everybody who has the document open sees what you type.
Without a network you go on writing; it is sent once there is one.

[b]ctrl+z[/b] undo   [b]ctrl+y[/b] redo   only what you wrote yourself
[b]shift[/b] and arrows select, [b]ctrl+c[/b] copies, [b]ctrl+x[/b] cuts, [b]ctrl+v[/b] pastes
[b]tab[/b] goes on to the next of text, tags, tasks and title
[b]enter[/b] ticks a task, [b]delete[/b] removes a tag or a task

[b]F1[/b] help       [b]F2[/b] history     [b]F3[/b] share
[b]F4[/b] open       [b]F5[/b] follow      [b]F8[/b] light or dark
[b]F9[/b] people, tags and tasks    [b]ctrl+q[/b] leave
[b]F6[/b] mends what the red line at the bottom says is wrong

The line at the bottom says whether the others can see you,
and how much of what you wrote they cannot have yet. What is
[b]missing[/b] was not sent by the relay, what is [b]forked[/b] was sent in two
versions by its author, and what is [b]rejected[/b] is not valid."""


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

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f1", "leave", show=False)]

    def compose(self) -> ComposeResult:
        """Show it."""
        with VerticalScroll():
            yield Static(HELP)
        yield Footer()


class OpenScreen(Dialog):
    """Asks for another document."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self._document = document

    def compose(self) -> ComposeResult:
        """Ask."""
        with VerticalScroll(can_focus=False):
            yield Label(f"This is {shown(self._document)}.", markup=False)
            yield Label("Open another document: its key, or an invitation")
            yield OrderedInput(placeholder="notes/holidays")
            yield Label("enter opens it, escape closes", classes="quiet")
        yield Footer()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Open it."""
        self.dismiss(event.value.strip() or None)


class LeaveScreen(Dialog):
    """Asks whether to leave what is kept nowhere."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,ctrl+q", "lose", "Leave", priority=True),
        Binding("escape", "leave", "Stay"),
    ]

    def compose(self) -> ComposeResult:
        """Ask."""
        with VerticalScroll():
            yield Label("[b]Nobody else has all that you wrote.[/b]")
            yield Static(
                "Some of it was not sent, and there is no file that keeps it (start with --file)."
                " If you leave now, it is lost."
            )
        yield Footer()

    def action_lose(self) -> None:
        """Leave all the same."""
        self.dismiss("leave")


class ShareScreen(Dialog):
    """Who may write, and how somebody new may."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f3", "leave", show=False),
        Binding("delete", "revoke", "Revoke"),
        Binding("c", "copy_command", "Copy the command"),
        Binding("k", "copy_card", "Copy your card"),
    ]

    def __init__(self, store: WalStore, *, command: str) -> None:
        super().__init__()
        self._store = store
        self._command = command
        self._keys: list[str] = []
        self._is_shared = self._is_owner = False
        # Otherwise whoever knows the key may write.
        with suppress(WalStoreError):
            self._is_owner, self._is_shared = store.sharing.is_owner, True

    def compose(self) -> ComposeResult:
        """Show it."""
        with VerticalScroll(can_focus=not self._is_shared):
            if not self._is_shared:
                yield from self._compose_open()
            else:
                yield Label("Members")
                yield OptionList(id="members")
                if self._is_owner:
                    yield OrderedInput(placeholder="the card of somebody to invite")
                    yield Label("enter invites; tab, then delete, revokes", classes="quiet")
                yield Static("", id="invitation", markup=False)
        yield Footer()

    def _compose_open(self) -> ComposeResult:
        yield Label("Everybody who knows the key of this document may write:")
        yield Static(self._command, markup=False, classes="copied")
        yield Label("Start with --owned to decide who may.", classes="quiet")
        yield Label("Your card, for whoever is to invite you:")
        yield Static(self._store.card, markup=False, classes="copied")

    def on_mount(self) -> None:
        """Show the members, and wait for somebody to invite."""
        self._show_members()
        if self._is_owner:
            self.query_one(Input).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what can be done here."""
        if action == "revoke":
            return self._is_owner
        return not (self._is_shared and action.startswith("copy"))

    def action_copy_command(self) -> None:
        """Put what somebody else types on the clipboard."""
        self._copy(self._command)

    def action_copy_card(self) -> None:
        """Put what we hand to somebody who is to invite us on the clipboard."""
        self._copy(self._store.card)

    def _copy(self, text: str) -> None:
        self.app.copy_to_clipboard(text)
        self.notify("Copied, if your terminal lets programs copy.")

    def _show_members(self) -> None:
        if not self._is_shared:
            return
        members = self._store.sharing.members()
        names = {person.author: name_of(person) for person in people(self._store)}
        self._keys = [member.public_key for member in members]
        options = self.query_one("#members", OptionList)
        highlighted = options.highlighted or 0
        options.set_options(
            [
                Content.styled("  ", f"on {author_color(member.public_key)}")
                + f" {member.public_key[:16]} {names.get(member.public_key, '')}"
                + ("  owner" if member.is_owner else "")
                + ("  revoked" if member.is_revoked else "")
                for member in members
            ]
        )
        options.highlighted = highlighted

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
        self.query_one(Input).value = ""
        self.app.copy_to_clipboard(invitation.line)
        self._show_members()

    def action_revoke(self) -> None:
        """End the membership of whoever is highlighted."""
        highlighted = self.query_one("#members", OptionList).highlighted
        if highlighted is not None:
            self._revoke(self._keys[highlighted])

    @work(exclusive=True)
    async def _revoke(self, key: str) -> None:
        line = self.query_one("#invitation", Static)
        try:
            await self._store.sharing.revoke(key)
        except WalStoreError as error:
            line.update(shown(str(error)))
        else:
            line.update(f"{key[:16]} may not write any more.")
        self._show_members()
