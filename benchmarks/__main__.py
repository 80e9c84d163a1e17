"""The command `python -m benchmarks`: measure what was asked for, print the report."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from benchmarks import plot, report
from benchmarks.environments import Environments
from benchmarks.inputs import FULL, QUICK, Sizes, write_inputs
from benchmarks.parts import PartError, relay_standings, store_standings
from benchmarks.peers import BUILDS, PEERS, Peer
from benchmarks.runner import Outcome, Runner
from benchmarks.standing import counted, overview
from benchmarks.traces import (
    ConcurrentTrace,
    Trace,
    made_up_concurrent_trace,
    made_up_trace,
    read_trace,
)
from benchmarks.workloads import Workload, workloads

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".cache" / "bench"
TRACES = ROOT.parent / "shared" / "traces"

_ROUNDS = 3

# What has a command of its own, and comes after the workloads.
_PARTS = ("store", "relay")


def main() -> int:
    """Measure, print, and return 1 if walstore itself failed anywhere."""
    options = _options()
    sizes = QUICK if options.quick else FULL
    chosen = [entry for entry in workloads(sizes) if _is_chosen(entry.name, options.only)]
    parts = [part for part in _PARTS if _is_chosen(part, options.only)]
    if not chosen and not parts:
        print(f"no workload is called {options.only}", file=sys.stderr)
        return 2
    rounds = options.rounds or (1 if options.quick else _ROUNDS)
    folder = HOME / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    builds = [build for build in BUILDS if _is_built(build)]
    outcomes, missing = _library(options, sizes, chosen, builds, rounds)
    standings = [each for outcome in outcomes for each in report.standings(outcome)]
    content = report.as_json(outcomes, missing)
    failures = report.shortcomings(outcomes, missing).splitlines()
    try:
        if "store" in parts:
            _say("store")
            standings += store_standings(ROOT, folder, builds, rounds=rounds, quick=options.quick)
        if "relay" in parts:
            found, content["relay"] = relay_standings(ROOT, folder, quick=options.quick, say=_say)
            standings += found
    except PartError as error:
        failures.append(f"  failed: {error}")
    _say("")
    print(f"Targets. {counted(standings)}\n{overview(standings)}")
    print("\n".join(failures + [f"  not built: {b.name}" for b in BUILDS if b not in builds]))
    content["targets"] = [report.standing_json(each) for each in standings]
    if options.json:
        options.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    if options.plot:
        plot.targets(standings, options.plot)
    own = {build.name for build in BUILDS}
    has_failed = any(own & outcome.failed for outcome in outcomes)
    return int(has_failed or any(" failed: benchmarks" in line for line in failures))


def _library(
    options: argparse.Namespace,
    sizes: Sizes,
    chosen: list[Workload],
    builds: list[Peer],
    rounds: int,
) -> tuple[list[Outcome], dict[str, str]]:
    """Measure the workloads beside the peers; also who could not be had, and why."""
    if not chosen:
        return [], {}
    trace, concurrent = _traces(options.trace)
    environments = Environments(HOME)
    wanted = [name.strip() for name in options.peers.split(",") if name.strip()]
    compared = [
        peer
        for peer in PEERS
        if (peer.name in wanted if wanted else not (options.quick and peer.slow))
    ]
    missing = environments.prepare(compared, _say)
    _say("writing the inputs")
    write_inputs(HOME / "run" / "inputs", sizes, trace, concurrent)
    peers = [*builds, *(peer for peer in compared if peer.name not in missing)]
    print(f"traces: {trace.name}, {concurrent.name}")
    left_out = [peer.name for peer in PEERS if peer not in compared]
    print(f"left out: {', '.join(left_out)}\n" if left_out else "")
    runner = Runner(ROOT, HOME / "run", environments)
    outcomes: list[Outcome] = []
    for workload in chosen:
        outcomes.append(runner.measure(workload, peers, rounds, _say))
        _say("")
        print(report.table(outcomes[-1]), flush=True)
    return outcomes, missing


def _is_built(build: Peer) -> bool:
    return not build.path or (ROOT / build.path).is_dir()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=report.__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--rounds", type=int, help=f"how often; {_ROUNDS} if not quick")
    parser.add_argument("--trace", type=Path, help="a trace to use, sequential or concurrent")
    parser.add_argument("--only", default="", help="workloads by name, e.g. W1,W5")
    parser.add_argument("--peers", default="", help="beside these only, e.g. loro,pycrdt")
    parser.add_argument("--json", type=Path, help="also write the run to this file")
    parser.add_argument("--plot", type=Path, help="also draw how the targets stand, as a PNG")
    return parser.parse_args()


def _is_chosen(workload: str, only: str) -> bool:
    names = [name.strip().lower() for name in only.split(",") if name.strip()]
    own = workload.lower()
    return not names or any(own == name or own.startswith(f"{name}-") for name in names)


def _traces(given: Path | None) -> tuple[Trace, ConcurrentTrace]:
    trace: Trace | None = None
    concurrent: ConcurrentTrace | None = None
    known = [
        TRACES / "sequential/automerge-paper.json.gz",
        TRACES / "concurrent/friendsforever.json.gz",
    ]
    for path in [*(path for path in known if path.exists()), *([given] if given else [])]:
        match read_trace(path):
            case Trace() as found:
                trace = found
            case ConcurrentTrace() as found_concurrent:
                concurrent = found_concurrent
    return trace or made_up_trace(), concurrent or made_up_concurrent_trace()


def _say(line: str) -> None:
    """Show progress where it does not mix with the report."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
