"""What Bob writes into a log, and who reads it knowing that he was revoked."""

from __future__ import annotations

from typing import Any

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    JsonElement,
    RiggedLog,
    link_of,
    opened,
    put_in,
    write_packed,
)
from walstore.crdt.runs import Insert
from walstore.document import WalDocument
from walstore.document.events import Event
from walstore.signed.roster import Counts

BOBS = f"{BOB.public_key}:s"
REVOKED = "its author was revoked"


def typed(text: str, at: int, *, seq: int, prev: str | None, session: str = "s") -> JsonElement:
    """An element of Bob's that puts a text at the end of what he wrote up to a counter."""
    own = f"{BOB.public_key}:{session}"
    run = Insert("body", own, at, own if at > 1 else "", at - 1, text)
    return write_packed(BOB, [run], session=session, seq=seq, prev=prev)


def abc() -> list[JsonElement]:
    """Three elements of Bob's that say "abc"."""
    elements: list[JsonElement] = []
    for seq, character in enumerate("abc", 1):
        prev = link_of(elements[-1]) if elements else None
        elements.append(typed(character, seq, seq=seq, prev=prev))
    return elements


async def reading(
    log: RiggedLog, counts: Counts, **options: Any
) -> tuple[WalDocument, list[Event]]:
    """What somebody reads who knows that Bob was revoked, and what they are told."""
    events: list[Event] = []
    document = await opened(
        log,
        CAROL,
        revoked={BOB.public_key: counts}.get,
        on_author_error="skip",
        on_event=events.append,
        **options,
    )
    return document, events


async def counts_of(log: RiggedLog) -> Counts:
    """What counts of Bob if he is revoked now."""
    return (await opened(log, ALICE)).counted(BOB.public_key)


def logged(elements: list[JsonElement], **options: Any) -> RiggedLog:
    log = RiggedLog(**options)
    for element in elements:
        put_in(log, element)
    return log
