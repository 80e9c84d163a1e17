"""Where new events go: decided from what stands in the tables, before anything is written.

- Pure: what is known comes in, the rows to write come out.
- Whoever calls holds the lock of the head from the reading to the commit, so what is decided here
  is what comes true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from walstore.relay.log import (
    Accepted,
    Conflict,
    DocumentStatus,
    Event,
    NewElement,
    NewSnapshot,
)
from walstore.relay.postgres_rows import Head, NewRow

Answer = TypeVar("Answer")


class Current(NamedTuple):
    """The current snapshot of a document."""

    revision: str
    upto_ts: int


class Standing(NamedTuple):
    """What the tables say of the documents and ids that were asked for.

    Attributes:
        head: The relay's own row.
        documents: The documents that there are.
        known: The events that there are, by document and id.
        current: The current snapshot of the document that it was asked for of, if there is one.
    """

    head: Head
    documents: Mapping[str, DocumentStatus]
    known: Mapping[tuple[str, str], Accepted]
    current: Current | None


class Batch(NamedTuple, Generic[Answer]):
    """What is to be written, and what is answered once it is."""

    answer: Answer
    head: Head
    rows: Sequence[NewRow] = ()
    documents: Sequence[DocumentStatus] = ()


def place_elements(
    elements: Sequence[NewElement], standing: Standing, now_ms: int
) -> Batch[list[Accepted]]:
    """Give each new element the next seq, and the next `ts` of its document."""
    documents: dict[str, DocumentStatus] = {}
    known = dict(standing.known)
    rows: list[NewRow] = []
    answers: list[Accepted] = []
    for element in elements:
        name = (element.document, element.id)
        if (place := known.get(name)) is not None:
            answers.append(place)
            continue
        status = documents.get(element.document) or _status(standing, element.document)
        event = _element_event(element, status, standing.head.seq + len(rows) + 1, now_ms)
        known[name] = Accepted(event.ts, event.seq, False, status.head)
        documents[element.document] = status._replace(
            elements=status.elements + 1,
            payload_bytes=status.payload_bytes + len(element.data),
            head=event.ts,
            last_accepted_ms=now_ms,
        )
        rows.append(NewRow(event, status.head))
        answers.append(known[name]._replace(is_new=True))
    head = standing.head._replace(seq=standing.head.seq + len(rows))
    return Batch(answers, head, rows, list(documents.values()))


def _status(standing: Standing, document: str) -> DocumentStatus:
    return standing.documents.get(document) or new_document(document)


def new_document(document: str) -> DocumentStatus:
    """What there is of a document before anything is."""
    return DocumentStatus(document, 0, 0, 0, 0, 0, 0, 0)


def _element_event(element: NewElement, status: DocumentStatus, seq: int, now_ms: int) -> Event:
    return Event(
        seq=seq,
        id=element.id,
        kind="element",
        document=element.document,
        author=element.author,
        ts=max(now_ms, status.head + 1),
        accepted_ms=now_ms,
        signature=element.signature,
        vc={},
        is_deletion=False,
        payload=element.data,
    )


def place_snapshot(
    snapshot: NewSnapshot, standing: Standing, now_ms: int
) -> Batch[Accepted | Conflict]:
    """Give a snapshot the next seq, if it may replace the current one."""
    if (place := standing.known.get((snapshot.document, snapshot.id))) is not None:
        return Batch(place, standing.head)
    status, current = _status(standing, snapshot.document), standing.current
    if (reason := _conflict(snapshot, current, status)) is not None:
        return Batch(Conflict(current.revision if current else None, reason), standing.head)
    event = _snapshot_event(snapshot, standing.head.seq + 1, now_ms)
    changed = status._replace(
        payload_bytes=status.payload_bytes + len(snapshot.text),
        snapshots=status.snapshots + 1,
        snapshot_upto=snapshot.upto_ts,
        last_accepted_ms=now_ms,
    )
    head = standing.head._replace(seq=event.seq)
    return Batch(Accepted(event.ts, event.seq, True, 0), head, [NewRow(event, 0)], [changed])


def _conflict(snapshot: NewSnapshot, current: Current | None, status: DocumentStatus) -> str | None:
    if snapshot.revision != (current.revision if current else None):
        return "another snapshot is current"
    if current is not None and snapshot.upto_ts < current.upto_ts:
        return "the current snapshot covers more"
    if snapshot.upto_ts > status.head:
        return "it covers elements that the log does not have"
    return None


def _snapshot_event(snapshot: NewSnapshot, seq: int, now_ms: int) -> Event:
    return Event(
        seq=seq,
        id=snapshot.id,
        kind="snapshot",
        document=snapshot.document,
        author=snapshot.author,
        ts=snapshot.upto_ts,
        accepted_ms=now_ms,
        signature="",
        vc=snapshot.vc,
        is_deletion=snapshot.is_deletion,
        payload=snapshot.text,
    )
