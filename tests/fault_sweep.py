"""Every call that a program makes to the disk fails once: `python -m tests.fault_sweep`.

    for each kind of call, each error, each ending, and each index
        fork ──► the program, up to the failure and on, or to its end ──► what it had reached
        fork ──► what is there is what was reached; and it takes new writes

- A program is run first without failures, to count its calls and to see what is there after
  each step.
- How it goes on after a failure is the ending:

      once         one call fails; the step is made again, and so are all others
      healed       all calls from there on fail, until the step was refused twice
      closed       all calls from there on fail; the program closes what is open and ends
      killed       one call fails; the program ends without closing anything

- The process is started with `faulty_disk.c` loaded. It has no threads; those that it forks may.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.fault_scenarios import SCENARIOS, Content, Scenario, Step
from tests.faulty_disk import KINDS, Disk

# What fails together, with what, and how it ends. A full disk takes no bytes and no names.
FAULTS: Final = [
    *(((kind,), errno.EIO, "once") for kind in KINDS),
    *(((kind,), errno.EIO, "closed") for kind in KINDS),
    *(((kind,), errno.ENOSPC, "killed") for kind in KINDS[:5]),
    (("write", "rename", "create"), errno.ENOSPC, "healed"),
    (KINDS, errno.EIO, "healed"),
]


class Case(NamedTuple):
    """One run on a disk that fails."""

    kinds: tuple[str, ...]
    error: int
    ending: str
    number: int

    def __str__(self) -> str:
        name = errno.errorcode[self.error]
        return f"{' or '.join(self.kinds)} number {self.number} fails with {name}, {self.ending}"


class Known(NamedTuple):
    """What a program does on a disk that does not fail.

    Attributes:
        contents: What is there before its first step, and after each.
        calls: How many calls it makes, by kind.
    """

    contents: list[Content]
    calls: dict[str, int]


class Reached(NamedTuple):
    """How far a program has come.

    Attributes:
        steps: How many steps have returned.
        is_refused: Whether the next one was refused.
        is_set_aside: Whether it was refused because what is there seems damaged.
        failures: How many calls have failed.
    """

    steps: int
    is_refused: bool
    is_set_aside: bool
    failures: int


class Sweep:
    """The failures of one program."""

    def __init__(self, scenario: type[Scenario], directory: Path) -> None:
        """Have a program run once, in a directory."""
        self._scenario = scenario
        self._image = directory / "image"
        self._case = directory / "case"
        self._disk = Disk(directory)
        self._programs: list[Scenario] = []
        self._image.mkdir()
        self._in_child(lambda: self._program(self._image).prepare())
        self._restore()
        modules, known = self._in_child(self._learn)
        # What it loads on its way is loaded once, and not by each of the children.
        for name in modules:
            with suppress(ImportError):
                import_module(name)
        self.known = Known(**known)

    def cases(self, step: int) -> Iterator[Case]:
        """The runs: one for each failure, or for one in some."""
        for first, (kinds, error, ending) in enumerate(FAULTS):
            count = sum(self.known.calls[kind] for kind in kinds)
            # They begin at different numbers, so that together they leave out less.
            for number in range(first % step, count, step):
                yield Case(kinds, error, ending, number)

    def run(self, case: Case) -> Reached:
        """Run a program on a disk that fails, and see what is left."""
        self._restore()
        reached = Reached(**self._in_child(lambda: self._suffer(case)))
        if case.ending == "killed":
            self._in_child(lambda: self._check(reached))
        return reached

    # ── in children ────────────────────────────────────────────────────────────────────

    def _program(self, directory: Path) -> Scenario:
        # It is not let go of before its process ends: that would close what it has open.
        program = self._scenario(directory)
        self._programs.append(program)
        return program

    async def _learn(self) -> tuple[list[str], dict[str, Any]]:
        program = self._program(self._case)
        self._disk.watch()
        self._disk.heal()
        contents: list[Content] = [{}]
        for step in program.steps():
            await step.run()
            self._see_synced(step)
            with self._disk.paused():
                contents.append(await program.content() if program.is_open else contents[-1])
        # Opening changes nothing: what is there before is what the first step finds.
        contents[0] = contents[1]
        return list(sys.modules), {"contents": contents, "calls": self._disk.calls()}

    async def _suffer(self, case: Case) -> dict[str, Any]:
        program = self._program(self._case)
        is_lasting = case.ending in ("healed", "closed")
        self._disk.watch()
        self._disk.fail(case.kinds, case.number, case.error, is_lasting=is_lasting)
        reached = await self._go_far(program, case)
        if case.ending != "killed":
            if program.is_open:
                await self._refused(program, Step("close", program.close), case)
            await self._check(reached)
        return reached._asdict()

    async def _go_far(self, program: Scenario, case: Case) -> Reached:
        failures = 0
        for number, step in enumerate(program.steps()):
            refusal = await self._refused(program, step, case)
            if refusal is not None:
                failures += self._disk.failures()
                assert failures, f"{step.name} was refused though nothing has failed"
                if case.ending == "healed" and not isinstance(refusal, program.damage):
                    refusal = await self._refused(program, step, case)
                is_set_aside = isinstance(refusal, program.damage)
                if is_set_aside or case.ending in ("closed", "killed"):
                    return Reached(number, True, is_set_aside, failures)
                self._disk.heal()
                if refusal is not None:
                    if program.is_open:
                        await self._compare(program, number, is_unsure=program.unsure == "always")
                    await step.run()
            self._see_synced(step)
        return Reached(number + 1, False, False, failures + self._disk.failures())

    async def _refused(self, program: Scenario, step: Step, case: Case) -> Exception | None:
        """Make a step; how it was refused, which has to be as it is promised."""
        try:
            await step.run()
        except Exception as error:
            allowed = program.refusals
            allowed += program.unreadable if "read" in case.kinds else ()
            allowed += program.unopenable if "open" in case.kinds else ()
            if type(error) not in allowed:
                raise AssertionError(f"{step.name} raised {error!r}") from error
            return error
        return None

    async def _check(self, reached: Reached) -> None:
        """See that all is there once the disk is well again, and that it takes new writes."""
        self._disk.heal()
        program = self._program(self._case)
        await program.open()
        if reached.is_set_aside:
            saved = await program.saved()
            allowed = self.known.contents[reached.steps : reached.steps + 2]
            assert saved in [each["saved"] for each in allowed], f"{saved} is not {allowed}"
        else:
            is_unsure = reached.is_refused and program.unsure != "never"
            await self._compare(program, reached.steps, is_unsure=is_unsure)
        await program.go_on()
        after = await program.content()
        await program.close()
        await program.open()
        assert await program.content() == after, "what was written afterwards is not there"
        await program.close()

    async def _compare(self, program: Scenario, steps: int, *, is_unsure: bool) -> None:
        """See that what is there is what some steps make, or one more if nobody knows."""
        with self._disk.paused():
            found = await program.content()
        allowed = self.known.contents[steps : steps + 1 + is_unsure]
        assert found in allowed, f"after {steps} steps\n{found}\nis there, and not\n{allowed}"

    def _see_synced(self, step: Step) -> None:
        lost = [name for name in step.survivors if self._is_unsynced(self._case / name)]
        assert not lost, f"after {step.name} a power cut would hurt {lost}"

    def _is_unsynced(self, path: Path) -> bool:
        log = path.with_name(f"{path.name}-wal")
        # What is still in its log beside it is taken from there.
        is_in_log = log.exists() and log.stat().st_size and not self._disk.is_unsynced(log)
        return self._disk.is_unsynced(path) and not is_in_log

    # ── in the parent ──────────────────────────────────────────────────────────────────

    def _restore(self) -> None:
        shutil.rmtree(self._case, ignore_errors=True)
        shutil.copytree(self._image, self._case)

    def _in_child(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What a function returns in a process of its own, which ends then as if it was killed."""
        source, target = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(source)
            asyncio.run(_tell(work(), target))
        os.close(target)
        with os.fdopen(source) as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        said = json.loads(text)
        if "fault" in said:
            raise AssertionError(said["fault"])
        return said["answer"]


async def _tell(work: Coroutine[Any, Any, Any], target: int) -> None:
    """Write what a coroutine returns, and end the process: nothing is closed, or cleared away."""
    try:
        said = {"answer": await work}
    except BaseException:  # noqa: BLE001 - it is told to the parent
        said = {"fault": traceback.format_exc()}
    with os.fdopen(target, "w") as pipe:
        json.dump(said, pipe)
    os._exit(0)


def main(name: str, directory: str, step: str) -> int:
    """Run the failures of a program, and say how many there were; 1 if something was wrong."""
    gc.freeze()
    sweep = Sweep(SCENARIOS[name], Path(directory))
    for kind, least in SCENARIOS[name].calls_min.items():
        assert sweep.known.calls[kind] >= least, f"it hardly uses the disk: {sweep.known.calls}"
    faults = refused = wrong = 0
    for case in sweep.cases(int(step)):
        try:
            reached = sweep.run(case)
        except AssertionError as error:
            wrong += 1
            print(f"{case}:\n{error}", flush=True)
            continue
        faults += reached.failures > 0
        refused += reached.is_refused
    print(f"{name}: {faults} faults, {refused} ends after one, {wrong} wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
