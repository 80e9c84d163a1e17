"""A table of events as a relay has accepted them: every element and snapshot, bytes and all.

- It needs no keys, and trusts nobody: whoever reads it can check it; see `verification`.
- Rows are inserted and never change. What a relay had let go of is there without its bytes.
- A document can be folded anew from its rows, by whoever has the keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from walstore.archive.rows import Action, Column, Row, RowChange, Window, sort_key
from walstore.archive.source import Event
from walstore.canon import Json
from walstore.document.ports import RawElement

KEY_FIELDS: Final = ("document", "seq")

COLUMNS: Final = (
    Column("document", "text"),
    Column("seq", "integer"),
    Column("kind", "text"),
    Column("id", "text"),
    Column("ts", "integer"),
    Column("author", "text"),
    Column("signature", "text"),
    Column("accepted_ms", "integer"),
    Column("vc", "json"),
    Column("deleted", "boolean"),
    Column("data", "text"),
)


def sealed_window(events: Iterable[Event], *, since: int, to: int) -> Window:
    """The rows of the events in `(since, to]`; others, which are there already, are left out."""
    changes = [
        RowChange(Action.INSERT, (event.document, event.seq), None, sealed_row(event))
        for event in events
        if since < event.seq <= to
    ]
    changes.sort(key=lambda change: sort_key(change.key))
    return Window(since, to, changes, len(changes))


def sealed_row(event: Event) -> dict[str, Json]:
    """The row of an event; without its bytes if they are no text."""
    return {
        "document": event.document,
        "seq": event.seq,
        "kind": event.kind,
        "id": event.id,
        "ts": event.ts,
        "author": event.author,
        "signature": event.signature,
        "accepted_ms": event.accepted_ms,
        "vc": dict(event.vc),
        "deleted": event.is_deletion,
        "data": text_of(event.payload),
    }


def raw_element(row: Row) -> RawElement | None:
    """The element of a row, to be folded; None if it is a snapshot, or has no bytes."""
    ts, data = row.get("ts"), row.get("data")
    author, signature = row.get("author"), row.get("signature")
    if (
        row.get("kind") == "element"
        and type(ts) is int
        and isinstance(data, str)
        and isinstance(author, str)
        and isinstance(signature, str)
    ):
        return RawElement(ts, data.encode("utf-8", "surrogatepass"), author, signature)
    return None


def text_of(payload: bytes | None) -> str | None:
    """What was signed, as text; None if the relay has let it go, or if nobody can have signed it.

    What was signed is UTF-8. Bytes that are not are as good as gone, for every reader alike.
    """
    try:
        return None if payload is None else payload.decode()
    except UnicodeDecodeError:
        return None
