"""One run, as its seed draws it: who is there, what they do in which order, what goes wrong.

- Everything is drawn before anything runs. Each step has a stream of chance of its own, so what is
  left of a run does the same as before when some of its steps are left out: that is what makes
  shrinking work.
- A `Selection` says what is left out. The same seed and selection are the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from walstore.testing.simulator.rates import HOSTILE_RELAY, Rates

# What faults are as steps, and the rate that each is drawn with.
_FAULT_STEPS = {
    "crash": "crash",
    "partition": "partition",
    "clock_jump": "clock",
    "disk_full": "full",
}


# How many clients and steps the longest runs have at most; and how few steps at least.
_LONG_CLIENTS_MAX = 8
_LONG_STEPS_MIN = 50
_LONG_STEPS_MAX = 500


class Step(NamedTuple):
    """One thing that somebody does, or that happens to them.

    Attributes:
        number: Its place in the run.
        kind: What it is.
        who: Who it is, as a number to be taken modulo how many there are.
        pause_ms: How long it takes until the next step begins, whether or not this one is done.
    """

    number: int
    kind: str
    who: int
    pause_ms: float


class Selection(NamedTuple):
    """What of a run is run.

    Attributes:
        steps: The numbers of the steps; None for all.
        without: The kinds of faults that are left out.
    """

    steps: frozenset[int] | None = None
    without: frozenset[str] = frozenset()


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run that is yet to happen."""

    seed: str
    rates: Rates
    clients: int
    steps: tuple[Step, ...]

    @classmethod
    def draw(
        cls,
        level: str,
        seed: int,
        selection: Selection,
        *,
        weights: Mapping[str, float],
        clients_max: int,
        steps_max: int,
        pause_ms_max: float,
    ) -> Scenario:
        """The run of a seed.

        Args:
            level: What kind of fleet it is.
            seed: The seed.
            selection: What is left of it.
            weights: How often each action is taken.
            clients_max: How many clients there are at most.
            steps_max: How many steps most runs have at most; one in twenty may have many more, and
                more clients, too.
            pause_ms_max: How long it takes at most until the next step begins.
        """
        name = f"{level}:{seed}"
        chance = Random(name)
        rates = Rates.draw(chance)
        clients = min(chance.randint(2, clients_max), chance.randint(2, clients_max))
        count = chance.randint(steps_max // 3, steps_max)
        if chance.random() < 0.05:
            count *= 4
            # Some of the others have failed once, and are to be the same runs for ever.
            if seed % 3:
                clients = chance.randint(2, _LONG_CLIENTS_MAX)
                count = chance.randint(_LONG_STEPS_MIN, _LONG_STEPS_MAX)
        steps = _steps(chance, rates, weights, count, pause_ms_max)
        kept = rates.without(selection.without)
        return cls(
            name, kept, clients, tuple(step for step in steps if _is_kept(step, kept, selection))
        )

    def chance(self, step: Step) -> Random:
        """The stream of chance of one step."""
        return Random(f"{self.seed}/{step.number}")


def _steps(
    chance: Random,
    rates: Rates,
    weights: Mapping[str, float],
    count: int,
    pause_ms_max: float,
) -> list[Step]:
    kinds, shares = list(weights), list(weights.values())
    steps: list[Step] = []

    def add(kind: str) -> None:
        pause_ms = chance.choice((0.0, 0.0, chance.uniform(0, pause_ms_max)))
        steps.append(Step(len(steps), kind, chance.randrange(1000), pause_ms))

    for _ in range(count):
        add(chance.choices(kinds, shares)[0])
        for kind, rate in _FAULT_STEPS.items():
            if chance.random() < getattr(rates, rate):
                add(kind)
        if rates.hostility and chance.random() < 0.1:
            add("attack")
    return steps


def _is_kept(step: Step, rates: Rates, selection: Selection) -> bool:
    if selection.steps is not None and step.number not in selection.steps:
        return False
    if step.kind == "attack":
        return bool(rates.hostility)
    rate = _FAULT_STEPS.get(step.kind)
    return rate is None or bool(getattr(rates, rate))


def is_hostile_relay(rates: Rates) -> bool:
    """Whether the relay is the one who does harm."""
    return rates.hostility in HOSTILE_RELAY
