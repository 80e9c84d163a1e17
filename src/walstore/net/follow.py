"""What a reader of a followed document holds: it waits, and misses nothing by looking away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from walstore.net.events import Loaded, Moved, PeersChanged, RecordsChanged, SnapshotChanged
from walstore.net.following import Peer


class Bell:
    """Counts how often it rang; who waits names the count that they have heard."""

    def __init__(self) -> None:
        self.count = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake all who wait."""
        self.count += 1
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    async def after(self, count: int) -> int:
        """The count once it is another one; at once if it is already."""
        while self.count == count:
            await self._rung.wait()
        return self.count


class Bells:
    """What the readers of one document wait for.

    Attributes:
        news: There may be something new.
        loaded: What is stored has come, or will not.
        peers: Others came, left, or say something else.
        records: A record was replaced.
        snapshot: The snapshot was.
        readers: How many there are.
    """

    def __init__(self) -> None:
        self.news = Bell()
        self.loaded = Bell()
        self.peers = Bell()
        self.records = Bell()
        self.snapshot = Bell()
        self.readers = 0

    def ring(self, event: Moved | Loaded | PeersChanged | RecordsChanged | SnapshotChanged) -> None:
        """Wake those who wait for this."""
        match event:
            case Moved():
                self.news.ring()
            case Loaded():
                self.loaded.ring()
            case PeersChanged():
                self.peers.ring()
            case RecordsChanged():
                self.records.ring()
            case SnapshotChanged():
                self.snapshot.ring()

    def ring_all(self) -> None:
        """Wake everybody."""
        self.news.ring()
        self.loaded.ring()
        self.peers.ring()
        self.records.ring()
        self.snapshot.ring()


class Follow:
    """A document that is followed live, within an `async with` block."""

    def __init__(
        self, bells: Bells, *, peers: Callable[[], dict[str, Peer]], check: Callable[[], None]
    ) -> None:
        """Begin to listen.

        Args:
            bells: What to listen to.
            peers: Says who is there.
            check: Raises if nothing will ring any more.
        """
        self._bells = bells
        self._peers = peers
        self._check = check
        # To who comes later, what the others were told before is news as well.
        self._heard = bells.news.count - (bells.readers > 1)
        self._heard_peers = bells.peers.count
        self._heard_records = bells.records.count
        self._heard_snapshot = bells.snapshot.count

    async def wait(self) -> None:
        """Return when there may be something new to pull since the last time.

        Of what was appended through the same transport its only follower is told a tenth of a
        second later: one reading does for several of them.

        Raises:
            TransportClosedError: The transport was closed.
        """
        self._heard = await self._bells.news.after(self._heard)
        self._check()

    async def wait_peers(self) -> None:
        """Return when somebody has come, left, or says something else since the last time.

        Raises:
            TransportClosedError: The transport was closed.
        """
        self._heard_peers = await self._bells.peers.after(self._heard_peers)
        self._check()

    async def wait_records(self) -> None:
        """Return when a record of the document was replaced since the last time.

        A relay that cannot tell never does; whoever has connected anew looks anyway.

        Raises:
            TransportClosedError: The transport was closed.
        """
        self._heard_records = await self._bells.records.after(self._heard_records)
        self._check()

    async def wait_snapshot(self) -> None:
        """Return when the snapshot of the document was replaced since the last time.

        A relay that cannot tell never does.

        Raises:
            TransportClosedError: The transport was closed.
        """
        self._heard_snapshot = await self._bells.snapshot.after(self._heard_snapshot)
        self._check()

    @property
    def peers(self) -> dict[str, Peer]:
        """The others who are there, by the name of their connection."""
        return self._peers()
