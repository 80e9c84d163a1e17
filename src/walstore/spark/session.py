"""A Spark session that walstore works in: on this machine, or wherever a master is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from walstore.spark.connect import SCHEME, require_server
from walstore.spark.java import prepare_java, prepare_python
from walstore.spark.source import WalstoreDataSource

LOCAL = "local[*]"

# What a session may say wherever it runs.
_SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Few rows of a document make a batch of many bytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.session.timeZone": "UTC",
}

# What only whoever starts Spark may say.
_OWN_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# What only this machine is known to have: workers that have loaded what they need.
_HERE = {"spark.python.daemon.module": "walstore.spark.daemon"}

# A quicker start, for work that is soon done: it is not worth compiling.
_QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

# What counts is the work that is done in the end; pauses disturb nobody.
_STEADY = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}


def spark_session(
    master: str | None = None,
    *,
    app: str = "walstore",
    is_quick: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session, started if there is none; the data source `walstore` is known in it.

    Args:
        master: Where it runs: `local[2]`, `spark://…`, or `sc://…` for Spark Connect; if left out,
            what `SPARK_REMOTE` or `spark-submit` says, or this machine.
        app: What it is called.
        is_quick: Whether to start quickly rather than to run fast for long.
        settings: Spark's own settings, in place of ours.

    Raises:
        JavaMissingError: There is no Java here, and it is needed.
        ConnectMissingError, ConnectAddressError: Spark Connect cannot be asked.
        NoServerError: No server answers at `sc://…`.
    """
    prepare_python(os.environ)
    where = os.environ.get("SPARK_REMOTE") if master is None else master
    if where is not None and where.startswith(SCHEME):
        require_server(where)
        builder = _configured(SparkSession.builder.remote(where), _SETTINGS, settings)
    else:
        prepare_java(os.environ, cache=cache_directory())
        if where is None and "SPARK_ENV_LOADED" not in os.environ:
            where = LOCAL
        ours = {**_SETTINGS, **_OWN_SETTINGS, **_place(where, is_quick=is_quick)}
        builder = _configured(SparkSession.builder.appName(app), ours, settings)
        if where is not None:
            builder = builder.master(where)
    session = _started(builder)
    session.dataSource.register(WalstoreDataSource)
    return session


def _started(builder: SparkSession.Builder) -> SparkSession:
    """The session; whoever has their own way to be interrupted keeps it."""
    before = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    is_own = before not in (signal.default_int_handler, signal.SIG_DFL, None)
    if is_own and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
    return session


def _configured(
    builder: SparkSession.Builder, ours: Mapping[str, str], settings: Mapping[str, str] | None
) -> SparkSession.Builder:
    for name, value in {**ours, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder


def cache_directory() -> Path:
    """Where only this user writes: what is there is run."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "walstore"


def _place(where: str | None, *, is_quick: bool) -> dict[str, str]:
    """What depends on where it runs."""
    # On a cluster it is executors that work, and whoever has set it up says how.
    is_here = where is not None and where.startswith("local")
    pace = _QUICK if is_quick else _STEADY if is_here else {}
    return {**pace, **_HERE} if is_here else dict(pace)
