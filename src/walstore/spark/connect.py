"""Spark Connect: a session whose Spark is elsewhere, behind an address such as `sc://host:15002`.

- It needs no Java here, but walstore where the server is: what is sent there is sent by name.
- A server that does not answer is told of soon; Spark itself would go on asking for ten minutes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyspark.errors import PySparkException

from walstore.errors import TransportError, UsageError

SCHEME = "sc://"

# How long a server may take to answer at all.
ANSWER_S_MAX = 20.0


class ConnectMissingError(UsageError, ImportError):
    """The packages that Spark Connect takes are not installed."""

    def __init__(self) -> None:
        super().__init__("Spark Connect needs grpcio: pip install 'walstore[spark-connect]'")


class ConnectAddressError(UsageError):
    """The address of a server is not understood."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{_shown(address)} is not an address such as {SCHEME}host:15002")


class NoServerError(TransportError):
    """No server of Spark Connect answers."""

    def __init__(self, address: str) -> None:
        super().__init__(f"no Spark Connect server answers at {_shown(address)}", retryable=True)


def is_connect(session: Any) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def require_server(address: str, *, answer_s_max: float | None = None) -> None:
    """Make sure that a server answers.

    Args:
        address: Where it is.
        answer_s_max: How long it may take; `ANSWER_S_MAX` if left out.

    Raises:
        ConnectMissingError: What it takes to ask is not installed.
        ConnectAddressError: The address is not understood.
        NoServerError: None answers.
    """
    try:
        grpc = import_module("grpc")
        client = import_module("pyspark.sql.connect.client")
    except ImportError as error:
        raise ConnectMissingError from error
    try:
        channel = client.DefaultChannelBuilder(address).toChannel()
    except (PySparkException, ValueError) as error:
        raise ConnectAddressError(address) from error
    try:
        ready = grpc.channel_ready_future(channel)
        ready.result(timeout=ANSWER_S_MAX if answer_s_max is None else answer_s_max)
    except grpc.FutureTimeoutError as error:
        raise NoServerError(address) from error
    finally:
        channel.close()


def _shown(address: str) -> str:
    """The address without what comes after it: a token may."""
    return address.partition(";")[0].rstrip("/")
