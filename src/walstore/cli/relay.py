"""`walstore relay`: run a relay until it is told to stop.

- The first signal drains: nothing new is taken, what was taken is answered, then it ends. The
  second one ends it at once.
- The address to connect to is all that goes to standard output.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from walstore.cli import relay_compact
from walstore.cli.arguments import CommandParser
from walstore.cli.logs import log_to_stderr
from walstore.cli.main import sole_cause
from walstore.errors import WalStoreError
from walstore.relay.config import LOG_LEVELS, TOKEN_VARIABLE, Settings, load_settings
from walstore.relay.opening import opened_log
from walstore.relay.server import Relay

_logger = logging.getLogger("walstore.relay")

# What may come first instead of an option.
WORDS = ("compact",)

# Files, sockets and pipes that are open beside the connections.
_FILES_BESIDE = 512


class ListenError(WalStoreError):
    """The relay cannot listen where it should."""

    def __init__(self, host: str, port: int, cause: OSError) -> None:
        # What names cannot be resolved has numbers of its own.
        is_name = isinstance(cause, socket.gaierror) or cause.errno is None
        reason = cause.strerror if is_name else os.strerror(cause.errno or 0)
        is_taken = cause.errno == errno.EADDRINUSE
        advice = "; end what listens there, or choose another port" if is_taken else ""
        super().__init__(f"cannot listen on {host}, port {port}: {reason}{advice}")


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore relay …`; the exit code."""
    if arguments[:1] == ["compact"]:
        return relay_compact.run(arguments[1:])
    flags = parser().parse_args(arguments)
    settings = load_settings(environ=os.environ, flags=vars(flags))
    log_to_stderr(settings.log_level, as_json=settings.log_json)
    asyncio.run(_serve(settings))
    return 0


def parser() -> ArgumentParser:
    """What `walstore relay` takes."""
    made = CommandParser(
        "relay",
        description="Run a relay: it orders, keeps and hands out the logs of documents.",
        epilog="`walstore relay compact --help` is about removing what may go. Every setting can"
        " also be given in the configuration or as WALSTORE_RELAY_… in the environment; the admin"
        f" token only as {TOKEN_VARIABLE} or in a file that `admin_token_file` names.",
    )
    made.add_argument("--host", help="the address to listen on (127.0.0.1)")
    made.add_argument("--port", help="the port to listen on, 0 for any that is free (3400)")
    made.add_argument("--database", help="a file, or postgresql://… (walstore-relay.db)")
    made.add_argument("--config", help="a TOML file with settings")
    made.add_argument("--roles", help="a TOML file that says who may do what")
    made.add_argument(
        "--open",
        action="store_const",
        const=True,
        help="let everybody who proves a key read and write everything, from anywhere",
    )
    made.add_argument("--public-url", help="what clients dial, if a proxy is in between")
    made.add_argument("--log-level", help=f"one of {', '.join(LOG_LEVELS)} (info)")
    made.add_argument(
        "--log-json", action="store_const", const=True, help="log a JSON object a line"
    )
    return made


def parser_of(word: str) -> ArgumentParser:
    """What `walstore relay compact` takes."""
    assert word in WORDS
    return relay_compact.parser()


async def _serve(settings: Settings) -> None:
    stopped = asyncio.Event()
    _stop_on_signal(stopped)
    _allow_connections(settings.limits.connections_max)
    async with opened_log(settings) as log:
        try:
            async with Relay.serve(
                log,
                host=settings.host,
                port=settings.port,
                roles=settings.make_roles(),
                limits=settings.limits,
                public_url=settings.public_url,
                compression=settings.compression,
                settings=settings,
            ) as relay:
                _announce(settings, relay.url)
                # What is loaded by now stays for good. Looking through it for garbage, time and
                # again, would keep everybody waiting for about 10 ms each time.
                gc.freeze()
                await stopped.wait()
                _logger.info("stopping: answering what was taken, sending everybody home")
        except (OSError, ExceptionGroup) as error:
            cause = sole_cause(error)
            if isinstance(cause, OSError):
                raise ListenError(settings.host, settings.port, cause) from error
            raise cause from None
    _logger.info("stopped")


def _stop_on_signal(stopped: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        stopped.set()
        for each in signals:
            loop.remove_signal_handler(each)

    for each in signals:
        # Where there are no such handlers, Ctrl-C cancels everything, which drains too.
        with suppress(NotImplementedError):
            loop.add_signal_handler(each, stop)


def _allow_connections(connections_max: int) -> None:
    """Raise the number of files that may be open, as far as the system lets us."""
    try:
        resource = import_module("resource")
    except ModuleNotFoundError:
        return
    wanted = connections_max + _FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        _logger.warning("the system allows %d open files, not %d connections", allowed, wanted)


def _announce(settings: Settings, url: str) -> None:
    # Listening everywhere is no address that can be dialled.
    local = url.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//localhost:")
    dialled = settings.public_url or local
    page = local.replace("ws://", "http://", 1)
    print(dialled, flush=True)
    print(
        f"The relay is ready: give your app the address {dialled}, or open {page} in a browser."
        " Ctrl-C stops it.",
        file=sys.stderr,
        flush=True,
    )
    if settings.is_open:
        _logger.warning("open: everybody who reaches this relay may read and write everything")
    _logger.info("keeping everything in %s", settings.database_shown)
