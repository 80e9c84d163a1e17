"""Many seeds, what they came to in all, and whether enough has happened for that to mean something.

- A campaign fails with its first failing seed, which is shrunk and printed with the command that
  runs it again.
- A campaign in which too little has happened fails as well: an idle run proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from walstore.testing.simulator.running import LEVELS, simulate
from walstore.testing.simulator.scenario import Selection
from walstore.testing.simulator.shrinking import shrink
from walstore.testing.simulator.verdicts import Outcome

# In campaigns of that many seeds enough of them are hostile.
_HOSTILE_SEEDS_MIN = 100


class IdleError(AssertionError):
    """So little has happened in a campaign that it proves nothing."""


class Failure(NamedTuple):
    """A seed that failed, made as small as it could be.

    Attributes:
        outcome: The whole run.
        selection: What is left of it.
        smallest: What came of that.
    """

    outcome: Outcome
    selection: Selection
    smallest: Outcome

    def __str__(self) -> str:
        seed, level = self.outcome.seed, self.outcome.level
        smallest, without = self.smallest, sorted(self.selection.without)
        only = ",".join(str(number) for number in smallest.steps)
        options = f"SEED={seed} LEVEL={level}"
        narrowed = f"{options} ONLY={only}" + (f" WITHOUT={','.join(without)}" if without else "")
        return "\n".join(
            [
                f"{options} failed: {self.outcome.fault}",
                f"the world: {self.outcome.world}",
                f"replay:    make sim {options}",
                f"smallest:  make sim {narrowed}",
                f"           {len(smallest.steps)} steps, {smallest.world}: {smallest.fault}",
            ]
        )


class Campaign(NamedTuple):
    """What many seeds came to.

    Attributes:
        level: The kind of fleet.
        seeds: How many.
        counts: How often what happened, in all.
        hostile: In how many of them somebody did harm.
    """

    level: str
    seeds: int
    counts: Counter[str]
    hostile: int

    def check(self) -> None:
        """Make sure that enough has happened.

        Raises:
            IdleError: It has not.
        """
        for what, per_seed in LEVELS[self.level].traffic_min.items():
            happened = sum(count for name, count in self.counts.items() if name.startswith(what))
            if happened < per_seed * self.seeds:
                raise IdleError(f"{what} happened {happened} times in {self.seeds} seeds")
        expected = LEVELS[self.level].expected
        missing = [what for what in self.missing if self.seeds >= expected[what]]
        if missing:
            raise IdleError(f"in {self.seeds} seeds never: {', '.join(missing)}")
        hostile_min = LEVELS[self.level].hostile_min * self.seeds
        if self.seeds >= _HOSTILE_SEEDS_MIN and self.hostile < hostile_min:
            raise IdleError(f"somebody did harm in {self.hostile} of {self.seeds} seeds")

    @property
    def missing(self) -> list[str]:
        """What can happen and never did, however few seeds there were."""
        return [what for what in LEVELS[self.level].expected if not self.counts[what]]

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {count}" for name, count in self.counts.most_common(24))
        return f"{self.level}: {self.seeds} seeds, {self.hostile} hostile; {shown}"


def run_campaign(level: str, seeds: Iterable[int]) -> Campaign | Failure:
    """Run seeds until one fails.

    Args:
        level: The kind of fleet.
        seeds: The seeds.
    """
    failed: list[Outcome] = []

    def outcomes() -> Iterator[Outcome]:
        for seed in seeds:
            outcome = simulate(seed, level=level)
            if outcome.fault is not None:
                failed.append(outcome)
                return
            yield outcome

    campaign = summed(level, outcomes())
    return shrunk(failed[0]) if failed else campaign


def summed(level: str, outcomes: Iterable[Outcome]) -> Campaign:
    """What seeds came to that were run already."""
    counts: Counter[str] = Counter()
    number = hostile = 0
    for outcome in outcomes:
        number += 1
        hostile += outcome.is_attacked
        counts += outcome.counts
    return Campaign(level, number, counts, hostile)


def together(campaigns: Iterable[Campaign]) -> Campaign:
    """Several campaigns of one level as one."""
    parts = list(campaigns)
    counts = sum((part.counts for part in parts), Counter[str]())
    seeds, hostile = sum(part.seeds for part in parts), sum(part.hostile for part in parts)
    return Campaign(parts[0].level, seeds, counts, hostile)


def shrunk(outcome: Outcome) -> Failure:
    """A failure, made as small as it can be."""
    selection, smallest = shrink(
        outcome,
        lambda selection: simulate(outcome.seed, level=outcome.level, selection=selection),
    )
    return Failure(outcome, selection, smallest)
