"""What others wrote and a log has lost: it is shown here, and nobody here can send it.

- Only its author can bring an element back into the log. Until then it is folded on top of what was
  read; once it was read again, it is like any other.
- Elements are checked whenever the log is read anew, by who may write then.
- Where a snapshot stood for elements that nobody here has kept, a fold stands for them still.
- Nothing of it counts as read: it is in no snapshot, and whoever misses it is told so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from walstore.crdt import WalCrdt
from walstore.document.entries import Entry
from walstore.document.events import Gap
from walstore.document.gaps import Session
from walstore.document.journal import Journal, LeftBody
from walstore.document.log import DocumentLog
from walstore.document.opening import Source, is_covered
from walstore.document.ports import Body, RawElement, StoredSnapshot
from walstore.document.sealing import Sealed
from walstore.document.snapshot import Snapshot
from walstore.errors import MalformedError
from walstore.sealed.outcomes import SealRejectedError, UnreadableError


class Stranded:
    """The stranded elements of one document."""

    __slots__ = ("_elements", "_fold", "_is_hidden", "_journal", "_missing", "_source")

    def __init__(self, source: Source, journal: Journal | None) -> None:
        """Begin with nothing; what comes back is let go of in the journal, too."""
        self._source = source
        self._journal = journal
        self._elements: dict[str, RawElement] = {}
        self._fold: Snapshot | None = None
        # How many of the elements that the fold stands for are not in the log.
        self._missing = 0
        self._is_hidden = False

    @property
    def count(self) -> int:
        """How many elements are stranded."""
        return len(self._elements) + self._missing

    @property
    def fold(self) -> Snapshot | None:
        """What stands for elements that are not here."""
        return self._fold

    def restore(self, bodies: Iterable[LeftBody], fold: object) -> None:
        """Take over what an earlier process has kept."""
        for each in bodies:
            raw = RawElement(0, each.canonical, each.author, each.signature)
            self._elements[each.link] = raw
        self.keep_fold(fold)

    def add(self, entries: Iterable[Entry]) -> None:
        """Keep elements that the log has lost."""
        for entry in entries:
            self._elements[entry.link] = raw_of(entry)

    def keep_fold(self, document: object) -> None:
        """Keep a fold that this reader has signed, or None, in place of the one before."""
        self._fold, self._missing = None, 0
        if document is None:
            return
        try:
            # It counts what is missing, so it is not held to what counts.
            self._fold = self._source.read_snapshot(StoredSnapshot(document, ""), is_strict=False)
        except (MalformedError, SealRejectedError, UnreadableError):
            # Its key may be at hand the next time.
            return

    def carry_over(self, log: DocumentLog, base: Snapshot | None) -> None:
        """Show in a log that was read anew what is not in it."""
        entries = checked(self._source, list(self._elements.values()), counter=log.crdt.counter)
        back = [entry.link for entry in entries if is_held(entry, log, base)]
        self._let_go(back)
        for entry in entries:
            if entry.link in self._elements:
                log.adopt_own(sealed_of(entry, ""))
                log.crdt.fold_runs(entry.runs)
        self._count_fold(log)
        self._is_hidden = False
        self.fold_into(log.crdt)

    def fold_into(self, crdt: WalCrdt) -> None:
        """Fold what has no elements here."""
        if self._fold is not None and not self._is_hidden:
            crdt.join(self._fold.crdt)

    def confirm(self, log: DocumentLog) -> None:
        """Let go of what the log, read to its end, holds again."""
        if not self.count:
            return
        gaps = log.tracker.gaps()
        waiting = [entry for entry in log.own_unread() if entry.link in self._elements]
        # Its author may have sealed it anew, under another link.
        anew = [entry.link for entry in waiting if is_counted(entry, log, gaps)]
        for link in anew:
            log.disown(link)
        self._let_go([*anew, *(link for link in self._elements if log.holds(link))])
        self._count_fold(log)

    def hide(self, log: DocumentLog) -> None:
        """Let a log forget all of it, for as long as it is not carried over again."""
        for entry in log.own_unread():
            if entry.link in self._elements:
                log.disown(entry.link)
        self._is_hidden = True

    def let_go(self) -> None:
        """Keep nothing of it any more, whether or not it is in the log."""
        if self._elements and self._journal is not None:
            self._journal.replace(list(self._elements), [])
        self._elements.clear()
        self._drop_fold()

    def _let_go(self, links: Sequence[str]) -> None:
        if links and self._journal is not None:
            self._journal.confirm(links)
        for link in links:
            self._elements.pop(link, None)

    def _count_fold(self, log: DocumentLog) -> None:
        fold = self._fold
        if fold is None:
            return
        wanted: Mapping[str, int] = {**fold.writer_seq, **(fold.seqs or {})}
        gaps = log.tracker.gaps()
        self._missing = sum(
            missing_upto(seq, session_of(replica), log, gaps) for replica, seq in wanted.items()
        )
        if not self._missing:
            self._drop_fold()

    def _drop_fold(self) -> None:
        if self._fold is not None and self._journal is not None:
            self._journal.drop_stranded()
        self._fold, self._missing = None, 0


def missing_upto(seq: int, session: Session, log: DocumentLog, gaps: Iterable[Gap]) -> int:
    """How many elements of a session up to a seq a log does not hold."""
    highest = log.tracker.highest(*session)
    between = sum(
        max(min(gap.got - 1, seq, highest) - gap.expected + 1, 0)
        for gap in gaps
        if (gap.author, gap.session) == session
    )
    return between + max(seq - highest, 0)


def checked(source: Source, elements: Sequence[RawElement], *, counter: int) -> list[Entry]:
    """Those of some elements that their authors signed and that count, in order.

    Args:
        source: Who may write, and what is sealed with what.
        elements: The elements; their `ts` is not looked at.
        counter: The highest counter that is known.
    """
    log = source.new_log()
    log.tracker.cover_unknown()
    log.counter = counter
    return list(log.read([raw._replace(ts=at) for at, raw in enumerate(elements, 1)]).folded)


def is_held(entry: Entry, log: DocumentLog, base: Snapshot | None) -> bool:
    """Whether a log holds an element, or starts from a snapshot that covers it."""
    return log.holds(entry.link) or (base is not None and is_covered(sealed_of(entry, ""), base))


def is_counted(entry: Entry, log: DocumentLog, gaps: Iterable[Gap]) -> bool:
    """Whether a log holds an element of the same number."""
    if entry.header is None:
        return False
    author, session, seq = entry.author, entry.header.session, entry.header.seq
    return seq <= log.tracker.highest(author, session) and not any(
        (gap.author, gap.session) == (author, session) and gap.expected <= seq < gap.got
        for gap in gaps
    )


def sealed_of(entry: Entry, epoch: object) -> Sealed:
    """An element as the body that it was."""
    element = entry.element
    body = Body(element.canonical, element.author, element.signature)
    return Sealed(
        body, entry.link, entry.header, entry.author_seq, entry.runs, epoch, entry.message
    )


def raw_of(entry: Entry) -> RawElement:
    """An element as it was pulled, without its place."""
    element = entry.element
    return RawElement(0, element.canonical, element.author, element.signature)


def session_of(replica: str) -> Session:
    """The author and the session nonce of a replica; None where a peer counts by author."""
    author, _, session = replica.partition(":")
    return author, session or None
