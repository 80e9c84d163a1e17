"""`walstore archive export` and `reconstruct`: the rows of an archive, on standard output.

- Rows are JSON lines, or whatever format is asked for, in a file.
- `export --follow` goes on: each line is then a step, `{"replace": […]}` or `{"change": […]}`, and
  whoever reads takes it over before the next is written. With `--state` it goes on where it was.
"""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from walstore.archive.destinations import open_destination
from walstore.archive.follow import Follower, Replaced, Step
from walstore.archive.formats import FORMAT_IDS, open_format
from walstore.archive.reader import Archive
from walstore.archive.rows import Row
from walstore.canon import canonical_text
from walstore.cli.progress import Progress
from walstore.errors import UsageError


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore archive export …` or `reconstruct …`; the exit code."""
    flags = _parser(arguments[0]).parse_args(arguments[1:])
    archive = Archive(open_destination(flags.archive), flags.prefix)
    if getattr(flags, "follow", False):
        if flags.output is not None or flags.format != "jsonl":
            raise UsageError("--follow writes steps to standard output, and takes no file")
        return asyncio.run(_follow(archive, flags.state))
    return asyncio.run(_write_out(archive, flags))


def _parser(command: str) -> ArgumentParser:
    is_export = command == "export"
    parser = ArgumentParser(
        prog=f"walstore archive {command}",
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
        parser.set_defaults(at=None)
    else:
        parser.add_argument("--at", type=_position, help="the position; the head if left out")
    return parser


def _position(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


async def _write_out(archive: Archive, flags: Namespace) -> int:
    rows: list[Row] = []
    with Progress("rows") as progress:
        if flags.format == "jsonl" and flags.output is None:
            async for row in archive.rows(at=flags.at):
                print(canonical_text(row))
            return 0
        async for row in archive.rows(at=flags.at):
            rows.append(row)
            progress.show(len(rows))
    columns = (await archive.manifest()).columns
    body = open_format(flags.format).write_base(rows, columns)
    if flags.output is None:
        if sys.stdout.isatty():
            raise UsageError(f"{flags.format} is not for a terminal: name a file with --output")
        sys.stdout.buffer.write(body)
        return 0
    beside = flags.output.with_name(f"{flags.output.name}.new")
    beside.write_bytes(body)
    os.replace(beside, flags.output)
    print(f"{len(rows):,} rows in {flags.output}", file=sys.stderr)
    return 0


async def _follow(archive: Archive, state: Path | None) -> int:
    def unreachable(error: Exception) -> None:
        print(f"walstore archive export: {error}; trying again", file=sys.stderr)

    follower = Follower(archive, state=state, on_unreachable=unreachable)
    async for step in follower.steps():
        print(canonical_text(_shown(step)), flush=True)
        follower.mark(step)
    return 0


def _shown(step: Step) -> dict[str, object]:
    if isinstance(step, Replaced):
        return {"position": str(step.place.position), "replace": list(step.rows)}
    changes = [
        {"action": each.action.value, "key": list(each.key), "new": each.new}
        for each in step.changes
    ]
    return {"position": str(step.place.position), "change": changes}
