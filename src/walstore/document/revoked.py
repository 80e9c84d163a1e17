"""What counts of an author who was revoked: so many elements of each session, and no more.

    session 1:  e1 ◄── e2 ◄── e3              whoever revoked had read all of these, and names e3
                        ▲                     and f2, which nothing goes on from; the others lead
    session 2:          └──── f1 ◄── f2       up to them

- Whoever revokes says how far they had read; no clock is asked, so that all readers agree.
- A revoked author may sign another element with a seq that counts, but none that leads up to an
  element that was there before. So an element counts if its link is named, or leads up to one that
  does; until that is known, it waits. What leads up to it is there for sure: whoever revoked had
  read it. While it is not here, somebody withholds it, and nothing is signed that stands for it.
- Where an author's elements are no unbroken chain, all its ends are named, and the links at which
  it is torn: whoever revoked has not read what they lead to, and its author may have made it up.
  That does not count, and nobody waits for it. What a snapshot covers cannot be told from seqs
  then: one that is believed says what its producer knew to count.
- Where no links are named, by an older roster, or of a peer that counts by author, the seqs have to
  do: the first element with a seq counts, and no other.
- An empty session stands for the elements of a peer that counts by author; with a bare seq if any
  of them have no session.
- What others wrote after an element that does not count is kept, near where it was; see
  `walstore.crdt.collection`. Up to the counter that is named, an element may still come, and is
  waited for: so it makes no difference whether somebody was revoked before it was read, or after.
  Once everything is here that counts, nothing else comes, and nothing waits for it any longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TypeAlias

from walstore.canon import content_hash
from walstore.crdt import COUNTER_MAX, Run, WalCrdt
from walstore.crdt.counters import Counters
from walstore.crdt.runs import Insert
from walstore.document.linked import Before
from walstore.document.snapshot import Snapshot
from walstore.signed.roster import Counted, Counts, counts_json, seq_of

# What counts of a revoked author, by session; None of anybody else.
Revoked: TypeAlias = Callable[[str], Counts | None]

# Elements with one seq of a session that wait for a link: an honest session has one. More are
# refused at once, so that nobody fills a reader's memory with them; if something is still missing
# at the end, it is read once more, and it is known then what counts.
TWINS_WAITING_MAX = 4


def nobody_revoked(author: str) -> None:
    """Everything counts, of whoever may write."""


def counted_seq(revoked: Revoked, author: str, session: str | None, seq: int) -> int:
    """How far a session counts that has been read up to a seq."""
    counted = revoked(author)
    return seq if counted is None else min(seq, seq_of(counted.get(session or "", 0)))


def _waits_for_any(revoked: Revoked, crdt: WalCrdt) -> bool:
    """Whether something was folded that waits for somebody who was revoked: who folds it now may
    know that this does not count, or never comes, and put it elsewhere.
    """
    return any(revoked(replica.partition(":")[0]) is not None for _, replica in crdt.unmet())


def named_in(counts: Counts) -> Iterator[tuple[str, int]]:
    """The sessions that were read for sure by whoever revoked, and how far."""
    for session, each in counts.items():
        if session and isinstance(each, Counted):
            yield session, each.seq


def is_torn(counted: int | Counted) -> bool:
    """Whether a session is no unbroken chain of elements."""
    return isinstance(counted, Counted) and counted.torn is not None


def torn_id(counts: Counts | None) -> str | None:
    """Names what counts of an author whose elements are no unbroken chain; None of all others."""
    if counts is None or not any(map(is_torn, counts.values())):
        return None
    return content_hash(counts_json(counts))


def is_overreaching(revoked: Revoked, snapshot: Snapshot) -> bool:
    """Whether a snapshot covers more of revoked authors than counts, as far as can be told."""
    if _waits_for_any(revoked, snapshot.crdt):
        return True
    seqs = {**snapshot.writer_seq, **(snapshot.seqs or {})}
    for replica, seq in seqs.items():
        author, _, session = replica.partition(":")
        if counted_seq(revoked, author, session, seq) < seq:
            return True
    authors = {replica.partition(":")[0] for replica in seqs}
    torn = {author: torn_id(revoked(author)) for author in authors}
    if snapshot.document["state"] is not None and any(
        name is not None and snapshot.torn.get(author) != name for author, name in torn.items()
    ):
        return True
    for author, own in snapshot.heads.items():
        counts = revoked(author) or {}
        for head in own:
            counted = counts.get(head.session)
            if not isinstance(counted, Counted) or counted.torn is not None:
                continue
            # Who knows another element with the last seq has a fork of the session; so has who
            # knows one that the session has left behind, and does not go on from.
            is_other = head.seq == counted.seq and head.link != (counted.link or head.link)
            if is_other or head.seq < seqs.get(f"{author}:{head.session}", 0):
                return True
    return False


def counted_counter(revoked: Revoked, replica: str) -> int:
    """The highest counter of the list elements of a replica that count."""
    author, _, session = replica.partition(":")
    counts = revoked(author)
    if counts is None:
        return COUNTER_MAX
    counted = counts.get(session, 0)
    return 0 if isinstance(counted, int) else counted.counter


def inserted_in(runs: Iterable[Run]) -> dict[str, Counters]:
    """The list elements of some runs, by list."""
    inserts = [run for run in runs if isinstance(run, Insert)]
    found: dict[str, Counters] = {}
    # Ascending, so that each goes to the end.
    for run in sorted(inserts, key=attrgetter("counter")):
        counters = found.setdefault(run.list, Counters())
        counters.add(run.replica, run.counter, len(run.values))
    return found


class CountedLinks:
    """Which elements of one revoked author count, as far as their links are known.

    Attributes:
        counts: What the roster says.
        links: The links that are named, and those that lead up to them.
        unmet: Those of them whose element was not read yet, and is in nothing that the log starts
            from.
        admitted: The links of elements that count by their seqs.
        is_full: Whether there was no room for an element to wait.
        is_settled: Whether everything is here that counts.
        is_asked_for: Whether somebody asked what may come before that was so.
        is_followed: Whether that was made good since.
        inserted: The list elements that count, by list, once somebody has asked.
    """

    __slots__ = (
        "_lost",
        "_twins",
        "admitted",
        "counts",
        "inserted",
        "is_asked_for",
        "is_followed",
        "is_full",
        "is_settled",
        "links",
        "unmet",
    )

    def __init__(self, counts: Counts) -> None:
        """Begin with what is named."""
        self.counts = counts
        known = [each for each in counts.values() if isinstance(each, Counted)]
        self.links = {link for each in known for _, link in each.named()}
        self.unmet = set(self.links)
        self._lost = {link for each in known if each.torn for link in each.torn.lost} - self.links
        self.admitted: set[str] = set()
        self.is_full = self.is_settled = self.is_asked_for = self.is_followed = False
        self.inserted: dict[str, Counters] | None = None
        self._twins: dict[tuple[str, int], int] = {}

    def are_named(self, session: str) -> bool:
        """Whether links tell what counts of a session."""
        return isinstance(self.counts.get(session), Counted)

    def pass_over(self, is_begun_with: Callable[[str, int], bool]) -> None:
        """Wait for nothing that is in what the log starts from, by session and seq."""
        for session, each in self.counts.items():
            for seq, link in each.named() if isinstance(each, Counted) else ():
                if is_begun_with(session, seq):
                    self.unmet.discard(link)

    def meet(self, link: str, before: Before) -> bool:
        """Take note of an element that counts, and of what leads up to it.

        Returns:
            Whether it goes on from one that was not known to count.
        """
        self.unmet.discard(link)
        return self._lead_to(before)

    def _lead_to(self, before: Before) -> bool:
        if before.link is None or before.link in self.links or before.link in self._lost:
            return False
        self.links.add(before.link)
        if not before.is_here:
            self.unmet.add(before.link)
        return True

    def expect(self, links: Iterable[str]) -> None:
        """Take note that elements count which may come."""
        for link in links:
            self._lead_to(Before(link))

    def follow(self, befores: Mapping[str, Before]) -> None:
        """Take note of elements by link, each with what is before it."""
        for link in list(self.links):
            name: str | None = link
            while name is not None and name in befores and self.meet(name, befores[name]):
                name = befores[name].link

    def foresee(self, befores: Mapping[str, Before]) -> None:
        """The same of elements that are still to be read: they count, and are not here yet."""
        for link in list(self.links):
            name: str | None = link
            while name is not None and name in befores and self._lead_to(befores[name]):
                name = befores[name].link

    def may_wait(self, session: str, seq: int) -> bool:
        """Whether there is room for one more element with a seq to wait for a link."""
        count = self._twins.get((session, seq), 0)
        self._twins[session, seq] = count + 1
        self.is_full |= count >= TWINS_WAITING_MAX
        return count < TWINS_WAITING_MAX
