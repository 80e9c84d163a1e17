"""`python -m walstore.testing.simulator`: run seeds, or one seed with its trace."""

from __future__ import annotations

import argparse
import sys
import time

from walstore.testing.simulator.campaign import Failure, IdleError, run_campaign
from walstore.testing.simulator.running import LEVELS, simulate
from walstore.testing.simulator.scenario import Selection

# Seeds of a level when nothing else is said.
SEEDS = {"document": 2000, "fleet": 150}


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; 0 if everything held."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        level = options.level or "document"
        return _show(options.seed, level, _selection(options))
    levels = [options.level] if options.level else list(LEVELS)
    return max([_campaign(level, options.seeds) for level in levels])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="walstore.testing.simulator", description=__doc__)
    parser.add_argument("--level", choices=list(LEVELS), help="the kind of fleet; all of them")
    parser.add_argument("--seeds", help="how many, or a range such as 500-999")
    parser.add_argument("--seed", type=int, help="one seed, with its trace")
    parser.add_argument("--only", help="of that seed, the steps with these numbers")
    parser.add_argument("--without", help="kinds of faults that are left out")
    return parser


def _selection(options: argparse.Namespace) -> Selection:
    steps = None
    if options.only is not None:
        steps = frozenset(int(number) for number in options.only.split(",") if number)
    return Selection(steps, frozenset((options.without or "").split(",")) - {""})


def _show(seed: int, level: str, selection: Selection) -> int:
    outcome = simulate(seed, level=level, selection=selection, is_traced=True)
    print(f"SEED={seed} LEVEL={level}: {outcome.world}")
    print("\n".join(outcome.lines))
    print(f"digest {outcome.digest}")
    print("everything held" if outcome.fault is None else f"failed: {outcome.fault}")
    return 0 if outcome.fault is None else 1


def _campaign(level: str, seeds: str | None) -> int:
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    result = run_campaign(level, _range(seeds, level))
    print(result)
    if isinstance(result, Failure):
        return 1
    try:
        result.check()
    except IdleError as error:
        print(f"too little has happened: {error}")
        return 1
    spent_s, spent_cpu_s = time.monotonic() - begun_s, time.process_time() - begun_cpu_s
    print(
        f"{level}: everything held; {spent_s:.0f} s, {result.seeds / spent_cpu_s:.1f} seeds/CPU s"
    )
    return 0


def _range(seeds: str | None, level: str) -> range:
    if seeds is None:
        return range(SEEDS[level])
    first, dash, last = seeds.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


if __name__ == "__main__":
    sys.exit(main())
