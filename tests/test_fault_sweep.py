"""Whichever call to a failing or full disk fails: what was promised is there, and it goes on.

- Each scenario runs in one process with a disk that fails on demand, which forks one for each
  failure: see `fault_sweep`.
- `WALSTORE_FAULT_STEP` says how many indexes lie between two that are tried; 1 tries all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault_scenarios import SCENARIOS
from tests.faulty_disk import environment_with_disk, reason_to_skip

ROOT = Path(__file__).parent.parent
STEP = int(os.environ.get("WALSTORE_FAULT_STEP", "11"))
HOURS_MAX = 3

# Fewer failures, times the step, than these would be a sweep of nothing.
FAULTS_MIN = 200

_REASON = reason_to_skip()

pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment_with_disk(tmp_path_factory.mktemp("disk"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_whichever_call_to_the_disk_fails_what_was_promised_is_there_and_it_goes_on(
    name: str, environment: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fault_sweep", name, str(tmp_path), str(STEP)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HOURS_MAX * 3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    print(done.stdout)
    (faults,) = re.findall(r": (\d+) faults", done.stdout)
    assert int(faults) * STEP > FAULTS_MIN
