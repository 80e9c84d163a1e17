"""What counts of an author who was revoked: so many elements of each session, and no more.

- Whoever revokes says how far they had read; no clock is asked, so that all readers agree.
- An empty session stands for the elements of a peer that counts by author.
- What others wrote after an element that does not count is kept, near where it was; see
  `walstore.crdt.collection`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from walstore.crdt import WalCrdt

# The highest seq that counts of a revoked author, by session; None of anybody else.
Revoked: TypeAlias = Callable[[str], Mapping[str, int] | None]


def nobody_revoked(author: str) -> None:
    """Everything counts, of whoever may write."""


def counted_seq(revoked: Revoked, author: str, session: str | None, seq: int) -> int:
    """How far a session counts that has been read up to a seq."""
    counted = revoked(author)
    return seq if counted is None else min(seq, counted.get(session or "", 0))


def new_fold(revoked: Revoked, base: WalCrdt | None) -> WalCrdt:
    """A fold to go on from, of nothing or of what is in another one."""
    crdt = WalCrdt() if base is None else base.clone()
    if revoked is not nobody_revoked:
        crdt.is_cut_off = lambda replica: revoked(replica.partition(":")[0]) is not None
    return crdt
