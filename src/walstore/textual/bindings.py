"""Ordinary widgets bound to paths of a store: what is there shows, what is done to them is edited.

- A path is a name, or `name/key` for a key of a map.
- A widget is bound once it is mounted, and no longer than it is: a binding ends with its widget,
  with `close`, or with the store.
- A widget shows what the store holds as soon as it holds it. So what a user does to it is an edit
  of what the store holds, and never of something older.
- What the store tells is not written back. What the store refuses is shown no more.
- What others wrote is shown as text: it is no markup, and it commands no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias
from weakref import ref

from rich.text import Text
from textual.content import Content
from textual.coordinate import Coordinate
from textual.widget import Widget
from textual.widgets import (
    Checkbox,
    DataTable,
    Input,
    Label,
    ListItem,
    ListView,
    OptionList,
    Switch,
)
from textual.widgets.option_list import Option

from walstore.errors import UsageError, WalStoreError
from walstore.reconcile.gaps import Gap, trim
from walstore.store.store import WalStore
from walstore.textual.app_context import call_in_app, is_alive
from walstore.textual.text_document import shown

Show: TypeAlias = Callable[[Any], str]


class Binding:
    """A widget and a path, until one of them is gone."""

    def __init__(self, widget: Widget, store: WalStore, path: str) -> None:
        """Made by the functions below.

        Raises:
            UsageError: The widget is not mounted.
        """
        if not is_alive(widget):
            raise UsageError(f"{widget!r} is not mounted yet, or not any more")
        self.store = store
        self.path = path
        self.is_closed = False
        self._widget = ref(widget)
        name = path.partition("/")[0]
        # A name that is written anew may have been a map, whose keys then are others.
        self._subscriptions = [
            store.subscribe(each, lambda _: self._changed(), owner=widget)
            for each in dict.fromkeys((path, name))
        ]

    def close(self) -> None:
        """Bind no more."""
        self.is_closed = True
        for subscription in self._subscriptions:
            subscription.close()

    def show(self) -> None:
        """Show what the store holds."""
        raise NotImplementedError

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _changed(self) -> None:
        widget = self._widget()
        if widget is None or not is_alive(widget):
            self.close()
        else:
            call_in_app(widget, self.show)

    def _read(self, default: Any) -> Any:
        name, is_entry, key = self.path.partition("/")
        value = self.store.get(name, default)
        if not is_entry:
            return value
        return value.get(key, default) if isinstance(value, Mapping) else default

    def _write(self, write: Callable[[], object]) -> None:
        """Edit the store; what it does not take is shown no more."""
        if self.is_closed:
            return
        try:
            write()
        except WalStoreError:
            self.show()

    def _assign(self, value: Any) -> None:
        name, is_entry, key = self.path.partition("/")
        if is_entry:
            self.store.put(name, key, value)
        else:
            self.store[name] = value


class _InputBinding(Binding):
    """An `Input` and a text, or a register with a text."""

    def __init__(self, widget: Input, store: WalStore, path: str, *, is_text: bool) -> None:
        super().__init__(widget, store, path)
        self._is_text = is_text
        self._shown = ""
        self._input = ref(widget)
        widget.watch(widget, "value", self._typed, init=False)
        self.show()

    def show(self) -> None:
        """Show the text; the cursor stays where it is in it."""
        widget = self._input()
        value = self._read("")
        text = shown(value.replace("\t", " ")) if isinstance(value, str) else ""
        if widget is None or text == widget.value == self._shown:
            return
        gap = _difference(widget.value, text)
        cursor = widget.cursor_position
        if cursor > gap.old_start:
            cursor = max(cursor + gap.new_end - gap.old_end, gap.new_start)
        self._shown = text
        widget.value = text
        widget.cursor_position = cursor

    def _typed(self, value: str) -> None:
        before, self._shown = self._shown, value
        if value == before:
            return
        gap = _difference(before, value)
        inserted = value[gap.new_start : gap.new_end]
        if self._is_text:
            removed = gap.old_end - gap.old_start
            self._write(lambda: self.store.edit_text(self.path, gap.old_start, removed, inserted))
        else:
            old = self._read("")
            kept = old if isinstance(old, str) else ""
            new = kept[: gap.old_start] + inserted + kept[gap.old_end :]
            self._write(lambda: self._assign(new))


class _ToggleBinding(Binding):
    """A `Checkbox` or `Switch`, and whether something is so."""

    def __init__(self, widget: Checkbox | Switch, store: WalStore, path: str) -> None:
        super().__init__(widget, store, path)
        self._toggle = ref(widget)
        widget.watch(widget, "value", self._toggled, init=False)
        self.show()

    def show(self) -> None:
        """Show whether it is so; anything but true is not."""
        widget = self._toggle()
        if widget is not None:
            widget.value = self._read(False) is True

    def _toggled(self, value: bool) -> None:
        if value != (self._read(False) is True):
            self._write(lambda: self._assign(value))


class _RowsBinding(Binding):
    """A widget that shows the values of a list, one in a row."""

    def _values(self) -> list[Any]:
        values = self._read(())
        # A list of nothing but characters reads as a text: each of them is a value here.
        is_text = isinstance(values, str) and self.store.document.kind(self.path) == "text"
        return list(values) if is_text or isinstance(values, list | tuple) else []


class _OptionsBinding(_RowsBinding):
    """An `OptionList` and a list; the highlight stays on its option."""

    def __init__(self, widget: OptionList, store: WalStore, path: str, show: Show) -> None:
        super().__init__(widget, store, path)
        self._options = ref(widget)
        self._show = show
        self._rows: list[str] = []
        self.show()

    def show(self) -> None:
        """Show the list."""
        widget = self._options()
        rows = [shown(self._show(value)) for value in self._values()]
        if widget is None or rows == self._rows:
            return
        before, self._rows = self._rows, rows
        highlighted = _followed(before, rows, widget.highlighted)
        if len(rows) == len(before):
            for index, (old, new) in enumerate(zip(before, rows, strict=True)):
                if old != new:
                    widget.replace_option_prompt_at_index(index, Content(new))
        else:
            widget.set_options([Option(Content(row)) for row in rows])
        widget.highlighted = highlighted


class _ListViewBinding(_RowsBinding):
    """A `ListView` and a list: it mounts its items in its own time, and in order."""

    def __init__(self, widget: ListView, store: WalStore, path: str, show: Show) -> None:
        super().__init__(widget, store, path)
        self._list_view = ref(widget)
        self._show = show
        self._rows: list[str] = []
        self._is_busy = False
        self.show()

    def show(self) -> None:
        """Show the list before long."""
        widget = self._list_view()
        if widget is not None and not self._is_busy:
            self._is_busy = True
            widget.call_later(self._catch_up)

    async def _catch_up(self) -> None:
        try:
            while not self.is_closed and (widget := self._list_view()) is not None:
                rows = [shown(self._show(value)) for value in self._values()]
                if rows == self._rows:
                    return
                before, self._rows = self._rows, rows
                await self._replace(widget, before, rows)
        finally:
            self._is_busy = False

    async def _replace(self, widget: ListView, before: list[str], rows: list[str]) -> None:
        first, old_end, new_end = _stretch(before, rows)
        index = _followed(before, rows, widget.index)
        await widget.remove_items(range(first, old_end))
        items = [ListItem(Label(Content(row))) for row in rows[first:new_end]]
        if first < len(widget):
            await widget.insert(first, items)
        else:
            await widget.extend(items)
        widget.index = index


class _TableBinding(_RowsBinding):
    """A `DataTable` and a list of objects; the cursor stays on its row."""

    def __init__(
        self, widget: DataTable[Text], store: WalStore, path: str, columns: Sequence[str]
    ) -> None:
        super().__init__(widget, store, path)
        self._table = ref(widget)
        self._columns = list(columns)
        self._rows: list[list[str]] = []
        missing = [each for each in columns if each not in widget.columns]
        for column in missing:
            widget.add_column(column, key=column)
        self.show()

    def show(self) -> None:
        """Show the list."""
        widget = self._table()
        rows = list(map(self._cells, self._values()))
        if widget is None or rows == self._rows:
            return
        before, self._rows = self._rows, rows
        cursor = widget.cursor_coordinate
        row = _followed(before, rows, cursor.row)
        if before == rows[: len(before)]:
            self._append(widget, rows[len(before) :])
        elif len(rows) == len(before):
            self._update(widget, before, rows)
        else:
            widget.clear()
            self._append(widget, rows)
        widget.cursor_coordinate = Coordinate(row or 0, cursor.column)

    def _cells(self, value: Any) -> list[str]:
        if not isinstance(value, Mapping):
            return [shown(str(value)), *[""] * (len(self._columns) - 1)]
        return [shown(str(value.get(column, ""))) for column in self._columns]

    def _append(self, widget: DataTable[Text], rows: list[list[str]]) -> None:
        for row in rows:
            widget.add_row(*map(Text, row))

    def _update(
        self, widget: DataTable[Text], before: list[list[str]], rows: list[list[str]]
    ) -> None:
        for y, (old, new) in enumerate(zip(before, rows, strict=True)):
            for x, (was, cell) in enumerate(zip_longest(old, new, fillvalue="")):
                if was != cell:
                    widget.update_cell_at(Coordinate(y, x), Text(cell), update_width=True)


def bind_input(widget: Input, store: WalStore, path: str, *, is_text: bool = True) -> Binding:
    """Bind an input to a text; typing is edited in as deltas, and others' typing shows.

    Args:
        widget: The input.
        store: The store.
        path: The name of the text.
        is_text: False for a path that holds a value instead, which whoever writes last decides.

    Raises:
        UsageError: The widget is not mounted.
    """
    return _InputBinding(widget, store, path, is_text=is_text)


def bind_toggle(widget: Checkbox | Switch, store: WalStore, path: str) -> Binding:
    """Bind a checkbox or a switch to whether something is so.

    Raises:
        UsageError: The widget is not mounted.
    """
    return _ToggleBinding(widget, store, path)


def bind_options(widget: OptionList, store: WalStore, path: str, *, show: Show = str) -> Binding:
    """Bind an option list to a list; option and value have the same index.

    Raises:
        UsageError: The widget is not mounted.
    """
    return _OptionsBinding(widget, store, path, show)


def bind_list(widget: ListView, store: WalStore, path: str, *, show: Show = str) -> Binding:
    """Bind a list view to a list.

    Raises:
        UsageError: The widget is not mounted.
    """
    return _ListViewBinding(widget, store, path, show)


def bind_table(
    widget: DataTable[Text], store: WalStore, path: str, *, columns: Sequence[str]
) -> Binding:
    """Bind a table to a list of objects, with a column for each of the given members.

    Raises:
        UsageError: The widget is not mounted.
    """
    return _TableBinding(widget, store, path, columns)


def _difference(before: str, after: str) -> Gap:
    return trim(before, after, Gap(0, len(before), 0, len(after)))


def _stretch(before: Sequence[object], after: Sequence[object]) -> tuple[int, int, int]:
    """The rows in which two lists differ: where they begin, and where they end in each."""
    first = 0
    shorter = min(len(before), len(after))
    while first < shorter and before[first] == after[first]:
        first += 1
    last = 0
    while last < shorter - first and before[-1 - last] == after[-1 - last]:
        last += 1
    return first, len(before) - last, len(after) - last


def _followed(before: Sequence[object], after: Sequence[object], index: int | None) -> int | None:
    """The index by now of a row; the nearest one if it is gone, None if there is none."""
    if index is None or not after:
        return None
    first, old_end, new_end = _stretch(before, after)
    if index >= old_end:
        index += new_end - old_end
    elif index >= first:
        index = min(index, max(new_end - 1, first))
    return min(max(index, 0), len(after) - 1)
