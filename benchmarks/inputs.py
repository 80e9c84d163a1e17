"""What the workers read: every workload's input as a file, so that all peers get the same.

- Edits are JSON lines `[position, deleted, inserted, begins a burst]`, once per way of counting
  positions: code points, UTF-8 bytes, UTF-16 units.
- `expected.json` has the SHA-256 of the text that the first `n` edits leave, by `n`.
- Everything random comes from a fixed seed.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.traces import ConcurrentTrace, Edit, Trace, in_units, replay

# A peer whose edits cost too much for the whole trace is measured on so many of them.
FEW_EDITS = (2_000, 20_000)

_SEED = 1
_UNITS = {"points": ("utf-32-le", 4), "utf8": ("utf-8", 1), "utf16": ("utf-16-le", 2)}
_ALICE = "a1" * 32 + ":0"
_BOB = "b0" * 32 + ":0"


@dataclass(frozen=True)
class Sizes:
    """How large the workloads are."""

    edits: int
    transactions: int
    random_edits: tuple[int, ...]
    characters: tuple[int, ...]
    probe_edits: int
    chain: int
    shuffled: int
    siblings: tuple[int, ...]
    replayed: int


FULL = Sizes(
    edits=10**9,
    transactions=10**9,
    random_edits=(10_000, 50_000),
    characters=(10_000, 100_000, 1_000_000),
    probe_edits=20_000,
    chain=50_000,
    shuffled=40_000,
    siblings=(10_000, 100_000),
    replayed=20_000,
)
QUICK = Sizes(
    edits=10_000,
    transactions=2_000,
    random_edits=(1_000, 5_000),
    characters=(10_000, 50_000),
    probe_edits=2_000,
    chain=20_000,
    shuffled=10_000,
    siblings=(2_000, 20_000),
    replayed=2_000,
)


def write_inputs(folder: Path, sizes: Sizes, trace: Trace, concurrent: ConcurrentTrace) -> None:
    """Write every input below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    edits = trace.edits[: sizes.edits]
    expected = {n: _digest(replay(edits[:n])) for n in (*FEW_EDITS, len(edits))}
    _write(folder / "expected.json", expected)
    starts = _burst_starts(edits)
    for unit, (encoding, width) in _UNITS.items():
        _write_edits(folder / f"edits-{unit}.jsonl", in_units(edits, encoding, width), starts)
    for count in sizes.random_edits:
        _write_edits(folder / f"random-{count}.jsonl", _random_edits(count))
    for characters in sizes.characters:
        build = scattered_bursts(characters)
        _write_edits(folder / f"growth-{characters}-build.jsonl", build)
        probe = probe_edits(characters, sizes.probe_edits)
        _write_edits(folder / f"growth-{characters}-probe.jsonl", probe)
    _write_concurrent(folder / "concurrent.jsonl", concurrent, sizes.transactions)
    _write(folder / "history.json", _ops_of(edits))
    _write(folder / f"chain-{sizes.chain}.json", _chain(_ALICE, 1, sizes.chain))
    _write(folder / f"shuffled-{sizes.shuffled}.json", _shuffled(sizes.shuffled))
    for count in sizes.siblings:
        ops = _siblings(count)
        _write(folder / f"siblings-{count}.json", ops)
        random.Random(_SEED).shuffle(ops)
        _write(folder / f"scrambled-{count}.json", ops)
    _write(folder / "replayed.json", sizes.replayed)
    _write(folder / "values.json", _set_text_cases())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _write_edits(path: Path, edits: list[Edit], starts: list[bool] | None = None) -> None:
    with path.open("w", encoding="utf-8") as file:
        for edit, start in zip(edits, starts or _burst_starts(edits), strict=True):
            file.write(json.dumps([*edit, start]) + "\n")


def _burst_starts(edits: list[Edit]) -> list[bool]:
    """Which edits begin a burst: they do not go on typing or deleting where the last one ended."""
    return [True, *(not _goes_on(last, edit) for last, edit in pairwise(edits))]


def _goes_on(last: Edit, edit: Edit) -> bool:
    if edit[2]:
        return not edit[1] and bool(last[2]) and edit[0] == last[0] + len(last[2])
    return not last[2] and edit[0] in (last[0], last[0] - edit[1])


def _random_edits(count: int) -> list[Edit]:
    chance = random.Random(_SEED)
    return [(chance.randrange(n + 1), 0, chr(97 + n % 26)) for n in range(count)]


def scattered_bursts(characters: int) -> list[Edit]:
    """A document that was not written from top to bottom: ten characters here, ten there."""
    chance = random.Random(_SEED)
    return [(chance.randrange(10 * n + 1), 0, "0123456789") for n in range(characters // 10)]


def probe_edits(characters: int, count: int) -> list[Edit]:
    """Words of eight typed at random places, two characters of each taken back."""
    chance = random.Random(_SEED)
    edits: list[Edit] = []
    for word in range(count // 10):
        at = chance.randrange(characters + 6 * word)
        edits += [(at + n, 0, "abcdefgh"[n]) for n in range(8)]
        edits += [(at + 7, 1, ""), (at + 6, 1, "")]
    return edits


def _write_concurrent(path: Path, trace: ConcurrentTrace, limit: int) -> None:
    """Each line: who edits, which transactions it must receive first, its edits."""
    agents = 1 + max(transaction.agent for transaction in trace.transactions)
    # One agent's transactions are ordered, so a version is a count per agent.
    sent: list[list[int]] = [[] for _ in range(agents)]
    versions: list[list[int]] = []
    known = [[0] * agents for _ in range(agents)]
    with path.open("w", encoding="utf-8") as file:
        for number, transaction in enumerate(trace.transactions[:limit]):
            me = transaction.agent
            version = [
                max((versions[parent][agent] for parent in transaction.parents), default=0)
                for agent in range(agents)
            ]
            receive = [
                earlier
                for agent in range(agents)
                if agent != me
                for earlier in sent[agent][known[me][agent] : version[agent]]
            ]
            known[me] = version
            sent[me].append(number)
            versions.append([*version[:me], len(sent[me]), *version[me + 1 :]])
            line = {"agent": me, "receive": sorted(receive), "edits": transaction.edits}
            file.write(json.dumps(line) + "\n")


def _insert(replica: str, counter: int, after: str, value: str) -> dict[str, Any]:
    return {
        "t": "ins",
        "list": "text",
        "id": f"{counter}@{replica}",
        "after": after,
        "clock": {"c": counter, "r": replica},
        "value": value,
    }


def _chain(replica: str, first: int, count: int, after: str = "") -> list[dict[str, Any]]:
    ops: list[dict[str, Any]] = []
    for counter in range(first, first + count):
        ops.append(_insert(replica, counter, after, chr(97 + counter % 26)))
        after = ops[-1]["id"]
    return ops


def _shuffled(count: int) -> list[dict[str, Any]]:
    """Two replicas that type words after random characters of both, delivered in any order."""
    chance = random.Random(_SEED)
    ops: list[dict[str, Any]] = []
    while len(ops) < count:
        after = chance.choice(ops)["id"] if ops else ""
        ops += _chain(chance.choice((_ALICE, _BOB)), len(ops) + 1, 8, after)
    del ops[count:]
    chance.shuffle(ops)
    return ops


def _siblings(count: int) -> list[dict[str, Any]]:
    """Inserts of two replicas at the head of the list, oldest first."""
    return [_insert((_ALICE, _BOB)[n % 2], 1 + n // 2, "", chr(97 + n % 26)) for n in range(count)]


def _ops_of(edits: list[Edit]) -> list[dict[str, Any]]:
    """The version-1 history of a sequential trace."""
    ops: list[dict[str, Any]] = []
    ids: list[str] = []
    for position, deleted, inserted in edits:
        for target in ids[position : position + deleted]:
            clock = {"c": len(ops) + 1, "r": _ALICE}
            ops.append({"t": "rmv", "list": "text", "id": target, "clock": clock})
        del ids[position : position + deleted]
        for offset, value in enumerate(inserted):
            at = position + offset
            ops.append(_insert(_ALICE, len(ops) + 1, ids[at - 1] if at else "", value))
            ids.insert(at, ops[-1]["id"])
    return ops


def _set_text_cases() -> dict[str, tuple[str, str]]:
    chance = random.Random(_SEED)

    def prose(size: int, letters: str = "etaoinshrdlu  ,.\n") -> str:
        return "".join(chance.choice(letters) for _ in range(size))

    cases: dict[str, tuple[str, str]] = {}
    for name, size in (("1k", 1_000), ("10k", 10_000), ("100k", 100_000)):
        text = prose(size)
        cases[name] = (text, text[: size // 2] + "#" + text[size // 2 :])
    cases["rewrite"] = (prose(1_000), prose(1_000))
    text = prose(20_000)
    changed = list(text)
    for place in chance.sample(range(len(text)), 50):
        changed[place] = "#"
    cases["scattered"] = (text, "".join(changed))
    cases["different"] = (prose(5_000, "abcdefghijklm"), prose(5_000, "nopqrstuvwxyz"))
    return cases
