"""Everything that clients write, each thing once: so that it can be told what was lost or doubled.

- A token is a value that nobody else ever writes: a character of a text, an item of a list.
- Where somebody has removed a token, or undone its writing, nothing is expected of it: whether it
  shows depends on who was first. All others have to show once if they were acknowledged, or if
  their writer lives, and at most once otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

_FIRST_CHARACTER = 0x4E00


class Tokens:
    """The tokens of one run."""

    def __init__(self) -> None:
        self._made = 0
        # By token, the session that wrote it.
        self.writers: dict[str, str] = {}
        self.acknowledged: set[str] = set()
        self.contested: set[str] = set()
        # Those whose writer was told that they may be lost.
        self.doubtful: set[str] = set()
        # Sessions that have ended with edits that were not acknowledged, and not kept anywhere.
        self.forgotten: set[str] = set()

    def character(self, session: str) -> str:
        """A character for a text."""
        self._made += 1
        return self._new(chr(_FIRST_CHARACTER + self._made), session)

    def item(self, session: str) -> str:
        """A value for a list, a register or a map."""
        self._made += 1
        return f"v{self._made}"

    def listed(self, session: str) -> str:
        """An item that has to show."""
        return self._new(self.item(session), session)

    def _new(self, token: str, session: str) -> str:
        self.writers[token] = session
        return token

    def contest(self, tokens: Iterable[str]) -> None:
        """Somebody has removed these."""
        self.contested.update(tokens)

    def of(self, sessions: set[str]) -> list[str]:
        """What some sessions have written."""
        return [token for token, session in self.writers.items() if session in sessions]

    def faults(self, value: dict[str, Any]) -> Iterator[str]:
        """What is wrong with a document that should hold everything."""
        shown = Counter(shown_in(value))
        for token, session in self.writers.items():
            if token in self.contested:
                continue
            count = shown[token]
            is_lasting = session not in self.forgotten and token not in self.doubtful
            is_kept = token in self.acknowledged or is_lasting
            if count > 1:
                yield f"{token!r} of {session} shows {count} times"
            elif is_kept and not count:
                state = "acknowledged" if token in self.acknowledged else "not acknowledged"
                yield f"{token!r} of {session} is lost ({state})"


def shown_in(value: dict[str, Any]) -> list[str]:
    """The tokens that show in a document."""
    shown: list[str] = []
    for content in value.values():
        if isinstance(content, list):
            shown += [item for item in content if isinstance(item, str)]
    return shown
