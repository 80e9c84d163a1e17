"""How a server logs: one line for each event, on standard error, for people or for programs.

- What others have written, such as a document key, cannot begin a line of its own.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class PlainLines(logging.Formatter):
    """Lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The time, how bad it is, and what happened."""
        line = f"{_time(record)} {record.levelname.lower():<7} {_shown(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """A JSON object on each line."""

    def format(self, record: logging.LogRecord) -> str:
        """The same, with the part of the program that says it."""
        entry = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Log everything of walstore from a level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    logger = logging.getLogger("walstore")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _shown(text: str) -> str:
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
