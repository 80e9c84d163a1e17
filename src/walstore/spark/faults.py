"""What goes wrong in tasks, in one line.

- A task runs elsewhere, and Spark tells of its error with the traceback of two languages. What
  counts is in the last line that names one of walstore's errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from walstore.errors import StorageError

_OURS = re.compile(r"^walstore\.[\w.]+: (?P<said>.+)$", re.MULTILINE)
_SAID_MAX = 500


class TaskFailedError(StorageError):
    """A task has failed, however often it was tried; nothing was committed.

    Attributes:
        reason: What it said.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"a task has failed: {reason}")
        self.reason = reason


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Raise what Spark raises in the block as a `TaskFailedError`."""
    try:
        yield
    except PySparkException as error:
        raise TaskFailedError(reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """What an error of Spark comes down to."""
    text = str(error)
    found = [match["said"] for match in _OURS.finditer(text)]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = found[-1] if found else (lines[0] if lines else type(error).__name__)
    return said[:_SAID_MAX]
