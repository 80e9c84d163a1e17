"""`walstore verify`: whether a document, or a file, is what was signed."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from walstore.cli import archive
from walstore.cli.arguments import command_parser, parsed
from walstore.cli.checking import Checked, check_document, check_file, check_unsent
from walstore.cli.documents import document_names, find_document
from walstore.cli.main import NOT_VERIFIED, OK
from walstore.cli.output import Coloured, many, note, printable, put_json, put_line
from walstore.errors import UsageError


class NoSuchFileError(UsageError):
    """What was named looks like a file, and is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: there is no such file; name one, a directory with an archive, or a document"
            " that `walstore show` lists"
        )


def parser() -> ArgumentParser:
    """What `walstore verify` takes."""
    made = command_parser(
        "verify",
        "Check every signature, every link and every row of a document that is kept here, of a"
        " local file, of a file of unsent edits, or of an archive in a directory. Nothing is"
        f" changed. Exit code {NOT_VERIFIED} says that something is wrong.",
    )
    made.add_argument("document", metavar="document|file", help="what to check")
    made.add_argument("--prefix", help="of an archive: what its keys begin with, such as notes/")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore verify …`; the exit code."""
    flags = parsed(parser(), arguments)
    path = Path(flags.document)
    if flags.document not in document_names() and path.is_dir():
        return archive.run(["verify", *arguments])
    checked = asyncio.run(_check(flags.document, path))
    if flags.json:
        put_json(_members(checked))
    else:
        _tell(checked)
    return OK if checked.is_sound else NOT_VERIFIED


async def _check(name: str, path: Path) -> Checked:
    if name not in document_names() and not path.exists() and (path.suffix or "/" in name):
        raise NoSuchFileError(path)
    if name in document_names() or not path.exists():
        return await check_document(find_document(name))
    with path.open("rb") as file:
        is_text = file.read(1) == b"{"
    return check_unsent(path) if is_text else await check_file(path)


def _members(checked: Checked) -> dict[str, Any]:
    return {
        "document": checked.key,
        "sound": checked.is_sound,
        "elements": checked.elements,
        "unsent": checked.unsent,
        "authors": sorted(checked.authors),
        "flaws": checked.flaws,
        "notes": checked.notes,
    }


def _tell(checked: Checked) -> None:
    for flaw in checked.flaws:
        put_line(Coloured("wrong", "red"), f": {printable(flaw)}")
    for each in checked.notes:
        note(f"note: {each}")
    flaws = many(len(checked.flaws), "flaw")
    state = "sound" if checked.is_sound else f"NOT SOUND, {flaws}"
    elements, authors = many(checked.elements, "element"), many(len(checked.authors), "author")
    put_line(
        f"{printable(checked.key)}: {elements}, {checked.unsent} unsent, of {authors}; every"
        f" signature checked: {state}"
    )
