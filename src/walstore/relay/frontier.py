"""The snapshots of a document that none of its others makes history.

- Dominance is a strict order, so a snapshot has to be compared with the undominated ones alone: a
  document with a long line of snapshots costs one comparison each, not one with every other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from walstore.relay.log import Event, NewSnapshot, covers, dominates

# Snapshots of one document that nothing dominates: all are kept, and compared with one another.
# Those of honest producers are a line, or a few that were made at the same time.
UNDOMINATED_MAX: Final = 64

# What these may count together: all of it is held while they are compared, some 100 bytes for each.
# A dozen of the largest that real sessions make are as many.
UNDOMINATED_COUNTS_MAX: Final = 2**19


class Frontier:
    """The snapshots of one document, told apart as they come, the farthest first.

    What one of them covers is let go of as soon as another one dominates it: so a long line of
    snapshots takes as much memory as one. It is dominated without that, too.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.current: list[Event] = []
        self._history: list[Event] = []

    def add(self, snapshot: Event) -> None:
        """Take one that reaches no farther than those before."""
        if any(dominates(other, snapshot) for other in self.current):
            self._history.append(bare(snapshot))
            return
        beaten = {other.seq for other in self.current if dominates(snapshot, other)}
        self._history += [bare(other) for other in self.current if other.seq in beaten]
        self.current = [other for other in self.current if other.seq not in beaten]
        self.current.append(snapshot)

    def all(self) -> list[Event]:
        """All of them, by seq."""
        return sorted([*self.current, *self._history], key=lambda each: each.seq)


def undominated(snapshots: Iterable[Event]) -> list[Event]:
    """Those snapshots that no other one of their document dominates, by seq."""
    frontiers: dict[str, Frontier] = {}
    # The farthest first: what follows is then mostly dominated by what is there.
    for snapshot in sorted(snapshots, key=_reach, reverse=True):
        frontiers.setdefault(snapshot.document, Frontier()).add(snapshot)
    found = [snapshot for frontier in frontiers.values() for snapshot in frontier.current]
    return sorted(found, key=lambda each: each.seq)


def told_apart(snapshots: Iterable[Event]) -> list[Event]:
    """The snapshots of one document, by seq; what dominated ones cover is left out."""
    frontier = Frontier()
    for snapshot in sorted(snapshots, key=_reach, reverse=True):
        frontier.add(snapshot)
    return frontier.all()


def _reach(snapshot: Event) -> tuple[int, int]:
    return snapshot.ts, snapshot.seq


def bare(snapshot: Event) -> Event:
    """A snapshot without what a bootstrap leaves out."""
    return snapshot._replace(vc={}, payload=b"")


def is_crowded(snapshots: Collection[Event], new: NewSnapshot) -> bool:
    """Whether a document has as many that nothing dominates as it may have beside a new one."""
    if len(snapshots) < UNDOMINATED_MAX and _counts(snapshots, new) <= UNDOMINATED_COUNTS_MAX:
        return False
    beside = [each for each in snapshots if each.ts > new.upto_ts or not covers(new.vc, each.vc)]
    found = undominated(beside)
    if len(found) >= UNDOMINATED_MAX:
        return True
    # One that covers all others is alone, whatever it counts.
    return bool(found) and _counts(found, new) > UNDOMINATED_COUNTS_MAX


def _counts(snapshots: Collection[Event], new: NewSnapshot) -> int:
    return len(new.vc) + sum([len(each.vc) for each in snapshots])
