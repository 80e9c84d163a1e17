"""Which artifacts bring a reader to a position.

- A reader that stands in the newest epoch, at the end of one of its artifacts, needs the diffs from
  there on. Everybody else begins with a base: the same position in another epoch is another chain.
- As of a position means everything that ends there or before: a diff that goes on beyond is left
  out, and the plan says what it reaches.
"""

from __future__ import annotations

from typing import NamedTuple

from walstore.archive.manifest import Artifact, Manifest


class Place(NamedTuple):
    """Where a reader stands: a position, in an archive epoch."""

    epoch: int
    position: int


class Plan(NamedTuple):
    """What to read, in this order.

    Attributes:
        base: What replaces all that the reader has; None if it goes on with what it has.
        diffs: What follows.
        place: Where the reader stands afterwards.
    """

    base: Artifact | None
    diffs: tuple[Artifact, ...]
    place: Place

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """All of it."""
        return self.diffs if self.base is None else (self.base, *self.diffs)


def plan(manifest: Manifest, place: Place | None = None) -> Plan | None:
    """How to get to the head; None if there is no base yet."""
    base = manifest.newest_base
    if base is None:
        return None
    diffs = manifest.diffs
    head = Place(manifest.epoch, manifest.head_position)
    if place is not None and place.epoch == manifest.epoch:
        ends = [each.to_position for each in manifest.chain]
        if place.position in ends:
            return Plan(None, diffs[ends.index(place.position) :], head)
    return Plan(base, diffs, head)


def plan_as_of(manifest: Manifest, position: int) -> Plan | None:
    """How to get as near to a position as the archive can; None if it begins later."""
    bases = [each for each in manifest.artifacts if each.is_base and each.to_position <= position]
    if not bases:
        return None
    base = bases[-1]
    diffs = tuple(
        each
        for each in manifest.artifacts
        if each.epoch == base.epoch and not each.is_base and each.to_position <= position
    )
    reached = diffs[-1].to_position if diffs else base.to_position
    return Plan(base, diffs, Place(base.epoch, reached))
