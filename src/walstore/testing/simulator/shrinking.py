"""Makes a failing run small: fewer kinds of faults, then fewer steps, as long as it still fails.

- A run counts as still failing if it fails with anything: a smaller failure is a better one.
- Steps go in halves, then in quarters, and so on, within a budget of runs.
"""

from __future__ import annotations

from collections.abc import Callable

from walstore.testing.simulator.scenario import EVERYTHING, Selection
from walstore.testing.simulator.verdicts import Outcome

RUNS_MAX = 300

Run = Callable[[Selection], Outcome]


def shrink(outcome: Outcome, run: Run, *, runs_max: int = RUNS_MAX) -> tuple[Selection, Outcome]:
    """The smallest failing selection that was found, and what came of it.

    Args:
        outcome: The run that failed.
        run: Runs a selection of it.
        runs_max: How many runs may be spent.
    """
    return _Shrinking(outcome, run, runs_max).shrunk()


class _Shrinking:
    def __init__(self, outcome: Outcome, run: Run, runs_max: int) -> None:
        self._run, self._left = run, runs_max
        self._best = EVERYTHING._replace(steps=frozenset(outcome.steps))
        self._outcome = outcome

    def shrunk(self) -> tuple[Selection, Outcome]:
        for kind in [each.partition("=")[0] for each in self._outcome.world.split()]:
            self._try(self._best._replace(without=self._best.without | {kind}))
        self._drop_steps()
        return self._best, self._outcome

    def _drop_steps(self) -> None:
        size = max(len(self._best.steps or ()) // 2, 1)
        while self._left:
            steps = sorted(self._best.steps or ())
            was_smaller = False
            for start in range(0, len(steps), size):
                gone = frozenset(steps[start : start + size])
                kept = (self._best.steps or frozenset()) - gone
                was_smaller = self._try(self._best._replace(steps=kept)) or was_smaller
            if size == 1 and not was_smaller:
                return
            size = max(size // 2, 1)

    def _try(self, selection: Selection) -> bool:
        """Go on with a smaller run if it fails, too."""
        if not self._left:
            return False
        self._left -= 1
        outcome = self._run(selection)
        if outcome.fault is None:
            return False
        self._best, self._outcome = selection, outcome
        return True
