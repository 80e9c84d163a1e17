"""`walstore blame`: who wrote each line of a text, each item of a list, each key of a map."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from walstore.cli.arguments import VERSIONS, document_parser, parsed
from walstore.cli.documents import find_document
from walstore.cli.identities import find_identity
from walstore.cli.output import columns, json_text, printable, put_json, put_line, time_text
from walstore.cli.past import Past, opened_past
from walstore.cli.people import People
from walstore.cli.values import NothingThereError
from walstore.document.history import Blame
from walstore.errors import UsageError


class UnsentBlameError(UsageError):
    """Who wrote what is told of versions that were sent, and of now."""

    def __init__(self, label: str) -> None:
        super().__init__(f"{label} is not sent yet; blame knows `now` and what was sent")


class Line(NamedTuple):
    """A line, an item or an entry, and who wrote it.

    Attributes:
        text: What it says.
        parts: Who wrote it, stretch by stretch; the newest one counts.
    """

    text: str
    parts: Sequence[Blame]

    @property
    def newest(self) -> Blame:
        """Who touched it last: what is not sent yet is newer than anything."""
        return max(self.parts, key=lambda part: (part.ts is None, part.ts or 0))


def parser() -> ArgumentParser:
    """What `walstore blame` takes."""
    made = document_parser(
        "blame",
        "Say who wrote each line of a text, each item of a list or each key of a map, and in which"
        " version: as their signatures prove it.",
        epilog=VERSIONS,
    )
    made.add_argument("place", metavar="name", help="its name, or name/key in a map")
    made.add_argument("--at", metavar="VERSION", default="now", help="as of a version (now)")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore blame …`; the exit code."""
    return asyncio.run(_blame(parsed(parser(), arguments)))


async def _blame(flags: Namespace) -> int:
    document = find_document(flags.document, beside=flags.place)
    async with opened_past(document) as past:
        version = past.find(flags.at)
        if version is not None and past.versions[version].ts is None:
            raise UnsentBlameError(past.versions[version].label)
        values = await past.at(version)
        name, key = _split(values, flags.place)
        if name not in values or (key and key not in values[name]):
            raise NothingThereError(document.name, flags.place, list(values))
        lines = list(_lines(values[name], past, name, version))
        if key:
            lines = [lines[sorted(values[name]).index(key)]]
    if flags.json:
        put_json([_members(line) for line in lines])
        return 0
    people = People.load(find_identity(document.identity).identity.public_key)
    for line in columns([_cells(line, people, is_whole=past.is_whole) for line in lines]):
        put_line(line)
    return 0


def _split(values: Mapping[str, Any], place: str) -> tuple[str, str]:
    """The name that a place stands for, and the key if it is one of a map."""
    name, _, key = place.partition("/")
    is_key = place not in values and isinstance(values.get(name), dict)
    return (name, key) if is_key else (place, "")


def _lines(value: Any, past: Past, name: str, version: int | None) -> Iterator[Line]:
    """The value in pieces, each with those who wrote it."""
    blames = past.blame(name, version)
    if not blames:
        # It is empty: nobody wrote any of it.
        return
    if past.document.kind(name) == "register":
        yield Line(value if isinstance(value, str) else json_text(value), blames)
        return
    at = 0
    for text, size in _pieces(value):
        yield Line(text, [part for part in blames if _overlap(part, at, at + size)])
        at += size


def _pieces(value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, str):
        yield from ((line, len(line)) for line in value.splitlines(keepends=True))
    elif isinstance(value, dict):
        yield from ((f"{key}: {json_text(value[key])}", 1) for key in sorted(value))
    else:
        yield from ((json_text(item), 1) for item in value)


def _overlap(part: Blame, start: int, end: int) -> bool:
    return part.start < end and start < part.start + part.size


def _members(line: Line) -> dict[str, Any]:
    newest = line.newest
    authors = list(dict.fromkeys(part.author for part in line.parts))
    return {"text": line.text, "author": newest.author, "ts": newest.ts, "authors": authors}


def _cells(line: Line, people: People, *, is_whole: bool) -> tuple[str, str, str, str]:
    newest = line.newest
    without = "unsent" if is_whole else "unsent, or before a snapshot"
    when = without if newest.ts is None else time_text(newest.ts)
    label = "-" if newest.ts is None else str(newest.ts)
    return label, when, people.name_of(newest.author), printable(line.text.rstrip("\n"))
