"""The pictures in the documentation: what Ada sees while Bo and Cleo write.

- They are of the real editor, at a real relay, with what the others really sent.
- They load nothing from anywhere, and are the same each time they are taken.
"""

from __future__ import annotations

import re
from pathlib import Path

from examples.inspector_pictures import take_inspector_pictures
from examples.textual_editor.app import EditorApp
from examples.textual_editor.relays import running_relay
from examples.textual_editor.script import until
from examples.textual_editor.sessions import Session
from walstore import Identity, WalStore
from walstore.textual import Cursor, author_color

# Columns and rows: what fits beside a page of text and can still be read.
SIZE = (88, 21)

DOCUMENT = "notes/lake"

TITLE = "A day at the lake"

TEXT = """\
Sunday at ten, at the old boathouse. If it rains we go all the same.

 - the early train leaves from platform 2
 - a ticket for four is cheaper than two for two
 - no signal out there: write on, it is sent later

Bo brings bread,"""

TYPED = " Cleo brings the kite"

SELECTED = "platform 2"

# Always the same people, so that they always have the same colours. Nothing depends on their keys.
ADA, BO, CLEO = (Identity.from_seed(bytes([seed]) * 32) for seed in (5, 6, 9))

_FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_COMMENT = re.compile(r"\s*<!--.*?-->", re.S)


async def take_pictures(directory: Path, *, size: tuple[int, int] = SIZE) -> int:
    """Take them, in the dark and in the light; the exit status."""
    directory.mkdir(parents=True, exist_ok=True)
    with running_relay() as url:
        session = Session(DOCUMENT, "Ada", ADA, relay=url)
        async with (
            session.store() as store,
            Session(DOCUMENT, "Bo", BO, relay=url).store() as bo,
            Session(DOCUMENT, "Cleo", CLEO, relay=url).store() as cleo,
        ):
            app = EditorApp(session, store)
            async with app.run_test(size=size) as pilot:
                app.body.cursor_blink = False
                write(bo)
                start = TEXT.index(SELECTED)
                say(bo, "Bo", Cursor("body", start + len(SELECTED), start))
                await until(pilot, lambda: len(app.body.carets) == 1)
                await until(pilot, lambda: cleo.text("body") == TEXT)
                cleo.edit_text("body", len(TEXT), 0, TYPED)
                say(cleo, "Cleo", Cursor("body", len(TEXT + TYPED)))
                await until(pilot, lambda: TYPED in app.body.text and len(app.body.carets) == 2)
                await until(pilot, lambda: len(store.get("todo", ())) == 3)
                app.body.move_cursor((0, TEXT.index(" the same")))
                await until(pilot, lambda: store.status.state == "live")
                for name in ("dark", "light"):
                    await pilot.pause()
                    picture = directory / f"editor-{name}.svg"
                    title = f"{app.TITLE}: {DOCUMENT}"
                    picture.write_text(self_contained(app.export_screenshot(title=title)))
                    print(f"wrote {picture}")
                    await pilot.press("f8")
    await take_inspector_pictures(directory, (ADA, BO, CLEO), self_contained)
    return 0


def write(store: WalStore) -> None:
    """Write what Bo writes."""
    with store.batch():
        store.set_text("title", TITLE)
        store.set_text("body", TEXT)
        store.list("tags").extend(["summer", "by train"])
        store.list("todo").extend(
            [
                {"what": "buy the tickets", "done": True},
                {"what": "find the kite", "done": False},
                {"what": "bread and cheese", "done": False},
            ]
        )


def say(store: WalStore, name: str, cursor: Cursor) -> None:
    """Say who somebody is, and where."""
    color = author_color(store.identity.public_key)
    store.presence.set(name=name, color=color, cursor=cursor)


def self_contained(svg: str) -> str:
    """A picture with the fonts of whoever looks at it, and with nothing from anywhere else."""
    svg = _COMMENT.sub("", _FONT_FACE.sub("", svg))
    svg = svg.replace("Fira Code, monospace", _FONT).replace("arial", "sans-serif")
    return "\n".join([line.rstrip() for line in svg.splitlines()]) + "\n"
