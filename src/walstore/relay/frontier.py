"""The snapshots of a document that none of its others makes history.

- Dominance is a strict order, so a snapshot has to be compared with the undominated ones alone: a
  document with a long line of snapshots costs one comparison each, not one with every other.
"""

from __future__ import annotations

from collections.abc import Iterable

from walstore.relay.log import Event, dominates


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
