"""The command `python -m benchmarks`: measure what was asked for, print the report."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.environments import Environments
from benchmarks.inputs import FULL, QUICK, write_inputs
from benchmarks.peers import PEERS, WALSTORE
from benchmarks.runner import Outcome, Runner
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


def main() -> int:
    """Measure, print, and return 1 if walstore itself failed anywhere."""
    options = _options()
    sizes = QUICK if options.quick else FULL
    chosen = [entry for entry in workloads(sizes) if _is_chosen(entry, options.only)]
    if not chosen:
        print(f"no workload is called {options.only}", file=sys.stderr)
        return 2
    trace, concurrent = _traces(options.trace)
    environments = Environments(HOME)
    compared = [peer for peer in PEERS if not (options.quick and peer.slow)]
    missing = environments.prepare(compared, _say)
    folder = HOME / "run"
    shutil.rmtree(folder, ignore_errors=True)
    _say("writing the inputs")
    write_inputs(folder / "inputs", sizes, trace, concurrent)
    peers = [WALSTORE, *(peer for peer in compared if peer.name not in missing)]
    print(f"traces: {trace.name}, {concurrent.name}")
    left_out = [peer.name for peer in PEERS if peer not in compared]
    print(f"left out of a quick run: {', '.join(left_out)}\n" if left_out else "")
    runner = Runner(ROOT, folder, environments)
    outcomes: list[Outcome] = []
    for workload in chosen:
        outcomes.append(runner.measure(workload, peers, 1 if options.quick else _ROUNDS, _say))
        _say("")
        print(report.table(outcomes[-1]), flush=True)
    print(report.summary(outcomes, missing))
    if options.json:
        content = report.as_json(outcomes, missing)
        options.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return int(any(WALSTORE.name in outcome.failed for outcome in outcomes))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=report.__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--trace", type=Path, help="a trace to use, sequential or concurrent")
    parser.add_argument("--only", default="", help="workloads by name, e.g. W1,W5")
    parser.add_argument("--json", type=Path, help="also write the run to this file")
    return parser.parse_args()


def _is_chosen(workload: Workload, only: str) -> bool:
    names = [name.strip().lower() for name in only.split(",") if name.strip()]
    own = workload.name.lower()
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
