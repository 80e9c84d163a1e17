"""`python -m tests.mutants`: put weaknesses back, or count how many small faults are noticed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.mutants.known_bad import survivors
from tests.mutants.score import AREAS, score

# Some faults cannot be seen, so all of them is out of reach.
SCORE_MIN = 0.8


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 if something was not noticed that should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--thorough", action="store_true", help="let tests notice that are not named after it"
    )
    parser.add_argument(
        "--score",
        type=int,
        metavar="COUNT",
        help="put in so many small faults in each area instead",
    )
    parser.add_argument("--areas", nargs="*", default=list(AREAS), choices=AREAS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.score:
        return _score(options.areas, options.score, options.seed)
    left = survivors(_say, is_thorough=options.thorough)
    _say(f"not noticed: {', '.join(left) or 'none'}")
    return 1 if left else 0


def _score(areas: Sequence[str], count: int, seed: int) -> int:
    is_enough = True
    for name in areas:
        found = score(name, count=count, seed=seed, say=_say)
        for place in found.unnoticed:
            _say(f"not noticed in {name}: {place}")
        _say(f"{name}: {found.share:.0%} of {found.faults} faults were noticed, SEED={seed}")
        is_enough = is_enough and found.share >= SCORE_MIN
    return 0 if is_enough else 1


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
