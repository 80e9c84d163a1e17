"""Documents to look at, and the inspector under a pilot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from walstore import ALLOW_ANY, Identity, MemoryTransport, WalDocument
from walstore.inspect.places import Place
from walstore.inspect.relay_log import LogPlace
from walstore.inspect.subject import Subject
from walstore.inspect.trust import trust_in
from walstore.textual.inspector.app import InspectorApp

KEY = "notes/lake"
ADA, BO, EVE = PEOPLE = tuple(Identity.from_seed(bytes([number]) * 32) for number in (31, 32, 33))


async def writing(log: MemoryTransport, who: Identity) -> WalDocument:
    """Somebody who writes to a log."""
    document = WalDocument(
        KEY, transport=log, identity=who, writers=ALLOW_ANY, snapshot_role=ALLOW_ANY
    )
    return await document.open()


async def log_of_two() -> MemoryTransport:
    """A log that Ada has begun, and Bo has edited."""
    log = MemoryTransport()
    ada, bo = await writing(log, ADA), await writing(log, BO)
    ada.set_field("title", "Picnic")
    ada.insert_text("body", 0, "Meet at the lake.")
    await ada.commit(message="first draft")
    await bo.pull()
    bo.set_text("body", "Meet at the old lake.")
    await bo.commit()
    await ada.pull()
    ada.set_field("title", "A picnic")
    ada.push("tags", "summer")
    await ada.commit()
    return log


async def looking(place: Place, who: Identity = EVE, **believed: Any) -> Subject:
    """A document under inspection."""
    trust = await trust_in(place, KEY, identity=who, **believed)
    return await Subject(KEY, place, trust, identity=who).open()


async def looking_at(log: MemoryTransport, **believed: Any) -> Subject:
    """The same, of a log in memory."""
    return await looking(LogPlace("memory", log), **believed)


@asynccontextmanager
async def inspecting(
    app: InspectorApp, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Pilot[None]]:
    """The inspector, on a screen that nobody looks at."""
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield pilot
