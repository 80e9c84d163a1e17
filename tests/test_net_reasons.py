"""Why there is no connection, in words: from what sockets of this machine really raise."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import pytest

from walstore.net.reasons import reason_of_system


async def raised(host: str, port: int, *, tls: bool = False) -> OSError:
    """What an attempt to connect raises."""
    try:
        await asyncio.open_connection(host, port, ssl=ssl.create_default_context() if tls else None)
    except OSError as error:
        return error
    pytest.fail("somebody was there")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


async def test_where_nothing_listens_the_relay_may_not_run() -> None:
    assert "is the relay running" in reason_of_system(await raised("127.0.0.1", free_port()))
    # A name with several addresses: the system's words are then a list of errors.
    assert "is the relay running" in reason_of_system(await raised("localhost", free_port()))
    one = f"[Errno {errno.ECONNREFUSED}] Connect call failed"
    several = OSError(f"Multiple exceptions: {one}, {one}")
    assert "is the relay running" in reason_of_system(several)


def test_a_name_that_nobody_has_is_said_to_be_one() -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert reason_of_system(unknown) == "there is no host of that name"


async def test_what_does_not_speak_tls_is_told_from_what_is_not_there() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        reason = reason_of_system(await raised("127.0.0.1", port, tls=True))
    assert "ws:// and not wss://" in reason


def test_whatever_else_it_is_is_said_as_the_system_says_it() -> None:
    assert reason_of_system(OSError(errno.ENETUNREACH, "Network is unreachable")) == (
        "Network is unreachable"
    )
    assert reason_of_system(ConnectionResetError()) == "ConnectionResetError"
    assert reason_of_system(OSError("odd")) == "odd"
