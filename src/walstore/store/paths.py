"""Which paths somebody is interested in, and who is interested in a path.

- A path is a name, or `name/key` for a key of a map.
- In a pattern, `*` stands for any run of characters but `/`, and `**` for any run at all. Runs may
  be empty. Everything else stands for itself; a path that holds a `*` is named with `exact`.
- Names come from others, so matching takes time in proportion to the path, whatever the pattern.
- Looking up who wants a path costs the same for one exact path and for a thousand.
"""

from __future__ import annotations

import re
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Paths whose answer is remembered. Past that, the answers are found anew.
FOUND_PATHS_MAX = 4_096

_STARS: Final = re.compile(r"(\*+)")


class Pattern:
    """A set of paths.

    Attributes:
        text: The pattern as it is written.
        literal: The only path of the set, None if there may be others.
    """

    __slots__ = (
        "_accept",
        "_anything",
        "_letters",
        "_pieces",
        "_start",
        "_wild",
        "literal",
        "text",
    )

    def __init__(self, text: str) -> None:
        """Compile a pattern."""
        # Every second piece is a run of stars.
        self._compile(tuple(_STARS.split(text)), text)

    @classmethod
    def exact(cls, path: str) -> Pattern:
        """The pattern of one path, whatever characters it holds."""
        pattern = cls.__new__(cls)
        pattern._compile((path,), path)
        return pattern

    @classmethod
    def under(cls, name: str) -> Pattern:
        """The pattern of all keys of a map, whatever characters its name holds."""
        pattern = cls.__new__(cls)
        pattern._compile((f"{name}/", "**", ""), f"{name}/**")
        return pattern

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._pieces == other._pieces

    def __hash__(self) -> int:
        return hash(self._pieces)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def matches(self, path: str) -> bool:
        """Whether a path is in the set."""
        if self.literal is not None:
            return path == self.literal
        # Bit i is set if the path so far can be read as the first i tokens of the pattern.
        states = self._start
        for character in path:
            stay = self._anything if character == "/" else self._wild
            after = (states & self._letters.get(character, 0)) << 1 | states & stay
            states = after | (after & self._wild) << 1
            if not states:
                return False
        return bool(states & self._accept)

    def _compile(self, pieces: tuple[str, ...], text: str) -> None:
        self.text = text
        self.literal = pieces[0] if len(pieces) == 1 else None
        # Three stars and more say what two say.
        self._pieces = tuple([p[:2] if i % 2 else p for i, p in enumerate(pieces)])
        self._letters: dict[str, int] = {}
        self._wild = self._anything = 0
        bit = 1
        for number, piece in enumerate(self._pieces):
            if number % 2:
                self._wild |= bit
                self._anything |= bit if piece == "**" else 0
                bit <<= 1
                continue
            for character in piece:
                self._letters[character] = self._letters.get(character, 0) | bit
                bit <<= 1
        # Wildcards never stand side by side, so one step leaves out all that may be empty.
        self._start = 1 | (1 & self._wild) << 1
        self._accept = bit


class PathIndex(Generic[T]):
    """Items by the paths that they are interested in."""

    __slots__ = ("_exact", "_found", "_tickets", "_wild")

    def __init__(self) -> None:
        self._exact: dict[str, dict[int, T]] = {}
        self._wild: dict[int, tuple[Pattern, T]] = {}
        self._found: dict[str, tuple[T, ...]] = {}
        self._tickets = 0

    def add(self, pattern: Pattern, item: T) -> int:
        """Take an item in; the ticket takes it out again."""
        self._tickets += 1
        if pattern.literal is not None:
            self._exact.setdefault(pattern.literal, {})[self._tickets] = item
            self._found.pop(pattern.literal, None)
        else:
            self._wild[self._tickets] = pattern, item
            self._found.clear()
        return self._tickets

    def remove(self, pattern: Pattern, ticket: int) -> None:
        """Take an item out, once."""
        if pattern.literal is None:
            del self._wild[ticket]
            self._found.clear()
            return
        items = self._exact[pattern.literal]
        del items[ticket]
        if not items:
            del self._exact[pattern.literal]
        self._found.pop(pattern.literal, None)

    def matching(self, path: str) -> tuple[T, ...]:
        """The items that are interested in a path, in the order in which they came."""
        found = self._found.get(path)
        return self._find(path) if found is None else found

    def _find(self, path: str) -> tuple[T, ...]:
        items = dict(self._exact.get(path, {}))
        for ticket, (pattern, item) in self._wild.items():
            if pattern.matches(path):
                items[ticket] = item
        found = tuple([items[ticket] for ticket in sorted(items)])
        if len(self._found) >= FOUND_PATHS_MAX:
            self._found.clear()
        self._found[path] = found
        return found
