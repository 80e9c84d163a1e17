"""`python -m tests.fuzzing`: readers against hostile input.

What breaks a reader is kept in `tests/vectors/crashers`, and replayed from then on. To be led by
coverage instead of by chance, see `coverage_led`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.fuzzing.run import READERS, keep, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 if a reader was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("readers", nargs="*", help=f"out of: {', '.join(READERS)}")
    parser.add_argument("--cases", type=int, default=10_000, help="for each reader")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    names = options.readers or list(READERS)
    return max(_report(name, options.cases, options.seed) for name in names)


def _report(name: str, cases: int, seed: int) -> int:
    found = run(name, cases=cases, seed=seed)
    if found.crash is not None:
        text, reason = found.crash
        print(f"{name} broke (SEED={seed}), kept as {keep(name, text)}\n{reason}", flush=True)
        return 1
    print(
        f"{name}: {found.taken} taken, {found.refused} refused, "
        f"slowest {found.slowest_ms:.1f} ms, SEED={seed}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
