"""How `walstore archive run` says to a relay what is archived: through its admin endpoint.

- Of a table that has missed events nothing is said: the relay may be the only one that has them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from anyio.to_thread import run_sync

from walstore.archive.config import ConfigError, Settings
from walstore.archive.reporting import Progress, Reporting
from walstore.archive.writer import Committed
from walstore.cli.admin_client import ask_relay, split_url
from walstore.signed.keyfile import KeyfileError, read_keyfile

SEND_S_MAX = 30.0

_GAP = "%s: events up to %d may be missing in the archive: the relay is not told to let go of any"

_logger = logging.getLogger("walstore.archive")


@asynccontextmanager
async def reporting(settings: Settings) -> AsyncIterator[Callable[[Committed], None] | None]:
    """Whom to tell of commits, as long as the block lasts; None if the relay is not told.

    Raises:
        UsageError: The relay's address or its token cannot be used.
    """
    report = settings.report
    if report is None:
        yield None
        return
    split_url(report.relay)
    token = _token(report.token_file)
    with_gaps: set[str] = set()
    prefixes = {table.name: table.prefix for table in settings.tables}

    async def send(progress: Progress) -> None:
        ask = partial(ask_relay, method="PUT", path="/admin/archives", token=token)
        call = partial(ask, report.relay, body=progress.text, timeout_s=SEND_S_MAX)
        await run_sync(call, abandon_on_cancel=True)

    async with Reporting(send) as saying:

        def say(committed: Committed) -> None:
            manifest = committed.manifest
            if manifest.gap_upto:
                # The relay may still have what is missing, and would let go of it.
                if manifest.table not in with_gaps:
                    _logger.warning(_GAP, manifest.table, manifest.gap_upto)
                with_gaps.add(manifest.table)
                return
            # What it was archived with, whatever is configured by now.
            prefix = prefixes[manifest.table] if manifest.prefix is None else manifest.prefix
            archive = report.archive(manifest.table)
            position, relay_id = manifest.head_position, manifest.source or ""
            saying.say(Progress(archive, prefix, position, relay_id))

        yield say


def _token(path: Path) -> str:
    try:
        token = read_keyfile(path).decode("ascii").strip()
    except (KeyfileError, UnicodeDecodeError) as error:
        raise ConfigError("report.token_file", f"cannot be used: {error}") from error
    if not token or not token.isprintable():
        raise ConfigError("report.token_file", "does not hold a line with a token")
    return token
