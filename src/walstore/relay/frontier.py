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


def undominated(snapshots: Iterable[Event]) -> list[Event]:
    """Those snapshots that no other one of their document dominates, by seq."""
    frontiers: dict[str, list[Event]] = {}
    # The farthest first: what follows is then mostly dominated by what is there.
    for snapshot in sorted(snapshots, key=lambda each: (each.ts, each.seq), reverse=True):
        frontier = frontiers.setdefault(snapshot.document, [])
        if not any(dominates(other, snapshot) for other in frontier):
            frontier[:] = [other for other in frontier if not dominates(snapshot, other)]
            frontier.append(snapshot)
    found = [snapshot for frontier in frontiers.values() for snapshot in frontier]
    return sorted(found, key=lambda each: each.seq)


def bare(snapshot: Event) -> Event:
    """A snapshot without what a bootstrap leaves out."""
    return snapshot._replace(vc={}, payload=b"")


def is_crowded(snapshots: Collection[Event], new: NewSnapshot) -> bool:
    """Whether a document has as many that nothing dominates as it may have beside a new one."""
    if len(snapshots) < UNDOMINATED_MAX:
        return False
    beside = [each for each in snapshots if each.ts > new.upto_ts or not covers(new.vc, each.vc)]
    return len(undominated(beside)) >= UNDOMINATED_MAX
