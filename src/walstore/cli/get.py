"""`walstore get`: one value of a document."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from walstore.cli.arguments import SYNC, document_parser, parsed
from walstore.cli.documents import find_document
from walstore.cli.output import pretty_text, put_json, put_text
from walstore.cli.reading import reading
from walstore.cli.values import value_at


def parser() -> ArgumentParser:
    """What `walstore get` takes."""
    made = document_parser(
        "get", "Print one value: text as it is, everything else as JSON; with --json all as JSON."
    )
    made.add_argument("place", metavar="name", help="its name, or name/key in a map")
    made.add_argument("--sync", action="store_true", help=SYNC)
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore get …`; the exit code."""
    return asyncio.run(_get(parsed(parser(), arguments)))


async def _get(flags: Namespace) -> int:
    document = find_document(flags.document, beside=flags.place)
    async with reading(document, is_synced=flags.sync) as read:
        value = value_at(read.store, document.name, flags.place)
        if flags.json:
            put_json(value)
        elif read.store.document.kind(flags.place) == "text":
            # To the letter: it may be on its way into a file.
            put_text(value)
        elif read.store.document.kind(flags.place) == "list" and not value:
            # It may be a text that was emptied: nothing tells the two apart.
            put_text("")
        else:
            put_text((value if isinstance(value, str) else pretty_text(value)) + "\n")
    return read.code
