"""The fleet level: stores with files, a relay and an archive writer, over connections that break.

    WalStore + file ══ websocket ══╗
    WalStore + file ══ websocket ══╬══ Relay + log ══ feed ══ archive writer ── destination
    …                              ║

Everything is the real thing but the wire, the clock, the disks' fate and chance.
"""

from __future__ import annotations

import asyncio
import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random

from walstore.errors import WalStoreError
from walstore.relay.compaction import compact_all
from walstore.relay.retention import LogMode, Policy
from walstore.testing.simulator.archivist import Archivist
from walstore.testing.simulator.attacks import Attacker
from walstore.testing.simulator.documents import CLOCK_ERROR_MS_MAX
from walstore.testing.simulator.fleet_world import KEY, FleetWorld
from walstore.testing.simulator.hub import Hub
from walstore.testing.simulator.interposing import Node
from walstore.testing.simulator.pipes import Network
from walstore.testing.simulator.processes import (
    ArchiveProcess,
    RelayProcess,
    begin,
    running_loop,
)
from walstore.testing.simulator.scenario import Step
from walstore.testing.simulator.store_client import StoreClient

WEIGHTS: Mapping[str, float] = {
    "edit": 40,
    "flush": 8,
    "pull": 4,
    "undo": 4,
    "snapshot": 2,
    "prune": 2,
    "rotate": 1,
    "revoke": 0.5,
    "join": 3,
    "restart": 2,
}
TRAFFIC_MIN: Mapping[str, float] = {"edit": 10, "committed": 1, "opened": 2}
CLIENTS_MAX = 4
STEPS_MAX = 60
PAUSE_MS_MAX = 1500
# From how many seeds on each kind has to happen.
EXPECTED: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *("opened", "undo", "committed", "pulled", "snapshot", "prune", "join", "restart"),
            *("broken", "archived"),
        ),
        25,
    ),
    **dict.fromkeys(
        (
            *("rotate", "crash", "partition", "clock_jump", "disk_full", "event", "not kept"),
            *("accepted", "attack rollback", "attack echo", "attack forge", "attack writer"),
        ),
        100,
    ),
    **dict.fromkeys(("revoke", "damaged"), 500),
}
HOSTILE_MIN = 0.1


class Fleet(FleetWorld):
    """A run of the fleet level."""

    async def run(self) -> None:
        """Take all steps, then let everything heal, and check."""
        loop = running_loop()
        self._network = loop.network = Network(loop, self._rates, self._chance, self._trace)
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryDirectory(dir=place, prefix="walstore-sim-") as directory:
            self._directory = Path(directory)
            try:
                await self._happen()
            finally:
                for client in self._clients:
                    await client.crash(self._chance, is_power_cut=False)

    async def _happen(self) -> None:
        self._relay = RelayProcess(self._scenario.seed, self._network)
        self._relay.start()
        self._archivist = Archivist(
            prefix="fleet/",
            relay_id=self._relay.log.relay_id,
            identity=self._archivar,
            writers=self._writers,
            now_ms=self._system.now_ms,
            is_folded=not self._is_shared,
        )
        self._archive = ArchiveProcess(
            self._scenario.seed, self._network, self._archivist, self._archivar
        )
        self._archive.start()
        self._join()
        if not self._is_shared:
            self._join()
        for step in self._scenario.steps:
            await self._take(step)
            await asyncio.sleep(step.pause_ms / 1000)
        await asyncio.sleep(1)
        await self._heal()

    async def _take(self, step: Step) -> None:
        chance = self._scenario.chance(step)
        there = self._there
        client = there[step.who % len(there)]
        match step.kind:
            case "crash":
                await self._crash(client, chance)
            case "partition":
                node = chance.choice([client.node, client.node, self._relay.node])
                self._network.cut_off(node, chance.uniform(0.1, 8))
                self._trace(node.name, "partition")
            case "clock_jump":
                node = chance.choice([client.node, self._relay.node])
                node.clock_error_ms = chance.randint(-CLOCK_ERROR_MS_MAX, CLOCK_ERROR_MS_MAX)
                self._trace(node.name, "clock_jump", node.clock_error_ms)
            case "disk_full":
                disk = client.disk
                disk.is_full = self._had_full_disk = True
                self._trace(client.name, "disk_full")
                running_loop().call_later(chance.uniform(0.1, 3), setattr, disk, "is_full", False)
            case "attack":
                await self._attack(chance)
            case "restart":
                self._trace(client.name, "restart")
                await client.stop()
                client.start()
            case _:
                begin(client.node, lambda: self._act(step, client, chance))

    async def _crash(self, client: StoreClient, chance: Random) -> None:
        match chance.randrange(6):
            case 0 | 1:
                self._trace("relay", "crash")
                await self._relay.crash()
                await asyncio.sleep(chance.uniform(0, 2))
                self._relay.start()
            case 2:
                self._trace("archive", "crash")
                await self._archive.crash()
                self._archive.start()
            case number:
                # Keys that an owner makes offline, after its file was lost, are keys of its own.
                is_power_cut = number == 3 and not (self._is_sealed and client.name == "c0")
                self._had_power_cut |= is_power_cut
                self._trace(client.name, "crash", "power" if is_power_cut else "kill")
                await client.crash(chance, is_power_cut=is_power_cut)
                client.start()

    async def _attack(self, chance: Random) -> None:
        if not self._hostility:
            return
        if self._hostility == "rollback":
            await self._roll_back(chance)
            return
        log = self._relay.log
        hub = Hub(KEY, self._system.now_ms, page_size=1000, log=log)
        hub.accepted, hub.forged = list(log.accepted.get(KEY, [])), self._forged
        attacker = Attacker(hub, self._trace, stranger=self._stranger, writer=self._evil)
        attacker.begin_at(self._trace.counts["attack " + self._hostility])
        there = [(client.name, client.identity.public_key) for client in self._clients]
        await attacker.attack(self._hostility, chance, there)

    async def _roll_back(self, chance: Random) -> None:
        """Keep a copy of the log, or put one back while the relay is down."""
        if not self._copies or chance.random() < 0.5:
            self._copies.append(copy.deepcopy(self._relay.log))
            return
        self._trace("relay", "attack rollback")
        await self._relay.crash()
        self._relay.log = copy.deepcopy(chance.choice(self._copies))
        self._relay.start()

    async def _act(self, step: Step, client: StoreClient, chance: Random) -> None:
        node = client.node
        try:
            await self._acted(step, client, chance)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            # Whoever is dead tells nobody.
            if node.is_dead:
                return
            self._trace(client.name, "failed", f"{step.kind} {type(error).__name__}")
            if not isinstance(error, WalStoreError) or not self._is_documented(error):
                self._faults.append(error)

    async def _acted(self, step: Step, client: StoreClient, chance: Random) -> None:
        match step.kind:
            case "edit":
                for _ in range(chance.choice((1, 1, 2, 4))):
                    client.edit(chance)
            case "undo":
                client.undo(chance)
            case "flush":
                await client.flush()
            case "pull":
                await client.pull()
            case "snapshot":
                await client.snapshot()
            case "prune":
                await self._prune(chance)
            case "join":
                await self._invite(self._clients[0])
            case "rotate":
                owner = self._clients[0]
                if self._is_sealed and owner.store is not None:
                    await owner.store.sharing.rotate()
                    self._trace(owner.name, "rotate")
            case "revoke":
                await self._revoke(chance)

    async def _prune(self, chance: Random) -> None:
        if self._is_revoking:
            return
        policy = Policy(
            log_mode=LogMode.COMPACT_BELOW_SNAPSHOT, retain_tail_n=chance.choice((0, 5))
        )
        now_ms = self._system.now_ms()
        gone = await compact_all(self._relay.log, policy, archived_seq=None, now_ms=now_ms)
        self._trace("relay", "prune", gone.elements)

    async def _revoke(self, chance: Random) -> None:
        owner = self._clients[0]
        there = [client for client in self._there if client is not owner]
        if not self._is_revoking or not there or owner.store is None:
            return
        victim = chance.choice(there)
        try:
            await owner.store.sharing.revoke(victim.identity.public_key)
            self._trace(owner.name, "revoke", victim.name)
        finally:
            # However far it came, it is finished by itself, at once or much later.
            self._put_out(victim, chance)

    def _put_out(self, victim: StoreClient, chance: Random) -> None:
        """Let somebody who is revoked go, for good."""
        if victim.is_out:
            return
        self._revoked.add(victim.identity.public_key)
        victim.is_out = True

        def contest() -> None:
            """Ask for nothing that was written until now: some of it counts, for all alike."""
            writers = self._tokens.writers
            self._tokens.contest(
                [token for token in writers if writers[token].startswith(f"{victim.name}#")]
            )

        async def end() -> None:
            await victim.crash(chance, is_power_cut=False)
            contest()

        contest()
        # Whoever sees to it may be the victim, and nobody can end itself and all else that it does.
        begin(Node("world", self._scenario.seed), end)
