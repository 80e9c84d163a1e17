"""What counts of those who were revoked, while a log is read.

- Of each of them those elements count that lead up to what the roster names, and no others; nobody
  misses those. Which these are is found out by links, whatever the order of the log.
- What may lead up to something that is still to come waits for it, a few of each seq; once nothing
  is to come any more, whatever waits is rejected.
- Once everything is here that counts, nothing else ever comes: what was folded as if it might is
  folded anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from walstore.crdt import COUNTER_MAX, Run, WalCrdt
from walstore.document.events import Event, Rejection
from walstore.document.gaps import ROSTER, SequenceTracker
from walstore.document.linked import Before, Candidate, ReadLinks
from walstore.document.revoked import (
    CountedLinks,
    Revoked,
    counted_counter,
    counted_seq,
    inserted_in,
    is_torn,
    named_in,
    torn_id,
)
from walstore.errors import MalformedError
from walstore.signed.chain import Head
from walstore.signed.roster import Counted, seq_of
from walstore.wire.element import Element
from walstore.wire.limits import TS_MAX


class RevokedError(MalformedError):
    """An element does not count: its author was revoked."""

    def __init__(self) -> None:
        super().__init__("element", "its author was revoked")


class UnlinkedError(RevokedError):
    """The same, unless something comes that it leads up to."""


class Revocations:
    """What counts of the revoked, of one log as far as it was read.

    Attributes:
        left_out: Those who were revoked, or never were writers, of whom something was passed over
            for good, and the `ts` of the first of it: 0 where it is in what the log starts from.
    """

    def __init__(self, revoked: Revoked, links: ReadLinks, tracker: SequenceTracker) -> None:
        """Begin with nothing read.

        Args:
            revoked: What still counts of an author who was revoked.
            links: What was read.
            tracker: How many of each session were.
        """
        self.left_out: dict[str, int] = {}
        self._revoked = revoked
        self._links = links
        self._tracker = tracker
        # By author, as far as anything of them was read.
        self._counted: dict[str, CountedLinks] = {}
        # By link: elements that lead up to nothing that counts, so far.
        self._unlinked: dict[str, Candidate] = {}
        # The same elements, where the log has them again: there they may be what they are not at
        # their first place.
        self._repeated: dict[str, list[Candidate]] = {}
        # What something waits for that turned out never to come.
        self._in_vain: set[tuple[int, str]] = set()

    # ── what counts ────────────────────────────────────────────────────────────────────

    def is_counted(self, author: str, session: str | None, seq: int) -> bool:
        """Whether a seq of a session may count."""
        return counted_seq(self._revoked, author, session, seq) == seq

    def counted_of(self, author: str) -> CountedLinks | None:
        """What counts of an author, if they were revoked."""
        counts = self._revoked(author)
        if counts is None:
            return None
        counted = self._counted.get(author)
        if counted is None or (counted.counts is not counts and counted.counts != counts):
            counted = self._counted[author] = CountedLinks(counts)
            self.follow_back(author, counted)
            for session, seq in named_in(counts):
                self._tracker.vouch(ROSTER, author, session, seq)
        return counted

    def check(self, author: str, link: str, session: str | None, seq: int) -> None:
        """Make sure that an element counts.

        Raises:
            UnlinkedError: It leads up to nothing that does, so far.
            RevokedError: It never will.
        """
        counted = self.counted_of(author)
        if counted is None:
            return
        if not self.is_counted(author, session, seq):
            raise RevokedError
        if link in counted.links or link in counted.admitted:
            return
        if counted.are_named(session or ""):
            raise RevokedError if session is None else UnlinkedError
        if self._tracker.has(author, session, seq):
            raise RevokedError
        # It may have to be tried again, once it was counted.
        counted.admitted.add(link)

    def torn(self) -> dict[str, str]:
        """Names what counts of the revoked whose elements are no unbroken chain, by author."""
        names = {author: torn_id(self._revoked(author)) for author in self._tracker.authors()}
        return {author: name for author, name in names.items() if name is not None}

    # ── what leads where ───────────────────────────────────────────────────────────────

    def follow_back(self, author: str, counted: CountedLinks) -> None:
        """Find what leads up to the elements of an author that are named."""
        counted.follow({each.link: each.before for each in self._links.of(author)})
        counted.pass_over(partial(self._links.is_begun_with, author))

    def are_led_up_to(self, author: str, counted: CountedLinks) -> bool:
        """Whether each seq that was read of an author is that of an element that counts, where
        links tell what does.
        """
        if self._links.has_forgotten:
            return False
        named = dict(named_in(counted.counts))
        read = [each for each in self._links.of(author) if each.session in named]
        led = {(each.session, each.seq) for each in read if each.link in counted.links}
        return led.issuperset((each.session, each.seq) for each in read)

    def goes_beyond(self, heads: Mapping[str, Iterable[Head]]) -> bool:
        """Whether what a snapshot covers, of which these are the newest elements, holds more of the
        revoked than counts, for sure.
        """
        beyond = {author for author, own in heads.items() if not self._leads_to(author, own)}
        if not beyond:
            return False
        # What is missing may lead there.
        missed = {gap.author for gap in self._tracker.gaps()}
        return any(not self._counted[author].unmet for author in beyond - missed)

    def _leads_to(self, author: str, heads: Iterable[Head]) -> bool:
        """Whether what counts of somebody revoked leads back to all of these."""
        counted = self.counted_of(author)
        return counted is None or all(
            head.link in counted.links for head in heads if counted.are_named(head.session)
        )

    def counting(self, author: str, heads: frozenset[Head]) -> frozenset[Head]:
        """Those of an author's heads that count, as far as is known."""
        counted = self.counted_of(author)
        if counted is None:
            return heads
        return frozenset(
            head for head in heads if head.link in counted.links or head.link in counted.admitted
        )

    # ── what waits ─────────────────────────────────────────────────────────────────────

    @property
    def unlinked(self) -> Mapping[str, Candidate]:
        """Those elements, by link, that may lead up to something that is still to come."""
        if not self._unlinked:
            return self._unlinked
        return {
            link: each
            for link, each in self._unlinked.items()
            if self._counted[each.element.author].unmet
        }

    @property
    def unmet(self) -> dict[str, list[str]]:
        """The links that count, by author, whose elements were not read yet."""
        return {
            author: sorted(counted.unmet)
            for author, counted in self._counted.items()
            if counted.unmet
        }

    @property
    def is_starved(self) -> bool:
        """Whether something is missing, and may have found no room to wait."""
        return any(counted.is_full and counted.unmet for counted in self._counted.values())

    def holds(self, link: str) -> bool:
        """Whether an element is kept, whether it may lead up to anything or not."""
        return link in self._unlinked

    def is_waiting_for(self, author: str) -> bool:
        """Whether elements of somebody wait for what they lead up to."""
        return any(each.element.author == author for each in self.unlinked.values())

    def refused_unlinked(self) -> list[Rejection]:
        """What waits, as if nothing more were to come."""
        return [_refused(each) for each in self.unlinked.values()]

    def keep(self, candidate: Candidate, link: str, events: list[Event]) -> None:
        """Keep an element until something comes that it leads up to."""
        author, header = candidate.element.author, candidate.header
        assert header is not None, "what has no session waits for no link"
        counted = self._counted[author]
        is_kept = counted.may_wait(header.session, header.seq)
        if link in self._unlinked:
            if is_kept:
                self._repeated.setdefault(link, []).append(candidate)
            return
        if is_kept:
            self._unlinked[link] = candidate
        if not (is_kept and counted.unmet):
            events.append(_refused(candidate))

    def leading_to(
        self, candidate: Candidate, link: str, events: list[Event]
    ) -> list[tuple[str, Candidate]]:
        """Take back the elements that lead up to one that counts, in the order of the log."""
        author, header = candidate.element.author, candidate.header
        counted = self.counted_of(author)
        if counted is None or header is None or link not in counted.links:
            return []
        was_waiting = bool(counted.unmet)
        found: list[tuple[str, Candidate]] = []
        counted.meet(link, before := self._links.before(author, *header[:3]))
        while (name := before.link or "") in self._unlinked and name in counted.links:
            found.append((name, waiting := self._unlinked.pop(name)))
            found += [(name, each) for each in self._repeated.pop(name, ())]
            assert waiting.header is not None, "what has no session waits for no link"
            counted.meet(name, before := self._links.before(author, *waiting.header[:3]))
        if was_waiting and not counted.unmet:
            # Now it is known that nothing will come which the rest leads up to.
            events += [
                _refused(each) for each in self._unlinked.values() if each.element.author == author
            ]
        # What leads up to another element may stand behind it.
        return sorted(found, key=lambda each: each[1].element.ts)

    def foresee(self, coming: Iterable[tuple[str, str, Before]]) -> None:
        """Look ahead at what is read later, by author and link: what counts is known then."""
        befores: dict[str, dict[str, Before]] = {}
        for author, link, before in coming:
            befores.setdefault(author, {})[link] = before
        for author, each in befores.items():
            self._counted[author].foresee(each)

    def is_met_by(self, coming: Iterable[tuple[str, str, Before]]) -> bool:
        """Whether anything that is to be read, by author and link, is waited for."""
        return any(link in self._counted[author].unmet for author, link, _ in coming)

    def expect(self, unmet: Mapping[str, Sequence[str]]) -> None:
        """Go on from what was not met before."""
        for author, links in unmet.items():
            counted = self.counted_of(author)
            if counted is not None:
                counted.expect(links)

    # ── what was passed over ───────────────────────────────────────────────────────────

    @property
    def without(self) -> Mapping[str, int]:
        """Those of whom something was there that does not count, and the `ts` of the first of it:
        it would count, if they were made writers.
        """
        found = dict(self.left_out)
        for each in self._unlinked.values():
            _note_first(found, each.element)
        return found

    def leave_out(self, element: Element) -> None:
        """Take note that an element was passed over for good."""
        _note_first(self.left_out, element)

    def forget(self, upto_ts: int) -> None:
        """Let go of what waits up to a `ts`; that it was there stays known."""
        for link, each in list(self._unlinked.items()):
            if each.element.ts <= upto_ts:
                self.leave_out(each.element)
                del self._unlinked[link]
                self._repeated.pop(link, None)

    # ── what never comes ───────────────────────────────────────────────────────────────

    def comes_upto(self, replica: str) -> int:
        """The counter above which elements of a replica that are not here never come."""
        upto = counted_counter(self._revoked, replica)
        if upto == COUNTER_MAX:
            return upto
        author = replica.partition(":")[0]
        if self._is_settled(author):
            return 0
        self._counted[author].is_asked_for = True
        return upto

    def last_coming(self, name: str, replica: str, counter: int) -> int:
        """The highest counter of a list and a replica below another one that counts, once all of
        them are here: in another order it may be folded later.
        """
        author = replica.partition(":")[0]
        if not self._is_settled(author):
            return 0
        counted = self._counted[author]
        if counted.inserted is None:
            counted.inserted = inserted_in(self._runs_of(author))
        counters = counted.inserted.get(name)
        return 0 if counters is None else counters.last_below(replica, counter)

    def _runs_of(self, author: str) -> Iterator[Run]:
        for part in self._links.ledger.entries.parts:
            if part.author == author:
                yield from part.runs

    def _is_settled(self, author: str) -> bool:
        """Whether everything of somebody revoked is here that counts."""
        counted = self.counted_of(author)
        if counted is None:
            return False
        if not counted.is_settled:
            counted.is_settled = (
                not counted.unmet
                and all(each.author != author for each in self._links.unreadable.values())
                and all(
                    self._is_all_here(author, session, each)
                    for session, each in counted.counts.items()
                )
            )
        return counted.is_settled

    def _is_all_here(self, author: str, session: str, counted: int | Counted) -> bool:
        """Whether everything of a session is here that counts, besides what links lead to."""
        return is_torn(counted) or self._tracker.has_all(author, session or None, seq_of(counted))

    @property
    def is_unsettled(self) -> bool:
        """Whether something waits for what may come of somebody revoked, or leads there."""
        return any(
            counted.unmet or (counted.is_asked_for and not counted.is_followed)
            for counted in self._counted.values()
        )

    def waits_in_vain(self, author: str, crdt: WalCrdt) -> set[tuple[int, str]]:
        """The clocks of elements of somebody revoked that a fold waits for, and never come."""
        return {
            (counter, replica)
            for counter, replica in crdt.unmet()
            if replica.partition(":")[0] == author and counter > self.comes_upto(replica)
        }

    def settle(self, crdt: WalCrdt) -> bool:
        """Whether a fold has to be made anew: something waited in it for what never comes."""
        is_anew = False
        for author, counted in self._counted.items():
            if not counted.is_followed and self._is_settled(author):
                counted.is_followed = True
                if counted.is_asked_for:
                    self._in_vain |= self.waits_in_vain(author, crdt)
                    is_anew = True
        return is_anew

    def take_in_vain(self) -> Collection[tuple[int, str]]:
        """The clocks of all that something waited for, and never comes, since the last time."""
        in_vain, self._in_vain = self._in_vain, set()
        return in_vain

    def enter(self, author: str) -> bool:
        """Take note that an element was folded; whether that was not to be expected any more."""
        counted = self._counted.get(author)
        if counted is None:
            return False
        counted.inserted = None
        return counted.is_settled


def _note_first(found: dict[str, int], element: Element) -> None:
    found[element.author] = min(found.get(element.author, TS_MAX), element.ts)


def _refused(candidate: Candidate) -> Rejection:
    element, reason = candidate.element, RevokedError().reason
    return Rejection(element.ts, element.author, reason, element.as_json(), proven=True)
