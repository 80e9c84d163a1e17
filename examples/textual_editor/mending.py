"""What went wrong between the document and its relay, and what can be done about it."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Label, Static

from examples.textual_editor.screens import Dialog
from walstore import WalStore, WalStoreError
from walstore.textual import shown

_PUT_BACK = """\
The relay was put back to an earlier time, or hides something: {}.
Nothing that you see here is lost. If its keeper says that this was meant, go on with it: \
what you wrote is sent again, what others wrote is sent again once they are back."""

_STRANDED = """\
The relay has lost edits of others that are shown here ({}), until those who made them are back. \
If they will not come, write them again yourself; should they come after all, it is there twice. \
If somebody else has done so, let go of them here."""

_REFUSED = """\
The relay does not take something that you wrote: {}.
All that you wrote later waits behind it. Set aside, it is out of the text, and kept on a shelf."""


def needs_mending(store: WalStore) -> bool:
    """Whether there is anything that somebody should decide."""
    status = store.status
    return bool(status.rollback or status.stranded or status.refused)


class MendScreen(Dialog):
    """Says what is wrong, and does what it is told."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f6", "leave", show=False),
        Binding("g", "accept", "Go on with it"),
        Binding("w", "rewrite", "Write again"),
        Binding("d", "drop", "Let go"),
        Binding("s", "set_aside", "Set aside"),
    ]

    def __init__(self, store: WalStore) -> None:
        super().__init__()
        self._store = store

    def compose(self) -> ComposeResult:
        """Show it."""
        with VerticalScroll():
            yield Static(id="troubles", markup=False)
            yield Label("", id="mended", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Show it, and again whenever something else is wrong."""
        self._end = self._store.on_status(lambda _: self._show())
        self._show()

    def on_unmount(self) -> None:
        """Be told no more."""
        self._end()

    def _show(self) -> None:
        status = self._store.status
        troubles = []
        if status.rollback is not None:
            troubles.append(_PUT_BACK.format(shown(status.rollback)))
        if status.stranded:
            troubles.append(_STRANDED.format(status.stranded))
        if status.refused is not None:
            troubles.append(_REFUSED.format(shown(status.refused.reason)))
        self.query_one("#troubles", Static).update("\n\n".join(troubles) or "Nothing is wrong.")
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what helps."""
        status = self._store.status
        helps = {
            "accept": status.rollback is not None,
            "rewrite": status.rollback is None and status.stranded > 0,
            "drop": status.rollback is None and status.stranded > 0,
            "set_aside": status.refused is not None,
        }
        return helps.get(action, True)

    @work(exclusive=True)
    async def action_accept(self) -> None:
        """Go on with a log that was rolled back."""
        try:
            accepted = await self._store.accept_rollback()
        except WalStoreError as error:
            self._say(str(error))
        else:
            self._say(f"You go on. {accepted.sent_again} of your own edits are sent again.")

    def action_rewrite(self) -> None:
        """Write what others wrote again."""
        try:
            self._store.rewrite_stranded()
        except WalStoreError as error:
            self._say(str(error))
        else:
            self._say("It is written again, by you.")

    def action_drop(self) -> None:
        """Show what others wrote no longer."""
        try:
            self._store.drop_stranded()
        except WalStoreError as error:
            self._say(str(error))
        else:
            self._say("It is no longer shown.")

    @work(exclusive=True)
    async def action_set_aside(self) -> None:
        """Take what is refused out of the text."""
        try:
            aside = await self._store.set_aside()
        except WalStoreError as error:
            self._say(str(error))
        else:
            self._say(f"{len(aside)} set aside; the rest is sent.")

    def _say(self, line: str) -> None:
        self.query_one("#mended", Label).update(f"\n{shown(line)}")
        self._show()
