"""Which log a document key stands for: two logs that merely share a name are never merged."""

from __future__ import annotations

from collections.abc import Mapping


class KnownLogs:
    """The logs by document key, each learnt from the first answer about it."""

    def __init__(self, logs: Mapping[str, str]) -> None:
        """Begin with what is known from earlier sessions."""
        self._logs = dict(logs)

    def of(self, document: str) -> str | None:
        """The log of a document; None if no answer has named it yet."""
        return self._logs.get(document)

    def is_same(self, document: str, log: str) -> bool:
        """Whether an answer is from the log that is known; the first answer makes it known."""
        return self._logs.setdefault(document, log) == log

    def accept(self, document: str, log: str) -> None:
        """From now on this log is meant, although another one was known."""
        self._logs[document] = log

    def all(self) -> dict[str, str]:
        """All that are known."""
        return dict(self._logs)
