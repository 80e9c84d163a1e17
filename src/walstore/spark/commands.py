"""The commands of `walstore spark`; only the one that was asked for is loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "archive": (
        "walstore.spark.archive_command",
        "archive a relay's documents, once or as they grow",
    ),
    "compact": ("walstore.spark.compact_command", "sign snapshots of documents with long logs"),
}


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore spark …`; the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        print(f"walstore spark: {arguments[0]!r} is not a command\n\n{_usage()}", file=sys.stderr)
        return 2
    code: int = import_module(COMMANDS[arguments[0]][0]).run(arguments[1:])
    return code


def _usage() -> str:
    commands = "\n".join(f"  {name:<12} {summary}" for name, (_, summary) in COMMANDS.items())
    return (
        f"usage: walstore spark <command> …\n\ncommands:\n{commands}\n\n"
        "walstore spark <command> --help tells more."
    )
