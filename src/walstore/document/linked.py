"""Which elements of a log were read, by their links, and what each of them goes on from.

- An element names the link of its author's element before it. What was rejected, or cannot be
  opened, was read all the same: what it goes on from leads on.
- Of what a log starts from, the newest elements are known by their links, and of the others, as
  far as it tells, how far each session had come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from walstore.document.gaps import SequenceTracker, Session
from walstore.document.ledger import Ledger
from walstore.wire.element import Element
from walstore.wire.envelope import Header, read_header

# Rejected elements whose links are remembered; of more of them the oldest are forgotten.
REJECTED_MAX = 1024


class Candidate(NamedTuple):
    """An element that is to be judged.

    Attributes:
        element: It.
        header: What it says of its session outside the seal, if anything.
        signed: The bytes that its signature is over.
    """

    element: Element
    header: Header | None
    signed: bytes


class Before(NamedTuple):
    """What an element goes on from.

    Attributes:
        link: Its link; None if it is the first of its author.
        is_here: Whether it was read, or is in what the log starts from, as far as can be told.
    """

    link: str | None
    is_here: bool = False


class Linked(NamedTuple):
    """An element of a session that was read, folded or not, and what it goes on from."""

    author: str
    link: str
    session: str | None
    seq: int
    before: Before


class ReadLinks:
    """The links of one log, as far as it was read.

    Attributes:
        known: Those of the folded elements, to know them when they come again.
        unreadable: The elements that cannot be opened yet, by link, in the order of the log.
        claimed: The links of those that nothing but a snapshot names.
        has_base: Whether the log starts from anything.
        ledger: The folded elements.
    """

    def __init__(self, tracker: SequenceTracker) -> None:
        """Begin with nothing, beside what counts the sessions."""
        self.known: set[str] = set()
        self.unreadable: dict[str, Element] = {}
        self.claimed: frozenset[str] = frozenset()
        self.has_base = False
        self.ledger = Ledger()
        self._tracker = tracker
        # Newest last.
        self._rejected: dict[str, Linked] = {}
        # The highest seq of each session in what the log starts from.
        self._begun_with: dict[Session, int] = {}

    def reject(self, author: str, link: str, header: Header) -> None:
        """Take note of an element that is not folded."""
        self._rejected[link] = self._linked(author, link, *header[:3])
        if len(self._rejected) > REJECTED_MAX:
            del self._rejected[next(iter(self._rejected))]

    def is_rejected(self, link: str) -> bool:
        """Whether an element was rejected, and is not forgotten."""
        return link in self._rejected

    @property
    def has_forgotten(self) -> bool:
        """Whether some of the rejected may be forgotten."""
        return len(self._rejected) >= REJECTED_MAX

    def begin_with(self, author: str, session: str | None, seq: int) -> None:
        """Take note of what is in what the log starts from."""
        self._begun_with[author, session] = max(self.begun(author, session), seq)

    def begun(self, author: str, session: str | None) -> int:
        """The highest seq of a session in what the log starts from, as far as that tells."""
        return self._begun_with.get((author, session), 0)

    def is_begun_with(self, author: str, session: str | None, seq: int) -> bool:
        """Whether an element is in what the log starts from; nobody knows of what it does not
        tell.
        """
        if not self.has_base:
            return False
        seq_there = self._begun_with.get((author, session))
        return not self._tracker.is_complete if seq_there is None else seq_there >= seq

    def of(self, author: str) -> Iterator[Linked]:
        """Everything of an author that was read, folded or not."""
        for part in self.ledger.entries.parts:
            if part.author == author:
                for link, seq, prev in zip(part.links, part.seqs, part.prevs, strict=True):
                    yield self._linked(author, link, part.session, seq, prev)
        for link, element in self.unreadable.items():
            header = read_header(element.data)
            if element.author == author and header is not None:
                yield self._linked(author, link, *header[:3])
        for each in self._rejected.values():
            if each.author == author:
                # What it goes on from may have come since.
                yield self._linked(author, *each[1:4], each.before.link)

    def before(self, author: str, session: str | None, seq: int, prev: str | None) -> Before:
        """What an element goes on from."""
        if prev is None:
            return Before(None)
        # What counts by its seq is here already.
        if prev in self.known or prev in self.unreadable or prev in self._rejected:
            return Before(prev, is_here=True)
        if not self.has_base:
            return Before(prev)
        # The first element of a session goes on from another one, whichever that is. If it is not
        # here, that one is missed by its seqs.
        is_here = prev in self.claimed or (
            self.is_begun_with(author, session, seq - 1)
            if seq > 1
            else any(writer == author for writer, _ in self._begun_with)
        )
        return Before(prev, is_here)

    def _linked(
        self, author: str, link: str, session: str | None, seq: int, prev: str | None
    ) -> Linked:
        return Linked(author, link, session, seq, self.before(author, session, seq, prev))
