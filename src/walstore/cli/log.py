"""`walstore log`: the versions of a document, newest first."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from walstore.cli.arguments import counted, document_parser, parsed
from walstore.cli.documents import find_document
from walstore.cli.identities import find_identity
from walstore.cli.opened import tell_unsent
from walstore.cli.output import Coloured, columns, note, printable, put_json, put_line, time_text
from walstore.cli.past import PastVersion, opened_past
from walstore.cli.people import People
from walstore.store.refused import Edit


def parser() -> ArgumentParser:
    """What `walstore log` takes."""
    made = document_parser(
        "log", "List the versions of a document, newest first: what it is called, when, who, what."
    )
    made.add_argument("-n", type=counted, dest="count_max", metavar="N", help="only the newest N")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore log …`; the exit code."""
    return asyncio.run(_log(parsed(parser(), arguments)))


async def _log(flags: Namespace) -> int:
    document = find_document(flags.document)
    async with opened_past(document) as past:
        shown = range(len(past.versions))[::-1][: flags.count_max]
        versions = [(past.versions[at], _names(past.edits(at))) for at in shown]
    people = People.load(find_identity(document.identity).identity.public_key)
    if flags.json:
        for each in versions:
            put_json(_members(*each))
        return 0
    for line in columns([_cells(*each, people) for each in versions]):
        label, _, rest = line.partition(" ")
        put_line(Coloured(label, "yellow"), f" {rest}")
    if not versions:
        name = document.name
        note(
            "nothing was written yet"
            if past.is_whole
            else f"all of it was written before what is here begins; walstore show {name}"
        )
    tell_unsent(document, sum(version.ts is None for version in past.versions))
    return 0


def _names(edits: Sequence[Edit]) -> list[str]:
    """What was edited, each once."""
    return list(dict.fromkeys(edit.name for edit in edits))


def _members(version: PastVersion, names: list[str]) -> dict[str, Any]:
    return {
        "version": version.label,
        "ts": version.ts,
        "author": version.author,
        "message": version.message,
        "names": names,
    }


def _cells(version: PastVersion, names: list[str], people: People) -> tuple[str, str, str, str]:
    when = "unsent" if version.ts is None else time_text(version.ts)
    # Messages and names are what others have written.
    said = printable(", ".join(names))
    if version.message is not None:
        said = f"{said}: {printable(version.message)}"
    return version.label, when, people.name_of(version.author), said
