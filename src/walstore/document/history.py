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
from walstore.document.entries import Entry, Part
from walstore.document.ledger import Ledger


class Version(NamedTuple):
    """A committed element.

    Attributes:
        ts: Its place in the log.
        author: Who signed it.
        session: Of which session, None where a peer has none.
        runs: How many runs of ops it holds.
        message: What its author says of it, if anything; a version with a message is a named one.
    """

    ts: int
    author: str
    session: str | None
    runs: int
    message: str | None = None


class Blame(NamedTuple):
    """A stretch of a list, a register or a key of a map that was written in one go.

    Attributes:
        start: The position of its first element, or of the key among the keys; 0 for a register.
        size: How many elements it has.
        author: Who wrote it.
        ts: The element of the log that it came with; None if it is not committed yet, or if
            only a snapshot vouches for it.
    """

    start: int
    size: int
    author: str
    ts: int | None


def versions_of(parts: list[Part]) -> list[Version]:
    """The versions that elements, in the order of the log, make."""
    versions: list[Version] = []
    for part in parts:
        if isinstance(part, Entry):
            session = None if part.header is None else part.header.session
            version = Version(part.ts, part.author, session, len(part.runs), part.message)
            versions.append(version)
        else:
            versions += [Version(ts, part.author, part.session, 1) for ts in part.times]
    return versions


def blame_of(crdt: WalCrdt, name: str, ledger: Ledger) -> list[Blame]:
    """Who wrote what a name stands for in a fold, by the elements that were folded."""
    if crdt.has_register(name):
        return blame_register(crdt, name, ledger)
    if name in crdt.lists or not crdt.has_map(name):
        return blame_list(crdt, name, ledger)
    return blame_map(crdt, name, ledger)


def blame_list(crdt: WalCrdt, name: str, ledger: Ledger) -> list[Blame]:
    """Who wrote each stretch of a list."""
    stretches: list[Blame] = []
    position = 0
    for replica, counter, size in _stretches(crdt, name):
        end = counter + size
        while counter < end:
            origin, stop = ledger.find_origin(replica, counter, end)
            author, ts = (replica.partition(":")[0], None) if origin is None else origin
            _append(stretches, Blame(position, stop - counter, author, ts))
            position += stop - counter
            counter = stop
    return stretches


def blame_register(crdt: WalCrdt, name: str, ledger: Ledger) -> list[Blame]:
    """Who wrote the value of a register."""
    clock = crdt.register_clock(name)
    is_there = clock is not None and crdt.has_register(name)
    return [_blame_write(0, clock, ledger)] if is_there and clock is not None else []


def blame_map(crdt: WalCrdt, name: str, ledger: Ledger) -> list[Blame]:
    """Who wrote the value of each key of a map, in the order of the keys."""
    clocks = [crdt.map_clock(name, key) for key in crdt.map_items(name)]
    return [_blame_write(at, clock, ledger) for at, clock in enumerate(clocks) if clock is not None]


def _blame_write(at: int, clock: tuple[int, str], ledger: Ledger) -> Blame:
    counter, replica = clock
    origin, _ = ledger.find_origin(replica, counter, counter + 1)
    author, ts = (replica.partition(":")[0], None) if origin is None else origin
    return Blame(at, 1, author, ts)


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
