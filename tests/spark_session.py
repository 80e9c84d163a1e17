"""One Spark session for all tests: starting one takes longer than most of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on this machine, with two tasks at a time."""
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    from tests.spark_java import quick_java
    from walstore.spark.java import JavaMissingError
    from walstore.spark.session import spark_session

    with warnings.catch_warnings():
        # Spark's own imports warn of what they use themselves.
        warnings.simplefilter("ignore")
        try:
            os.environ.update(quick_java())
            session = spark_session(
                "local[2,2]",
                is_quick=True,
                settings={
                    "spark.sql.shuffle.partitions": "2",
                    "spark.log.level": "ERROR",
                },
            )
        except JavaMissingError as error:
            pytest.skip(str(error))
    yield session
    session.stop()
