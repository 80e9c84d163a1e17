"""`walstore archive run`: archive a relay's documents until it is told to stop.

- The first signal ends it: what was read is written, then it goes. The second ends it at once.
- With `--once` it archives what there is now, and ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio

from walstore.archive.config import CONFIG_VARIABLE, Settings, load_settings
from walstore.archive.feed_source import FeedSource
from walstore.archive.http import Front, serving
from walstore.archive.service import Service
from walstore.archive.source import Source
from walstore.archive.wiring import Wiring
from walstore.archive.writer import Committed
from walstore.cli.archive_report import reporting
from walstore.cli.arguments import CommandParser
from walstore.cli.logs import log_to_stderr
from walstore.cli.relay import ListenError
from walstore.net.websocket import WebSocketTransport
from walstore.relay.config import LOG_LEVELS
from walstore.relay.reading import opened_source
from walstore.signed.identity import Identity

_logger = logging.getLogger("walstore.archive")


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore archive run …`; the exit code."""
    flags = parser_of(arguments[0]).parse_args(arguments[1:])
    environ = dict(os.environ)
    named = environ.pop(CONFIG_VARIABLE, None)
    config = flags.config or named
    path = None if config is None else Path(config)
    settings = load_settings(path, environ=environ, changes=flags.set)
    log_to_stderr(flags.log_level, as_json=flags.log_json)
    directory = Path() if path is None else path.parent
    return asyncio.run(_run(settings, directory, is_once=flags.once))


def parser_of(command: str) -> ArgumentParser:
    """What `walstore archive run` takes."""
    parser = CommandParser(
        f"archive {command}",
        description="Archive the documents of a relay: a base, then what changes, until told to"
        " stop. SIGTERM and Ctrl-C write what is left first.",
        epilog=f"The configuration may also be named by {CONFIG_VARIABLE}, and every setting given"
        " as WALSTORE_ARCHIVE_SECTION_NAME. A base is due when the diffs since the last one take"
        " half of what it would, or are too many: --set snapshot.max_chain_fraction=… and"
        " snapshot.max_chain_diffs=…, with 0 for none.",
    )
    parser.add_argument("--config", help="the TOML file that says what to archive, and where to")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.name=value",
        help="change a setting; may be given several times",
    )
    parser.add_argument("--once", action="store_true", help="archive what there is now, and end")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info")
    parser.add_argument("--log-json", action="store_true", help="log a JSON object a line")
    return parser


async def _run(settings: Settings, directory: Path, *, is_once: bool) -> int:
    wiring = Wiring(settings.credentials, directory=directory)
    identity = None if settings.identity is None else Identity.load(settings.identity)
    async with AsyncExitStack() as stack:
        sources = await stack.enter_async_context(_sources(settings, identity))
        service = Service(
            settings,
            identity=identity,
            destinations=wiring.destinations(settings.destinations),
            sinks=wiring.sinks(settings.events),
            open_source=sources,
            now_ms=_now_ms,
            on_progress=await stack.enter_async_context(reporting(settings)),
        )
        if is_once:
            await service.run_once(_print_table)
            return 0
        await stack.enter_async_context(_answering(settings, service))
        stopped = anyio.Event()
        _stop_on_signal(stopped)
        await service.run(stopped)
        failures = [each for each in service.tables if each.failure is not None]
        _logger.info("stopped")
        return 1 if failures else 0


def _print_table(name: str, committed: Committed | None) -> None:
    shown = "nothing new" if committed is None else committed.manifest_uri
    print(f"{name}\t{shown}", flush=True)


@asynccontextmanager
async def _sources(settings: Settings, identity: Identity | None) -> AsyncIterator[_Sources]:
    if settings.relay is None:
        yield _Sources(settings, None)
        return
    # Whoever has none of its own proves a key that means nothing; an open relay lets it read.
    who = Identity.generate() if identity is None else identity
    async with WebSocketTransport(settings.relay, identity=who) as transport:
        yield _Sources(settings, transport)


class _Sources:
    """Where documents come from."""

    def __init__(self, settings: Settings, transport: WebSocketTransport | None) -> None:
        self._settings = settings
        self._transport = transport

    @asynccontextmanager
    async def __call__(self, prefix: str) -> AsyncIterator[Source]:
        if self._transport is not None:
            yield FeedSource(self._transport, prefix)
            return
        assert self._settings.database is not None
        async with opened_source(self._settings.database, prefix) as source:
            yield source


@asynccontextmanager
async def _answering(settings: Settings, service: Service) -> AsyncIterator[None]:
    if settings.port is None:
        yield
        return
    try:
        async with serving(Front(service), host=settings.host, port=settings.port) as port:
            print(f"http://{settings.host}:{port}", flush=True)
            yield
    except OSError as error:
        raise ListenError(settings.host, settings.port, error) from error


def _stop_on_signal(stopped: anyio.Event) -> None:
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        _logger.info("stopping: writing what is left")
        stopped.set()
        for each in signals:
            loop.remove_signal_handler(each)

    for each in signals:
        with suppress(NotImplementedError):
            loop.add_signal_handler(each, stop)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
