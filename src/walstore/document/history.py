"""Who wrote what, and when: read off the verified elements of a log.

- A version is a committed element, named by its `ts`.
- Blame follows the clocks: an element of a list carries the clock that inserted it, the clock
  belongs to the batch that stamped it, and the batch is signed.
- What only a snapshot vouches for has an author, from the replica id, but no batch.
"""

from __future__ import annotations

from typing import NamedTuple

from walstore.crdt import WalCrdt, parse_element_id
from walstore.crdt.sequence import RunSequence
from walstore.document.ledger import Entry, Ledger


class Version(NamedTuple):
    """A committed element.

    Attributes:
        ts: Its place in the log.
        author: Who signed it.
        session: Of which session, None where a peer has none.
        runs: How many runs of ops it holds.
    """

    ts: int
    author: str
    session: str | None
    runs: int


class Blame(NamedTuple):
    """A stretch of a list that was written in one go.

    Attributes:
        start: The position of its first element.
        size: How many elements it has.
        author: Who wrote it.
        ts: The element of the log that it came with; None if it is not committed yet, or if
            only a snapshot vouches for it.
    """

    start: int
    size: int
    author: str
    ts: int | None


def versions_of(entries: list[Entry]) -> list[Version]:
    """The versions that entries, ascending by `ts`, make."""
    return [
        Version(
            entry.element.ts,
            entry.author,
            None if entry.header is None else entry.header.session,
            len(entry.runs),
        )
        for entry in entries
    ]


def blame_list(crdt: WalCrdt, name: str, ledger: Ledger) -> list[Blame]:
    """Who wrote each stretch of a list."""
    stretches: list[Blame] = []
    position = 0
    for replica, counter, size in _stretches(crdt, name):
        end = counter + size
        while counter < end:
            entry, stop = ledger.find_stretch(replica, counter, end)
            author = replica.partition(":")[0] if entry is None else entry.author
            ts = None if entry is None else entry.element.ts or None
            _append(stretches, Blame(position, stop - counter, author, ts))
            position += stop - counter
            counter = stop
    return stretches


def _append(stretches: list[Blame], blame: Blame) -> None:
    if stretches:
        last = stretches[-1]
        if last.author == blame.author and last.ts == blame.ts:
            stretches[-1] = last._replace(size=last.size + blame.size)
            return
    stretches.append(blame)


def _stretches(crdt: WalCrdt, name: str) -> list[tuple[str, int, int]]:
    sequence = crdt.sequence(name) if name in crdt.lists else None
    if sequence is None:
        return []
    if isinstance(sequence, RunSequence):
        return [(span.replica, span.counter, span.live) for span in sequence.spans() if span.live]
    clocks = [parse_element_id(id) or (0, "") for id in sequence.ids()]
    return [(replica, counter, 1) for counter, replica in clocks]
