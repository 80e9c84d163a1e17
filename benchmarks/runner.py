"""Running workers: one child process per peer, workload and round; medians over the rounds.

- Rounds are interleaved: every peer once, then every peer again, so that a slow minute of the
  machine falls on all of them.
- A child that fails, takes too long or shows another text than the others yields a reason.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.adapters.base import AbsentError
from benchmarks.environments import Environments
from benchmarks.peers import BUILDS, COMPILED, Peer
from benchmarks.workloads import Made, Workload

_JOB_S_MAX = 300


class JobError(Exception):
    """A measurement gave no figures; the message says why."""


@dataclass
class Outcome:
    """What one workload gave: medians by peer and case, or why a peer has none."""

    workload: Workload
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def fail(self, name: str, reason: str) -> None:
        """Note that a peer should have given figures and did not."""
        self.failed.add(name)
        self.reasons[name] = reason


class Runner:
    """Starts workers from the repository's root; what they read and make is below `folder`."""

    def __init__(self, root: Path, folder: Path, environments: Environments) -> None:
        self._root = root
        self._folder = folder
        self._environments = environments
        self._made: set[tuple[str, Made]] = set()

    def measure(
        self, workload: Workload, peers: Sequence[Peer], rounds: int, say: Callable[[str], None]
    ) -> Outcome:
        """Run a workload for every peer, `rounds` times."""
        outcome = Outcome(workload)
        samples: dict[str, list[dict[str, float]]] = defaultdict(list)
        digests: dict[str, str] = {}
        for number in range(rounds if workload.repeats else 1):
            for peer in peers:
                if peer.name in outcome.reasons:
                    continue
                say(f"{workload.name}  {peer.name}  round {number + 1}")
                try:
                    self._make(peer, workload.needs)
                    answer = self._run(peer, workload.name)
                except AbsentError as error:
                    outcome.reasons[peer.name] = str(error)
                except JobError as error:
                    outcome.fail(peer.name, str(error))
                else:
                    samples[peer.name].append(answer["figures"])
                    digests[peer.name] = answer["digest"]
                    if peer in BUILDS and answer["compiled"] != (peer is COMPILED):
                        outcome.fail(peer.name, "another build answered")
        if workload.alike:
            for name in _odd_ones(digests):
                outcome.fail(name, "shows another text than the others")
        outcome.figures = {
            name: _medians(rows) for name, rows in samples.items() if name not in outcome.reasons
        }
        return outcome

    def _make(self, peer: Peer, needed: Made | None) -> None:
        if needed is not None and (peer.name, needed) not in self._made:
            self._run(peer, needed)
            self._made.add((peer.name, needed))

    def _run(self, peer: Peer, workload: str) -> dict[str, Any]:
        inputs, made = self._folder / "inputs", self._folder / "made" / peer.name
        command = [*self._environments.command(peer), peer.adapter, workload]
        try:
            done = subprocess.run(
                [*command, str(inputs), str(made)],
                cwd=self._root,
                env=environment(self._root, peer),
                capture_output=True,
                text=True,
                timeout=_JOB_S_MAX,
            )
        except subprocess.TimeoutExpired as error:
            raise JobError(f"more than {_JOB_S_MAX} s") from error
        if done.returncode:
            raise JobError(_last_error(done.stderr))
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if "absent" in answer:
            raise AbsentError(answer["absent"])
        return answer


def environment(root: Path, peer: Peer) -> dict[str, str]:
    """The variables that a peer's process gets."""
    found = dict(os.environ)
    if peer.path:
        found["PYTHONPATH"] = str(root / peer.path)
    return found


def _medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {case: statistics.median(row[case] for row in rows) for case in rows[0]}


def _odd_ones(digests: dict[str, str]) -> list[str]:
    usual = statistics.mode(digests.values()) if digests else ""
    return [name for name, digest in digests.items() if digest != usual]


def _last_error(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if "Error" in line]
    return lines[-1] if lines else "the worker ended without an answer"
