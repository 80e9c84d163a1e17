"""`walstore relay compact`: remove what the retention policy lets go, or only say what that is.

- A database is compacted by whoever has it: a running relay is asked through its admin endpoint
  (`--url`), the database of one that does not run is opened.
- With `--dry-run` nothing changes, and the readers are named that would have to start over.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from walstore.cli.admin_client import ask_relay
from walstore.cli.arguments import CommandParser, counted
from walstore.cli.output import note
from walstore.errors import StorageError, UsageError
from walstore.relay.config import TOKEN_VARIABLE, Settings, load_settings
from walstore.relay.keeper import Keeper
from walstore.relay.log import LogInUseError, RelayLog
from walstore.relay.metrics import Metrics
from walstore.relay.opening import opened_log

# A compaction takes as long as it takes; whoever asks for it does not wait for ever.
COMPACT_S = 600


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore relay compact …`; the exit code."""
    flags = vars(parser().parse_args(arguments))
    url, is_dry_run, is_json = flags.pop("url"), flags.pop("dry_run"), flags.pop("json")
    timeout_s = flags.pop("timeout")
    if url is not None and flags["database"] is not None:
        raise UsageError("--url is for a relay that runs, --database for one that does not")
    settings = load_settings(environ=os.environ, flags=flags)
    if url is not None:
        _show(_ask(url, settings, is_dry_run=is_dry_run, timeout_s=timeout_s))
        return 0
    report, text = asyncio.run(_compact(settings, is_dry_run=is_dry_run))
    if is_json:
        _show(report)
    else:
        print(text, end="")
    return 0


def parser() -> ArgumentParser:
    """What `walstore relay compact` takes."""
    made = CommandParser(
        "relay compact",
        description="Remove what the retention policy of a relay lets go.",
        epilog=f"The token for --url is taken from {TOKEN_VARIABLE}.",
    )
    made.add_argument("--dry-run", action="store_true", help="only say what would go")
    made.add_argument("--json", action="store_true", help="say it as JSON")
    made.add_argument("--url", help="ask the relay that runs at http://127.0.0.1:3400, say")
    made.add_argument(
        "--timeout",
        type=counted,
        default=COMPACT_S,
        metavar="SECONDS",
        help=f"how long to wait for --url ({COMPACT_S}); the relay goes on all the same",
    )
    made.add_argument("--database", help="the database of a relay that does not run")
    made.add_argument("--config", help="the configuration of the relay, with its policy")
    return made


def _ask(url: str, settings: Settings, *, is_dry_run: bool, timeout_s: int) -> Mapping[str, Any]:
    if settings.admin_token is None:
        raise UsageError(f"{TOKEN_VARIABLE} is not set; the relay compacts for its operator only")
    path = f"/admin/compact?dry_run={int(is_dry_run)}"
    note(f"asking {url} to compact; waiting for up to {timeout_s} s")
    return ask_relay(url, method="POST", path=path, token=settings.admin_token, timeout_s=timeout_s)


async def _compact(settings: Settings, *, is_dry_run: bool) -> tuple[Mapping[str, Any], str]:
    if not settings.is_postgres and not Path(settings.database).exists():
        # Opening it would make one.
        raise StorageError(f"{settings.database}: there is no database here")
    async with _opened(settings) as log:
        keeper = Keeper(log, settings.retention, metrics=Metrics(), now_ms=_now_ms)
        await keeper.load()
        if is_dry_run:
            plan = await keeper.preview()
            return {"dry_run": True, **plan.as_json()}, plan.as_text()
        removed = await keeper.compact()
        report = {"dry_run": False, "removed": removed._asdict()}
        return report, (
            f"removed: {removed.elements:,} elements, {removed.snapshots:,} snapshots,"
            f" {removed.payload_bytes:,} bytes\n"
        )


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[RelayLog]:
    """The log; where a relay has it, it is said how that one is asked."""
    async with AsyncExitStack() as stack:
        try:
            log = await stack.enter_async_context(opened_log(settings))
        except LogInUseError as error:
            raise StorageError(
                f"{error}; ask the one that runs: walstore relay compact --url"
                f" http://127.0.0.1:{settings.port}"
            ) from error
        yield log


def _show(report: Mapping[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
