"""The pictures of the inspector in the documentation: who wrote what of a note, and when.

- They are of the real inspector over a real log; only the times of its elements are made up, so
  that the pictures are the same each time they are taken.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Static

from walstore import ALLOW_ANY, Identity, MemoryTransport, WalDocument
from walstore.document.ports import RawElement, StoredSnapshot
from walstore.inspect.places import StillPlace
from walstore.inspect.subject import Subject
from walstore.inspect.trust import trust_in
from walstore.textual.inspector.app import InspectorApp

SIZE = (88, 21)

DOCUMENT = "notes/lake"

# What is typed, and by whom: a number of one of them.
SCRIPT = (
    (0, "Sunday at ten, at the old boathouse. "),
    (0, "If it rains we go all the same.\n\n"),
    (1, " - the early train leaves from platform 2\n"),
    (1, " - a ticket for four is cheaper than two for two\n"),
    (2, " - no signal out there: write on, it is sent later\n"),
    (0, "\nBo brings bread, "),
    (2, "Cleo brings the kite, "),
    (1, "and somebody a knife."),
)

# A relay's clock, in milliseconds since 1970, and how long a word takes.
_START_MS, _WORD_MS = 1_750_000_000_000, 700


class Recorded(StillPlace):
    """A log that was written at a time of our choosing."""

    def __init__(self, elements: Sequence[RawElement]) -> None:
        """Show elements."""
        super().__init__("ws://127.0.0.1:3400")
        self._elements = [
            each._replace(ts=_START_MS + place * _WORD_MS) for place, each in enumerate(elements)
        ]

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """All that is above a checkpoint."""
        return [each for each in self._elements if each.ts > checkpoint]

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """There is none."""
        return None


async def written(people: Sequence[Identity]) -> list[RawElement]:
    """The log of the script: an element for each word."""
    log = MemoryTransport()
    documents = [
        await WalDocument(
            DOCUMENT,
            transport=log,
            identity=who,
            writers=ALLOW_ANY,
            snapshot_role=(),
            session_nonce=f"{number:032x}",
        ).open()
        for number, who in enumerate(people, 1)
    ]
    for author, text in SCRIPT:
        document = documents[author]
        for word in re.findall(r"\s*\S+\s*", text):
            await document.pull()
            document.insert_text("body", document.length("body"), word)
            await document.commit()
    return await log.pull(DOCUMENT, 0)


async def take_inspector_pictures(
    directory: Path, people: Sequence[Identity], cleaned: Callable[[str], str]
) -> None:
    """Take them, in the dark and in the light."""
    place = Recorded(await written(people))
    trust = await trust_in(place, DOCUMENT, identity=people[0])
    subject = await Subject(DOCUMENT, place, trust, identity=people[0]).open()
    app = InspectorApp(subject=subject)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("4", *["left"] * 3)
        await _until(pilot, lambda: "kite" in str(pane(app).content))
        for name in ("dark", "light"):
            await pilot.pause()
            picture = directory / f"inspector-{name}.svg"
            picture.write_text(cleaned(app.export_screenshot(title=f"{app.TITLE} {DOCUMENT}")))
            print(f"wrote {picture}")
            await pilot.press("t")


def pane(app: InspectorApp) -> Static:
    """Where it is said who wrote what."""
    return app.screen.query_one("#show-blame", Static)


async def _until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await pilot.pause(0.01)
