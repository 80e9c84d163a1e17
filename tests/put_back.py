"""Logs that are put back to older copies, and what a store looks like that has noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.stores import KEY, store_of, until
from walstore.document.faults import RollbackDetectedError
from walstore.document.ports import Body, CheckpointTooOldError, RawElement
from walstore.net import MemoryTransport
from walstore.signed import Identity
from walstore.store.store import WalStore


def live(who: Identity, relay: Any, path: Path | None = None, **options: Any) -> WalStore:
    """A store that sends at once."""
    return store_of(who, relay, path, autocommit_ms=0, snapshot_after=None, **options)


def quiet(who: Identity, relay: Any, path: Path | None = None, **options: Any) -> WalStore:
    """A store that sends when it is told to."""
    return store_of(who, relay, path, autocommit_ms=None, snapshot_after=None, **options)


async def until_same(*stores: WalStore) -> None:
    """Return once all stores show the same, and nothing is on its way or missing."""

    def is_same() -> bool:
        first = stores[0].materialize()
        return all(
            store.materialize() == first
            and not (store.status.unsent or store.status.stranded or store.status.gaps)
            for store in stores
        )

    await until(stores, is_same)


async def until_told(*stores: WalStore) -> None:
    await until(stores, lambda: all(store.status.rollback is not None for store in stores))


def signatures(elements: Iterable[RawElement]) -> Counter[str]:
    return Counter(element.signature for element in elements)


async def write(store: WalStore, *words: str) -> None:
    """One element for each word, read back."""
    for word in words:
        store.list("words").append(word)
        await store.flush()
    await store.pull()


async def met(store: WalStore) -> None:
    with pytest.raises(RollbackDetectedError):
        await store.pull()


class Prunable(MemoryTransport):
    """A log in memory that can be put back; as by the clock, it never uses a `ts` again."""

    clock = 0
    # What is not above it was let go of.
    floor = 0

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        if checkpoint < self.floor:
            raise CheckpointTooOldError(self.floor)
        return await super().pull(document_key, checkpoint)

    async def append(self, document_key: str, body: Body) -> int:
        log = self._logs.setdefault(document_key, [])
        name = (document_key, body.author, body.signature, body.canonical)
        if name not in self._known:
            self.clock += 1
            self._known[name] = self.clock
            log.append(RawElement(self.clock, body.canonical, body.author, body.signature))
            for follower in self._followers.get(document_key, ()):
                follower.ring()
        return self._known[name]

    def saved(self) -> list[RawElement]:
        return list(self._logs[KEY])

    def put_back(self, elements: list[RawElement], *stores: WalStore) -> None:
        """Go on from an older copy; nobody is connected to a relay while that happens."""
        for store in stores:
            assert store._replica is not None
            store._replica.doubt()
        self._logs[KEY] = list(elements)
        self._known = {(KEY, each.author, each.signature, each.data): each.ts for each in elements}
