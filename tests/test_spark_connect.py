"""What is said where Spark Connect cannot be had; what it does is in `test_spark_cluster`."""

from __future__ import annotations

import socket
import sys

import pytest

from walstore.errors import UsageError

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from walstore.spark.connect import (
    ConnectAddressError,
    ConnectMissingError,
    NoServerError,
    require_server,
)


@pytest.fixture
def nobody() -> str:
    """An address at which nobody answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"sc://127.0.0.1:{free.getsockname()[1]}"


def test_without_its_packages_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConnectMissingError, match=r"walstore\[spark-connect\]"):
        require_server("sc://127.0.0.1:15002")


def test_a_server_that_does_not_answer_is_told_of_soon(nobody: str) -> None:
    pytest.importorskip("grpc", reason="the extra spark-connect is not installed")
    with pytest.raises(NoServerError, match=nobody) as caught:
        require_server(f"{nobody}/;user_id=ada", answer_s_max=0.1)
    assert caught.value.retryable
    assert "ada" not in str(caught.value)


@pytest.mark.parametrize("address", ["sc://", "sc://host:port", "sc://host:1/path", "sc://h:1/;a"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    pytest.importorskip("grpc", reason="the extra spark-connect is not installed")
    with pytest.raises(ConnectAddressError, match="is not an address") as caught:
        require_server(address, answer_s_max=0.1)
    assert isinstance(caught.value, UsageError)
