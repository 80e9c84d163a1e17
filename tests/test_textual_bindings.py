"""Bindings: ordinary widgets show what a path holds, and what is done to them is edited there."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from rich.text import Text
from textual.app import App, ComposeResult
from textual.coordinate import Coordinate
from textual.pilot import Pilot
from textual.widgets import Checkbox, DataTable, Input, Label, ListView, OptionList, Switch

from walstore import Identity
from walstore.errors import UsageError
from walstore.store.store import WalStore
from walstore.textual import bind_input, bind_list, bind_options, bind_table, bind_toggle


class Form(App[None]):
    """One of each."""

    def compose(self) -> ComposeResult:
        yield Input()
        yield Checkbox()
        yield Switch()
        yield OptionList()
        yield ListView()
        yield DataTable[Text]()


@asynccontextmanager
async def shown_form() -> AsyncIterator[tuple[Form, Pilot[None], WalStore]]:
    async with WalStore.open("doc", identity=Identity.generate()) as store:
        app = Form()
        async with app.run_test(size=(60, 40)) as pilot:
            yield app, pilot, store


def items(view: ListView) -> list[str]:
    return [str(label.content) for label in view.query(Label)]


def cells(table: DataTable[Text]) -> list[list[str]]:
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


async def test_typing_into_an_input_edits_the_text() -> None:
    async with shown_form() as (app, pilot, store):
        store.set_text("title", "old")
        widget = app.query_one(Input)
        bind_input(widget, store, "title")
        assert widget.value == "old"
        widget.focus()
        told: list[object] = []
        store.subscribe("title", lambda change: told.append(change.delta))
        await pilot.press("end", "e", "r", "home", "delete")
        assert store.text("title") == "lder"
        assert len(told) == 3


async def test_what_others_type_shows_in_an_input_and_the_cursor_stays() -> None:
    async with shown_form() as (app, _, store):
        store.set_text("title", "a title")
        widget = app.query_one(Input)
        bind_input(widget, store, "title")
        widget.cursor_position = 2
        told: list[str] = []
        store.subscribe("title", lambda change: told.append(change.origin))
        store.edit_text("title", 0, 1, "the")
        assert (widget.value, widget.cursor_position) == ("the title", 4)
        store.edit_text("title", 9, 0, " indeed")
        assert widget.cursor_position == 4
        store.edit_text("title", 0, len("the title"), "")
        assert (widget.value, widget.cursor_position) == (" indeed", 0)
        assert len(told) == 3


async def test_what_others_put_into_a_title_commands_nothing_and_is_kept() -> None:
    async with shown_form() as (app, pilot, store):
        store.set_text("title", "a\n\x1b[2J[b]")
        widget = app.query_one(Input)
        bind_input(widget, store, "title")
        assert widget.value == "a␊␛[2J[b]"
        widget.focus()
        await pilot.press("end", "!")
        assert store.text("title") == "a\n\x1b[2J[b]!"


async def test_an_input_may_hold_a_value() -> None:
    async with shown_form() as (app, pilot, store):
        store.put("author", "name", "Ada")
        widget = app.query_one(Input)
        bind_input(widget, store, "author/name", is_text=False)
        widget.focus()
        await pilot.press("end", "!")
        assert store["author"] == {"name": "Ada!"}
        store.put("author", "name", "Bo")
        assert widget.value == "Bo"
        store.drop("author", "name")
        assert widget.value == ""


async def test_what_the_store_refuses_is_shown_no_more() -> None:
    async with shown_form() as (app, pilot, store):
        store["title"] = {"no": "text"}
        widget = app.query_one(Input)
        bind_input(widget, store, "title")
        widget.focus()
        await pilot.press("x")
        assert widget.value == ""
        assert store["title"] == {"no": "text"}


@pytest.mark.parametrize("kind", [Checkbox, Switch])
@pytest.mark.parametrize("path", ["done", "todo/done"])
async def test_a_toggle_is_what_the_path_holds(kind: type[Checkbox | Switch], path: str) -> None:
    async with shown_form() as (app, pilot, store):
        widget = app.query_one(kind)
        bind_toggle(widget, store, path)
        told: list[object] = []
        store.subscribe("**", told.append)
        widget.toggle()
        await pilot.pause()
        value = store["done"] if path == "done" else store["todo"]["done"]
        assert value is True
        assert len(told) == 1
        if path == "done":
            store["done"] = False
        else:
            store.put("todo", "done", False)
        await pilot.pause()
        assert widget.value is False
        assert len(told) == 2


async def test_options_are_those_of_the_list_and_the_highlight_stays_on_its_own() -> None:
    async with shown_form() as (app, pilot, store):
        tags = store.list("tags")
        tags.extend(["a", "b", "[red]c"])
        widget = app.query_one(OptionList)
        bind_options(widget, store, "tags")
        widget.highlighted = 1
        tags.insert(0, "new")
        assert [str(option.prompt) for option in widget.options] == ["new", "a", "b", "[red]c"]
        assert widget.highlighted == 2
        tags[3] = "d"
        assert widget.highlighted == 2
        del tags[2]
        assert [str(option.prompt) for option in widget.options] == ["new", "a", "d"]
        assert widget.highlighted == 2
        del tags[:]
        assert not widget.options
        await pilot.pause()


async def test_a_list_of_single_characters_is_a_list_like_any_other() -> None:
    async with shown_form() as (app, _, store):
        tags = store.list("tags")
        tags.append("a")
        widget = app.query_one(OptionList)
        bind_options(widget, store, "tags")
        tags.append("日")
        assert [str(option.prompt) for option in widget.options] == ["a", "日"]
        tags.append("long")
        assert [str(option.prompt) for option in widget.options] == ["a", "日", "long"]
        store["word"] = "a value is no list"
        bind_options(widget, store, "word")
        assert len(widget.options) == 3


async def test_a_list_view_ends_up_with_what_the_list_holds() -> None:
    async with shown_form() as (app, pilot, store):
        todo = store.list("todo")
        todo.extend([{"what": "a"}, {"what": "b"}, {"what": "c"}])
        widget = app.query_one(ListView)
        bind_list(widget, store, "todo", show=lambda value: str(value["what"]))
        await pilot.pause()
        assert items(widget) == ["a", "b", "c"]
        widget.index = 2
        todo.insert(1, {"what": "new"})
        todo.append({"what": "last"})
        del todo[0]
        await pilot.pause()
        assert items(widget) == ["new", "b", "c", "last"]
        assert widget.index == 2


async def test_a_table_shows_the_members_of_a_list() -> None:
    async with shown_form() as (app, _, store):
        rows = store.list("rows")
        rows.extend([{"a": 1, "b": "x"}, {"a": 2}])
        widget = app.query_one(DataTable)
        bind_table(widget, store, "rows", columns=["a", "b"])
        assert cells(widget) == [["1", "x"], ["2", ""]]
        rows.append("no object")
        rows[1] = {"a": 3, "b": "\x1b"}
        assert cells(widget) == [["1", "x"], ["3", "␛"], ["no object", ""]]
        widget.cursor_coordinate = Coordinate(1, 1)
        rows.insert(0, {"a": 0})
        assert cells(widget)[0] == ["0", ""]
        assert widget.cursor_coordinate == Coordinate(2, 1)


async def test_a_binding_ends_with_its_widget() -> None:
    async with shown_form() as (app, pilot, store):
        widget = app.query_one(Input)
        binding = bind_input(widget, store, "title")
        await widget.remove()
        await pilot.pause()
        store.set_text("title", "later")
        assert widget.value == ""
        assert binding.is_closed
        gc.collect()


async def test_a_closed_binding_binds_no_more() -> None:
    async with shown_form() as (app, pilot, store):
        widget = app.query_one(Input)
        bind_input(widget, store, "title").close()
        store.set_text("title", "later")
        assert widget.value == ""
        widget.focus()
        await pilot.press("x")
        assert store.text("title") == "later"


async def test_a_widget_that_is_not_mounted_cannot_be_bound() -> None:
    async with shown_form() as (_, _, store):
        with pytest.raises(UsageError):
            bind_input(Input(), store, "title")
