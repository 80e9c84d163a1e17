"""The editor: two people in one document, with and without a network, and every screen of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from examples.textual_editor.app import EditorApp
from examples.textual_editor.panels import People, Status
from examples.textual_editor.screens import HelpScreen, HistoryScreen, written_by
from examples.textual_editor.sessions import Session, load_identity
from walstore import Identity
from walstore.relay import MemoryLog, Relay
from walstore.signed.card import Card

ROOT = Path(__file__).resolve().parent.parent


@asynccontextmanager
async def editing(session: Session) -> AsyncIterator[tuple[EditorApp, Pilot[Session]]]:
    async with session.store() as store:
        app = EditorApp(session, store)
        async with app.run_test(size=(80, 24)) as pilot:
            yield app, pilot


async def press(pilot: Pilot[Session], *keys: str) -> None:
    with pilot.app._context():
        await pilot.press(*keys)


async def until(pilot: Pilot[Session], condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await pilot.pause(0.01)


def said(app: App[Session], selector: str) -> str:
    return str(app.query_one(selector, Static).content)


def person(name: str, relay: str | None = None, file: Path | None = None) -> Session:
    return Session("notes/x", name, Identity.generate(), relay=relay, file=file)


async def test_alone_and_without_a_network_everything_can_be_written() -> None:
    async with editing(person("Ada")) as (app, pilot):
        await pilot.press("h", "i", "enter", "!")
        app.query_one("#title").focus()
        await pilot.press("T")
        app.query_one("#new-tag").focus()
        await pilot.press("a", "enter", "b", "enter")
        app.query_one("#new-task").focus()
        await pilot.press("d", "o", "enter")
        store = app.store
        assert (store.text("body"), store.text("title")) == ("hi\n!", "T")
        assert list(store.list("tags")) == ["a", "b"]
        assert list(store.list("todo")) == [{"what": "do", "done": False}]
        assert "on this computer" in said(app, "#status")
        app.query_one("#todo").focus()
        await pilot.press("down", "enter")
        assert store.list("todo")[0]["done"] is True
        await pilot.press("delete")
        assert list(store.list("todo")) == []


async def test_what_was_written_is_there_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "note.walstore"
    for expected in ("", "a", "aa"):
        session = Session("notes/x", "Ada", load_identity(file), file=file)
        async with editing(session) as (app, pilot):
            assert app.body.text == expected
            await pilot.press("a")


async def test_two_people_see_what_the_other_writes_and_where() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        editing(person("Ada", relay.url)) as (ada, left),
        editing(person("Bo", relay.url)) as (bo, right),
    ):
        await press(left, "h", "e", "y")
        await until(right, lambda: bo.body.text == "hey")
        await until(right, lambda: len(bo.body.carets) == 1)
        assert bo.body.carets[0].name == "Ada"
        assert bo.body.carets[0].end == (0, 3)
        assert "Ada" in str(bo.query_one(People).content)
        await asyncio.gather(press(left, "1", "2"), press(right, "3", "4"))
        await until(right, lambda: len(bo.body.text) == 7 and bo.body.text == ada.body.text)
        await until(left, lambda: "all sent" in said(ada, "#status"))
        with right.app._context():
            bo.action_follow()
        assert bo.body.following is not None
        assert "followed" in str(bo.query_one(People).content)


async def test_it_starts_without_a_relay_and_comes_live_when_there_is_one(tmp_path: Path) -> None:
    async with Relay.serve(MemoryLog()) as relay:
        url = relay.url
    session = person("Ada", file=tmp_path / "note.walstore")
    async with editing(session) as (app, pilot):
        await pilot.press("x")
    session = replace(session, relay=url)
    async with editing(session) as (app, pilot):
        assert app.body.text == "x"
        await pilot.press("y")
        await until(pilot, lambda: "offline" in said(app, "#status"))
        assert "unsent" in said(app, "#status")
        async with Relay.serve(MemoryLog(), port=int(url.rpartition(":")[2])):
            await until(pilot, lambda: "live" in said(app, "#status"))
            await until(pilot, lambda: "all sent" in said(app, "#status"))
            assert app.query_one(Status).has_class("-live")


async def test_the_history_shows_any_version_and_who_wrote_it() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        editing(person("Ada", relay.url)) as (ada, left),
        editing(person("Bo", relay.url)) as (bo, right),
    ):
        ada.store.set_text("body", "one")
        await until(right, lambda: bo.body.text == "one")
        bo.store.edit_text("body", 3, 0, "two")
        await until(left, lambda: ada.body.text == "onetwo" and len(ada.store.history()) == 2)
        authors = ada.store.identity.public_key, bo.store.identity.public_key
        assert written_by(ada.store, "body", 1) == [("one", authors[0]), ("two", authors[1])]
        assert written_by(ada.store, "body", 0) == [("one", authors[0])]
        with left.app._context():
            ada.action_history()
            await left.pause()
            assert isinstance(ada.screen, HistoryScreen)
            history = ada.screen.query_one("#history", Static)
            assert str(history.content) == "onetwo"
            await left.press("left")
            assert str(history.content) == "one"
            await left.press("end")
            assert str(history.content) == "onetwo"
            await left.press("escape")
            assert not isinstance(ada.screen, HistoryScreen)


async def test_a_document_is_shared_by_invitation_and_revoked() -> None:
    async with Relay.serve(MemoryLog()) as relay:
        owner = Session("notes/x", "Ada", Identity.generate(), relay=relay.url, is_owned=True)
        guest = person("Bo", relay.url)
        async with editing(owner) as (ada, left):
            await left.press("a")
            await until(left, lambda: "all sent" in said(ada, "#status"))
            await left.press("f3")
            field = ada.screen.query_one(Input)
            field.value = Card.of(guest.identity).line
            field.focus()
            await left.press("enter")
            line = ada.screen.query_one("#invitation", Static)
            await until(left, lambda: "Hand this" in str(line.content))
            invitation = str(line.content).partition("\n")[2]
            async with editing(guest.other(invitation)) as (bo, right):
                await until(right, lambda: bo.body.text == "a")
                await press(right, "end", "b")
                await until(left, lambda: ada.store.text("body") == "ab")
            members = ada.screen.query_one("#members", OptionList)
            members.focus()
            members.highlighted = 1
            await left.press("delete")
            await until(left, lambda: "revoked" in str(members.get_option_at_index(1).prompt))


async def test_another_document_can_be_opened() -> None:
    session = person("Ada")
    async with editing(session) as (app, pilot):
        await pilot.press("f4")
        await pilot.press(*"notes", "slash", "y", "enter")
        await pilot.pause()
        assert app.return_value is not None
        assert app.return_value.document == "notes/y"
        assert app.return_value.identity is session.identity


async def test_help_and_the_other_theme_are_a_key_away() -> None:
    async with editing(person("Ada")) as (app, pilot):
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape", "f8")
        assert app.theme == "textual-light"
        await pilot.press("f8")
        assert app.theme == "textual-dark"


async def test_what_others_put_where_it_does_not_belong_breaks_nothing() -> None:
    async with editing(person("Ada")) as (app, pilot):
        store = app.store
        store.list("todo").extend([1, None, {"what": "\x1b[2J", "done": "yes"}, ["x"]])
        store.list("tags").append({"not": "[b]a tag"})
        store["title"] = {"a": 1}
        await pilot.pause()
        assert app.query_one("#title", Input).value == ""
        todo = app.query_one("#todo", OptionList)
        assert todo.option_count == 4
        assert "\x1b" not in str(todo.get_option_at_index(2).prompt)
        todo.focus()
        await pilot.press("down", "enter", "delete")
        assert todo.option_count == 3


def test_the_scripted_session_of_two_processes_converges(tmp_path: Path) -> None:
    played = subprocess.run(
        [sys.executable, "-m", "examples.textual_editor", "--script", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert "Both have the same document." in played.stdout
    assert "I come by train,\\nplatform 2." in played.stdout
    pictures = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert pictures == ["ada-dark.svg", "ada-light.svg", "bo.svg", "history.svg"]
