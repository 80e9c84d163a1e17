"""`walstore show`: a whole document, now or as it was; without a name, all documents."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from walstore.cli.arguments import SYNC, VERSIONS, command_parser, parsed
from walstore.cli.documents import KnownDocument, document_names, find_document
from walstore.cli.output import Coloured, columns, note, pretty_text, put_json, put_line, put_text
from walstore.cli.past import opened_past
from walstore.cli.reading import reading
from walstore.cli.values import all_values


def parser() -> ArgumentParser:
    """What `walstore show` takes."""
    made = command_parser(
        "show", "Show a document; without one, list the documents here.", epilog=VERSIONS
    )
    made.add_argument("document", nargs="?", help="the document; all are listed if left out")
    made.add_argument("--at", metavar="VERSION", help="as it was after a version")
    made.add_argument("--sync", action="store_true", help=SYNC)
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore show …`; the exit code."""
    made = parser()
    flags = parsed(made, arguments)
    if flags.document is None:
        if flags.at is not None or flags.sync:
            made.error("say of which document")
        return _list(is_json=flags.json)
    if flags.at is not None and flags.sync:
        made.error("--at shows what is here; use --sync without it")
    return asyncio.run(_show(flags))


async def _show(flags: Namespace) -> int:
    document = find_document(flags.document)
    if flags.at is not None:
        async with opened_past(document) as past:
            _put(await past.at(past.find(flags.at)), is_json=flags.json)
        return 0
    async with reading(document, is_synced=flags.sync) as read:
        _put(all_values(read.store), is_json=flags.json)
    return read.code


def _put(values: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        put_json(values)
        return
    for name, value in values.items():
        text = value if isinstance(value, str) else pretty_text(value)
        if "\n" in text:
            put_line(Coloured(f"{name}:", "cyan"))
            put_text("\n".join(f"  {line}" for line in text.splitlines()) + "\n")
        else:
            put_line(Coloured(f"{name}:", "cyan"), f" {text}")
    if not values:
        note("it is empty")


def _list(*, is_json: bool) -> int:
    documents = [find_document(name) for name in document_names()]
    if is_json:
        put_json([_members(each) for each in documents])
        return 0
    rows = [(each.name, each.relay or "(no relay)", each.key) for each in documents]
    for line in columns(rows):
        put_line(line)
    if not rows:
        note("there are no documents here yet; make one: walstore init notes")
    return 0


def _members(document: KnownDocument) -> dict[str, Any]:
    return {
        "name": document.name,
        "key": document.key,
        "relay": document.relay,
        "owner": document.owner,
        "sealed": document.is_sealed,
        "identity": document.identity,
        "file": str(document.file),
    }
