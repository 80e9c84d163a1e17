"""What tests share."""

from tests.spark_session import spark

__all__ = ["spark"]
