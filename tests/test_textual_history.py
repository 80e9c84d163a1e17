"""The editor's history: every version, exactly as it was, and who wrote what of it."""

from __future__ import annotations

from pathlib import Path

from textual.widgets import Static

from examples.textual_editor.history import HistoryScreen, time_of, written_by
from examples.textual_editor.sessions import Session, load_identity
from tests.editors import editing, person, said, until
from walstore.relay import MemoryLog, Relay


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
            assert said(ada, "#history") == "three"
            await left.press("left")
            assert said(ada, "#history") == "> one two!"
            assert "by Bo" in said(ada, "#moment")
            assert said(ada, "#legend").split() == ["Bo", "Ada"]
            await left.press("home", "left")
            assert said(ada, "#history") == "one two"
            await left.press("end", "right")
            assert said(ada, "#history") == "three"
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
            assert said(app, "#history") == "one"


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
        assert "\x1b" not in said(app, "#history") + said(app, "#moment")
        assert isinstance(app.screen.query_one("#history"), Static)


def test_a_time_is_shown_where_it_is_one() -> None:
    assert time_of(1_763_294_400_000).startswith("2025-11-1")
    for ts in (0, 1, 2**53 - 1):
        assert time_of(ts) == ""
