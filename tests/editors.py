"""The editor under a pilot, and how tests wait for what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual import events
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from examples.textual_editor.app import EditorApp
from examples.textual_editor.sessions import Desk, Session
from walstore import Identity

PATIENCE_S = 20


@asynccontextmanager
async def editing(
    session: Session, *, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[EditorApp, Pilot[None]]]:
    """An editor of a document, on a screen that nobody looks at."""
    async with Desk() as desk:
        app = EditorApp(session, await desk.open(session), desk=desk)
        async with app.run_test(size=size, notifications=True) as pilot:
            yield app, pilot


def person(name: str, relay: str | None = None, file: Path | None = None) -> Session:
    """Somebody at a document."""
    return Session("notes/x", name, Identity.generate(), relay=relay, file=file)


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys where several editors are open."""
    with pilot.app._context():
        await pilot.press(*keys)


async def type_at_once(pilot: Pilot[Any], *keys: str) -> None:
    """Press keys so fast that the last one is there before the first is acted on."""
    for key in keys:
        pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
    await pilot.pause()
    await pilot.pause()


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Return once something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await pilot.pause(0.01)


def said(app: App[Any], selector: str) -> str:
    """What a widget of the screen in front says."""
    return str(app.screen.query_one(selector, Static).content)


def rows(app: App[Any]) -> list[str]:
    """What is on the screen."""
    return [strip.text for strip in app.screen._compositor.render_strips()]
