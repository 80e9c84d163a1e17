"""The editor's history: every version, exactly as it was, and who wrote what of it."""

from __future__ import annotations

from pathlib import Path

from rich.color import Color as RichColor
from textual.color import Color

from examples.textual_editor.app import EditorApp
from examples.textual_editor.history import HistoryScreen, time_of, written_by
from examples.textual_editor.sessions import Session, load_identity
from tests.editors import editing, person, said, until
from walstore.relay import MemoryLog, Relay
from walstore.textual import BlameArea, author_color


def past(app: EditorApp) -> str:
    """The text of the version that is shown."""
    return app.screen.query_one(BlameArea).text


def drawn(app: EditorApp) -> list[str]:
    """The rows that it is shown in."""
    area = app.screen.query_one(BlameArea)
    return [area.render_line(y).text.rstrip() for y in range(area.size.height)]


async def test_any_version_is_shown_with_who_wrote_each_stretch_of_it() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        editing(person("Ada", relay.url)) as (ada, left),
        editing(person("Bo", relay.url)) as (bo, right),
    ):
        ada.store.set_text("body", "one two")
        await until(right, lambda: bo.body.text == "one two")
        with bo.store.batch():
            # Two places at once: what is between them stays Ada's.
            bo.store.edit_text("body", 7, 0, "!")
            bo.store.edit_text("body", 0, 0, "> ")
        await until(left, lambda: ada.body.text == "> one two!")
        ada.store.edit_text("body", 0, 10, "three")
        await until(left, lambda: len(ada.store.history()) == 3 and not ada.store.status.unsent)
        by_ada, by_bo = ada.store.identity.public_key, bo.store.identity.public_key
        written = [written_by(ada.store, "body", each.ts) for each in ada.store.history()]
        assert written[0] == [("one two", by_ada)]
        assert written[1] == [("> ", by_bo), ("one two", by_ada), ("!", by_bo)]
        assert "".join([text for text, _ in written[2]]) == "three"
        with left.app._context():
            await left.press("f2")
            assert isinstance(ada.screen, HistoryScreen)
            await until(left, lambda: "version 3 of 3" in said(ada, "#moment"))
            assert past(ada) == "three"
            await left.press("left")
            assert past(ada) == "> one two!"
            assert "by Bo" in said(ada, "#moment")
            assert said(ada, "#legend").split() == ["Bo", "Ada"]
            await left.press("home", "left")
            assert past(ada) == "one two"
            await left.press("end", "right")
            assert past(ada) == "three"
            await left.press("escape")
            assert not isinstance(ada.screen, HistoryScreen)


async def test_it_goes_back_to_before_the_document_was_opened(tmp_path: Path) -> None:
    file = tmp_path / "note.walstore"
    async with Relay.serve(MemoryLog()) as relay:
        for text in ("one", "one two"):
            session = Session("notes/x", "Ada", load_identity(file), relay=relay.url, file=file)
            async with editing(session) as (app, pilot):
                app.store.set_text("body", text)
                await until(pilot, lambda: "all sent" in said(app, "#status"))
                await until(pilot, lambda: not app.store.document.unconfirmed)
        # Without a network, too.
        session = Session("notes/x", "Ada", load_identity(file), file=file)
        async with editing(session) as (app, pilot):
            assert not app.store.history()
            await pilot.press("f2")
            await until(pilot, lambda: "version 2 of 2" in said(app, "#moment"))
            await pilot.press("left")
            assert past(app) == "one"


async def test_a_document_without_a_past_says_so() -> None:
    async with editing(person("Ada")) as (app, pilot):
        await pilot.press("f2")
        await until(pilot, lambda: "no relay" in said(app, "#moment"))
        assert "Nothing was committed yet." in said(app, "#moment")
        await pilot.press("left", "home", "end", "f2")
        assert not isinstance(app.screen, HistoryScreen)


async def test_what_others_put_where_a_text_belongs_breaks_no_history() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        editing(person("Ada", relay.url)) as (app, pilot),
    ):
        app.store.list("body").extend(["\x1b[2J", 1, {"a": []}])
        app.store.name_version("[b]\x1b")
        await until(pilot, lambda: len(app.store.history()) >= 1)
        await until(pilot, lambda: not app.store.status.unsent)
        await pilot.press("f2")
        await until(pilot, lambda: "version" in said(app, "#moment"))
        assert "\x1b" not in said(app, "#moment") + "".join(drawn(app))


async def test_what_each_wrote_stands_on_their_colour() -> None:
    async with editing(person("Ada")) as (app, pilot):
        await pilot.press("f2")
        area = app.screen.query_one(BlameArea)
        area.show_cursor = False
        area.show([("one\ntw", "a" * 64), ("o three\n", "b" * 64), ("four", "a" * 64)])
        await pilot.pause()
        by_a, by_b = (ground_of(area, "a" * 64), ground_of(area, "b" * 64))
        assert by_a != by_b
        assert grounds(area, 0) == [("one", by_a)]
        assert grounds(area, 1) == [("tw", by_a), ("o three", by_b)]
        assert grounds(area, 2) == [("four", by_a)]
        area.show([("one\ntwo three\nfour", "b" * 64)])
        assert grounds(area, 1) == [("two three", by_b)]


def ground_of(area: BlameArea, author: str) -> RichColor | None:
    """What an author's text stands on."""
    blended = area.background_colors[1].blend(Color.parse(author_color(author)), 0.4)
    return blended.rich_color


def grounds(area: BlameArea, y: int) -> list[tuple[str, RichColor | None]]:
    """The pieces of a row that stand on something else than the screen does."""
    return [
        (segment.text, segment.style.bgcolor)
        for segment in area.render_line(y)
        if segment.style is not None
        and segment.text.strip()
        and segment.style.bgcolor != area.background_colors[1].rich_color
    ]


async def test_the_view_stays_where_it_is_from_one_version_to_the_next() -> None:
    lines = [f"line {number}" for number in range(10_000)]
    async with editing(person("Ada")) as (app, pilot):
        await pilot.press("f2")
        area = app.screen.query_one(BlameArea)
        area.show([("\n".join(lines), "a" * 64)])
        assert drawn(app)[0] == "line 0"
        area.scroll_to(y=5000, animate=False, immediate=True)
        assert drawn(app)[:2] == ["line 5000", "line 5001"]
        area.show([("\n".join(["new", *lines]), "a" * 64)])
        assert drawn(app)[:2] == ["line 5000", "line 5001"]
        area.show([("\n".join(lines[2:]), "a" * 64)])
        assert drawn(app)[:2] == ["line 5000", "line 5001"]
        area.show([("short", "a" * 64)])
        assert drawn(app)[0] == "short"
        await pilot.press("x", "delete", "ctrl+z")
        assert past(app) == "short"


def test_a_time_is_shown_where_it_is_one() -> None:
    assert time_of(1_763_294_400_000).startswith("2025-11-1")
    for ts in (0, 1, 2**53 - 1):
        assert time_of(ts) == ""
