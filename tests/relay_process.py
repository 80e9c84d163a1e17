"""Relays in processes of their own, made to be killed: a hundred of them in a minute.

- Importing is what takes long to start. So one process, `python -m tests.relay_process`, imports
  the commands once and forks; each child carries out `walstore relay …`, or another command, from
  its first line on. It shares nothing with the others but the code.
- The one who forks also kills and waits: when `kill` returns, the process and its locks are gone.

    test ── [arguments] + standard output ──► forker ── fork ──► walstore relay
         ◄──────────── its number ────────────
         ── number ─────────────────────────► kill -9, wait
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

# All that the command loads when it is run; a relay's own start is what is left.
import walstore.cli.archive_run
import walstore.cli.relay
import walstore.relay.postgres  # noqa: F401
from walstore.cli.main import main

START_S_MAX = 60.0
RELAY = ("relay", "--port", "0", "--log-level", "warning")
_MESSAGE_SIZE = 2**16


@dataclass(frozen=True)
class RelayProcess:
    """A relay that runs."""

    number: int
    url: str


class Forker:
    """Starts relays and kills them."""

    def __init__(self, channel: socket.socket, errors: Path) -> None:
        """Talk to a forker.

        Args:
            channel: Reaches it.
            errors: What its relays have said beside their addresses.
        """
        self._channel = channel
        self._errors = errors

    async def start(self, *arguments: str) -> RelayProcess:
        """Run `walstore relay --port 0` with further arguments, until it says where it is.

        Raises:
            AssertionError: It ended instead.
        """
        number, output = self.fork(*RELAY, *arguments)
        with output:
            line = await asyncio.wait_for(asyncio.to_thread(output.readline), START_S_MAX)
        assert line, f"the relay did not start:\n{self.errors()}"
        return RelayProcess(number, line.strip())

    def fork(self, *arguments: str) -> tuple[int, IO[str]]:
        """Begin to carry out `walstore …`: the number of its process, and what it says."""
        reader, writer = os.pipe()
        try:
            socket.send_fds(self._channel, [json.dumps(arguments).encode()], [writer])
        finally:
            os.close(writer)
        return self._answer(), os.fdopen(reader)

    def errors(self) -> str:
        """The end of what its children have said on standard error."""
        return self._errors.read_text()[-4000:]

    def kill(self, number: int) -> int:
        """End a process as a power cut would, and wait until nothing is left of it.

        Returns:
            Its exit code, if it had ended already; else that it was killed.
        """
        self._channel.send(json.dumps(number).encode())
        return self._answer()

    def _answer(self) -> int:
        return int(json.loads(self._channel.recv(_MESSAGE_SIZE)))


@contextmanager
def forking(directory: Path) -> Iterator[Forker]:
    """A forker for the time of a block; its relays end with it.

    Args:
        directory: Where relays run, and where their errors go.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    errors = directory / "errors.txt"
    clean = {name: text for name, text in os.environ.items() if "WALSTORE" not in name}
    with ours, errors.open("wb") as file:
        with its:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.relay_process", str(its.fileno()), str(directory)],
                pass_fds=[its.fileno()],
                env=clean,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
            )
        try:
            yield Forker(ours, errors)
        finally:
            ours.close()
            process.wait()


# ── in the process that forks ──────────────────────────────────────────────────────────


def _serve(channel: socket.socket) -> None:
    alive: set[int] = set()
    while True:
        message, descriptors = _receive(channel)
        if not message:
            break
        request = json.loads(message)
        if isinstance(request, int):
            code = _end(request)
            alive.discard(request)
            channel.send(json.dumps(code).encode())
        else:
            number = _fork(request, descriptors[0], channel)
            alive.add(number)
            channel.send(json.dumps(number).encode())
    for number in alive:
        _end(number)


def _receive(channel: socket.socket) -> tuple[bytes, array.array[int]]:
    message, found, _, _ = socket.recv_fds(channel, _MESSAGE_SIZE, 1)
    return message, array.array("i", found)


def _fork(arguments: Sequence[Any], output: int, channel: socket.socket) -> int:
    number = os.fork()
    if number == 0:
        _carry_out(arguments, output, channel)
    os.close(output)
    return number


def _carry_out(arguments: Sequence[Any], output: int, channel: socket.socket) -> NoReturn:
    code = 1
    try:
        channel.close()
        os.dup2(output, 1)
        os.close(output)
        # What Python knows of the stream of the process that forks, it must not take for this one.
        sys.stdout = open(1, "w", 1, closefd=False)  # noqa: SIM115
        code = main(arguments)
    finally:
        sys.stderr.flush()
        # What the process that forks would do at its own end is not its child's to do.
        os._exit(code)


def _end(number: int) -> int:
    os.kill(number, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _serve(given)
