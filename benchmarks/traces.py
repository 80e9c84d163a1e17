"""Editing histories: read from a file, or made up with a fixed seed when there is none.

- An edit is `(position, deleted, inserted)`, positions in code points, as in the form of
  josephg's editing-traces (`.json.gz`; sequential, or concurrent with `parents` and `agent`).
- A made-up trace has the character of a real one: bursts of typing, backspaces, jumps.
- No trace is part of the repository.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Edit = tuple[int, int, str]

_SEED = 20_240_229
_LETTERS = "etaoinshrdlucmfwyp     ,.\n"


@dataclass(frozen=True)
class Trace:
    """One person's edits, in order."""

    name: str
    edits: list[Edit]


@dataclass(frozen=True)
class Transaction:
    """Edits of one agent, made when it knew exactly `parents` and what they knew."""

    agent: int
    parents: list[int]
    edits: list[Edit]


@dataclass(frozen=True)
class ConcurrentTrace:
    """Several people's transactions, parents before children."""

    name: str
    transactions: list[Transaction]


def read_trace(path: Path) -> Trace | ConcurrentTrace:
    """Read a trace; which kind it is stands in the file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        content: dict[str, Any] = json.load(file)
    name = path.name.removesuffix(".json.gz")
    if content.get("kind") == "concurrent":
        transactions = [
            Transaction(entry["agent"], entry["parents"], _edits(entry))
            for entry in content["txns"]
        ]
        return ConcurrentTrace(name, transactions)
    start = content.get("startContent", "")
    first: list[Edit] = [(0, 0, start)] if start else []
    return Trace(name, first + [edit for entry in content["txns"] for edit in _edits(entry)])


def _edits(entry: dict[str, Any]) -> list[Edit]:
    return [(position, deleted, inserted) for position, deleted, inserted, *_ in entry["patches"]]


def made_up_trace(size: int = 260_000) -> Trace:
    """Make up a sequential trace of about `size` single-character edits."""
    chance = random.Random(_SEED)
    edits: list[Edit] = []
    length = position = 0
    while len(edits) < size:
        # Most bursts go on where the last one ended, as most typing does.
        if chance.random() < 0.4:
            position = chance.randrange(length + 1)
        burst = list(_burst(chance, position, length))
        edits += burst
        length += sum(len(inserted) - deleted for _, deleted, inserted in burst)
        position = burst[-1][0] + len(burst[-1][2])
    return Trace("made-up", edits[:size])


def made_up_concurrent_trace(size: int = 26_000) -> ConcurrentTrace:
    """Make up a concurrent trace: two agents type in two halves and meet now and then."""
    chance = random.Random(_SEED)
    # A line break parts the halves, so that no two agents ever insert at one place.
    transactions = [Transaction(0, [], [(0, 0, "\n")])]
    newest, lengths = [0, 0], [0, 0]
    while len(transactions) < size:
        known, parents = list(lengths), sorted(set(newest))
        for agent in (0, 1):
            offset = agent * (known[0] + 1)
            last = parents
            for _ in range(chance.randrange(1, 4)):
                at = chance.randrange(lengths[agent] + 1)
                for position, deleted, inserted in _burst(chance, at, lengths[agent]):
                    edit = (position + offset, deleted, inserted)
                    transactions.append(Transaction(agent, last, [edit]))
                    last = [len(transactions) - 1]
                    lengths[agent] += len(inserted) - deleted
            newest[agent] = last[0]
    return ConcurrentTrace("made-up-concurrent", transactions)


def _burst(chance: random.Random, position: int, length: int) -> Iterator[Edit]:
    size = min(1 + int(chance.expovariate(1 / 24)), 200)
    if chance.random() < 0.3 and position >= size and length > size:
        for back in range(size):
            yield position - back - 1, 1, ""
    else:
        for forward in range(size):
            yield position + forward, 0, chance.choice(_LETTERS)


def replay(edits: Iterable[Edit]) -> str:
    """The text that a sequence of edits leaves."""
    # Four bytes a code point make every edit one move of memory.
    text = bytearray()
    for position, deleted, inserted in edits:
        text[4 * position : 4 * (position + deleted)] = inserted.encode("utf-32-le")
    return text.decode("utf-32-le")


def in_units(edits: list[Edit], encoding: str, width: int) -> list[Edit]:
    """The same edits with positions and lengths counted as `encoding` counts them."""
    if all(inserted.isascii() for _, _, inserted in edits):
        return edits
    converted: list[Edit] = []
    text = ""
    for position, deleted, inserted in edits:
        before, removed = text[:position], text[position : position + deleted]
        at, gone = (len(part.encode(encoding)) // width for part in (before, removed))
        converted.append((at, gone, inserted))
        text = before + inserted + text[position + deleted :]
    return converted
