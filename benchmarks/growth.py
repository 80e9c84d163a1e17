"""The command `python -m benchmarks.growth`: what one more of something costs, the more there is.

- Edits: CPU time of one edit at random places, in documents of 1,000 to 1,000,000 characters that
  were not written from top to bottom.
- Documents: CPU time of the relay for one durable append, with 1 to 10,000 documents in its file.
- Subscribers: CPU time of the relay for one delivery, with 1 to 1,000 who follow one document.
- The median of the rounds counts, and rounds are interleaved: every size once, then again.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import walstore
from benchmarks.inputs import probe_edits, scattered_bursts
from benchmarks.measure import timed
from benchmarks.relay import loads
from benchmarks.relay.lean import Connection
from benchmarks.relay.servers import Message, Server, cpu_seconds, running
from benchmarks.standing import aligned, number
from walstore import WalCrdt, Writer

Costs = dict[int, float]

_ROUNDS = 3
_LIST = "text"
_PROBE_EDITS = 10_000
# Messages under way at once, so that one sync of the disk takes several.
_WINDOW = 64
_APPENDS = 2_000
_DELIVERIES = 6_000


def edit_us(characters: int) -> float:
    """CPU µs of one edit in a document of so many characters."""
    writer = Writer(WalCrdt(), "a1" * 32 + ":0")
    _edit(writer, scattered_bursts(characters))
    writer.take()
    probe = probe_edits(characters, _PROBE_EDITS)
    seconds, _ = timed(_edit, writer, probe)
    return seconds / len(probe) * 1e6


def append_us(documents: int) -> float:
    """CPU µs of the relay for an append to one of so many documents that hold something."""
    each = -(-_APPENDS // documents)
    with running("walstore", sys.executable) as server:
        messages = [server.typed(f"grown/{n}", writer=0, count=1 + each) for n in range(documents)]
        with closing(server.join("grown/0", writer=0, is_follower=False)) as connection:
            _append(server, connection, [own[0] for own in messages])
            measured = [message for turn in range(each) for message in _turn(messages, turn)]
            del measured[_APPENDS:]
            before = cpu_seconds(server.process)
            _append(server, connection, measured)
            return (cpu_seconds(server.process) - before) / len(measured) * 1e6


def delivery_us(followers: int) -> float:
    """CPU µs of the relay for each delivery of what one sends to so many."""
    count = min(1_000, max(20, _DELIVERIES // followers))
    with running("walstore", sys.executable) as server:
        return loads.fan_out(server, followers=followers, count=count, window=16)["CPU µs"]


# What grows, in which unit a size is counted, the sizes, and how one is measured.
MEASURED: dict[str, tuple[str, tuple[int, ...], Callable[[int], float]]] = {
    "edit": ("characters in the document", (1_000, 10_000, 100_000, 1_000_000), edit_us),
    "append": ("documents in the relay", (1, 10, 100, 1_000, 10_000), append_us),
    "delivery": ("subscribers of the document", (1, 10, 100, 1_000), delivery_us),
}


def main() -> int:
    """Measure, print, and write what was asked for."""
    options = _options()
    chosen = [name for name in MEASURED if not options.only or name in options.only.split(",")]
    samples: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in chosen}
    for _ in range(options.rounds):
        for name in chosen:
            _, sizes, measure = MEASURED[name]
            for size in sizes:
                samples[name][size].append(measure(size))
    costs = {
        name: {size: statistics.median(found) for size, found in rows.items()}
        for name, rows in samples.items()
    }
    build = "compiled" if walstore.compiled else "pure Python"
    print(f"CPU µs, {build}, median of {options.rounds}\n")
    for name, own in costs.items():
        print(_table(name, own))
    if options.json:
        options.json.write_text(json.dumps({"build": build, "costs": costs}, indent=1) + "\n")
    if options.plot:
        draw(costs, options.plot)
    return 0


def draw(costs: dict[str, Costs], file: Path) -> None:
    """One panel for each kind, both axes logarithmic: flat is best, a slope of one is linear."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.6), dpi=110)
    for place, (name, own) in enumerate(costs.items(), 1):
        axes = figure.add_subplot(1, len(costs), place)
        axes.plot(list(own), list(own.values()), "o-", color="#2a7f62")
        axes.set_xscale("log")
        axes.set_yscale("log")
        middle = statistics.geometric_mean(own.values())
        axes.set_ylim(middle / 30, middle * 30)
        axes.set_xlabel(MEASURED[name][0], fontsize=7)
        axes.set_title(f"CPU µs of one {name}", fontsize=8)
        axes.tick_params(labelsize=6)
        axes.grid(linewidth=0.3)
    figure.tight_layout()
    figure.savefig(file)


def _edit(writer: Writer, edits: Iterable[tuple[int, int, str]]) -> None:
    for position, deleted, inserted in edits:
        if deleted:
            writer.remove(_LIST, position, deleted)
        if inserted:
            writer.insert_text(_LIST, position, inserted)
        writer.take()


def _turn(messages: Sequence[Sequence[Message]], turn: int) -> list[Message]:
    """The next message of every document, in any order."""
    row = [own[1 + turn] for own in messages]
    random.Random(turn).shuffle(row)
    return row


def _append(server: Server, connection: Connection, messages: list[Message]) -> None:
    """Send, so many under way at once, until each is acknowledged."""
    sent = taken = 0
    while taken < len(messages):
        while sent < len(messages) and sent - taken < _WINDOW:
            connection.send(messages[sent].frame)
            sent += 1
        if not server.acknowledges(connection.receive(), messages[taken]):
            raise RuntimeError("an append was refused")
        taken += 1


def _table(name: str, costs: Costs) -> str:
    unit = MEASURED[name][0]
    rows = [[f"one {name}: {unit}", *[f"{size:,}" for size in costs]]]
    rows.append(["CPU µs", *map(number, costs.values())])
    return "\n".join(aligned(rows)) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--only", default="", help="edit, append or delivery, or several")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"how often; {_ROUNDS}")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--plot", type=Path, help="also draw them, as a PNG")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
