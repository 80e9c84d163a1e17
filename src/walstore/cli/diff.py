"""`walstore diff`: what changed from one version to another."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from walstore.cli.arguments import VERSIONS, document_parser, parsed
from walstore.cli.differing import put_differences
from walstore.cli.documents import find_document
from walstore.cli.output import note
from walstore.cli.past import opened_past


def parser() -> ArgumentParser:
    """What `walstore diff` takes."""
    made = document_parser(
        "diff", "Show what changed from one version to another, as a unified diff.", epilog=VERSIONS
    )
    made.add_argument("before", metavar="VERSION", help="from this version")
    made.add_argument("after", metavar="VERSION", nargs="?", default="now", help="to this (now)")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore diff …`; the exit code."""
    return asyncio.run(_diff(parsed(parser(), arguments)))


async def _diff(flags: Namespace) -> int:
    async with opened_past(find_document(flags.document, beside=flags.before)) as past:
        before = await past.at(past.find(flags.before))
        after = await past.at(past.find(flags.after))
    if not put_differences(before, after, is_json=flags.json):
        note("they are the same")
    return 0
