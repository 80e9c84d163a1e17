"""The command `python -m benchmarks.relay`: both servers in turns, then the report.

- Each case runs on a server that was just started, with nobody else connected; while one server is
  measured the other one does not run.
- Rounds are interleaved, and the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import Environments
from benchmarks.peers import Peer
from benchmarks.relay import loads, report
from benchmarks.relay.lean import LostError
from benchmarks.relay.loads import Figures, TooSlowError
from benchmarks.relay.report import PEER, WALSTORE, Case, Target
from benchmarks.relay.servers import Server, running
from benchmarks.relay.typing_session import bytes_per_keystroke

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".cache" / "bench"

PYCRDT = Peer(
    PEER,
    "python",
    "",
    (
        ("pycrdt-websocket", "0.16.5"),
        ("pycrdt-store", "0.1.5"),
        ("pycrdt", "0.14.10"),
        ("websockets", "16.1.1"),
    ),
)

_ROUNDS = 3
# What a quick run looks at unless it is told: one of each kind that has a target.
_QUICK = ("appends-64", "fan-out-100", "idle", "keystroke")
# Connections, and files beside them.
_FILES = 4_096


@dataclass(frozen=True)
class Load:
    """A case and how it is measured; `scale` is how much of it is done."""

    case: Case
    measure: Callable[[Server, float], Figures]


def main() -> int:
    """Measure, print, and return 1 if walstore itself failed anywhere."""
    options = _options()
    _allow_files()
    environments = Environments(HOME)
    missing = environments.prepare([PYCRDT], _say)
    names = [WALSTORE, *([] if missing else [PEER])]
    for name, reason in missing.items():
        print(f"not installed: {name}: {reason}\n")
    python = environments.command(PYCRDT)[0]
    chosen = [
        load
        for load in _loads()
        if load.case.name.startswith(options.only)
        and (not options.quick or options.only or load.case.name in _QUICK)
    ]
    samples: dict[str, dict[str, list[Figures]]] = {}
    reasons: dict[tuple[str, str], str] = {}
    for number in range(1 if options.quick else _ROUNDS):
        for load in chosen:
            for name in names:
                _say(f"round {number + 1}  {load.case.name}  {name}")
                try:
                    with running(name, python) as server:
                        figures = load.measure(server, 0.3 if options.quick else 1)
                except (TooSlowError, LostError, OSError) as error:
                    reasons[load.case.name, name] = f"{type(error).__name__}: {error}"
                    continue
                samples.setdefault(load.case.name, {}).setdefault(name, []).append(figures)
    _say("")
    results = {
        case: {name: report.medians(rounds) for name, rounds in rows.items()}
        for case, rows in samples.items()
    }
    print(f"walstore relay beside {PEER} {PYCRDT.version}, its SQLiteYStore on\n")
    for load in chosen:
        print(report.table(load.case, results.get(load.case.name, {})))
        for name in names:
            if (load.case.name, name) in reasons:
                print(f"  failed: {name}: {reasons[load.case.name, name]}\n")
    if options.json:
        content = report.as_json([load.case for load in chosen], results)
        options.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return int(any(name == WALSTORE for _, name in reasons))


def _loads() -> list[Load]:
    return [*_append_loads(), *_fan_out_loads(), *_connection_loads()]


def _append_loads() -> list[Load]:
    def measure(writers: int, count: int, *, is_shared: bool) -> Callable[[Server, float], Figures]:
        def run(server: Server, scale: float) -> Figures:
            # The peer needs longer for each, and its latency takes messages of its own.
            is_peer = server.stored() is not None
            return loads.appends(
                server,
                writers=writers,
                count=max(4, int(count * scale / (6 if is_peer else 1))),
                latencies=max(2, int(200 * scale / writers)) if is_peer else 0,
                is_shared=is_shared,
            )

        return run

    target = Target("per second", 3, 10, is_ratio=True)
    own = "durable appends, each writer in a document of its own"
    return [
        Load(Case("appends-1", own), measure(1, 1200, is_shared=False)),
        Load(Case("appends-8", own), measure(8, 400, is_shared=False)),
        Load(Case("appends-64", own, (target,)), measure(64, 150, is_shared=False)),
        Load(
            Case("appends-64-shared", "durable appends to one document that all follow", (target,)),
            measure(64, 100, is_shared=True),
        ),
    ]


def _fan_out_loads() -> list[Load]:
    def rate(followers: int, count: int, window: int) -> Callable[[Server, float], Figures]:
        return lambda server, scale: loads.fan_out(
            server, followers=followers, count=max(8, int(count * scale)), window=window
        )

    def pace(followers: int, count: int, per_second: float) -> Callable[[Server, float], Figures]:
        return lambda server, scale: loads.fan_out_latency(
            server, followers=followers, count=max(8, int(count * scale)), per_second=per_second
        )

    target = (Target("per second", 2, 5, is_ratio=True),)
    single = "deliveries to {} followers, one message under way"
    many = "deliveries to {} followers, 16 messages under way"
    paced = "from sender to follower, {} followers, {} messages a second"
    return [
        Load(Case("fan-out-100", single.format(100), target), rate(100, 400, 1)),
        Load(Case("fan-out-100-16", many.format(100), target), rate(100, 600, 16)),
        Load(Case("fan-out-1000", single.format("1,000"), target), rate(1000, 60, 1)),
        Load(Case("fan-out-1000-16", many.format("1,000"), target), rate(1000, 80, 16)),
        Load(Case("latency-100", paced.format(100, 50)), pace(100, 200, 50)),
        Load(Case("latency-1000", paced.format("1,000", 5)), pace(1000, 30, 5)),
    ]


def _connection_loads() -> list[Load]:
    def idle(*, is_compressed: bool) -> Callable[[Server, float], Figures]:
        return lambda server, scale: loads.idle(
            server, connections=max(200, int(1000 * scale)), is_compressed=is_compressed
        )

    def keystroke(server: Server, scale: float) -> Figures:
        if server.stored() is not None:
            return loads.keystroke(server, count=max(100, int(300 * scale)))
        return asyncio.run(bytes_per_keystroke(server.url, max(100, int(300 * scale))))

    memory = (Target("KiB", 64, 20, is_ratio=False),)
    size = tuple(
        Target(figure, 200, 130, is_ratio=False) for figure in ("to the relay", "to a reader")
    )
    what = "resident memory of a connection that has proved a key and follows a document"
    return [
        Load(Case("idle", what, memory), idle(is_compressed=False)),
        Load(Case("idle-compressed", f"{what}, compressed", memory), idle(is_compressed=True)),
        Load(Case("keystroke", "bytes of one typed character, compressed", size), keystroke),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay", description=report.__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, one round")
    parser.add_argument("--only", default="", help="cases whose names begin so, e.g. fan-out")
    parser.add_argument("--json", type=Path, help="also write the run to this file")
    return parser.parse_args()


def _allow_files() -> None:
    """Let this process and the servers have a thousand connections open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        allowed = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _say(line: str) -> None:
    """Show progress where it does not mix with the report."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
