"""What a terminal gets: all that has changed on the screen, and as little else as possible."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise, product
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len, split_graphemes
from textual import events, on
from textual._wrap import compute_wrap_offsets
from textual.app import App, ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.document._document import Selection
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import ModalScreen, Screen
from textual.scrollbar import ScrollBarRender
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from tests.counting import calls_of
from walstore import ALLOW_ANY, Identity, MemoryTransport
from walstore.store.store import WalStore
from walstore.textual import CollabTextArea, RemoteCaret, ThriftyScreen
from walstore.textual.breaking import breaks
from walstore.textual.steady_scrollbar import SteadyScrollBar

LINES = "\n".join([f"line {number} (of some)" for number in range(120)])

# A cell of a terminal: a character, and the codes of its style.
Cell = tuple[str, str]

_TOKENS = re.compile(
    r"\x1b\[(?P<y>\d+);(?P<x>\d+)H|\x1b\[(?P<style>[\d;]*)m|\x1b\[[?>=\d;$]*[a-zA-Z]|(?P<text>[^\x1b])"
)


class Paper:
    """What a terminal shows that was written to."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], Cell] = {}

    def write(self, written: str) -> None:
        x = y = 0
        style = ""
        for token in _TOKENS.finditer(written):
            if token["y"]:
                x, y = int(token["x"]) - 1, int(token["y"]) - 1
            elif token["style"] is not None:
                style = token["style"]
            elif token["text"] and token["text"] != "\n":
                self.cells[x, y] = token["text"], style
                x += 1
                for _ in range(1, cell_len(token["text"])):
                    self.cells.pop((x, y), None)
                    x += 1


class Terminal(HeadlessDriver):
    """A terminal that remembers what was written to it."""

    paper: ClassVar[Paper]
    written: ClassVar[list[str]]

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.written.append(data)
        self.paper.write(data)


class Side(Static):
    """Something beside the text, which counts how often it is asked what it shows."""

    asked = 0

    def render_lines(self, crop: Region) -> list[Strip]:
        self.asked += 1
        return super().render_lines(crop)


class Page(App[None]):
    """A text area between other things."""

    CSS = "#area { padding: 0 1; } Static { width: 6; height: 1fr; }"

    def __init__(
        self,
        store: WalStore,
        *,
        soft_wrap: bool = True,
        numbers: bool = False,
        is_thrifty: bool = True,
    ) -> None:
        super().__init__()
        self.is_thrifty = is_thrifty
        self.driver_class = Terminal
        self.area = CollabTextArea(
            store, "body", id="area", soft_wrap=soft_wrap, show_line_numbers=numbers
        )
        self.area.cursor_blink = False

    def get_default_screen(self) -> Screen[None]:
        return ThriftyScreen() if self.is_thrifty else Screen()

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield self.area
            yield Side("side")


@asynccontextmanager
async def opened(transport: MemoryTransport | None = None) -> AsyncIterator[WalStore]:
    async with WalStore.open(
        "doc",
        identity=Identity.generate(),
        relay=transport,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
        autocommit_ms=None,
    ) as store:
        yield store


@asynccontextmanager
async def shown(
    text: str = LINES,
    *,
    soft_wrap: bool = True,
    numbers: bool = False,
    is_thrifty: bool = True,
) -> AsyncIterator[tuple[Page, WalStore, Pilot[None]]]:
    Terminal.paper, Terminal.written = Paper(), []
    async with opened() as store:
        store.set_text("body", text)
        app = Page(store, soft_wrap=soft_wrap, numbers=numbers, is_thrifty=is_thrifty)
        async with app.run_test(headless=False, size=(40, 12)) as pilot:
            await pilot.pause()
            yield app, store, pilot


async def framed(app: Page) -> None:
    """Wait until all that was done is drawn; what scrolls after a frame has one more."""
    for _ in range(3):
        for pump in (app, app.area, app.screen):
            done = asyncio.Event()
            pump.call_later(done.set)
            await done.wait()
        app.screen._on_timer_update()


async def drawn_anew(app: Page) -> dict[tuple[int, int], Cell]:
    """What a terminal shows to which everything is written once more, as if for the first time."""
    before, Terminal.paper = Terminal.paper, Paper()
    app.area._line_cache.clear()
    for widget in app.screen.walk_children(Widget, with_self=True):
        widget._styles_cache.clear()
    app.screen.refresh(layout=True)
    await framed(app)
    anew, Terminal.paper = Terminal.paper.cells, before
    return anew


def somebody(area: CollabTextArea, random: Random) -> tuple[RemoteCaret, ...]:
    places = [area.document.location(random.randrange(400)) for _ in range(4)]
    return (
        RemoteCaret("a", "Ada", "#be123c", places[0], places[0]),
        RemoteCaret("b", "Bo", "#0e7490", places[1], places[2]),
    )


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("soft_wrap", [True, False])
@pytest.mark.parametrize("is_thrifty", [True, False])
async def test_a_terminal_shows_what_it_would_show_if_all_were_drawn_anew(
    is_thrifty: bool, soft_wrap: bool, numbers: bool
) -> None:
    async with shown(soft_wrap=soft_wrap, numbers=numbers, is_thrifty=is_thrifty) as (
        app,
        store,
        _,
    ):
        random = Random(2)
        for step in range(40):
            disturb(app, store, random)
            await framed(app)
            assert Terminal.paper.cells == await drawn_anew(app), f"after step {step}"


def disturb(app: Page, store: WalStore, random: Random) -> None:
    """Do one of all the things that change what is shown."""
    area = app.area
    match random.randrange(8):
        case 0 | 1:
            size = len(store.text("body"))
            position = random.randrange(min(size, 500))
            removed = min(random.choice((0, 0, 1, 30)), size - position)
            store.edit_text(
                "body", position, removed, random.choice(("x", "\n", "日\n", "wo " * 20))
            )
        case 2 | 3:
            press(area, *random.choices(("a", "enter", "backspace", "("), k=3))
        case 4:
            press(area, *random.choices(("up", "down", "pagedown", "end", "shift+up"), k=3))
        case 5:
            area.draw_carets(somebody(area, random))
        case 6:
            area.scroll_to(y=random.randrange(60), animate=False)
        case _:
            start, end = [area.document.location(random.randrange(300)) for _ in range(2)]
            area.selection = random.choice((Selection(start, end), Selection.cursor(end)))


def press(area: CollabTextArea, *keys: str) -> None:
    for key in keys:
        area.post_message(events.Key(key, key if len(key) == 1 else None))


async def test_a_look_and_a_size_that_change_are_drawn() -> None:
    async with shown() as (app, _, pilot):
        for theme in ("textual-light", "nord"):
            app.theme = theme
            await pilot.pause()
            assert Terminal.paper.cells == await drawn_anew(app)
        app.area.styles.opacity = 0.5
        await pilot.pause()
        anew = await drawn_anew(app)
        # Textual leaves the scroll bar as it was.
        bar = app.area.vertical_scrollbar.region
        for (x, y), cell in anew.items():
            assert bar.contains(x, y) or Terminal.paper.cells[x, y] == cell
        await pilot.resize_terminal(30, 9)
        await pilot.pause()
        anew = await drawn_anew(app)
        assert {place: Terminal.paper.cells[place] for place in anew} == anew


async def test_what_others_write_above_the_view_is_not_drawn() -> None:
    async with shown() as (app, store, pilot):
        app.area.move_cursor((60, 0), center=True)
        await pilot.pause()
        Terminal.written.clear()
        store.edit_text("body", 0, 0, "above\n")
        await pilot.pause()
        assert app.area.cursor_location == (61, 0)
        assert sum(map(len, Terminal.written)) < 100


async def test_of_lines_that_are_joined_only_what_differs_is_drawn() -> None:
    async with shown("\n".join(["the same"] * 100)) as (_, store, pilot):
        Terminal.written.clear()
        store.edit_text("body", 0, len("the same\n"), "")
        await pilot.pause()
        assert "the same" not in "".join(Terminal.written)


# ── the screen ─────────────────────────────────────────────────────────────────────────


class Layers(App[None]):
    """Widgets beside, before and partly outside of one another."""

    CSS = """
    Screen { layers: below above; }
    #above { layer: above; offset: 12 3; width: 14; height: 4; background: red 50%; }
    #out { layer: above; offset: -3 6; width: 9; height: 9; border: round green; }
    #box { height: 5; width: 30; overflow: auto; }
    #long { width: 50; height: 20; }
    """

    def __init__(self, screen: type[Screen[None]]) -> None:
        super().__init__()
        self.driver_class = Terminal
        self._screen_type = screen

    def get_default_screen(self) -> Screen[None]:
        return self._screen_type()

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box"):
            yield Static("0123456789" * 100, id="long")
        yield Static("above", id="above")
        yield Static("partly out of view", id="out")


async def steps_of(screen: type[Screen[None]]) -> list[dict[tuple[int, int], Cell]]:
    """What a terminal shows while an app changes."""
    Terminal.paper, Terminal.written = Paper(), []
    shown_by_step = []
    app = Layers(screen)
    async with app.run_test(headless=False, size=(40, 12)) as pilot:
        for step in range(6):
            app.query_one("#above", Static).update(f"above {step}")
            app.query_one("#out", Static).styles.height = 4 + step
            app.query_one("#box").scroll_to(y=step, x=2 * step, animate=False)
            app.query_one("#long", Static).update(f"{step}-" * 300)
            if step == 4:
                await app.push_screen(ModalScreen())
            await pilot.pause()
            shown_by_step.append(dict(Terminal.paper.cells))
    return shown_by_step


async def test_a_thrifty_screen_shows_what_any_screen_shows() -> None:
    thrifty, ordinary = await steps_of(ThriftyScreen), await steps_of(Screen)
    assert thrifty == ordinary
    assert len({str(each) for each in thrifty}) == 6


async def test_a_key_asks_nothing_of_the_widgets_that_it_does_not_change() -> None:
    async with shown() as (app, _, pilot):
        side = app.query_one(Side)
        before = side.asked
        await pilot.press("x")
        await pilot.pause()
        assert side.asked == before > 0


# ── what is said ───────────────────────────────────────────────────────────────────────


class Listening(Page):
    """Hears of some things that a text area says."""

    def __init__(self, store: WalStore) -> None:
        super().__init__(store)
        self.heard: list[str] = []

    def on_text_area_changed(self) -> None:
        self.heard.append("changed")

    @on(CollabTextArea.CaretsMoved)
    def hear(self) -> None:
        self.heard.append("carets")


async def test_what_somebody_hears_is_said_and_nothing_else() -> None:
    Terminal.paper, Terminal.written = Paper(), []
    async with opened() as store:
        app, said = Listening(store), list[str]()
        async with app.run_test(
            headless=False, message_hook=lambda message: said.append(type(message).__name__)
        ) as pilot:
            await pilot.press("x")
            app.area.post_message(CollabTextArea.CaretsMoved(app.area, ()))
            await pilot.pause()
            assert app.heard == ["changed", "carets"]
            assert "SelectionChanged" not in said


# ── the scroll bar ─────────────────────────────────────────────────────────────────────


async def test_a_scroll_bar_that_looks_the_same_is_not_drawn_again() -> None:
    async with shown("\n" * 9_000) as (app, _, pilot):
        bar = app.area.vertical_scrollbar
        for location, is_moved in (((0, 0), False), (app.area.document.end, True)):
            app.area.move_cursor(location)
            Terminal.written.clear()
            await pilot.press("enter")
            await pilot.pause()
            paper = Paper()
            paper.write("".join(Terminal.written))
            assert any(x == bar.region.x for x, _ in paper.cells) == is_moved
            assert bar.window_virtual_size == app.area.document.line_count
        assert Terminal.paper.cells == await drawn_anew(app)


async def test_scroll_bars_that_are_drawn_differently_count_as_different() -> None:
    async with shown() as (app, _, _):
        bar = app.area.vertical_scrollbar
        assert isinstance(bar, SteadyScrollBar)
        drawn: dict[object, object] = {}
        for virtual, position in product((0, 5, 11, 12, 13, 40, 300, 5_000), range(0, 5_000, 7)):
            if position > max(virtual - bar.window_size, 0):
                continue
            bar._reactive_window_virtual_size = virtual  # type: ignore[attr-defined]
            bar._reactive_position = position  # type: ignore[attr-defined]
            look = ScrollBarRender.render_bar(
                size=bar.size.height,
                virtual_size=virtual,
                window_size=bar.window_size if bar.window_size < virtual else 0,
                position=position,
            )
            assert drawn.setdefault(bar._look(), look.segments) == look.segments


# ── lines ──────────────────────────────────────────────────────────────────────────────

FAMILY = "👩\u200d👩\u200d👧"
PIECES = st.sampled_from(["a", "b", " ", "  ", "ä", "\xa0", "日", "e\u0301", "👍🏽", FAMILY])


@given(st.text("abc  \xa0ä—Ж", max_size=80), st.integers(1, 14))
def test_a_line_breaks_where_textual_would_break_it(line: str, width: int) -> None:
    assert breaks(line, width=width, tab_width=4) == compute_wrap_offsets(line, width, tab_size=4)


@given(st.text("ab  日本", max_size=80), st.integers(2, 14))
def test_a_line_of_wide_characters_does_so_too(line: str, width: int) -> None:
    assert breaks(line, width=width, tab_width=4) == compute_wrap_offsets(line, width, tab_size=4)


@given(st.lists(PIECES, max_size=60).map("".join), st.integers(1, 14))
def test_what_is_seen_as_one_character_does_not_break_and_fits_its_row(
    line: str, width: int
) -> None:
    columns = [0, *breaks(line, width=width, tab_width=4), len(line)]
    rows = [line[start:stop] for start, stop in pairwise(columns)]
    assert all(rows) or not line
    assert sum([row.count(FAMILY) for row in rows]) == line.count(FAMILY)
    assert sum([row.count("e\u0301") for row in rows]) == line.count("e\u0301")
    for row in rows:
        assert cell_len(row) <= width or len(split_graphemes(row)[0]) == 1


@pytest.mark.parametrize("text", ["word " * 20_000, "wörd " * 20_000, "日本語の文" * 20_000])
def test_a_very_long_line_costs_its_rows_and_not_its_words(text: str) -> None:
    rows: list[int] = []
    # One call for the width of a character is made where characters have different ones.
    characters = 0 if text.startswith("w") else len(text)
    calls = calls_of(lambda: rows.extend(breaks(text, width=80, tab_width=4)))
    assert len(rows) > 1_000
    assert calls < 8 * len(rows) + characters + 100


# ── pages of the log ───────────────────────────────────────────────────────────────────


@asynccontextmanager
async def two(text: str) -> AsyncIterator[tuple[WalStore, WalStore]]:
    transport = MemoryTransport()
    async with opened(transport) as here, opened(transport) as there:
        here.set_text("body", text)
        await here.commit()
        await there.pull()
        yield here, there


def edits(random: Random, size: int) -> Iterator[tuple[int, int, str]]:
    for _ in range(random.randrange(2, 6)):
        position = random.randrange(size - 200)
        yield position, random.choice((0, 0, 1, 7)), random.choice(("", "x", "\n", "two\nlines"))


async def test_what_comes_at_once_is_shown_without_comparing_the_whole_text() -> None:
    async with two(LINES) as (here, there):
        Terminal.paper, Terminal.written = Paper(), []
        app, random = Page(here), Random(3)
        async with app.run_test(headless=False, size=(40, 12)) as pilot:
            area = app.area
            area.move_cursor((60, 4), center=True)
            await pilot.pause()
            row = area.cursor_screen_offset.y
            for _ in range(25):
                at = area.document.position(area.cursor_location)
                there_at = at
                for position, removed, inserted in edits(random, there_at):
                    there.edit_text("body", position, removed, inserted)
                    at += len(inserted) - removed
                    await there.commit()
                read = area._read_version
                await here.pull()
                assert area.text == here.text("body") == there.text("body")
                assert area._read_version == read
                assert area.document.position(area.cursor_location) == at
                await pilot.pause()
                assert area.cursor_screen_offset.y == row
            assert Terminal.paper.cells == await drawn_anew(app)


async def test_an_answer_in_the_middle_of_what_comes_is_where_it_was_meant() -> None:
    async with two("one two three") as (here, there):
        app = Page(here)
        Terminal.paper, Terminal.written = Paper(), []
        async with app.run_test(headless=False, size=(40, 12)):
            is_answered = False

            def answer(_: object) -> None:
                nonlocal is_answered
                if not is_answered:
                    is_answered = True
                    app.area.insert("!", (0, 7), maintain_selection_offset=False)

            for _ in range(3):
                there.edit_text("body", 0, 0, "zero ")
                await there.commit()
            here.subscribe("body", answer)
            await here.pull()
            assert here.text("body") == "zero zero zero one two! three" == app.area.text
