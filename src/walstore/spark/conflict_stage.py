"""What a task does to find edits that were made at the same time: neither author saw the other's.

    log   a1   b1   a2          a2 says that it has seen nothing of B, b1 says it has seen a1:
          └─────────┘           a2 and b1 are in conflict, a1 and b1 are not

- Who had seen what is said under each signature: `seen` names what a session had read of others
  since its element before. A log is read in its order, so whoever has read an element has read all
  before it.
- What a session had read before its first element may have come in a snapshot, and is not named.
  Its clock tells then: it stands above all that was seen. What it leaves open counts as seen, so
  of honest writers nothing is called a conflict that was none; but for one who has lagged until
  the log was pruned, and went on from a snapshot in the middle of a session.
- Of a peer that writes no header the clock alone tells, for each element.
- Sessions of one author are not in conflict with each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from walstore.archive.rows import Column
from walstore.canon import canonical_text
from walstore.crdt import Run
from walstore.document.entries import Entry
from walstore.document.fold_rules import FoldRules
from walstore.spark.history_stage import HistoryStage, ReadLog, name_of, read_history
from walstore.spark.stages import Held, batches_of, shown
from walstore.spark.trust import Trust
from walstore.wire.envelope import counters_of

CONFLICTS: Final = (
    Column("document", "text"),
    Column("seq", "integer"),
    Column("ts", "integer"),
    Column("accepted_ms", "integer"),
    Column("id", "text"),
    Column("author", "text"),
    Column("session", "text"),
    Column("other_author", "text"),
    Column("other_session", "text"),
    Column("other_first_ts", "integer"),
    Column("other_last_ts", "integer"),
    Column("other_elements", "integer"),
    Column("names", "json"),
)


@dataclass(frozen=True)
class ConflictStage:
    """Finds edits that were made at the same time.

    Attributes:
        trust: Who is believed.
    """

    trust: Trust

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each element and each session whose edits it had not seen."""
        ruled = HistoryStage(self.trust).ruled(batches)
        rows = (row for rules, held in ruled for row in _rows(rules, held))
        return batches_of(rows, CONFLICTS)


def _rows(rules: FoldRules, held: Held) -> Iterator[list[Any]]:
    read = read_history(rules, held)
    causes = _Causes()
    for entry in read.entries():
        for other, unseen in causes.unseen(entry):
            yield _row(held, read, entry, other, unseen)
        causes.add(entry)


def _row(held: Held, read: ReadLog, entry: Entry, other: _Session, unseen: list[int]) -> list[Any]:
    event = read.events[entry.ts]
    names = {name_of(run) for run in entry.runs}
    # The last time that each name was written is enough to know whether it was since then.
    shared = sorted(name for name in names if other.written.get(name, 0) >= unseen[0])
    return [
        held.document,
        event.seq,
        event.ts,
        event.accepted_ms,
        event.id,
        event.author,
        None if entry.header is None else shown(entry.header.session),
        other.author,
        shown(other.nonce),
        unseen[0],
        unseen[-1],
        len(unseen),
        canonical_text([*shared]),
    ]


class _Session:
    """What is known of one session, as far as the log was read.

    Attributes:
        author: Whose it is.
        nonce: Its nonce; None where a peer has none.
        times: The `ts` of its elements.
        counts: Their seqs in the session.
        read: How far it had read the log.
        written: When it has last written each name.
    """

    def __init__(self, author: str, nonce: str | None) -> None:
        self.author = author
        self.nonce = nonce
        self.times: list[int] = []
        self.counts: list[int] = []
        self.read = 0
        self.written: dict[str, int] = {}

    def ts_of(self, seq: int) -> int:
        """The place in the log of the newest element up to a seq; 0 if there is none."""
        place = bisect_right(self.counts, seq)
        return self.times[place - 1] if place else 0


class _Causes:
    """Who had seen what, element by element in the order of the log."""

    def __init__(self) -> None:
        # Those that have written last come last.
        self._sessions: dict[tuple[str, str | None], _Session] = {}
        # Where the highest counter has risen: `ts`, and how high.
        self._rises: list[int] = []
        self._highest: list[int] = []

    def unseen(self, entry: Entry) -> Iterator[tuple[_Session, list[int]]]:
        """The sessions of others, and what they have written that the element had not seen."""
        session = self._session(entry)
        session.read = max(session.read, self._read_upto(session, entry))
        for other in reversed(self._sessions.values()):
            if other.times and other.times[-1] <= session.read:
                return
            if other.author != entry.author and other.times:
                yield other, other.times[bisect_right(other.times, session.read) :]

    def add(self, entry: Entry) -> None:
        """Take an element as written."""
        session = self._session(entry)
        session.times.append(entry.ts)
        session.counts.append(max(entry.seq_last, *session.counts[-1:], 0))
        for run in entry.runs:
            session.written[name_of(run)] = entry.ts
        key = session.author, session.nonce
        self._sessions[key] = self._sessions.pop(key)
        highest = max((counters_of(run)[1] for run in entry.runs), default=0)
        if highest > (self._highest[-1] if self._highest else 0):
            self._rises.append(entry.ts)
            self._highest.append(highest)

    def _read_upto(self, session: _Session, entry: Entry) -> int:
        header = entry.header
        if header is None or not session.times:
            return self._before_clock(entry.runs, entry.ts)
        told = [
            other.ts_of(seq)
            for replica, seq in header.seen.items()
            if (other := self._sessions.get(_parts(replica))) is not None
            # What an author has from another own session need not have come through the log.
            and other.author != entry.author
        ]
        return max(told, default=0)

    def _before_clock(self, runs: list[Run], ts: int) -> int:
        """Up to where the log can have been read before a clock was used."""
        first = min((counters_of(run)[0] for run in runs), default=None)
        if first is None:
            return ts
        place = bisect_right(self._highest, first - 1)
        return self._rises[place] - 1 if place < len(self._rises) else ts

    def _session(self, entry: Entry) -> _Session:
        key = entry.author, None if entry.header is None else entry.header.session
        return self._sessions.setdefault(key, _Session(*key))


def _parts(replica: str) -> tuple[str, str | None]:
    author, _, session = replica.partition(":")
    return author, session or None
