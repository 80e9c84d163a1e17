"""The editor: two people in one document, with and without a network, and every screen of it."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem
from textual import events
from textual.color import Color as Paint
from textual.geometry import Region
from textual.theme import Theme
from textual.widgets import Input, OptionList, Static

from examples.textual_editor.app import EditorApp
from examples.textual_editor.panels import People, Status, task
from examples.textual_editor.pictures import say, write
from examples.textual_editor.relays import NoRelayError, running_relay
from examples.textual_editor.screens import HelpScreen, LeaveScreen
from examples.textual_editor.sessions import Desk, Session, guest_name, load_identity
from tests.editors import editing, person, press, rows, said, type_at_once, until
from tests.vault import vault
from walstore import Identity, WalStoreError
from walstore.relay import MemoryLog, Relay
from walstore.relay.limits import Limits
from walstore.signed.card import Card
from walstore.textual import DARK, LIGHT, Cursor

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "textual_editor"

# What somebody with healthy eyes reads without effort, and how light each colour seems to them.
CONTRAST_MIN = 4.5
WEIGHTS = (0.2126, 0.7152, 0.0722)


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
        assert "kept nowhere" in said(app, "#status")
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
            await until(pilot, lambda: "all sent  ·  lag" in said(app, "#status"))
            assert app.query_one(Status).has_class("-live")
        # How fast it was says nothing any more.
        await until(pilot, lambda: said(app, "#status") == "○ offline  ·  all sent")


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
            assert field.value == ""
            invitation = str(line.content).partition("\n")[2]
            async with editing(guest.other(invitation)) as (bo, right):
                await until(right, lambda: bo.body.text == "a")
                await press(right, "end", "b")
                await until(left, lambda: ada.store.text("body") == "ab")
                bo.query_one("#new-tag").focus()
                members = ada.screen.query_one("#members", OptionList)
                with ada._context():
                    members.focus()
                    members.highlighted = 1
                    await left.press("delete")
                await until(left, lambda: "revoked" in str(members.get_option_at_index(1).prompt))
                assert members.highlighted == 1
                # What they would write is taken by nobody, so they are told.
                await until(right, lambda: bo.body.read_only)
                await until(right, lambda: "you may not write here" in said(bo, "#status"))
                await until(right, lambda: bo.body.has_focus)
                await press(right, "c")
                assert bo.body.text == "ab"


async def test_another_document_takes_the_place_of_the_one_that_is_shown(tmp_path: Path) -> None:
    session = person("Ada", file=tmp_path / "first.walstore")
    async with editing(session) as (app, pilot):
        await pilot.press("1")
        first = app.store
        await pilot.press("f4")
        assert "This is notes/x." in "\n".join(rows(app))
        await pilot.press(*"notes", "slash", "y", "enter")
        await until(pilot, lambda: app.store is not first and not app.body.text)
        await until(pilot, lambda: app.body.has_focus)
        await pilot.press("2")
        assert (app.session.document, app.store.text("body")) == ("notes/y", "2")
        assert app.session.identity is session.identity
        await until(pilot, lambda: first.status.state == "closed")
        # Whoever comes back finds what they left, where it was.
        await pilot.press("f4", *"notes", "slash", "x", "enter")
        await until(pilot, lambda: app.body.text == "1")
        assert app.session.file == session.file
    assert len(list(tmp_path.glob("*.walstore"))) == 2


async def test_a_document_that_cannot_be_opened_leaves_the_one_that_is_shown() -> None:
    async with editing(person("Ada")) as (app, pilot):
        store = app.store
        await pilot.press("a", "f4", *"walstore-invitation", "full_stop", "x", "enter")
        await until(pilot, lambda: len(app._notifications) == 1)
        await pilot.press("b")
        assert app.store is store
        assert app.body.text == "ab"


async def test_documents_that_are_open_are_closed_with_the_desk(tmp_path: Path) -> None:
    session = person("Ada", file=tmp_path / "note.walstore")
    async with Desk() as desk:
        first = await desk.open(session)
        with pytest.raises(WalStoreError):
            await desk.open(session)
        desk.close(first)
        # What is being closed is waited for.
        second = await desk.open(session)
        assert (first.status.state, second.status.state) == ("closed", "local")
    assert second.status.state == "closed"


async def test_whoever_leaves_is_told_if_that_loses_something(tmp_path: Path) -> None:
    async with editing(person("Ada")) as (app, pilot):
        await pilot.press("x", "ctrl+q")
        assert isinstance(app.screen, LeaveScreen)
        await pilot.press("escape", "y", "ctrl+q")
        assert app.body.text == "xy"
        await pilot.press("enter")
        assert not app.is_running or app._exit
    async with editing(person("Ada")) as (app, pilot):
        await pilot.press("ctrl+q")
        assert app._exit
    async with editing(person("Ada", file=tmp_path / "note.walstore")) as (app, pilot):
        assert "on this computer" in said(app, "#status")
        await pilot.press("x", "ctrl+q")
        assert app._exit


async def test_tab_passes_over_lists_that_are_empty_and_the_title_is_not_typed_over() -> None:
    async with editing(person("Ada")) as (app, pilot):
        app.store.set_text("title", "Plans")
        await pilot.press("tab", "t", "enter", "tab", "d", "enter", "tab", "end", "!", "tab")
        assert app.body.has_focus
        assert list(app.store.list("tags")) == ["t"]
        assert [task["what"] for task in app.store.list("todo")] == ["d"]
        assert app.store.text("title") == "Plans!"
        await pilot.press("tab")
        assert app.query_one("#tags").has_focus
        await pilot.press("down", "delete", "u")
        assert app.query_one("#new-tag", Input).value == "u"


async def test_what_is_typed_right_after_tab_is_typed_where_tab_went() -> None:
    async with editing(person("Ada")) as (app, pilot):
        # As a terminal sends them that has several at once.
        for key in ("a", "tab", "b", "shift+tab", "c"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: "c" in app.body.text)
        assert app.body.text == "ac"
        assert app.query_one("#new-tag", Input).value == "b"


async def test_keys_that_come_all_at_once_act_in_their_order_beside_the_text_too() -> None:
    async with editing(person("Ada")) as (app, pilot):
        app.query_one("#new-tag").focus()
        await type_at_once(pilot, "a", "b", "enter", "c", "x", "backspace", "enter", "d")
        assert list(app.store.list("tags")) == ["ab", "c"]
        assert app.query_one("#new-tag", Input).value == "d"
        app.query_one("#title").focus()
        await type_at_once(pilot, "a", "c", "left", "b", "end", "d", "home", "delete")
        assert app.store.text("title") == "bcd"


async def test_whoever_comes_to_a_list_is_at_its_first_row() -> None:
    async with editing(person("Ada")) as (app, pilot):
        app.store.list("todo").extend([task("one"), task("two")])
        app.store.list("tags").append("a")
        await pilot.press("tab", "delete")
        assert list(app.store.list("tags")) == []
        assert app.focused is not None
        assert app.focused.id == "new-tag"
        await pilot.press("tab", "enter", "down", "delete")
        assert list(app.store.list("todo")) == [{"what": "one", "done": True}]


async def test_undo_and_redo_work_beside_the_text_too() -> None:
    async with editing(person("Ada")) as (app, pilot):
        tags, todo = app.store.list("tags"), app.store.list("todo")
        await pilot.press("x")
        app.query_one("#new-tag").focus()
        await pilot.press("a", "enter", "b", "enter", "ctrl+z")
        assert (list(tags), app.body.text) == (["a"], "x")
        await pilot.press("ctrl+y")
        assert list(tags) == ["a", "b"]
        app.query_one("#tags").focus()
        await pilot.press("delete", "delete")
        assert list(tags) == []
        await pilot.press("ctrl+z")
        assert list(tags) == ["b"]
        await pilot.press("f1", "ctrl+z", "escape")
        assert (list(tags), list(todo)) == (["b"], [])


async def test_a_small_terminal_shows_the_text_or_what_is_beside_it() -> None:
    async with editing(person("Ada"), size=(40, 10)) as (app, pilot):
        side = app.query_one("#side")
        assert (app.body.display, side.display) == (True, False)
        await pilot.press("a", "f9")
        await until(pilot, lambda: app.query_one("#new-tag").has_focus)
        assert (app.body.display, side.display) == (False, True)
        await pilot.press("t", "enter", "f9")
        await until(pilot, lambda: app.body.has_focus)
        await pilot.press("b")
        assert (app.body.text, list(app.store.list("tags"))) == ("ab", ["t"])
        await pilot.press("f1")
        for key in ("end", "f1"):
            await pilot.press(key)
        for size in ((20, 5), (10, 3), (1, 1), (200, 60)):
            await pilot.resize_terminal(*size)
        await until(pilot, lambda: side.display and app.body.display)
        await pilot.press("f9")
        await until(pilot, lambda: not side.display)


async def test_help_and_the_other_theme_are_a_key_away() -> None:
    async with editing(person("Ada")) as (app, pilot):
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape", "f8")
        assert not app.current_theme.dark
        await pilot.press("f8")
        assert app.current_theme.dark


async def test_a_message_covers_neither_the_keys_nor_how_the_store_stands() -> None:
    async with editing(person("Ada")) as (app, pilot):
        await pilot.press("f5")
        await until(pilot, lambda: any("Nobody else" in row for row in rows(app)))
        assert "Nobody" not in "".join(rows(app)[-2:])
        assert "kept nowhere" in rows(app)[-2]
        assert rows(app)[-2].rstrip() == f" {said(app, '#status')}"


@pytest.mark.parametrize("is_light", [False, True], ids=["dark", "light"])
async def test_everything_can_be_read_in_both_themes(is_light: bool) -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        person("Bo", relay.url).store() as bo,
        editing(person("Ada", relay.url)) as (app, pilot),
    ):
        if is_light:
            await pilot.press("f8")
        assert faint(app) == []
        write(bo)
        say(bo, "Bo", Cursor("body", 80, 70))
        await until(pilot, lambda: len(app.body.carets) == 1)
        await until(pilot, lambda: "all sent" in said(app, "#status"))
        await pilot.press("shift+down")
        assert faint(app) == []
        for _ in range(5):
            await pilot.press("tab")
            assert faint(app) == []
        status = app.query_one(Status)
        for look in ("-live", "-away", "-wrong"):
            status.set_classes(look)
            await pilot.pause()
            assert faint(app) == []
        for key, part in (("f1", "VerticalScroll"), ("f2", "*"), ("f3", "VerticalScroll")):
            await pilot.press(key)
            await pilot.pause()
            assert faint(app, part) == []
            await pilot.press("escape")


def faint(app: EditorApp, selector: str = "*") -> list[str]:
    """What is written on the screen in front with too little contrast to its ground."""
    region = Region.from_union([each.region for each in app.screen.query(selector)])
    found = []
    for strip in app.screen._compositor.render_strips()[region.y : region.bottom]:
        for segment in strip.crop(region.x, region.right):
            style = segment.style
            if style is None or not any(map(str.isalnum, segment.text)):
                continue
            assert style.color is not None
            assert style.bgcolor is not None
            pair = [Paint.from_rich_color(each) for each in (style.color, style.bgcolor)]
            if contrast(*pair) < CONTRAST_MIN:
                found.append(segment.text)
    return found


def contrast(one: Paint, other: Paint) -> float:
    """The contrast of two colours, from 1 to 21, as the rules for the web count it."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(color: Paint) -> float:
    """How light a colour is."""
    shares = [
        each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4
        for each in color.normalized
    ]
    return sum([share * weight for share, weight in zip(shares, WEIGHTS, strict=True)])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_a_terminal_of_few_colours_tells_a_panel_from_the_ground(theme: Theme) -> None:
    panel, ground = (
        Color.parse(color).downgrade(ColorSystem.EIGHT_BIT)
        for color in (theme.panel or "", theme.background or "")
    )
    assert panel != ground


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


def test_a_guest_has_a_name_and_always_the_same_one() -> None:
    identity = Identity.generate()
    assert guest_name(identity) == guest_name(identity)
    assert len({guest_name(Identity.generate()) for _ in range(200)}) == 16


def test_a_relay_runs_beside_the_editor_and_ends_with_it() -> None:
    with running_relay() as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(NoRelayError, match="cannot listen"), running_relay(port=port):
            pass
    with running_relay(port=port) as again:
        assert again == url


def test_the_example_is_made_of_what_is_promised() -> None:
    """Whoever copies it needs the façade and the widgets, and nothing from within."""
    imported: set[str] = set()
    for path in EXAMPLE.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported.update(name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                # What is imported by its name only when it is needed.
                assert not node.value.startswith("walstore.relay")
    inside = {name for name in imported if name.partition(".")[0] == "walstore"}
    assert inside == {"walstore", "walstore.textual"}


# ── what goes wrong with a relay ───────────────────────────────────────────────────────


@pytest.mark.parametrize(("key", "text"), [("w", "abc"), ("d", "ac")])
async def test_a_relay_that_was_put_back_is_gone_on_with(
    tmp_path: Path, key: str, text: str
) -> None:
    async with vault(tmp_path / "relay") as relay:
        ada_session = person("Ada", relay.url, tmp_path / "ada.walstore")
        bo_session = person("Bo", relay.url)
        async with editing(ada_session) as (ada, left):
            async with editing(bo_session) as (bo, right):
                await press(left, "a")
                await until(right, lambda: bo.body.text == "a")
                await press(right, "end", "b")
                await until(left, lambda: ada.body.text == "ab")
                await until(right, lambda: "all sent" in said(bo, "#status"))
                assert not ada.check_action("mend", ())
            await relay.put_back("empty")
            await until(left, lambda: "put back (F6)" in said(ada, "#status"))
            # All keys are still there.
            await until(left, lambda: "f6 Mend" in rows(ada)[-1])
            assert "f9 Side" in rows(ada)[-1]
            await press(left, "f6")
            assert "sent again" in said(ada, "#troubles")
            await press(left, "g")
            await until(left, lambda: "You go on" in said(ada, "#mended"))
            # Of two edits, the other's is stranded; he does not come back.
            await until(
                left,
                lambda: "lost edits of others that are shown here (1)" in said(ada, "#troubles"),
            )
            await press(left, key)
            await until(left, lambda: "Nothing is wrong" in said(ada, "#troubles"))
            await press(left, "escape", "end", "c")
            await until(left, lambda: "all sent" in said(ada, "#status"))
        async with editing(person("Cy", relay.url)) as (cy, pilot):
            await until(pilot, lambda: cy.body.text == text)


async def test_what_a_relay_does_not_take_is_set_aside() -> None:
    limits = Limits(frame_bytes_max=8_192)
    async with (
        Relay.serve(MemoryLog(), limits=limits) as relay,
        editing(person("Ada", relay.url)) as (ada, pilot),
    ):
        await until(pilot, lambda: "live" in said(ada, "#status"))
        ada.store["large"] = "much" * 5_000
        await until(pilot, lambda: "does not take" in said(ada, "#status"))
        await pilot.press("f6")
        assert "bytes exceed" in said(ada, "#troubles")
        await pilot.press("s")
        await until(pilot, lambda: "1 set aside" in said(ada, "#mended"))
        await pilot.press("escape", "x")
        await until(pilot, lambda: "all sent" in said(ada, "#status"))
        assert (ada.body.text, ada.store.get("large")) == ("x", None)
