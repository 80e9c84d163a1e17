"""What the commands about documents have in common: how they are asked, and how they are told."""

from __future__ import annotations

import difflib
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import NoReturn

from walstore.cli.examples import EXAMPLES

JSON = "say it as JSON, for programs"
SYNC = "exchange with the relay as well: before reading, after writing"
VERSIONS = (
    "A version is a number that `walstore log` shows, `+1` for the first unsent one, a name that"
    " was given to it, `~1` for the one before the newest, or `now`."
)


class CommandParser(ArgumentParser):
    """A parser whose help ends with examples, and whose errors say what was probably meant."""

    def __init__(
        self, command: str, *, description: str | None = None, epilog: str | None = None
    ) -> None:
        """Be the parser of a command, such as `set` or `archive run`."""
        super().__init__(
            prog=f"walstore {command}", description=description, epilog=epilog, allow_abbrev=False
        )
        self._examples = EXAMPLES.get(command, ())

    def format_help(self) -> str:
        """The help, with lines to copy at its end."""
        told = super().format_help()
        if not self._examples:
            return told
        return told + "\nexamples:\n" + "".join(f"  {line}\n" for line in self._examples)

    def error(self, message: str) -> NoReturn:
        """Say what was not understood and what was probably meant, and end."""
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {message}{self._meant(message)}; see {self.prog} --help\n")

    def _meant(self, message: str) -> str:
        _, _, rest = message.partition("unrecognized arguments: ")
        words = rest.split()
        options = [each for each in self._option_string_actions if each.startswith("--")]
        for word in words:
            close = difflib.get_close_matches(word.partition("=")[0], options, n=1)
            if word.startswith("-") and close:
                return f" (did you mean {close[0]}?)"
        is_value = bool(words) and not any(each.startswith("-") for each in words)
        return "; what has spaces in it is put in quotes" if is_value else ""


def command_parser(
    command: str, description: str, *, epilog: str | None = None, has_json: bool = True
) -> ArgumentParser:
    """The parser of a command."""
    parser = CommandParser(command, description=description, epilog=epilog)
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
