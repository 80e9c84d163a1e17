"""Compares the document with the oracle on seeded random histories: `python -m tests.fuzz`.

- One seed makes one history and one delivery of it; `--seed 1:42` replays number 42 of seed 1.
- The first difference ends the run: its delivery is cut down as far as it still differs, then
  printed as JSON together with what is shown and what ought to be.
- Most histories are short, because short ones find most; a few are long enough to fill the
  inner tables of a document.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.delivery import Step, deliver, delivered_ops, differences, keeps_arrival, random_delivery
from tests.oracle import AnyOp, Oracle
from tests.strategies import (
    adversarial_history,
    crowded_history,
    honest_history,
    shuffled,
    shuffled_behind_anchors,
)

PROGRESS_SECONDS = 10.0
SHRINK_TRIES_MAX = 3000


@dataclass(frozen=True)
class Trial:
    """One history as it reaches one or more documents, which are then joined."""

    deliveries: list[list[Step]]


def random_trial(rng: random.Random) -> Trial:
    """A history and its delivery, drawn from a seed."""
    kind = rng.random()
    if kind < 0.45:
        return Trial([random_delivery(rng, adversarial_history(rng, _size(rng)))])
    ops = crowded_history(rng, 5 * _size(rng)) if kind < 0.6 else honest_history(rng, _size(rng))
    if rng.random() < 0.2:
        return Trial([random_delivery(rng, shuffled(rng, part)) for part in _parts(rng, ops)])
    reorder = rng.choice((lambda _, same: same, shuffled, shuffled_behind_anchors))
    return Trial([random_delivery(rng, reorder(rng, ops))])


def _size(rng: random.Random) -> int:
    size_max = 600 if rng.random() < 0.005 else rng.choice((4, 10, 30))
    return rng.randint(1, size_max)


def _parts(rng: random.Random, ops: Sequence[AnyOp]) -> list[list[AnyOp]]:
    """Two or three sets of ops that overlap and together are all of them."""
    parts: list[list[AnyOp]] = [[] for _ in range(rng.randint(2, 3))]
    for op in ops:
        for part in rng.sample(parts, rng.randint(1, len(parts))):
            part.append(op)
    return parts


def failure(trial: Trial) -> str | None:
    """What is wrong with the result of a trial, or None."""
    try:
        found = _differences(trial)
    except Exception:  # noqa: BLE001 - whatever it raises, raising is the failure
        return traceback.format_exc()
    return json.dumps(found, indent=1) if found else None


def _differences(trial: Trial) -> dict[str, tuple[object, object]]:
    crdt, *others = [deliver(steps) for steps in trial.deliveries]
    expected = Oracle().fold(op for steps in trial.deliveries for op in delivered_ops(steps))
    for other in others:
        crdt.join(other)
        crdt.check()
    arrival = not others and keeps_arrival(trial.deliveries[0])
    return differences(crdt, expected, arrival=arrival)


def shrink(trial: Trial, fails: Callable[[Trial], bool]) -> Trial:
    """The trial without everything that it fails without."""
    tries = 0
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(trial):
            tries += 1
            if tries > SHRINK_TRIES_MAX:
                return trial
            if fails(candidate):
                trial, progress = candidate, True
                break
    return trial


def _smaller(trial: Trial) -> Iterator[Trial]:
    for place, steps in enumerate(trial.deliveries):
        for candidate in _smaller_delivery(steps):
            yield Trial([*trial.deliveries[:place], candidate, *trial.deliveries[place + 1 :]])


def _smaller_delivery(steps: list[Step]) -> Iterator[list[Step]]:
    for place, step in enumerate(steps):
        before, after = steps[:place], steps[place + 1 :]
        if len(steps) > 1:
            yield before + after
        for size in (len(step.ops) // 2, len(step.ops) // 8, 1):
            for start in range(0, len(step.ops), size) if size else ():
                ops = step.ops[:start] + step.ops[start + size :]
                yield [*before, replace(step, ops=ops), *after]
        if step.then != "keep":
            yield [*before, replace(step, then="keep"), *after]
        if step.way != "apply":
            yield [*before, replace(step, way="apply"), *after]
        if after:
            joined = replace(after[0], ops=step.ops + after[0].ops)
            yield [*before, joined, *after[1:]]


def report(seed: str, trial: Trial) -> str:
    """What someone needs to see and replay a difference."""
    trial = shrink(trial, lambda candidate: failure(candidate) is not None)
    deliveries = [
        [{"way": step.way, "then": step.then, "ops": step.ops} for step in steps]
        for steps in trial.deliveries
    ]
    return f"{json.dumps(deliveries, indent=1)}\n{failure(trial)}\nSEED={seed}"


def run(seed: str, numbers: Sequence[int], show: Callable[[str], None]) -> bool:
    """Try the numbered histories of a seed; whether all of them agreed."""
    shown = time.monotonic()
    for done, number in enumerate(numbers):
        trial = random_trial(random.Random(f"{seed}:{number}"))
        if failure(trial) is not None:
            show(report(f"{seed}:{number}", trial))
            return False
        if time.monotonic() - shown > PROGRESS_SECONDS:
            shown = time.monotonic()
            show(f"{done + 1} of {len(numbers)} histories agree")
    show(f"{len(numbers)} histories agree, SEED={seed}")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 after a difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--seed", default="1", help="a seed, or seed:number to replay one history")
    options = parser.parse_args(arguments)
    seed, _, number = options.seed.partition(":")
    numbers = [int(number)] if number else range(options.histories)
    return 0 if run(seed, numbers, lambda line: print(line, flush=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
