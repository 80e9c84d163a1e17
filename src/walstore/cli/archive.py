"""`walstore archive`: write, read, check and tidy up archives of documents."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import cast

from walstore.cli.main import NOT_UNDERSTOOD, OK, CommandModule
from walstore.errors import UsageError

_COMMANDS = {
    "run": ("walstore.cli.archive_run", "archive a relay's documents until told to stop"),
    "export": ("walstore.cli.archive_read", "write out the rows of an archive, and follow it"),
    "reconstruct": ("walstore.cli.archive_read", "write out the rows as of a position"),
    "verify": ("walstore.cli.archive_check", "check everything that an archive holds"),
    "gc": ("walstore.cli.archive_check", "remove objects that no manifest names"),
}

# What may come first.
WORDS = tuple(_COMMANDS)


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore archive …`; the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if arguments else sys.stderr)
        return OK if arguments else NOT_UNDERSTOOD
    if arguments[0] not in _COMMANDS:
        close = get_close_matches(arguments[0], _COMMANDS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(
            f"{arguments[0]!r} is not a command; {hint}`walstore archive --help` lists all"
        )
    # Only the command itself is imported: what the others need may not be installed.
    module = cast(CommandModule, import_module(_COMMANDS[arguments[0]][0]))
    return module.run(arguments)


def parser_of(word: str) -> ArgumentParser:
    """What one of the commands takes."""
    made: ArgumentParser = import_module(_COMMANDS[word][0]).parser_of(word)
    return made


def _usage() -> str:
    commands = "\n".join(f"  {name:<12} {summary}" for name, (_, summary) in _COMMANDS.items())
    return (
        f"usage: walstore archive <command> …\n\ncommands:\n{commands}\n\n"
        "walstore archive <command> --help tells more."
    )
