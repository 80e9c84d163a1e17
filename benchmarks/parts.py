"""The parts of a run that have a command of their own: the store and the relay.

- Each is a child process that prints its own tables and leaves its figures in a file.
- The store is measured in both builds, in turns. The relay has nothing that is compiled: one
  measurement is held to both targets.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import COMPILED, WALSTORE, Peer
from benchmarks.runner import environment
from benchmarks.standing import BUILD_NAMES, Build, Standing

_BUILDS: dict[Build, Peer] = {"pure": WALSTORE, "compiled": COMPILED}


class PartError(Exception):
    """A part gave no figures; the message says why."""


def store_standings(
    root: Path, folder: Path, builds: Sequence[Peer], *, rounds: int, quick: bool
) -> list[Standing]:
    """What a key-press costs in a store.

    Raises:
        PartError: It could not be measured.
    """
    samples: dict[tuple[Build, str], list[dict[str, Any]]] = defaultdict(list)
    for _ in range(rounds):
        for build in BUILD_NAMES:
            if _BUILDS[build] in builds:
                options = ["--json", str(folder / "store.json"), *(["--quick"] if quick else [])]
                # It returns 1 where a target is missed, which is for the table to say.
                _run(root, _BUILDS[build], "benchmarks.store", options, {0, 1}, quiet=True)
                for result in json.loads((folder / "store.json").read_bytes()):
                    samples[build, result["case"]].append(result)
    return [
        Standing(
            "store",
            case,
            "ms",
            build,
            statistics.median(result["ms"] for result in results),
            results[0]["ms_max" if build == "pure" else "ms_aim"],
            is_ratio=False,
            is_noisy=False,
        )
        for (build, case), results in samples.items()
    ]


def relay_standings(
    root: Path, folder: Path, *, quick: bool, say: Callable[[str], None]
) -> tuple[list[Standing], list[dict[str, Any]]]:
    """The relay beside its peer: the targets, and the figures.

    Raises:
        PartError: It could not be measured.
    """
    say("")
    file = folder / "relay.json"
    options = ["--json", str(file), *(["--quick"] if quick else [])]
    _run(root, WALSTORE, "benchmarks.relay", options, {0}, quiet=False)
    cases: list[dict[str, Any]] = json.loads(file.read_bytes())
    return [Standing(**each) for case in cases for each in case["standings"]], cases


def _run(
    root: Path, peer: Peer, module: str, options: list[str], expected: set[int], *, quiet: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *options],
        cwd=root,
        env=environment(root, peer),
        stdout=subprocess.DEVNULL if quiet else None,
        stderr=subprocess.PIPE if quiet else None,
        text=True,
    )
    if done.returncode not in expected:
        lines = (done.stderr or "").strip().splitlines()
        raise PartError(f"{module}: {lines[-1] if lines else f'status {done.returncode}'}")
