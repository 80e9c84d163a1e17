"""A program in a terminal of its own: what it writes there, what is typed, and how it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# No program is silent for longer than this, or it hangs.
_PATIENCE_S = 60.0


class Terminal:
    """A terminal, and the program that runs in it.

    Attributes:
        process: The program.
        written: What it has written so far.
    """

    def __init__(self, arguments: list[str], *, size: tuple[int, int]) -> None:
        self._end, inner = pty.openpty()
        columns, rows = size
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(inner)
        self._inner = inner
        self.written = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def until(self, said: str) -> None:
        """Read until something was written."""
        deadline = time.monotonic() + _PATIENCE_S
        while said.encode() not in self.written:
            ready, _, _ = select.select([self._end], [], [], deadline - time.monotonic())
            assert ready, f"{said!r} was never written: {self.written[-2000:]!r}"
            self.written += os.read(self._end, 65536)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._end, text.encode())

    def ended(self) -> int:
        """Wait until the program has ended, and read what it still writes; its exit status."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self._read_some(0.05)
        while self._read_some(0):
            pass
        return self.process.returncode

    @property
    def is_as_before(self) -> bool:
        """Whether lines are read, and shown, as before the program began."""
        return termios.tcgetattr(self._inner) == self.before

    def hang_up(self) -> int:
        """Close the terminal; the exit status of the program."""
        self.close()
        return self.process.wait(_PATIENCE_S)

    def close(self) -> None:
        """Be gone."""
        for each in (self._inner, self._end):
            with suppress(OSError):
                os.close(each)

    def _read_some(self, wait_s: float) -> bool:
        if not select.select([self._end], [], [], wait_s)[0]:
            return False
        with suppress(OSError):
            self.written += os.read(self._end, 65536)
        return True


@contextmanager
def terminal(*arguments: str, size: tuple[int, int] = (80, 24)) -> Iterator[Terminal]:
    """Run a Python module in a terminal for the length of a block."""
    made = Terminal(list(arguments), size=size)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        made.close()
