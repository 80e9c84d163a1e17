"""Commands in processes of their own, many of them in a minute.

- Importing is what takes a command longest. So one process, `python -m tests.cli_process`, imports
  what documents need and forks; each child carries out `walstore …` from its first line on, with
  its own environment, streams and memory. `tests/test_cli_installed.py` runs the installed command.
- Somebody is a home directory: what one person has, no other process of the test finds.

    test ── arguments, environment + three files ──► forker ── fork ──► walstore …
         ◄──────────────── its number ──────────────
         ── number ──────────────────────────────────► wait
         ◄──────────────── its exit code ───────────
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from walstore.cli.main import COMMANDS, main

_MESSAGE_SIZE = 2**17

# Longer than anything takes, even where many tests run at once.
WAIT_S = 60.0

# What others than documents need is not imported for them.
_APART = {"archive", "inspect", "spark"}


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it has said, as JSON."""
        return json.loads(self.out)


class Stream:
    """What a command says, line by line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._left = b""

    def line(self, wait_s: float = WAIT_S) -> str | None:
        """The next line, without its end; None if there is none yet, or none any more."""
        end = time.monotonic() + wait_s
        while b"\n" not in self._left:
            ready, _, _ = select.select([self._descriptor], [], [], max(end - time.monotonic(), 0))
            read = os.read(self._descriptor, 2**16) if ready else b""
            if not read:
                return None
            self._left += read
        line, _, self._left = self._left.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        """Listen no more."""
        os.close(self._descriptor)


class Running:
    """A command that goes on."""

    def __init__(self, forker: Forker, number: int, out: Stream, err: Stream) -> None:
        self._forker = forker
        self.number = number
        self.out = out
        self.err = err

    def end(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal, and wait; its exit code, negative if the signal has ended it."""
        os.kill(self.number, by)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended by itself; its exit code."""
        code = self._forker.wait(self.number)
        self.out.close()
        self.err.close()
        return code


class Forker:
    """Starts commands."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def fork(
        self, arguments: Sequence[str], environment: dict[str, str], files: Sequence[int]
    ) -> int:
        """Begin to carry out a command; the number of its process."""
        request = json.dumps([list(arguments), environment]).encode()
        socket.send_fds(self._channel, [request], list(files))
        return self._answer()

    def wait(self, number: int) -> int:
        """Wait for a process; its exit code."""
        self._channel.send(json.dumps(number).encode())
        return self._answer()

    def _answer(self) -> int:
        return int(json.loads(self._channel.recv(_MESSAGE_SIZE)))


class Home:
    """Somebody with a computer of their own."""

    def __init__(self, forker: Forker, root: Path) -> None:
        self._forker = forker
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.data = root / "data" / "walstore"
        self.environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(root),
            "XDG_DATA_HOME": str(root / "data"),
            "XDG_CONFIG_HOME": str(root / "config"),
            "TMPDIR": str(root),
        }

    def file(self, document: str) -> Path:
        """The local file of a document."""
        return self.data / "documents" / document / "log.db"

    def __call__(self, *arguments: str, stdin: str = "", **variables: str) -> Done:
        """Carry out `walstore …` to its end."""
        with (
            tempfile.TemporaryFile("w+", dir=self.root) as given,
            tempfile.TemporaryFile("w+", dir=self.root) as out,
            tempfile.TemporaryFile("w+", dir=self.root) as err,
        ):
            given.write(stdin)
            given.seek(0)
            files = [each.fileno() for each in (given, out, err)]
            environment = {**self.environment, **variables}
            code = self._forker.wait(self._forker.fork(arguments, environment, files))
            out.seek(0)
            err.seek(0)
            return Done(code, out.read(), err.read())

    def ok(self, *arguments: str, stdin: str = "", **variables: str) -> Done:
        """The same, of a command that does what it is asked."""
        done = self(*arguments, stdin=stdin, **variables)
        assert done.code == 0, done
        return done

    def start(self, *arguments: str) -> Running:
        """Begin `walstore …`."""
        out, its_out = os.pipe()
        err, its_err = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        files = [nothing, its_out, its_err]
        try:
            number = self._forker.fork(arguments, self.environment, files)
        finally:
            for each in files:
                os.close(each)
        return Running(self._forker, number, Stream(out), Stream(err))


@contextmanager
def forking() -> Iterator[Forker]:
    """A forker for the time of a block; what it has started ends with it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with its:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli_process", str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
            )
        try:
            yield Forker(ours)
        finally:
            ours.close()
            process.wait()


@contextmanager
def relay_of(home: Home) -> Iterator[str]:
    """The address of a relay that runs for the time of a block."""
    running = home.start("relay", "--port", "0", "--database", str(home.root / "relay.db"))
    try:
        url = running.out.line()
        assert url, running.err.line()
        yield url
    finally:
        running.end(signal.SIGKILL)


# ── in the process that forks ──────────────────────────────────────────────────────────


def _serve(channel: socket.socket) -> None:
    alive: set[int] = set()
    while True:
        message, found, _, _ = socket.recv_fds(channel, _MESSAGE_SIZE, 3)
        if not message:
            break
        request = json.loads(message)
        if isinstance(request, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(request, 0)[1])
            alive.discard(request)
        else:
            arguments, environment = request
            answer = _fork(arguments, environment, array.array("i", found), channel)
            alive.add(answer)
        channel.send(json.dumps(answer).encode())
    for number in alive:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


def _fork(
    arguments: Sequence[str],
    environment: dict[str, str],
    files: array.array[int],
    channel: socket.socket,
) -> int:
    number = os.fork()
    if number == 0:
        channel.close()
        _carry_out(arguments, environment, files)
    for each in files:
        os.close(each)
    return number


def _carry_out(
    arguments: Sequence[str], environment: dict[str, str], files: array.array[int]
) -> NoReturn:
    code = 70
    try:
        for number, each in enumerate(files):
            os.dup2(each, number)
            os.close(each)
        # What Python knows of the streams of the process that forks, it must not take for these.
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(environment["HOME"])
        try:
            code = main(arguments)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
    finally:
        if code == 70:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        # What the process that forks would do at its own end is not its child's to do.
        os._exit(code)


if __name__ == "__main__":
    for name, command in COMMANDS.items():
        if name not in _APART:
            import_module(command.module)
    # Loaded when they are needed, which is in nearly every test.
    for module in ("walstore.net.websocket", "walstore.sealed.aes_gcm", "walstore.cli.completing"):
        import_module(module)
    # Who runs tests in the background may have it ignored, and so would everybody started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _serve(given)
