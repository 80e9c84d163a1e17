"""Own elements that were read in the log and are let go of: the log may lose them yet.

Only their author can send them again. Where they are kept nowhere else they are kept here, as they
were sent and nothing more; beyond a size the oldest are given up, and a fold stands for them then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator

from walstore.document.ports import RawElement


class OwnPast:
    """Own elements, the oldest first."""

    __slots__ = ("_bytes", "_bytes_max", "_elements")

    def __init__(self, bytes_max: int) -> None:
        """Keep so much of them."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._elements: deque[RawElement] = deque()

    def __iter__(self) -> Iterator[RawElement]:
        return iter(self._elements)

    def add(self, elements: Iterable[RawElement]) -> None:
        """Keep newer ones."""
        for element in elements:
            self._elements.append(element)
            self._bytes += len(element.data)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._elements.popleft().data)

    def drop(self, signatures: Iterable[str]) -> None:
        """Let go of some, which are on their way again."""
        gone: Container[str] = set(signatures)
        kept = [element for element in self._elements if element.signature not in gone]
        self._elements.clear()
        self._bytes = 0
        self.add(kept)
