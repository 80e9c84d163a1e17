"""Finds the command that was asked for, and says in one line what went wrong.

- Nothing but the command itself is imported: the help comes at once, and a command whose packages
  are not installed says how to get them.
- Data goes to standard output, everything else to standard error.
- Exit codes: 0 done, 1 failed, 2 not understood, 3 not what was signed, 4 no network.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, TextIO, cast

from walstore.cli.faults import NotVerifiedError
from walstore.errors import TransportError, UsageError, WalStoreError

OK, FAILED, NOT_UNDERSTOOD, NOT_VERIFIED, NO_NETWORK = 0, 1, 2, 3, 4


class Command(NamedTuple):
    """A command, by the module that carries it out and the extra that it needs, if any."""

    module: str
    extra: str
    summary: str


class CommandModule(Protocol):
    """What the module of a command has."""

    def run(self, arguments: Sequence[str]) -> int:
        """Carry it out; the exit code."""
        ...


COMMANDS = {
    "init": Command("walstore.cli.init", "", "make a document"),
    "show": Command("walstore.cli.show", "", "show a document, or list all"),
    "get": Command("walstore.cli.get", "", "print one value"),
    "set": Command("walstore.cli.set", "", "write, append or delete one value"),
    "edit": Command("walstore.cli.edit", "", "edit a text in $EDITOR, and merge"),
    "undo": Command("walstore.cli.undo", "", "take back what you did last"),
    "log": Command("walstore.cli.log", "", "list the versions: who, when, what"),
    "diff": Command("walstore.cli.diff", "", "compare two versions"),
    "blame": Command("walstore.cli.blame", "", "say who wrote each line"),
    "sync": Command("walstore.cli.sync", "net", "send and receive"),
    "keygen": Command("walstore.cli.keygen", "", "make an identity, or print its card"),
    "share": Command("walstore.cli.share", "net", "invite somebody, or list the members"),
    "join": Command("walstore.cli.join", "net", "open what you were invited to"),
    "revoke": Command("walstore.cli.revoke", "net", "end somebody's membership"),
    "verify": Command("walstore.cli.verify", "", "check every signature"),
    "restore": Command("walstore.cli.restore", "", "bring back what a damaged file left"),
    "compact": Command("walstore.cli.compact", "net", "sign a snapshot for all"),
    "inspect": Command("walstore.cli.inspect", "textual", "look at a document or a relay"),
    "doctor": Command("walstore.cli.doctor", "", "find out what is wrong here"),
    "relay": Command("walstore.cli.relay", "relay", "run a relay, or compact what one holds"),
    "archive": Command("walstore.cli.archive", "archive", "write, read and check archives"),
    "spark": Command("walstore.cli.spark", "spark", "archive and compact very many documents"),
    "completion": Command("walstore.cli.completion", "", "complete commands in your shell"),
}

# Packages that come with an extra, where it is not the one of the command.
_EXTRAS = {
    "cryptography": "starfish",
    "keyring": "keychain",
    "psycopg": "postgres",
    "psycopg_binary": "postgres",
}

# What is told in one line. Anything else is a defect, and shows where it is.
_TOLD = (WalStoreError, OSError, UnicodeError, EOFError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line; the exit code."""
    _open_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _understand(given)
        finally:
            # What is left would be written when Python ends, too late to say anything about it.
            sys.stdout.flush()
    except BrokenPipeError:
        return _hush()
    except OSError as error:
        return _fail("walstore", str(error))


def _understand(given: Sequence[str]) -> int:
    if not given:
        print(_usage(), file=sys.stderr)
        return NOT_UNDERSTOOD
    first, rest = given[0], given[1:]
    if first in ("-h", "--help", "help") and not rest:
        print(_usage())
        return OK
    if first in ("-V", "--version", "version") and not rest:
        # The version is looked up in the installed package, which takes a while.
        print(f"walstore {import_module('importlib.metadata').version('walstore')}")
        return OK
    if first == "help":
        return _understand([*rest, "--help"])
    command = COMMANDS.get(first)
    if command is None:
        return _fail("walstore", _unknown(first), NOT_UNDERSTOOD)
    return _carry_out(first, command, rest)


def _open_streams() -> None:
    """Whoever closes a stream (`>&-`) does not want to know; Python has None in its place.

    What a stream cannot say, such as half a character of somebody else's, is spelled out.
    """
    if sys.stdin is None:
        sys.stdin = cast(TextIO, _ClosedInput())
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it is for as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream, errors in (
        (sys.stdin, "strict"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


class _ClosedInput(io.TextIOBase):
    """What takes the place of standard input where that was closed (`<&-`)."""

    def read(self, _size: int | None = -1, /) -> str:
        raise OSError("standard input is closed")

    def readline(self, _size: int = -1, /) -> str:  # type: ignore[override]
        raise OSError("standard input is closed")


def _carry_out(name: str, command: Command, arguments: Sequence[str]) -> int:
    who = f"walstore {name}"
    try:
        return cast(CommandModule, import_module(command.module)).run(arguments)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(package, command.extra)
        if package == "walstore" or not extra:
            raise
        return _fail(who, f"{package} is missing; get it with: pip install 'walstore[{extra}]'")
    except BrokenPipeError:
        return _hush()
    except _TOLD as error:
        return _fail(who, _said_by(error), code_of(error))
    except ExceptionGroup as group:
        # Where several things run at once, what ends one of them comes wrapped.
        cause = sole_cause(group)
        if not isinstance(cause, _TOLD):
            raise
        return _fail(who, _said_by(cause), code_of(cause))
    except KeyboardInterrupt:
        return _fail(who, "interrupted")


def _said_by(error: Exception) -> str:
    match error:
        case EOFError():
            return "the input has ended"
        case UnicodeError():
            return f"this is no text: {error}"
        case _:
            return str(error)


def sole_cause(error: Exception) -> Exception:
    """The one error that others are only wrapped around."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def code_of(error: Exception) -> int:
    """The exit code of whoever fails so."""
    match error:
        # Nothing is wrong with what was asked: something is not installed.
        case ImportError():
            return FAILED
        case UsageError():
            return NOT_UNDERSTOOD
        case NotVerifiedError():
            return NOT_VERIFIED
        case TransportError():
            return NO_NETWORK
        case _:
            return FAILED


def _hush() -> int:
    """Whoever read the output has seen enough, such as `head`."""
    # Python would write what is left once more at its end, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _fail(who: str, message: str, code: int = FAILED) -> int:
    # What a relay or a file said may be in it, and goes to a terminal.
    shown = "".join(
        each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in message
    )
    print(f"{who}: {shown}", file=sys.stderr)
    return code


def _unknown(name: str) -> str:
    close = import_module("difflib").get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{name!r} is not a command; {hint}`walstore --help` lists all"


def _usage() -> str:
    commands = "\n".join(f"  {name:<10} {each.summary}" for name, each in COMMANDS.items())
    return (
        f"usage: walstore <command> …\n\ncommands:\n{commands}\n\n"
        "walstore <command> --help tells more, with examples. To begin: walstore init notes"
    )
