"""`walstore spark archive`: archive the documents of a relay on Spark, once or as they grow.

- It takes the configuration of `walstore archive run`, and writes the same archive.
- With `--stream` it goes on until SIGTERM or Ctrl-C, which let the batch that is written end.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

from walstore.archive.config import CONFIG_VARIABLE, Settings, TableSettings, load_settings
from walstore.canon import canonical_text
from walstore.errors import UsageError
from walstore.spark.command_session import command_session
from walstore.spark.job import ArchiveJob
from walstore.spark.stream import AVAILABLE_NOW, TRIGGER, ArchiveStream, StreamOptions
from walstore.spark.work import Ran

_logger = logging.getLogger("walstore.spark")

# Rejections that are logged one by one.
_SHOWN_MAX = 10


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore spark archive …`; the exit code."""
    flags = _parser().parse_args(arguments)
    environ = dict(os.environ)
    named = environ.pop(CONFIG_VARIABLE, None)
    config = flags.config or named
    # Tasks run in directories of their own: paths are whole from here on.
    path = None if config is None else Path(config).absolute()
    settings = load_settings(path, environ=environ, changes=flags.set)
    tables = _chosen(settings, flags.table, is_stream=flags.stream)
    options = StreamOptions(flags.checkpoint, flags.trigger or TRIGGER, flags.max_rows)
    directory = Path.cwd() if path is None else path.parent
    with command_session(flags.master, app="walstore archive", is_quick=flags.quick) as spark:
        jobs = [
            ArchiveJob(spark, settings, each, now_ms=_now_ms, directory=directory)
            for each in tables
        ]
        if flags.stream:
            _stream(spark, jobs[0], options, _shower(jobs[0], flags))
        else:
            for job in jobs:
                _shower(job, flags)(job.run_until_done())
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="walstore spark archive",
        description="Archive the documents of a relay on Spark: the same archive as `walstore"
        " archive run` writes, byte for byte.",
        epilog=f"The configuration may also be named by {CONFIG_VARIABLE}. When a base is due is"
        " said by `walstore archive run --help`.",
    )
    parser.add_argument("--config", help="the TOML file that says what to archive, and where to")
    parser.add_argument("--set", action="append", default=[], metavar="section.name=value")
    parser.add_argument("--master", help="local[2], spark://host:7077, or sc://host:15002")
    parser.add_argument("--table", help="one table of several; all of them if left out")
    parser.add_argument("--json", action="store_true", help="say it as JSON, a line for a commit")
    parser.add_argument("--quick", action="store_true", help="start sooner, run slower")
    stream = parser.add_argument_group("as it grows")
    stream.add_argument("--stream", action="store_true", help="go on until told to stop")
    stream.add_argument("--checkpoint", help="where Spark remembers where its stream is")
    stream.add_argument("--trigger", help=f"how often, such as 5s; or {AVAILABLE_NOW}")
    stream.add_argument("--max-rows", type=_count, help="events of a micro-batch, at most")
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError(text)
    return int(text)


def _chosen(settings: Settings, name: str | None, *, is_stream: bool) -> list[TableSettings]:
    known = {each.name: each for each in settings.tables}
    if name is not None and name not in known:
        raise UsageError(f"there is no table {name!r}; there are {', '.join(known)}")
    tables = list(known.values()) if name is None else [known[name]]
    if is_stream and len(tables) > 1:
        raise UsageError(f"a stream archives one table: choose one with --table of {list(known)}")
    return tables


def _stream(
    spark: SparkSession, job: ArchiveJob, options: StreamOptions, on_ran: Callable[[Ran], None]
) -> None:
    stream = ArchiveStream(spark, job, options, on_ran=on_ran)
    with _stopping_on_signal(stream):
        stream.run()


@contextmanager
def _stopping_on_signal(stream: ArchiveStream) -> Iterator[None]:
    """The first signal lets the stream end; the second ends the process."""
    signals = (signal.SIGTERM, signal.SIGINT)
    before = {each: signal.getsignal(each) for each in signals}

    def stop(number: int, frame: FrameType | None) -> None:
        _logger.info("stopping")
        stream.stop()
        for each, handler in before.items():
            signal.signal(each, handler)

    if threading.current_thread() is threading.main_thread():
        for each in signals:
            signal.signal(each, stop)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for each, handler in before.items():
                signal.signal(each, handler)


def _shower(job: ArchiveJob, flags: Namespace) -> Callable[[Ran], None]:
    def show(ran: Ran) -> None:
        for document, ts, reason in ran.rejections[:_SHOWN_MAX]:
            _logger.warning("%s at %s: %s", document, ts, reason)
        for document, problem in ran.problems[:_SHOWN_MAX]:
            _logger.warning("%s: %s", document, problem)
        if flags.stream and ran.committed is None:
            return
        shown = shown_run(job.table.name, ran)
        print(canonical_text(shown) if flags.json else _line(shown), flush=True)

    return show


def shown_run(table: str, ran: Ran) -> dict[str, Any]:
    """What came of a run, as JSON."""
    committed = ran.committed
    artifact = None if committed is None else committed.artifact
    return {
        "table": table,
        "since": str(ran.since),
        "to": str(ran.to),
        "events": ran.events,
        "rejected": ran.rejected,
        "kind": None if artifact is None else artifact.kind.value,
        "epoch": None if artifact is None else artifact.epoch,
        "manifest": None if committed is None else committed.manifest_uri,
    }


def _line(shown: dict[str, Any]) -> str:
    if shown["kind"] is None:
        return f"{shown['table']}\tnothing new"
    rejected = f", {shown['rejected']:,} rejected" if shown["rejected"] else ""
    what = "base" if shown["kind"] == "snapshot" else "diff"
    events = f"{shown['events']:,} events{rejected}"
    return f"{shown['table']}\t{what} to {shown['to']}: {events}\t{shown['manifest']}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
