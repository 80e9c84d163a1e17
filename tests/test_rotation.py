"""Keys change hands amid everything: nothing is sealed for somebody who is out, nothing gets lost.

- An owner and two writers type, seal and send, each as a seed draws it, over connections that take
  their time and lose requests and answers. Meanwhile one of the writers is revoked, or the key is
  changed, or both.
- Whatever a writer hands to the relay is sealed with the newest key that they know by then. Whoever
  was revoked opens none of what is sealed with a newer key than they were given, by all that they
  ever had and all that the relay has for them.
- All that the others have written is there, for them and for somebody who is invited afterwards and
  reads one snapshot at most.

`WALSTORE_ROTATIONS` says how many trials, `WALSTORE_ROTATIONS_SEED` which ones; it is printed. What
the sockets do meanwhile is theirs.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import Any

import pytest

from tests.rigged import OfflineError
from tests.stores import ADA, BEN, CAM, PATIENCE_S, until, until_sent
from walstore.canon import parse
from walstore.document.ports import Body, StoredRecord, StoredSnapshot
from walstore.errors import PeerError, TransportError
from walstore.net import WebSocketTransport
from walstore.relay import MemoryLog, Relay
from walstore.sealed import NativeEncryptor, SealContext, open_keyring
from walstore.signed import Identity, verify_bytes
from walstore.signed.card import Card
from walstore.store.sharing_steps import KEYRING
from walstore.store.store import WalStore

TRIALS = int(os.environ.get("WALSTORE_ROTATIONS", "60"))
SEED = int(os.environ.get("WALSTORE_ROTATIONS_SEED", "1"))

DAN = Identity.from_seed(bytes([24]) * 32)

# Trials at once: they wait for sockets most of the time.
TOGETHER = 8

# What the writers are at while keys change.
MOMENTS = ["typed", "sealed and unsent", "in flight"]


class Line(WebSocketTransport):
    """A connection that takes its time and loses things, and remembers what went over it.

    Attributes:
        is_good: Whether it loses nothing.
        epoch: Tells the newest key epoch that whoever uses it knows.
        early: The bodies that were sealed in an older one when they were handed over.
        in_flight: How many bodies were on their way when their writer learnt of a newer one.
        snapshots: How many snapshots were read.
    """

    def __init__(self, relay: Relay, who: Identity, chance: Random) -> None:
        super().__init__(relay.url, identity=who)
        self._chance = chance
        self.is_good = True
        self.epoch: Callable[[], int] = lambda: 0
        self.early: list[Body] = []
        self.in_flight = 0
        self.snapshots = 0

    async def append(self, document_key: str, body: Body) -> int:
        epoch = body.data["body"]["_epoch"]
        if epoch < self.epoch():
            self.early.append(body)
        await dawdle(self._chance)
        self._may_fail()
        ts = await super().append(document_key, body)
        await dawdle(self._chance)
        self.in_flight += epoch < self.epoch()
        self._may_fail()
        return ts

    def _may_fail(self) -> None:
        if not self.is_good and self._chance.random() < 0.1:
            raise OfflineError

    async def tail(self, *args: Any) -> Any:
        found = await super().tail(*args)
        await dawdle(self._chance)
        return found

    async def pull(self, document_key: str, checkpoint: int) -> Any:
        await dawdle(self._chance)
        return await super().pull(document_key, checkpoint)

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        stored = await super().read(snapshot_key)
        self.snapshots += stored is not None
        await dawdle(self._chance)
        return stored

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        stored = await super().read_record(document_key, name)
        await dawdle(self._chance)
        return stored

    async def write_record(self, *args: Any) -> str:
        await dawdle(self._chance)
        revision = await super().write_record(*args)
        await dawdle(self._chance)
        return revision


async def dawdle(chance: Random, longest: int = 40) -> None:
    """Let others go first, now and then."""
    for _ in range(chance.choice([0, 0, 1, 3, chance.randint(0, longest)])):
        await asyncio.sleep(0)


class Trial:
    """One document, its owner, and those who write to it."""

    def __init__(self, relay: Relay, number: int, stack: AsyncExitStack) -> None:
        self._relay, self._stack = relay, stack
        self._key = f"rotations/{number}"
        self.chance = Random(f"{SEED}:{number}")
        self.lines: dict[Identity, Line] = {}
        self.stores: dict[Identity, WalStore] = {}
        self.done = Counter[str]()
        self._written: dict[Identity, dict[str, int]] = {ADA: {}, BEN: {}, CAM: {}}
        self._is_revoking = self.chance.random() < 0.8

    async def run(self) -> None:
        """Let keys change while everybody writes, then look at what came of it."""
        ada = await self._enter(ADA)
        ada["begun"] = 1
        await ada.flush()
        for who in (BEN, CAM):
            await (await self._join(who)).pull()
        for line in self.lines.values():
            line.is_good = False
        await asyncio.gather(*map(self._write, self._written), self._change())
        for line in self.lines.values():
            line.is_good = True
        left = [who for who in self._written if not (who is BEN and self._is_revoking)]
        await self._end(left)
        await self._check_joiner()
        elements = await self._elements()
        self.done["elements"] = len(elements)
        for who, line in self.lines.items():
            assert line.early == [], f"{who.public_key[:4]} has sealed with a key that is over"
            self.done["in flight"] += line.in_flight
        if self._is_revoking:
            await self._check_shut(elements)

    async def _enter(self, who: Identity) -> WalStore:
        line = Line(self._relay, who, self.chance)
        await self._stack.enter_async_context(line)
        store = WalStore.open(
            self._key,
            identity=who,
            relay=line,
            snapshots=line,
            owner=ADA.public_key,
            is_sealed=True,
            autocommit_ms=None,
        )
        self.lines[who], self.stores[who] = line, store
        line.epoch = lambda: _epoch_of(store)
        return await self._stack.enter_async_context(store)

    async def _join(self, who: Identity) -> WalStore:
        await self.stores[ADA].sharing.invite(Card.of(who))
        return await self._enter(who)

    async def _write(self, who: Identity) -> None:
        """Type, and be at any step of sending it."""
        chance, store = self.chance, self.stores[who]
        async with asyncio.TaskGroup() as tasks:
            for number in range(chance.randint(3, 10)):
                self._type(who, number)
                match chance.randint(0, 4):
                    case 0:
                        store.document.seal()
                    case 1 | 2:
                        tasks.create_task(_tried(store.commit))
                    case 3:
                        await _tried(store.commit)
                await dawdle(chance, 60)

    def _type(self, who: Identity, number: int) -> None:
        name = f"{who.public_key[:4]}-{number}"
        self.stores[who][name] = self._written[who][name] = number

    async def _change(self) -> None:
        """Revoke somebody, or change the key, or both."""
        chance, sharing = self.chance, self.stores[ADA].sharing
        await dawdle(chance, 400)
        for store in self.stores.values():
            self.done["typed"] += store.document.has_unsealed
            self.done["sealed and unsent"] += store.document.unsent
        changes: list[Callable[[], Awaitable[None]]] = [sharing.rotate] * chance.randint(0, 1)
        if self._is_revoking:
            changes.append(lambda: sharing.revoke(BEN.public_key))
        chance.shuffle(changes)
        for change in changes or [sharing.rotate]:
            await change()
            await dawdle(chance)

    async def _end(self, left: list[Identity]) -> None:
        """Have those who are left send and read everything."""
        stores = [self.stores[who] for who in left]
        newest = _epoch_of(self.stores[ADA])
        for who in left:
            while _epoch_of(self.stores[who]) < newest:
                await asyncio.sleep(0)
            self._type(who, 99)
            await self.stores[who].flush()
        await until_sent(*stores)
        # Who has the new key may still be reading anew what counts.
        await until(stores, lambda: all(store.view() == stores[0].view() for store in stores))
        for who in left:
            assert stores[0].view().items() >= self._written[who].items(), "something is lost"

    async def _check_joiner(self) -> None:
        dan = await self._join(DAN)
        await until([dan], lambda: dan.view() == self.stores[ADA].view())
        assert dan.status.unreadable == 0
        assert self.lines[DAN].snapshots <= 1

    async def _elements(self) -> list[tuple[str, Any]]:
        """Author and content of all that is in the log."""
        page = await self._relay.log.page(self._key, 0, count_max=1000, bytes_max=2**20)
        return [(row.author, parse(row.data)) for row in page.rows]

    async def _check_shut(self, elements: list[tuple[str, Any]]) -> None:
        """Whoever was revoked opens nothing that is sealed with what they were not given."""
        had = self.stores[BEN].sharing.keys
        assert had is not None
        record = await self.lines[ADA].read_record(self._key, KEYRING)
        assert record is not None
        with pytest.raises(PeerError):
            open_keyring(
                parse(record.text),
                recipient=BEN,
                trusted_adders={ADA.public_key},
                verify=verify_bytes,
                scope=self._key,
                epoch_min=0,
            )
        opener = NativeEncryptor(had, randomness=self.chance.randbytes)
        for author, data in elements:
            context = SealContext(self._key, author, data["seq"])
            if data["body"]["_epoch"] <= had.current_epoch:
                opener.open(data["body"], context)
                continue
            for claimed in (data["body"]["_epoch"], *had.key_ids):
                self.done["shut"] += 1
                with pytest.raises(PeerError):
                    opener.open({**data["body"], "_epoch": claimed}, context)


def _epoch_of(store: WalStore) -> int:
    keys = None if store._sharing is None else store._sharing.keys
    return 0 if keys is None else keys.current_epoch


async def _tried(commit: Callable[[], Awaitable[object]]) -> None:
    """Send, as far as the connection lets one, and as far as one may."""
    with suppress(TransportError):
        await commit()


async def tried(relay: Relay, number: int) -> Counter[str]:
    """One trial, and what happened in it."""
    try:
        async with AsyncExitStack() as stack:
            trial = Trial(relay, number, stack)
            async with asyncio.timeout(PATIENCE_S):
                await trial.run()
    except BaseException as error:
        error.add_note(f"WALSTORE_ROTATIONS_SEED={SEED}, trial {number}")
        raise
    return trial.done


async def test_whoever_writes_while_keys_change_seals_for_those_who_are_left() -> None:
    print(f"WALSTORE_ROTATIONS_SEED={SEED}")
    done = Counter[str]()
    async with Relay.serve(MemoryLog()) as relay:
        for first in range(0, TRIALS, TOGETHER):
            numbers = range(first, min(first + TOGETHER, TRIALS))
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(tried(relay, number)) for number in numbers]
            done += sum((each.result() for each in running), Counter[str]())
    missed = [moment for moment in MOMENTS if not done[moment]]
    assert not missed or TRIALS < 20, f"nobody was at it: {missed}"
    print(f"{TRIALS} rotations, {done['shut']} seals stayed shut: {dict(done)}")
