"""A real Spark cluster on this machine: a master, two workers, and a server of Spark Connect.

- Each is a process of its own, found by what it says of itself, and ended with the block.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark_java import quick_java

START_S_MAX = 180.0
END_S_MAX = 30.0

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"

# Executors that start quickly and share a small machine.
SMALL = (
    *("--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.executor.memory=512m"),
    *("--conf", f"spark.executor.extraJavaOptions={QUICK}"),
    *("--conf", "spark.sql.shuffle.partitions=2"),
    # What is soon done is not worth compiling.
    *("--conf", "spark.sql.codegen.wholeStage=false"),
    *("--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
    *("--conf", "spark.python.daemon.module=walstore.spark.daemon"),
    *("--driver-memory", "512m", "--driver-java-options", QUICK),
)


def environment() -> dict[str, str]:
    """What Spark's own commands are started with."""
    import pyspark

    from walstore.spark.java import JavaMissingError, prepare_java, prepare_python
    from walstore.spark.session import cache_directory

    clean = {name: text for name, text in os.environ.items() if not name.startswith("WALSTORE")}
    try:
        prepare_java(clean, cache=cache_directory())
        clean |= quick_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    prepare_python(clean)
    return {
        **clean,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DAEMON_MEMORY": "640m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
    }


def command(name: str, environ: dict[str, str]) -> str:
    """Where a command of Spark's is."""
    return str(Path(environ["SPARK_HOME"]) / "bin" / name)


class _Said:
    """What a process says, looked through for one line."""

    def __init__(self, process: subprocess.Popen[str], pattern: str) -> None:
        self._process, self._pattern = process, re.compile(pattern)
        self._lines: deque[str] = deque(maxlen=50)
        self._found: Future[str] = Future()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            match = self._pattern.search(line)
            if match is not None and not self._found.done():
                self._found.set_result(match[1])
        if not self._found.done():
            self._found.set_exception(AssertionError("".join(self._lines)))

    def found(self) -> str:
        """What was looked for."""
        return self._found.result(START_S_MAX)

    def end(self) -> None:
        """End the process, and what reads it."""
        self._process.terminate()
        try:
            self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(END_S_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def running(arguments: Sequence[str], pattern: str, environ: dict[str, str]) -> Iterator[_Said]:
    """A process for the time of a block; what it says is looked through for a pattern's group."""
    process = subprocess.Popen(
        arguments,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    said = _Said(process, pattern)
    try:
        yield said
    finally:
        said.end()


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """The address of a master with two workers, each with one core and a directory of its own."""
    environ = environment()
    spark_class = command("spark-class", environ)
    start = (spark_class, MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with running(start, r"Starting Spark master at (spark://\S+)", environ) as master:
        address = master.found()

        def worker(name: str) -> Sequence[str]:
            size = ("--cores", "1", "--memory", "600m", "--host", "127.0.0.1", "--webui-port", "0")
            return (spark_class, WORKER, *size, "--work-dir", str(directory / name), address)

        registered = r"Successfully registered with master (\S+)"
        with (
            running(worker("worker-1"), registered, environ) as first,
            running(worker("worker-2"), registered, environ) as second,
        ):
            first.found(), second.found()
            yield address


@contextmanager
def connect_server(master: str) -> Iterator[Callable[[], str]]:
    """A server of Spark Connect that works for a master; what tells its address waits for it."""
    environ = environment()
    start = (
        *(command("spark-submit", environ), "--master", master, "--class", CONNECT, *SMALL),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.connect.grpc.binding.port=0"),
    )
    with running(start, r"Spark Connect server started at: (\S+:\d+)", environ) as server:
        yield lambda: f"sc://{server.found()}"


def submit(master: str, arguments: Sequence[str], *, directory: Path) -> str:
    """What `walstore.spark` says when `spark-submit` runs it."""
    import walstore.spark.__main__ as module

    environ = environment()
    start = (command("spark-submit", environ), "--master", master, *SMALL, str(module.__file__))
    done = subprocess.run(
        [*start, *arguments],
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def run_python(module: str, *arguments: str) -> None:
    """Run a module in a process of its own: one process has one kind of session."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
