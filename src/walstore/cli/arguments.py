"""What the commands about documents have in common: how they are asked, and how they are told."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence

JSON = "say it as JSON, for programs"
SYNC = "exchange with the relay as well: before reading, after writing"
VERSIONS = (
    "A version is a number that `walstore log` shows, `+1` for the first unsent one, a name that"
    " was given to it, `~1` for the one before the newest, or `now`."
)


def command_parser(
    command: str, description: str, *, epilog: str | None = None, has_json: bool = True
) -> ArgumentParser:
    """The parser of a command."""
    parser = ArgumentParser(
        prog=f"walstore {command}", description=description, epilog=epilog, allow_abbrev=False
    )
    if has_json:
        parser.add_argument("--json", action="store_true", help=JSON)
    return parser


def document_parser(
    command: str, description: str, *, epilog: str | None = None, has_json: bool = True
) -> ArgumentParser:
    """The parser of a command about one document."""
    parser = command_parser(command, description, epilog=epilog, has_json=has_json)
    parser.add_argument("document", help="the document, by the name it has on this computer")
    return parser


def parsed(parser: ArgumentParser, arguments: Sequence[str]) -> Namespace:
    """What was asked for; options may stand anywhere."""
    return parser.parse_intermixed_args(arguments)


def counted(text: str) -> int:
    """A number of things, as it was typed.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)
