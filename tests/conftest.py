"""What tests share, and which of them run beside one another."""

import pytest

from tests.spark_session import spark

__all__ = ["spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file together, and all that share the Spark session."""
    for item in items:
        needs_spark = "spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("spark" if needs_spark else item.path.name))
