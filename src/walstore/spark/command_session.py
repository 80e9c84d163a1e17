"""The session of one command: what goes wrong is told once, and Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from walstore.spark.session import spark_session

# They tell of a task's error with the traceback of two languages; the command tells it in a line.
_TALKATIVE = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")


@contextmanager
def command_session(master: str | None, *, app: str, is_quick: bool) -> Iterator[SparkSession]:
    """A session for the length of a block.

    Args:
        master: Where it runs, as for `spark_session`.
        app: What it is called.
        is_quick: Whether to start quickly rather than to run fast for long.
    """
    with leaving_when_interrupted():
        spark = spark_session(master, app=app, is_quick=is_quick)
        try:
            _hush(spark)
            yield spark
        finally:
            spark.stop()


@contextmanager
def leaving_when_interrupted() -> Iterator[None]:
    """Have Ctrl-C end the process on the spot.

    Spark waits for an answer of Java nearly always, and nothing can be asked while it does. What
    was not committed is an orphan, as after any other end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.stdout.flush()
    said = "walstore spark: stopped; the next run does what was not committed\n"
    os.write(sys.stderr.fileno(), said.encode())
    os._exit(128 + number)


def _hush(spark: SparkSession) -> None:
    try:
        java: Any = spark.sparkContext._jvm
    except PySparkException:
        # Over Spark Connect the log is the server's.
        return
    log4j = java.org.apache.logging.log4j
    for name in _TALKATIVE:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
