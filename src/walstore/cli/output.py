"""What a command says, and where: data to standard output, everything else to standard error.

- On a terminal, what others have written cannot move the cursor or change colours: whatever is no
  printable character is spelled out. Into a file or a pipe, data goes as it is.
- Colours are for terminals, and not where NO_COLOR is set.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TextIO

import orjson

Colour = Literal["red", "green", "yellow", "cyan", "dim"]

# Invisible, and without them some letters and emoji are others.
_JOINERS: Final = "\u200c\u200d"

_CODES: Final[Mapping[Colour, int]] = {"red": 31, "green": 32, "yellow": 33, "cyan": 36, "dim": 2}

# How much of a key is enough to tell two people apart at a glance.
KEY_SHOWN = 8


def note(text: str) -> None:
    """Say something beside the data, in one line."""
    print(printable(text), file=sys.stderr, flush=True)


class Coloured(NamedTuple):
    """A part of a line that has a colour where somebody sees it."""

    text: str
    colour: Colour


def put_line(*parts: str | Coloured) -> None:
    """Write a line of data, part by part."""
    print("".join(map(_rendered, parts)), flush=True)


def put_text(text: str) -> None:
    """Write a text as it is; a terminal gets the line end that it may lack."""
    shown = _safe(text)
    is_ended = not sys.stdout.isatty() or shown.endswith("\n")
    print(shown, end="" if is_ended else "\n", flush=True)


def put_json(value: Any) -> None:
    """Write a JSON value, in one line."""
    print(json_text(value), flush=True)


def json_text(value: Any) -> str:
    """A JSON value in one line."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        # Half a character, which anybody may have written, is JSON as an escape alone.
        return json.dumps(value, separators=(",", ":"))


def pretty_text(value: Any) -> str:
    """A JSON value as people read it."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        return json.dumps(value, indent=2)


def has_colours(stream: TextIO) -> bool:
    """Whether colours are shown there, and wanted."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def printable(text: str) -> str:
    """A text in one line that does nothing to a terminal."""
    return "".join(
        each if each.isprintable() or each in _JOINERS else ascii(each)[1:-1] for each in text
    )


def time_text(ms: int) -> str:
    """A time in milliseconds since 1970, as people read it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        # Any number can be the `ts` of an element.
        return f"ts {ms}"


def many(count: int, what: str) -> str:
    """A number of things, in words."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their cells under one another; the last cell is as long as it is."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)][:-1] if rows else []
    return [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]
        ).rstrip()
        for row in rows
    ]


def _rendered(part: str | Coloured) -> str:
    if isinstance(part, str):
        return _safe(part)
    if not has_colours(sys.stdout):
        return _safe(part.text)
    return f"\x1b[{_CODES[part.colour]}m{_safe(part.text)}\x1b[0m"


def _safe(text: str) -> str:
    """A text for standard output: a terminal gets nothing but what it can show."""
    if not sys.stdout.isatty():
        return text
    return "".join(
        each if each.isprintable() or each in _JOINERS or each in "\n\t" else ascii(each)[1:-1]
        for each in text
    )
