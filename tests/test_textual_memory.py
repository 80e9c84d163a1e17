"""The editor typed into for long: nothing grows but the document's log.

- What is allocated is told apart by who allocated it: what documents, their files and their relay
  keep is the log, all else is the editor.
- The insides of small dicts are nobody's for sure. Python keeps those that are let go for whoever
  needs some next, and what is used again still counts as of who had it first.
- `WALSTORE_TYPING_KEYS` says how many keys are typed; an hour of typing is `KEYS_PER_HOUR`.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from textual import events
from textual.cache import FIFOCache, LRUCache
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot

from examples.textual_editor.app import EditorApp
from examples.textual_editor.sessions import Session
from walstore import Identity, WalStore
from walstore.relay import MemoryLog, Relay
from walstore.store.presence import Cursor

# Eight keys a second.
KEYS_PER_HOUR = 28_800
KEYS = int(os.environ.get("WALSTORE_TYPING_KEYS", "500"))
# Until everything was used once.
WARM_UP_KEYS = 150

# What the editor may have gained, however many keys were typed: what happens to be under way.
EDITOR_BYTES_MAX = 64 * 1024
# What of the log's small dicts, a key, may be taken for the editor's.
UNSURE_BYTES_PER_KEY_MAX = 16
# What a key may leave behind in the log, of two sessions and a relay that keep all of it in memory.
LOG_BYTES_PER_KEY_MAX = 4096

# The parts of walstore that keep the log, or have to do with what is on its way there. What can be
# undone is kept up to a limit of its own, and an hour does not reach it.
LOG_PARTS = (
    "canon", "crdt", "document", "local", "net", "reconcile", "relay", "sealed", "signed", "wire",
)  # fmt: skip

# The insides of small dicts: with nothing but texts for keys, and with others.
UNSURE_SIZES = {sys.getsizeof(each) - sys.getsizeof({}) for each in ({"": 0}, {0: 0})}

PHRASES = ("a few more words", "one line\nand another", "(brackets) [too]", "ünd ümlaute 日本")


class Terminal(HeadlessDriver):
    """A terminal that shows nothing, but is written to."""

    @property
    def is_headless(self) -> bool:
        return False


class Held(NamedTuple):
    """Bytes that are held by the editor, by either of the two, and by the log."""

    editor: int
    unsure: int
    log: int


def held() -> Held:
    """What is held for longer than it takes to collect what is not."""
    forget()
    gc.collect()
    editor = unsure = log = 0
    for trace in tracemalloc.take_snapshot().traces:
        names = [frame.filename for frame in trace.traceback]
        if any("importlib" in name for name in names):
            continue
        if is_log(names):
            log += trace.size
        elif trace.size in UNSURE_SIZES:
            unsure += trace.size
        else:
            editor += trace.size
    return Held(editor, unsure, log)


def forget() -> None:
    """Empty what is kept up to a limit: drawn rows, the results of functions, names of attributes.

    Textual and Rich keep thousands of results, and Python as many names that were looked for. What
    has no limit is not emptied, and so is found.
    """
    (getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache)()
    for found in gc.get_objects():
        if isinstance(found, LRUCache | FIFOCache):
            found.clear()
        elif isinstance(found, functools._lru_cache_wrapper) and is_limited(found):
            found.cache_clear()


def is_limited(found: functools._lru_cache_wrapper[object]) -> bool:
    return found.cache_parameters()["maxsize"] is not None


def is_log(names: list[str]) -> bool:
    """Whether something was allocated by what keeps the log, given the files of its frames."""
    # The newest one that is a file: named tuples are made by code that is in none.
    name = [each for each in ("", *names) if not each.startswith("<")][-1]
    part = name.partition("/walstore/")[2]
    return part.startswith("store/undo") or part.partition("/")[0].removesuffix(".py") in LOG_PARTS


class Typist:
    """Types into an editor while somebody else is at the document, each key drawn."""

    def __init__(self, app: EditorApp, other: WalStore) -> None:
        self._app = app
        self._other = other
        self._random = Random(1)
        self.keys = 0

    async def type(self, keys: int) -> None:
        """Type phrases here and there, and take each of them back."""
        goal = self.keys + keys
        while self.keys < goal:
            for _ in range(3):
                await self._press(self._random.choice(("up", "down", "left", "right", "end")))
            phrase = self._random.choice(PHRASES) + str(self._random.randrange(10**6))
            for character in phrase:
                await self._press("enter" if character == "\n" else character, character)
            for _ in phrase:
                await self._press("backspace")
            await self._be_disturbed()

    async def _press(self, key: str, character: str | None = None) -> None:
        self.keys += 1
        self._app.body.post_message(events.Key(key, character))
        await self._handled()
        self._app.screen._on_timer_update()

    async def _be_disturbed(self) -> None:
        """Have the other one type, move, and take it back."""
        place = self._random.randrange(len(self._other.text("body")))
        for removed, inserted in ((0, "theirs\n"), (7, "")):
            self._other.edit_text("body", place, removed, inserted)
            self._other.presence.move(Cursor("body", place + len(inserted)))
            await self._other.flush()
            await self._app.store.pull()
            await self._handled()

    async def _handled(self) -> None:
        """Wait until text and screen have done what they were told."""
        for pump in (self._app.body, self._app.screen):
            done = asyncio.Event()
            pump.call_later(done.set)
            await done.wait()


@contextmanager
def traced() -> Iterator[None]:
    # What was made before counts as well.
    gc.unfreeze()
    tracemalloc.start(2)
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.freeze()


@pytest.mark.skipif(tracemalloc.is_tracing(), reason="somebody else traces memory")
async def test_an_hour_of_typing_leaves_nothing_behind_but_the_log(tmp_path: Path) -> None:
    with traced():
        async with Relay.serve(MemoryLog()) as relay:
            here = Session(
                "notes/x", "Ada", Identity.generate(), relay=relay.url, file=tmp_path / "x.walstore"
            )
            there = Session("notes/x", "Bo", Identity.generate(), relay=relay.url)
            async with here.store() as store, there.store() as other:
                text = "\n".join([f"{number} of the lines" for number in range(200)])
                store.set_text("body", text)
                await store.flush()
                await other.pull()
                other.presence.set(name="Bo", cursor=Cursor("body", 50))
                before, after, keys = await typed(store, other, here)
    editor, unsure, log = [now - then for now, then in zip(after, before, strict=True)]
    print(
        f"{keys} keys: the editor holds {editor:,} bytes more, either {unsure / keys:,.1f} a key, "
        f"the log {log / keys:,.0f} a key"
    )
    assert editor < EDITOR_BYTES_MAX
    assert unsure < EDITOR_BYTES_MAX + UNSURE_BYTES_PER_KEY_MAX * keys
    assert log / keys < LOG_BYTES_PER_KEY_MAX


async def typed(store: WalStore, other: WalStore, session: Session) -> tuple[Held, Held, int]:
    """What is held before and after typing, and how many keys that took."""
    app = EditorApp(session, store)
    app.driver_class = Terminal
    async with app.run_test(headless=False, size=(80, 24)) as pilot:
        typist = Typist(app, other)
        app.body.move_cursor((100, 3), center=True)
        await typist.type(WARM_UP_KEYS)
        before, warm = await settled(pilot, store), typist.keys
        await typist.type(KEYS)
        after = await settled(pilot, store)
        assert app.body.text == store.text("body")
        return before, after, typist.keys - warm


async def settled(pilot: Pilot[None], store: WalStore) -> Held:
    await store.flush()
    await store.pull()
    await pilot.pause()
    return held()
