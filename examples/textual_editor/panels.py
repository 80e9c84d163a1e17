"""What stands around the text: who is here, what is tagged and to do, how the store stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Label, OptionList, Static

from walstore import WalStore, WalStoreError
from walstore.textual import (
    OrderedInput,
    Person,
    bind_options,
    color_of,
    name_of,
    session_of,
    shown,
)

# States that a store may have, as a reader would say them.
_STATES = {
    "local": ("○", "on this computer only"),
    "fleeting": ("○", "kept nowhere: start with --relay or --file"),
    "connecting": ("◌", "connecting"),
    "live": ("●", "live"),
    "offline": ("○", "offline"),
    "refused": ("✕", "refused"),
    "closed": ("✕", "closed"),
}


class People(Static):
    """Who is at the document."""

    def __init__(self, store: WalStore, *, following: Callable[[], str | None]) -> None:
        super().__init__(id="people", markup=False)
        self._store = store
        self._following = following
        self._rows: list[tuple[str, str]] = []

    def on_mount(self) -> None:
        """Be told who comes and goes."""
        self._subscription = self._store.presence.subscribe(self._show)
        self.show()

    def on_unmount(self) -> None:
        """Be told no more."""
        self._subscription.close()

    def show(self) -> None:
        """Show who is here by now."""
        self._show(self._store.presence.others())

    def _show(self, others: list[Person]) -> None:
        me, following = self._store.presence.me, self._following()
        rows = [] if me is None else [(color_of(me), f"{name_of(me)} (you)")]
        for person in others:
            is_followed = following == session_of(person)
            rows.append((color_of(person), name_of(person) + " ← followed" * is_followed))
        # It is asked for with every move of anybody's caret, and seldom says anything else.
        if rows != self._rows:
            self._rows = rows
            self.update(Content("\n").join([_dot(color) + name for color, name in rows]))


def _dot(color: str) -> Content:
    return Content.styled("  ", f"on {color}") + " "


class Status(Static):
    """How the store stands, in one line."""

    @dataclass
    class MayWrite(Message):
        """Whether what we write is taken by the others, if that is not as before."""

        may_write: bool

    def __init__(self, store: WalStore, *, is_kept: bool) -> None:
        super().__init__(id="status", markup=False)
        self._store = store
        self._is_kept = is_kept
        self._may_write = True

    def on_mount(self) -> None:
        """Be told how it stands."""
        self._end = self._store.on_status(lambda _: self.show())
        # Edits that are not sent yet are told by nobody.
        self.set_interval(0.5, self.show)
        self.show()

    def on_unmount(self) -> None:
        """Be told no more."""
        self._end()

    def show(self) -> None:
        """Show how it stands now."""
        status = self._store.status
        is_fleeting = status.state == "local" and not self._is_kept
        sign, state = _STATES["fleeting" if is_fleeting else status.state]
        parts = [f"{sign} {state}", f"{status.unsent} unsent" if status.unsent else "all sent"]
        if status.state == "local":
            parts = [f"{sign} {state}"]
        if status.lag_ms is not None and status.state == "live":
            parts.append(f"lag {status.lag_ms} ms")
        wrong = self._wrong()
        reason = [shown(status.reason)] if status.reason and status.state == "refused" else []
        line = "  ·  ".join([*parts, *wrong, *reason])
        if line != self.content:
            # It is one line, whatever it says: the screen need not be laid out anew.
            self.update(line, layout=False)
        self.set_class(status.state == "live" and not wrong, "-live")
        self.set_class(status.state not in ("live", "local") and not wrong, "-away")
        if bool(wrong) != self.has_class("-wrong"):
            self.set_class(bool(wrong), "-wrong")
            # There may be something to mend.
            self.app.refresh_bindings()
        if status.may_write != self._may_write:
            self._may_write = status.may_write
            self.post_message(self.MayWrite(status.may_write))

    def _wrong(self) -> list[str]:
        """What is not as it should be."""
        status = self._store.status
        wrong = [
            f"{len(found)} {what}"
            for found, what in (
                (status.gaps, "missing"),
                (status.forks, "forked"),
                (status.rejected, "rejected"),
            )
            if found
        ]
        if status.unreadable:
            wrong.append(f"{status.unreadable} sealed for others")
        if status.stranded:
            wrong.append(f"{status.stranded} lost by the relay (F6)")
        if status.rollback is not None:
            wrong.append("the relay was put back (F6)")
        if status.is_read_only:
            wrong.append("read only")
        if not status.may_write:
            wrong.append("you may not write here")
        elif status.refused is not None:
            wrong.append("the relay does not take what you wrote (F6)")
        return wrong


class Rows(OptionList):
    """A list of the document, of which a row can be picked or removed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("delete,backspace", "remove_row", "Remove", show=False)
    ]

    def __init__(self, store: WalStore, path: str, show: Callable[[Any], str]) -> None:
        super().__init__(id=path)
        self._store = store
        self._path = path
        self._show = show

    def allow_focus(self) -> bool:
        """Whether there is anything to go to."""
        return self.option_count > 0

    def on_mount(self) -> None:
        """Show the list."""
        bind_options(self, self._store, self._path, show=self._show)

    def on_focus(self) -> None:
        """Be at a row, so that a key does something."""
        if self.highlighted is None:
            self.highlighted = 0

    def action_remove_row(self) -> None:
        """Remove the row that is highlighted."""
        if self.highlighted is not None:
            if self.option_count == 1:
                # Then there is nothing left to be at.
                self.screen.focus_next()
            self.edit(lambda index: self._store.remove(self._path, index))

    def edit(self, edit: Callable[[int], object]) -> None:
        """Edit the row that is highlighted."""
        if self.highlighted is None:
            return
        self._store.undo_boundary()
        try:
            edit(self.highlighted)
        except WalStoreError as error:
            self.notify(str(error), severity="error", markup=False)


class Entry(OrderedInput):
    """A line to type in, which is appended to a list of the document."""

    def __init__(
        self, store: WalStore, path: str, make: Callable[[str], Any], **options: Any
    ) -> None:
        super().__init__(**options)
        self._store = store
        self._path = path
        self._make = make

    async def action_submit(self) -> None:
        """Append what was typed, before anything else is."""
        text = self.value.strip()
        if not text:
            return
        self._store.undo_boundary()
        try:
            self._store.list(self._path).append(self._make(text))
        except WalStoreError as error:
            self.notify(str(error), severity="error", markup=False)
        else:
            self.value = ""


class Side(VerticalScroll, can_focus=False):
    """People, tags and the things to do."""

    def __init__(self, store: WalStore, *, following: Callable[[], str | None]) -> None:
        super().__init__(id="side")
        self._store = store
        self._following = following

    def compose(self) -> ComposeResult:
        """Stack them."""
        yield Label("People", classes="heading")
        yield People(self._store, following=self._following)
        yield Label("Tags", classes="heading")
        yield Rows(self._store, "tags", str)
        yield Entry(self._store, "tags", str, placeholder="new tag", id="new-tag")
        yield Label("To do", classes="heading")
        yield Rows(self._store, "todo", show_task)
        yield Entry(self._store, "todo", task, placeholder="new task", id="new-task")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Tick a task, or untick it."""
        event.stop()
        rows = event.option_list
        if not isinstance(rows, Rows) or rows.id != "todo":
            return
        picked = self._store.list("todo")[event.option_index]
        if isinstance(picked, dict):
            done = {**picked, "done": picked.get("done") is not True}
            rows.edit(lambda index: self._store.list("todo").__setitem__(index, done))


def people(store: WalStore) -> list[Person]:
    """Everybody who is here."""
    me = store.presence.me
    return [*([] if me is None else [me]), *store.presence.others()]


def task(what: str) -> dict[str, Any]:
    """Something that is to be done."""
    return {"what": what, "done": False}


def show_task(task: Any) -> str:
    """A task as a line; whatever others have put there is shown too."""
    if not isinstance(task, dict):
        return f"? {task}"
    return f"{'☑' if task.get('done') is True else '☐'} {task.get('what', '')}"
