"""`walstore doctor`: what is wrong on this computer, and what to do about it."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from walstore.cli.arguments import command_parser, parsed
from walstore.cli.examining import LEVELS, Finding, examine
from walstore.cli.output import Colour, Coloured, printable, put_json, put_line

_COLOURS: dict[str, Colour] = {"ok": "green", "note": "dim", "wrong": "red"}


def parser() -> ArgumentParser:
    """What `walstore doctor` takes."""
    made = command_parser(
        "doctor",
        "Check this installation: packages, keys and who may read them, documents and their files,"
        " relays and the clock. Nothing is changed.",
    )
    made.add_argument("--offline", action="store_true", help="do not try to reach relays")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore doctor …`; the exit code."""
    flags = parsed(parser(), arguments)
    findings = []
    for finding in examine(is_offline=flags.offline):
        findings.append(finding)
        if not flags.json:
            _tell(finding)
    if flags.json:
        put_json([_members(each) for each in findings])
    codes = {each.code for each in findings if each.level == "wrong"}
    return next((code for code in LEVELS if code in codes), 0)


def _tell(finding: Finding) -> None:
    level = Coloured(f"{finding.level:<5}", _COLOURS[finding.level])
    put_line(level, f"  {finding.what}: {printable(finding.found)}")
    if finding.advice:
        put_line(f"       → {printable(finding.advice)}")


def _members(finding: Finding) -> dict[str, Any]:
    return {
        "level": finding.level,
        "what": finding.what,
        "found": finding.found,
        "advice": finding.advice,
    }
