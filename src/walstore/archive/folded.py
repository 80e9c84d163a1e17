"""A table of documents as they read now: one row each, made by folding what has happened.

- The events of a document are folded onto the row that it had. The fold is a document's own, see
  `walstore.document.folding`: who may write is enforced, and what is rejected is told with its
  reason. It never stops anything.
- A row carries the state that the fold goes on from. A document that was deleted loses its row; one
  that cannot be read keeps the row that it had, and has null for its value if it had none.
- Nothing here reads or writes: `folder` does, and so may many processes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

from walstore.archive.rows import Column, Row
from walstore.archive.sealed import text_of
from walstore.archive.source import Event
from walstore.canon import Json, parse
from walstore.document.events import Fork, Gap, Rejection
from walstore.document.folding import Folded, FoldRules, ReadAgain, fold
from walstore.document.ports import RawElement
from walstore.errors import MalformedError
from walstore.signed.identity import Identity

KEY_FIELDS: Final = ("document",)

COLUMNS: Final = (
    Column("document", "text"),
    Column("value", "json"),
    Column("ts", "integer"),
    Column("seq", "integer"),
    Column("elements", "integer"),
    Column("authors", "json"),
    Column("rejected", "integer"),
    Column("state", "json"),
)

# Only a snapshot with one of these has let go of something, or may hide that it has.
_CUTTING = (b'"cuts"', b'"_sealed"', b'"_encrypted"', b'"state":null')


class Report(NamedTuple):
    """What was noticed in one document.

    Attributes:
        document: Its key.
        rejections: What was rejected, and why.
        gaps: What is missing now.
        forks: Clocks that were used twice.
        unreadable: How many elements wait for a key.
        problems: What else is wrong.
    """

    document: str
    rejections: Sequence[Rejection] = ()
    gaps: Sequence[Gap] = ()
    forks: Sequence[Fork] = ()
    unreadable: int = 0
    problems: Sequence[str] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to tell."""
        return not any(self[1:])


class Part(NamedTuple):
    """What a window holds of one document.

    Attributes:
        elements: The elements that are there.
        snapshots: The snapshots that may have let go of something.
        gone_upto: Up to here elements are there without their data.
        seq: The last event.
        upto_ts: The last element.
    """

    elements: list[RawElement]
    snapshots: list[object]
    gone_upto: int
    seq: int
    upto_ts: int


def as_of(row: Row, head: int) -> Row:
    """A row of an archive that has reached a position.

    Where it carries no state, its seq is under no signature: one beyond the head would hide what
    comes next, for ever.
    """
    return row if integer_of(row, "seq") <= head else {**row, "seq": head}


def part_of(events: Iterable[Event], previous: Row | None) -> Part:
    """What the events of one document, in their order, add to its row."""
    seq, upto_ts, gone_upto = integer_of(previous, "seq"), integer_of(previous, "ts"), 0
    elements: list[RawElement] = []
    snapshots: list[object] = []
    for event in events:
        if event.seq <= seq:
            continue
        seq = event.seq
        if event.kind == "snapshot":
            snapshots.extend(cutting(event.payload))
            continue
        upto_ts = max(upto_ts, event.ts)
        if event.payload is None or text_of(event.payload) is None:
            gone_upto = max(gone_upto, event.ts)
        else:
            elements.append(RawElement(event.ts, event.payload, event.author, event.signature))
    return Part(elements, snapshots, gone_upto, seq, upto_ts)


def fold_part(
    rules: FoldRules,
    part: Part,
    *,
    identity: Identity,
    previous: Row | None,
    seq: int | None = None,
    is_final: bool = False,
    is_ahead: bool = False,
    is_behind: bool = False,
    known: Row | None = None,
) -> Folded | ReadAgain:
    """Fold a part onto the row that its document had; `seq` is the new row's, if not the part's.

    With `known` it is a row that is not gone on from, and of which nothing may be missing.
    """
    state = state_of(previous)
    if previous is not None and state is None:
        return ReadAgain("no state was kept")
    return fold(
        rules,
        part.elements,
        identity=identity,
        previous=state,
        previous_seq=integer_of(previous, "seq"),
        relay_seq=part.seq if seq is None else seq,
        snapshots=part.snapshots,
        gone_upto=part.gone_upto,
        is_final=is_final,
        is_ahead=is_ahead,
        is_behind=is_behind,
        known=state_of(known),
    )


def folded_row(document: str, folded: Folded, seq: int, *, keeps_state: bool = True) -> Row | None:
    """The row of a document; None if it was deleted."""
    if folded.is_deleted:
        return None
    return {
        "document": document,
        "value": cast("Json", folded.value),
        "ts": folded.upto_ts,
        "seq": seq,
        "elements": folded.elements,
        "authors": list[Json](folded.authors),
        "rejected": folded.rejected,
        "state": cast("Json", folded.state) if keeps_state else None,
    }


def null_row(document: str, part: Part) -> Row:
    """The row of a document that cannot be folded."""
    return {
        "document": document,
        "value": None,
        "ts": part.upto_ts,
        "seq": part.seq,
        "elements": 0,
        "authors": [],
        "rejected": 0,
        "state": None,
    }


def state_of(row: Row | None) -> dict[str, Any] | None:
    """The state that a row carries; None if there is none."""
    state = None if row is None else row.get("state")
    return state if isinstance(state, dict) else None


def cutting(text: bytes | None) -> Iterable[object]:
    """A snapshot that may have let go of something, if it is one."""
    if text is not None and any(mark in text for mark in _CUTTING):
        yield from parsed(text)


def parsed(text: bytes | None) -> Iterable[object]:
    """A snapshot, if there is one."""
    if text is not None:
        try:
            yield parse(text)
        except MalformedError:
            # It will be rejected, with its evidence.
            yield None


def integer_of(row: Row | None, name: str) -> int:
    """A number of a row; 0 if there is none."""
    value = None if row is None else row.get(name)
    return value if type(value) is int else 0
