"""The command `python -m benchmarks.operations`: how many bytecode instructions some work takes.

- A count says nothing of time, but it is the same on every machine and however busy it is. So it
  can be held to a committed figure, which a time cannot: `tests/test_operation_counts.py` does.
- Only walstore's own instructions count; those of a library, and what runs as C, do not.
- Bytecode differs between Python versions; there is a figure for each that was counted.

`--accept` commits to what was counted now.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import walstore
from walstore import (
    Identity,
    MemoryTransport,
    WalCrdt,
    WalDocument,
    WalStore,
    Writer,
    pack_ops,
    to_ops,
    unpack_ops,
)

BASELINE = Path(__file__).with_name("operations.json")
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"

# How many more instructions than committed are let pass.
SLACK = 1.10

_SOURCE = str(Path(walstore.__file__).parent)
_REPLICA = "a1" * 32 + ":0"
_NAME = "text"
_ME = Identity.from_seed(bytes(32))

# What is counted happens in here.
Counted = Callable[[Callable[[], object]], None]


def typing(count: Counted) -> None:
    """Words typed with a mistake in each, every edit taken by itself."""
    writer = Writer(WalCrdt(), _REPLICA)
    count(lambda: _typed(writer, 40))


def scattered(count: Counted) -> None:
    """Single characters all over a text that was written all over."""
    chance, writer = random.Random(1), Writer(WalCrdt(), _REPLICA)
    for size in range(0, 20_000, 10):
        writer.insert_text(_NAME, chance.randrange(size + 1), "0123456789")

    def edit() -> None:
        for _ in range(200):
            writer.insert_text(_NAME, chance.randrange(20_000), "x")
            writer.remove(_NAME, chance.randrange(20_000), 1)

    count(edit)


def messages(count: Counted) -> None:
    """One packed message for each edit, read and folded one by one."""
    packed = [pack_ops(runs) for runs in _typed(Writer(WalCrdt(), _REPLICA), 40)]
    reader = WalCrdt()

    def receive() -> None:
        for message in packed:
            reader.fold_runs(unpack_ops(message))

    count(receive)


def version_1(count: Counted) -> None:
    """Version-1 ops of two who type, once in order and once in any order."""
    writer = Writer(WalCrdt(), _REPLICA)
    ops = [op for runs in _typed(writer, 40) for op in to_ops(runs)]
    shuffled = random.Random(1).sample(ops, len(ops))

    def fold() -> None:
        WalCrdt().fold(ops)
        WalCrdt().fold(shuffled)

    count(fold)


def snapshot(count: Counted) -> None:
    """A packed state written, read, and edited for the first time."""
    crdt = WalCrdt()
    _typed(Writer(crdt, _REPLICA), 100)

    def open_and_edit() -> None:
        other = WalCrdt()
        other.import_packed(crdt.export_packed(), lazy=True)
        other.text(_NAME)
        Writer(other, "b0" * 32 + ":0").insert_text(_NAME, 50, "x")

    count(open_and_edit)


def whole_texts(count: Counted) -> None:
    """A text of 10,000 characters replaced by one with a character more, then much of it."""

    async def run() -> None:
        document = await _document(MemoryTransport()).open()
        text = "".join(random.Random(1).choices("etaoinshrdlu  ,.\n", k=10_000))
        document.set_text(_NAME, text)

        def edit() -> None:
            for number in range(20):
                shown = document.text(_NAME)
                document.set_text(_NAME, f"{shown[: 400 * number]}#{shown[400 * number :]}")
            document.set_text(_NAME, text[:300][::-1] + text[300:])

        count(edit)

    asyncio.run(run())


def signed(count: Counted) -> None:
    """Keystrokes signed and appended, then pulled and verified."""

    async def run() -> None:
        transport = MemoryTransport()
        sender, receiver = await _document(transport).open(), await _document(transport).open()

        async def exchange() -> None:
            for number in range(20):
                sender.insert_text(_NAME, number, "k")
                await sender.commit()
                await receiver.pull()

        count(lambda: _stepped(exchange()))

    asyncio.run(run())


def store(count: Counted) -> None:
    """Key-presses in a store with a file and a subscriber."""

    async def run() -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder, "store.wal")
            async with WalStore.open("a/b", identity=_ME, path=path, autocommit_ms=None) as opened:
                opened.set_text(_NAME, "0123456789" * 1000)
                opened.subscribe(_NAME, lambda change: None)

                def edit() -> None:
                    for number in range(40):
                        opened.edit_text(_NAME, 5000 + number, 0, "k")

                count(edit)

    asyncio.run(run())


WORKLOADS: dict[str, Callable[[Counted], None]] = {
    each.__name__: each
    for each in (typing, scattered, messages, version_1, snapshot, whole_texts, signed, store)
}


def instructions(workload: Callable[[Counted], None]) -> int:
    """How many instructions of walstore's own a workload takes."""
    total = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal total
        if event == "opcode":
            total += 1
        elif event == "call":
            if not frame.f_code.co_filename.startswith(_SOURCE):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace

    def count(work: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)

    workload(count)
    return total


def committed() -> dict[str, int]:
    """The figures of this version of Python; none if they were never counted."""
    figures: dict[str, dict[str, int]] = json.loads(BASELINE.read_bytes())
    return figures.get(VERSION, {})


def main() -> int:
    """Count, print beside what is committed, and return 1 if something takes more."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operations", description=__doc__)
    parser.add_argument("--accept", action="store_true", help="commit to what is counted now")
    options = parser.parse_args()
    if walstore.compiled:
        print("walstore is compiled: it has no bytecode to count", file=sys.stderr)
        return 2
    counts = {name: instructions(workload) for name, workload in WORKLOADS.items()}
    before = committed()
    for name, found in counts.items():
        known = f"{before[name]:>12,}  {found / before[name]:.2f}" if name in before else ""
        print(f"{name:12}{found:>12,}{known}")
    if options.accept:
        figures = json.loads(BASELINE.read_bytes()) if BASELINE.exists() else {}
        BASELINE.write_text(json.dumps({**figures, VERSION: counts}, indent=1) + "\n")
        return 0
    return int(any(counts[name] > SLACK * before[name] for name in before))


def _typed(writer: Writer, words: int) -> list[Any]:
    """Type words, one character too many and back; what was recorded, edit by edit."""
    recorded, at = [], 0
    for _ in range(words):
        for letter in "walstores":
            writer.insert_text(_NAME, at, letter)
            recorded.append(writer.take())
            at += 1
        at -= 1
        writer.remove(_NAME, at)
        recorded.append(writer.take())
    return recorded


def _document(transport: MemoryTransport) -> WalDocument:
    people = [_ME.public_key]
    return WalDocument(
        "a/b", transport=transport, identity=_ME, writers=people, snapshot_role=people
    )


def _stepped(work: Awaitable[object]) -> None:
    """Run what never has to wait to its end, here and now."""
    steps = work.__await__()
    try:
        while True:
            next(steps)
    except StopIteration:
        pass


if __name__ == "__main__":
    sys.exit(main())
