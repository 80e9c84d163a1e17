"""The JavaScript peer as a context manager: calls go out and answers come back as JSON lines.

- Every call has a time-out; a peer that misses one is ended, because its answers no longer match.
- Lines are ASCII, so that lone surrogates pass unchanged.
- What the peer writes to its error stream is shown when it ends or refuses a call.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pytest

from tests.node.packages import UnavailableError, install

BRIDGE = Path(__file__).with_name("bridge.mjs")
CALL_SECONDS_MAX = 60.0


class NodePeerError(Exception):
    """The peer threw, ended, or did not answer in time."""


class NodePeer:
    """A running `node bridge.mjs`.

    Args:
        root: The folder that holds `node_modules`, as `install` returns it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._calls = 0

    def __enter__(self) -> NodePeer:
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            ["node", str(BRIDGE), str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def call(self, name: str, *, seconds_max: float = CALL_SECONDS_MAX, **args: Any) -> Any:
        """Call a function of the bridge and return its result.

        Raises:
            NodePeerError: The call threw, the peer ended, or `seconds_max` passed.
        """
        self._calls += 1
        request = json.dumps({"id": self._calls, "call": name, "args": args})
        self._send(request + "\n")
        answer = json.loads(self._receive(seconds_max))
        if "error" in answer:
            raise NodePeerError(f"{name}: {answer['error']}")
        assert answer["id"] == self._calls, "answers come in the order of the calls"
        return answer["result"]

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise NodePeerError(f"the peer has ended: {self._error_text()}") from error

    def _receive(self, seconds_max: float) -> str:
        try:
            line = self._answers.get(timeout=seconds_max)
        except queue.Empty:
            self._process.kill()
            raise NodePeerError(f"no answer within {seconds_max} s") from None
        if line is None:
            raise NodePeerError(f"the peer has ended: {self._error_text()}")
        return line

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _error_text(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=5)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._errors.close()


def node_peer_or_skip() -> NodePeer:
    """A peer to enter, or a skipped test that says what is missing.

    Raises:
        InstallError: The packages could not be installed though the registry answered.
    """
    try:
        return NodePeer(install())
    except UnavailableError as error:
        pytest.skip(f"no JavaScript peer: {error}")
