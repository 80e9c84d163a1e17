"""`walstore spark`: the data pipeline, on Spark."""

from __future__ import annotations

from collections.abc import Sequence

from walstore.cli.logs import log_to_stderr
from walstore.spark.commands import run as run_command


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore spark …`; the exit code."""
    log_to_stderr("info", as_json=False)
    return run_command(arguments)
