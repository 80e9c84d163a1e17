"""The documents of a relay, a database or an archive, to choose one from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from walstore.errors import WalStoreError
from walstore.inspect.overview import Look, Overview
from walstore.inspect.subject import Subject
from walstore.inspect.summary import time_of
from walstore.textual.inspector.document import DocumentScreen
from walstore.textual.text_document import shown

# How often what there is is looked at, in seconds.
LOOK_S = 2.0

_COLUMNS = ("document", "elements", "bytes", "snapshots", "newest", "gone up to")


class DocumentsScreen(Screen[None]):
    """What there is."""

    DEFAULT_CSS = """
    DocumentsScreen #place { height: 1; padding: 0 1; background: $panel; text-style: bold; }
    DocumentsScreen #facts { height: auto; max-height: 6; padding: 0 1; color: $text-muted; }
    DocumentsScreen DataTable { height: 1fr; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "look", "Look again")]

    def __init__(
        self, look: Look, opener: Callable[[str], AbstractAsyncContextManager[Subject]]
    ) -> None:
        """Look at something."""
        super().__init__()
        self._look = look
        self._opener = opener
        self._shown: Overview | None = None

    def compose(self) -> ComposeResult:
        """Lay it out."""
        yield Static(id="place", markup=False)
        yield Static(id="facts", markup=False)
        yield DataTable[str](cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Look, now and then."""
        self.query_one(DataTable).add_columns(*_COLUMNS)
        self.action_look()
        self.set_interval(LOOK_S, self.action_look)

    def action_look(self) -> None:
        """Look again."""
        self._refresh()

    @work(exclusive=True, group="look")
    async def _refresh(self) -> None:
        try:
            overview = await self._look()
        except WalStoreError as error:
            self.query_one("#facts", Static).update(shown(str(error)))
            return
        if overview != self._shown:
            self._shown = overview
            self._show(overview)

    def _show(self, overview: Overview) -> None:
        more = overview.total - len(overview.documents)
        said = overview.counted + (f", {more:,} of them not shown" if more else "")
        self.query_one("#place", Static).update(f"{shown(overview.place)}  ·  {said}")
        self.query_one("#facts", Static).update("\n".join(map(shown, overview.facts)))
        table = self.query_one(DataTable)
        row = table.cursor_row
        table.clear()
        for each in overview.documents:
            table.add_row(
                shown(each.key),
                f"{each.elements:,}",
                f"{each.bytes:,}",
                f"{each.snapshots:,}",
                time_of(each.head) or str(each.head),
                (time_of(each.floor) or str(each.floor)) if each.floor else "",
                key=each.key,
            )
        table.move_cursor(row=row)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open a document."""
        if event.row_key.value is not None:
            self._open(event.row_key.value)

    @work(exclusive=True, group="open")
    async def _open(self, key: str) -> None:
        try:
            async with self._opener(key) as subject:
                await self.app.push_screen_wait(DocumentScreen(subject))
        except WalStoreError as error:
            self.notify(shown(str(error)), severity="error", markup=False)
