"""Runs one seed: the same seed and selection are, to the last byte, the same run."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from walstore.testing.simulator import documents, fleet
from walstore.testing.simulator.interposing import System, interposed
from walstore.testing.simulator.loop import VirtualLoop
from walstore.testing.simulator.scenario import EVERYTHING, Scenario, Selection
from walstore.testing.simulator.trace import Trace
from walstore.testing.simulator.verdicts import BrokenPromiseError, Outcome

# Of its own time, which passes quickly: whatever takes longer never ends.
_RUN_S_MAX = 3600.0

# How often tasks are told to end before something is wrong with them, and for how long they may
# clean up in between.
_CANCELS_MAX = 20
_CLEANING_S = 60.0


class Fleet(Protocol):
    """A run that can be made."""

    async def run(self) -> None:
        """Make it.

        Raises:
            BrokenPromiseError: Something happened that must not happen.
        """
        ...


class Level(NamedTuple):
    """A kind of fleet."""

    fleet: Callable[[Scenario, Trace, System], Fleet]
    weights: Mapping[str, float]
    clients_max: int
    steps_max: int
    pause_ms_max: float
    # What happens in any campaign of at least so many seeds; what has to happen at least so often
    # per seed, on average; and in how much of the seeds, at least, somebody does harm.
    expected: Mapping[str, int]
    traffic_min: Mapping[str, float]
    hostile_min: float


LEVELS: dict[str, Level] = {
    "document": Level(
        documents.DocumentFleet,
        documents.WEIGHTS,
        documents.CLIENTS_MAX,
        documents.STEPS_MAX,
        documents.PAUSE_MS_MAX,
        documents.EXPECTED,
        documents.TRAFFIC_MIN,
        documents.HOSTILE_MIN,
    ),
    "fleet": Level(
        fleet.Fleet,
        fleet.WEIGHTS,
        fleet.CLIENTS_MAX,
        fleet.STEPS_MAX,
        fleet.PAUSE_MS_MAX,
        fleet.EXPECTED,
        fleet.TRAFFIC_MIN,
        fleet.HOSTILE_MIN,
    ),
}


def simulate(
    seed: int,
    *,
    level: str = "document",
    selection: Selection = EVERYTHING,
    is_traced: bool = False,
) -> Outcome:
    """Run one seed.

    Args:
        seed: The seed.
        level: The kind of fleet.
        selection: What of it is run.
        is_traced: Whether to keep what happens, line by line.
    """
    kind = LEVELS[level]
    scenario = Scenario.draw(
        level,
        seed,
        selection,
        weights=kind.weights,
        clients_max=kind.clients_max,
        steps_max=kind.steps_max,
        pause_ms_max=kind.pause_ms_max,
    )
    loop = VirtualLoop()
    trace = Trace(loop.time, is_kept=is_traced)
    system = System(loop.time, scenario.seed)
    fault: str | None = None
    was_collecting = gc.isenabled()
    former_level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    # What is let go of, and when, must not depend on what this process did before.
    gc.disable()
    try:
        with interposed(system, scenario.seed):
            fault = _run(loop, lambda: kind.fleet(scenario, trace, system).run())
    finally:
        loop.close()
        logging.disable(former_level)
        if was_collecting:
            gc.enable()
    numbers = tuple(step.number for step in scenario.steps)
    return Outcome(
        level, seed, trace.digest, trace.counts, fault, trace.lines, str(scenario.rates), numbers
    )


def _run(loop: VirtualLoop, work: Callable[[], Coroutine[Any, Any, None]]) -> str | None:
    """Run something to its end; what was wrong with it."""
    problems: list[str] = []
    loop.set_exception_handler(lambda _, context: problems.append(_described(context)))

    async def main() -> None:
        async with asyncio.timeout(_RUN_S_MAX):
            await work()

    try:
        loop.run_until_complete(main())
    except BrokenPromiseError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
        return "".join(traceback.format_exception(error)).rstrip()
    finally:
        left = _end(loop)
        problems += [f"{task} does not end, however often it is cancelled" for task in left]
    return problems[0] if problems else None


def _end(loop: VirtualLoop) -> Collection[asyncio.Task[Any]]:
    """Let nothing be left of a run; what is left all the same."""
    for _ in range(_CANCELS_MAX):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        # Who waits while it cleans up is told again.
        loop.run_until_complete(asyncio.wait(tasks, timeout=_CLEANING_S))
    loop.run_until_complete(loop.shutdown_asyncgens())
    return asyncio.all_tasks(loop)


def _described(context: dict[str, Any]) -> str:
    error, message = context.get("exception"), str(context.get("message"))
    if error is None:
        return message
    return f"{message}\n" + "".join(traceback.format_exception(error)).rstrip()
