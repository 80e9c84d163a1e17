"""What a client tells its shell."""

from __future__ import annotations

from typing import NamedTuple


class Settled(NamedTuple):
    """A request was answered, or never will be."""

    ref: str


class Moved(NamedTuple):
    """There may be something new to pull."""

    document: str


class Loaded(NamedTuple):
    """Who waits for what is stored need not wait any longer; it has come, or will not."""

    document: str


class PeersChanged(NamedTuple):
    """Somebody came, left, or says something else."""

    document: str


class RecordsChanged(NamedTuple):
    """A record of a document was replaced, or may have been while nobody could tell."""

    document: str


class SnapshotChanged(NamedTuple):
    """The snapshot of a document was replaced, or may have been while nobody could tell."""

    document: str


class FeedMoved(NamedTuple):
    """Something has come of a changes feed, or nothing more will."""

    name: str


class Admitted(NamedTuple):
    """The relay has let the client in."""


ClientEvent = (
    Settled
    | Moved
    | Loaded
    | PeersChanged
    | RecordsChanged
    | SnapshotChanged
    | FeedMoved
    | Admitted
)
