"""Two editors at one relay: both type, paste and undo, one goes away, and a third does harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets.text_area import Selection

from examples.textual_editor.app import EditorApp
from tests.editors import editing, person, press, rows, said, until
from tests.raw_websocket import BINARY, TEXT, framed, raw_websocket
from tests.relay_clients import appending, speaking
from tests.rigged import write_packed, write_starfish
from walstore import Identity
from walstore.relay import MemoryLog, Relay

Editing = tuple[EditorApp, Pilot[None]]

LINES = "first\nsecond\nthird\nfourth"
SELECTED = "ond\nth"

# What somebody else does to a text of which `SELECTED` is selected, and what then is.
REMOTE_EDITS = {
    "before, in another line": ((0, 0, "new"), SELECTED),
    "before, a line": ((0, 0, "new\n"), SELECTED),
    "before, a line feed in the same row": ((7, 0, "\n"), SELECTED),
    "before, wide and combining characters": ((7, 0, "日e\u0301🚲\t"), SELECTED),
    "before, a line feed removed": ((5, 3, ""), SELECTED),
    "before, a line removed": ((0, 6, ""), SELECTED),
    "at the start": ((9, 0, "X"), SELECTED),
    "at the start, a line feed": ((9, 0, "\n"), SELECTED),
    "at the end": ((15, 0, "X"), SELECTED),
    "at the end, a line feed": ((15, 0, "\n"), SELECTED),
    "after": ((16, 0, "X\n"), SELECTED),
    "after, removed": ((18, 4, ""), SELECTED),
    "inside": ((11, 0, "X\nY"), "onX\nYd\nth"),
    "inside, a line feed removed": ((12, 1, ""), "ondth"),
    "over the start": ((7, 4, ""), "d\nth"),
    "over the end": ((14, 4, ""), "ond\nt"),
    "over all of it": ((4, 14, ""), ""),
    "over the whole text": ((0, 25, ""), ""),
}


@asynccontextmanager
async def together(url: str) -> AsyncIterator[tuple[Editing, Editing]]:
    """Ada and Bo at one document."""
    async with (
        editing(person("Ada", url)) as (ada, left),
        editing(person("Bo", url)) as (bo, right),
    ):
        await until(left, lambda: ada.store.status.state == bo.store.status.state == "live")
        yield (ada, left), (bo, right)


async def both_read(left: Editing, right: Editing, text: str) -> None:
    """Wait until a text is what both have, on their screens and in their stores."""
    for app, pilot in (left, right):
        await until(pilot, lambda app=app: app.body.text == text)  # type: ignore[misc]
        assert app.store.text("body") == text


async def write(left: Editing, right: Editing, text: str) -> None:
    """Have both begin with a text."""
    left[0].store.set_text("body", text)
    await both_read(left, right, text)


async def test_two_who_type_at_once_keep_their_places_and_end_with_one_text() -> None:
    async with Relay.serve(MemoryLog()) as relay, together(relay.url) as (left, right):
        (ada, ada_pilot), (bo, bo_pilot) = left, right
        await write(left, right, "top\nbottom")
        await press(bo_pilot, "down", "end")
        mine = "up here, one key after the other"
        theirs = "meanwhile\nat the end\nof the text"
        await asyncio.gather(type_text(ada_pilot, mine), type_text(bo_pilot, theirs))
        await both_read(left, right, f"{mine}top\nbottom{theirs}")
        assert ada.body.cursor_location == (0, len(mine))
        assert bo.body.cursor_location == bo.body.document.end
        # Each sees where the other is.
        await until(ada_pilot, lambda: ada.body.carets[0].end == bo.body.cursor_location)
        await until(bo_pilot, lambda: bo.body.carets[0].end == ada.body.cursor_location)


async def type_text(pilot: Pilot[None], text: str) -> None:
    """Type a text key by key, and let the others do something in between."""
    for character in text:
        await press(pilot, "enter" if character == "\n" else character)


@pytest.mark.parametrize("is_backward", [False, True], ids=["forward", "backward"])
async def test_a_selection_stays_on_what_was_selected_whatever_comes(is_backward: bool) -> None:
    async with Relay.serve(MemoryLog()) as relay, together(relay.url) as (left, right):
        (ada, _), (bo, _) = left, right
        for kind, (edit, selected) in REMOTE_EDITS.items():
            await write(left, right, LINES)
            ends = (1, 3), (2, 2)
            with ada._context():
                ada.body.selection = Selection(*(ends[::-1] if is_backward else ends))
            assert ada.body.selected_text == SELECTED
            bo.store.edit_text("body", *edit)
            await both_read(left, right, bo.store.text("body"))
            assert ada.body.selected_text == selected, kind
            start, end = ada.body.selection
            assert (end < start) == (is_backward and bool(selected)), kind


async def test_what_is_typed_goes_where_the_caret_is_after_any_edit_of_others() -> None:
    async with Relay.serve(MemoryLog()) as relay, together(relay.url) as (left, right):
        (ada, ada_pilot), (bo, _) = left, right
        for kind, ((position, removed, inserted), _) in REMOTE_EDITS.items():
            await write(left, right, LINES)
            with ada._context():
                ada.body.move_cursor((1, 3))
            bo.store.edit_text("body", position, removed, inserted)
            after = LINES[:position] + inserted + LINES[position + removed :]
            await both_read(left, right, after)
            # It is behind the `c` of `second`, or where that was.
            caret = 9
            if position < caret:
                caret = max(caret - removed, position) + len(inserted)
            assert ada.body.document.position(ada.body.cursor_location) == caret, kind
            await press(ada_pilot, "!")
            await both_read(left, right, f"{after[:caret]}!{after[caret:]}")


async def test_ten_thousand_lines_are_pasted_while_the_other_types() -> None:
    pasted = "\n".join([f"line {number}\twith 日本" for number in range(10_000)])
    async with Relay.serve(MemoryLog()) as relay, together(relay.url) as (left, right):
        (ada, _), (bo, bo_pilot) = left, right
        await write(left, right, "above\nbelow")
        with bo._context():
            bo.body.move_cursor((1, 5))
        with ada._context():
            ada.body.move_cursor((0, 5))
            ada.post_message(events.Paste(f"\n{pasted}"))
        await type_text(bo_pilot, " here")
        await both_read(left, right, f"above\n{pasted}\nbelow here")
        assert ada.body.cursor_location == (10_000, len("line 9999\twith 日本"))
        assert bo.body.cursor_location == (10_001, 10)
        # Where Bo writes is still what Bo sees.
        assert any("below here" in row for row in rows(bo))
        with ada._context():
            ada.body.undo()
        await both_read(left, right, "above\nbelow here")


async def test_undo_takes_back_ones_own_while_the_other_types() -> None:
    async with Relay.serve(MemoryLog()) as relay, together(relay.url) as (left, right):
        (ada, ada_pilot), (bo, bo_pilot) = left, right
        await write(left, right, "shared")
        await press(ada_pilot, "m", "e", "space")
        await until(bo_pilot, lambda: bo.body.text == "me shared")
        await asyncio.gather(
            type_text(bo_pilot, "BO"), press(ada_pilot, "ctrl+z", "end", "!", "ctrl+z", "ctrl+y")
        )
        await until(ada_pilot, lambda: "B" in ada.body.text and "O" in ada.body.text)
        await both_read(left, right, "BOshared!")
        await press(ada_pilot, "ctrl+z")
        await both_read(left, right, "BOshared")
        await press(bo_pilot, "ctrl+z")
        await both_read(left, right, "shared")


async def test_what_both_write_while_the_relay_is_away_is_there_when_it_is_back() -> None:
    log = MemoryLog()
    async with AsyncExitStack() as stack:
        async with Relay.serve(log) as relay:
            url = relay.url
            left, right = await stack.enter_async_context(together(url))
            await write(left, right, "one\ntwo")
        (ada, ada_pilot), (bo, bo_pilot) = left, right
        await until(ada_pilot, lambda: "offline" in said(ada, "#status"))
        await until(bo_pilot, lambda: "offline" in said(bo, "#status"))
        await press(ada_pilot, "a", "d", "a", "space")
        await press(bo_pilot, "down", "end", "enter", "b", "o")
        assert (ada.body.text, bo.body.text) == ("ada one\ntwo", "one\ntwo\nbo")
        await until(ada_pilot, lambda: "unsent" in said(ada, "#status"))
        async with Relay.serve(log, port=int(url.rpartition(":")[2])):
            await both_read(left, right, "ada one\ntwo\nbo")
            await until(ada_pilot, lambda: "● live  ·  all sent" in said(ada, "#status"))
            assert ada.body.cursor_location == (0, 4)
            assert bo.body.cursor_location == (2, 2)


async def test_a_peer_that_sends_garbage_disturbs_nobody() -> None:
    eve = Identity.generate()
    elements = [
        {},
        {"v": 2},
        write_starfish(eve, [["ins", "body"], 7, None])["data"],
        write_packed(eve, [])["data"] | {"body": {"ops": [["x"], [0, "body", 0, -1, 0, 5, "?"]]}},
        write_packed(eve, [], seq=7, prev="0" * 64)["data"],
        {"body": "\x1b[2J" * 100},
    ]
    async with Relay.serve(MemoryLog()) as relay, together(relay.url) as (left, right):
        (ada, ada_pilot), (bo, bo_pilot) = left, right
        await write(left, right, "shared")
        async with raw_websocket(int(relay.url.rpartition(":")[2])) as socket:
            await socket.say(framed(TEXT, b"[1,2"), framed(BINARY, b"\xff\xfe" * 100))
            async with speaking(relay.url, eve) as hostile:
                for data in elements:
                    await hostile.say(appending(eve, "notes/x", data))
                # An honest edit after all of it says when they have come.
                await type_text(bo_pilot, "x")
                await until(ada_pilot, lambda: ada.body.text == "xshared")
                await press(ada_pilot, "end", "y")
                await both_read(left, right, "xsharedy")
        for app in (ada, bo):
            assert "\x1b" not in "".join(rows(app))
            assert app.store.status.rejected
            assert "rejected" in said(app, "#status")
