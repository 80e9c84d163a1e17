"""Who is there in a run of the fleet level, how it ends, and what has to hold then."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from random import Random

from walstore.document import WalDocument
from walstore.document.events import Displaced, Event, Gap, Rejection
from walstore.document.faults import ReadOnlyError, RollbackDetectedError, SnapshotRefusedError
from walstore.document.revoked import nobody_revoked
from walstore.errors import PeerError, StorageError, TransportError, WalStoreError
from walstore.sealed.native import NativeEncryptor
from walstore.signed import Identity
from walstore.signed.card import Card
from walstore.store.store import WalStore
from walstore.testing.simulator.archivist import Archivist
from walstore.testing.simulator.attacks import FORGED
from walstore.testing.simulator.interposing import System
from walstore.testing.simulator.pipes import Network
from walstore.testing.simulator.processes import (
    URL,
    ArchiveProcess,
    RecordingLog,
    RelayProcess,
    WholeHistory,
    begin,
    running_loop,
)
from walstore.testing.simulator.scenario import Scenario
from walstore.testing.simulator.store_client import StoreClient
from walstore.testing.simulator.tokens import Tokens
from walstore.testing.simulator.trace import Trace
from walstore.testing.simulator.verdicts import demand, rejected_in

KEY = "fleet/document"

# What is done on purpose at this level; the document level does the rest. A relay that lies forgets
# what it has acknowledged, or repeats it, of shared and of sealed documents, too.
_HOSTILE = ("rollback", "forge", "echo", "writer")
_LIES = ("rollback", "echo")

# How long everybody has to come to one state, in a world at peace; and how long people wait before
# they do something about it: write anew what a relay has lost, or ask for a snapshot of what they
# have no key for.
_PEACE_S = 240
_PATIENCE_S = 120

# How many versions stores keep: few, so that they let go of some.
_HISTORY_MAX = 4


class FleetWorld:
    """The clients, the relay and the archive writer of one run."""

    # Made when the run begins, in its loop.
    _directory: Path
    _network: Network
    _relay: RelayProcess
    _archivist: Archivist
    _archive: ArchiveProcess

    def __init__(self, scenario: Scenario, trace: Trace, system: System) -> None:
        self._scenario, self._trace, self._system = scenario, trace, system
        chance = self._chance = Random(f"{scenario.seed}/fleet")
        self._rates = scenario.rates
        drawn = scenario.rates.hostility
        self._hostility = drawn if drawn in _HOSTILE else ""
        self._is_shared = chance.random() < 0.5 and not self._hostility
        if drawn == "lie":
            self._hostility = Random(f"{scenario.seed}/lies").choice(_LIES)
        self._is_sealed = self._is_shared and chance.random() < 0.7
        self._is_revoking = self._is_shared and chance.random() < 0.6
        self._tokens = Tokens()
        self._people = [Identity.from_seed(chance.randbytes(32)) for _ in range(scenario.clients)]
        self._stranger, self._evil, self._archivar = (
            Identity.from_seed(chance.randbytes(32)) for _ in range(3)
        )
        keys = [who.public_key for who in self._people]
        self._writers = [*keys, self._evil.public_key] if self._hostility == "writer" else keys
        self._autocommit_ms = chance.choice((0, 20, 100))
        self._clients: list[StoreClient] = []
        self._invitations: dict[str, str] = {}
        self._revoked: set[str] = set()
        self._faults: list[BaseException] = []
        self._copies: list[RecordingLog] = []
        # The `ts` of what nobody may take.
        self._forged: set[int] = set()
        self._had_full_disk = self._had_power_cut = self._is_mended = False

    def _join(self) -> None:
        number = len(self._clients)
        client = StoreClient(
            f"c{number}",
            seed=self._scenario.seed,
            identity=self._people[number],
            directory=self._directory,
            network=self._network,
            tokens=self._tokens,
            trace=self._trace,
            new_store=self._new_store,
        )
        self._trace(client.name, "join")
        self._clients.append(client)
        client.start()

    def _new_store(self, client: StoreClient, path: Path) -> WalStore:
        if not self._is_shared:
            return WalStore.open(
                KEY,
                identity=client.identity,
                relay=URL,
                path=path,
                writers=self._writers,
                snapshot_role=self._writers,
                autocommit_ms=self._autocommit_ms,
                history_max=_HISTORY_MAX,
                snapshot_after=20,
                on_event=client.noticed,
            )
        if self._is_owner(client):
            return WalStore.open(
                KEY,
                identity=client.identity,
                relay=URL,
                path=path,
                owner=client.identity.public_key,
                is_sealed=self._is_sealed,
                autocommit_ms=self._autocommit_ms,
                history_max=_HISTORY_MAX,
                on_event=client.noticed,
            )
        return WalStore.join(
            self._invitations[client.identity.public_key],
            identity=client.identity,
            path=path,
            relay=URL,
            autocommit_ms=self._autocommit_ms,
            history_max=_HISTORY_MAX,
            on_event=client.noticed,
        )

    async def _invite(self, owner: StoreClient) -> None:
        """Let the next one join."""
        number = len(self._clients)
        if number >= len(self._people):
            return
        if self._is_shared:
            who = self._people[number]
            if owner.store is None:
                return
            roles = ("read", "write", "snapshot")
            invitation = await owner.store.sharing.invite(Card.of(who), roles)
            self._invitations[who.public_key] = invitation.line
            if number != len(self._clients):
                return
        self._join()

    def _is_documented(self, error: WalStoreError) -> bool:
        if isinstance(error, TransportError | SnapshotRefusedError):
            return True
        if isinstance(error, StorageError):
            return self._had_full_disk or bool(self._trace.counts["crash"])
        is_rolled_back = isinstance(error, ReadOnlyError | RollbackDetectedError)
        if is_rolled_back:
            return self._hostility == "rollback"
        return bool(self._hostility) and isinstance(error, PeerError)

    # ── the fault-free end ─────────────────────────────────────────────────────────────

    async def _heal(self) -> None:
        self._check_faults()
        self._network.is_healed = True
        for client in self._there:
            client.disk.is_full = False
            client.node.clock_error_ms = 0
        self._relay.node.clock_error_ms = 0
        begun_s = running_loop().time()
        silent = {client.name for client in self._there}
        while (reason := await self._unrest(silent)) is not None:
            waited_s = running_loop().time() - begun_s
            demand(waited_s < _PEACE_S, f"no peace after {_PEACE_S} s: {reason}")
            for client in self._there:
                begin(client.node, partial(self._go_on, client, silent, waited_s))
            await asyncio.sleep(1)
        await self._check()

    @property
    def _there(self) -> list[StoreClient]:
        """Who was not revoked, so far."""
        return [client for client in self._clients if not client.is_out]

    async def _go_on(self, client: StoreClient, silent: set[str], waited_s: float) -> None:
        """Do what a person does who is told of a roll-back; and write, to show that it works."""
        try:
            await client.accept()
        except TransportError as error:
            self._trace(client.name, "failed", f"accept {type(error).__name__}")
        # What a relay has lost, its author sends again, unless the author's own file was lost in
        # part, or the author was revoked.
        is_author_gone = self._had_power_cut or any(each.is_out for each in self._clients)
        if waited_s > _PATIENCE_S and is_author_gone and client.has_stranded:
            client.mend(is_first=not self._is_mended)
            self._is_mended = True
        # What a relay repeats from before a snapshot may be sealed for those who were there then.
        if waited_s > _PATIENCE_S and self._is_owner(client) and self._is_any_unreadable():
            await client.snapshot()
        if client.name in silent and client.edit(self._chance):
            silent.remove(client.name)

    def _is_owner(self, client: StoreClient) -> bool:
        return client is self._clients[0]

    def _is_any_unreadable(self) -> bool:
        return any(client.store and client.store.status.unreadable for client in self._there)

    async def _unrest(self, silent: set[str]) -> str | None:
        """What is not as it should be at last."""
        there = self._there
        silent &= {client.name for client in there}
        if silent:
            return f"{sorted(silent)} cannot write"
        for client in there:
            store = client.store
            if store is None:
                return f"{client.name} is not open"
            status = store.status
            if status.unsent or status.rollback or status.stranded or status.unreadable:
                return f"{client.name}: {status}"
        states = {client.store.document.crdt.canonical_state() for client in there if client.store}
        if len(states) > 1:
            return "not all show the same"
        truth = await self._truth()
        if truth.crdt.canonical_state() not in states:
            return (
                f"all show {there[0].store and there[0].store.materialize()}, "
                f"the log folds to {truth.materialize()}"
            )
        return None

    async def _truth(self) -> WalDocument:
        """The fold of everything that the log has ever taken."""
        owner = self._clients[0].store
        assert owner is not None
        sharing = owner.sharing if self._is_shared else None
        encryptor = None
        if sharing is not None and sharing.keys is not None:
            encryptor = NativeEncryptor(sharing.keys, randomness=self._system.urandom)
        document = WalDocument(
            KEY,
            transport=WholeHistory(self._relay.log),
            identity=self._stranger,
            writers=self._writers if sharing is None else sharing.membership.is_writer,
            snapshot_role=(),
            revoked=nobody_revoked if sharing is None else sharing.membership.revoked,
            encryptor=encryptor,
            on_author_error="skip",
        )
        return await document.open()

    async def _check(self) -> None:
        truth = await self._truth()
        state = truth.crdt.canonical_state()
        # What the log folds to is what everybody shows.
        demand(FORGED not in state, f"what was forged shows: {truth.materialize()}")
        for client in self._there:
            assert client.store is not None
            client.store.document.crdt.check()
            alarms = [event for event in client.events if not self._is_expected(event)]
            demand(not alarms, f"{client.name} raised a false alarm: {alarms[:1]}")
            self._check_forged(client.name, client.store.document, rejected_in(client.events))
        told = set[int]().union(*[rejected_in(client.events) for client in self._clients])
        # Whoever signs a snapshot has read what it stands for, so somebody has read everything.
        demand(self._forged <= told, f"nobody was told of what was forged: {self._forged - told}")
        for fault in self._tokens.faults(truth.materialize()):
            demand(False, fault)
        await self._check_archive(truth)
        self._trace("world", "state", state)
        self._check_faults()

    def _check_forged(self, name: str, document: WalDocument, told: set[int]) -> None:
        """Nothing that was forged was folded, and it was told by whoever has read it."""
        folded = {element.ts for element in document.elements()} & self._forged
        demand(not folded, f"{name} has folded what was forged, at {folded}")
        # What a snapshot stands for may never have been read.
        unsaid = {ts for ts in self._forged if ts > document.snapshot_ts} - told
        demand(not unsaid, f"{name} was not told of what was forged, at {unsaid}")

    def _is_expected(self, event: Event) -> bool:
        if self._hostility not in ("", "echo"):
            return True
        if isinstance(event, Gap | Rejection) and event.author in self._revoked:
            return True
        return isinstance(event, Displaced) and bool(self._revoked)

    async def _check_archive(self, truth: WalDocument) -> None:
        """The archive must hold what the log does, before long."""
        if self._archivist.is_folded:
            found = await self._archivist.value(KEY)
            demand(FORGED not in str(found), f"the archive says what was forged: {found}")
        # A relay that names events falsely, or has lost some, is not believed: then nothing more is
        # archived.
        if self._hostility not in ("", "writer"):
            return
        end_s = running_loop().time() + _PEACE_S
        while (difference := await self._archived_otherwise(truth)) is not None:
            demand(running_loop().time() < end_s, difference)
            await asyncio.sleep(1)
        self._trace("archive", "archived")

    async def _archived_otherwise(self, truth: WalDocument) -> str | None:
        """In what the archive differs: from the fold, or from what was accepted."""
        if self._archivist.is_folded:
            found, wanted = await self._archivist.value(KEY), truth.materialize() or None
            says = f"the archive says {found}, the log folds to {wanted}"
            return None if found == wanted else says
        held, ids = await self._archivist.ids(KEY), self._relay.log.ids.get(KEY, {})
        return None if held == ids else f"archived is {held}, accepted was {ids}"

    def _check_faults(self) -> None:
        for client in self._clients:
            if client.failure is not None:
                raise client.failure
        failure = self._archive.failure
        if failure is not None and not self._is_documented(failure):
            raise failure
        if self._faults:
            raise self._faults[0]
