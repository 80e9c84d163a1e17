"""The fold of a log: every element is checked in the format's order, then folded or rejected.

- Checked are, in this order: shape and `ts`, the author's signature (through the chain where
  there is one), the author's right to write, the seal, the envelope. A flaw rejects the element
  whole; it is reported, and the log goes on.
- The checkpoint says how far the log was read, not how much of it was good: a bad element is
  never read again.
- Of an author who was revoked, those elements count that lead up to what was read before; any
  others are rejected like those of a stranger, and nobody misses them. What may lead up to
  something that is still to come waits for it.
- An element whose key has not arrived is kept, and opened when it has.
- An element that nothing proves is kept aside for a while: if a later one of its writer links to
  it, it counts after all. So what a reader accepts does not depend on how it paged.
- Where one clock was used twice, the first in the log counts. After an element that could only be
  folded late, the fold is out of order and has to be made anew.
- The same element again changes nothing.
- The oldest elements can be forgotten: they are folded into what the log starts from, and it reads
  on as if it had been opened from a snapshot there. One that is delivered again after that is a
  version once more; what it folds to is there already.
- Keystrokes in a row are checked and folded as one, and one that comes alone has a short way: the
  same checks, with the same outcome. As soon as anything about them is unusual, they are taken as
  any other element is.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from walstore.canon import Json, find_flaw
from walstore.crdt import Change, Run, WalCrdt
from walstore.crdt.runs import Insert
from walstore.document.changed import Changes
from walstore.document.entries import Entries, Entry, Part, Stretch
from walstore.document.events import NOT_A_WRITER, Event, Fork, Rejection
from walstore.document.gaps import ROSTER, SequenceTracker
from walstore.document.keystrokes import Strokes, gather_strokes
from walstore.document.ledger import Highs, highest_counter, last_named
from walstore.document.linked import Before, Candidate, ReadLinks
from walstore.document.ports import RawElement
from walstore.document.revocations import Revocations, RevokedError, UnlinkedError
from walstore.document.revoked import Revoked, counted_seq, nobody_revoked
from walstore.document.sealing import Sealed
from walstore.errors import MalformedError
from walstore.sealed.encryptor import Encryptor, PlainEncryptor, SealContext, is_outdated
from walstore.sealed.outcomes import SealRejectedError, UnreadableError
from walstore.signed.author import Domain, SigningFrame, verify_decoded
from walstore.signed.chain import (
    ChainColumns,
    ChainElement,
    Head,
    Verdict,
    are_accepted,
    check_chain,
    link_decoded,
)
from walstore.signed.encoding import decode_public_key, decode_signature
from walstore.wire.element import Element, read_element, read_raw_element
from walstore.wire.envelope import (
    Envelope,
    Header,
    counters_of,
    read_header,
    read_packed,
    read_starfish,
)
from walstore.wire.keystrokes import read_keystroke
from walstore.wire.limits import (
    COUNTER_JUMP_MAX,
    DATA_DEPTH_MAX,
    ELEMENT_BYTES_MAX,
    TS_AHEAD_MS_MAX,
    TS_MAX,
)


class Reading(NamedTuple):
    """What became of one page of a log.

    Attributes:
        folded: The elements that were new and good, in order.
        events: What was noticed.
    """

    folded: Entries
    events: list[Event]


# Elements that are kept aside for each reason; more of them are given up for good.
UNPROVEN_MAX = 1024

# People without the right to write whose elements were passed over, by name: it would not do to
# forget them if they are given that right. Whoever likes can be one where a relay is open to all.
LEFT_OUT_MAX = 256


# Elements that are parsed at a time: enough to share a signature check, few enough to fit a cache.
_CHUNK_SIZE = 512


class _TooFarError(MalformedError):
    def __init__(self) -> None:
        super().__init__("envelope", "a counter is far above everything seen so far")


class DocumentLog:
    """One document's log as far as it was read, and what it folds to."""

    def __init__(
        self,
        document_key: str,
        *,
        encryptor: Encryptor,
        is_writer: Callable[[str], bool],
        revoked: Revoked = nobody_revoked,
        now_ms: Callable[[], int] | None = None,
        pool: Executor | None = None,
    ) -> None:
        """Read the log of a document.

        Args:
            document_key: Its key, which every signature covers.
            encryptor: Opens what is sealed.
            is_writer: Whether an author key may write.
            revoked: What still counts of an author who was revoked.
            now_ms: The time: a `ts` far beyond it is refused. Without it, none is.
            pool: Threads to verify signatures with, if there are many.
        """
        self.document_key = document_key
        self._frame = SigningFrame(Domain.APPEND, document_key)
        self.encryptor = encryptor
        self.revoked = revoked
        self.tracker = SequenceTracker(self._believed)
        # What was read, by links; and what of it counts of the revoked.
        self.links = ReadLinks(self.tracker)
        self.revocations = Revocations(revoked, self.links, self.tracker)
        # What the log starts from, up to a `ts`: a snapshot, and what was forgotten since.
        self.base: WalCrdt | None = None
        self.base_ts = 0
        self._forgotten = 0
        # The length before which nothing more is forgotten.
        self._forget_from = 0
        self.crdt = self.fold_on(None)
        self.checkpoint = 0
        self.ledger = self.links.ledger
        self.heads: dict[str, frozenset[Head]] = {}
        # The links of elements that were read again, as far as their seqs tell, and were others.
        self._forks: set[str] = set()
        # The highest seq by replica before a barrier: what it let go of must not come back.
        self.covered: Mapping[str, int] = {}
        # The highest counter that was read in the log. What waits to be sent does not count: what
        # is too far above must be the same for every reader. For the same reason it counts what the
        # revoked wrote and does not count: others wrote above it before they knew.
        self.counter = 0
        self._start_counter = 0
        # By `ts`: where the highest counter is that of an element that does not count.
        self._passed_over: list[tuple[int, int]] = []
        self._entered_ts = 0
        self.unreadable = self.links.unreadable
        # The newest element that was sealed in a key epoch that was over when it was read.
        self.outdated_ts = 0
        # Whether something was folded in another order than the log's.
        self.is_out_of_order = False
        self._unproven: dict[str, Candidate] = {}
        # By link: elements that do not count, and could not be opened to see what room they made.
        self._unopened: dict[str, Element] = {}
        # By link: a late element may turn out to have made room for them.
        self._too_far: dict[str, Candidate] = {}
        # The counters of the log, while late elements are entered that waited together.
        self._highs: Highs | None = None
        # Those of whom elements were read that no session counts.
        self.sessionless: set[str] = set()
        self._is_writer = is_writer
        self._now_ms = now_ms
        self._pool = pool
        self._known = self.links.known
        # Where keystrokes are kept that come one by one; nobody else was given it.
        self._live = Stretch("", "", 0)
        # Own elements that were not read in the log yet, by link.
        self._own: dict[str, Sealed] = {}
        # Up to this counter they may have been made where other elements were than here.
        self.carried_counter = 0

    def read(self, page: Sequence[object], changes: list[Change] | None = None) -> Reading:
        """Check and fold a page of pulled elements.

        Args:
            page: Elements in the format's spelling, ascending by `ts`.
            changes: If given, what changed in the document is appended to it.
        """
        reading = Reading(Entries(), [])
        if len(page) == 1 and self._fold_stroke(page[0], reading, changes):
            return reading
        for start in range(0, len(page), _CHUNK_SIZE):
            parts = self._shaped(page[start : start + _CHUNK_SIZE], reading.events)
            self._fold(parts, reading, changes)
        self.is_out_of_order |= self.revocations.settle(self.crdt)
        return reading

    def read_again(self, changes: list[Change] | None = None) -> Reading:
        """Try the elements that could not be opened once more, with the keys of now."""
        unreadable = dict(self.unreadable)
        self.unreadable.clear()
        unopened, self._unopened = self._unopened, {}
        self._forget_from = 0
        reading = Reading(Entries(), [])
        waiting = unopened | unreadable
        self._highs = self._new_highs() if waiting else None
        # What was not known to count at first was put behind others.
        for link, element in sorted(waiting.items(), key=lambda each: each[1].ts):
            if link in unreadable:
                self._take(self._candidate(element), link, reading, changes)
            else:
                self._pass_over(self._candidate(element), link)
        self._take_too_far(reading, changes)
        self.is_out_of_order |= self.revocations.settle(self.crdt)
        return reading

    def holds(self, link: str) -> bool:
        """Whether an element was read in the log itself, whether it could be folded or not."""
        is_read = any(link in each for each in (self._known, self.unreadable, self._too_far))
        return is_read or self.revocations.holds(link)

    def step_back(self, head: int) -> None:
        """Go on from where the log ends now; what was read beyond that stays, as if before it."""
        self.checkpoint = self._entered_ts = min(self.checkpoint, head)
        self.base_ts = min(self.base_ts, head)
        self._begin_above(TS_MAX)

    @property
    def is_waiting(self) -> bool:
        """Whether elements are kept aside that may count later."""
        return bool(self.unreadable or self._unproven or self._too_far or self.revocations.unmet)

    @property
    def has_unopened(self) -> bool:
        """Whether elements that do not count may have higher counters than all that were opened."""
        return bool(self._unopened)

    @property
    def unproven(self) -> dict[str, str]:
        """The authors of the elements that nothing proves so far, by link, the oldest first."""
        return {link: each.element.author for link, each in self._unproven.items()}

    def leave_out(self, left_out: Mapping[str, int], *, upto_ts: int) -> None:
        """Take over who was passed over up to a `ts`: what the log starts from does not say it."""
        for author, ts in left_out.items():
            is_out = self.revoked(author) is not None or not self._is_writer(author)
            if upto_ts and ts <= upto_ts and is_out:
                self.revocations.left_out.setdefault(author, ts)

    def own_unread(self) -> list[Entry]:
        """The own elements, sent or not, that were not read in the log yet."""
        return [own.entry() for own in self._own.values()]

    def disown(self, link: str) -> None:
        """Forget an own element that will never be sent, if it was not read already."""
        self._own.pop(link, None)

    def adopt_own(self, sealed: Sealed) -> None:
        """Take an own element as folded: its ops were, when they were made."""
        self._own[sealed.link] = sealed

    def _shaped(self, page: Sequence[object], events: list[Event]) -> list[Candidate | Strokes]:
        shaped: list[Candidate | Strokes] = []
        ts_max = TS_MAX if self._now_ms is None else self._now_ms() + TS_AHEAD_MS_MAX
        # What is sealed has to be opened first, each element for itself.
        if type(self.encryptor) is PlainEncryptor:
            page = gather_strokes(page, ts_min=self.checkpoint + 1, ts_max=min(ts_max, TS_MAX))
        for value in page:
            if isinstance(value, Strokes):
                self.checkpoint = value.times[-1]
                shaped += self._uncovered_strokes(value)
                continue
            if ts_of(value) > ts_max:
                # The checkpoint stays: it would pass everything that is still to come.
                events.append(_rejection(value, "`ts` is far in the future"))
                continue
            try:
                element = _read(value)
                if element.ts <= self.checkpoint:
                    raise MalformedError("element", "`ts` does not increase")
                self.checkpoint = element.ts
                candidate = self._candidate(element)
                if not self._is_covered(element.author, candidate.header):
                    shaped.append(candidate)
            except MalformedError as error:
                self.checkpoint = max(self.checkpoint, ts_of(value))
                events.append(_rejection(value, error.reason))
        return shaped

    def _uncovered_strokes(self, strokes: Strokes) -> list[Candidate | Strokes]:
        typing = strokes.typing
        if typing.seq > self.covered.get(f"{typing.author}:{typing.session}", 0):
            return [strokes]
        each = map(self._candidate, strokes.elements())
        return [part for part in each if not self._is_covered(typing.author, part.header)]

    def _candidate(self, element: Element) -> Candidate:
        signed = self._frame.around(element.canonical)
        return Candidate(element, read_header(element.data), signed)

    def _fold(
        self, parts: list[Candidate | Strokes], reading: Reading, changes: list[Change] | None
    ) -> None:
        again = self._vouched_for(parts)
        parts = [*again, *parts]
        chain = ChainColumns()
        for part in parts:
            if isinstance(part, Strokes):
                part.add_to(chain, self._frame)
            else:
                chain.append(_chain_element(part))
        # Whoever comes first in the log vouches for nobody: how it was cut into pages has no say.
        report = check_chain(
            chain, self.heads, unverified=self.links.claimed, pool=self._pool, is_ordered=True
        )
        were_read = {
            head.link
            for author, own in report.heads.items()
            for head in own
            if self._was_read(author, head)
        }
        start = 0
        for part in parts:
            stop = start + (len(part.typing) if isinstance(part, Strokes) else 1)
            verdicts, links = report.verdicts[start:stop], report.links[start:stop]
            start = stop
            if not isinstance(part, Strokes):
                is_new = not any(part is each for each in again)
                self._judge(part, verdicts[0], links[0], reading, changes, is_new=is_new)
            elif not self._fold_strokes(part, verdicts, links, reading, changes):
                for element, verdict, link in zip(part.elements(), verdicts, links, strict=True):
                    self._judge(self._candidate(element), verdict, link, reading, changes)
        heads = self._not_read_again(report.heads, were_read)
        counting = self.revocations.counting
        self.heads = {
            writer: own & self.heads.get(writer, frozenset()) | counting(writer, own)
            for writer, own in heads.items()
        }
        if again:
            self._take_too_far(reading, changes)

    def _not_read_again(
        self, heads: Mapping[str, frozenset[Head]], were_read: Collection[str]
    ) -> dict[str, frozenset[Head]]:
        """The heads of those who may write, without what was read before and others go on from.

        A peer without sessions makes no chain; its elements are all leaves, and no heads.
        """
        return {
            writer: frozenset(
                head
                for head in own
                if head.session
                and (
                    head in self.heads.get(writer, ())
                    or head.link in self._forks
                    or head.link not in were_read
                )
            )
            for writer, own in heads.items()
            if self._is_writer(writer)
        }

    def _was_read(self, author: str, head: Head) -> bool:
        """Whether an element was read before, or its seq is in what the log starts from."""
        return (
            self.holds(head.link)
            or self.links.is_rejected(head.link)
            or head.seq <= self.links.begun(author, head.session)
        )

    def _judge(
        self,
        candidate: Candidate,
        verdict: Verdict,
        link: str | None,
        reading: Reading,
        changes: list[Change] | None,
        *,
        is_new: bool = True,
    ) -> None:
        """Take an element if its author is proven; if not, that is reported the first time."""
        if verdict.accepted and link is not None:
            self._take(candidate, link, reading, changes)
            candidate.element.release()
            return
        if link in self._known:
            # The same again; somebody vouched for it.
            return
        if is_new:
            reading.events.append(_rejection(candidate.element, verdict.value))
        if link is not None and candidate.header is not None:
            self._keep_aside(link, candidate)

    def _take(
        self,
        candidate: Candidate,
        link: str,
        reading: Reading,
        changes: list[Change] | None,
    ) -> None:
        """Fold an element whose author is proven, and what waited for it, or say why not."""
        waited = self.revocations.leading_to(candidate, link, reading.events)
        if waited:
            self._highs = self._new_highs()
            for name, each in waited:
                self._take_one(each, name, reading, changes)
                each.element.release()
            self._highs = None
        self._take_one(candidate, link, reading, changes)
        if waited:
            self._take_too_far(reading, changes)

    def _take_one(
        self,
        candidate: Candidate,
        link: str,
        reading: Reading,
        changes: list[Change] | None,
    ) -> None:
        events, is_own = reading.events, link in self._own
        try:
            entry = self._fold_one(candidate, link, events, changes)
        except UnreadableError:
            self._set_aside(candidate, link)
        except UnlinkedError:
            self.is_out_of_order |= is_own
            self._pass_over(candidate, link)
            self.revocations.keep(candidate, link, events)
        except MalformedError as error:
            if isinstance(error, RevokedError):
                self.revocations.leave_out(candidate.element)
                self._pass_over(candidate, link)
            elif isinstance(error, _TooFarError):
                self._keep_too_far(candidate, link)
            elif error.reason == NOT_A_WRITER and len(self.revocations.left_out) < LEFT_OUT_MAX:
                self.revocations.leave_out(candidate.element)
            self._reject(candidate, link, error.reason, events, is_own=is_own)
        except SealRejectedError as error:
            self._reject(candidate, link, str(error), events, is_own=is_own)
        else:
            if entry is not None:
                reading.folded.parts.append(entry)

    def _reject(
        self, candidate: Candidate, link: str, reason: str, events: list[Event], *, is_own: bool
    ) -> None:
        self._count_unread(candidate)
        if candidate.header is not None:
            self.links.reject(candidate.element.author, link, candidate.header)
        events.append(_rejection(candidate.element, reason, proven=True))
        if is_own:
            # It is in the log as it was sent: to send it again would change nothing. Here it was
            # folded when it was made.
            self.is_out_of_order = True
            if link not in self._too_far:
                self._known.add(link)

    def _pass_over(self, candidate: Candidate, link: str) -> None:
        """Make the room above an element that does not count that it made before that was known."""
        element = candidate.element
        try:
            highest = highest_counter(self.open_envelope(element, candidate.header).runs)
        except UnreadableError:
            if len(self._unopened) < UNPROVEN_MAX:
                self._unopened[link] = element
            return
        except (SealRejectedError, MalformedError):
            return
        before = self._counter_before(element.ts)
        if highest > before + COUNTER_JUMP_MAX:
            self._keep_too_far(candidate, link)
        if not before < highest <= before + COUNTER_JUMP_MAX:
            return
        self.counter = max(self.counter, highest)
        if self._highs is not None:
            self._highs.enter(highest)
        insort(self._passed_over, (element.ts, highest))
        if len(self._passed_over) > UNPROVEN_MAX:
            self._begin_above(self._passed_over[0][0])

    def _keep_too_far(self, candidate: Candidate, link: str) -> None:
        if len(self._too_far) < UNPROVEN_MAX:
            self._too_far[link] = candidate

    def _begin_above(self, ts: int) -> None:
        """Take what was passed over up to a `ts` as if it were before everything."""
        stop = bisect_right(self._passed_over, ts, key=itemgetter(0))
        gone, self._passed_over = self._passed_over[:stop], self._passed_over[stop:]
        self._start_counter = max([self._start_counter, *(counter for _, counter in gone)])

    def _take_too_far(self, reading: Reading, changes: list[Change] | None) -> None:
        """Judge once more, after a late element, what was too far above everything before it."""
        waiting, self._too_far = self._too_far, {}
        # What was entered so far may be after them.
        self._highs = self._new_highs() if waiting else None
        for link, candidate in sorted(waiting.items(), key=lambda each: each[1].element.ts):
            # Whatever is wrong with them was reported the first time.
            self._take(candidate, link, reading._replace(events=[]), changes)
        self._highs = None

    def _vouched_for(self, parts: list[Candidate | Strokes]) -> list[Candidate]:
        """Take back those unproven elements that lead up to one of the new elements."""
        again: list[Candidate] = []
        if not self._unproven:
            return again
        for part in parts:
            for prev in _prevs(part):
                while prev is not None and prev in self._unproven:
                    again.append(self._unproven.pop(prev))
                    (prev,) = _prevs(again[-1])
        again.reverse()
        return again

    def _fold_strokes(
        self,
        strokes: Strokes,
        verdicts: list[Verdict],
        links: list[str | None],
        reading: Reading,
        changes: list[Change] | None,
    ) -> bool:
        """Fold keystrokes as one, unless any of them is unproven, known or otherwise unusual.

        Returns:
            Whether they were folded. If not, nothing has changed.
        """
        typing = strokes.typing
        replica = f"{typing.author}:{typing.session}"
        names = [link for link in links if link is not None]
        if not (
            are_accepted(verdicts)
            and self._is_writer(typing.author)
            and self.revoked(typing.author) is None
            and self._own.keys().isdisjoint(names)
            and typing.seq > self.links.begun(typing.author, typing.session)
            # Whatever was read before has used its clocks.
            and typing.start > self.ledger.highest(replica)
            and typing.end <= self.counter + COUNTER_JUMP_MAX
        ):
            return False
        stretch = strokes.stretch(names)
        self._known.update(names)
        self.counter = max(self.counter, stretch.end - 1)
        self._entered_ts = stretch.times[-1]
        self.ledger.add_stretch(stretch)
        gap = self.tracker.note_all(stretch.author, stretch.session, stretch.seq, len(stretch))
        if gap is not None:
            reading.events.append(gap)
        self.crdt.fold_runs(typing.runs(), changes)
        if isinstance(changes, Changes):
            changes.close(typing.author, stretch.times[-1])
        reading.folded.parts.append(stretch)
        return True

    def _fold_stroke(self, value: object, reading: Reading, changes: list[Change] | None) -> bool:
        """Fold a single keystroke that goes on from its author's only head, if it is just that.

        Returns:
            Whether it was folded. If not, nothing has changed.
        """
        if type(value) is not RawElement or type(self.encryptor) is not PlainEncryptor:
            return False
        ts, text, author, signature = value
        if not (
            type(ts) is int
            and self.checkpoint < ts <= TS_MAX
            and (self._now_ms is None or ts <= self._now_ms() + TS_AHEAD_MS_MAX)
            and type(author) is type(signature) is str
            and type(text) is bytes
            and len(text) <= ELEMENT_BYTES_MAX
            # What is kept aside may be what it links to.
            and not self._unproven
        ):
            return False
        heads, stroke = self.heads.get(author), read_keystroke(text)
        if stroke is None or stroke.author != author or heads is None or len(heads) != 1:
            return False
        (head,) = heads
        _, session, seq, prev, run, end = stroke
        replica = run.replica
        if not (
            prev == head.link
            and (session != head.session or seq > head.seq)
            and all(map(self._is_writer, self.heads))
            and self.revoked(author) is None
            and seq > max(self.links.begun(author, session), self.covered.get(replica, 0))
            and run.counter > self.ledger.highest(replica)
            and end <= self.counter + COUNTER_JUMP_MAX
        ):
            return False
        key, proof = decode_public_key(author), decode_signature(signature)
        if key is None or proof is None:
            return False
        signed = self._frame.around(text)
        link = link_decoded(signed, key=key, signature=proof)
        if link in self._own or not verify_decoded(key, signed, proof):
            return False
        header, runs = Header(session, seq, prev, {}), list[Run]((run,))
        entry = Entry(Element(ts, text, author, signature), link, header, None, runs)
        self._enter_stroke(entry, run.counter, end)
        self.heads = {**self.heads, author: frozenset((Head(link, session, seq),))}
        gap = self.tracker.note(author, session, seq)
        if gap is not None:
            reading.events.append(gap)
        self.crdt.fold_runs(runs, changes)
        if isinstance(changes, Changes):
            changes.close(author, ts)
        reading.folded.parts.append(entry)
        return True

    def _enter_stroke(self, entry: Entry, counter: int, end: int) -> None:
        """Enter a single keystroke, beside the one before it if it goes on from there."""
        live, header, ts = self._live, entry.header, entry.element.ts
        assert header is not None, "keystrokes are chained"
        if (
            live.end == counter
            and live.links[-1] == header.prev
            and live.session == header.session
            and live.seq + len(live.links) == header.seq
            and len(live.links) < _CHUNK_SIZE
            # Nothing is between the two in the log, and nothing was folded since.
            and live.times[-1] == self.checkpoint
            and self.ledger.entries.parts[-1] is live
        ):
            live.append(entry, counter, end)
            self.ledger.lengthen(live)
        else:
            self._live = live = Stretch(entry.author, header.session, header.seq)
            live.append(entry, counter, end)
            self.ledger.add_stretch(live)
        self._known.add(entry.link)
        if end > self.counter:
            self.counter = end - 1
        self.checkpoint = self._entered_ts = ts

    def _keep_aside(self, link: str, candidate: Candidate) -> None:
        self._unproven[link] = candidate
        if len(self._unproven) > UNPROVEN_MAX:
            del self._unproven[next(iter(self._unproven))]

    def fold_on(self, base: WalCrdt | None) -> WalCrdt:
        """A fold to go on from, of nothing or of what is in another one."""
        crdt = WalCrdt() if base is None else base.clone()
        if self.revoked is not nobody_revoked:
            crdt.comes_upto = self.revocations.comes_upto
            crdt.last_coming = self.revocations.last_coming
        return crdt

    def fold_at(self, ts: int) -> WalCrdt:
        """The fold of everything up to a `ts`, in the order of the log."""
        crdt = self.fold_on(self.base)
        self.ledger.fold_into(crdt, upto_ts=ts)
        return crdt

    def refolded(self) -> WalCrdt:
        """The fold of everything that was read, in the order of the log."""
        self.is_out_of_order = False
        in_vain, crdt = self.revocations.take_in_vain(), self.fold_at(TS_MAX)
        # All others that were moved were told of when they were folded first.
        moved = [run for run in crdt.displaced if (run.after_counter, run.after_replica) in in_vain]
        crdt.displaced = [*self.crdt.displaced, *moved]
        return crdt

    @property
    def length(self) -> int:
        """How many elements were folded since the log was started, forgotten or not."""
        return self._forgotten + self.ledger.count

    def forget(self, *, count_max: int, bytes_max: int) -> list[Part]:
        """Keep only the newest elements of the log, so many and so large, once it has more.

        Half of it is forgotten at a time. What waits for a key, or for what it leads up to, keeps
        everything after it: it is folded at its place. What is missing of somebody revoked keeps
        all: where it belongs, and what leads up to it, is not known yet. What waits for a proof, or
        for room, is given up with what it was among; if it is vouched for later, it is missed as a
        gap.

        Returns:
            What was forgotten, in the order of the log.
        """
        is_over = self.ledger.count > count_max or self.ledger.text_bytes > bytes_max
        if not is_over or self.length < self._forget_from or self.revocations.is_unsettled:
            return []
        unlinked = self.revocations.unlinked.values()
        waiting = [*self.unreadable.values(), *(each.element for each in unlinked)]
        before_ts = min((each.ts for each in waiting), default=TS_MAX + 1)
        oldest = self.ledger.oldest_beyond(count_max // 2, bytes_max // 2)
        gone = list(takewhile(lambda part: part.ts_last < before_ts, oldest))
        if len(gone) < len(oldest):
            # What is in the way may stay there: it is not looked for with every page.
            self._forget_from = self.length + count_max // 8
        if not gone:
            return []
        base = self.base
        if base is None or not self._forgotten:
            # What a snapshot holds stays as it is.
            base = self.fold_on(base)
        for part in gone:
            base.fold_runs(part.runs)
            self._known.difference_update(part.links)
            self.links.begin_with(part.author, part.session, part.seq_last)
        base.displaced = []
        self.base, self.base_ts = base, max(part.ts_last for part in gone)
        self.links.has_base = True
        self._start_counter = max(self._start_counter, base.counter)
        self._begin_above(self.base_ts)
        self._forgotten += sum(map(len, gone))
        self.ledger = self.links.ledger = self.ledger.without(gone)
        self.revocations.forget(self.base_ts)
        for aside in (self._unproven, self._too_far):
            for link in [link for link, each in aside.items() if each.element.ts <= self.base_ts]:
                del aside[link]
        self._unopened = {
            link: each for link, each in self._unopened.items() if each.ts > self.base_ts
        }
        return gone

    def _fold_one(
        self,
        candidate: Candidate,
        link: str,
        events: list[Event],
        changes: list[Change] | None,
    ) -> Entry | None:
        element, header = candidate.element, candidate.header
        if link in self._known:
            return None
        own = self._own.pop(link, None)
        if not self._is_writer(element.author):
            raise MalformedError("element", NOT_A_WRITER)
        if header is not None:
            self.revocations.check(element.author, link, header.session, header.seq)
        if own is not None and own.is_opened:
            # Back from the log: now it has its place there.
            entry = own.entry()
            entry.element = element
            self.is_out_of_order |= self._is_early(entry)
        else:
            own, envelope = None, self.open_envelope(element, header)
            seq, runs, message = envelope.author_seq, envelope.runs, envelope.message
            entry = Entry(element, link, header, seq, runs, message)
        if header is None and entry.author_seq is not None:
            self.revocations.check(element.author, link, None, entry.author_seq)
        self._check_counters(entry.runs, element.ts)
        self._note_epoch(element)
        self._enter(entry, events)
        if own is None:
            is_again = header is not None and header.seq <= self.links.begun(
                entry.author, header.session
            )
            told = [] if is_again and changes is None else changes
            size = 0 if told is None else len(told)
            self.crdt.fold_runs(entry.runs, told)
            if is_again and told is not None and len(told) > size:
                self._forks.add(link)
            if isinstance(changes, Changes):
                changes.close(entry.author, entry.ts)
        return entry

    def _is_early(self, own: Entry) -> bool:
        """Whether an own element, folded when it was made, folds to something else at its place.

        What is not there after a barrier, and is no newer, was let go, for all who read the log. So
        it matters if something before it in the log names what only comes with it, or after it;
        and, if it was made before that, if what it names, or something earlier of the same replica,
        was read since. Who is honest names nothing that they have not read, and counts up.
        """
        if not own.runs or not self.crdt.horizon:
            return False
        replica, counter = own.replica, min(counters_of(run)[0] for run in own.runs)
        needed: dict[str, int] = {}
        for name, last in map(last_named, own.runs if counter <= self.carried_counter else ()):
            needed[name] = max(needed.get(name, 0), min(last, self.crdt.horizon))
        since = takewhile(
            lambda part: (part.author, part.session) != (own.author, own.session),
            reversed(self.ledger.entries.parts),
        )
        for run in (run for part in since for run in part.runs):
            name, last = last_named(run)
            if name == replica and last >= counter and counter <= self.crdt.horizon:
                return True
            if isinstance(run, Insert) and run.counter <= needed.get(run.replica, 0):
                return True
        return False

    def _note_epoch(self, element: Element) -> None:
        """Note whether the key epoch of an element is over."""
        sealed = element.data["body"] if element.data.get("v") == 2 else element.data
        if is_outdated(sealed, self.encryptor):
            self.outdated_ts = max(self.outdated_ts, element.ts)

    def foresee(self, page: Sequence[object]) -> None:
        """Look ahead at what is read later: what counts of the revoked is known then."""
        self.revocations.foresee(self._coming_of_revoked(page))

    def is_met_by(self, page: Sequence[object]) -> bool:
        """Whether anything that is to be read counts of somebody who was revoked."""
        return self.revocations.is_met_by(self._coming_of_revoked(page))

    def _coming_of_revoked(self, page: Sequence[object]) -> Iterator[tuple[str, str, Before]]:
        """Author and link of what the revoked have written in a page, and what is before it."""
        if self.revoked is nobody_revoked:
            return
        for value in page:
            if self.revocations.counted_of(author_of(value) or "") is None:
                continue
            try:
                element = _read(value)
                candidate = self._candidate(element)
            except MalformedError:
                continue
            key, proof = decode_public_key(element.author), decode_signature(element.signature)
            header = candidate.header
            if key is not None and proof is not None and header is not None:
                link = link_decoded(candidate.signed, key=key, signature=proof)
                yield element.author, link, self.links.before(element.author, *header[:3])

    def _is_covered(self, author: str, header: Header | None) -> bool:
        """Whether an element was before a barrier already."""
        return header is not None and header.seq <= self.covered.get(
            f"{author}:{header.session}", 0
        )

    def open_envelope(self, element: Element, header: Header | None) -> Envelope:
        """Open an element and read what is inside.

        Raises:
            UnreadableError: Its key is not at hand.
            SealRejectedError: The seal does not fit.
            MalformedError: What is inside is not an envelope.
        """
        if element.data.get("v") == 2:
            if header is None or element.data.get("author") != element.author:
                raise MalformedError("envelope", "`author` is not the one who signed")
            context = SealContext(self.document_key, element.author, header.seq)
            body = self._unseal(element.data.get("body"), context)
            return read_packed(body, element.author, header)
        context = SealContext(self.document_key, element.author, header.seq if header else 0)
        return read_starfish(self._unseal(element.data, context), element.author, header)

    def _unseal(self, sealed: object, context: SealContext) -> dict[str, Json]:
        plain = self.encryptor.open(sealed, context)
        if plain is not sealed:
            # A seal hides how deep its content is; deeper than this no snapshot could hold it.
            flaw = find_flaw(plain, depth_max=DATA_DEPTH_MAX)
            if flaw is not None:
                raise MalformedError("envelope", flaw)
        return plain

    def _check_counters(self, runs: Sequence[Run], ts: int) -> None:
        if highest_counter(runs) > self._counter_before(ts) + COUNTER_JUMP_MAX:
            raise _TooFarError

    def _counter_before(self, ts: int) -> int:
        """The highest counter in the log before a `ts`."""
        passed_ts = self._passed_over[-1][0] if self._passed_over else 0
        if ts > max(self._entered_ts, passed_ts):
            return self.counter
        highs = self._new_highs() if self._highs is None else self._highs
        return max(self._start_counter, highs.before(ts))

    def _new_highs(self) -> Highs:
        return Highs(self.ledger.parts(), self._passed_over)

    def start(self, base: WalCrdt, heads: Mapping[str, frozenset[Head]], counter: int) -> None:
        """Go on from a fold of everything before, which stays as it is, its newest elements, and
        the highest counter of them all.
        """
        self.base = base
        self.heads = dict(heads)
        self.links.has_base = True
        self.links.claimed = frozenset(head.link for own in heads.values() for head in own)
        self.crdt = self.fold_on(base)
        self.counter = self._start_counter = max(base.counter, counter)

    def _set_aside(self, candidate: Candidate, link: str) -> None:
        """Keep an element until its key arrives."""
        self.unreadable.setdefault(link, candidate.element)
        self._count_unread(candidate)

    def _count_unread(self, candidate: Candidate) -> None:
        """Count an element that is not folded: whatever is wrong with it, it is not missing."""
        author, header = candidate.element.author, candidate.header
        if not self._is_writer(author):
            return
        if header is not None:
            if not self.revocations.is_counted(author, header.session, header.seq):
                return
            self.tracker.note(author, header.session, header.seq)
        if candidate.element.data.get("v") != 2:
            self.tracker.excuse(author)

    def _believed(self, voucher: str, author: str, session: str | None, seq: int) -> int:
        """How far an element is missed that somebody says to have seen."""
        is_believed = self._is_writer(voucher) and self.revoked(voucher) is None
        if not ((is_believed or voucher == ROSTER) and self._is_writer(author)):
            return 0
        # Whoever has seen more of the revoked did not know yet that it would not count.
        return counted_seq(self.revoked, author, session, seq)

    def _enter(self, entry: Entry, events: list[Event]) -> None:
        self._known.add(entry.link)
        highest = highest_counter(entry.runs)
        self.counter = max(self.counter, highest)
        if self._highs is not None:
            self._highs.enter(highest)
        if entry.element.ts < self._entered_ts:
            self.is_out_of_order = True
        # What was refused at its place may count where the log has it again.
        self.is_out_of_order |= self.revocations.enter(entry.author)
        self._entered_ts = max(self._entered_ts, entry.element.ts)
        conflict = self.ledger.add(entry)
        if conflict is not None:
            counter, replica, earlier = conflict
            events.append(Fork(entry.author, counter, replica, earlier.element, entry.element))
        header, gap = entry.header, None
        if header is None:
            self.sessionless.add(entry.author)
        if entry.author_seq is not None:
            gap = self.tracker.note(entry.author, None, entry.author_seq)
        if header is not None:
            gap = self.tracker.note(entry.author, header.session, header.seq)
            for replica, seq in header.seen.items():
                author, _, session = replica.partition(":")
                self.tracker.vouch(entry.author, author, session or None, seq)
        if gap is not None:
            events.append(gap)


def ts_of(value: object) -> int:
    """The `ts` of a pulled element, 0 if it has none that counts."""
    ts: object
    if type(value) is RawElement:
        ts = value.ts
    else:
        ts = value.get("ts") if isinstance(value, dict) else getattr(value, "ts", None)
    return ts if type(ts) is int and 0 <= ts <= TS_MAX else 0


def _prevs(part: Candidate | Strokes) -> Sequence[str | None]:
    if isinstance(part, Strokes):
        return part.typing.prevs
    return (None if part.header is None else part.header.prev,)


def _read(value: object) -> Element:
    if isinstance(value, RawElement):
        return read_raw_element(*value)
    return value if isinstance(value, Element) else read_element(value)


def _chain_element(candidate: Candidate) -> ChainElement:
    element, header = candidate.element, candidate.header
    session, seq, prev = ("", 0, None) if header is None else header[:3]
    return ChainElement(element.author, session, seq, prev, candidate.signed, element.signature)


def author_of(value: object) -> str | None:
    """The author that a pulled element names."""
    author: object
    if isinstance(value, RawElement | Element):
        author = value.author
    else:
        author = value.get("authorPubkey") if isinstance(value, dict) else None
    return author if isinstance(author, str) else None


def _rejection(value: Any, reason: str, *, proven: bool = False) -> Rejection:
    if isinstance(value, Element):
        return Rejection(value.ts, value.author, reason, value.as_json(), proven)
    ts: object
    if isinstance(value, RawElement):
        ts = value.ts
    else:
        ts = value.get("ts") if isinstance(value, dict) else None
    return Rejection(
        ts if type(ts) is int else None,
        author_of(value),
        reason,
        value,
        proven,
    )
