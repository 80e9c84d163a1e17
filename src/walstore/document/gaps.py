"""Which elements of which session have been seen, and which must be missing.

- A session counts its elements from 1. A peer without sessions counts by author; there the same
  number twice is normal, and only a number that was passed over tells of a gap.
- What a snapshot covers is the base line: it is not missing. Where the snapshot does not name
  every session, those that it leaves out are not counted; their authors still are.
- An author's word that it had seen an element of somebody else counts as well: what an honest
  peer has folded and this reader was not given is being withheld. Whose word counts, and for whom,
  is asked whenever gaps are; of one author's, only so much is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

from walstore.document.events import Gap

# A session is a pair of an author and a nonce; the nonce is None where a peer counts by author.
Session = tuple[str, str | None]


# How far an element is missed that somebody says to have seen: who says it, its author, session and
# seq.
Believed: TypeAlias = Callable[[str, str, str | None, int], int]

# Who vouches for what the owner has read of the revoked: no author, and signed by the owner.
ROSTER = ""

# The sessions of which one author says to have seen more than is here. Of an honest one there are
# few, unless very much is withheld.
VOUCHED_MAX = 256


class _Count:
    __slots__ = ("highest", "is_excused", "missing")

    def __init__(self, highest: int) -> None:
        self.highest = highest
        # Whether the next seq may be any: elements before it are there, but cannot be read yet.
        self.is_excused = False
        # Ranges below `highest` that have not arrived, ascending: `(first, end)`.
        self.missing: list[tuple[int, int]] = []


class Unsettled(NamedTuple):
    """What the highest seqs of a log do not tell: for whoever goes on counting later.

    Attributes:
        missing: Ranges that have not arrived, by author and session: `(first, end)`.
        excused: The authors whose next seq may be any.
        vouched: What others have seen and is not here, by who says so, author and session.
    """

    missing: dict[Session, list[tuple[int, int]]]
    excused: list[str]
    vouched: dict[tuple[str, str, str | None], int]


class SequenceTracker:
    """The counts of all sessions in one log."""

    __slots__ = ("_believed", "_counts", "_is_complete", "_vouched")

    def __init__(self, believed: Believed | None = None) -> None:
        """Count from nothing, and believe everybody unless something else is said."""
        self._counts: dict[Session, _Count] = {}
        self._believed = _everybody if believed is None else believed
        # By who says so: what was not here when it was said.
        self._vouched: dict[str, dict[Session, int]] = {}
        # Whether a session that was never heard of must start at 1.
        self._is_complete = True

    def cover(self, author: str, session: str | None, seq: int) -> None:
        """Take everything up to a seq as seen: a snapshot covers it."""
        count = self._counts.setdefault((author, session), _Count(seq))
        count.highest = max(count.highest, seq)
        count.missing = [
            (max(first, seq + 1), end) for first, end in count.missing if end > seq + 1
        ]

    @property
    def is_complete(self) -> bool:
        """Whether every session is counted."""
        return self._is_complete

    def cover_unknown(self) -> None:
        """A snapshot covers sessions that it does not name: they cannot be counted."""
        self._is_complete = False

    def note(self, author: str, session: str | None, seq: int) -> Gap | None:
        """Count an element; the gap that it opens, if any."""
        count = self._counts.get((author, session))
        if count is None:
            if session is not None and not self._is_complete:
                # An old element, delivered again, looks just like the next one.
                return None
            start = 0 if self._is_complete else seq - 1
            count = self._counts[author, session] = _Count(start)
        if seq <= count.highest:
            _fill(count.missing, seq)
            return None
        gap: Gap | None = None
        if seq > count.highest + 1 and not count.is_excused:
            count.missing.append((count.highest + 1, seq))
            gap = Gap(author, count.highest + 1, seq, session)
        count.highest = seq
        count.is_excused = False
        return gap

    def note_all(self, author: str, session: str | None, seq: int, size: int) -> Gap | None:
        """Count elements whose seqs count up from the first one's; the gap before them, if any."""
        gap = self.note(author, session, seq)
        count = self._counts.get((author, session))
        if count is not None and count.highest == seq:
            count.highest += size - 1
            # Whoever was excused has gone on by now, unless there is but one and it was known.
            count.is_excused = count.is_excused and size == 1
        else:
            # Some of them are known, or missing no longer.
            for each in range(seq + 1, seq + size):
                self.note(author, session, each)
        return gap

    def excuse(self, author: str) -> None:
        """An element is there whose seq cannot be read: the next one may have any."""
        self._counts.setdefault((author, None), _Count(0)).is_excused = True

    def vouch(self, voucher: str, author: str, session: str | None, seq: int) -> None:
        """Somebody says that they have seen this element."""
        if self._believed(voucher, author, session, seq) <= self.highest(author, session):
            return
        said = self._vouched.setdefault(voucher, {})
        if voucher != ROSTER and len(said) >= VOUCHED_MAX and (author, session) not in said:
            said = self._vouched[voucher] = {
                each: seq for each, seq in said.items() if seq > self.highest(*each)
            }
            if len(said) >= VOUCHED_MAX:
                return
        said[author, session] = max(said.get((author, session), 0), seq)

    def unsettled(self) -> Unsettled:
        """What is to be kept beside the highest seqs, to go on counting from there."""
        counts = self._counts.items()
        return Unsettled(
            {session: list(count.missing) for session, count in counts if count.missing},
            [author for (author, _), count in counts if count.is_excused],
            {
                (voucher, author, session): seq
                for voucher, said in self._vouched.items()
                for (author, session), seq in said.items()
                if seq > self.highest(author, session)
            },
        )

    def resume(self, unsettled: Unsettled) -> None:
        """Go on with what was kept, after the highest seqs were covered."""
        for (author, session), missing in unsettled.missing.items():
            count = self._counts.setdefault((author, session), _Count(missing[-1][1]))
            count.missing = list(missing)
        for author in unsettled.excused:
            self.excuse(author)
        for (voucher, author, session), seq in unsettled.vouched.items():
            self.vouch(voucher, author, session, seq)

    def has(self, author: str, session: str | None, seq: int) -> bool:
        """Whether an element with a seq was seen."""
        count = self._counts.get((author, session))
        return (
            count is not None
            and seq <= count.highest
            and not any(first <= seq < end for first, end in count.missing)
        )

    def has_all(self, author: str, session: str | None, seq: int) -> bool:
        """Whether all elements up to a seq were seen, as far as they are counted."""
        count = self._counts.get((author, session))
        if count is None:
            return seq == 0 or not self._is_complete
        return seq <= count.highest and all(first > seq for first, _ in count.missing)

    def highest(self, author: str, session: str | None) -> int:
        """The highest seq seen of a session, 0 if none."""
        count = self._counts.get((author, session))
        return 0 if count is None else count.highest

    def authors(self) -> set[str]:
        """The authors of all sessions."""
        return {author for author, _ in self._counts}

    def has_lost(self, author: str, session: str | None, seq: int) -> bool:
        """Whether an element that was there before is surely gone."""
        is_counted = session is None or self._is_complete or (author, session) in self._counts
        return is_counted and self.highest(author, session) < seq

    def sessions(self) -> Iterator[tuple[str, str | None, int]]:
        """Author, session nonce and highest seq of every session."""
        for (author, session), count in self._counts.items():
            yield author, session, count.highest

    def writer_seq(self) -> dict[str, int]:
        """The highest seq by author, of those who count so."""
        return {author: seq for author, session, seq in self.sessions() if session is None and seq}

    def seqs(self) -> dict[str, int] | None:
        """The highest seq by replica, or None if there may be sessions that are not counted."""
        if not self._is_complete:
            return None
        return {
            f"{author}:{session}": seq
            for author, session, seq in self.sessions()
            if session is not None and seq
        }

    def gaps(self, count_max: int | None = None) -> list[Gap]:
        """What is missing now, or the first so many gaps."""
        return list(islice(self._gaps(), count_max))

    def _gaps(self) -> Iterator[Gap]:
        for (author, session), count in self._counts.items():
            for first, end in count.missing:
                yield Gap(author, first, end, session)
        for (author, session), seq in self._missed().items():
            yield Gap(author, self.highest(author, session) + 1, seq + 1, session)

    def _missed(self) -> dict[Session, int]:
        """What somebody has seen who is believed, and is not here."""
        missed: dict[Session, int] = {}
        for voucher, said in self._vouched.items():
            for (author, session), seq in said.items():
                believed = self._believed(voucher, author, session, seq)
                highest = self.highest(author, session)
                if believed > highest and (self._is_complete or highest):
                    missed[author, session] = max(missed.get((author, session), 0), believed)
        return missed


def _everybody(voucher: str, author: str, session: str | None, seq: int) -> int:
    return seq


def _fill(missing: list[tuple[int, int]], seq: int) -> None:
    for place, (first, end) in enumerate(missing):
        if first <= seq < end:
            missing[place : place + 1] = [
                part for part in ((first, seq), (seq + 1, end)) if part[0] < part[1]
            ]
            return
