"""One client of the fleet level: a `WalStore` with a file on a disk, and a connection to the relay.

- An edit whose call has returned survives a kill; one that was flushed survives a power cut. What
  raised is doubtful, and so is everything that was not acknowledged if the file comes out damaged:
  then it is in a file of unsent edits, and its writer was told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

from walstore.document.events import Event
from walstore.errors import StorageError, TransportError
from walstore.local import LocalFileDamagedError
from walstore.sealed.outcomes import KeyringRollbackError
from walstore.signed import Identity
from walstore.signed.roster import RosterRollbackError
from walstore.store.shared import NoKeyError
from walstore.store.store import WalStore
from walstore.testing.simulator.disk import Disk
from walstore.testing.simulator.edits import Hand
from walstore.testing.simulator.interposing import Node
from walstore.testing.simulator.pipes import Network
from walstore.testing.simulator.processes import begin, kill
from walstore.testing.simulator.tokens import Tokens
from walstore.testing.simulator.trace import Trace

# How long it waits before it tries again to open.
_PAUSE_S = 0.5


class StoreClient:
    """A client, its process and its disk."""

    def __init__(
        self,
        name: str,
        *,
        seed: str,
        identity: Identity,
        directory: Path,
        network: Network,
        tokens: Tokens,
        trace: Trace,
        new_store: Callable[[StoreClient, Path], WalStore],
    ) -> None:
        self.name, self.identity = name, identity
        self.node = Node(name, seed)
        self.disk = Disk(directory / f"{name}-0")
        self.node.disk = self.disk
        self.store: WalStore | None = None
        self.hand = Hand(tokens, f"{name}#0")
        self.events: list[Event] = []
        self.is_out = False
        self._seed, self._directory, self._network = seed, directory, network
        self._tokens, self._trace, self._new_store = tokens, trace, new_store
        self._starts = 0
        self._stopped = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        # What is not known to survive a power cut, and what nobody has acknowledged.
        self._unsynced: list[str] = []

    # ── the process ────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Open the store, however often that takes."""
        self._stopped = asyncio.Event()
        self._running = begin(self.node, self._run)

    async def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                await self._live()
            except LocalFileDamagedError as error:
                self._trace(self.name, "damaged", error.reason)
                self._doubt(self.hand.unsent)
            except (StorageError, TransportError, NoKeyError) as error:
                self._trace(self.name, "not opened", type(error).__name__)
            except (RosterRollbackError, KeyringRollbackError) as error:
                # A relay has lost what its owner puts back, and no key is here to begin with.
                self._trace(self.name, "not opened", type(error).__name__)
            await asyncio.sleep(_PAUSE_S)

    async def _live(self) -> None:
        store = self._new_store(self, self.disk.directory / "client.wal")
        async with store:
            self.store = store
            self._trace(self.name, "opened")
            await self._stopped.wait()
            self.store = None
        self._unsynced = []

    async def stop(self) -> None:
        """Close the store, and end."""
        self._stopped.set()
        if self._running is not None:
            await asyncio.wait([self._running])

    async def crash(self, chance: Random, *, is_power_cut: bool) -> None:
        """Die; what is on the disk is all that is left."""
        self._starts += 1
        place = self._directory / f"{self.name}-{self._starts}"
        survivor = self.disk.survive(place, chance, is_power_cut=is_power_cut)
        if is_power_cut:
            self._doubt(self._unsynced)
        old, self.store = self.node, None
        self.disk.is_dead = True
        self.node = Node(f"{self.name}#{self._starts}", self._seed)
        self.node.clock_error_ms = old.clock_error_ms
        self.disk = self.node.disk = survivor
        unsent = self.hand.unsent
        self.hand = Hand(self._tokens, f"{self.name}#{self._starts}")
        self.hand.unsent = unsent
        self._unsynced = []
        await kill(self._network, old)

    def _doubt(self, tokens: list[str]) -> None:
        """Expect nothing of some tokens, not even if all that is left is acknowledged."""
        gone = set(tokens)
        self._tokens.doubtful |= gone
        self.hand.unsent = [token for token in self.hand.unsent if token not in gone]

    def noticed(self, event: Event) -> None:
        """Note what the store has noticed."""
        self.events.append(event)
        self._trace(self.name, "event", type(event).__name__)

    # ── what it does ───────────────────────────────────────────────────────────────────

    def edit(self, chance: Random) -> bool:
        """Edit, if that may be done; whether it was."""
        store = self.store
        if store is None or store.status.is_read_only:
            return False
        known = len(self.hand.unsent)
        try:
            kind = self.hand.edit(store.document, chance)
        except StorageError as error:
            # It shows, and is kept with the next edit, if there is one.
            self._doubt(self.hand.unsent[known:])
            self._trace(self.name, "not kept", type(error).__name__)
            return False
        self._trace(self.name, f"edit {kind}")
        self._unsynced += self.hand.unsent[known:]
        return True

    def undo(self, chance: Random) -> None:
        """Undo or redo, if that may be done."""
        store = self.store
        if store is None or store.status.is_read_only:
            return
        before = self.hand.noticing(store.document)
        try:
            (store.redo if chance.random() < 0.3 else store.undo)()
        except StorageError as error:
            self._trace(self.name, "not kept", type(error).__name__)
        else:
            self._trace(self.name, "undo")
        self.hand.vanished(store.document, before)

    async def flush(self) -> None:
        """Have everything on disk here, and acknowledged there."""
        if self.store is None:
            return
        hand, unsent, unsynced = self.hand, list(self.hand.unsent), list(self._unsynced)
        await self.store.flush()
        if hand is self.hand:
            hand.acknowledged(unsent)
            self._unsynced = self._unsynced[len(unsynced) :]
        self._trace(self.name, "committed")

    async def pull(self) -> None:
        """Read what is new."""
        if self.store is not None:
            self._trace(self.name, "pulled", await self.store.pull())

    async def snapshot(self) -> None:
        """Sign a snapshot for everybody."""
        if self.store is not None:
            await self.store.snapshot()
            self._trace(self.name, "snapshot")

    async def accept(self) -> None:
        """Go on with a log that was rolled back."""
        if self.store is not None and self.store.status.rollback is not None:
            accepted = await self.store.accept_rollback()
            self._trace(self.name, "accepted", accepted.sent_again)

    @property
    def has_stranded(self) -> bool:
        """Whether it shows what others wrote and no log holds any more."""
        return self.store is not None and self.store.status.stranded > 0

    def mend(self, *, is_first: bool) -> None:
        """Write what is stranded as one's own, or leave that to whoever was first."""
        if self.store is None:
            return
        if is_first:
            self.store.rewrite_stranded()
        else:
            self.store.drop_stranded()
        self._trace(self.name, "mended")

    @property
    def failure(self) -> BaseException | None:
        """What ended its process, if something did."""
        task = self._running
        return None if task is None or not task.done() or task.cancelled() else task.exception()
