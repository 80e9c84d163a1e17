"""Stores of three people on one document, and how tests wait for them without sleeping."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from os import PathLike
from typing import Any

from walstore.canon import parse
from walstore.crdt import unpack_ops
from walstore.crdt.runs import Insert, Verbatim
from walstore.document.document import ALLOW_ANY
from walstore.document.ports import RawElement, Transport
from walstore.signed import Identity
from walstore.store.store import WalStore
from walstore.wire.envelope import read_header

KEY = "stores/doc"
ADA, BEN, CAM = PEOPLE = tuple(Identity.from_seed(bytes([number]) * 32) for number in (21, 22, 23))

PATIENCE_S = 20


def store_of(
    who: Identity,
    relay: str | Transport | None = None,
    path: str | PathLike[str] | None = None,
    **options: Any,
) -> WalStore:
    """A store that anybody may write to."""
    options = {"writers": ALLOW_ANY, "snapshot_role": ALLOW_ANY, **options}
    return WalStore.open(KEY, identity=who, relay=relay, path=path, **options)


async def until(stores: Sequence[WalStore], condition: Callable[[], bool]) -> None:
    """Return once a condition holds; it is looked at whenever one of the stores has news."""
    news = asyncio.Event()
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
        for store in stores:
            stack.callback(store.on_status(lambda _: news.set()))
            stack.enter_context(store.subscribe("**", lambda _: news.set()))
        while not condition():
            news.clear()
            await news.wait()


async def until_sent(*stores: WalStore) -> None:
    """Return once everything that the stores have edited was read in the log."""
    async with asyncio.timeout(PATIENCE_S):
        while any(store.status.unsent + store.document.unconfirmed for store in stores):
            await until(stores, lambda: not any(store.status.unsent for store in stores))
            for store in stores:
                # Of its own edits a store is told a moment later, and tells nobody.
                await store.pull()


async def has_looked(store: WalStore) -> None:
    """Return when nothing is left that a store wants to look at."""
    await store.pull()
    while store._lookout._wanted.is_set():
        await asyncio.sleep(0)
    async with store.sharing._lock:
        pass


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_log(elements: Sequence[RawElement]) -> None:
    """Every session counts up from 1, by 1, and no op is there twice."""
    counted: dict[tuple[str, str], int] = {}
    clocks: set[tuple[str, str, int]] = set()
    for element in elements:
        data: Any = parse(element.data)
        header = read_header(data)
        assert header is not None
        session = element.author, header.session
        counted[session] = counted.get(session, 0) + 1
        assert header.seq == counted[session]
        for run in unpack_ops(data["body"]["ops"]):
            # Runs that name no replica are of the session itself.
            assert not isinstance(run, Verbatim)
            size = len(run.values) if isinstance(run, Insert) else 1
            stamped = {(*session, run.counter + offset) for offset in range(size)}
            assert not run.replica
            assert not stamped & clocks, "an op is in the log twice"
            clocks |= stamped
