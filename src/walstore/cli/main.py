"""Finds the command that was asked for, and says in one line what went wrong.

- Nothing but the command itself is imported: the help comes at once, and a command whose packages
  are not installed says how to get them.
- Data goes to standard output, everything else to standard error.
- Exit codes: 0 done, 1 failed, 2 not understood.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from walstore.errors import UsageError, WalStoreError

OK, FAILED, NOT_UNDERSTOOD = 0, 1, 2


class Command(NamedTuple):
    """A command, by the module that carries it out and the extra that it needs."""

    module: str
    extra: str
    summary: str


class CommandModule(Protocol):
    """What the module of a command has."""

    def run(self, arguments: Sequence[str]) -> int:
        """Carry it out; the exit code."""
        ...


COMMANDS = {
    "archive": Command("walstore.cli.archive", "archive", "write, read and check archives"),
    "relay": Command("walstore.cli.relay", "relay", "run a relay, or compact what one holds"),
    "spark": Command("walstore.cli.spark", "spark", "archive and compact very many documents"),
}

# Packages that come with an extra, where it is not the one of the command.
_EXTRAS = {"psycopg": "postgres", "psycopg_binary": "postgres"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line; the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given or given[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if given else sys.stderr)
        return OK if given else NOT_UNDERSTOOD
    if given[0] == "--version":
        # The version is looked up in the installed package, which takes a while.
        print(f"walstore {import_module('importlib.metadata').version('walstore')}")
        return OK
    command = COMMANDS.get(given[0])
    if command is None:
        return _fail("walstore", f"{given[0]!r} is not a command\n\n{_usage()}", NOT_UNDERSTOOD)
    return _carry_out(given[0], command, given[1:])


def _carry_out(name: str, command: Command, arguments: Sequence[str]) -> int:
    who = f"walstore {name}"
    try:
        return cast(CommandModule, import_module(command.module)).run(arguments)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "walstore":
            raise
        extra = _EXTRAS.get(package, command.extra)
        return _fail(who, f"{package} is missing; get it with: pip install 'walstore[{extra}]'")
    except UsageError as error:
        return _fail(who, str(error), NOT_UNDERSTOOD)
    except (WalStoreError, OSError) as error:
        return _fail(who, str(error))
    except KeyboardInterrupt:
        return _fail(who, "interrupted")


def _fail(who: str, message: str, code: int = FAILED) -> int:
    print(f"{who}: {message}", file=sys.stderr)
    return code


def _usage() -> str:
    commands = "\n".join(f"  {name:<10} {each.summary}" for name, each in COMMANDS.items())
    return (
        f"usage: walstore <command> …\n\ncommands:\n{commands}\n\n"
        "walstore <command> --help tells more."
    )
