"""A relay of one's own: `walstore relay` in a process beside the editor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

from walstore import UsageError


class NoRelayError(UsageError):
    """The relay did not start.

    Attributes:
        reason: What it said.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the relay did not start: {reason}")
        self.reason = reason


@contextmanager
def running_relay(*, port: int = 0, database: Path | None = None) -> Iterator[str]:
    """Run a relay for the length of a block.

    Args:
        port: Where it listens on this machine; 0 for any port that is free.
        database: Where it keeps everything; left out, that goes when the block ends.

    Yields:
        Its address.

    Raises:
        NoRelayError: It did not start.
    """
    with TemporaryDirectory(prefix="walstore-") as directory:
        errors = Path(directory) / "errors.txt"
        kept = database or Path(directory) / "relay.db"
        command = [sys.executable, "-m", "walstore", "relay", "--log-level", "error"]
        command += ["--port", str(port), "--database", str(kept)]
        # What it says would be written over the editor; it stays in the group of the terminal, so
        # that it goes with it.
        with (
            errors.open("wb") as said,
            Popen(command, stdout=PIPE, stderr=said, text=True) as relay,
        ):
            assert relay.stdout is not None
            try:
                url = relay.stdout.readline().strip()
                if not url:
                    relay.wait()
                    raise NoRelayError(errors.read_text(errors="replace").strip())
                yield url
            finally:
                relay.terminate()
