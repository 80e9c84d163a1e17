"""The text area: what is typed reaches the store, what others edit shows, and no eye jumps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events
from textual.app import App, ComposeResult
from textual.document._document import Document, Selection
from textual.document._wrapped_document import WrappedDocument
from textual.geometry import Offset
from textual.pilot import Pilot

from tests.counting import calls_of
from walstore import ALLOW_ANY, Identity, MemoryTransport
from walstore.crdt import WalCrdt
from walstore.document.ports import Body
from walstore.errors import WalStoreError
from walstore.net.memory_presence import MemoryPresences
from walstore.store.change import Splices
from walstore.store.presence import Cursor, Person, Presence
from walstore.store.store import WalStore
from walstore.textual import CollabTextArea
from walstore.textual.carets import Presences
from walstore.textual.counts import Counts
from walstore.textual.text_document import TextDocument
from walstore.textual.wrapping import Wrapping, next_column, previous_column

CHARACTERS = "ab \n\t\r\u2028日é́👩\u200d👩🏽\x1b"
FAMILY = "👩\u200d👩\u200d👧"
CLUSTERS = [
    "a",
    "b",
    " ",
    "\t",
    "\r",
    "\x1b",
    "\u2028",
    "日",
    "é",
    "e\u0301",
    "👍",
    "👍🏽",
    "❤\ufe0f",
    FAMILY,
]


class Editor(App[None]):
    """One text area, and nothing else."""

    def __init__(
        self, store: WalStore, presence: Presences | None = None, *, soft_wrap: bool = True
    ) -> None:
        super().__init__()
        self.area = CollabTextArea(store, "body", presence=presence, soft_wrap=soft_wrap)
        self.refusals: list[CollabTextArea.Refused] = []

    def compose(self) -> ComposeResult:
        yield self.area

    def on_collab_text_area_refused(self, event: CollabTextArea.Refused) -> None:
        self.refusals.append(event)


@asynccontextmanager
async def opened(
    text: str = "", transport: MemoryTransport | None = None
) -> AsyncIterator[WalStore]:
    async with WalStore.open(
        "doc",
        identity=Identity.generate(),
        relay=transport,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
        autocommit_ms=None,
    ) as store:
        if text:
            store.set_text("body", text)
        yield store


@asynccontextmanager
async def edited(
    text: str = "", *, size: tuple[int, int] = (40, 12), soft_wrap: bool = True
) -> AsyncIterator[tuple[Editor, CollabTextArea, Pilot[None], WalStore]]:
    """An app on a store of its own; whoever edits the store is somebody else."""
    async with opened(text) as store:
        app = Editor(store, soft_wrap=soft_wrap)
        async with app.run_test(size=size) as pilot:
            yield app, app.area, pilot, store


def screen(area: CollabTextArea) -> list[str]:
    """The rows in view, as they are drawn."""
    return [area.render_line(y).text.rstrip() for y in range(area.size.height)]


async def exchange(*stores: WalStore) -> None:
    for store in stores:
        await store.commit()
    for store in stores:
        await store.pull()


# ── the text model ─────────────────────────────────────────────────────────────────────


@given(
    st.lists(
        st.tuples(
            st.integers(0, 400), st.integers(0, 80), st.lists(st.integers(0, 9), max_size=90)
        ),
        max_size=30,
    )
)
def test_counts_are_those_of_a_list(edits: list[tuple[int, int, list[int]]]) -> None:
    counts, model = Counts(), list[int]()
    for at, size, values in edits:
        start = min(at, len(model))
        stop = min(start + size, len(model))
        counts.splice(start, stop, values)
        model[start:stop] = values
    assert [counts[index] for index in range(len(counts))] == model
    assert (counts.total, counts.largest) == (sum(model), max(model, default=0))
    assert [counts.sum_before(index) for index in range(len(model) + 1)] == [
        sum(model[:index]) for index in range(len(model) + 1)
    ]
    for amount in range(counts.total):
        index, rest = counts.find(amount)
        assert sum(model[:index]) + rest == amount
        assert rest < model[index]


EDITS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12), st.text(CHARACTERS, max_size=12)), max_size=20
)


@given(st.text(CHARACTERS, max_size=60), EDITS)
def test_a_document_reads_and_counts_as_its_text_does(
    text: str, edits: list[tuple[int, int, str]]
) -> None:
    document = TextDocument(text)
    document.get_size(4)
    for at, size, inserted in edits:
        position = min(at, len(text))
        removed = min(size, len(text) - position)
        document.splice(position, removed, inserted)
        text = text[:position] + inserted + text[position + removed :]
    assert document.text == text
    assert document.size == len(text)
    assert document.get_size(4) == TextDocument(text).get_size(4)
    # What is shown as it is is kept once.
    for raw, line in zip(document._raw, document.lines, strict=True):
        assert (raw is line) == (raw == line)
    for position in range(len(text) + 1):
        before = text[:position]
        location = before.count("\n"), position - before.rfind("\n") - 1
        assert document.location(position) == location
        assert document.position(location) == position
    assert document.get_text_range(document.start, document.end) == text


@given(st.text(CHARACTERS, max_size=60), EDITS, st.integers(0, 12))
def test_rows_that_were_edited_are_those_of_the_text_wrapped_anew(
    text: str, edits: list[tuple[int, int, str]], width: int
) -> None:
    document = TextDocument(text)
    wrapping = Wrapping(document, width)
    for at, size, inserted in edits:
        position = min(at, document.size)
        removed = min(size, document.size - position)
        wrapping.wrap_range(*document.splice(position, removed, inserted))
    anew = Wrapping(TextDocument(document.text), width)
    assert wrapping.height == anew.height
    assert wrapping.lines == anew.lines
    assert [wrapping.line_at(y) for y in range(-1, anew.height + 1)] == [
        anew.line_at(y) for y in range(-1, anew.height + 1)
    ]


# In a row of one cell, Textual breaks twice before a character that fills two.
@given(st.text("ab \n日", max_size=60), st.integers(0, 12).filter(lambda width: width != 1))
def test_cells_of_plain_text_are_where_textual_has_them(text: str, width: int) -> None:
    ours, theirs = Wrapping(TextDocument(text), width), WrappedDocument(Document(text), width)
    assert ours.lines == theirs.lines
    for position in range(len(text) + 1):
        location = ours.document.location(position)
        offset = theirs.location_to_offset(location)
        assert ours.location_to_offset(location) == offset
        assert ours.offset_to_location(offset) == theirs.offset_to_location(offset)


def test_a_cell_within_a_character_is_at_its_beginning() -> None:
    wrapping = Wrapping(TextDocument(f"a日b{FAMILY}c\td"))
    columns = [wrapping.offset_to_location(Offset(x, 0))[1] for x in range(10)]
    assert columns == [0, 1, 1, 2, 3, 3, 8, 9, 10, 11]
    assert wrapping.location_to_offset((0, 10)) == Offset(8, 0)


def test_a_tab_of_a_wrapped_line_reaches_the_stop_of_the_whole_line() -> None:
    wrapping = Wrapping(TextDocument("abcdef gh\tij"), 8)
    assert wrapping.get_sections(0) == ["abcdef ", "gh\tij"]
    assert wrapping.location_to_offset((0, 10)) == Offset(5, 1)


@given(st.text(CHARACTERS, max_size=30))
def test_steps_to_the_right_come_back_to_the_left(line: str) -> None:
    columns = [0]
    while columns[-1] < len(line):
        columns.append(next_column(line, columns[-1]))
    assert columns[-1] == len(line)
    back = [len(line)]
    while back[-1]:
        back.append(previous_column(line, back[-1]))
    assert back[::-1] == columns


# ── typing ─────────────────────────────────────────────────────────────────────────────


async def test_what_is_typed_is_in_the_store_and_on_the_screen() -> None:
    async with edited("one\ntwo") as (_, area, pilot, store):
        await pilot.press("down", "end", "X", "enter", "Y", "left", "delete", "backspace", "!")
        assert store.text("body") == "one\ntwoX!"
        assert area.text == "one\ntwoX!"
        assert area.cursor_location == (1, 5)
        assert screen(area)[:2] == ["one", "twoX!"]


async def test_keys_that_come_all_at_once_act_in_their_order() -> None:
    async with edited("some text") as (app, area, pilot, _):
        for key in ("end", "x", "home", "y", "right", "z", "backspace", "delete", "w"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        await pilot.pause()
        assert area.text == "yswme textx"


async def test_a_key_is_told_as_a_delta() -> None:
    async with edited("one\ntwo") as (_, area, pilot, store):
        told: list[object] = []
        store.subscribe("body", lambda change: told.append(change.delta))
        area.selection = Selection((0, 1), (1, 1))
        await pilot.press("x")
        (delta,) = told
        assert isinstance(delta, Splices)
        assert [splice.position for splice in delta.splices] == [1, 1]
        assert sum([splice.removed for splice in delta.splices]) == 4
        assert "".join([str(splice.inserted) for splice in delta.splices]) == "x"


async def test_line_breaks_of_other_systems_are_pasted_as_line_feeds() -> None:
    async with edited() as (_, area, _, store):
        area.insert("a\r\nb\rc\n\ud800")
        assert store.text("body") == "a\nb\nc\n\ufffd"
        assert area.document.line_count == 4


async def test_ten_thousand_lines_can_be_pasted() -> None:
    pasted = "\n".join([f"line {number}" for number in range(10_000)])
    async with edited("before after") as (_, area, pilot, store):
        area.move_cursor((0, 7))
        area._replace_via_keyboard(pasted, *area.selection)
        await pilot.pause()
        assert store.text("body") == f"before {pasted}after" == area.text
        assert area.cursor_location == (9_999, 9)
        assert "line 9999after" in screen(area)
        await pilot.press("!")
        assert area.document[9_999] == "line 9999!after"


async def test_what_is_seen_as_one_character_is_passed_and_removed_as_one() -> None:
    async with edited(f"a{FAMILY}e\u0301b") as (_, _, pilot, store):
        await pilot.press("right", "right", "right", "backspace")
        assert store.text("body") == f"a{FAMILY}b"
        await pilot.press("left", "delete")
        assert store.text("body") == "ab"


async def test_setting_the_text_edits_only_what_differs_and_keeps_the_cursor() -> None:
    async with edited("one two three") as (_, area, _, store):
        area.move_cursor((0, 9))
        told: list[object] = []
        store.subscribe("body", lambda change: told.append(change.delta))
        area.text = "zero one two three"
        assert "removed=0, inserted='zero '" in str(told)
        assert area.cursor_location == (0, 14)


async def test_an_edit_that_the_store_refuses_does_not_show() -> None:
    async with opened("kept") as store:
        store["title"] = "x"
        app = Editor(store)
        app.area.path = "title"
        async with app.run_test() as pilot:
            await pilot.press("a")
            assert app.area.text == ""
            assert len(app.refusals) == 1
            assert store["title"] == "x"


async def test_what_a_program_inserts_moves_the_cursor_on() -> None:
    async with edited("one\ntwo") as (_, area, _, _):
        area.move_cursor((1, 1))
        area.insert("x\ny")
        assert area.cursor_location == (2, 1)
        area.insert("top\n", (0, 0))
        assert (area.cursor_location, area.text) == ((3, 1), "top\none\ntx\nywo")
        area.replace("", (0, 0), (3, 1))
        assert (area.cursor_location, area.text) == ((0, 0), "wo")


async def test_a_text_area_that_is_gone_is_told_nothing() -> None:
    async with edited("text") as (_, area, pilot, store):
        await area.remove()
        await pilot.pause()
        store.set_text("body", "other")
        assert area.document.text == "text"


async def test_two_areas_on_one_text_show_the_same() -> None:
    async with opened("text") as store:
        app = Editor(store)
        async with app.run_test() as pilot:
            other = CollabTextArea(store, "body")
            await app.mount(other)
            await pilot.press("a", "b")
            assert (app.area.text, other.text) == ("abtext", "abtext")
            assert (app.area.cursor_location, other.cursor_location) == ((0, 2), (0, 0))


async def test_an_edit_in_answer_to_an_edit_shows_as_well() -> None:
    async with edited("") as (_, area, pilot, store):

        def answer(_: object) -> None:
            if not store.text("body").endswith("!"):
                store.edit_text("body", len(store.text("body")), 0, "!")

        store.subscribe("body", answer)
        await pilot.press("a")
        assert area.text == store.text("body") == "a!"
        assert area.cursor_location == (0, 1)


async def calls_per_edit(lines: int, *, soft_wrap: bool, inserted: str, is_own: bool) -> int:
    text = "\n".join([f"line {number:05}" for number in range(lines)])
    async with edited(text, soft_wrap=soft_wrap) as (_, area, pilot, store):
        area.move_cursor((lines // 2, 3))
        await pilot.pause()
        place = area.document.position((lines // 2 - 2, 4))

        def work() -> None:
            if is_own:
                area._replace_via_keyboard(inserted, *area.selection)
            else:
                store.edit_text("body", place, 0, inserted)
            area.render_lines(area.region.reset_offset)

        work()
        return min(calls_of(work) for _ in range(5))


@pytest.mark.parametrize("soft_wrap", [True, False])
@pytest.mark.parametrize("inserted", ["x", "\n"])
@pytest.mark.parametrize("is_own", [True, False])
async def test_an_edit_of_a_hundred_times_the_lines_is_hardly_more_work(
    soft_wrap: bool, inserted: str, is_own: bool
) -> None:
    few = await calls_per_edit(100, soft_wrap=soft_wrap, inserted=inserted, is_own=is_own)
    many = await calls_per_edit(10_000, soft_wrap=soft_wrap, inserted=inserted, is_own=is_own)
    assert many < 1.5 * few + 200


async def test_edits_of_a_batch_show_one_by_one() -> None:
    async with edited("text") as (_, area, _, store):
        with store.batch():
            area.insert("a")
            area.insert("b")
            store.edit_text("body", 6, 0, "!")
        assert area.text == store.text("body") == "abtext!"
        assert area.cursor_location == (0, 2)


async def test_an_answer_at_the_cursor_goes_behind_it() -> None:
    async with edited("") as (_, area, pilot, store):

        def close_bracket(_: object) -> None:
            if store.text("body").count("(") > store.text("body").count(")"):
                store.edit_text("body", store.text("body").index("(") + 1, 0, ")")

        store.subscribe("body", close_bracket)
        await pilot.press("left_parenthesis", "x")
        assert area.text == store.text("body") == "(x)"


async def test_a_placeholder_of_several_lines_comes_and_goes() -> None:
    async with edited("") as (app, area, pilot, store):
        area.placeholder = "Write\nhere"
        await pilot.pause()

        def drawn() -> list[str]:
            return [strip.text.strip(" ▊▎▔▁") for strip in app.screen._compositor.render_strips()]

        assert drawn()[1:3] == ["Write", "here"]
        store.set_text("body", "x")
        await pilot.pause()
        assert drawn()[1:3] == ["x", ""]
        store.set_text("body", "")
        await pilot.pause()
        assert drawn()[1:3] == ["Write", "here"]


# ── what others edit ───────────────────────────────────────────────────────────────────

LINES = "first\nsecond\nthird\nfourth"


@pytest.mark.parametrize(
    ("edit", "selected"),
    [
        pytest.param((0, 0, "new"), "ond\nth", id="before, in another line"),
        pytest.param((0, 0, "new\n"), "ond\nth", id="before, a line"),
        pytest.param((7, 0, "\n"), "ond\nth", id="before, a line feed in the same row"),
        pytest.param((7, 0, "\n\n日\n"), "ond\nth", id="before, lines in the same row"),
        pytest.param((5, 3, ""), "ond\nth", id="before, a line feed removed"),
        pytest.param((0, 6, ""), "ond\nth", id="before, a line removed"),
        pytest.param((9, 0, "X"), "ond\nth", id="at the start"),
        pytest.param((9, 0, "\n"), "ond\nth", id="at the start, a line feed"),
        pytest.param((15, 0, "X"), "ond\nth", id="at the end"),
        pytest.param((15, 0, "\n"), "ond\nth", id="at the end, a line feed"),
        pytest.param((16, 0, "X\n"), "ond\nth", id="after"),
        pytest.param((18, 4, ""), "ond\nth", id="after, removed"),
        pytest.param((11, 0, "X\nY"), "onX\nYd\nth", id="inside"),
        pytest.param((12, 1, ""), "ondth", id="inside, a line feed removed"),
        pytest.param((7, 4, ""), "d\nth", id="over the start"),
        pytest.param((7, 4, "--"), "d\nth", id="over the start, replaced"),
        pytest.param((14, 4, ""), "ond\nt", id="over the end"),
        pytest.param((14, 4, "--"), "ond\nt--", id="over the end, replaced"),
        pytest.param((4, 14, ""), "", id="all of it"),
        pytest.param((0, 25, ""), "", id="the whole text"),
    ],
)
@pytest.mark.parametrize("is_backward", [False, True])
async def test_a_selection_stays_on_what_was_selected(
    edit: tuple[int, int, str], selected: str, is_backward: bool
) -> None:
    async with edited(LINES) as (_, area, _, store):
        ends = (1, 3), (2, 2)
        area.selection = Selection(*(ends[::-1] if is_backward else ends))
        assert area.selected_text == "ond\nth"
        store.edit_text("body", *edit)
        assert area.text == store.text("body")
        if not (edit[1] and edit[2]):
            assert area.selected_text == selected
        else:
            # Whether what replaces an end of a selection is in it depends on where it was put.
            assert area.selected_text.strip("-") == selected.strip("-")
        if selected:
            assert (area.selection.end < area.selection.start) == is_backward


class Tagged:
    """A text whose characters know who they are, removed ones too: the model of a caret."""

    def __init__(self, text: str) -> None:
        self.cells = [[character, True] for character in text]

    def index(self, position: int) -> int:
        """Behind the cell before a position."""
        alive = [index for index, cell in enumerate(self.cells) if cell[1]]
        return alive[position - 1] + 1 if position else 0

    def edit(self, position: int, removed: int, inserted: str) -> None:
        alive = [cell for cell in self.cells if cell[1]]
        for cell in alive[position : position + removed]:
            cell[1] = False
        at = self.index(position)
        self.cells[at:at] = [[character, True] for character in inserted]

    def position_behind(self, cell: list[object] | None) -> int:
        if cell is None:
            return 0
        index = next(index for index, each in enumerate(self.cells) if each is cell)
        return sum([bool(each[1]) for each in self.cells[: index + 1]])


@pytest.mark.parametrize("seed", range(4))
async def test_a_caret_stays_behind_its_character_whatever_others_edit(seed: int) -> None:
    random = Random(seed)
    async with edited("some text\nin three\nlines") as (_, area, _, store):
        model = Tagged(store.text("body"))
        for _ in range(60):
            size = len(store.text("body"))
            caret = random.randint(0, size)
            area.selection = Selection.cursor(area.document.location(caret))
            index = model.index(caret)
            cell = model.cells[index - 1] if index else None
            for _ in range(random.randint(1, 4)):
                size = len(store.text("body"))
                position = random.randint(0, size)
                removed = random.randint(0, min(8, size - position)) * random.randint(0, 1)
                inserted = "".join(random.choices("xy\n日", k=random.randint(0, 4)))
                store.edit_text("body", position, removed, inserted)
                model.edit(position, removed, inserted)
            assert area.text == store.text("body")
            caret = model.position_behind(cell)
            assert area.document.position(area.cursor_location) == caret


async def test_a_remote_edit_is_no_part_of_what_the_widget_could_undo() -> None:
    async with edited("text") as (_, area, pilot, store):
        await pilot.press("a")
        store.edit_text("body", 0, 0, "remote\n")
        assert area.history.undo_stack == []


async def test_the_cursor_stays_in_its_row_of_the_screen() -> None:
    text = "\n".join([f"line {number}" for number in range(100)])
    async with edited(text) as (_, area, pilot, store):
        area.move_cursor((50, 2))
        await pilot.pause()
        before = screen(area), area.cursor_screen_offset
        store.edit_text("body", 0, 0, "new\n" * 7)
        await pilot.pause()
        assert (screen(area), area.cursor_screen_offset) == before
        assert area.cursor_location == (57, 2)
        store.edit_text("body", 0, 4 * 7, "")
        await pilot.pause()
        assert (screen(area), area.cursor_screen_offset) == before


async def test_the_view_stays_where_it_is_if_the_cursor_is_out_of_it() -> None:
    text = "\n".join([f"line {number}" for number in range(100)])
    async with edited(text) as (_, area, pilot, store):
        area.scroll_to(y=60, animate=False)
        await pilot.pause()
        before = screen(area)
        store.edit_text("body", 30, 0, "new\n" * 7)
        await pilot.pause()
        assert screen(area) == before
        assert area.cursor_location == (0, 0)


async def test_lines_that_are_drawn_again_are_all_that_have_changed() -> None:
    text = "\n".join([f"line {number}" for number in range(30)])
    async with edited(text) as (app, area, pilot, store):
        random = Random(1)
        for _ in range(40):
            position = random.randint(0, min(area.document.size, 120))
            removed = random.randint(0, min(3, area.document.size - position))
            inserted = random.choice(["x", "\n", "日本\n", "", "word " * 12])
            store.edit_text("body", position, removed, inserted)
            await pilot.pause()
            shown = app.screen._compositor.render_strips()
            app.screen.refresh(layout=True)
            area._line_cache.clear()
            area.refresh()
            await pilot.pause()
            assert [strip.text for strip in app.screen._compositor.render_strips()] == [
                strip.text for strip in shown
            ]


@pytest.mark.parametrize("soft_wrap", [True, False])
async def test_what_would_command_a_terminal_is_shown_by_stand_ins(soft_wrap: bool) -> None:
    hostile = "a\x1b[2Jb\rc\x07\u202ed\u2028e\x9b"
    async with edited(hostile, soft_wrap=soft_wrap) as (_, area, pilot, store):
        assert screen(area)[0] == "a␛[2Jb␍c␇�d�e�"
        assert area.document.line_count == 1
        await pilot.press("end", "backspace")
        assert store.text("body") == hostile[:-1]
        area.select_all()
        assert area.selected_text == hostile[:-1]


async def test_a_name_that_holds_something_else_shows_no_text_until_it_does_again() -> None:
    async with edited("text") as (_, area, pilot, store):
        store.insert("body", 2, {"not": "a character"})
        assert area.text == ""
        await pilot.press("x")
        assert store["body"][2] == {"not": "a character"}
        store.remove("body", 2)
        assert area.text == "text"
        await pilot.press("x")
        assert "x" in store.text("body")


# ── two apps ───────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def two_editors(text: str = "") -> AsyncIterator[tuple[Pilot[None], Pilot[None]]]:
    transport = MemoryTransport()
    async with opened(text, transport) as ada, opened("", transport) as bo:
        await exchange(ada, bo)
        async with Editor(ada).run_test() as left, Editor(bo).run_test() as right:
            yield left, right


def area_of(pilot: Pilot[None]) -> CollabTextArea:
    assert isinstance(pilot.app, Editor)
    return pilot.app.area


async def press(pilot: Pilot[None], *keys: str) -> None:
    with pilot.app._context():
        await pilot.press(*keys)


async def test_two_who_type_at_once_end_up_with_one_text() -> None:
    async with two_editors("shared\n") as (left, right):
        ada, bo = area_of(left), area_of(right)
        with right.app._context():
            bo.move_cursor(bo.document.end)
        for _ in range(5):
            await asyncio.gather(press(left, "a", "enter"), press(right, "b", "c"))
            await exchange(ada.store, bo.store)
        await exchange(ada.store, bo.store)
        assert ada.text == bo.text == ada.store.text("body")
        assert ada.text == "a\n" * 5 + "shared\n" + "bc" * 5
        assert (ada.cursor_location, bo.cursor_location) == ((5, 0), (6, 10))


async def test_what_was_typed_offline_arrives_together() -> None:
    async with two_editors("shared") as (left, right):
        ada, bo = area_of(left), area_of(right)
        await press(left, "a", "d", "a")
        await press(right, "b", "o")
        assert (ada.text, bo.text) == ("adashared", "boshared")
        await exchange(ada.store, bo.store)
        await exchange(ada.store, bo.store)
        assert ada.text == bo.text
        assert ada.text in ("adaboshared", "boadashared")


async def test_undo_takes_back_ones_own_while_the_other_types() -> None:
    async with two_editors("shared") as (left, right):
        ada, bo = area_of(left), area_of(right)
        await press(left, "m", "e")
        await exchange(ada.store, bo.store)
        await press(right, "end", "y", "o", "u")
        await exchange(ada.store, bo.store)
        await exchange(ada.store, bo.store)
        assert ada.text == "mesharedyou"
        await press(left, "ctrl+z")
        assert ada.text == "sharedyou"
        assert ada.cursor_location == (0, 0)
        await press(left, "ctrl+y")
        assert ada.text == "mesharedyou"
        assert ada.cursor_location == (0, 2)


async def test_undo_brings_back_what_was_selected() -> None:
    async with edited("one\ntwo\nthree") as (_, area, pilot, store):
        area.selection = Selection((0, 2), (1, 1))
        await pilot.press("x")
        store.edit_text("body", 0, 0, "remote\n")
        area.move_cursor(area.document.end)
        await pilot.press("y")
        await pilot.press("ctrl+z")
        assert area.text == "remote\nonxwo\nthree"
        store.undo()
        await pilot.press("ctrl+z")
        assert area.text == "one\ntwo\nthree"
        assert area.selection == Selection((0, 2), (1, 1))


async def test_typing_in_another_place_is_undone_by_itself() -> None:
    async with edited("one two") as (_, area, pilot, store):
        await pilot.press("a", "b", "right", "c")
        await pilot.press("ctrl+z")
        assert store.text("body") == "abone two" == area.text
        await pilot.press("ctrl+z")
        assert store.text("body") == "one two"


async def test_a_peer_that_sends_garbage_changes_nothing() -> None:
    transport = MemoryTransport()
    async with opened("shared", transport) as store:
        await store.commit()
        async with Editor(store).run_test() as pilot:
            for garbage in (b"{}", b"[1,2", b"\xff\xfe", b'{"ops":[["ins","body"]]}'):
                await transport.append("doc", Body(garbage, "ab" * 32, "cd" * 64))
            with suppress(WalStoreError):
                await store.pull()
            area = area_of(pilot)
            assert area.text == "shared"
            await pilot.press("x")
            await store.commit()
            assert store.text("body") == "xshared" == area.text


async def test_a_value_that_hides_the_text_is_not_overwritten_and_the_text_comes_back() -> None:
    transport = MemoryTransport()
    async with opened("", transport) as insider, opened("", transport) as store:
        insider["body"] = "a value"
        store.set_text("body", "the text")
        async with Editor(store).run_test() as pilot:
            area = area_of(pilot)
            await exchange(insider, store)
            assert area.text == ""
            await pilot.press("x")
            assert store["body"] == "a value"
            del insider["body"]
            await exchange(insider, store)
            assert area.text == "the text"
            await pilot.press("x")
            assert store.text("body") == "xthe text" == area.text


# ── presence ───────────────────────────────────────────────────────────────────────────


def presence_of(store: WalStore, presences: MemoryPresences, session: str) -> Presence:
    def crdt() -> WalCrdt:
        return store.document.crdt

    return Presence(
        store.key,
        identity=store.identity,
        session=session,
        crdt=crdt,
        is_member=ALLOW_ANY,
        channel=presences.connect(),
        updates_per_second=1000,
    )


class Asked:
    """A presence that counts how often it is asked who is here."""

    def __init__(self, presence: Presence) -> None:
        self.move = presence.move
        self.subscribe = presence.subscribe
        self.count = 0
        self._presence = presence

    def others(self) -> list[Person]:
        self.count += 1
        return self._presence.others()


@asynccontextmanager
async def watched(
    text: str, *, size: tuple[int, int] = (40, 12)
) -> AsyncIterator[tuple[CollabTextArea, Pilot[None], Presence, Presence]]:
    """An app, and somebody else who is at the same document."""
    presences = MemoryPresences()
    async with opened(text) as store:
        mine, theirs = (
            presence_of(store, presences, "mine"),
            presence_of(store, presences, "theirs"),
        )
        app = Editor(store, mine)
        async with app.run_test(size=size) as pilot:
            yield app.area, pilot, mine, theirs


async def test_a_remote_caret_is_drawn_with_its_name_and_moves_with_the_text() -> None:
    async with watched("one\ntwo") as (area, pilot, mine, theirs):
        theirs.set(cursor=Cursor("body", 5), name="Bo", color="#0e7490")
        mine.look()
        await pilot.pause()
        assert screen(area)[:2] == ["one", "two   Bo"]
        (caret,) = area.carets
        assert (caret.name, caret.end) == ("Bo", (1, 1))
        ground = {segment.text: segment.style for segment in area.render_line(1)}
        assert ground["w"] is not None
        assert ground["w"].bgcolor is not None
        assert ground["w"].bgcolor.name == "#0e7490"
        await pilot.press("x", "enter")
        assert area.carets[0].end == (2, 1)
        assert screen(area)[:3] == ["x", "one", "two   Bo"]


async def test_the_others_are_looked_for_once_in_a_frame_however_much_has_changed() -> None:
    transport, presences = MemoryTransport(), MemoryPresences()
    async with opened("text", transport) as mine, opened("", transport) as other:
        await exchange(mine, other)
        here, there = presence_of(mine, presences, "a"), presence_of(other, presences, "b")
        asked = Asked(here)
        app = Editor(mine, asked)
        async with app.run_test() as pilot:
            there.set(cursor=Cursor("body", 1), name="Bo")
            here.look()
            await pilot.pause()
            before = asked.count
            for _ in range(10):
                mine.edit_text("body", 0, 0, "x")
            await pilot.pause()
            assert asked.count == before + 1
            assert app.area.carets[0].end == (0, 11)


async def test_a_caret_stays_where_it_was_last_until_what_is_typed_there_arrives() -> None:
    transport, presences = MemoryTransport(), MemoryPresences()
    async with opened("text", transport) as mine, opened("", transport) as other:
        await exchange(mine, other)
        here, there = presence_of(mine, presences, "a"), presence_of(other, presences, "b")
        app = Editor(mine, here)
        async with app.run_test() as pilot:
            there.set(cursor=Cursor("body", 2), name="Bo")
            here.look()
            assert app.area.carets[0].end == (0, 2)
            other.edit_text("body", 2, 0, "new")
            there.move(Cursor("body", 5))
            await pilot.pause(0.02)
            here.look()
            assert here.others()[0].cursor is None
            await pilot.press("x")
            assert app.area.carets[0].end == (0, 3)
            await exchange(other, mine)
            assert app.area.text == "xtenewxt"
            assert app.area.carets[0].end == (0, 6)


async def test_a_text_is_drawn_anew_when_it_is_wrapped_to_another_width() -> None:
    async with edited("one two three four five six seven\nlast", size=(40, 6)) as (
        app,
        _,
        pilot,
        _,
    ):
        for width in (20, 12, 60, 30):
            await pilot.resize_terminal(width, 6)
            await pilot.pause()
            seen = [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
            drawn = [row.strip(" ▊▎▔▁") for row in seen]
            assert [row for row in drawn if row] == [
                row.strip() for row in screen(app.area) if row.strip()
            ]


@pytest.mark.parametrize("elsewhere", [None, Cursor("title", 3)], ids=["nowhere", "elsewhere"])
async def test_a_caret_goes_when_whom_it_belongs_to_is_not_in_the_text_any_more(
    elsewhere: Cursor | None,
) -> None:
    transport, presences = MemoryTransport(), MemoryPresences()
    async with opened("text", transport) as mine, opened("", transport) as other:
        await exchange(mine, other)
        here, there = presence_of(mine, presences, "a"), presence_of(other, presences, "b")
        app = Editor(mine, here)
        async with app.run_test() as pilot:
            plain = app.area.render_line(0)
            there.set(cursor=Cursor("body", 2), name="Bo")
            here.look()
            assert [caret.name for caret in app.area.carets] == ["Bo"]
            # What they write elsewhere has not arrived, so where they are there is not known.
            other.set_text("title", "new")
            there.move(elsewhere)
            await pilot.pause(0.02)
            here.look()
            await pilot.pause()
            assert here.others()[0].cursor is None
            assert not app.area.carets
            assert app.area.render_line(0) == plain


async def test_a_remote_selection_is_drawn_and_goes_with_whom_it_belongs_to() -> None:
    async with watched("one\ntwo") as (area, pilot, mine, theirs):
        plain = area.render_line(0)
        theirs.set(cursor=Cursor("body", 6, 1), name="Bo", color="#be123c")
        mine.look()
        await pilot.pause()
        assert area.render_line(0) != plain
        theirs.close()
        mine.look()
        await pilot.pause()
        assert area.carets == ()
        assert area.render_line(0) == plain


async def test_a_name_is_cleaned_and_never_covers_text() -> None:
    async with watched("x" * 37) as (area, pilot, mine, theirs):
        theirs.set(cursor=Cursor("body", 0), name="B" * 60)
        mine.look()
        await pilot.pause()
        assert screen(area)[0] == "x" * area.wrap_width
        area.clear()
        await pilot.pause()
        assert screen(area)[0].strip() == "B" * 24


async def test_my_caret_is_told_to_the_others() -> None:
    async with watched("one\ntwo") as (_, pilot, mine, _):
        await pilot.press("down", "shift+right")
        assert mine.me is not None
        assert mine.me.cursor == Cursor("body", 5, 4)


async def test_whom_i_follow_stays_in_view_until_i_move() -> None:
    text = "\n".join([f"line {number}" for number in range(100)])
    async with watched(text) as (area, pilot, mine, theirs):
        theirs.set(cursor=Cursor("body", area.document.position((50, 0))), name="Bo")
        mine.look()
        area.following = area.carets[0].session
        await pilot.pause()
        assert any(row.startswith("line 50") for row in screen(area))
        theirs.move(Cursor("body", area.document.position((90, 0))))
        await pilot.pause(0.02)
        mine.look()
        assert area.carets[0].end == (90, 0)
        assert any(row.startswith("line 90") for row in screen(area))
        for size in ((14, 5), (60, 20), (40, 4)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert any(row.startswith("line 90") for row in screen(area))
        area.move_cursor((0, 1))
        assert not area.following
        assert screen(area)[0] == "line 0"


async def test_where_i_write_stays_in_view_when_the_terminal_gets_smaller() -> None:
    lines = [f"{number}: as long as it takes to be wrapped" for number in range(40)]
    async with edited("\n".join(lines), size=(60, 20)) as (_, area, pilot, _):
        area.move_cursor((30, 0))
        for size in ((20, 6), (60, 20), (12, 4)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert any(row.startswith("30:") for row in screen(area))


# ── cells ──────────────────────────────────────────────────────────────────────────────


@settings(max_examples=5, deadline=None)
@given(st.lists(st.lists(st.sampled_from(CLUSTERS), max_size=70).map("".join), max_size=8))
def test_every_row_is_as_wide_as_the_screen(lines: list[str]) -> None:
    async def draw(soft_wrap: bool) -> None:
        async with edited("\n".join(lines), soft_wrap=soft_wrap) as (_, area, _, _):
            width = area.scrollable_content_region.width
            for y in range(area.size.height):
                strip = area.render_line(y)
                assert strip.cell_length == cell_len(strip.text) == width

    asyncio.run(draw(True))
    asyncio.run(draw(False))


async def test_a_very_long_line_can_be_edited() -> None:
    async with edited("word " * 20_000) as (_, area, pilot, store):
        await pilot.press("end", "x")
        assert len(store.text("body")) == 100_001
        area.move_cursor(area.document.end)
        await pilot.press("y")
        assert store.text("body").endswith("y")
        assert "y" in "".join(screen(area))
