"""A Spark session that walstore works in: on this machine, or wherever a master is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from walstore.spark.java import prepare_java, prepare_python
from walstore.spark.source import WalstoreDataSource

LOCAL = "local[*]"

_SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Few rows of a document make a batch of many bytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}

# A quicker start, for work that is soon done.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def spark_session(
    master: str | None = None,
    *,
    app: str = "walstore",
    is_quick: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session, started if there is none; the data source `walstore` is known in it.

    Args:
        master: Where it runs: `local[2]`, `spark://…`, or `sc://…` for Spark Connect; this machine
            if left out, or what `spark-submit` says.
        app: What it is called.
        is_quick: Whether to start quickly rather than to run fast for long.
        settings: Spark's own settings, in place of ours.

    Raises:
        JavaMissingError: There is no Java here, and it is needed.
    """
    is_connect = master is not None and master.startswith("sc://")
    prepare_python(os.environ)
    if not is_connect:
        prepare_java(os.environ, cache=_cache())
    builder = SparkSession.builder.appName(app)
    if is_connect:
        builder = builder.remote(str(master))
    elif master is not None or "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(LOCAL if master is None else master)
    for name, value in {**_SETTINGS, **_java(is_quick), **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(WalstoreDataSource)
    return session


def _cache() -> Path:
    """Where only this user writes: what is there is run."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "walstore"


def _java(is_quick: bool) -> dict[str, str]:
    return {"spark.driver.extraJavaOptions": _QUICK} if is_quick else {}
