"""The inspector's screens, under a pilot: any version, both themes, and as small as 80 by 24."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.widgets import DataTable, Static, TabbedContent
from textual.widgets._tabbed_content import ContentTab

from examples.inspector_pictures import take_inspector_pictures
from examples.textual_editor.pictures import ADA as PICTURED_ADA
from examples.textual_editor.pictures import BO as PICTURED_BO
from examples.textual_editor.pictures import CLEO, self_contained
from tests.editors import rows, until
from tests.inspected import ADA, BO, KEY, inspecting, log_of_two, looking_at, writing
from walstore import ALLOW_ANY, MemorySnapshots, MemoryTransport, WalDocument
from walstore.document.ports import CheckpointTooOldError
from walstore.errors import StorageError
from walstore.inspect.overview import DocumentRow, Overview
from walstore.inspect.relay_log import LogPlace
from walstore.inspect.subject import Subject
from walstore.inspect.trust import trust_in
from walstore.textual.inspector.app import InspectorApp
from walstore.textual.inspector.document import DocumentScreen
from walstore.textual.inspector.timeline import LogView

ROOT = Path(__file__).resolve().parent.parent


def said(app: InspectorApp, selector: str) -> str:
    """What a widget of the screen in front says."""
    return str(app.screen.query_one(selector, Static).content)


def log_lines(app: InspectorApp) -> list[str]:
    """What is seen of the log."""
    view = app.screen.query_one(LogView)
    lines = [view.render_line(y).text.rstrip() for y in range(view.size.height)]
    return [line for line in lines if line]


async def test_a_document_is_shown_version_by_version() -> None:
    app = InspectorApp(subject=await looking_at(await log_of_two()))
    async with inspecting(app) as pilot:
        await until(pilot, lambda: "3 of 3" in said(app, "#slider"))
        lines = log_lines(app)
        assert len(lines) == 3
        assert all("✓ verified" in line for line in lines)
        assert ADA.public_key[:8] in lines[0]
        assert BO.public_key[:8] in lines[1]
        lanes = said(app, "#lanes").splitlines()
        assert [lane.split()[:2] for lane in lanes] == [
            [ADA.public_key[:8], "2"],
            [BO.public_key[:8], "1"],
        ]
        await pilot.press("2")
        await until(pilot, lambda: "Meet at the old lake." in said(app, "#show-document"))
        await pilot.press("home")
        await until(pilot, lambda: "Meet at the lake." in said(app, "#show-document"))
        assert "1 of 3" in said(app, "#slider")
        assert "first draft" in said(app, "#moment")
        await pilot.press("left", "left", "right")
        await until(pilot, lambda: "2 of 3" in said(app, "#slider"))


async def test_each_pane_is_called_by_its_key() -> None:
    app = InspectorApp(subject=await looking_at(await log_of_two()))
    async with inspecting(app) as pilot:
        tabs = app.screen.query_one(TabbedContent)
        for tab in list(app.screen.query(ContentTab)):
            key = tab.label_text.partition(" ")[0]
            await pilot.press(key)
            assert tabs.active_pane is not None
            assert tabs.get_tab(tabs.active_pane) is tab
            assert tab.label_text in "".join(rows(app))


async def test_two_versions_are_compared() -> None:
    app = InspectorApp(subject=await looking_at(await log_of_two()))
    async with inspecting(app) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: "from version 2" in said(app, "#show-diff"))
        assert "A picnic" in said(app, "#show-diff")
        assert "old" not in said(app, "#show-diff")
        await pilot.press("home", "m", "end")
        await until(pilot, lambda: "from version 1 to version 3" in said(app, "#show-diff"))
        assert "Meet at the old lake." in said(app, "#show-diff")
        assert "◆" in said(app, "#slider")
        await pilot.press("home", "m")
        await until(pilot, lambda: "from the beginning" in said(app, "#show-diff"))


async def test_blame_names_the_authors_of_each_name() -> None:
    app = InspectorApp(subject=await looking_at(await log_of_two()))
    async with inspecting(app) as pilot:
        await pilot.press("4")
        await until(pilot, lambda: said(app, "#show-blame") != "")
        seen = {said(app, "#show-blame").split()[0]: said(app, "#show-blame")}
        for _ in range(2):
            before = said(app, "#show-blame")
            await pilot.press("n")
            await until(pilot, lambda before=before: said(app, "#show-blame") != before)  # type: ignore[misc]
            seen[said(app, "#show-blame").split()[0]] = said(app, "#show-blame")
        assert set(seen) == {"body", "tags", "title"}
        for who in (ADA, BO):
            assert who.public_key[:8] in seen["body"]
        assert BO.public_key[:8] not in seen["title"]


async def test_what_is_missing_is_told() -> None:
    log = await log_of_two()
    del log._logs[KEY][0]
    app = InspectorApp(subject=await looking_at(log))
    async with inspecting(app) as pilot:
        await pilot.press("5")
        await until(pilot, lambda: "are missing" in said(app, "#show-health"))
        assert "believed" in said(app, "#show-health")


async def test_what_comes_is_followed_unless_one_has_gone_back() -> None:
    log = await log_of_two()
    async with log.follow(KEY, 0) as follow:
        place = LogPlace("memory", log, follow=follow)
        trust = await trust_in(place, KEY, identity=ADA)
        app = InspectorApp(subject=await Subject(KEY, place, trust, identity=ADA).open())
        bo = await writing(log, BO)
        async with inspecting(app) as pilot:
            bo.set_field("title", "Lake")
            await bo.commit()
            await until(pilot, lambda: "4 of 4" in said(app, "#slider"))
            await pilot.press("left")
            bo.set_field("title", "Old lake")
            await bo.commit()
            await until(pilot, lambda: "3 of 5" in said(app, "#slider"))


async def test_what_others_wrote_commands_nothing() -> None:
    log = MemoryTransport()
    eve = await writing(log, BO)
    eve.set_field("[red]\x1b[2J", "[b]bold[/b]\x07")
    eve.insert_text("body", 0, "one\x1b[31m[/] two")
    await eve.commit(message="\x1b]0;title\x07[bold]")
    app = InspectorApp(subject=await looking_at(log))
    async with inspecting(app) as pilot:
        for pane, name in (("2", "document"), ("3", "diff"), ("4", "blame"), ("5", "health")):
            await pilot.press(pane)
            await until(pilot, lambda name=name: said(app, f"#show-{name}") != "")  # type: ignore[misc]
            assert "\x1b" not in said(app, f"#show-{name}")
        assert "\x1b" not in said(app, "#moment")
        assert "\x1b" not in app.export_screenshot()


async def test_an_empty_log_breaks_nothing() -> None:
    app = InspectorApp(subject=await looking_at(MemoryTransport()))
    async with inspecting(app) as pilot:
        for key in ("2", "3", "4", "5", "left", "right", "m", "n", "home"):
            await pilot.press(key)
        assert "0 of 0" in said(app, "#slider")
        assert "Nothing" in said(app, "#moment")


async def test_where_only_a_snapshot_is_left_the_document_is_shown() -> None:
    log, snapshots = await log_of_two(), MemorySnapshots()
    ada = WalDocument(
        KEY,
        transport=log,
        snapshot_store=snapshots,
        identity=ADA,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
    )
    await ada.open()
    await ada.snapshot()
    place = Pruned("memory", log, snapshots=snapshots)
    trust = await trust_in(place, KEY, identity=ADA)
    app = InspectorApp(subject=await Subject(KEY, place, trust, identity=ADA).open())
    async with inspecting(app) as pilot:
        assert "Only the snapshot is left" in said(app, "#moment")
        await pilot.press("2")
        await until(pilot, lambda: "Meet at the old lake." in said(app, "#show-document"))
        await pilot.press("4")
        await until(pilot, lambda: BO.public_key[:8] in said(app, "#show-blame"))


class Pruned(LogPlace):
    """A log whose elements are all gone."""

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """Nothing, or word of what is gone."""
        if checkpoint < 3:
            raise CheckpointTooOldError(3)
        return []


async def test_a_long_log_is_drawn_only_where_it_is_seen() -> None:
    log = MemoryTransport()
    ada = await writing(log, ADA)
    for number in range(400):
        ada.set_field("title", number)
        await ada.commit()
    app = InspectorApp(subject=await looking_at(log))
    async with inspecting(app) as pilot:
        await until(pilot, lambda: "400 of 400" in said(app, "#slider"))
        view = app.screen.query_one(LogView)
        assert any("ts 400 " in line for line in log_lines(app))
        await pilot.press("home")
        await until(pilot, lambda: view.scroll_offset.y == 0)
        assert "ts 1 " in log_lines(app)[0]


@pytest.mark.parametrize(
    ("size", "is_light"), [((80, 24), False), ((60, 16), True), ((140, 50), False)]
)
async def test_it_fits_small_and_large_screens_in_both_themes(
    size: tuple[int, int], is_light: bool
) -> None:
    app = InspectorApp(subject=await looking_at(await log_of_two()), is_light=is_light)
    async with inspecting(app, size) as pilot:
        assert app.current_theme.dark is not is_light
        await until(pilot, lambda: len(log_lines(app)) == 3)
        for widget in ("#title", "#slider", "#lanes", "#moment", "#log"):
            region = app.screen.query_one(widget).region
            assert region.width <= size[0]
            assert region.bottom <= size[1]
            assert region.height > 0
        slider = said(app, "#slider")
        assert len(slider) <= size[0] - 2
        await pilot.press("t")
        assert app.current_theme.dark is is_light


# ── many documents ─────────────────────────────────────────────────────────────────────


async def test_a_document_is_chosen_among_many_and_left_again() -> None:
    opened: list[str] = []
    log = await log_of_two()

    async def look() -> Overview:
        rows = [DocumentRow(key, 3, 900, 3, 0, 0) for key in ("notes/\x1b[2J", KEY)]
        return Overview("relay", rows, 5, ["changes feed: from seq 1 to 3"])

    @asynccontextmanager
    async def opener(key: str) -> AsyncIterator[Subject]:
        if key != KEY:
            raise StorageError("it cannot be read")
        opened.append(key)
        yield await looking_at(log)
        opened.remove(key)

    app = InspectorApp(look=look, opener=opener)
    async with inspecting(app) as pilot:
        await until(pilot, lambda: app.screen.query_one(DataTable).row_count == 2)
        assert "5 documents, 3 of them not shown" in said(app, "#place")
        await pilot.press("enter")
        await until(pilot, lambda: bool(app._notifications))
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, DocumentScreen))
        assert opened == [KEY]
        await until(pilot, lambda: app.screen.query_one(TabbedContent).active == "tab-log")
        await pilot.press("escape")
        await until(pilot, lambda: not opened)
        assert not isinstance(app.screen, DocumentScreen)


# ── pictures ───────────────────────────────────────────────────────────────────────────


async def test_the_documentation_shows_the_inspector_as_it_is(tmp_path: Path) -> None:
    await take_inspector_pictures(tmp_path, (PICTURED_ADA, PICTURED_BO, CLEO), self_contained)
    for name in ("inspector-dark.svg", "inspector-light.svg"):
        taken, kept = tmp_path / name, ROOT / "docs" / name
        assert taken.read_text() == kept.read_text(), "make screenshot takes them anew"
    assert "Cleo" in (tmp_path / "inspector-dark.svg").read_text()
