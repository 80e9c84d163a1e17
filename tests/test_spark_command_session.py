"""What becomes of a command of Spark that is interrupted; no Java is needed to ask."""

from __future__ import annotations

import signal
import subprocess
import sys

WAITS_FOR_JAVA = """
import sys
from walstore.spark.command_session import leaving_when_interrupted

try:
    with leaving_when_interrupted():
        print("waiting", flush=True)
        sys.stdin.readline()
finally:
    print("asked Java to stop", flush=True)
"""


def test_a_command_that_is_interrupted_leaves_with_one_line() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITS_FOR_JAVA],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        said, told = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert said == ""
    assert told == "walstore spark: stopped; the next run does what was not committed\n"
