"""`walstore archive export` and `reconstruct`: the rows of an archive, on standard output.

- Rows are JSON lines, or whatever format is asked for, in a file.
- `export --follow` goes on: each line is then a step, `{"replace": […]}` or `{"change": […]}`, and
  whoever reads takes it over before the next is written. With `--state` it goes on where it was.
- An archive that is not there is an error. One that cannot be read later on is waited for.
"""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from walstore.archive.destinations import open_destination
from walstore.archive.follow import POLL_S, Follower, Replaced, Step
from walstore.archive.formats import FORMAT_IDS, open_format
from walstore.archive.manifest import Manifest
from walstore.archive.plan import Plan, plan, plan_as_of
from walstore.archive.policy import parse_duration_ms
from walstore.archive.reader import Archive, NotReachedError
from walstore.archive.rows import Row
from walstore.canon import canonical_bytes
from walstore.cli.arguments import CommandParser
from walstore.cli.progress import Progress
from walstore.errors import UsageError


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore archive export …` or `reconstruct …`; the exit code."""
    flags = parser_of(arguments[0]).parse_args(arguments[1:])
    archive = Archive(open_destination(flags.archive), flags.prefix)
    try:
        return asyncio.run(_follow(archive, flags) if flags.follow else _write_out(archive, flags))
    except BrokenPipeError:
        # Whoever reads has had enough. Nothing must be written again when the process ends.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parser_of(command: str) -> ArgumentParser:
    """What `walstore archive export` or `reconstruct` takes."""
    is_export = command == "export"
    parser = CommandParser(
        f"archive {command}",
        description="Write out the rows of an archive"
        + (", as they are at its head." if is_export else " as of a position."),
    )
    parser.add_argument("archive", help="where it is: a directory, or s3://bucket/…")
    parser.add_argument("--prefix", default="", help="what its keys begin with, such as notes/")
    parser.add_argument("--format", choices=FORMAT_IDS, default="jsonl", help="(jsonl)")
    parser.add_argument("--output", type=Path, help="a file, in place of standard output")
    if is_export:
        parser.add_argument("--follow", action="store_true", help="go on with what changes")
        parser.add_argument("--state", type=Path, help="where to keep how far --follow has come")
        parser.add_argument(
            "--poll",
            type=_pause_s,
            default=POLL_S,
            help="how often --follow looks, such as 5s (5s)",
        )
        parser.set_defaults(at=None)
    else:
        parser.add_argument("--at", type=_position, help="the position; the head if left out")
        parser.set_defaults(follow=False, state=None)
    return parser


def _position(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise ArgumentTypeError(f"{text!r} is not a position: a number such as 42")
    return int(text)


def _pause_s(text: str) -> float:
    pause_ms = parse_duration_ms(text)
    if not pause_ms:
        raise ArgumentTypeError(f"{text!r} is not a time such as 500ms, 5s or 1m")
    return pause_ms / 1000


async def _write_out(archive: Archive, flags: Namespace) -> int:
    if flags.state is not None:
        raise UsageError("--state is for --follow")
    manifest = await archive.manifest()
    way = plan(manifest) if flags.at is None else plan_as_of(manifest, flags.at)
    if way is None:
        raise NotReachedError(flags.at)
    if flags.at is not None:
        print(f"as of position {way.place.position}", file=sys.stderr)
    if flags.format == "jsonl" and flags.output is None:
        async for row in _rows(archive, manifest, way):
            _print(row)
        sys.stdout.flush()
        return 0
    return await _write_as(archive, manifest, way, flags)


async def _write_as(archive: Archive, manifest: Manifest, way: Plan, flags: Namespace) -> int:
    if flags.output is None and sys.stdout.isatty():
        raise UsageError(f"{flags.format} is not for a terminal: name a file with --output")
    format = open_format(flags.format)
    rows: list[Row] = []
    with Progress("rows") as progress:
        async for row in _rows(archive, manifest, way):
            rows.append(row)
            progress.show(len(rows))
    body = format.write_base(rows, manifest.columns)
    if flags.output is None:
        sys.stdout.buffer.write(body)
        sys.stdout.flush()
        return 0
    beside = flags.output.with_name(f"{flags.output.name}.new")
    beside.write_bytes(body)
    os.replace(beside, flags.output)
    print(f"{len(rows):,} rows in {flags.output}", file=sys.stderr)
    return 0


async def _rows(archive: Archive, manifest: Manifest, way: Plan) -> AsyncIterator[Row]:
    for number in range(manifest.parts):
        for row in await archive.part_rows(manifest, way, number):
            yield row


async def _follow(archive: Archive, flags: Namespace) -> int:
    if flags.output is not None or flags.format != "jsonl":
        raise UsageError("--follow writes steps to standard output, and takes no file")

    def unreachable(error: Exception) -> None:
        print(f"walstore archive export: {error}; trying again", file=sys.stderr)

    follower = Follower(archive, state=flags.state, poll_s=flags.poll, on_unreachable=unreachable)
    await archive.manifest()
    async for step in follower.steps():
        _print(_shown(step))
        sys.stdout.flush()
        follower.mark(step)
    return 0


def _print(content: Mapping[str, object]) -> None:
    # As bytes: JSON is UTF-8, whatever the terminal speaks.
    sys.stdout.buffer.write(canonical_bytes(content) + b"\n")


def _shown(step: Step) -> dict[str, object]:
    if isinstance(step, Replaced):
        return {"position": str(step.place.position), "replace": list(step.rows)}
    changes = [
        {"action": each.action.value, "key": list(each.key), "new": each.new}
        for each in step.changes
    ]
    return {"position": str(step.place.position), "change": changes}
