"""What a store is measured with: a text of 100,000 characters that people have worked on.

- Key-presses are counted in CPU time: what an app cannot do meanwhile. One subscriber is told of
  each, and each is in the local file when its call returns.
- Opening is counted by the clock, from the local file alone, as an app would wait for it.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from walstore.net import MemoryTransport
from walstore.signed import Identity
from walstore.store.change import Change
from walstore.store.store import WalStore

KEY = "benchmarks/store"
NAME = "body"
SIZE = 100_000
ME = Identity.from_seed(bytes([1]) * 32)

# Edits that the text has been through, all over it, and in how many elements.
_PAST_EDITS = 2_000
_PAST_COMMITS = 200
# How often something is opened; the median counts.
_OPENINGS = 7

_WARM_UP = 50


@asynccontextmanager
async def opened(path: Path, transport: MemoryTransport | None = None) -> AsyncIterator[WalStore]:
    """A store that commits when it is told to."""
    async with WalStore.open(
        KEY, identity=ME, path=path, relay=transport, autocommit_ms=None
    ) as store:
        yield store


async def write_past(path: Path) -> None:
    """Make a text, edit it all over, and leave it in a file."""
    chance = random.Random(1)
    text = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz     \n", k=SIZE))
    async with opened(path, MemoryTransport()) as store:
        store.set_text(NAME, text)
        for number in range(_PAST_EDITS):
            store.edit_text(NAME, chance.randrange(SIZE), chance.randrange(2), "xy")
            if number % (_PAST_EDITS // _PAST_COMMITS) == 0:
                await store.commit()
        await store.commit()
        await store.pull()


def type_on(store: WalStore, count: int) -> None:
    """Type character after character at one place."""
    for number in range(count):
        store.edit_text(NAME, SIZE // 2 + number, 0, "k")


def type_around(store: WalStore, count: int) -> None:
    """Type each character somewhere else."""
    chance = random.Random(2)
    for _ in range(count):
        store.edit_text(NAME, chance.randrange(SIZE), 0, "k")


def overwrite(store: WalStore, count: int) -> None:
    """Replace single characters all over."""
    chance = random.Random(3)
    for _ in range(count):
        store.edit_text(NAME, chance.randrange(SIZE), 1, "k")


def set_whole(store: WalStore, count: int) -> None:
    """Hand over the whole text after each character."""
    text = store.text(NAME)
    for number in range(count):
        at = SIZE // 2 + number
        text = f"{text[:at]}k{text[at:]}"
        store.set_text(NAME, text, caret=at + 1)


def read_and_set_whole(store: WalStore, count: int) -> None:
    """Read the whole text before each character, and hand it over after it."""
    for number in range(count):
        text, at = store.text(NAME), SIZE // 2 + number
        store.set_text(NAME, f"{text[:at]}k{text[at:]}", caret=at + 1)


async def key_ms(path: Path, typing: Callable[[WalStore, int], None], count: int) -> float:
    """CPU milliseconds of one key-press."""
    told: list[Change] = []
    async with opened(path) as store:
        store.subscribe(NAME, told.append)
        typing(store, _WARM_UP)
        start = time.process_time()
        typing(store, count)
        spent = time.process_time() - start
    if len(told) != _WARM_UP + count:
        raise RuntimeError(f"{count} key-presses were told as {len(told) - _WARM_UP} changes")
    return spent / count * 1000


async def opening_ms(path: Path) -> tuple[float, float]:
    """Milliseconds until a store is open and its text is there, and those of the first edit."""
    openings, edits = [], []
    for _ in range(_OPENINGS):
        start = time.perf_counter()
        async with opened(path) as store:
            store.text(NAME)
            shown = time.perf_counter()
            store.edit_text(NAME, SIZE // 2, 0, "k")
            edits.append(time.perf_counter() - shown)
        openings.append(shown - start)
    return median(openings) * 1000, median(edits) * 1000
