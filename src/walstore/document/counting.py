"""What was read of an author, told so that others can go on counting it after a revocation.

- Links are told of those elements that no other goes on from: they lead back to all the rest.
- Where something is missing that they should lead back to, or where they pass a seq over, all ends
  are told, and where the chain is torn: nobody must wait for what its author may have made up.
- Where links are not known, because a peer's snapshot names none, the seqs have to do.
- What a log starts from could be anything: whether all of it counts is not for sure. So who counts
  looks at everything that the author has in the log, from its beginning, as far as there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from walstore.document.log import DocumentLog, author_of, ts_of
from walstore.document.opening import Source
from walstore.document.ports import CheckpointTooOldError, pulling_elsewhere
from walstore.document.revoked import CountedLinks
from walstore.document.stranded import missing_upto
from walstore.signed.roster import Counted, Torn, seq_of


async def counted_anew(
    source: Source, author: str, here: DocumentLog, *, barrier_ts: int
) -> dict[str, int | Counted] | None:
    """What a log holds of an author, from its beginning, as a roster says that it counts; None if
    the beginning is gone, or something that was read is withheld.

    Args:
        source: Where the document is.
        author: The author.
        here: The log as it was read, from a snapshot.
        barrier_ts: Where that has let go of something last.

    Raises:
        TransportError: It cannot be read now.
    """
    log = source.new_log()
    # Nothing is too far above what others wrote.
    log.counter = here.counter
    try:
        await read_anew(source, log, author, here, barrier_ts=barrier_ts)
    except CheckpointTooOldError:
        return None
    if _lacks(log, author, here):
        return None
    seqs = {
        session or "": seq for writer, session, seq in log.tracker.sessions() if writer == author
    }
    known = here.crdt.inserted_by(author)
    return counted_by(log, author, seqs, are_heads_known=True, known=known)


async def read_anew(
    source: Source, log: DocumentLog, author: str, here: DocumentLog, *, barrier_ts: int
) -> None:
    """Read what an author has written, from the log's beginning to its end.

    Args:
        source: Where the document is.
        log: What it is read into.
        author: The author.
        here: The log as it was read, from a snapshot.
        barrier_ts: Where that has let go of something last.

    Raises:
        CheckpointTooOldError: The beginning is gone.
        TransportError: It cannot be read now.
    """
    pull, checkpoint = pulling_elsewhere(source.transport), 0
    while page := await pull(source.document_key, checkpoint):
        own = [element for element in page if author_of(element) == author]
        log.read([element for element in own if ts_of(element) <= barrier_ts])
        above = [element for element in own if ts_of(element) > barrier_ts]
        if above:
            # What comes again after a barrier is passed over by all who read on from there.
            log.covered = here.covered
            log.read(above)
        newest = max(map(ts_of, page))
        if newest <= checkpoint:
            return
        checkpoint = newest


def _lacks(log: DocumentLog, author: str, here: DocumentLog) -> bool:
    """Whether something of an author was read here, and is not in a log."""
    gaps, gaps_here = log.tracker.gaps(), here.tracker.gaps()
    return any(
        missing_upto(seq, (author, session), log, gaps)
        > missing_upto(seq, (author, session), here, gaps_here)
        for writer, session, seq in here.tracker.sessions()
        if writer == author
    )


def counted_by(
    log: DocumentLog,
    author: str,
    seqs: Mapping[str, int],
    *,
    are_heads_known: bool,
    known: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int | Counted]:
    """What was read of an author, as a roster says that it counts.

    Args:
        log: The log, read to its end.
        author: The author.
        seqs: The highest seq by session.
        are_heads_known: Whether what the log starts from, if anything, names the author's newest
            elements.
        known: The highest counters of list elements by replica that are known besides.
    """
    # Of a session that was forked at its last seq, one branch counts, the same in every process.
    links = {(head.session, head.seq): head.link for head in sorted(log.heads.get(author, ()))}
    counters = dict(log.crdt.inserted_by(author))
    for replica, counter in known.items():
        counters[replica] = max(counter, counters.get(replica, 0))
    counts: dict[str, int | Counted] = {}
    for session, seq in seqs.items():
        replica, link = f"{author}:{session}", links.get((session, seq))
        if session:
            is_led_up_to = are_heads_known or log.ledger.has_replica(replica)
        else:
            # Whoever has sessions may count by author as well, for peers who know none; then the
            # sessions tell what counts. What the log starts from does not say so.
            is_led_up_to = author not in log.sessionless and log.base is None
        if link is not None or is_led_up_to:
            counts[session] = Counted(seq, link, counters.get(replica, 0))
        else:
            counts[session] = seq
    for replica, counter in counters.items():
        # Version 1 may stamp with another session than the one that counts the element, if any.
        counts.setdefault(replica.partition(":")[2], Counted(0, None, counter))
    return counts if _is_whole(log, author, counts) else _torn(log, author, counts)


def _torn(
    log: DocumentLog, author: str, counts: Mapping[str, int | Counted]
) -> dict[str, int | Counted]:
    """The same of an author whose elements are no unbroken chain, or nobody can tell."""
    linked = [each for each in log.links.of(author) if each.session]
    continued = {each.before.link for each in linked}
    ends, lost = defaultdict[str, set[tuple[int, str]]](set), defaultdict[str, set[str]](set)
    for each in [*linked, *log.heads.get(author, ())]:
        if each.link not in continued:
            ends[each.session or ""].add((each.seq, each.link))
    for each in linked:
        if each.before.link and not each.before.is_here:
            lost[each.session or ""].add(each.before.link)
    told: dict[str, int | Counted] = {}
    for session, counted in counts.items():
        if not session or isinstance(counted, int):
            told[session] = seq_of(counted)
        elif not counted.seq:
            # It has no elements: another count tells what was stamped with it.
            told[session] = counted
        else:
            others = sorted(ends[session] - {(counted.seq, counted.link or "")})
            told[session] = counted._replace(torn=Torn(tuple(others), tuple(sorted(lost[session]))))
    return told


def _is_whole(log: DocumentLog, author: str, counts: Mapping[str, int | Counted]) -> bool:
    """Whether everything was read that leads up to what is told of an author, and nothing else."""
    if any(gap.author == author for gap in log.tracker.gaps()):
        return False
    counted = CountedLinks(counts)
    log.revocations.follow_back(author, counted)
    ends = {head.link for head in log.heads.get(author, ()) if head.session}
    is_all = counted.links.issuperset(ends) and not counted.unmet
    return is_all and log.revocations.are_led_up_to(author, counted)


def counts_all(log: DocumentLog, author: str) -> bool:
    """Whether everything that was read of an author counts, for sure, and nothing is waited for
    that does not.
    """
    counted = log.revocations.counted_of(author)
    if counted is None:
        return True
    if log.revocations.waits_in_vain(author, log.crdt):
        return False
    on_top = {entry.link for entry in log.own_unread() if entry.author == author}
    if not counted.links.issuperset(on_top):
        return False
    here: dict[str | None, set[int]] = {}
    for part in log.ledger.entries.parts:
        if part.author != author:
            continue
        seqs = here.setdefault(part.session, set())
        if not seqs.isdisjoint(part.seqs):
            return False
        seqs.update(part.seqs)
        # By seqs alone nothing of theirs is waited for, and it may stand elsewhere then.
        if not counted.are_named(part.session or ""):
            return False
        if not counted.links.issuperset(part.links):
            return False
    return all(
        log.revocations.is_counted(author, session, seq)
        and (len(here.get(session, ())) == seq or not _is_told_by_seqs(log, author, session))
        for writer, session, seq in log.tracker.sessions()
        if writer == author
    )


def _is_told_by_seqs(log: DocumentLog, author: str, session: str | None) -> bool:
    """Whether a session's elements are told apart by its seqs."""
    return session is not None or author in log.sessionless or log.base is not None
