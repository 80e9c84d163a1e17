"""What was read of an author, told so that others can go on counting it after a revocation.

- Links are told of those elements that no other goes on from: they lead back to all the rest.
- Where something is missing that they should lead back to, or where they pass a seq over, all ends
  are told, and where the chain is torn: nobody must wait for what its author may have made up.
- It is torn, too, at what was rejected for its counter. Where a relay repeats that, there may be
  room for it; but by then others have gone on as if it never came.
- Where links are not known, because a peer's snapshot names none, the seqs have to do.
- What a log starts from could be anything: whether all of it counts is not for sure. So who counts
  looks at everything that the author has in the log, from its beginning, as far as there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from walstore.document.log import DocumentLog, author_of, ts_of
from walstore.document.opening import Source
from walstore.document.ports import CheckpointTooOldError, pulling_elsewhere
from walstore.document.revoked import CountedLinks
from walstore.document.snapshot import Cut
from walstore.document.stranded import missing_upto
from walstore.signed.roster import Counted, Torn, seq_of
from walstore.wire.limits import COUNTER_JUMP_MAX


async def counted_anew(
    source: Source, author: str, here: DocumentLog, barrier: Cut
) -> dict[str, int | Counted] | None:
    """What a log holds of an author, from its beginning, as a roster says that it counts; None if
    the beginning is gone, or something that was read is withheld.

    Args:
        source: Where the document is.
        author: The author.
        here: The log as it was read, from a snapshot.
        barrier: Where that has let go of something last.

    Raises:
        TransportError: It cannot be read now.
    """
    log = source.new_log()
    # Nothing is too far above what others wrote.
    log.counter = here.counter
    try:
        await read_anew(source, log, here, barrier, lambda each: author_of(each) == author)
        too_far = await _too_far(source, log, author, here, barrier)
    except CheckpointTooOldError:
        return None
    if _lacks(log, author, here):
        return None
    seqs = {
        session or "": seq for writer, session, seq in log.tracker.sessions() if writer == author
    }
    known = here.crdt.inserted_by(author)
    return counted_by(log, author, seqs, too_far, are_heads_known=True, known=known)


async def read_anew(
    source: Source,
    log: DocumentLog,
    here: DocumentLog,
    barrier: Cut,
    is_read: Callable[[object], bool],
) -> None:
    """Read elements of a log from where it stands to its end.

    Args:
        source: Where the document is.
        log: The log, as far as it was read.
        here: The same as it was read from a snapshot.
        barrier: Where that has let go of something last.
        is_read: Whether to read an element.

    Raises:
        CheckpointTooOldError: What comes next is gone.
        TransportError: It cannot be read now.
    """
    pull, checkpoint = pulling_elsewhere(source.transport), log.checkpoint
    while page := await pull(source.document_key, checkpoint):
        read = [element for element in page if is_read(element)]
        log.read([element for element in read if ts_of(element) <= barrier.ts])
        above = [element for element in read if ts_of(element) > barrier.ts]
        if above:
            # What comes again after a barrier is passed over by all who read on from there.
            log.covered = here.covered
            log.read(above)
        newest = max(map(ts_of, page))
        if newest <= checkpoint:
            return
        checkpoint = newest


async def _too_far(
    source: Source, own: DocumentLog, author: str, here: DocumentLog, barrier: Cut
) -> frozenset[str]:
    """The links of an author's elements that were rejected for their counters.

    Args:
        source: Where the document is.
        own: The log, of which nothing was read but what the author wrote.
        author: The author.
        here: The log as it was read, from a snapshot.
        barrier: Where that has let go of something last.
    """
    if own.crdt.counter <= COUNTER_JUMP_MAX and not own.too_far(author):
        return frozenset()
    log = source.new_log()
    if barrier.is_deletion:
        # From there on everybody counts anew.
        log.checkpoint = barrier.ts
    await read_anew(source, log, here, barrier, lambda _: True)
    # What cannot be opened may have made room.
    return frozenset() if log.unreadable else log.too_far(author)


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
    too_far: frozenset[str],
    *,
    are_heads_known: bool,
    known: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int | Counted]:
    """What was read of an author, as a roster says that it counts.

    Args:
        log: The log, read to its end.
        author: The author.
        seqs: The highest seq by session.
        too_far: The links of what was rejected for its counter.
        are_heads_known: Whether what the log starts from, if anything, names the author's newest
            elements.
        known: The highest counters of list elements by replica that are known besides.
    """
    # Of a session that was forked at its last seq, one branch counts, the same in every process.
    heads = sorted(head for head in log.heads.get(author, ()) if head.link not in too_far)
    links = {(head.session, head.seq): head.link for head in heads}
    counters = dict(log.crdt.inserted_by(author))
    for replica, counter in known.items():
        counters[replica] = max(counter, counters.get(replica, 0))
    counts: dict[str, int | Counted] = {}
    for session, seq in _reached(log, author, seqs, too_far).items():
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
    if not too_far and _is_whole(log, author, counts):
        return counts
    return _torn(log, author, counts, too_far)


def _reached(
    log: DocumentLog, author: str, seqs: Mapping[str, int], too_far: frozenset[str]
) -> Mapping[str, int]:
    """How far sessions have come without what was rejected for its counter."""
    if not too_far:
        return seqs
    reached = dict(seqs)
    linked = list(log.links.of(author))
    for session in {each.session for each in linked if each.session and each.link in too_far}:
        kept = [each.seq for each in linked if each.session == session and each.link not in too_far]
        reached[session] = max([log.links.begun(author, session), *kept])
    return reached


def _torn(
    log: DocumentLog,
    author: str,
    counts: Mapping[str, int | Counted],
    too_far: frozenset[str],
) -> dict[str, int | Counted]:
    """The same of an author whose elements are no unbroken chain, or nobody can tell."""
    linked = {each.link: each for each in log.links.of(author) if each.session}
    ends = {(each.session, each.seq, link) for link, each in linked.items()}
    ends |= {(head.session, head.seq, head.link) for head in log.heads.get(author, ())}
    ends = {end for end in ends if end[2] not in too_far}
    linked = {link: each for link, each in linked.items() if link not in too_far}
    continued = {each.before.link for each in linked.values()}
    told: dict[str, int | Counted] = {}
    for session, counted in counts.items():
        if not session or isinstance(counted, int):
            told[session] = seq_of(counted)
            continue
        if not counted.seq:
            # It has no elements: another count tells what was stamped with it.
            told[session] = counted
            continue
        others = sorted(
            (seq, link)
            for where, seq, link in ends
            if where == session and link not in continued and link != counted.link
        )
        lost = {
            each.before.link
            for each in linked.values()
            if each.session == session
            and each.before.link
            and (each.before.link in too_far or not each.before.is_here)
        }
        told[session] = counted._replace(torn=Torn(tuple(others), tuple(sorted(lost))))
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
