"""How a document goes on with a log that has lost elements, so that as little as possible is lost.

    what was read   ──►  in the log still          read there
                    ──►  own                       sent again, byte for byte
                    ──►  others', kept here        stranded: shown until their authors send them
                    ──►  others', in a fold alone  stranded: the fold is shown on top of the log

- The log is read anew, from its snapshot or its beginning, as if it had never been read.
- What was read before is looked for in it, element by element; where a snapshot stands for
  elements, by what it counts.
- Nothing here changes anything: whoever keeps the result in one step can be stopped at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from walstore.crdt import WalCrdt
from walstore.document.entries import Entry
from walstore.document.events import Event, Rollback
from walstore.document.gaps import Session
from walstore.document.log import DocumentLog
from walstore.document.opening import Opening, Source, log_from
from walstore.document.ports import RawElement
from walstore.document.publishing import Draft, Producer
from walstore.document.sealing import Sealed
from walstore.document.snapshot import Snapshot, newest_cut
from walstore.document.stranded import checked, is_held, missing_upto, raw_of, sealed_of, session_of
from walstore.errors import MalformedError
from walstore.wire.element import read_raw_element
from walstore.wire.envelope import read_header

# Seqs: the first, and what comes after the last.
Range: TypeAlias = tuple[int, int]


class Rejoined(NamedTuple):
    """What a document goes on with, to be kept in one step.

    Attributes:
        state: The fold that the log starts from, signed by this reader for itself; None if it
            starts at its beginning.
        checkpoint: The `ts` up to which the log was read.
        snapshot_ts: The `uptoTs` of its snapshot; 0 if there is none.
        covered: Own elements at hand that its snapshot stands for, in order: it may lose them yet.
        again: Own elements that are sent again, in order.
        stranded: Others' elements that only they can send again, in order.
        fold: What stands for elements that are lost and not here, signed by this reader for
            itself; None if there are none.
    """

    state: dict[str, Any] | None
    checkpoint: int
    snapshot_ts: int
    covered: list[RawElement]
    again: list[Sealed]
    stranded: list[Entry]
    fold: dict[str, Any] | None


class Before(NamedTuple):
    """What was read of the log before it was rolled back.

    Attributes:
        log: The log as it was read.
        fold: What it folds to.
        elements: The elements of it that are at hand, ascending.
        stranded: What stands for elements that were lost earlier.
    """

    log: DocumentLog
    fold: WalCrdt
    elements: Sequence[RawElement]
    stranded: Snapshot | None


def settled(opening: Opening) -> Opening:
    """A log that was read anew, its end taken for its end although its snapshot knew more."""
    heads = [each.head for each in opening.events if isinstance(each, Rollback)]
    for head in heads:
        if head is not None:
            opening.log.step_back(head)
    events: list[Event] = [each for each in opening.events if not isinstance(each, Rollback)]
    return opening._replace(events=events)


def rejoin(
    opening: Opening, before: Before, *, source: Source, producer: Producer, epoch: object
) -> Rejoined:
    """Find out what a log has lost, and what becomes of it.

    Args:
        opening: The log, read anew and settled.
        before: What was read of it before.
        source: Where it is, and who is believed.
        producer: Signs for this reader.
        epoch: The key epoch of now: what is sent again is sent as it was, whatever its own was.
    """
    log, base, own = opening.log, opening.base, producer.identity.public_key
    entries = checked(source, before.elements, counter=before.fold.counter)
    lost = [entry for entry in entries if not is_held(entry, log, base)]
    gone = {entry.link for entry in lost}
    missing = _missing(log, before, _at_hand(before.elements, entries))
    return Rejoined(
        None if base is None else _signed(producer, _start_of(source, base, log), base.crdt, base),
        log.checkpoint,
        0 if opening.snapshot is None else opening.snapshot.upto_ts,
        [raw_of(entry) for entry in entries if entry.author == own and entry.link not in gone],
        [sealed_of(entry, epoch) for entry in lost if entry.author == own],
        [entry for entry in lost if entry.author != own],
        _fold_of_missing(log, before, missing, producer),
    )


def _start_of(source: Source, base: Snapshot, log: DocumentLog) -> DocumentLog:
    """The log where it starts."""
    start = log_from(source, base)
    start.step_back(log.checkpoint)
    return start


def _fold_of_missing(
    log: DocumentLog, before: Before, counts: dict[str, int], producer: Producer
) -> dict[str, Any] | None:
    """What stands for elements that are lost and not at hand, if there are any."""
    earlier = before.stranded
    if earlier is not None:
        counts |= {
            replica: max(counts.get(replica, 0), seq)
            for replica, seq in {**earlier.writer_seq, **(earlier.seqs or {})}.items()
        }
    gaps = log.tracker.gaps()
    if not any(missing_upto(seq, session_of(name), log, gaps) for name, seq in counts.items()):
        return None
    fold = before.fold.clone()
    if earlier is not None:
        fold.join(earlier.crdt)
    # It counts nothing but what is missing, so it is known when all of that is back.
    counting = producer.source.new_log()
    for replica, seq in counts.items():
        counting.tracker.cover(*session_of(replica), seq)
    return _signed(producer, counting, fold, None)


def _missing(
    log: DocumentLog, before: Before, at_hand: Mapping[Session, set[int]]
) -> dict[str, int]:
    """The highest seq by replica of elements that are lost and not at hand."""
    sessions = list(before.log.tracker.sessions())
    with_sessions = {author for author, session, _ in sessions if session is not None}
    # What was a gap before was never read.
    unread, lost = _gaps_of(before.log), _gaps_of(log)
    counts: dict[str, int] = {}
    for author, session, highest in sessions:
        if session is None and author in with_sessions:
            # Its elements are counted by their sessions.
            continue
        name = (author, session)
        gone = lost.get(name, [])
        if log.tracker.has_lost(author, session, highest):
            gone.append((log.tracker.highest(author, session) + 1, highest + 1))
        here, never = at_hand.get(name, set()), unread.get(name, [])
        seq = max([_newest_read(each, highest, here, never) for each in gone], default=0)
        if seq:
            counts[author if session is None else f"{author}:{session}"] = seq
    return counts


def _gaps_of(log: DocumentLog) -> dict[Session, list[Range]]:
    gaps: dict[Session, list[Range]] = {}
    for gap in log.tracker.gaps():
        gaps.setdefault((gap.author, gap.session), []).append((gap.expected, gap.got))
    return gaps


def _newest_read(gone: Range, highest: int, here: set[int], unread: Sequence[Range]) -> int:
    """The highest seq of a range, of those that were read, that is not at hand; 0 if all are."""
    first, end = gone
    seq = min(end - 1, highest)
    while seq >= first:
        # A range may be as long as an author claims.
        at = bisect_right(unread, seq, key=itemgetter(0)) - 1
        if at >= 0 and seq < unread[at][1]:
            seq = unread[at][0] - 1
        elif seq in here:
            seq -= 1
        else:
            return seq
    return 0


def _at_hand(elements: Iterable[RawElement], entries: Iterable[Entry]) -> dict[Session, set[int]]:
    """The seqs by session of what is at hand, whatever else is wrong with it."""
    numbers: dict[Session, set[int]] = {}
    for raw in elements:
        try:
            header = read_header(read_raw_element(*raw).data)
        except MalformedError:
            continue
        if header is not None:
            numbers.setdefault((raw.author, header.session), set()).add(header.seq)
    for entry in entries:
        if entry.author_seq is not None:
            numbers.setdefault((entry.author, None), set()).add(entry.author_seq)
    return numbers


def _signed(
    producer: Producer, log: DocumentLog, fold: WalCrdt, base: Snapshot | None
) -> dict[str, Any]:
    cuts = () if base is None else base.cuts
    return producer.sign(Draft(log, fold, newest_cut(cuts), cuts, None, []))
