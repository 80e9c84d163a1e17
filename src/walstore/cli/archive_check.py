"""`walstore archive verify` and `gc`: whether an archive is sound, and what it can do without."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from walstore.archive.checking import Checked, check_archive
from walstore.archive.destinations import open_destination
from walstore.archive.manifest import ManifestError
from walstore.archive.orphans import GRACE_MS_MIN, collect_orphans
from walstore.archive.policy import parse_duration_ms
from walstore.archive.reader import Archive
from walstore.canon import canonical_text
from walstore.cli.arguments import CommandParser
from walstore.cli.progress import Progress

UNSOUND = 3

_VERIFY = (
    "Read everything that an archive names, and check it: sizes, hashes, order, and the signatures"
    " of every element of a sealed table. No keys and no relay are needed."
    f" Exit code {UNSOUND} says that something is wrong."
)
_COLLECT = "Remove the objects of an archive that its manifest does not name, once old enough."


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore archive verify …` or `gc …`; the exit code."""
    parser = parser_of(arguments[0])
    flags = parser.parse_args(arguments[1:])
    if arguments[0] == "verify":
        return asyncio.run(_verify(flags))
    grace_ms = parse_duration_ms(flags.grace)
    if grace_ms is None:
        parser.error(f"--grace {flags.grace} is not a time such as 5m, 6h or 7d")
    if grace_ms < GRACE_MS_MIN:
        parser.error(f"--grace {flags.grace} is below 1m: a commit may take that long")
    return asyncio.run(_collect(flags, grace_ms))


def parser_of(command: str) -> ArgumentParser:
    """What `walstore archive verify` or `gc` takes."""
    is_verify = command == "verify"
    parser = CommandParser(f"archive {command}", description=_VERIFY if is_verify else _COLLECT)
    parser.add_argument("archive", help="where it is: a directory, or s3://bucket/…")
    parser.add_argument("--prefix", default="", help="what its keys begin with, such as notes/")
    parser.add_argument("--json", action="store_true", help="say it as JSON")
    if not is_verify:
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")
        parser.add_argument(
            "--grace",
            default="24h",
            help="how old they must be, from 1m on, such as 1h or 7d (24h)",
        )
    return parser


async def _verify(flags: Namespace) -> int:
    archive = Archive(open_destination(flags.archive), flags.prefix)
    try:
        with Progress("objects") as progress:
            checked = await check_archive(archive, on_object=progress.show)
    except ManifestError as error:
        # Without it nothing can be looked at; that, too, is something that is wrong.
        said = {"sound": False, "flaws": [str(error)], "notes": []}
        print(canonical_text(said) if flags.json else f"wrong: {error}\nNOT SOUND: 1 flaw")
        return UNSOUND
    print(canonical_text(_json(checked)) if flags.json else _text(checked))
    return 0 if checked.is_sound else UNSOUND


def _json(checked: Checked) -> dict[str, object]:
    manifest = checked.manifest
    return {
        "table": manifest.table,
        "mode": manifest.mode,
        "epoch": manifest.epoch,
        "head_position": str(manifest.head_position),
        "objects": checked.objects,
        "object_bytes": checked.object_bytes,
        "rows": checked.rows,
        "sound": checked.is_sound,
        "flaws": checked.flaws,
        "notes": checked.notes,
    }


def _text(checked: Checked) -> str:
    manifest = checked.manifest
    lines = [f"wrong: {each}" for each in checked.flaws]
    lines += [f"note: {each}" for each in checked.notes]
    verified = "" if checked.verification is None else ", every signature checked"
    flaws = "1 flaw" if len(checked.flaws) == 1 else f"{len(checked.flaws)} flaws"
    state = "sound" if checked.is_sound else f"NOT SOUND: {flaws}"
    lines.append(
        f"{manifest.table} ({manifest.mode}), epoch {manifest.epoch}, head"
        f" {manifest.head_position}: {checked.objects:,} objects,"
        f" {checked.object_bytes:,} bytes, {checked.rows:,} rows{verified}: {state}"
    )
    return "\n".join(lines)


async def _collect(flags: Namespace, grace_ms: int) -> int:
    archive = Archive(open_destination(flags.archive), flags.prefix)
    orphans = await collect_orphans(
        archive, now_ms=time.time_ns() // 1_000_000, grace_ms=grace_ms, dry_run=flags.dry_run
    )
    if flags.json:
        objects = [{"key": each.key, "size_bytes": each.size_bytes} for each in orphans.objects]
        print(canonical_text({"removed": orphans.is_removed, "objects": objects}))
        return 0
    for each in orphans.objects:
        print(each.key)
    verb = "removed" if orphans.is_removed else "would be removed"
    print(f"{len(orphans.objects)} objects, {orphans.size_bytes:,} bytes {verb}", file=sys.stderr)
    return 0
