"""Who is there in a run of the document level, how it ends, and what has to hold then."""

from __future__ import annotations

import asyncio
from random import Random

from walstore.document import WalDocument
from walstore.document.events import Displaced, Event, Gap, Rejection, Rollback
from walstore.document.faults import (
    ReadOnlyError,
    RejectedElementsError,
    RollbackDetectedError,
)
from walstore.document.opening import PrunedLogError
from walstore.errors import WalStoreError
from walstore.relay.reading import LogSource
from walstore.sealed.keys import ContentKeys
from walstore.sealed.native import NativeEncryptor
from walstore.signed import Identity
from walstore.signed.roster import Counts
from walstore.testing.simulator.archivist import Archivist
from walstore.testing.simulator.attacks import FORGED, Attacker
from walstore.testing.simulator.document_client import POSTURES, DocumentClient, is_documented
from walstore.testing.simulator.hub import Hub, WholeLog
from walstore.testing.simulator.interposing import NODE, Node, System
from walstore.testing.simulator.line import CHANCE, Line
from walstore.testing.simulator.scenario import Scenario
from walstore.testing.simulator.tokens import Tokens
from walstore.testing.simulator.trace import Trace
from walstore.testing.simulator.verdicts import demand, rejected_in

KEY = "fleet/document"

# Rounds of commit and pull after which everybody must have everything.
_ROUNDS_MAX = 2

# How many versions clients keep, in turn.
_HISTORIES_MAX = (None, 1, 3, 9)

# Edits after which one of them must have changed something.
_EDITS_MAX = 50


class DocumentWorld:
    """The clients, the hub and the archive of one run."""

    def __init__(self, scenario: Scenario, trace: Trace, system: System) -> None:
        self._scenario, self._trace, self._system = scenario, trace, system
        chance = Random(f"{scenario.seed}/fleet")
        self._rates = rates = scenario.rates
        self._is_sealed = chance.random() < 0.4
        # What was pruned below a snapshot that covers too much of somebody is nowhere else.
        self._is_revoking = not rates.hostility and chance.random() < 0.3
        # Whoever was shown less than there is signs away the rest, and who trusts them never asks.
        self._is_hiding = rates.hostility in ("rollback", "hide", "fork")
        self._is_pruning = not self._is_revoking and not self._is_hiding
        if rates.hostility == "lie":
            # What a lying relay has acknowledged is with its writer alone, and here nobody has a
            # disk to keep it on.
            self._rates = rates = rates.without(("crash",))
        self._tokens = Tokens()
        relay = self._relay = Node("relay", scenario.seed)
        self._hub = Hub(KEY, self._relay_ms, page_size=chance.choice((1, 3, 50, 1000)))
        self._identities = [
            Identity.from_seed(chance.randbytes(32)) for _ in range(scenario.clients + 3)
        ]
        self._stranger, self._evil, archive = self._identities[-3:]
        writers = [each.public_key for each in self._identities[:-3]]
        self._writers = frozenset(
            [*writers, self._evil.public_key] if rates.hostility == "writer" else writers
        )
        self._chance = chance
        self._keys = ContentKeys(1, {1: chance.randbytes(32)}) if self._is_sealed else None
        self._revoked: dict[str, Counts] = {}
        self._clients: list[DocumentClient] = []
        self._attacker = Attacker(self._hub, trace, stranger=self._stranger, writer=self._evil)
        self._archivist = Archivist(
            prefix="fleet/",
            relay_id=self._hub.log.relay_id,
            identity=archive,
            writers=self._writers,
            now_ms=system.now_ms,
            is_folded=not self._is_sealed,
        )
        self._archiving = asyncio.Lock()
        self._faults: list[BaseException] = []
        del relay

    def _relay_ms(self) -> int:
        token = NODE.set(self._relay)
        try:
            return self._system.now_ms()
        finally:
            NODE.reset(token)

    def _join(self) -> None:
        number = len(self._clients)
        name = f"c{number}"
        self._clients.append(
            DocumentClient(
                Node(name, self._scenario.seed),
                line=Line(name, self._hub, self._rates, self._trace),
                document_key=KEY,
                identity=self._identities[number],
                writers=self._writers,
                keys=self._keys,
                can_revoke=self._is_revoking,
                postures=("re-derive",) if self._is_hiding else POSTURES,
                # Who has read what is asked where somebody hides something.
                history_max=None if self._is_hiding else _HISTORIES_MAX[number % 4],
                tokens=self._tokens,
                trace=self._trace,
                system=self._system,
            )
        )

    async def _learn(self, client: DocumentClient) -> None:
        if self._keys is not None and client.keys is not self._keys:
            await client.adopt(self._keys)
        if client.revoked != self._revoked:
            await client.exclude(self._revoked)

    async def _archive(self, chance: Random) -> None:
        if self._archiving.locked():
            return
        async with self._archiving:
            source = LogSource(self._hub.log, "fleet/", page_events_max=chance.choice((3, 1000)))
            committed = await self._archivist.engine(source).run_once()
            self._trace("archive", "archive", None if committed is None else "committed")

    # ── the fault-free end ─────────────────────────────────────────────────────────────

    async def _settle(self) -> None:
        """Wait for everything that is still on its way."""
        for client in self._clients:
            await client.finished()
            await client.line.settled()

    async def _heal(self) -> None:
        CHANCE.set(self._chance)
        self._check_faults()
        self._hub.relent()
        there = [client for client in self._clients if not client.is_out]
        for client in self._clients:
            client.node.clock_error_ms = 0
            client.line.is_healed = True
        self._relay.clock_error_ms = 0
        for client in there:
            await self._at(client, self._learn(client))
            await self._at(client, client.opened(self._chance))
            demand(client.document is not None, f"{client.name} cannot open in a world at peace")
        await self._catch_up(there)
        await self._check(there)

    async def _catch_up(self, there: list[DocumentClient]) -> None:
        """Let everybody write and read: whatever somebody has seen, everybody is told of."""
        for _ in range(_ROUNDS_MAX if self._rates.hostility else 1):
            for client in there:
                # Not every edit changes something, and who sends nothing tells nothing.
                for _ in range(_EDITS_MAX):
                    client.edit(self._chance)
                    if _document(client).has_unsent or _document(client).is_read_only:
                        break
                await self._at(client, client.commit())
                await self._at(client, client.pull())
        for client in there:
            await self._at(client, client.pull())

    async def _at(self, client: DocumentClient, work: object) -> None:
        """Do something as a client, in peace."""
        token = NODE.set(client.node)
        try:
            await work  # type: ignore[misc]
        except WalStoreError as error:
            if not self._is_documented(error):
                raise
        finally:
            NODE.reset(token)

    def _is_documented(self, error: WalStoreError) -> bool:
        if isinstance(error, PrunedLogError) and self._is_sealed:
            # The snapshot that stands for what is gone is sealed with a key that is not here yet.
            return True
        if isinstance(error, RejectedElementsError) and self._revoked:
            return True
        if isinstance(error, ReadOnlyError | RollbackDetectedError) and self._is_revoked(error):
            return True
        return is_documented(error, is_hostile=bool(self._rates.hostility))

    def _is_revoked(self, warning: ReadOnlyError | RollbackDetectedError | Rollback) -> bool:
        """Whether what is gone is of somebody who was revoked.

        A snapshot by who knew it already does not count what others have read, and those are warned
        until they know it too.
        """
        return any(author[:8] in warning.reason for author in self._revoked)

    async def _check(self, there: list[DocumentClient]) -> None:
        if self._rates.hostility:
            await self._recover(there)
        truth = await self._truth()
        state = truth.crdt.canonical_state()
        for client in there:
            document = _document(client)
            demand(
                document.crdt.canonical_state() == state,
                f"{client.name} shows something else than the log: {document.materialize()} "
                f"instead of {truth.materialize()}",
            )
            demand(not document.is_read_only, f"{client.name} may not write in a world at peace")
            demand(not document.has_unsent, f"{client.name} has unsent edits in a world at peace")
            demand(not document.unreadable, f"{client.name} cannot read everything")
            document.crdt.check()
            self._check_elements(document, client.name)
            self._check_events(client)
        # What the log folds to is what everybody shows.
        demand(FORGED not in state, f"what was forged shows: {truth.materialize()}")
        self._check_forged()
        for fault in self._tokens.faults(truth.materialize()):
            demand(False, fault)
        await self._check_archive(truth)
        self._trace("world", "state", state)
        self._check_faults()

    async def _truth(self) -> WalDocument:
        """The fold of everything that was ever accepted."""
        encryptor = None
        if self._keys is not None:
            encryptor = NativeEncryptor(self._keys, randomness=self._system.urandom)
        document = WalDocument(
            KEY,
            transport=WholeLog(self._hub),
            identity=self._stranger,
            writers=self._writers,
            snapshot_role=(),
            revoked=self._revoked.get,
            encryptor=encryptor,
            on_author_error="skip",
        )
        return await document.open()

    async def _recover(self, there: list[DocumentClient]) -> None:
        """Whoever was misled must be told; and having been told, must get everything back.

        Who is warned writes nothing before they accept it. Others hear of what they have read
        only then, so this goes on until nobody is warned any more.
        """
        for _ in there:
            warned = [client for client in await self._misled(there) if _is_warned(client)]
            if not warned:
                break
            for client in warned:
                self._trace(client.name, "detected", self._rates.hostility)
                await self._at(client, client.recover())
            await self._catch_up(there)
        for client in await self._misled(there):
            self._trace(client.name, "could not know")
            await self._at(client, client.recover())
        for _ in range(_ROUNDS_MAX):
            for client in there:
                await self._at(client, client.commit())
                await self._at(client, client.pull())

    async def _misled(self, there: list[DocumentClient]) -> list[DocumentClient]:
        """Who shows something else than the log, or may not write; they must have been told."""
        state = (await self._truth()).crdt.canonical_state()
        # What only those have read who may not write can be withheld, and nobody can tell.
        telling = [client for client in there if not _document(client).is_read_only]
        told = set().union(*[_held(client) for client in telling])
        misled = [
            client
            for client in there
            if client not in telling or _document(client).crdt.canonical_state() != state
        ]
        for client in misled:
            is_attested = not told <= _held(client) or not self._is_hiding
            demand(
                _is_warned(client) or not is_attested,
                f"{client.name} was misled ({self._rates.hostility}), and nobody told it",
            )
        return misled

    def _check_elements(self, document: WalDocument, name: str) -> None:
        """Nothing was folded that must not be, and nothing twice; and that was told."""
        elements = document.elements()
        signatures = {element.signature for element in elements}
        demand(len(signatures) == len(elements), f"{name} has folded an element twice")
        forged = {element.ts for element in elements} & self._hub.forged
        demand(not forged, f"{name} has folded what was forged, at {forged}")

    def _check_events(self, client: DocumentClient) -> None:
        alarms = [event for event in client.events if not self._is_expected(event)]
        demand(not alarms, f"{client.name} raised a false alarm: {alarms[:1]}")
        # What a snapshot stands for may never have been read.
        unsaid = (self._hub.forged & client.line.shown) - rejected_in(client.events)
        demand(not unsaid, f"{client.name} was not told of what was forged, at {unsaid}")

    def _check_forged(self) -> None:
        """Whoever signs a snapshot has read what it stands for, so somebody has read everything."""
        told = set[int]().union(*[rejected_in(client.events) for client in self._clients])
        unsaid = self._hub.forged - told
        demand(not unsaid, f"nobody was told of what was forged, at {unsaid}")

    def _is_expected(self, event: Event) -> bool:
        if self._rates.hostility not in ("", "echo"):
            return True
        if isinstance(event, Gap | Rejection) and event.author in self._revoked:
            return True
        if isinstance(event, Rollback):
            return self._is_revoked(event)
        if isinstance(event, Rejection) and event.ts is None:
            # A snapshot: its producer knew more of who was revoked than its reader, or less.
            return bool(self._revoked)
        return isinstance(event, Displaced) and bool(self._revoked)

    async def _check_archive(self, truth: WalDocument) -> None:
        if not self._trace.counts["archive"]:
            return
        await self._archive(self._chance)
        if not self._archivist.is_folded:
            held = await self._archivist.ids(KEY)
            demand(held == self._hub.ids, f"archived is {held}, accepted was {self._hub.ids}")
        elif not self._revoked:
            # An archive without a roster knows nothing of who was revoked.
            found = await self._archivist.value(KEY)
            demand(
                found == truth.materialize(),
                f"the archive says {found}, the log folds to {truth.materialize()}",
            )
        else:
            return
        self._trace("archive", "archived")

    def _check_faults(self) -> None:
        if self._faults:
            raise self._faults[0]


def _document(client: DocumentClient) -> WalDocument:
    assert client.document is not None
    return client.document


def _is_warned(client: DocumentClient) -> bool:
    document = _document(client)
    return document.is_read_only or bool(document.detected_gaps())


def _held(client: DocumentClient) -> set[str]:
    """What a client has read in the log, by signature."""
    return {element.signature for element in _document(client).elements()}
