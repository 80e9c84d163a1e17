"""What a session has written and the log does not hold yet.

    edits ──► recorded ──► sealed ──► acknowledged ──► read in the log
              (in memory)  (sent, the same bytes each time)

- Edits are moved here before anything is awaited; a commit that fails leaves them here.
- The bodies of a session form one chain and count up by one, whatever happens in between.
- An acknowledgement is believed only once the element was read: what a relay acknowledged and
  does not hold is sent again.
- What waits is sealed anew when the key epoch moves on, unless the log holds it already; and so
  it is, in smaller parts, when it is larger than the log takes. What an earlier process has left
  and no key here opens is sent as it is, and what is before it, because it links to that.
- What the log refuses for good stays first, and everything behind it waits, until it is set aside.
  What is behind is then made anew by another session, whose chain begins with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from walstore.canon import canonical_bytes
from walstore.crdt import Run, WalCrdt
from walstore.crdt.convert import joined
from walstore.document.journal import Journal, RefusedBodies
from walstore.document.log import DocumentLog
from walstore.document.remaking import Commit
from walstore.document.sealing import Sealed, Sealer
from walstore.wire.limits import SEEN_SESSIONS_MAX


class Refusal(NamedTuple):
    """A body that the log will never take as it is.

    Attributes:
        link: The body.
        reason: Why, in words.
        is_of_author: Whether nothing of this author's is taken, whatever it is.
    """

    link: str
    reason: str
    is_of_author: bool


class Outbox:
    """The way of one session's edits into the log."""

    __slots__ = (
        "_acknowledged",
        "_author_seq",
        "_is_retried",
        "_journal",
        "_news",
        "_prev",
        "_recorded",
        "_refusal",
        "_sealed",
        "_sealer",
        "_seq",
    )

    def __init__(self, sealer: Sealer, journal: Journal | None = None) -> None:
        """Seal with `sealer`, from the session's first element on, and keep it in a journal."""
        self._sealer = sealer
        self._journal = journal
        self._recorded: list[Run] = []
        self._sealed: deque[Sealed] = deque()
        self._acknowledged: dict[str, Sealed] = {}
        self._seq = 0
        self._author_seq = 0
        self._prev: str | None = None
        # What was seen of others since the last element: the highest seq by replica.
        self._news: dict[str, int] = {}
        self._refusal: Refusal | None = None
        self._is_retried = False

    def __len__(self) -> int:
        return len(self._sealed)

    @property
    def unconfirmed(self) -> int:
        """How many bodies were not read in the log yet, acknowledged or not."""
        return len(self._sealed) + len(self._acknowledged)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way: all that was recorded was read in the log."""
        return not (self._recorded or self._sealed or self._acknowledged)

    @property
    def has_unsent(self) -> bool:
        """Whether anything waits to be sealed, sent or acknowledged."""
        return bool(self._recorded or self._sealed)

    @property
    def has_recorded(self) -> bool:
        """Whether anything waits to be sealed."""
        return bool(self._recorded)

    @property
    def has_written(self) -> bool:
        """Whether the session has sealed anything yet."""
        return self._seq > 0

    def start(self, *, author_seq: int, prev: str | None) -> None:
        """Go on from what the log holds of the author."""
        self._news.clear()
        self.observe(author_seq)
        if not self._seq:
            self._prev = prev

    def observe(self, author_seq: int) -> None:
        """Count on from what the author has written elsewhere."""
        self._author_seq = max(self._author_seq, author_seq)

    def note(self, replica: str, seq: int) -> None:
        """Take note of an element of another replica, to tell that it was seen."""
        self._news[replica] = max(self._news.get(replica, 0), seq)

    def record(self, runs: list[Run]) -> None:
        """Take over edits."""
        for run in runs:
            if not self._recorded or not joined(self._recorded[-1], run):
                self._recorded.append(run)

    def restore(self, bodies: Iterable[Sealed], acknowledged: Container[str]) -> None:
        """Go on with what earlier sessions have sealed."""
        for sealed in bodies:
            if sealed.link in acknowledged:
                self._acknowledged[sealed.link] = sealed
            else:
                self._sealed.append(sealed)
            self._prev = sealed.link
            self.observe(sealed.author_seq or 0)

    def seal(self, log: DocumentLog, message: str | None = None) -> None:
        """Seal what was recorded, and let the log know it as its own.

        A message is sealed with it, or, if nothing was recorded, alone.
        """
        if not self._recorded and not message:
            return
        seen = _told_in_one(self._news, self._sealer)
        bodies = self._sealer.seal(
            self._recorded,
            seq=self._seq + 1,
            author_seq=self._author_seq + 1,
            prev=self._prev,
            seen=seen,
            message=message or None,
        )
        if self._journal is not None:
            self._journal.seal(self._sealer.session, bodies)
        self._recorded = []
        for replica in seen:
            del self._news[replica]
        for sealed in bodies:
            self._sealed.append(sealed)
            log.adopt_own(sealed)
        self._seq += len(bodies)
        self._author_seq += len(bodies)
        self._prev = bodies[-1].link

    @property
    def is_outdated(self) -> bool:
        """Whether what waits was sealed in a key epoch that is over, and can be sealed anew."""
        return (
            bool(self._sealed)
            and self._sealed[0].epoch != self._sealer.epoch
            and all(sealed.is_opened for sealed in self._sealed)
        )

    def renew(self, log: DocumentLog) -> None:
        """Seal what waits anew, less what the log, read just now, holds already."""
        waiting = [sealed for sealed in self._sealed if not log.holds(sealed.link)]
        renewed: dict[str | None, Sealed] = {}
        for sealed in waiting:
            prev = None if sealed.header is None else sealed.header.prev
            prev = renewed[prev].link if prev in renewed else prev
            renewed[sealed.link] = self._sealer.renew(sealed, prev)
        if self._journal is not None:
            self._journal.renew(list(renewed.values()))
        self._sealed = deque(renewed.values())
        for sealed in waiting:
            log.disown(sealed.link)
            log.adopt_own(renewed[sealed.link])
        if self._prev in renewed:
            self._prev = renewed[self._prev].link

    def next(self) -> Sealed | None:
        """What is to be sent next, None if nothing waits."""
        return self._sealed[0] if self._sealed else None

    # ── what is refused ────────────────────────────────────────────────────────────────

    @property
    def refusal(self) -> Refusal | None:
        """Why what is to be sent next is not taken; None if that is not known."""
        refusal = self._refusal
        is_next = refusal is not None and self._sealed and refusal.link == self._sealed[0].link
        return refusal if is_next else None

    @property
    def is_stopped(self) -> bool:
        """Whether what is to be sent next was refused, and is not to be sent once more."""
        return self.refusal is not None and not self._is_retried

    def refuse(self, refusal: Refusal) -> None:
        """Note that a body was refused for good."""
        self._refusal, self._is_retried = refusal, False

    def retry(self) -> None:
        """Let what was refused be sent once more: it may be another log, or it takes more."""
        self._is_retried = True

    def waiting(self) -> list[Sealed]:
        """What was sealed and not acknowledged."""
        return list(self._sealed)

    def recut(self, log: DocumentLog) -> None:
        """Seal what waits anew in smaller parts, less what the log, read just now, holds already.

        Each session counts on, so all that waits moves on with the first one that is cut.
        """
        waiting = [sealed for sealed in self._sealed if not log.holds(sealed.link)]
        links: dict[str | None, str] = {}
        seqs: dict[str, int] = {}
        bodies: list[Sealed] = []
        author_seq = min([sealed.author_seq or 0 for sealed in waiting], default=0)
        for sealed in waiting:
            header = sealed.header
            session = self._sealer.session if header is None else header.session
            seq = seqs.get(session, 0 if header is None else header.seq)
            prev = None if header is None else links.get(header.prev, header.prev)
            parts = self._sealer.seal(
                sealed.runs,
                seq=seq,
                author_seq=author_seq + len(bodies),
                prev=prev,
                seen={} if header is None else header.seen,
                session=session,
                message=sealed.message,
            )
            seqs[session], links[sealed.link] = seq + len(parts), parts[-1].link
            bodies += parts
        if self._journal is not None:
            self._journal.replace([sealed.link for sealed in waiting], bodies)
        more = len(bodies) - len(waiting)
        self._author_seq += more
        if self._sealer.session in seqs:
            self._seq = seqs[self._sealer.session] - 1
        self._replace(log, waiting, bodies)
        self._prev = links.get(self._prev, self._prev)

    def set_aside(
        self,
        log: DocumentLog,
        refused: RefusedBodies,
        commits: Sequence[Commit],
        *,
        sealer: Sealer,
        author_seq: int,
        newest: str | None,
    ) -> None:
        """Go on as another session, with other commits in place of everything that waits.

        Args:
            log: The log, read just now.
            refused: What is kept apart.
            commits: What is sent instead of all that waits.
            sealer: Seals for the session.
            author_seq: How far the author has counted in the log, for version 1.
            newest: The link to the author's newest element in the log.
        """
        acknowledged = list(self._acknowledged.values())
        author_seq = max([author_seq, *(each.author_seq or 0 for each in acknowledged)])
        prev = acknowledged[-1].link if acknowledged else newest
        # What was seen is told by what is sent now.
        news = dict(self._news)
        for gone in self._sealed:
            for replica, seq in {} if gone.header is None else gone.header.seen.items():
                news[replica] = max(news.get(replica, 0), seq)
        seen = _told_in_one(news, sealer) if commits else {}
        bodies: list[Sealed] = []
        for commit in commits:
            bodies += sealer.seal(
                commit.runs,
                seq=len(bodies) + 1,
                author_seq=author_seq + len(bodies) + 1,
                prev=bodies[-1].link if bodies else prev,
                seen={} if bodies else seen,
                message=commit.message,
            )
        if self._journal is not None:
            links = [sealed.link for sealed in self._sealed]
            self._journal.set_aside(refused, links, bodies, sealer.session)
        self._sealer = sealer
        self._news = {replica: seq for replica, seq in news.items() if replica not in seen}
        self._seq, self._author_seq = len(bodies), author_seq + len(bodies)
        self._prev = bodies[-1].link if bodies else prev
        self._refusal = None
        self._replace(log, list(self._sealed), bodies)

    def _replace(self, log: DocumentLog, gone: Sequence[Sealed], bodies: Sequence[Sealed]) -> None:
        self._sealed = deque(bodies)
        for sealed in gone:
            log.disown(sealed.link)
        for sealed in bodies:
            log.adopt_own(sealed)

    def acknowledge(self, sealed: Sealed, ts: int) -> None:
        """A relay says that it holds what was sent: the first that waits."""
        assert self._sealed[0] is sealed, "whoever sends has the turn until the answer"
        if self._journal is not None:
            self._journal.acknowledge(sealed.link, ts)
        self._sealed.popleft()
        self._acknowledged[sealed.link] = sealed

    def confirm(self, log: DocumentLog) -> None:
        """Let go of what the log, read to its end, holds; what was acknowledged and is not there
        waits again.
        """
        if not self._acknowledged and not self._sealed:
            return
        self.let_go_of_read(log)
        gone, self._acknowledged = list(self._acknowledged.values()), {}
        self._sealed.extendleft(reversed(gone))
        if self._journal is not None:
            for sealed in gone:
                self._journal.acknowledge(sealed.link, None)

    def let_go_of_read(self, log: DocumentLog) -> None:
        """Let go of what the log, read to its end or not, holds."""
        # Of some the answer was lost: they were not acknowledged, and are there all the same.
        on_its_way = [*self._sealed, *self._acknowledged.values()]
        held = {sealed.link for sealed in on_its_way if log.holds(sealed.link)}
        if not held:
            return
        self._sealed = deque([sealed for sealed in self._sealed if sealed.link not in held])
        for link in held:
            self._acknowledged.pop(link, None)
        if self._journal is not None:
            self._journal.confirm(held)

    def put_back(self, bodies: Iterable[Sealed]) -> None:
        """Send bodies again that the log has lost, before all that is on its way; all of it waits.

        Whoever calls this has kept them.
        """
        on_its_way = {sealed.link: sealed for sealed in bodies}
        on_its_way |= self._acknowledged | {sealed.link: sealed for sealed in self._sealed}
        self._acknowledged = {}
        self._sealed = deque(on_its_way.values())

    def settle(
        self, is_covered: Callable[[Sealed], bool], heads: Collection[str] | None = None
    ) -> None:
        """Let go of what a snapshot covers: it was in the log, and may be pruned there by now.

        Args:
            is_covered: Whether it covers a body.
            heads: Of what was not acknowledged, let go only of what leads up to one of these links;
                the rest is sent once more, which changes nothing where it was sent before.
        """
        sent = list(self._sealed)
        while heads is not None and sent and sent[-1].link not in heads:
            sent.pop()
        waiting = [*self._acknowledged.values(), *sent]
        covered = {sealed.link for sealed in waiting if is_covered(sealed)}
        self._sealed = deque([sealed for sealed in self._sealed if sealed.link not in covered])
        acknowledged = self._acknowledged.items()
        self._acknowledged = {link: own for link, own in acknowledged if link not in covered}
        if self._journal is not None and covered:
            self._journal.confirm(covered)

    def carry_over(self, log: DocumentLog) -> None:
        """Take what is on its way into a new fold of the log."""
        for sealed in [*self._acknowledged.values(), *self._sealed]:
            if not log.holds(sealed.link):
                log.adopt_own(sealed)
                log.crdt.fold_runs(sealed.runs)
        self.fold_recorded(log.crdt)

    def fold_recorded(self, crdt: WalCrdt) -> None:
        """Fold what was recorded and is not sealed yet."""
        crdt.fold_runs(self._recorded)


def _told_in_one(news: Mapping[str, int], sealer: Sealer) -> dict[str, int]:
    """What one element tells of what was seen: as much as leaves room for all else in it."""
    room = sealer.bytes_max // 8
    told: dict[str, int] = {}
    for replica, seq in news.items():
        room -= len(canonical_bytes([replica, seq]))
        if room < 0 or len(told) == SEEN_SESSIONS_MAX:
            break
        told[replica] = seq
    return told
