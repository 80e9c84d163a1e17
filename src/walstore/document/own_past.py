"""Own elements that were read in the log and are let go of: the log may lose them yet.

Only their author can send them again. Where they are kept nowhere else they are kept here, as they
were sent and nothing more; beyond a size the oldest are given up, and a fold stands for them then.
"""

from __future__ import annotations

from collections.abc import Iterable

from walstore.document.ports import RawElement


class OwnPast:
    """Own elements, the oldest first."""

    __slots__ = ("_bytes", "_bytes_max", "_elements")

    def __init__(self, bytes_max: int) -> None:
        """Keep so much of them."""
        self._bytes_max = bytes_max
        self._bytes = 0
        # By signature: a log may deliver one again.
        self._elements: dict[str, RawElement] = {}

    def add(self, elements: Iterable[RawElement]) -> None:
        """Keep newer ones."""
        for element in elements:
            if element.signature not in self._elements:
                self._elements[element.signature] = element
                self._bytes += len(element.data)
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._elements)))

    def drop(self, signatures: Iterable[str]) -> None:
        """Let go of some, which are on their way again."""
        for signature in signatures:
            if signature in self._elements:
                self._drop(signature)

    def before(self, elements: list[RawElement]) -> list[RawElement]:
        """Some elements, and before them those of these that are not among them."""
        known = {element.signature for element in elements}
        own = [each for each in self._elements.values() if each.signature not in known]
        return [*own, *elements]

    def _drop(self, signature: str) -> None:
        self._bytes -= len(self._elements.pop(signature).data)
