"""The document level: `WalDocument`s on bad lines to one relay's log. Fast: thousands of seeds.

    clients ── lines: loss, replay, delay, partitions ── hub: a relay's log ── archive writer

Steps begin one after the other and overlap: nobody waits for anybody else's call to return.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

from walstore.errors import WalStoreError
from walstore.sealed.keys import ContentKeys
from walstore.testing.simulator.document_client import DocumentClient
from walstore.testing.simulator.document_world import DocumentWorld
from walstore.testing.simulator.rates import HOSTILE
from walstore.testing.simulator.scenario import Step

WEIGHTS: Mapping[str, float] = {
    "edit": 40,
    "commit": 16,
    "pull": 14,
    "undo": 4,
    "snapshot": 3,
    "prune": 2,
    "rotate": 1.5,
    "learn": 3,
    "revoke": 0.7,
    "join": 1.5,
    "restart": 1,
    "archive": 2,
}
# From how many seeds on each kind has to happen.
EXPECTED: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *("opened", "undo", "snapshot", "prune", "rotate", "keys", "revoke", "reread", "join"),
            *("restart", "archive", "archived", "crash", "partition", "clock_jump", "cancel"),
            *("lost", "unanswered", "late", "replayed", "offline", "event", "detected"),
            *(f"attack {kind}" for kind in HOSTILE),
        ),
        250,
    ),
    "accepted": 500,
}
HOSTILE_MIN = 0.25
TRAFFIC_MIN: Mapping[str, float] = {"edit": 10, "committed": 4, "pulled": 4}
CLIENTS_MAX = 6
STEPS_MAX = 90
PAUSE_MS_MAX = 120


# Readers refuse what is more than a day ahead of them: two clocks that are each wrong by less
# than half a day never are.
CLOCK_ERROR_MS_MAX = 11 * 3600 * 1000


class DocumentFleet(DocumentWorld):
    """A run of the document level."""

    async def run(self) -> None:
        """Take all steps, then let everything heal, and check."""
        for _ in range(max(2, self._scenario.clients - 1)):
            self._join()
        for step in self._scenario.steps:
            self._take(step)
            await asyncio.sleep(step.pause_ms / 1000)
        await self._settle()
        await self._heal()

    def _take(self, step: Step) -> None:
        chance = self._scenario.chance(step)
        there = [client for client in self._clients if not client.is_out]
        client = there[step.who % len(there)]
        match step.kind:
            case "crash" if self._rates.crash:
                self._trace(client.name, "crash")
                client.crash()
            case "partition":
                self._trace(client.name, "partition")
                loop = asyncio.get_running_loop()
                client.line.cut_until_s = loop.time() + chance.uniform(0.1, 3)
            case "clock_jump":
                node = chance.choice([client.node, self._relay])
                node.clock_error_ms = chance.randint(-CLOCK_ERROR_MS_MAX, CLOCK_ERROR_MS_MAX)
                self._trace(node.name, "clock_jump", node.clock_error_ms)
            case "join":
                if len(self._clients) < self._scenario.clients:
                    self._trace(f"c{len(self._clients)}", "join")
                    self._join()
            case "crash" | "disk_full":
                return
            case _:
                task = client.start(lambda: self._act(step, client, chance), chance)
                if chance.random() < self._rates.cancel:
                    self._trace(client.name, "cancel", step.kind)
                    loop = asyncio.get_running_loop()
                    loop.call_later(chance.uniform(0, 0.5), task.cancel)

    async def _act(self, step: Step, client: DocumentClient, chance: Random) -> None:
        try:
            await self._acted(step, client, chance)
        except WalStoreError as error:
            self._trace(client.name, "failed", f"{step.kind} {type(error).__name__}")
            if not self._is_documented(error):
                self._note(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            self._note(error)

    def _note(self, error: BaseException) -> None:
        self._faults.append(error)

    async def _acted(self, step: Step, client: DocumentClient, chance: Random) -> None:
        document = await client.opened(chance)
        if document is None:
            return
        match step.kind:
            case "edit":
                for _ in range(chance.choice((1, 1, 1, 2, 5))):
                    client.edit(chance)
            case "undo":
                client.undo()
            case "commit":
                await client.commit()
            case "pull":
                await client.pull()
            case "snapshot":
                await client.snapshot()
            case "prune":
                await self._prune(chance)
            case "restart" if self._rates.hostility != "lie":
                await client.commit()
                client.marks = document.marks
                self._trace(client.name, "restart")
                client.crash()
            case "rotate":
                await self._rotate(client, chance)
            case "learn":
                await self._learn(client)
            case "revoke":
                await self._revoke(client, chance)
            case "archive":
                await self._archive(chance)
            case "attack":
                there = [(each.name, each.identity.public_key) for each in self._clients]
                await self._attacker.attack(self._rates.hostility, chance, there)

    async def _prune(self, chance: Random) -> None:
        if self._is_pruning:
            gone = await self._hub.prune(chance.choice((0, 2, 10)))
            self._trace("relay", "prune", gone)

    async def _rotate(self, client: DocumentClient, chance: Random) -> None:
        """Seal with a new key from now on, and have a snapshot that opens with it."""
        if self._keys is None:
            return
        epoch = self._keys.current_epoch + 1
        new = ContentKeys(epoch, {epoch: chance.randbytes(32)})
        self._keys = self._keys.updated(new)
        self._trace(client.name, "rotate", epoch)
        await client.adopt(self._keys)
        await client.snapshot()

    async def _revoke(self, client: DocumentClient, chance: Random) -> None:
        """Let what has been read of somebody count, and nothing else from now on."""
        there = [each for each in self._clients if not each.is_out and each is not client]
        if not self._is_revoking or len(there) < 2 or client.document is None:
            return
        victim = chance.choice(there)
        author = victim.identity.public_key
        self._revoked[author] = await client.document.recount(author)
        self._trace(client.name, "revoke", victim.name)
        victim.is_out = True
        victim.crash()
        self._tokens.contest(self._tokens.of(set(victim.sessions)))
        await client.exclude(self._revoked)
