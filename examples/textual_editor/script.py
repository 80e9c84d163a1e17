"""A session of two people without a terminal: a real relay, real websockets, three processes.

    play ── process "relay"
         ├── process "Ada" ── EditorApp under a pilot ──┐
         └── process "Bo"  ── EditorApp under a pilot ──┴── both end with the same document

- Who does what when is said by what both can see, the text itself: nobody waits for a clock.
- Both print their document when it is done; `play` fails if they differ.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from examples.textual_editor.app import EditorApp
from examples.textual_editor.relays import running_relay
from examples.textual_editor.sessions import Session
from walstore import Identity

# No step takes longer than this, or something is broken.
_STEP_S_MAX = 30

DOCUMENT = "notes/demo"


async def play(directory: Path) -> int:
    """Play the session; 0 if both end with the same document."""
    directory.mkdir(parents=True, exist_ok=True)
    with running_relay() as url:
        documents = await asyncio.gather(*[_start(name, url, directory) for name in ("Ada", "Bo")])
    print(documents[0], end="")
    is_same = documents[0] == documents[1] != ""
    print("Both have the same document." if is_same else "THE DOCUMENTS DIFFER.")
    for picture in sorted(directory.glob("*.svg")):
        print(f"wrote {picture}")
    return 0 if is_same else 1


async def _start(name: str, url: str, directory: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.textual_editor.script", name, url, str(directory)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TEXTUAL_ANIMATIONS": "none"},
    )
    output, _ = await process.communicate()
    return output.decode() if process.returncode == 0 else ""


async def act(name: str, url: str, directory: Path) -> str:
    """Play one of the two; the document that they end with."""
    session = Session(DOCUMENT, name, Identity.generate(), relay=url)
    async with session.store() as store:
        app = EditorApp(session, store)
        async with app.run_test(size=(80, 24)) as pilot:
            app.body.cursor_blink = False
            await (_play_ada if name == "Ada" else _play_bo)(app, pilot, directory)
        await store.flush()
        document = {name: store[name] for name in store}
        return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


async def _play_ada(app: EditorApp, pilot: Pilot[None], directory: Path) -> None:
    await until(pilot, lambda: len(app.store.presence.others()) == 1)
    app.query_one("#title").focus()
    await _type(pilot, "A day at the lake")
    app.body.focus()
    await _type(pilot, "Bring bread.\n")
    await until(pilot, lambda: "cheese" in app.body.text)
    app.query_one("#new-task").focus()
    await _type(pilot, "pack the kite\n")
    app.body.focus()
    await _type(pilot, "Meet at noon. 🚲\n")
    await until(pilot, lambda: "platform 2." in app.body.text)
    await until(pilot, lambda: any(caret.start != caret.end for caret in app.body.carets))
    app.save_screenshot("ada-dark.svg", str(directory))
    await pilot.press("f8")
    await pilot.pause()
    app.save_screenshot("ada-light.svg", str(directory))
    await pilot.press("f8")
    await until(pilot, lambda: not app.store.status.unsent)
    await pilot.press("f2")
    await pilot.pause()
    app.save_screenshot("history.svg", str(directory))
    await pilot.press("escape")
    await _finish(app, pilot)


async def _play_bo(app: EditorApp, pilot: Pilot[None], directory: Path) -> None:
    await until(pilot, lambda: "bread" in app.body.text)
    app.body.move_cursor(app.body.document.end)
    await _type(pilot, "And cheese.\n")
    app.query_one("#new-tag").focus()
    await _type(pilot, "summer\n")
    await until(pilot, lambda: len(app.store.list("todo")) == 1)
    app.query_one("#new-task").focus()
    await _type(pilot, "buy tickets\n")
    await until(pilot, lambda: "noon" in app.body.text)
    app.body.focus()
    app.body.move_cursor(app.body.document.end)
    await _type(pilot, "I come by train,\nplatform 2.")
    await pilot.press("shift+up")
    await until(pilot, lambda: not app.store.status.unsent)
    app.save_screenshot("bo.svg", str(directory))
    await _finish(app, pilot)


async def _finish(app: EditorApp, pilot: Pilot[None]) -> None:
    """Say that we are done, and wait until both are and know everything."""
    app.store.put("done", app.session.name, True)
    await until(pilot, lambda: len(app.store.get("done", {})) == 2)
    await until(pilot, lambda: not app.store.status.unsent)


async def _type(pilot: Pilot[None], text: str) -> None:
    for character in text:
        await pilot.press("enter" if character == "\n" else character)


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: It is not, for long.
    """
    async with asyncio.timeout(_STEP_S_MAX):
        while not condition():
            await pilot.pause(0.01)


if __name__ == "__main__":
    print(asyncio.run(act(sys.argv[1], sys.argv[2], Path(sys.argv[3]))), end="")
