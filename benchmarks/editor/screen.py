"""The editor at work, in a process of its own: what it spends until something is on the screen.

- It is the whole example: file, relay, panels, carets. All that a terminal would get is made and
  written, to nowhere.
- A sample is the CPU time of the whole process, from the moment in which a key is handed over to
  the end of the frame that shows it. What others do meanwhile is part of it.
- One key follows the other as soon as it shows. Nobody types that fast; so the work that goes on
  behind a key, to seal and send it, falls on the next one.
- A remote edit's sample begins when the editor last heard from the relay before it was told of the
  edit: it is to read, check, fold and draw it, and whatever else comes until it is drawn. Nobody
  types here then. What is out of view is not drawn, and makes no sample. A frame may show several
  edits: `each` is what there is for each of them.
- Between the rounds the same piece of work is done again and again, to see how busy the machine is
  with something else: on two cores that others use, all CPU time is longer.

Run as `python -m benchmarks.editor.screen`, with a `Case` as JSON; prints samples as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector, SelectorKey
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from textual import events
from textual.drivers.headless_driver import HeadlessDriver

from examples.textual_editor.app import EditorApp
from examples.textual_editor.sessions import Session
from walstore import Identity, WalStore
from walstore.store.change import Change
from walstore.textual import CollabTextArea

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_LOADING_S_MAX = 120
_FRAME_S_MAX = 10

# Work that is always the same.
_YARDSTICK = range(5_000)
YARDSTICK = "yardstick"

_PASTED = "pasted words of a line\n" * 20

Samples: TypeAlias = dict[str, list[float]]


class Case(NamedTuple):
    """What to measure.

    Attributes:
        url: The relay.
        document: The document.
        file: Where the editor keeps it.
        peers: How many others are there.
        width: Columns of the screen.
        height: Rows of the screen.
        line: The line to type in.
        rounds: How often everything is done.
        watched_s: How long the others are watched.
    """

    url: str
    document: str
    file: str
    peers: int
    width: int
    height: int
    line: int
    rounds: int
    watched_s: float


class _Terminal(HeadlessDriver):
    """A terminal that is written to and shows it nowhere."""

    @property
    def is_headless(self) -> bool:
        """Everything is drawn, as for a terminal that somebody sees."""
        return False

    def write(self, data: str) -> None:
        """Encode, as a terminal would get it."""
        data.encode()


class _Editor(EditorApp):
    """The example, which says when a frame is written."""

    # Not beside this file, but beside the example's.
    CSS_PATH = str(Path(inspect.getfile(EditorApp)).with_name("editor.tcss"))

    def __init__(self, session: Session, store: WalStore) -> None:
        super().__init__(session, store)
        self.driver_class = _Terminal
        self.on_frame: Callable[[], None] = lambda: None

    def post_display_hook(self) -> None:
        """A frame is written."""
        self.on_frame()


class Typist:
    """Hands keys to an editor, one when the one before shows."""

    def __init__(self, app: _Editor) -> None:
        self._app = app
        self._is_told = False
        app.store.subscribe("body", self._told)

    def _told(self, change: Change) -> None:
        self._is_told = self._is_told or change.origin == "local"

    async def press(self, key: str) -> float:
        """CPU milliseconds from a key to the screen."""
        names = {"\n": "enter", " ": "space", "\b": "backspace"}
        character = None if key == "\b" else key
        return await self._shown(events.Key(names.get(key, key), character))

    async def paste(self, text: str) -> float:
        """CPU milliseconds from a paste to the screen."""
        return await self._shown(events.Paste(text))

    async def _shown(self, event: events.Event) -> float:
        shown = asyncio.get_running_loop().create_future()
        start = 0.0
        body = self._app.body

        def framed() -> None:
            if self._is_told and _is_drawn(body) and not shown.done():
                shown.set_result(time.process_time() - start)

        self._is_told = False
        self._app.on_frame = framed
        start = time.process_time()
        self._app.post_message(event)
        async with asyncio.timeout(_FRAME_S_MAX):
            spent: float = await shown
        self._app.on_frame = lambda: None
        return spent * 1000


class _Hearing(DefaultSelector):
    """Knows when something last came from the relay, as the CPU time of then."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = 0.0
        self._first: FileDescriptorLike | None = None

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> SelectorKey:
        """Wait for something; the event loop's own pipe is what it waits for first."""
        if self._first is None:
            self._first = fileobj
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Wait."""
        ready = super().select(timeout)
        if any(key.fileobj is not self._first and mask & EVENT_READ for key, mask in ready):
            self.heard = time.process_time()
        return ready


async def measure(case: Case, hearing: _Hearing) -> Samples:
    """Open the document as the example does, and do everything so many times."""
    session = Session(
        case.document, "Ada", Identity.generate(), relay=case.url, file=Path(case.file)
    )
    async with session.store() as store:
        await store.pull()
        # As the example does.
        gc.collect()
        gc.freeze()
        app = _Editor(session, store)
        async with app.run_test(headless=False, size=(case.width, case.height)):
            await _everybody(app, case.peers)
            app.body.move_cursor((case.line, 12), center=True)
            samples = await _typed(app, case.rounds)
            if case.peers:
                samples |= await _watched(app, hearing, case.watched_s)
            return samples


async def _everybody(app: _Editor, peers: int) -> None:
    async with asyncio.timeout(_LOADING_S_MAX):
        while len(app.body.carets) < peers:
            await asyncio.sleep(0.05)


async def _typed(app: _Editor, rounds: int) -> Samples:
    typist = Typist(app)
    for _ in range(3):
        await _round(typist)
    kinds = "key", "newline", "backspace", "joining lines", "paste", YARDSTICK
    samples: Samples = {kind: [] for kind in kinds}
    for _ in range(rounds):
        samples[YARDSTICK].append(_yardstick_ms())
        for kind, spent in await _round(typist):
            samples[kind].append(spent)
    for _ in range(max(rounds // 2, 2)):
        start = app.body.cursor_location
        samples["paste"].append(await typist.paste(_PASTED))
        app.body.replace("", start, app.body.cursor_location)
        await asyncio.sleep(0.05)
    return samples


async def _round(typist: Typist) -> list[tuple[str, float]]:
    """Type a little, break the line, and take all of it back."""
    typed = [("key", await typist.press(key)) for key in "abc"]
    broken = [("newline", await typist.press("\n")), ("joining lines", await typist.press("\b"))]
    removed = [("backspace", await typist.press("\b")) for _ in "abc"]
    return [*typed, *broken, *removed]


def _yardstick_ms() -> float:
    start = time.process_time()
    {number: str(number) for number in _YARDSTICK}
    return (time.process_time() - start) * 1000


def _is_drawn(body: CollabTextArea) -> bool:
    """Whether all that has changed is on the screen."""
    return not body._stale and not body._repaint_regions


async def _watched(app: _Editor, hearing: _Hearing, seconds: float) -> Samples:
    """CPU milliseconds of what others edit in view, in all and for each edit of a frame."""
    samples: Samples = {"remote edit": [], "each": []}
    start, edits = 0.0, 0

    def told(change: Change) -> None:
        nonlocal start, edits
        if change.origin != "remote":
            return
        if edits:
            edits += 1
        elif app.body._stale:
            start, edits = hearing.heard, 1

    def framed() -> None:
        nonlocal edits
        if edits and _is_drawn(app.body):
            spent = (time.process_time() - start) * 1000
            samples["remote edit"].append(spent)
            samples["each"].append(spent / edits)
            edits = 0

    subscription = app.store.subscribe("body", told)
    app.on_frame = framed
    await asyncio.sleep(seconds)
    app.on_frame = lambda: None
    subscription.close()
    return samples


def main() -> None:
    """Measure, and print the samples."""
    hearing = _Hearing()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(hearing)) as runner:
        samples = runner.run(measure(Case(**json.loads(sys.argv[1])), hearing))
    print(json.dumps(samples))


if __name__ == "__main__":
    main()
